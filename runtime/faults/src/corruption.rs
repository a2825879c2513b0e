//! Spoils operations and replies: impossible paths, wrong types, excessive sizes.

use patchboard_kernel::ablation::Interface;
use serde_json::{Value, json};

use crate::malformed;
use crate::random::Random;
use crate::reply_format;

/// Returns malformed JSON of a reply that performs these operations, and the mutation's name.
pub(crate) fn invalid_json(interface: Interface, ops: &[Value], random: &mut Random) -> (&'static str, String) {
    if interface != Interface::Message || random.percent(30) {
        // A worker that is asked for a message may also write half a patch.
        let asked = if interface == Interface::Message { Interface::Patch } else { interface };
        return malformed::mutate(&reply_format::reply(asked, ops), random);
    }
    let Some(op) = ops.first() else { return ("empty", String::new()) };
    let (name, value) = malformed::mutate(&op["value"].to_string(), random);
    (name, format!("I say:\nset {}: {value}\n", op["path"].as_str().unwrap_or_default()))
}

/// A way to spoil one operation.
type Spoiling = fn(&mut Value, &mut Random);

/// Spoilings that only operations of a patch can show.
const OF_PATCHES: &str = "no_pointer path_of_another_type unknown_operation no_operation no_value the_whole_document";

const SPOILINGS: &[(&str, Spoiling)] = &[
    ("missing_parent", |op, _| op["path"] = format!("{}/no/such/place", path(op)).into()),
    ("unknown_member", |op, random| {
        op["path"] = format!("/{}", random.pick(&["nowhere", "state", "claim", "todo"])).into()
    }),
    ("index_beyond_the_end", |op, _| {
        let head = path(op).rsplit_once('/').map_or(String::new(), |(head, _)| head.to_owned());
        op["path"] = format!("{head}/9999").into();
    }),
    ("no_pointer", |op, _| op["path"] = path(op).trim_start_matches('/').replace('/', ".").into()),
    ("the_whole_document", |op, _| op["path"] = "".into()),
    ("bad_escape", |op, _| op["path"] = format!("{}~7", path(op)).into()),
    ("path_of_another_type", |op, _| op["path"] = json!(["a", 1])),
    ("unknown_operation", |op, random| op["op"] = (*random.pick(&["upsert", "append", "set", "ADD"])).into()),
    ("no_operation", |op, _| drop(op.as_object_mut().map(|members| members.remove("op")))),
    ("no_value", |op, _| drop(op.as_object_mut().map(|members| members.remove("value")))),
    ("number_for_text", |op, random| op["value"] = other_type(&op["value"], random)),
    ("null", |op, _| op["value"] = Value::Null),
    ("one_level_deeper", |op, _| op["value"] = json!([op["value"]])),
    ("more_members", |op, _| match &mut op["value"] {
        Value::Object(members) => drop(members.insert("extra".to_owned(), json!({"a": 1}))),
        other => *other = json!({"value": other.clone()}),
    }),
    ("fewer_members", |op, random| match &mut op["value"] {
        Value::Object(members) if !members.is_empty() => {
            let name = members.keys().nth(random.index(members.len())).cloned().unwrap_or_default();
            members.remove(&name);
        }
        other => *other = json!({}),
    }),
];

fn path(op: &Value) -> &str {
    op["path"].as_str().unwrap_or_default()
}

fn other_type(value: &Value, random: &mut Random) -> Value {
    match value {
        Value::String(_) => json!(random.below(1000)),
        Value::Number(_) => (*random.pick(&["many", "3", "-"])).into(),
        Value::Array(_) => json!({"0": "a"}),
        Value::Object(_) => "a text".into(),
        Value::Bool(_) | Value::Null => json!([true]),
    }
}

/// Spoils one of these operations in a way that the system's reply format can express. Returns the way's name and the
/// operations.
pub(crate) fn bad_path_or_type(
    interface: Interface,
    mut ops: Vec<Value>,
    random: &mut Random,
) -> (&'static str, Vec<Value>) {
    if ops.is_empty() {
        ops.push(json!({"op": "add", "path": "/todo", "value": "nothing"}));
    }
    let index = random.index(ops.len());
    loop {
        let (name, spoil) = random.pick(SPOILINGS);
        // Members to merge and message lines have no operations and no non-text paths that could be wrong.
        if interface == Interface::Patch || !OF_PATCHES.split(' ').any(|of_patches| of_patches == *name) {
            spoil(&mut ops[index], random);
            return (name, ops);
        }
    }
}

/// Makes these operations excessive. Returns what is excessive, and the operations.
pub(crate) fn oversized(interface: Interface, mut ops: Vec<Value>, random: &mut Random) -> (&'static str, Vec<Value>) {
    if ops.is_empty() {
        ops.push(json!({"op": "add", "path": "/todo", "value": "nothing"}));
    }
    let index = random.index(ops.len());
    // Blackboards have no copy operation.
    let name = match random.below(if interface == Interface::Patch { 4 } else { 3 }) {
        0 => {
            // Sizes range from allowed to excessive.
            let words = 1_000 << random.index(8);
            let much: Value = "much ".repeat(words + random.index(words)).into();
            match ops[index]["value"]
                .as_object_mut()
                .and_then(|members| members.values_mut().find(|one| one.is_string()))
            {
                Some(text) => *text = much,
                None => ops[index]["value"] = much,
            }
            "bytes"
        }
        1 => {
            let depth = 10 << random.index(6);
            ops[index]["value"] = (0..depth).fold(json!("deep"), |inner, _| json!([inner]));
            "depth"
        }
        2 => {
            let op = ops[index].clone();
            ops.extend(std::iter::repeat_n(op, 100 + random.index(2000)));
            "operations"
        }
        _ => {
            // Each copy duplicates the results of all copies before it.
            let place = path(&ops[index]).to_owned();
            let list = place.rsplit_once('/').map_or("", |(list, _)| list).to_owned();
            let copy = json!({"op": "copy", "from": list, "path": place});
            ops.extend(std::iter::repeat_n(copy, 20 + random.index(20)));
            "copies"
        }
    };
    (name, ops)
}
