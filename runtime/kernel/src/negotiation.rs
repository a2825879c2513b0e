//! Negotiations: parties make drafts in turn, rounds are scored, and a policy says when one is taken or when it is over.
//!
//! Everything here is a function of plain data; who is woken, and when, is a board's business. `event` is what is said and
//! in what order, `policy` what parties have agreed to be bound by, `draft` what makes a draft valid, `delta` how far two
//! are apart, `score` what one is worth, `stop` what follows from rounds, `report` what is kept of them, `state` a
//! negotiation as it stands, and `session` what is to be added to it, in `words`. Source: SW4RM section 17 (requirement rows W1 to W33).

mod delta;
mod draft;
mod event;
mod policy;
mod report;
mod score;
mod session;
mod state;
mod stop;
mod words;

use serde::{Deserialize, Serialize};

use crate::rejection::coded;

pub use delta::{DeltaSummary, PATHS_MAX, delta, patch};
pub use draft::{Check, Checks, Content, EXAMPLES_MAX, Example, PAYLOAD_BYTES_MAX, decode};
pub use event::{Draft, EVENTS_MAX, Evaluation, Event, Kind, Phase};
pub use policy::{Hitl, Policy, Preferences, Profile, Scoring, ScoringPreferences, effective};
pub use report::{DecidedBy, Decision, Diff, Heard, Judgement, Outcome, Refused, Report, Version, Word};
pub use score::{blend, confidence, deterministic};
pub use session::advance;
pub use state::{Added, Answer, Asked, Begun, Effective, Question, Seats, Session, Setup, Step, Woken};
pub use stop::{Next, Pause, Round, Said, next, oscillations};

coded! {
    /// Why an event of a negotiation does not count, or why there is no negotiation.
    NegotiationCode {
        /// It is no event of a known kind with the members of that kind.
        BadEvent = "negotiation_bad_event",
        /// Something comes before `open`.
        NotOpen = "negotiation_not_open",
        /// A second `open`.
        OpenAlready = "negotiation_open_already",
        /// Something that needs the policy comes before `policy`.
        NoPolicy = "negotiation_no_policy",
        /// A second `policy`.
        PolicyAlready = "negotiation_policy_already",
        /// A counter-proposal, an evaluation or a decision where there is no draft to be about.
        NoDraft = "negotiation_no_draft",
        /// Something comes after `decide` or `abort`.
        Ended = "negotiation_ended",
        /// A payload is no base64, or there is none, or two.
        BadPayload = "negotiation_bad_payload",
        /// A payload whose content type is JSON is none.
        BadJson = "negotiation_bad_json",
        /// A payload is longer than it may be.
        TooLarge = "negotiation_too_large",
        /// A draft fails what is required of it; why is told, and no round is consumed.
        InvalidDraft = "negotiation_invalid_draft",
        /// A draft of a party whose turn it is not, or the second of a round.
        OutOfTurn = "negotiation_out_of_turn",
        /// An evaluation of somebody who is no evaluator.
        NotAsked = "negotiation_not_asked",
        /// A second evaluation by the same evaluator in a round.
        Repeated = "negotiation_repeated",
        /// A score outside of 0 to 1.
        BadScore = "negotiation_bad_score",
        /// The policy, the schema or the examples of the negotiation cannot be used.
        BadSetup = "negotiation_bad_setup",
        /// A draft or an evaluation says by its `corr` that it belongs to another negotiation.
        OtherCorr = "negotiation_other_corr",
    }
}

coded! {
    /// Why a negotiation ended.
    StopReason {
        /// A draft reached the threshold.
        ThresholdMet = "threshold_met",
        /// A person said so.
        Hitl = "hitl",
        /// A round took more tokens than it may, or all of them together did.
        Budget = "budget",
        /// Scores went up and down more often than they may.
        Oscillation = "oscillation",
        /// A draft was hardly different from the one before it, and no better.
        NoProgress = "no_progress",
        /// There were as many rounds as there may be.
        MaxRounds = "max_rounds",
        /// A round took longer than it may.
        Timeout = "timeout",
        /// A party made too many invalid drafts in one round.
        InvalidDrafts = "invalid_drafts",
        /// There is no room for further events.
        TooManyEvents = "too_many_events",
        /// `open` names a profile that is not there.
        UnknownProfile = "negotiation_unknown_profile",
        /// Somebody who takes part, or a person, has said `abort`.
        Withdrawn = "withdrawn",
    }
}

/// What is wrong, with its stable code.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Stable.
    pub code: NegotiationCode,
    /// For people and models.
    pub message: String,
}

impl Refusal {
    fn new(code: NegotiationCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

#[cfg(test)]
mod tests;
