//! Invocations that were given up, and those that a retry queues again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use patchboard_kernel::expand_request::ExpandRequest;
use patchboard_kernel::id::InvocationId;
use patchboard_kernel::record::{Retried, Scheduled, Trigger};

use super::Branch;

pub(super) struct Retries {
    seed: u64,
    /// Every invocation that was ever scheduled.
    known: BTreeMap<InvocationId, Known>,
    /// Given up and not retried, the oldest first.
    given_up: Vec<InvocationId>,
    /// Subset of `given_up`: their workers had no invocations left. A retry covers them only if it names the worker
    /// or the invocation.
    beyond: BTreeSet<InvocationId>,
    /// Subset of `given_up`: their replies changed nothing. Cleared once their branch works again.
    in_vain: BTreeSet<InvocationId>,
    /// To be queued again in the present step.
    due: VecDeque<InvocationId>,
}

/// Content of a `scheduled` record that a retry repeats.
#[derive(Clone, PartialEq, Debug)]
struct Known {
    branch: Branch,
    trigger: Trigger,
    expand: Vec<ExpandRequest>,
}

impl Retries {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            seed,
            known: BTreeMap::new(),
            given_up: Vec::new(),
            beyond: BTreeSet::new(),
            in_vain: BTreeSet::new(),
            due: VecDeque::new(),
        }
    }

    /// Notes a `scheduled` record; one of a retry must be the next that is due.
    pub(super) fn scheduled(&mut self, scheduled: &Scheduled, branch: &Branch) {
        let seed = self.seed;
        let Scheduled { invocation, trigger, expand, retries, .. } = scheduled;
        let known = Known { branch: branch.clone(), trigger: trigger.clone(), expand: expand.clone() };
        if let Some(retries) = retries {
            let due = self.due.pop_front();
            assert_eq!(due, Some(*retries), "SEED={seed}: another invocation was due to be retried");
            let before = &self.known[retries];
            assert_eq!(known, *before, "SEED={seed}: {invocation} is not a retry of {retries}");
            assert_eq!(scheduled.due, None, "SEED={seed}: a retry is delayed");
        }
        self.known.insert(*invocation, known);
    }

    /// Notes that an invocation was given up.
    pub(super) fn gave_up(&mut self, invocation: InvocationId) {
        self.given_up.push(invocation);
    }

    /// Notes that an invocation was given up because its worker had none left.
    pub(super) fn went_beyond(&mut self, invocation: InvocationId) {
        self.gave_up(invocation);
        self.beyond.insert(invocation);
    }

    /// Notes that an invocation was given up because its reply changed nothing, like those before.
    pub(super) fn was_in_vain(&mut self, invocation: InvocationId) {
        self.gave_up(invocation);
        self.in_vain.insert(invocation);
    }

    /// Notes that a branch works again: invocations that changed nothing are not retried any more.
    pub(super) fn works_again(&mut self, branch: &Branch) {
        let (known, in_vain) = (&self.known, &self.in_vain);
        self.given_up.retain(|invocation| !in_vain.contains(invocation) || known[invocation].branch != *branch);
    }

    /// Returns true if a retry covers any invocation.
    pub(super) fn is_any_meant(&self, retried: &Retried) -> bool {
        self.given_up.iter().any(|invocation| self.is_meant(*invocation, retried))
    }

    fn is_meant(&self, invocation: InvocationId, retried: &Retried) -> bool {
        covers(retried, &self.known[&invocation].branch)
            && retried.invocation.is_none_or(|only| only == invocation)
            && (!self.beyond.contains(&invocation) || retried.worker.is_some() || retried.invocation.is_some())
    }

    /// Returns true if a retry leaves invocations given up for other reasons than the limit of their worker.
    pub(super) fn is_any_left(&self, retried: &Retried) -> bool {
        let is_left = |invocation: &&InvocationId| {
            !self.beyond.contains(invocation)
                && !self.in_vain.contains(invocation)
                && !self.is_meant(**invocation, retried)
        };
        self.given_up.iter().any(|invocation| is_left(&invocation))
    }

    /// Returns the branches of the invocations that a retry covers.
    pub(super) fn meant(&self, retried: &Retried) -> impl Iterator<Item = &Branch> {
        let meant = self.given_up.iter().filter(|invocation| self.is_meant(**invocation, retried));
        meant.map(|invocation| &self.known[invocation].branch)
    }

    /// Returns the worker with raised limits, and its new limit of tokens.
    pub(super) fn raised<'a>(&'a self, retried: &'a Retried) -> Option<(&'a str, u64)> {
        let of_invocation = || Some(self.meant(retried).next().filter(|_| retried.invocation.is_some())?.1.as_str());
        let worker = retried.worker.as_ref().map(|worker| worker.as_str()).or_else(of_invocation)?;
        Some((worker, retried.worker_limits.tokens?))
    }

    /// Queues the invocations that a retry covers.
    pub(super) fn retried(&mut self, retried: &Retried) {
        let (due, left) = self.given_up.iter().partition(|invocation| self.is_meant(**invocation, retried));
        let due: Vec<InvocationId> = due;
        (self.due, self.given_up) = (due.into(), left);
    }

    pub(super) fn at_the_end_of_a_step(&self) {
        assert!(self.due.is_empty(), "SEED={}: {:?} should have been queued again", self.seed, self.due);
    }
}

/// Returns true if a retry may cover invocations of a branch.
pub(super) fn covers(retried: &Retried, branch: &Branch) -> bool {
    retried.worker.as_ref().is_none_or(|worker| worker.as_str() == branch.1)
}
