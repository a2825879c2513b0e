//! What is to be erased of a board's records, and what stands there then (SPEC section 10).
//!
//! A function of the records and of what was asked for; nothing is erased here. [`plan`] follows every value that a
//! commit wrote to the places where it ever stood, also when it was moved, copied or shifted (`traces.rs`). Those that
//! ever stood at a place that was asked for, and those that a record asked for brought, are erased wherever records have
//! them (`rewrite.rs`): in patches, in questions to persons, in what was refused. Of a document the shape stays, so that
//! every patch still applies; texts that may quote an erased value (`texts.rs`) are erased as a whole, and edits of files
//! that were asked for or hold lines of such (`edits.rs`).
//!
//! In place of an erased value stands a mark, a salted commitment. Equal values have equal marks.

mod edits;
mod names;
mod rewrite;
mod texts;
mod traces;

use std::collections::BTreeSet;

use jsonptr::PointerBuf;
use serde_json::Value;

use crate::board::Board;
use crate::digest::{Digest, Hasher, Salt};
use crate::id::{Seq, Token};
use crate::plan::Own;
use crate::record::{Body, Ended, Kind, Record, Redacted};
use crate::rejection::coded;

use edits::Edits;
use rewrite::Rewriting;
pub use texts::Needles;
use traces::Traces;

/// What a mark begins with.
const MARK: &str = "$redacted:";

/// Places and records that one request may name.
const TARGETS_MAX: usize = 64;

/// The most places that are told of where the same text still stands, or where an erased value is still used.
const TOLD_MAX: usize = 64;

/// What is to be erased.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Everything that ever stood at these places or below.
    pub places: Vec<PointerBuf>,
    /// Everything of value in these records, and the values they brought wherever these stood.
    pub records: Vec<Seq>,
    /// Not what stands at the places now, nor since it was put there as a whole.
    pub keep: bool,
    /// Other values, too, in which the text of an erased one stands.
    pub everywhere: bool,
    /// The board's salt, too.
    pub forget_salt: bool,
    /// For recognising a repetition.
    pub token: Option<Token>,
}

impl Request {
    /// What a repetition is known by.
    fn fingerprint(&self, hasher: &Hasher) -> Digest {
        let Self { places, records, keep, everywhere, forget_salt, token: _ } = self;
        let places: Vec<&str> = places.iter().map(|place| place.as_str()).collect();
        let asked = serde_json::json!([places, records, keep, everywhere, forget_salt]);
        hasher.commitment(u64::MAX, "asked", &asked)
    }
}

/// What comes of a request.
#[derive(Debug)]
pub struct Redaction {
    /// What to record of it, by [`crate::board::Input::Redact`].
    pub body: Redacted,
    /// The records with other values in their payloads.
    pub records: Vec<Record>,
    /// Where the text of an erased value still stands: places in values that were not asked for.
    pub still: Vec<Still>,
    /// The texts that are erased, to be looked for where no record is.
    pub needles: Needles,
}

/// A value that holds the text of an erased one and was not asked for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Still {
    /// The record that brought it.
    pub seq: Seq,
    /// Where it put it, as a JSON Pointer; [`Still::BLUEPRINT`] for what the blueprint says.
    pub place: String,
}

impl Still {
    /// The place of a text that the blueprint says itself, beside the document that it begins with.
    pub const BLUEPRINT: &str = "blueprint";
}

coded! {
    /// Why nothing is erased.
    RedactionCode {
        /// Nothing of value ever stood there, or it is all erased already.
        NothingToErase = "nothing_to_erase",
        /// The board can go on, and its document or a question to a person holds what is to be erased.
        StillInUse = "still_in_use",
        /// The request names no place and no record, too many, or a record that is not there or must stay.
        BadRedaction = "bad_redaction",
        /// The token was used before, for another redaction.
        RedactionConflict = "redaction_conflict",
    }
}

/// Why nothing is erased.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct RedactionError {
    /// What is wrong.
    pub code: RedactionCode,
    /// For people.
    pub message: String,
    /// Places of the document that hold what is to be erased.
    pub places: Vec<String>,
    /// Records of the questions that hold it.
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

/// What stands in place of an erased value: a text, whatever the value was.
fn mark(hasher: &Hasher, value: &Value) -> Value {
    // No record has this number.
    Value::String(format!("{MARK}{}", hasher.commitment(u64::MAX, "", value)))
}

/// What stands in place of the name of a member.
fn mark_name(hasher: &Hasher, name: &str) -> String {
    let digest = hasher.commitment(u64::MAX, "name", &Value::from(name)).to_string();
    format!("{MARK}{}", &digest[..32])
}

/// Whether a text stands in place of what was erased.
pub fn is_mark(text: &str) -> bool {
    text.starts_with(MARK)
}

/// The `redacted` record of an earlier request with the token of this one.
///
/// # Errors
/// [`RedactionCode::RedactionConflict`] if that one asked for something else.
pub fn known(records: &[Record], request: &Request) -> Result<Option<(Seq, Redacted)>, RedactionError> {
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
    // A destroyed salt leaves nothing to compare by.
    if salt != Salt::ZERO && redacted.asked != request.fingerprint(&Hasher::new(&salt)) {
        let message = format!("the token was used before, for the redaction of record {seq}");
        return Err(RedactionError::new(RedactionCode::RedactionConflict, message));
    }
    Ok(Some((seq, redacted)))
}

/// Works out what is erased of a board whose records these are, all of them, and what stands there then. `text` gives a
/// stored view or prompt by its hash.
///
/// # Errors
/// [`RedactionError`]: nothing can be erased as it was asked for.
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
    let blueprint = texts::of_blueprint(&created.blueprint);
    let is_over = board.ended().is_some_and(Ended::is_final);
    let edits = Edits::find(records, request).map_err(unreadable)?;
    let mut traces = Traces::follow(records, request, is_over).map_err(unreadable)?;
    let texts = |traces: &Traces| {
        let mut texts = traces.texts(records, request).map_err(unreadable)?;
        texts.extend(edits.lines());
        Ok(texts)
    };
    let mut erased = texts(&traces)?;
    if request.everywhere {
        traces.spread(records, &Needles::new(erased, &blueprint)).map_err(unreadable)?;
        erased = texts(&traces)?;
    }
    let is_said = texts::are_said(&blueprint, &erased);
    let mut needles = Needles::new(erased, &blueprint);
    if request.everywhere {
        traces.spread_names(&needles);
    }
    let names = traces.names(is_over, request.keep, &blueprint);
    needles.add_names(&names);
    // The record that will say so.
    let by = records[records.len() - 1].seq.next();
    let start = Board::from_created(first, &Own).map_err(|error| unreadable(error.to_string()))?;
    let mut rewriting =
        Rewriting::new(board.plan(), &hasher, by, request, (&traces, &edits), &names, &needles, start.state());
    for record in records {
        rewriting.record(record, text).map_err(unreadable)?;
    }
    let mut done = rewriting.finish();
    if is_said {
        done.still.push(Still { seq: first.seq, place: Still::BLUEPRINT.to_owned() });
    }
    if !is_over {
        let questions: BTreeSet<Seq> = done.records.iter().map(|record| record.seq).collect();
        let questions: Vec<Seq> = board.pending().keys().copied().filter(|seq| questions.contains(seq)).collect();
        if !done.standing.is_empty() || !questions.is_empty() || !done.is_same_document {
            let message = match questions.first() {
                Some(question) if done.standing.is_empty() => {
                    format!("the question of record {question} holds it, and waits for a person")
                }
                _ => "the document holds it, and the board can go on".to_owned(),
            };
            let error = RedactionError::new(RedactionCode::StillInUse, message);
            return Err(RedactionError { places: done.standing, questions, ..error });
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
    let targets = request.places.iter().map(|place| rewriting_name(&names, &hasher, place));
    let body = Redacted {
        records: done.records.iter().map(commitment).collect::<Result<_, _>>()?,
        texts: done.texts.into_iter().collect(),
        erased: done.values,
        salt: request.forget_salt || is_salt_gone(records),
        asked: request.fingerprint(&hasher),
        token: request.token.clone(),
        targets: targets.chain(request.records.iter().map(ToString::to_string)).collect(),
    };
    Ok(Redaction { body, records: done.records, still: done.still, needles })
}

/// Whether an earlier redaction destroyed the salt.
fn is_salt_gone(records: &[Record]) -> bool {
    let mut redacted = records.iter().filter(|record| record.kind == Kind::Redacted);
    redacted.any(|record| matches!(record.body(), Ok(Body::Redacted(redacted)) if redacted.salt))
}

fn rewriting_name(names: &BTreeSet<String>, hasher: &Hasher, place: &PointerBuf) -> String {
    rewrite::renamed(place.as_str(), names, hasher)
}

/// Refuses what cannot be asked for.
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
