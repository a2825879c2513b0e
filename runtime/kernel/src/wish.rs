//! What rules want when something has happened (SPEC section 6).
//!
//! [`wanted`] turns an occasion into wishes, `still_wants` asks again when the delay of one is over, and [`may_wake`]
//! tells beforehand whom a rule would wake. Nothing here changes anything: a wish becomes a `scheduled` record, and with
//! that an invocation in the queue ([`crate::scheduler`]).

use std::collections::{BTreeMap, BTreeSet};

use jsonptr::{Pointer, PointerBuf};
use serde_json::{Value, json};

use crate::bindings::Bindings;
use crate::blueprint::{DELAY_MS_MAX, EventOp};
use crate::event::Event;
use crate::expr::{Allowance, Variable, Variables};
use crate::id::{RuleName, Seq, Timestamp, Version, WorkerName};
use crate::json::shortened_to;
use crate::pattern::{Instance, Pattern};
use crate::plan::{BOUND, Delay, Lasts, Plan, RestKind, Rule, WakesOn, decoded};
use crate::planted::{self, Bug};
use crate::record::{Trigger, UNDECIDED};
use crate::scheduler::{Queued, Scheduler};
use crate::tree::Node;

/// Places that a rule fires for at the creation of a board.
pub(crate) const EACH_MAX: usize = 1024;
/// Invocations that all such rules begin with together.
pub(crate) const ALL_EACH_MAX: usize = 4096;

/// Characters of a place that a record names.
const PLACE_CHARS: usize = 200;

/// The variable of a condition that names whom its rule would wake.
const WORKER: &str = "worker";

/// Something that may wake rules.
pub enum Occasion<'a> {
    /// The board began.
    Start,
    /// A commit.
    Commit {
        /// What it did.
        events: &'a [Event<'a>],
        /// The patch.
        patch: &'a Value,
        /// The state before it.
        before: &'a Node,
        /// Whose it was.
        worker: &'a WorkerName,
        /// The version it made.
        version: Version,
    },
    /// A signal.
    Signal {
        /// Its name.
        name: &'a str,
        /// What it carries.
        value: &'a Value,
        /// Its record.
        seq: Seq,
    },
    /// A rule completed an invocation.
    Completed,
    /// The waits of these rules are over.
    Rested(&'a BTreeSet<RuleName>),
    /// These rules' schedules are due, since these times.
    Due(&'a BTreeMap<RuleName, Timestamp>),
}

/// A rule that fires, or that would if its condition had a truth value.
#[derive(Clone, PartialEq, Debug)]
pub enum Wish {
    /// Invoke the rule's worker.
    Invoke {
        /// The rule.
        rule: RuleName,
        /// Its worker.
        worker: WorkerName,
        /// Why.
        trigger: Trigger,
        /// After how many milliseconds.
        delay: u64,
    },
    /// The condition could not be evaluated, or no worker stands where the rule looks for one, so it does not fire.
    Skip {
        /// The rule.
        rule: RuleName,
        /// Why not.
        message: String,
    },
}

/// The wishes an occasion gives rise to, in the order of events and, for one event, of the blueprint's rules.
pub fn wanted(plan: &Plan, scheduler: &Scheduler, state: &Node, occasion: &Occasion<'_>) -> Vec<Wish> {
    let names_places = plan.journal >= UNDECIDED;
    let mut wishes = Wishes { wishes: Vec::new(), skipped: BTreeMap::new(), allowance: Allowance::new() };
    match occasion {
        Occasion::Start => {
            for rule in &plan.rules {
                match &rule.wakes_on {
                    WakesOn::Start => wish(rule, &Woken::by(Trigger::Start), state, None, &mut wishes),
                    WakesOn::Each(pattern) => wish_for_each(rule, pattern, state, &mut wishes),
                    _ => {}
                }
            }
        }
        Occasion::Signal { name, value, seq } => {
            for rule in &plan.rules {
                if matches!(&rule.wakes_on, WakesOn::Signal(wanted) if wanted == name) {
                    let trigger = Trigger::Signal { name: (*name).to_owned(), seq: *seq };
                    let event = json!({"op": "signal", "name": name});
                    let bound = rule.binds.of_value(&Variable::from(*value));
                    let woken = Woken { trigger, event, value: (*value).into(), bound };
                    wish(rule, &woken, state, None, &mut wishes);
                }
            }
        }
        Occasion::Due(since) => {
            for rule in &plan.rules {
                let Some(due) = since.get(&rule.name) else { continue };
                let event = json!({"op": "every", "name": rule.name});
                wish(rule, &Woken { event, ..Woken::by(Trigger::Every { due: *due }) }, state, None, &mut wishes);
            }
        }
        Occasion::Completed => {
            for rule in plan.rules.iter().filter(|rule| scheduler.is_after(rule)) {
                wish(rule, &Woken::by(Trigger::After), state, None, &mut wishes);
            }
        }
        Occasion::Rested(rested) => {
            for rule in plan.rules.iter().filter(|rule| rested.contains(&rule.name)) {
                let is_join = matches!(&rule.wakes_on, WakesOn::Rest(rest) if rest.kind != RestKind::Each);
                let trigger = if is_join { Trigger::After } else { Trigger::Idle };
                wish(rule, &Woken::by(trigger), state, None, &mut wishes);
            }
        }
        Occasion::Commit { events, patch, before, worker, version } => {
            for event in *events {
                let decoded = decoded(&event.path);
                let path: Vec<_> = decoded.iter().map(String::as_str).collect();
                for rule in &plan.rules {
                    let WakesOn::Event { op, path: pattern } = &rule.wakes_on else { continue };
                    if op.is_some_and(|op| op != event.op) {
                        continue;
                    }
                    let Some(captures) = pattern.captures(&path) else { continue };
                    let shown = json!({
                        "op": event.op, "path": event.path.as_str(), "captures": captures, "worker": worker,
                        "version": version,
                    });
                    let trigger = Trigger::Event { op: event.op, path: event.path.to_string(), version: *version };
                    let bound = Ok(rule.binds.of_captures(&captures));
                    let woken = Woken { trigger, event: shown, value: event.value.into(), bound };
                    wish(rule, &woken, state, Some((before, patch)), &mut wishes);
                }
            }
        }
    }
    let lost = match wishes.wishes.len() {
        0 => false,
        1 => planted::is(Bug::LoneInvocation),
        _ => planted::is(Bug::LostInvocation),
    };
    if lost && matches!(wishes.wishes.last(), Some(Wish::Invoke { .. })) {
        wishes.wishes.pop();
    }
    if names_places {
        wishes.name_places();
    }
    wishes.wishes
}

/// Whether a rule would wake this worker if its name came to this place now: one that wakes whoever is named there. True,
/// too, if no rule does that, or if its condition cannot be told yet.
pub fn may_wake(plan: &Plan, state: &Node, at: &Pointer, worker: &str) -> bool {
    let decoded = decoded(at);
    let path: Vec<_> = decoded.iter().map(String::as_str).collect();
    let event = json!({"op": EventOp::Add, "path": at, "captures": [], "worker": null, "version": 0});
    let name = Value::from(worker);
    let mut variables = variables(state, &event, (&name).into(), None);
    variables.insert(WORKER, (&name).into());
    let wakes_named = |rule: &&Rule| {
        let is_event =
            matches!(&rule.wakes_on, WakesOn::Event { path: pattern, .. } if pattern.captures(&path).is_some());
        is_event && rule.chosen.as_ref().is_some_and(|chosen| chosen.at.is_root())
    };
    let mut waking = plan.rules.iter().filter(wakes_named).peekable();
    waking.peek().is_none()
        || waking.any(|rule| {
            let captures = match &rule.wakes_on {
                WakesOn::Event { path: pattern, .. } => pattern.captures(&path).unwrap_or_default(),
                _ => Vec::new(),
            };
            variables.insert(BOUND, rule.binds.of_captures(&captures).to_value().into());
            rule.when.as_ref().is_none_or(|when| when.evaluate(&variables).unwrap_or(true))
        })
}

/// The wishes of one occasion in the making.
struct Wishes {
    wishes: Vec<Wish>,
    /// Rules that did not fire: where first, unless the reason says it, and at how many more places.
    skipped: BTreeMap<RuleName, (Option<Trigger>, usize)>,
    /// What all their conditions may take together.
    allowance: Allowance,
}

impl Wishes {
    fn invoke(&mut self, rule: &Rule, worker: &WorkerName, trigger: Trigger, delay: u64) {
        self.wishes.push(Wish::Invoke { rule: rule.name.clone(), worker: worker.clone(), trigger, delay });
    }

    /// Says why a rule does not fire: once for each rule, however many events there are.
    fn skip(&mut self, rule: &Rule, at: Option<&Trigger>, message: String) {
        match self.skipped.get_mut(&rule.name) {
            Some((_, more)) => *more += 1,
            None => {
                self.skipped.insert(rule.name.clone(), (at.cloned(), 0));
                self.wishes.push(Wish::Skip { rule: rule.name.clone(), message });
            }
        }
    }

    fn name_places(&mut self) {
        for wish in &mut self.wishes {
            let Wish::Skip { rule, message } = wish else { continue };
            if let Some((at, more)) = self.skipped.get(rule) {
                name_place(message, at.as_ref(), *more);
            }
        }
    }
}

/// Adds to the reason why a rule did not fire where that was, and at how many more places.
pub(crate) fn name_place(message: &mut String, at: Option<&Trigger>, more: usize) {
    let place = match at {
        Some(Trigger::Event { path, .. }) => format!("at {}", shortened_to(path, PLACE_CHARS)),
        _ => String::new(),
    };
    let more = if more == 0 { String::new() } else { format!("and {more} more") };
    let said = [place, more].into_iter().filter(|said| !said.is_empty()).collect::<Vec<_>>().join(" ");
    if !said.is_empty() {
        message.push_str(&format!(" ({said})"));
    }
}

/// Wishes of a rule for each place that a document begins with.
fn wish_for_each(rule: &Rule, pattern: &Pattern, state: &Node, wishes: &mut Wishes) {
    // A board with more is not made.
    let instances = pattern.instances(state, EACH_MAX);
    for Instance { place, part } in instances {
        let decoded = decoded(&place);
        let tokens: Vec<_> = decoded.iter().map(String::as_str).collect();
        let captures = pattern.captures(&tokens).unwrap_or_default();
        let (op, version) = (EventOp::Add, Version(0));
        let event = json!({"op": op, "path": place.as_str(), "captures": captures, "worker": null, "version": version});
        let bound = Ok(rule.binds.of_captures(&captures));
        let trigger = Trigger::Event { op, path: place.to_string(), version };
        wish(rule, &Woken { trigger, event, value: part.node.into(), bound }, state, None, wishes);
    }
}

/// Occasion of one rule.
struct Woken<'a> {
    trigger: Trigger,
    /// As conditions see it.
    event: Value,
    value: Variable<'a>,
    /// Bindings of the rule, or the reason why it has none.
    bound: Result<Bindings, String>,
}

impl Woken<'_> {
    /// Makes an occasion without a value.
    fn by(trigger: Trigger) -> Self {
        Self { trigger, event: Value::Null, value: Value::Null.into(), bound: Ok(Bindings::default()) }
    }
}

fn wish(rule: &Rule, woken: &Woken<'_>, state: &Node, commit: Option<(&Node, &Value)>, wishes: &mut Wishes) {
    let Woken { trigger, event, value, bound } = woken;
    let nothing = Bindings::default();
    let (bound, is_unbound) = match bound {
        Ok(bound) => (bound, None),
        // A condition that does not ask for names is asked first.
        Err(message) if rule.when.as_ref().is_some_and(|when| !when.uses(BOUND)) => (&nothing, Some(message)),
        Err(message) => return wishes.skip(rule, None, message.clone()),
    };
    let whom = match &rule.chosen {
        None => Ok(rule.workers.as_slice()),
        Some(chosen) => {
            let name = value.text_at(&chosen.at);
            let found = rule.workers.iter().find(|worker| name == Some(worker.as_str()));
            // What stands there is not said: messages are no place for values.
            let unknown =
                || format!("{} is no name of a worker of the group {}", place(&chosen.at, trigger), chosen.group);
            found.map(std::slice::from_ref).ok_or_else(unknown)
        }
    };
    let mut variables = variables(state, event, value.clone(), commit);
    variables.insert(BOUND, bound.to_value().into());
    // A condition comes first, unless it asks whom the rule would wake.
    let (for_all, for_each) = match &rule.when {
        Some(when) if when.uses(WORKER) => (None, Some(when)),
        when => (when.as_ref(), None),
    };
    match for_all.map_or(Ok(true), |when| when.evaluate_within(&variables, &mut wishes.allowance)) {
        Ok(true) => {}
        Ok(false) => return,
        Err(error) => return wishes.skip(rule, Some(trigger), error.to_string()),
    }
    if let Some(message) = is_unbound {
        return wishes.skip(rule, None, message.clone());
    }
    let workers = match whom {
        Ok(workers) => workers,
        Err(message) => return wishes.skip(rule, None, message),
    };
    let delay = match &rule.delay {
        None => 0,
        Some(Delay { lasts: Lasts::For(ms), .. }) => *ms,
        Some(Delay { lasts: Lasts::At(at), .. }) => match value.count_at(at).filter(|ms| *ms <= DELAY_MS_MAX) {
            Some(ms) => ms,
            None => {
                let place = place(at, trigger);
                return wishes.skip(rule, None, format!("{place} is no number of milliseconds, of a year at most"));
            }
        },
    };
    for worker in workers {
        variables.insert(WORKER, Value::from(worker.as_str()).into());
        match for_each.map_or(Ok(true), |when| when.evaluate_within(&variables, &mut wishes.allowance)) {
            Ok(true) => wishes.invoke(rule, worker, trigger.clone(), delay),
            Ok(false) => {}
            Err(error) => wishes.skip(rule, Some(trigger), error.to_string()),
        }
    }
}

/// What conditions of rules may speak of.
fn variables<'a>(
    state: &'a Node,
    event: &'a Value,
    value: Variable<'a>,
    commit: Option<(&'a Node, &'a Value)>,
) -> Variables<'a> {
    let (before, patch) = commit.unwrap_or((state, &Value::Null));
    Variables::from([
        ("request", Variable::from(state.child("request").unwrap_or(&Node::Null))),
        ("state", Variable::from(state)),
        ("event", Variable::from(event)),
        ("value", value),
        ("before", Variable::from(before)),
        ("patch", Variable::from(patch)),
    ])
}

/// Whether the rule of what was delayed wants it now that its time has come: `value` is what stands now where the event was.
/// `by` is who made the commit.
///
/// # Errors
/// Why its condition has no truth value.
pub(crate) fn still_wants(
    plan: &Plan,
    state: &Node,
    queued: &Queued,
    by: Option<&WorkerName>,
    allowance: &mut Allowance,
) -> Result<bool, String> {
    let rule = plan.rules.iter().find(|rule| queued.branch.rule.as_ref() == Some(&rule.name));
    let Some((rule, when)) = rule.and_then(|rule| Some((rule, rule.when.as_ref()?))) else { return Ok(true) };
    let (event, value) = match &queued.trigger {
        Trigger::Event { op, path, version } => {
            let pointer = PointerBuf::parse(path.as_str()).unwrap_or_default();
            let decoded = decoded(&pointer);
            let tokens: Vec<_> = decoded.iter().map(String::as_str).collect();
            let captures = match &rule.wakes_on {
                WakesOn::Event { path, .. } | WakesOn::Each(path) => {
                    path.captures(&tokens).map(|captures| json!(captures))
                }
                _ => None,
            };
            let event = json!({"op": op, "path": path, "captures": captures, "worker": by, "version": version});
            (event, state.get(&pointer).map_or_else(|| Value::Null.into(), Variable::from))
        }
        Trigger::Signal { name, .. } => {
            let value = queued.value.as_ref().map_or_else(|| Value::Null.into(), Variable::from);
            (json!({"op": "signal", "name": name}), value)
        }
        Trigger::Every { .. } => (json!({"op": "every", "name": rule.name}), Value::Null.into()),
        Trigger::Start | Trigger::After | Trigger::Idle | Trigger::Breaker { .. } => (Value::Null, Value::Null.into()),
    };
    let mut variables = variables(state, &event, value, None);
    variables.insert(WORKER, Value::from(queued.branch.worker.as_str()).into());
    let bound = plan.bindings(&queued.branch, &queued.trigger, queued.value.as_ref());
    variables.insert(BOUND, bound.to_value().into());
    when.evaluate_within(&variables, allowance).map_err(|error| error.to_string())
}

/// Returns true if nothing stands any more where a commit left something.
pub(crate) fn is_gone(state: &Node, trigger: &Trigger) -> bool {
    match trigger {
        Trigger::Event { op, path, .. } if *op != EventOp::Remove => {
            PointerBuf::parse(path.as_str()).is_ok_and(|pointer| state.get(&pointer).is_none())
        }
        _ => false,
    }
}

/// Where a rule looks for something in what has woken it, for people.
fn place(at: &PointerBuf, trigger: &Trigger) -> String {
    match trigger {
        Trigger::Event { op: EventOp::Remove, path, .. } => format!("what stood at {path}{at}"),
        Trigger::Event { path, .. } => format!("what stands at {path}{at}"),
        _ if at.is_root() => "what the signal carries".to_owned(),
        _ => format!("what the signal carries at {at}"),
    }
}
