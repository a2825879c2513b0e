//! What came of one fault: what the oracle says of the document, and what the journal says of the run.

use patchboard_kernel::breaker::{Change, Reason};
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Body, Cause, Record, Resource};
use serde::Serialize;

use crate::class::Class;
use crate::system::System;

/// What came of one fault.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// The class.
    pub class: Class,
    /// What it was injected into.
    pub system: System,
    /// The blueprint.
    pub scenario: &'static str,
    /// Which of the class's instances.
    pub instance: u64,
    /// The worker that erred; none if no moment was found at which it could.
    pub worker: Option<String>,
    /// How it erred.
    pub kind: &'static str,
    /// Whether a moment was found at which the fault could be made.
    pub is_made: bool,
    /// Replies that erred.
    pub faults: u32,
    /// What of the document is not as it may be.
    pub wrongs: Vec<String>,
    /// Whether a loop was stopped by a breaker, and by no limit; of other classes, whether the board ended.
    pub is_halted: bool,
    /// Whether the task was done all the same, and rightly.
    pub is_done: bool,
    /// Calls that were made though the board's tokens were used up.
    pub overdrawn: u32,
    /// How the board ended, and why; none if it is stuck.
    pub end: Option<(String, String)>,
    /// Commits.
    pub commits: u64,
    /// Proposals that were refused.
    pub rejected: u64,
    /// Calls of language models.
    pub calls: u32,
    /// Whether the journal can be replayed to the same board.
    pub is_replayed: bool,
}

impl Verdict {
    /// Whether the fault has reached what others work with.
    pub fn is_contaminated(&self) -> bool {
        !self.wrongs.is_empty() || self.overdrawn > 0
    }
}

/// What a journal says of a run.
pub(crate) struct Facts {
    pub(crate) end: Option<(String, String)>,
    pub(crate) commits: u64,
    pub(crate) rejected: u64,
    pub(crate) overdrawn: u32,
    /// Whether a breaker stopped the worker after its fault, or the board because of it, and no limit did.
    pub(crate) is_stopped: bool,
}

impl Facts {
    /// Those of these records; the fault was `worker`'s, and `since` then.
    pub(crate) fn of(records: &[Record], tokens: u64, worker: Option<&str>, since: Timestamp) -> Self {
        let mut facts = Self { end: None, commits: 0, rejected: 0, overdrawn: 0, is_stopped: false };
        let (mut spent, mut is_limited, mut is_opened) = (0, false, false);
        let of_worker = |name: &str| worker == Some(name);
        for (at, body) in records.iter().filter_map(|record| Some((record.at, record.body().ok()?))) {
            let mut settle = |usage: Option<Usage>| spent += usage.map_or(0, |usage| usage.total());
            match body {
                Body::Committed(body) => {
                    facts.commits += 1;
                    settle(body.by.usage);
                }
                Body::Rejected(body) => {
                    facts.rejected += 1;
                    settle(body.by.usage);
                }
                Body::NoOp(body) => settle(body.by.usage),
                Body::Continued(body) => settle(body.by.usage),
                Body::Invoked(body) if spent >= tokens && body.reserved > 0 => facts.overdrawn += 1,
                Body::Breaker(body) => {
                    is_opened |= at >= since
                        && body.change == Change::Opened
                        && body.reason != Reason::Budget
                        && of_worker(body.worker.as_str());
                }
                Body::Budget(body) if !body.is_tried_again => {
                    is_limited |= of_worker(body.worker.as_str()) || body.resource == Resource::BoardTokens;
                }
                Body::Ended(body) => {
                    is_limited |= matches!(body.cause, Cause::Commits | Cause::Edits | Cause::Wall);
                    is_opened |=
                        matches!(body.cause, Cause::Cycles | Cause::Rejections | Cause::NoOps | Cause::Crashes);
                    facts.end = Some((body.end.to_string(), body.cause.to_string()));
                }
                _ => {}
            }
        }
        facts.is_stopped = is_opened && !is_limited;
        facts
    }
}
