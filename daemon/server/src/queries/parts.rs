//! Parts of several answers: records, callers and tokens used.

use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::Seq;
use serde::Serialize;
use utoipa::ToSchema;

/// Record, by number and hash.
#[derive(Serialize, ToSchema)]
pub struct HeadInfo {
    /// Number; the first record has 0.
    #[schema(value_type = u64)]
    seq: Seq,
    /// Hash of the chain up to this record.
    #[schema(value_type = String)]
    hash: Digest,
}

impl HeadInfo {
    /// Returns a record by its number and hash.
    pub const fn new(seq: Seq, hash: Digest) -> Self {
        Self { seq, hash }
    }
}

/// Caller, as authenticated when it sent its request.
#[derive(Serialize, ToSchema)]
pub struct PrincipalInfo {
    /// Kind of the caller.
    kind: PrincipalKind,
    /// Number of the token, for a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<i64>,
    /// Name of the token at that time, or of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Person who holds the token, if it is a person's.
    #[serde(skip_serializing_if = "Option::is_none")]
    person: Option<String>,
    /// Caller that created the token, if it is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    made_by: Option<Box<Self>>,
    /// Address from which the request was sent, for an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

/// Kind of a caller.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PrincipalKind {
    /// Holder of an API token.
    Token,
    /// User of the operating system, through a command on the data directory.
    User,
    /// Client of a daemon that requires no token.
    Address,
    /// Agent that hosts the daemon in its process.
    Host,
}

/// Tokens used by a call.
#[derive(Serialize, ToSchema)]
pub struct UsageInfo {
    /// Prompt tokens, cached ones included.
    prompt: u64,
    /// Completion tokens.
    completion: u64,
    /// Prompt tokens that the provider had cached; absent if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    cached: Option<u64>,
    /// True if the figures are an estimate, because the provider reported none; else absent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    estimated: bool,
    /// Money of a nested board's calls, in 10⁻⁹ of the currency; absent if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    money: Option<u64>,
}
