//! When a breaker moves.

use std::collections::{BTreeMap, VecDeque};

use patchboard_kernel::board::Board;
use patchboard_kernel::breaker::{Change, Reason};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::rejection::Stage;
use serde_json::Value;

use super::Branch;

pub(super) struct Circuit {
    seed: u64,
    rejections: u64,
    no_ops: u64,
    crashes: u64,
    window: usize,
    repeats: usize,
    cooldown: u64,
    /// Outcomes of the whole board.
    decisions: u64,
    branches: BTreeMap<Branch, State>,
    /// Moves that must be made before the step is over.
    due: Vec<(Branch, Reason)>,
}

#[derive(Default)]
struct State {
    rejections: u64,
    no_ops: u64,
    crashes: u64,
    /// What the last commits wrote, and whether each had been there before among them.
    fingerprints: VecDeque<(String, bool)>,
    position: Position,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Position {
    #[default]
    Closed,
    Reduced,
    /// Since that many decisions; and whether because a budget ran short, for which nothing that is under way is given up.
    Open(u64, bool),
    /// Whether its one try was made.
    Half(bool),
}

impl Circuit {
    pub(super) fn new(seed: u64, circuit: &Value) -> Self {
        let number = |value: &Value| value.as_u64().expect("defaults are spelled out");
        Self {
            seed,
            rejections: number(&circuit["rejections"]["limit"]),
            no_ops: number(&circuit["no_ops"]["limit"]),
            crashes: number(&circuit["crashes"]["limit"]),
            window: number(&circuit["cycles"]["window"]) as usize,
            repeats: number(&circuit["cycles"]["repeats"]) as usize,
            cooldown: number(&circuit["cooldown"]),
            decisions: 0,
            branches: BTreeMap::new(),
            due: Vec::new(),
        }
    }

    /// An outcome that moves no breaker, of a reply.
    pub(super) fn decided(&mut self, branch: Option<&Branch>) {
        self.decisions += 1;
        self.answered(branch);
    }

    /// An agent that answers does not crash.
    fn answered(&mut self, branch: Option<&Branch>) {
        if let Some(state) = branch.and_then(|branch| self.branches.get_mut(branch)) {
            state.crashes = 0;
        }
    }

    pub(super) fn committed(&mut self, branch: Option<&Branch>, written: &[String], now: &Value) {
        self.decided(branch);
        let Some(branch) = branch else { return };
        let (window, repeats) = (self.window, self.repeats);
        let state = self.branches.entry(branch.clone()).or_default();
        (state.rejections, state.no_ops) = (0, 0);
        let there: Vec<(&String, Option<&Value>)> =
            written.iter().map(|place| (place, now.pointer(place.trim_end_matches("/-")))).collect();
        let fingerprint = format!("{there:?}");
        let is_return = state.fingerprints.iter().any(|(one, _)| *one == fingerprint);
        state.fingerprints.push_back((fingerprint, is_return));
        if state.fingerprints.len() > window {
            state.fingerprints.pop_front();
        }
        let returns = state.fingerprints.iter().filter(|(_, is_return)| *is_return).count();
        if matches!(state.position, Position::Half(_)) {
            self.due.push((branch.clone(), Reason::ProbeCommitted));
        } else if returns >= repeats {
            self.due.push((branch.clone(), Reason::Cycles));
        }
    }

    pub(super) fn changed_nothing(&mut self, branch: Option<&Branch>) {
        self.decided(branch);
        let Some(branch) = branch else { return };
        let limit = self.no_ops;
        let state = self.branches.entry(branch.clone()).or_default();
        state.no_ops += 1;
        if matches!(state.position, Position::Half(_)) {
            self.due.push((branch.clone(), Reason::ProbeFailed));
        } else if state.no_ops >= limit {
            self.due.push((branch.clone(), Reason::NoOps));
        }
    }

    pub(super) fn refused(&mut self, branch: Option<&Branch>, stage: Stage, is_final: bool) {
        self.decided(branch);
        let Some(branch) = branch else { return };
        let limit = self.rejections;
        let state = self.branches.entry(branch.clone()).or_default();
        // Conflicts are nobody's fault.
        if stage != Stage::Freshness {
            state.rejections += 1;
        }
        if matches!(state.position, Position::Half(_)) {
            if is_final {
                self.due.push((branch.clone(), Reason::ProbeFailed));
            }
        } else if state.rejections >= limit {
            self.due.push((branch.clone(), Reason::Rejections));
        }
    }

    pub(super) fn failed(&mut self, branch: Option<&Branch>, code: FailureCode, is_final: bool) {
        self.decisions += 1;
        let (Some(branch), true) = (branch, is_final) else { return };
        let limit = self.crashes;
        let state = self.branches.entry(branch.clone()).or_default();
        if code == FailureCode::Crashed {
            state.crashes += 1;
        }
        if matches!(state.position, Position::Half(_)) {
            self.due.push((branch.clone(), Reason::ProbeFailed));
        } else if state.crashes >= limit {
            self.due.push((branch.clone(), Reason::Crashes));
        }
    }

    /// A call is made: none of a stopped branch.
    pub(super) fn called(&mut self, branch: &Branch, is_first: bool) {
        let seed = self.seed;
        let state = self.branches.entry(branch.clone()).or_default();
        let is_stopped = match state.position {
            Position::Open(_, by_budget) => is_first || !by_budget,
            _ => false,
        };
        assert!(!is_stopped, "SEED={seed}: a stopped branch was called: {branch:?}");
        if let Position::Half(was_tried) = &mut state.position {
            *was_tried = true;
        }
    }

    /// A breaker has moved; whether the branch's calls are over.
    pub(super) fn moved(&mut self, branch: &Branch, change: Change, reason: Reason) -> bool {
        let seed = self.seed;
        let place = self.due.iter().position(|(one, why)| one == branch && *why == reason);
        let state = self.branches.entry(branch.clone()).or_default();
        match (reason, state.position) {
            (Reason::Budget, _) => {}
            (Reason::Cooldown, Position::Open(since, _)) => {
                assert!(self.decisions >= since + self.cooldown, "SEED={seed}: {branch:?} cooled down too soon");
            }
            (Reason::Cooldown, position) => panic!("SEED={seed}: {branch:?} cools down and is {position:?}"),
            _ => {
                assert!(place.is_some(), "SEED={seed}: {branch:?} {change} for {reason} without a cause");
            }
        }
        if let Some(place) = place {
            self.due.remove(place);
        }
        (state.rejections, state.no_ops, state.crashes) = (0, 0, 0);
        if matches!(reason, Reason::Cycles) {
            state.fingerprints.clear();
        }
        state.position = match change {
            Change::Reduced => Position::Reduced,
            Change::Opened => Position::Open(self.decisions, reason == Reason::Budget),
            Change::HalfOpened => Position::Half(false),
            Change::Closed => Position::Closed,
        };
        change == Change::Opened && reason != Reason::Budget
    }

    /// Nothing that was due was left out.
    pub(super) fn at_the_end_of_a_step(&mut self, is_over: bool, _: &Board) {
        let due = std::mem::take(&mut self.due);
        if is_over {
            return;
        }
        assert!(due.is_empty(), "SEED={}: breakers should have moved: {due:?}", self.seed);
        for (branch, state) in &self.branches {
            if let Position::Open(since, _) = state.position {
                let is_cold = self.decisions >= since + self.cooldown;
                assert!(!is_cold, "SEED={}: {branch:?} should have cooled down", self.seed);
            }
        }
    }
}
