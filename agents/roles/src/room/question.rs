//! Question to a person about an artefact: why the votes do not decide it, the critics' comments, and its content.

use patchboard_protocols::room::{Decision, Vote};
use serde_json::Value;

use patchboard_kernel::text::{counted, one_line};

const QUESTION_CHARS_MAX: usize = 2000;
const ID_CHARS_MAX: usize = 100;
const KIND_CHARS_MAX: usize = 100;
const REASON_CHARS_MAX: usize = 400;
const CRITIC_CHARS_MAX: usize = 60;
/// Characters of all weaknesses of a vote; as many for all its recommendations.
const TEXTS_CHARS_MAX: usize = 120;
/// Characters of all votes together, without the sentence that counts the omitted ones.
const VOTES_CHARS_MAX: usize = 800;

/// Content of a question.
pub(super) struct Escalation<'a> {
    pub(super) artifact_id: &'a str,
    /// Type and media type, as far as known.
    pub(super) kinds: Vec<String>,
    /// The artefact, if the seat may read it.
    pub(super) artifact: Option<Value>,
    pub(super) decision: &'a Decision,
    /// Counted votes.
    pub(super) votes: Vec<Vote>,
}

impl Escalation<'_> {
    /// Formats the question: a line each for the request, every vote, and the artefact with the characters that are
    /// left.
    pub(super) fn question(&self) -> String {
        let kinds = one_line(&self.kinds.join(", "), KIND_CHARS_MAX);
        let kinds = if kinds.is_empty() { kinds } else { format!(" ({kinds})") };
        let mut question = format!(
            "What becomes of {}{kinds}? The votes do not decide it: {}.",
            one_line(self.artifact_id, ID_CHARS_MAX),
            one_line(&self.decision.reason, REASON_CHARS_MAX)
        );
        question.push_str(&self.votes());
        if let Some(artifact) = &self.artifact {
            let left = QUESTION_CHARS_MAX.saturating_sub(question.chars().count());
            question.push_str(&excerpt(artifact, left));
        }
        question
    }

    fn votes(&self) -> String {
        let mut lines = String::new();
        for (at, vote) in self.votes.iter().enumerate() {
            let line = line(vote);
            if lines.chars().count() + line.chars().count() > VOTES_CHARS_MAX {
                let rest = counted(self.votes.len() - at, "further vote");
                return format!("{lines}\n{rest} left out here.");
            }
            lines.push_str(&line);
        }
        lines
    }
}

fn line(vote: &Vote) -> String {
    let critic = one_line(&vote.critic_id, CRITIC_CHARS_MAX);
    if vote.abstain {
        return format!("\n{critic} abstains.");
    }
    let passed = if vote.passed { "passed" } else { "did not pass" };
    let texts = |name: &str, texts: &[String]| match texts.is_empty() {
        true => String::new(),
        false => format!("; {name}: {}", one_line(&texts.join(" / "), TEXTS_CHARS_MAX)),
    };
    format!(
        "\n{critic}: score {}, confidence {}, {passed}{}{}",
        hundredths(vote.score),
        hundredths(vote.confidence),
        texts("weaknesses", &vote.weaknesses),
        texts("recommendations", &vote.recommendations)
    )
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

/// Formats an artefact as a line of at most `chars_max` characters, marked if it is truncated.
fn excerpt(artifact: &Value, chars_max: usize) -> String {
    let text = artifact.as_str().map_or_else(|| artifact.to_string(), str::to_owned);
    let text = one_line(&text, usize::MAX);
    let chars = text.chars().count();
    let whole = format!("\nThe artefact: {text}");
    if whole.chars().count() <= chars_max {
        return whole;
    }
    let head = format!("\nThe artefact, cut (it has {chars} characters): ");
    let left = chars_max.saturating_sub(head.chars().count());
    format!("{head}{}", one_line(&text, left))
}

#[cfg(test)]
mod tests;
