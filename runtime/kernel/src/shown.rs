//! What an attempt's agent may look at beside the text of its view: the values that the view showed wholly.
//!
//! A program, a response schema or a remote process wants values, not a text about them. Nothing here goes beyond the
//! view: the places are those of its read set. Holding on to it costs a pointer, as the document is shared.

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

/// A seat, and what its agent was shown for one attempt.
#[derive(Clone)]
pub struct Shown {
    plan: Arc<Plan>,
    /// Of this invocation.
    seat: Arc<Seat>,
    basis: Arc<Basis>,
    may_expand: bool,
    may_clarify: bool,
    woken_by: Option<RuleName>,
    woken_at: Option<String>,
    /// The trigger, without what the view shows of its place.
    trigger: Value,
    signal: Option<Carried>,
    answers: Vec<Answered>,
}

/// A value that is there was not shown whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotWhole;

impl Shown {
    /// What `basis` holds, for a worker of the plan; none if there is no such worker. `may_expand`: whether its view says
    /// that it may ask for more.
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

    /// The same for the seat of one invocation.
    #[must_use]
    pub(crate) fn with_seat(self, seat: Arc<Seat>) -> Self {
        Self { seat, ..self }
    }

    /// The same for a worker that may ask a person something.
    #[must_use]
    pub(crate) fn with_question(self, may_clarify: bool) -> Self {
        Self { may_clarify, ..self }
    }

    /// The same for a worker that this rule has woken.
    #[must_use]
    pub fn with_rule(self, woken_by: Option<RuleName>) -> Self {
        Self { woken_by, ..self }
    }

    /// The rule that woke it, if one did.
    pub const fn woken_by(&self) -> Option<&RuleName> {
        self.woken_by.as_ref()
    }

    /// The same for a worker that something at this place has woken, which it may read.
    #[must_use]
    pub fn with_place(self, woken_at: Option<&str>) -> Self {
        Self { woken_at: woken_at.map(str::to_owned), ..self }
    }

    /// The place of the event that woke it, if one did and the seat may read it.
    pub fn woken_at(&self) -> Option<&str> {
        self.woken_at.as_deref()
    }

    /// Sets the trigger: an object as [`Shown::trigger`] returns it, without what the view shows of its place.
    #[must_use]
    pub(crate) fn with_trigger(self, trigger: Value) -> Self {
        Self { trigger, ..self }
    }

    /// Returns the trigger of the invocation: an object with `kind` and, as far as there are, `rule`, `op`, `path`, `bound`,
    /// `version`, `name` and `value`. For an event `value` has what the view shows wholly of the place; `partial` is true where
    /// that is not all of it.
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

    /// The same for a worker that a signal with this value has woken.
    #[must_use]
    pub fn with_signal(self, signal: Option<Carried>) -> Self {
        Self { signal, ..self }
    }

    /// What the signal carried that woke it, if one did.
    pub fn signal(&self) -> Option<&Value> {
        self.signal.as_deref()
    }

    /// The same for a worker whom persons have answered what it asked them.
    #[must_use]
    pub fn with_answers(self, answers: Vec<Answered>) -> Self {
        Self { answers, ..self }
    }

    /// What persons have answered to what this worker asked them with the same trigger, the first question first.
    pub fn answers(&self) -> &[Answered] {
        &self.answers
    }

    /// Whether it may ask a person something.
    pub const fn may_clarify(&self) -> bool {
        self.may_clarify
    }

    /// The compiled blueprint.
    pub const fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The seat, with what the trigger binds.
    pub fn seat(&self) -> &Seat {
        &self.seat
    }

    /// The state the view was taken of, and what of it was shown. The state holds more than its agent may see.
    pub const fn basis(&self) -> &Arc<Basis> {
        &self.basis
    }

    /// Whether its view says that it may ask for more.
    pub const fn may_expand(&self) -> bool {
        self.may_expand
    }

    /// The value at a place; none if none is there, as a place that is not there is nobody's to see, or if a condition hides
    /// it as things are.
    ///
    /// # Errors
    /// It is there, but was not shown, or not wholly.
    pub fn value_at(&self, place: &Pointer) -> Result<Option<&Node>, NotWhole> {
        let Some(value) = self.basis.state.get(place) else { return Ok(None) };
        let is_whole = self.values().any(|(whole, _)| place.starts_with(whole));
        match is_whole {
            true => Ok(Some(value)),
            false if self.seat().contract.readable(self.basis.state.root()).hides(place) => Ok(None),
            false => Err(NotWhole),
        }
    }

    /// The places whose whole values were shown, with these; none lies below another.
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
