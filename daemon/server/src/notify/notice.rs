//! Maps a board's records to notices. Pure: from a cursor and the next record to the next cursor and notices.

use std::collections::BTreeMap;

use patchboard_kernel::blueprint::Duration;
use patchboard_kernel::breaker;
use patchboard_kernel::code_enum;
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, InvocationId, Seq, Timestamp, WorkerName};
use patchboard_kernel::record::{
    Approval, Body, Cause, Deferred, End, Ended, Kind, PauseCause, Record, RecordError, Resource,
};
use patchboard_llm::gate::BoardOutage;
use serde::{Deserialize, Serialize};

use crate::describe::retry_option;
use crate::reader::format_time;
use crate::text::{path, short};

const QUESTION_CHARS_MAX: usize = 500;

/// Maximum number of waiting invocations in a cursor; further ones are not tracked.
const WAITS_MAX: usize = 256;

code_enum! {
    /// Topic of a notice.
    Topic {
        /// Board that asks a person.
        Question = "question",
        /// Board that waits for a provider, or no longer waits.
        Provider = "provider",
        /// Board stopped by a breaker, a limit or a fault.
        Stopped = "stopped",
        /// Invocation with exhausted retries, or a board that stalled after that.
        GaveUp = "gave_up",
        /// Notice sent by `patchboard notify test`.
        Test = "test",
    }
}

/// Topics that can be subscribed to.
pub(crate) const TOPICS: [Topic; 4] = [Topic::Question, Topic::Provider, Topic::Stopped, Topic::GaveUp];

/// Message for an operator, in the JSON shape that `docs/notify.md` describes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Notice {
    /// `BOARD:SEQ:KIND`, equal in every delivery.
    pub id: String,
    pub(crate) kind: Topic,
    /// Time of the event, RFC 3339.
    pub(crate) at: String,
    pub(crate) board: BoardId,
    pub(crate) blueprint: String,
    pub(crate) seq: Seq,
    /// One sentence.
    pub(crate) message: String,
    /// Set if the notice ends an earlier one.
    pub(crate) resolved: bool,
    /// Command that resolves it; `None` if no action is required.
    pub(crate) command: Option<String>,
    /// Request to the daemon that resolves it.
    pub(crate) request: Option<String>,
    pub(crate) path: String,
    #[serde(skip)]
    pub(crate) since: Timestamp,
}

impl Notice {
    /// Creates a notice that concerns no board.
    pub fn test(now: Timestamp, number: u64) -> Self {
        let about = NoticeSource { board: &BoardId::from("test"), blueprint: "test", seq: Seq(number), at: now };
        let notice = about.notice(Topic::Test, "This is a test of [notify]; nothing is to be done.".to_owned());
        Self { path: "/v1/boards".to_owned(), ..notice }
    }

    /// Returns the body of a delivery.
    pub fn body(&self) -> String {
        serde_json::to_string(self).expect("a notice is strings and numbers")
    }
}

struct NoticeSource<'a> {
    board: &'a BoardId,
    blueprint: &'a str,
    seq: Seq,
    at: Timestamp,
}

impl NoticeSource<'_> {
    fn notice(&self, kind: Topic, message: String) -> Notice {
        Notice {
            id: format!("{}:{}:{}", self.board, self.seq, kind.as_str()),
            kind,
            at: format_time(self.at),
            board: self.board.clone(),
            blueprint: self.blueprint.to_owned(),
            seq: self.seq,
            message,
            resolved: false,
            command: None,
            request: None,
            path: path(&["v1", "boards", self.board.as_str()]),
            since: self.at,
        }
    }

    /// Adds the required action: a command, and the last segments of an API path.
    fn with(&self, notice: Notice, command: &str, segments: &[&str]) -> Notice {
        let segments = [&["v1", "boards", self.board.as_str()][..], segments].concat();
        Notice { command: Some(command.to_owned()), request: Some(format!("POST {}", path(&segments))), ..notice }
    }
}

/// Invocation with a request that no provider has accepted yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Wait {
    worker: WorkerName,
    /// Model that did not accept the request; `None` in journals before format 11.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    reason: DeferralReason,
    since: Timestamp,
    /// Record of the first deferral.
    seq: Seq,
}

impl Wait {
    fn cause(&self) -> String {
        let model = self.model.as_ref().map(|model| format!("model {model}: ")).unwrap_or_default();
        format!("{model}{}", self.reason)
    }
}

/// Position in the journal of a board, with the data from earlier records that later notices need.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cursor {
    /// Last record with delivered notices; `None` before the first.
    pub(crate) after: Option<Seq>,
    /// Earlier questions with undelivered notices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) questions: Vec<Seq>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    waits: BTreeMap<InvocationId, Wait>,
    /// Time of the outage's report; waits begun no later belong to the reported outage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reported: Option<Timestamp>,
    /// Set if the kernel paused the board for an unavailable provider.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    paused: bool,
    /// Set if the reported outage is of calls that were never sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    held: bool,
}

/// Data about a board that its records do not hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) board: &'a BoardId,
    pub(crate) blueprint: &'a str,
    /// Maximum wait for a provider without a notice.
    pub(crate) provider_after: Duration,
}

impl Context<'_> {
    const fn about(&self, seq: Seq, at: Timestamp) -> NoticeSource<'_> {
        NoticeSource { board: self.board, blueprint: self.blueprint, seq, at }
    }
}

impl Cursor {
    pub(crate) fn after_record(after: Seq, questions: Vec<Seq>) -> Self {
        Self { after: Some(after), questions, ..Self::default() }
    }

    /// Returns true if an outage is open, so that every kind of record may matter.
    pub(crate) fn waits(&self) -> bool {
        !self.waits.is_empty() || self.reported.is_some() || self.paused
    }

    /// Processes the next record. Returns its notices, and the error if the record cannot be read.
    pub(crate) fn step(&mut self, record: &Record, context: &Context<'_>) -> (Vec<Notice>, Option<RecordError>) {
        let mut notices: Vec<Notice> = self.overdue(record.at, context).into_iter().collect();
        self.after = Some(record.seq);
        if !matters(record.kind) && !self.waits() {
            return (notices, None);
        }
        match record.body() {
            Ok(body) => {
                self.take(body, record, context, &mut notices);
                (notices, None)
            }
            Err(error) => (notices, Some(error)),
        }
    }

    fn take(&mut self, body: &Body, record: &Record, context: &Context<'_>, notices: &mut Vec<Notice>) {
        let about = context.about(record.seq, record.at);
        // `author` leaves out calls that only continue.
        let by = if let Body::Continued(continued) = body { Some(&continued.by) } else { body.author() };
        let attempt = by.and_then(|by| Some(by.attempt.as_ref()?.invocation));
        match body {
            Body::Approval(approval) => {
                self.end_wait(attempt, &about, notices);
                notices.push(question_notice(approval, &about));
            }
            Body::Deferred(deferred) => self.deferred(deferred, record),
            Body::Paused(paused) if paused.cause == Some(PauseCause::ProviderUnavailable) => {
                (self.paused, self.reported) = (true, Some(record.at));
                notices.push(self.unavailable(&about));
            }
            Body::Resumed(_) | Body::Retried(_) if self.paused => {
                self.waits.clear();
                self.resolve(&about, "The board continues and calls its provider again.", notices);
            }
            Body::Failed(failed) => {
                // A lost attempt is no evidence about the provider.
                if failed.is_final || failed.code != FailureCode::Lost {
                    self.end_wait(attempt, &about, notices);
                }
                if failed.is_final {
                    notices.push(given_up_notice(&failed.by.worker, attempt, failed.code.as_str(), "", &about));
                }
            }
            Body::Rejected(rejected) => {
                self.end_wait(attempt, &about, notices);
                if rejected.is_final && attempt.is_some() {
                    notices.push(given_up_notice(&rejected.by.worker, attempt, rejected.code.as_str(), "", &about));
                }
            }
            Body::Budget(budget) if !budget.is_tried_again => {
                self.end_wait(budget.invocation, &about, notices);
                // The notice of the board's end reports a worker without invocations.
                if budget.invocation.is_some() && budget.resource != Resource::Invocations {
                    let (resource, limit) = (budget.resource, limit_of(budget.resource));
                    notices.push(given_up_notice(&budget.worker, budget.invocation, resource.as_str(), limit, &about));
                }
            }
            // The kernel abandons the invocations of a stopped branch. If another rule's wait is removed with them, its
            // next deferral adds it again.
            Body::Breaker(moved) if moved.change == breaker::BreakerTransition::Opened => {
                let stopped = self.waits.iter().filter(|(_, wait)| wait.worker == moved.worker);
                let stopped: Vec<InvocationId> = stopped.map(|(invocation, _)| *invocation).collect();
                stopped.into_iter().for_each(|invocation| self.end_wait(Some(invocation), &about, notices));
            }
            Body::Committed(_) | Body::NoOp(_) | Body::Expanded(_) | Body::Continued(_) => {
                self.end_wait(attempt, &about, notices);
            }
            Body::Ended(ended) => {
                self.waits.clear();
                self.resolve(&about, "The board ended and waits for no provider any more.", notices);
                notices.extend(end_notice(*ended, &about));
            }
            _ => {}
        }
    }

    /// Returns the notice of a question before the cursor; `None` if the record is no question.
    pub(crate) fn question(record: &Record, context: &Context<'_>) -> Result<Option<Notice>, RecordError> {
        match record.body()? {
            Body::Approval(approval) => Ok(Some(question_notice(approval, &context.about(record.seq, record.at)))),
            _ => Ok(None),
        }
    }

    /// Returns the time at which the longest wait becomes a notice.
    pub(crate) fn due(&self, provider_after: Duration) -> Option<Timestamp> {
        if self.reported.is_some() {
            return None;
        }
        self.waits.values().map(|wait| wait.since.plus_ms(provider_after.as_ms())).min()
    }

    pub(crate) fn overdue(&mut self, now: Timestamp, context: &Context<'_>) -> Option<Notice> {
        let due = self.due(context.provider_after).filter(|due| *due <= now)?;
        let wait = self.waits.values().min_by_key(|wait| (wait.since, wait.seq))?;
        let about = context.about(wait.seq, due);
        let seconds = context.provider_after.as_ms().div_ceil(1000);
        let message = format!(
            "Worker {} has waited for its provider for {seconds} s ({}); the board continues when the provider answers.",
            wait.worker,
            wait.cause()
        );
        self.reported = Some(due);
        Some(about.notice(Topic::Provider, message))
    }

    /// Returns the notice of calls that a closed gate has held back for too long. The journal has no record of these.
    pub(crate) fn held(&mut self, now: Timestamp, held: &BoardOutage, context: &Context<'_>) -> Option<Notice> {
        let is_due = u64::try_from(held.elapsed.as_millis()).is_ok_and(|ms| ms >= context.provider_after.as_ms());
        let after = self.after.filter(|_| is_due && !self.paused && self.reported.is_none())?;
        let message = format!(
            "{} for their provider for {} s ({}); the board continues when the provider answers.",
            if held.calls == 1 { "A call of the board has waited" } else { "Calls of the board have waited" },
            held.elapsed.as_secs(),
            held.outage.reason.as_str()
        );
        (self.reported, self.held) = (Some(now), true);
        Some(context.about(after, now).notice(Topic::Provider, message))
    }

    fn deferred(&mut self, deferred: &Deferred, record: &Record) {
        let Some(attempt) = &deferred.by.attempt else { return };
        if let Some(wait) = self.waits.get_mut(&attempt.invocation) {
            (wait.model, wait.reason) = (deferred.model.clone(), deferred.reason);
        } else if self.waits.len() < WAITS_MAX {
            let (worker, model, reason) = (deferred.by.worker.clone(), deferred.model.clone(), deferred.reason);
            self.waits.insert(attempt.invocation, Wait { worker, model, reason, since: record.at, seq: record.seq });
        }
    }

    /// Ends the wait of an invocation that got an answer or has ended.
    fn end_wait(&mut self, invocation: Option<InvocationId>, about: &NoticeSource<'_>, notices: &mut Vec<Notice>) {
        let Some(invocation) = invocation else { return };
        let reported = self.reported;
        let is_reported = |wait: &Wait| reported.is_some_and(|reported| wait.since <= reported);
        let has_waited = self.waits.remove(&invocation).is_some() || self.held;
        if !has_waited || self.paused || self.waits.values().any(is_reported) {
            return;
        }
        self.resolve(about, "The board waits for its provider no longer.", notices);
    }

    /// Ends the outage, with a notice if it was reported.
    fn resolve(&mut self, about: &NoticeSource<'_>, message: &str, notices: &mut Vec<Notice>) {
        (self.paused, self.held) = (false, false);
        if self.reported.take().is_some() {
            notices.push(Notice { resolved: true, ..about.notice(Topic::Provider, message.to_owned()) });
        }
    }

    fn unavailable(&self, about: &NoticeSource<'_>) -> Notice {
        let last = self.waits.values().max_by_key(|wait| wait.seq);
        let reason = last.map(|wait| format!(" ({})", wait.cause())).unwrap_or_default();
        let message = format!("The board is paused because its provider is unavailable{reason}.");
        about.with(about.notice(Topic::Provider, message), &format!("patchboard resume {}", about.board), &["resume"])
    }
}

/// Returns true if a record of this kind matters without an outage.
pub(crate) const fn matters(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Approval | Kind::Deferred | Kind::Paused | Kind::Failed | Kind::Rejected | Kind::Budget | Kind::Ended
    )
}

fn question_notice(approval: &Approval, about: &NoticeSource<'_>) -> Notice {
    let (board, seq) = (about.board, about.seq);
    let (worker, approver) = (&approval.by.worker, &approval.approver);
    let (message, command) = match &approval.clarify {
        Some(clarify) => {
            let question = short(&clarify.question, QUESTION_CHARS_MAX);
            let message = format!("Worker {worker} asks {approver}: {question}");
            (message, format!("patchboard answer {board} {seq} --text TEXT"))
        }
        None => {
            let intent = approval.intent.as_deref().map(|intent| short(intent, QUESTION_CHARS_MAX));
            let intent = intent.map(|intent| format!(": {intent}")).unwrap_or_default();
            let message = format!("Worker {worker} asks {approver} to approve a change{intent}");
            (message, format!("patchboard approve {board} {seq}"))
        }
    };
    about.with(about.notice(Topic::Question, message), &command, &["approvals", &seq.to_string()])
}

/// Returns the option of `retry` that raises the limit of a resource.
const fn limit_of(resource: Resource) -> &'static str {
    match resource {
        Resource::Invocations => "",
        Resource::BranchTokens | Resource::WorkerTokens => " --worker-tokens N",
        Resource::WorkerMoney => " --worker-money AMOUNT",
        Resource::BoardTokens => " --tokens N",
        Resource::BoardMoney => " --money AMOUNT",
    }
}

/// Returns the notice of an abandoned invocation. `limit` is the option that raises the exhausted limit.
fn given_up_notice(
    worker: &WorkerName,
    invocation: Option<InvocationId>,
    why: &str,
    limit: &str,
    about: &NoticeSource<'_>,
) -> Notice {
    let (which, option) = match invocation {
        Some(invocation) => (format!("Invocation {invocation}"), format!(" --invocation {invocation}")),
        None => ("An invocation".to_owned(), String::new()),
    };
    let message = format!("{which} of worker {worker} was given up ({why}).");
    let command = format!("patchboard retry {}{option}{limit}", about.board);
    about.with(about.notice(Topic::GaveUp, message), &command, &["retry"])
}

fn end_notice(ended: Ended, about: &NoticeSource<'_>) -> Option<Notice> {
    let (topic, message) = match (ended.end, ended.cause) {
        (End::Stopped | End::Failed, cause) => {
            let budget = match cause {
                Cause::Exhausted | Cause::Budget => " `patchboard cost` says which budget was short.",
                _ => "",
            };
            (Topic::Stopped, format!("The board ended: {} ({}).{budget}", ended.end.as_str(), cause.as_str()))
        }
        (End::Quiescent, Cause::GaveUp) => {
            (Topic::GaveUp, "The board has nothing left to do after it gave up invocations.".to_owned())
        }
        (End::Done | End::Quiescent | End::Cancelled, _) => return None,
    };
    let limit = retry_option(ended.cause);
    Some(about.with(about.notice(topic, message), &format!("patchboard retry {}{limit}", about.board), &["retry"]))
}

#[cfg(test)]
mod tests;
