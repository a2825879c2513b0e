//! What can go wrong with a worker, in classes.

use std::fmt;

use serde::{Serialize, Serializer};

/// A class of faults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Nothing: what comes of a run as such, several calls at once where the blueprint makes them.
    NoFault,
    /// A reply that is no JSON.
    InvalidJson,
    /// Operations on places that cannot be, values of other types, operations that are none.
    BadPathOrType,
    /// A write outside of the worker's contract, of something that has a place there.
    UnauthorizedWrite,
    /// Something false that the worker may write.
    FalseClaim,
    /// A worker that changes nothing again and again, or goes in circles of two to six steps.
    Cycle,
    /// A reply that rests on what has changed meanwhile.
    StaleRead,
    /// A reply that comes several times.
    DuplicateDelivery,
    /// A reply that comes when a later attempt is under way, or was answered already.
    ReorderedReply,
    /// A reply that comes after its time, or after the end.
    LateReply,
    /// A reply of too many bytes, levels or operations.
    Oversized,
    /// A worker that obeys what it finds in a document.
    InjectedInstruction,
    /// An agent that crashes.
    AgentCrash,
    /// An agent that never answers.
    AgentHang,
    /// A call that takes many times the tokens that were reserved for it.
    BudgetBurst,
    /// A provider that takes no request for seconds, again and again.
    RateLimited,
    /// A provider that is away for minutes to hours.
    ProviderOutage,
    /// An answer of the provider that holds no reply: cut off, empty, or not in the form of its protocol.
    ProviderGarbage,
}

impl Class {
    /// All classes, those of the seed first after the runs without a fault.
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

    /// Its name on the command line and in results.
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

    /// What happens, in a sentence.
    pub const fn told(self) -> &'static str {
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

    /// The class of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
