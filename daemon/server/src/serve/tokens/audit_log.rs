//! Audit log: administrators' actions that no board records, like created tokens and removed boards.

use patchboard_kernel::code_enum;
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::Principal;
use patchboard_storage::documents::{Change, Documents, number_key};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::document::parsed;
use crate::failure::Failure;
use crate::queries::parts::PrincipalInfo;

/// Maximum number of entries; the oldest are dropped.
const ENTRIES_MAX: i64 = 100_000;

/// Collection of the entries, by number.
const ENTRIES: &str = "audit";

code_enum! {
    /// Audited action.
    Action {
        /// Token created.
        TokenCreated = "token_created",
        /// Token revoked.
        TokenRevoked = "token_revoked",
        /// Token deleted.
        TokenDeleted = "token_deleted",
        /// Board moved from the journal into an archive file.
        BoardArchived = "board_archived",
        /// Board restored from its archive.
        BoardRestored = "board_restored",
        /// Board deleted permanently.
        BoardDeleted = "board_deleted",
        /// Loss of records of a board accepted.
        LossAccepted = "loss_accepted",
        /// Journal vacuumed.
        JournalVacuumed = "journal_vacuumed",
    }
}

/// Entry of the audit log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
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

/// Returns the changes that add an entry, and drop the oldest one beyond the limit.
pub(super) fn added(entry: &AuditEntry) -> Vec<Change> {
    let mut changes = vec![Change::put(ENTRIES, number_key(entry.id), json!(entry)).expecting(None)];
    if entry.id > ENTRIES_MAX {
        changes.push(Change::remove(ENTRIES, number_key(entry.id - ENTRIES_MAX)));
    }
    changes
}

pub(super) async fn finish(documents: &dyn Documents, id: i64) -> Result<(), Failure> {
    let Some(found) = documents.get(ENTRIES, &number_key(id)).await? else { return Ok(()) };
    let entry = AuditEntry { done: true, ..parsed(found)? };
    documents.change(vec![Change::put(ENTRIES, number_key(id), json!(entry))]).await?;
    Ok(())
}

/// Lists the entries after a number, the oldest first.
pub(super) async fn list(documents: &dyn Documents, after: i64, limit: usize) -> Result<Vec<AuditEntry>, Failure> {
    let after = number_key(after.max(0));
    documents.page(ENTRIES, Some(&after), limit).await?.into_iter().map(parsed).collect()
}

/// Action to be audited.
#[derive(Clone, Copy, Debug)]
pub struct AuditedAction<'a> {
    /// Action.
    pub action: Action,
    /// Board; `None` if the action concerns all of them.
    pub subject: Option<&'a str>,
    /// Caller; `None` if the daemon acts on its own.
    pub by: Option<&'a Principal>,
}
