//! One transaction with several boards' batches, each checked against the state of its board and stored wholly or not
//! at all.

use std::time::Duration;

use patchboard_kernel::record::{End, Kind, Record};
use rusqlite::{Connection, TransactionBehavior};

use super::error_mapping::sql_error;
use super::rows::load_summary;
use super::{parts, to_sql_number};
use crate::journal::{BoardSummary, DECIDES_END, JournalError, rules};
use patchboard_kernel::driver::{Batch, Head};

/// Stores the batches with one commit. The outer error applies to all of them.
pub(super) fn append_group(
    connection: &mut Connection,
    batches: &[Batch],
    patience: Duration,
) -> Result<Vec<Result<Head, JournalError>>, JournalError> {
    connection.busy_timeout(patience).map_err(sql_error)?;
    match append_together(connection, batches)? {
        Some(answers) => Ok(answers),
        None => append_each(connection, batches),
    }
}

/// Stores all batches or none, which saves a savepoint for each; returns `None` if one of several cannot be stored.
/// Writers know the state of their boards, so that is rare.
fn append_together(
    connection: &mut Connection,
    batches: &[Batch],
) -> Result<Option<Vec<Result<Head, JournalError>>>, JournalError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql_error)?;
    let mut answers = Vec::with_capacity(batches.len());
    for batch in batches {
        match append_batch(&transaction, batch) {
            Ok(head) => answers.push(Ok(head)),
            // Dropping the transaction rolls it back.
            Err(error) if batches.len() == 1 => return Ok(Some(vec![Err(error)])),
            Err(_) => return Ok(None),
        }
    }
    transaction.commit().map_err(sql_error)?;
    Ok(Some(answers))
}

/// Stores each batch that can be stored.
fn append_each(
    connection: &mut Connection,
    batches: &[Batch],
) -> Result<Vec<Result<Head, JournalError>>, JournalError> {
    let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql_error)?;
    let mut answers = Vec::with_capacity(batches.len());
    for batch in batches {
        let savepoint = transaction.savepoint().map_err(sql_error)?;
        match append_batch(&savepoint, batch) {
            Ok(head) => {
                savepoint.commit().map_err(sql_error)?;
                answers.push(Ok(head));
            }
            Err(error) => {
                drop(savepoint);
                // Some failures, such as a full disk, make SQLite roll back the whole transaction.
                if transaction.is_autocommit() {
                    return Err(error);
                }
                answers.push(Err(error));
            }
        }
    }
    transaction.commit().map_err(sql_error)?;
    Ok(answers)
}

pub(super) fn append_batch(connection: &Connection, batch: &Batch) -> Result<Head, JournalError> {
    rules::check_form(batch)?;
    let head = match advance(connection, batch)? {
        Some(head) => head,
        None => summarise(connection, batch)?,
    };
    for record in &batch.records {
        insert_record(connection, batch, record)?;
        if record.kind == Kind::Snapshot {
            parts::keep_snapshot(connection, batch, record)?;
        }
    }
    for blob in &batch.blobs {
        connection
            .prepare_cached("INSERT INTO blobs (hash, bytes) VALUES (?1, ?2) ON CONFLICT (hash) DO NOTHING")
            .and_then(|mut statement| statement.execute((blob.hash.to_string(), blob.text.as_bytes())))
            .map_err(sql_error)?;
    }
    Ok(head)
}

/// Advances a board's summary if its state matches the batch, in one statement. Returns `None` without a change if it
/// does not match, or if the batch creates the board or takes it over.
fn advance(connection: &Connection, batch: &Batch) -> Result<Option<Head>, JournalError> {
    let has = |kinds: &[Kind]| batch.records.iter().any(|record| kinds.contains(&record.kind));
    let Some(expected) = batch.expected.filter(|_| !has(&[Kind::Created, Kind::Epoch])) else { return Ok(None) };
    let after = rules::applied(batch, BoardSummary::empty(batch.board.clone()))?;
    let version = has(&[Kind::Committed]).then_some(to_sql_number(after.version.0)).transpose()?;
    let decides_end = has(&DECIDES_END);
    let mut statement = connection
        .prepare_cached(
            "UPDATE boards SET updated_at = ?5, last_seq = ?6, last_hash = ?7, version = ifnull(?8, version), \
             ended = iif(?9, ?10, ended) \
             WHERE board = ?1 AND epoch = ?2 AND last_seq = ?3 AND last_hash = ?4",
        )
        .map_err(sql_error)?;
    let row = (
        batch.board.as_str(),
        to_sql_number(batch.epoch)?,
        to_sql_number(expected.seq.0)?,
        expected.hash.to_string(),
        after.updated_at.0,
        to_sql_number(after.head.seq.0)?,
        after.head.hash.to_string(),
        version,
        decides_end,
        after.ended.map(End::as_str),
    );
    let moved = statement.execute(row).map_err(sql_error)?;
    Ok((moved == 1).then_some(after.head))
}

/// Stores a board's summary as of the end of the batch, if its state matches the batch.
fn summarise(connection: &Connection, batch: &Batch) -> Result<Head, JournalError> {
    let summary = rules::summary_after(batch, load_summary(connection, &batch.board)?)?;
    store_summary(connection, &summary)?;
    Ok(summary.head)
}

fn insert_record(connection: &Connection, batch: &Batch, record: &Record) -> Result<(), JournalError> {
    let mut statement = connection
        .prepare_cached(
            "INSERT INTO records (board, seq, kind, at, header, payload, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )
        .map_err(sql_error)?;
    let row = (
        batch.board.as_str(),
        to_sql_number(record.seq.0)?,
        record.kind.as_str(),
        record.at.0,
        &record.header,
        &record.payload,
        record.hash.to_string(),
    );
    statement.execute(row).map_err(sql_error)?;
    Ok(())
}

fn store_summary(connection: &Connection, summary: &BoardSummary) -> Result<(), JournalError> {
    let mut statement = connection
        .prepare_cached(
            "INSERT OR REPLACE INTO boards \
             (board, name, created_at, updated_at, epoch, last_seq, last_hash, version, ended) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )
        .map_err(sql_error)?;
    let row = (
        summary.id.as_str(),
        &summary.name,
        summary.created_at.0,
        summary.updated_at.0,
        to_sql_number(summary.epoch)?,
        to_sql_number(summary.head.seq.0)?,
        summary.head.hash.to_string(),
        to_sql_number(summary.version.0)?,
        summary.ended.map(End::as_str),
    );
    statement.execute(row).map_err(sql_error)?;
    Ok(())
}
