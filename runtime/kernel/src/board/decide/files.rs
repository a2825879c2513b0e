//! Edits of workspace files.

use super::calls::rejected_unrecorded;
use super::{StepBuilder, author};
use crate::board::apply::edit_dedup_key;
use crate::board::dedup::DedupResult;
use crate::board::{Outcome, ReplyBody};
use crate::files::{EXTERNAL, Edit, EditContext, EditProposal};
use crate::id::WorkerName;
use crate::pipeline::{self, Verdict};
use crate::record::{Author, Body, EditOrigin, NoOp};
use crate::rejection::Code;

impl StepBuilder<'_> {
    /// Commits an edit, records that it changes nothing, or rejects it. Its attempt continues in any case. An external
    /// edit has already happened, so it is committed even on a paused board.
    pub(super) fn edit(&mut self, edit: Edit) {
        let refused = |code, message: &str| Some(rejected_unrecorded(code, message));
        let body = ReplyBody::Text(serde_json::to_string(&edit).expect("an edit has string keys and finite numbers"));
        // A retry may arrive after the attempt has ended.
        if let Some(token) = edit.token.as_ref().map(edit_dedup_key) {
            let board = &*self.board;
            let known =
                board.dedup.look_up(&token, || body.digest(&board.hasher, board.format), self.at, &board.pending);
            self.step.outcome = match known {
                DedupResult::New => None,
                DedupResult::Replay(verdict) => Some(Outcome::Duplicate(verdict)),
                DedupResult::Conflict => refused(Code::TokenConflict, "the token was used before, for another edit"),
            };
            if self.step.outcome.is_some() {
                return;
            }
        }
        let attempt = match edit.of {
            Some(of) => match self.board.scheduler.open().get(&of.invocation) {
                Some(open) if open.calling && open.attempt == of.attempt => Some(author(open, None)),
                Some(_) | None => {
                    let message = "the task is over; what it was asked for is not wanted any more";
                    self.step.outcome = refused(Code::InvocationClosed, message);
                    return;
                }
            },
            None => None,
        };
        if self.is_over() {
            self.step.outcome = refused(Code::BoardNotRunning, "the board has ended");
            return;
        }
        let seat = attempt.as_ref().and_then(|by| self.board.plan.workers.get(&by.worker));
        let worker = seat.map_or_else(|| WorkerName::from(EXTERNAL), |seat| seat.name.clone());
        let attempt = attempt.and_then(|by| by.attempt);
        let invocation = attempt.as_ref().map(|attempt| attempt.invocation);
        let writer = edit.name.clone().unwrap_or_else(|| worker.to_string());
        let (token, edit_origin) = (edit.token.clone(), Some(EditOrigin { attempt }));
        let by = Author { token, edit: edit_origin, ..Author::new(worker, self.board.version()) };
        let board = &*self.board;
        let context = EditContext {
            plan: &board.plan,
            state: &board.state,
            author: invocation.zip(seat.map(|seat| &**seat)),
            writer: &writer,
            reservations: &board.reservations.unexpired_at(self.at),
            at: self.at,
            commits: &board.commits,
            floor: board.files.version_floor,
        };
        let verdict = pipeline::judge_edit(&board.plan, &board.state, &EditProposal::new(&edit, context));
        let intent = edit.intent.filter(|intent| !intent.is_empty());
        let written = Some(body.text());
        match verdict {
            Verdict::Accepted(mut accepted) => {
                accepted.reply.intent = intent;
                accepted.reply.written = written;
                self.commit(by, None, accepted, &body);
            }
            Verdict::NoOp(reply) => {
                let seq =
                    self.push(Body::NoOp(NoOp { by, patch: reply.patch, intent, written, pass: None, raw: None }));
                self.step.outcome = Some(Outcome::NoOp { seq });
                self.move_breakers(None);
            }
            Verdict::Rejected { rejection, contested } => self.reject(by, None, &body, rejection, contested),
        }
        self.advance();
    }
}
