//! Dry runs on the current board: a worker's view and the verdict on its reply. Decides and records nothing.
//!
//! Uses the compiler and the pipeline of a real step.

use std::sync::Arc;

use jsonptr::PointerBuf;
use serde_json::{Value, json};

use super::{Board, object};
use crate::bindings::Bindings;
use crate::blueprint::{EventOp, Freshness};
use crate::call_context::CallContext;
use crate::contract::Readable;
use crate::digest::Digest;
use crate::expressions::BOUND;
use crate::freshness::{self, ReadSet};
use crate::id::{InvocationId, Seq, Timestamp, WorkerName};
use crate::pipeline::{self, Proposer, ReplyBody, Verdict};
use crate::plan::{Plan, WorkerPlan};
use crate::record::{SINCE_BINDINGS, Trigger};
use crate::scheduler::{AttemptHistory, Expansion, QueuedInvocation};
use crate::view::{self, Prompt, View};

/// A dry-run call.
pub struct DryRun {
    /// The worker.
    pub worker: WorkerName,
    /// The view.
    pub view: View,
    /// Hash of the view.
    pub hash: Digest,
    /// The view as the agent receives it.
    pub prompt: Arc<Prompt>,
    /// Structured access to the values of the view.
    pub context: Arc<CallContext>,
    /// Timeout in milliseconds.
    pub timeout_ms: u64,
    /// Earlier attempts of the worker, without those that reached no agent.
    pub occurrence: u32,
    /// Attempts of the invocation before this one.
    pub past: AttemptHistory,
    invocation: Option<InvocationId>,
    expansions_left: u32,
}

/// A compiled view with everything its call needs.
pub(super) struct CompiledCall {
    pub(super) view: View,
    pub(super) prompt: Prompt,
    /// The view budget in force.
    pub(super) budget: u32,
    /// Records of the rejections in the view.
    pub(super) feedback: Vec<Seq>,
    /// The place of the triggering event, if the worker may read it.
    pub(super) trigger_place: Option<String>,
    /// The seat, with the trigger's bindings.
    pub(super) worker_plan: Arc<WorkerPlan>,
    /// The trigger that the agent gets in addition to the view.
    pub(super) trigger: Value,
    /// Number of further requests to see more that the worker may make.
    pub(super) expansions_left: u32,
}

impl CompiledCall {
    /// Returns the context of the call, and takes its trigger; `None` if the plan has no such worker.
    pub(super) fn context(
        &mut self,
        plan: &Arc<Plan>,
        basis: Arc<ReadSet>,
        queued: Option<&QueuedInvocation>,
    ) -> Option<CallContext> {
        let seat = &self.worker_plan;
        Some(CallContext {
            worker_plan: Arc::clone(seat),
            may_clarify: seat.worker.clarify.is_some() && self.expansions_left > 0,
            trigger_place: self.trigger_place.take(),
            trigger: self.trigger.take(),
            triggered_by: queued.and_then(|queued| queued.branch.rule.clone()),
            signal: queued.and_then(|queued| queued.value.clone()),
            answers: queued.map(|queued| queued.expansion.answers.clone()).unwrap_or_default(),
            ..CallContext::new(Arc::clone(plan), seat.name.clone(), basis, self.view.may_expand)?
        })
    }
}

impl Board {
    /// Returns an invocation that is queued or under way.
    pub fn invocation(&self, invocation: InvocationId) -> Option<&QueuedInvocation> {
        let queued = self.scheduler.queue().iter().find(|queued| queued.invocation == invocation);
        queued.or_else(|| self.scheduler.open().get(&invocation).map(|open| &open.queued))
    }

    /// Compiles the view of an invocation's next attempt now; the board need not hold the invocation.
    pub(super) fn compile_call(&self, queued: &QueuedInvocation) -> CompiledCall {
        let seat = queued.worker_plan(&self.plan).expect("a worker was invoked");
        let worker = &seat.worker;
        let readable = seat.contract.readable(self.state.root());
        let feedback = self.feedback_of(&seat, &readable);
        let (feedback, shown): (Vec<Seq>, Vec<Value>) = feedback.into_iter().unzip();
        let trigger_place = self.readable_place(&queued.trigger, &readable).map(str::to_owned);
        let trigger = self.view_trigger(queued, &seat, &readable);
        let for_agent = Self::agent_trigger(queued, &trigger, &readable);
        let Expansion { newest, places, .. } = &queued.expansion;
        let expansion = Expansion { is_unspent: false, ..queued.expansion.clone() };
        let (left, after) = (expansion.left(), Expansion { is_unspent: true, ..expansion });
        // A worker that replies without patches sees no hint how to ask.
        let may_ask = |left: u32| left > 0 && worker.format.is_none();
        let within = |budget, may_expand| {
            view::compile(&view::Inputs {
                worker,
                readable: &readable,
                fixed: &seat.fixed,
                state: &self.state,
                trigger: &trigger,
                feedback: &shown,
                expand: places,
                newest: *newest,
                may_expand,
                compiler: seat.compiler(),
                commits: &self.commits,
                budget,
            })
        };
        let mut budget = worker.view_budget();
        if self.breaker.is_reduced(&queued.branch) {
            // Budgets follow from context sizes, so half of one may exceed the complete view.
            let whole = if self.plan.has_ranges() {
                within(budget, may_ask(left)).size(worker.view.unit).min(budget)
            } else {
                budget
            };
            budget = (whole / 2).max(seat.fixed.minimum()).min(budget);
        }
        let mut view = within(budget, may_ask(left));
        // A request that found no room is not counted: the worker may ask again.
        if !view.finds_room && left == 0 && after.left() > 0 {
            view = within(budget, may_ask(1));
        }
        let prompt = Prompt::new(&view);
        let expansions_left = if view.finds_room { left } else { after.left() };
        let worker_plan = seat;
        CompiledCall { view, prompt, budget, feedback, trigger_place, worker_plan, trigger: for_agent, expansions_left }
    }

    /// Builds a dry-run call of a worker. With an invocation, it is as it was queued; without one, it uses a preview
    /// under these bindings. `None` for an unknown worker.
    pub fn dry_run(&self, worker: &WorkerName, queued: Option<&QueuedInvocation>, bound: &Bindings) -> Option<DryRun> {
        let queued = queued.filter(|queued| queued.branch.worker == *worker);
        let mut call = match queued {
            Some(queued) => self.compile_call(queued),
            None => {
                let seat = self.worker_plan(worker, bound)?;
                let view = self.preview(&seat);
                CompiledCall {
                    prompt: Prompt::new(&view),
                    budget: seat.worker.view_budget(),
                    feedback: Vec::new(),
                    trigger_place: None,
                    trigger: Self::preview_trigger(&seat),
                    expansions_left: 0,
                    view,
                    worker_plan: seat,
                }
            }
        };
        let places = |texts: &[String]| texts.iter().filter_map(|text| PointerBuf::parse(text.as_str()).ok()).collect();
        let members = match call.worker_plan.worker.freshness {
            Freshness::Members => places(&call.view.members),
            _ => Vec::new(),
        };
        let basis = Arc::new(ReadSet { state: self.state.clone(), reads: places(&call.view.reads), members });
        Some(DryRun {
            worker: worker.clone(),
            hash: call.view.hash(),
            context: Arc::new(call.context(&self.plan, basis, queued)?),
            prompt: Arc::new(call.prompt),
            timeout_ms: call.worker_plan.worker.limits.timeout.as_ms(),
            occurrence: self.scheduler.attempts_of(worker),
            past: queued
                .and_then(|queued| self.scheduler.open().get(&queued.invocation))
                .map(|open| open.past.clone())
                .unwrap_or_default(),
            invocation: queued.map(|queued| queued.invocation),
            expansions_left: call.expansions_left,
            view: call.view,
        })
    }

    /// Judges, on this board at this time, the reply to a call that may have been made earlier.
    pub fn judge(&self, at: Timestamp, rehearsal: &DryRun, reply: &ReplyBody) -> Verdict {
        let seat = rehearsal.context.worker_plan();
        let by = Proposer { worker: &rehearsal.worker, worker_plan: Some(seat) };
        let basis = rehearsal.context.basis();
        let context = freshness::ProposalContext {
            base: basis.state.version(),
            basis: Some(basis),
            invocation: rehearsal.invocation,
            expansions_left: rehearsal.expansions_left,
            reservations: &self.reservations.unexpired_at(at.max(self.last_at)),
            commits: &self.commits,
        };
        pipeline::judge(&self.plan, &self.state, by, reply, seat.interface, &context)
    }

    /// Returns true if views name places that a worker may read only in part.
    fn names_partial_places(&self) -> bool {
        self.format >= SINCE_BINDINGS && !self.plan.blueprint.joins_on_first()
    }

    /// Returns the place of an event as a view names it. The worker must be able to read it or, in blueprints of format
    /// 2, a part of it.
    fn readable_place<'q>(&self, trigger: &'q Trigger, readable: &Readable<'_>) -> Option<&'q str> {
        let names_parts = self.names_partial_places();
        let may_name = |place: &PointerBuf| readable.may_read(place) || names_parts && readable.may_ask_for(place);
        trigger.place().filter(|place| PointerBuf::parse(*place).is_ok_and(|place| may_name(&place)))
    }

    /// Returns false if a condition hides the bound element from a worker that may not write there.
    fn may_show_bindings(queued: &QueuedInvocation, seat: &WorkerPlan, readable: &Readable<'_>) -> bool {
        let writes = || seat.worker.writes.iter().any(|grant| grant.path.contains('{'));
        let place = queued.trigger.place().and_then(|place| PointerBuf::parse(place).ok());
        let is_seen = || place.is_none_or(|place| readable.may_ask_for(&place));
        !seat.bound().is_empty() && (!readable.has_conditions() || writes() || is_seen())
    }

    /// Returns the trigger that an agent gets in addition to its view. Adds the event's version, and its place if the
    /// worker may read a part of it.
    fn agent_trigger(queued: &QueuedInvocation, shown: &Value, readable: &Readable<'_>) -> Value {
        let mut trigger = shown.clone();
        if let Trigger::Event { path, version, .. } = &queued.trigger {
            trigger["version"] = version.0.into();
            if PointerBuf::parse(path.as_str()).is_ok_and(|place| readable.may_ask_for(&place)) {
                trigger["path"] = path.as_str().into();
            }
        }
        trigger
    }

    pub(super) fn preview_trigger(seat: &WorkerPlan) -> Value {
        let mut trigger = object([("kind", json!("preview"))]);
        if !seat.bound().is_empty() {
            trigger.insert(BOUND.to_owned(), seat.bound().to_value());
        }
        Value::Object(trigger)
    }

    /// Returns the trigger for a view, without places that the worker may not read.
    fn view_trigger(&self, queued: &QueuedInvocation, seat: &WorkerPlan, readable: &Readable<'_>) -> Value {
        let mut shown = match &queued.trigger {
            Trigger::Start => object([("kind", json!("start"))]),
            Trigger::After => object([("kind", json!("after"))]),
            Trigger::Idle => object([("kind", json!("idle"))]),
            // Views contain no time.
            Trigger::Every { .. } => object([("kind", json!("every"))]),
            Trigger::Signal { name, .. } => {
                let value = queued.value.as_deref().cloned().unwrap_or(Value::Null);
                object([("kind", json!("signal")), ("name", json!(name)), ("value", value)])
            }
            Trigger::Event { op, .. } => {
                let mut shown = object([("kind", json!("event")), ("op", json!(op))]);
                if let Some(path) = self.readable_place(&queued.trigger, readable) {
                    shown.insert("path".to_owned(), json!(path));
                    // Only in blueprints of format 2: their views name places that are readable in part.
                    let is_gone = PointerBuf::parse(path).is_ok_and(|place| self.state.get(&place).is_none());
                    if is_gone && *op != EventOp::Remove && self.names_partial_places() {
                        shown.insert("gone".to_owned(), json!(true));
                    }
                }
                shown
            }
            Trigger::Breaker { rule, worker, reason } => object([
                ("kind", json!("breaker")),
                ("stopped_rule", json!(rule)),
                ("stopped_worker", json!(worker)),
                ("reason", json!(reason)),
            ]),
        };
        if let Some(rule) = &queued.branch.rule {
            shown.insert("rule".to_owned(), json!(rule));
        }
        if Self::may_show_bindings(queued, seat, readable) {
            shown.insert(BOUND.to_owned(), seat.bound().to_value());
        }
        if !queued.expansion.answers.is_empty() {
            shown.insert("answers".to_owned(), json!(queued.expansion.answers));
        }
        Value::Object(shown)
    }
}
