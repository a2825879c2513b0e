//! Queued and open invocations of a board (SPEC section 6).
//!
//! [`Scheduler`] keeps the queue (first in, first out, invocations with high priority ahead of the rest) and the open
//! invocations. It changes only with records: the board records an activation ([`crate::rules`]) as `scheduled`, then
//! applies it here.

mod attempts;
mod invocation;
mod times;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::blueprint::Priority;
use crate::breaker::Branch;
use crate::id::{InvocationId, RuleName, Timestamp, WorkerName};
use crate::mutants::{self, Mutant};
use crate::plan::{CompiledTrigger, Plan, QuiescenceKind, Rule};
use crate::rejection::getters;
use crate::signal_payload::SignalPayload;

pub(crate) use invocation::IneffectiveInvocations;
pub use invocation::{
    AnsweredQuestion, AttemptHistory, Deferrals, DelayedInvocation, Expansion, OpenInvocation, ProviderWait,
    QueuedInvocation,
};

/// Approximate memory of a queued invocation without its signal, in bytes.
const QUEUED_BYTES: u64 = 1 << 10;

/// Queue and open invocations of one board.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    queue: VecDeque<QueuedInvocation>,
    /// Boxed, because a map reserves room for several values.
    open: BTreeMap<InvocationId, Box<OpenInvocation>>,
    last: InvocationId,
    /// Invocations ever scheduled, by worker.
    scheduled: BTreeMap<WorkerName, u32>,
    /// Attempts ever made, by worker, except those lost with a process or never delivered to the agent.
    attempts: BTreeMap<WorkerName, u32>,
    /// Rules that have completed an invocation.
    completed: BTreeSet<RuleName>,
    /// `after`, `settled` and `after_first` rules that have fired; they fire once.
    fired: BTreeSet<RuleName>,
    /// Invocation that was closed because another continues it, until that one is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    continued: Option<Box<QueuedInvocation>>,
    /// Next due time of each rule with a schedule.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    due: BTreeMap<RuleName, Timestamp>,
    /// Invocations of rules with a delay, in due order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    delayed: Vec<DelayedInvocation>,
}

/// Dispatch that is next.
#[derive(Clone, PartialEq, Debug)]
pub struct NextAttempt {
    /// Invocation to dispatch.
    pub queued: QueuedInvocation,
    /// Attempt to make, from 1.
    pub attempt: u32,
}

impl Scheduler {
    getters! { self:
        /// Returns the queued invocations, in order.
        pub queue -> &VecDeque<QueuedInvocation> = &self.queue;
        /// Returns the open invocations.
        pub open -> &BTreeMap<InvocationId, Box<OpenInvocation>> = &self.open;
    }

    /// Returns the number of the next invocation.
    pub const fn next_id(&self) -> InvocationId {
        self.last.next()
    }

    /// Returns the approximate memory of invocations and of the signals that they hold, in bytes. `others` are those
    /// that the board keeps outside of the scheduler.
    pub(crate) fn memory<'a>(&'a self, others: impl Iterator<Item = &'a QueuedInvocation>) -> u64 {
        let delayed = self.delayed.iter().map(|delayed| &delayed.queued);
        let open = self.open.values().map(|open| &open.queued);
        let waiting = self.queue.iter().chain(delayed);
        let (mut bytes, mut before) = (0, None::<&SignalPayload>);
        // Invocations of one signal are adjacent.
        for queued in waiting.chain(open).chain(others) {
            bytes += QUEUED_BYTES;
            if let Some(carried) = &queued.value
                && !before.is_some_and(|before| before.is_shared_with(carried))
            {
                bytes += carried.memory();
                before = Some(carried);
            }
        }
        bytes
    }

    /// Removes an obsolete invocation from the queue and from its worker's count; returns false if it is not queued.
    pub(crate) fn withdraw(&mut self, plan: &Plan, invocation: InvocationId) -> bool {
        let place = self.queue.iter().position(|queued| queued.invocation == invocation);
        let Some(queued) = place.and_then(|place| self.unqueue(place)) else { return false };
        // A join with a false condition fires the next time its branches are at rest.
        let waited = |rule: &&Rule| queued.branch.rule.as_ref() == Some(&rule.name) && rule.rest().is_some();
        if let Some(rule) = plan.rules.iter().find(waited) {
            self.fired.remove(&rule.name);
        }
        if let Some(scheduled) = self.scheduled.get_mut(&queued.branch.worker) {
            *scheduled = scheduled.saturating_sub(1);
        }
        true
    }

    /// Returns true for an `after` rule that has not fired yet, once each awaited rule has completed an invocation.
    pub fn may_fire_after(&self, rule: &Rule) -> bool {
        let CompiledTrigger::After(awaited) = &rule.trigger else { return false };
        awaited.iter().all(|name| self.completed.contains(name)) && !self.fired.contains(&rule.name)
    }

    /// Returns true if a rule that fires once has done so.
    pub(crate) fn has_fired(&self, rule: &RuleName) -> bool {
        self.fired.contains(rule)
    }

    /// Returns the number of invocations of a worker ever scheduled.
    pub fn scheduled_for(&self, worker: &WorkerName) -> u32 {
        self.scheduled.get(worker).copied().unwrap_or(0)
    }

    /// Returns the attempts of a worker ever made, except those lost with a process or never delivered to the agent.
    pub fn attempts_of(&self, worker: &WorkerName) -> u32 {
        self.attempts.get(worker).copied().unwrap_or(0)
    }

    /// Returns the calls to make once a gate admits them: due retries, then the queue in order. For each model it
    /// returns at most as many as the board's concurrency.
    pub fn awaiting_admission(&self, limits: &Slots<'_>, eligible: &DispatchConditions<'_>) -> Vec<NextAttempt> {
        let mut by_model: BTreeMap<Option<&str>, usize> = BTreeMap::new();
        let mut has_room = |worker: &WorkerName| {
            let waiting = by_model.entry((eligible.model)(worker)).or_default();
            *waiting += 1;
            *waiting <= limits.concurrency as usize
        };
        let (is_calling_full, is_full) = (self.is_calling_full(limits), self.is_full(limits));
        let is_free = |worker: &WorkerName, full: bool| !full || limits.unmetered.contains(worker);
        let again = self.open.values().filter(|open| {
            let worker = &open.queued.branch.worker;
            needs_admission(open, eligible)
                && !open.calling
                && open.question.is_none()
                && !(eligible.waits)(open)
                && is_free(worker, is_calling_full)
        });
        let again =
            again.map(|open| NextAttempt { queued: open.queued.clone(), attempt: open.attempt.saturating_add(1) });
        let first = self.queue.iter().filter(|queued| {
            let worker = &queued.branch.worker;
            (eligible.is_gated)(worker) && is_free(worker, is_full) && (eligible.admits)(&queued.branch)
        });
        let first = first.map(|queued| NextAttempt { queued: queued.clone(), attempt: 1 });
        // Workers that are not gated take no place at a model.
        let may_ask = |next: &NextAttempt| {
            let worker = &next.queued.branch.worker;
            !(eligible.is_gated)(worker) || has_room(worker)
        };
        again.chain(first).filter(may_ask).collect()
    }

    /// Returns true if the number of calls in progress has reached the limit. An invocation that waited for a person
    /// has released its slot, so other invocations may occupy all of them.
    fn is_calling_full(&self, limits: &Slots<'_>) -> bool {
        self.open.values().filter(|open| open.calling && limits.counts(open)).count() >= limits.concurrency as usize
    }

    /// Returns true if open invocations occupy all slots.
    fn is_full(&self, limits: &Slots<'_>) -> bool {
        self.open.values().filter(|open| open.holds_slot() && limits.counts(open)).count()
            >= limits.concurrency as usize
    }

    /// Returns the next dispatch that needs no admission: due retries, then the first queued invocation with an
    /// admitted branch. Counted calls stay within `concurrency`; unmetered workers are not limited by it. Skips
    /// invocations that wait for a reservation.
    pub fn next(&self, limits: &Slots<'_>, eligible: &DispatchConditions<'_>) -> Option<NextAttempt> {
        let is_calling_full = self.is_calling_full(limits);
        let is_due = |open: &OpenInvocation| !open.calling && open.question.is_none() && !(eligible.waits)(open);
        let again = self.open.values().find(|open| {
            let is_over_limit = is_calling_full && limits.counts(open);
            !is_over_limit && !needs_admission(open, eligible) && is_due(open)
        });
        if let Some(open) = again {
            return Some(NextAttempt { queued: open.queued.clone(), attempt: open.attempt.saturating_add(1) });
        }
        let is_full = self.is_full(limits);
        if is_full && limits.unmetered.is_empty() {
            return None;
        }
        let may_begin = |branch: &Branch| {
            !(eligible.is_gated)(&branch.worker)
                && (!is_full || limits.unmetered.contains(&branch.worker))
                && (eligible.admits)(branch)
        };
        let mut admitted = self.queue.iter().filter(|queued| may_begin(&queued.branch));
        let first = if mutants::is_active(Mutant::LifoQueue) { admitted.next_back()? } else { admitted.next()? };
        Some(NextAttempt { queued: first.clone(), attempt: 1 })
    }

    /// Counts the invocations of a worker that occupy a slot; waits for a person or a provider do not.
    pub fn occupied_slots(&self, worker: &WorkerName) -> usize {
        self.open.values().filter(|open| open.queued.branch.worker == *worker && open.holds_slot()).count()
    }

    /// Returns true if any call is in progress.
    pub fn is_calling(&self) -> bool {
        self.open.values().any(|open| open.calling)
    }

    /// Returns the waits of invocations for their providers.
    pub fn provider_waits(&self) -> impl Iterator<Item = (&WorkerName, &ProviderWait)> {
        self.open
            .values()
            .filter_map(|open| Some((&open.queued.branch.worker, open.deferrals.as_ref()?.waiting.as_ref()?)))
    }

    /// Returns the earliest time at which a wait for a provider runs out of patience.
    pub fn patience(&self) -> Option<Timestamp> {
        self.provider_waits().map(|(_, wait)| wait.patience).min()
    }

    /// Returns the branch of every open, queued or delayed invocation.
    pub fn unfinished(&self) -> impl Iterator<Item = &Branch> {
        let open = self.open.values().map(|open| &open.queued);
        open.chain(&self.queue).chain(self.delayed.iter().map(|delayed| &delayed.queued)).map(|queued| &queued.branch)
    }

    /// Counts the calls of a worker in progress.
    pub fn calling(&self, worker: &WorkerName) -> usize {
        self.open.values().filter(|open| open.queued.branch.worker == *worker && open.calling).count()
    }

    /// Returns the rules that wait for rest while one of their awaited branches is open, queued or, for joins, delayed.
    /// For a join on completion, an invocation queued behind a stopped branch counts, too.
    pub fn waiting_rules(&self, plan: &Plan, admits: impl Fn(&Branch) -> bool) -> BTreeSet<RuleName> {
        let waits = |rule: &&Rule| {
            rule.rest().is_some_and(|rest| rest.kind == QuiescenceKind::Each || !self.fired.contains(&rule.name))
        };
        let mut waiting = plan.rules.iter().filter(waits).peekable();
        if waiting.peek().is_none() {
            return BTreeSet::new();
        }
        let open: BTreeSet<&Branch> = self.open.values().map(|open| &open.queued.branch).collect();
        let queued: BTreeSet<&Branch> = self.queue.iter().map(|queued| &queued.branch).collect();
        let delayed: BTreeSet<&Branch> = self.delayed.iter().map(|delayed| &delayed.queued.branch).collect();
        let is_awaited = |rule: &&Rule| {
            let Some(rest) = rule.rest() else { return false };
            let may_go = |branch: &Branch| rest.kind == QuiescenceKind::Completed || admits(branch);
            open.iter().any(|branch| rest.waits_for(branch))
                || queued.iter().any(|branch| rest.waits_for(branch) && may_go(branch))
                || rest.kind != QuiescenceKind::Each && delayed.iter().any(|branch| rest.waits_for(branch))
        };
        waiting.filter(is_awaited).map(|rule| rule.name.clone()).collect()
    }

    /// Applies a `scheduled` record: queues the invocation at once, or delays it until `due`. If `is_counted`, it
    /// counts against the invocations of its worker.
    pub(crate) fn enqueue(
        &mut self,
        plan: &Plan,
        queued: QueuedInvocation,
        is_after: bool,
        is_counted: bool,
        at: Timestamp,
        due: Option<Timestamp>,
    ) {
        self.last = queued.invocation;
        // A follow-up invocation was counted when its first one began.
        if is_counted && queued.expansion.is_none() {
            let scheduled = self.scheduled.entry(queued.branch.worker.clone()).or_default();
            *scheduled = scheduled.saturating_add(1);
        }
        if is_after && let Some(rule) = &queued.branch.rule {
            self.fired.insert(rule.clone());
        }
        match due {
            None => self.insert_by_priority(plan, queued),
            Some(due) => {
                let place = self.delayed.partition_point(|delayed| delayed.due <= due);
                let rule = plan.rules.iter().find(|rule| queued.branch.rule.as_ref() == Some(&rule.name));
                let excepts = |rule: &Rule| rule.delay.as_ref().is_some_and(|delay| !delay.except_waits_of.is_empty());
                let whole_ms = rule.is_some_and(excepts).then(|| due.ms_since(at));
                self.delayed.insert(place, DelayedInvocation { due, whole_ms, queued });
            }
        }
    }

    /// Queues an invocation: at the end, or with high priority ahead of those with normal priority.
    fn insert_by_priority(&mut self, plan: &Plan, queued: QueuedInvocation) {
        let is_high = |queued: &QueuedInvocation| {
            let rule = queued.branch.rule.as_ref();
            rule.is_some_and(|name| plan.rules.iter().any(|rule| rule.priority == Priority::High && rule.name == *name))
        };
        let before = if is_high(&queued) { self.queue.iter().position(|waiting| !is_high(waiting)) } else { None };
        self.queue.insert(before.unwrap_or(self.queue.len()), queued);
    }

    /// Closes an open invocation that another continues, and adds the answer of a person, if there is one.
    pub(crate) fn close_for_follow_up(&mut self, invocation: InvocationId, answered: Option<AnsweredQuestion>) {
        self.continued = self.close(invocation, false).map(|mut open| {
            open.queued.expansion.answers.extend(answered);
            Box::new(open.queued)
        });
    }

    /// Takes the interrupted invocation, if `follows` names it.
    pub(crate) fn take_continued(&mut self, follows: InvocationId) -> Option<QueuedInvocation> {
        self.continued.take().map(|queued| *queued).filter(|queued| queued.invocation == follows)
    }

    /// Removes an invocation from the queue, and releases the memory of an empty queue.
    fn unqueue(&mut self, place: usize) -> Option<QueuedInvocation> {
        let queued = self.queue.remove(place);
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
        queued
    }

    /// Closes an invocation, open or queued; `completed` if it achieved its purpose.
    pub(crate) fn close(&mut self, invocation: InvocationId, completed: bool) -> Option<OpenInvocation> {
        self.queue.retain(|queued| queued.invocation != invocation);
        self.delayed.retain(|delayed| delayed.queued.invocation != invocation);
        let open = self.open.remove(&invocation)?;
        if completed && let Some(rule) = &open.queued.branch.rule {
            self.completed.insert(rule.clone());
        }
        Some(*open)
    }

    /// Empties the queue and the open invocations; returns both.
    pub(crate) fn clear(&mut self) -> (Vec<OpenInvocation>, Vec<QueuedInvocation>) {
        let queued = self.queue.drain(..).chain(self.delayed.drain(..).map(|delayed| delayed.queued)).collect();
        (std::mem::take(&mut self.open).into_values().map(|open| *open).collect(), queued)
    }
}

/// Returns true if the next attempt needs admission: each one of a model's worker, others after a deferral.
fn needs_admission(open: &OpenInvocation, eligible: &DispatchConditions<'_>) -> bool {
    (eligible.is_gated)(&open.queued.branch.worker) || open.waits_for_provider()
}

/// Concurrency slots of a board, and the workers that occupy none.
pub struct Slots<'a> {
    concurrency: u32,
    unmetered: &'a BTreeSet<WorkerName>,
}

impl<'a> Slots<'a> {
    /// Limits the board to `concurrency` calls; calls of `unmetered` workers are not counted.
    pub fn new(concurrency: u32, unmetered: &'a BTreeSet<WorkerName>) -> Self {
        let planted = u32::from(mutants::is_active(Mutant::ExceedConcurrency));
        Self {
            concurrency: concurrency + planted - u32::from(mutants::is_active(Mutant::UnderuseConcurrency)),
            unmetered,
        }
    }

    fn counts(&self, open: &OpenInvocation) -> bool {
        !self.unmetered.contains(&open.queued.branch.worker)
    }
}

/// Conditions on dispatch beside the concurrency slots.
pub struct DispatchConditions<'a> {
    /// Returns true if the next attempt of an open invocation has to wait.
    pub waits: &'a dyn Fn(&OpenInvocation) -> bool,
    /// Returns true if a queued invocation of the branch may begin.
    pub admits: &'a dyn Fn(&Branch) -> bool,
    /// Returns true for workers that need admission for every call.
    pub is_gated: &'a dyn Fn(&WorkerName) -> bool,
    /// Returns the operator's name of a worker's model; `None` for the default.
    pub model: &'a dyn Fn(&WorkerName) -> Option<&'a str>,
}
