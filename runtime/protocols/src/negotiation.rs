//! Negotiations: parties submit drafts in turn, rounds are scored, and a policy decides about acceptance and the end.
//!
//! All functions here are pure; a board decides about triggers and times. Source: SW4RM section 17 (requirement rows W1
//! to W33).
//!
//! * `event`: messages and their order
//! * `policy`: the policy to which the parties have agreed
//! * `draft`: validity of a draft
//! * `diff`: distance of two drafts
//! * `score`: value of a draft
//! * `stop_rules`: consequences of the rounds so far
//! * `report`: stored summary
//! * `state`: current state of a negotiation
//! * `session`: next events to add, worded in `messages`

mod diff;
mod draft;
mod event;
mod messages;
mod policy;
mod report;
mod score;
mod session;
mod state;
mod stop_rules;

use patchboard_kernel::rejection::code_enum;

pub use diff::{DeltaSummary, PATHS_MAX, delta, patch};
pub use draft::{Check, Checks, Content, EXAMPLES_MAX, Example, PAYLOAD_BYTES_MAX, decode};
pub use event::{Draft, EVENTS_MAX, Evaluation, Event, EventKind, Phase};
pub use policy::{Hitl, Policy, Preferences, Profile, Scoring, ScoringPreferences, effective_policy};
pub use report::{
    DecidedBy, DecisionReport, Diff, EvaluationReport, HumanAnswer, Outcome, RecordedEvaluation, RejectedEvent, Report,
    Version,
};
pub use score::{blend, confidence, deterministic};
pub use session::advance;
pub use state::{
    Addition, Advance, AdvanceInput, Answer, EffectivePolicy, OpenRequest, Participants, Question, RoundStart, Session,
    Setup,
};
pub use stop_rules::{HumanChoice, PauseReason, RoundAction, RoundSummary, next_action, oscillations};

code_enum! {
    /// Reason why an event of a negotiation is invalid, or why there is no negotiation.
    NegotiationCode {
        /// The event has no known kind, or not the members of its kind.
        BadEvent = "negotiation_bad_event",
        /// An event precedes `open`.
        NotOpen = "negotiation_not_open",
        /// A second `open`.
        AlreadyOpen = "negotiation_open_already",
        /// An event that needs the policy precedes `policy`.
        NoPolicy = "negotiation_no_policy",
        /// A second `policy`.
        PolicyAlreadySet = "negotiation_policy_already",
        /// A counter-proposal, an evaluation or a decision has no draft to refer to.
        NoDraft = "negotiation_no_draft",
        /// An event follows `decide` or `abort`.
        Ended = "negotiation_ended",
        /// A payload is not base64, or there is none, or there are two.
        BadPayload = "negotiation_bad_payload",
        /// A payload with the content type JSON is not JSON.
        BadJson = "negotiation_bad_json",
        /// A payload is longer than the limit.
        TooLarge = "negotiation_too_large",
        /// A draft fails a required check; the event names the reasons, and no round is consumed.
        InvalidDraft = "negotiation_invalid_draft",
        /// A draft comes from a party that is not on turn, or is its second one in a round.
        OutOfTurn = "negotiation_out_of_turn",
        /// An evaluation comes from a party that is no evaluator.
        NotEvaluator = "negotiation_not_asked",
        /// A second evaluation by one evaluator in a round.
        Repeated = "negotiation_repeated",
        /// A score is outside of 0 to 1.
        BadScore = "negotiation_bad_score",
        /// The policy, the schema or the examples of the negotiation cannot be used.
        BadSetup = "negotiation_bad_setup",
        /// The `corr` of a draft or an evaluation belongs to another negotiation.
        OtherCorr = "negotiation_other_corr",
    }
}

code_enum! {
    /// Reason for the end of a negotiation.
    StopReason {
        /// A draft reached the threshold.
        ThresholdMet = "threshold_met",
        /// A person decided.
        Hitl = "hitl",
        /// A round, or all rounds together, exceeded the token budget.
        Budget = "budget",
        /// Scores went up and down more often than allowed.
        Oscillation = "oscillation",
        /// A draft was nearly equal to the one before it, and no better.
        NoProgress = "no_progress",
        /// The maximum number of rounds was reached.
        MaxRounds = "max_rounds",
        /// A round exceeded its time limit.
        Timeout = "timeout",
        /// A party submitted too many invalid drafts in one round.
        InvalidDrafts = "invalid_drafts",
        /// The limit of events was reached.
        TooManyEvents = "too_many_events",
        /// `open` names an unknown profile.
        UnknownProfile = "negotiation_unknown_profile",
        /// A party or a person has sent `abort`.
        Withdrawn = "withdrawn",
    }
}

/// Rejected event or setting of a negotiation.
pub type NegotiationError = crate::ProtocolError<NegotiationCode>;

#[cfg(test)]
mod tests;
