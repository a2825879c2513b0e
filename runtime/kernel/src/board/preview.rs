//! Views without a step: previews, shortages, and what a worker may see of rejections.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jsonptr::PointerBuf;
use serde_json::Value;

use super::{Board, feedback};
use crate::call_context::CallContext;
use crate::contract::Readable;
use crate::expand_request::ExpandRequest;
use crate::freshness::ReadSet;
use crate::id::{Seq, WorkerName};
use crate::pipeline::mask_recorded;
use crate::plan::WorkerPlan;
use crate::view::{self, Shortage, View};

/// Maximum number of other workers' rejections added to a view.
const OTHERS_FEEDBACK_MAX: usize = 2;

impl Board {
    /// Compiles the view of a worker on the current document.
    pub fn preview(&self, seat: &WorkerPlan) -> View {
        self.preview_by(seat, &[], &self.readable_by(seat), view::compile)
    }

    /// Returns, by worker, the places that a view has no room for. It takes the worker's first such call, else its
    /// queued invocation, else a preview.
    pub fn present_shortages(&self) -> BTreeMap<WorkerName, Shortage> {
        let mut shortages = BTreeMap::clone(&self.shortages);
        let mut note = |worker: &WorkerName, view: &dyn Fn() -> View| {
            if shortages.contains_key(worker) {
                return;
            }
            let places = view().unshown;
            if !places.is_empty() {
                let seat = &self.plan.workers[worker].worker;
                let (budget, unit) = (seat.view_budget(), seat.view.unit);
                shortages.insert(worker.clone(), Shortage { invocation: None, budget, unit, places });
            }
        };
        for queued in self.scheduler.queue() {
            note(&queued.branch.worker, &|| self.compile_call(queued).view);
        }
        for (worker, seat) in &self.plan.workers {
            note(worker, &|| self.preview(seat));
        }
        shortages
    }

    /// Like [`Board::preview`], of the `readable` places and with `expand` (JSON Pointers) requested. The view also
    /// explains to people every part that it omits.
    pub fn explained_preview(&self, seat: &WorkerPlan, expand: &[ExpandRequest], readable: &Readable<'_>) -> View {
        self.preview_by(seat, expand, readable, view::explain)
    }

    /// Returns the places of the document that a worker may read.
    pub fn readable_by<'s>(&self, seat: &'s WorkerPlan) -> Readable<'s> {
        seat.contract.readable(self.state.root())
    }

    /// Hides in a rejection that a worker received, an object with `stage` and `violations`, everything that the worker
    /// may not read now under any bindings.
    pub fn mask_rejection(&self, worker: &WorkerName, rejection: &mut Value) {
        if let Some(seat) = self.plan.workers.get(worker) {
            mask_recorded(rejection, &self.readable_by(&seat.under_any_binding()));
        }
    }

    /// Returns the structured access that an agent gets with such a view; `None` for an unknown worker.
    pub fn previewed_values(&self, seat: &Arc<WorkerPlan>, view: &View) -> Option<CallContext> {
        let places = |texts: &[String]| texts.iter().filter_map(|text| PointerBuf::parse(text.as_str()).ok()).collect();
        let basis = ReadSet { state: self.state.clone(), reads: places(&view.reads), members: places(&view.members) };
        let shown = CallContext::new(Arc::clone(&self.plan), seat.name.clone(), Arc::new(basis), view.may_expand);
        shown.map(|shown| CallContext { worker_plan: Arc::clone(seat), ..shown })
    }

    fn preview_by(
        &self,
        seat: &WorkerPlan,
        expand: &[ExpandRequest],
        readable: &Readable<'_>,
        compile: fn(&view::Inputs<'_>) -> View,
    ) -> View {
        let trigger = Self::preview_trigger(seat);
        let feedback: Vec<_> = self.feedback_of(seat, readable).into_iter().map(|(_, shown)| shown).collect();
        compile(&view::Inputs {
            worker: &seat.worker,
            readable,
            fixed: &seat.fixed,
            state: &self.state,
            trigger: &trigger,
            feedback: &feedback,
            expand,
            newest: 0,
            may_expand: seat.worker.format.is_none(),
            compiler: seat.compiler(),
            commits: &self.commits,
            budget: seat.worker.view_budget(),
        })
    }

    /// Returns the last rejections of a worker under these bindings, and of others where it may write, in journal
    /// order.
    pub(super) fn feedback_of(&self, seat: &WorkerPlan, readable: &Readable<'_>) -> Vec<(Seq, Value)> {
        let worker = &seat.name;
        if !seat.shows_rejections {
            return Vec::new();
        }
        let of_others = self.feedback.iter().filter(|(other, _)| *other != worker).flat_map(|(other, recent)| {
            let reduced = |shown| feedback::for_other(&seat.contract, readable, other, shown);
            recent.iter().filter_map(move |(seq, shown)| Some((*seq, reduced(shown)?)))
        });
        let mut of_others: Vec<_> = of_others.collect();
        of_others.sort_by_key(|(seq, _)| Reverse(*seq));
        of_others.truncate(OTHERS_FEEDBACK_MAX);
        let own = self.feedback.get(worker).into_iter().flatten();
        let mut own: Vec<_> = own.filter(|(_, shown)| feedback::has_bindings(shown, seat.bound())).cloned().collect();
        own.iter_mut().for_each(|(_, shown)| mask_recorded(shown, readable));
        let mut feedback: Vec<_> = own.into_iter().chain(of_others).collect();
        feedback.sort_by_key(|(seq, _)| *seq);
        feedback
    }
}
