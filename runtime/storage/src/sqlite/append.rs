//! One transaction with several boards' batches, each checked against the state of its board and stored wholly or not
//! at all.

use std::time::Duration;

use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::{End, Kind, Record};
use rusqlite::{Connection, TransactionBehavior};

use super::error_mapping::{execute, sql_error};
use super::rows::load_summary;
use super::{parts, to_sql_number};
use crate::journal::{BoardSummary, DECIDES_END, Result, rules};
use patchboard_kernel::driver::{Batch, Head};

/// The new head of each batch, or the reason for which it was not appended.
pub(super) type Heads = Vec<Result<Head>>;

/// Stores the batches with one commit. The outer error applies to all of them.
pub(super) fn append_group(connection: &mut Connection, batches: &[Batch], patience: Duration) -> Result<Heads> {
    connection.busy_timeout(patience).map_err(sql_error)?;
    match append_together(connection, batches)? {
        Some(answers) => Ok(answers),
        None => append_each(connection, batches),
    }
}

/// Stores all batches or none, which saves a savepoint for each; returns `None` if one of several cannot be stored.
/// Writers know the state of their boards, so that is rare.
fn append_together(connection: &mut Connection, batches: &[Batch]) -> Result<Option<Heads>> {
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
fn append_each(connection: &mut Connection, batches: &[Batch]) -> Result<Heads> {
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

pub(super) fn append_batch(connection: &Connection, batch: &Batch) -> Result<Head> {
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
        let sql = "INSERT INTO blobs (hash, bytes) VALUES (?1, ?2) ON CONFLICT (hash) DO NOTHING";
        execute(connection, sql, (blob.hash.to_string(), blob.text.as_bytes()))?;
    }
    Ok(head)
}

/// Advances a board's summary if its state matches the batch, in one statement. Returns `None` without a change if it
/// does not match, or if the batch creates the board or takes it over.
fn advance(connection: &Connection, batch: &Batch) -> Result<Option<Head>> {
    let has = |kinds: &[Kind]| batch.records.iter().any(|record| kinds.contains(&record.kind));
    let Some(expected) = batch.expected.filter(|_| !has(&[Kind::Created, Kind::Epoch])) else { return Ok(None) };
    let after = rules::applied(batch, BoardSummary::empty(batch.board.clone()))?;
    let version = has(&[Kind::Committed]).then_some(to_sql_number(after.version.0)).transpose()?;
    let decides_end = has(&DECIDES_END);
    let sql = "UPDATE boards SET updated_at = ?5, last_seq = ?6, last_hash = ?7, version = ifnull(?8, version), \
               ended = iif(?9, ?10, ended) \
               WHERE board = ?1 AND epoch = ?2 AND last_seq = ?3 AND last_hash = ?4";
    let (board, epoch, at) = (batch.board.as_str(), to_sql_number(batch.epoch)?, after.updated_at.0);
    let ((seq, hash), (last_seq, last_hash)) = (sql_head(expected)?, sql_head(after.head)?);
    let ended = after.ended.map(End::as_str);
    let row = (board, epoch, seq, hash, at, last_seq, last_hash, version, decides_end, ended);
    Ok((execute(connection, sql, row)? == 1).then_some(after.head))
}

/// Stores a board's summary as of the end of the batch, if its state matches the batch.
fn summarise(connection: &Connection, batch: &Batch) -> Result<Head> {
    let summary = rules::summary_after(batch, load_summary(connection, &batch.board)?)?;
    store_summary(connection, &summary)?;
    Ok(summary.head)
}

fn insert_record(connection: &Connection, batch: &Batch, record: &Record) -> Result<()> {
    let sql = "INSERT INTO records (board, seq, kind, at, header, payload, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let Record { kind, at, header, payload, .. } = record;
    let (seq, hash) = (to_sql_number(record.seq.0)?, record.hash.to_string());
    execute(connection, sql, (batch.board.as_str(), seq, kind.as_str(), at.0, header, payload, hash))?;
    Ok(())
}

fn store_summary(connection: &Connection, summary: &BoardSummary) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO boards \
               (board, name, created_at, updated_at, epoch, last_seq, last_hash, version, ended) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let BoardSummary { id, name, created_at: Timestamp(created), updated_at: Timestamp(updated), .. } = summary;
    let (epoch, version) = (to_sql_number(summary.epoch)?, to_sql_number(summary.version.0)?);
    let ((seq, hash), ended) = (sql_head(summary.head)?, summary.ended.map(End::as_str));
    execute(connection, sql, (id.as_str(), name, created, updated, epoch, seq, hash, version, ended))?;
    Ok(())
}

fn sql_head(head: Head) -> Result<(i64, String)> {
    Ok((to_sql_number(head.seq.0)?, head.hash.to_string()))
}
