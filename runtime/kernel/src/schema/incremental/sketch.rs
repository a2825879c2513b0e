//! The plan before compilation: its places, and the links between them.

use std::collections::BTreeMap;

use super::super::map::{Id, Role, SchemaMap};
use super::plan::PlaceId;
use super::survey::{Keywords, Opaque, Survey};

/// A place before compilation.
#[derive(Default)]
pub(super) struct Sketch {
    pub(super) id: Id,
    pub(super) opaque: Option<Opaque>,
    /// True if entirely new values can arrive at it.
    pub(super) applied: bool,
    pub(super) keywords: Keywords,
    pub(super) beside: Vec<PlaceId>,
    pub(super) members: Vec<(String, PlaceId)>,
    pub(super) patterns: Vec<(String, PlaceId)>,
    pub(super) others: Option<PlaceId>,
    pub(super) names: Option<PlaceId>,
    pub(super) prefix: Vec<PlaceId>,
    pub(super) items: Option<PlaceId>,
}

/// Returns the places reachable from the root.
pub(super) fn sketch(survey: &Survey<'_>, map: &SchemaMap) -> Vec<Sketch> {
    let mut sketching = Sketching { survey, map, numbers: BTreeMap::new(), order: Vec::new() };
    // The root keeps number 0, even if it is only a reference.
    sketching.numbers.insert(0, 0);
    sketching.order.push(0);
    let mut sketches = Vec::new();
    while let Some(&id) = sketching.order.get(sketches.len()) {
        sketches.push(sketching.sketch(id));
    }
    let mut applied = vec![false; sketches.len()];
    for sketch in &sketches {
        let members = sketch.members.iter().chain(&sketch.patterns).map(|(_, place)| place);
        let parts = members.chain(&sketch.others).chain(&sketch.names).chain(&sketch.prefix).chain(&sketch.items);
        parts.for_each(|&place| applied[place] = true);
    }
    for (sketch, applied) in sketches.iter_mut().zip(applied) {
        // A tuple is validated as a whole after its elements were shifted.
        sketch.applied = applied || sketch.opaque.is_some() || !sketch.prefix.is_empty();
    }
    sketches
}

struct Sketching<'s> {
    survey: &'s Survey<'s>,
    map: &'s SchemaMap,
    numbers: BTreeMap<Id, PlaceId>,
    order: Vec<Id>,
}

impl Sketching<'_> {
    /// Returns the place of a subschema; a pure reference resolves to its target's place.
    fn place(&mut self, mut id: Id) -> PlaceId {
        // Schemas with cycles are never followed; the bound is a safeguard.
        for _ in 0..self.map.len() {
            let Some(target) = self.survey.only_refers_to(id) else { break };
            id = target;
        }
        *self.numbers.entry(id).or_insert_with(|| {
            self.order.push(id);
            self.order.len() - 1
        })
    }

    fn sketch(&mut self, id: Id) -> Sketch {
        let mut sketch = Sketch { id, opaque: self.survey.opaque(id), ..Sketch::default() };
        if sketch.opaque.is_some() {
            return sketch;
        }
        sketch.keywords = self.survey.keywords(id);
        let map = self.map;
        let node = map.node(id);
        for (role, part) in &node.children {
            match role {
                Role::AllOf => sketch.beside.push(self.place(*part)),
                Role::Property(name) => sketch.members.push((name.clone(), self.place(*part))),
                Role::Pattern(pattern) => sketch.patterns.push((pattern.clone(), self.place(*part))),
                Role::AdditionalProperties => sketch.others = Some(self.place(*part)),
                Role::PropertyNames => sketch.names = Some(self.place(*part)),
                Role::Prefix(_) => sketch.prefix.push(self.place(*part)),
                Role::Items => sketch.items = Some(self.place(*part)),
                _ => {}
            }
        }
        for target in node.refs.iter().flatten() {
            sketch.beside.push(self.place(*target));
        }
        sketch.members.sort();
        // Shape checks already forbid these elements or members.
        if sketch.keywords.shape.contains_key("additionalItems") {
            sketch.items = None;
        }
        if sketch.keywords.shape.contains_key("additionalProperties") {
            sketch.others = None;
        }
        sketch
    }
}
