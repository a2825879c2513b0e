//! Reads a worker's reply: a patch, or an envelope around one (SPEC section 4).

use std::borrow::Cow;
use std::collections::BTreeSet;

use jsonptr::PointerBuf;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::blueprint::{Intent, PatchLimits};
use crate::digest::{Digest, Hasher, sha256};
use crate::expand_request::ExpandRequest;
use crate::json::{self, Limits};
use crate::plan::Plan;
use crate::record::{Author, ElidedReply, SINCE_SALTED_TEXTS};
use crate::rejection::{Code, VIOLATIONS_MAX, Violation};
use crate::schema::shorten;

/// Maximum depth of a reply.
const DEPTH_MAX: usize = 64;
/// Maximum number of places that one reply may request.
const EXPAND_MAX: usize = 16;
/// Maximum characters of a pass reason.
const PASS_MAX: usize = 2000;
/// Maximum characters of a question to a person.
const QUESTION_MAX: usize = 2000;
/// Maximum number of choices of a question; the next constant limits the characters of each.
const CHOICES_MAX: usize = 16;
const CHOICE_MAX: usize = 200;
/// Maximum bytes of a reply that is always recorded in full.
const WHOLE_BYTES_MAX: usize = 4096;
/// Bytes of the beginning and of the end of a longer reply's excerpt.
const HEAD_BYTES_MAX: usize = 2048;
const TAIL_BYTES_MAX: usize = 1024;
/// Memory limit for parsing a reply for its fingerprint. Larger replies are fingerprinted as text (since format 20).
const READ_MEMORY_MAX: usize = 128 << 20;
/// Path of an operation that is equivalent to a place in `expand`.
const EXPAND_PATH: &str = "/$expand/-";

/// Result of a check, or its violations.
pub(super) type Checked<T> = Result<T, Vec<Violation>>;

/// A reply as text, or already parsed by [`crate::json::parse`].
#[derive(Clone, PartialEq, Debug)]
pub enum ReplyBody {
    /// Text from the agent.
    Text(String),
    /// A patch or an envelope.
    Json(Value),
    /// A patch or an envelope that the agent's seat derived from free text ([`crate::blueprint::Worker::format`]).
    Derived {
        /// The patch or the envelope, as text.
        reply: String,
        /// The agent's text.
        source: String,
    },
    /// An excerpt of a reply that is rejected for its length, or because its invocation is closed.
    Elided {
        /// Beginning and end of the reply.
        excerpt: String,
        /// Size and fingerprint of the whole reply.
        elided: ElidedReply,
    },
}

/// A reply that is a proposal.
#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    /// The patch (RFC 6902).
    pub patch: Value,
    /// Purpose, in the author's words.
    pub intent: Option<String>,
    /// Places that the author requests, without duplicates, in request order.
    pub expand: Vec<ExpandRequest>,
    /// The original reply, if the patch was derived from it ([`crate::ablation::Interface`],
    /// [`crate::blueprint::Worker::format`]).
    pub written: Option<String>,
    /// The author's question to a person.
    pub clarify: Option<ClarifyQuestion>,
    /// Reason for proposing nothing, in the author's words.
    pub pass: Option<String>,
}

/// A question to a person.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClarifyQuestion {
    /// The question.
    pub question: String,
    /// The choices; empty if the person may answer freely.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
}

impl ReplyBody {
    /// Returns the original reply as text; a parsed value is serialized compactly.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) | Self::Derived { source: text, .. } | Self::Elided { excerpt: text, .. } => text.clone(),
            Self::Json(value) => value.to_string(),
        }
    }

    /// Returns an excerpt of a reply longer than [`WHOLE_BYTES_MAX`].
    pub(crate) fn elided(self, hasher: &Hasher, format: u32) -> Self {
        let text = match &self {
            Self::Elided { .. } => return self,
            Self::Text(text) | Self::Derived { source: text, .. } => Cow::Borrowed(text),
            Self::Json(value) => Cow::Owned(value.to_string()),
        };
        if text.len() <= WHOLE_BYTES_MAX {
            return self;
        }
        let elided = ElidedReply { bytes: self.bytes(), fingerprint: self.digest(hasher, format) };
        Self::Elided { excerpt: excerpt(&text), elided }
    }

    /// Returns size and fingerprint of a reply that is an excerpt.
    pub(crate) fn elision(&self) -> Option<ElidedReply> {
        match self {
            Self::Elided { elided, .. } => Some(elided.clone()),
            Self::Text(_) | Self::Json(_) | Self::Derived { .. } => None,
        }
    }

    /// Returns the size of the judged reply in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Text(text) | Self::Derived { reply: text, .. } => text.len() as u64,
            Self::Json(value) => json::size(value),
            Self::Elided { elided, .. } => elided.bytes,
        }
    }

    /// Returns the judged reply, and the original text if that differs.
    pub(crate) fn judged(&self) -> (String, Option<String>) {
        match self {
            Self::Derived { reply, source: of } => (reply.clone(), Some(of.clone())),
            Self::Text(_) | Self::Json(_) | Self::Elided { .. } => (self.text(), None),
        }
    }

    /// Returns the fingerprint by which a repeated idempotency key is recognised. Covers patch and intent of a
    /// proposal, or else the text. White space, member order and an empty envelope do not matter. For a derived reply
    /// it covers the original text.
    pub fn digest(&self, hasher: &Hasher, format: u32) -> Digest {
        let value = match self {
            Self::Elided { elided, .. } => return elided.fingerprint,
            // A parsed text may need a hundred times its length.
            Self::Text(text) | Self::Derived { source: text, .. }
                if format >= SINCE_SALTED_TEXTS && json::footprint(text.as_bytes()) > READ_MEMORY_MAX =>
            {
                return hasher.text(text);
            }
            Self::Json(value) => Some(value.clone()),
            Self::Text(text) | Self::Derived { source: text, .. } => {
                json::parse(text.as_bytes(), limits(u32::MAX)).ok()
            }
        };
        match value.map(|value| unwrap(value, ReplyRights { pass: true, ask_for_parts: true })) {
            Some(Ok(Unwrapped { reply, .. })) => reply.fingerprint(hasher),
            Some(Err(_)) | None if format >= SINCE_SALTED_TEXTS => hasher.text(&self.text()),
            Some(Err(_)) | None => sha256(self.text().as_bytes()),
        }
    }
}

/// Returns the fingerprint of a proposal; see [`ReplyBody::digest`].
pub(crate) fn fingerprint(hasher: &Hasher, patch: &Value, intent: Option<&str>, expand: &[ExpandRequest]) -> Digest {
    let intent = intent.unwrap_or_default();
    match expand {
        [] => hasher.commitment(0, intent, patch),
        // Distinct from a bare patch, which is an array.
        places => hasher.commitment(0, intent, &json!({"patch": patch, "expand": places})),
    }
}

impl Reply {
    /// Returns the reply's fingerprint; see [`ReplyBody::digest`].
    pub(crate) fn fingerprint(&self, hasher: &Hasher) -> Digest {
        let intent = self.intent.as_deref();
        match (&self.clarify, &self.pass) {
            (None, None) => fingerprint(hasher, &self.patch, intent, &self.expand),
            (None, Some(pass)) => pass_fingerprint(hasher, intent, pass),
            (Some(clarify), _) => hasher.commitment(0, intent.unwrap_or_default(), &json!({"clarify": clarify})),
        }
    }

    /// Returns the original reply if the patch was derived from it; else an envelope, or a bare patch.
    pub fn to_body(&self) -> ReplyBody {
        match &self.written {
            Some(written) => ReplyBody::Text(written.clone()),
            None => self.to_envelope(),
        }
    }

    /// Returns the reply as it was judged. Patches derived by the kernel are derived from the original text again;
    /// patches derived by a seat are returned with it.
    pub(crate) fn judged_body(&self, plan: &Plan, by: &Author) -> ReplyBody {
        match &self.written {
            Some(of) if plan.converts_replies(&by.worker, by.attempt.is_some()) => {
                ReplyBody::Derived { reply: self.to_envelope().text(), source: of.clone() }
            }
            _ => self.to_body(),
        }
    }

    /// Returns an envelope, or a bare patch if there is nothing else.
    fn to_envelope(&self) -> ReplyBody {
        if self.is_bare() {
            return ReplyBody::Json(self.patch.clone());
        }
        let mut envelope = Map::new();
        envelope.insert("patch".into(), self.patch.clone());
        if let Some(intent) = &self.intent {
            envelope.insert("intent".into(), intent.clone().into());
        }
        if !self.expand.is_empty() {
            envelope.insert("expand".into(), json!(self.expand));
        }
        if let Some(clarify) = &self.clarify {
            envelope.insert("clarify".into(), json!(clarify));
        }
        if let Some(pass) = &self.pass {
            envelope.insert("pass".into(), json!(pass));
        }
        ReplyBody::Json(envelope.into())
    }

    /// Returns true if the reply has nothing but the patch.
    const fn is_bare(&self) -> bool {
        self.intent.is_none() && self.expand.is_empty() && self.clarify.is_none() && self.pass.is_none()
    }
}

/// Returns the fingerprint of a pass; see [`ReplyBody::digest`].
pub(crate) fn pass_fingerprint(hasher: &Hasher, intent: Option<&str>, pass: &str) -> Digest {
    hasher.commitment(0, intent.unwrap_or_default(), &json!({"pass": pass}))
}

/// Rights of a reply's author in addition to proposing.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplyRights {
    pub(super) pass: bool,
    pub(super) ask_for_parts: bool,
}

/// Reads a reply without its patch; normalises numbers. Violations are of the `syntax` stage.
pub(super) fn read(body: &ReplyBody, patch_limits: &PatchLimits, may: ReplyRights) -> Checked<Unwrapped> {
    let value = match body {
        ReplyBody::Text(text) | ReplyBody::Derived { reply: text, .. } => {
            json::parse(text.as_bytes(), limits(patch_limits.max_bytes)).map_err(|refusal| {
                let message = format!(
                    "{refusal}; a reply is one JSON object {{\"patch\": […]}}, or the array in it, and nothing else"
                );
                vec![Violation::new(refusal.code, "", message)]
            })?
        }
        ReplyBody::Elided { elided, .. } => return Err(vec![too_large(elided.bytes, patch_limits.max_bytes as usize)]),
        ReplyBody::Json(value) => {
            let bytes = value.to_string().len();
            if bytes > patch_limits.max_bytes as usize || json::depth(value) > DEPTH_MAX {
                // Text and parsed replies get the same rejection, so that a replay from the text reproduces it.
                return read(&ReplyBody::Text(value.to_string()), patch_limits, may);
            }
            let mut value = value.clone();
            json::normalise(&mut value);
            value
        }
    };
    let unwrapped = unwrap(value, may)?;
    let reply = &unwrapped.reply;
    // A replay has only the normalised proposal. Normalised numbers can be longer than the text: `1e15` grows fourfold.
    let is_short = matches!(body, ReplyBody::Text(text) if text.len() <= patch_limits.max_bytes as usize / 8);
    if !is_short && body_bytes(reply) > u64::from(patch_limits.max_bytes) {
        let message =
            format!("the reply has more than {} bytes once its numbers are written out", patch_limits.max_bytes);
        return Err(vec![Violation::new(Code::TooLarge, "", message)]);
    }
    // A pass includes its reason.
    let says_why = reply.pass.is_some();
    if !says_why
        && patch_limits.intent == Intent::Required
        && reply.intent.as_deref().is_none_or(|intent| intent.trim().is_empty())
    {
        let message = "say what the patch is for: {\"patch\":[…],\"intent\":\"…\"}";
        return Err(vec![Violation::new(Code::IntentMissing, "/intent", message)]);
    }
    Ok(unwrapped)
}

fn body_bytes(reply: &Reply) -> u64 {
    // Avoids a copy of the patch.
    if reply.is_bare() {
        return json::size(&reply.patch);
    }
    reply.to_body().bytes()
}

/// Rejects a reply that is longer than its author's limit.
pub(super) fn too_large(bytes: u64, bytes_max: usize) -> Violation {
    let message = format!("the reply has {bytes} bytes, at most {bytes_max} are read");
    Violation::new(Code::TooLarge, "", message)
}

/// Returns the beginning and the end of a text, with the number of omitted bytes between them.
fn excerpt(text: &str) -> String {
    let (head, tail) = (text.floor_char_boundary(HEAD_BYTES_MAX), text.ceil_char_boundary(text.len() - TAIL_BYTES_MAX));
    format!("{}\n[… {} bytes …]\n{}", &text[..head], tail - head, &text[tail..])
}

/// A reply taken out of its envelope.
pub(super) struct Unwrapped {
    pub(super) reply: Reply,
    /// Positions of the operations that were requests to show a place; the patch no longer contains them.
    pub(super) expand_ops: Vec<usize>,
}

impl Unwrapped {
    /// Wraps a patch of the kernel, derived from a reply if `written` is one.
    pub(super) const fn from_patch(patch: Value, written: Option<String>) -> Self {
        let reply = Reply { patch, intent: None, expand: Vec::new(), written, clarify: None, pass: None };
        Self { reply, expand_ops: Vec::new() }
    }

    /// Returns the position in the original reply of an operation of the patch.
    pub(super) fn original_index(&self, op: usize) -> usize {
        self.expand_ops.iter().fold(op, |op, lifted| if *lifted <= op { op + 1 } else { op })
    }
}

fn unwrap(value: Value, may: ReplyRights) -> Checked<Unwrapped> {
    let not_a_patch = |pointer: &str, message: String| vec![Violation::new(Code::NotAPatch, pointer, message)];
    let mut envelope = match value {
        Value::Object(envelope) => envelope,
        patch => Map::from_iter([("patch".to_owned(), patch)]),
    };
    let expand = match envelope.remove("expand") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(places)) => places,
        Some(_) => return Err(not_a_patch("/expand", "expand is an array of JSON Pointers".to_owned())),
    };
    let clarify = match envelope.remove("clarify") {
        None | Some(Value::Null) => None,
        Some(question) => Some(clarify(question)?),
    };
    // For an author that may not pass, `pass` is an unknown member like any other.
    let pass = match may.pass.then(|| envelope.remove("pass")).flatten() {
        None | Some(Value::Null) => None,
        Some(words) => Some(pass(words)?),
    };
    let patch = match envelope.remove("patch") {
        Some(patch) => patch,
        None if !expand.is_empty() || clarify.is_some() || pass.is_some() => Value::Array(Vec::new()),
        None => {
            let message = "a reply is an array of operations, or an object with such an array as \"patch\"".to_owned();
            return Err(not_a_patch("", message));
        }
    };
    let intent = match envelope.remove("intent") {
        None | Some(Value::Null) => None,
        Some(Value::String(intent)) => Some(intent),
        Some(_) => return Err(not_a_patch("/intent", "intent is a string".to_owned())),
    };
    if let Some(other) = envelope.keys().next() {
        let pointer = PointerBuf::from_tokens([other.as_str()]).to_string();
        let members =
            if may.pass { "patch, intent, expand, clarify and pass" } else { "patch, intent, expand and clarify" };
        return Err(not_a_patch(&pointer, format!("a reply may hold {members}, not {other}")));
    }
    let (patch, lifted, asked) = extract_expands(patch);
    let named = expand.into_iter().enumerate().map(|(index, place)| (format!("/expand/{index}"), place));
    let expand = places(named.chain(asked), may.ask_for_parts)?;
    let proposes = patch.as_array().is_none_or(|ops| !ops.is_empty());
    if pass.is_some() && (proposes || !expand.is_empty() || clarify.is_some()) {
        let message = "a reply that passes proposes nothing and asks for nothing: leave patch, expand and clarify empty, or \
                       leave pass out";
        return Err(not_a_patch("/pass", message.to_owned()));
    }
    if clarify.is_some() && (proposes || !expand.is_empty()) {
        let message =
            "a reply that asks a person proposes nothing and asks for nothing else: leave patch and expand empty";
        return Err(not_a_patch("/clarify", message.to_owned()));
    }
    Ok(Unwrapped { reply: Reply { patch, intent, expand, written: None, clarify, pass }, expand_ops: lifted })
}

/// Reads the reason of a pass.
fn pass(given: Value) -> Checked<String> {
    let refuse = |code, message: String| Err(vec![Violation::new(code, "/pass", message)]);
    match given {
        Value::String(words) if words.chars().nth(PASS_MAX).is_some() => {
            refuse(Code::TooLarge, format!("why nothing is proposed has at most {PASS_MAX} characters"))
        }
        Value::String(words) if !words.trim().is_empty() => Ok(words),
        _ => refuse(Code::NotAPatch, "pass is a text that says why nothing is proposed".to_owned()),
    }
}

/// Reads a question to a person.
fn clarify(given: Value) -> Checked<ClarifyQuestion> {
    let refuse = |code, pointer: &str, message: String| Err(vec![Violation::new(code, pointer, message)]);
    let form = "clarify is {\"question\": \"...\"}, with or without \"choices\", an array of different texts";
    let Ok(asked) = serde_json::from_value::<ClarifyQuestion>(given) else {
        return refuse(Code::NotAPatch, "/clarify", form.to_owned());
    };
    let distinct: BTreeSet<&String> = asked.choices.iter().collect();
    let is_blank = |text: &String| text.trim().is_empty();
    if is_blank(&asked.question) || asked.choices.iter().any(is_blank) || distinct.len() < asked.choices.len() {
        return refuse(Code::NotAPatch, "/clarify", form.to_owned());
    }
    let is_long = |text: &String, max: usize| text.chars().nth(max).is_some();
    if is_long(&asked.question, QUESTION_MAX) {
        let message = format!("a question has at most {QUESTION_MAX} characters");
        return refuse(Code::TooLarge, "/clarify/question", message);
    }
    if asked.choices.len() > CHOICES_MAX || asked.choices.iter().any(|choice| is_long(choice, CHOICE_MAX)) {
        let message = format!("a question has at most {CHOICES_MAX} choices of at most {CHOICE_MAX} characters");
        return refuse(Code::TooLarge, "/clarify/choices", message);
    }
    Ok(asked)
}

/// Separates a patch from its requests to show places. Returns the patch, their positions, and the places with their
/// positions.
fn extract_expands(patch: Value) -> (Value, Vec<usize>, Vec<(String, Value)>) {
    let asks = |op: &Value| {
        op.get("op").is_some_and(|op| op == "add") && op.get("path").is_some_and(|path| path == EXPAND_PATH)
    };
    let Value::Array(mut ops) = patch else { return (patch, Vec::new(), Vec::new()) };
    let lifted: Vec<usize> = ops.iter().enumerate().filter(|(_, op)| asks(op)).map(|(index, _)| index).collect();
    let place = |index: &usize| (format!("/{index}/value"), ops[*index].get("value").cloned().unwrap_or_default());
    let asked = lifted.iter().map(place).collect();
    ops.retain(|op| !asks(op));
    (Value::Array(ops), lifted, asked)
}

/// Reads places, each with its position in the reply.
fn places(asked: impl Iterator<Item = (String, Value)>, with_parts: bool) -> Checked<Vec<ExpandRequest>> {
    let (mut places, mut seen, mut violations) = (Vec::new(), BTreeSet::new(), Vec::new());
    for (at, value) in asked {
        match ExpandRequest::parse(&value).filter(|asked| with_parts || asked.start().is_none()) {
            Some(place) => places.extend(seen.insert(place.clone()).then_some(place)),
            None => {
                let message = match with_parts {
                    true => {
                        "a place is a JSON Pointer, like /claims/3; from a part of it on, {\"at\": \"/claims\", \"from\": 3}"
                    }
                    false => "a place is a JSON Pointer, like /claims/3",
                };
                violations.push(Violation::new(Code::BadPointer, at, message).with_found(shorten(&value)));
            }
        }
    }
    if places.len() > EXPAND_MAX {
        let message = format!("a reply may ask to be shown {EXPAND_MAX} places");
        violations.push(Violation::new(Code::TooLarge, "/expand", message));
    }
    violations.truncate(VIOLATIONS_MAX);
    if violations.is_empty() { Ok(places) } else { Err(violations) }
}

fn limits(bytes: u32) -> Limits {
    Limits { bytes: bytes as usize, depth: DEPTH_MAX }
}
