//! `builtin:perceive` and `builtin:begin`: messages of users are recorded at once, and processed one after the other.
//!
//! A question is pending until a message answers it clearly, it expires, or its department has worked again. Several
//! departments may have asked; a message that answers more than one of them answers none. A message that is no answer
//! is handled like any other, beside the latest question. An offer is valid for one message: later, a yes may mean
//! anything.

use patchboard_kernel::id::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answers::answer;
use super::types::QuestionSummary;

/// Greatest length of a message in characters.
pub const MESSAGE_CHARS_MAX: usize = 4000;

/// Reads the message of a user from a signal: a text, or an object with a text.
pub fn parse_message(signal: Option<&Value>) -> Result<Value, String> {
    let text = match signal {
        Some(Value::String(text)) => Some(text.as_str()),
        Some(value) => value.get("text").and_then(Value::as_str),
        None => None,
    };
    let text = text.map(str::trim).filter(|text| !text.is_empty());
    let text = text.ok_or("the signal has no text: its value is a text, or an object with a text")?;
    if text.chars().count() > MESSAGE_CHARS_MAX {
        return Err(format!("a message has at most {MESSAGE_CHARS_MAX} characters"));
    }
    Ok(json!({"text": text}))
}

/// Pending question. Members beyond [`QuestionSummary`] belong to the department, and are kept unchanged.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct Question {
    /// Question as the department wrote it.
    pub raw: Value,
    /// Members used here.
    pub summary: QuestionSummary,
}

impl TryFrom<Value> for Question {
    type Error = String;

    fn try_from(whole: Value) -> Result<Self, String> {
        let summary: QuestionSummary =
            serde_json::from_value(whole.clone()).map_err(|why| format!("what waits is no question: {why}"))?;
        if summary.department.is_empty() {
            return Err("what waits is no question: it has no `department`".to_owned());
        }
        Ok(Self { raw: whole, summary })
    }
}

impl From<Question> for Value {
    fn from(question: Question) -> Self {
        question.raw
    }
}

/// Input for the next turn.
#[derive(Clone, Copy, Debug)]
pub struct TurnContext<'a> {
    /// Previous turn.
    pub turn: Option<&'a Turn>,
    /// Questions in its results, in order.
    pub questions: &'a [Question],
    /// Departments that worked in it.
    pub departments: &'a [String],
    /// Current time.
    pub now: Timestamp,
}

impl TurnContext<'_> {
    /// Returns the pending questions, latest first.
    fn pending_questions(&self) -> impl Iterator<Item = &Question> {
        let earlier = self.turn.into_iter().flat_map(|turn| turn.waits.iter().chain(&turn.open));
        let is_open =
            |question: &&Question| !question.summary.offer && !self.departments.contains(&question.summary.department);
        self.questions.iter().rev().chain(earlier.filter(is_open))
    }
}

/// Processing of one message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Turn {
    /// Number of the message, from 1.
    pub n: u64,
    /// Text of the message.
    pub text: String,
    /// Question that the message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Question>,
    /// Latest question that is still pending, because the message does not answer it clearly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Question>,
    /// Other pending questions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<Question>,
    /// Question that expired unanswered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<String>,
}

impl Turn {
    /// Builds the turn of the next message.
    pub fn next(text: &str, before: TurnContext<'_>) -> Self {
        let n = before.turn.map_or(1, |turn| turn.n + 1);
        let is_late = |question: &&Question| question.summary.expires_at.is_some_and(|until| before.now.0 >= until);
        let (late, mut open): (Vec<&Question>, Vec<&Question>) = before.pending_questions().partition(is_late);
        let expired = late.iter().find(|question| !question.summary.offer);
        let answered: Vec<usize> =
            (0..open.len()).filter(|index| answer(&open[*index].summary, text).is_some()).collect();
        let pending = if let [only] = answered[..] { Some(open.remove(only).clone()) } else { None };
        let waits = if pending.is_none() && !open.is_empty() { Some(open.remove(0).clone()) } else { None };
        Self {
            n,
            text: text.to_owned(),
            pending,
            waits,
            open: open.into_iter().cloned().collect(),
            expired: expired.and_then(|question| question.summary.question.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
