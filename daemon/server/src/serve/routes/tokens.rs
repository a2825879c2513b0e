//! API tokens: creation, listing, revocation.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use patchboard_kernel::blueprint::Duration;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::serve::access::{Permission, Scope};
use crate::serve::caller::Caller;
use crate::serve::http::{IdempotencyHeader, StrictJson, StrictPath, StrictQuery, request_body};
use crate::serve::json::SortedJson;
use crate::serve::problem::{ApiResult, Code, Problem};
use crate::serve::service::Daemon;
use crate::serve::tokens::{self, ApiToken, TokenCreation};

/// Token to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateTokenRequest {
    /// `admin`, `read`, `board:BOARD`, `seat:BOARD/WORKER` or `person:NAME`; `read+person:NAME` and
    /// `board:BOARD+person:NAME` combine two.
    #[schema(
        pattern = r"^(admin|(read|board:[A-Za-z0-9_-]{1,128})(\+person:[A-Za-z0-9][A-Za-z0-9_-]{0,63})?|seat:[A-Za-z0-9_-]{1,128}/[A-Za-z0-9][A-Za-z0-9_-]{0,63}|person:[A-Za-z0-9][A-Za-z0-9_-]{0,63})$"
    )]
    scope: String,
    /// Purpose.
    #[serde(default)]
    #[schema(max_length = 200)]
    name: String,
    /// Lifetime, like `90d` or `12h`; default: valid until revoked.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = r"^[0-9]{1,6}(ms|s|m|h|d)$")]
    expires: Option<Duration>,
}

request_body!(CreateTokenRequest: Administer);

/// Tokens, without their texts.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokenList {
    /// Tokens.
    tokens: Vec<ApiToken>,
}

/// New token.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedToken {
    /// Token.
    #[serde(flatten)]
    info: ApiToken,
    /// Text of the token; it is not stored.
    token: String,
}

/// List tokens (secrets are not shown)
#[utoipa::path(get, operation_id = "listTokens", path = "/v1/tokens", tag = "tokens",
    responses((status = 200, description = "The tokens", body = TokenList)))]
pub(crate) async fn list(State(daemon): State<Arc<Daemon>>, caller: Caller) -> ApiResult<SortedJson<TokenList>> {
    caller.require(&Permission::Administer)?;
    Ok(SortedJson(TokenList { tokens: daemon.tokens.list().await? }))
}

/// Create a token; its text is shown once
///
/// A retry with the same `Idempotency-Key` creates no second token. It gets a 409 with the number of the first one, as
/// the text is not stored. A caller that missed the text revokes that token and creates another.
#[utoipa::path(post, operation_id = "createToken", path = "/v1/tokens", tag = "tokens", request_body = CreateTokenRequest,
    params(("Idempotency-Key" = Option<String>, Header, pattern = r"^[!-~]{1,128}$")),
    responses((status = 201, description = "The token with its text", body = CreatedToken)))]
pub(crate) async fn create(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    key: IdempotencyHeader,
    StrictJson(wanted): StrictJson<CreateTokenRequest>,
) -> ApiResult<impl IntoResponse> {
    let scope: Scope = wanted.scope.parse().map_err(|message: String| Problem::from_code(Code::BadScope, message))?;
    let now = daemon.clock.now();
    let of = tokens::NewToken { name: &wanted.name, scope, lifetime: wanted.expires, by: caller.principal() };
    let key = key.token();
    match daemon.tokens.create_once(key.as_ref().map(|key| key.as_str()), &of, now).await? {
        TokenCreation::New(token, text) => {
            Ok((StatusCode::CREATED, SortedJson(CreatedToken { info: *token, token: text })))
        }
        TokenCreation::Existing(id) => {
            let detail = format!("this key has made token {id}, whose text was shown then");
            let problem = Problem::from_code(Code::AlreadyShown, detail).detail("id", id.into());
            Err(problem.help("revoke it, and make another with another key"))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokeQuery {
    /// True to remove the token from the list too.
    #[serde(default)]
    forget: bool,
}

/// Revoke a token, and end its streams and waiting requests
///
/// With `forget=true` the token also leaves the list, even if it had ended before. Numbers are not reused.
#[utoipa::path(delete, operation_id = "revokeToken", path = "/v1/tokens/{id}", tag = "tokens",
    params(("id" = i64, Path), ("forget" = Option<bool>, Query)),
    responses((status = 204, description = "It is revoked")))]
pub(crate) async fn revoke(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    StrictPath(id): StrictPath<i64>,
    StrictQuery(ending): StrictQuery<RevokeQuery>,
) -> ApiResult<StatusCode> {
    caller.require(&Permission::Administer)?;
    let (by, now) = (caller.principal(), daemon.clock.now());
    let is_ended = match ending.forget {
        true => daemon.tokens.delete(id, &by, now).await?,
        false => daemon.tokens.revoke(id, &by, now).await?,
    };
    if is_ended {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::from_code(Code::NoSuchToken, format!("no token {id} opens anything")))
}
