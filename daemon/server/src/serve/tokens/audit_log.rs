//! Audit log: administrators' actions that no board records, like created tokens and removed boards.

use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::Principal;
use rusqlite::{Connection, Row, params};
use serde::Serialize;
use utoipa::ToSchema;

use crate::queries::parts::PrincipalInfo;

/// Maximum number of entries; the oldest are dropped.
const ENTRIES_MAX: i64 = 100_000;

/// Table in the file of the tokens.
pub(super) const TABLE: &str = "CREATE TABLE IF NOT EXISTS audit_log (
       id INTEGER PRIMARY KEY AUTOINCREMENT,
       at INTEGER NOT NULL,
       action TEXT NOT NULL,
       subject TEXT,
       principal TEXT,
       done INTEGER NOT NULL
     ) STRICT;";

/// Audited action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Token created.
    TokenCreated,
    /// Token revoked.
    TokenRevoked,
    /// Token deleted.
    TokenDeleted,
    /// Board moved from the journal into an archive file.
    BoardArchived,
    /// Board restored from its archive.
    BoardRestored,
    /// Board deleted permanently.
    BoardDeleted,
    /// Loss of records of a board accepted.
    LossAccepted,
    /// Journal vacuumed.
    JournalVacuumed,
}

impl Action {
    const fn as_str(self) -> &'static str {
        match self {
            Self::TokenCreated => "token_created",
            Self::TokenRevoked => "token_revoked",
            Self::TokenDeleted => "token_deleted",
            Self::BoardArchived => "board_archived",
            Self::BoardRestored => "board_restored",
            Self::BoardDeleted => "board_deleted",
            Self::LossAccepted => "loss_accepted",
            Self::JournalVacuumed => "journal_vacuumed",
        }
    }
}

/// Entry of the audit log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct AuditEntry {
    /// Number.
    pub id: i64,
    /// Start of the action, in milliseconds since 1970.
    #[schema(value_type = i64)]
    pub at: Timestamp,
    /// Action, like `board_archived`.
    pub action: String,
    /// Number of the token, or id of the board; null for actions on all boards.
    #[schema(required)]
    pub subject: Option<String>,
    /// Caller; null if the daemon acted by `[retention]`.
    #[schema(required, value_type = Option<PrincipalInfo>)]
    pub principal: Option<Principal>,
    /// False if the action failed, or the process ended before it was done.
    pub done: bool,
}

/// Adds an entry for an action that is done or about to run; returns its number.
pub(super) fn add(
    connection: &Connection,
    at: Timestamp,
    action: Action,
    subject: Option<&str>,
    principal: Option<&Principal>,
    is_done: bool,
) -> rusqlite::Result<i64> {
    connection.execute(
        "INSERT INTO audit_log (at, action, subject, principal, done) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![at.0, action.as_str(), subject, principal.map(text), is_done],
    )?;
    let id = connection.last_insert_rowid();
    connection.execute("DELETE FROM audit_log WHERE id <= ?1", [id - ENTRIES_MAX])?;
    Ok(id)
}

/// Marks an action as done.
pub(super) fn finish(connection: &Connection, id: i64) -> rusqlite::Result<()> {
    connection.execute("UPDATE audit_log SET done = 1 WHERE id = ?1", [id]).map(drop)
}

/// Lists the entries after a number, the oldest first.
pub(super) fn list(connection: &Connection, after: i64, limit: usize) -> rusqlite::Result<Vec<AuditEntry>> {
    let sql = "SELECT id, at, action, subject, principal, done FROM audit_log WHERE id > ?1 ORDER BY id LIMIT ?2";
    let mut entries = connection.prepare_cached(sql)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    entries
        .query_map([after, limit], |row| {
            let (id, at, action, subject) = (row.get(0)?, Timestamp(row.get(1)?), row.get(2)?, row.get(3)?);
            Ok(AuditEntry { id, at, action, subject, principal: principal(row, 4)?, done: row.get(5)? })
        })?
        .collect()
}

/// Serialises a caller for a column.
pub(super) fn text(principal: &Principal) -> String {
    serde_json::to_string(principal).expect("names and numbers are JSON")
}

/// Reads a caller from a nullable column.
pub(super) fn principal(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Principal>> {
    let text: Option<String> = row.get(column)?;
    let read = text.map(|text| serde_json::from_str(&text)).transpose();
    read.map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into()))
}
