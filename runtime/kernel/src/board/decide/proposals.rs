//! Proposals: from a reply to its verdict, and from the verdict to its record.

use jsonptr::PointerBuf;
use serde_json::Value;

use super::{StepBuilder, author};
use crate::blueprint::AgentKind;
use crate::board::apply::external_dedup_key;
use crate::board::dedup::DedupResult;
use crate::board::{Outcome, Proposal, ProposalSource, ReplyBody};
use crate::breaker::Branch;
use crate::event::events;
use crate::freshness::{self, ProposalContext};
use crate::id::{IdempotencyKey, InvocationId, WorkerName};
use crate::ledger::Usage;
use crate::mutants::{self, Mutant};
use crate::pipeline::{self, Accepted, Proposer, Reply, Verdict};
use crate::plan::{self, CompiledTrigger};
use crate::record::{
    Author, Body, Committed, Expanded, Late, NoOp, Rejected, Reserved, SINCE_ADMISSION, SINCE_BOUNDED_STEPS,
    SINCE_JOURNAL_LIMIT,
};
use crate::rejection::{Code, Rejection, Stage};
use crate::rules::{self, ACTIVATIONS_MAX, TriggerEvent};
use crate::scheduler::OpenInvocation;
use crate::state::State;

impl StepBuilder<'_> {
    pub(super) fn propose(&mut self, proposal: Proposal) {
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
                (Author { token, usage, ..Author::new(worker, base) }, None)
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
    pub(super) fn with_freshness_context<T>(&self, by: &Author, judge: impl FnOnce(&ProposalContext<'_>) -> T) -> T {
        let board = &*self.board;
        let reservations = board.reservations.unexpired_at(self.at);
        let invocation = by.attempt.as_ref().map(|attempt| attempt.invocation);
        let open = invocation.and_then(|invocation| board.scheduler.open().get(&invocation));
        judge(&ProposalContext {
            base: by.base,
            basis: open.map(|open| &*open.basis),
            invocation,
            expansions_left: open.map_or(0, |open| open.queued.expansion.left()),
            reservations: &reservations,
            commits: &board.commits,
        })
    }

    /// Records the verdict on a proposal and its consequences.
    pub(super) fn record_verdict(&mut self, by: Author, branch: Option<Branch>, reply: &ReplyBody, verdict: Verdict) {
        match verdict {
            Verdict::Accepted(accepted) => match (self.triggers_too_many(&by, &accepted), &accepted.approval) {
                (Some(rejection), _) => self.reject(by, branch, reply, rejection, Vec::new()),
                (None, Some(approval)) if by.approval.is_none() => {
                    let approval = approval.clone();
                    self.ask(by, branch, accepted.reply, &approval);
                }
                (None, _) => self.commit(by, branch.as_ref(), accepted, reply),
            },
            Verdict::NoOp(reply) if reply.clarify.is_some() => {
                // The pipeline rejects questions of workers without an approver.
                let asked = self.board.plan.workers.get(&by.worker).and_then(|seat| seat.worker.clarify.clone());
                if let Some(asked) = asked {
                    self.ask(by, branch, reply, &asked);
                }
            }
            Verdict::NoOp(Reply { patch, intent, expand, written, .. }) if !expand.is_empty() => {
                let follows = self.open_entry(by.attempt.as_ref().map(|attempt| attempt.invocation));
                let raw = self.raw.take();
                let seq =
                    self.push(Body::Expanded(Expanded { by, patch, intent, expand: expand.clone(), written, raw }));
                self.step.outcome = Some(Outcome::Expanded { seq });
                self.move_breakers(branch.as_ref());
                self.enqueue_follow_up(follows, &expand);
            }
            Verdict::NoOp(Reply { patch, intent, written, pass, .. }) => {
                let raw = self.raw.take();
                let seq = self.push(Body::NoOp(NoOp { by, patch, intent, written, pass, raw }));
                self.step.outcome = Some(Outcome::NoOp { seq });
                self.move_breakers(branch.as_ref());
                self.schedule(&TriggerEvent::Completed);
            }
            Verdict::Rejected { rejection, contested } => {
                self.reject(by, branch, reply, rejection, contested);
            }
        }
        self.advance();
    }

    /// Rejects a commit that triggers more invocations than one step may record.
    fn triggers_too_many(&self, by: &Author, accepted: &Accepted) -> Option<Rejection> {
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
        let (patch, before, worker) = (&accepted.reply.patch, board.state.root(), &by.worker);
        let version = board.version().next();
        let occasion = TriggerEvent::Commit { events: &events, patch, before, worker, version };
        let wishes = rules::activations(&board.plan, &board.scheduler, accepted.made.state.root(), &occasion);
        (wishes.len() > ACTIVATIONS_MAX).then(|| {
            let message = format!(
                "the patch gives rules more to do than one commit may, {ACTIVATIONS_MAX} invocations: write fewer elements at once"
            );
            Rejection::single(Stage::Application, Code::TooLarge, message)
        })
    }

    pub(super) fn reject(
        &mut self,
        by: Author,
        branch: Option<Branch>,
        reply: &ReplyBody,
        rejection: Rejection,
        contested: Vec<PointerBuf>,
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

    pub(super) fn commit(&mut self, by: Author, branch: Option<&Branch>, accepted: Accepted, body: &ReplyBody) {
        let Accepted { mut reply, made, appended_message: posted, .. } = accepted;
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
        let (before, worker) = (before.root(), &worker);
        self.schedule(&TriggerEvent::Commit { events: &events, patch: &patch, before, worker, version });
        if expand.is_empty() {
            self.schedule(&TriggerEvent::Completed);
        } else {
            self.enqueue_follow_up(follows, &expand);
        }
    }

    /// Records a proposal that is rejected before the pipeline: closed invocation, wrong worker, token conflict, or a
    /// board that is not running.
    pub(super) fn record_late(
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
        let rejection = Rejection::single(Stage::Authorization, code, message);
        self.step.outcome = Some(Outcome::Rejected { seq, rejection });
    }

    /// Reserves the contested places for the invocation's next attempt.
    fn reserve(&mut self, invocation: InvocationId, worker: WorkerName, contested: Vec<PointerBuf>) {
        let places = self.board.reservations.unexpired_at(self.at).vacant(contested, invocation);
        if !places.is_empty() {
            let decisions = self.board.breaker.decisions() + freshness::DECISIONS_MAX;
            let until = self.at.plus_ms(freshness::LASTS_MS);
            let places = places.iter().map(ToString::to_string).collect();
            self.push(Body::Reserved(Reserved { invocation, worker, decisions, until, places }));
        }
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
}
