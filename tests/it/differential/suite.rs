//! Runs the JSON-Schema test suite as edits: from each valid instance of a group to each other instance, part by part.
//! At every step the verdict on the change is compared with the verdict on the whole.

use std::io::Write;

use jsonptr::PointerBuf;
use patchboard_kernel::schema::StateSchema;
use patchboard_kernel::tree::Node;
use serde_json::{Value, json};

use super::random::{edit, normal};
use crate::shared;

const SUITE: &str = "vectors/json-schema-test-suite/tests/draft2020-12";

/// Dialects in which the suite's schemas are read: their own, and older ones, in which some keywords have no or another
/// meaning.
const DIALECTS: [&str; 4] = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-06/schema#",
];

#[derive(Default, Debug)]
struct Tally {
    schemas: usize,
    refused: usize,
    steps: usize,
    valid: usize,
    followed: usize,
}

#[test]
fn the_suite_step_by_step() {
    let mut tally = Tally::default();
    for directory in ["", "optional"] {
        let Some(directory) = shared::find(&format!("{SUITE}/{directory}")) else { return };
        for path in shared::files_in(&directory) {
            let text = std::fs::read(&path).expect("a file that was listed can be read");
            let groups: Vec<Value> = serde_json::from_slice(&text).expect("the suite is JSON");
            groups.iter().for_each(|group| run(group, &mut tally));
        }
    }
    let _ = writeln!(std::io::stderr(), "the suite step by step: {tally:?}");
    shared::ran("the suite step by step", tally.steps, 20_000);
    assert!(tally.valid > tally.steps / 4 && tally.followed > tally.steps / 2, "{tally:?}");
}

fn run(group: &Value, tally: &mut Tally) {
    let cases = group["tests"].as_array().expect("every group has cases");
    let instances: Vec<Value> = cases.iter().map(|case| normal(case["data"].clone())).collect();
    let mut document = group["schema"].clone();
    let is_odd = document.get("$schema").is_some_and(|dialect| *dialect != json!(DIALECTS[0]));
    if is_odd || !document.is_object() {
        return steps(&document, &instances, tally);
    }
    for dialect in DIALECTS {
        document["$schema"] = json!(dialect);
        steps(&document, &instances, tally);
        let inner = document.get("$id").is_none().then(|| document.clone());
        let Some(Value::Object(mut inner)) = inner else { continue };
        inner.remove("$schema");
        // The schema applies to a member and to an element beside others, so that the whole instance can be edited,
        // too.
        let moved = |place: &str| -> Value {
            let text =
                Value::Object(inner.clone()).to_string().replace("\"$ref\":\"#\"", &format!("\"$ref\":\"#{place}\""));
            serde_json::from_str(&text.replace("\"#/", &format!("\"#{place}/"))).expect("it was JSON")
        };
        let member = json!({"$schema": dialect, "properties": {"m": moved("/properties/m")}});
        let members: Vec<Value> = instances.iter().map(|instance| json!({"m": instance, "n": 1})).collect();
        steps(&member, &members, tally);
        let element = json!({"$schema": dialect, "items": moved("/items"), "type": "array"});
        let alone = instances.iter().map(|instance| json!([instance]));
        let several = instances.iter().zip(instances.iter().rev()).map(|(one, other)| json!([one, other, one]));
        steps(&element, &alone.chain(several).collect::<Vec<_>>(), tally);
    }
}

fn steps(document: &Value, instances: &[Value], tally: &mut Tally) {
    tally.schemas += 1;
    let Ok(schema) = StateSchema::compile(document, false) else {
        tally.refused += 1;
        return;
    };
    let valid: Vec<&Value> = instances.iter().filter(|instance| schema.is_valid(instance)).take(6).collect();
    for from in valid {
        for to in instances.iter().take(16) {
            let mut walk = Steps {
                schema: &schema,
                document,
                tally,
                tree: Node::from_value(from, &edit(0)),
                value: from.clone(),
                at: 0,
            };
            walk.towards(&PointerBuf::new(), to);
        }
    }
}

/// A document on its way to another one.
struct Steps<'s> {
    schema: &'s StateSchema,
    document: &'s Value,
    tally: &'s mut Tally,
    tree: Node,
    value: Value,
    at: u32,
}

impl Steps<'_> {
    /// Tries one change, and keeps it only if the document stays valid, as in a board.
    fn step(&mut self, what: &str, place: &PointerBuf, change: impl Fn(&mut Node, &mut Value, u32)) {
        self.at += 1;
        let (mut tree, mut value) = (self.tree.clone(), self.value.clone());
        change(&mut tree, &mut value, self.at);
        assert_eq!(tree, value);
        let expected = self.schema.is_valid(&value);
        let case = || format!("{what} {place}\nschema {}\nbefore {}\nafter {value}", self.document, self.value);
        assert_eq!(self.schema.is_valid_since(&tree, self.at - 1), expected, "{}", case());
        assert_eq!(self.schema.violations_since(&tree, self.at - 1, 5).is_empty(), expected, "{}", case());
        assert_eq!(self.schema.is_valid_tree(&tree), expected, "{}", case());
        self.tally.steps += 1;
        self.tally.valid += usize::from(expected);
        self.tally.followed += usize::from(!self.schema.is_opaque());
        if expected {
            (self.tree, self.value) = (tree, value);
        }
    }

    /// Changes the value at a place into `to`, part by part, and skips invalid steps.
    fn towards(&mut self, place: &PointerBuf, to: &Value) {
        let Some(here) = self.value.pointer(place.as_str()).cloned() else { return };
        let child = |token: &str| place.with_trailing_token(token);
        match (&here, to) {
            (Value::Object(mine), Value::Object(theirs)) => {
                for name in mine.keys().filter(|name| !theirs.contains_key(*name)) {
                    self.remove(&child(name));
                }
                for (name, part) in theirs {
                    if !mine.contains_key(name) {
                        self.insert(&child(name), name, part);
                    }
                    self.towards(&child(name), part);
                }
            }
            (Value::Array(mine), Value::Array(theirs)) => {
                for (index, part) in theirs.iter().enumerate() {
                    if index >= mine.len() {
                        self.insert(&child("-"), "-", part);
                    }
                    self.towards(&child(&index.to_string()), part);
                }
                // Removes from the front, so that the elements behind are shifted.
                for _ in theirs.len()..mine.len() {
                    self.remove(&child("0"));
                }
                if let Some(first) = theirs.first() {
                    self.insert(&child("0"), "0", first);
                }
            }
            _ if here != *to && !place.is_root() => self.replace(place, to),
            _ => {}
        }
    }

    fn replace(&mut self, place: &PointerBuf, to: &Value) {
        self.step("replace", place, |tree, value, at| {
            tree.replace(place, Node::from_value(to, &edit(at)), &edit(at));
            *value.pointer_mut(place.as_str()).expect("it is there") = to.clone();
        });
    }

    fn insert(&mut self, place: &PointerBuf, token: &str, part: &Value) {
        self.step("insert", place, |tree, value, at| {
            tree.insert(place, Node::from_value(part, &edit(at)), &edit(at));
            let above = place.parent().expect("it has a container").as_str();
            match value.pointer_mut(above).expect("it is there") {
                Value::Array(items) if token == "-" => items.push(part.clone()),
                Value::Array(items) => items.insert(token.parse().expect("an index"), part.clone()),
                Value::Object(members) => drop(members.insert(token.to_owned(), part.clone())),
                _ => unreachable!("it is a container"),
            }
        });
    }

    fn remove(&mut self, place: &PointerBuf) {
        self.step("remove", place, |tree, value, at| {
            tree.remove(place, &edit(at));
            let (above, last) = place.split_back().expect("it has a container");
            let token = last.decoded();
            match value.pointer_mut(above.as_str()).expect("it is there") {
                Value::Array(items) => drop(items.remove(token.parse().expect("an index"))),
                Value::Object(members) => drop(members.remove(&*token)),
                _ => unreachable!("it is a container"),
            }
        });
    }
}
