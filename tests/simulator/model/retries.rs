//! Invocations that were given up, and what a retry queues again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use patchboard_kernel::asked::Asked;
use patchboard_kernel::id::InvocationId;
use patchboard_kernel::record::{Retried, Scheduled, Trigger};

use super::Branch;

pub(super) struct Retries {
    seed: u64,
    /// Every invocation that was ever scheduled.
    known: BTreeMap<InvocationId, Known>,
    /// Given up and not retried, the oldest first.
    given_up: Vec<InvocationId>,
    /// Of these: those for which their workers had no invocations left. They are meant by name only.
    beyond: BTreeSet<InvocationId>,
    /// Of these: those whose replies changed nothing, until their branch works again.
    in_vain: BTreeSet<InvocationId>,
    /// To be queued again in the present step.
    due: VecDeque<InvocationId>,
}

/// Content of a `scheduled` record that a retry repeats.
#[derive(Clone, PartialEq, Debug)]
struct Known {
    branch: Branch,
    trigger: Trigger,
    expand: Vec<Asked>,
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

    /// Notes that an invocation was given up for which its worker had none left.
    pub(super) fn went_beyond(&mut self, invocation: InvocationId) {
        self.gave_up(invocation);
        self.beyond.insert(invocation);
    }

    /// Notes that an invocation was given up because its reply changed nothing, like those before.
    pub(super) fn was_in_vain(&mut self, invocation: InvocationId) {
        self.gave_up(invocation);
        self.in_vain.insert(invocation);
    }

    /// Notes that a branch works again: nobody asks again for what changed nothing.
    pub(super) fn works_again(&mut self, branch: &Branch) {
        let (known, in_vain) = (&self.known, &self.in_vain);
        self.given_up.retain(|invocation| !in_vain.contains(invocation) || known[invocation].branch != *branch);
    }

    /// Whether a retry means any invocation.
    pub(super) fn is_any_meant(&self, retried: &Retried) -> bool {
        self.given_up.iter().any(|invocation| self.is_meant(*invocation, retried))
    }

    fn is_meant(&self, invocation: InvocationId, retried: &Retried) -> bool {
        covers(retried, &self.known[&invocation].branch)
            && retried.invocation.is_none_or(|only| only == invocation)
            && (!self.beyond.contains(&invocation) || retried.worker.is_some() || retried.invocation.is_some())
    }

    /// Whether a retry leaves invocations that were given up, other than for the limit of their worker.
    pub(super) fn is_any_left(&self, retried: &Retried) -> bool {
        let is_left = |invocation: &&InvocationId| {
            !self.beyond.contains(invocation)
                && !self.in_vain.contains(invocation)
                && !self.is_meant(**invocation, retried)
        };
        self.given_up.iter().any(|invocation| is_left(&invocation))
    }

    /// The branches of the invocations that a retry means.
    pub(super) fn meant(&self, retried: &Retried) -> impl Iterator<Item = &Branch> {
        let meant = self.given_up.iter().filter(|invocation| self.is_meant(**invocation, retried));
        meant.map(|invocation| &self.known[invocation].branch)
    }

    /// The worker whose limits a retry raises, and to what its tokens.
    pub(super) fn raised<'a>(&'a self, retried: &'a Retried) -> Option<(&'a str, u64)> {
        let of_invocation = || Some(self.meant(retried).next().filter(|_| retried.invocation.is_some())?.1.as_str());
        let worker = retried.worker.as_ref().map(|worker| worker.as_str()).or_else(of_invocation)?;
        Some((worker, retried.worker_limits.tokens?))
    }

    /// Queues again what a retry means.
    pub(super) fn retried(&mut self, retried: &Retried) {
        let (due, left) = self.given_up.iter().partition(|invocation| self.is_meant(**invocation, retried));
        let due: Vec<InvocationId> = due;
        (self.due, self.given_up) = (due.into(), left);
    }

    pub(super) fn at_the_end_of_a_step(&self) {
        assert!(self.due.is_empty(), "SEED={}: {:?} should have been queued again", self.seed, self.due);
    }
}

/// Whether a retry may mean invocations of a branch.
pub(super) fn covers(retried: &Retried, branch: &Branch) -> bool {
    retried.worker.as_ref().is_none_or(|worker| worker.as_str() == branch.1)
}
