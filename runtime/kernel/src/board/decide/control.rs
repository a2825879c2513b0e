//! External inputs: time, signals, pause and resume, administrator amendments, change of ownership.

use std::collections::{BTreeMap, BTreeSet};

use jsonptr::Pointer;
use serde_json::{Value, json};

use super::calls::rejected_unrecorded;
use super::{StepBuilder, author};
use crate::blueprint::{AgentKind, Restart};
use crate::board::Outcome;
use crate::board::apply::{dedup_key_of_request, request_digest};
use crate::board::dedup::DedupResult;
use crate::digest::Digest;
use crate::failure::FailureCode;
use crate::files::FILES;
use crate::id::{RuleName, Seq, Timestamp, WorkerName};
use crate::mutants::{self, Mutant};
use crate::pipeline;
use crate::plan::CompiledTrigger;
use crate::record::{
    ADMINISTRATOR, Author, Body, Cause, Empty, End, Ended, Epoch, Failed, Jumped, SINCE_CLOCK_JUMPS,
    SINCE_JOURNAL_LIMIT, Signal, Snapshot,
};
use crate::rejection::{Code, Rejection, Stage, VIOLATIONS_MAX, Violation};
use crate::rules::TriggerEvent;
use crate::snapshot::LAYOUT;
use crate::tree::Node;

/// Number of times that an invocation's call may be lost with a process before it is given up; the call itself may be
/// ending the process.
const LOST_MAX: u32 = 8;

/// Maximum number of signals named in a rejection.
const SIGNALS_NAMED_MAX: usize = 20;

/// Maximum size in bytes of a rejected signal's name in the rejection.
const SIGNAL_SHOWN_MAX: usize = 128;

impl StepBuilder<'_> {
    /// Records a jump of the clock, so that it counts against no limit of the board.
    pub(super) fn jump(&mut self, ms: u64) {
        if self.board.format >= SINCE_CLOCK_JUMPS && self.board.ended.is_none() {
            self.push(Body::Jumped(Jumped { ms }));
            self.advance();
        }
    }

    pub(super) fn tick(&mut self) {
        let overdue = self.board.scheduler.overdue(self.at);
        let expired = self.board.expired(self.at);
        let running = self.board.running_ms.saturating_add(self.at.ms_since(self.board.last_at));
        let wall_is_over = self.board.is_running() && running >= self.board.limits().wall_ms;
        let is_freed = !self.board.paused && self.board.waits_until().is_some_and(|until| until <= self.at);
        let due: BTreeMap<RuleName, Timestamp> = match self.board.paused {
            true => BTreeMap::new(),
            false => {
                let due = self.board.scheduler.due(&self.board.plan).filter(|(_, due)| *due <= self.at);
                due.map(|(rule, due)| (rule.name.clone(), due)).collect()
            }
        };
        let ripe = match self.board.paused {
            true => Vec::new(),
            false => self.board.scheduler.elapsed_delays(self.at, &self.board.suspended_rules()),
        };
        let has_come = !due.is_empty() || !ripe.is_empty();
        let patience_is_over = self.board.patience().is_some_and(|patience| patience <= self.at);
        let is_due =
            patience_is_over || !overdue.is_empty() || !expired.is_empty() || has_come || wall_is_over || is_freed;
        if self.board.ended.is_some() || !is_due {
            return;
        }
        self.push(Body::Tick(Empty {}));
        for invocation in overdue {
            let Some(open) = self.board.scheduler.open().get(&invocation) else { continue };
            let branch = open.queued.branch.clone();
            let is_final = self.is_last_attempt(invocation);
            let by = author(open, None);
            let seconds = self.board.plan.workers[&branch.worker].worker.limits.timeout;
            let message = format!("no answer within {seconds}");
            self.cancel(invocation);
            self.push(Body::Failed(Failed { by, code: FailureCode::Timeout, is_final, needed: None, message }));
            self.move_breakers(Some(&branch));
        }
        for question in expired {
            self.expire(question);
        }
        if patience_is_over && !mutants::is_active(Mutant::UnlimitedProviderWait) {
            self.pause_for_provider();
        }
        self.recheck_delayed(ripe);
        if !due.is_empty() {
            self.schedule(&TriggerEvent::Due(&due));
        }
        self.advance();
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        let body = Body::Signal(signal.clone());
        if self.is_duplicate(&body) || self.is_over() {
            return;
        }
        if let Some(unheard) = self.unknown_signal(&signal.name) {
            return self.refuse(Stage::Application, vec![unheard]);
        }
        let schema = self.board.plan.signals.get(&signal.name);
        let violations = schema.map(|schema| schema.violations(&signal.value, VIOLATIONS_MAX)).unwrap_or_default();
        if !violations.is_empty() {
            return self.refuse(Stage::Schema, violations);
        }
        if self.is_journal_full() {
            return;
        }
        if let Some(full) = self.backlog_full(&signal.name) {
            return self.refuse(Stage::Application, vec![full]);
        }
        let seq = self.push(body);
        self.schedule(&TriggerEvent::Signal { name: &signal.name, value: &signal.value, seq });
        self.advance();
    }

    /// Rejects a signal that no rule handles, and names the signals that rules handle.
    fn unknown_signal(&self, signal: &str) -> Option<Violation> {
        let heard = self.board.plan.rules.iter().filter_map(|rule| match &rule.trigger {
            CompiledTrigger::Signal(name) => Some(name.as_str()),
            _ => None,
        });
        let declared = self.board.plan.signals.keys().map(String::as_str);
        let heard: BTreeSet<&str> = heard.chain(declared).collect();
        if self.board.format < SINCE_JOURNAL_LIMIT || heard.contains(signal) {
            return None;
        }
        let heard: Vec<String> = heard.into_iter().take(SIGNALS_NAMED_MAX).map(|name| format!("`{name}`")).collect();
        let name = &signal[..signal.floor_char_boundary(SIGNAL_SHOWN_MAX)];
        let message = match heard.as_slice() {
            [] => format!("no rule handles the signal `{name}`, or any other"),
            heard => format!("no rule handles the signal `{name}`; rules handle {}", heard.join(", ")),
        };
        Some(Violation::new(Code::UnknownSignal, "", message))
    }

    /// Rejects a signal with a full backlog: the elements in the document plus the invocations that such signals have
    /// triggered and that are unfinished.
    fn backlog_full(&self, signal: &str) -> Option<Violation> {
        let (at, max) = self.board.plan.backlog.get(signal)?;
        let there = self.board.state.root().get(at);
        let there = there.map_or(0, |node| match node {
            Node::Array(elements) => elements.len(),
            Node::Object(members) => members.len(),
            _ => 0,
        });
        let plan = &self.board.plan;
        let wakes = |rule: &RuleName| {
            plan.rules.iter().any(|known| {
                known.name == *rule && matches!(&known.trigger, CompiledTrigger::Signal(name) if name == signal)
            })
        };
        let coming = self.board.scheduler.unfinished().filter(|branch| branch.rule.as_ref().is_some_and(wakes)).count();
        (there + coming >= *max).then(|| {
            let message = format!("{there} wait at {at} and {coming} are on the way there; {max} may wait");
            Violation::new(Code::BacklogFull, at.as_str(), message)
        })
    }

    /// Records a pause or its end. A request with a token is recorded even if it changes nothing, so that its retry is
    /// recognised.
    pub(super) fn pause_or_resume(&mut self, body: Body, changes: bool) {
        if !self.is_duplicate(&body) && !self.is_over() && (changes || dedup_key_of_request(&body).is_some()) {
            self.push(body);
            self.advance();
        }
    }

    /// Returns true if a request's token is known. Sets the outcome to the earlier one, or to a rejection if the
    /// request differs.
    pub(super) fn is_duplicate(&mut self, body: &Body) -> bool {
        let Some(token) = dedup_key_of_request(body) else { return false };
        let request = || request_digest(&self.board.hasher, body);
        self.step.outcome = match self.board.dedup.look_up(&token, request, self.at, &self.board.pending) {
            DedupResult::New => return false,
            DedupResult::Replay(verdict) => Some(Outcome::Duplicate(verdict)),
            DedupResult::Conflict => {
                Some(rejected_unrecorded(Code::TokenConflict, "the token was used before, for another request"))
            }
        };
        true
    }

    /// Records a snapshot and dispatches nothing. A board that has ended needs no snapshot.
    pub(super) fn snapshot(&mut self, of: Seq, digest: Digest) {
        if self.board.ended.is_none() && of <= self.board.head.0 {
            self.push(Body::Snapshot(Snapshot { of, layout: LAYOUT, digest }));
        }
    }

    /// Applies an administrator's edit. Triggered invocations are queued but not dispatched: the board may not be
    /// running.
    pub(super) fn amend(&mut self, path: String, value: Value) {
        let patch = json!([{"op": "replace", "path": path, "value": value}]);
        let accepted = match self.is_over() {
            true => Err(Rejection::single(Stage::Authorization, Code::BoardNotRunning, "the board has ended")),
            false if self.is_of_files(&path) => {
                let message = "what is known of files changes with them alone: edit the file";
                let violation = Violation::new(Code::PathNotGranted, path, message);
                Err(Rejection::new(Stage::Authorization, vec![violation]))
            }
            false => pipeline::amend(&self.board.plan, &self.board.state, patch),
        };
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(rejection) => return self.step.outcome = Some(Outcome::RejectedUnrecorded(rejection)),
        };
        let worker = WorkerName::from(ADMINISTRATOR);
        let by = Author::new(worker, self.board.version());
        let body = accepted.reply.to_body();
        self.commit(by, None, accepted, &body);
        if self.ending.is_some() {
            self.advance();
        }
    }

    /// Returns true if a place overlaps the kernel's data about workspace files.
    fn is_of_files(&self, path: &str) -> bool {
        let place = Pointer::parse(path).unwrap_or_default();
        let is_files = place.first().is_none_or(|first| first.decoded() == FILES);
        self.board.plan.blueprint.workspace.is_some() && is_files
    }

    pub(super) fn force_end(&mut self, end: End, cause: Cause) {
        self.ending = Some(Ended { end, cause });
        self.advance();
    }

    pub(super) fn take_over(&mut self, epoch: u64, writer: String, format: Option<u32>) {
        if epoch <= self.board.epoch {
            return;
        }
        let format = format.filter(|format| *format > self.board.format);
        self.push(Body::Epoch(Epoch { epoch, writer, format }));
        let mut lost: Vec<_> = self.board.scheduler.open().values().filter(|open| open.calling).cloned().collect();
        if mutants::is_active(Mutant::MissLostCall) && lost.len() > 1 {
            lost.pop();
        }
        for open in lost {
            let worker = &open.queued.branch.worker;
            let seat = &self.board.plan.workers[worker].worker;
            let keeps_state = seat.agent == AgentKind::Command && seat.restart == Some(Restart::Fail);
            // A remote agent cannot have ended this process, and may wait through many restarts.
            let is_final = keeps_state || (open.lost >= LOST_MAX && seat.agent != AgentKind::Remote);
            let message = "the process ended while the call was under way".to_owned();
            let by = author(&open, None);
            self.push(Body::Failed(Failed { by, code: FailureCode::Lost, is_final, needed: None, message }));
            self.move_breakers(Some(&open.queued.branch));
        }
        self.advance();
    }
}
