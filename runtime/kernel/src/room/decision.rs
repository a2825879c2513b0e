//! The decision over an artefact: who is heard, what forces a person to look, what approves.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::policy::Policy;
use super::quorum::{Action, quorum};
use super::votes::{BadVote, Scores, Vote, aggregate, ids};

/// How far sums of doubles may be off what they are compared with: 0.7 three times, divided by three, is 0.7.
const NOISE: f64 = 1e-9;

/// What becomes of an artefact (W40).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Outcome {
    /// It is taken.
    Approved,
    /// Its producer is to try again.
    RevisionRequested,
    /// A person decides.
    EscalatedToHitl,
}

/// Why a person is asked, in the order in which it is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A critic is not sure at all (W44).
    #[serde(rename = "vote_confidence_below")]
    VoteConfidence,
    /// Critics are of very different minds (W45).
    #[serde(rename = "std_dev_above")]
    StdDev,
    /// A critic asks for it (W46).
    #[serde(rename = "critic_requested_escalation")]
    CriticRequested,
    /// Time is over before enough have voted (W47).
    PolicyTimeout,
}

/// What approval demands, and which of it is so (W42, W43).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Conditions {
    /// The aggregated score is high enough.
    pub score: bool,
    /// Critics are sure enough, on average.
    pub confidence: bool,
    /// Enough of them passed it.
    pub pass_ratio: bool,
    /// They are near enough to each other.
    pub std_dev: bool,
}

impl Conditions {
    /// Whether all of it is so.
    pub fn all(&self) -> bool {
        self.score && self.confidence && self.pass_ratio && self.std_dev
    }
}

/// The decision over one artefact, for good.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// What becomes of it.
    pub outcome: Outcome,
    /// Why, in a sentence.
    pub reason: String,
    /// By which policy ([`Policy::version`]).
    pub policy_version: String,
    /// What the votes come to; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregated: Option<Scores>,
    /// How sure critics are, on average; 0 without votes.
    pub avg_confidence: f64,
    /// The share of them that passed it; 0 without votes.
    pub pass_ratio: f64,
    /// What approval demands.
    pub approval_conditions: Conditions,
    /// Why a person is asked; empty if nobody is.
    pub escalation_triggers: Vec<Trigger>,
    /// Whether enough of those who were asked have voted.
    pub quorum_met: bool,
    /// How many of them have.
    pub votes_received: usize,
    /// How many were asked.
    pub votes_expected: usize,
    /// Who was asked and has not voted.
    pub unavailable_critics: Vec<String>,
    /// Who has said that they do not vote.
    pub abstained: Vec<String>,
    /// Whose vote was not counted as nobody had asked them.
    pub foreign_votes: Vec<String>,
    /// Whose further votes were not counted: the first is.
    pub repeated_votes: Vec<String>,
}

/// Decides over the votes that are there, if it is time to: when everybody who was asked has voted or abstained, or
/// `is_over`. `None`: it is not.
///
/// Of several votes of one critic the first counts, and only votes of those who were asked do. What forces a person to look
/// comes before what approves (W44 to W47, then W43); whatever does neither is to be revised (W49).
///
/// # Errors
/// [`BadVote`]: a vote that counts is out of range.
pub fn decide(
    requested: &[String],
    votes: &[Vote],
    is_over: bool,
    policy: &Policy,
) -> Result<Option<Decision>, BadVote> {
    let asked: BTreeSet<&str> = requested.iter().map(String::as_str).collect();
    let mut heard = BTreeSet::new();
    let (mut counted, mut foreign, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for vote in votes {
        match (asked.contains(vote.critic_id.as_str()), heard.contains(vote.critic_id.as_str())) {
            (false, _) => foreign.push(vote),
            (true, true) => repeated.push(vote),
            (true, false) => {
                heard.insert(vote.critic_id.as_str());
                counted.push(vote);
            }
        }
    }
    if !is_over && heard.len() < asked.len() {
        return Ok(None);
    }
    let (abstained, counted): (Vec<&Vote>, Vec<&Vote>) = counted.into_iter().partition(|vote| vote.abstain);
    let voters = ids(counted.iter().copied());
    let count = quorum(requested, &voters, policy.quorum);
    let scores = match aggregate(&counted, policy.aggregation) {
        Ok(scores) => Some(scores),
        Err(BadVote::Empty) => None,
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
    // Nothing can be decided without any vote, whatever the quorum lets pass.
    let is_short = count.action == Action::EscalateHitl || counted.is_empty();
    let triggers: Vec<Trigger> = [
        (Trigger::VoteConfidence, counted.iter().any(|vote| vote.confidence < policy.escalate_confidence_below)),
        (Trigger::StdDev, std_dev > policy.escalate_std_dev_above + NOISE),
        (Trigger::CriticRequested, counted.iter().any(|vote| vote.asks_for_a_person())),
        (Trigger::PolicyTimeout, is_short),
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
        unavailable_critics: requested.iter().filter(|critic| !heard.contains(critic.as_str())).cloned().collect(),
        abstained: ids(abstained),
        foreign_votes: ids(foreign),
        repeated_votes: ids(repeated),
    };
    decision.reason = reason(&decision, &counted, count.threshold, policy);
    Ok(Some(decision))
}

/// A number with as many digits as people read.
fn short(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What led to the outcome: everything that forced or prevented it.
fn reason(decision: &Decision, counted: &[&Vote], threshold: usize, policy: &Policy) -> String {
    let score = decision.aggregated.map_or(0.0, |scores| scores.weighted_mean);
    let std_dev = decision.aggregated.map_or(0.0, |scores| scores.std_dev);
    let named = |votes: Vec<&Vote>| votes.iter().map(|vote| vote.critic_id.as_str()).collect::<Vec<_>>().join(", ");
    let why = |trigger: &Trigger| match trigger {
        Trigger::VoteConfidence => {
            let unsure = |vote: &&&Vote| vote.confidence < policy.escalate_confidence_below;
            let unsure = named(counted.iter().filter(unsure).copied().collect());
            format!("less than {} sure: {unsure}", short(policy.escalate_confidence_below))
        }
        Trigger::StdDev => {
            format!("scores deviate by {}, more than {}", short(std_dev), short(policy.escalate_std_dev_above))
        }
        Trigger::CriticRequested => {
            let asking = counted.iter().filter(|vote| vote.asks_for_a_person()).copied().collect();
            format!("asked for by {}", named(asking))
        }
        Trigger::PolicyTimeout => format!(
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
            short(score),
            short(decision.avg_confidence),
            short(decision.pass_ratio * 100.0),
            short(std_dev)
        )],
        Outcome::RevisionRequested => [
            missed(conditions.score, format!("score {} is below {}", short(score), short(policy.min_score_threshold))),
            missed(
                conditions.confidence,
                format!(
                    "confidence {} is below {}",
                    short(decision.avg_confidence),
                    short(policy.min_confidence_threshold)
                ),
            ),
            missed(
                conditions.pass_ratio,
                format!(
                    "{} % passed it, fewer than {} %",
                    short(decision.pass_ratio * 100.0),
                    short(policy.min_pass_ratio * 100.0)
                ),
            ),
            missed(
                conditions.std_dev,
                format!("scores deviate by {}, more than {}", short(std_dev), short(policy.max_std_dev)),
            ),
        ]
        .into_iter()
        .flatten()
        .collect(),
    };
    parts.join("; ")
}
