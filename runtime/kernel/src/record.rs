//! The journal's entries: their contents, their canonical form and their hash chain (SPEC section 10).
//!
//! A record has a *header*, canonical JSON of what the chain needs, and a *payload* of values that may hold people's
//! data. The header holds a salted commitment to every value, so that a value can be erased later and the chain still
//! verifies: `hash = SHA-256(hash of the record before ‖ exact header bytes)`, with 32 zero bytes before the first.
//!
//! Storage belongs to the runtime; what records do to a board is in [`crate::board`].

mod body;
mod principal;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::canonical;
use crate::digest::{Digest, Hasher, sha256};
use crate::id::{Seq, Timestamp};

pub use body::*;
pub use principal::Principal;

/// The journal format this version writes, and the newest it reads.
pub const FORMAT: u32 = 21;

/// The first format in which calls of language models are admitted, deferred and retried ([`crate::admission`]).
pub(crate) const ADMISSION: u32 = 10;

/// The first format in which a retry finds all that a stopped board had still to do, and may raise limits of workers.
pub(crate) const FULL_RETRY: u32 = 11;

/// The first format in which triggers bind names in paths of blueprints of format 2.
pub(crate) const BINDINGS: u32 = 12;

/// The first format in which calls name what their views have no room for, a worker may ask for a part of a place, and a smaller
/// view is half of what there is to show.
pub(crate) const RANGES: u32 = 13;

/// The first format in which expressions take all numbers together and loop over objects ([`crate::expr::Dialect`]).
pub(crate) const NUMBERS: u32 = 14;

/// The first format in which a wildcard in a patch is refused as such also where the schema has no such place.
pub(crate) const WILDCARDS: u32 = 15;

/// The first format in which a join does not fire after a rule that it waits for failed to be decided ([`Skipped`]).
pub(crate) const UNDECIDED: u32 = 16;

/// The first format in which a step makes a bounded number of records, whatever a commit gives rules to do, and views name the
/// places of which nothing is shown.
pub(crate) const BOUNDED: u32 = 17;

/// The first format in which a request for parts must begin at one that is there, views cut long names where they begin to
/// differ, and the answer to a wildcard says what may be written for a new member.
pub(crate) const STARTS: u32 = 18;

/// The first format in which circles of bound invocations are those of one element.
pub(crate) const ELEMENTS: u32 = 19;

/// The first format in which records say who caused them from outside ([`Principal`]).
pub(crate) const PRINCIPALS: u32 = 20;

/// The first format in which a caller is named with the maker of its token, and four eyes are neither those of the worker who
/// has proposed nor, beside any other caller, those of one without a token.
pub(crate) const MAKERS: u32 = 21;

/// The first format in which hashes of texts are salted: those of views, prompts and replies that are no patch.
pub const SALTED: u32 = 20;

/// The first format in which a reply whose verdict needs its length alone is kept as an excerpt ([`Elided`]), messages are
/// bounded, signals that no rule waits for are refused, and the journal has a limit.
pub(crate) const JOURNAL_LIMIT: u32 = 20;

/// The first format in which jumps of the clock are recorded ([`Jumped`]).
pub(crate) const JUMPS: u32 = 20;

/// The first format in which `request` in expressions is what was given, whatever workers write there.
pub(crate) const GIVEN: u32 = 20;

/// The value of a record that names its [`Principal`]. No body has a field of this name.
pub const PRINCIPAL: &str = "principal";

/// The member that a payload has beside its values once something of them is erased ([`Erasure`]). No value has this name.
pub const ERASED: &str = "$redacted";

/// What the first record's hash is chained to.
pub const GENESIS: Digest = Digest([0; 32]);

/// One entry of a board's journal, as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its gapless number.
    pub seq: Seq,
    /// Its kind; also in the header.
    pub kind: Kind,
    /// When; also in the header.
    pub at: Timestamp,
    /// Canonical JSON (RFC 8785) of what the chain needs.
    pub header: String,
    /// A JSON object of the values the header commits to.
    pub payload: String,
    /// Chains the header to everything before it.
    pub hash: Digest,
}

/// Why a stored record cannot be trusted or read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// The header is not what the chain says it was.
    #[error("the hash does not follow from the record before and the header")]
    Hash,
    /// The number, kind or time beside the header is not the header's.
    #[error("{0} is not what the header says")]
    Column(&'static str),
    /// A value is not the one the header commits to.
    #[error("the value of {0} is not the one the header commits to")]
    Value(String),
    /// A value that the header does not commit to, or one that is missing.
    #[error("the payload does not hold exactly the values the header commits to: {0}")]
    Values(String),
    /// Header or payload are not what this version can read.
    #[error("not readable: {0}")]
    Unreadable(String),
    /// The journal was written by a newer version.
    #[error("the journal has format {0}, this version reads up to {FORMAT}: use a newer patchboard")]
    NewerFormat(u64),
}

/// What a payload says of values that were erased ([`crate::redaction`]). What stands in it then is committed to by the
/// `redacted` record; the header still commits to what stood there before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Erasure {
    /// The `redacted` record.
    pub by: Seq,
    /// What a repetition of the proposal or request is known by; it cannot be worked out any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<Digest>,
    /// Of a commit: the fingerprint of the region it wrote, by which a branch that goes in circles is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Digest>,
}

impl Record {
    /// Seals a body as the record `seq`, after the record with the hash `previous`.
    pub fn seal(previous: Digest, seq: Seq, at: Timestamp, body: &Body, hasher: &Hasher) -> Self {
        Self::seal_by(None, previous, seq, at, body, hasher)
    }

    /// Seals a body that a principal caused from outside, if one did.
    pub fn seal_by(
        principal: Option<&Principal>,
        previous: Digest,
        seq: Seq,
        at: Timestamp,
        body: &Body,
        hasher: &Hasher,
    ) -> Self {
        let Value::Object(mut header) = serde_json::to_value(body).expect("bodies have string keys and finite numbers")
        else {
            unreachable!("a body is an object")
        };
        let mut values = body.values();
        if let Some(principal) = principal {
            let principal = serde_json::to_value(principal).expect("a principal is JSON");
            values.push((PRINCIPAL, Cow::Owned(principal)));
            values.sort_by_key(|(name, _)| *name);
        }
        let commitments: Map<_, _> = values
            .iter()
            .map(|(field, value)| ((*field).to_owned(), hasher.commitment(seq.0, field, value).to_string().into()))
            .collect();
        header.insert("seq".into(), seq.0.into());
        header.insert("at".into(), at.0.into());
        if !commitments.is_empty() {
            header.insert("values".into(), commitments.into());
        }
        let header = canonical::to_string(&Value::Object(header));
        let hash = chain(previous, &header);
        Self { seq, kind: body.kind(), at, header, payload: compact(values), hash }
    }

    /// Checks the chain and the columns beside the header; needs no salt.
    ///
    /// # Errors
    /// [`RecordError::Hash`], [`RecordError::Column`], [`RecordError::Unreadable`].
    pub fn check_chain(&self, previous: Digest) -> Result<(), RecordError> {
        if chain(previous, &self.header) != self.hash {
            return Err(RecordError::Hash);
        }
        let header: Columns =
            serde_json::from_str(&self.header).map_err(|error| RecordError::Unreadable(error.to_string()))?;
        if header.kind.as_ref().and_then(Value::as_str) != Some(self.kind.as_str()) {
            return Err(RecordError::Column("kind"));
        }
        if header.seq.as_ref().and_then(Value::as_u64) != Some(self.seq.0) {
            return Err(RecordError::Column("seq"));
        }
        if header.at.as_ref().and_then(Value::as_i64) != Some(self.at.0) {
            return Err(RecordError::Column("at"));
        }
        Ok(())
    }

    /// Checks that the payload holds exactly the values the header commits to. Where something of them is erased, it checks
    /// their names alone: what stands there is for [`Record::replacement`].
    ///
    /// # Errors
    /// [`RecordError::Value`], [`RecordError::Values`], [`RecordError::Unreadable`].
    pub fn check_values(&self, hasher: &Hasher) -> Result<(), RecordError> {
        let header = object(&self.header)?;
        let none = Map::new();
        let commitments = header.get("values").and_then(Value::as_object).unwrap_or(&none);
        let payload = object(&self.payload)?;
        let is_erased = self.is_erased();
        let mut names = payload.keys().filter(|field| !(is_erased && *field == ERASED));
        if let Some(extra) = names.find(|field| !commitments.contains_key(*field)) {
            return Err(RecordError::Values(format!("{extra} is not committed to")));
        }
        for (field, commitment) in commitments {
            let Some(value) = payload.get(field) else {
                return Err(RecordError::Values(format!("{field} is missing")));
            };
            let found = hasher.commitment(self.seq.0, field, value).to_string();
            if !is_erased && commitment.as_str() != Some(found.as_str()) {
                return Err(RecordError::Value(field.clone()));
            }
        }
        // Another spelling of the same values is an alteration, too: there is one way to write them.
        if compact(&payload) != self.payload {
            return Err(RecordError::Values("the same values are written otherwise".to_owned()));
        }
        Ok(())
    }

    /// Whether something of its values is erased.
    pub fn is_erased(&self) -> bool {
        // The names of a payload are in order, and this one comes before all others.
        self.payload.strip_prefix("{\"").is_some_and(|rest| rest.starts_with(ERASED))
    }

    /// What it says of values that were erased, if any were.
    ///
    /// # Errors
    /// [`RecordError::Unreadable`].
    pub fn erasure(&self) -> Result<Option<Erasure>, RecordError> {
        if !self.is_erased() {
            return Ok(None);
        }
        let erasure = object(&self.payload)?.remove(ERASED).unwrap_or_default();
        serde_json::from_value(erasure).map(Some).map_err(|error| RecordError::Unreadable(error.to_string()))
    }

    /// Where something of its values is erased: the record that did it, and the commitment to what stands there, which
    /// that one must hold.
    ///
    /// # Errors
    /// [`RecordError::Unreadable`].
    pub fn replacement(&self, hasher: &Hasher) -> Result<Option<(Seq, Digest)>, RecordError> {
        let Some(erasure) = self.erasure()? else { return Ok(None) };
        let payload = Value::Object(object(&self.payload)?);
        Ok(Some((erasure.by, hasher.commitment(self.seq.0, ERASED, &payload))))
    }

    /// The same record with other values, of which some are erased.
    pub(crate) fn with_erased(&self, mut values: Map<String, Value>, erasure: &Erasure) -> Self {
        values.insert(ERASED.to_owned(), serde_json::to_value(erasure).expect("an erasure is JSON"));
        Self { payload: compact(values), ..self.clone() }
    }

    /// Its values, by the names of their fields.
    ///
    /// # Errors
    /// [`RecordError::Unreadable`].
    pub fn values(&self) -> Result<Map<String, Value>, RecordError> {
        let mut values = object(&self.payload)?;
        values.remove(ERASED);
        Ok(values)
    }

    /// What the record says.
    ///
    /// # Errors
    /// [`RecordError::NewerFormat`], [`RecordError::Unreadable`].
    pub fn body(&self) -> Result<Body, RecordError> {
        let mut fields = object(&self.header)?;
        for beside in ["seq", "at", "values"] {
            fields.remove(beside);
        }
        if let Some(format) = fields.get("format").and_then(Value::as_u64)
            && format > u64::from(FORMAT)
        {
            return Err(RecordError::NewerFormat(format));
        }
        fields.extend(self.values()?);
        fields.remove(PRINCIPAL);
        serde_json::from_value(Value::Object(fields)).map_err(|error| RecordError::Unreadable(error.to_string()))
    }

    /// Returns who caused the record from outside, if it says so.
    ///
    /// # Errors
    /// [`RecordError::Unreadable`].
    pub fn principal(&self) -> Result<Option<Principal>, RecordError> {
        let principal = self.values()?.remove(PRINCIPAL);
        let read = principal.map(serde_json::from_value).transpose();
        read.map_err(|error| RecordError::Unreadable(error.to_string()))
    }

    /// The record as one JSON object, for export: the exact header and hash, and the payload.
    pub fn to_json(&self) -> Value {
        let payload = serde_json::from_str(&self.payload).unwrap_or_else(|_| Value::String(self.payload.clone()));
        serde_json::json!({"header": self.header, "payload": payload, "hash": self.hash})
    }
}

/// The members of a header that are also beside it; the others are passed over without being kept.
#[derive(Deserialize)]
struct Columns {
    kind: Option<Value>,
    seq: Option<Value>,
    at: Option<Value>,
}

/// Header and payload of a record, merged for reading by people and scripts.
///
/// # Errors
/// [`RecordError::Unreadable`].
pub fn merged(record: &Record) -> Result<Map<String, Value>, RecordError> {
    let mut fields = object(&record.header)?;
    fields.remove("values");
    fields.extend(object(&record.payload)?);
    Ok(fields)
}

fn chain(previous: Digest, header: &str) -> Digest {
    let mut bytes = Vec::with_capacity(32 + header.len());
    bytes.extend_from_slice(&previous.0);
    bytes.extend_from_slice(header.as_bytes());
    sha256(&bytes)
}

/// The one text of a payload, whose fields come in the order of their names.
fn compact(fields: impl IntoIterator<Item = (impl Serialize, impl Serialize)>) -> String {
    let mut text = Vec::with_capacity(256);
    let written = serde_json::Serializer::new(&mut text).collect_map(fields);
    written.expect("values have string keys and finite numbers");
    String::from_utf8(text).expect("JSON is UTF-8")
}

fn object(text: &str) -> Result<Map<String, Value>, RecordError> {
    serde_json::from_str(text).map_err(|error| RecordError::Unreadable(error.to_string()))
}
