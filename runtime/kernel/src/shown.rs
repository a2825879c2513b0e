//! Structured access to the values that an attempt's view shows in full.
//!
//! Programs, response schemas and remote processes need values instead of the view's text. Access is limited to the
//! view: the places are those of its read set. Holding it costs a pointer, as the document is shared.

use std::fmt;
use std::sync::Arc;

use jsonptr::Pointer;
use serde_json::Value;

use crate::carried::Carried;
use crate::excerpt::Excerpt;
use crate::freshness::Basis;
use crate::id::{RuleName, WorkerName};
use crate::plan::{Plan, Seat};
use crate::scheduler::Answered;
use crate::tree::Node;

/// Seat of an attempt, and the data shown to its agent.
#[derive(Clone)]
pub struct Shown {
    plan: Arc<Plan>,
    /// Seat with the bindings of this invocation.
    seat: Arc<Seat>,
    basis: Arc<Basis>,
    may_expand: bool,
    may_clarify: bool,
    woken_by: Option<RuleName>,
    woken_at: Option<String>,
    /// Trigger, without the value at its place.
    trigger: Value,
    signal: Option<Carried>,
    answers: Vec<Answered>,
}

/// Error: the value exists but the view shows it only in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotWhole;

impl Shown {
    /// Creates the context of a view for a worker of the plan; `None` if there is no such worker. `may_expand` is true
    /// if the view offers to show more.
    pub fn new(plan: Arc<Plan>, worker: WorkerName, basis: Arc<Basis>, may_expand: bool) -> Option<Self> {
        let seat = Arc::clone(plan.seats.get(&worker)?);
        Some(Self {
            plan,
            seat,
            basis,
            may_expand,
            may_clarify: false,
            woken_by: None,
            woken_at: None,
            trigger: Value::Null,
            signal: None,
            answers: Vec::new(),
        })
    }

    /// Sets the seat of the invocation.
    #[must_use]
    pub(crate) fn with_seat(self, seat: Arc<Seat>) -> Self {
        Self { seat, ..self }
    }

    /// Sets if the worker may ask a person a question.
    #[must_use]
    pub(crate) fn with_question(self, may_clarify: bool) -> Self {
        Self { may_clarify, ..self }
    }

    /// Sets the rule that triggered the call.
    #[must_use]
    pub fn with_rule(self, woken_by: Option<RuleName>) -> Self {
        Self { woken_by, ..self }
    }

    /// Returns the rule that triggered the call, if any.
    pub const fn woken_by(&self) -> Option<&RuleName> {
        self.woken_by.as_ref()
    }

    /// Sets the place of the triggering event, if the worker may read it.
    #[must_use]
    pub fn with_place(self, woken_at: Option<&str>) -> Self {
        Self { woken_at: woken_at.map(str::to_owned), ..self }
    }

    /// Returns the place of the triggering event, if there is one that the seat may read.
    pub fn woken_at(&self) -> Option<&str> {
        self.woken_at.as_deref()
    }

    /// Sets the trigger: an object like that of [`Shown::trigger`], without the value at its place.
    #[must_use]
    pub(crate) fn with_trigger(self, trigger: Value) -> Self {
        Self { trigger, ..self }
    }

    /// Returns the trigger of the invocation: an object with `kind` and, where present, `rule`, `op`, `path`, `bound`,
    /// `version`, `name` and `value`. For an event, `value` holds the fully shown values at the place; `partial` is
    /// true if it is incomplete.
    pub fn trigger(&self) -> Value {
        let mut trigger = self.trigger.clone();
        let place = self.trigger.get("path").and_then(Value::as_str).and_then(|place| Pointer::parse(place).ok());
        let Some(place) = place.filter(|place| self.basis.state.get(place).is_some()) else { return trigger };
        let shown = self.values().map(|(shown, _)| shown);
        let shown: Vec<&Pointer> = shown.filter(|shown| shown.starts_with(place) || place.starts_with(shown)).collect();
        if shown.iter().any(|shown| place.starts_with(shown)) {
            trigger["value"] = self.basis.state.get(place).map_or(Value::Null, Node::to_value);
            return trigger;
        }
        let excerpt = Excerpt::of(self.basis.state.root(), shown.iter().copied()).to_value();
        if let Some(value) = excerpt.pointer(place.as_str()).filter(|_| !shown.is_empty()) {
            trigger["value"] = value.clone();
        }
        trigger["partial"] = true.into();
        trigger
    }

    /// Sets the payload of the triggering signal.
    #[must_use]
    pub fn with_signal(self, signal: Option<Carried>) -> Self {
        Self { signal, ..self }
    }

    /// Returns the payload of the triggering signal, if there is one.
    pub fn signal(&self) -> Option<&Value> {
        self.signal.as_deref()
    }

    /// Sets the answers of persons to the worker's questions.
    #[must_use]
    pub fn with_answers(self, answers: Vec<Answered>) -> Self {
        Self { answers, ..self }
    }

    /// Returns the answers of persons to this worker's questions with this trigger, the first question first.
    pub fn answers(&self) -> &[Answered] {
        &self.answers
    }

    /// Returns true if it may ask a person a question.
    pub const fn may_clarify(&self) -> bool {
        self.may_clarify
    }

    /// Returns the compiled blueprint.
    pub const fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the seat, with the bindings of the trigger.
    pub fn seat(&self) -> &Seat {
        &self.seat
    }

    /// Returns the state of the view and its read set. The state contains more than the agent may see.
    pub const fn basis(&self) -> &Arc<Basis> {
        &self.basis
    }

    /// Returns true if the view offers to show more.
    pub const fn may_expand(&self) -> bool {
        self.may_expand
    }

    /// Returns the value at a place. `None` if it does not exist, or if a condition currently hides it, so that the two
    /// cases look the same.
    ///
    /// # Errors
    /// Returns an error if the value exists but is not shown, or not in full.
    pub fn value_at(&self, place: &Pointer) -> Result<Option<&Node>, NotWhole> {
        let Some(value) = self.basis.state.get(place) else { return Ok(None) };
        let is_whole = self.values().any(|(whole, _)| place.starts_with(whole));
        match is_whole {
            true => Ok(Some(value)),
            false if self.seat().contract.readable(self.basis.state.root()).hides(place) => Ok(None),
            false => Err(NotWhole),
        }
    }

    /// Returns the places shown in full, with their values; none lies below another.
    pub fn values(&self) -> impl Iterator<Item = (&Pointer, &Node)> {
        let reads = self.basis.reads.iter();
        reads.filter_map(|place| Some((place.as_ref(), self.basis.state.get(place)?)))
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown")
            .field("worker", &self.seat.name)
            .field("reads", &self.basis.reads)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Shown {
    fn eq(&self, other: &Self) -> bool {
        self.seat.name == other.seat.name
            && self.seat.bound() == other.seat.bound()
            && self.may_expand == other.may_expand
            && self.may_clarify == other.may_clarify
            && self.woken_by == other.woken_by
            && self.woken_at == other.woken_at
            && self.trigger == other.trigger
            && self.signal == other.signal
            && self.answers == other.answers
            && self.basis == other.basis
            && Arc::ptr_eq(&self.plan, &other.plan)
    }
}
