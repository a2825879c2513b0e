//! Handoff requests and their context.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{HandoffCode, HandoffError};
use crate::{is_json_type, media_type};
use patchboard_kernel::json;

/// Maximum characters of an id, a name, a capability or a content type.
pub const NAME_CHARS_MAX: usize = 100;
/// Maximum characters of a reason.
pub const REASON_CHARS_MAX: usize = 4000;
/// Maximum number of required capabilities.
pub const CAPABILITIES_MAX: usize = 32;
/// Maximum bytes of a context, as JSON.
pub const CONTENT_BYTES_MAX: usize = 64 * 1024;
/// Maximum timeout, in milliseconds.
pub const TIMEOUT_MS_MAX: i64 = 366 * 86_400_000;

/// Request that another agent takes over a task (W51).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Identifies the handoff.
    pub request_id: String,
    /// The agent that hands over its task.
    pub from_agent: String,
    /// The agent that is asked; empty if any capable agent may take it ([`route`](super::route())).
    #[serde(default)]
    pub to_agent: String,
    /// Reason for the handoff.
    pub reason: String,
    /// Capabilities that the receiving agent must have.
    #[serde(default)]
    pub capabilities_required: Vec<String>,
    /// Priority; higher is more urgent.
    #[serde(default)]
    pub priority: i32,
    /// Timeout in milliseconds, after which the request expires.
    pub timeout_ms: i64,
    /// Context of the task.
    pub context: Context,
    /// The task's id on a board.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub task: String,
}

/// A snapshot of a task's context (W55).
///
/// | content type | `content` | bytes |
/// |---|---|---|
/// | `application/json` and `…+json` | any value | its text without white space |
/// | `text/…` | a text | its UTF-8 |
/// | any other | a text, Base64 (RFC 4648, with padding) | the decoded bytes |
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Context {
    /// MIME type of the content.
    pub content_type: String,
    /// The snapshot itself.
    pub content: Value,
}

enum ContentEncoding {
    Json,
    Text,
    Base64,
}

impl ContentEncoding {
    fn for_content_type(content_type: &str) -> Self {
        match content_type {
            json if is_json_type(json) => Self::Json,
            text if media_type(text).starts_with("text/") => Self::Text,
            _ => Self::Base64,
        }
    }
}

impl Context {
    /// Creates a snapshot from its bytes. Fails with `handoff_bad_context` if the bytes do not match the content type.
    pub fn from_bytes(content_type: &str, bytes: &[u8]) -> Result<Self, HandoffError> {
        let content = match ContentEncoding::for_content_type(content_type) {
            ContentEncoding::Json => {
                json::parse(bytes, json::Limits { bytes: CONTENT_BYTES_MAX, depth: json::DEPTH_MAX })
                    .map_err(|_| bad(content_type, "strict JSON"))?
            }
            ContentEncoding::Text => {
                std::str::from_utf8(bytes).map_err(|_| bad(content_type, "UTF-8"))?.to_owned().into()
            }
            ContentEncoding::Base64 => STANDARD.encode(bytes).into(),
        };
        Ok(Self { content_type: content_type.to_owned(), content })
    }

    /// Returns the bytes; for JSON, the compact text of the value. Fails with `handoff_bad_context` if the content does
    /// not match its type.
    pub fn bytes(&self) -> Result<Vec<u8>, HandoffError> {
        let text = || self.content.as_str().ok_or_else(|| bad(&self.content_type, "a text"));
        Ok(match ContentEncoding::for_content_type(&self.content_type) {
            ContentEncoding::Json => self.content.to_string().into_bytes(),
            ContentEncoding::Text => text()?.as_bytes().to_vec(),
            ContentEncoding::Base64 => STANDARD.decode(text()?).map_err(|_| bad(&self.content_type, "Base64"))?,
        })
    }
}

fn bad(content_type: &str, what: &str) -> HandoffError {
    HandoffError::new(HandoffCode::BadContext, format!("the content of a `{content_type}` is {what}, and this is not"))
}

impl Request {
    /// Validates the request. Fails with `handoff_bad_request` or `handoff_bad_context` for the first missing,
    /// oversized or invalid member.
    pub fn check(&self) -> Result<(), HandoffError> {
        let wrong = |message: String| Err(HandoffError::new(HandoffCode::BadRequest, message));
        let names = [
            ("request_id", &self.request_id, true),
            ("from_agent", &self.from_agent, true),
            ("to_agent", &self.to_agent, false),
            ("context.content_type", &self.context.content_type, true),
            ("task", &self.task, false),
        ];
        let names = names.into_iter().chain(self.capabilities_required.iter().map(|name| ("a capability", name, true)));
        for (what, name, is_needed) in names {
            if is_needed && name.trim().is_empty() {
                return wrong(format!("{what} is empty"));
            }
            if name.chars().nth(NAME_CHARS_MAX).is_some() {
                return wrong(format!("{what} has more than {NAME_CHARS_MAX} characters"));
            }
        }
        if self.reason.trim().is_empty() || self.reason.chars().nth(REASON_CHARS_MAX).is_some() {
            return wrong(format!("a reason has 1 to {REASON_CHARS_MAX} characters"));
        }
        if self.capabilities_required.len() > CAPABILITIES_MAX {
            return wrong(format!("there are more than {CAPABILITIES_MAX} capabilities"));
        }
        if !(1..=TIMEOUT_MS_MAX).contains(&self.timeout_ms) {
            return wrong(format!("timeout_ms is not from 1 to {TIMEOUT_MS_MAX}"));
        }
        if !usize::try_from(json::size(&self.context.content)).is_ok_and(|bytes| bytes <= CONTENT_BYTES_MAX) {
            return wrong(format!("the context has more than {CONTENT_BYTES_MAX} bytes"));
        }
        self.context.bytes().map(drop)
    }
}
