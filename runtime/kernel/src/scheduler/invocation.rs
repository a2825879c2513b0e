//! Invocations of a board: queued, delayed and open, with the history of their attempts.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use jsonptr::PointerBuf;
use serde::{Deserialize, Serialize};

use crate::bindings::Bindings;
use crate::breaker::Branch;
use crate::deferral::DeferralReason;
use crate::digest::Digest;
use crate::expand_request::ExpandRequest;
use crate::failure::FailureCode;
use crate::freshness::ReadSet;
use crate::id::{InvocationId, RuleName, Seq, Timestamp, Version, WorkerName};
use crate::money::Price;
use crate::mutants::{self, Mutant};
use crate::plan::{Plan, WorkerPlan};
use crate::record::Trigger;
use crate::signal_payload::SignalPayload;

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

impl QueuedInvocation {
    /// Returns those bindings that its worker uses.
    pub(crate) fn bound(&self, plan: &Plan) -> Bindings {
        match plan.workers.get(&self.branch.worker).filter(|worker_plan| !worker_plan.names().is_empty()) {
            Some(seat) => plan.bindings(&self.branch, &self.trigger, self.value.as_deref()).restricted_to(seat.names()),
            None => Bindings::default(),
        }
    }

    /// Returns its seat; none if there is no such worker.
    pub(crate) fn worker_plan(&self, plan: &Plan) -> Option<Arc<WorkerPlan>> {
        let worker_plan = plan.workers.get(&self.branch.worker)?;
        Some(match worker_plan.names().is_empty() {
            true => Arc::clone(worker_plan),
            false => worker_plan.bind(&plan.bindings(&self.branch, &self.trigger, self.value.as_deref())),
        })
    }
}

/// Invocations of a branch with replies that changed nothing, since its last commit or last circuit breaker transition.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct IneffectiveInvocations {
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub(crate) no_ops: VecDeque<QueuedInvocation>,
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
    pub(super) fn is_of(&self, rules: &BTreeSet<RuleName>) -> bool {
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
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub newest: usize,
    /// Earlier rounds with views that showed none of the requested values.
    #[serde(default, skip_serializing_if = "crate::is_default")]
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

/// Invocation in progress.
#[serde_with_macros::skip_serializing_none]
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
    #[serde(rename = "asked")]
    pub question: Option<Seq>,
    /// Version at which its view was taken.
    pub base: Version,
    /// Digest of its view.
    pub view: Digest,
    /// Tokens reserved for it.
    pub reserved: u64,
    /// Model to which its call was admitted (since format 11).
    pub model: Option<String>,
    /// Price of the model to which its call was admitted.
    pub price: Option<Price>,
    /// Reply tokens, if the admission names a limit: more or fewer than the seat's.
    pub reply_tokens: Option<u64>,
    /// Time at which the call was recorded.
    pub since: Timestamp,
    /// Time at which the call times out.
    pub deadline: Timestamp,
    /// Requests that its provider deferred.
    pub deferrals: Option<Deferrals>,
    /// Attempts before the current one.
    #[serde(default, skip_serializing_if = "crate::is_default")]
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
    pub(super) fn holds_slot(&self) -> bool {
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
