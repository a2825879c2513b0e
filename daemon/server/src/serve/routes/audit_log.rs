//! Audit log: administrators' actions that no board records.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::serve::access::Permission;
use crate::serve::caller::Caller;
use crate::serve::http::{StrictQuery, page_size};
use crate::serve::json::SortedJson;
use crate::serve::problem::ApiResult;
use crate::serve::service::Daemon;
use crate::serve::tokens::AuditEntry;

/// Selection of entries.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listing {
    /// Only entries after this number.
    #[serde(default)]
    after: i64,
    /// Maximum entries, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Page of the audit log.
#[derive(Serialize, ToSchema)]
pub(crate) struct AuditLogPage {
    /// Entries, the oldest first.
    entries: Vec<AuditEntry>,
}

/// List the administrators' actions that no board records, the oldest first
///
/// Covers tokens created and ended, boards archived, restored and deleted, and vacuums. `principal` is the caller, or
/// null if the daemon acted by `[retention]`. `done` is false if the action failed or was interrupted by a crash. For
/// the next page, pass the last `id` as `after`.
#[utoipa::path(get, operation_id = "listAuditLog", path = "/v1/audit-log", tag = "storage", params(Listing),
    responses((status = 200, description = "A page of entries", body = AuditLogPage)))]
pub(crate) async fn list(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    StrictQuery(listing): StrictQuery<Listing>,
) -> ApiResult<SortedJson<AuditLogPage>> {
    caller.require(&Permission::Administer)?;
    let entries = daemon.tokens.audit_log(listing.after, page_size(listing.limit)?).await?;
    Ok(SortedJson(AuditLogPage { entries }))
}
