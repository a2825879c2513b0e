//! Order and number of calls: one queue, a concurrency limit, and limits for each invocation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use patchboard_kernel::board::Step;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{InvocationId, Seq, Timestamp, WorkerName};
use patchboard_kernel::record::{Author, Invoked, Rejected, Reserved};
use patchboard_kernel::rejection::Stage;
use serde_json::Value;

use super::{Branch, proposals};

/// Duration of a reservation, in decisions and in milliseconds.
const KEPT: (u64, i64) = (8, 30_000);

/// Number of losses that an invocation survives; the next one ends it.
const LOST_MAX: u64 = 8;

pub(super) struct Calls {
    seed: u64,
    concurrency: usize,
    limits: BTreeMap<String, Limits>,
    /// First come, first served.
    queue: VecDeque<(InvocationId, Branch)>,
    open: BTreeMap<InvocationId, Open>,
    kept: BTreeMap<InvocationId, Kept>,
    /// Places that a just rejected invocation must get reserved, unless another invocation holds them.
    due: Option<(InvocationId, BTreeSet<String>)>,
    /// Attempts that the gate holds back.
    held: BTreeSet<(InvocationId, u32)>,
    /// Attempts of a former owner, which must be recorded as lost.
    orphans: Vec<(InvocationId, u32)>,
}

struct Limits {
    attempts: u64,
    conflicts: u64,
    /// True if the concurrency limit leaves it out.
    is_unmetered: bool,
    /// True if the program loses its state with the process.
    is_lost_at_once: bool,
    /// True if its calls need admission.
    is_gated: bool,
}

/// An open invocation.
pub(super) struct Open {
    branch: Branch,
    pub(super) worker: WorkerName,
    pub(super) attempt: u32,
    pub(super) base: usize,
    pub(super) reads: Vec<String>,
    pub(super) is_calling: bool,
    asked: Option<Seq>,
    lost: u64,
    conflicts: u64,
    /// Places where its last attempt met a reservation of another invocation.
    met_kept: Vec<String>,
    /// Attempts that the provider did not take.
    deferred: u64,
    /// True if the invocation waits for its provider.
    waits: bool,
}

/// A reservation for an invocation.
struct Kept {
    places: Vec<String>,
    decisions: u64,
    until: Timestamp,
}

/// A moment: the time, and the board's count of decisions.
pub(super) type Moment = (Timestamp, u64);

impl Calls {
    pub(super) fn new(seed: u64, blueprint: &Value) -> Self {
        let number = |value: &Value| value.as_u64().expect("defaults are spelled out");
        let workers = blueprint["workers"].as_object().into_iter().flatten();
        let limits = workers.map(|(name, worker)| {
            let limits = Limits {
                attempts: number(&worker["limits"]["attempts"]),
                conflicts: number(&worker["limits"]["conflicts"]),
                is_unmetered: worker["limits"]["unmetered_concurrency"] == true,
                is_gated: worker["agent"] == "llm",
                is_lost_at_once: worker["agent"] == "command" && worker["restart"] == "fail",
            };
            (name.clone(), limits)
        });
        Self {
            seed,
            concurrency: number(&blueprint["concurrency"]) as usize,
            limits: limits.collect(),
            queue: VecDeque::new(),
            open: BTreeMap::new(),
            kept: BTreeMap::new(),
            due: None,
            held: BTreeSet::new(),
            orphans: Vec::new(),
        }
    }

    /// Records that the gate holds an attempt back, or lets it through.
    pub(super) fn asked_gate(&mut self, attempt: (InvocationId, u32), is_held: bool) {
        match is_held {
            true => self.held.insert(attempt),
            false => self.held.remove(&attempt),
        };
    }

    /// Limits the held calls to those that a step names, if it names any.
    pub(super) fn named(&mut self, step: &Step) {
        if let Some(named) = &step.effects.awaiting_admission {
            let is_named = |key: &(InvocationId, u32)| named.iter().any(|call| (call.invocation, call.attempt) == *key);
            self.held.retain(is_named);
        }
    }

    /// Returns true if the gate holds any call back.
    pub(super) fn is_any_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns true if an invocation's next attempt waits for its provider.
    fn is_held(&self, invocation: InvocationId) -> bool {
        let open = self.open.get(&invocation);
        let attempt = open.map_or(1, |open| open.attempt + 1);
        open.is_some_and(|open| open.waits) || self.held.contains(&(invocation, attempt))
    }

    /// Returns the open invocation of an attempt, if its answer is awaited.
    pub(super) fn awaited(&self, invocation: InvocationId, attempt: u32) -> Option<&Open> {
        self.open.get(&invocation).filter(|open| open.is_calling && open.attempt == attempt)
    }

    pub(super) fn is_open(&self, invocation: InvocationId) -> bool {
        self.open.contains_key(&invocation)
    }

    /// Returns true if no invocation is open.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns true if any call is under way.
    pub(super) fn is_calling(&self) -> bool {
        self.open.values().any(|open| open.is_calling)
    }

    pub(super) fn is_queued(&self, may: impl Fn(&Branch) -> bool) -> bool {
        self.queue.iter().any(|(_, branch)| may(branch))
    }

    /// Returns open invocations, then the queue, each in its order.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = InvocationId> {
        self.open.keys().copied().chain(self.queue.iter().map(|(invocation, _)| *invocation))
    }

    /// Returns true if any language-model call is under way, queued or due for a retry.
    pub(super) fn is_any_gated(&self) -> bool {
        self.count(|branch| self.is_gated(&branch.1)) > 0
    }

    /// Counts the open and queued invocations for which `is_such` holds.
    pub(super) fn count(&self, is_such: impl Fn(&Branch) -> bool) -> usize {
        let under_way = self.open.values().map(|open| &open.branch);
        under_way.chain(self.queue.iter().map(|(_, branch)| branch)).filter(|branch| is_such(branch)).count()
    }

    pub(super) fn queued(&mut self, invocation: InvocationId, branch: &Branch) {
        self.queue.push_back((invocation, branch.clone()));
    }

    /// Checks that an attempt starts in its turn: open invocations that are due first, then the first admissible one
    /// in the queue. Calls for which `may_wait` holds wait for a budget that other calls have reserved. If they need
    /// admission, they are passed over.
    pub(super) fn called(
        &mut self,
        invoked: &Invoked,
        base: usize,
        now: Moment,
        admits: impl Fn(&Branch) -> bool,
        may_wait: impl Fn(&Branch) -> bool,
    ) {
        let (seed, invocation) = (self.seed, invoked.invocation);
        let is_before = |other: InvocationId| other < invocation || !self.open.contains_key(&invocation);
        // Calls that need admission come after those that need none.
        let is_gated = self.is_gated(invoked.worker.as_str());
        let goes_before = |branch: &Branch| is_gated || !self.is_gated(&branch.1);
        let passed_over = self.again(now).find(|other| {
            let branch = &self.open[other].branch;
            let may_wait = is_gated && may_wait(branch);
            is_before(*other)
                && !may_wait
                && !self.is_held(*other)
                && self.may_call(branch)
                && self.is_gated(&branch.1) == is_gated
        });
        assert_eq!(passed_over, None, "SEED={seed}: {invocation} was called before one that was due again");
        let attempt = match self.open.get(&invocation) {
            Some(open) => {
                assert!(!open.is_calling, "SEED={seed}: two attempts of {invocation} at once");
                assert_eq!(open.asked, None, "SEED={seed}: {invocation} is called and waits for a person");
                let met = |kept: &&str| open.met_kept.iter().any(|met| overlap(met, kept));
                let kept = self.kept_from(Some(invocation), now).find(met);
                assert_eq!(kept, None, "SEED={seed}: {invocation} is called while that is kept from it");
                open.attempt + 1
            }
            None => {
                let may_go = |branch: &Branch| self.may_begin(branch) && admits(branch) && goes_before(branch);
                let is_passed_over = |queued: InvocationId, branch: &Branch| {
                    self.is_held(queued) || (is_gated && queued != invocation && may_wait(branch))
                };
                let mut may_go_now =
                    self.queue.iter().filter(|(queued, branch)| may_go(branch) && !is_passed_over(*queued, branch));
                let ungated = may_go_now.clone().find(|(_, branch)| !self.is_gated(&branch.1));
                let first = ungated.or_else(|| may_go_now.next()).map(|(first, _)| *first);
                assert_eq!(first, Some(invocation), "SEED={seed}: {invocation} went before its turn");
                1
            }
        };
        assert_eq!(attempt, invoked.attempt, "SEED={seed}: attempts of {invocation} have gaps");
        let before = self.open.get(&invocation);
        let (lost, conflicts) = before.map_or((0, 0), |open| (open.lost, open.conflicts));
        let deferred = before.map_or(0, |open| open.deferred);
        let branch = match self.open.remove(&invocation) {
            Some(open) => open.branch,
            None => self.unqueue(invocation).expect("it is the first"),
        };
        assert_eq!(branch.1, invoked.worker.as_str(), "SEED={seed}: {invocation} is another worker's");
        let (worker, reads) = (invoked.worker.clone(), invoked.reads.clone());
        let (is_calling, asked, met_kept, waits) = (true, None, Vec::new(), false);
        let open = Open {
            branch,
            worker,
            attempt,
            base,
            reads,
            is_calling,
            asked,
            lost,
            conflicts,
            deferred,
            waits,
            met_kept,
        };
        self.open.insert(invocation, open);
    }

    fn unqueue(&mut self, invocation: InvocationId) -> Option<Branch> {
        let place = self.queue.iter().position(|(queued, _)| *queued == invocation)?;
        Some(self.queue.remove(place)?.1)
    }

    /// Returns the open invocations that are due for another attempt and not blocked.
    fn again(&self, now: Moment) -> impl Iterator<Item = InvocationId> {
        let is_due = move |invocation: InvocationId, open: &Open| {
            let is_held_up = !open.met_kept.is_empty() && self.kept_from(Some(invocation), now).next().is_some();
            !open.is_calling && open.asked.is_none() && !is_held_up
        };
        self.open.iter().filter(move |(invocation, open)| is_due(**invocation, open)).map(|(invocation, _)| *invocation)
    }

    /// Closes the attempt, or the question to a person about it; with `ends`, the whole invocation. Returns the
    /// branch.
    pub(super) fn answered(&mut self, by: &Author, ends: bool) -> Option<Branch> {
        let attempt = by.attempt.as_ref()?;
        let seed = self.seed;
        let open = self.open.get_mut(&attempt.invocation);
        let awaited = open.filter(|open| {
            let is_awaited = open.is_calling || (open.asked.is_some() && open.asked == by.approval);
            is_awaited && open.attempt == attempt.number
        });
        let open = awaited.unwrap_or_else(|| panic!("SEED={seed}: an outcome of an attempt that is not under way"));
        (open.is_calling, open.asked) = (false, None);
        let branch = open.branch.clone();
        if ends {
            self.give_up(attempt.invocation);
        }
        Some(branch)
    }

    /// Like [`Self::answered`], for a rejection. Also compares if it had to be the last one.
    pub(super) fn refused(&mut self, rejected: &Rejected) -> Option<Branch> {
        let seed = self.seed;
        let invocation = rejected.by.attempt.as_ref().map(|attempt| attempt.invocation);
        let is_conflict = rejected.stage == Stage::Freshness;
        let open = invocation.and_then(|invocation| self.open.get_mut(&invocation));
        let is_last = open.is_some_and(|open| {
            let limits = &self.limits[&open.branch.1];
            let is_last = match is_conflict {
                true => open.conflicts + 1 >= limits.conflicts,
                false => rejected.code.as_str() == "approval_expired" || open.has_used_up(limits),
            };
            open.conflicts += u64::from(is_conflict);
            let reserved = rejected.rejection.violations.iter().filter(|one| one.code.as_str() == "reserved");
            open.met_kept = reserved.map(|one| one.pointer.clone()).collect();
            is_last
        });
        let others = rejected.rejection.violations.iter().filter(|one| one.code.as_str() != "reserved");
        let changed: BTreeSet<String> = others.map(|one| one.pointer.clone()).collect();
        if let Some(invocation) = invocation.filter(|_| is_conflict && !is_last && !changed.is_empty()) {
            let written = proposals::targets(&rejected.reply);
            self.due = Some((invocation, changed.into_iter().chain(written).collect()));
        }
        assert_eq!(rejected.is_final, is_last, "SEED={seed}: whether {invocation:?} has another attempt");
        self.answered(&rejected.by, is_last)
    }

    /// Records an attempt that failed without an answer.
    pub(super) fn failed(&mut self, by: &Author, code: FailureCode, is_final: bool) -> Option<Branch> {
        let invocation = by.attempt.as_ref()?.invocation;
        let seed = self.seed;
        let Some(open) = self.open.get_mut(&invocation) else {
            panic!("SEED={seed}: {invocation} fails and is not under way")
        };
        let limits = &self.limits[&open.branch.1];
        let is_last = match code {
            FailureCode::Lost => {
                open.lost += 1;
                limits.is_lost_at_once || open.lost > LOST_MAX
            }
            FailureCode::Refused
            | FailureCode::RateLimited
            | FailureCode::CassetteMiss
            | FailureCode::BudgetExhausted
            | FailureCode::NotConfigured => true,
            FailureCode::Timeout
            | FailureCode::Unreachable
            | FailureCode::Truncated
            | FailureCode::Empty
            | FailureCode::Protocol
            | FailureCode::Crashed
            | FailureCode::LeaseExpired => open.has_used_up(limits),
        };
        assert_eq!(is_final, is_last, "SEED={seed}: whether {invocation} has another attempt after {code}");
        self.answered(by, is_last)
    }

    /// Records that the provider did not take the request of an attempt; the attempt does not count.
    pub(super) fn deferred(&mut self, by: &Author) {
        let seed = self.seed;
        drop(self.answered(by, false));
        let open = by.attempt.as_ref().and_then(|attempt| self.open.get_mut(&attempt.invocation));
        let open = open.unwrap_or_else(|| panic!("SEED={seed}: a call is deferred that is not under way"));
        assert!(self.limits[&open.branch.1].is_gated, "SEED={seed}: a call is deferred that needs no admission");
        (open.deferred, open.waits) = (open.deferred + 1, true);
    }

    /// Ends all waits for providers, after an operator resumed the board.
    pub(super) fn resumed(&mut self) {
        self.open.values_mut().for_each(|open| open.waits = false);
    }

    /// Records that a proposal waits for a person.
    pub(super) fn asks(&mut self, by: &Author, question: Seq) -> Option<Branch> {
        let branch = self.answered(by, false)?;
        let open = by.attempt.as_ref().and_then(|attempt| self.open.get_mut(&attempt.invocation))?;
        open.asked = Some(question);
        Some(branch)
    }

    /// Removes an invocation, even while its call is under way.
    pub(super) fn give_up(&mut self, invocation: InvocationId) {
        self.unqueue(invocation);
        self.open.remove(&invocation);
        self.kept.remove(&invocation);
    }

    /// Records a takeover: answers to the former owner's calls are lost.
    pub(super) fn taken_over(&mut self) {
        let calling = self.open.iter().filter(|(_, open)| open.is_calling);
        self.orphans = calling.map(|(invocation, open)| (*invocation, open.attempt)).collect();
    }

    /// Closes the open invocations of a branch, and returns them.
    pub(super) fn stopped(&mut self, branch: &Branch) -> Vec<InvocationId> {
        let stopped = self.open.extract_if(.., |_, open| open.branch == *branch);
        let stopped = stopped.map(|(invocation, _)| invocation).collect();
        self.kept.retain(|invocation, _| self.open.contains_key(invocation));
        stopped
    }

    /// Clears all state when the board has ended for good.
    pub(super) fn ended(&mut self) {
        self.queue.clear();
        self.open.clear();
        self.kept.clear();
    }

    /// Extends the reservations by a jump of the clock.
    pub(super) fn jumped(&mut self, ms: u64) {
        self.kept.values_mut().for_each(|kept| kept.until = kept.until.plus_ms(ms));
    }

    /// Checks the reservation after a conflict. It covers exactly the changed places and the targets, except those
    /// that another invocation has reserved.
    pub(super) fn compare_kept(&mut self, found: Option<&Reserved>, now: Moment) {
        let Some((invocation, mut places)) = self.due.take() else {
            assert!(found.is_none(), "SEED={}: places are kept for who was not refused for them", self.seed);
            return;
        };
        places.retain(|place| !self.kept_from(Some(invocation), now).any(|kept| overlap(kept, place)));
        let found = found.filter(|found| found.invocation == invocation);
        let found: BTreeSet<String> = found.into_iter().flat_map(|found| found.places.iter().cloned()).collect();
        assert_eq!(found, places, "SEED={}: other places are kept for {invocation}", self.seed);
    }

    /// Records a reservation for an invocation.
    pub(super) fn keeps(&mut self, reserved: &Reserved, (at, decisions): Moment) {
        let seed = self.seed;
        let (invocation, until) = (reserved.invocation, reserved.until);
        assert_eq!(reserved.decisions, decisions + KEPT.0, "SEED={seed}: places are kept for other than 8 decisions");
        assert_eq!(until.0, at.0 + KEPT.1, "SEED={seed}: places are kept for other than 30 s");
        let open = self.open.get(&invocation);
        assert!(open.is_some_and(|open| !open.is_calling), "SEED={seed}: places are kept for who has no next attempt");
        let kept = Kept { places: reserved.places.clone(), decisions: reserved.decisions, until };
        self.kept.insert(invocation, kept);
    }

    /// Returns the places that are reserved for other invocations.
    fn kept_from(&self, own: Option<InvocationId>, (at, decisions): Moment) -> impl Iterator<Item = &str> {
        let others = self.kept.iter().filter(move |(invocation, _)| Some(**invocation) != own);
        let standing = others.filter(move |(_, kept)| kept.until > at && kept.decisions > decisions);
        standing.flat_map(|(_, kept)| kept.places.iter().map(String::as_str))
    }

    /// Returns true if any place is reserved for another invocation.
    pub(super) fn is_kept(&self, own: Option<InvocationId>, now: Moment) -> bool {
        self.kept_from(own, now).next().is_some()
    }

    /// Checks that a commit wrote to no place that is reserved for another invocation.
    pub(super) fn writes(&self, by: &Author, written: &[String], now: Moment) {
        let own = by.attempt.as_ref().map(|attempt| attempt.invocation);
        for place in written.iter().filter(|place| !place.ends_with("/-")) {
            let kept = self.kept_from(own, now).find(|kept| overlap(kept, place));
            assert_eq!(kept, None, "SEED={}: {place} was written and kept for somebody else", self.seed);
        }
    }

    fn is_gated(&self, worker: &str) -> bool {
        self.limits[worker].is_gated
    }

    /// Returns the open invocations that count towards the concurrency limit.
    fn placed(&self) -> impl Iterator<Item = &Open> {
        self.open.values().filter(|open| !self.limits[&open.branch.1].is_unmetered)
    }

    /// Returns the open invocations of an unmetered worker, and `None` for other workers.
    fn own(&self, branch: &Branch) -> Option<impl Iterator<Item = &Open>> {
        let worker = branch.1.clone();
        let is_unmetered = self.limits[&worker].is_unmetered;
        is_unmetered.then(|| self.open.values().filter(move |open| open.branch.1 == worker))
    }

    /// Returns true if the branch may make one more call. An unmetered worker makes one at a time.
    fn may_call(&self, branch: &Branch) -> bool {
        match self.own(branch) {
            Some(mut own) => !own.any(|open| open.is_calling),
            None => self.placed().filter(|open| open.is_calling).count() < self.concurrency,
        }
    }

    /// Returns true if the branch may begin one more invocation. One that waits for a person leaves its place.
    fn may_begin(&self, branch: &Branch) -> bool {
        match self.own(branch) {
            Some(mut own) => own.all(|open| open.asked.is_some() || open.waits),
            None => {
                let taken = self.placed().filter(|open| open.asked.is_none() && !open.waits).count();
                taken < self.concurrency && self.may_call(branch)
            }
        }
    }

    /// Checks that the concurrency limit holds, and that no admissible call waits while a place is free. `may_wait`:
    /// the call may wait for a budget that other calls have reserved.
    pub(super) fn at_the_end_of_a_step(
        &mut self,
        is_at_work: bool,
        now: Moment,
        admits: impl Fn(&Branch) -> bool,
        may_wait: impl Fn(&Branch) -> bool,
    ) {
        let seed = self.seed;
        for (invocation, attempt) in std::mem::take(&mut self.orphans) {
            let is_awaited = self.awaited(invocation, attempt).is_some();
            assert!(!is_awaited, "SEED={seed}: a call that is lost is waited for, {invocation}");
        }
        let calling = self.placed().filter(|open| open.is_calling).count();
        assert!(calling <= self.concurrency, "SEED={seed}: {calling} calls at once");
        if !is_at_work {
            return;
        }
        // At most `concurrency` model calls wait for the gate.
        let queued = self.queue.iter().map(|(invocation, _)| invocation);
        let waiting = self.open.keys().chain(queued).filter(|invocation| self.is_held(**invocation)).count();
        let may_ask = |branch: &Branch| !self.is_gated(&branch.1) || waiting < self.concurrency;
        let may_begin = |branch: &Branch| may_ask(branch) && self.may_begin(branch) && admits(branch);
        let first = self.queue.iter().find(|(queued, branch)| !self.is_held(*queued) && may_begin(branch));
        let may_ask_again = |invocation: InvocationId| {
            let earlier = self.open.range(..invocation).filter(|(earlier, _)| self.is_held(**earlier)).count();
            !self.is_gated(&self.open[&invocation].branch.1) || earlier < self.concurrency
        };
        let again = self.again(now).filter(|invocation| !self.is_held(*invocation) && may_ask_again(*invocation));
        let mut again = again.map(|invocation| (invocation, &self.open[&invocation].branch));
        let again = again.find(|(_, branch)| self.may_call(branch));
        let Some((invocation, branch)) = again.or(first.map(|(invocation, branch)| (*invocation, branch))) else {
            return;
        };
        // Due invocations go first, and block the queue while they wait for a budget. The model cannot determine
        // exactly if one waits for a reserved place instead.
        let is_due = |open: &&Open| !open.is_calling && open.asked.is_none() && self.may_call(&open.branch);
        let is_held_up = self.open.values().filter(is_due).any(|open| may_wait(&open.branch));
        assert!(
            is_held_up || may_wait(branch),
            "SEED={seed}: {invocation} may be called, there is a place, and it waits"
        );
    }
}

/// Returns true if one place equals or contains the other.
fn overlap(one: &str, other: &str) -> bool {
    let is_in = |one: &str, other: &str| one == other || one.starts_with(&format!("{other}/"));
    is_in(one, other) || is_in(other, one)
}

impl Open {
    /// Returns true if all attempts are used. Lost, conflicting and deferred attempts do not count.
    fn has_used_up(&self, limits: &Limits) -> bool {
        u64::from(self.attempt) - self.lost - self.conflicts - self.deferred >= limits.attempts
    }
}
