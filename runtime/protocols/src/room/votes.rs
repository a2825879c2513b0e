//! Votes, and their aggregation.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::human_request;
use super::policy::{Aggregation, SCORE_MAX};

/// A critic's vote on an artefact (W37), converted from [`WireVote`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "WireVote", into = "WireVote")]
pub struct Vote {
    /// The critic.
    pub critic_id: String,
    /// Score, from 0 to 10.
    pub score: f64,
    /// Confidence of the critic, from 0 to 1.
    pub confidence: f64,
    /// True if the artefact meets the critic's criteria.
    pub passed: bool,
    /// Strengths of the artefact.
    pub strengths: Vec<String>,
    /// Weaknesses of the artefact.
    pub weaknesses: Vec<String>,
    /// Recommendations. One that requests a person causes an escalation ([`Vote::requests_human`]).
    pub recommendations: Vec<String>,
    /// Marks an abstention, which is no vote; its numbers are ignored.
    pub abstain: bool,
}

/// Wire format of a vote. An abstention may omit the numbers and `passed`. Unknown members are ignored.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WireVote {
    /// The critic.
    pub critic_id: String,
    /// Score, from 0 to 10.
    pub score: Option<f64>,
    /// Confidence of the critic, from 0 to 1.
    pub confidence: Option<f64>,
    /// True if the artefact meets the critic's criteria.
    pub passed: Option<bool>,
    /// Strengths of the artefact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strengths: Vec<String>,
    /// Weaknesses of the artefact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weaknesses: Vec<String>,
    /// Recommendations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recommendations: Vec<String>,
    /// Marks an abstention, which is no vote.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub abstain: bool,
}

impl TryFrom<WireVote> for Vote {
    type Error = VoteError;

    fn try_from(wire: WireVote) -> Result<Self> {
        let WireVote { critic_id, abstain, .. } = wire;
        if critic_id.is_empty() {
            return Err(VoteError::EmptyCriticId);
        }
        let missing = |member| VoteError::Missing { critic_id: critic_id.clone(), member };
        let or_missing = |number: Option<f64>, member| number.or(abstain.then_some(0.0)).ok_or_else(|| missing(member));
        Ok(Self {
            score: or_missing(wire.score, "score")?,
            confidence: or_missing(wire.confidence, "confidence")?,
            passed: wire.passed.or(abstain.then_some(false)).ok_or_else(|| missing("passed"))?,
            strengths: wire.strengths,
            weaknesses: wire.weaknesses,
            recommendations: wire.recommendations,
            abstain,
            critic_id,
        })
    }
}

impl From<Vote> for WireVote {
    fn from(vote: Vote) -> Self {
        let Vote { critic_id, score, confidence, passed, strengths, weaknesses, recommendations, abstain } = vote;
        let counts = !abstain;
        let (score, confidence) = (counts.then_some(score), counts.then_some(confidence));
        let passed = counts.then_some(passed);
        Self { critic_id, score, confidence, passed, strengths, weaknesses, recommendations, abstain }
    }
}

/// Result of counting votes.
pub(super) type Result<T, E = VoteError> = std::result::Result<T, E>;

/// Errors in votes.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum VoteError {
    /// There are no votes.
    #[error("there is no vote")]
    Empty,
    /// The critic's id is empty.
    #[error("the `critic_id` of a vote is empty")]
    EmptyCriticId,
    /// A member is missing that only abstentions may omit.
    #[error("the vote of {critic_id} has no `{member}`; only who abstains (`abstain: true`) leaves it out")]
    Missing {
        /// The critic.
        critic_id: String,
        /// Name of the missing member.
        member: &'static str,
    },
    /// A score is not between 0 and 10.
    #[error("the score of {critic_id} is {score}; scores go from 0 to {SCORE_MAX}")]
    Score {
        /// The critic.
        critic_id: String,
        /// The score.
        score: f64,
    },
    /// A confidence is not between 0 and 1.
    #[error("the confidence of {critic_id} is {confidence}; confidences go from 0 to 1")]
    Confidence {
        /// The critic.
        critic_id: String,
        /// The confidence.
        confidence: f64,
    },
    /// A consensus threshold is not between 0 and 1.
    #[error("the threshold is {threshold}; shares go from 0 to 1")]
    Threshold {
        /// The threshold.
        threshold: f64,
    },
}

impl Vote {
    /// Checks the ranges of score and confidence.
    pub fn check(&self) -> Result<()> {
        let critic_id = self.critic_id.clone();
        if !(0.0..=SCORE_MAX).contains(&self.score) {
            return Err(VoteError::Score { critic_id, score: self.score });
        }
        if !(0.0..=1.0).contains(&self.confidence) {
            return Err(VoteError::Confidence { critic_id, confidence: self.confidence });
        }
        Ok(())
    }

    /// Returns true if a recommendation requests a person (W46), by a word that begins with `escalat` or a request for
    /// a human review. A negation right before it cancels the request: "no need to escalate" is none.
    pub fn requests_human(&self) -> bool {
        self.recommendations.iter().any(|text| human_request::requests_human(text))
    }
}

/// Aggregated scores of votes (W39).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Scores {
    /// Unweighted mean of the scores.
    pub mean: f64,
    /// The lowest score.
    pub min_score: f64,
    /// The highest score.
    pub max_score: f64,
    /// Unweighted population standard deviation of the scores.
    pub std_dev: f64,
    /// Score by the aggregation method ([`Aggregation`]), compared with the threshold.
    pub weighted_mean: f64,
    /// Number of votes.
    pub vote_count: usize,
}

#[expect(clippy::cast_precision_loss, reason = "nobody counts 2^53 votes")]
fn float(count: usize) -> f64 {
    count as f64
}

/// Aggregates the scores of votes. Fails if there are no votes, or one is out of range.
pub fn aggregate(votes: &[&Vote], aggregation: Aggregation) -> Result<Scores> {
    votes.iter().try_for_each(|vote| vote.check())?;
    let first = votes.first().ok_or(VoteError::Empty)?;
    let n = float(votes.len());
    let scores = || votes.iter().map(|vote| vote.score);
    let mean = scores().sum::<f64>() / n;
    let variance = scores().map(|score| (score - mean) * (score - mean)).sum::<f64>() / n;
    let weighted_mean = match aggregation {
        Aggregation::Mean => mean,
        Aggregation::ConfidenceWeighted => {
            let weight: f64 = votes.iter().map(|vote| vote.confidence).sum();
            let sum: f64 = votes.iter().map(|vote| vote.score * vote.confidence).sum();
            if weight > 0.0 { sum / weight } else { mean }
        }
        Aggregation::Majority => majority(votes),
        Aggregation::Borda => borda(votes),
    };
    Ok(Scores {
        mean,
        min_score: scores().fold(first.score, f64::min),
        max_score: scores().fold(first.score, f64::max),
        std_dev: variance.sqrt(),
        weighted_mean,
        vote_count: votes.len(),
    })
}

/// Returns 10 if all critics passed it, 7.5 if more than half did, 5 for half, 2.5 for fewer, 0 for none.
fn majority(votes: &[&Vote]) -> f64 {
    let passed = votes.iter().filter(|vote| vote.passed).count();
    let failed = votes.len() - passed;
    match passed.cmp(&failed) {
        _ if failed == 0 => 10.0,
        _ if passed == 0 => 0.0,
        std::cmp::Ordering::Greater => 7.5,
        std::cmp::Ordering::Equal => 5.0,
        std::cmp::Ordering::Less => 2.5,
    }
}

/// Returns the mean of the scores weighted by rank: of n votes the highest counts n times, the lowest once. The order
/// of equal scores does not affect the sum.
fn borda(votes: &[&Vote]) -> f64 {
    let mut scores: Vec<f64> = votes.iter().map(|vote| vote.score).collect();
    scores.sort_by(|a, b| b.total_cmp(a));
    let points = |rank: usize| float(scores.len() - rank);
    let sum: f64 = scores.iter().enumerate().map(|(rank, score)| points(rank) * score).sum();
    sum / (0..scores.len()).map(points).sum::<f64>()
}

/// Returns the entropy of the scores in bits, over five classes of width 2; a 10 is in the last class.
pub fn entropy(votes: &[&Vote]) -> Result<f64> {
    aggregate(votes, Aggregation::Mean)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "scores go from 0 to 10")]
    let class = |vote: &&Vote| ((vote.score / 2.0) as usize).min(4);
    let bits =
        (0..5).map(|wanted| votes.iter().filter(|vote| class(vote) == wanted).count()).filter(|count| *count > 0);
    let share = |count: usize| float(count) / float(votes.len());
    Ok(bits.map(|count| share(count) * share(count).recip().log2()).sum())
}

/// Returns true if the critics agree. Their scores must deviate by less than 2, and at least the share `threshold` (0
/// to 1) of them must pass the artefact, or fail it. Fails as [`aggregate`], or with [`VoteError::Threshold`].
pub fn is_consensus(votes: &[&Vote], threshold: f64) -> Result<bool> {
    if !(0.0..=1.0).contains(&threshold) {
        return Err(VoteError::Threshold { threshold });
    }
    let scores = aggregate(votes, Aggregation::Mean)?;
    let passed = votes.iter().filter(|vote| vote.passed).count();
    let agreeing = float(passed.max(votes.len() - passed)) / float(votes.len());
    Ok(scores.std_dev < 2.0 && agreeing >= threshold)
}

/// Returns true if the critics are polarised. This takes at least three votes with a deviation of 3 or more. At least
/// 30 % must score 3 or below, at least 30 % 7 or above, and at most 20 % between.
pub fn is_polarised(votes: &[&Vote]) -> Result<bool> {
    let scores = aggregate(votes, Aggregation::Mean)?;
    let share =
        |is: &dyn Fn(f64) -> bool| float(votes.iter().filter(|vote| is(vote.score)).count()) / float(votes.len());
    let (low, high) = (share(&|score| score <= 3.0), share(&|score| score >= 7.0));
    let between = share(&|score| score > 3.0 && score < 7.0);
    Ok(votes.len() >= 3 && scores.std_dev >= 3.0 && low >= 0.3 && high >= 0.3 && between <= 0.2)
}

/// Returns the critic ids of votes, without duplicates, in order.
pub(super) fn ids<'a>(votes: impl IntoIterator<Item = &'a Vote>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut ids = Vec::new();
    for vote in votes {
        if seen.insert(vote.critic_id.as_str()) {
            ids.push(vote.critic_id.clone());
        }
    }
    ids
}
