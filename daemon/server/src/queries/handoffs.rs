//! Handoffs of tasks.

use patchboard_protocols::handoff::Handoff;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Context of the work.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct HandoffContext {
    /// Media type. The content is any value for `application/json` and `…+json`, a string for `text/…`, else a Base64
    /// string.
    pub(crate) content_type: String,
    /// Content.
    pub(crate) content: Value,
}

/// Handoff, as stored in the document.
#[derive(Serialize, ToSchema)]
pub(crate) struct HandoffInfo {
    /// Id.
    request_id: String,
    /// Agent that hands over its task.
    from_agent: String,
    /// Agent that was requested; empty or absent: any capable agent.
    #[schema(required = false)]
    to_agent: String,
    /// Reason.
    reason: String,
    /// Capabilities that the accepting agent needs.
    #[schema(required = false)]
    capabilities_required: Vec<String>,
    /// Priority; higher is more urgent.
    #[schema(required = false)]
    priority: i32,
    /// Expiry, in milliseconds from the request.
    timeout_ms: i64,
    /// Context of the work.
    context: HandoffContext,
    /// Task: its name in `/tasks`.
    #[serde(skip_serializing_if = "String::is_empty")]
    task: String,
    /// State: `PENDING`, `ACCEPTED`, `REJECTED` or another of docs/handoff.md.
    state: &'static str,
    /// Agent that is asked; absent before the first offer.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    /// Agents that have rejected it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tried: Vec<String>,
    /// Number of the attempt, from 1; may be absent in the first.
    #[schema(required = false)]
    attempt: u32,
    /// Id of the first attempt's handoff; absent in the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<String>,
    /// Rejection by the agent that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    rejection: Option<HandoffRejectionInfo>,
}

/// Rejection of a handoff.
#[derive(Serialize, ToSchema)]
#[schema(as = HandoffRejection)]
pub(crate) struct HandoffRejectionInfo {
    /// Agent that rejected it.
    by: String,
    /// Reason.
    reason: String,
}

/// Handoffs that an agent has yet to answer.
#[derive(Serialize, ToSchema)]
pub(crate) struct HandoffList {
    /// Handoffs, by priority, then by age.
    #[schema(value_type = Vec<HandoffInfo>)]
    pub(crate) handoffs: Vec<Handoff>,
}
