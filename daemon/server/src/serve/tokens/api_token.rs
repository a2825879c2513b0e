//! API token as it is stored and listed, without its secret text.

use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::Principal;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::queries::parts::PrincipalInfo;
use crate::serve::access::Scope;

/// Token without its secret text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = TokenInfo)]
pub struct ApiToken {
    /// Number.
    pub id: i64,
    /// Purpose, as its creator described it.
    pub name: String,
    /// Scope, like `read` or `seat:BOARD/WORKER`.
    #[serde(serialize_with = "display", deserialize_with = "parse")]
    #[schema(value_type = String)]
    pub scope: Scope,
    /// Time of creation, in milliseconds since 1970.
    #[schema(value_type = i64)]
    pub created_at: Timestamp,
    /// Caller that created the token; null if an earlier version did.
    #[schema(required, value_type = Option<PrincipalInfo>)]
    pub made_by: Option<Principal>,
    /// Expiry, in milliseconds since 1970; null if there is none.
    #[schema(required, value_type = Option<i64>)]
    pub expires_at: Option<Timestamp>,
    /// Time of revocation, in milliseconds since 1970; null if the token is not revoked.
    #[schema(required, value_type = Option<i64>)]
    pub revoked_at: Option<Timestamp>,
}

impl ApiToken {
    /// Returns true if the token is valid.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| at > now)
    }
}

fn display<S: serde::Serializer>(scope: &Scope, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(scope)
}

fn parse<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Scope, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}
