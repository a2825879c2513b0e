//! Assembles a stream of server-sent events into one answer of its protocol.
//!
//! Pure: takes bytes as they arrive and keeps at most [`TEXT_MAX`] bytes of text. Only the `data` of events is read.
//! The event parser, its bounds and the treatment of errors serve all protocols; each protocol has a [`PartialAnswer`].

mod anthropic;
mod chat;
mod responses;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::http_body;
use crate::config::Api;

/// Text of one stream, and of one line, that is kept, in bytes.
pub(super) const TEXT_MAX: usize = 4 * 1024 * 1024;

/// Size limit of a stream in bytes, framing included.
const STREAM_MAX: usize = 64 * 1024 * 1024;

/// Parts of one answer, at most: tool calls, blocks or items.
const PARTS_MAX: usize = 1024;

/// Tries at parsing bare JSON before its last line.
const BARE_TRIES_MAX: u32 = 64;

trait PartialAnswer: Send {
    /// Adds an event that is no error itself. Returns the body of the error that it carries.
    fn event(&mut self, event: Map<String, Value>) -> Option<Value>;

    fn progress(&self) -> &Progress;

    /// Returns true if the model reported its end.
    fn is_finished(&self) -> bool {
        self.progress().is_over
    }

    fn answer(self: Box<Self>) -> Value;
}

#[derive(Default)]
struct Progress {
    /// Bytes that are kept.
    kept: usize,
    has_content: bool,
    /// No further event belongs to the answer.
    is_over: bool,
}

impl Progress {
    /// Counts bytes of content.
    fn add(&mut self, bytes: usize) {
        self.kept += bytes;
        self.has_content |= bytes > 0;
    }
}

pub(super) struct StreamParser {
    line: Vec<u8>,
    data: Vec<u8>,
    bytes: usize,
    fold: Box<dyn PartialAnswer>,
    error: Option<Value>,
    events: usize,
    /// A line of data has arrived.
    has_data: bool,
    /// The last byte was a carriage return: a line feed after it ends no line.
    is_after_return: bool,
    /// The event has several lines: it was incomplete where another one might have begun.
    is_open: bool,
    /// Failed tries at parsing data without a field name.
    bare: u32,
    is_done: bool,
}

impl StreamParser {
    pub(super) fn new(api: Api) -> Self {
        let fold: Box<dyn PartialAnswer> = match api {
            Api::Chat => Box::new(chat::ChatAnswer::default()),
            Api::Responses => Box::new(responses::ResponsesAnswer::default()),
            Api::Anthropic => Box::new(anthropic::AnthropicAnswer::default()),
        };
        Self {
            line: Vec::new(),
            data: Vec::new(),
            bytes: 0,
            fold,
            error: None,
            events: 0,
            has_data: false,
            is_done: false,
            is_after_return: false,
            is_open: false,
            bare: 0,
        }
    }

    /// Returns true if a body without a content type is a stream of events.
    pub(super) fn is_stream(body: &[u8]) -> bool {
        let start = body.trim_ascii_start();
        let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
        [&b"data:"[..], b"event:", b": ", b"id:", b"retry:"].iter().any(|field| start.starts_with(field))
    }

    /// Adds the next bytes. Returns true if the stream is over.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<bool, String> {
        for byte in bytes {
            if self.is_done {
                break;
            }
            self.bytes += 1;
            match byte {
                b'\n' if self.is_after_return => self.is_after_return = false,
                b'\n' | b'\r' => {
                    self.is_after_return = *byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    self.line(&line);
                }
                byte => {
                    self.is_after_return = false;
                    self.line.push(*byte);
                }
            }
            if self.line.len() + self.data.len() + self.fold.progress().kept > TEXT_MAX || self.bytes > STREAM_MAX {
                return Err(format!("the answer is longer than {TEXT_MAX} bytes"));
            }
        }
        Ok(self.is_done)
    }

    /// Returns true if any data other than keep-alive lines has arrived.
    pub(super) const fn has_data(&self) -> bool {
        self.has_data
    }

    pub(super) fn has_content(&self) -> bool {
        self.fold.progress().has_content
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_done || self.error.is_some() || self.fold.is_finished()
    }

    /// Returns the answer; an error of the server is returned as its body.
    /// Fails if the stream had no event, or an error after parts of the reply.
    pub(super) fn finish(mut self) -> Result<Value, String> {
        let line = std::mem::take(&mut self.line);
        self.line(&line);
        self.event();
        if let Some(error) = self.error.take() {
            return if self.fold.progress().has_content {
                Err(format!(
                    "the stream ended with an error: {}",
                    super::provider_errors::error_message(&error.to_string())
                ))
            } else {
                Ok(error)
            };
        }
        if self.events == 0 {
            return Err("the stream had no events".to_owned());
        }
        let mut answer = self.fold.answer();
        join(&mut answer);
        Ok(answer)
    }

    fn line(&mut self, line: &[u8]) {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        if line.trim_ascii().is_empty() {
            self.event();
        } else if let Some(data) = line.strip_prefix(b"data:") {
            self.has_data = true;
            // Some servers omit the empty line between events.
            if !self.data.is_empty() && data.trim_ascii_start().starts_with(b"{") && !self.is_open {
                // Parsed once per event, so that the time for a stream is not quadratic in its length.
                self.is_open = serde_json::from_slice::<serde::de::IgnoredAny>(&self.data).is_err();
                if !self.is_open {
                    self.event();
                }
            }
            if data.trim_ascii() == b"[DONE]" {
                self.event();
                self.is_done = true;
            } else {
                self.data.extend_from_slice(data);
            }
        } else if self.bare > 0 || self.data.is_empty() && line.trim_ascii_start().starts_with(b"{") {
            // JSON without a field name, in one line or several.
            self.data.extend_from_slice(line);
            self.has_data = true;
            let may_end = self.bare == 0 || line.starts_with(b"}") && self.bare < BARE_TRIES_MAX;
            self.bare += u32::from(may_end);
            if may_end && serde_json::from_slice::<serde::de::IgnoredAny>(&self.data).is_ok() {
                self.event();
            }
        }
    }

    fn event(&mut self) {
        let data = std::mem::take(&mut self.data);
        (self.is_open, self.bare) = (false, 0);
        let Ok(Value::Object(event)) = http_body::event(&String::from_utf8_lossy(&data)) else { return };
        self.events += 1;
        let is_error = event.get("error").is_some_and(|error| !error.is_null())
            || ["object", "type"].iter().any(|name| event.get(*name).is_some_and(|kind| kind == "error"))
            || event.get("choices").is_none() && event.contains_key("message") && event.contains_key("code");
        let error = if is_error { Some(Value::Object(event)) } else { self.fold.event(event) };
        if let Some(error) = error {
            self.error.get_or_insert(error);
        }
        self.is_done |= self.fold.progress().is_over;
    }
}

/// Joins surrogate halves in all texts of an answer.
fn join(answer: &mut Value) {
    match answer {
        Value::String(text) => {
            if let Cow::Owned(joined) = http_body::join_surrogates(text) {
                *text = joined;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(join),
        Value::Object(members) => members.values_mut().for_each(join),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn append(there: &mut Value, delta: &Value) {
    match (there, delta) {
        (Value::String(text), Value::String(more)) => text.push_str(more),
        (Value::Array(items), Value::Array(more)) => items.extend(more.iter().cloned()),
        (there, delta) => *there = delta.clone(),
    }
}

/// Appends text to a member. Returns the length of the addition.
fn append_text(part: &mut Value, name: &str, delta: &Value) -> usize {
    let (Some(part), Some(delta)) = (part.as_object_mut(), delta.as_str()) else { return 0 };
    match part.entry(name.to_owned()).or_insert(Value::Null) {
        Value::String(text) => text.push_str(delta),
        other => *other = delta.into(),
    }
    delta.len()
}
