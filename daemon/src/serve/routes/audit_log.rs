//! The audit log: actions of administrators that no board records.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::ProblemDocument;
use crate::serve::access::Need;
use crate::serve::http::{Asked, Caller, page_size};
use crate::serve::problem::Answered;
use crate::serve::service::Daemon;

/// The entries that are listed.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listing {
    /// Only entries after the one of this number.
    #[serde(default)]
    after: i64,
    /// How many at most, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// List actions of administrators that no board records, the oldest first
///
/// Tokens made and ended, boards archived, restored and deleted, the journal's file written anew. `principal` is the caller; null where
/// the daemon did it by `[retention]`. `done` is false where the action failed, or a crash broke it off. Give the last `id` as `after` for the next page.
#[utoipa::path(get, path = "/v1/audit-log", tag = "storage", params(Listing),
    responses((status = 200, body = Object),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Asked(listing): Asked<Listing>,
) -> Answered<Json<Value>> {
    caller.needs(&Need::Administer)?;
    let (limit, tokens) = (page_size(listing.limit)?, daemon.tokens.clone());
    let entries = daemon.ask(move |_| tokens.audit_log(listing.after, limit)).await?;
    Ok(Json(json!({"entries": entries})))
}
