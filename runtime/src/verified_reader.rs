//! Reads records of a board and verifies each: its place in the chain, and its values if the board's salt is present.
//!
//! Recovery verifies records as it folds them; this is for other readers.

use patchboard_kernel::digest::{Digest, Hasher, Salt};
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::{Body, GENESIS, Record, RecordError};

use patchboard_storage::blocking::wait;
use patchboard_storage::journal::{Journal, JournalError};

/// Verifying reader of a board's records.
pub struct VerifiedReader<'a> {
    journal: &'a dyn Journal,
    board: &'a BoardId,
    /// None if the salt is erased.
    hasher: Option<Hasher>,
    last: Option<Seq>,
    hash: Digest,
}

impl<'a> VerifiedReader<'a> {
    /// Starts after the record `after`; `None` starts with the first.
    pub fn new(journal: &'a dyn Journal, board: &'a BoardId, after: Option<Seq>) -> Result<Self, JournalError> {
        let hash = match after {
            None => GENESIS,
            // Past the end there is no hash to check.
            Some(after) => wait(journal.record(board, after))?.map_or(GENESIS, |record| record.hash),
        };
        let hasher = match wait(journal.record(board, Seq(0)))? {
            Some(first) => hasher(journal, board, &first)?,
            None => None,
        };
        Ok(Self { journal, board, hasher, last: after, hash })
    }

    /// Reads the next records, at most `limit`; none at the end.
    pub fn next(&mut self, limit: usize) -> Result<Vec<Record>, JournalError> {
        let records = wait(self.journal.records(self.board, self.last, limit))?;
        for record in &records {
            record.check_chain(self.hash).map_err(|error| bad(record.seq, &error))?;
            if let Some(hasher) = &self.hasher {
                record.check_values(hasher).map_err(|error| bad(record.seq, &error))?;
            }
            (self.last, self.hash) = (Some(record.seq), record.hash);
        }
        Ok(records)
    }
}

/// Returns the hasher of a board's commitments, unless its salt is erased.
fn hasher(journal: &dyn Journal, board: &BoardId, first: &Record) -> Result<Option<Hasher>, JournalError> {
    let unreadable = |error: RecordError| bad(first.seq, &error);
    if let Some(erasure) = first.redaction_marker().map_err(unreadable)? {
        let by = wait(journal.record(board, erasure.by))?;
        if matches!(by.as_ref().map(Record::body), Some(Ok(Body::Redacted(redacted))) if redacted.salt) {
            return Ok(None);
        }
    }
    let salt = first.values().map_err(unreadable)?.remove("salt").unwrap_or_default();
    let salt: Salt =
        serde_json::from_value(salt).map_err(|error| bad(first.seq, &RecordError::Unreadable(error.to_string())))?;
    Ok(Some(Hasher::new(&salt)))
}

fn bad(seq: Seq, error: &RecordError) -> JournalError {
    JournalError::BadRecord { seq, why: error.to_string() }
}
