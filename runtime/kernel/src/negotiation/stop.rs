//! What follows from rounds: going on, asking a person, taking a draft, giving up (W30, W31).

use serde::{Deserialize, Serialize};

use super::{Hitl, Policy, StopReason};
use crate::id::Timestamp;

/// How far sums of doubles may be off what they are compared with.
const NOISE: f64 = 1e-9;

/// What is known of a round.
#[derive(Clone, PartialEq, Debug)]
pub struct Round {
    /// When it began.
    pub started_at: Timestamp,
    /// The score of its draft, once everybody has evaluated it.
    pub score: Option<f64>,
    /// Whether its draft has passed what is required.
    pub is_valid: bool,
    /// How much of its draft is different from the one before, from 0 to 1; none in the first round.
    pub magnitude: Option<f64>,
    /// Tokens it took.
    pub tokens: u64,
    /// Invalid drafts of the party whose turn it is.
    pub invalid_drafts: u32,
    /// What a person has said of it.
    pub said: Option<Said>,
}

/// What a person can say of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Said {
    /// Its draft is taken.
    Accept,
    /// It goes on.
    Continue,
    /// It is over.
    Stop,
}

impl Said {
    /// All of it, as it is said.
    pub const ALL: [(&'static str, Self); 3] =
        [("accept", Self::Accept), ("continue", Self::Continue), ("stop", Self::Stop)];

    /// What a text says.
    pub fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == text).map(|(_, said)| said)
    }
}

/// What follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The round is not over: a draft or an evaluation is still to come.
    Wait,
    /// Another round.
    Continue,
    /// A person is asked first.
    Pause(Pause),
    /// The draft of the last round is taken.
    Accept,
    /// It is over without one.
    Stop(StopReason),
}

/// Why a person is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    /// A round is over, and another one would begin.
    BetweenRounds,
    /// A draft would be taken.
    FinalAccept,
}

/// What follows from the rounds so far; the last one is the one that counts. The first line that is so decides:
///
/// | | a round that is not over | a round that is |
/// |---|---|---|
/// | 1 | `round_timeout_ms` have passed: `timeout` | a person has said `accept` or `stop` |
/// | 2 | it, or all together, took more tokens than it may: `budget` | its draft is valid, its score at least `score_threshold`, and nobody has said to go on: accepted, or a pause if `hitl` says so |
/// | 3 | `invalid_drafts_max` of them: `invalid_drafts` | more tokens than it may: `budget` |
/// | 4 | it waits | more turns of scores than `oscillation_limit`: `oscillation` |
/// | 5 | | its draft is different by `diff_tolerance` at most, and its score is no higher than that of the round before: `no_progress` |
/// | 6 | | there were `max_rounds`: `max_rounds` |
/// | 7 | | a pause if `hitl` says so, and nobody has said anything |
/// | 8 | | another round |
///
/// So a draft that is good enough is taken even if the round was the last, or dear. The time of a round that is over does not
/// count, nor that of a pause; together rounds take `max_rounds` times `round_timeout_ms` at most.
pub fn next(policy: &Policy, rounds: &[Round], invalid_drafts_max: u32, now: Timestamp) -> Next {
    let Some(last) = rounds.last() else { return Next::Wait };
    let total = rounds.iter().fold(0_u64, |sum, round| sum.saturating_add(round.tokens));
    let is_dear =
        last.tokens > policy.token_budget_per_round || policy.total_token_budget.is_some_and(|budget| total > budget);
    let Some(score) = last.score else {
        return if now.ms_since(last.started_at) >= policy.round_timeout_ms {
            Next::Stop(StopReason::Timeout)
        } else if is_dear {
            Next::Stop(StopReason::Budget)
        } else if last.invalid_drafts >= invalid_drafts_max {
            Next::Stop(StopReason::InvalidDrafts)
        } else {
            Next::Wait
        };
    };
    match last.said {
        Some(Said::Accept) => return Next::Accept,
        Some(Said::Stop) => return Next::Stop(StopReason::Hitl),
        Some(Said::Continue) | None => {}
    }
    let is_good = last.is_valid && score >= policy.score_threshold - NOISE;
    let scores: Vec<f64> = rounds.iter().filter_map(|round| round.score).collect();
    let is_same = last.magnitude.is_some_and(|magnitude| magnitude <= policy.diff_tolerance + NOISE);
    // A small change that makes a draft better is what a negotiation is for.
    let is_better = matches!(scores.as_slice(), [.., before, last] if *last > before + NOISE);
    match last.said {
        None if is_good && policy.hitl > Hitl::None => Next::Pause(Pause::FinalAccept),
        None if is_good => Next::Accept,
        _ if is_dear => Next::Stop(StopReason::Budget),
        _ if oscillations(&scores) > policy.oscillation_limit => Next::Stop(StopReason::Oscillation),
        _ if is_same && !is_better => Next::Stop(StopReason::NoProgress),
        _ if u32::try_from(rounds.len()).is_ok_and(|count| count < policy.max_rounds) => match last.said {
            None if policy.hitl == Hitl::PauseBetweenRounds => Next::Pause(Pause::BetweenRounds),
            _ => Next::Continue,
        },
        _ => Next::Stop(StopReason::MaxRounds),
    }
}

/// How often scores turn: of the differences between each and the next, without those that are none, how many have another
/// sign than the one before. `0.2 0.6 0.4 0.4 0.7` turns twice.
pub fn oscillations(scores: &[f64]) -> u32 {
    let rises = scores.windows(2).filter_map(|pair| {
        let difference = pair.get(1)? - pair.first()?;
        (difference.abs() > NOISE).then_some(difference > 0.0)
    });
    let rises: Vec<bool> = rises.collect();
    u32::try_from(rises.windows(2).filter(|pair| pair.first() != pair.get(1)).count()).unwrap_or(u32::MAX)
}
