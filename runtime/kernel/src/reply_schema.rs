//! JSON Schema for a worker's reply, derived from its contract and from the values in its view.
//!
//! A model that decodes under this schema can express no operation, place or value outside of its grants, as far as the
//! worker can know. The schema permits nothing by itself: every reply is judged by [`crate::pipeline`] as before. It
//! reveals no more of the document than the worker may read.
//!
//! * `places` finds where a grant can be used, `copy_sources` what can be copied and moved there
//! * `demands` knows the demands of invariants on a value: to be in a list, to be an index of one
//! * `value` joins the schemas of a value into one that decoders support
//! * `expression` writes regular expressions for places that cannot be listed
//!
//! Some granted replies are missing:
//! * names that are empty or hold quotation marks, backslashes or control characters
//! * all but one notation of an operation (`-` to append, `replace` to write over a member)
//! * copies of values that were not shown, and moves with a target that changes once the value is removed
//! * places inside of values that the same patch creates
//! * `test`, unless nothing else guards freshness
//! * an intent that is not demanded, and more than eight requested places
//! * the parts of containers with an open type that [`Schema::fragment`] does not show
//!
//! Conversely, it permits more than the grants where names are free, as one of them may exist already, and where a
//! worker may write but not read.

mod copy_sources;
mod demands;
mod expression;
mod need;
mod places;
#[cfg(test)]
mod tests;
mod value;

use jsonptr::PointerBuf;
use serde_json::{Map, Value, json};

use crate::blueprint::{Freshness, GrantOp, Intent};
use crate::call_context::CallContext;
use crate::contract::{Contract, GrantInfo};
use crate::pattern::Pattern;
use crate::schema::Schema;
use crate::tree::Node;

use copy_sources::Move;
use demands::Demands;
use need::{Need, need};
use places::{KnownDocument, PLACES_MAX, Places};
use value::Detail;

/// Maximum characters of a form as compact JSON. Servers compile it into a grammar before they answer, and small
/// contexts include it: it takes at most a fifth of 8,000 tokens.
pub const CHARS_MAX: usize = 6000;
/// Maximum places that a reply may request.
const EXPAND_MAX: usize = 8;
/// Limit of listed places combined with places of free names in one expression; above it, all become expressions.
const BESIDE_FREE_MAX: usize = 16;

/// Levels of detail in the order of trying; the first short enough is used. Descriptions are dropped first, as they
/// constrain nothing and the view has them; then long lists of places, then deep parts of values.
const DETAIL_LEVELS: [DetailLevel; 8] = [
    DetailLevel { places: PLACES_MAX, value: Detail { described: true, depth: usize::MAX } },
    DetailLevel { places: PLACES_MAX, value: Detail { described: false, depth: usize::MAX } },
    DetailLevel { places: 16, value: Detail { described: false, depth: usize::MAX } },
    DetailLevel { places: 16, value: Detail { described: false, depth: 3 } },
    DetailLevel { places: 4, value: Detail { described: false, depth: 3 } },
    DetailLevel { places: 4, value: Detail { described: false, depth: 2 } },
    DetailLevel { places: 1, value: Detail { described: false, depth: 1 } },
    DetailLevel { places: 0, value: Detail { described: false, depth: 0 } },
];

#[derive(Clone, Copy)]
struct DetailLevel {
    /// Maximum length of a list of places.
    places: usize,
    value: Detail,
}

/// Form of a reply.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplySchema {
    /// JSON Schema of at most [`CHARS_MAX`] characters. Its root is an object.
    pub schema: Value,
    /// True if all places known to the worker are listed and all values described; false if a limit was hit.
    pub is_whole: bool,
}

impl ReplySchema {
    /// Builds the form for a seat's reply to its view. Returns `None` if even its shortest form is too long, for a
    /// contract of very many grants. Bound tokens are written as their names, so that the form is equal for all
    /// elements.
    ///
    /// Depends only on the values shown. Its cost is bounded by them and by the places it examines.
    pub fn for_call(shown: &CallContext) -> Option<Self> {
        let branches = Branches::collect(shown);
        DETAIL_LEVELS.iter().enumerate().find_map(|(nth, &how)| {
            let schema = envelope(shown, &branches.found, how);
            let is_whole = nth <= 1 && !branches.is_cut;
            (schema.to_string().chars().count() <= CHARS_MAX).then_some(Self { schema, is_whole })
        })
    }
}

/// One kind of operation of one grant.
struct Branch {
    op: &'static str,
    path: Places,
    from: Option<Places>,
    /// Schema of the value, if the operation has one.
    value: Option<Value>,
}

struct Branches {
    found: Vec<Branch>,
    /// True if some places were too many to list.
    is_cut: bool,
}

impl Branches {
    fn collect(shown: &CallContext) -> Self {
        let document = KnownDocument::from_context(shown);
        let plan = shown.plan();
        let formats = plan.blueprint.state.assert_formats;
        let mut branches = Self { found: Vec::new(), is_cut: false };
        let contract = &document.worker_plan.contract;
        for grant in contract.grants(&plan.schema) {
            let portable =
                |schema: Option<&Value>| schema.map_or(json!({}), |schema| value::portable(schema, formats, 0));
            let own = grant.value.map(value_of);
            let demands = Demands::collect(&document, plan, grant.pattern);
            let value = value::intersect(portable(grant.fragment), portable(own.as_ref()));
            branches.add(&document, &grant, &value, &demands);
        }
        if document.worker_plan.worker.freshness == Freshness::None {
            let path = copy_sources::readable(&document, &|_| true);
            branches.push(Branch { op: "test", path, from: None, value: Some(json!({})) });
        }
        branches
    }

    /// Adds the branches of one grant; `value` is the schema of its values.
    fn add(&mut self, document: &KnownDocument<'_>, grant: &GrantInfo<'_>, value: &Value, demands: &Demands) {
        let written_value = value::intersect(value.clone(), demands.schema());
        let has = |op: GrantOp| grant.ops.contains(&op);
        let arrivals = [(GrantOp::Add, "add"), (GrantOp::Insert, "add"), (GrantOp::Replace, "replace")];
        // Places to which a value can be moved or copied. Elements are never replaced this way, because arrays insert.
        let mut arrives = Places::default();
        for (op, written) in arrivals.into_iter().filter(|(op, _)| has(*op)) {
            let mut path = document.places(grant.pattern, need(op));
            self.push(Branch { op: written, path: path.clone(), from: None, value: Some(written_value.clone()) });
            if op == GrantOp::Replace {
                path.exact.retain(|place| document.array_of(place).is_none());
            }
            arrives.join(path);
        }
        if has(GrantOp::Remove) {
            let path = document.places(grant.pattern, Need::Overwrite);
            self.push(Branch { op: "remove", path, from: None, value: None });
        }
        if arrives.is_empty() || !has(GrantOp::Copy) && !has(GrantOp::Move) {
            return;
        }
        let fits_schema = copy_sources::fits(value, grant.value);
        let fits = |node: &Node| demands.allow(node) && fits_schema(node);
        if has(GrantOp::Copy) {
            let from = copy_sources::readable(document, &fits);
            self.push(Branch { op: "copy", path: arrives.clone(), from: Some(from), value: None });
        }
        if has(GrantOp::Move) {
            for Move { from, path } in copy_sources::moves(document, arrives, &fits) {
                self.push(Branch { op: "move", path, from: Some(from), value: None });
            }
        }
    }

    /// Keeps a branch that permits at least one operation.
    fn push(&mut self, branch: Branch) {
        let is_in_vain = branch.path.is_empty()
            || branch.from.as_ref().is_some_and(Places::is_empty)
            || branch.value.as_ref().is_some_and(|value| value::finish(value, DETAIL_LEVELS[0].value).is_none());
        if !is_in_vain {
            self.is_cut |= branch.path.is_cut || branch.from.as_ref().is_some_and(|from| from.is_cut);
            self.found.push(branch);
        }
    }
}

/// Returns a grant's value schema with resolved references, as far as it is shown.
fn value_of(schema: &Schema) -> Value {
    let whole = Pattern::parse("").expect("the empty pattern is one");
    schema.fragment(&whole).unwrap_or(json!({}))
}

/// Builds the schema of the whole reply.
fn envelope(shown: &CallContext, branches: &[Branch], how: DetailLevel) -> Value {
    let limits = &shown.worker_plan().worker.patch;
    let contract = &shown.worker_plan().contract;
    let mut branches = operations(branches, contract, how);
    let patch = match branches.len() {
        // Some decoders ignore `maxItems` without `items`.
        0 => json!({"type": "array", "items": {"type": "object"}, "maxItems": 0}),
        1 => json!({"type": "array", "items": branches.remove(0), "maxItems": limits.max_ops}),
        _ => json!({"type": "array", "items": {"anyOf": branches}, "maxItems": limits.max_ops}),
    };
    let mut required = Vec::new();
    let mut properties = Map::new();
    if limits.intent == Intent::Required {
        properties.insert("intent".into(), json!({"type": "string"}));
        required.push("intent");
    }
    properties.insert("patch".into(), patch);
    required.push("patch");
    if shown.may_expand() {
        let schema = &shown.plan().schema;
        let readable = contract.readable(shown.basis().state.root());
        // If there are too many places to list, their patterns are used.
        let reads: Vec<&Pattern> = match readable.places().len() <= how.places {
            true => readable.patterns().iter().collect(),
            false => contract.declared_reads().collect(),
        };
        let of_read =
            |read: &&Pattern| expression::at_or_below(&expression::of_pattern(contract.template(read), schema, None));
        let readable: Vec<String> = reads.iter().map(of_read).collect();
        let place = json!({"type": "string", "pattern": expression::any_of(&readable)});
        let place = match shown.worker_plan().has_ranges() {
            true => json!({"anyOf": [place, {
                "type": "object",
                // Containers of readable places are allowed, too.
                "properties": {"at": {"type": "string"}, "from": {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}]}},
                "required": ["at", "from"],
                "additionalProperties": false,
            }]}),
            false => place,
        };
        properties.insert("expand".into(), json!({"type": "array", "items": place, "maxItems": EXPAND_MAX}));
    }
    if shown.may_clarify() {
        let text = json!({"type": "string"});
        let members = json!({"question": text, "choices": {"type": "array", "items": text}});
        let clarify =
            json!({"type": "object", "properties": members, "required": ["question"], "additionalProperties": false});
        properties.insert("clarify".into(), clarify);
    }
    if shown.worker_plan().worker.pass {
        properties.insert("pass".into(), json!({"type": "string"}));
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// Returns each kind of operation once, as overlapping grants repeat them. In the shorter forms, operations that differ
/// only in name share a schema.
fn operations(branches: &[Branch], contract: &Contract, how: DetailLevel) -> Vec<Value> {
    let shares = how.places < PLACES_MAX;
    let mut kept: Vec<(Vec<&str>, Map<String, Value>)> = Vec::new();
    for branch in branches {
        let members = operation_members(branch, contract, how);
        let is_same = |ops: &[&str]| shares || ops.contains(&branch.op);
        match kept.iter_mut().find(|(ops, known)| *known == members && is_same(ops)) {
            Some((ops, _)) if ops.contains(&branch.op) => {}
            Some((ops, _)) => ops.push(branch.op),
            None => kept.push((vec![branch.op], members)),
        }
    }
    let operation = |(ops, mut properties): (Vec<&str>, Map<String, Value>)| {
        properties.insert("op".into(), json!({"type": "string", "enum": ops}));
        let required: Vec<&String> = properties.keys().collect();
        json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false})
    };
    kept.into_iter().map(operation).collect()
}

/// Returns the schemas of an operation's members besides `op`.
fn operation_members(branch: &Branch, contract: &Contract, how: DetailLevel) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("path".into(), listed(&branch.path, contract, how.places));
    if let Some(from) = &branch.from {
        members.insert("from".into(), listed(from, contract, how.places));
    }
    if let Some(value) = &branch.value {
        let value = value::finish(value, how.value).expect("a branch with a value that nothing satisfies is not kept");
        members.insert("value".into(), value);
    }
    members
}

/// Returns the schema of a place among these.
fn listed(places: &Places, contract: &Contract, max: usize) -> Value {
    let Places { exact, free, general, .. } = places;
    let exact: Vec<PointerBuf> = exact.iter().map(|place| contract.with_names(place)).collect();
    // One exact place is as short as an expression for it.
    let is_short = exact.len() <= max.max(1) && free.len() <= max;
    if places.is_listed() && is_short && free.is_empty() {
        return json!({"type": "string", "enum": exact});
    }
    let mut expressions = general.clone();
    if places.is_listed() && is_short && exact.len() <= BESIDE_FREE_MAX {
        expressions = exact.iter().map(|place| expression::literal(place.as_str())).collect();
        expressions.extend(free.iter().map(|(object, name)| expression::members(&contract.with_names(object), name)));
    }
    json!({"type": "string", "pattern": expression::any_of(&expressions)})
}
