//! Negotiation rooms: what critics say of an artefact, and what follows from it.
//!
//! Everything here is a function of plain data; who asks the critics, and when, is a board's business. Sources: SW4RM
//! sections 3.11.1 and 17.5 (requirement rows W34 to W49), and for quorum and late votes SW4-001.

mod decision;
mod policy;
mod quorum;
mod request;
mod votes;

pub use decision::{Conditions, Decision, Outcome, Trigger, decide};
pub use policy::{Aggregation, ArtifactType, Policy, Windows};
pub use quorum::{Action, OnFailure, Quorum, Rule, quorum};
pub use votes::{BadVote, Scores, Told, Vote, aggregate, entropy, is_consensus, is_polarised};

#[cfg(test)]
mod tests;
