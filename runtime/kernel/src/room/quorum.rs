//! Whether enough of those who were asked have voted, and what follows if not.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// How many votes are needed, and what becomes of an artefact that gets fewer.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quorum {
    /// How many.
    pub rule: Rule,
    /// What follows from fewer.
    pub on_failure: OnFailure,
}

impl Default for Quorum {
    fn default() -> Self {
        Self { rule: Rule::MinimumFraction(0.5), on_failure: OnFailure::FailClosed }
    }
}

impl Quorum {
    /// What of it cannot be meant.
    pub(super) fn problem(&self) -> Option<String> {
        match self.rule {
            Rule::MinimumFraction(share) if !(0.0..=1.0).contains(&share) => {
                Some(format!("`quorum.rule.minimum_fraction` is {share}; it goes from 0 to 1"))
            }
            _ => None,
        }
    }
}

/// How many votes are needed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// This share of those who were asked, rounded up.
    MinimumFraction(f64),
    /// So many.
    MinimumVotes(usize),
    /// Everybody, or if `false` nobody.
    RequireAll(bool),
}

/// What becomes of an artefact with too few votes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// A person is asked.
    FailClosed,
    /// The votes that are there decide.
    FailWithAvailable,
    /// So they do, and who is missing is named as abstaining. An abstention is no vote: it changes no number.
    FailWithAbstain,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// There are enough votes.
    None,
    /// There are not; a person is asked.
    EscalateHitl,
    /// There are not; those that are there decide.
    DecidedWithAvailable,
    /// There are not; those that are there decide, beside abstentions.
    DecidedWithAbstains,
}

/// Whether there are enough votes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Count {
    /// Whether there are.
    pub met: bool,
    /// How many of those who were asked have voted; each counts once.
    pub received: usize,
    /// How many were asked.
    pub expected: usize,
    /// How many are needed.
    pub threshold: usize,
    /// What follows.
    pub action: Action,
    /// Who abstains by not having voted, in the order of asking.
    pub injected: Vec<String>,
}

/// Counts who of `requested` has voted. Whoever votes twice counts once, whoever was not asked does not count.
pub fn quorum(requested: &[String], voters: &[String], quorum: Quorum) -> Count {
    let voters: BTreeSet<&String> = voters.iter().collect();
    let asked: BTreeSet<&String> = requested.iter().collect();
    let (received, expected) = (asked.intersection(&voters).count(), requested.len());
    let threshold = match quorum.rule {
        Rule::MinimumFraction(share) => share_of(share, expected),
        Rule::MinimumVotes(votes) => votes,
        Rule::RequireAll(all) => {
            if all {
                expected
            } else {
                0
            }
        }
    };
    let met = received >= threshold;
    let action = match quorum.on_failure {
        _ if met => Action::None,
        OnFailure::FailClosed => Action::EscalateHitl,
        OnFailure::FailWithAvailable => Action::DecidedWithAvailable,
        OnFailure::FailWithAbstain => Action::DecidedWithAbstains,
    };
    let mut missing: BTreeSet<&String> = asked.difference(&voters).copied().collect();
    let injected = match action {
        Action::DecidedWithAbstains => requested.iter().filter(|critic| missing.remove(critic)).cloned().collect(),
        _ => Vec::new(),
    };
    Count { met, received, expected, threshold, action, injected }
}

/// So many of `all`, rounded up. What a double adds in its last digits (0.7 of 10) is no further one.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share from 0 to 1 of a number of critics"
)]
fn share_of(share: f64, all: usize) -> usize {
    (share * all as f64 - 1e-9).ceil().max(0.0) as usize
}
