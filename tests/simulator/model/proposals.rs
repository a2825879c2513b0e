//! Expected outcome of a proposal.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::board::ReplyBody;
use patchboard_kernel::rejection::Stage;
use serde_json::{Value, json};

use super::super::world::TASKS_MAX;
use super::strict::is_malformed;

/// Expected outcome.
#[derive(Debug)]
pub(super) enum Expected {
    /// A commit that makes this document.
    Commit(Box<Value>),
    /// A question to a person.
    Question,
    /// No change.
    NoOp,
    /// No change, and the next view shows more.
    More,
    /// A rejection at one of these stages.
    Refusal(Vec<Stage>),
}

/// Views and documents that an attempt is based on.
#[derive(Clone, Copy)]
pub(super) struct Basis<'a> {
    /// Documents from the version of the view on.
    pub(super) versions: &'a [Value],
    /// Places that the view showed completely.
    pub(super) reads: &'a [String],
    /// True if the attempt may request more.
    pub(super) may_ask: bool,
}

/// Permissions that depend on the blueprint.
#[derive(Clone, Copy)]
pub(super) struct May {
    /// True if notes need a person's approval.
    pub(super) ask: bool,
    /// True if the worker may pass.
    pub(super) pass: bool,
}

/// Returns the places that a patch writes. For an append, the place is that of the list with `/-`.
pub(super) fn written(patch: &Value) -> Vec<String> {
    let ops = patch.as_array().into_iter().flatten();
    let writes = ops.filter(|op| op["op"] != "test");
    let mut places: Vec<String> = writes.filter_map(|op| op["path"].as_str().map(str::to_owned)).collect();
    places.sort();
    places.dedup();
    places
}

/// Returns the places that a committed patch wrote, with the final index of appended elements. Messages are excluded:
/// the runtime writes these.
pub(super) fn places(patch: &Value, before: &Value) -> BTreeSet<String> {
    let mut lengths = BTreeMap::<String, usize>::new();
    let mut places = BTreeSet::new();
    let ops = patch.as_array().into_iter().flatten().filter(|op| op["op"] != "test");
    for op in ops {
        let path = op["path"].as_str().unwrap_or_default();
        let (list, last) = path.rsplit_once('/').unwrap_or_default();
        if path.starts_with("/$messages") {
            continue;
        }
        let there = before.pointer(list).and_then(Value::as_array).map(Vec::len);
        let length = lengths.get(list).copied().or(there);
        let place = if last == "-" { format!("{list}/{}", length.unwrap_or_default()) } else { path.to_owned() };
        match (op["op"].as_str(), length) {
            (Some("add"), Some(length)) => drop(lengths.insert(list.to_owned(), length + 1)),
            (Some("remove"), Some(length)) => drop(lengths.insert(list.to_owned(), length - 1)),
            _ => {}
        }
        // A list that is set as a whole.
        if let Some(elements) = op["value"].as_array() {
            lengths.insert(path.to_owned(), elements.len());
        }
        places.insert(place);
    }
    places
}

/// Returns the places that a reply would have written.
pub(super) fn targets(reply: &str) -> Vec<String> {
    let value: Value = serde_json::from_str(reply).unwrap_or_default();
    written(value.get("patch").unwrap_or(&value))
}

pub(super) fn judge(now: &Value, worker: &str, reply: &ReplyBody, basis: Option<Basis<'_>>, may: May) -> Expected {
    let refusal = |stages: &[Stage]| Expected::Refusal(stages.to_vec());
    let text = reply.text();
    if is_malformed(&text) {
        return refusal(&[Stage::Syntax]);
    }
    let value: Value = serde_json::from_str(&text).expect("it is well formed");
    let (patch, expand) = match value {
        Value::Array(_) => (value, Vec::new()),
        // A clarification changes nothing, regardless of other members; only the doer has a person to ask.
        Value::Object(members) if members.contains_key("clarify") => {
            let may_ask = worker == "doer" && basis.is_some_and(|basis| basis.may_ask);
            return if may_ask { Expected::Question } else { refusal(&[Stage::Authorization]) };
        }
        Value::Object(members) if members.contains_key("pass") => {
            let is_alone = members.get("patch").is_none_or(|patch| *patch == json!([]));
            return if may.pass && is_alone { Expected::NoOp } else { refusal(&[Stage::Syntax]) };
        }
        Value::Object(mut members) => {
            let expand = match members.remove("expand") {
                None => Vec::new(),
                Some(Value::Array(places)) => places,
                Some(_) => return refusal(&[Stage::Syntax]),
            };
            match members.remove("patch") {
                Some(patch @ Value::Array(_)) => (patch, expand),
                None if !expand.is_empty() => (json!([]), expand),
                _ => return refusal(&[Stage::Syntax]),
            }
        }
        _ => return refusal(&[Stage::Syntax]),
    };
    if !["planner", "doer", "checker"].contains(&worker) {
        return refusal(&[Stage::Syntax, Stage::Authorization]);
    }
    let ops = patch.as_array().cloned().unwrap_or_default();
    let mut candidate = now.clone();
    let mut is_applied = true;
    for op in &ops {
        if !is_granted(worker, op) {
            // Impossible and forbidden places are rejected at the same time.
            return refusal(&[Stage::Authorization, Stage::Syntax]);
        }
        is_applied &= apply(&mut candidate, op);
    }
    if !expand.is_empty() && basis.is_some_and(|basis| !basis.may_ask) {
        return refusal(&[Stage::Authorization]);
    }
    for place in expand.iter() {
        let (place, from) = match place {
            Value::Object(range) => (&range["at"], range["from"].as_u64()),
            whole => (whole, None),
        };
        let place = place.as_str().unwrap_or_default();
        // Workers that may read elements of a list may request it, from an existing element on.
        let is_beyond = |value: &Value| from.is_some_and(|from| from >= value.as_array().map_or(0, Vec::len) as u64);
        let is_there = now.pointer(place).is_some_and(|value| !is_beyond(value));
        let is_readable = place.starts_with("/tasks");
        if !is_there || !is_readable || basis.is_none() {
            return refusal(&[Stage::Syntax, Stage::Authorization, Stage::Freshness, Stage::Application]);
        }
    }
    if let Some(basis) = basis
        && !ops.is_empty()
        && is_stale(basis, worker, &ops)
    {
        return refusal(&[Stage::Freshness]);
    }
    if !is_applied {
        // A target that is now absent was there when the view was taken.
        return refusal(&[Stage::Application]);
    }
    if !fits(&candidate) {
        return refusal(&[Stage::Schema]);
    }
    let tasks = |document: &Value| document["tasks"].as_array().cloned().unwrap_or_default();
    let is_broken = |task: &Value| task["checked"] == true && task["status"] != "done";
    if tasks(&candidate).iter().any(is_broken) || tasks(&candidate).len() < tasks(now).len() {
        return refusal(&[Stage::Invariant]);
    }
    let is_note = |op: &Value| op["path"] == "/notes/-";
    match (candidate == *now, expand.is_empty()) {
        (true, true) => Expected::NoOp,
        (true, false) => Expected::More,
        (false, _) if may.ask && ops.iter().any(is_note) => Expected::Question,
        (false, _) => Expected::Commit(Box::new(candidate)),
    }
}

/// Returns true if a worker's contract permits the operation.
fn is_granted(worker: &str, op: &Value) -> bool {
    let path = op["path"].as_str().unwrap_or_default();
    let of_task = |field: &str| {
        let parts: Vec<&str> = path.split('/').collect();
        matches!(parts.as_slice(), ["", "tasks", index, last] if index.parse::<u64>().is_ok() && *last == field)
    };
    match (worker, op["op"].as_str()) {
        // A worker may test every place that it may read.
        ("planner", Some("test")) => path.starts_with("/tasks") || path.starts_with("/request"),
        ("doer", Some("test")) => of_task("status") || of_task("title"),
        ("checker", Some("test")) => of_task("status"),
        ("planner", Some("add")) => {
            path == "/tasks/-" && op["value"].get("status").is_none_or(|status| status == "open")
        }
        ("doer", Some("replace")) => of_task("status"),
        ("doer", Some("add")) => path == "/notes/-",
        ("checker", Some("replace")) => of_task("checked"),
        _ => false,
    }
}

/// Applies an operation. Returns false if that fails.
fn apply(document: &mut Value, op: &Value) -> bool {
    let path = op["path"].as_str().unwrap_or_default();
    if op["op"] == "test" {
        return document.pointer(path) == Some(&op["value"]);
    }
    match path.strip_suffix("/-") {
        Some(list) => match document.pointer_mut(list) {
            Some(Value::Array(elements)) => {
                elements.push(op["value"].clone());
                true
            }
            _ => false,
        },
        None => match document.pointer_mut(path) {
            Some(place) => {
                *place = op["value"].clone();
                true
            }
            None => false,
        },
    }
}

/// Returns true if a shown or written place has changed since the view, or was never shown.
fn is_stale(basis: Basis<'_>, worker: &str, ops: &[Value]) -> bool {
    let [first, later @ ..] = basis.versions else { return false };
    let targets: Vec<&str> = ops.iter().filter(|op| op["op"] != "test").filter_map(|op| op["path"].as_str()).collect();
    if targets.is_empty() {
        // A proposal without writes depends on nothing.
        return false;
    }
    // A value that changed and changed back has changed.
    let has_changed = |place: &str| {
        let seen = first.pointer(place);
        let mut before = seen;
        later.iter().any(|version| {
            let now = version.pointer(place);
            is_lost(seen, std::mem::replace(&mut before, now), now)
        })
    };
    if basis.reads.iter().any(|place| has_changed(place)) {
        return true;
    }
    targets.into_iter().filter(|path| !path.ends_with("/-")).any(|target| {
        let is_within = |read: &String| target == read || target.starts_with(&format!("{read}/"));
        let was_shown = basis.reads.iter().any(is_within);
        let may_read = worker == "planner" || target.ends_with("/status");
        let came = first.pointer(target).is_none() && later.iter().any(|version| version.pointer(target).is_some());
        has_changed(target) || came || (first.pointer(target).is_some() && may_read && !was_shown)
    })
}

/// Returns true if a shown part of a value has changed or is gone. Parts added later were not shown.
fn is_lost(seen: Option<&Value>, before: Option<&Value>, now: Option<&Value>) -> bool {
    match (seen, before, now) {
        (Some(Value::Array(seen)), Some(Value::Array(before)), Some(Value::Array(now))) => {
            (0..seen.len()).any(|index| is_lost(seen.get(index), before.get(index), now.get(index)))
        }
        (Some(Value::Object(seen)), Some(Value::Object(before)), Some(Value::Object(now))) => {
            seen.iter().any(|(name, value)| is_lost(Some(value), before.get(name), now.get(name)))
        }
        (seen, before, now) => seen.is_some() && before != now,
    }
}

/// Returns true if a document fits the schema.
fn fits(document: &Value) -> bool {
    let is_note = |note: &Value| note.as_str().is_some_and(|note| note.chars().count() <= 40);
    let is_task = |task: &Value| {
        task.as_object().is_some_and(|members| members.len() == 3)
            && task["title"].is_string()
            && ["open", "doing", "done"].iter().any(|status| task["status"] == *status)
            && task["checked"].is_boolean()
    };
    let all = |list: &str, is_good: &dyn Fn(&Value) -> bool| {
        document[list].as_array().is_some_and(|elements| elements.iter().all(is_good))
    };
    all("notes", &is_note)
        && all("tasks", &is_task)
        && document["tasks"].as_array().is_some_and(|all| all.len() <= TASKS_MAX)
}
