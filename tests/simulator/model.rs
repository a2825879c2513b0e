//! Independent model of the simulated blueprint, in plain values and without the kernel. It predicts permitted
//! commits, schedules, calls, moves of breakers and the board's end. It receives every input and every record, and
//! compares.
//!
//! The model contains the blueprint's rules, and nothing of contracts, patterns, CEL or schemas. Limits and actions
//! differ between boards and are read from the blueprint. Proposals and schedules are judged on boards of the usual
//! mode, calls, breakers and ends on all boards.

mod calls;
mod circuit;
mod ends;
mod ledger;
mod proposals;
mod provider;
mod requests;
mod retries;
mod schedule;
mod strict;

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::admission::WaitingCall;
use patchboard_kernel::board::{Board, Input, Outcome, Proposal, ProposalSource, Step};
use patchboard_kernel::breaker::{BreakerTransition, Reason};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{InvocationId, Seq, Timestamp};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Author, Body, End, Kind, Record, Resource, Retried, Skipped};
use patchboard_kernel::rejection::{Code, Stage};
use serde_json::Value;

use self::calls::Calls;
use self::circuit::Circuit;
use self::ends::{Ends, Work};
use self::ledger::Ledger;
use self::proposals::{Basis, Expected, May};
use self::provider::Provider;
use self::requests::{Heed, Requests, Retry};
use self::retries::Retries;
use self::schedule::Schedule;

/// Maximum number of times that one trigger may request more of the view.
const ROUNDS_MAX: u32 = 3;

/// Counts the requests for more with one trigger.
#[derive(Clone, Copy, Default)]
struct Rounds {
    made: u32,
    /// Requests before the last with views that showed none of the requested values.
    unspent: u32,
    is_unspent: bool,
}

impl Rounds {
    const fn spent_nothing(self) -> u32 {
        self.unspent + if self.is_unspent { 1 } else { 0 }
    }

    /// Returns the requests that count: a few without effect do not.
    const fn counted(self) -> u32 {
        let unspent = self.spent_nothing();
        self.made.saturating_sub(if unspent < ROUNDS_MAX { unspent } else { ROUNDS_MAX })
    }
}

/// Branch: the rule, or `None` if a breaker triggered the worker, and the worker.
type Branch = (Option<String>, String);

pub(super) struct Model {
    seed: u64,
    /// True if the board runs with all of PatchBoard's components.
    is_usual: bool,
    /// True if a note needs a person's approval.
    asks: bool,
    /// Workers that may pass.
    passing: BTreeSet<String>,
    /// The document at each version.
    documents: Vec<Value>,
    branches: BTreeMap<InvocationId, Branch>,
    /// Requests for more by the predecessors of each invocation.
    rounds: BTreeMap<InvocationId, Rounds>,
    /// Proposals that wait for a person, by the record that asks; `None` for a direct proposal.
    asked: BTreeMap<Seq, Option<InvocationId>>,
    calls: Calls,
    circuit: Circuit,
    ledger: Ledger,
    schedule: Schedule,
    provider: Provider,
    retries: Retries,
    /// Invocations of each branch that changed nothing since its last commit or the last move of its breaker.
    in_vain: BTreeMap<Branch, (Vec<InvocationId>, Vec<InvocationId>)>,
    requests: Requests,
    /// Maximum number of waiting tasks before further ones are rejected.
    backlog: Option<usize>,
    ends: Ends,
}

/// Returns the workers of a blueprint that may pass.
fn passing(blueprint: &Value) -> BTreeSet<String> {
    let workers = blueprint["workers"].as_object().into_iter().flatten();
    workers.filter(|(_, worker)| worker["pass"] == true).map(|(name, _)| name.clone()).collect()
}

impl Model {
    /// Creates the model of a new board.
    pub(super) fn new(seed: u64, board: &Board, at: Timestamp) -> Self {
        let blueprint = serde_json::to_value(&**board.blueprint()).expect("a blueprint is JSON");
        let note = &blueprint["workers"]["doer"]["writes"][1];
        Self {
            seed,
            is_usual: board.plan().mode.is_default(),
            asks: note.get("approval").is_some_and(|approval| !approval.is_null()),
            passing: passing(&blueprint),
            documents: vec![board.state().root().to_value()],
            branches: BTreeMap::new(),
            rounds: BTreeMap::new(),
            asked: BTreeMap::new(),
            calls: Calls::new(seed, &blueprint),
            circuit: Circuit::new(seed, &blueprint["circuit"]),
            ledger: Ledger::new(seed, board.plan().mode.is_default(), &blueprint),
            schedule: Schedule::new(seed, &blueprint, at),
            provider: Provider::new(seed),
            retries: Retries::new(seed),
            in_vain: BTreeMap::new(),
            requests: Requests::default(),
            backlog: blueprint["backlog"]["more"]["max"].as_u64().map(|max| max as usize),
            ends: Ends::new(seed, &blueprint, board.blueprint().limits.wall.as_ms(), at),
        }
    }

    /// Checks the outcome of a request, before the step it led to is compared.
    pub(super) fn requested(&mut self, at: Timestamp, input: &Input, step: &Step) {
        let retry = if let Input::Retry(retried) = input { self.retry(retried) } else { Retry::Heard };
        let may = Heed { is_over: self.ends.is_over(), is_full: self.is_full(), retry };
        self.requests.check(self.seed, at, input, step, may);
        self.provider.hears(at, Some(input), self.ends.is_at_work(), self.calls.is_any_gated());
    }

    /// Records that the gate was asked to admit a call, and its answer.
    pub(super) fn asked_gate(&mut self, call: &WaitingCall, is_held: bool) {
        self.calls.asked_gate((call.invocation, call.attempt), is_held);
    }

    /// Returns true if the backlog is full, counting the tasks that triggered planners will add.
    fn is_full(&self) -> bool {
        let tasks = self.documents.last().and_then(|now| now["tasks"].as_array()).map_or(0, Vec::len);
        let coming = self.calls.count(|branch| matches!(branch.0.as_deref(), Some("more" | "all-hands")));
        self.backlog.is_some_and(|max| tasks + coming >= max)
    }

    /// Predicts the outcome of a retry.
    fn retry(&self, retried: &Retried) -> Retry {
        let limits = &retried.limits;
        if self.ends.is_for_good() {
            return Retry::Refused(Code::BoardNotRunning);
        }
        let is_reached = self.ends.is_reached(limits, self.documents.len() - 1) || self.ledger.is_spent(limits.tokens);
        if is_reached {
            return Retry::Refused(Code::LimitReached);
        }
        if self.retries.is_any_meant(retried) && self.ends.is_over_or_rests() {
            let of_worker = self.retries.raised(retried);
            let affords = |branch: &Branch| self.ledger.affords(branch, limits.tokens, of_worker);
            let stopped: BTreeSet<&Branch> = self.circuit.stopped(|branch| retries::covers(retried, branch)).collect();
            let waiting = stopped.into_iter().filter(|branch| self.calls.is_queued(|queued| queued == *branch));
            let mut meant: Vec<Option<bool>> = self.retries.meant(retried).chain(waiting).map(affords).collect();
            meant.sort_unstable();
            return match meant.last() {
                Some(Some(true)) => Retry::Heard,
                _ if meant.contains(&None) => Retry::Open,
                _ => Retry::Refused(Code::LimitReached),
            };
        }
        if self.retries.is_any_meant(retried) {
            return Retry::Heard;
        }
        let is_raised = self.ends.is_raised(limits) || self.ledger.is_raised(limits.tokens);
        let is_raised = is_raised || !retried.worker_limits.is_none();
        let is_any_stopped = self.circuit.stopped(|branch| retries::covers(retried, branch)).next().is_some();
        let is_any_stopped = is_any_stopped && retried.invocation.is_none();
        if is_raised || is_any_stopped { Retry::Heard } else { Retry::Refused(Code::NothingGivenUp) }
    }

    /// Compares a step with the model's prediction. `board` is the board after it.
    pub(super) fn after_step(&mut self, input: Option<&Input>, step: &Step, board: &Board) {
        if let (Some(Input::Propose(proposal)), Some(outcome)) = (input, &step.outcome) {
            self.proposed(proposal, outcome, &step.records, &board.state().root().to_value());
        }
        if let Some(Input::Continue { invocation, attempt, .. }) = input {
            self.asked_again(self.calls.awaited(*invocation, *attempt).is_some(), step);
        }
        if let Some(Input::Admit { invocation, attempt, .. }) = input {
            self.calls.asked_gate((*invocation, *attempt), false);
        }
        self.ledger.hears(input);
        let mut ended = None;
        for record in &step.records {
            let body = record.body().unwrap_or_else(|error| panic!("SEED={}: {error}", self.seed));
            assert!(ended.is_none(), "SEED={}: a record after the end of a step", self.seed);
            self.happened(record, body, input, step, board);
            if let Body::Ended(end) = body {
                ended = Some(*end);
            }
        }
        // Notes, such as late answers and snapshots, do not change the pending work.
        let is_note = |record: &Record| matches!(record.kind, Kind::Late | Kind::Snapshot);
        let is_step = !step.records.iter().all(is_note);
        self.circuit.at_the_end_of_a_step();
        self.calls.named(step);
        let work = Work {
            is_under_way: !self.calls.is_idle()
                || self.calls.is_any_held()
                || !self.asked.is_empty()
                || self.schedule.has_delayed()
                || self.schedule.will_wake(self.is_minute_queued()),
            is_held_back: self.circuit.is_any_open() || self.calls.is_queued(|_| true),
        };
        let now = self.documents.last().expect("there is a first one");
        self.ends.compare(input, ended, is_step, now, self.documents.len() - 1, work);
        let is_over = ended.is_some_and(|ended| ended.is_final());
        if self.is_usual {
            self.schedule
                .at_the_end_of_a_step(ended.is_some_and(|ended| ended.is_final() && ended.end != End::Stopped));
        }
        if is_over {
            let unfinished = self.calls.unfinished().chain(self.schedule.delayed());
            unfinished.collect::<Vec<_>>().into_iter().for_each(|invocation| self.retries.gave_up(invocation));
            self.circuit.ended();
            self.calls.ended();
            self.schedule.ended();
            self.asked.clear();
        }
        if let (Some(last), true) = (step.records.last(), self.is_usual) {
            self.calls.compare_kept(None, (last.at, self.circuit.decisions()));
        }
        self.retries.at_the_end_of_a_step();
        self.provider.at_the_end_of_a_step(step, self.ends.is_at_work(), |invocation| self.calls.is_open(invocation));
        self.ledger.closed(|invocation| self.calls.is_open(invocation));
        self.ledger.compare(board);
        if let (Some(last), true) = (step.records.last(), is_step) {
            let is_at_work = !is_over && (self.ends.is_at_work() || ended.is_some());
            let moment = (last.at, self.circuit.decisions());
            let (circuit, ledger) = (&self.circuit, &self.ledger);
            let may_wait = |branch: &Branch| ledger.may_wait(branch);
            self.calls.at_the_end_of_a_step(is_at_work, moment, |branch| circuit.admits(branch), may_wait);
        }
    }

    fn now(&self) -> &Value {
        self.documents.last().expect("there is a first one")
    }

    /// Compares the outcome of an attempt's request for another call. The ledger checks the budget.
    fn asked_again(&self, is_awaited: bool, step: &Step) {
        let first = step.records.first().map(|record| record.kind);
        let code = match &step.outcome {
            Some(Outcome::RejectedUnrecorded(rejection)) => Some(rejection.code.as_str()),
            _ => None,
        };
        let is_due = match first {
            None => !is_awaited && code == Some("invocation_closed"),
            Some(Kind::Continued) => is_awaited && matches!(step.outcome, Some(Outcome::Continued { .. })),
            Some(Kind::Failed) => is_awaited && code == Some("budget_exhausted"),
            Some(_) => false,
        };
        assert!(is_due, "SEED={}: awaited {is_awaited}, another call led to {first:?}, {code:?}", self.seed);
    }

    /// Compares the outcome of a proposal.
    fn proposed(&self, proposal: &Proposal, outcome: &Outcome, records: &[Record], made: &Value) {
        let seed = self.seed;
        let is_late = records.iter().any(|record| record.kind == Kind::Late);
        let basis = match &proposal.from {
            ProposalSource::Attempt { invocation, attempt } => {
                let open = self.calls.awaited(*invocation, *attempt);
                let Some(open) = open.filter(|open| open.worker == proposal.worker) else {
                    let is_passed_over = is_late || matches!(outcome, Outcome::Duplicate(_));
                    assert!(is_passed_over, "SEED={seed}: an answer nobody waits for counted: {outcome:?}");
                    return;
                };
                assert!(!is_late, "SEED={seed}: an answer came too late that was waited for");
                let may_ask = self.rounds.get(invocation).is_none_or(|rounds| rounds.counted() < ROUNDS_MAX);
                Some(Basis { versions: &self.documents[open.base..], reads: &open.reads, may_ask })
            }
            // The remembered outcome of its key, or the end of the board, decides.
            ProposalSource::Direct { .. } if is_late || matches!(outcome, Outcome::Duplicate(_)) => return,
            ProposalSource::Direct { .. } => None,
        };
        if self.is_usual {
            let worker = proposal.worker.as_str();
            let may = May { ask: self.asks, pass: self.passing.contains(worker) };
            let expected = proposals::judge(self.now(), worker, &proposal.reply, basis, may);
            let own = match &proposal.from {
                ProposalSource::Attempt { invocation, .. } => Some(*invocation),
                ProposalSource::Direct { .. } => None,
            };
            let now = records.first().map(|record| (record.at, self.circuit.decisions()));
            let is_kept = now.is_some_and(|now| self.calls.is_kept(own, now));
            self.compare(&expected, outcome, proposal, made, is_kept);
        }
    }

    /// Compares an outcome with the expected one. `is_any_kept`: true if any places are reserved for other
    /// invocations.
    fn compare(&self, expected: &Expected, outcome: &Outcome, proposal: &Proposal, made: &Value, is_any_kept: bool) {
        // A reservation rejects a proposal before later stages look for other faults.
        let is_kept = |stages: &[Stage]| !stages.contains(&Stage::Syntax) && !stages.contains(&Stage::Authorization);
        let comes_that_far = match expected {
            Expected::Refusal(stages) => is_kept(stages),
            Expected::NoOp | Expected::Commit(_) | Expected::Question | Expected::More => true,
        };
        if let Outcome::Rejected { rejection, .. } = outcome
            && comes_that_far
            && rejection.stage == Stage::Freshness
            && rejection.violations.iter().all(|one| one.code.as_str() == "reserved")
        {
            assert!(is_any_kept, "SEED={}: nothing is kept for others: {outcome:?}", self.seed);
            return;
        }
        let is_due = match (expected, outcome) {
            (Expected::Commit(document), Outcome::Committed { .. }) => **document == *made,
            (Expected::Question, Outcome::AwaitingApproval { .. })
            | (Expected::NoOp, Outcome::NoOp { .. })
            | (Expected::More, Outcome::Expanded { .. }) => true,
            (Expected::Refusal(stages), Outcome::Rejected { rejection, .. }) => stages.contains(&rejection.stage),
            _ => false,
        };
        let now = self.now();
        assert!(is_due, "SEED={}: {expected:?}, not {outcome:?}, was due of {proposal:?} on {now}", self.seed);
    }

    /// Applies a record to the model.
    fn happened(&mut self, record: &Record, body: &Body, input: Option<&Input>, step: &Step, board: &Board) {
        let (seed, seq) = (self.seed, record.seq);
        let moment = (record.at, self.circuit.decisions());
        self.ends.passes(record.at, body, !self.calls.is_calling());
        if self.is_usual {
            let kept = if let Body::Reserved(reserved) = body { Some(reserved) } else { None };
            self.calls.compare_kept(kept, moment);
        }
        match body {
            Body::Scheduled(scheduled) => {
                let branch = (scheduled.rule.as_ref().map(ToString::to_string), scheduled.worker.to_string());
                match scheduled.due {
                    Some(_) => self.schedule.delays(record.at, scheduled, &branch),
                    None => self.calls.queued(scheduled.invocation, &branch),
                }
                self.retries.scheduled(scheduled, &branch);
                if let Some(before) = scheduled.retries {
                    self.rounds.extend(self.rounds.get(&before).copied().map(|rounds| (scheduled.invocation, rounds)));
                } else if let Some(before) = scheduled.follows {
                    let rounds = self.rounds.get(&before).copied().unwrap_or_default();
                    let counted = rounds.counted();
                    assert!(counted < ROUNDS_MAX, "SEED={seed}: more was shown after {counted} times");
                    let next = Rounds { made: rounds.made + 1, unspent: rounds.spent_nothing(), is_unspent: false };
                    self.rounds.insert(scheduled.invocation, next);
                } else if self.is_usual {
                    self.schedule.queued(scheduled.invocation, &branch);
                } else {
                    self.schedule.counts(&branch);
                }
                self.branches.insert(scheduled.invocation, branch);
            }
            Body::Invoked(invoked) => {
                let rounds = self.rounds.entry(invoked.invocation).or_default();
                rounds.is_unspent = invoked.is_unspent;
                assert!(
                    rounds.made > 0 || !invoked.is_unspent,
                    "SEED={seed}: nothing was asked for that found no room"
                );
                let base = usize::try_from(invoked.base.0).expect("few versions");
                let is_present = base + 1 == self.documents.len();
                assert!(is_present, "SEED={seed}: a view of another version than the present one");
                let (circuit, ledger) = (&self.circuit, &self.ledger);
                let may_wait = |branch: &Branch| ledger.may_wait(branch);
                self.calls.called(invoked, base, moment, |branch| circuit.admits(branch), may_wait);
                let branch = &self.branches[&invoked.invocation];
                self.provider.called(invoked.invocation);
                self.ledger.called(invoked, branch, step);
                self.circuit.called(branch, invoked.attempt == 1);
            }
            Body::Continued(continued) => {
                if continued.by.usage != Some(Usage::default()) {
                    self.provider.answered(&continued.by);
                }
                self.ledger.continued(continued);
            }
            Body::Committed(committed) => {
                let before = self.now().clone();
                let now = board.state().root().to_value();
                self.documents.push(now.clone());
                let written = proposals::written(&committed.patch);
                if self.is_usual {
                    self.calls.writes(&committed.by, &written, moment);
                }
                let branch = self.answered(&committed.by);
                self.ends.committed();
                let places = proposals::places(&committed.patch, &before);
                // A message without a write is committed, but counts as no change. A message that writes the present
                // value is detected as a return to an earlier value.
                if places.is_empty() {
                    self.circuit.changed_nothing(branch.as_ref());
                } else {
                    self.circuit.committed(branch.as_ref(), &places, &now);
                    if let Some(branch) = &branch {
                        self.in_vain.remove(branch);
                    }
                }
                self.schedule.committed(&committed.patch, &before, &now);
                if committed.expand.is_empty() {
                    self.schedule.completed(branch.as_ref());
                }
            }
            Body::NoOp(no_op) => {
                let branch = self.answered(&no_op.by);
                let is_pass = no_op.pass.is_some();
                if let Some((branch, attempt)) = branch.clone().zip(no_op.by.attempt.as_ref())
                    && let Some(limit) = self.circuit.limit(is_pass)
                {
                    let (no_ops, passes) = self.in_vain.entry(branch).or_default();
                    let streak = if is_pass { passes } else { no_ops };
                    streak.push(attempt.invocation);
                    streak.drain(..streak.len().saturating_sub(limit));
                }
                match no_op.pass {
                    Some(_) => self.circuit.passed(branch.as_ref()),
                    None => self.circuit.changed_nothing(branch.as_ref()),
                }
                self.schedule.completed(branch.as_ref());
            }
            Body::Expanded(expanded) => {
                let branch = self.answered(&expanded.by);
                self.circuit.asked_for_more(branch.as_ref());
            }
            Body::Rejected(rejected) => {
                self.settled(&rejected.by);
                self.ledger.answered(&rejected.by);
                let branch = self.calls.refused(rejected);
                self.outcome(&rejected.by, rejected.is_final);
                self.circuit.refused(branch.as_ref(), rejected.stage, rejected.is_final);
            }
            Body::Failed(failed) => {
                self.ledger.failed(&failed.by, failed.code);
                let branch = self.calls.failed(&failed.by, failed.code, failed.is_final);
                self.outcome(&failed.by, failed.is_final);
                self.circuit.failed(branch.as_ref(), failed.code, failed.is_final);
            }
            Body::Approval(approval) => {
                self.ledger.answered(&approval.by);
                let branch = self.calls.asks(&approval.by, seq);
                self.asked.insert(seq, approval.by.attempt.as_ref().map(|attempt| attempt.invocation));
                self.ends.wakes();
                self.circuit.decided(branch.as_ref());
            }
            Body::Breaker(moved) => {
                let branch = (moved.rule.as_ref().map(ToString::to_string), moved.worker.to_string());
                let comes = self.circuit.moved(&branch, moved.change, moved.reason);
                let in_vain = self.in_vain.remove(&branch).unwrap_or_default();
                let (no_ops, passes) = in_vain;
                let streak = match (moved.change, moved.reason) {
                    (BreakerTransition::Opened, Reason::NoOps) => no_ops,
                    (BreakerTransition::Opened, Reason::Passes) => passes,
                    (BreakerTransition::Opened, Reason::ProbeFailed) => no_ops.into_iter().chain(passes).collect(),
                    _ => Vec::new(),
                };
                streak.into_iter().for_each(|invocation| self.retries.was_in_vain(invocation));
                if moved.change == BreakerTransition::Closed {
                    self.retries.works_again(&branch);
                }
                if comes.gives_up {
                    let given_up = self.calls.stopped(&branch);
                    given_up.into_iter().for_each(|invocation| self.retries.gave_up(invocation));
                }
                // Invocations that waited only for this breaker can run now.
                let lets_go = matches!(moved.change, BreakerTransition::HalfOpened | BreakerTransition::Closed);
                if lets_go && self.calls.is_queued(|branch| self.circuit.admits(branch)) {
                    self.ends.wakes();
                }
                self.ends.stops(comes.stops);
                if let Some(woken) = comes.wakes.filter(|_| self.is_usual) {
                    self.schedule.wakes(woken);
                }
            }
            Body::Budget(budget) => {
                let branch = (budget.rule.as_ref().map(ToString::to_string), budget.worker.to_string());
                let of_invocations = budget.resource == Resource::Invocations;
                if of_invocations && self.is_usual {
                    self.schedule.ran_out(budget.invocation);
                }
                let is_first = !of_invocations || self.schedule.is_new(&branch.1);
                if let Some(invocation) = budget.invocation.filter(|_| !budget.is_tried_again) {
                    match of_invocations {
                        true => self.retries.went_beyond(invocation),
                        false => self.retries.gave_up(invocation),
                    }
                    self.calls.give_up(invocation);
                }
                self.ledger.ran_short(budget, &branch);
                if !budget.is_tried_again {
                    self.ends.ran_short();
                }
                let is_tried_again =
                    self.circuit.ran_short(&branch, (of_invocations, is_first)) && budget.admitted.is_some();
                assert_eq!(budget.is_tried_again, is_tried_again, "SEED={}: {branch:?} and a smaller view", self.seed);
            }
            Body::Signal(signal) => {
                self.ends.wakes();
                self.schedule.signalled(&signal.name);
            }
            Body::Created(_) => self.schedule.began(),
            Body::Skipped(Skipped { invocation: Some(invocation), .. }) => {
                self.schedule.withdrawn(*invocation, &self.branches[invocation].1);
                self.calls.give_up(*invocation);
            }
            Body::Skipped(skipped) => self.schedule.skipped(skipped.rule.as_ref().map(ToString::to_string)),
            Body::Reserved(reserved) => self.calls.keeps(reserved, moment),
            Body::Deferred(deferred) => {
                self.ledger.failed(&deferred.by, FailureCode::Unreachable);
                self.calls.deferred(&deferred.by);
                self.provider.deferred(record.at, deferred, input, self.ends.is_paused());
            }
            Body::Retried(retried) => {
                self.ledger.raise(retried.limits.tokens, self.retries.raised(retried));
                let is_any_left = self.retries.is_any_left(retried);
                self.retries.retried(retried);
                self.circuit.retried(|branch| retries::covers(retried, branch));
                self.ends.retried(&retried.limits, is_any_left);
                self.calls.resumed();
                self.provider.resumed();
            }
            Body::Paused(steered) => {
                self.provider.paused(steered);
                self.ends.paused(true);
            }
            Body::Resumed(_) => {
                self.ends.paused(false);
                self.calls.resumed();
                self.provider.resumed();
            }
            Body::Epoch(_) => self.calls.taken_over(),
            Body::Answer(answer) if answer.text.is_some() => {
                let invocation = self.asked.remove(&answer.of).flatten();
                let invocation =
                    invocation.unwrap_or_else(|| panic!("SEED={seed}: who was not invoked is told something"));
                self.calls.give_up(invocation);
                self.circuit.asked_for_more(self.branches.get(&invocation));
            }
            Body::Jumped(jumped) => {
                self.calls.jumped(jumped.ms);
                self.provider.jumped(jumped.ms);
            }
            Body::Tick(_) if !self.ends.is_paused() => {
                let now = self.documents.last().expect("there is a first one");
                for (invocation, branch) in self.schedule.ripens(record.at, now) {
                    self.calls.queued(invocation, &branch);
                }
                self.schedule.ticked(record.at, self.is_minute_queued());
            }
            Body::Late(_)
            | Body::Answer(_)
            | Body::Tick(_)
            | Body::Snapshot(_)
            | Body::Redacted(_)
            | Body::Ended(_) => {}
        }
        self.ledger.closed(|invocation| self.calls.is_open(invocation));
        self.asked.retain(|_, invocation| invocation.is_none_or(|invocation| self.calls.is_open(invocation)));
    }

    /// Returns true if an invocation by the clock still waits in the queue.
    fn is_minute_queued(&self) -> bool {
        self.calls.is_queued(|(rule, _)| rule.as_deref() == Some("minutely"))
    }

    /// Closes a question to a person about a proposal.
    fn settled(&mut self, by: &Author) {
        if let Some(question) = by.approval {
            let stood = self.asked.remove(&question);
            assert!(stood.is_some(), "SEED={}: record {question} asks nothing", self.seed);
        }
    }

    /// Records the outcome of an attempt, which may be the last of its invocation.
    fn outcome(&mut self, by: &Author, is_final: bool) {
        self.ends.gave_up(is_final);
        self.provider.answered(by);
        if let Some(attempt) = by.attempt.as_ref().filter(|_| is_final) {
            self.retries.gave_up(attempt.invocation);
        }
    }

    /// Completes the invocation of a proposal. Returns its branch, if there is one.
    fn answered(&mut self, by: &Author) -> Option<Branch> {
        self.settled(by);
        self.ledger.answered(by);
        self.calls.answered(by, true)
    }
}
