//! Test oracle of contracts: judges an operation from the documents before and after it.
//!
//! Every difference must lie at or below a place that a grant allows for that kind of difference. Matching, comparison
//! and value checks are implemented here a second time, as simply as possible. The oracle therefore does not repeat a
//! bug of the kernel. The contract fuzz target uses this file, too.

use patchboard_kernel::blueprint::GrantOp;
use serde_json::Value;

/// Grant of a contract: pattern, operations and value type.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) tokens: Vec<String>,
    pub(crate) ops: Vec<GrantOp>,
    /// Name of the only JSON type that it allows; `None` allows all.
    pub(crate) value: Option<&'static str>,
}

/// Returns the JSON Pointer of a place.
pub(crate) fn pointer(tokens: &[impl AsRef<str>]) -> String {
    tokens.iter().map(|token| format!("/{}", token.as_ref().replace('~', "~0").replace('/', "~1"))).collect()
}

/// Parses a JSON Pointer into a place.
pub(crate) fn place(pointer: &str) -> Place {
    pointer.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~")).collect()
}

/// Place, as a list of tokens.
pub(crate) type Place = Vec<String>;

/// Contract of a worker.
pub(crate) struct Oracle<'a> {
    /// Read patterns, as lists of tokens.
    pub(crate) reads: &'a [Vec<String>],
    pub(crate) grants: &'a [Grant],
}

impl Oracle<'_> {
    /// Returns a description of the first change that was accepted without a grant.
    pub(crate) fn complaint(&self, before: &Value, after: &Value, operation: &Value) -> Option<String> {
        let place = |member: &str| place(operation[member].as_str().expect("a pointer"));
        match operation["op"].as_str().expect("a name") {
            "test" => (!self.reads(&place("path")) || before != after).then(|| "a test of what is not read".to_owned()),
            "copy" if !self.reads(&place("from")) => Some("a copy of what is not read".to_owned()),
            "copy" => self.unexplained(before, after, Some(GrantOp::Copy)),
            "move" => {
                // Checks the removal at the source first, then the arrival at the destination.
                let from = place("from");
                let mut between = before.clone();
                take(&mut between, &from);
                self.unexplained(before, &between, None)
                    .or_else(|| self.unexplained(&between, after, Some(GrantOp::Move)))
                    // A move onto itself changes nothing, but still needs both grants.
                    .filter(|_| before != after)
            }
            _ => self.unexplained(before, after, None),
        }
    }

    /// Returns the first difference that no grant explains; `with` is an operation that every arrival needs in
    /// addition.
    fn unexplained(&self, before: &Value, after: &Value, with: Option<GrantOp>) -> Option<String> {
        let mut differences = Vec::new();
        differ(before, after, &mut Vec::new(), &mut differences);
        differences
            .into_iter()
            .find(|difference| !self.explains(difference, before, after, with))
            .map(|d| format!("{d:?}"))
    }

    fn explains(&self, difference: &Difference, before: &Value, after: &Value, with: Option<GrantOp>) -> bool {
        let arrives = |op: GrantOp, place: &Place, names: &[&Place]| {
            self.grants.iter().any(|grant| {
                let named = grant.ops.contains(&op) && with.is_none_or(|with| grant.ops.contains(&with));
                let fits = grant.value.is_none_or(|kind| at(after, place).is_some_and(|value| is(kind, value)));
                named && fits && names.iter().any(|name| grant.denotes(name, before))
            })
        };
        let (Difference::Added(place)
        | Difference::Changed(place)
        | Difference::Removed(place)
        | Difference::Resized(place)) = difference;
        // An enclosing value was replaced.
        let replaced = (1..=place.len()).any(|end| {
            let outer = place[..end].to_vec();
            at(before, &outer).is_some() && arrives(GrantOp::Replace, &outer, &[&outer])
        });
        replaced
            || match difference {
                Difference::Changed(_) => false,
                Difference::Added(place) => arrives(GrantOp::Add, place, &[place]),
                Difference::Removed(place) => self.removes(place, before),
                Difference::Resized(array) => {
                    let (old, new) = (items(before, array), items(after, array));
                    let element = |index: usize| [array.as_slice(), &[index.to_string()]].concat();
                    if new.len() == old.len() + 1 {
                        (0..new.len()).any(|index| {
                            if [&new[..index], &new[index + 1..]].concat() != *old {
                                return false;
                            }
                            let place = element(index);
                            if index == old.len() {
                                let end = [array.as_slice(), &["-".to_owned()]].concat();
                                arrives(GrantOp::Add, &place, &[&place, &end])
                            } else {
                                arrives(GrantOp::Insert, &place, &[&place])
                            }
                        })
                    } else if new.len() + 1 == old.len() {
                        (0..old.len()).any(|index| {
                            [&old[..index], &old[index + 1..]].concat() == *new && self.removes(&element(index), before)
                        })
                    } else {
                        false
                    }
                }
            }
    }

    fn removes(&self, place: &Place, before: &Value) -> bool {
        self.grants.iter().any(|grant| grant.ops.contains(&GrantOp::Remove) && grant.denotes(place, before))
    }

    fn reads(&self, place: &Place) -> bool {
        self.reads.iter().any(|tokens| (0..=place.len()).any(|end| matches(tokens, &place[..end])))
    }
}

impl Grant {
    /// Returns true if the grant's pattern denotes the place; `-` denotes the end of an array.
    fn denotes(&self, place: &Place, before: &Value) -> bool {
        let wants_end = self.tokens.last().is_some_and(|last| last == "-");
        let container = place.split_last().and_then(|(_, container)| at(before, container));
        matches(&self.tokens, place) && !place.is_empty() && (!wants_end || container.is_some_and(Value::is_array))
    }
}

/// Returns true if a pattern matches a place exactly.
pub(crate) fn matches(tokens: &[String], place: &[String]) -> bool {
    let Some((token, rest)) = tokens.split_first() else { return place.is_empty() };
    if token == "**" {
        return (0..=place.len()).any(|taken| matches(rest, &place[taken..]));
    }
    place.split_first().is_some_and(|(name, below)| (token == "*" || token == name) && matches(rest, below))
}

#[derive(Debug)]
enum Difference {
    Added(Place),
    Removed(Place),
    Changed(Place),
    /// Array with more or fewer elements.
    Resized(Place),
}

fn differ(before: &Value, after: &Value, place: &mut Place, found: &mut Vec<Difference>) {
    match (before, after) {
        _ if before == after => {}
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old {
                place.push(name.clone());
                match new.get(name) {
                    Some(other) => differ(value, other, place, found),
                    None => found.push(Difference::Removed(place.clone())),
                }
                place.pop();
            }
            for name in new.keys().filter(|name| !old.contains_key(*name)) {
                found.push(Difference::Added([place.as_slice(), std::slice::from_ref(name)].concat()));
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (value, other)) in old.iter().zip(new).enumerate() {
                place.push(index.to_string());
                differ(value, other, place, found);
                place.pop();
            }
        }
        (Value::Array(_), Value::Array(_)) => found.push(Difference::Resized(place.clone())),
        _ => found.push(Difference::Changed(place.clone())),
    }
}

/// Returns the value at a place.
pub(crate) fn at<'v>(document: &'v Value, place: &[String]) -> Option<&'v Value> {
    place.iter().try_fold(document, |value, token| match value {
        Value::Object(members) => members.get(token),
        Value::Array(items) => items.get(token.parse::<usize>().ok()?),
        _ => None,
    })
}

fn items<'v>(document: &'v Value, place: &[String]) -> &'v Vec<Value> {
    at(document, place).and_then(Value::as_array).expect("an array that was compared")
}

fn take(document: &mut Value, place: &[String]) {
    let Some((last, container)) = place.split_last() else { return };
    let container = container.iter().try_fold(document, |value, token| match value {
        Value::Object(members) => members.get_mut(token),
        Value::Array(items) => items.get_mut(token.parse::<usize>().ok()?),
        _ => None,
    });
    match container {
        Some(Value::Object(members)) => drop(members.remove(last)),
        Some(Value::Array(items)) => drop(items.remove(last.parse().expect("an index"))),
        _ => {}
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "integer" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        other => panic!("no grant here has the type {other}"),
    }
}
