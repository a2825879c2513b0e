//! Calls of remote workers, and their leases.

use std::time::Duration;

use patchboard_agents::lease::{Lease, OpenCall};
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, IdempotencyKey, InvocationId, Timestamp, WorkerName};
use patchboard_llm::schema::{self, SchemaLevel};
use patchboard_runtime::agent::Call;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Calls of remote workers that are under way.
#[derive(Serialize, ToSchema)]
pub(crate) struct LeaseList {
    /// Calls.
    pub(crate) calls: Vec<OpenCallInfo>,
}

/// Call of a remote worker.
#[derive(Serialize, ToSchema)]
pub(crate) struct CallInfo {
    /// Name of the lease: the invocation and the attempt.
    #[schema(value_type = String)]
    lease: IdempotencyKey,
    /// Worker.
    #[schema(value_type = String)]
    worker: WorkerName,
    /// Invocation.
    #[schema(value_type = u64)]
    invocation: InvocationId,
    /// Attempt of the invocation, from 1.
    attempt: u32,
}

/// Call of a remote worker that is under way.
#[derive(Serialize, ToSchema)]
#[schema(as = OpenCall)]
pub(crate) struct OpenCallInfo {
    /// Call.
    #[serde(flatten)]
    call: CallInfo,
    /// Expiry of the lease, in milliseconds since 1970; null if the call is not leased.
    #[schema(required, value_type = Option<i64>)]
    expires: Option<Timestamp>,
}

/// Leased call: everything needed for a reply.
#[derive(Serialize, ToSchema)]
pub(crate) struct LeasedCall {
    /// Call.
    #[serde(flatten)]
    call: CallInfo,
    /// Board id.
    #[schema(value_type = String)]
    board: BoardId,
    /// Expiry of the lease, in milliseconds since 1970.
    #[schema(value_type = i64)]
    expires: Timestamp,
    /// Deadline of the attempt, in milliseconds since 1970.
    #[schema(value_type = i64)]
    deadline: Timestamp,
    /// Hash of the view.
    #[schema(value_type = String)]
    view_hash: Digest,
    /// Instructions for a language model.
    system: String,
    /// View, as text.
    view: String,
    /// View, as values by their JSON Pointers.
    #[schema(value_type = Object)]
    shown: Map<String, Value>,
    /// Trigger: `kind`, and its details.
    #[schema(value_type = Object)]
    trigger: Value,
    /// JSON Schema of the reply; null if replies are messages, which no schema describes.
    #[schema(required, value_type = Option<Object>)]
    schema: Option<Value>,
}

/// Renewed lease.
#[derive(Serialize, ToSchema)]
pub(crate) struct LeaseRenewal {
    /// Name of the lease.
    lease: String,
    /// Expiry of the lease, in milliseconds since 1970.
    #[schema(value_type = i64)]
    expires: Timestamp,
    /// Deadline of the attempt, in milliseconds since 1970.
    #[schema(value_type = i64)]
    deadline: Timestamp,
}

/// Failure of a call, as recorded.
#[derive(Serialize, ToSchema)]
pub(crate) struct FailureReport {
    /// Outcome: `failed`.
    pub(crate) outcome: &'static str,
    /// Name of the lease.
    pub(crate) lease: String,
}

impl CallInfo {
    fn new(call: &Call) -> Self {
        Self {
            lease: call.idempotency_key.clone(),
            worker: call.worker.clone(),
            invocation: call.invocation,
            attempt: call.attempt,
        }
    }
}

impl OpenCallInfo {
    pub(crate) fn new(open: &OpenCall, now: Timestamp) -> Self {
        Self { call: CallInfo::new(&open.call), expires: open.expires_in.map(|left| after(now, left)) }
    }
}

impl LeasedCall {
    pub(crate) fn new(lease: &Lease, now: Timestamp) -> Self {
        let call = &lease.call;
        Self {
            call: CallInfo::new(call),
            board: call.board.clone(),
            expires: after(now, lease.expires_in),
            deadline: after(now, lease.time_left),
            view_hash: call.view_hash,
            system: call.prompt.system.to_string(),
            view: call.prompt.user.to_string(),
            shown: call.context.values().map(|(place, value)| (place.to_string(), value.to_value())).collect(),
            trigger: call.context.trigger(),
            schema: schema::reply_schema(&call.context, SchemaLevel::Derived).map(|(_, schema)| schema),
        }
    }
}

impl LeaseRenewal {
    pub(crate) fn new(lease: String, renewed: &Lease, now: Timestamp) -> Self {
        Self { lease, expires: after(now, renewed.expires_in), deadline: after(now, renewed.time_left) }
    }
}

fn after(now: Timestamp, lasts: Duration) -> Timestamp {
    now.plus_ms(u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX))
}
