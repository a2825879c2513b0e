//! The JSON Schema that a worker's reply must satisfy, derived from its contract and from what its view showed.
//!
//! A model that is held to it while it writes can express no operation, place or value that its grants do not cover,
//! as far as the worker can know. Nothing is allowed by it: every reply is judged by [`crate::pipeline`] as before.
//! The schema never tells more of the document than the worker may read.
//!
//! * `places` finds where a grant can be used, `origins` what can be copied and moved there;
//! * `demands` knows what invariants demand of a value: to be in a list, to be an index of one;
//! * `value` joins the schemas of a value into one that decoders know;
//! * `expression` writes regular expressions for places that cannot be listed.
//!
//! It lacks some of what is granted: names that are empty or hold quotation marks, backslashes or control characters;
//! all but one of the ways in which an operation can be written (`-` to append, `replace` to write over a member); copies
//! of what was not shown; moves whose target is another place once the value is gone; places inside of what the same patch
//! makes; `test`, unless nothing else guards freshness; an intent that is not demanded, and more than eight places to be
//! shown; and what [`Schema::fragment`] does not show of containers whose type the schema leaves open. It has more than is granted where names are free, as one of
//! them may be there already, and where a worker may write and not read.

mod demands;
mod expression;
mod origins;
mod places;
#[cfg(test)]
mod tests;
mod value;

use jsonptr::PointerBuf;
use serde_json::{Map, Value, json};

use crate::blueprint::{Freshness, GrantOp, Intent};
use crate::contract::{Contract, Granted};
use crate::pattern::Pattern;
use crate::schema::Schema;
use crate::shown::Shown;
use crate::tree::Node;

use demands::Demands;
use origins::Move;
use places::{Document, Need, PLACES_MAX, Places};
use value::Detail;

/// The most characters of a form as compact JSON. Servers compile it into a grammar before they answer, and count it
/// as part of small contexts; of 8,000 tokens it takes at most a fifth.
pub const CHARS_MAX: usize = 6000;
/// The most places that a reply may ask to be shown.
const EXPAND_MAX: usize = 8;
/// Places of free names stand beside listed ones in one expression; of more than these, all become expressions.
const BESIDE_FREE_MAX: usize = 16;

/// How much is said, in the order of trying: the first that is short enough is taken. Descriptions go first, because
/// they hold nobody to anything and the view has them; then long lists of places, then deep parts of values.
const TRIES: [Try; 8] = [
    Try { places: PLACES_MAX, value: Detail { described: true, depth: usize::MAX } },
    Try { places: PLACES_MAX, value: Detail { described: false, depth: usize::MAX } },
    Try { places: 16, value: Detail { described: false, depth: usize::MAX } },
    Try { places: 16, value: Detail { described: false, depth: 3 } },
    Try { places: 4, value: Detail { described: false, depth: 3 } },
    Try { places: 4, value: Detail { described: false, depth: 2 } },
    Try { places: 1, value: Detail { described: false, depth: 1 } },
    Try { places: 0, value: Detail { described: false, depth: 0 } },
];

/// How much is said of what is known.
#[derive(Clone, Copy)]
struct Try {
    /// The longest list of places.
    places: usize,
    value: Detail,
}

/// The form of a reply.
#[derive(Clone, PartialEq, Debug)]
pub struct Form {
    /// A JSON Schema of at most [`CHARS_MAX`] characters. Its root is an object.
    pub schema: Value,
    /// Whether every place that the worker can know is listed and every value described; false where a limit was hit.
    pub is_whole: bool,
}

impl Form {
    /// The form of the reply of a seat to what it was shown; none if even its shortest is too long, for a contract of
    /// very many grants. Bound names stand in the places of their tokens, so that it is the same for all elements.
    ///
    /// Depends on what was shown only. What it costs is bounded by that and by the places it looks at.
    pub fn of(shown: &Shown) -> Option<Self> {
        let branches = Branches::of(shown);
        TRIES.iter().enumerate().find_map(|(nth, &how)| {
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
    /// The schema of the value, if the operation has one.
    value: Option<Value>,
}

struct Branches {
    found: Vec<Branch>,
    /// Whether some places were too many to list.
    is_cut: bool,
}

impl Branches {
    fn of(shown: &Shown) -> Self {
        let document = Document::of(shown);
        let plan = shown.plan();
        let formats = plan.blueprint.state.assert_formats;
        let mut branches = Self { found: Vec::new(), is_cut: false };
        let contract = &document.seat.contract;
        for grant in contract.grants(&plan.schema) {
            let portable =
                |schema: Option<&Value>| schema.map_or(json!({}), |schema| value::portable(schema, formats, 0));
            let own = grant.value.map(value_of);
            let demands = Demands::of(&document, plan, grant.pattern);
            let value = value::meet(portable(grant.fragment), portable(own.as_ref()));
            branches.add(&document, &grant, &value, &demands);
        }
        if document.seat.worker.freshness == Freshness::None {
            let path = origins::readable(&document, &|_| true);
            branches.push(Branch { op: "test", path, from: None, value: Some(json!({})) });
        }
        branches
    }

    /// Those of one grant; `value` is what its values must satisfy.
    fn add(&mut self, document: &Document<'_>, grant: &Granted<'_>, value: &Value, demands: &Demands) {
        let written_value = value::meet(value.clone(), demands.schema());
        let has = |op: GrantOp| grant.ops.contains(&op);
        let arrivals = [(GrantOp::Add, "add"), (GrantOp::Insert, "add"), (GrantOp::Replace, "replace")];
        // Where a value can arrive from elsewhere. It never takes the place of an element: that makes room for it.
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
        let fits_schema = origins::fits(value, grant.value);
        let fits = |node: &Node| demands.hold(node) && fits_schema(node);
        if has(GrantOp::Copy) {
            let from = origins::readable(document, &fits);
            self.push(Branch { op: "copy", path: arrives.clone(), from: Some(from), value: None });
        }
        if has(GrantOp::Move) {
            for Move { from, path } in origins::moves(document, arrives, &fits) {
                self.push(Branch { op: "move", path, from: Some(from), value: None });
            }
        }
    }

    /// Keeps a branch that something can be written by.
    fn push(&mut self, branch: Branch) {
        let is_in_vain = branch.path.is_empty()
            || branch.from.as_ref().is_some_and(Places::is_empty)
            || branch.value.as_ref().is_some_and(|value| value::finish(value, TRIES[0].value).is_none());
        if !is_in_vain {
            self.is_cut |= branch.path.is_cut || branch.from.as_ref().is_some_and(|from| from.is_cut);
            self.found.push(branch);
        }
    }
}

const fn need(op: GrantOp) -> Need {
    match op {
        GrantOp::Add | GrantOp::Move | GrantOp::Copy => Need::Create,
        GrantOp::Insert => Need::Insert,
        GrantOp::Replace | GrantOp::Remove => Need::Overwrite,
    }
}

/// A grant's value schema with its references resolved, as far as it is shown.
fn value_of(schema: &Schema) -> Value {
    let whole = Pattern::parse("").expect("the empty pattern is one");
    schema.fragment(&whole).unwrap_or(json!({}))
}

/// The whole form.
fn envelope(shown: &Shown, branches: &[Branch], how: Try) -> Value {
    let limits = &shown.seat().worker.patch;
    let contract = &shown.seat().contract;
    let mut branches = operations(branches, contract, how);
    let patch = match branches.len() {
        // Without `items` some decoders take no notice of `maxItems`.
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
        // Of more places than are listed, the patterns that they are matched by.
        let reads: Vec<&Pattern> = match readable.places().len() <= how.places {
            true => readable.patterns().iter().collect(),
            false => contract.declared_reads().collect(),
        };
        let of_read =
            |read: &&Pattern| expression::at_or_below(&expression::of_pattern(contract.template(read), schema, None));
        let readable: Vec<String> = reads.iter().map(of_read).collect();
        let place = json!({"type": "string", "pattern": expression::any_of(&readable)});
        let place = match shown.seat().has_ranges() {
            true => json!({"anyOf": [place, {
                "type": "object",
                // Also what holds places that may be read.
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
    if shown.seat().worker.pass {
        properties.insert("pass".into(), json!({"type": "string"}));
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// Each kind of operation once: grants that overlap speak of the same. Where it has to be short, operations that differ
/// in nothing but their name share what is said of them.
fn operations(branches: &[Branch], contract: &Contract, how: Try) -> Vec<Value> {
    let shares = how.places < PLACES_MAX;
    let mut kept: Vec<(Vec<&str>, Map<String, Value>)> = Vec::new();
    for branch in branches {
        let members = beside_op(branch, contract, how);
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

/// What an operation has beside its name.
fn beside_op(branch: &Branch, contract: &Contract, how: Try) -> Map<String, Value> {
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

/// The schema of a place among these.
fn listed(places: &Places, contract: &Contract, max: usize) -> Value {
    let Places { exact, free, general, .. } = places;
    let exact: Vec<PointerBuf> = exact.iter().map(|place| contract.with_names(place)).collect();
    // One that is fixed is as short as an expression for it.
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
