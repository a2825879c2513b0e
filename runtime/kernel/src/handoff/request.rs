//! What is asked for, and the context that goes with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{HandoffCode, Refused};
use crate::json;

/// Characters of an id, of a name, of a capability and of a content type.
pub const NAME_CHARS_MAX: usize = 100;
/// Characters of a reason.
pub const REASON_CHARS_MAX: usize = 4000;
/// How many capabilities may be required.
pub const CAPABILITIES_MAX: usize = 32;
/// Bytes of a context, as JSON.
pub const CONTENT_BYTES_MAX: usize = 64 * 1024;
/// How long somebody may be waited for.
pub const TIMEOUT_MS_MAX: i64 = 366 * 86_400_000;

/// That somebody is to take a piece of work (W51).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Names the handoff.
    pub request_id: String,
    /// Whose work it is.
    pub from_agent: String,
    /// Who is to take it; empty: whoever can ([`route`](super::route())).
    #[serde(default)]
    pub to_agent: String,
    /// Why it is handed over.
    pub reason: String,
    /// What whoever takes it must be able to do.
    #[serde(default)]
    pub capabilities_required: Vec<String>,
    /// The higher, the more urgent.
    #[serde(default)]
    pub priority: i32,
    /// Milliseconds after which it expires.
    pub timeout_ms: i64,
    /// What is known of the work.
    pub context: Context,
    /// Which piece of work: its id on a board.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub task: String,
}

/// A snapshot of what is known of a piece of work (W55).
///
/// | content type | `content` | bytes |
/// |---|---|---|
/// | `application/json` and `…+json` | any value | its text without white space |
/// | `text/…` | a text | its UTF-8 |
/// | any other | a text, Base64 (RFC 4648, with padding) | what that says |
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Context {
    /// What it is.
    pub content_type: String,
    /// The snapshot itself.
    pub content: Value,
}

/// How content of a type is written.
enum Written {
    Json,
    Text,
    Base64,
}

impl Written {
    fn of(content_type: &str) -> Self {
        // Parameters, like a charset, come behind a semicolon.
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/json" => Self::Json,
            other if other.ends_with("+json") => Self::Json,
            other if other.starts_with("text/") => Self::Text,
            _ => Self::Base64,
        }
    }
}

impl Context {
    /// A snapshot from its bytes.
    ///
    /// # Errors
    /// `handoff_bad_context`: they are not what the type says.
    pub fn of_bytes(content_type: &str, bytes: &[u8]) -> Result<Self, Refused> {
        let content = match Written::of(content_type) {
            Written::Json => json::parse(bytes, json::Limits { bytes: CONTENT_BYTES_MAX, depth: json::DEPTH_MAX })
                .map_err(|_| bad(content_type, "strict JSON"))?,
            Written::Text => std::str::from_utf8(bytes).map_err(|_| bad(content_type, "UTF-8"))?.to_owned().into(),
            Written::Base64 => STANDARD.encode(bytes).into(),
        };
        Ok(Self { content_type: content_type.to_owned(), content })
    }

    /// Its bytes; of JSON those of the same value.
    ///
    /// # Errors
    /// `handoff_bad_context`: the content is not what the type says.
    pub fn bytes(&self) -> Result<Vec<u8>, Refused> {
        let text = || self.content.as_str().ok_or_else(|| bad(&self.content_type, "a text"));
        Ok(match Written::of(&self.content_type) {
            Written::Json => self.content.to_string().into_bytes(),
            Written::Text => text()?.as_bytes().to_vec(),
            Written::Base64 => STANDARD.decode(text()?).map_err(|_| bad(&self.content_type, "Base64"))?,
        })
    }
}

fn bad(content_type: &str, what: &str) -> Refused {
    Refused::new(HandoffCode::BadContext, format!("the content of a `{content_type}` is {what}, and this is not"))
}

impl Request {
    /// Whether it can be asked.
    ///
    /// # Errors
    /// `handoff_bad_request` and `handoff_bad_context`: the first member that is missing, too large, or not what it says.
    pub fn check(&self) -> Result<(), Refused> {
        let wrong = |message: String| Err(Refused::new(HandoffCode::BadRequest, message));
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
