//! Tasks on the shipped blueprints: who plays them well, who errs how, and what is right of what they leave.
//!
//! What is right is judged against the faultless outcome of the very task, worked out by hand here: a document may stop
//! short of it, and may hold nothing else ([`Scenario::wrongs`]). Nothing of it uses the kernel's contracts, schemas or
//! invariants.

mod evidence;
mod household;
mod stockroom;

use patchboard_kernel::blueprint::{AgentKind, Blueprint, Worker};
use patchboard_kernel::lint;
use patchboard_kernel::source::Source;
use serde_json::{Value, json};

use crate::class::Class;
use crate::random::Random;

/// A task on a shipped blueprint.
pub trait Scenario: Sync {
    /// The blueprint's name.
    fn name(&self) -> &'static str;

    /// The shipped blueprint.
    fn blueprint(&self) -> &Blueprint;

    /// What the board is asked; texts that somebody may have planted in it included.
    fn request(&self, random: &mut Random, planted: Option<&str>) -> Value;

    /// What a worker does who errs in nothing: operations on the document as it was when the worker was called. `woken`
    /// is the place that woke it.
    fn answer(&self, worker: &str, woken: Option<&str>, document: &Value) -> Vec<Value>;

    /// What of the document is not as a faultless run leaves it at some moment, in words; members whose names begin with
    /// `$` are nobody's. What was asked is read off the document: see [`wrongs`].
    fn wrongs(&self, document: &Value) -> Vec<String>;

    /// What of a document stays there once it is there, in words: a run may stop short of it, and not take it away.
    fn lasting(&self, document: &Value) -> Vec<String>;

    /// Whether the task is done, and rightly.
    fn is_done(&self, document: &Value) -> bool;

    /// Whether others commit what a worker has read while it is at work.
    fn is_overtaken(&self, _worker: &str) -> bool {
        false
    }

    /// Of what a worker writes at once, what it may as well write later, bit by bit: so that somebody commits beside others.
    fn postpone(&self, _worker: &str, _ops: &mut Vec<Value>) -> Vec<Value> {
        Vec::new()
    }

    /// Something that a worker writes outside of its contract and that the document's schema has a place for.
    fn trespass(&self, worker: &str, document: &Value, random: &mut Random) -> Vec<Value>;

    /// Something false that a worker's contract lets it write; none if it has nothing to say that could be false.
    fn lie(&self, worker: &str, document: &Value, random: &mut Random) -> Option<Vec<Value>>;

    /// Whether a worker can go in circles.
    fn circles(&self, _worker: &str) -> bool {
        false
    }

    /// What it writes the `nth` time, in circles of this length; none where it cannot.
    fn circle(&self, _worker: &str, _document: &Value, _length: usize, _nth: usize) -> Option<Vec<Value>> {
        None
    }
}

/// The place that a worker was woken by, as its view tells it.
pub fn woken(view: &str) -> Option<&str> {
    let (_, told) = view.rsplit_once("You were woken by rule ")?;
    told.split_once(", because ")?.1.split_whitespace().next()
}

/// The workers that can err in this way.
pub fn who_can_err(scenario: &dyn Scenario, class: Class) -> Vec<&str> {
    let can = |name: &str, worker: &Worker| match class {
        // Programs have contracts, too.
        Class::UnauthorizedWrite => matches!(worker.agent, AgentKind::Llm | AgentKind::Command),
        // Elsewhere nothing that is written can be written again.
        Class::Cycle => scenario.circles(name),
        // Elsewhere one call is made at a time.
        Class::StaleRead => scenario.is_overtaken(name),
        _ => worker.agent == AgentKind::Llm,
    };
    let workers = scenario.blueprint().workers.iter();
    workers.filter(|(name, worker)| can(name.as_str(), worker)).map(|(name, _)| name.as_str()).collect()
}

/// What of a document is wrong, given what was asked: the document is not believed where it says that itself.
pub fn wrongs(scenario: &dyn Scenario, request: &Value, document: &Value) -> Vec<String> {
    if document["request"] == *request {
        return scenario.wrongs(document);
    }
    let mut wrongs = vec!["/request is not what was asked".to_owned()];
    if let Value::Object(members) = document {
        let mut members = members.clone();
        members.insert("request".to_owned(), request.clone());
        wrongs.extend(scenario.wrongs(&Value::Object(members)));
    }
    wrongs
}

/// All of them.
pub static ALL: &[&dyn Scenario] = &[&evidence::Evidence, &household::Household, &stockroom::Stockroom];

/// A shipped blueprint.
fn shipped(name: &str, text: &str) -> Blueprint {
    let source = Source::read(name, text).expect("a shipped blueprint can be read");
    lint::check(&source).blueprint.expect("a shipped blueprint is sound")
}

fn add(path: impl Into<String>, value: impl Into<Value>) -> Value {
    json!({"op": "add", "path": path.into(), "value": value.into()})
}

fn replace(path: impl Into<String>, value: impl Into<Value>) -> Value {
    json!({"op": "replace", "path": path.into(), "value": value.into()})
}

fn list<'a>(document: &'a Value, name: &str) -> &'a [Value] {
    document[name].as_array().map_or(&[], Vec::as_slice)
}

/// The members of a document that are there and should not be; those of other names than these.
fn unknown_members(document: &Value, names: &[&str]) -> Vec<String> {
    let Some(members) = document.as_object() else { return vec!["the document is no object".to_owned()] };
    let unknown = members.keys().filter(|name| !name.starts_with('$') && !names.contains(&name.as_str()));
    unknown.map(|name| format!("/{name} is no part of the document")).collect()
}
