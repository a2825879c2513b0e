//! Recovers a board from its journal: from the newest usable snapshot and the records after it, or else from all
//! records.
//!
//! A snapshot only saves time. Faults of one are logged, and the board is recovered without it. A journal that ends
//! inside a step cannot be recovered to its end: a step is appended as a whole, so records are missing.

use patchboard_kernel::board::{Board, BoardError};
use patchboard_kernel::id::{BoardId, Seq, Version};
use patchboard_kernel::plan::PlanSource;
use patchboard_kernel::record::{Body, Record};
use patchboard_kernel::replay;
use patchboard_kernel::snapshot::SnapshotError;

use crate::error::{Result, RuntimeError};
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::{Journal, JournalError, KeptSnapshot};

/// Records read at once.
const PAGE: usize = 512;

/// Records that are searched first for the beginning of the last step.
const TAIL: u64 = 64;

/// A recovered board.
pub struct Recovered {
    /// The board's state.
    pub board: Board,
    /// Last record in the snapshot it was recovered from; `None` if it was recovered from all records.
    pub from: Option<Seq>,
    /// Number of folded records, without the first.
    pub records: u64,
    /// Bytes of these records.
    pub bytes: u64,
    /// Unusable snapshots, by the last record they include.
    pub unusable: Vec<Seq>,
}

/// Recovers a board to its current state. Fails with [`RuntimeError::Board`] if the records are invalid, or end inside
/// a step.
pub fn recover(journal: &dyn Journal, board: &BoardId, plans: &dyn PlanSource) -> Result<Recovered> {
    recover_until(journal, board, None, plans)
}

/// Checks that a journal does not end inside a step, by recovering the board; ignores other faults, which [`recover`]
/// reports. Blocks. Fails with [`JournalError::BadRecord`] for the first missing record.
pub fn check_end(journal: &dyn Journal, board: &BoardId, plans: &dyn PlanSource) -> Result<(), JournalError> {
    match recover(journal, board, plans) {
        Err(RuntimeError::Board(BoardError::BadRecord { seq, message })) => {
            // Read afterwards: a process that runs the board may have appended meanwhile.
            let head = wait(journal.head(board))?;
            let is_after = head.is_some_and(|head| seq > head.seq);
            if is_after { Err(JournalError::BadRecord { seq, why: message }) } else { Ok(()) }
        }
        Err(RuntimeError::Journal(error)) => Err(error),
        _ => Ok(()),
    }
}

/// Recovers a board as of the commit of a version. Fails with [`BoardError::BadRecord`] if there is no such version.
pub fn recover_at(journal: &dyn Journal, id: &BoardId, version: Version, plans: &dyn PlanSource) -> Result<Recovered> {
    recover_until(journal, id, Some(version), plans)
}

fn recover_until(
    journal: &dyn Journal,
    id: &BoardId,
    version: Option<Version>,
    plans: &dyn PlanSource,
) -> Result<Recovered> {
    let bad = |message: String| RuntimeError::Board(BoardError::BadRecord { seq: Seq(0), message });
    let first =
        wait(journal.records(id, None, 1))?.pop().ok_or_else(|| bad("the journal of the board is empty".into()))?;
    let mut unusable = Vec::new();
    let until = match version {
        Some(version) => RecoveryTarget::Version(version),
        None => RecoveryTarget::End(last_step(journal, id)?),
    };
    for snapshot in listed(journal, id)? {
        match from_snapshot(journal, id, &first, snapshot, &until, plans) {
            Ok(Some(recovered)) => return checked(Recovered { unusable, ..recovered }, id),
            Ok(None) => {}
            Err(SnapshotRecoveryError::Snapshot(why)) => {
                if why.is_of_another_version() {
                    tracing::info!(board = %id, of = %snapshot.of, %why, "a snapshot is of another version; recovering without it");
                } else {
                    tracing::warn!(board = %id, of = %snapshot.of, %why, "a snapshot cannot be used; recovering without it");
                    unusable.push(snapshot.of);
                }
            }
            // The snapshot itself may be sound.
            Err(SnapshotRecoveryError::Records(RuntimeError::Journal(error))) if error.is_transient() => {
                tracing::warn!(board = %id, of = %snapshot.of, %error, "a snapshot cannot be read; recovering without it");
            }
            Err(SnapshotRecoveryError::Records(error)) => {
                tracing::warn!(board = %id, of = %snapshot.of, %error, "records do not follow from a snapshot; recovering without it");
                unusable.push(snapshot.of);
            }
        }
    }
    if let RecoveryTarget::End(records) = &until
        && records.first().is_some_and(|first| first.seq == Seq(0))
    {
        check_last_step(None, records, plans)?;
    }
    let board = Board::from_created(&first, plans)?;
    let recovered = fold(journal, id, board, &until, plans)?;
    checked(Recovered { unusable, ..recovered }, id)
}

enum RecoveryTarget {
    Version(Version),
    /// End of the journal. Has its last records, from the last certain beginning of a step.
    End(Vec<Record>),
}

/// Returns the last records of a journal, from the last certain beginning of a step.
fn last_step(journal: &dyn Journal, id: &BoardId) -> Result<Vec<Record>, JournalError> {
    let Some(head) = wait(journal.head(id))? else { return Ok(Vec::new()) };
    let mut records = TAIL;
    loop {
        let after = head.seq.0.checked_sub(records).map(Seq);
        let mut tail = wait(journal.records(id, after, usize::MAX))?;
        match replay::last_step(&tail) {
            Some(begin) => return Ok(tail.split_off(begin)),
            None if after.is_none() => return Ok(tail),
            None => records = records.saturating_mul(8),
        }
    }
}

/// Rejects a journal with last records that end inside a step.
fn check_last_step(before: Option<Board>, records: &[Record], plans: &dyn PlanSource) -> Result<(), BoardError> {
    match replay::missing_at_end(before, records, plans) {
        None => Ok(()),
        Some((seq, kind)) => {
            let message = format!("it is missing: the journal ends inside a step, to which {kind} belongs");
            Err(BoardError::BadRecord { seq, message })
        }
    }
}

/// Returns the kept snapshots; none if the list is damaged, which the next sweep repairs.
fn listed(journal: &dyn Journal, id: &BoardId) -> Result<Vec<KeptSnapshot>, JournalError> {
    match wait(journal.snapshots(id)) {
        Err(JournalError::Corrupt { what, .. }) => {
            tracing::warn!(board = %id, what, "cannot be read; recovering without snapshots");
            Ok(Vec::new())
        }
        other => other,
    }
}

fn checked(recovered: Recovered, id: &BoardId) -> Result<Recovered> {
    if recovered.board.id() != id {
        let message = format!("it is of board {}", recovered.board.id());
        return Err(BoardError::BadRecord { seq: Seq(0), message }.into());
    }
    Ok(recovered)
}

/// Reason why a board cannot be recovered from a snapshot.
enum SnapshotRecoveryError {
    Snapshot(SnapshotError),
    Records(RuntimeError),
}

impl From<SnapshotError> for SnapshotRecoveryError {
    fn from(error: SnapshotError) -> Self {
        Self::Snapshot(error)
    }
}

impl From<JournalError> for SnapshotRecoveryError {
    fn from(error: JournalError) -> Self {
        Self::Records(error.into())
    }
}

/// Recovers the board from one snapshot; returns none if the snapshot is later than the target.
fn from_snapshot(
    journal: &dyn Journal,
    id: &BoardId,
    first: &Record,
    snapshot: KeptSnapshot,
    until: &RecoveryTarget,
    plans: &dyn PlanSource,
) -> Result<Option<Recovered>, SnapshotRecoveryError> {
    let unreadable = |what: &str| SnapshotError::Unreadable(what.to_owned());
    // The list of snapshots is not covered by the chain; the record is.
    let named = wait(journal.record(id, snapshot.record))?;
    if !matches!(named.as_ref().map(Record::body), Some(Ok(Body::Snapshot(named))) if (named.of, named.digest) == (snapshot.of, snapshot.digest))
    {
        return Err(unreadable("no record names it").into());
    }
    let mut unread = None;
    let mut fetch = |hash| {
        wait(journal.part(id, hash)).map_err(|error| {
            let why = SnapshotError::Storage(error.to_string());
            unread = Some(error);
            why
        })
    };
    let restored = Board::restore(first, snapshot.digest, &mut fetch, plans);
    let board = match unread.filter(JournalError::is_transient) {
        Some(error) => return Err(error.into()),
        None => restored?,
    };
    // A snapshot at the version itself may include later records.
    if matches!(until, RecoveryTarget::Version(version) if board.version() >= *version) {
        return Ok(None);
    }
    let last = wait(journal.record(id, snapshot.of))?;
    if last.is_none_or(|last| (last.seq, last.hash) != board.head()) {
        return Err(unreadable("its last record is not the one in the journal").into());
    }
    let recovered = fold(journal, id, board, until, plans).map_err(SnapshotRecoveryError::Records)?;
    Ok(Some(Recovered { from: Some(snapshot.of), ..recovered }))
}

/// Folds the records after the board's head, page by page.
fn fold(
    journal: &dyn Journal,
    id: &BoardId,
    mut board: Board,
    until: &RecoveryTarget,
    plans: &dyn PlanSource,
) -> Result<Recovered> {
    let (mut records, mut bytes) = (0, 0);
    'wanted: loop {
        let page = wait(journal.records(id, Some(board.head().0), PAGE))?;
        if page.is_empty() {
            break;
        }
        for record in page {
            match until {
                RecoveryTarget::Version(version) if board.version() == *version => break 'wanted,
                RecoveryTarget::End(last) if last.first().is_some_and(|first| first.seq == record.seq) => {
                    check_last_step(Some(board.clone()), last, plans)?;
                }
                _ => {}
            }
            board.fold(&record)?;
            records += 1;
            bytes += size(&record);
        }
    }
    if let RecoveryTarget::Version(version) = until
        && board.version() != *version
    {
        let message = format!("there is no version {version}, the last one is {}", board.version());
        return Err(BoardError::BadRecord { seq: board.head().0, message }.into());
    }
    Ok(Recovered { board, from: None, records, bytes, unusable: Vec::new() })
}

/// Returns the size of a record's texts in bytes.
pub(crate) fn size(record: &Record) -> u64 {
    (record.header.len() + record.payload.len()) as u64
}
