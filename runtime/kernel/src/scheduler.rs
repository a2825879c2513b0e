//! Queued and open invocations of a board (SPEC section 6).
//!
//! [`Scheduler`] keeps the queue (first in, first out, invocations of urgent rules ahead of the rest) and the open
//! invocations. It changes only with records: the board records an activation ([`crate::rules`]) as `scheduled`, then
//! applies it here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jsonptr::PointerBuf;
use serde::{Deserialize, Serialize};

use crate::breaker::Branch;
use crate::deferral::DeferralReason;
use crate::digest::Digest;
use crate::expand_request::ExpandRequest;
use crate::failure::FailureCode;
use crate::freshness::ReadSet;
use crate::id::{InvocationId, RuleName, Seq, Timestamp, Version, WorkerName};
use crate::money::Price;
use crate::mutants::{self, Mutant};
use crate::plan::{CompiledTrigger, Plan, QuiescenceKind, Rule};
use crate::record::{Attempt, Invoked, SINCE_FULL_RETRY, Trigger};
use crate::signal_payload::SignalPayload;

/// Approximate memory of a queued invocation without its signal, in bytes.
const QUEUED_BYTES: u64 = 1 << 10;

/// Queued invocation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueuedInvocation {
    /// Invocation number.
    pub invocation: InvocationId,
    /// The rule and the worker.
    pub branch: Branch,
    /// Seq of its `scheduled` record.
    pub cause: Seq,
    /// Trigger of the invocation.
    pub trigger: Trigger,
    /// Payload of the signal that triggered it, if any.
    #[serde(with = "crate::snapshot::optional")]
    pub value: Option<SignalPayload>,
    /// Values that earlier invocations with the same trigger requested; empty for the first of them.
    #[serde(default, skip_serializing_if = "Expansion::is_none")]
    pub expansion: Expansion,
    /// True if it was given up because its worker had no invocations left.
    #[serde(rename = "beyond", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_beyond_limit: bool,
    /// True if it was given up because its reply, like the replies before it, changed nothing.
    #[serde(rename = "in_vain", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_ineffective: bool,
}

/// Invocations of a branch with replies that changed nothing, since its last commit or last circuit breaker transition.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct IneffectiveInvocations {
    /// Invocations that ended in a no-op.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub(crate) no_ops: VecDeque<QueuedInvocation>,
    /// Invocations that passed.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub(crate) passes: VecDeque<QueuedInvocation>,
}

impl IneffectiveInvocations {
    /// Returns the no-ops, then the passes.
    pub(crate) fn all(&self) -> impl Iterator<Item = &QueuedInvocation> {
        self.no_ops.iter().chain(&self.passes)
    }
}

/// Invocation that is queued at `due`, if its rule still triggers it then.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelayedInvocation {
    /// Time at which it is queued.
    pub due: Timestamp,
    /// Whole delay in milliseconds, if the rule excludes waits for providers from its delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_ms: Option<u64>,
    /// Invocation to queue.
    pub queued: QueuedInvocation,
}

impl DelayedInvocation {
    fn is_of(&self, rules: &BTreeSet<RuleName>) -> bool {
        self.queued.branch.rule.as_ref().is_some_and(|rule| rules.contains(rule))
    }
}

/// Values requested by the invocations of one trigger.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expansion {
    /// Number of rounds in which values were requested.
    pub rounds: u32,
    /// Requested places without duplicates; the last round's places first.
    pub places: Vec<ExpandRequest>,
    /// Number of `places` that the last round requested.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub newest: usize,
    /// Earlier rounds with views that showed none of the requested values.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unspent: usize,
    /// True if the last round's view showed none of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unspent: bool,
    /// Questions to persons, with their answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<AnsweredQuestion>,
}

/// Question answered by a person.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnsweredQuestion {
    /// The question.
    pub question: String,
    /// `human` worker that answered.
    pub by: WorkerName,
    /// The answer.
    pub answer: String,
}

impl Expansion {
    /// Limit of rounds for one trigger (SPEC section 4).
    pub const ROUNDS_MAX: u32 = 3;

    /// Returns true if nothing was requested.
    pub const fn is_none(&self) -> bool {
        self.rounds == 0
    }

    /// Returns the number of rounds left. Rounds with views that showed none of the requested values are free, up to a
    /// limit.
    pub fn left(&self) -> u32 {
        let unspent = self.unspent + usize::from(self.is_unspent);
        let unspent = u32::try_from(unspent).unwrap_or(Self::ROUNDS_MAX).min(Self::ROUNDS_MAX);
        (Self::ROUNDS_MAX + unspent).saturating_sub(self.rounds)
    }

    /// Returns `places` followed by the earlier places that are not among them.
    #[must_use]
    pub fn merged_with(&self, places: &[ExpandRequest]) -> Vec<ExpandRequest> {
        let old = self.places.iter().filter(|place| !places.contains(place));
        places.iter().chain(old).cloned().collect()
    }

    /// Returns the expansion of the follow-up invocation, with the merged `places`.
    pub(crate) fn next_round(self, places: Vec<ExpandRequest>, has_ranges: bool) -> Self {
        let is_old = |newest: &usize| {
            let (new, old) = places.split_at(*newest);
            old.iter().eq(self.places.iter().filter(|place| !new.contains(place)))
        };
        let newest = if has_ranges { (0..places.len()).find(is_old).unwrap_or(places.len()) } else { 0 };
        let (rounds, unspent) = (self.rounds.saturating_add(1), self.unspent + usize::from(self.is_unspent));
        Self { rounds, places, newest, unspent, is_unspent: false, answers: self.answers }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Invocation in progress.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenInvocation {
    /// Invocation as it was queued.
    pub queued: QueuedInvocation,
    /// Current attempt, from 1.
    pub attempt: u32,
    /// Attempts lost when a process ended. They are not charged to the agent and have a limit of their own.
    pub lost: u32,
    /// Attempts rejected because of concurrent commits; they have a limit of their own, too.
    pub conflicts: u32,
    /// Reserved places that the next attempt waits for.
    pub awaits: Vec<PointerBuf>,
    /// State and read set of the current attempt's view. A snapshot stores it separately, because invocations share
    /// documents.
    #[serde(skip, default = "ReadSet::empty")]
    pub basis: Arc<ReadSet>,
    /// True while the attempt's call is in progress; otherwise the next attempt is due, or a person is asked.
    pub calling: bool,
    /// Seq of the record that put the current attempt's proposal to a person, until that person answers.
    #[serde(rename = "asked", default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Seq>,
    /// Version at which its view was taken.
    pub base: Version,
    /// Digest of its view.
    pub view: Digest,
    /// Tokens reserved for it.
    pub reserved: u64,
    /// Model to which its call was admitted (since format 11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Price of the model to which its call was admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Reply tokens, if the admission names a limit: more or fewer than the seat's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_tokens: Option<u64>,
    /// Time at which the call was recorded.
    pub since: Timestamp,
    /// Time at which the call times out.
    pub deadline: Timestamp,
    /// Requests that its provider deferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferrals: Option<Deferrals>,
    /// Attempts before the current one.
    #[serde(default, skip_serializing_if = "AttemptHistory::is_none")]
    pub past: AttemptHistory,
}

/// Outcomes of earlier attempts from which the next request must differ.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptHistory {
    /// Failures since the last reply that was judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureCode>,
    /// Views with rejected replies.
    #[serde(rename = "refused", default, skip_serializing_if = "Vec::is_empty")]
    pub rejected_views: Vec<Digest>,
}

impl AttemptHistory {
    /// Returns true if there are no failures and no rejections.
    pub const fn is_none(&self) -> bool {
        self.failures.is_empty() && self.rejected_views.is_empty()
    }

    /// Counts the rejected replies to this view.
    pub fn rejections_of(&self, view: Digest) -> usize {
        self.rejected_views.iter().filter(|refused| **refused == view).count()
    }
}

impl OpenInvocation {
    /// Returns true while it waits for its provider.
    pub fn waits_for_provider(&self) -> bool {
        self.deferrals.as_ref().is_some_and(|deferrals| deferrals.waiting.is_some())
    }

    /// Returns true if it occupies a concurrency slot. Waits for a person or a provider may be long and occupy none.
    fn holds_slot(&self) -> bool {
        self.question.is_none() && !self.waits_for_provider()
    }

    /// Returns the attempts that count against the limit of its worker.
    pub fn counted_attempts(&self) -> u32 {
        let deferrals = self.deferrals.as_ref().filter(|_| !mutants::is_active(Mutant::DeferralCharged));
        let deferred = deferrals.map_or(0, |deferrals| deferrals.count);
        self.attempt.saturating_sub(self.lost).saturating_sub(self.conflicts).saturating_sub(deferred)
    }
}

/// Requests of an invocation that its provider deferred.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deferrals {
    /// Number of deferrals.
    pub count: u32,
    /// Time of the first deferral of an unbroken series; `None` once the provider has answered.
    pub since: Option<Timestamp>,
    /// Set while the invocation waits.
    pub waiting: Option<ProviderWait>,
}

/// Wait of an invocation for its provider.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderWait {
    /// Reason of the deferral.
    pub reason: DeferralReason,
    /// Earliest time of the next request.
    pub not_before: Timestamp,
    /// Time at which the board is paused if the provider has accepted no request.
    pub patience: Timestamp,
}

/// Queue and open invocations of one board.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    queue: VecDeque<QueuedInvocation>,
    open: BTreeMap<InvocationId, OpenInvocation>,
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
    /// Returns the number of the next invocation.
    pub const fn next_id(&self) -> InvocationId {
        self.last.next()
    }

    /// Returns the queued invocations, in order.
    pub const fn queue(&self) -> &VecDeque<QueuedInvocation> {
        &self.queue
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

    /// Returns the open invocations.
    pub const fn open(&self) -> &BTreeMap<InvocationId, OpenInvocation> {
        &self.open
    }

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

    /// Removes an obsolete invocation from the queue and from its worker's count; returns false if it is not queued.
    pub(crate) fn withdraw(&mut self, plan: &Plan, invocation: InvocationId) -> bool {
        let place = self.queue.iter().position(|queued| queued.invocation == invocation);
        let Some(queued) = place.and_then(|place| self.queue.remove(place)) else { return false };
        // A join with a false condition fires the next time its branches are at rest.
        let is_join = |rule: &&Rule| {
            queued.branch.rule.as_ref() == Some(&rule.name) && matches!(rule.trigger, CompiledTrigger::Quiescence(_))
        };
        if let Some(rule) = plan.rules.iter().find(is_join) {
            self.fired.remove(&rule.name);
        }
        if let Some(scheduled) = self.scheduled.get_mut(&queued.branch.worker) {
            *scheduled = scheduled.saturating_sub(1);
        }
        true
    }

    /// Returns true if only a scheduled or delayed time, or an answer from a person, can make progress.
    pub fn waits_only_for_time(&self) -> bool {
        let has_times = !self.due.is_empty() || !self.delayed.is_empty();
        has_times && self.queue.is_empty() && self.open.values().all(|open| open.question.is_some())
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
        let is_free = |worker: &WorkerName, full: bool| !full || limits.exempt.contains(worker);
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
    /// admitted branch. Counted calls stay within `concurrency`; exempt workers are not limited by it. Skips
    /// invocations that wait for a reservation.
    pub fn next(&self, limits: &Slots<'_>, eligible: &DispatchConditions<'_>) -> Option<NextAttempt> {
        let is_calling_full = self.is_calling_full(limits);
        let may_call = |open: &&OpenInvocation| !(is_calling_full && limits.counts(open));
        let is_due = |open: &&OpenInvocation| !open.calling && open.question.is_none() && !(eligible.waits)(open);
        let is_free = |open: &&OpenInvocation| !needs_admission(open, eligible);
        let again = self.open.values().filter(is_free).filter(may_call).find(is_due);
        if let Some(open) = again {
            return Some(NextAttempt { queued: open.queued.clone(), attempt: open.attempt.saturating_add(1) });
        }
        let is_full = self.is_full(limits);
        if is_full && limits.exempt.is_empty() {
            return None;
        }
        let may_begin = |branch: &Branch| {
            !(eligible.is_gated)(&branch.worker)
                && (!is_full || limits.exempt.contains(&branch.worker))
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

    /// Returns the first invocation with a wait for a provider that is out of patience.
    pub fn out_of_patience(&self, now: Timestamp) -> Option<&OpenInvocation> {
        let is_over = |wait: &ProviderWait| wait.patience <= now;
        self.open
            .values()
            .find(|open| open.deferrals.as_ref().and_then(|deferrals| deferrals.waiting.as_ref()).is_some_and(is_over))
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
        let waits = |rule: &&Rule| match &rule.trigger {
            CompiledTrigger::Quiescence(rest) => rest.kind == QuiescenceKind::Each || !self.fired.contains(&rule.name),
            _ => false,
        };
        let mut waiting = plan.rules.iter().filter(waits).peekable();
        if waiting.peek().is_none() {
            return BTreeSet::new();
        }
        let open: BTreeSet<&Branch> = self.open.values().map(|open| &open.queued.branch).collect();
        let queued: BTreeSet<&Branch> = self.queue.iter().map(|queued| &queued.branch).collect();
        let delayed: BTreeSet<&Branch> = self.delayed.iter().map(|delayed| &delayed.queued.branch).collect();
        let is_awaited = |rule: &&Rule| {
            let CompiledTrigger::Quiescence(rest) = &rule.trigger else { return false };
            let may_go = |branch: &Branch| rest.kind == QuiescenceKind::Completed || admits(branch);
            open.iter().any(|branch| rest.waits_for(branch))
                || queued.iter().any(|branch| rest.waits_for(branch) && may_go(branch))
                || rest.kind != QuiescenceKind::Each && delayed.iter().any(|branch| rest.waits_for(branch))
        };
        waiting.filter(is_awaited).map(|rule| rule.name.clone()).collect()
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

    /// Queues an invocation: at the end, or ahead of those that are not urgent.
    fn insert_by_priority(&mut self, plan: &Plan, queued: QueuedInvocation) {
        let is_urgent = |queued: &QueuedInvocation| {
            let rule = queued.branch.rule.as_ref();
            rule.is_some_and(|name| plan.rules.iter().any(|rule| rule.urgent && rule.name == *name))
        };
        let before = match is_urgent(&queued) {
            true => self.queue.iter().position(|waiting| !is_urgent(waiting)),
            false => None,
        };
        self.queue.insert(before.unwrap_or(self.queue.len()), queued);
    }

    /// Applies an `invoked` record; returns `None` if it names no invocation that can start.
    pub(crate) fn begin(
        &mut self,
        invoked: &Invoked,
        format: u32,
        at: Timestamp,
        basis: Arc<ReadSet>,
    ) -> Option<&OpenInvocation> {
        let (queued, lost, conflicts, deferrals, past) = match self.open.get(&invoked.invocation) {
            Some(open) => {
                let deferrals = open.deferrals.clone().map(|deferrals| Deferrals { waiting: None, ..deferrals });
                (open.queued.clone(), open.lost, open.conflicts, deferrals, open.past.clone())
            }
            None => {
                let place = self.queue.iter().position(|queued| queued.invocation == invoked.invocation)?;
                (self.queue.remove(place)?, 0, 0, None, AttemptHistory::default())
            }
        };
        if queued.branch.worker != invoked.worker {
            return None;
        }
        let mut queued = queued;
        queued.expansion.is_unspent = invoked.is_unspent;
        let attempts = self.attempts.entry(invoked.worker.clone()).or_default();
        *attempts = attempts.saturating_add(1);
        let open = OpenInvocation {
            queued,
            attempt: invoked.attempt,
            lost,
            conflicts,
            awaits: Vec::new(),
            basis,
            calling: true,
            question: None,
            base: invoked.base,
            view: invoked.view,
            reserved: invoked.reserved,
            model: invoked
                .admitted
                .as_ref()
                .and_then(|admission| admission.model.clone())
                .filter(|_| format >= SINCE_FULL_RETRY),
            price: invoked.admitted.as_ref().and_then(|admission| admission.price.clone()),
            reply_tokens: invoked.admitted.as_ref().and_then(|admission| admission.reply_tokens),
            since: at,
            deadline: invoked.deadline,
            deferrals,
            past,
        };
        self.open.insert(invoked.invocation, open);
        self.open.get(&invoked.invocation)
    }

    /// Restores the basis that a snapshot stores separately; returns false if there is no such open invocation.
    pub(crate) fn restore_basis(&mut self, invocation: InvocationId, basis: ReadSet) -> bool {
        self.open.get_mut(&invocation).map(|open| open.basis = Arc::new(basis)).is_some()
    }

    /// Records another call of the current attempt, with `reserved` tokens. Returns the branch, or `None` if the
    /// attempt is not in progress. `is_answered` means that the provider has answered the previous call.
    pub(crate) fn continue_attempt(
        &mut self,
        attempt: &Attempt,
        at: Timestamp,
        reserved: u64,
        is_answered: bool,
    ) -> Option<Branch> {
        let open = self.open.get_mut(&attempt.invocation);
        let open = open.filter(|open| open.calling && open.attempt == attempt.number)?;
        (open.since, open.reserved) = (at, reserved);
        if let Some(deferrals) = open.deferrals.as_mut().filter(|_| is_answered) {
            deferrals.since = None;
        }
        Some(open.queued.branch.clone())
    }

    /// Ends the current attempt, so that the next one is due.
    pub(crate) fn end_attempt(&mut self, invocation: InvocationId) {
        if let Some(open) = self.open.get_mut(&invocation) {
            (open.calling, open.question) = (false, None);
            if let Some(deferrals) = &mut open.deferrals {
                deferrals.since = None;
            }
        }
    }

    /// Ends the current attempt as deferred: the invocation waits for its provider.
    pub(crate) fn defer(&mut self, invocation: InvocationId, at: Timestamp, wait: ProviderWait) {
        self.uncount_attempt(invocation);
        if let Some(open) = self.open.get_mut(&invocation) {
            (open.calling, open.question) = (false, None);
            let (count, since) = open.deferrals.as_ref().map_or((0, None), |before| (before.count, before.since));
            let (count, since) = (count.saturating_add(1), since.or(Some(at)));
            open.deferrals = Some(Deferrals { count, since, waiting: Some(wait) });
        }
    }

    /// Ends all waits for providers, so that the next requests are due at once and patience starts over.
    pub(crate) fn end_provider_waits(&mut self) {
        for deferrals in self.open.values_mut().filter_map(|open| open.deferrals.as_mut()) {
            (deferrals.since, deferrals.waiting) = (None, None);
        }
    }

    /// Ends the current attempt's call and marks its proposal as put to a person.
    pub(crate) fn await_person(&mut self, invocation: InvocationId, question: Seq) {
        if let Some(open) = self.open.get_mut(&invocation) {
            (open.calling, open.question) = (false, Some(question));
        }
    }

    /// Counts the current attempt as rejected because of concurrent commits; the next one waits for `awaits`.
    pub(crate) fn record_conflict(&mut self, invocation: InvocationId, awaits: Vec<PointerBuf>) {
        if let Some(open) = self.open.get_mut(&invocation) {
            open.conflicts = open.conflicts.saturating_add(1);
            open.awaits = awaits;
        }
    }

    /// Records the failure of an attempt, for the next one.
    pub(crate) fn record_failure(&mut self, invocation: InvocationId, code: FailureCode) {
        if let Some(open) = self.open.get_mut(&invocation) {
            open.past.failures.push(code);
        }
    }

    /// Records the rejection of an attempt's reply, for the next one.
    pub(crate) fn record_rejection(&mut self, invocation: InvocationId) {
        if let Some(open) = self.open.get_mut(&invocation) {
            open.past.failures.clear();
            open.past.rejected_views.push(open.view);
        }
    }

    /// Counts the current attempt as lost with a process, so that it is not charged to its worker.
    pub(crate) fn record_loss(&mut self, invocation: InvocationId) {
        self.uncount_attempt(invocation);
        if let Some(open) = self.open.get_mut(&invocation) {
            open.lost = open.lost.saturating_add(1);
        }
    }

    /// Uncounts the current attempt, which was never delivered to its worker's agent.
    pub(crate) fn uncount_attempt(&mut self, invocation: InvocationId) {
        let Some(open) = self.open.get(&invocation) else { return };
        if let Some(attempts) = self.attempts.get_mut(&open.queued.branch.worker) {
            *attempts = attempts.saturating_sub(1);
        }
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

    /// Closes an invocation, open or queued; `completed` if it achieved its purpose.
    pub(crate) fn close(&mut self, invocation: InvocationId, completed: bool) -> Option<OpenInvocation> {
        self.queue.retain(|queued| queued.invocation != invocation);
        self.delayed.retain(|delayed| delayed.queued.invocation != invocation);
        let open = self.open.remove(&invocation)?;
        if completed && let Some(rule) = &open.queued.branch.rule {
            self.completed.insert(rule.clone());
        }
        Some(open)
    }

    /// Empties the queue and the open invocations; returns both.
    pub(crate) fn clear(&mut self) -> (Vec<OpenInvocation>, Vec<QueuedInvocation>) {
        let queued = self.queue.drain(..).chain(self.delayed.drain(..).map(|delayed| delayed.queued)).collect();
        (std::mem::take(&mut self.open).into_values().collect(), queued)
    }
}

/// Returns true if the next attempt needs admission: each one of a model's worker, others after a deferral.
fn needs_admission(open: &OpenInvocation, eligible: &DispatchConditions<'_>) -> bool {
    (eligible.is_gated)(&open.queued.branch.worker) || open.waits_for_provider()
}

/// Concurrency slots of a board, and the workers exempt from them.
pub struct Slots<'a> {
    concurrency: u32,
    exempt: &'a BTreeSet<WorkerName>,
}

impl<'a> Slots<'a> {
    /// Limits the board to `concurrency` calls; calls of `exempt` workers are not counted.
    pub fn new(concurrency: u32, exempt: &'a BTreeSet<WorkerName>) -> Self {
        let planted = u32::from(mutants::is_active(Mutant::ExceedConcurrency));
        Self { concurrency: concurrency + planted - u32::from(mutants::is_active(Mutant::UnderuseConcurrency)), exempt }
    }

    fn counts(&self, open: &OpenInvocation) -> bool {
        !self.exempt.contains(&open.queued.branch.worker)
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
