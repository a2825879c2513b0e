//! Parts of several answers: records, callers and tokens used.

use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::Seq;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::Principal;
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
pub(crate) struct PrincipalInfo {
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
pub(crate) enum PrincipalKind {
    /// Holder of an API token.
    Token,
    /// User of the operating system, through a command on the data directory.
    User,
    /// Client of a daemon that requires no token.
    Address,
    /// Agent that hosts the daemon in its process.
    Host,
}

impl PrincipalInfo {
    const fn new(kind: PrincipalKind) -> Self {
        Self { kind, id: None, name: None, person: None, made_by: None, address: None }
    }
}

impl From<Principal> for PrincipalInfo {
    fn from(principal: Principal) -> Self {
        match principal {
            Principal::Token { id, name, person, made_by } => Self {
                id: Some(id),
                name: Some(name),
                person: person.map(|person| person.to_string()),
                made_by: made_by.map(|by| Box::new(Self::from(*by))),
                ..Self::new(PrincipalKind::Token)
            },
            Principal::User { name } => Self { name: Some(name), ..Self::new(PrincipalKind::User) },
            Principal::Address { address } => Self { address: Some(address), ..Self::new(PrincipalKind::Address) },
            Principal::Host => Self::new(PrincipalKind::Host),
        }
    }
}

/// Tokens used by a call.
#[derive(Serialize, ToSchema)]
pub(crate) struct UsageInfo {
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

impl From<Usage> for UsageInfo {
    fn from(usage: Usage) -> Self {
        let Usage { prompt, completion, cached, estimated, money } = usage;
        let if_any = |amount: u64| (amount > 0).then_some(amount);
        Self { prompt, completion, cached: if_any(cached), estimated, money: if_any(money) }
    }
}
