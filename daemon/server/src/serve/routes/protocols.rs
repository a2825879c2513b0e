//! Shared by the protocol routes: proposals as a worker, and read checks.

use std::sync::Arc;

use axum::response::IntoResponse;
use jsonptr::Pointer;
use patchboard_kernel::board::{Board, Proposal, ProposalSource, ReplyBody};
use patchboard_kernel::id::{BoardId, WorkerName};
use serde_json::Value;

use super::proposal_outcome::outcome_response;
use super::{leases, people};
use crate::serve::access::Permission;
use crate::serve::caller::Caller;
use crate::serve::http::IdempotencyHeader;
use crate::serve::problem::{ApiResult, Code, Problem};
use crate::serve::service::Daemon;

pub(super) struct MessageAuthor {
    pub(super) worker: WorkerName,
    /// Lease of the call that it replies to, if any.
    pub(super) lease: Option<String>,
    /// Idempotency key of an unsolicited message.
    pub(super) key: IdempotencyHeader,
}

/// Proposes a patch (RFC 6902), as the reply to a call or unsolicited.
pub(super) async fn propose(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    board: &BoardId,
    by: MessageAuthor,
    patch: Value,
) -> ApiResult<impl IntoResponse + use<>> {
    let MessageAuthor { worker, lease, key } = by;
    people::may_act_as(daemon, caller, board, &worker).await?;
    let outcome = match lease {
        Some(lease) => leases::submit_reply(daemon, caller, board, &worker, &lease, patch, None).await?,
        None => {
            let from = ProposalSource::Direct { key: key.token(), base: None };
            let proposal = Proposal { from, worker, reply: ReplyBody::Json(patch), usage: None, raw: None };
            daemon.open_for(board, caller).await?.propose(proposal).await?
        }
    };
    outcome_response(outcome)
}

/// Checks that the caller may read the board, or acts as a worker that may currently read these places.
pub(super) async fn check_readable(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    board: &BoardId,
    worker: Option<String>,
    places: &'static [&'static str],
) -> ApiResult<()> {
    let Some(worker) = worker.map(WorkerName::from) else { return caller.require(&Permission::View(board.clone())) };
    caller.require(&Permission::ViewAs(board.clone(), worker.clone()))?;
    let name = worker.clone();
    let unread = move |board: &Board| {
        let now = board.plan().workers.get(&name).map(|seat| board.readable_by(seat));
        let may_read = |place: &'static str| now.as_ref().is_some_and(|now| now.may_read(Pointer::from_static(place)));
        Ok(places.iter().copied().find(|place| !may_read(place)))
    };
    match daemon.query_board(board, None, unread).await? {
        None => Ok(()),
        Some(place) => Err(Problem::from_code(Code::Forbidden, format!("{worker} may not read {place}"))),
    }
}
