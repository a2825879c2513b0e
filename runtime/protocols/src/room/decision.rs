//! Decision about an artefact: counted votes, escalation triggers and approval conditions.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::policy::Policy;
use super::quorum::{QuorumAction, quorum};
use super::votes::{Result, Scores, Vote, VoteError, aggregate, ids};
use patchboard_kernel::text::decimals;

/// Tolerance for rounding errors of sums of doubles, such as 0.7 three times, divided by three.
const NOISE: f64 = 1e-9;

/// Outcome for an artefact (W40).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Outcome {
    /// The artefact is accepted.
    Approved,
    /// The producer must revise the artefact.
    RevisionRequested,
    /// A person decides.
    EscalatedToHitl,
}

/// Reason for escalation to a person, in evaluation order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EscalationTrigger {
    /// A critic's confidence is too low (W44).
    #[serde(rename = "vote_confidence_below")]
    VoteConfidence,
    /// The critics' scores differ too much (W45).
    #[serde(rename = "std_dev_above")]
    StdDev,
    /// A critic requested it (W46).
    #[serde(rename = "critic_requested_escalation")]
    CriticRequested,
    /// Too few critics voted before the vote closed (W47).
    PolicyTimeout,
}

/// Results of the approval conditions (W42, W43).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Conditions {
    /// The aggregated score is high enough.
    pub score: bool,
    /// The mean confidence is high enough.
    pub confidence: bool,
    /// Enough critics passed the artefact.
    pub pass_ratio: bool,
    /// The scores deviate little enough.
    pub std_dev: bool,
}

impl Conditions {
    /// Returns true if all conditions hold.
    pub fn all(&self) -> bool {
        self.score && self.confidence && self.pass_ratio && self.std_dev
    }
}

/// The final decision about one artefact.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// Outcome for the artefact.
    pub outcome: Outcome,
    /// One-sentence reason.
    pub reason: String,
    /// Version of the applied policy ([`Policy::version`]).
    pub policy_version: String,
    /// Aggregated scores; absent without votes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregated: Option<Scores>,
    /// Mean confidence of the critics; 0 without votes.
    pub avg_confidence: f64,
    /// Share of critics that passed it; 0 without votes.
    pub pass_ratio: f64,
    /// Results of the approval conditions.
    pub approval_conditions: Conditions,
    /// Reasons for escalation to a person; empty without escalation.
    pub escalation_triggers: Vec<EscalationTrigger>,
    /// True if enough of the requested critics voted.
    pub quorum_met: bool,
    /// Number of requested critics that voted.
    pub votes_received: usize,
    /// Number of requested critics.
    pub votes_expected: usize,
    /// Requested critics that have not voted.
    pub unavailable_critics: Vec<String>,
    /// Critics that abstained.
    pub abstained: Vec<String>,
    /// Voters that were not requested; their votes are ignored.
    pub foreign_votes: Vec<String>,
    /// Critics that voted repeatedly; only their first votes count.
    pub repeated_votes: Vec<String>,
}

/// Decides on the votes if all requested critics have voted or abstained, or if `is_over`. Otherwise returns `None`.
///
/// Only the first vote of each requested critic counts. Escalation takes precedence over approval (W44 to W47, then
/// W43); without either, the outcome is a revision (W49). Fails if a counted vote is out of range.
pub fn decide(requested: &[String], votes: &[Vote], is_over: bool, policy: &Policy) -> Result<Option<Decision>> {
    let critics: BTreeSet<&str> = requested.iter().map(String::as_str).collect();
    let mut voted = BTreeSet::new();
    let (mut counted, mut foreign, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for vote in votes {
        match (critics.contains(vote.critic_id.as_str()), voted.contains(vote.critic_id.as_str())) {
            (false, _) => foreign.push(vote),
            (true, true) => repeated.push(vote),
            (true, false) => {
                voted.insert(vote.critic_id.as_str());
                counted.push(vote);
            }
        }
    }
    if !is_over && voted.len() < critics.len() {
        return Ok(None);
    }
    let (abstained, counted): (Vec<&Vote>, Vec<&Vote>) = counted.into_iter().partition(|vote| vote.abstain);
    let voters = ids(counted.iter().copied());
    let count = quorum(requested, &voters, policy.quorum);
    let scores = match aggregate(&counted, policy.aggregation) {
        Ok(scores) => Some(scores),
        Err(VoteError::Empty) => None,
        Err(bad) => return Err(bad),
    };
    #[expect(clippy::cast_precision_loss, reason = "nobody counts 2^53 votes")]
    let share = |sum: f64| if counted.is_empty() { 0.0 } else { sum / counted.len() as f64 };
    let avg_confidence = share(counted.iter().map(|vote| vote.confidence).sum());
    let pass_ratio = share(counted.iter().map(|vote| f64::from(u8::from(vote.passed))).sum());
    let std_dev = scores.map_or(0.0, |scores| scores.std_dev);
    let conditions = Conditions {
        score: scores.is_some_and(|scores| scores.weighted_mean >= policy.min_score_threshold - NOISE),
        confidence: avg_confidence >= policy.min_confidence_threshold - NOISE,
        pass_ratio: pass_ratio >= policy.min_pass_ratio - NOISE,
        std_dev: std_dev <= policy.max_std_dev + NOISE,
    };
    // Without any vote nothing can be decided, even if the quorum rule permits it.
    let is_short = count.action == QuorumAction::EscalateHitl || counted.is_empty();
    let triggers: Vec<EscalationTrigger> = [
        (
            EscalationTrigger::VoteConfidence,
            counted.iter().any(|vote| vote.confidence < policy.escalate_confidence_below),
        ),
        (EscalationTrigger::StdDev, std_dev > policy.escalate_std_dev_above + NOISE),
        (EscalationTrigger::CriticRequested, counted.iter().any(|vote| vote.requests_human())),
        (EscalationTrigger::PolicyTimeout, is_short),
    ]
    .into_iter()
    .filter_map(|(trigger, is_so)| is_so.then_some(trigger))
    .collect();
    let outcome = match triggers.is_empty() {
        false => Outcome::EscalatedToHitl,
        true if conditions.all() => Outcome::Approved,
        true => Outcome::RevisionRequested,
    };
    let mut decision = Decision {
        outcome,
        reason: String::new(),
        policy_version: policy.version(),
        aggregated: scores,
        avg_confidence,
        pass_ratio,
        approval_conditions: conditions,
        escalation_triggers: triggers,
        quorum_met: count.met,
        votes_received: count.received,
        votes_expected: count.expected,
        unavailable_critics: requested.iter().filter(|critic| !voted.contains(critic.as_str())).cloned().collect(),
        abstained: ids(abstained),
        foreign_votes: ids(foreign),
        repeated_votes: ids(repeated),
    };
    decision.reason = reason(&decision, &counted, count.threshold, policy);
    Ok(Some(decision))
}

/// Explains the outcome: all conditions that forced or prevented it.
fn reason(decision: &Decision, counted: &[&Vote], threshold: usize, policy: &Policy) -> String {
    let score = decision.aggregated.map_or(0.0, |scores| scores.weighted_mean);
    let std_dev = decision.aggregated.map_or(0.0, |scores| scores.std_dev);
    let named = |votes: Vec<&Vote>| votes.iter().map(|vote| vote.critic_id.as_str()).collect::<Vec<_>>().join(", ");
    let why = |trigger: &EscalationTrigger| match trigger {
        EscalationTrigger::VoteConfidence => {
            let unsure = |vote: &&&Vote| vote.confidence < policy.escalate_confidence_below;
            let unsure = named(counted.iter().filter(unsure).copied().collect());
            format!("less than {} sure: {unsure}", decimals(policy.escalate_confidence_below))
        }
        EscalationTrigger::StdDev => {
            format!("scores deviate by {}, more than {}", decimals(std_dev), decimals(policy.escalate_std_dev_above))
        }
        EscalationTrigger::CriticRequested => {
            let asking = counted.iter().filter(|vote| vote.requests_human()).copied().collect();
            format!("asked for by {}", named(asking))
        }
        EscalationTrigger::PolicyTimeout => format!(
            "{} of {} critics have voted, and {} are needed",
            decision.votes_received,
            decision.votes_expected,
            threshold.max(1)
        ),
    };
    let conditions = decision.approval_conditions;
    let missed = |is_met: bool, text: String| (!is_met).then_some(text);
    let parts: Vec<String> = match decision.outcome {
        Outcome::EscalatedToHitl => decision.escalation_triggers.iter().map(why).collect(),
        Outcome::Approved => vec![format!(
            "score {}, confidence {}, {} % passed, deviation {}",
            decimals(score),
            decimals(decision.avg_confidence),
            decimals(decision.pass_ratio * 100.0),
            decimals(std_dev)
        )],
        Outcome::RevisionRequested => [
            missed(
                conditions.score,
                format!("score {} is below {}", decimals(score), decimals(policy.min_score_threshold)),
            ),
            missed(
                conditions.confidence,
                format!(
                    "confidence {} is below {}",
                    decimals(decision.avg_confidence),
                    decimals(policy.min_confidence_threshold)
                ),
            ),
            missed(
                conditions.pass_ratio,
                format!(
                    "{} % passed it, fewer than {} %",
                    decimals(decision.pass_ratio * 100.0),
                    decimals(policy.min_pass_ratio * 100.0)
                ),
            ),
            missed(
                conditions.std_dev,
                format!("scores deviate by {}, more than {}", decimals(std_dev), decimals(policy.max_std_dev)),
            ),
        ]
        .into_iter()
        .flatten()
        .collect(),
    };
    parts.join("; ")
}
