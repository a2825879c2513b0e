//! Structured access to the values that an attempt's view shows in full.
//!
//! Programs, response schemas and remote processes need values instead of the view's text. Access is limited to the
//! view: the places are those of its read set. Holding it costs a pointer, as the document is shared.

use std::fmt;
use std::sync::Arc;

use jsonptr::Pointer;
use serde_json::Value;

use crate::freshness::ReadSet;
use crate::id::{RuleName, WorkerName};
use crate::plan::{Plan, WorkerPlan};
use crate::projection::Projection;
use crate::rejection::getters;
use crate::scheduler::AnsweredQuestion;
use crate::signal_payload::SignalPayload;
use crate::tree::Node;

/// Seat of an attempt, and the data shown to its agent.
#[derive(Clone)]
pub struct CallContext {
    pub(crate) plan: Arc<Plan>,
    /// Seat with the bindings of this invocation.
    pub(crate) worker_plan: Arc<WorkerPlan>,
    pub(crate) basis: Arc<ReadSet>,
    pub(crate) may_expand: bool,
    pub(crate) may_clarify: bool,
    pub(crate) triggered_by: Option<RuleName>,
    pub(crate) trigger_place: Option<String>,
    /// Trigger, without the value at its place.
    pub(crate) trigger: Value,
    pub(crate) signal: Option<SignalPayload>,
    pub(crate) answers: Vec<AnsweredQuestion>,
}

/// Error: the value exists but the view shows it only in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncated;

impl CallContext {
    /// Creates the context of a view for a worker of the plan; `None` if there is no such worker. `may_expand` is true
    /// if the view offers to show more.
    pub fn new(plan: Arc<Plan>, worker: WorkerName, basis: Arc<ReadSet>, may_expand: bool) -> Option<Self> {
        let worker_plan = Arc::clone(plan.workers.get(&worker)?);
        Some(Self {
            plan,
            worker_plan,
            basis,
            may_expand,
            may_clarify: false,
            triggered_by: None,
            trigger_place: None,
            trigger: Value::Null,
            signal: None,
            answers: Vec::new(),
        })
    }

    getters! { self:
        /// Returns the rule that triggered the call, if any.
        pub triggered_by -> Option<&RuleName> = self.triggered_by.as_ref();
        /// Returns true if it may ask a person a question.
        pub may_clarify -> bool = self.may_clarify;
        /// Returns the compiled blueprint.
        pub plan -> &Arc<Plan> = &self.plan;
        /// Returns the state of the view and its read set. The state contains more than the agent may see.
        pub basis -> &Arc<ReadSet> = &self.basis;
        /// Returns true if the view offers to show more.
        pub may_expand -> bool = self.may_expand;
    }

    /// Sets the place of the triggering event, if the worker may read it.
    #[must_use]
    pub fn with_place(self, woken_at: Option<&str>) -> Self {
        Self { trigger_place: woken_at.map(str::to_owned), ..self }
    }

    /// Returns the place of the triggering event, if there is one that the seat may read.
    pub fn trigger_place(&self) -> Option<&str> {
        self.trigger_place.as_deref()
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
        let excerpt = Projection::from_places(self.basis.state.root(), shown.iter().copied()).to_value();
        if let Some(value) = excerpt.pointer(place.as_str()).filter(|_| !shown.is_empty()) {
            trigger["value"] = value.clone();
        }
        trigger["partial"] = true.into();
        trigger
    }

    /// Returns the payload of the triggering signal, if there is one.
    pub fn signal(&self) -> Option<&Value> {
        self.signal.as_deref()
    }

    /// Returns the answers of persons to this worker's questions with this trigger, the first question first.
    pub fn answers(&self) -> &[AnsweredQuestion] {
        &self.answers
    }

    /// Returns the seat, with the bindings of the trigger.
    pub fn worker_plan(&self) -> &WorkerPlan {
        &self.worker_plan
    }

    /// Returns the value at a place. `None` if it does not exist, or if a condition currently hides it, so that the two
    /// cases look the same. Fails if the value exists but is not shown, or not in full.
    pub fn value_at(&self, place: &Pointer) -> Result<Option<&Node>, Truncated> {
        let Some(value) = self.basis.state.get(place) else { return Ok(None) };
        let is_whole = self.values().any(|(whole, _)| place.starts_with(whole));
        match is_whole {
            true => Ok(Some(value)),
            false if self.worker_plan().contract.readable(self.basis.state.root()).hides(place) => Ok(None),
            false => Err(Truncated),
        }
    }

    /// Returns the places shown in full, with their values; none lies below another.
    pub fn values(&self) -> impl Iterator<Item = (&Pointer, &Node)> {
        let reads = self.basis.reads.iter();
        reads.filter_map(|place| Some((place.as_ref(), self.basis.state.get(place)?)))
    }
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown")
            .field("worker", &self.worker_plan.name)
            .field("reads", &self.basis.reads)
            .finish_non_exhaustive()
    }
}

impl PartialEq for CallContext {
    fn eq(&self, other: &Self) -> bool {
        self.worker_plan.name == other.worker_plan.name
            && self.worker_plan.bound() == other.worker_plan.bound()
            && self.may_expand == other.may_expand
            && self.may_clarify == other.may_clarify
            && self.triggered_by == other.triggered_by
            && self.trigger_place == other.trigger_place
            && self.trigger == other.trigger
            && self.signal == other.signal
            && self.answers == other.answers
            && self.basis == other.basis
            && Arc::ptr_eq(&self.plan, &other.plan)
    }
}
