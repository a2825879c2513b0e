//! Reads a worker's reply: a patch, or an envelope around one (SPEC section 4).

use std::borrow::Cow;
use std::collections::BTreeSet;

use jsonptr::PointerBuf;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::asked::Asked;
use crate::blueprint::{Intent, PatchLimits};
use crate::digest::{Digest, Hasher, sha256};
use crate::json::{self, Limits};
use crate::plan::Plan;
use crate::record::{Author, Elided, SALTED};
use crate::rejection::{Code, VIOLATIONS_MAX, Violation};
use crate::schema::shorten;

/// The deepest reply that is read.
const DEPTH_MAX: usize = 64;
/// The most places that one reply may ask to be shown.
const EXPAND_MAX: usize = 16;
/// Characters of the words of who passes.
const PASS_MAX: usize = 2000;
/// Characters of a question to a person.
const QUESTION_MAX: usize = 2000;
/// The most answers that a question may offer, and characters of each.
const CHOICES_MAX: usize = 16;
const CHOICE_MAX: usize = 200;
/// Bytes of a reply that a record keeps as a whole, whatever it is refused for.
const WHOLE_BYTES_MAX: usize = 4096;
/// Bytes of the beginning and of the end of a longer one.
const HEAD_BYTES_MAX: usize = 2048;
const TAIL_BYTES_MAX: usize = 1024;
/// Memory of the values of a reply that is read for its fingerprint; a larger one is known by its text (since format 20).
const READ_MEMORY_MAX: usize = 128 << 20;
/// The path of an operation that means the same as a place in `expand`.
const EXPAND_PATH: &str = "/$expand/-";

/// A reply as text, or already read by [`crate::json::parse`].
#[derive(Clone, PartialEq, Debug)]
pub enum ReplyBody {
    /// As the agent gave it.
    Text(String),
    /// A patch or an envelope.
    Json(Value),
    /// A patch or an envelope that was made outside of what the agent gave: of words that are neither
    /// ([`crate::blueprint::Format`]).
    Made {
        /// The patch or the envelope, as text.
        reply: String,
        /// What the agent gave.
        of: String,
    },
    /// An excerpt of a reply that is refused for its length, or because nobody waits for it.
    Elided {
        /// Its beginning and its end.
        excerpt: String,
        /// What else is known of it.
        elided: Elided,
    },
}

/// A reply that is a proposal.
#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    /// The patch (RFC 6902).
    pub patch: Value,
    /// What its author says it is for.
    pub intent: Option<String>,
    /// Places that its author asks to be shown, each once, in the order of asking.
    pub expand: Vec<Asked>,
    /// The reply as it came, if the patch was made of it ([`crate::mode::Interface`], [`crate::blueprint::Format`]).
    pub written: Option<String>,
    /// What its author asks a person.
    pub clarify: Option<Clarify>,
    /// Why its author proposes nothing, in its words.
    pub pass: Option<String>,
}

/// A question to a person.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clarify {
    /// In words.
    pub question: String,
    /// The answers to choose from; none if the person may say anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
}

impl ReplyBody {
    /// The reply as it came, as text; a value that was already read is written compactly.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) | Self::Made { of: text, .. } | Self::Elided { excerpt: text, .. } => text.clone(),
            Self::Json(value) => value.to_string(),
        }
    }

    /// Returns an excerpt in place of what is longer than [`WHOLE_BYTES_MAX`].
    pub(crate) fn elided(self, hasher: &Hasher, format: u32) -> Self {
        let text = match &self {
            Self::Elided { .. } => return self,
            Self::Text(text) | Self::Made { of: text, .. } => Cow::Borrowed(text),
            Self::Json(value) => Cow::Owned(value.to_string()),
        };
        if text.len() <= WHOLE_BYTES_MAX {
            return self;
        }
        let elided = Elided { bytes: self.bytes(), fingerprint: self.digest(hasher, format) };
        Self::Elided { excerpt: excerpt(&text), elided }
    }

    /// Returns what is known of a reply that is an excerpt.
    pub(crate) fn elision(&self) -> Option<Elided> {
        match self {
            Self::Elided { elided, .. } => Some(elided.clone()),
            Self::Text(_) | Self::Json(_) | Self::Made { .. } => None,
        }
    }

    /// Bytes of the reply as it is judged.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Text(text) | Self::Made { reply: text, .. } => text.len() as u64,
            Self::Json(value) => json::size(value),
            Self::Elided { elided, .. } => elided.bytes,
        }
    }

    /// The reply as it is judged, and what it was made of if that is another text.
    pub(crate) fn judged(&self) -> (String, Option<String>) {
        match self {
            Self::Made { reply, of } => (reply.clone(), Some(of.clone())),
            Self::Text(_) | Self::Json(_) | Self::Elided { .. } => (self.text(), None),
        }
    }

    /// The fingerprint by which a repeated token is recognised: of patch and intent if the reply is a proposal, of the
    /// text otherwise. White space, the order of members and an empty envelope do not matter. What was made of words is
    /// known by these.
    pub fn digest(&self, hasher: &Hasher, format: u32) -> Digest {
        let value = match self {
            Self::Elided { elided, .. } => return elided.fingerprint,
            // A text may take a hundred times its length once it is read.
            Self::Text(text) | Self::Made { of: text, .. }
                if format >= SALTED && json::footprint(text.as_bytes()) > READ_MEMORY_MAX =>
            {
                return hasher.text(text);
            }
            Self::Json(value) => Some(value.clone()),
            Self::Text(text) | Self::Made { of: text, .. } => json::parse(text.as_bytes(), limits(u32::MAX)).ok(),
        };
        match value.map(|value| unwrap(value, May { pass: true, ask_for_parts: true })) {
            Some(Ok(Unwrapped { reply, .. })) => reply.fingerprint(hasher),
            Some(Err(_)) | None if format >= SALTED => hasher.text(&self.text()),
            Some(Err(_)) | None => sha256(self.text().as_bytes()),
        }
    }
}

/// The fingerprint of a reply that is a proposal; see [`ReplyBody::digest`].
pub(crate) fn fingerprint(hasher: &Hasher, patch: &Value, intent: Option<&str>, expand: &[Asked]) -> Digest {
    let intent = intent.unwrap_or_default();
    match expand {
        [] => hasher.commitment(0, intent, patch),
        // A patch is an array.
        places => hasher.commitment(0, intent, &json!({"patch": patch, "expand": places})),
    }
}

impl Reply {
    /// See [`ReplyBody::digest`].
    pub(crate) fn fingerprint(&self, hasher: &Hasher) -> Digest {
        let intent = self.intent.as_deref();
        match (&self.clarify, &self.pass) {
            (None, None) => fingerprint(hasher, &self.patch, intent, &self.expand),
            (None, Some(pass)) => passed(hasher, intent, pass),
            (Some(clarify), _) => hasher.commitment(0, intent.unwrap_or_default(), &json!({"clarify": clarify})),
        }
    }

    /// The reply as it came, if the patch was made of it; else an envelope, or a bare patch.
    pub fn to_body(&self) -> ReplyBody {
        match &self.written {
            Some(written) => ReplyBody::Text(written.clone()),
            None => self.to_envelope(),
        }
    }

    /// The reply as it was judged: what the kernel makes of words it makes again; what was made of them outside comes with
    /// them.
    pub(crate) fn judged_body(&self, plan: &Plan, by: &Author) -> ReplyBody {
        match &self.written {
            Some(of) if plan.takes_words(&by.worker, by.attempt.is_some()) => {
                ReplyBody::Made { reply: self.to_envelope().text(), of: of.clone() }
            }
            _ => self.to_body(),
        }
    }

    /// As an envelope, or as a bare patch where there is no more to it.
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

    /// Whether there is no more to it than the patch.
    const fn is_bare(&self) -> bool {
        self.intent.is_none() && self.expand.is_empty() && self.clarify.is_none() && self.pass.is_none()
    }
}

/// The fingerprint of a reply that passes; see [`ReplyBody::digest`].
pub(crate) fn passed(hasher: &Hasher, intent: Option<&str>, pass: &str) -> Digest {
    hasher.commitment(0, intent.unwrap_or_default(), &json!({"pass": pass}))
}

/// Rights of the author of a reply beside proposing.
#[derive(Clone, Copy, Debug)]
pub(super) struct May {
    /// Pass.
    pub(super) pass: bool,
    /// Ask to be shown parts of places.
    pub(super) ask_for_parts: bool,
}

/// Reads a reply, but not the patch in it; its numbers come out in their one form.
///
/// # Errors
/// Violations of the `syntax` stage.
pub(super) fn read(body: &ReplyBody, patch_limits: &PatchLimits, may: May) -> Result<Unwrapped, Vec<Violation>> {
    let value = match body {
        ReplyBody::Text(text) | ReplyBody::Made { reply: text, .. } => {
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
                // Both forms of a reply get the same answer, so that a replay from its text gives it again.
                return read(&ReplyBody::Text(value.to_string()), patch_limits, may);
            }
            let mut value = value.clone();
            json::normalise(&mut value);
            value
        }
    };
    let unwrapped = unwrap(value, may)?;
    let reply = &unwrapped.reply;
    // A replay has the proposal in its one form only, which numbers can make longer than the text was; 1e15 by four.
    let is_short = matches!(body, ReplyBody::Text(text) if text.len() <= patch_limits.max_bytes as usize / 8);
    if !is_short && body_bytes(reply) > u64::from(patch_limits.max_bytes) {
        let message =
            format!("the reply has more than {} bytes once its numbers are written out", patch_limits.max_bytes);
        return Err(vec![Violation::new(Code::TooLarge, "", message)]);
    }
    // Who passes has said why.
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
    // Without a copy of the patch.
    if reply.is_bare() {
        return json::size(&reply.patch);
    }
    reply.to_body().bytes()
}

/// Refuses a reply that is longer than its author's may be.
pub(super) fn too_large(bytes: u64, bytes_max: usize) -> Violation {
    let message = format!("the reply has {bytes} bytes, at most {bytes_max} are read");
    Violation::new(Code::TooLarge, "", message)
}

/// Returns the beginning and the end of a text, and between them the number of bytes that are left out.
fn excerpt(text: &str) -> String {
    let (head, tail) = (text.floor_char_boundary(HEAD_BYTES_MAX), text.ceil_char_boundary(text.len() - TAIL_BYTES_MAX));
    format!("{}\n[… {} bytes …]\n{}", &text[..head], tail - head, &text[tail..])
}

/// A reply taken out of its envelope.
pub(super) struct Unwrapped {
    pub(super) reply: Reply,
    /// Where the operations stood that were requests to be shown something; they are not in the patch any more.
    pub(super) lifted: Vec<usize>,
}

impl Unwrapped {
    /// The place in the reply as it was written of an operation of the patch.
    pub(super) fn written_at(&self, op: usize) -> usize {
        self.lifted.iter().fold(op, |op, lifted| if *lifted <= op { op + 1 } else { op })
    }
}

fn unwrap(value: Value, may: May) -> Result<Unwrapped, Vec<Violation>> {
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
    // Of who may not pass it is a member like any other that there is none of.
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
    let (patch, lifted, asked) = lift(patch);
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
    Ok(Unwrapped { reply: Reply { patch, intent, expand, written: None, clarify, pass }, lifted })
}

/// Reads the words of who passes.
fn pass(given: Value) -> Result<String, Vec<Violation>> {
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
fn clarify(given: Value) -> Result<Clarify, Vec<Violation>> {
    let refuse = |code, pointer: &str, message: String| Err(vec![Violation::new(code, pointer, message)]);
    let form = "clarify is {\"question\": \"...\"}, with or without \"choices\", an array of different texts";
    let Ok(asked) = serde_json::from_value::<Clarify>(given) else {
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

/// A patch without its requests to be shown something; where these stood; and what they ask for, with where it stands.
fn lift(patch: Value) -> (Value, Vec<usize>, Vec<(String, Value)>) {
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

/// Reads places, each with where it stands in the reply.
fn places(asked: impl Iterator<Item = (String, Value)>, with_parts: bool) -> Result<Vec<Asked>, Vec<Violation>> {
    let (mut places, mut seen, mut violations) = (Vec::new(), BTreeSet::new(), Vec::new());
    for (at, value) in asked {
        match Asked::read(&value).filter(|asked| with_parts || asked.start().is_none()) {
            Some(place) => places.extend(seen.insert(place.clone()).then_some(place)),
            None => {
                let message = match with_parts {
                    true => {
                        "a place is a JSON Pointer, like /claims/3; from a part of it on, {\"at\": \"/claims\", \"from\": 3}"
                    }
                    false => "a place is a JSON Pointer, like /claims/3",
                };
                violations.push(Violation::new(Code::BadPointer, at, message).finding(shorten(&value)));
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
