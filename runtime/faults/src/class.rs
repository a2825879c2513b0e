//! Classes of worker and provider faults.

use std::fmt;

use serde::{Serialize, Serializer};

/// A class of faults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FaultClass {
    /// No fault: a baseline run, with parallel calls where the blueprint allows them.
    NoFault,
    /// A reply that is not JSON.
    InvalidJson,
    /// Operations on impossible paths, values of wrong types, unknown operations.
    BadPathOrType,
    /// A write outside the worker's contract, to a path that the schema allows.
    UnauthorizedWrite,
    /// A false statement that the worker is allowed to write.
    FalseClaim,
    /// A worker that repeatedly changes nothing, or cycles through two to six states.
    Cycle,
    /// A reply that depends on data that has changed in the meantime.
    StaleRead,
    /// A reply that is delivered several times.
    DuplicateDelivery,
    /// A reply that arrives while a later attempt is in progress, or after that attempt was answered.
    ReorderedReply,
    /// A reply that arrives after its deadline, or after the board's end.
    LateReply,
    /// A reply with too many bytes, levels or operations.
    Oversized,
    /// A worker that obeys instructions planted in a document.
    InjectedInstruction,
    /// An agent that crashes.
    AgentCrash,
    /// An agent that never answers.
    AgentHang,
    /// A call that uses many times its reserved tokens.
    BudgetBurst,
    /// A provider that repeatedly accepts no request for seconds.
    RateLimited,
    /// A provider that is unavailable for minutes to hours.
    ProviderOutage,
    /// A provider response that contains no reply: truncated, empty, or in violation of its protocol.
    ProviderGarbage,
}

impl FaultClass {
    /// All classes: the baseline, then the classes of the seed, then the others.
    pub const ALL: [Self; 18] = [
        Self::NoFault,
        Self::InvalidJson,
        Self::BadPathOrType,
        Self::UnauthorizedWrite,
        Self::FalseClaim,
        Self::Cycle,
        Self::StaleRead,
        Self::DuplicateDelivery,
        Self::ReorderedReply,
        Self::LateReply,
        Self::Oversized,
        Self::InjectedInstruction,
        Self::AgentCrash,
        Self::AgentHang,
        Self::BudgetBurst,
        Self::RateLimited,
        Self::ProviderOutage,
        Self::ProviderGarbage,
    ];

    /// Returns the name used on the command line and in results.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoFault => "no_fault",
            Self::InvalidJson => "invalid_json",
            Self::BadPathOrType => "bad_path_or_type",
            Self::UnauthorizedWrite => "unauthorized_write",
            Self::FalseClaim => "false_claim",
            Self::Cycle => "cycle",
            Self::StaleRead => "stale_read",
            Self::DuplicateDelivery => "duplicate_delivery",
            Self::ReorderedReply => "reordered_reply",
            Self::LateReply => "late_reply",
            Self::Oversized => "oversized",
            Self::InjectedInstruction => "injected_instruction",
            Self::AgentCrash => "agent_crash",
            Self::AgentHang => "agent_hang",
            Self::BudgetBurst => "budget_burst",
            Self::RateLimited => "rate_limited",
            Self::ProviderOutage => "provider_outage",
            Self::ProviderGarbage => "provider_garbage",
        }
    }

    /// Returns a one-line description.
    pub const fn description(self) -> &'static str {
        match self {
            Self::NoFault => "nothing: what comes of the same runs as such",
            Self::InvalidJson => "a reply that is no JSON",
            Self::BadPathOrType => "places that cannot be, values of other types, operations that are none",
            Self::UnauthorizedWrite => "a write outside of the worker's contract that the document has a place for",
            Self::FalseClaim => "something false that the worker may write",
            Self::Cycle => "a worker that changes nothing again and again, or goes in circles of two to six steps",
            Self::StaleRead => "a reply that rests on what has changed meanwhile",
            Self::DuplicateDelivery => "a reply that comes several times",
            Self::ReorderedReply => "a reply that comes when a later attempt is under way, or answered",
            Self::LateReply => "a reply that comes after its time, or after the end",
            Self::Oversized => "a reply of too many bytes, levels or operations",
            Self::InjectedInstruction => "a worker that obeys a text found in a document",
            Self::AgentCrash => "an agent that crashes",
            Self::AgentHang => "an agent that never answers",
            Self::BudgetBurst => "a call that takes many times the tokens that were reserved for it",
            Self::RateLimited => "a provider that takes no request for seconds, again and again",
            Self::ProviderOutage => "a provider that is away for minutes to hours",
            Self::ProviderGarbage => "an answer of the provider that holds no reply",
        }
    }

    /// Returns the class with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }
}

impl fmt::Display for FaultClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for FaultClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
