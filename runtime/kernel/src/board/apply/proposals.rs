//! Records of proposals: committed, without effect, rejected, or put to a person.

use std::collections::VecDeque;
use std::sync::Arc;

use jsonptr::PointerBuf;
use serde_json::Value;

use super::ApplyContext;
use super::calls::AttemptEnd;
use crate::bindings::Bindings;
use crate::board::{Board, FEEDBACK_MAX, FEEDBACK_PER_WORKER_MAX, PendingQuestion, feedback};
use crate::breaker::{self, AttemptOutcome};
use crate::id::{Seq, Timestamp};
use crate::json::size;
use crate::pipeline;
use crate::record::{
    self, Answer, Approval, Author, Committed, Expanded, NoOp, Principal, Rejected, SINCE_ELEMENT_CYCLES,
};
use crate::rejection::{Code, Stage};
use crate::scheduler::{AnsweredQuestion, QueuedInvocation};

/// Maximum number of invocations kept per branch that changed nothing; the oldest are evicted first.
const INEFFECTIVE_MAX: usize = 64;

impl Board {
    pub(super) fn apply_commit(
        &mut self,
        seq: Seq,
        at: Timestamp,
        committed: &Committed,
        beside: ApplyContext,
    ) -> Result<(), String> {
        let is_opaque = seq < self.opaque_until;
        let made = match beside.applied {
            Some(made) => made,
            None => pipeline::reapply(&self.plan, &self.state, &committed.patch, is_opaque)
                .map_err(|violation| format!("its patch does not apply: {}", violation.message))?,
        };
        if committed.version != self.state.version().next() {
            return Err(format!("version {} does not follow {}", committed.version, self.state.version()));
        }
        self.is_exact = committed.state == made.state.digest();
        if !self.is_exact && !is_opaque {
            return Err("its patch does not make the state it names".to_owned());
        }
        self.reopen();
        // A direct proposal belongs to no branch, so it cannot form a cycle.
        let is_of_branch = committed.by.attempt.is_some();
        let bound = self.bindings_of(&committed.by);
        let is_of_element = self.format >= SINCE_ELEMENT_CYCLES && !bound.is_empty();
        let element = is_of_element.then(|| self.bound_element(&committed.by)).flatten();
        let region = || breaker::fingerprint(&self.hasher, &made.changes, &made.state, element.as_deref());
        let written = is_of_branch.then(|| beside.region.unwrap_or_else(region));
        // A plain blackboard message that sets nothing.
        let is_idle = made.changes.is_empty();
        let of_attempt = committed.by.attempt.as_ref().filter(|_| !is_idle);
        if let Some(open) = of_attempt.and_then(|attempt| self.scheduler.open().get(&attempt.invocation)) {
            self.ineffective.remove(&open.queued.branch);
        }
        if committed.by.edit.is_some() {
            self.files.record_edit(&self.state, &committed.patch);
        }
        self.state = made.state;
        self.commits.push(seq, &committed.by.worker);
        let finish = if committed.expand.is_empty() { AttemptEnd::Completed } else { AttemptEnd::Continued(None) };
        let branch = self.finish(&committed.by, at, finish)?;
        let of = is_of_element.then(|| self.hasher.document(&bound.to_value()));
        let heard = match is_idle {
            true if bound.is_empty() => AttemptOutcome::NoOp,
            true => AttemptOutcome::Unchanged,
            false => AttemptOutcome::Commit { written: written.unwrap_or(committed.state), binding: of },
        };
        self.breaker.record_outcome(&self.plan.blueprint.circuit, branch.as_ref(), heard);
        self.clear_feedback(&committed.by, &bound);
        Ok(())
    }

    /// Remembers a proposal that changes nothing.
    pub(super) fn apply_no_op(&mut self, at: Timestamp, no_op: &NoOp) -> Result<(), String> {
        let of_attempt = no_op.by.attempt.as_ref();
        let queued = of_attempt.and_then(|attempt| self.scheduler.open().get(&attempt.invocation));
        let queued = queued.map(|open| open.queued.clone());
        let bound = self.bindings_of(&no_op.by);
        let branch = self.finish(&no_op.by, at, AttemptEnd::Completed)?;
        let heard = match no_op.pass.is_some() {
            true => AttemptOutcome::Pass,
            // Each invocation of a bound worker concerns another element, so in a row they are no streak.
            false if !bound.is_empty() => AttemptOutcome::Unchanged,
            false => AttemptOutcome::NoOp,
        };
        let counts = heard != AttemptOutcome::Unchanged && self.format >= record::SINCE_FULL_RETRY;
        if let Some(queued) = queued.filter(|_| counts) {
            self.keep_ineffective(queued, no_op.pass.is_some());
        }
        self.breaker.record_outcome(&self.plan.blueprint.circuit, branch.as_ref(), heard);
        self.clear_feedback(&no_op.by, &bound);
        Ok(())
    }

    /// Remembers a reply that asks only to be shown more.
    pub(super) fn apply_expansion(&mut self, at: Timestamp, expanded: &Expanded) -> Result<(), String> {
        let branch = self.finish(&expanded.by, at, AttemptEnd::Continued(None))?;
        self.breaker.record_outcome(&self.plan.blueprint.circuit, branch.as_ref(), AttemptOutcome::Expansion);
        Ok(())
    }

    pub(super) fn apply_rejection(&mut self, seq: Seq, at: Timestamp, rejected: &Rejected) -> Result<(), String> {
        if let Some(attempt) = rejected.by.attempt.as_ref().filter(|_| self.format >= record::SINCE_ADMISSION) {
            self.scheduler.record_rejection(attempt.invocation);
        }
        let is_conflict = rejected.stage == Stage::Freshness;
        if let (true, Some(attempt)) = (is_conflict, &rejected.by.attempt) {
            let reserved = rejected.rejection.violations.iter().filter(|violation| violation.code == Code::Reserved);
            let awaits = reserved.filter_map(|violation| PointerBuf::parse(violation.pointer.clone()).ok()).collect();
            self.scheduler.record_conflict(attempt.invocation, awaits);
        }
        let finish = if rejected.is_final { AttemptEnd::GivenUp } else { AttemptEnd::AttemptOnly };
        let bound = self.bindings_of(&rejected.by);
        let branch = self.finish(&rejected.by, at, finish)?;
        let is_final = rejected.is_final;
        // Of bound invocations only those given up count, because each concerns another element.
        let is_tried_again = !bound.is_empty() && !is_final;
        let heard = match is_conflict || is_tried_again {
            true => AttemptOutcome::Conflict { is_final },
            false => AttemptOutcome::Rejection { is_final },
        };
        self.breaker.record_outcome(&self.plan.blueprint.circuit, branch.as_ref(), heard);
        // The author of an edit already received the rejection as a response.
        if rejected.by.edit.is_none() && self.plan.workers.contains_key(&rejected.by.worker) {
            let recent: &mut VecDeque<_> = self.feedback.entry(rejected.by.worker.clone()).or_default();
            recent.push_back((seq, feedback::for_author(rejected, &bound)));
            let of_same = |(_, (_, shown)): &(usize, &(Seq, Value))| feedback::has_bindings(shown, &bound);
            let known: Vec<usize> = recent.iter().enumerate().filter(of_same).map(|(at, _)| at).collect();
            if known.len() > FEEDBACK_MAX {
                recent.remove(known[0]);
            }
            while recent.len() > FEEDBACK_PER_WORKER_MAX {
                recent.pop_front();
            }
        }
        Ok(())
    }

    /// Submits a proposal, or a worker's question, to a person.
    pub(super) fn apply_question(
        &mut self,
        seq: Seq,
        at: Timestamp,
        approval: &Approval,
        principal: Option<Principal>,
    ) -> Result<(), String> {
        let Approval { by, approver, expires, four_eyes, digest, patch, intent, expand, written, clarify, .. } =
            approval.clone();
        let branch = self.finish(&by, at, AttemptEnd::AwaitingPerson(seq))?;
        self.reopen();
        let question = PendingQuestion {
            by,
            approver,
            expires,
            four_eyes,
            digest,
            patch,
            intent,
            expand,
            written,
            clarify,
            principal,
        };
        Arc::make_mut(&mut self.pending).insert(seq, question);
        self.breaker.record_outcome(&self.plan.blueprint.circuit, branch.as_ref(), AttemptOutcome::AwaitingPerson);
        Ok(())
    }

    /// Ends the round of a worker whose question is answered.
    pub(super) fn apply_answer(&mut self, at: Timestamp, answer: &Answer) -> Result<(), String> {
        let question = self.pending.get(&answer.of).cloned();
        let question = question.ok_or_else(|| format!("record {} asks nothing", answer.of))?;
        if let (Some(clarify), Some(text)) = (question.clarify, &answer.text) {
            let by = Author { usage: None, approval: Some(answer.of), ..question.by };
            let answered = AnsweredQuestion { question: clarify.question, by: answer.by.clone(), answer: text.clone() };
            let branch = self.finish(&by, at, AttemptEnd::Continued(Some(answered)))?;
            self.breaker.record_outcome(&self.plan.blueprint.circuit, branch.as_ref(), AttemptOutcome::Expansion);
        }
        Ok(())
    }

    /// Returns the bindings of the invocation behind a proposal.
    fn bindings_of(&self, by: &Author) -> Bindings {
        let open = by.attempt.as_ref().and_then(|attempt| self.scheduler.open().get(&attempt.invocation));
        open.map(|open| open.queued.bound(&self.plan)).unwrap_or_default()
    }

    /// Returns the place that the trigger of a proposal's invocation binds.
    fn bound_element(&self, by: &Author) -> Option<PointerBuf> {
        let open = self.scheduler.open().get(&by.attempt.as_ref()?.invocation)?;
        self.plan.element(&open.queued.branch, &open.queued.trigger)
    }

    /// Drops the feedback and reservations kept for an author, since its proposal succeeded.
    fn clear_feedback(&mut self, by: &Author, bound: &Bindings) {
        if let Some(edit) = &by.edit {
            edit.attempt.iter().for_each(|attempt| self.reservations.release(attempt.invocation));
            return;
        }
        if let Some(recent) = self.feedback.get_mut(&by.worker) {
            recent.retain(|(_, shown)| !feedback::has_bindings(shown, bound));
            if recent.is_empty() {
                self.feedback.remove(&by.worker);
            }
        }
    }

    /// Keeps an invocation that changed nothing, if its breaker counts such invocations.
    fn keep_ineffective(&mut self, queued: QueuedInvocation, is_pass: bool) {
        let circuit = &self.plan.blueprint.circuit;
        let limit = match (is_pass, &circuit.passes) {
            (false, _) => circuit.no_ops.limit,
            (true, Some(passes)) => passes.limit,
            (true, None) => return,
        };
        // Bounds the memory that external input can take.
        if queued.value.as_ref().is_some_and(|value| size(value) > super::KEPT_VALUE_MAX) {
            return;
        }
        let of_branch = self.ineffective.entry(queued.branch.clone()).or_default();
        let streak = if is_pass { &mut of_branch.passes } else { &mut of_branch.no_ops };
        streak.push_back(queued);
        while streak.len() > (limit as usize).min(INEFFECTIVE_MAX) {
            streak.pop_front();
        }
    }
}
