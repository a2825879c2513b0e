//! Classes of worker and provider faults.

use patchboard_kernel::rejection::code_enum;

code_enum! {
    /// A class of faults.
    FaultClass {
        /// No fault: a baseline run, with parallel calls where the blueprint allows them.
        NoFault = "no_fault",
        /// A reply that is not JSON.
        InvalidJson = "invalid_json",
        /// Operations on impossible paths, values of wrong types, unknown operations.
        BadPathOrType = "bad_path_or_type",
        /// A write outside the worker's contract, to a path that the schema allows.
        UnauthorizedWrite = "unauthorized_write",
        /// A false statement that the worker is allowed to write.
        FalseClaim = "false_claim",
        /// A worker that repeatedly changes nothing, or cycles through two to six states.
        Cycle = "cycle",
        /// A reply that depends on data that has changed in the meantime.
        StaleRead = "stale_read",
        /// A reply that is delivered several times.
        DuplicateDelivery = "duplicate_delivery",
        /// A reply that arrives while a later attempt is in progress, or after that attempt was answered.
        ReorderedReply = "reordered_reply",
        /// A reply that arrives after its deadline, or after the board's end.
        LateReply = "late_reply",
        /// A reply with too many bytes, levels or operations.
        Oversized = "oversized",
        /// A worker that obeys instructions planted in a document.
        InjectedInstruction = "injected_instruction",
        /// An agent that crashes.
        AgentCrash = "agent_crash",
        /// An agent that never answers.
        AgentHang = "agent_hang",
        /// A call that uses many times its reserved tokens.
        BudgetBurst = "budget_burst",
        /// A provider that repeatedly accepts no request for seconds.
        RateLimited = "rate_limited",
        /// A provider that is unavailable for minutes to hours.
        ProviderOutage = "provider_outage",
        /// A provider response that contains no reply: truncated, empty, or in violation of its protocol.
        ProviderGarbage = "provider_garbage",
    }
}

impl FaultClass {
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
}
