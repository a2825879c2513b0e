//! Collects the facts of a board that a later version must find in its journal again.

use patchboard_kernel::board::Board;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::driver::Head;
use patchboard_kernel::id::{BoardId, Seq, Version};
use patchboard_kernel::record::{Body, Ended, FORMAT, Kind, Record};
use patchboard_kernel::snapshot::{LAYOUT, SnapshotError};
use patchboard_kernel::{replay, view};
use patchboard_protocols::PLANS;
use patchboard_runtime::{audit, recovery};
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal as _;
use patchboard_storage::sqlite::SqliteJournal;
use serde::{Deserialize, Serialize};

/// Facts of a journal. All but the views that another compiler made and the snapshots of another layout stay the same.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Facts {
    pub(super) board: BoardId,
    pub(super) blueprint: String,
    /// Journal format.
    pub(super) format: u32,
    /// Last record.
    pub(super) seq: Seq,
    pub(super) hash: Digest,
    /// Document after the last record, with placeholders for redacted values.
    pub(super) version: Version,
    pub(super) state: Digest,
    /// End of the board, as in its record.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) ended: Option<Ended>,
    pub(super) replay: Replay,
    pub(super) verify: Verify,
    pub(super) export: Export,
}

/// Result of replaying the run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replay {
    pub(super) records: u64,
    pub(super) commits: u64,
    /// Views, including those that cannot be derived.
    pub(super) views: u64,
    /// First and last record that cannot be derived because of redacted values.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) erased: Option<(Seq, Seq)>,
}

/// Result of the audit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Verify {
    pub(super) texts: u64,
    pub(super) snapshots: u64,
    pub(super) erased_values: u64,
    pub(super) erased_records: u64,
    pub(super) erased_texts: u64,
    pub(super) is_salt_gone: bool,
}

/// Printed journal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Export {
    pub(super) bytes: usize,
    pub(super) sha256: Digest,
}

impl Facts {
    /// Recovers, replays, audits and exports a board.
    ///
    /// # Errors
    /// The first step that fails, and the reason.
    pub(super) fn of(journal: &SqliteJournal, board: &BoardId) -> Result<Self, String> {
        let records = wait(journal.records(board, None, usize::MAX)).map_err(|error| error.to_string())?;
        let first = records.first().ok_or("there is no record")?;
        let Ok(Body::Created(created)) = first.body() else { return Err("the first record is not `created`".into()) };
        let folded = Board::recover(&records, &PLANS).map_err(|error| format!("recover: {error}"))?;
        let replay = replayed(first, &records, &folded)?;
        let recovered = recovery::recover(journal, board, &PLANS).map_err(|error| format!("recover: {error}"))?;
        same_board("recovery from the journal", &recovered.board, &folded)?;
        let kept = wait(journal.snapshots(board)).map_err(|error| error.to_string())?;
        for snapshot in &kept {
            let mut fetch =
                |hash| wait(journal.part(board, hash)).map_err(|error| SnapshotError::Storage(error.to_string()));
            match Board::restore(first, snapshot.digest, &mut fetch, &PLANS) {
                Ok(mut restored) => {
                    for record in records.iter().filter(|record| record.seq > snapshot.of) {
                        restored.fold(record).map_err(|error| format!("after a snapshot: {error}"))?;
                    }
                    same_board("the snapshot and the records after it", &restored, &folded)?;
                }
                Err(SnapshotError::OtherLayout(layout)) if layout != u64::from(LAYOUT) => {}
                // An earlier version made it; the records hold the missing parts.
                Err(SnapshotError::TooOld(_)) if created.format < FORMAT => {}
                Err(error) => return Err(format!("the snapshot of record {}: {error}", snapshot.of)),
            }
        }
        let (seq, hash) = folded.head();
        let verified = audit::verify(journal, board, Some(hash), &PLANS).map_err(|fault| format!("verify: {fault}"))?;
        if (verified.head, verified.records) != (Head { seq, hash }, replay.records) {
            return Err(format!("verify read {} records up to {}", verified.records, verified.head.seq));
        }
        let export: String = records.iter().map(|record| format!("{}\n", record.to_json())).collect();
        Ok(Self {
            board: board.clone(),
            blueprint: created.name.clone(),
            format: created.format,
            seq,
            hash,
            version: folded.version(),
            state: folded.state().digest(),
            ended: folded.ended(),
            replay,
            verify: Verify {
                texts: verified.blobs,
                snapshots: verified.snapshots + verified.unchecked_snapshots,
                erased_values: verified.erased.values,
                erased_records: verified.erased.records,
                erased_texts: verified.erased.texts,
                is_salt_gone: verified.erased.salt,
            },
            export: Export { bytes: export.len(), sha256: sha256(export.as_bytes()) },
        })
    }
}

/// Derives every record again. Only views of another compiler may be accepted as recorded.
fn replayed(first: &Record, records: &[Record], folded: &Board) -> Result<Replay, String> {
    if let Some(why) = replay::unsupported_reason(first) {
        return Err(format!("replay: {why}"));
    }
    let replayed = replay::replay(records, None, &PLANS).map_err(|difference| format!("replay: {difference}"))?;
    same_board("the replay", &replayed.board, folded)?;
    let compiler = view::compiler_version(folded.plan().journal_format);
    let is_foreign = |record: &&Record| match record.body() {
        Ok(Body::Invoked(invoked)) => invoked.compiler != compiler,
        _ => false,
    };
    let foreign = records.iter().filter(|record| record.kind == Kind::Invoked).filter(is_foreign).count() as u64;
    if replayed.views_skipped > foreign {
        return Err(format!("replay skipped {} views, {foreign} are of another compiler", replayed.views_skipped));
    }
    let last = records.iter().rev().find_map(|record| match record.body() {
        Ok(Body::Committed(committed)) => Some(committed.state),
        _ => None,
    });
    if let Some(recorded) = last
        && folded.is_exact()
        && recorded != folded.state().digest()
    {
        return Err(format!("the last commit has the state {recorded}, recovered is {}", folded.state().digest()));
    }
    Ok(Replay {
        records: replayed.records,
        commits: replayed.commits,
        views: replayed.views + replayed.views_skipped,
        erased: replayed.redacted,
    })
}

fn same_board(from: &str, one: &Board, other: &Board) -> Result<(), String> {
    let facts = |board: &Board| (board.head(), board.version(), board.state().digest(), board.ended());
    let (one, other) = (facts(one), facts(other));
    if one == other { Ok(()) } else { Err(format!("{from} comes to {one:?}, folding all records to {other:?}")) }
}
