//! Questions to persons: asked, answered or expired (SPEC section 3).
//!
//! A question asks for approval of a proposal, or for an answer that a worker needs. It is bound to the fingerprint of
//! the proposal or question, to its approver and to its deadline; one answer counts. An approved proposal passes the
//! whole pipeline again, against its author's read set. An answered worker is invoked again, with the answer.

use super::StepBuilder;
use crate::blueprint::Approval as Demand;
use crate::blueprint::Expiry;
use crate::board::{Outcome, PendingQuestion};
use crate::breaker::Branch;
use crate::id::Seq;
use crate::pipeline::{self, ClarifyQuestion, Reply};
use crate::record::{Answer, Approval, Author, Body, Principal, SINCE_TOKEN_CREATORS};
use crate::rejection::{Code, Rejection, Stage, Violation};

/// Maximum number of pending questions per board.
const PENDING_MAX: usize = 64;

/// Maximum characters of a person's answer to a worker.
const ANSWER_MAX: usize = 4000;

impl StepBuilder<'_> {
    /// Submits a proposal for approval, or a worker's question to the person who may know.
    pub(super) fn ask(&mut self, by: Author, branch: Option<Branch>, reply: Reply, demand: &Demand) {
        if self.board.pending.len() >= PENDING_MAX {
            let message = format!("{PENDING_MAX} questions wait for persons already");
            let rejection = Rejection::single(Stage::Approval, Code::ApprovalLimit, message);
            let body = reply.judged_body(&self.board.plan, &by);
            return self.reject(by, branch, &body, rejection, Vec::new());
        }
        let digest = reply.fingerprint(&self.board.hasher);
        let Reply { patch, intent, expand, written, clarify, pass: _ } = reply;
        let approver = demand.by.clone();
        let expires = match demand.expires {
            Expiry::After(time) => Some(self.at.plus_ms(time.as_ms())),
            Expiry::Never => None,
        };
        let (four_eyes, raw) = (demand.four_eyes, self.raw.take());
        let asked = Approval { by, approver, expires, four_eyes, digest, patch, intent, expand, written, clarify, raw };
        let seq = self.push(Body::Approval(asked));
        self.step.outcome = Some(Outcome::AwaitingApproval { seq });
        self.move_breakers(branch.as_ref());
    }

    /// Decides a person's answer.
    pub(super) fn answer(&mut self, answer: Answer) {
        let question = match self.question_of(&answer) {
            Ok(question) => question,
            Err(violation) => return self.refuse(Stage::Approval, vec![violation]),
        };
        if question.clarify.is_some() && answer.agrees {
            return self.relay_answer(answer, &question);
        }
        let approver = question.approver.clone();
        let (by, branch, reply) = self.to_proposal(answer.of, question);
        let denied = (!answer.agrees).then(|| {
            let reason = answer.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let does_not = if reply.clarify.is_some() { "does not say" } else { "does not agree" };
            Rejection::single(Stage::Approval, Code::Denied, format!("{} {does_not}{reason}", answer.by))
        });
        self.push(Body::Answer(answer));
        let body = reply.judged_body(&self.board.plan, &by);
        match denied {
            Some(rejection) => {
                self.reject(by, branch, &body, rejection, Vec::new());
                self.advance();
            }
            None => {
                let board = &*self.board;
                let seat = board.worker_plan_of(&by);
                let proposer = pipeline::Proposer { worker: &by.worker, worker_plan: seat.as_deref() };
                let verdict = self.with_freshness_context(&by, |context| {
                    pipeline::judge_approved(&board.plan, &board.state, proposer, reply, &approver, context)
                });
                self.record_verdict(by, branch, &body, verdict);
            }
        }
    }

    /// Invokes a worker again, with a person's answer to its question.
    fn relay_answer(&mut self, answer: Answer, question: &PendingQuestion) {
        let follows = self.open_entry(question.by.attempt.as_ref().map(|attempt| attempt.invocation));
        let branch = follows.as_ref().map(|queued| queued.branch.clone());
        let seq = self.push(Body::Answer(answer));
        self.step.outcome = Some(Outcome::Answered { seq });
        self.move_breakers(branch.as_ref());
        self.enqueue_follow_up(follows, &[]);
        self.advance();
    }

    /// Ends a question that passed its deadline without an answer.
    pub(super) fn expire(&mut self, seq: Seq) {
        let Some(question) = self.board.pending.get(&seq).cloned() else { return };
        let message = format!("{} did not answer in time", question.approver);
        let (by, branch, reply) = self.to_proposal(seq, question);
        let body = reply.judged_body(&self.board.plan, &by);
        self.reject(by, branch, &body, Rejection::single(Stage::Approval, Code::ApprovalExpired, message), Vec::new());
    }

    /// Returns the question that an answer is for, if the answer is valid.
    fn question_of(&self, answer: &Answer) -> Result<PendingQuestion, Violation> {
        let refuse = |code, message: String| Err(Violation::new(code, "", message));
        if self.is_over() {
            return refuse(Code::BoardNotRunning, "the board has ended".to_owned());
        }
        let Some(question) = self.board.pending.get(&answer.of) else {
            let message =
                format!("record {} is no open question: it is answered, has expired, or never was one", answer.of);
            return refuse(Code::NotPending, message);
        };
        if question.approver != answer.by {
            return refuse(Code::WrongApprover, format!("{} was asked, not {}", question.approver, answer.by));
        }
        if question.four_eyes && !self.is_another(question) {
            let message = "another caller must answer: not the one who has started the board or made the proposal, and none without \
                           a token, who may be that one"
                .to_owned();
            return refuse(Code::FourEyes, message);
        }
        if question.digest != answer.digest {
            let message = format!("the answer is about {}, the question about {}", answer.digest, question.digest);
            return refuse(Code::ApprovalMismatch, message);
        }
        if question.is_over(self.at) {
            return refuse(Code::ApprovalExpired, "the question is over: its time has passed".to_owned());
        }
        if let Some(message) = answer_mismatch(question.clarify.as_ref(), answer) {
            return refuse(Code::AnswerNotOffered, message);
        }
        Ok(question.clone())
    }

    /// Returns true if the caller neither started the board nor made the proposal. An unknown caller may have done
    /// either, so returns false.
    fn is_another(&self, question: &PendingQuestion) -> bool {
        let format = self.board.format;
        let is_approver = |caller: &Principal| caller.is_token_of(&question.approver);
        let is_own = format >= SINCE_TOKEN_CREATORS && question.by.worker == question.approver
            || question.principal.as_ref().is_some_and(is_approver);
        let others = [&self.board.creator, &question.principal];
        let is_one =
            |caller: &Principal| others.into_iter().flatten().any(|other| other.may_be_same_caller(caller, format));
        self.principal.as_ref().is_some_and(|caller| !is_own && !is_one(caller))
    }

    /// Splits a question into author, branch and proposal. The usage is cleared, because the question's record already
    /// charged it.
    fn to_proposal(&self, seq: Seq, question: PendingQuestion) -> (Author, Option<Branch>, Reply) {
        let PendingQuestion { by, patch, intent, expand, written, clarify, .. } = question;
        let open = by.attempt.as_ref().and_then(|attempt| self.board.scheduler.open().get(&attempt.invocation));
        let branch = open.map(|open| open.queued.branch.clone());
        let by = Author { usage: None, approval: Some(seq), ..by };
        (by, branch, Reply { patch, intent, expand, written, clarify, pass: None })
    }
}

/// Returns the reason for which an answer does not fit its question.
fn answer_mismatch(clarify: Option<&ClarifyQuestion>, answer: &Answer) -> Option<String> {
    match (clarify, &answer.text) {
        (None, None) => None,
        (Some(_), None) if !answer.agrees => None,
        (None, Some(_)) => Some("the question is whether the person agrees, and no more".to_owned()),
        (Some(_), Some(_)) if !answer.agrees => Some("a refusal to answer has a reason and no answer".to_owned()),
        (Some(_), None) => Some("the question wants an answer in words".to_owned()),
        (Some(clarify), Some(text)) if !clarify.choices.is_empty() => {
            let offered = || clarify.choices.join(", ");
            (!clarify.choices.contains(text)).then(|| format!("choose one of: {}", offered()))
        }
        (Some(_), Some(text)) if text.trim().is_empty() => Some("the answer is empty".to_owned()),
        (Some(_), Some(text)) => {
            text.chars().nth(ANSWER_MAX).map(|_| format!("an answer has at most {ANSWER_MAX} characters"))
        }
    }
}
