//! When a running board's snapshots are taken, and storing them.
//!
//! Owns the policy and the work that is done beside the board; the kernel actor hands out the picture and records what
//! comes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use patchboard_kernel::board::Board;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::Record;
use patchboard_kernel::snapshot::Part;

use crate::journal::{Journal, JournalError, NewParts, Swept};
use crate::recovery::{Recovered, size};

/// When a snapshot is due, so that starting a board again takes a bounded time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotPolicy {
    /// So many records since the last one, or...
    pub records: u64,
    /// ...so many bytes of them: whichever comes first.
    pub bytes: u64,
    /// Whether the board waits until the snapshot is stored. Then the record that names it comes right after the one
    /// that made it due, so that two runs with the same inputs make the same records; otherwise it comes when it comes,
    /// and nobody waits.
    pub waits: bool,
}

impl Default for SnapshotPolicy {
    fn default() -> Self {
        // About 30 µs a record: a start takes a tenth of a second more than reading the snapshot.
        Self { records: 4000, bytes: 4 << 20, waits: false }
    }
}

impl SnapshotPolicy {
    /// No snapshots: a start folds all records.
    pub const NEVER: Self = Self { records: u64::MAX, bytes: u64::MAX, waits: false };
}

/// How many boards' snapshots are stored or swept at once.
pub(crate) const AT_ONCE: usize = 2;

/// How many snapshots of a board are kept: one to start from, and one more should that be damaged.
const KEPT: usize = 2;

/// Parts are written in transactions of about so many bytes; an append waits for one of them at most.
const TRANSACTION_BYTES: usize = 128 << 10;

/// A snapshot that is stored and is to be recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    pub(crate) of: Seq,
    pub(crate) digest: Digest,
    pub(crate) new: NewParts,
}

/// What is to be done about a board's snapshots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    Snapshot,
    /// What is not needed any more is to be removed, these snapshots among it.
    Sweep {
        unusable: Vec<Seq>,
    },
}

/// Counts what has happened since the last snapshot.
pub(crate) struct Keeping {
    policy: SnapshotPolicy,
    records: u64,
    bytes: u64,
    /// What there was when the snapshot under way was begun.
    begun: Option<(u64, u64)>,
    /// After a failure: try again when there are so many records.
    not_before: u64,
    /// Whether a snapshot or a sweep is under way.
    is_busy: bool,
    /// Whether a turn was asked for and has not come.
    awaits_turn: bool,
    /// Parts stored since the last sweep.
    unswept: u64,
    /// Parts that the last sweep left; none before the first.
    live: Option<u64>,
    /// Snapshots that the next sweep is to give up.
    unusable: Vec<Seq>,
    stop: StopOnDrop,
}

/// Tells the work beside the board that the board is gone.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Keeping {
    pub(crate) fn new(policy: SnapshotPolicy) -> Self {
        Self {
            policy,
            records: 0,
            bytes: 0,
            begun: None,
            not_before: 0,
            is_busy: false,
            awaits_turn: false,
            unswept: 0,
            live: None,
            unusable: Vec::new(),
            stop: StopOnDrop(Arc::default()),
        }
    }

    pub(crate) fn of_recovered(policy: SnapshotPolicy, recovered: &Recovered) -> Self {
        let Recovered { records, bytes, ref unusable, .. } = *recovered;
        Self { records, bytes, unusable: unusable.clone(), ..Self::new(policy) }
    }

    pub(crate) const fn policy(&self) -> SnapshotPolicy {
        self.policy
    }

    /// Set once the board is gone.
    pub(crate) fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop.0)
    }

    pub(crate) fn recorded(&mut self, records: &[Record]) {
        self.records += records.len() as u64;
        self.bytes += records.iter().map(size).sum::<u64>();
    }

    /// What is to be done, if nothing is under way. `has_ended`: the board has, so it needs no further snapshot.
    pub(crate) fn due(&self, has_ended: bool) -> Option<Due> {
        let may_try = !self.is_busy && self.records >= self.not_before;
        let over = self.records >= self.policy.records || self.bytes >= self.policy.bytes;
        // A sweep looks at all parts. One for every quarter of them that is new costs what storing those did.
        let is_much = self.live.is_none_or(|live| self.unswept.saturating_mul(4) >= live);
        if may_try && !self.unusable.is_empty() {
            // Before anything else: damaged parts would be taken for stored ones.
            Some(Due::Sweep { unusable: self.unusable.clone() })
        } else if may_try && over && !has_ended {
            Some(Due::Snapshot)
        } else if !self.is_busy && self.unswept > 0 && is_much {
            Some(Due::Sweep { unusable: Vec::new() })
        } else {
            None
        }
    }

    /// It is begun.
    pub(crate) fn begun(&mut self, due: &Due) {
        self.is_busy = true;
        if *due == Due::Snapshot {
            self.begun = Some((self.records, self.bytes));
        }
    }

    /// Whether to ask for a turn: once, until it comes.
    pub(crate) const fn asks_for_turn(&mut self) -> bool {
        !std::mem::replace(&mut self.awaits_turn, true)
    }

    /// It has come.
    pub(crate) const fn has_turn(&mut self) {
        self.awaits_turn = false;
    }

    /// The snapshot is recorded.
    pub(crate) fn kept(&mut self, taken: &Taken) {
        let (records, bytes) = self.begun.take().unwrap_or_default();
        self.records -= records.min(self.records);
        self.bytes -= bytes.min(self.bytes);
        self.not_before = 0;
        self.unswept += taken.new.count;
        self.is_busy = false;
    }

    /// The snapshot, or its record, did not come to be: later.
    pub(crate) fn failed(&mut self) {
        self.begun = None;
        self.wait();
        self.is_busy = false;
    }

    pub(crate) fn swept(&mut self, swept: Option<Swept>) {
        match swept {
            Some(swept) => {
                self.live = Some(swept.kept);
                self.unusable.clear();
            }
            None => self.wait(),
        }
        // After a failure, too: the next one comes with the next snapshot.
        self.unswept = 0;
        self.is_busy = false;
    }

    fn wait(&mut self) {
        self.not_before = self.records.saturating_add((self.policy.records / 4).max(1));
    }
}

/// Stores a snapshot of a board. Blocks.
///
/// # Errors
/// Storage; [`JournalError::Fenced`] if the board has been taken over.
pub(crate) fn take(journal: &dyn Journal, board: &Board, stop: &AtomicBool) -> Result<Taken, JournalError> {
    match take_parts(journal, board, false, stop) {
        // Something else has removed what this process had stored.
        Err(JournalError::MissingPart { hash, .. }) => {
            tracing::warn!(board = %board.id(), %hash, "a part of a snapshot is gone; storing all of them again");
            take_parts(journal, board, true, stop)
        }
        other => other,
    }
}

fn take_parts(journal: &dyn Journal, board: &Board, anew: bool, stop: &AtomicBool) -> Result<Taken, JournalError> {
    let (id, epoch) = (board.id(), board.epoch());
    let mut waiting: Vec<Part> = Vec::new();
    let (mut waiting_bytes, mut new) = (0, NewParts::default());
    let mut flush = |waiting: &mut Vec<Part>| {
        if stop.load(Ordering::Relaxed) {
            return Err(JournalError::Fenced { board: id.clone(), reason: "it is gone from this process".to_owned() });
        }
        let NewParts { count, bytes } = journal.store_parts(id, epoch, waiting)?;
        new.count += count;
        new.bytes += bytes;
        waiting.clear();
        Ok(())
    };
    let stored = board.store(anew, &mut |part| {
        waiting_bytes += part.text.len();
        waiting.push(part);
        if waiting_bytes >= TRANSACTION_BYTES {
            flush(&mut waiting)?;
            waiting_bytes = 0;
        }
        Ok(())
    })?;
    flush(&mut waiting)?;
    let taken = Taken { of: stored.of, digest: stored.manifest.hash, new };
    stored.confirm();
    Ok(taken)
}

/// Removes what is not needed any more. Blocks.
///
/// # Errors
/// Storage; [`JournalError::Fenced`] if the board has been taken over.
pub(crate) fn sweep(
    journal: &dyn Journal,
    board: &BoardId,
    epoch: u64,
    unusable: &[Seq],
) -> Result<Swept, JournalError> {
    journal.sweep(board, epoch, KEPT, unusable)
}
