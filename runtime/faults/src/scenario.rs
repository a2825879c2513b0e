//! Tasks on the shipped blueprints: correct workers, their possible faults, and checks of the results.
//!
//! Results are judged against the faultless outcome of the same task, worked out by hand here. A document may stop
//! short of it, and may contain nothing else ([`Scenario::document_errors`]). The checks use none of the kernel's
//! contracts, schemas or invariants.

mod evidence;
mod household;
mod stockroom;

use patchboard_kernel::blueprint::{AgentKind, Blueprint, Worker};
use patchboard_lint::source::Source;
use serde_json::{Value, json};

use crate::class::FaultClass;
use crate::random::Random;

/// A task on a shipped blueprint.
pub trait Scenario: Sync {
    /// The blueprint's name.
    fn name(&self) -> &'static str;

    /// The shipped blueprint.
    fn blueprint(&self) -> &Blueprint;

    /// Builds the board's request, including `planted` text.
    fn request(&self, random: &mut Random, planted: Option<&str>) -> Value;

    /// Returns the operations of a correct worker on the document at the time of its call. `woken` is the path that
    /// triggered it.
    fn answer(&self, worker: &str, woken: Option<&str>, document: &Value) -> Vec<Value>;

    /// Describes each part of the document that no faultless run has at any moment. Members with a leading `$` are
    /// ignored. The request is read from the document: see [`document_errors`].
    fn document_errors(&self, document: &Value) -> Vec<String>;

    /// Describes the entries that must remain once they are present; a run may stop short of adding them.
    fn permanent_entries(&self, document: &Value) -> Vec<String>;

    /// Returns true if the task is done correctly.
    fn is_done(&self, document: &Value) -> bool;

    /// Returns true if others commit changes to this worker's read set while it is at work.
    fn has_concurrent_writers(&self, _worker: &str) -> bool {
        false
    }

    /// Takes from a worker's operations those that it can also write later, one by one, so that it commits beside
    /// others.
    fn split_off_later(&self, _worker: &str, _ops: &mut Vec<Value>) -> Vec<Value> {
        Vec::new()
    }

    /// Returns a write outside the worker's contract, to a path that the document's schema has.
    fn unauthorized_write(&self, worker: &str, document: &Value, random: &mut Random) -> Vec<Value>;

    /// Returns a false statement that the worker's contract allows; none if the worker has nothing to say that could be
    /// false.
    fn false_claim(&self, worker: &str, document: &Value, random: &mut Random) -> Option<Vec<Value>>;

    /// Returns true if the worker can go in cycles.
    fn can_cycle(&self, _worker: &str) -> bool {
        false
    }

    /// Returns its `nth` write in a cycle of this length; none if it cannot cycle.
    fn cycle_step(&self, _worker: &str, _document: &Value, _length: usize, _nth: usize) -> Option<Vec<Value>> {
        None
    }
}

/// Returns the path that triggered a worker, as its view states it.
pub fn trigger_path(view: &str) -> Option<&str> {
    let (_, cause) = view.rsplit_once("You were woken by rule ")?;
    cause.split_once(", because ")?.1.split_whitespace().next()
}

/// Returns the workers that can fail in this way.
pub fn fault_candidates(scenario: &dyn Scenario, class: FaultClass) -> Vec<&str> {
    let can = |name: &str, worker: &Worker| match class {
        // Programs have contracts, too.
        FaultClass::UnauthorizedWrite => matches!(worker.agent, AgentKind::Llm | AgentKind::Command),
        // In other scenarios nothing that is written can be written again.
        FaultClass::Cycle => scenario.can_cycle(name),
        // In other scenarios one call is made at a time.
        FaultClass::StaleRead => scenario.has_concurrent_writers(name),
        _ => worker.agent == AgentKind::Llm,
    };
    let workers = scenario.blueprint().workers.iter();
    workers.filter(|(name, worker)| can(name.as_str(), worker)).map(|(name, _)| name.as_str()).collect()
}

/// Describes the faults of a document, given the original request; the document's own copy of it is not trusted.
pub fn document_errors(scenario: &dyn Scenario, request: &Value, document: &Value) -> Vec<String> {
    if document["request"] == *request {
        return scenario.document_errors(document);
    }
    let mut wrongs = vec!["/request is not what was asked".to_owned()];
    if let Value::Object(members) = document {
        let mut members = members.clone();
        members.insert("request".to_owned(), request.clone());
        wrongs.extend(scenario.document_errors(&Value::Object(members)));
    }
    wrongs
}

/// All scenarios.
pub static ALL: &[&dyn Scenario] = &[&evidence::Evidence, &household::Household, &stockroom::Stockroom];

fn shipped(name: &str, text: &str) -> Blueprint {
    let source = Source::read(name, text).expect("a shipped blueprint can be read");
    patchboard_lint::check(&source, &[]).blueprint.expect("a shipped blueprint is sound")
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

/// Describes the members of a document that have none of these names.
fn unknown_members(document: &Value, names: &[&str]) -> Vec<String> {
    let Some(members) = document.as_object() else { return vec!["the document is no object".to_owned()] };
    let unknown = members.keys().filter(|name| !name.starts_with('$') && !names.contains(&name.as_str()));
    unknown.map(|name| format!("/{name} is no part of the document")).collect()
}
