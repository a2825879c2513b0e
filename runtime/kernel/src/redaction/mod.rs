//! Plans a redaction: selects the values to redact in a board's records, and their replacements (SPEC section 10).
//!
//! The plan is a function of the records and the request; it erases nothing itself. [`plan`] follows every committed
//! value through all its places, also when it was moved, copied or shifted (`traces.rs`). It selects the values that
//! were ever at a requested place, and those that a requested record wrote. Records lose them everywhere
//! (`rewrite.rs`): in patches, questions to persons and rejected replies. The document keeps its shape, so that every
//! patch still applies. Texts that may quote a redacted value are redacted as a whole (`texts.rs`). So are file
//! edits that were requested or share lines with requested ones (`edits.rs`).
//!
//! A placeholder, a salted commitment, replaces each redacted value. Equal values have equal placeholders.

mod edits;
mod lineage;
mod names;
mod rewrite;
mod text_search;

use std::collections::BTreeSet;

use jsonptr::PointerBuf;

use crate::board::Board;
use crate::digest::{Digest, Hasher, Salt};
use crate::id::{IdempotencyKey, Seq};
use crate::record::{Body, Ended, Kind, Record, Redacted};
use crate::rejection::code_enum;

use edits::Edits;
use lineage::Lineage;
use rewrite::Rewriter;
pub use text_search::Needles;

/// Maximum places and records in one request.
const TARGETS_MAX: usize = 64;

/// Maximum reported places with remaining copies of a text, or with a redacted value still in use.
const REPORTED_MAX: usize = 64;

/// A redaction request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Redact everything that was ever at or below these places.
    pub places: Vec<PointerBuf>,
    /// Redact all values in these records, and the values they wrote, everywhere.
    pub records: Vec<Seq>,
    /// Keep the current values at the places: redact only those older than the last write of each place as a whole.
    pub keep: bool,
    /// Also redact other values that contain the text of a redacted one.
    pub everywhere: bool,
    /// Also destroy the board's salt.
    pub forget_salt: bool,
    /// Idempotency key.
    pub token: Option<IdempotencyKey>,
}

impl Request {
    /// Returns the fingerprint that identifies a retry.
    fn fingerprint(&self, hasher: &Hasher) -> Digest {
        let Self { places, records, keep, everywhere, forget_salt, token: _ } = self;
        let places: Vec<&str> = places.iter().map(|place| place.as_str()).collect();
        let fields = serde_json::json!([places, records, keep, everywhere, forget_salt]);
        hasher.commitment(u64::MAX, "asked", &fields)
    }
}

/// Result of planning a request.
#[derive(Debug)]
pub struct Redaction {
    /// Body of the record, for [`crate::board::Input::Redact`].
    pub body: Redacted,
    /// The records with replaced values in their payloads.
    pub records: Vec<Record>,
    /// Remaining copies of a redacted text, in values outside the request.
    pub remaining: Vec<RemainingCopy>,
    /// The redacted texts, to search for outside the records.
    pub needles: Needles,
}

/// A value outside the request that contains the text of a redacted one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RemainingCopy {
    /// The record that wrote the value.
    pub seq: Seq,
    /// JSON Pointer of the value; [`RemainingCopy::BLUEPRINT`] for text of the blueprint.
    pub place: String,
}

impl RemainingCopy {
    /// The place of a text in the blueprint itself, outside its initial document.
    pub const BLUEPRINT: &str = "blueprint";
}

code_enum! {
    /// Reason for rejecting a redaction.
    RedactionCode {
        /// No value was ever at the requested places, or all are redacted already.
        NothingToErase = "nothing_to_erase",
        /// The board can continue, and its document or a question to a person contains a value to redact.
        StillInUse = "still_in_use",
        /// The request names no place and no record, too many, or a record that does not exist or must stay.
        BadRedaction = "bad_redaction",
        /// The token was used before, for another redaction.
        RedactionConflict = "redaction_conflict",
    }
}

/// A rejected redaction.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct RedactionError {
    /// Error code.
    pub code: RedactionCode,
    /// Message for people.
    pub message: String,
    /// Places of the document that contain values to redact.
    pub places: Vec<String>,
    /// Records of the questions that contain such values.
    pub questions: Vec<Seq>,
}

impl RedactionError {
    fn new(code: RedactionCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), places: Vec::new(), questions: Vec::new() }
    }

    fn bad(message: impl Into<String>) -> Self {
        Self::new(RedactionCode::BadRedaction, message)
    }
}

/// Returns the `redacted` record of an earlier request with the same token. Fails with
/// [`RedactionCode::RedactionConflict`] if the earlier request differs.
pub fn find_earlier(records: &[Record], request: &Request) -> Result<Option<(Seq, Redacted)>, RedactionError> {
    let Some(token) = &request.token else { return Ok(None) };
    let mut redacted = records.iter().filter(|record| record.kind == Kind::Redacted);
    let earlier = redacted.find_map(|record| match record.body() {
        Ok(Body::Redacted(redacted)) if redacted.token.as_ref() == Some(token) => Some((record.seq, redacted)),
        _ => None,
    });
    let Some((seq, redacted)) = earlier else { return Ok(None) };
    let salt = match records.first().map(Record::body) {
        Some(Ok(Body::Created(created))) => created.salt,
        _ => Salt::ZERO,
    };
    // After a destruction of the salt, fingerprints cannot be compared.
    if salt != Salt::ZERO && redacted.request != request.fingerprint(&Hasher::new(&salt)) {
        let message = format!("the token was used before, for the redaction of record {seq}");
        return Err(RedactionError::new(RedactionCode::RedactionConflict, message));
    }
    Ok(Some((seq, redacted.clone())))
}

/// Plans the redaction of a board from all its records. `text` returns a stored view or prompt by its hash. Fails if
/// the request cannot be fulfilled as a whole.
pub fn plan(
    board: &Board,
    records: &[Record],
    text: &mut dyn FnMut(Digest) -> Option<String>,
    request: &Request,
) -> Result<Redaction, RedactionError> {
    check(board, records, request)?;
    let first = &records[0];
    let unreadable = |error: String| RedactionError::bad(format!("the records cannot be read: {error}"));
    let created = match first.body() {
        Ok(Body::Created(created)) => created,
        Ok(_) => return Err(unreadable("a journal begins with created".to_owned())),
        Err(error) => return Err(unreadable(error.to_string())),
    };
    let hasher = Hasher::new(&created.salt);
    let blueprint = text_search::blueprint_text(&created.blueprint);
    let is_over = board.ended().is_some_and(Ended::is_final);
    let edits = Edits::find(records, request).map_err(unreadable)?;
    let mut traces = Lineage::trace(records, request, is_over).map_err(unreadable)?;
    let texts = |traces: &Lineage| {
        let mut texts = traces.texts(records, request).map_err(unreadable)?;
        texts.extend(edits.lines());
        Ok(texts)
    };
    let mut erased = texts(&traces)?;
    if request.everywhere {
        traces.spread(records, &Needles::new(erased, &blueprint)).map_err(unreadable)?;
        erased = texts(&traces)?;
    }
    let is_said = text_search::occur_in_blueprint(&blueprint, &erased);
    let mut needles = Needles::new(erased, &blueprint);
    if request.everywhere {
        traces.spread_names(&needles);
    }
    let names = traces.names(is_over, request.keep, &blueprint);
    needles.add_names(&names);
    // Number of the future `redacted` record.
    let by = records[records.len() - 1].seq.next();
    let start = Board::from_created(first, &board.plan().source).map_err(|error| unreadable(error.to_string()))?;
    let mut rewriting =
        Rewriter::new(board.plan(), &hasher, by, request, (&traces, &edits), &names, &needles, start.state());
    for record in records {
        rewriting.record(record, text).map_err(unreadable)?;
    }
    let mut done = rewriting.finish();
    if is_said {
        done.remaining.push(RemainingCopy { seq: first.seq, place: RemainingCopy::BLUEPRINT.to_owned() });
    }
    if !is_over {
        let questions: BTreeSet<Seq> = done.records.iter().map(|record| record.seq).collect();
        let questions: Vec<Seq> = board.pending().keys().copied().filter(|seq| questions.contains(seq)).collect();
        if !done.remaining_places.is_empty() || !questions.is_empty() || !done.is_same_document {
            let message = match questions.first() {
                Some(question) if done.remaining_places.is_empty() => {
                    format!("the question of record {question} holds it, and waits for a person")
                }
                _ => "the document holds it, and the board can go on".to_owned(),
            };
            let error = RedactionError::new(RedactionCode::StillInUse, message);
            return Err(RedactionError { places: done.remaining_places, questions, ..error });
        }
    }
    let is_anything = !done.records.is_empty() || !done.texts.is_empty() || request.forget_salt;
    if !is_anything {
        let message = "nothing of value was ever there, or it is all erased already";
        return Err(RedactionError::new(RedactionCode::NothingToErase, message));
    }
    let commitment = |record: &Record| match record.replacement(&hasher) {
        Ok(Some((_, commitment))) => Ok((record.seq, commitment)),
        Ok(None) | Err(_) => Err(unreadable(format!("record {}", record.seq))),
    };
    let targets = request.places.iter().map(|place| rewrite::renamed(place.as_str(), &names, &hasher));
    let body = Redacted {
        records: done.records.iter().map(commitment).collect::<Result<_, _>>()?,
        texts: done.texts.into_iter().collect(),
        erased: done.values,
        salt: request.forget_salt || is_salt_gone(records),
        request: request.fingerprint(&hasher),
        token: request.token.clone(),
        targets: targets.chain(request.records.iter().map(ToString::to_string)).collect(),
    };
    Ok(Redaction { body, records: done.records, remaining: done.remaining, needles })
}

/// Returns true if an earlier redaction destroyed the salt.
fn is_salt_gone(records: &[Record]) -> bool {
    let mut redacted = records.iter().filter(|record| record.kind == Kind::Redacted);
    redacted.any(|record| matches!(record.body(), Ok(Body::Redacted(redacted)) if redacted.salt))
}

/// Rejects an invalid request.
fn check(board: &Board, records: &[Record], request: &Request) -> Result<(), RedactionError> {
    let asked = request.places.len() + request.records.len();
    if asked == 0 && !request.forget_salt {
        return Err(RedactionError::bad("name a place or a record"));
    }
    if asked > TARGETS_MAX {
        return Err(RedactionError::bad(format!("{asked} places and records are named, at most {TARGETS_MAX} may be")));
    }
    let Some(last) = records.last() else { return Err(RedactionError::bad("the board has no records")) };
    if records.first().is_none_or(|first| first.seq != Seq(0)) || board.head() != (last.seq, last.hash) {
        return Err(RedactionError::bad("these are not the records of the board"));
    }
    for seq in &request.records {
        let record = usize::try_from(seq.0).ok().and_then(|index| records.get(index));
        match record.map(|record| record.body()) {
            None => return Err(RedactionError::bad(format!("there is no record {seq}; the last one is {}", last.seq))),
            Some(Ok(Body::Created(_))) => {
                let message = "a board is nothing without its first record: name places of its document, like /request";
                return Err(RedactionError::bad(message));
            }
            Some(Ok(Body::Redacted(_))) => {
                return Err(RedactionError::bad(format!("record {seq} says what was erased, and must stay")));
            }
            Some(_) => {}
        }
    }
    if request.forget_salt && !board.ended().is_some_and(Ended::is_final) {
        let message = "the board can go on, and needs its salt: cancel it first";
        return Err(RedactionError::new(RedactionCode::StillInUse, message));
    }
    Ok(())
}
