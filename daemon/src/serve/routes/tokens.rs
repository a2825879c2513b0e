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
use crate::serve::http::{Body, Caller, Gate, Key, Posted, Segments};
use crate::serve::problem::{Answered, Code, Problem};
use crate::serve::service::Daemon;
use crate::serve::tokens::Made;

/// Characters of a token's name.
const NAME_MAX: usize = 200;

/// A token to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// `admin`, `read`, `board:BOARD` or `seat:BOARD/WORKER`.
    #[schema(pattern = r"^(admin|read|board:[^/]{1,128}|seat:[^/]{1,128}/.+)$")]
    scope: String,
    /// What it is for.
    #[serde(default)]
    #[schema(max_length = 200)]
    name: String,
}

impl Posted for Wanted {
    const GATE: Gate = Gate::Administer;
}

/// List the tokens, without what opens the door
#[utoipa::path(get, path = "/v1/tokens", tag = "tokens",
    responses((status = 200, body = Object), (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn list(State(daemon): State<Arc<Daemon>>, caller: Caller) -> Answered<Json<Value>> {
    caller.needs(&Need::Administer)?;
    Ok(Json(json!({"tokens": daemon.tokens.list()?})))
}

/// Make a token: its text is shown once
///
/// With an `Idempotency-Key` a repetition makes no other token, and is a 409 with the number of the first one: its text is
/// not kept. Whoever missed it revokes that token and makes another.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", request_body = Wanted,
    params(("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 201, body = Object), (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    key: Key,
    Body(wanted): Body<Wanted>,
) -> Answered<impl IntoResponse> {
    caller.needs(&Need::Administer)?;
    if wanted.name.chars().count() > NAME_MAX {
        return Err(Problem::of(Code::BadBody, format!("a name has at most {NAME_MAX} characters")));
    }
    let scope: Scope = wanted.scope.parse().map_err(|message: String| Problem::of(Code::BadScope, message))?;
    let now = daemon.clock.now();
    let made = match key.token(&caller) {
        Some(key) => daemon.tokens.create_once(key.as_str(), &wanted.name, scope, now)?,
        None => {
            let (token, text) = daemon.tokens.create(&wanted.name, scope, now)?;
            Made::Now(token, text)
        }
    };
    match made {
        Made::Now(token, text) => {
            let mut made = json!(token);
            made["token"] = text.into();
            Ok((StatusCode::CREATED, Json(made)))
        }
        Made::Before(id) => {
            let detail = format!("this key has made token {id}, whose text was shown then");
            let problem = Problem::of(Code::AlreadyShown, detail).detail("id", id.into());
            Err(problem.help("revoke it, and make another with another key"))
        }
    }
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
