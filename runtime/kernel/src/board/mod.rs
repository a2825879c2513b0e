//! A board: one task's blueprint, state and all decisions so far.
//!
//! [`Board::step`] is the only way to change a board (SPEC section 1). A step decides one record after the other and
//! applies each before it decides the next; recovery applies the same records without deciding. So the journal alone is
//! enough to rebuild a board, by construction.
//!
//! * `types.rs`: inputs, and the results of a step; `effects.rs`: its effects;
//! * `creation.rs`: a new board, or one from its records;
//! * `decide.rs`: from an input to records;
//! * `feedback.rs`: rejections in later views;
//! * `preview.rs`: views without a step;
//! * `dry_run.rs`: dry run of a call and its reply, without a step;
//! * `apply.rs`: the effect of each record on the board, live and in recovery;
//! * `snapshot.rs`: encoding and restoring a whole board as stored parts.

mod admission;
mod apply;
mod backlog;
mod commits;
mod creation;
mod decide;
mod dedup;
mod dry_run;
mod effects;
mod feedback;
mod limits;
mod preview;
mod retry;
mod snapshot;
mod types;
mod undecided;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::bindings::Bindings;
use crate::blueprint::Blueprint;
use crate::breaker::{Branch, Breaker};
use crate::digest::{Digest, Hasher, sha256};
use crate::files::FileCounters;
use crate::freshness::{self, Reservations};
use crate::id::{BoardId, RuleName, Seq, Timestamp, Version, WorkerName};
use crate::ledger::Ledger;
use crate::plan::{Plan, WorkerPlan};
use crate::record::{
    Author, Body, Ended, LimitOverrides, Parent, PauseCause, Principal, Record, SINCE_JOURNAL_LIMIT,
    SINCE_SALTED_TEXTS, WorkerLimitOverrides,
};
use crate::rejection::getters;
use crate::scheduler::{IneffectiveInvocations, OpenInvocation, QueuedInvocation, Scheduler};
use crate::signal_payload::SignalPayload;
use crate::state::State;
use crate::view::Shortage;

pub use crate::pipeline::ReplyBody;
pub(crate) use apply::reply_digest;
pub(crate) use creation::initial;
pub use dry_run::DryRun;
pub use effects::{Call, Cancellation, Effects};
pub use retry::UnfinishedWork;
pub use snapshot::EncodedSnapshot;
pub use types::{
    Blob, BoardError, Input, NewBoard, Outcome, PendingQuestion, Proposal, ProposalSource, RememberedOutcome,
    RequestDeferral, Step,
};
pub use undecided::UndecidedRule;

use commits::CommitLog;
use dedup::Dedup;

/// Maximum number of a worker's own rejections in its view.
const FEEDBACK_MAX: usize = 3;
/// Maximum number of rejections that a board keeps of one worker, under all bindings.
const FEEDBACK_PER_WORKER_MAX: usize = 64;

/// A board. A clone is a cheap copy at one moment: the document is shared, the rest is small.
#[derive(Clone)]
pub struct Board {
    id: BoardId,
    /// The invocation of another board that this nested board runs, if any.
    parent: Option<Parent>,
    /// The caller that started the board.
    creator: Option<Principal>,
    plan: Arc<Plan>,
    hasher: Hasher,
    state: State,
    /// Seq and hash of the last record.
    head: (Seq, Digest),
    epoch: u64,
    /// The journal format in force.
    format: u32,
    paused: bool,
    /// The reason for which the kernel paused the board, if it did.
    pause_cause: Option<PauseCause>,
    ended: Option<Ended>,
    /// Limits that an operator has raised.
    raised: LimitOverrides,
    raised_of_workers: BTreeMap<WorkerName, WorkerLimitOverrides>,
    /// Invocations that were given up, oldest first; bounded.
    given_up: VecDeque<QueuedInvocation>,
    /// Rules with given-up invocations that are no longer kept.
    forgotten_rules: BTreeSet<RuleName>,
    undecided: Vec<UndecidedRule>,
    /// First view of each worker that lacked room for all that the worker may read.
    shortages: Arc<BTreeMap<WorkerName, Shortage>>,
    /// Invocations of each branch that changed nothing, since its last commit or the last move of its breaker; bounded.
    ineffective: BTreeMap<Branch, IneffectiveInvocations>,
    scheduler: Scheduler,
    breaker: Breaker,
    ledger: Ledger,
    /// Set once a budget did not suffice.
    budget_exceeded: bool,
    /// Workers without invocations left.
    exhausted: BTreeSet<WorkerName>,
    /// Set once an invocation was given up.
    gave_up: bool,
    dedup: Dedup,
    /// Record and author of each version.
    commits: CommitLog,
    /// Counts of the workspace's files, if there is a workspace.
    files: FileCounters,
    /// Places reserved for workers that lost a conflict.
    reservations: Reservations,
    /// The last rejections of each worker since its last commit, oldest first.
    feedback: BTreeMap<WorkerName, VecDeque<(Seq, Value)>>,
    /// Proposals that wait for persons, by the number of the record with the question.
    pending: Arc<BTreeMap<Seq, PendingQuestion>>,
    /// Value of the last signal, for the invocations it triggers.
    signal: Option<SignalPayload>,
    /// The time of the last record; recorded time never goes back.
    last_at: Timestamp,
    /// Recorded running time, without pauses and downtime.
    running_ms: u64,
    /// Journal bytes that count against the limit: records since the format with the limit, and the views they name.
    journal_bytes: u64,
    /// Values of records before this one are redacted, so documents may lack the digests that records name.
    opaque_until: Seq,
    /// True if the document has the digest that the last commit names; false after a redaction of some of it.
    is_exact: bool,
}

impl Board {
    getters! { self:
        /// Returns the time of the last record.
        pub last_at -> Timestamp = self.last_at;
        /// Returns the id of the board.
        pub id -> &BoardId = &self.id;
        /// Returns the invocation of another board that this nested board runs, if any.
        pub parent -> Option<&Parent> = self.parent.as_ref();
        /// Returns the caller that started the board, or the enclosing board.
        pub creator -> Option<&Principal> = self.creator.as_ref();
        /// Returns the compiled blueprint.
        pub plan -> &Arc<Plan> = &self.plan;
        /// Returns the committed document.
        pub state -> &State = &self.state;
        /// Returns true if the document has the digest that the last commit names; false after a redaction of some of it.
        pub is_exact -> bool = self.is_exact;
        /// Returns number and hash of the last record.
        pub head -> (Seq, Digest) = self.head;
        /// Returns the owner's epoch: 0 for the process that created the board, higher with each change of ownership.
        pub epoch -> u64 = self.epoch;
        /// Returns the end of the board, if it has ended.
        pub ended -> Option<Ended> = self.ended;
        /// Returns true if dispatching is suspended.
        pub is_paused -> bool = self.paused;
        /// Returns the reason for which the kernel paused the board, if it did.
        pub pause_cause -> Option<PauseCause> = self.pause_cause;
        /// Returns the journal format in force.
        pub format -> u32 = self.format;
        /// Returns the given-up invocations that can be retried, oldest first; at most 1,024.
        pub given_up -> &VecDeque<QueuedInvocation> = &self.given_up;
        /// Returns the queue and the open invocations.
        pub scheduler -> &Scheduler = &self.scheduler;
        /// Returns the circuit breakers.
        pub breaker -> &Breaker = &self.breaker;
        /// Returns the budget accounts.
        pub ledger -> &Ledger = &self.ledger;
        /// Returns the places reserved for workers that lost a conflict.
        pub reservations -> &Reservations = &self.reservations;
        /// Returns the recorded running time in milliseconds, without pauses and downtime.
        pub running_ms -> u64 = self.running_ms;
        /// Returns the proposals that wait for persons, by the number of the record with the question.
        pub pending -> &Arc<BTreeMap<Seq, PendingQuestion>> = &self.pending;
        /// Returns, by worker, the first view that lacked room for all that the worker may read.
        pub shortages -> &Arc<BTreeMap<WorkerName, Shortage>> = &self.shortages;
    }

    /// Adds an applied record to the journal size, if the format has a journal limit.
    fn count_journal_bytes(&mut self, record: &Record, body: &Body) {
        if self.format >= SINCE_JOURNAL_LIMIT {
            let view = if let Body::Invoked(invoked) = body { invoked.view_bytes.unwrap_or(0) } else { 0 };
            let bytes = (record.header.len() as u64).saturating_add(record.payload.len() as u64).saturating_add(view);
            self.journal_bytes = self.journal_bytes.saturating_add(bytes);
        }
    }

    /// Returns the name under which a text is stored next to its records.
    pub fn text_hash(&self, text: &str) -> Digest {
        if self.format >= SINCE_SALTED_TEXTS { self.hasher.text(text) } else { sha256(text.as_bytes()) }
    }

    /// Returns the blueprint.
    pub fn blueprint(&self) -> &Arc<Blueprint> {
        &self.plan.blueprint
    }

    /// Returns the version: the number of commits.
    pub fn version(&self) -> Version {
        self.state.version()
    }

    /// Returns record and author of a version; `None` for version 0 and for future versions.
    pub fn commit_of(&self, version: Version) -> Option<(Seq, WorkerName)> {
        freshness::CommitLookup::commit_of(&self.commits, version)
    }

    /// Returns the time of the next tick, such as a call's deadline, a schedule, or the end of the running time.
    pub fn wake_at(&self) -> Option<Timestamp> {
        if self.ended.is_some() {
            return None;
        }
        let left = self.limits().wall_ms.saturating_sub(self.running_ms);
        let wall = self.is_running().then(|| self.last_at.plus_ms(left));
        let expiry = self.pending.values().filter_map(|question| question.expires).min();
        let freed = self.waits_until().filter(|_| !self.paused);
        let due = self.scheduler.due(&self.plan).map(|(_, due)| due).min().filter(|_| !self.paused);
        let delayed = self.scheduler.next_due(&self.suspended_rules()).filter(|_| !self.paused);
        let all = [self.scheduler.deadline(), wall, expiry, freed, due, delayed, self.patience()];
        all.into_iter().flatten().min()
    }

    /// Returns true if the board waits only for persons.
    pub fn waits_for_persons(&self) -> bool {
        self.ended.is_none()
            && !self.pending.is_empty()
            && self.scheduler.open().values().all(|open| open.question.is_some())
    }

    /// Returns the questions with a passed deadline.
    fn expired(&self, now: Timestamp) -> Vec<Seq> {
        self.pending.iter().filter(|(_, question)| question.is_over(now)).map(|(seq, _)| *seq).collect()
    }

    /// Returns the earliest expiry of a reservation that an attempt waits for.
    fn waits_until(&self) -> Option<Timestamp> {
        let waits = |open: &OpenInvocation| !open.calling && open.question.is_none() && !open.waits_for_provider();
        let waiting = self.scheduler.open().values().filter(|open| waits(open));
        waiting.filter_map(|open| self.reservations.until(&open.awaits, open.queued.invocation)).min()
    }

    /// Returns a worker's seat with names bound; `None` for an unknown worker. An unbound name covers no place.
    pub fn worker_plan(&self, worker: &WorkerName, bindings: &Bindings) -> Option<Arc<WorkerPlan>> {
        self.plan.workers.get(worker).map(|seat| seat.bind(bindings))
    }

    /// Returns the seat of a proposal's author, with the bindings of its invocation's trigger, if any.
    fn worker_plan_of(&self, by: &Author) -> Option<Arc<WorkerPlan>> {
        let open = by.attempt.as_ref().and_then(|attempt| self.scheduler.open().get(&attempt.invocation));
        match open {
            Some(open) => open.queued.worker_plan(&self.plan),
            None => self.worker_plan(&by.worker, &Bindings::default()),
        }
    }

    /// Returns true if an invocation of the seat's worker with these bindings is under way.
    pub fn is_called(&self, seat: &WorkerPlan) -> bool {
        let mut open = self.scheduler.open().values().filter(|open| open.queued.branch.worker == seat.name);
        open.any(|open| open.queued.bound(&self.plan) == *seat.bound())
    }
}

/// Builds an object with these members.
fn object<const N: usize>(members: [(&str, Value); N]) -> Map<String, Value> {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
