//! Negotiation rooms: votes of critics on an artefact, and the resulting decision.
//!
//! All functions here are pure; a board decides about the critics' calls and their times. Sources: SW4RM sections
//! 3.11.1 and 17.5 (requirement rows W34 to W49), and for quorum and late votes SW4-001.

mod decision;
mod human_request;
mod policy;
mod quorum;
mod votes;

pub use decision::{Conditions, Decision, EscalationTrigger, Outcome, decide};
pub use policy::{Aggregation, ArtifactType, Policy, Windows};
pub use quorum::{OnFailure, Quorum, QuorumAction, QuorumRule, quorum};
pub use votes::{Scores, Vote, VoteError, WireVote, aggregate, entropy, is_consensus, is_polarised};

#[cfg(test)]
mod tests;
