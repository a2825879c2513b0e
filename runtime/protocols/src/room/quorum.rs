//! Quorum of a vote, and the action without one.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Required number of votes, and the action if fewer are cast.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quorum {
    /// Required number of votes.
    pub rule: QuorumRule,
    /// Action without a quorum.
    pub on_failure: OnFailure,
}

impl Default for Quorum {
    fn default() -> Self {
        Self { rule: QuorumRule::MinimumFraction(0.5), on_failure: OnFailure::FailClosed }
    }
}

impl Quorum {
    /// Returns the invalid setting, if there is one.
    pub(super) fn validation_error(&self) -> Option<String> {
        match self.rule {
            QuorumRule::MinimumFraction(share) if !(0.0..=1.0).contains(&share) => {
                Some(format!("`quorum.rule.minimum_fraction` is {share}; it goes from 0 to 1"))
            }
            _ => None,
        }
    }
}

/// Required number of votes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuorumRule {
    /// Share of the requested critics, rounded up.
    MinimumFraction(f64),
    /// A fixed number.
    MinimumVotes(usize),
    /// All requested critics, or none if `false`.
    RequireAll(bool),
}

/// Action if a vote has no quorum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Ask a person.
    FailClosed,
    /// Decide with the votes cast.
    FailWithAvailable,
    /// Decide with the votes cast, and list missing critics as abstaining. An abstention is no vote, and changes no
    /// number.
    FailWithAbstain,
}

/// Action after counting the votes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuorumAction {
    /// The quorum is met.
    None,
    /// No quorum: ask a person.
    EscalateHitl,
    /// No quorum: the votes cast decide.
    DecidedWithAvailable,
    /// No quorum: the votes cast decide, and abstentions are listed.
    DecidedWithAbstains,
}

/// Result of counting the votes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct QuorumResult {
    /// True if the quorum is met.
    pub met: bool,
    /// Number of requested critics that voted, each counted once.
    pub received: usize,
    /// Number of requested critics.
    pub expected: usize,
    /// Number of required votes.
    pub threshold: usize,
    /// Resulting action.
    pub action: QuorumAction,
    /// Critics that abstain by not voting, in request order.
    pub injected: Vec<String>,
}

/// Counts the votes of the `requested` critics. Each critic counts once; other voters do not count.
pub fn quorum(requested: &[String], voters: &[String], quorum: Quorum) -> QuorumResult {
    let voters: BTreeSet<&String> = voters.iter().collect();
    let critics: BTreeSet<&String> = requested.iter().collect();
    let (received, expected) = (critics.intersection(&voters).count(), requested.len());
    let threshold = match quorum.rule {
        QuorumRule::MinimumFraction(share) => share_of(share, expected),
        QuorumRule::MinimumVotes(votes) => votes,
        QuorumRule::RequireAll(true) => expected,
        QuorumRule::RequireAll(false) => 0,
    };
    let met = received >= threshold;
    let action = match quorum.on_failure {
        _ if met => QuorumAction::None,
        OnFailure::FailClosed => QuorumAction::EscalateHitl,
        OnFailure::FailWithAvailable => QuorumAction::DecidedWithAvailable,
        OnFailure::FailWithAbstain => QuorumAction::DecidedWithAbstains,
    };
    let mut missing: BTreeSet<&String> = critics.difference(&voters).copied().collect();
    let injected = match action {
        QuorumAction::DecidedWithAbstains => {
            requested.iter().filter(|critic| missing.remove(critic)).cloned().collect()
        }
        _ => Vec::new(),
    };
    QuorumResult { met, received, expected, threshold, action, injected }
}

/// Returns this share of `all`, rounded up. The tolerance absorbs rounding errors of doubles, as in 0.7 of 10.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share from 0 to 1 of a number of critics"
)]
fn share_of(share: f64, all: usize) -> usize {
    (share * all as f64 - 1e-9).ceil().max(0.0) as usize
}
