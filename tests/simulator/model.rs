//! The simulated blueprint a second time, in plain values and written without the kernel: what may be committed, what a
//! commit schedules, who may be called, and when a breaker moves. It hears every input and every record, and compares.
//!
//! Knows the blueprint's rules by heart and nothing of contracts, patterns, CEL or schemas. Proposals and schedules are
//! judged on boards of the usual mode; calls and breakers on all.

mod circuit;
mod proposals;
mod schedule;

use std::collections::BTreeMap;

use patchboard_kernel::board::{Board, From, Input, Outcome, Proposal, Step};
use patchboard_kernel::id::{InvocationId, Seq, WorkerName};
use patchboard_kernel::record::{Author, Body, Kind, Record};
use patchboard_kernel::rejection::Stage;
use serde_json::Value;

use self::circuit::Circuit;
use self::proposals::{Basis, Expected};
use self::schedule::Schedule;

/// How often more is shown for one trigger.
const ROUNDS_MAX: u32 = 3;

/// A rule, or none where a breaker woke the worker; and the worker.
type Branch = (Option<String>, String);

pub(super) struct Model {
    seed: u64,
    /// Whether the board has all of PatchBoard.
    is_usual: bool,
    /// Whether a note needs a person's word.
    asks: bool,
    concurrency: usize,
    /// The document at each version.
    documents: Vec<Value>,
    /// Attempts that are under way.
    open: BTreeMap<InvocationId, Open>,
    branches: BTreeMap<InvocationId, Branch>,
    /// How often those before an invocation have asked to be shown more.
    rounds: BTreeMap<InvocationId, u32>,
    /// What waits for a person, by the record that asks.
    asked: BTreeMap<Seq, InvocationId>,
    circuit: Circuit,
    schedule: Schedule,
}

/// An attempt that is under way.
struct Open {
    attempt: u32,
    worker: WorkerName,
    base: usize,
    reads: Vec<String>,
    /// It was answered, and waits for a person.
    waits: bool,
}

impl Model {
    pub(super) fn new(seed: u64, board: &Board) -> Self {
        let blueprint = serde_json::to_value(&**board.blueprint()).expect("a blueprint is JSON");
        let note = &blueprint["workers"]["doer"]["writes"][1];
        Self {
            seed,
            is_usual: board.plan().mode.is_default(),
            asks: note.get("approval").is_some_and(|approval| !approval.is_null()),
            concurrency: board.blueprint().concurrency as usize,
            documents: vec![board.state().root().to_value()],
            open: BTreeMap::new(),
            branches: BTreeMap::new(),
            rounds: BTreeMap::new(),
            asked: BTreeMap::new(),
            circuit: Circuit::new(seed, &blueprint["circuit"]),
            schedule: Schedule::new(seed),
        }
    }

    /// Compares a step with what this would have done. `board` is the board after it.
    pub(super) fn after_step(&mut self, input: Option<&Input>, step: &Step, board: &Board) {
        if let (Some(Input::Propose(proposal)), Some(outcome)) = (input, &step.outcome) {
            self.proposed(proposal, outcome, &step.records, &board.state().root().to_value());
        }
        let before = self.now().clone();
        let mut is_over = false;
        for record in &step.records {
            let body = record.body().unwrap_or_else(|error| panic!("SEED={}: {error}", self.seed));
            is_over |= record.kind == Kind::Ended;
            self.happened(record.seq, &body, board);
        }
        self.circuit.at_the_end_of_a_step(is_over, board);
        if self.is_usual {
            let now = self.now().clone();
            self.schedule.compare(step, &before, &now, is_over);
        }
        let called = self.open.values().filter(|open| !open.waits).count();
        assert!(called <= self.concurrency, "SEED={}: {called} calls at once", self.seed);
    }

    fn now(&self) -> &Value {
        self.documents.last().expect("there is a first one")
    }

    /// Compares what became of a proposal.
    fn proposed(&self, proposal: &Proposal, outcome: &Outcome, records: &[Record], made: &Value) {
        let seed = self.seed;
        let is_late = records.iter().any(|record| record.kind == Kind::Late);
        let basis = match &proposal.from {
            From::Attempt { invocation, attempt } => {
                let open = self.open.get(invocation).filter(|open| open.attempt == *attempt && !open.waits);
                let Some(open) = open.filter(|open| open.worker == proposal.worker) else {
                    let is_passed_over = is_late || matches!(outcome, Outcome::Duplicate(_));
                    assert!(is_passed_over, "SEED={seed}: an answer nobody waits for counted: {outcome:?}");
                    return;
                };
                assert!(!is_late, "SEED={seed}: an answer came too late that was waited for");
                let may_ask = self.rounds.get(invocation).is_none_or(|rounds| *rounds < ROUNDS_MAX);
                Some(Basis { versions: &self.documents[open.base..], reads: &open.reads, may_ask })
            }
            // What was remembered of its token, or the end of the board, decides.
            From::Direct { .. } if is_late || matches!(outcome, Outcome::Duplicate(_)) => return,
            From::Direct { .. } => None,
        };
        if self.is_usual {
            let expected = proposals::judge(self.now(), proposal.worker.as_str(), &proposal.reply, basis, self.asks);
            self.compare(&expected, outcome, proposal, made);
        }
    }

    fn compare(&self, expected: &Expected, outcome: &Outcome, proposal: &Proposal, made: &Value) {
        // Places that are kept for somebody else are told of before it is seen what else would be wrong.
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

    /// Takes over what a record says.
    fn happened(&mut self, seq: Seq, body: &Body, board: &Board) {
        let seed = self.seed;
        match body {
            Body::Scheduled(scheduled) => {
                let branch = (scheduled.rule.as_ref().map(ToString::to_string), scheduled.worker.to_string());
                self.schedule.queued(scheduled.invocation, &branch);
                self.branches.insert(scheduled.invocation, branch);
                if let Some(before) = scheduled.follows {
                    let rounds = self.rounds.get(&before).map_or(1, |rounds| rounds + 1);
                    assert!(rounds <= ROUNDS_MAX, "SEED={seed}: more was shown for the {rounds}th time");
                    self.rounds.insert(scheduled.invocation, rounds);
                }
            }
            Body::Invoked(invoked) => {
                let branch = &self.branches[&invoked.invocation];
                self.schedule.called(invoked.invocation, branch);
                self.circuit.called(branch, invoked.attempt == 1);
                let base = usize::try_from(invoked.base.0).expect("few versions");
                assert_eq!(
                    base + 1,
                    self.documents.len(),
                    "SEED={seed}: a view of another version than the present one"
                );
                let (attempt, worker) = (invoked.attempt, invoked.worker.clone());
                let reads = invoked.reads.clone();
                let before = self.open.insert(invoked.invocation, Open { attempt, worker, base, reads, waits: false });
                assert!(before.is_none(), "SEED={seed}: two attempts of one invocation at once");
            }
            Body::Committed(committed) => {
                let before = without_messages(self.now().clone());
                self.documents.push(board.state().root().to_value());
                let branch = self.close(&committed.by);
                let now = self.now().clone();
                // A message that sets nothing is committed, and is nothing done.
                if without_messages(now.clone()) == before {
                    self.circuit.changed_nothing(branch.as_ref());
                } else {
                    self.circuit.committed(branch.as_ref(), &proposals::written(&committed.patch), &now);
                }
                self.schedule.committed(&committed.patch, committed.expand.is_empty(), branch.as_ref());
            }
            Body::NoOp(no_op) => {
                let branch = self.close(&no_op.by);
                self.circuit.changed_nothing(branch.as_ref());
                self.schedule.completed(branch.as_ref());
            }
            Body::Expanded(expanded) => {
                let branch = self.close(&expanded.by);
                self.circuit.decided(branch.as_ref());
            }
            Body::Rejected(rejected) => {
                let branch = self.close(&rejected.by);
                self.circuit.refused(branch.as_ref(), rejected.stage, rejected.is_final);
            }
            Body::Failed(failed) => {
                let branch = self.close(&failed.by);
                self.circuit.failed(branch.as_ref(), failed.code, failed.is_final);
            }
            Body::Approval(approval) => {
                let attempt = approval.by.attempt.as_ref();
                if let Some(open) = attempt.and_then(|attempt| self.open.get_mut(&attempt.invocation)) {
                    open.waits = true;
                }
                self.asked.extend(attempt.map(|attempt| (seq, attempt.invocation)));
                let branch = attempt.and_then(|attempt| self.branches.get(&attempt.invocation));
                self.circuit.decided(branch);
            }
            Body::Breaker(moved) => {
                let branch = (moved.rule.as_ref().map(ToString::to_string), moved.worker.to_string());
                if self.circuit.moved(&branch, moved.change, moved.reason) {
                    let branches = &self.branches;
                    self.open.retain(|invocation, _| branches[invocation] != branch);
                }
            }
            Body::Budget(budget) => self.schedule.ran_out(budget.worker.as_str(), budget.invocation),
            Body::Signal(signal) => self.schedule.signalled(&signal.name),
            Body::Ended(ended) if ended.is_final() => self.open.clear(),
            Body::Created(_) => self.schedule.began(),
            Body::Skipped(skipped) => self.schedule.skipped(skipped.rule.as_ref().map(ToString::to_string)),
            Body::Epoch(_)
            | Body::Late(_)
            | Body::Reserved(_)
            | Body::Answer(_)
            | Body::Paused(_)
            | Body::Resumed(_)
            | Body::Tick(_)
            | Body::Snapshot(_)
            | Body::Ended(_) => {}
        }
    }

    /// The attempt is over; its branch, if it was one of an invocation.
    fn close(&mut self, by: &Author) -> Option<Branch> {
        let attempt = by.attempt.as_ref()?;
        let open = self.open.remove(&attempt.invocation);
        assert!(open.is_some(), "SEED={}: an outcome of an attempt that is not under way", self.seed);
        self.branches.get(&attempt.invocation).cloned()
    }
}

/// What is not written by the runtime itself.
fn without_messages(mut document: Value) -> Value {
    document.as_object_mut().map(|members| members.remove("$messages"));
    document
}
