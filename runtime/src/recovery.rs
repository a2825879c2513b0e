//! Makes a board from its journal: from the newest snapshot that can be used and the records after it, or else from
//! all records.
//!
//! A snapshot only saves time. What is wrong with one is told in the log, and the board comes to be without it. A journal that ends
//! inside a step makes no board as it is now: a step is appended as a whole, so records are missing.

use patchboard_kernel::board::{Board, BoardError};
use patchboard_kernel::id::{BoardId, Seq, Version};
use patchboard_kernel::plan::{Own, Plans};
use patchboard_kernel::record::{Body, Record};
use patchboard_kernel::replay;
use patchboard_kernel::snapshot::SnapshotError;

use crate::journal::{Journal, JournalError, KeptSnapshot};
use crate::runtime::RuntimeError;

/// How many records are read at once.
const PAGE: usize = 512;

/// How many records are looked at for where the last step begins, at first.
const TAIL: u64 = 64;

/// A board that was made from its journal.
pub struct Recovered {
    /// The board.
    pub board: Board,
    /// The last record that was in the snapshot it was made from; `None`: it was made from all records.
    pub from: Option<Seq>,
    /// Records that were folded, the first one not counted.
    pub records: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Snapshots that cannot be used, by the last record they include.
    pub unusable: Vec<Seq>,
}

/// Makes a board as it is now.
///
/// # Errors
/// Storage; [`RuntimeError::Board`] if the records make no board, or end inside a step.
pub fn recover(journal: &dyn Journal, board: &BoardId, plans: &dyn Plans) -> Result<Recovered, RuntimeError> {
    recover_until(journal, board, None, plans)
}

/// Checks that a journal does not end inside a step. Makes the board for it; whatever else is wrong with that is left to
/// [`recover`]. Blocks.
///
/// # Errors
/// Storage; [`JournalError::BadRecord`] with the first record that is missing.
pub fn check_end(journal: &dyn Journal, board: &BoardId) -> Result<(), JournalError> {
    match recover(journal, board, &Own) {
        Err(RuntimeError::Board(BoardError::BadRecord { seq, message })) => {
            // Read afterwards: a process that runs the board may have appended meanwhile.
            let head = journal.head(board)?;
            let is_after = head.is_some_and(|head| seq > head.seq);
            if is_after { Err(JournalError::BadRecord { seq, why: message }) } else { Ok(()) }
        }
        Err(RuntimeError::Journal(error)) => Err(error),
        _ => Ok(()),
    }
}

/// Makes a board as it stood right after the commit that made a version.
///
/// # Errors
/// As [`recover`]; [`BoardError::BadRecord`] if there is no such version.
pub fn recover_at(
    journal: &dyn Journal,
    board: &BoardId,
    version: Version,
    plans: &dyn Plans,
) -> Result<Recovered, RuntimeError> {
    recover_until(journal, board, Some(version), plans)
}

fn recover_until(
    journal: &dyn Journal,
    id: &BoardId,
    version: Option<Version>,
    plans: &dyn Plans,
) -> Result<Recovered, RuntimeError> {
    let bad = |message: String| RuntimeError::Board(BoardError::BadRecord { seq: Seq(0), message });
    let first = journal.records(id, None, 1)?.pop().ok_or_else(|| bad("the journal of the board is empty".into()))?;
    let mut unusable = Vec::new();
    let until = match version {
        Some(version) => Until::Version(version),
        None => Until::End(last_step(journal, id)?),
    };
    for snapshot in listed(journal, id)? {
        match from_snapshot(journal, id, &first, snapshot, &until, plans) {
            Ok(Some(recovered)) => return checked(Recovered { unusable, ..recovered }, id),
            Ok(None) => {}
            Err(Trouble::Snapshot(why)) => {
                if why.is_of_another_version() {
                    tracing::info!(board = %id, of = %snapshot.of, %why, "a snapshot is of another version; recovering without it");
                } else {
                    tracing::warn!(board = %id, of = %snapshot.of, %why, "a snapshot cannot be used; recovering without it");
                    unusable.push(snapshot.of);
                }
            }
            // The snapshot may be as good as any.
            Err(Trouble::Records(RuntimeError::Journal(error))) if error.is_passing() => {
                tracing::warn!(board = %id, of = %snapshot.of, %error, "a snapshot cannot be read; recovering without it");
            }
            Err(Trouble::Records(error)) => {
                tracing::warn!(board = %id, of = %snapshot.of, %error, "records do not follow from a snapshot; recovering without it");
                unusable.push(snapshot.of);
            }
        }
    }
    if let Until::End(records) = &until
        && records.first().is_some_and(|first| first.seq == Seq(0))
    {
        whole(None, records)?;
    }
    let board = Board::from_created(&first, plans)?;
    let recovered = fold(journal, id, board, &until)?;
    checked(Recovered { unusable, ..recovered }, id)
}

/// How far a board is made.
enum Until {
    /// Right after the commit that made a version.
    Version(Version),
    /// As far as there are records, the last of which are these, from the last one that certainly begins a step.
    End(Vec<Record>),
}

/// Returns the last records of a journal, from the last one that certainly begins a step.
fn last_step(journal: &dyn Journal, id: &BoardId) -> Result<Vec<Record>, JournalError> {
    let Some(head) = journal.head(id)? else { return Ok(Vec::new()) };
    let mut records = TAIL;
    loop {
        let after = head.seq.0.checked_sub(records).map(Seq);
        let mut tail = journal.records(id, after, usize::MAX)?;
        match replay::last_step(&tail) {
            Some(begin) => return Ok(tail.split_off(begin)),
            None if after.is_none() => return Ok(tail),
            None => records = records.saturating_mul(8),
        }
    }
}

/// Refuses last records of a journal that ends inside a step.
fn whole(before: Option<Board>, records: &[Record]) -> Result<(), BoardError> {
    match replay::missing_at_end(before, records) {
        None => Ok(()),
        Some((seq, kind)) => {
            let message = format!("it is missing: the journal ends inside a step, to which {kind} belongs");
            Err(BoardError::BadRecord { seq, message })
        }
    }
}

/// The snapshots that are kept; none if the list is damaged, which the next sweep mends.
fn listed(journal: &dyn Journal, id: &BoardId) -> Result<Vec<KeptSnapshot>, JournalError> {
    match journal.snapshots(id) {
        Err(JournalError::Corrupt { what, .. }) => {
            tracing::warn!(board = %id, what, "cannot be read; recovering without snapshots");
            Ok(Vec::new())
        }
        other => other,
    }
}

fn checked(recovered: Recovered, id: &BoardId) -> Result<Recovered, RuntimeError> {
    if recovered.board.id() != id {
        let message = format!("it is of board {}", recovered.board.id());
        return Err(BoardError::BadRecord { seq: Seq(0), message }.into());
    }
    Ok(recovered)
}

/// Why a board cannot be made from a snapshot.
enum Trouble {
    Snapshot(SnapshotError),
    Records(RuntimeError),
}

impl From<SnapshotError> for Trouble {
    fn from(error: SnapshotError) -> Self {
        Self::Snapshot(error)
    }
}

impl From<JournalError> for Trouble {
    fn from(error: JournalError) -> Self {
        Self::Records(error.into())
    }
}

/// The board from one snapshot; none if that is later than what is wanted.
fn from_snapshot(
    journal: &dyn Journal,
    id: &BoardId,
    first: &Record,
    snapshot: KeptSnapshot,
    until: &Until,
    plans: &dyn Plans,
) -> Result<Option<Recovered>, Trouble> {
    let unreadable = |what: &str| SnapshotError::Unreadable(what.to_owned());
    // The list of snapshots is in no chain; the record is.
    let named = record(journal, id, snapshot.record)?.and_then(|record| record.body().ok());
    if !matches!(named, Some(Body::Snapshot(named)) if (named.of, named.digest) == (snapshot.of, snapshot.digest)) {
        return Err(unreadable("no record names it").into());
    }
    let mut unread = None;
    let mut fetch = |hash| {
        journal.part(id, hash).map_err(|error| {
            let why = SnapshotError::Storage(error.to_string());
            unread = Some(error);
            why
        })
    };
    let restored = Board::restore(first, snapshot.digest, &mut fetch, plans);
    let board = match unread.filter(JournalError::is_passing) {
        Some(error) => return Err(error.into()),
        None => restored?,
    };
    // At the version itself more may have happened than its commit.
    if matches!(until, Until::Version(version) if board.version() >= *version) {
        return Ok(None);
    }
    let last = record(journal, id, snapshot.of)?;
    if last.is_none_or(|last| (last.seq, last.hash) != board.head()) {
        return Err(unreadable("its last record is not the one in the journal").into());
    }
    let recovered = fold(journal, id, board, until).map_err(Trouble::Records)?;
    Ok(Some(Recovered { from: Some(snapshot.of), ..recovered }))
}

fn record(journal: &dyn Journal, id: &BoardId, seq: Seq) -> Result<Option<Record>, JournalError> {
    let before = seq.0.checked_sub(1).map(Seq);
    Ok(journal.records(id, before, 1)?.pop().filter(|record| record.seq == seq))
}

/// Folds the records after the board's head, page by page.
fn fold(journal: &dyn Journal, id: &BoardId, mut board: Board, until: &Until) -> Result<Recovered, RuntimeError> {
    let (mut records, mut bytes) = (0, 0);
    'wanted: loop {
        let page = journal.records(id, Some(board.head().0), PAGE)?;
        if page.is_empty() {
            break;
        }
        for record in page {
            match until {
                Until::Version(version) if board.version() == *version => break 'wanted,
                Until::End(last) if last.first().is_some_and(|first| first.seq == record.seq) => {
                    whole(Some(board.clone()), last)?;
                }
                _ => {}
            }
            board.fold(&record)?;
            records += 1;
            bytes += size(&record);
        }
    }
    if let Until::Version(version) = until
        && board.version() != *version
    {
        let message = format!("there is no version {version}, the last one is {}", board.version());
        return Err(BoardError::BadRecord { seq: board.head().0, message }.into());
    }
    Ok(Recovered { board, from: None, records, bytes, unusable: Vec::new() })
}

/// Bytes of a record's texts.
pub(crate) fn size(record: &Record) -> u64 {
    (record.header.len() + record.payload.len()) as u64
}
