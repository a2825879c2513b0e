//! `builtin:perceive` and `builtin:begin`: what users say is taken down at once, and taken up one after the other.
//!
//! A message answers a question if one was asked in the turn before and still waits. Of an offer it is one only if it says
//! so: nobody has to answer an offer.

use patchboard_kernel::id::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::confirm::Ending;
use super::found::Pending;
use super::resume::is_answer;

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

/// What the turns go by.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    /// The turn that was.
    pub turn: Option<&'a Turn>,
    /// The last of its results.
    pub last: Option<&'a Value>,
    /// The time.
    pub now: Timestamp,
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
    pub pending: Option<Pending>,
    /// The question that was not answered in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<String>,
}

impl Turn {
    /// The turn of the next message, which says this.
    pub fn next(text: &str, before: Before<'_>) -> Self {
        let n = before.turn.map_or(1, |turn| turn.n + 1);
        let turn = Self { n, text: text.to_owned(), pending: None, expired: None };
        let Some(last) = before.last else { return turn };
        let pending = last.get("pending").cloned().and_then(|pending| serde_json::from_value::<Pending>(pending).ok());
        let Some(pending) = pending else { return turn };
        let is_offer = last.get("status") == Some(&json!(Ending::Refusal));
        if is_offer && !is_answer(&pending, text) {
            return turn;
        }
        if before.now.0 >= pending.expires_at {
            let question = last.get("question").or_else(|| last.get("text")).and_then(Value::as_str);
            return Self { expired: question.filter(|_| !is_offer).map(str::to_owned), ..turn };
        }
        Self { pending: Some(pending), ..turn }
    }
}

#[cfg(test)]
mod tests;
