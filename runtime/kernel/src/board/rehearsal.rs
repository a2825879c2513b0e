//! What a worker would be shown, and what would come of its reply, on a board as it is: nothing is decided or recorded.
//!
//! A step goes through the same compiler and the same pipeline; here they are asked without it.

use std::sync::Arc;

use jsonptr::PointerBuf;
use serde_json::{Value, json};

use super::{Board, object};
use crate::bindings::Bindings;
use crate::blueprint::{EventOp, Freshness};
use crate::contract::Readable;
use crate::digest::Digest;
use crate::freshness::{self, Basis};
use crate::id::{InvocationId, Seq, Timestamp, WorkerName};
use crate::pipeline::{self, Proposer, ReplyBody, Verdict};
use crate::plan::{BOUND, Seat};
use crate::record::{BINDINGS, Trigger};
use crate::scheduler::{Expansion, Past, Queued};
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
    /// The seat, with what the trigger binds.
    pub(super) seat: Arc<Seat>,
    /// The trigger, as the agent gets it beside the view.
    pub(super) trigger: Value,
    /// Number of times that the worker may still ask to be shown more.
    pub(super) expansions_left: u32,
}

impl Board {
    /// What is queued, or under way, as an invocation.
    pub fn invocation(&self, invocation: InvocationId) -> Option<&Queued> {
        let queued = self.scheduler.queue().iter().find(|queued| queued.invocation == invocation);
        queued.or_else(|| self.scheduler.open().get(&invocation).map(|open| &open.queued))
    }

    /// What the next attempt of an invocation would be shown now; the board need not have it any more, or yet.
    pub(super) fn compiled(&self, queued: &Queued) -> Compiled {
        let seat = self.plan.seat_of(queued).expect("a worker was invoked");
        let worker = &seat.worker;
        let readable = seat.contract.readable(self.state.root());
        let feedback = self.feedback_of(&seat, &readable);
        let (feedback, shown): (Vec<Seq>, Vec<Value>) = feedback.into_iter().unzip();
        let woken_at = self.readable_place(&queued.trigger, &readable).map(str::to_owned);
        let trigger = self.shown_trigger(queued, &seat, &readable);
        let told = Self::told_trigger(queued, &trigger, &readable);
        let Expansion { newest, places, .. } = &queued.expansion;
        let expansion = Expansion { is_unspent: false, ..queued.expansion.clone() };
        let (left, after) = (expansion.left(), Expansion { is_unspent: true, ..expansion });
        // A worker whose replies are no patches sees no hint how to ask.
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
            // Since budgets follow from contexts, half of one may be more than all there is to show.
            let whole = if self.plan.has_ranges() {
                within(budget, may_ask(left)).size(worker.view.unit).min(budget)
            } else {
                budget
            };
            budget = (whole / 2).max(seat.fixed.minimum()).min(budget);
        }
        let mut view = within(budget, may_ask(left));
        // A round without room is not counted: the worker may ask otherwise.
        if !view.finds_room && left == 0 && after.left() > 0 {
            view = within(budget, may_ask(1));
        }
        let prompt = Prompt::new(worker, &view);
        let expansions_left = if view.finds_room { left } else { after.left() };
        Compiled { view, prompt, budget, feedback, woken_at, seat, trigger: told, expansions_left }
    }

    /// A call of a worker: of an invocation as it was queued, or, without one, with the preview of a view under these
    /// bindings. None if there is no such worker.
    pub fn rehearse(&self, worker: &WorkerName, queued: Option<&Queued>, bindings: &Bindings) -> Option<Rehearsal> {
        let queued = queued.filter(|queued| queued.branch.worker == *worker);
        let (view, prompt, woken_at, seat, trigger, expansions_left) = match queued {
            Some(queued) => {
                let Compiled { view, prompt, woken_at, seat, trigger, expansions_left, .. } = self.compiled(queued);
                (view, prompt, woken_at, seat, trigger, expansions_left)
            }
            None => {
                let seat = self.seat(worker, bindings)?;
                let view = self.preview(&seat);
                let prompt = Prompt::new(&seat.worker, &view);
                let trigger = Self::preview_trigger(&seat);
                (view, prompt, None, seat, trigger, 0)
            }
        };
        let places = |texts: &[String]| texts.iter().filter_map(|text| PointerBuf::parse(text.as_str()).ok()).collect();
        let members = match seat.worker.freshness {
            Freshness::Members => places(&view.members),
            Freshness::None | Freshness::Target | Freshness::Reads => Vec::new(),
        };
        let basis = Arc::new(Basis { state: self.state.clone(), reads: places(&view.reads), members });
        let shown = Shown::new(Arc::clone(&self.plan), worker.clone(), basis, view.may_expand)?;
        let shown = shown.with_seat(Arc::clone(&seat)).with_trigger(trigger);
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
        let seat = rehearsal.shown.seat();
        let by = Proposer { worker: &rehearsal.worker, seat: Some(seat) };
        let basis = rehearsal.shown.basis();
        let context = freshness::Context {
            base: basis.state.version(),
            basis: Some(basis),
            invocation: rehearsal.invocation,
            expansions_left: rehearsal.expansions_left,
            reservations: &self.reservations.at(at.max(self.last_at)),
            commits: &self.commits,
        };
        pipeline::judge(&self.plan, &self.state, by, reply, seat.interface, &context)
    }

    /// Returns true where views name a place of which a worker may read a part.
    fn names_parts(&self) -> bool {
        self.format >= BINDINGS && !self.plan.blueprint.joins_on_first()
    }

    /// Returns the place of an event as a view names it: if the worker may read it or, in blueprints of format 2, something
    /// in it.
    fn readable_place<'q>(&self, trigger: &'q Trigger, readable: &Readable<'_>) -> Option<&'q str> {
        let names_parts = self.names_parts();
        let may_name = |place: &PointerBuf| readable.may_read(place) || names_parts && readable.may_ask_for(place);
        trigger.place().filter(|place| PointerBuf::parse(*place).is_ok_and(|place| may_name(&place)))
    }

    /// Returns false for names of an element that a condition hides from a worker that may not write there.
    fn may_tell_bound(queued: &Queued, seat: &Seat, readable: &Readable<'_>) -> bool {
        let writes = || seat.worker.writes.iter().any(|grant| grant.path.contains('{'));
        let place = queued.trigger.place().and_then(|place| PointerBuf::parse(place).ok());
        let is_seen = || place.is_none_or(|place| readable.may_ask_for(&place));
        !seat.bound().is_empty() && (!readable.has_conditions() || writes() || is_seen())
    }

    /// Returns the trigger as an agent gets it beside its view: with the place of an event of which it may read a part, and
    /// the version that the event made.
    fn told_trigger(queued: &Queued, shown: &Value, readable: &Readable<'_>) -> Value {
        let mut told = shown.clone();
        if let Trigger::Event { path, version, .. } = &queued.trigger {
            told["version"] = version.0.into();
            if PointerBuf::parse(path.as_str()).is_ok_and(|place| readable.may_ask_for(&place)) {
                told["path"] = path.as_str().into();
            }
        }
        told
    }

    /// The trigger of a view that nothing has woken a worker for.
    pub(super) fn preview_trigger(seat: &Seat) -> Value {
        let mut trigger = object([("kind", json!("preview"))]);
        if !seat.bound().is_empty() {
            trigger.insert(BOUND.to_owned(), seat.bound().to_value());
        }
        Value::Object(trigger)
    }

    /// What woke a worker, as it may be shown: no place that it may not read.
    fn shown_trigger(&self, queued: &Queued, seat: &Seat, readable: &Readable<'_>) -> Value {
        let mut shown = match &queued.trigger {
            Trigger::Start => object([("kind", json!("start"))]),
            Trigger::After => object([("kind", json!("after"))]),
            Trigger::Idle => object([("kind", json!("idle"))]),
            // What is shown depends on no time.
            Trigger::Every { .. } => object([("kind", json!("every"))]),
            Trigger::Signal { name, .. } => {
                let value = queued.value.as_deref().cloned().unwrap_or(Value::Null);
                object([("kind", json!("signal")), ("name", json!(name)), ("value", value)])
            }
            Trigger::Event { op, .. } => {
                let mut shown = object([("kind", json!("event")), ("op", json!(op))]);
                if let Some(path) = self.readable_place(&queued.trigger, readable) {
                    shown.insert("path".to_owned(), json!(path));
                    // Said in blueprints of format 2, whose views name places in part.
                    let is_gone = PointerBuf::parse(path).is_ok_and(|place| self.state.get(&place).is_none());
                    if is_gone && *op != EventOp::Remove && self.names_parts() {
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
        if Self::may_tell_bound(queued, seat, readable) {
            shown.insert(BOUND.to_owned(), seat.bound().to_value());
        }
        if !queued.expansion.answers.is_empty() {
            shown.insert("answers".to_owned(), json!(queued.expansion.answers));
        }
        Value::Object(shown)
    }
}
