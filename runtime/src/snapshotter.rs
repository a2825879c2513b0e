//! Snapshots of a running board: when they are due, and storing them.
//!
//! Owns the policy and the background work; the kernel actor provides a copy of the board and records the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use patchboard_kernel::board::Board;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::Record;
use patchboard_kernel::snapshot::SnapshotPart;

use crate::recovery::{Recovered, size};
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::{GarbageCollection, Journal, JournalError, NewParts, Result};

/// Conditions for a snapshot, so that recovering a board takes a bounded time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotPolicy {
    /// Records since the last snapshot that make the next one due.
    pub records: u64,
    /// Bytes of records since the last snapshot that make the next one due.
    pub bytes: u64,
    /// The board waits until the snapshot is stored. Then the record that names it directly follows the one that made
    /// it due, so that runs with equal inputs have equal records. Otherwise it is recorded once stored, without
    /// delaying the board.
    pub waits: bool,
}

impl Default for SnapshotPolicy {
    fn default() -> Self {
        // About 30 µs a record: a recovery takes a tenth of a second more than reading the snapshot.
        Self { records: 4000, bytes: 4 << 20, waits: false }
    }
}

impl SnapshotPolicy {
    /// Never takes snapshots: a recovery folds all records.
    pub const NEVER: Self = Self { records: u64::MAX, bytes: u64::MAX, waits: false };
}

/// Boards that store or collect snapshots concurrently, at most.
pub(crate) const CONCURRENT_TASKS_MAX: usize = 2;

/// Kept snapshots of a board: one to recover from, and a spare in case that is damaged.
const KEPT_SNAPSHOTS: usize = 2;

/// Approximate bytes of parts per transaction; an append waits for at most one of them.
const TRANSACTION_BYTES: usize = 128 << 10;

/// A stored snapshot, to be recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StoredSnapshot {
    pub(crate) of: Seq,
    pub(crate) digest: Digest,
    pub(crate) new: NewParts,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SnapshotTask {
    Snapshot,
    /// Removal of unused parts, and of these snapshots.
    CollectGarbage {
        unusable: Vec<Seq>,
    },
}

/// Counts records and bytes since the last snapshot.
pub(crate) struct Snapshotter {
    policy: SnapshotPolicy,
    records: u64,
    bytes: u64,
    /// Records and bytes at the start of the current snapshot.
    begun: Option<(u64, u64)>,
    /// After a failure: records since the last snapshot at which the next try is allowed.
    not_before: u64,
    /// A snapshot or a sweep is running.
    is_busy: bool,
    /// A turn was requested and has not arrived.
    awaits_turn: bool,
    /// Parts stored since the last sweep.
    parts_since_collection: u64,
    /// Parts kept by the last sweep; none before the first.
    live: Option<u64>,
    /// Snapshots that the next sweep drops.
    unusable: Vec<Seq>,
    stop: StopOnDrop,
}

/// Signals the background work that the board is gone.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Snapshotter {
    pub(crate) fn new(policy: SnapshotPolicy) -> Self {
        Self {
            policy,
            records: 0,
            bytes: 0,
            begun: None,
            not_before: 0,
            is_busy: false,
            awaits_turn: false,
            parts_since_collection: 0,
            live: None,
            unusable: Vec::new(),
            stop: StopOnDrop(Arc::default()),
        }
    }

    pub(crate) fn from_recovered(policy: SnapshotPolicy, recovered: &Recovered) -> Self {
        let Recovered { records, bytes, ref unusable, .. } = *recovered;
        Self { records, bytes, unusable: unusable.clone(), ..Self::new(policy) }
    }

    pub(crate) const fn policy(&self) -> SnapshotPolicy {
        self.policy
    }

    /// Returns a flag that is set once the board is gone.
    pub(crate) fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop.0)
    }

    pub(crate) fn count_records(&mut self, records: &[Record]) {
        self.records += records.len() as u64;
        self.bytes += records.iter().map(size).sum::<u64>();
    }

    /// Returns the due task, if none is running. A board that `has_ended` needs no further snapshot.
    pub(crate) fn due(&self, has_ended: bool) -> Option<SnapshotTask> {
        let may_try = !self.is_busy && self.records >= self.not_before;
        let over = self.records >= self.policy.records || self.bytes >= self.policy.bytes;
        // A sweep examines all parts. One per quarter of new parts costs as much as storing those did.
        let is_much = self.live.is_none_or(|live| self.parts_since_collection.saturating_mul(4) >= live);
        if may_try && !self.unusable.is_empty() {
            // First of all: damaged parts would count as stored ones.
            Some(SnapshotTask::CollectGarbage { unusable: self.unusable.clone() })
        } else if may_try && over && !has_ended {
            Some(SnapshotTask::Snapshot)
        } else if !self.is_busy && self.parts_since_collection > 0 && is_much {
            Some(SnapshotTask::CollectGarbage { unusable: Vec::new() })
        } else {
            None
        }
    }

    pub(crate) fn task_started(&mut self, due: &SnapshotTask) {
        self.is_busy = true;
        if *due == SnapshotTask::Snapshot {
            self.begun = Some((self.records, self.bytes));
        }
    }

    /// Returns true if a turn is to be requested: once, until it arrives.
    pub(crate) const fn asks_for_turn(&mut self) -> bool {
        !std::mem::replace(&mut self.awaits_turn, true)
    }

    /// Notes the arrival of a turn.
    pub(crate) const fn has_turn(&mut self) {
        self.awaits_turn = false;
    }

    pub(crate) fn snapshot_recorded(&mut self, stored: &StoredSnapshot) {
        let (records, bytes) = self.begun.take().unwrap_or_default();
        self.records -= records.min(self.records);
        self.bytes -= bytes.min(self.bytes);
        self.not_before = 0;
        self.parts_since_collection += stored.new.count;
        self.is_busy = false;
    }

    /// Notes that storing or recording the snapshot failed; it is retried later.
    pub(crate) fn failed(&mut self) {
        self.begun = None;
        self.wait();
        self.is_busy = false;
    }

    pub(crate) fn garbage_collected(&mut self, collected: Option<GarbageCollection>) {
        match collected {
            Some(collected) => {
                self.live = Some(collected.kept);
                self.unusable.clear();
            }
            None => self.wait(),
        }
        // Also after a failure: the next sweep follows the next snapshot.
        self.parts_since_collection = 0;
        self.is_busy = false;
    }

    fn wait(&mut self) {
        self.not_before = self.records.saturating_add((self.policy.records / 4).max(1));
    }
}

/// Stores a snapshot of a board. Blocks. Fails with [`JournalError::Fenced`] if the board has been taken over.
pub(crate) fn store_snapshot(journal: &dyn Journal, board: &Board, stop: &AtomicBool) -> Result<StoredSnapshot> {
    match take_parts(journal, board, false, stop) {
        // Another process has removed parts that this process had stored.
        Err(JournalError::MissingPart { hash, .. }) => {
            tracing::warn!(board = %board.id(), %hash, "a part of a snapshot is gone; storing all of them again");
            take_parts(journal, board, true, stop)
        }
        other => other,
    }
}

fn take_parts(journal: &dyn Journal, board: &Board, all: bool, stop: &AtomicBool) -> Result<StoredSnapshot> {
    let (id, epoch) = (board.id(), board.epoch());
    let mut waiting: Vec<SnapshotPart> = Vec::new();
    let (mut waiting_bytes, mut new) = (0, NewParts::default());
    let mut flush = |waiting: &mut Vec<SnapshotPart>| {
        if stop.load(Ordering::Relaxed) {
            return Err(JournalError::Fenced { board: id.clone(), reason: "it is gone from this process".to_owned() });
        }
        let NewParts { count, bytes } = wait(journal.store_parts(id, epoch, std::mem::take(waiting)))?;
        new.count += count;
        new.bytes += bytes;
        Ok(())
    };
    let stored = board.store(all, &mut |part| {
        waiting_bytes += part.text.len();
        waiting.push(part);
        if waiting_bytes >= TRANSACTION_BYTES {
            flush(&mut waiting)?;
            waiting_bytes = 0;
        }
        Ok(())
    })?;
    flush(&mut waiting)?;
    let snapshot = StoredSnapshot { of: stored.of, digest: stored.manifest.hash, new };
    stored.confirm();
    Ok(snapshot)
}

/// Removes unused parts and snapshots. Blocks. Fails with [`JournalError::Fenced`] if the board has been taken over.
pub(crate) fn collect_garbage(
    journal: &dyn Journal,
    board: &BoardId,
    epoch: u64,
    unusable: &[Seq],
) -> Result<GarbageCollection> {
    wait(journal.collect_garbage(board, epoch, KEPT_SNAPSHOTS, unusable))
}
