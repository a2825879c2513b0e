//! What persons read of a negotiation: questions, why it goes on, and why it ended.

use super::report::{DecidedBy, Version};
use super::state::Question;
use super::stop::{self, Pause, Round, Said};
use super::{EVENTS_MAX, Policy, StopReason};

/// Characters of a topic in a question.
const TOPIC_CHARS_MAX: usize = 100;

/// What a person is asked after a round.
pub(super) fn question(topic: &str, policy: &Policy, rounds: &[Round], pause: Pause) -> Question {
    let score = rounds.last().and_then(|round| round.score).unwrap_or_default();
    let what = match pause {
        Pause::BetweenRounds => {
            "Shall there be another round (continue), is its draft taken (accept), or is it over (stop)?"
        }
        Pause::FinalAccept => {
            "Is its draft taken (accept), shall there be another round (continue), or is it over (stop)?"
        }
    };
    let topic: String = topic.chars().take(TOPIC_CHARS_MAX).collect();
    let text = format!(
        "Round {} of the negotiation about \"{topic}\" has a score of {}; {} is good enough. {what}",
        rounds.len(),
        short(score),
        short(policy.score_threshold)
    );
    Question { text, choices: Said::ALL.map(|(choice, _)| choice.to_owned()).to_vec() }
}

/// Why a version was taken.
pub(super) fn why_accepted(version: &Version, decided_by: DecidedBy, score: f64, policy: &Policy) -> String {
    let Version { n, from, .. } = version;
    match decided_by {
        DecidedBy::Hitl => format!("a person takes version {n} of {from}, with a score of {}", short(score)),
        DecidedBy::Consensus | DecidedBy::Policy | DecidedBy::Party => {
            format!(
                "version {n} of {from} has a score of {}, and {} is enough",
                short(score),
                short(policy.score_threshold)
            )
        }
    }
}

/// Why there is another round.
pub(super) fn why_continued(decided_by: DecidedBy, rounds: &[Round], policy: &Policy) -> String {
    let (round, score) = (rounds.len(), rounds.last().and_then(|round| round.score).unwrap_or_default());
    match decided_by {
        DecidedBy::Hitl => format!("a person lets it go on after round {round}, with a score of {}", short(score)),
        DecidedBy::Consensus | DecidedBy::Policy | DecidedBy::Party => format!(
            "round {round} has a score of {}, {} is enough, and nothing ends it",
            short(score),
            short(policy.score_threshold)
        ),
    }
}

/// Why somebody has ended it.
pub(super) fn why_withdrawn(from: &str, reason: &str) -> String {
    format!("{from} has ended it: {reason}")
}

/// Why it ended without a result.
pub(super) fn why_aborted(policy: &Policy, rounds: &[Round], reason: StopReason) -> String {
    let round = rounds.len();
    let scores: Vec<f64> = rounds.iter().filter_map(|round| round.score).collect();
    match reason {
        StopReason::ThresholdMet => "a draft is good enough".to_owned(),
        StopReason::Hitl => format!("it was stopped after round {round}"),
        StopReason::Budget => {
            let (last, all) = (rounds.last().map_or(0, |last| last.tokens), rounds.iter().map(|round| round.tokens));
            let total = policy.total_token_budget.map(|total| format!(", {total} in all")).unwrap_or_default();
            let all = all.fold(0, u64::saturating_add);
            format!(
                "round {round} took {last} tokens, and {all} were taken in all; {} a round are allowed{total}",
                policy.token_budget_per_round
            )
        }
        StopReason::Oscillation => {
            format!("scores turned {} times, more than {}", stop::oscillations(&scores), policy.oscillation_limit)
        }
        StopReason::NoProgress => {
            let magnitude = rounds.last().and_then(|last| last.magnitude).unwrap_or_default();
            format!(
                "round {round} changed {} of the draft, no more than {}, and made it no better",
                short(magnitude),
                short(policy.diff_tolerance)
            )
        }
        StopReason::MaxRounds => format!("there were {round} rounds, and no more may be"),
        StopReason::Timeout => format!("round {round} took longer than {} ms", policy.round_timeout_ms),
        StopReason::InvalidDrafts => format!("round {round} had too many invalid drafts"),
        StopReason::UnknownProfile => "`open` names a profile that is not there".to_owned(),
        StopReason::Withdrawn => "it was aborted".to_owned(),
        StopReason::TooManyEvents => format!("there is no room for more than {EVENTS_MAX} events"),
    }
}

/// A number with as many digits as people read.
fn short(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
