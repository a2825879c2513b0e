//! Negotiation rooms: what is decided over an artefact.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use jsonptr::Pointer;
use patchboard_kernel::board::Board;
use patchboard_kernel::id::{BoardId, WorkerName};
use serde::Deserialize;
use utoipa::IntoParams;

use super::ProblemDocument;
use crate::rooms::{DECISIONS, NotThere, Standing, standing};
use crate::serve::access::Need;
use crate::serve::http::{Asked, Caller, Segments};
use crate::serve::problem::{Answered, Code, Problem};
use crate::serve::service::Daemon;
use crate::serve::waiting;

/// For what is waited.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Waited {
    /// How many seconds to wait for the decision, at most 60; not at all if absent.
    #[serde(default)]
    #[param(maximum = 60)]
    wait: u64,
    /// Where the votes do not decide, wait for the person who does.
    #[serde(default)]
    ruled: bool,
    /// As which worker: one whose contract lets it read the room's decisions. For who sits in its seat alone.
    worker: Option<String>,
}

/// What is decided over an artefact in a board's negotiation room
///
/// `decision` never changes; `ruling` is what a person has said where the votes do not decide, `outcome` the last word, and
/// `late_votes` are who voted after it. Where nothing is decided in time, the answer is 204.
#[utoipa::path(get, path = "/v1/boards/{board}/room/decisions/{artifact}", tag = "protocols",
    params(("board" = String, Path), ("artifact" = String, Path), Waited),
    responses((status = 200, body = Object), (status = 204, description = "Nothing is decided yet"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn decision(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Segments((board, artifact)): Segments<(BoardId, String)>,
    Asked(waited): Asked<Waited>,
) -> Answered<Response> {
    sees(&daemon, &caller, &board, waited.worker, DECISIONS).await?;
    let patience = waiting::patience(waited.wait)?;
    let ruled = waited.ruled;
    let decided =
        waiting::until(&daemon, &board, patience, move |document| match standing(document, &artifact, ruled) {
            Ok(Standing::Open) => None,
            Ok(Standing::Decided(told)) => Some(Ok(told)),
            Err(why) => Some(Err(why)),
        });
    match decided.await?.transpose() {
        Ok(Some(told)) => Ok(Json(told).into_response()),
        Ok(None) => Ok(StatusCode::NO_CONTENT.into_response()),
        Err(why @ NotThere::Room) => Err(Problem::of(Code::NoRoom, why.to_string())),
        Err(why @ NotThere::Artifact(_)) => Err(Problem::of(Code::NoSuchArtifact, why.to_string())),
    }
}

/// Goes on only if the caller may see the board, or sits in the seat of a worker who may read this place of it now.
async fn sees(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    board: &BoardId,
    worker: Option<String>,
    place: &'static str,
) -> Answered<()> {
    let Some(worker) = worker.map(WorkerName::from) else { return caller.needs(&Need::See(board.clone())) };
    caller.needs(&Need::SeeSeat(board.clone(), worker.clone()))?;
    let name = worker.clone();
    let may_read =
        move |board: &Board| Ok(board.readable_by(&name).is_some_and(|now| now.may_read(Pointer::from_static(place))));
    if daemon.ask_board(board, None, may_read).await? {
        return Ok(());
    }
    Err(Problem::of(Code::Forbidden, format!("{worker} may not read {place}")))
}
