//! Journal records: contents, canonical form and hash chain (SPEC section 10).
//!
//! A record has a *header*, canonical JSON with the data for the chain, and a *payload* of values that may be personal
//! data. The header holds a salted commitment to every value, so that a value can be erased later and the chain still
//! verifies. The hash is `SHA-256(hash of the previous record ‖ exact header bytes)`, with 32 zero bytes before the
//! first.
//!
//! The runtime stores records; [`crate::board`] applies them to a board.

mod body;
mod principal;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::canonical;
use crate::digest::{Digest, Hasher, sha256};
use crate::id::{Seq, Timestamp};

pub use body::*;
pub use principal::Principal;

/// Journal format that this version writes, and the newest it reads.
pub const FORMAT: u32 = 21;

/// First format in which calls of language models are admitted, deferred and retried ([`crate::admission`]).
pub(crate) const SINCE_ADMISSION: u32 = 10;

/// First format in which a retry covers all unfinished work of a stopped board and may raise workers' limits.
pub(crate) const SINCE_FULL_RETRY: u32 = 11;

/// First format in which triggers bind names in paths of blueprints of format 2.
pub(crate) const SINCE_BINDINGS: u32 = 12;

/// First format in which calls name the values omitted from their views and a worker may request a part of a value. A
/// reduced view is half of the available content.
pub(crate) const SINCE_RANGES: u32 = 13;

/// First format in which expressions mix all number types and loop over objects ([`crate::expr::Dialect`]).
pub(crate) const SINCE_MIXED_NUMBERS: u32 = 14;

/// First format in which a wildcard in a patch is rejected as such even if the schema has no such place.
pub(crate) const SINCE_WILDCARD_REJECTIONS: u32 = 15;

/// First format in which a join does not fire after an awaited rule could not be decided ([`Skipped`]).
pub(crate) const SINCE_UNDECIDED_RULES: u32 = 16;

/// First format in which a step makes a bounded number of records, however many invocations a commit triggers. Views
/// name the places that are omitted completely.
pub(crate) const SINCE_BOUNDED_STEPS: u32 = 17;

/// First format in which a request for parts must begin at an existing part. Views truncate long names where they begin
/// to differ, and the rejection of a wildcard says how to write a new member.
pub(crate) const SINCE_RANGE_STARTS: u32 = 18;

/// First format in which cycles of bound invocations are counted for each element.
pub(crate) const SINCE_ELEMENT_CYCLES: u32 = 19;

/// First format in which records name their external caller ([`Principal`]).
pub(crate) const SINCE_PRINCIPALS: u32 = 20;

/// First format in which a caller is recorded with the creator of its token. Four-eyes approval excludes the worker
/// that has proposed. A caller known only by its address counts as any other caller.
pub(crate) const SINCE_TOKEN_CREATORS: u32 = 21;

/// First format with salted hashes of texts: views, prompts and replies that are no patch.
pub const SINCE_SALTED_TEXTS: u32 = 20;

/// First format in which a reply judged by its length alone is stored as an excerpt ([`ElidedReply`]). Messages are
/// bounded, signals without a waiting rule are rejected, and the journal has a size limit.
pub(crate) const SINCE_JOURNAL_LIMIT: u32 = 20;

/// First format in which clock jumps are recorded ([`Jumped`]).
pub(crate) const SINCE_CLOCK_JUMPS: u32 = 20;

/// First format in which `request` in expressions is the original one, even if workers write there.
pub(crate) const SINCE_ORIGINAL_REQUEST: u32 = 20;

/// Payload field that holds the [`Principal`]. No body has a field of this name.
pub const PRINCIPAL: &str = "principal";

/// Payload member that marks erased values ([`RedactionMarker`]). No value has this name.
pub const REDACTED_MEMBER: &str = "$redacted";

/// Hash to which the first record is chained.
pub const GENESIS: Digest = Digest([0; 32]);

/// Entry of a board's journal, as stored. A changed one is made by [`Record::new`], which drops the derived forms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Gapless sequence number.
    pub seq: Seq,
    /// Kind of record; also in the header.
    pub kind: Kind,
    /// Time of the record; also in the header.
    pub at: Timestamp,
    /// Canonical JSON (RFC 8785) of the data for the chain.
    pub header: String,
    /// JSON object of the values to which the header commits.
    pub payload: String,
    /// Hash that chains the header to all records before it.
    pub hash: Digest,
    derived: Derived,
}

/// Forms of a record that follow from its stored parts, made on first use. They have no part in comparisons.
#[derive(Clone, Debug, Default)]
struct Derived {
    /// Contents as sealed, or as parsed.
    body: OnceLock<Result<Arc<Body>, RecordError>>,
    /// See [`Record::merged_text`].
    merged: OnceLock<Result<Arc<str>, RecordError>>,
}

impl PartialEq for Derived {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Derived {}

/// Reason why a stored record cannot be trusted or read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// The header differs from the hashed one.
    #[error("the hash does not follow from the record before and the header")]
    Hash,
    /// The number, kind or time beside the header differs from the header's.
    #[error("{0} is not what the header says")]
    Column(&'static str),
    /// A value differs from the header's commitment.
    #[error("the value of {0} is not the one the header commits to")]
    Value(String),
    /// A value without a commitment, or a missing value.
    #[error("the payload does not hold exactly the values the header commits to: {0}")]
    Values(String),
    /// Header or payload cannot be read by this version.
    #[error("not readable: {0}")]
    Unreadable(String),
    /// The journal was written by a newer version.
    #[error("the journal has format {0}, this version reads up to {FORMAT}: use a newer patchboard")]
    NewerFormat(u64),
}

/// Payload member that marks erased values ([`crate::redaction`]). The `redacted` record commits to the current
/// payload; the header still commits to the original values.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedactionMarker {
    /// Seq of the `redacted` record.
    pub by: Seq,
    /// Fingerprint for deduplicating the proposal or request; it can no longer be computed.
    pub reply: Option<Digest>,
    /// For a commit: fingerprint of the written region, for the detection of cycles.
    pub region: Option<Digest>,
}

impl Record {
    /// Creates a record from its stored parts, without checking them.
    pub fn new(seq: Seq, kind: Kind, at: Timestamp, header: String, payload: String, hash: Digest) -> Self {
        Self { seq, kind, at, header, payload, hash, derived: Derived::default() }
    }

    /// Seals a body as the record `seq`, after the record with the hash `previous`.
    pub fn seal(previous: Digest, seq: Seq, at: Timestamp, body: impl Into<Arc<Body>>, hasher: &Hasher) -> Self {
        Self::seal_as(None, previous, seq, at, body, hasher)
    }

    /// Like [`Record::seal`], with the external caller, if there is one.
    pub fn seal_as(
        principal: Option<&Principal>,
        previous: Digest,
        seq: Seq,
        at: Timestamp,
        body: impl Into<Arc<Body>>,
        hasher: &Hasher,
    ) -> Self {
        let body = body.into();
        let Value::Object(mut header) =
            serde_json::to_value(&*body).expect("bodies have string keys and finite numbers")
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
        let (kind, payload) = (body.kind(), compact(values));
        let derived = Derived { body: OnceLock::from(Ok(body)), ..Derived::default() };
        Self { seq, kind, at, header, payload, hash, derived }
    }

    /// Checks the chain and the columns beside the header; needs no salt. Fails with [`RecordError::Hash`],
    /// [`RecordError::Column`] or [`RecordError::Unreadable`].
    pub fn check_chain(&self, previous: Digest) -> Result<(), RecordError> {
        if chain(previous, &self.header) != self.hash {
            return Err(RecordError::Hash);
        }
        let Columns { kind, seq, at } = serde_json::from_str(&self.header).map_err(unreadable)?;
        let columns = [
            ("kind", kind.as_ref().and_then(Value::as_str) == Some(self.kind.as_str())),
            ("seq", seq.and_then(|seq| seq.as_u64()) == Some(self.seq.0)),
            ("at", at.and_then(|at| at.as_i64()) == Some(self.at.0)),
        ];
        let other = columns.into_iter().find(|(_, is_same)| !is_same);
        other.map_or(Ok(()), |(column, _)| Err(RecordError::Column(column)))
    }

    /// Checks that the payload holds exactly the values to which the header commits. If some are erased, only their
    /// names are checked; see [`Record::replacement`] for the current values. Fails with [`RecordError::Value`],
    /// [`RecordError::Values`] or [`RecordError::Unreadable`].
    pub fn check_values(&self, hasher: &Hasher) -> Result<(), RecordError> {
        let header = object(&self.header)?;
        let none = Map::new();
        let commitments = header.get("values").and_then(Value::as_object).unwrap_or(&none);
        let payload = object(&self.payload)?;
        let is_erased = self.is_redacted();
        let mut names = payload.keys().filter(|field| !(is_erased && *field == REDACTED_MEMBER));
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
        // Another serialisation of equal values is an alteration, too; there is only one canonical form.
        if compact(&payload) != self.payload {
            return Err(RecordError::Values("the same values are written otherwise".to_owned()));
        }
        Ok(())
    }

    /// Returns true if some of its values are erased.
    pub fn is_redacted(&self) -> bool {
        // Payload names are sorted, and this one is the first.
        self.payload.strip_prefix("{\"").is_some_and(|rest| rest.starts_with(REDACTED_MEMBER))
    }

    /// Returns the marker of erased values, if there are any.
    pub fn redaction_marker(&self) -> Result<Option<RedactionMarker>, RecordError> {
        if !self.is_redacted() {
            return Ok(None);
        }
        let erasure = object(&self.payload)?.remove(REDACTED_MEMBER).unwrap_or_default();
        serde_json::from_value(erasure).map(Some).map_err(unreadable)
    }

    /// Returns, for a record with erased values, the `redacted` record and the commitment to the current payload that
    /// it must hold.
    pub fn replacement(&self, hasher: &Hasher) -> Result<Option<(Seq, Digest)>, RecordError> {
        let Some(erasure) = self.redaction_marker()? else { return Ok(None) };
        let payload = Value::Object(object(&self.payload)?);
        Ok(Some((erasure.by, hasher.commitment(self.seq.0, REDACTED_MEMBER, &payload))))
    }

    /// Returns the record with new values, some of them erased.
    pub(crate) fn with_redacted(&self, mut values: Map<String, Value>, erasure: &RedactionMarker) -> Self {
        values.insert(REDACTED_MEMBER.to_owned(), serde_json::to_value(erasure).expect("an erasure is JSON"));
        Self::new(self.seq, self.kind, self.at, self.header.clone(), compact(values), self.hash)
    }

    /// Returns its values, by the names of their fields.
    pub fn values(&self) -> Result<Map<String, Value>, RecordError> {
        let mut values = object(&self.payload)?;
        values.remove(REDACTED_MEMBER);
        Ok(values)
    }

    /// Returns the contents of the record, and parses them if that was not done before. Fails with
    /// [`RecordError::NewerFormat`] or [`RecordError::Unreadable`].
    pub fn body(&self) -> Result<&Body, RecordError> {
        let body = self.derived.body.get_or_init(|| self.parse_body().map(Arc::new));
        body.as_deref().map_err(Clone::clone)
    }

    fn parse_body(&self) -> Result<Body, RecordError> {
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
        serde_json::from_value(Value::Object(fields)).map_err(unreadable)
    }

    /// Returns the external caller that caused the record, if it names one.
    pub fn principal(&self) -> Result<Option<Principal>, RecordError> {
        let principal = self.values()?.remove(PRINCIPAL);
        principal.map(serde_json::from_value).transpose().map_err(unreadable)
    }

    /// Returns the merged fields ([`merge_fields`]) as JSON, written once for all readers of the record.
    pub fn merged_text(&self) -> Result<&str, RecordError> {
        let merge = || merge_fields(self).map(|fields| Value::Object(fields).to_string().into());
        self.derived.merged.get_or_init(merge).as_deref().map_err(Clone::clone)
    }

    /// Returns the record as one JSON object, for export: the exact header and hash, and the payload.
    pub fn to_json(&self) -> Value {
        let payload = serde_json::from_str(&self.payload).unwrap_or_else(|_| Value::String(self.payload.clone()));
        serde_json::json!({"header": self.header, "payload": payload, "hash": self.hash})
    }
}

/// Header members that are also stored beside it; all others are skipped.
#[derive(Deserialize)]
struct Columns {
    kind: Option<Value>,
    seq: Option<Value>,
    at: Option<Value>,
}

/// Merges header, payload and hash of a record for people and scripts.
pub fn merge_fields(record: &Record) -> Result<Map<String, Value>, RecordError> {
    let mut fields = object(&record.header)?;
    fields.remove("values");
    fields.extend(object(&record.payload)?);
    fields.insert("hash".into(), record.hash.to_string().into());
    Ok(fields)
}

fn chain(previous: Digest, header: &str) -> Digest {
    let mut bytes = Vec::with_capacity(32 + header.len());
    bytes.extend_from_slice(&previous.0);
    bytes.extend_from_slice(header.as_bytes());
    sha256(&bytes)
}

/// Serialises a payload in canonical form, with fields sorted by name.
fn compact(fields: impl IntoIterator<Item = (impl Serialize, impl Serialize)>) -> String {
    let mut text = Vec::with_capacity(256);
    let written = serde_json::Serializer::new(&mut text).collect_map(fields);
    written.expect("values have string keys and finite numbers");
    String::from_utf8(text).expect("JSON is UTF-8")
}

fn object(text: &str) -> Result<Map<String, Value>, RecordError> {
    serde_json::from_str(text).map_err(unreadable)
}

fn unreadable(error: impl std::fmt::Display) -> RecordError {
    RecordError::Unreadable(error.to_string())
}
