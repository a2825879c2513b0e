//! Turns an input into records: the outcome, breaker moves, the schedule and the end, if any.
//!
//! Every record is applied before the next is decided, so each decision sees the effects of the previous ones.

mod approval;
mod breakers;
mod calls;
mod control;
mod dispatch;
mod files;
mod proposals;
mod provider;
mod retry;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::apply::ApplyContext;
use super::{Board, Cancellation, Input, Outcome, Step};
use crate::failure::FailureCode;
use crate::id::{InvocationId, RuleName, Seq, Timestamp};
use crate::ledger::Usage;
use crate::mutants::{self, Mutant};
use crate::pipeline::AppliedPatch;
use crate::record::{
    Attempt, Author, Body, Cause, End, Ended, Failed, PauseRequest, Principal, Record, SINCE_JOURNAL_LIMIT, Signal,
};
use crate::rejection::{Code, Rejection, Stage, Violation};
use crate::rules::TriggerEvent;
use crate::scheduler::OpenInvocation;

pub use provider::RequestDeferral;

impl Board {
    /// Decides an input and applies its records: the only way to change a board. `at` is the current time; recorded
    /// time never goes back.
    pub fn step(&mut self, at: Timestamp, input: Input) -> Step {
        self.step_as(at, input, None)
    }

    /// Like [`Board::step`], for an input that an external caller caused: the first record of the step names the
    /// caller.
    pub fn step_as(&mut self, at: Timestamp, input: Input, principal: Option<Principal>) -> Step {
        let mut step = Step::default();
        let awaited = self.waiting_rules();
        let principal = principal.and_then(|caller| caller.in_format(self.format));
        let mut draft = StepBuilder::new(at.max(self.last_at), self, &mut step, awaited);
        draft.principal = principal;
        draft.decide(input);
        step
    }

    /// Returns the rules that wait for other rules to settle, while some of those are under way.
    fn waiting_rules(&self) -> BTreeSet<RuleName> {
        self.scheduler.waiting_rules(&self.plan, |branch| self.breaker.admits(branch))
    }

    /// Schedules the work that begins with the board.
    pub(super) fn start(&mut self, at: Timestamp, step: &mut Step) {
        let mut draft = StepBuilder::new(at, self, step, self.plan.waiting_for_start());
        draft.check_done(None);
        draft.schedule(&TriggerEvent::Start);
        draft.advance();
    }
}

/// Maximum size in bytes of a message in a record.
const MESSAGE_BYTES_MAX: usize = 4096;

struct StepBuilder<'a> {
    at: Timestamp,
    board: &'a mut Board,
    step: &'a mut Step,
    /// The end of the board within this step, if any.
    ending: Option<Ended>,
    /// Rules that wait for others to settle, if some of those are or were under way during this step.
    waiting_rules: BTreeSet<RuleName>,
    /// Rules that triggered a worker without invocations left. Recorded once per step, because a waiting rule may
    /// itself be one of them.
    exhausted_rules: BTreeSet<RuleName>,
    /// The raw proposal of this step as sent by a model, until a record takes it.
    raw: Option<String>,
    /// The external caller, until the first record names it.
    principal: Option<Principal>,
}

impl<'a> StepBuilder<'a> {
    const fn new(at: Timestamp, board: &'a mut Board, step: &'a mut Step, waiting_rules: BTreeSet<RuleName>) -> Self {
        let exhausted_rules = BTreeSet::new();
        Self { at, board, step, ending: None, waiting_rules, exhausted_rules, raw: None, principal: None }
    }
}

impl StepBuilder<'_> {
    fn decide(&mut self, input: Input) {
        match input {
            Input::Propose(proposal) => self.propose(proposal),
            Input::AgentFailed { invocation, attempt, code, message, usage } => {
                self.agent_failed(invocation, attempt, code, message, usage);
            }
            Input::Continue { invocation, attempt, usage, reserve } => {
                self.continue_attempt(invocation, attempt, usage, reserve);
            }
            Input::Admit { invocation, attempt, admission } => self.admit(invocation, attempt, admission),
            Input::Defer { invocation, attempt, usage, deferral: not_taken } => {
                self.defer(invocation, attempt, usage, not_taken);
            }
            Input::Unavailable => self.unavailable(),
            Input::Retry(retried) => self.retry(retried),
            Input::Tick => self.tick(),
            Input::ClockJump { ms } => self.jump(ms),
            Input::Signal { name, value, key: token } => self.signal(Signal { name, value, token }),
            Input::Pause { key: token } => {
                self.pause_or_resume(Body::Paused(PauseRequest { token, cause: None }), !self.board.paused)
            }
            Input::Resume { key: token } => {
                self.pause_or_resume(Body::Resumed(PauseRequest { token, cause: None }), self.board.paused)
            }
            Input::Answer(answer) => self.answer(answer),
            Input::Cancel if !self.is_over() => self.force_end(End::Cancelled, Cause::Cancelled),
            Input::Meltdown if self.board.ended.is_none() => self.force_end(End::Failed, Cause::Meltdown),
            Input::Cancel | Input::Meltdown => {}
            Input::Snapshot { of, digest } => self.snapshot(of, digest),
            Input::Amend { path, value } => self.amend(path, value),
            Input::Edit(edit) => self.edit(edit),
            Input::Redact(redacted) => drop(self.push(Body::Redacted(redacted))),
            Input::TakeOver { epoch, writer, format } => self.take_over(epoch, writer, format),
        }
    }

    fn agent_failed(
        &mut self,
        invocation: InvocationId,
        attempt: u32,
        code: FailureCode,
        message: String,
        usage: Option<Usage>,
    ) {
        let open = self.board.scheduler.open().get(&invocation);
        // A failure of a finished attempt changes nothing: the attempt was settled when it ended.
        let Some(open) = open.filter(|open| open.calling && open.attempt == attempt) else { return };
        let branch = open.queued.branch.clone();
        let by = author(open, usage.map(Usage::bounded).or_else(|| cost_of(code)));
        let is_final = self.is_last_attempt(invocation) || !code.is_retryable();
        let message = self.bounded(message);
        self.push(Body::Failed(Failed { by, code, is_final, needed: None, message }));
        self.move_breakers(Some(&branch));
        self.advance();
    }

    /// Truncates a message for people to the limit.
    fn bounded(&self, mut message: String) -> String {
        if self.board.format >= SINCE_JOURNAL_LIMIT && message.len() > MESSAGE_BYTES_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX - '…'.len_utf8()));
            message.push('…');
        }
        message
    }

    /// Rejects unsolicited input, without a record, once the journal is half full: the other half is for the board's
    /// own work.
    fn is_journal_full(&mut self) -> bool {
        let (bytes, limit) = (self.board.journal_bytes, self.board.limits().journal);
        let is_full = bytes >= limit / 2;
        if is_full {
            let message = format!(
                "the journal has {bytes} of at most {limit} bytes, and takes nothing more that the board has not asked for; \
                 `patchboard retry BOARD --journal BYTES` raises the limit"
            );
            self.refuse(Stage::Application, vec![Violation::new(Code::JournalFull, "", message)]);
        }
        is_full
    }

    /// Rejects the input without a record.
    fn refuse(&mut self, stage: Stage, violations: Vec<Violation>) {
        self.step.outcome = Some(Outcome::RejectedUnrecorded(Rejection::new(stage, violations)));
    }

    /// Returns true if an invocation has no attempt left. Attempts lost with a process do not count.
    fn is_last_attempt(&self, invocation: InvocationId) -> bool {
        let Some(open) = self.board.scheduler.open().get(&invocation) else { return false };
        let limits = &self.board.plan.workers[&open.queued.branch.worker].worker.limits;
        let attempts = limits.attempts + u32::from(mutants::is_active(Mutant::ExtraAttempt));
        open.counted_attempts() >= attempts
    }

    /// Returns true if one more conflict makes an invocation be given up.
    fn is_last_conflict(&self, invocation: InvocationId) -> bool {
        let Some(open) = self.board.scheduler.open().get(&invocation) else { return false };
        open.conflicts.saturating_add(1) >= self.board.plan.workers[&open.queued.branch.worker].worker.limits.conflicts
    }

    /// Returns true if the board has ended for good.
    fn is_over(&self) -> bool {
        self.board.ended.is_some_and(Ended::is_final)
    }

    /// Cancels the call of an open invocation.
    fn cancel(&mut self, invocation: InvocationId) {
        if let Some(open) = self.board.scheduler.open().get(&invocation) {
            let worker = open.queued.branch.worker.clone();
            self.step.effects.cancellations.push(Cancellation { invocation, attempt: open.attempt, worker });
        }
    }

    fn push(&mut self, body: Body) -> Seq {
        self.push_applied(body, None)
    }

    /// Seals a record, applies it and adds it to the step.
    fn push_applied(&mut self, body: Body, made: Option<AppliedPatch>) -> Seq {
        let (last, hash) = self.board.head;
        let principal = self.principal.take();
        let body = Arc::new(body);
        let sealed = Arc::clone(&body);
        let record = Record::seal_as(principal.as_ref(), hash, last.next(), self.at, sealed, &self.board.hasher);
        let beside = ApplyContext { applied: made, principal, ..ApplyContext::default() };
        let applied = self.board.apply(record.seq, self.at, &body, beside);
        applied.expect("a record is decided so that it applies");
        self.board.count_journal_bytes(&record, &body);
        self.board.head = (record.seq, record.hash);
        self.step.records.push(record);
        self.board.head.0
    }
}

fn author(open: &OpenInvocation, usage: Option<Usage>) -> Author {
    let attempt =
        Attempt { invocation: open.queued.invocation, number: open.attempt, cause: open.queued.cause, view: open.view };
    Author { attempt: Some(attempt), usage, ..Author::new(open.queued.branch.worker.clone(), open.base) }
}

/// Returns the usage of a failed call if its kind determines it. Others stay charged at their reservation.
fn cost_of(code: FailureCode) -> Option<Usage> {
    use FailureCode as F;
    match code {
        F::Unreachable | F::NotConfigured | F::CassetteMiss | F::Refused | F::RateLimited => Some(Usage::default()),
        _ => None,
    }
}
