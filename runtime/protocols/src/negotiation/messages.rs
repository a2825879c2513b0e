//! User-readable texts of a negotiation: questions, and rationales of its decisions.

use serde_json::Value;

use super::report::{DecidedBy, RecordedEvaluation, Version};
use super::state::Question;
use super::stop_rules::{self, HumanChoice, PauseReason, RoundSummary};
use super::{EVENTS_MAX, Policy, StopReason};
use patchboard_kernel::canonical;
use patchboard_kernel::text::{decimals, one_line};

/// Maximum characters of a question.
const QUESTION_CHARS_MAX: usize = 2000;
/// Maximum characters of a topic in a question.
const TOPIC_CHARS_MAX: usize = 100;
/// Maximum characters of a name, and of a content type.
const NAME_CHARS_MAX: usize = 100;
/// Maximum characters of an evaluator's notes.
const NOTES_CHARS_MAX: usize = 240;
/// Maximum characters of all evaluations together, without the sentence that counts the omitted ones.
const EVALUATIONS_CHARS_MAX: usize = 800;

/// Returns the question to a person after a round. The question, the author and each evaluation take one line; the
/// draft gets the remaining characters.
pub(super) fn question(
    topic: &str,
    policy: &Policy,
    rounds: &[RoundSummary],
    pause: PauseReason,
    version: Option<&Version>,
    recorded: &[RecordedEvaluation],
) -> Question {
    let score = rounds.last().and_then(|round| round.score).unwrap_or_default();
    let what = match pause {
        PauseReason::BetweenRounds => {
            "Shall there be another round (continue), is its draft taken (accept), or is it over (stop)?"
        }
        PauseReason::FinalAccept => {
            "Is its draft taken (accept), shall there be another round (continue), or is it over (stop)?"
        }
    };
    let mut text = format!(
        "Round {} of the negotiation about \"{}\" has a score of {}; {} is good enough. {what}",
        rounds.len(),
        one_line(topic, TOPIC_CHARS_MAX),
        decimals(score),
        decimals(policy.score_threshold)
    );
    if let Some(Version { from, ct, content, .. }) = version {
        let [from, ct] = [from, ct].map(|name| one_line(name, NAME_CHARS_MAX));
        text.push_str(&format!("\nThe draft is of {from} ({ct})."));
        text.push_str(&evaluations(recorded));
        let left = QUESTION_CHARS_MAX.saturating_sub(text.chars().count());
        text.push_str(&draft(content.as_ref(), left));
    }
    Question { text, choices: HumanChoice::ALL.iter().map(ToString::to_string).collect() }
}

/// Formats the evaluations, one per line.
fn evaluations(recorded: &[RecordedEvaluation]) -> String {
    let mut lines = String::new();
    for (at, RecordedEvaluation { from, score, notes }) in recorded.iter().enumerate() {
        let notes = one_line(notes, NOTES_CHARS_MAX);
        let notes = if notes.is_empty() { notes } else { format!("; notes: {notes}") };
        let line = format!("\n{}: score {}{notes}", one_line(from, NAME_CHARS_MAX), decimals(*score));
        if lines.chars().count() + line.chars().count() > EVALUATIONS_CHARS_MAX {
            return format!("{lines}\n{} more left out here.", recorded.len() - at);
        }
        lines.push_str(&line);
    }
    lines
}

/// Formats a draft in one line of at most `chars_max` characters; a truncated draft is marked.
fn draft(content: Option<&Value>, chars_max: usize) -> String {
    let Some(content) = content else { return "\nThe draft is neither JSON nor a text.".to_owned() };
    let text = content.as_str().map_or_else(|| canonical::to_string(content), str::to_owned);
    let text = one_line(&text, usize::MAX);
    let whole = format!("\nThe draft: {text}");
    if whole.chars().count() <= chars_max {
        return whole;
    }
    let head = format!("\nThe draft, cut (it has {} characters): ", text.chars().count());
    let left = chars_max.saturating_sub(head.chars().count());
    format!("{head}{}", one_line(&text, left))
}

pub(super) fn why_accepted(version: &Version, decided_by: DecidedBy, score: f64, policy: &Policy) -> String {
    let Version { n, from, .. } = version;
    match decided_by {
        DecidedBy::Hitl => format!("a person takes version {n} of {from}, with a score of {}", decimals(score)),
        DecidedBy::Consensus | DecidedBy::Policy | DecidedBy::Party => {
            format!(
                "version {n} of {from} has a score of {}, and {} is enough",
                decimals(score),
                decimals(policy.score_threshold)
            )
        }
    }
}

/// Explains another round.
pub(super) fn why_continued(decided_by: DecidedBy, rounds: &[RoundSummary], policy: &Policy) -> String {
    let (round, score) = (rounds.len(), rounds.last().and_then(|round| round.score).unwrap_or_default());
    match decided_by {
        DecidedBy::Hitl => format!("a person lets it go on after round {round}, with a score of {}", decimals(score)),
        DecidedBy::Consensus | DecidedBy::Policy | DecidedBy::Party => format!(
            "round {round} has a score of {}, {} is enough, and nothing ends it",
            decimals(score),
            decimals(policy.score_threshold)
        ),
    }
}

/// Explains an end without a result.
pub(super) fn why_aborted(policy: &Policy, rounds: &[RoundSummary], reason: StopReason) -> String {
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
            format!("scores turned {} times, more than {}", stop_rules::oscillations(&scores), policy.oscillation_limit)
        }
        StopReason::NoProgress => {
            let magnitude = rounds.last().and_then(|last| last.magnitude).unwrap_or_default();
            format!(
                "round {round} changed {} of the draft, no more than {}, and made it no better",
                decimals(magnitude),
                decimals(policy.diff_tolerance)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use patchboard_kernel::id::Timestamp;

    fn asked(content: Option<Value>, heard: &[RecordedEvaluation]) -> String {
        let version = Version {
            n: 1,
            event: 2,
            from: "ann".to_owned(),
            ct: "application/json".to_owned(),
            at: Timestamp::default(),
            content,
            checks: Vec::new(),
        };
        let policy = Policy::default();
        question("steel\nand iron", &policy, &[], PauseReason::FinalAccept, Some(&version), heard).text
    }

    fn heard(from: &str, notes: &str) -> RecordedEvaluation {
        RecordedEvaluation { from: from.to_owned(), score: 0.4, notes: notes.to_owned() }
    }

    #[test]
    fn a_person_sees_the_draft_with_its_author_and_evaluations() {
        let text = asked(Some(json!({"b": 1, "a": "x\ny"})), &[heard("eve", "good for\none side"), heard("fay", " ")]);
        let (first, rest) = text.split_once('\n').expect("lines");
        assert!(
            first.starts_with("Round 0 of the negotiation about \"steel and iron\" has a score of 0; 0.8"),
            "{text}"
        );
        assert_eq!(
            rest,
            "The draft is of ann (application/json).\neve: score 0.4; notes: good for one side\nfay: score 0.4\n\
             The draft: {\"a\":\"x\\ny\",\"b\":1}"
        );
        assert!(asked(Some(json!("a text\tof its own")), &[]).ends_with("\nThe draft: a text of its own"));
        assert!(asked(None, &[]).ends_with("\nThe draft is neither JSON nor a text."));
    }

    #[test]
    fn however_much_is_said_a_question_is_no_longer_than_one_may_be() {
        let all: Vec<RecordedEvaluation> =
            (0..64).map(|n| heard(&format!("{}{n}", "e".repeat(120)), &"w".repeat(100_000))).collect();
        let long = asked(Some(json!("d".repeat(65_536))), &all);
        assert_eq!(long.chars().count(), QUESTION_CHARS_MAX, "{long}");
        assert!(long.contains(" more left out here.\nThe draft, cut (it has 65536 characters): ddd"), "{long}");
        assert!(long.matches("score 0.4").count() >= 2, "{long}");
        let short = asked(Some(json!("d".repeat(65_536))), &[]);
        assert!(short.matches('d').count() > 1600, "what evaluations leave is the draft's: {short}");
    }
}
