//! Turns an input into records: the outcome, breaker moves, the schedule and the end, if any.
//!
//! Every record is applied before the next is decided, so each decision sees the effects of the previous ones.

mod approval;
mod calls;
mod control;
mod dispatch;
mod files;
mod provider;
mod retry;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::apply::{ApplyContext, external_dedup_key};
use super::dedup::DedupResult;
use super::{Board, Effect, Input, Outcome, Proposal, ProposalSource, ReplyBody, Step};
use crate::blueprint::{Action, AgentKind};
use crate::breaker::{Branch, BreakerTransition, DueTransition, Reason};
use crate::event::events;
use crate::failure::FailureCode;
use crate::freshness;
use crate::id::{IdempotencyKey, InvocationId, RuleName, Seq, Timestamp, Version, WorkerName};
use crate::ledger::Usage;
use crate::mutants::{self, Mutant};
use crate::pipeline::{self, AppliedPatch, Proposer, Reply};
use crate::plan::{self, CompiledTrigger};
use crate::record::{
    Attempt, Author, Body, Breaker, Cause, Committed, End, Ended, Expanded, Failed, Late, NoOp, PauseRequest,
    Principal, Record, Rejected, Reserved, SINCE_ADMISSION, SINCE_BOUNDED_STEPS, SINCE_JOURNAL_LIMIT, Signal, Trigger,
};
use crate::rejection::{Code, Rejection, Stage, Violation};
use crate::rules::{self, ACTIVATIONS_MAX, TriggerEvent};
use crate::scheduler::OpenInvocation;
use crate::state::State;

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

/// Builder of a step.
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
        Self {
            at,
            board,
            step,
            ending: None,
            waiting_rules,
            exhausted_rules: BTreeSet::new(),
            raw: None,
            principal: None,
        }
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

    fn propose(&mut self, proposal: Proposal) {
        let Proposal { from, worker, reply, usage, raw } = proposal;
        self.raw = raw.filter(|_| self.board.format >= SINCE_ADMISSION);
        let usage = usage.map(Usage::bounded);
        let is_asked = matches!(from, ProposalSource::Attempt { .. });
        let reply = match reply {
            ReplyBody::Derived { reply, .. } if !self.board.plan.converts_replies(&worker, is_asked) => {
                ReplyBody::Text(reply)
            }
            reply => reply,
        };
        let token = match &from {
            ProposalSource::Attempt { invocation, attempt } => Some(IdempotencyKey::for_attempt(*invocation, *attempt)),
            ProposalSource::Direct { key: token, .. } => token.as_ref().map(|token| external_dedup_key(&worker, token)),
        };
        let known = match &token {
            Some(token) => {
                let board = &*self.board;
                board.dedup.look_up(token, || reply.digest(&board.hasher, board.format), self.at, &board.pending)
            }
            None => DedupResult::New,
        };
        match known {
            DedupResult::Replay(verdict) => {
                self.step.outcome = Some(Outcome::Duplicate(verdict));
                return;
            }
            DedupResult::Conflict => {
                let message = "the token was used before, with another patch";
                return self.record_late(from, worker, reply, usage, Code::TokenConflict, message);
            }
            DedupResult::New => {}
        }
        let (by, branch) = match from {
            ProposalSource::Attempt { invocation, attempt } => {
                let open = self.board.scheduler.open().get(&invocation);
                let Some(open) = open.filter(|open| open.calling && open.attempt == attempt) else {
                    let message = "the invocation is over; what it was asked for is not wanted any more";
                    return self.record_late(from, worker, reply, usage, Code::InvocationClosed, message);
                };
                if open.queued.branch.worker != worker {
                    let message = "the invocation is another worker's";
                    return self.record_late(from, worker, reply, usage, Code::WrongWorker, message);
                }
                let usage = usage.or_else(|| self.estimate(open, &reply));
                (author(open, usage), Some(open.queued.branch.clone()))
            }
            ProposalSource::Direct { .. } if self.is_over() => {
                let message = "the board has ended";
                return self.record_late(from, worker, reply, usage, Code::BoardNotRunning, message);
            }
            ProposalSource::Direct { .. } if self.is_journal_full() => return,
            ProposalSource::Direct { key: token, base } => {
                let base = base.map_or(self.board.version(), |base| base.min(self.board.version()));
                (Author { worker, attempt: None, token, base, usage, approval: None, edit: None }, None)
            }
        };
        let board = &*self.board;
        let seat = board.worker_plan_of(&by);
        let asked = seat.as_ref().filter(|_| by.attempt.is_some());
        let interface = asked.map(|seat| seat.interface).unwrap_or_default();
        let proposer = Proposer { worker: &by.worker, worker_plan: seat.as_deref() };
        let (reply, verdict) = self.with_freshness_context(&by, |context| {
            let bytes_max = pipeline::bytes_max(proposer.worker_plan, interface, context);
            let is_too_large = board.format >= SINCE_JOURNAL_LIMIT && reply.bytes() > bytes_max as u64;
            let reply = if is_too_large { reply.elided(&board.hasher, board.format) } else { reply };
            let verdict = pipeline::judge(&board.plan, &board.state, proposer, &reply, interface, context);
            (reply, verdict)
        });
        self.record_verdict(by, branch, &reply, verdict);
    }

    /// Calls `judge` with the freshness context of a proposal.
    fn with_freshness_context<T>(&self, by: &Author, judge: impl FnOnce(&freshness::ProposalContext<'_>) -> T) -> T {
        let board = &*self.board;
        let reservations = board.reservations.unexpired_at(self.at);
        let invocation = by.attempt.as_ref().map(|attempt| attempt.invocation);
        let open = invocation.and_then(|invocation| board.scheduler.open().get(&invocation));
        judge(&freshness::ProposalContext {
            base: by.base,
            basis: open.map(|open| &*open.basis),
            invocation,
            expansions_left: open.map_or(0, |open| open.queued.expansion.left()),
            reservations: &reservations,
            commits: &board.commits,
        })
    }

    /// Records the verdict on a proposal and its consequences.
    fn record_verdict(&mut self, by: Author, branch: Option<Branch>, reply: &ReplyBody, verdict: pipeline::Verdict) {
        match verdict {
            pipeline::Verdict::Accepted(accepted) => match (self.triggers_too_many(&by, &accepted), &accepted.approval)
            {
                (Some(rejection), _) => self.reject(by, branch, reply, rejection, Vec::new()),
                (None, Some(approval)) if by.approval.is_none() => {
                    let approval = approval.clone();
                    self.ask(by, branch, accepted.reply, &approval);
                }
                (None, _) => self.commit(by, branch.as_ref(), accepted, reply),
            },
            pipeline::Verdict::NoOp(reply) if reply.clarify.is_some() => {
                // The pipeline rejects questions of workers without an approver.
                let asked = self.board.plan.workers.get(&by.worker).and_then(|seat| seat.worker.clarify.clone());
                if let Some(asked) = asked {
                    self.ask(by, branch, reply, &asked);
                }
            }
            pipeline::Verdict::NoOp(Reply { patch, intent, expand, written, .. }) if !expand.is_empty() => {
                let follows = self.open_entry(by.attempt.as_ref().map(|attempt| attempt.invocation));
                let raw = self.raw.take();
                let seq =
                    self.push(Body::Expanded(Expanded { by, patch, intent, expand: expand.clone(), written, raw }));
                self.step.outcome = Some(Outcome::Expanded { seq });
                self.move_breakers(branch.as_ref());
                self.enqueue_follow_up(follows, &expand);
            }
            pipeline::Verdict::NoOp(reply) => {
                let raw = self.raw.take();
                let seq = self.push(Body::NoOp(NoOp {
                    by,
                    patch: reply.patch,
                    intent: reply.intent,
                    written: reply.written,
                    pass: reply.pass,
                    raw,
                }));
                self.step.outcome = Some(Outcome::NoOp { seq });
                self.move_breakers(branch.as_ref());
                self.schedule(&TriggerEvent::Completed);
            }
            pipeline::Verdict::Rejected { rejection, contested } => {
                self.reject(by, branch, reply, rejection, contested);
            }
        }
        self.advance();
    }

    /// Rejects a commit that triggers more invocations than one step may record.
    fn triggers_too_many(&self, by: &Author, accepted: &pipeline::Accepted) -> Option<Rejection> {
        let board = &*self.board;
        let waking = |rule: &&plan::Rule| matches!(rule.trigger, CompiledTrigger::Event { .. });
        let workers: usize = board.plan.rules.iter().filter(waking).map(|rule| rule.workers.len().max(1)).sum();
        if board.format < SINCE_BOUNDED_STEPS || workers == 0 {
            return None;
        }
        let events = events(&accepted.made.changes);
        if events.len().saturating_mul(workers) <= ACTIVATIONS_MAX {
            return None;
        }
        let occasion = TriggerEvent::Commit {
            events: &events,
            patch: &accepted.reply.patch,
            before: board.state.root(),
            worker: &by.worker,
            version: board.version().next(),
        };
        let wishes = rules::activations(&board.plan, &board.scheduler, accepted.made.state.root(), &occasion);
        let message = || {
            format!(
                "the patch gives rules more to do than one commit may, {ACTIVATIONS_MAX} invocations: write fewer elements at once"
            )
        };
        let too_many = || Rejection::new(Stage::Application, vec![Violation::new(Code::TooLarge, "", message())]);
        (wishes.len() > ACTIVATIONS_MAX).then(too_many)
    }

    fn reject(
        &mut self,
        by: Author,
        branch: Option<Branch>,
        reply: &ReplyBody,
        rejection: Rejection,
        contested: Vec<jsonptr::PointerBuf>,
    ) {
        let invocation = by.attempt.as_ref().map(|attempt| attempt.invocation);
        let (stage, code) = (rejection.stage, rejection.code);
        // An editor retries within the attempt.
        let keeps = by.edit.as_ref().and_then(|edit| edit.attempt.as_ref()).map(|attempt| attempt.invocation);
        let is_final = invocation.is_some_and(|invocation| match (stage, code) {
            (Stage::Freshness, _) => self.is_last_conflict(invocation),
            // An approver who missed one deadline will hardly meet the next.
            (_, Code::ApprovalExpired) => true,
            _ => self.is_last_attempt(invocation),
        });
        let worker = by.worker.clone();
        let elided = reply.elision();
        let (reply, written) = reply.judged();
        let raw = self.raw.take().filter(|_| elided.is_none());
        let body = Rejected { by, stage, code, is_final, rejection: rejection.clone(), elided, reply, written, raw };
        let seq = self.push(Body::Rejected(Box::new(body)));
        self.step.outcome = Some(Outcome::Rejected { seq, rejection });
        if let Some(invocation) = invocation.filter(|_| !is_final).or(keeps) {
            self.reserve(invocation, worker, contested);
        }
        self.move_breakers(branch.as_ref());
    }

    fn commit(&mut self, by: Author, branch: Option<&Branch>, accepted: pipeline::Accepted, body: &ReplyBody) {
        let pipeline::Accepted { mut reply, made, appended_message: posted, .. } = accepted;
        if let (Some(posted), Value::Array(ops)) = (posted, &mut reply.patch) {
            ops.push(posted);
            reply.written = Some(body.text());
        }
        let worker = by.worker.clone();
        let before: State = self.board.state.clone();
        let wakes = self.board.plan.rules.iter().any(|rule| matches!(rule.trigger, CompiledTrigger::Event { .. }));
        let (changes, patch) = match wakes {
            true => (made.changes.clone(), reply.patch.clone()),
            // No rule reads them.
            false => (Vec::new(), Value::Null),
        };
        let version = self.board.version().next();
        let state = made.state.digest();
        let Reply { patch: mut stored, intent, expand, written, .. } = reply;
        if mutants::is_active(Mutant::DropLastOp) {
            stored.as_array_mut().filter(|ops| ops.len() > 1).map(Vec::pop);
        }
        let invocation = by.attempt.as_ref().map(|attempt| attempt.invocation);
        let follows = self.open_entry(invocation.filter(|_| !expand.is_empty()));
        let raw = self.raw.take();
        let body = Committed { by, version, state, patch: stored, intent, expand: expand.clone(), written, raw };
        let seq = self.push_applied(Body::Committed(body), Some(made));
        self.step.outcome = Some(Outcome::Committed { seq, version, state });
        self.move_breakers(branch);
        self.check_done(Some(before.revision()));
        let events = events(&changes);
        self.schedule(&TriggerEvent::Commit {
            events: &events,
            patch: &patch,
            before: before.root(),
            worker: &worker,
            version,
        });
        if expand.is_empty() {
            self.schedule(&TriggerEvent::Completed);
        } else {
            self.enqueue_follow_up(follows, &expand);
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
            let violation = Violation::new(Code::JournalFull, "", message);
            self.step.outcome = Some(Outcome::RejectedUnrecorded(Rejection::new(Stage::Application, vec![violation])));
        }
        is_full
    }

    /// Records a proposal that is rejected before the pipeline: closed invocation, wrong worker, token conflict, or a
    /// board that is not running.
    fn record_late(
        &mut self,
        from: ProposalSource,
        worker: WorkerName,
        reply: ReplyBody,
        usage: Option<Usage>,
        code: Code,
        message: &str,
    ) {
        if self.is_journal_full() {
            return;
        }
        let (invocation, attempt, token) = match from {
            ProposalSource::Attempt { invocation, attempt } => (Some(invocation), Some(attempt), None),
            ProposalSource::Direct { key: token, .. } => (None, None, token),
        };
        let reply = match self.board.format >= SINCE_JOURNAL_LIMIT {
            true => reply.elided(&self.board.hasher, self.board.format),
            false => reply,
        };
        let elided = reply.elision();
        let raw = self.raw.take().filter(|_| elided.is_none());
        let reply = reply.text();
        let seq = self.push(Body::Late(Late { worker, invocation, attempt, token, code, usage, elided, reply, raw }));
        let rejection = Rejection::new(Stage::Authorization, vec![Violation::new(code, "", message)]);
        self.step.outcome = Some(Outcome::Rejected { seq, rejection });
    }

    /// Reserves the contested places for the invocation's next attempt.
    fn reserve(&mut self, invocation: InvocationId, worker: WorkerName, contested: Vec<jsonptr::PointerBuf>) {
        let places = self.board.reservations.unexpired_at(self.at).vacant(contested, invocation);
        if !places.is_empty() {
            let decisions = self.board.breaker.decisions() + freshness::DECISIONS_MAX;
            let until = self.at.plus_ms(freshness::LASTS_MS);
            let places = places.iter().map(ToString::to_string).collect();
            self.push(Body::Reserved(Reserved { invocation, worker, decisions, until, places }));
        }
    }

    /// Moves the breaker of an outcome's branch, and all breakers at the end of their cooldown.
    fn move_breakers(&mut self, branch: Option<&Branch>) {
        let plan = Arc::clone(&self.board.plan);
        if let Some(branch) = branch
            && let Some(due) = self.board.breaker.due(&plan.blueprint.circuit, branch)
        {
            self.trip(branch, due);
        }
        for branch in self.board.breaker.cooled_down(&plan.blueprint.circuit) {
            self.trip(
                &branch,
                DueTransition { reason: Reason::Cooldown, action: None, change: BreakerTransition::HalfOpened },
            );
        }
    }

    fn trip(&mut self, branch: &Branch, due: DueTransition) {
        let DueTransition { reason, action, change } = due;
        if change == BreakerTransition::Opened && reason != Reason::Budget {
            for invocation in self.board.open_of(branch) {
                self.step.effects.push(Effect::Cancel { invocation, worker: branch.worker.clone() });
            }
        }
        let (rule, worker) = (branch.rule.clone(), branch.worker.clone());
        self.push(Body::Breaker(Breaker { rule: rule.clone(), worker: worker.clone(), change, reason }));
        match action {
            Some(Action::StopBoard) => {
                let cause = match reason {
                    Reason::Rejections => Cause::Rejections,
                    Reason::NoOps => Cause::NoOps,
                    Reason::Passes => Cause::Passes,
                    Reason::Crashes => Cause::Crashes,
                    Reason::Cycles => Cause::Cycles,
                    Reason::Budget => Cause::Budget,
                    Reason::Cooldown | Reason::ProbeCommitted | Reason::ProbeFailed | Reason::Retried => Cause::Breaker,
                };
                self.ending = self.ending.or(Some(Ended { end: End::Stopped, cause }));
            }
            Some(Action::Wake(woken)) => {
                let woken = Branch { rule: None, worker: woken };
                self.enqueue(woken, Trigger::Breaker { rule, worker, reason }, None);
            }
            Some(Action::ReduceView | Action::StopBranch) | None => {}
        }
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

    /// Estimates the usage of a language model's reply if its provider reports none.
    fn estimate(&self, open: &OpenInvocation, reply: &ReplyBody) -> Option<Usage> {
        let worker = &self.board.plan.workers[&open.queued.branch.worker].worker;
        let of_seat = u64::from(worker.limits.reply_tokens);
        // The reservation is larger after a truncated reply, and smaller for a model with a lower reply limit.
        let reserved = open.reply_tokens.map_or(of_seat, |tokens| tokens.min(of_seat));
        (worker.agent == AgentKind::Llm).then(|| Usage {
            prompt: open.reserved.saturating_sub(reserved),
            completion: (reply.text().chars().count() as u64).div_ceil(4),
            cached: 0,
            estimated: true,
            money: 0,
        })
    }

    fn push(&mut self, body: Body) -> Seq {
        self.push_applied(body, None)
    }

    /// Seals a record, applies it and adds it to the step.
    fn push_applied(&mut self, body: Body, made: Option<AppliedPatch>) -> Seq {
        let (last, hash) = self.board.head;
        let principal = self.principal.take();
        let record = Record::seal_as(principal.as_ref(), hash, last.next(), self.at, &body, &self.board.hasher);
        let applied = self.board.apply(
            record.seq,
            self.at,
            &body,
            ApplyContext { applied: made, principal, ..ApplyContext::default() },
        );
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
    let base: Version = open.base;
    Author {
        worker: open.queued.branch.worker.clone(),
        attempt: Some(attempt),
        token: None,
        base,
        usage,
        approval: None,
        edit: None,
    }
}

/// Returns the usage of a failed call if its kind determines it. Others stay charged at their reservation.
fn cost_of(code: FailureCode) -> Option<Usage> {
    use FailureCode as F;
    match code {
        F::Unreachable | F::NotConfigured | F::CassetteMiss | F::Refused | F::RateLimited => Some(Usage::default()),
        F::Timeout
        | F::Truncated
        | F::Empty
        | F::Protocol
        | F::Crashed
        | F::LeaseExpired
        | F::BudgetExhausted
        | F::Lost => None,
    }
}
