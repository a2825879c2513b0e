//! Reads a worker's reply: a patch, or an envelope around one (SPEC section 4).

use serde_json::{Map, Value};

use crate::blueprint::{Intent, PatchLimits};
use crate::digest::{Digest, Hasher, sha256};
use crate::json::{self, Limits};
use crate::rejection::{Code, Violation};

/// The deepest reply that is read.
const DEPTH_MAX: usize = 64;

/// A reply as text, or already read by [`crate::json::parse`].
#[derive(Clone, PartialEq, Debug)]
pub enum ReplyBody {
    /// As the agent gave it.
    Text(String),
    /// A patch or an envelope.
    Json(Value),
}

/// A reply that is a proposal.
#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    /// The patch (RFC 6902).
    pub patch: Value,
    /// What its author says it is for.
    pub intent: Option<String>,
}

impl ReplyBody {
    /// The reply as text; a value that was already read is written compactly.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Json(value) => value.to_string(),
        }
    }

    /// The fingerprint by which a repeated token is recognised: of patch and intent if the reply is a proposal, of the
    /// text otherwise. White space, the order of members and an empty envelope do not matter.
    pub fn digest(&self, hasher: &Hasher) -> Digest {
        let value = match self {
            Self::Json(value) => Some(value.clone()),
            Self::Text(text) => json::parse(text.as_bytes(), limits(u32::MAX)).ok(),
        };
        match value.map(unwrap) {
            Some(Ok(reply)) => fingerprint(hasher, &reply.patch, reply.intent.as_deref()),
            Some(Err(_)) | None => sha256(self.text().as_bytes()),
        }
    }
}

/// The fingerprint of a reply that is a proposal; see [`ReplyBody::digest`].
pub(crate) fn fingerprint(hasher: &Hasher, patch: &Value, intent: Option<&str>) -> Digest {
    hasher.commitment(0, intent.unwrap_or_default(), patch)
}

impl Reply {
    /// The reply as an envelope, or as a bare patch where there is no more to it.
    pub fn to_body(&self) -> ReplyBody {
        let Some(intent) = &self.intent else { return ReplyBody::Json(self.patch.clone()) };
        let mut envelope = Map::new();
        envelope.insert("patch".into(), self.patch.clone());
        envelope.insert("intent".into(), intent.clone().into());
        ReplyBody::Json(envelope.into())
    }
}

/// Reads a reply, but not the patch in it; its numbers come out in their one form.
///
/// # Errors
/// Violations of the `syntax` stage.
pub(super) fn read(body: &ReplyBody, patch_limits: &PatchLimits) -> Result<Reply, Vec<Violation>> {
    let value = match body {
        ReplyBody::Text(text) => json::parse(text.as_bytes(), limits(patch_limits.max_bytes)).map_err(|refusal| {
            let message = format!("{refusal}; a reply is one JSON array of operations and nothing else");
            vec![Violation::new(refusal.code, "", message)]
        })?,
        ReplyBody::Json(value) => {
            let bytes = value.to_string().len();
            if bytes > patch_limits.max_bytes as usize || json::depth(value) > DEPTH_MAX {
                // Both forms of a reply get the same answer, so that a replay from its text gives it again.
                return read(&ReplyBody::Text(value.to_string()), patch_limits);
            }
            let mut value = value.clone();
            json::normalise(&mut value);
            value
        }
    };
    let reply = unwrap(value)?;
    // A replay has the proposal in its one form only, which numbers can make longer than the text was; 1e15 by four.
    let is_short = matches!(body, ReplyBody::Text(text) if text.len() <= patch_limits.max_bytes as usize / 8);
    if !is_short && body_bytes(&reply) > u64::from(patch_limits.max_bytes) {
        let message =
            format!("the reply has more than {} bytes once its numbers are written out", patch_limits.max_bytes);
        return Err(vec![Violation::new(Code::TooLarge, "", message)]);
    }
    if patch_limits.intent == Intent::Required && reply.intent.as_deref().is_none_or(|intent| intent.trim().is_empty())
    {
        let message = "say what the patch is for: {\"patch\":[…],\"intent\":\"…\"}";
        return Err(vec![Violation::new(Code::IntentMissing, "/intent", message)]);
    }
    Ok(reply)
}

fn body_bytes(reply: &Reply) -> u64 {
    if reply.intent.is_none() {
        return json::size(&reply.patch);
    }
    match reply.to_body() {
        ReplyBody::Json(value) => json::size(&value),
        ReplyBody::Text(text) => text.len() as u64,
    }
}

fn unwrap(value: Value) -> Result<Reply, Vec<Violation>> {
    let mut envelope = match value {
        Value::Object(envelope) => envelope,
        patch => return Ok(Reply { patch, intent: None }),
    };
    let not_a_patch = |pointer: &str, message: String| vec![Violation::new(Code::NotAPatch, pointer, message)];
    let Some(patch) = envelope.remove("patch") else {
        let message = "a reply is an array of operations, or an object with such an array as \"patch\"".to_owned();
        return Err(not_a_patch("", message));
    };
    let intent = match envelope.remove("intent") {
        None | Some(Value::Null) => None,
        Some(Value::String(intent)) => Some(intent),
        Some(_) => return Err(not_a_patch("/intent", "intent is a string".to_owned())),
    };
    if let Some(other) = envelope.keys().next() {
        let pointer = jsonptr::PointerBuf::from_tokens([other.as_str()]).to_string();
        return Err(not_a_patch(&pointer, format!("a reply may hold patch and intent, not {other}")));
    }
    Ok(Reply { patch, intent })
}

fn limits(bytes: u32) -> Limits {
    Limits { bytes: bytes as usize, depth: DEPTH_MAX }
}
