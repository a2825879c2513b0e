//! `builtin:perceive` and `builtin:begin`: what users say is taken down at once, and taken up one after the other.
//!
//! A question waits until a message answers it clearly, until it expires, or whoever asked has been at work again. Several
//! departments may have asked something: what answers more than one of them answers none. What is no answer is a message like
//! any other, with the latest question beside it. An offer is made for one message: later, a yes may mean anything.

use patchboard_kernel::id::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answers::answer;
use super::found::Asked;

/// Characters of a message.
pub const MESSAGE_CHARS_MAX: usize = 4000;

/// What a user has said, in a signal: a text, or an object with one.
///
/// # Errors
/// What is wrong with it.
pub fn perceived(signal: Option<&Value>) -> Result<Value, String> {
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

/// A question that waits. Whatever else it holds is for the department that has asked, and is kept as it is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct Question {
    /// As the department gave it.
    pub whole: Value,
    /// What of it is gone by.
    pub asked: Asked,
}

impl TryFrom<Value> for Question {
    type Error = String;

    fn try_from(whole: Value) -> Result<Self, String> {
        let asked: Asked =
            serde_json::from_value(whole.clone()).map_err(|why| format!("what waits is no question: {why}"))?;
        if asked.department.is_empty() {
            return Err("what waits is no question: it has no `department`".to_owned());
        }
        Ok(Self { whole, asked })
    }
}

impl From<Question> for Value {
    fn from(question: Question) -> Self {
        question.whole
    }
}

/// What the turns go by.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    /// The turn that was.
    pub turn: Option<&'a Turn>,
    /// What its results ask, in their order.
    pub asked: &'a [Question],
    /// Who has been at work in it.
    pub worked: &'a [String],
    /// The time.
    pub now: Timestamp,
}

impl Before<'_> {
    /// The questions that wait, the latest first.
    fn waiting(&self) -> impl Iterator<Item = &Question> {
        let earlier = self.turn.into_iter().flat_map(|turn| turn.waits.iter().chain(&turn.open));
        let is_open = |question: &&Question| !question.asked.offer && !self.worked.contains(&question.asked.department);
        self.asked.iter().rev().chain(earlier.filter(is_open))
    }
}

/// What one message is about.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Turn {
    /// Which message, from 1.
    pub n: u64,
    /// What it says.
    pub text: String,
    /// The question it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Question>,
    /// The question that it does not answer clearly, and that still waits: the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Question>,
    /// Others that wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<Question>,
    /// The question that was not answered in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<String>,
}

impl Turn {
    /// The turn of the next message, which says this.
    pub fn next(text: &str, before: Before<'_>) -> Self {
        let n = before.turn.map_or(1, |turn| turn.n + 1);
        let is_late = |question: &&Question| question.asked.expires_at.is_some_and(|until| before.now.0 >= until);
        let (late, mut open): (Vec<&Question>, Vec<&Question>) = before.waiting().partition(is_late);
        let expired = late.iter().find(|question| !question.asked.offer);
        let answered: Vec<usize> =
            (0..open.len()).filter(|index| answer(&open[*index].asked, text).is_some()).collect();
        let pending = match answered[..] {
            [only] => Some(open.remove(only).clone()),
            _ => None,
        };
        let waits = if pending.is_none() && !open.is_empty() { Some(open.remove(0).clone()) } else { None };
        Self {
            n,
            text: text.to_owned(),
            pending,
            waits,
            open: open.into_iter().cloned().collect(),
            expired: expired.and_then(|question| question.asked.question.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
