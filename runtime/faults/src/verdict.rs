//! Outcome of one fault, from the oracle's check of the document and from the journal.

use patchboard_kernel::breaker::{BreakerTransition, Reason};
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Body, Cause, Record, Resource};
use serde::Serialize;

use crate::class::FaultClass;
use crate::system::System;

/// Outcome of one fault.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// The fault class.
    pub class: FaultClass,
    /// The system that it was injected into.
    pub system: System,
    /// The scenario's blueprint.
    pub scenario: &'static str,
    /// Instance number within the class.
    pub instance: u64,
    /// The worker that failed; none if the fault could not be injected.
    pub worker: Option<String>,
    /// The kind of fault within its class.
    pub kind: &'static str,
    /// True if the fault could be injected.
    pub is_made: bool,
    /// Number of faulty replies.
    pub faults: u32,
    /// Faults of the document, described in words.
    pub wrongs: Vec<String>,
    /// True if a breaker stopped the loop, and no limit did. For other classes, true if the board ended.
    pub is_halted: bool,
    /// True if the task was completed correctly despite the fault.
    pub is_done: bool,
    /// Calls made after the board's tokens were exhausted.
    pub overdrawn: u32,
    /// End and cause of the board; none if it is stuck.
    pub end: Option<(String, String)>,
    /// Number of commits.
    pub commits: u64,
    /// Number of rejected proposals.
    pub rejected: u64,
    /// Number of language-model calls.
    pub calls: u32,
    /// True if a replay of the journal produces the same board.
    pub is_replayed: bool,
}

impl Verdict {
    /// Returns true if the fault reached shared state: a wrong document, or an overdrawn budget.
    pub fn is_contaminated(&self) -> bool {
        !self.wrongs.is_empty() || self.overdrawn > 0
    }
}

/// Facts about a run, from its journal.
pub(crate) struct Facts {
    pub(crate) end: Option<(String, String)>,
    pub(crate) commits: u64,
    pub(crate) rejected: u64,
    pub(crate) overdrawn: u32,
    /// True if a breaker stopped the faulty worker, or the board because of it, and no limit did.
    pub(crate) is_stopped: bool,
}

impl Facts {
    /// Collects the facts of these records. `worker` failed first at `since`.
    pub(crate) fn from_records(records: &[Record], tokens: u64, worker: Option<&str>, since: Timestamp) -> Self {
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
                        && body.change == BreakerTransition::Opened
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
