//! Matches rules against an event and returns the invocations they trigger (SPEC section 6).
//!
//! [`activations`] returns the activations for an occasion, `still_matches` checks one again after its delay, and
//! [`could_trigger`] predicts if a rule would trigger a worker. All functions here are pure: an activation becomes a
//! `scheduled` record, and thereby an invocation in the queue ([`crate::scheduler`]).

use std::collections::{BTreeMap, BTreeSet};

use jsonptr::{Pointer, PointerBuf};
use serde_json::{Value, json};

use crate::bindings::Bindings;
use crate::blueprint::{DELAY_MS_MAX, EventOp};
use crate::event::Event;
use crate::expr::{Allowance, Variable, Variables};
use crate::expressions::BOUND;
use crate::id::{RuleName, Seq, Timestamp, Version, WorkerName};
use crate::mutants::{self, Mutant};
use crate::pattern::{Instance, Pattern, decoded};
use crate::plan::{CompiledTrigger, Delay, DelayMs, Plan, Rule};
use crate::record::{SINCE_UNDECIDED_RULES, Trigger};
use crate::scheduler::{QueuedInvocation, Scheduler};
use crate::tree::Node;

/// Limit of the places for which a rule fires at the creation of a board.
pub(crate) const INITIAL_PLACES_MAX: usize = 1024;
/// Limit of the invocations of all such rules together, and of those triggered by one commit.
pub(crate) const ACTIVATIONS_MAX: usize = 4096;

/// Variable of a condition: the worker that the rule would trigger.
const WORKER: &str = "worker";

/// Event that may trigger rules.
pub enum TriggerEvent<'a> {
    /// Creation of the board.
    Start,
    /// Commit of a patch.
    Commit {
        /// Events of the commit.
        events: &'a [Event<'a>],
        /// The patch.
        patch: &'a Value,
        /// The state before it.
        before: &'a Node,
        /// Author of the patch.
        worker: &'a WorkerName,
        /// Version created by the commit.
        version: Version,
    },
    /// Arrival of a signal.
    Signal {
        /// Name of the signal.
        name: &'a str,
        /// Payload of the signal.
        value: &'a Value,
        /// Seq of its record.
        seq: Seq,
    },
    /// Completion of an invocation of some rule.
    Completed,
    /// Rules with awaited branches at rest.
    Rested(&'a BTreeSet<RuleName>),
    /// Rules with due schedules, and their due times.
    Due(&'a BTreeMap<RuleName, Timestamp>),
}

/// Rule that fires, or cannot be evaluated.
#[derive(Clone, PartialEq, Debug)]
pub enum Activation {
    /// Invokes the rule's worker.
    Invoke {
        /// The rule.
        rule: RuleName,
        /// Worker to invoke.
        worker: WorkerName,
        /// Trigger of the invocation.
        trigger: Trigger,
        /// Delay in milliseconds.
        delay: u64,
    },
    /// Does not fire: the condition could not be evaluated, or the rule found no valid worker name.
    Skip {
        /// The rule.
        rule: RuleName,
        /// Worker that it would trigger; `None` for any.
        worker: Option<WorkerName>,
        /// Trigger, if the rule can be evaluated again for it (since journal format 16).
        trigger: Option<Trigger>,
        /// Reason for not firing.
        message: String,
    },
}

/// Returns the activations for an occasion, in the order of events and, for one event, of the blueprint's rules.
pub fn activations(plan: &Plan, scheduler: &Scheduler, state: &Node, occasion: &TriggerEvent<'_>) -> Vec<Activation> {
    let mut allowance = Allowance::new();
    let mut collector = ActivationCollector { activations: Vec::new(), plan, allowance: &mut allowance };
    match occasion {
        TriggerEvent::Start => {
            for rule in &plan.rules {
                match &rule.trigger {
                    CompiledTrigger::Start => {
                        evaluate_rule(rule, &TriggerContext::new(Trigger::Start), state, None, &mut collector)
                    }
                    CompiledTrigger::Each(pattern) => evaluate_for_each(rule, pattern, state, &mut collector),
                    _ => {}
                }
            }
        }
        TriggerEvent::Signal { name, value, seq } => {
            for rule in &plan.rules {
                if matches!(&rule.trigger, CompiledTrigger::Signal(wanted) if wanted == name) {
                    let trigger = Trigger::Signal { name: (*name).to_owned(), seq: *seq };
                    let event = json!({"op": "signal", "name": name});
                    let bound = rule.binds.bind_signal(&Variable::from(*value));
                    let woken = TriggerContext { trigger, event, value: (*value).into(), bound };
                    evaluate_rule(rule, &woken, state, None, &mut collector);
                }
            }
        }
        TriggerEvent::Due(since) => {
            for rule in &plan.rules {
                let Some(due) = since.get(&rule.name) else { continue };
                let event = json!({"op": "every", "name": rule.name});
                let woken = TriggerContext { event, ..TriggerContext::new(Trigger::Every { due: *due }) };
                evaluate_rule(rule, &woken, state, None, &mut collector);
            }
        }
        TriggerEvent::Completed => {
            for rule in plan.rules.iter().filter(|rule| scheduler.may_fire_after(rule)) {
                evaluate_rule(rule, &TriggerContext::new(Trigger::After), state, None, &mut collector);
            }
        }
        TriggerEvent::Rested(rested) => {
            for rule in plan.rules.iter().filter(|rule| rested.contains(&rule.name)) {
                let trigger = if rule.rest_once().is_some() { Trigger::After } else { Trigger::Idle };
                evaluate_rule(rule, &TriggerContext::new(trigger), state, None, &mut collector);
            }
        }
        TriggerEvent::Commit { events, patch, before, worker, version } => {
            for event in *events {
                let decoded = decoded(&event.path);
                let path: Vec<_> = decoded.iter().map(String::as_str).collect();
                for rule in &plan.rules {
                    let CompiledTrigger::Event { op, path: pattern } = &rule.trigger else { continue };
                    if op.is_some_and(|op| op != event.op) {
                        continue;
                    }
                    let Some(captures) = pattern.captures(&path) else { continue };
                    let (op, at) = (event.op, event.path.as_str());
                    let shown =
                        json!({"op": op, "path": at, "captures": captures, "worker": worker, "version": version});
                    let trigger = Trigger::Event { op, path: at.to_owned(), version: *version };
                    let bound = Ok(rule.binds.bind_captures(&captures));
                    let woken = TriggerContext { trigger, event: shown, value: event.value.into(), bound };
                    evaluate_rule(rule, &woken, state, Some((before, patch)), &mut collector);
                }
            }
        }
    }
    let lost = match collector.activations.len() {
        0 => false,
        1 => mutants::is_active(Mutant::SkipOnlyInvocation),
        _ => mutants::is_active(Mutant::SkipLastInvocation),
    };
    if lost && matches!(collector.activations.last(), Some(Activation::Invoke { .. })) {
        collector.activations.pop();
    }
    collector.activations
}

/// Returns true if an undecided rule can be evaluated again for its trigger: an event or the start, since journal
/// format 16.
pub(crate) fn can_reevaluate(plan: &Plan, trigger: &Trigger) -> bool {
    plan.journal_format >= SINCE_UNDECIDED_RULES && matches!(trigger, Trigger::Event { .. } | Trigger::Start)
}

/// Evaluates a rule again for an earlier trigger, with the current state. Returns nothing if the trigger's place is
/// gone.
pub(crate) fn reevaluate(
    plan: &Plan,
    state: &Node,
    name: &RuleName,
    trigger: &Trigger,
    by: Option<&WorkerName>,
    allowance: &mut Allowance,
) -> Vec<Activation> {
    let rule = plan.rules.iter().find(|rule| rule.name == *name).filter(|rule| !is_place_removed(state, rule, trigger));
    let Some(rule) = rule else { return Vec::new() };
    let mut collector = ActivationCollector { activations: Vec::new(), plan, allowance };
    let (event, value) = condition_inputs(rule, state, trigger, None, by);
    let bound = Ok(rule.bindings(trigger, None));
    evaluate_rule(rule, &TriggerContext { trigger: trigger.clone(), event, value, bound }, state, None, &mut collector);
    collector.activations
}

/// Predicts if a rule would trigger this worker once its name is written to this place. Also true if no rule takes a
/// name from there, or if its condition cannot be evaluated yet.
pub fn could_trigger(plan: &Plan, state: &Node, at: &Pointer, worker: &str) -> bool {
    let event = json!({"op": EventOp::Add, "path": at, "captures": [], "worker": null, "version": 0});
    let name = Value::from(worker);
    let mut variables = variables(plan, state, &event, (&name).into(), None);
    variables.insert(WORKER, (&name).into());
    let waking = plan.rules.iter().filter_map(|rule| match &rule.trigger {
        CompiledTrigger::Event { path, .. } if rule.selector.as_ref()?.at.is_root() => {
            Some((rule, path.captures_at(at)?))
        }
        _ => None,
    });
    let mut waking = waking.peekable();
    waking.peek().is_none()
        || waking.any(|(rule, captures)| {
            variables.insert(BOUND, rule.binds.bind_captures(&captures).to_value().into());
            rule.when.as_ref().is_none_or(|when| when.evaluate(&variables).unwrap_or(true))
        })
}

/// Activations of one occasion, being collected.
struct ActivationCollector<'a> {
    activations: Vec<Activation>,
    plan: &'a Plan,
    /// Evaluation budget shared by all conditions.
    allowance: &'a mut Allowance,
}

impl ActivationCollector<'_> {
    fn invoke(&mut self, rule: &Rule, worker: &WorkerName, trigger: Trigger, delay: u64) {
        self.activations.push(Activation::Invoke { rule: rule.name.clone(), worker: worker.clone(), trigger, delay });
    }

    /// Records why a rule does not fire: once for each rule, or once for each event if a join waits for the rule.
    fn skip(&mut self, rule: &Rule, worker: Option<&WorkerName>, trigger: &Trigger, message: String) {
        let can_be_asked = can_reevaluate(self.plan, trigger);
        let trigger = can_be_asked.then(|| trigger.clone());
        let worker = worker.filter(|_| can_be_asked).cloned();
        let is_joined_on = self.plan.joined_on(&rule.name).next().is_some();
        let is_said = |activation: &Activation| match activation {
            Activation::Skip { rule: said, worker: target, trigger: of, .. } => {
                *said == rule.name && (!is_joined_on || (*of == trigger && *target == worker))
            }
            Activation::Invoke { .. } => false,
        };
        if !self.activations.iter().any(is_said) {
            self.activations.push(Activation::Skip { rule: rule.name.clone(), worker, trigger, message });
        }
    }
}

/// Adds the activations of a rule for each matching place of the first document, which includes the request.
fn evaluate_for_each(rule: &Rule, pattern: &Pattern, state: &Node, collector: &mut ActivationCollector) {
    // Creation rejects documents with more instances.
    let instances = pattern.instances(state, INITIAL_PLACES_MAX);
    for Instance { place, part } in instances {
        let captures = pattern.captures_at(&place).unwrap_or_default();
        let (op, version) = (EventOp::Add, Version(0));
        let event = json!({"op": op, "path": place.as_str(), "captures": captures, "worker": null, "version": version});
        let bound = Ok(rule.binds.bind_captures(&captures));
        let trigger = Trigger::Event { op, path: place.to_string(), version };
        evaluate_rule(rule, &TriggerContext { trigger, event, value: part.node.into(), bound }, state, None, collector);
    }
}

/// Occasion as seen by one rule.
struct TriggerContext<'a> {
    trigger: Trigger,
    /// Value of `event` in conditions.
    event: Value,
    value: Variable<'a>,
    /// Bindings of the rule, or the reason for their absence.
    bound: Result<Bindings, String>,
}

impl TriggerContext<'_> {
    /// Creates an occasion without a value.
    fn new(trigger: Trigger) -> Self {
        Self { trigger, event: Value::Null, value: Value::Null.into(), bound: Ok(Bindings::default()) }
    }
}

fn evaluate_rule(
    rule: &Rule,
    woken: &TriggerContext<'_>,
    state: &Node,
    commit: Option<(&Node, &Value)>,
    collector: &mut ActivationCollector,
) {
    let TriggerContext { trigger, event, value, bound } = woken;
    let nothing = Bindings::default();
    let (bound, is_unbound) = match bound {
        Ok(bound) => (bound, None),
        // A condition that does not use bindings is evaluated first.
        Err(message) if rule.when.as_ref().is_some_and(|when| !when.uses(BOUND)) => (&nothing, Some(message)),
        Err(message) => return collector.skip(rule, None, trigger, message.clone()),
    };
    let selected = match &rule.selector {
        None => Ok(rule.workers.as_slice()),
        Some(chosen) => {
            let name = value.text_at(&chosen.at);
            let found = rule.workers.iter().find(|worker| name == Some(worker.as_str()));
            // The found value is omitted, because messages must not contain values.
            let unknown = || {
                format!("{} is no name of a worker of the group {}", describe_place(&chosen.at, trigger), chosen.group)
            };
            found.map(std::slice::from_ref).ok_or_else(unknown)
        }
    };
    let plan = collector.plan;
    let mut variables = variables(plan, state, event, value.clone(), commit);
    variables.insert(BOUND, bound.to_value().into());
    // The condition is evaluated first, unless it uses `worker`.
    let (for_all, for_each) = match &rule.when {
        Some(when) if when.uses(WORKER) => (None, Some(when)),
        when => (when.as_ref(), None),
    };
    match for_all.map_or(Ok(true), |when| when.evaluate_within(&variables, collector.allowance)) {
        Ok(true) => {}
        Ok(false) => return,
        Err(error) => return collector.skip(rule, None, trigger, error.to_string()),
    }
    if let Some(message) = is_unbound {
        return collector.skip(rule, None, trigger, message.clone());
    }
    let workers = match selected {
        Ok(workers) => workers,
        Err(message) => return collector.skip(rule, None, trigger, message),
    };
    let delay = match &rule.delay {
        None => 0,
        Some(Delay { length: DelayMs::For(ms), .. }) => *ms,
        Some(Delay { length: DelayMs::At(at), .. }) => match value.count_at(at).filter(|ms| *ms <= DELAY_MS_MAX) {
            Some(ms) => ms,
            None => {
                let place = describe_place(at, trigger);
                let message = format!("{place} is no number of milliseconds, of a year at most");
                return collector.skip(rule, None, trigger, message);
            }
        },
    };
    for worker in workers {
        variables.insert(WORKER, Value::from(worker.as_str()).into());
        match for_each.map_or(Ok(true), |when| when.evaluate_within(&variables, collector.allowance)) {
            Ok(true) => collector.invoke(rule, worker, trigger.clone(), delay),
            Ok(false) => {}
            Err(error) => collector.skip(rule, Some(worker), trigger, error.to_string()),
        }
    }
}

/// Returns the variables of rule conditions.
fn variables<'a>(
    plan: &'a Plan,
    state: &'a Node,
    event: &'a Value,
    value: Variable<'a>,
    commit: Option<(&'a Node, &'a Value)>,
) -> Variables<'a> {
    let (before, patch) = commit.unwrap_or((state, &Value::Null));
    Variables::from([
        ("request", Variable::from(plan.request_in(state))),
        ("state", Variable::from(state)),
        ("event", Variable::from(event)),
        ("value", value),
        ("before", Variable::from(before)),
        ("patch", Variable::from(patch)),
    ])
}

/// Returns true if the condition of a delayed invocation's rule holds when the delay ends, with the current value at
/// the event's place. `by` is the author of the commit. The error is the reason why the condition could not be
/// evaluated.
pub(crate) fn still_matches(
    plan: &Plan,
    state: &Node,
    queued: &QueuedInvocation,
    by: Option<&WorkerName>,
    allowance: &mut Allowance,
) -> Result<bool, String> {
    let rule = plan.rules.iter().find(|rule| queued.branch.rule.as_ref() == Some(&rule.name));
    let Some((rule, when)) = rule.and_then(|rule| Some((rule, rule.when.as_ref()?))) else { return Ok(true) };
    let (event, value) = condition_inputs(rule, state, &queued.trigger, queued.value.as_deref(), by);
    let mut variables = variables(plan, state, &event, value, None);
    variables.insert(WORKER, Value::from(queued.branch.worker.as_str()).into());
    let bound = plan.bindings(&queued.branch, &queued.trigger, queued.value.as_deref());
    variables.insert(BOUND, bound.to_value().into());
    when.evaluate_within(&variables, allowance).map_err(|error| error.to_string())
}

/// Returns the event and the current value that a condition sees for an earlier trigger. `carried` is a signal's value.
fn condition_inputs<'a>(
    rule: &Rule,
    state: &'a Node,
    trigger: &Trigger,
    carried: Option<&'a Value>,
    by: Option<&WorkerName>,
) -> (Value, Variable<'a>) {
    match trigger {
        Trigger::Event { op, path, version } => {
            let pointer = PointerBuf::parse(path.as_str()).unwrap_or_default();
            let captures = match &rule.trigger {
                CompiledTrigger::Event { path, .. } | CompiledTrigger::Each(path) => path.captures_at(&pointer),
                _ => None,
            };
            let event = json!({"op": op, "path": path, "captures": captures, "worker": by, "version": version});
            (event, state.get(&pointer).map_or_else(|| Value::Null.into(), Variable::from))
        }
        Trigger::Signal { name, .. } => {
            let value = carried.map_or_else(|| Value::Null.into(), Variable::from);
            (json!({"op": "signal", "name": name}), value)
        }
        Trigger::Every { .. } => (json!({"op": "every", "name": rule.name}), Value::Null.into()),
        Trigger::Start | Trigger::After | Trigger::Idle | Trigger::Breaker { .. } => (Value::Null, Value::Null.into()),
    }
}

/// Returns true if the member at the place of a trigger no longer exists. Returns false for rules on removals alone,
/// which concern the removed value, and for array elements, because indices shift.
pub(crate) fn is_place_removed(state: &Node, rule: &Rule, trigger: &Trigger) -> bool {
    let Trigger::Event { path, .. } = trigger else { return false };
    if matches!(rule.trigger, CompiledTrigger::Event { op: Some(EventOp::Remove), .. }) {
        return false;
    }
    let mut node = state;
    for token in decoded(&PointerBuf::parse(path.as_str()).unwrap_or_default()) {
        match node.child(&token) {
            Some(child) => node = child,
            None => return node.as_array().is_none(),
        }
    }
    false
}

/// Describes, in a message, the place in the trigger where a rule looks for a value.
fn describe_place(at: &PointerBuf, trigger: &Trigger) -> String {
    match trigger {
        Trigger::Event { op: EventOp::Remove, path, .. } => format!("what stood at {path}{at}"),
        Trigger::Event { path, .. } => format!("what stands at {path}{at}"),
        _ if at.is_root() => "what the signal carries".to_owned(),
        _ => format!("what the signal carries at {at}"),
    }
}
