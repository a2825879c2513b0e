//! Tokens: made, listed, revoked.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::ProblemDocument;
use crate::serve::access::{Need, Scope};
use crate::serve::http::{Body, Caller, Segments};
use crate::serve::problem::{Answered, Code, Problem};
use crate::serve::service::Daemon;

/// Characters of a token's name.
const NAME_MAX: usize = 200;

/// A token to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// `admin`, `read`, `board:BOARD` or `seat:BOARD/WORKER`.
    scope: String,
    /// What it is for.
    #[serde(default)]
    name: String,
}

/// List the tokens, without what opens the door
#[utoipa::path(get, path = "/v1/tokens", tag = "tokens",
    responses((status = 200, body = Object), (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn list(State(daemon): State<Arc<Daemon>>, caller: Caller) -> Answered<Json<Value>> {
    caller.needs(&Need::Administer)?;
    Ok(Json(json!({"tokens": daemon.tokens.list()?})))
}

/// Make a token: its text is shown once
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", request_body = Wanted,
    responses((status = 201, body = Object), (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Body(wanted): Body<Wanted>,
) -> Answered<impl IntoResponse> {
    caller.needs(&Need::Administer)?;
    if wanted.name.chars().count() > NAME_MAX {
        return Err(Problem::of(Code::BadBody, format!("a name has at most {NAME_MAX} characters")));
    }
    let scope: Scope = wanted.scope.parse().map_err(|message: String| Problem::of(Code::BadScope, message))?;
    let (token, text) = daemon.tokens.create(&wanted.name, scope, daemon.clock.now())?;
    let mut made = json!(token);
    made["token"] = text.into();
    Ok((StatusCode::CREATED, Json(made)))
}

/// End a token: from now on it opens nothing
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "tokens", params(("id" = i64, Path)),
    responses((status = 204, description = "It is revoked"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn revoke(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Segments(id): Segments<i64>,
) -> Answered<StatusCode> {
    caller.needs(&Need::Administer)?;
    if daemon.tokens.revoke(id, daemon.clock.now())? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::of(Code::NoSuchToken, format!("no token {id} opens anything")))
}
