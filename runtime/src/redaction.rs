//! Erases values of a board that is not being run, from every file of the journal.
//!
//! What is erased the kernel says ([`patchboard_kernel::redaction`]); here it is done, in an order that leaves the board as
//! it was or the erasure recorded: a value that an administrator puts in place of one is a commit of its own, then the
//! `redacted` record and all it erases are one transaction, and then the file is written anew.

use std::sync::Arc;

use patchboard_kernel::board::{Input, Outcome};
use patchboard_kernel::id::{BoardId, Timestamp, Version};
use patchboard_kernel::owner::Owner;
use patchboard_kernel::plan::Own;
use patchboard_kernel::record::{GENESIS, Principal, Record, Redacted};
use patchboard_kernel::redaction::{self, Needles, RedactionCode, RedactionError, Request, Still};
use patchboard_kernel::rejection::Rejection;
use patchboard_kernel::tree::Node;
use serde_json::Value;

use crate::journal::{Batch, Erasure, Head, Journal, JournalError};
use crate::recovery;
use crate::runtime::RuntimeError;

/// How many records are read at once.
const PAGE: usize = 1024;

/// What came of a redaction.
#[derive(Clone, PartialEq, Debug)]
pub struct Redaction<B> {
    /// The `redacted` record.
    pub head: Head,
    /// What it says.
    pub body: Redacted,
    /// The version that a value put in place of the erased one made.
    pub replaced_at: Option<Version>,
    /// Where the text of an erased value still stands, in values that were not asked for.
    pub still: Vec<Still>,
    /// The result of the search beside the journal.
    pub beside: B,
    /// Whether it is the repetition of one that was done before.
    pub is_repeated: bool,
    /// Why the file still has to be written anew, if that could not be done: whatever was erased may be found in it until
    /// then. It is tried again whenever the journal is opened, and by `vacuum`.
    pub unscrubbed: Option<JournalError>,
}

/// Why nothing was erased.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The request cannot be met.
    #[error(transparent)]
    Redaction(#[from] RedactionError),
    /// The value that was to be put in place of the one there may not be there.
    #[error("the other value may not be there: {}", .0.violations.first().map_or("", |violation| violation.message.as_str()))]
    Replacement(Rejection),
    /// The search beside the journal refuses it.
    #[error(transparent)]
    Beside(#[from] Hindrance),
    /// The board cannot be read or written.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// The reason to end a redaction before the journal is touched: a later search beside it would lack the texts.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Hindrance {
    /// Stable name.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

impl From<JournalError> for Refusal {
    fn from(error: JournalError) -> Self {
        Self::Runtime(error.into())
    }
}

impl Refusal {
    /// Stable name; messages may change, codes may not.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Redaction(error) => error.code.as_str(),
            Self::Replacement(_) => "replacement_refused",
            Self::Beside(hindrance) => hindrance.code,
            Self::Runtime(error) => error.code(),
        }
    }
}

/// Erases what `request` asks for, in the name of a caller. With `replacement`, that value is put in place of what is at the only place asked for,
/// and stays. The caller holds the claim on the board, and nobody runs it.
///
/// `beside` is given the texts that are erased, to look for them beside the journal: before they go from the journal, so that
/// the same request finds them again where it is broken off.
///
/// # Errors
/// [`Refusal`]; nothing is erased then, though a replacement may have been made.
pub async fn redact<B: Default + Send + 'static>(
    journal: Arc<dyn Journal>,
    id: BoardId,
    mut request: Request,
    replacement: Option<Value>,
    principal: Option<Principal>,
    now: Timestamp,
    beside: impl FnOnce(&Needles) -> Result<B, Hindrance> + Send + 'static,
) -> Result<Redaction<B>, Refusal> {
    let mut replaced_at = None;
    if let Some(value) = replacement {
        request.keep = true;
        let (reader, board, asked) = (Arc::clone(&journal), id.clone(), request.clone());
        let by = principal.clone();
        let decided = blocking(move || replace(&*reader, &board, &asked, value, by, now)).await?;
        if let Some((batch, version)) = decided {
            journal.append(batch).await?;
            replaced_at = Some(version);
        }
    }
    let erased = blocking(move || erase(&*journal, &id, &request, principal, now, beside)).await?;
    Ok(Redaction { replaced_at, ..erased })
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Refusal> + Send + 'static) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(JournalError::Io(format!("the redaction was interrupted: {error}")).into()))
}

fn erase<B: Default>(
    journal: &dyn Journal,
    id: &BoardId,
    request: &Request,
    principal: Option<Principal>,
    now: Timestamp,
    beside: impl FnOnce(&Needles) -> Result<B, Hindrance>,
) -> Result<Redaction<B>, Refusal> {
    let records = records(journal, id)?;
    if records.is_empty() {
        return Err(JournalError::NotFound(format!("board {id}")).into());
    }
    if let Some((seq, body)) = redaction::known(&records, request)? {
        let hash = records.iter().find(|record| record.seq == seq).map_or(GENESIS, |record| record.hash);
        let unscrubbed = journal.scrub().err();
        let (head, still, beside) = (Head { seq, hash }, Vec::new(), B::default());
        return Ok(Redaction { head, body, replaced_at: None, still, beside, is_repeated: true, unscrubbed });
    }
    let mut owner = Owner::new(recovery::recover(journal, id, &Own)?.board);
    let mut text = |hash| journal.blob(hash).ok().flatten();
    let planned = redaction::plan(owner.board(), &records, &mut text, request)?;
    let beside = beside(&planned.needles)?;
    let append = owner.decide_by(now, Input::Redact(planned.body.clone()), principal, &mut |_, _| None).append;
    let append = append.ok_or_else(|| JournalError::Io("the redaction was not recorded".to_owned()))?;
    let texts = planned.body.texts.clone();
    let head = journal.erase(&Erasure { batch: append.into(), records: planned.records, texts })?;
    let unscrubbed = journal.scrub().err();
    let still = planned.still;
    Ok(Redaction { head, body: planned.body, replaced_at: None, still, beside, is_repeated: false, unscrubbed })
}

/// The commit that puts a value in place of the one that is to be erased; none if it is there already, from an attempt
/// that was interrupted, or if the board holds its last document.
fn replace(
    journal: &dyn Journal,
    id: &BoardId,
    request: &Request,
    value: Value,
    principal: Option<Principal>,
    now: Timestamp,
) -> Result<Option<(Batch, Version)>, Refusal> {
    let [place] = request.places.as_slice() else {
        let message = "another value takes the place of one: name one place, and no record".to_owned();
        let code = RedactionCode::BadRedaction;
        return Err(RedactionError { code, message, places: Vec::new(), questions: Vec::new() }.into());
    };
    // What was done before is not done again: another value may stand there by now.
    if redaction::known(&records(journal, id)?, request)?.is_some() {
        return Ok(None);
    }
    let mut owner = Owner::new(recovery::recover(journal, id, &Own)?.board);
    let there = owner.board().state().get(place).map(Node::to_value);
    if there.as_ref() == Some(&value) {
        return Ok(None);
    }
    let amend = Input::Amend { path: place.to_string(), value };
    let decided = owner.decide_by(now, amend, principal, &mut |_, _| None);
    match (decided.append, decided.released.and_then(|step| step.outcome)) {
        (Some(append), _) => Ok(Some((append.into(), owner.board().version()))),
        (None, Some(Outcome::Refused(rejection))) => Err(Refusal::Replacement(rejection)),
        (None, _) => Err(JournalError::Io("the replacement was not recorded".to_owned()).into()),
    }
}

/// All records of a board.
fn records(journal: &dyn Journal, id: &BoardId) -> Result<Vec<Record>, JournalError> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let page = journal.records(id, records.last().map(|record| record.seq), PAGE)?;
        if page.is_empty() {
            return Ok(records);
        }
        records.extend(page);
    }
}
