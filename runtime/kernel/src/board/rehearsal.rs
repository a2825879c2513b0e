//! What a worker would be shown, and what would come of its reply, on a board as it is: nothing is decided or recorded.
//!
//! A step goes through the same compiler and the same pipeline; here they are asked without it.

use std::sync::Arc;

use jsonptr::PointerBuf;
use serde_json::{Value, json};

use super::{Board, object};
use crate::blueprint::Freshness;
use crate::contract::Readable;
use crate::digest::Digest;
use crate::freshness::{self, Basis};
use crate::id::{InvocationId, Seq, Timestamp, WorkerName};
use crate::pipeline::{self, ReplyBody, Verdict};
use crate::record::Trigger;
use crate::scheduler::{Past, Queued};
use crate::shown::Shown;
use crate::view::{self, Prompt, View};

/// A call that is not made by a board.
pub struct Rehearsal {
    /// The worker.
    pub worker: WorkerName,
    /// What it is shown.
    pub view: View,
    /// Hash of that.
    pub hash: Digest,
    /// The same as an agent is handed it.
    pub prompt: Arc<Prompt>,
    /// The same as values.
    pub shown: Arc<Shown>,
    /// The time it has, in milliseconds.
    pub timeout_ms: u64,
    /// How many attempts the worker had before, without those that reached nobody.
    pub occurrence: u32,
    /// Attempts of the invocation before this one.
    pub past: Past,
    invocation: Option<InvocationId>,
    expansions_left: u32,
}

/// A view as it is about to be shown.
pub(super) struct Compiled {
    pub(super) view: View,
    pub(super) prompt: Prompt,
    /// The view budget in force.
    pub(super) budget: u32,
    /// The rejections it shows.
    pub(super) feedback: Vec<Seq>,
    /// The place of the event that woke the worker, if it may read it.
    pub(super) woken_at: Option<String>,
}

impl Board {
    /// What is queued, or under way, as an invocation.
    pub fn invocation(&self, invocation: InvocationId) -> Option<&Queued> {
        let queued = self.scheduler.queue().iter().find(|queued| queued.invocation == invocation);
        queued.or_else(|| self.scheduler.open().get(&invocation).map(|open| &open.queued))
    }

    /// What the next attempt of an invocation would be shown now; the board need not have it any more, or yet.
    pub(super) fn compiled(&self, queued: &Queued) -> Compiled {
        let seat = &self.plan.seats[&queued.branch.worker];
        let worker = &seat.worker;
        let budget = match self.breaker.is_reduced(&queued.branch) {
            true => (worker.view.budget / 2).max(seat.fixed.minimum()).min(worker.view.budget),
            false => worker.view.budget,
        };
        let readable = seat.contract.readable(self.state.root());
        let feedback = self.feedback_of(&queued.branch.worker, &readable);
        let (feedback, shown): (Vec<Seq>, Vec<Value>) = feedback.into_iter().unzip();
        let woken_at = Self::readable_place(&queued.trigger, &readable).map(str::to_owned);
        let view = view::compile(&view::Inputs {
            worker,
            readable: &readable,
            fixed: &seat.fixed,
            state: &self.state,
            trigger: &Self::shown_trigger(queued, &readable),
            feedback: &shown,
            expand: &queued.expansion.places,
            // Whose replies are no patches is not told how to ask.
            may_expand: queued.expansion.left() > 0 && worker.format.is_none(),
            commits: &self.commits,
            budget,
        });
        let prompt = Prompt::new(worker, &view);
        Compiled { view, prompt, budget, feedback, woken_at }
    }

    /// A call of a worker: of an invocation as it was queued, or, without one, with the preview of a view. None if there is
    /// no such worker.
    pub fn rehearse(&self, worker: &WorkerName, queued: Option<&Queued>) -> Option<Rehearsal> {
        let seat = self.plan.seats.get(worker)?;
        let queued = queued.filter(|queued| queued.branch.worker == *worker);
        let (view, prompt, woken_at) = match queued {
            Some(queued) => {
                let Compiled { view, prompt, woken_at, .. } = self.compiled(queued);
                (view, prompt, woken_at)
            }
            None => {
                let view = self.preview(worker)?;
                let prompt = Prompt::new(&seat.worker, &view);
                (view, prompt, None)
            }
        };
        let places = |texts: &[String]| texts.iter().filter_map(|text| PointerBuf::parse(text.as_str()).ok()).collect();
        let members = match seat.worker.freshness {
            Freshness::Members => places(&view.members),
            Freshness::None | Freshness::Target | Freshness::Reads => Vec::new(),
        };
        let basis = Arc::new(Basis { state: self.state.clone(), reads: places(&view.reads), members });
        let expansions_left = queued.map_or(0, |queued| queued.expansion.left());
        let shown = Shown::new(Arc::clone(&self.plan), worker.clone(), basis, view.may_expand)?;
        let shown = shown.with_question(seat.worker.clarify.is_some() && expansions_left > 0);
        let shown = shown.with_rule(queued.and_then(|queued| queued.branch.rule.clone()));
        let shown = shown.with_place(woken_at.as_deref());
        let shown = shown.with_signal(queued.and_then(|queued| queued.value.clone()));
        let shown = shown.with_answers(queued.map(|queued| queued.expansion.answers.clone()).unwrap_or_default());
        Some(Rehearsal {
            worker: worker.clone(),
            hash: view.hash(),
            prompt: Arc::new(prompt),
            shown: Arc::new(shown),
            timeout_ms: seat.worker.limits.timeout.as_ms(),
            occurrence: self.scheduler.attempts_of(worker),
            past: queued
                .and_then(|queued| self.scheduler.open().get(&queued.invocation))
                .map(|open| open.past.clone())
                .unwrap_or_default(),
            invocation: queued.map(|queued| queued.invocation),
            expansions_left,
            view,
        })
    }

    /// What the pipeline says, on this board at this time, of the reply to a call that may have been made earlier.
    pub fn judge(&self, at: Timestamp, rehearsal: &Rehearsal, reply: &ReplyBody) -> Verdict {
        let interface = self.plan.seats.get(&rehearsal.worker).map(|seat| seat.interface).unwrap_or_default();
        let basis = rehearsal.shown.basis();
        let context = freshness::Context {
            base: basis.state.version(),
            basis: Some(basis),
            invocation: rehearsal.invocation,
            expansions_left: rehearsal.expansions_left,
            reservations: &self.reservations.at(at.max(self.last_at)),
            commits: &self.commits,
        };
        pipeline::judge(&self.plan, &self.state, &rehearsal.worker, reply, interface, &context)
    }

    /// The place of an event, if the worker that it woke may read it.
    fn readable_place<'q>(trigger: &'q Trigger, readable: &Readable<'_>) -> Option<&'q str> {
        trigger.place().filter(|place| PointerBuf::parse(*place).is_ok_and(|place| readable.may_read(&place)))
    }

    /// What woke a worker, as it may be shown: no place that it may not read.
    fn shown_trigger(queued: &Queued, readable: &Readable<'_>) -> Value {
        let mut shown = match &queued.trigger {
            Trigger::Start => object([("kind", json!("start"))]),
            Trigger::After => object([("kind", json!("after"))]),
            Trigger::Idle => object([("kind", json!("idle"))]),
            // What is shown depends on no time.
            Trigger::Every { .. } => object([("kind", json!("every"))]),
            Trigger::Signal { name, .. } => {
                let value = queued.value.clone().unwrap_or(Value::Null);
                object([("kind", json!("signal")), ("name", json!(name)), ("value", value)])
            }
            Trigger::Event { op, .. } => {
                let mut shown = object([("kind", json!("event")), ("op", json!(op))]);
                if let Some(path) = Self::readable_place(&queued.trigger, readable) {
                    shown.insert("path".to_owned(), json!(path));
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
        if !queued.expansion.answers.is_empty() {
            shown.insert("answers".to_owned(), json!(queued.expansion.answers));
        }
        Value::Object(shown)
    }
}
