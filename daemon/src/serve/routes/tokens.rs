//! Tokens: made, listed, revoked.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use patchboard_kernel::blueprint::Duration;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::ProblemDocument;
use crate::serve::access::{Need, Scope};
use crate::serve::http::{Asked, Body, Caller, Gate, Key, Posted, Segments};
use crate::serve::problem::{Answered, Code, Problem};
use crate::serve::service::Daemon;
use crate::serve::tokens::{self, Made};

/// A token to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// `admin`, `read`, `board:BOARD`, `seat:BOARD/WORKER` or `person:NAME`; `read+person:NAME` and
    /// `board:BOARD+person:NAME` are both.
    #[schema(
        pattern = r"^(admin|(read|board:[A-Za-z0-9_-]{1,128})(\+person:[A-Za-z0-9][A-Za-z0-9_-]{0,63})?|seat:[A-Za-z0-9_-]{1,128}/[A-Za-z0-9][A-Za-z0-9_-]{0,63}|person:[A-Za-z0-9][A-Za-z0-9_-]{0,63})$"
    )]
    scope: String,
    /// What it is for.
    #[serde(default)]
    #[schema(max_length = 200)]
    name: String,
    /// How long it opens something, like `90d` or `12h`; without it, until it is revoked.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = r"^[0-9]{1,6}(ms|s|m|h|d)$")]
    expires: Option<Duration>,
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
    let scope: Scope = wanted.scope.parse().map_err(|message: String| Problem::of(Code::BadScope, message))?;
    let now = daemon.clock.now();
    let of = tokens::Wanted { name: &wanted.name, scope, lifetime: wanted.expires, by: caller.principal() };
    let made = match key.token() {
        Some(key) => daemon.tokens.create_once(key.as_str(), &of, now)?,
        None => {
            let (token, text) = daemon.tokens.create(&of, now)?;
            Made::Now(Box::new(token), text)
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

/// How a token ends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ending {
    /// True if the list is to lose it, too.
    #[serde(default)]
    forget: bool,
}

/// End a token: from now on it opens nothing, and streams and waiting requests that it opened end
///
/// With `forget=true` it leaves the list, too, also one that has ended. Its number is given to no other.
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "tokens",
    params(("id" = i64, Path), ("forget" = Option<bool>, Query)),
    responses((status = 204, description = "It is revoked"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn revoke(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Segments(id): Segments<i64>,
    Asked(ending): Asked<Ending>,
) -> Answered<StatusCode> {
    caller.needs(&Need::Administer)?;
    let (by, now) = (caller.principal(), daemon.clock.now());
    let is_ended = match ending.forget {
        true => daemon.tokens.delete(id, &by, now)?,
        false => daemon.tokens.revoke(id, &by, now)?,
    };
    if is_ended {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::of(Code::NoSuchToken, format!("no token {id} opens anything")))
}
