//! Proposals that a person must agree to: put to the person, answered, or over (SPEC section 3).
//!
//! A question is bound to the fingerprint of what was proposed, to its approver and to its end; the answer counts once,
//! and the proposal passes the whole pipeline again, against what its author was shown.

use super::Draft;
use crate::blueprint::Approval as Demand;
use crate::board::{Outcome, Pending};
use crate::breaker::Branch;
use crate::id::Seq;
use crate::pipeline::{self, Reply, Verdict};
use crate::record::{Answer, Approval, Author, Body};
use crate::rejection::{Code, Rejection, Stage, Violation};

/// The most questions of one board that stand at once.
const PENDING_MAX: usize = 64;

impl Draft<'_> {
    /// Puts a proposal to the person who must agree to it.
    pub(super) fn ask(&mut self, by: Author, branch: Option<Branch>, reply: Reply, demand: &Demand) {
        if self.board.pending.len() >= PENDING_MAX {
            let message = format!("{PENDING_MAX} proposals wait for persons already");
            let rejection = approval(Code::ApprovalLimit, message);
            return self.reject(by, branch, &reply.to_body(), rejection, Vec::new());
        }
        let Reply { patch, intent, expand, written } = reply;
        let digest = pipeline::fingerprint(&self.board.hasher, &patch, intent.as_deref(), &expand);
        let (approver, expires) = (demand.by.clone(), self.at.plus_ms(demand.expires.as_ms()));
        let seq = self.push(Body::Approval(Approval { by, approver, expires, digest, patch, intent, expand, written }));
        self.step.outcome = Some(Outcome::AwaitingApproval { seq });
        self.move_breakers(branch.as_ref());
    }

    /// Takes a person's answer.
    pub(super) fn answer(&mut self, answer: Answer) {
        let question = match self.question_of(&answer) {
            Ok(question) => question,
            Err(violation) => {
                let rejection = Rejection::new(Stage::Approval, vec![violation]);
                self.step.outcome = Some(Outcome::Refused(rejection));
                return;
            }
        };
        let approver = question.approver.clone();
        let (by, branch, reply) = self.taken_up(answer.of, question);
        let denied = (!answer.agrees).then(|| {
            let reason = answer.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            approval(Code::Denied, format!("{} does not agree{reason}", answer.by))
        });
        self.push(Body::Answer(answer));
        match denied {
            Some(rejection) => {
                self.reject(by, branch, &reply.to_body(), rejection, Vec::new());
                self.go_on();
            }
            None => {
                let body = reply.to_body();
                let board = &*self.board;
                let verdict = self.in_context(&by, |context| {
                    pipeline::judge_agreed(&board.plan, &board.state, &by.worker, reply, context)
                });
                let verdict = match verdict {
                    // Whom it needs follows from what is there now.
                    Verdict::Accepted(accepted) if accepted.approval.as_ref().is_some_and(|it| it.by != approver) => {
                        let message = "it needs another person's word now; propose it again".to_owned();
                        Verdict::Rejected {
                            rejection: approval(Code::ApprovalMismatch, message),
                            contested: Vec::new(),
                        }
                    }
                    verdict => verdict,
                };
                self.conclude(by, branch, &body, verdict);
            }
        }
    }

    /// Ends a question that nobody has answered in time.
    pub(super) fn expire(&mut self, seq: Seq) {
        let Some(question) = self.board.pending.get(&seq).cloned() else { return };
        let message = format!("{} did not answer in time", question.approver);
        let (by, branch, reply) = self.taken_up(seq, question);
        self.reject(by, branch, &reply.to_body(), approval(Code::ApprovalExpired, message), Vec::new());
    }

    /// The question that an answer is to, if it counts.
    fn question_of(&self, answer: &Answer) -> Result<Pending, Violation> {
        let refuse = |code, message: String| Err(Violation::new(code, "", message));
        if self.is_over() {
            return refuse(Code::BoardNotRunning, "the board has ended".to_owned());
        }
        let Some(question) = self.board.pending.get(&answer.of) else {
            let message = format!("no question stands under {}: it is answered, or over, or never was", answer.of);
            return refuse(Code::NotPending, message);
        };
        if question.approver != answer.by {
            return refuse(Code::WrongApprover, format!("{} was asked, not {}", question.approver, answer.by));
        }
        if question.digest != answer.digest {
            let message = format!("the answer is about {}, the question about {}", answer.digest, question.digest);
            return refuse(Code::ApprovalMismatch, message);
        }
        if question.expires <= self.at {
            return refuse(Code::ApprovalExpired, "the question is over: its time has passed".to_owned());
        }
        Ok(question.clone())
    }

    /// Whose proposal it is, of which branch, and the proposal. What it cost was told when it was put to the person.
    fn taken_up(&self, seq: Seq, question: Pending) -> (Author, Option<Branch>, Reply) {
        let Pending { by, patch, intent, expand, written, .. } = question;
        let open = by.attempt.as_ref().and_then(|attempt| self.board.scheduler.open().get(&attempt.invocation));
        let branch = open.map(|open| open.queued.branch.clone());
        let by = Author { usage: None, approval: Some(seq), ..by };
        (by, branch, Reply { patch, intent, expand, written })
    }
}

fn approval(code: Code, message: String) -> Rejection {
    Rejection::new(Stage::Approval, vec![Violation::new(code, "", message)])
}
