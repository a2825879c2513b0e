//! Moves of circuit breakers, and the blueprint's actions for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use patchboard_kernel::breaker::{BreakerTransition, Reason};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::record::Cause;
use patchboard_kernel::rejection::Stage;
use serde_json::Value;

use super::Branch;

pub(super) struct Circuit {
    seed: u64,
    rejections: u64,
    no_ops: u64,
    passes: Option<u64>,
    crashes: u64,
    window: usize,
    repeats: usize,
    cooldown: u64,
    /// Actions of the blueprint, by reason.
    actions: BTreeMap<Reason, Action>,
    /// Number of outcomes of the whole board.
    decisions: u64,
    branches: BTreeMap<Branch, State>,
    /// Moves that are due before the step ends.
    due: Vec<(Branch, Reason)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Action {
    ReduceView,
    StopBranch,
    StopBoard,
    Wake(String),
}

/// Consequences of a move.
#[derive(Default)]
pub(super) struct Moved {
    /// End the branch's calls.
    pub(super) gives_up: bool,
    /// Cause with which the board ends, if it does.
    pub(super) stops: Option<Cause>,
    /// Worker to trigger.
    pub(super) wakes: Option<String>,
}

#[derive(Default)]
struct State {
    rejections: u64,
    no_ops: u64,
    passes: u64,
    crashes: u64,
    /// Writes of the last commits, each with a flag: true if an earlier one of them had the same.
    fingerprints: VecDeque<(String, bool)>,
    position: Position,
    /// Reason for which the view is reduced, if it is.
    reduced: Option<Reason>,
    /// True if the board ended during the branch's probe.
    is_try_lost: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Position {
    #[default]
    Closed,
    /// Decision count at opening; true if a budget ran short, which ends no invocation under way.
    Open(u64, bool),
    /// True if the probe was made.
    Half(bool),
}

impl Circuit {
    pub(super) fn new(seed: u64, circuit: &Value) -> Self {
        let number = |value: &Value| value.as_u64().expect("defaults are spelled out");
        let action = |name: &str| match &circuit[name]["then"] {
            then if *then == "reduce_view" => Action::ReduceView,
            then if *then == "stop_branch" => Action::StopBranch,
            then if *then == "stop_board" => Action::StopBoard,
            then => Action::Wake(then["wake"].as_str().expect("there is no other action").to_owned()),
        };
        let passes = circuit["passes"].is_object().then(|| (Reason::Passes, action("passes")));
        let actions = [
            (Reason::Rejections, action("rejections")),
            (Reason::NoOps, action("no_ops")),
            (Reason::Crashes, action("crashes")),
            (Reason::Cycles, action("cycles")),
            (Reason::Budget, action("budget")),
        ];
        Self {
            seed,
            rejections: number(&circuit["rejections"]["limit"]),
            no_ops: number(&circuit["no_ops"]["limit"]),
            passes: circuit["passes"]["limit"].as_u64(),
            crashes: number(&circuit["crashes"]["limit"]),
            window: number(&circuit["cycles"]["window"]) as usize,
            repeats: number(&circuit["cycles"]["repeats"]) as usize,
            cooldown: number(&circuit["cooldown"]),
            actions: actions.into_iter().chain(passes).collect(),
            decisions: 0,
            branches: BTreeMap::new(),
            due: Vec::new(),
        }
    }

    pub(super) const fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Returns true if the branch may begin a new invocation.
    pub(super) fn admits(&self, branch: &Branch) -> bool {
        match self.branches.get(branch).map(|state| state.position) {
            None | Some(Position::Closed | Position::Half(false)) => true,
            Some(Position::Open(..) | Position::Half(true)) => false,
        }
    }

    pub(super) fn is_any_open(&self) -> bool {
        self.branches.values().any(|state| matches!(state.position, Position::Open(..)))
    }

    /// Records that the board has ended for good, and with it every probe under way.
    pub(super) fn ended(&mut self) {
        for state in self.branches.values_mut() {
            state.is_try_lost |= state.position == Position::Half(true);
        }
    }

    /// Makes the stopped branches due for one probe each, after an operator's retry.
    pub(super) fn retried(&mut self, covers: impl Fn(&Branch) -> bool) {
        let stopped: Vec<Branch> = self.stopped(covers).cloned().collect();
        self.due.extend(stopped.into_iter().map(|branch| (branch, Reason::Retried)));
    }

    /// Returns the number of consecutive no-ops, or passes, that stops a branch, if there is a limit.
    pub(super) fn limit(&self, is_pass: bool) -> Option<usize> {
        let limit = if is_pass { self.passes? } else { self.no_ops };
        usize::try_from(limit).ok()
    }

    /// Returns the stopped branches among these, and those with a probe that ended with the board.
    pub(super) fn stopped(&self, covers: impl Fn(&Branch) -> bool) -> impl Iterator<Item = &Branch> {
        let is_stopped = |state: &State| matches!(state.position, Position::Open(..)) || state.is_try_lost;
        let stopped = self.branches.iter().filter(move |(branch, state)| covers(branch) && is_stopped(state));
        stopped.map(|(branch, _)| branch)
    }

    /// Records the outcome of a reply that moves no breaker.
    pub(super) fn decided(&mut self, branch: Option<&Branch>) {
        self.decisions += 1;
        // An agent that answers does not crash.
        if let Some(state) = branch.and_then(|branch| self.branches.get_mut(branch)) {
            state.crashes = 0;
        }
    }

    /// Records a reply that only requests more: a probe continues with the next invocation.
    pub(super) fn asked_for_more(&mut self, branch: Option<&Branch>) {
        self.decided(branch);
        if let Some(state) = branch.and_then(|branch| self.branches.get_mut(branch))
            && let Position::Half(was_tried) = &mut state.position
        {
            *was_tried = false;
        }
    }

    pub(super) fn committed(&mut self, branch: Option<&Branch>, written: &BTreeSet<String>, now: &Value) {
        self.decided(branch);
        let Some(branch) = branch else { return };
        let (window, repeats) = (self.window, self.repeats);
        let state = self.branches.entry(branch.clone()).or_default();
        (state.rejections, state.no_ops, state.passes) = (0, 0, 0);
        state.reduced = state.reduced.filter(|reason| *reason == Reason::Cycles);
        let there: Vec<_> = written.iter().map(|place| (place, now.pointer(place))).collect();
        let fingerprint = format!("{there:?}");
        let is_return = state.fingerprints.iter().any(|(one, _)| *one == fingerprint);
        state.fingerprints.push_back((fingerprint, is_return));
        if state.fingerprints.len() > window {
            state.fingerprints.pop_front();
        }
        let returns = state.fingerprints.iter().filter(|(_, is_return)| *is_return).count();
        let reason = match state.position {
            Position::Half(_) => Some(Reason::ProbeCommitted),
            Position::Closed => (returns >= repeats).then_some(Reason::Cycles),
            Position::Open(..) => None,
        };
        self.due.extend(reason.map(|reason| (branch.clone(), reason)));
    }

    pub(super) fn changed_nothing(&mut self, branch: Option<&Branch>) {
        self.decided(branch);
        let Some(branch) = branch else { return };
        let limit = self.no_ops;
        let state = self.branches.entry(branch.clone()).or_default();
        state.no_ops += 1;
        let reason = match state.position {
            Position::Half(_) => Some(Reason::ProbeFailed),
            Position::Closed => (state.no_ops >= limit).then_some(Reason::NoOps),
            Position::Open(..) => None,
        };
        self.due.extend(reason.map(|reason| (branch.clone(), reason)));
    }

    /// Records a pass, which counts against the worker only if the blueprint sets a limit.
    pub(super) fn passed(&mut self, branch: Option<&Branch>) {
        self.decided(branch);
        let Some(branch) = branch else { return };
        let limit = self.passes;
        let state = self.branches.entry(branch.clone()).or_default();
        state.passes += 1;
        let reason = match state.position {
            Position::Half(_) => Some(Reason::ProbeFailed),
            Position::Closed => limit.is_some_and(|limit| state.passes >= limit).then_some(Reason::Passes),
            Position::Open(..) => None,
        };
        self.due.extend(reason.map(|reason| (branch.clone(), reason)));
    }

    pub(super) fn refused(&mut self, branch: Option<&Branch>, stage: Stage, is_final: bool) {
        self.decided(branch);
        let Some(branch) = branch else { return };
        let limit = self.rejections;
        let state = self.branches.entry(branch.clone()).or_default();
        // Conflicts do not count against the branch.
        if stage != Stage::Freshness {
            state.rejections += 1;
        }
        let reason = match state.position {
            Position::Half(_) if is_final => Some(Reason::ProbeFailed),
            Position::Half(_) | Position::Closed => (state.rejections >= limit).then_some(Reason::Rejections),
            Position::Open(..) => None,
        };
        self.due.extend(reason.map(|reason| (branch.clone(), reason)));
    }

    pub(super) fn failed(&mut self, branch: Option<&Branch>, code: FailureCode, is_final: bool) {
        self.decisions += 1;
        let (Some(branch), true) = (branch, is_final) else { return };
        let limit = self.crashes;
        let state = self.branches.entry(branch.clone()).or_default();
        if code == FailureCode::Crashed {
            state.crashes += 1;
        }
        let reason = match state.position {
            Position::Half(_) => Some(Reason::ProbeFailed),
            Position::Closed => (state.crashes >= limit).then_some(Reason::Crashes),
            Position::Open(..) => None,
        };
        self.due.extend(reason.map(|reason| (branch.clone(), reason)));
    }

    /// Records that a budget ran short. If further invocations are rejected already, there is nothing to stop.
    /// Returns true if the view is reduced.
    pub(super) fn ran_short(&mut self, branch: &Branch, (of_invocations, is_first): (bool, bool)) -> bool {
        if of_invocations && !is_first {
            return false;
        }
        let action = self.action(branch, Reason::Budget);
        let stops_only_itself = matches!(action, Action::StopBranch | Action::ReduceView);
        if of_invocations && stops_only_itself {
            return false;
        }
        self.due.push((branch.clone(), Reason::Budget));
        let state = self.branches.get(branch);
        let may_reduce = state.is_none_or(|state| state.position == Position::Closed && state.reduced.is_none());
        matches!(action, Action::ReduceView) && may_reduce
    }

    /// Returns the blueprint's action. A worker without budget is not triggered about it; its branch is stopped
    /// instead.
    fn action(&self, branch: &Branch, reason: Reason) -> Action {
        match &self.actions[&reason] {
            Action::Wake(woken) if reason == Reason::Budget && *woken == branch.1 => Action::StopBranch,
            action => action.clone(),
        }
    }

    /// Checks that a call is not one of a stopped branch.
    pub(super) fn called(&mut self, branch: &Branch, is_first: bool) {
        let seed = self.seed;
        let state = self.branches.entry(branch.clone()).or_default();
        let is_stopped = match state.position {
            Position::Open(_, by_budget) => is_first || !by_budget,
            Position::Closed | Position::Half(_) => false,
        };
        assert!(!is_stopped, "SEED={seed}: a stopped branch was called: {branch:?}");
        if let Position::Half(was_tried) = &mut state.position {
            *was_tried = true;
        }
    }

    /// Checks that a breaker moved with a cause, and in the way the blueprint says.
    pub(super) fn moved(&mut self, branch: &Branch, change: BreakerTransition, reason: Reason) -> Moved {
        let (seed, decisions) = (self.seed, self.decisions);
        let place = self.due.iter().position(|(one, why)| one == branch && *why == reason);
        let action = self.actions.contains_key(&reason).then(|| self.action(branch, reason));
        let state = self.branches.entry(branch.clone()).or_default();
        match (reason, state.position) {
            (Reason::Cooldown, Position::Open(since, _)) => {
                assert!(decisions >= since + self.cooldown, "SEED={seed}: {branch:?} cooled down too soon");
            }
            (Reason::Cooldown, position) => panic!("SEED={seed}: {branch:?} cools down and is {position:?}"),
            _ => assert!(place.is_some(), "SEED={seed}: {branch:?} {change} for {reason} without a cause"),
        }
        if let Some(place) = place {
            self.due.remove(place);
        }
        let may_reduce = state.position == Position::Closed && state.reduced.is_none();
        let due = match (&action, reason) {
            (Some(Action::ReduceView), _) if may_reduce => BreakerTransition::Reduced,
            (Some(_), _) => BreakerTransition::Opened,
            (None, Reason::Cooldown | Reason::Retried) => BreakerTransition::HalfOpened,
            (None, Reason::ProbeCommitted) => BreakerTransition::Closed,
            (None, _) => BreakerTransition::Opened,
        };
        assert_eq!(change, due, "SEED={seed}: what {branch:?} comes to for {reason}; {action:?}");
        (state.rejections, state.no_ops, state.passes, state.crashes) = (0, 0, 0, 0);
        state.is_try_lost = false;
        match change {
            BreakerTransition::Reduced => state.reduced = Some(reason),
            BreakerTransition::Opened => state.position = Position::Open(decisions, reason == Reason::Budget),
            BreakerTransition::HalfOpened => state.position = Position::Half(false),
            BreakerTransition::Closed => (state.position, state.reduced) = (Position::Closed, None),
        }
        if matches!(change, BreakerTransition::Reduced | BreakerTransition::Opened) {
            state.fingerprints.clear();
        }
        Moved {
            gives_up: change == BreakerTransition::Opened && reason != Reason::Budget,
            stops: (action == Some(Action::StopBoard)).then(|| cause(reason)),
            wakes: match action {
                Some(Action::Wake(woken)) => Some(woken),
                _ => None,
            },
        }
    }

    /// Checks that no due move is missing.
    pub(super) fn at_the_end_of_a_step(&mut self) {
        let due = std::mem::take(&mut self.due);
        assert!(due.is_empty(), "SEED={}: breakers should have moved: {due:?}", self.seed);
        for (branch, state) in &self.branches {
            if let Position::Open(since, _) = state.position {
                let is_cold = self.decisions >= since + self.cooldown;
                assert!(!is_cold, "SEED={}: {branch:?} should have cooled down", self.seed);
            }
        }
    }
}

/// Returns the cause with which a board ends that a breaker stops for this reason.
fn cause(reason: Reason) -> Cause {
    match reason {
        Reason::Rejections => Cause::Rejections,
        Reason::NoOps => Cause::NoOps,
        Reason::Passes => Cause::Passes,
        Reason::Crashes => Cause::Crashes,
        Reason::Cycles => Cause::Cycles,
        Reason::Budget => Cause::Budget,
        Reason::Cooldown | Reason::ProbeCommitted | Reason::ProbeFailed | Reason::Retried => {
            panic!("{reason} has no action")
        }
    }
}
