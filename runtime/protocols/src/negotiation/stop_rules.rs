//! Decides the next step after a round: continue, ask a person, accept or stop (W30, W31).

use serde::{Deserialize, Serialize};

use super::{Hitl, Policy, StopReason};
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::rejection::code_enum;

/// Tolerance for rounding errors of sums of doubles.
pub(super) const NOISE: f64 = 1e-9;

/// Summary of a round.
#[derive(Clone, PartialEq, Debug)]
pub struct RoundSummary {
    /// Start time.
    pub started_at: Timestamp,
    /// Score of its draft; `None` until all evaluators have answered.
    pub score: Option<f64>,
    /// True if its draft passed all required checks.
    pub is_valid: bool,
    /// Difference of its draft from the previous one, from 0 to 1; `None` in the first round.
    pub magnitude: Option<f64>,
    /// Tokens used.
    pub tokens: u64,
    /// Number of invalid drafts by the current party.
    pub invalid_drafts: u32,
    /// A person's answer.
    pub human_choice: Option<HumanChoice>,
}

code_enum! {
    /// Possible answers of a person about a round.
    HumanChoice {
        /// Accept its draft.
        Accept = "accept",
        /// Begin another round.
        Continue = "continue",
        /// Stop the negotiation.
        Stop = "stop",
    }
}

/// Next step of a negotiation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoundAction {
    /// Wait for a draft or an evaluation of the current round.
    Wait,
    /// Begin another round.
    Continue,
    /// Ask a person first.
    Pause(PauseReason),
    /// Accept the draft of the last round.
    Accept,
    /// Stop without a result.
    Stop(StopReason),
}

/// Reason for asking a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseReason {
    /// A round is over, and another would begin.
    BetweenRounds,
    /// A draft would be accepted.
    FinalAccept,
}

/// Returns the next step, given the rounds so far; the last one is the current one. The first matching line applies:
///
/// | | the round is not over | the round is over |
/// |---|---|---|
/// | 1 | `round_timeout_ms` have passed: `timeout` | a person answered `accept` or `stop` |
/// | 2 | a token budget is exceeded: `budget` | the draft is good, no person answered `continue`: accept, or pause (`hitl`) |
/// | 3 | `invalid_drafts_max` invalid drafts: `invalid_drafts` | a token budget is exceeded: `budget` |
/// | 4 | wait | the scores turned more often than `oscillation_limit`: `oscillation` |
/// | 5 | | its draft differs by at most `diff_tolerance`, and scores no higher than the previous one: `no_progress` |
/// | 6 | | `max_rounds` are used: `max_rounds` |
/// | 7 | | no person has answered, and `hitl` requires a pause |
/// | 8 | | another round |
///
/// A draft is good if it is valid and its score is at least `score_threshold`. Such a draft is accepted even in the
/// last round or over budget. Budgets apply to each round and to all together. Only the time of open rounds counts,
/// without pauses: the rounds take at most `max_rounds` times `round_timeout_ms`.
pub fn next_action(policy: &Policy, rounds: &[RoundSummary], invalid_drafts_max: u32, now: Timestamp) -> RoundAction {
    let Some(last) = rounds.last() else { return RoundAction::Wait };
    let total = rounds.iter().fold(0_u64, |sum, round| sum.saturating_add(round.tokens));
    let is_dear =
        last.tokens > policy.token_budget_per_round || policy.total_token_budget.is_some_and(|budget| total > budget);
    let Some(score) = last.score else {
        return if now.ms_since(last.started_at) >= policy.round_timeout_ms {
            RoundAction::Stop(StopReason::Timeout)
        } else if is_dear {
            RoundAction::Stop(StopReason::Budget)
        } else if last.invalid_drafts >= invalid_drafts_max {
            RoundAction::Stop(StopReason::InvalidDrafts)
        } else {
            RoundAction::Wait
        };
    };
    match last.human_choice {
        Some(HumanChoice::Accept) => return RoundAction::Accept,
        Some(HumanChoice::Stop) => return RoundAction::Stop(StopReason::Hitl),
        Some(HumanChoice::Continue) | None => {}
    }
    let is_good = last.is_valid && score >= policy.score_threshold - NOISE;
    let scores: Vec<f64> = rounds.iter().filter_map(|round| round.score).collect();
    let is_same = last.magnitude.is_some_and(|magnitude| magnitude <= policy.diff_tolerance + NOISE);
    // Small changes that improve a draft are progress.
    let is_better = matches!(scores.as_slice(), [.., before, last] if *last > before + NOISE);
    match last.human_choice {
        None if is_good && policy.hitl > Hitl::None => RoundAction::Pause(PauseReason::FinalAccept),
        None if is_good => RoundAction::Accept,
        _ if is_dear => RoundAction::Stop(StopReason::Budget),
        _ if oscillations(&scores) > policy.oscillation_limit => RoundAction::Stop(StopReason::Oscillation),
        _ if is_same && !is_better => RoundAction::Stop(StopReason::NoProgress),
        _ if u32::try_from(rounds.len()).is_ok_and(|count| count < policy.max_rounds) => match last.human_choice {
            None if policy.hitl == Hitl::PauseBetweenRounds => RoundAction::Pause(PauseReason::BetweenRounds),
            _ => RoundAction::Continue,
        },
        _ => RoundAction::Stop(StopReason::MaxRounds),
    }
}

/// Counts the turns of the scores: sign changes between consecutive nonzero differences. `0.2 0.6 0.4 0.4 0.7` turns
/// twice.
pub fn oscillations(scores: &[f64]) -> u32 {
    let rises = scores.windows(2).filter_map(|pair| {
        let difference = pair.get(1)? - pair.first()?;
        (difference.abs() > NOISE).then_some(difference > 0.0)
    });
    let rises: Vec<bool> = rises.collect();
    u32::try_from(rises.windows(2).filter(|pair| pair.first() != pair.get(1)).count()).unwrap_or(u32::MAX)
}
