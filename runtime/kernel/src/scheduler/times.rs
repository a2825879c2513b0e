//! Times of a board's invocations: schedules, delays, deadlines and clock jumps.

use std::collections::BTreeSet;

use super::{DelayedInvocation, QueuedInvocation, Scheduler};
use crate::id::{InvocationId, RuleName, Timestamp, WorkerName};
use crate::plan::{CompiledTrigger, Plan, Rule};

impl Scheduler {
    /// Returns the due time of each rule with a schedule that could be queued. Omits rules without invocations left for
    /// any worker, and rules that are queued already.
    pub fn due<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = (&'a Rule, Timestamp)> {
        plan.rules.iter().filter_map(|rule| {
            let due = *self.due.get(&rule.name)?;
            let is_left = |worker: &WorkerName| {
                let limit = plan.workers.get(worker).map_or(0, |seat| seat.worker.limits.invocations);
                self.scheduled_for(worker) < limit
            };
            let waits = |queued: &QueuedInvocation| queued.branch.rule.as_ref() == Some(&rule.name);
            (rule.workers.iter().any(is_left) && !self.queue.iter().any(waits)).then_some((rule, due))
        })
    }

    /// Arms the schedules of a new board.
    pub(crate) fn arm_schedules(&mut self, plan: &Plan, at: Timestamp) {
        for rule in &plan.rules {
            if let CompiledTrigger::Every(cron) = &rule.trigger {
                self.due.extend(cron.next(at).map(|next| (rule.name.clone(), next)));
            }
        }
    }

    /// Advances due schedules to their next time after `at`.
    pub(crate) fn advance_schedules(&mut self, plan: &Plan, at: Timestamp) {
        let past: Vec<(RuleName, Option<Timestamp>)> = self
            .due(plan)
            .filter(|(_, due)| *due <= at)
            .map(|(rule, _)| match &rule.trigger {
                CompiledTrigger::Every(cron) => (rule.name.clone(), cron.next(at)),
                _ => (rule.name.clone(), None),
            })
            .collect();
        for (rule, next) in past {
            match next {
                Some(next) => drop(self.due.insert(rule, next)),
                None => drop(self.due.remove(&rule)),
            }
        }
    }

    /// Returns the delayed invocations, the earliest first.
    pub fn delayed(&self) -> &[DelayedInvocation] {
        &self.delayed
    }

    /// Returns the delayed invocations that are due, except those of `still` rules.
    pub(crate) fn elapsed_delays(&self, now: Timestamp, still: &BTreeSet<RuleName>) -> Vec<DelayedInvocation> {
        let has_come = self.delayed.iter().take_while(|delayed| delayed.due <= now);
        has_come.filter(|delayed| !delayed.is_of(still)).cloned().collect()
    }

    /// Queues the delayed invocations that [`Scheduler::elapsed_delays`] returns.
    pub(crate) fn enqueue_elapsed(&mut self, plan: &Plan, now: Timestamp, still: &BTreeSet<RuleName>) {
        let is_ripe = |delayed: &mut DelayedInvocation| delayed.due <= now && !delayed.is_of(still);
        for DelayedInvocation { queued, .. } in self.delayed.extract_if(.., is_ripe).collect::<Vec<_>>() {
            self.insert_by_priority(plan, queued);
        }
    }

    /// Returns the earliest time at which a delayed invocation is due, except those of `still` rules.
    pub(crate) fn next_due(&self, still: &BTreeSet<RuleName>) -> Option<Timestamp> {
        self.delayed.iter().find(|delayed| !delayed.is_of(still)).map(|delayed| delayed.due)
    }

    /// Postpones delayed invocations of the `still` rules by `ms`. The remaining delay never exceeds the whole delay.
    pub(crate) fn postpone(&mut self, ms: u64, now: Timestamp, still: &BTreeSet<RuleName>) {
        for delayed in self.delayed.iter_mut().filter(|delayed| delayed.is_of(still)) {
            let latest = now.plus_ms(delayed.whole_ms.unwrap_or(u64::MAX));
            delayed.due = delayed.due.plus_ms(ms).min(latest).max(delayed.due);
        }
        self.delayed.sort_by_key(|delayed| delayed.due);
    }

    /// Moves start times, deadlines and provider waits of open invocations by the length of a clock jump.
    pub(crate) fn jump(&mut self, ms: u64) {
        let jump = |time: &mut Timestamp| *time = time.plus_ms(ms);
        for open in self.open.values_mut() {
            jump(&mut open.since);
            jump(&mut open.deadline);
            if let Some(deferrals) = &mut open.deferrals {
                deferrals.since.as_mut().map(jump);
                if let Some(wait) = &mut deferrals.waiting {
                    jump(&mut wait.not_before);
                    jump(&mut wait.patience);
                }
            }
        }
    }

    /// Returns true if only a scheduled or delayed time, or an answer from a person, can make progress.
    pub fn waits_only_for_time(&self) -> bool {
        let has_times = !self.due.is_empty() || !self.delayed.is_empty();
        has_times && self.queue.is_empty() && self.open.values().all(|open| open.question.is_some())
    }

    /// Returns the earliest time at which an open call times out.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.open.values().filter(|open| open.calling).map(|open| open.deadline).min()
    }

    /// Returns the open calls that have timed out.
    pub fn overdue(&self, now: Timestamp) -> Vec<InvocationId> {
        let overdue = self.open.iter().filter(|(_, open)| open.calling && open.deadline <= now);
        overdue.map(|(invocation, _)| *invocation).collect()
    }
}
