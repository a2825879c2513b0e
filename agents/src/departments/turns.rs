//! `builtin:perceive` and `builtin:begin`: what users say is taken down at once, and taken up one after the other.
//!
//! A question waits until a message answers it clearly, until it expires, another is asked, or whoever asked has been at
//! work again. What is no answer is a message like any other, with the question beside it. An offer is made for one
//! message: later, a yes may mean anything.

use patchboard_kernel::id::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answers::answer;
use super::found::Pending;

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
    /// Who has been at work in it.
    pub worked: &'a [String],
    /// The time.
    pub now: Timestamp,
}

impl Before<'_> {
    /// The question that waits, if one does.
    fn waits(&self) -> Option<Pending> {
        let asked = self.last.and_then(|last| last.get("pending")).cloned();
        if let Some(asked) = asked.and_then(|pending| serde_json::from_value(pending).ok()) {
            return Some(asked);
        }
        let before = self.turn?.waits.as_ref()?;
        (!before.offer && !self.worked.contains(&before.department)).then(|| before.clone())
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
    pub pending: Option<Pending>,
    /// The question that it does not answer clearly, and that still waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Pending>,
    /// The question that was not answered in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<String>,
}

impl Turn {
    /// The turn of the next message, which says this.
    pub fn next(text: &str, before: Before<'_>) -> Self {
        let n = before.turn.map_or(1, |turn| turn.n + 1);
        let turn = Self { n, text: text.to_owned(), pending: None, waits: None, expired: None };
        match before.waits() {
            None => turn,
            Some(waits) if before.now.0 >= waits.expires_at => {
                Self { expired: waits.question.filter(|_| !waits.offer), ..turn }
            }
            Some(waits) if answer(&waits, text).is_some() => Self { pending: Some(waits), ..turn },
            Some(waits) => Self { waits: Some(waits), ..turn },
        }
    }
}

#[cfg(test)]
mod tests;
