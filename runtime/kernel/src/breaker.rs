//! Circuit breakers: stop branches that fail repeatedly (SPEC section 7).
//!
//! A branch is a rule and a worker that it triggers. Counters change with the records of outcomes; [`Breaker::due`]
//! returns the transition that is due, and `Breaker::apply` applies it once it is recorded. All state is a function of
//! the records.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use jsonptr::Pointer;
use serde::{Deserialize, Serialize};

use crate::blueprint::{Action, Circuit};
use crate::digest::{Digest, Hasher};
use crate::event;
use crate::id::{InvocationId, RuleName, WorkerName};
use crate::mutants::{self, Mutant};
use crate::rejection::code_enum;
use crate::state::State;

/// A rule and its worker; without a rule, invocations triggered by breakers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Branch {
    /// The rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleName>,
    /// The worker.
    pub worker: WorkerName,
}

code_enum! {
    /// Transition of a branch.
    BreakerTransition {
        /// The views of the branch are halved.
        Reduced = "reduced",
        /// The branch is stopped.
        Opened = "opened",
        /// The branch gets one probe.
        HalfOpened = "half_opened",
        /// The branch works normally again.
        Closed = "closed",
    }
}

code_enum! {
    /// Reason of a breaker transition.
    Reason {
        /// Too many rejections in a row.
        Rejections = "rejections",
        /// Too many proposals in a row that changed nothing.
        NoOps = "no_ops",
        /// Too many replies in a row that passed.
        Passes = "passes",
        /// Too many invocations in a row were given up after a crash of the agent.
        Crashes = "crashes",
        /// The values that the branch writes returned to earlier ones too often.
        Cycles = "cycles",
        /// A budget was used up.
        Budget = "budget",
        /// The cooldown is over.
        Cooldown = "cooldown",
        /// The probe was committed.
        ProbeCommitted = "probe_committed",
        /// The probe failed.
        ProbeFailed = "probe_failed",
        /// An operator retries invocations that were given up.
        Retried = "retried",
    }
}

/// Transition that is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DueTransition {
    /// Reason of the transition.
    pub reason: Reason,
    /// Action that the blueprint demands; `None` for transitions without a policy.
    pub action: Option<Action>,
    /// Change of the branch.
    pub change: BreakerTransition,
}

impl DueTransition {
    pub(crate) const fn half_opened(reason: Reason) -> Self {
        Self { reason, action: None, change: BreakerTransition::HalfOpened }
    }
}

/// State of a branch's circuit breaker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum BreakerState {
    /// Normal operation.
    #[default]
    Closed,
    /// Stopped.
    Open {
        /// Number of the board's decisions when it was stopped; the cooldown is counted from it.
        since: u64,
    },
    /// One invocation may run as a probe.
    HalfOpen {
        /// Invocation of the probe, once there is one.
        probe: Option<InvocationId>,
    },
}

/// Outcome of an attempt, as counted by the breaker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttemptOutcome {
    /// A commit.
    Commit {
        /// Fingerprint of the written values.
        written: Digest,
        /// Binding for which cycles are counted, if the invocation is bound.
        binding: Option<Digest>,
    },
    /// A proposal that changed nothing.
    NoOp,
    /// A proposal of a bound invocation that changed nothing; not counted in a streak.
    Unchanged,
    /// A reply that passed.
    Pass,
    /// A proposal that is put to a person; its final outcome is reported later.
    AwaitingPerson,
    /// A proposal that changed nothing but requested more values; another invocation continues it.
    Expansion,
    /// A rejection.
    Rejection {
        /// True for the last attempt of the invocation.
        is_final: bool,
    },
    /// A rejection because of concurrent commits, for which the worker is not to blame.
    Conflict {
        /// True for the last attempt of the invocation.
        is_final: bool,
    },
    /// An attempt without a proposal.
    Failure {
        /// True for the last attempt of the invocation.
        is_final: bool,
        /// True if the agent crashed.
        is_crash: bool,
    },
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BranchHistory {
    #[serde(rename = "position")]
    state: BreakerState,
    /// Reason why views are halved, if they are.
    reduced: Option<Reason>,
    rejections: u32,
    no_ops: u32,
    /// Omitted from snapshots of boards without passes, so that their digests do not change.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    passes: u32,
    /// Invocations given up after a crash, since the last reply.
    crashes: u32,
    /// Fingerprints of the last commits, each with a flag for a return to an earlier value.
    recent: VecDeque<(Digest, bool)>,
    /// Like `recent`, for each binding of bound invocations; the binding with the latest commit is last.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    recent_bound: VecDeque<(Digest, VecDeque<(Digest, bool)>)>,
    /// Outcome of the probe, while the resulting transition is due.
    probe: Option<Reason>,
}

/// Maximum number of bindings with remembered commits, for each branch.
const BINDINGS_MAX: usize = 256;

impl BranchHistory {
    /// Returns the history in which a return of this commit is sought.
    fn recent_of(&mut self, of: Option<Digest>) -> &mut VecDeque<(Digest, bool)> {
        let Some(of) = of else { return &mut self.recent };
        let there = self.recent_bound.iter().position(|(bound, _)| *bound == of);
        let recent = there.and_then(|at| self.recent_bound.remove(at)).unwrap_or_else(|| (of, VecDeque::new()));
        if self.recent_bound.len() >= BINDINGS_MAX {
            self.recent_bound.pop_front();
        }
        self.recent_bound.push_back(recent);
        let last = self.recent_bound.len() - 1;
        &mut self.recent_bound[last].1
    }

    /// Returns the largest number of returns in a history: that of unbound invocations or of one binding.
    fn returns(&self) -> usize {
        let of = |recent: &VecDeque<(Digest, bool)>| recent.iter().filter(|(_, is_return)| *is_return).count();
        self.recent_bound.iter().map(|(_, recent)| of(recent)).fold(of(&self.recent), usize::max)
    }

    fn clear(&mut self) {
        self.recent.clear();
        self.recent_bound.clear();
    }
}

/// The circuit breakers of one board.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Breaker {
    #[serde(with = "crate::snapshot::pairs")]
    branches: BTreeMap<Branch, BranchHistory>,
    /// Outcomes so far, of the whole board.
    decisions: u64,
}

impl Breaker {
    /// Returns the state of a branch's breaker.
    pub fn state(&self, branch: &Branch) -> BreakerState {
        self.branches.get(branch).map_or(BreakerState::Closed, |track| track.state)
    }

    /// Returns the states of all branches with a history.
    pub fn states(&self) -> impl Iterator<Item = (&Branch, BreakerState)> {
        self.branches.iter().map(|(branch, track)| (branch, track.state))
    }

    /// Returns true if the branch's views are halved.
    pub fn is_reduced(&self, branch: &Branch) -> bool {
        self.branches.get(branch).is_some_and(|track| track.reduced.is_some())
    }

    /// Returns true if an invocation of the branch may be dispatched.
    pub fn admits(&self, branch: &Branch) -> bool {
        match self.state(branch) {
            BreakerState::Closed | BreakerState::HalfOpen { probe: None } => true,
            BreakerState::Open { .. } | BreakerState::HalfOpen { probe: Some(_) } => false,
        }
    }

    /// Returns the number of outcomes of the whole board so far.
    pub const fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Returns the branches that dispatch nothing until an operator retries them: stopped branches, and those with a
    /// probe that was given up with the board.
    pub fn stopped_branches(&self, is_open: impl Fn(InvocationId) -> bool) -> impl Iterator<Item = &Branch> {
        let stopped = self.branches.iter().filter(move |(_, track)| match track.state {
            BreakerState::Open { .. } => true,
            BreakerState::HalfOpen { probe } => probe.is_some_and(|probe| !is_open(probe)),
            BreakerState::Closed => false,
        });
        stopped.map(|(branch, _)| branch)
    }

    /// Returns true if any branch is stopped.
    pub fn any_open(&self) -> bool {
        self.branches.values().any(|track| matches!(track.state, BreakerState::Open { .. }))
    }

    /// Records the dispatch of an invocation, which may be the probe of a half-open branch.
    pub(crate) fn dispatched(&mut self, branch: &Branch, invocation: InvocationId) {
        if let Some(track) = self.branches.get_mut(branch)
            && track.state == (BreakerState::HalfOpen { probe: None })
        {
            track.state = BreakerState::HalfOpen { probe: Some(invocation) };
        }
    }

    /// Counts an outcome. `branch` is `None` for an unsolicited proposal, which counts as a decision only.
    pub(crate) fn record_outcome(&mut self, policy: &Circuit, branch: Option<&Branch>, heard: AttemptOutcome) {
        self.decisions = self.decisions.saturating_add(1);
        let Some(branch) = branch else { return };
        let track = self.branches.entry(branch.clone()).or_default();
        let probing = matches!(track.state, BreakerState::HalfOpen { .. });
        if !matches!(heard, AttemptOutcome::Failure { .. }) {
            // An answer proves that the agent is running.
            track.crashes = 0;
        }
        match heard {
            AttemptOutcome::Commit { written, binding: of } => {
                if !mutants::is_active(Mutant::KeepRejectionStreak) {
                    track.rejections = 0;
                }
                track.no_ops = 0;
                track.passes = 0;
                // A cycle consists of commits, so a commit does not end it.
                track.reduced = track.reduced.filter(|reason| *reason == Reason::Cycles);
                let recent = track.recent_of(of);
                let is_return = recent.iter().any(|(earlier, _)| *earlier == written);
                recent.push_back((written, is_return));
                while recent.len() > policy.cycles.window as usize {
                    recent.pop_front();
                }
                track.probe = probing.then_some(Reason::ProbeCommitted);
            }
            AttemptOutcome::NoOp => {
                track.no_ops = track.no_ops.saturating_add(1);
                track.probe = probing.then_some(Reason::ProbeFailed);
            }
            AttemptOutcome::Unchanged => track.probe = probing.then_some(Reason::ProbeFailed),
            AttemptOutcome::Pass => {
                track.passes = track.passes.saturating_add(1);
                track.probe = probing.then_some(Reason::ProbeFailed);
            }
            // The follow-up invocation becomes the probe.
            AttemptOutcome::Expansion if probing => track.state = BreakerState::HalfOpen { probe: None },
            AttemptOutcome::Expansion | AttemptOutcome::AwaitingPerson => {}
            AttemptOutcome::Rejection { is_final } => {
                track.rejections = track.rejections.saturating_add(1);
                track.probe = (probing && is_final).then_some(Reason::ProbeFailed);
            }
            AttemptOutcome::Conflict { is_final } => track.probe = (probing && is_final).then_some(Reason::ProbeFailed),
            AttemptOutcome::Failure { is_final, is_crash } => {
                track.crashes = track.crashes.saturating_add(u32::from(is_final && is_crash));
                track.probe = (probing && is_final).then_some(Reason::ProbeFailed);
            }
        }
    }

    /// Returns the transition of this branch that is due, if any.
    pub fn due(&self, policy: &Circuit, branch: &Branch) -> Option<DueTransition> {
        let track = self.branches.get(branch)?;
        if let BreakerState::Open { since } = track.state {
            let over = self.decisions.saturating_sub(since) >= u64::from(policy.cooldown);
            return over.then_some(DueTransition::half_opened(Reason::Cooldown));
        }
        // In a half-open branch only the probe decides; its earlier streaks ended with the transition.
        if let Some(reason) = track.probe {
            let change =
                if reason == Reason::ProbeCommitted { BreakerTransition::Closed } else { BreakerTransition::Opened };
            return Some(DueTransition { reason, action: None, change });
        }
        let (reason, action) = if track.returns() >= policy.cycles.repeats as usize {
            (Reason::Cycles, &policy.cycles.then)
        } else if track.no_ops >= policy.no_ops.limit {
            (Reason::NoOps, &policy.no_ops.then)
        } else if let Some(passes) = policy.passes.as_ref().filter(|passes| track.passes >= passes.limit) {
            (Reason::Passes, &passes.then)
        } else if track.rejections >= policy.rejections.limit + u32::from(mutants::is_active(Mutant::LateTrip)) {
            (Reason::Rejections, &policy.rejections.then)
        } else if track.crashes >= policy.crashes.limit {
            (Reason::Crashes, &policy.crashes.then)
        } else {
            return None;
        };
        Some(self.transition_for(branch, reason, action.clone()))
    }

    /// Returns the transition for an action; a second reduction of the views stops the branch.
    pub fn transition_for(&self, branch: &Branch, reason: Reason, action: Action) -> DueTransition {
        // A reduced view would distort a probe, so a half-open branch that fails is stopped again.
        let may_reduce = self.state(branch) == BreakerState::Closed && !self.is_reduced(branch);
        let change = match action {
            Action::ReduceView if may_reduce && !mutants::is_active(Mutant::StopInsteadOfReduce) => {
                BreakerTransition::Reduced
            }
            Action::ReduceView | Action::StopBranch | Action::StopBoard | Action::Wake(_) => BreakerTransition::Opened,
        };
        DueTransition { reason, action: Some(action), change }
    }

    /// Returns the branches with an expired cooldown.
    pub fn cooled_down(&self, policy: &Circuit) -> Vec<Branch> {
        let open = self.branches.iter().filter(|(_, track)| matches!(track.state, BreakerState::Open { .. }));
        open.map(|(branch, _)| branch).filter(|branch| self.due(policy, branch).is_some()).cloned().collect()
    }

    /// Applies a recorded transition.
    pub(crate) fn apply(&mut self, branch: &Branch, change: BreakerTransition, reason: Reason) {
        let since = self.decisions;
        let track = self.branches.entry(branch.clone()).or_default();
        track.probe = None;
        track.rejections = 0;
        track.no_ops = 0;
        track.passes = 0;
        track.crashes = 0;
        match change {
            BreakerTransition::Reduced => {
                track.clear();
                track.reduced = Some(reason);
            }
            BreakerTransition::Opened => {
                track.clear();
                track.state = BreakerState::Open { since };
            }
            BreakerTransition::HalfOpened => track.state = BreakerState::HalfOpen { probe: None },
            BreakerTransition::Closed => {
                track.state = BreakerState::Closed;
                track.reduced = None;
            }
        }
    }
}

/// Returns the fingerprint of a commit: the written places and their values in the new state.
///
/// An equal fingerprint means that the branch's own region has returned to an earlier value, whatever other workers
/// write elsewhere. Appending always creates a new place, so progress never looks like a return. For a bound invocation
/// the whole element counts, so that changes by other workers make a difference.
pub fn fingerprint(hasher: &Hasher, changes: &[event::Change], state: &State, element: Option<&Pointer>) -> Digest {
    // Digests of subtrees are cached, so large values are not serialised.
    let held = |place: &Pointer| state.get(place).map(|node| hasher.tree(node).to_string());
    let places: BTreeMap<&str, Option<String>> =
        changes.iter().map(|change| (change.path.as_str(), held(&change.path))).collect();
    match element {
        Some(element) => hasher.document(&serde_json::json!([places, held(element)])),
        None => hasher.document(&serde_json::json!(places)),
    }
}
