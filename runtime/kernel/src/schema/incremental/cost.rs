//! Finds the parts of a schema that make validation cost more than a write touches.
//!
//! A keyword that inspects a whole value is cheap if the value is small. So each such keyword's walk through its value
//! is traced to the first collection without a size bound.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jsonptr::Token;
use serde_json::Value;

use super::super::map::{Id, Role, SchemaMap};
use super::plan::{Inside, Place};

/// Maximum size of a small collection; traversing it takes some tens of microseconds.
pub const SMALL_COLLECTION_MAX: u64 = 128;
/// Maximum depth to which a recursive schema is traced.
const DEPTH_MAX: usize = 12;
/// Maximum number of places inspected; larger schemas are reported in part.
const LOOKED_MAX: usize = 5_000;
/// Maximum number of subschema visits of one estimate; later findings are omitted.
const VISITS_MAX: usize = 2_000_000;

/// A place where a write validates more than it touches.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cost {
    /// Path pattern of the value; empty for the document.
    pub place: String,
    /// Keyword that causes the cost.
    pub keyword: String,
    /// True if the keyword causes validation of the entire value, beyond the keyword itself.
    pub is_whole: bool,
    /// JSON Pointer of the keyword in the schema document; of the schema object, if no single keyword is the cause.
    pub pointer: String,
    /// Path pattern of the first traversed collection without a size bound; `None` if all traversed collections stay
    /// small.
    pub collection: Option<String>,
}

/// Returns the costs of a plan, sorted by place.
pub(super) fn costs(document: &Value, map: &SchemaMap, places: &[Place]) -> Vec<Cost> {
    let (found, seen) = (BTreeSet::new(), BTreeSet::new());
    let mut costing = Costing { document, map, places, found, seen, left: LOOKED_MAX, visits: VISITS_MAX };
    costing.place(BTreeSet::from([0]), &mut Vec::new());
    costing.found.into_iter().collect()
}

struct Costing<'c> {
    document: &'c Value,
    map: &'c SchemaMap,
    places: &'c [Place],
    found: BTreeSet<Cost>,
    /// Sets of places already inspected, with the pattern of their path.
    seen: BTreeSet<(String, Vec<usize>)>,
    left: usize,
    /// Remaining visits of subschemas.
    visits: usize,
}

fn pattern(path: &[String]) -> String {
    path.iter().map(|token| format!("/{token}")).collect()
}

/// Encodes a name for a pattern. The names `*` and `-` cannot be escaped there, and read as wildcards.
fn literal(name: &str) -> String {
    Token::new(name).encoded().to_owned()
}

impl Costing<'_> {
    /// Inspects all places of the plan that judge the value at a path.
    fn place(&mut self, places: BTreeSet<usize>, path: &mut Vec<String>) {
        let beside = |place: usize| match &self.places[place].inside {
            Inside::Parts(parts) => parts.beside.as_slice(),
            Inside::Nothing | Inside::Whole(_) => &[],
        };
        let all = reached(places, &mut self.visits, |place| beside(place).iter().copied());
        let all: Vec<usize> = all.into_iter().collect();
        if self.left == 0
            || self.visits == 0
            || path.len() > DEPTH_MAX
            || !self.seen.insert((self.shape_of(path), all.clone()))
        {
            return;
        }
        self.left -= 1;
        let sure: Vec<Id> = all.iter().map(|&place| self.places[place].id).collect();
        for &place in &all {
            self.look(place, &sure, path);
        }
        self.deeper(&all, path);
    }

    /// Returns the last steps of a path. Paths of recursive schemas are endless, so equal last steps count as visited.
    fn shape_of(&self, path: &[String]) -> String {
        pattern(&path[path.len().saturating_sub(2)..])
    }

    fn deeper(&mut self, all: &[usize], path: &mut Vec<String>) {
        let places = self.places;
        let (mut names, mut any_member, mut any_element) = (BTreeSet::new(), false, false);
        let parts: Vec<_> = all
            .iter()
            .filter_map(|&place| match &places[place].inside {
                Inside::Parts(parts) => Some(parts),
                Inside::Nothing | Inside::Whole(_) => None,
            })
            .collect();
        for parts in &parts {
            names.extend(parts.members.iter().map(|(name, _)| name.as_str()));
            any_member |= !parts.patterns.is_empty() || parts.judged_others().is_some();
            any_element |= !parts.prefix.is_empty() || parts.items.is_some();
        }
        let mut go = |this: &mut Self, token: String, below: BTreeSet<usize>| {
            if !below.is_empty() {
                path.push(token);
                this.place(below, path);
                path.pop();
            }
        };
        for name in names {
            let below = parts.iter().flat_map(|parts| parts.applied_to(name)).collect();
            go(self, literal(name), below);
        }
        if any_member {
            let of = parts
                .iter()
                .flat_map(|parts| parts.patterns.iter().map(|(_, place)| *place).chain(parts.judged_others()));
            go(self, "*".to_owned(), of.collect());
        }
        if any_element {
            let of = parts.iter().flat_map(|parts| parts.prefix.iter().copied().chain(parts.items));
            go(self, "*".to_owned(), of.collect());
        }
    }

    /// Reports the cost of one place after a change below it.
    fn look(&mut self, place: usize, sure: &[Id], path: &[String]) {
        let here = &self.places[place];
        let schema = (self.document, self.map);
        let is_whole = matches!(here.inside, Inside::Whole(_));
        let mut report = |keyword: &str, pointer: String, collection: Option<Vec<String>>| {
            let collection = collection.map(|collection| pattern(&collection));
            let (place, keyword) = (pattern(path), keyword.to_owned());
            self.found.insert(Cost { place, keyword, is_whole, pointer, collection });
        };
        match &here.inside {
            Inside::Nothing => {}
            Inside::Whole(opaque) => {
                let collection = unbounded_collection(schema, sure, &[here.id], path, &mut self.visits);
                let at = format!("{}/{}", here.pointer, opaque.keyword());
                let is_there = self.document.pointer(&at).is_some();
                let at = if is_there { at } else { opaque.at(self.document).unwrap_or_else(|| here.pointer.clone()) };
                report(opaque.keyword(), at, collection);
            }
            Inside::Parts(parts) => {
                let node = self.map.node(here.id);
                let may_be_array = sure.iter().all(|&id| self.map.node(id).arrays);
                if parts.unique.is_some() && may_be_array {
                    let collection =
                        (!is_small(self.document, self.map, sure.iter().copied(), false)).then(|| path.to_vec());
                    report("uniqueItems", format!("{}/uniqueItems", here.pointer), collection);
                }
                for (role, part) in &node.children {
                    let keyword = match role {
                        Role::AnyOf => "anyOf",
                        Role::OneOf => "oneOf",
                        Role::Not => "not",
                        Role::If => "if",
                        Role::Then => "then",
                        Role::Else => "else",
                        Role::Dependent => "dependentSchemas",
                        Role::Contains if may_be_array => "contains",
                        _ => continue,
                    };
                    let collection = if *role == Role::Contains {
                        let both = sure.iter().copied().chain([here.id]);
                        (!is_small(self.document, self.map, both, false)).then(|| path.to_vec())
                    } else {
                        unbounded_collection(schema, sure, &[*part], path, &mut self.visits)
                    };
                    let keyword_at = self.map.node(*part).pointer.strip_prefix(here.pointer.as_str());
                    let keyword_at = keyword_at.and_then(|rest| rest.split('/').nth(1)).unwrap_or(keyword);
                    report(keyword, format!("{}/{keyword_at}", here.pointer), collection);
                }
            }
        }
    }
}

/// Subschemas that apply to the parts of a value.
#[derive(Default)]
struct Parts<'m> {
    members: BTreeMap<&'m str, BTreeSet<Id>>,
    /// Subschemas of members that no `properties` names.
    other_members: BTreeSet<Id>,
    elements: BTreeSet<Id>,
}

impl<'m> Parts<'m> {
    fn collect(map: &'m SchemaMap, ids: &BTreeSet<Id>, visits: &mut usize) -> Self {
        let mut parts = Self::default();
        for (role, part) in ids.iter().flat_map(|&id| &map.node(id).children) {
            *visits = visits.saturating_sub(1);
            let below = match role {
                Role::Property(name) => parts.members.entry(name.as_str()).or_default(),
                Role::Pattern(_) | Role::AdditionalProperties | Role::UnevaluatedProperties => &mut parts.other_members,
                Role::Items | Role::Prefix(_) | Role::Contains | Role::UnevaluatedItems => &mut parts.elements,
                _ => continue,
            };
            below.insert(*part);
        }
        parts
    }
}

/// Returns the path of the first unbounded collection that the subschemas `run` traverse; `None` also if `visits` run
/// out. A valid value satisfies `sure` unconditionally.
fn unbounded_collection(
    (document, map): (&Value, &SchemaMap),
    sure: &[Id],
    run: &[Id],
    path: &[String],
    visits: &mut usize,
) -> Option<Vec<String>> {
    let mut seen = BTreeSet::new();
    let first = |ids: &[Id]| ids.iter().copied().collect::<BTreeSet<Id>>();
    let mut pending = VecDeque::from([(first(sure), first(run), path.to_vec())]);
    while let Some((sure, run, path)) = pending.pop_front() {
        if path.len() > 2 * DEPTH_MAX || !seen.insert((sure.clone(), run.clone())) {
            continue;
        }
        let sure = reached(sure, visits, |id| conjuncts(map, id));
        let run = reached(run, visits, |id| map.node(id).in_place());
        if *visits == 0 || seen.len() > LOOKED_MAX {
            return None;
        }
        let both = || sure.iter().chain(&run).copied();
        let may_be = |kind: fn(&super::super::map::Node) -> bool| sure.iter().all(|&id| kind(map.node(id)));
        let goes = |roles: &[Role]| run.iter().any(|&id| roles.iter().any(|role| map.node(id).one(role).is_some()));
        let has = |keyword: &str| run.iter().any(|&id| value_at(document, map, id, keyword).is_some());
        let through_elements = goes(&[Role::Items, Role::Contains, Role::UnevaluatedItems]) || has("uniqueItems");
        if may_be(|node| node.arrays) && through_elements && !is_small(document, map, both(), false) {
            return Some(path);
        }
        let others = [Role::AdditionalProperties, Role::PropertyNames, Role::UnevaluatedProperties];
        let through_members = goes(&others) || has("patternProperties");
        if may_be(|node| node.objects) && through_members && !is_small(document, map, both(), true) {
            return Some(path);
        }
        // All collections traversed here are small; continue with the parts.
        let (mut certain, parts) = (Parts::collect(map, &sure, visits), Parts::collect(map, &run, visits));
        let mut go = |token: String, sure: BTreeSet<Id>, run: BTreeSet<Id>| {
            if !run.is_empty() {
                pending.push_back((sure, run, [path.as_slice(), &[token]].concat()));
            }
        };
        for (name, run) in parts.members {
            go(literal(name), certain.members.remove(name).unwrap_or_default(), run);
        }
        // No single schema is certain to apply to all of several elements or members.
        go("*".to_owned(), BTreeSet::new(), parts.other_members);
        go("*".to_owned(), BTreeSet::new(), parts.elements);
    }
    None
}

/// Returns the subschemas and all that are reachable from them.
fn reached<I: Iterator<Item = Id>>(from: BTreeSet<Id>, visits: &mut usize, next: impl Fn(Id) -> I) -> BTreeSet<Id> {
    let mut pending: Vec<Id> = from.iter().copied().collect();
    let mut all = from;
    while let Some(id) = pending.pop() {
        for id in next(id) {
            *visits = visits.saturating_sub(1);
            if all.insert(id) {
                pending.push(id);
            }
        }
    }
    all
}

/// Iterates over the subschemas implied by a subschema.
fn conjuncts(map: &SchemaMap, id: Id) -> impl Iterator<Item = Id> {
    let node = map.node(id);
    let targets = node.refs.iter().filter(|targets| targets.len() == 1).flatten().copied();
    node.each(&Role::AllOf).chain(targets)
}

fn value_at<'d>(document: &'d Value, map: &SchemaMap, id: Id, keyword: &str) -> Option<&'d Value> {
    let node = map.node(id);
    if node.hides_siblings { None } else { document.pointer(&node.pointer)?.get(keyword) }
}

/// Returns true if the schema bounds the number of elements, or of members.
fn is_small(document: &Value, map: &SchemaMap, mut ids: impl Iterator<Item = Id>, members: bool) -> bool {
    ids.any(|id| {
        let keyword = if members { "maxProperties" } else { "maxItems" };
        let at_most = value_at(document, map, id, keyword).and_then(Value::as_u64);
        let node = map.node(id);
        let never = |role: &Role| node.one(role).is_some_and(|part| map.node(part).never);
        let is_closed = match members {
            true => {
                (never(&Role::AdditionalProperties) || never(&Role::UnevaluatedProperties))
                    && !node.children.iter().any(|(role, _)| matches!(role, Role::Pattern(_)))
            }
            false => never(&Role::Items) || never(&Role::UnevaluatedItems),
        };
        at_most.is_some_and(|most| most <= SMALL_COLLECTION_MAX)
            || is_closed
            || value_at(document, map, id, "const").is_some()
    })
}
