//! Ends of boards, and their causes.

use patchboard_kernel::board::Input;
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::{Body, Cause, End, Ended, LimitOverrides};
use serde_json::Value;

pub(super) struct Ends {
    seed: u64,
    tasks_min: usize,
    commits_max: u64,
    wall_ms: u64,
    /// False if the board waits for external input, and therefore never stalls.
    has_rules: bool,
    /// End of the board, if it has ended or stalled.
    ended: Option<Ended>,
    is_paused: bool,
    /// True if a budget ran short at some time.
    was_short: bool,
    /// True if an invocation was given up at some time.
    gave_up: bool,
    running_ms: i64,
    last_at: Timestamp,
    /// Cause in the present step that ends the board.
    stops: Option<Cause>,
    has_committed: bool,
}

/// Pending work of a board.
#[derive(Clone, Copy)]
pub(super) struct Work {
    /// Calls, questions to persons or timers are pending.
    pub(super) is_under_way: bool,
    /// Invocations are queued, or a branch is stopped.
    pub(super) is_held_back: bool,
}

impl Ends {
    pub(super) fn new(seed: u64, blueprint: &Value, wall_ms: u64, at: Timestamp) -> Self {
        let when = blueprint["done"]["when"].as_str().unwrap_or_default();
        let tasks_min = when.strip_prefix("size(state.tasks) >= ").and_then(|rest| rest.split(' ').next());
        let commits_max = blueprint["limits"]["commits"].as_u64().expect("it is spelled out");
        Self {
            seed,
            tasks_min: tasks_min.and_then(|number| number.parse().ok()).unwrap_or(usize::MAX),
            commits_max,
            wall_ms,
            has_rules: blueprint["rules"].as_array().is_some_and(|rules| !rules.is_empty()),
            ended: None,
            is_paused: false,
            was_short: false,
            gave_up: false,
            running_ms: 0,
            last_at: at,
            stops: None,
            has_committed: false,
        }
    }

    /// Adds running time while the board runs and a call is under way, without jumps of the clock.
    pub(super) fn passes(&mut self, at: Timestamp, body: &Body, waits: bool) {
        let runs = !self.is_paused && self.ended.is_none() && !waits;
        let jumped = if let Body::Jumped(jumped) = body { jumped.ms.cast_signed() } else { 0 };
        if runs && !matches!(body, Body::Epoch(_)) {
            self.running_ms += at.0 - self.last_at.0 - jumped;
        }
        self.last_at = at;
    }

    pub(super) const fn is_paused(&self) -> bool {
        self.is_paused
    }

    pub(super) const fn paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    pub(super) const fn ran_short(&mut self) {
        self.was_short = true;
    }

    pub(super) fn gave_up(&mut self, is_final: bool) {
        self.gave_up |= is_final;
    }

    /// Records that a breaker stops the board; the first cause counts.
    pub(super) fn stops(&mut self, cause: Option<Cause>) {
        self.stops = self.stops.or(cause);
    }

    pub(super) fn committed(&mut self) {
        self.has_committed = true;
        self.wakes();
    }

    /// Clears the end of a board that only stalled.
    pub(super) fn wakes(&mut self) {
        self.ended = self.ended.filter(|ended| ended.is_final());
    }

    /// Continues the board after an operator's retry, which may raise limits. `is_any_left`: other invocations stay
    /// given up.
    pub(super) fn retried(&mut self, raised: &LimitOverrides, is_any_left: bool) {
        (self.commits_max, self.wall_ms) = self.raised(raised);
        (self.ended, self.was_short, self.gave_up, self.is_paused) = (None, false, is_any_left, false);
    }

    fn raised(&self, raised: &LimitOverrides) -> (u64, u64) {
        (self.commits_max.max(raised.commits.unwrap_or(0)), self.wall_ms.max(raised.wall_ms.unwrap_or(0)))
    }

    /// Returns true if a limit would be higher.
    pub(super) fn is_raised(&self, raised: &LimitOverrides) -> bool {
        self.raised(raised) != (self.commits_max, self.wall_ms)
    }

    /// Returns true if a limit would still be reached.
    pub(super) fn is_reached(&self, raised: &LimitOverrides, version: usize) -> bool {
        let (commits, wall) = self.raised(raised);
        version as u64 >= commits || self.running_ms.cast_unsigned() >= wall
    }

    /// Returns true if the end permits no retry.
    pub(super) fn is_for_good(&self) -> bool {
        self.ended.is_some_and(|ended| matches!(ended.cause, Cause::Done | Cause::Cancelled))
    }

    pub(super) const fn is_over_or_rests(&self) -> bool {
        self.ended.is_some()
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some_and(Ended::is_final)
    }

    pub(super) fn is_at_work(&self) -> bool {
        self.ended.is_none() && !self.is_paused
    }

    /// Compares how the board ended in a step, if it did. `is_step`: the step was more than a note.
    pub(super) fn compare(
        &mut self,
        input: Option<&Input>,
        found: Option<Ended>,
        is_step: bool,
        document: &Value,
        version: usize,
        work: Work,
    ) {
        let due = self.due(input, is_step, document, version, work);
        let seed = self.seed;
        assert_eq!(found, due, "SEED={seed}: the board should end otherwise; {} ms, {document}", self.running_ms);
        self.ended = due.or(self.ended);
        (self.stops, self.has_committed) = (None, false);
    }

    fn due(&self, input: Option<&Input>, is_step: bool, document: &Value, version: usize, work: Work) -> Option<Ended> {
        // An ended board does not end again, unless it is stalled and cancelled.
        if let Some(ended) = self.ended {
            let is_cancelled = !ended.is_final() && matches!(input, Some(Input::Cancel));
            return is_cancelled.then_some(Ended { end: End::Cancelled, cause: Cause::Cancelled });
        }
        let tasks = document["tasks"].as_array().map_or(&[][..], Vec::as_slice);
        let is_done = tasks.len() >= self.tasks_min && tasks.iter().all(|task| task["checked"] == true);
        let stopped = |cause| Some(Ended { end: End::Stopped, cause });
        match input {
            Some(Input::Cancel) => return Some(Ended { end: End::Cancelled, cause: Cause::Cancelled }),
            Some(Input::Meltdown) => return Some(Ended { end: End::Failed, cause: Cause::Meltdown }),
            _ if !is_step => return None,
            _ if self.has_committed && is_done => return Some(Ended { end: End::Done, cause: Cause::Done }),
            _ if self.stops.is_some() => return self.stops.and_then(stopped),
            _ if version as u64 >= self.commits_max => return stopped(Cause::Commits),
            _ if self.running_ms.cast_unsigned() >= self.wall_ms => return stopped(Cause::Wall),
            _ if self.is_paused || work.is_under_way || !self.has_rules => return None,
            _ => {}
        }
        match (self.was_short, work.is_held_back, self.gave_up) {
            (true, ..) => stopped(Cause::Exhausted),
            (false, true, _) => stopped(Cause::Breaker),
            (false, false, true) => Some(Ended { end: End::Quiescent, cause: Cause::GaveUp }),
            (false, false, false) => Some(Ended { end: End::Quiescent, cause: Cause::NothingToDo }),
        }
    }
}
