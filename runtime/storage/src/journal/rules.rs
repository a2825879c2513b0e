//! Rules of an append that every driver keeps.

use patchboard_kernel::digest::Digest;
use patchboard_kernel::driver::Batch;
use patchboard_kernel::record::{Body, GENESIS, Kind};

use super::{BoardSummary, JournalError, Result};

/// Returns the texts that a record names.
pub fn named_texts(body: &Body) -> Vec<Digest> {
    match body {
        Body::Invoked(invoked) => vec![invoked.view, invoked.prompt],
        Body::Created(created) => created.architect.iter().flat_map(|architect| architect.prompts.clone()).collect(),
        _ => Vec::new(),
    }
}

/// Rejects batches that are invalid in any state: otherwise only a recovery of the board would notice.
pub(crate) fn check_form(batch: &Batch) -> Result<()> {
    if batch.records.is_empty() {
        return Err(bad_batch(batch, "it is empty"));
    }
    let mut seq = batch.expected.map(|head| head.seq.next()).unwrap_or_default();
    let mut previous = batch.expected.map_or(GENESIS, |head| head.hash);
    for record in &batch.records {
        if record.seq != seq {
            return Err(bad_batch(batch, format!("record {} comes where {seq} must", record.seq)));
        }
        if (record.kind == Kind::Created) != (seq.0 == 0) {
            return Err(bad_batch(batch, format!("record {seq} is {}", record.kind)));
        }
        record.check_chain(previous).map_err(|error| bad_batch(batch, format!("record {seq}: {error}")))?;
        seq = seq.next();
        previous = record.hash;
    }
    Ok(())
}

/// Returns a board's summary as of the end of a batch, if `stored` is the state that the writer knows. Fails with
/// [`JournalError::Fenced`] or [`JournalError::BadBatch`].
pub(crate) fn summary_after(batch: &Batch, stored: Option<BoardSummary>) -> Result<BoardSummary> {
    check_expectation(batch, stored.as_ref())?;
    let summary = applied(batch, stored.unwrap_or_else(|| BoardSummary::empty(batch.board.clone())))?;
    if summary.epoch != batch.epoch {
        return Err(bad_batch(batch, format!("it leaves epoch {}, its writer has {}", summary.epoch, batch.epoch)));
    }
    Ok(summary)
}

pub(crate) fn applied(batch: &Batch, mut summary: BoardSummary) -> Result<BoardSummary> {
    for record in &batch.records {
        summary.apply(record).map_err(|error| bad_batch(batch, error.to_string()))?;
    }
    Ok(summary)
}

/// Checks the fence: a process that took the board over has appended to it, so its head differs from the old owner's.
fn check_expectation(batch: &Batch, stored: Option<&BoardSummary>) -> Result<()> {
    let fenced = |reason: String| JournalError::Fenced { board: batch.board.clone(), reason };
    let (expected, stored) = match (batch.expected, stored) {
        (None, None) => return Ok(()),
        (None, Some(_)) => return Err(fenced("it exists already".to_owned())),
        (Some(_), None) => return Err(fenced("it does not exist".to_owned())),
        (Some(expected), Some(stored)) => (expected, stored),
    };
    if stored.head != expected {
        return Err(fenced(format!("its last record is {}, not {}", stored.head.seq, expected.seq)));
    }
    let claims = batch.records.iter().any(|record| record.kind == Kind::Epoch);
    let is_owner = if claims { batch.epoch > stored.epoch } else { batch.epoch == stored.epoch };
    if !is_owner {
        return Err(fenced(format!("it is in epoch {}, the writer in {}", stored.epoch, batch.epoch)));
    }
    Ok(())
}

pub(crate) fn bad_batch(batch: &Batch, what: impl Into<String>) -> JournalError {
    JournalError::BadBatch { board: batch.board.clone(), what: what.into() }
}
