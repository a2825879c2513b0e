//! Reads of boards, records and texts from their tables.

use patchboard_kernel::digest::Digest;
use patchboard_kernel::driver::Head;
use patchboard_kernel::id::{BoardId, Seq, Timestamp};
use patchboard_kernel::record::{End, Kind, Record};
use rusqlite::{Connection, Row};

use super::error_mapping::{first_value, read_error, sql_error};
use super::{format, to_sql_number};
use crate::journal::{BoardSummary, JournalError, ListCursor, RecordLoss, Result};

/// Parent of a board; only its first record names it.
const SUMMARY_COLUMNS: &str = "board, name, created_at, updated_at, epoch, last_seq, last_hash, version, ended, \
    (SELECT iif(json_valid(header), json_extract(header, '$.parent.board'), NULL) FROM records \
     WHERE records.board = boards.board AND seq = 0)";

pub(super) fn load_summary(connection: &Connection, board: &BoardId) -> Result<Option<BoardSummary>> {
    let sql = format!("SELECT {SUMMARY_COLUMNS} FROM boards WHERE board = ?1");
    let mut statement = connection.prepare_cached(&sql).map_err(sql_error)?;
    let mut rows = statement.query([board.as_str()]).map_err(sql_error)?;
    rows.next().map_err(sql_error)?.map(summary).transpose()
}

/// Returns at most `limit` boards after `after`, in order of creation.
pub(super) fn load_summaries(
    connection: &Connection,
    after: Option<&ListCursor>,
    limit: usize,
) -> Result<Vec<BoardSummary>> {
    let sql = format!(
        "SELECT {SUMMARY_COLUMNS} FROM boards WHERE ?1 IS NULL OR (created_at, board) > (?1, ?2) \
         ORDER BY created_at, board LIMIT ?3"
    );
    let mut statement = connection.prepare_cached(&sql).map_err(sql_error)?;
    let mut rows = statement.query(page_of(after, limit)).map_err(sql_error)?;
    let mut boards = Vec::new();
    while let Some(row) = rows.next().map_err(sql_error)? {
        boards.push(summary(row)?);
    }
    Ok(boards)
}

pub(super) fn load_text(connection: &Connection, hash: Digest) -> Result<Option<String>> {
    let sql = "SELECT bytes FROM blobs WHERE hash = ?1";
    let bytes: Option<Vec<u8>> = first_value(connection, sql, [hash.to_string()])?;
    let not_text = |_| JournalError::Corrupt { seq: None, what: format!("the stored text {hash} is not UTF-8") };
    bytes.map(String::from_utf8).transpose().map_err(not_text)
}

/// Returns the parameters of a statement that reads a page of a list: time, board, limit.
pub(super) fn page_of(after: Option<&ListCursor>, limit: usize) -> (Option<i64>, Option<&str>, i64) {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    (after.map(|(at, _)| at.0), after.map(|(_, board)| board.as_str()), limit)
}

/// Returns at most `limit` records without a gap.
pub(super) fn load_records(
    connection: &Connection,
    board: &BoardId,
    after: Option<Seq>,
    limit: usize,
) -> Result<Vec<Record>> {
    let mut statement = connection
        .prepare_cached(
            "SELECT seq, kind, at, header, payload, hash FROM records \
             WHERE board = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
        )
        .map_err(sql_error)?;
    // No record has a larger number.
    let last = after.map_or(-1, |seq| i64::try_from(seq.0).unwrap_or(i64::MAX));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query((board.as_str(), last, limit)).map_err(sql_error)?;
    let mut next = after.map_or(0, |seq| seq.0.saturating_add(1));
    let mut records = Vec::new();
    while let Some(row) = rows.next().map_err(sql_error)? {
        let record = record(row)?;
        if record.seq.0 != next {
            let why = format!("it is missing; the next one stored is {}", record.seq);
            return Err(JournalError::BadRecord { seq: Seq(next), why });
        }
        next += 1;
        records.push(record);
    }
    Ok(records)
}

pub(super) fn has(connection: &Connection, board: &BoardId, head: Head) -> Result<bool> {
    let row = (board.as_str(), to_sql_number(head.seq.0)?);
    let hash: Option<String> = first_value(connection, "SELECT hash FROM records WHERE board = ?1 AND seq = ?2", row)?;
    Ok(hash.is_some_and(|hash| hash == head.hash.to_string()))
}

/// Returns the loss of a board with an acknowledged head; none if the head is present, or the board was removed.
pub(super) fn lost(connection: &Connection, board: &BoardId, head: Head) -> Result<Option<RecordLoss>> {
    let is_listed = last_listed(connection, board)?.is_some();
    if is_listed && has(connection, board, head)? {
        return Ok(None);
    }
    let last = "SELECT max(seq) FROM records WHERE board = ?1";
    let mut statement = connection.prepare_cached(last).map_err(sql_error)?;
    let found: Option<i64> = statement.query_row([board.as_str()], |row| row.get(0)).map_err(sql_error)?;
    // Commands find only listed boards.
    let found = found.filter(|_| is_listed).map(|seq| Seq(seq.unsigned_abs()));
    if found.is_none() && has_tombstone(connection, board)? {
        return Ok(None);
    }
    Ok(Some(RecordLoss { board: board.clone(), known: head.seq, found }))
}

/// Returns the number of a board's last record according to its summary.
pub(super) fn last_listed(connection: &Connection, board: &BoardId) -> Result<Option<Seq>> {
    let sql = "SELECT last_seq FROM boards WHERE board = ?1";
    let last: Option<i64> = first_value(connection, sql, [board.as_str()])?;
    let negative =
        |_| JournalError::Corrupt { seq: None, what: format!("the list of boards: {board}: a number is negative") };
    last.map(|last| u64::try_from(last).map(Seq).map_err(negative)).transpose()
}

/// Returns an error if the summary names a later record than the last present one.
pub(super) fn is_whole(last: Option<Seq>, listed: Option<Seq>) -> Result<()> {
    match listed {
        Some(listed) if last < Some(listed) => {
            let why = format!("it is missing; the last one in the list of boards is {listed}");
            Err(JournalError::BadRecord { seq: last.map(Seq::next).unwrap_or_default(), why })
        }
        _ => Ok(()),
    }
}

pub(super) fn summary(row: &Row<'_>) -> Result<BoardSummary> {
    let read = |what: String| JournalError::Corrupt { seq: None, what: format!("the list of boards: {what}") };
    let board: String = row.get(0).map_err(|error| read(error.to_string()))?;
    let fields = || -> Result<BoardSummary, String> {
        let number = |column: usize| -> Result<u64, String> {
            let number: i64 = row.get(column).map_err(|error| error.to_string())?;
            u64::try_from(number).map_err(|error| error.to_string())
        };
        let text = |column: usize| row.get::<_, String>(column).map_err(|error| error.to_string());
        let time = |column: usize| row.get::<_, i64>(column).map(Timestamp).map_err(|error| error.to_string());
        let ended = row.get::<_, Option<String>>(8).map_err(|error| error.to_string())?;
        Ok(BoardSummary {
            id: board.clone().into(),
            name: text(1)?,
            created_at: time(2)?,
            updated_at: time(3)?,
            epoch: number(4)?,
            head: Head { seq: Seq(number(5)?), hash: text(6)?.parse().map_err(|_| "a hash is malformed".to_owned())? },
            version: patchboard_kernel::id::Version(number(7)?),
            ended: ended
                .map(|code| End::from_name(&code).ok_or_else(|| format!("no board ends {code:?}")))
                .transpose()?,
            parent: row.get::<_, Option<String>>(9).map_err(|error| error.to_string())?.map(BoardId::from),
        })
    };
    fields().map_err(|what| read(format!("{board}: {what}")))
}

pub(super) fn record(row: &Row<'_>) -> Result<Record> {
    let seq: i64 = row.get(0).map_err(|error| read_error(None, &error))?;
    let wrong = |what: &str| JournalError::Corrupt { seq: u64::try_from(seq).ok().map(Seq), what: what.to_owned() };
    let seq = Seq(u64::try_from(seq).map_err(|_| wrong("its number is negative"))?);
    let text = |column: usize| row.get::<_, String>(column).map_err(|error| read_error(Some(seq), &error));
    let kind = text(1)?;
    let kind = Kind::from_name(&kind).ok_or_else(|| wrong("unknown kind"))?;
    let at: i64 = row.get(2).map_err(|error| read_error(Some(seq), &error))?;
    let hash = text(5)?.parse().map_err(|_| wrong("its hash is malformed"))?;
    Ok(Record::new(seq, kind, Timestamp(at), text(3)?, text(4)?, hash))
}

/// Returns true if a board was removed.
fn has_tombstone(connection: &Connection, board: &BoardId) -> Result<bool> {
    if !format::has_erasures(connection)? {
        return Ok(false);
    }
    let found: Option<i64> = first_value(connection, "SELECT 1 FROM tombstones WHERE board = ?1", [board.as_str()])?;
    Ok(found.is_some())
}
