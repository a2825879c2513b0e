//! The validation plan: for every subschema that a write can be followed to, what to check there, compiled.

use std::collections::BTreeMap;

use jsonschema::{Draft, PatternOptions, Registry, ValidationOptions, Validator};
use serde_json::{Map, Value, json};

use super::super::SchemaError;
use super::super::map::{Id, Role, SchemaMap};
use super::super::node::Tree;
use super::survey::{DOCUMENT, Keywords, Opaque, Survey, reference};
use crate::tree::Node;

/// The number of a place of the plan; 0 is the root.
pub(super) type PlaceId = usize;

/// The URI of the document that holds what is compiled apart.
const APART: &str = "patchboard:///apart";

/// The most subschemas that are compiled, those counted that are compiled again as parts of others. Beyond, the
/// document is validated whole; a hundred subschemas that all hold one another are a tenth of it.
const COMPILED_MAX: usize = 100_000;

/// A compiled part of the schema.
pub(super) struct Check {
    pub(super) validator: Validator<Tree>,
    /// Where the validator believes its own keywords to be, and where they are in the document.
    pub(super) home: Option<(String, String)>,
}

/// A subschema that a write can be followed to.
pub(super) struct Place {
    pub(super) id: Id,
    /// JSON Pointer into the schema document.
    pub(super) pointer: String,
    /// All of it; `None` where anything goes, or where nothing asks for it.
    pub(super) whole: Option<Check>,
    pub(super) inside: Inside,
}

/// What to do when something changed inside of a value that this subschema judges.
pub(super) enum Inside {
    /// Nothing can be wrong by that.
    Nothing,
    /// Validate it whole.
    Whole(Opaque),
    Parts(Box<Parts>),
}

/// What to check when something changed inside.
#[derive(Default)]
pub(super) struct Parts {
    /// When members or elements came or went.
    pub(super) shape: Option<Check>,
    /// When anything changed.
    pub(super) across: Option<Check>,
    /// When an element changed and they must all be different.
    pub(super) unique: Option<Check>,
    /// Other places that judge the same value: `allOf`, `$ref`.
    pub(super) beside: Vec<PlaceId>,
    /// By name, sorted.
    pub(super) members: Vec<(String, PlaceId)>,
    /// By a validator of names.
    pub(super) patterns: Vec<(Validator<Tree>, PlaceId)>,
    pub(super) others: Others,
    pub(super) names: Option<Names>,
    /// Of the first elements.
    pub(super) prefix: Vec<PlaceId>,
    /// Of the elements after those.
    pub(super) items: Option<PlaceId>,
}

/// What members may be that neither `properties` nor `patternProperties` know.
#[derive(Default)]
pub(super) enum Others {
    #[default]
    Anything,
    Nothing,
    Judged(PlaceId),
}

/// `propertyNames`.
pub(super) struct Names {
    /// Judges one name.
    pub(super) one: Option<Check>,
    /// Judges an object by its names.
    pub(super) all: Check,
}

impl Parts {
    pub(super) fn member(&self, name: &str) -> Option<PlaceId> {
        let index = self.members.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        Some(self.members[index].1)
    }

    /// What judges members that nothing else knows.
    pub(super) const fn judged_others(&self) -> Option<PlaceId> {
        match self.others {
            Others::Judged(place) => Some(place),
            Others::Anything | Others::Nothing => None,
        }
    }

    /// All that judge a member of that name.
    pub(super) fn applied_to(&self, name: &str) -> Vec<PlaceId> {
        let matching = self.patterns.iter().filter(|(matcher, _)| matcher.is_valid(&Node::text(name)));
        let known: Vec<PlaceId> = self.member(name).into_iter().chain(matching.map(|(_, place)| *place)).collect();
        if known.is_empty() { self.judged_others().into_iter().collect() } else { known }
    }

    fn is_empty(&self) -> bool {
        let checks = [self.shape.is_some(), self.across.is_some(), self.unique.is_some(), self.names.is_some()];
        let judged = [self.items.is_some(), !matches!(self.others, Others::Anything)];
        let lists = [self.beside.is_empty(), self.members.is_empty(), self.patterns.is_empty(), self.prefix.is_empty()];
        !checks.contains(&true) && !judged.contains(&true) && !lists.contains(&false)
    }
}

/// What validation is to be like, apart from the schema.
#[derive(Clone, Copy)]
pub(in crate::schema) struct Settings {
    pub(in crate::schema) draft: Draft,
    pub(in crate::schema) assert_formats: bool,
}

impl Settings {
    fn options<'i>(self) -> ValidationOptions<'i, std::sync::Arc<dyn jsonschema::Retrieve>, Tree> {
        jsonschema::options_for::<Tree>()
            .with_draft(self.draft)
            .offline()
            .with_pattern_options(PatternOptions::regex())
            .should_validate_formats(self.assert_formats)
    }
}

/// Makes the plan of a document.
pub(super) fn compile(document: &Value, settings: Settings, map: &SchemaMap) -> Result<Vec<Place>, SchemaError> {
    let whole = settings
        .options()
        .build(document)
        .map_err(|error| SchemaError::new("", format!("it cannot be compiled for trees: {}", error.masked())))?;
    let whole = Check { validator: whole, home: None };
    let mut survey = Survey::of(document, map);
    let mut sketches = sketch(&survey, map);
    let compiled = match weight(&sketches, map) {
        0..=COMPILED_MAX => build(document, settings, map, &sketches),
        _ => None,
    };
    let mut places = match compiled {
        Some(places) => places,
        None => {
            survey.give_up();
            sketches = sketch(&survey, map);
            let opaque = sketches.swap_remove(0).opaque.expect("nothing is followed now");
            vec![Place { id: 0, pointer: String::new(), whole: None, inside: Inside::Whole(opaque) }]
        }
    };
    places[0].whole = Some(whole);
    Ok(places)
}

/// A place before anything is compiled.
struct Sketch {
    id: Id,
    opaque: Option<Opaque>,
    /// Whether values come to it that are new as a whole.
    applied: bool,
    keywords: Keywords,
    beside: Vec<PlaceId>,
    members: Vec<(String, PlaceId)>,
    patterns: Vec<(String, PlaceId)>,
    others: Option<PlaceId>,
    names: Option<PlaceId>,
    prefix: Vec<PlaceId>,
    items: Option<PlaceId>,
}

/// The places that the root leads to.
fn sketch(survey: &Survey<'_>, map: &SchemaMap) -> Vec<Sketch> {
    let mut sketching = Sketching { survey, map, numbers: BTreeMap::new(), order: Vec::new() };
    // The root is judged as it is, even if it only refers to something, so that it is number 0.
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
        // A tuple is validated whole when its elements were shifted.
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
    /// The place of a subschema; one that only refers to another has that one's.
    fn place(&mut self, mut id: Id) -> PlaceId {
        // Where there are circles nothing is followed, so this comes to an end.
        while let Some(target) = self.survey.only_refers_to(id) {
            id = target;
        }
        *self.numbers.entry(id).or_insert_with(|| {
            self.order.push(id);
            self.order.len() - 1
        })
    }

    fn sketch(&mut self, id: Id) -> Sketch {
        let mut sketch = Sketch {
            id,
            opaque: self.survey.opaque(id),
            applied: false,
            keywords: Keywords::default(),
            beside: Vec::new(),
            members: Vec::new(),
            patterns: Vec::new(),
            others: None,
            names: None,
            prefix: Vec::new(),
            items: None,
        };
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
                Role::AnyOf
                | Role::OneOf
                | Role::Not
                | Role::If
                | Role::Then
                | Role::Else
                | Role::Dependent
                | Role::Contains
                | Role::UnevaluatedProperties
                | Role::UnevaluatedItems
                | Role::Definition => {}
            }
        }
        for target in node.refs.iter().flatten() {
            sketch.beside.push(self.place(*target));
        }
        sketch.members.sort();
        // That there must be none is a matter of shape.
        if sketch.keywords.shape.contains_key("additionalItems") {
            sketch.items = None;
        }
        if sketch.keywords.shape.contains_key("additionalProperties") {
            sketch.others = None;
        }
        sketch
    }
}

/// How many subschemas are compiled for these places.
fn weight(sketches: &[Sketch], map: &SchemaMap) -> usize {
    let mut weight: usize = 0;
    for sketch in sketches {
        let compiled = usize::from(sketch.applied) + usize::from(!sketch.keywords.across.is_empty());
        if compiled > 0 && weight <= COMPILED_MAX {
            weight += compiled * reach(map, sketch.id);
        }
    }
    weight
}

/// How many subschemas a subschema leads to.
fn reach(map: &SchemaMap, id: Id) -> usize {
    let mut seen = vec![false; map.len()];
    let mut pending = vec![id];
    let mut count = 0;
    while let Some(id) = pending.pop() {
        if !std::mem::replace(&mut seen[id], true) {
            count += 1;
            pending.extend(map.node(id).in_place().chain(map.node(id).deeper()));
        }
    }
    count
}

/// Compiles all places; `None` if one of them cannot be compiled alone.
fn build(document: &Value, settings: Settings, map: &SchemaMap, sketches: &[Sketch]) -> Option<Vec<Place>> {
    let mut apart = Map::new();
    for (number, sketch) in sketches.iter().enumerate() {
        let mut put = |what: &str, keywords: &Map<String, Value>| {
            if !keywords.is_empty() {
                apart.insert(name(number, what), keywords.clone().into());
            }
        };
        put("shape", &sketch.keywords.shape);
        put("across", &sketch.keywords.across);
        if sketch.keywords.unique {
            put("unique", &Map::from_iter([("uniqueItems".to_owned(), Value::Bool(true))]));
        }
        if let Some(names) = sketch.names {
            let schema = json!({ "$ref": reference(&map.node(sketches[names].id).pointer) });
            put("names", &Map::from_iter([("propertyNames".to_owned(), schema)]));
        }
    }
    let apart = Value::Object(apart);
    let registry = Registry::new().draft(settings.draft).add(DOCUMENT, document).ok()?.add(APART, &apart).ok()?;
    let registry = registry.prepare().ok()?;
    let options = settings.options().with_registry(&registry);
    let compiler = Compiler { options, apart: &apart };
    sketches.iter().enumerate().map(|(number, sketch)| compiler.place(number, sketch, sketches, map)).collect()
}

/// The name of a part that is compiled apart.
fn name(number: PlaceId, what: &str) -> String {
    format!("patchboard-{number}-{what}")
}

struct Compiler<'r> {
    options: ValidationOptions<'r, std::sync::Arc<dyn jsonschema::Retrieve>, Tree>,
    apart: &'r Value,
}

impl Compiler<'_> {
    fn place(&self, number: PlaceId, sketch: &Sketch, sketches: &[Sketch], map: &SchemaMap) -> Option<Place> {
        let node = map.node(sketch.id);
        let pointer = node.pointer.clone();
        // The root is compiled by itself.
        let needs_whole = sketch.applied && number != 0 && !node.anything;
        let whole = if needs_whole { Some(self.whole(&pointer)?) } else { None };
        let inside = match &sketch.opaque {
            Some(opaque) => Inside::Whole(opaque.clone()),
            None => {
                let parts = self.parts(number, sketch, sketches, map)?;
                if parts.is_empty() { Inside::Nothing } else { Inside::Parts(Box::new(parts)) }
            }
        };
        Some(Place { id: sketch.id, pointer, whole, inside })
    }

    fn whole(&self, pointer: &str) -> Option<Check> {
        let validator = self.options.build(&json!({ "$ref": reference(pointer) })).ok()?;
        Some(Check { validator, home: None })
    }

    fn parts(&self, number: PlaceId, sketch: &Sketch, sketches: &[Sketch], map: &SchemaMap) -> Option<Parts> {
        let pointer = &map.node(sketch.id).pointer;
        let apart = |what| self.apart(number, what, pointer);
        let names = match sketch.names {
            Some(names) => {
                let names = map.node(sketches[names].id);
                let one = if names.anything { None } else { Some(self.whole(&names.pointer)?) };
                Some(Names { one, all: apart("names")?? })
            }
            None => None,
        };
        let mut patterns = Vec::with_capacity(sketch.patterns.len());
        for (pattern, place) in &sketch.patterns {
            patterns.push((self.options.build(&json!({ "pattern": pattern })).ok()?, *place));
        }
        let others = match sketch.others {
            None => Others::Anything,
            Some(place) if map.node(sketches[place].id).anything => Others::Anything,
            // Only a literal `false` is told of the object and not of the member.
            Some(place)
                if map.node(sketches[place].id).pointer == format!("{pointer}/additionalProperties")
                    && map.node(sketches[place].id).never =>
            {
                Others::Nothing
            }
            Some(place) => Others::Judged(place),
        };
        Some(Parts {
            shape: apart("shape")?,
            across: apart("across")?,
            unique: apart("unique")?,
            beside: sketch.beside.clone(),
            members: sketch.members.clone(),
            patterns,
            others,
            names,
            prefix: sketch.prefix.clone(),
            items: sketch.items,
        })
    }

    /// What was put apart for a place, if anything was; outer `None` if it cannot be compiled.
    #[expect(clippy::option_option, reason = "whether it is there, and whether it can be compiled")]
    fn apart(&self, number: PlaceId, what: &str, pointer: &str) -> Option<Option<Check>> {
        let name = name(number, what);
        if self.apart.get(&name).is_none() {
            return Some(None);
        }
        let validator = self.options.build(&json!({ "$ref": format!("{APART}#/{name}") })).ok()?;
        Some(Some(Check { validator, home: Some((format!("/{name}"), pointer.to_owned())) }))
    }
}
