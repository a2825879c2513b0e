//! Redacts values of a board that is not running, in every file of the journal.
//!
//! The kernel plans the redaction ([`patchboard_kernel::redaction`]); this file executes it. The order of steps leaves
//! the board unchanged or the redaction recorded. An administrator's replacement value is a commit of its own; then
//! the `redacted` record and all erasures are one transaction; then the file is rewritten.

use std::sync::Arc;

use patchboard_kernel::board::{Input, Outcome};
use patchboard_kernel::driver::Driver;
use patchboard_kernel::id::{BoardId, Timestamp, Version};
use patchboard_kernel::plan::{PlanSource, UncachedPlans};
use patchboard_kernel::record::{GENESIS, Principal, Record, Redacted};
use patchboard_kernel::redaction::{self, Needles, RedactionCode, RedactionError, RemainingCopy, Request};
use patchboard_kernel::rejection::Rejection;
use patchboard_kernel::tree::Node;
use serde_json::Value;

use crate::error::RuntimeError;
use crate::recovery;
use patchboard_kernel::driver::{Batch, Head};
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::{Erasure, Journal, JournalError, NewPayload};

/// Records read at once.
const PAGE: usize = 1024;

/// Result of a redaction.
#[derive(Clone, PartialEq, Debug)]
pub struct Redaction<B> {
    /// Last record: the `redacted` record.
    pub head: Head,
    /// Body of that record.
    pub body: Redacted,
    /// Version of the commit with the replacement value.
    pub replaced_at: Option<Version>,
    /// Remaining occurrences of a redacted text, in values that were not requested.
    pub remaining: Vec<RemainingCopy>,
    /// Result of the search outside the journal.
    pub external: B,
    /// The request repeats an earlier one.
    pub is_repeated: bool,
    /// Error of the pending rewrite of the file, which may contain the erased bytes until then. The rewrite is retried
    /// when the journal is opened, and by `vacuum`.
    pub purge_error: Option<JournalError>,
}

/// Rejection of a redaction.
#[derive(Debug, thiserror::Error)]
pub enum RedactError {
    /// The request is invalid.
    #[error(transparent)]
    Redaction(#[from] RedactionError),
    /// The replacement value is rejected.
    #[error("the other value may not be there: {}", .0.violations.first().map_or("", |violation| violation.message.as_str()))]
    Replacement(Rejection),
    /// The search outside the journal rejects it.
    #[error(transparent)]
    External(#[from] ExternalSearchError),
    /// The board cannot be read or written.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Reason to end a redaction before the journal is changed: a later search outside it would lack the texts.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ExternalSearchError {
    /// Stable code.
    pub code: &'static str,
    /// Message for people.
    pub message: String,
}

impl From<JournalError> for RedactError {
    fn from(error: JournalError) -> Self {
        Self::Runtime(error.into())
    }
}

impl RedactError {
    /// Returns the stable code; messages may change, codes may not.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Redaction(error) => error.code.as_str(),
            Self::Replacement(_) => "replacement_refused",
            Self::External(hindrance) => hindrance.code,
            Self::Runtime(error) => error.code(),
        }
    }
}

/// Redacts the values in `request`, in the name of a caller. A `replacement` is first written to the only requested
/// place, and stays. The caller holds the claim on the board, which must not be running.
///
/// `beside` gets the texts to search for outside the journal. It runs before the journal erases them, so that a
/// repeated request finds them if this one is interrupted. If it fails, no value is redacted, though a replacement may
/// have been committed.
pub async fn redact<B: Default + Send + 'static>(
    journal: Arc<dyn Journal>,
    id: BoardId,
    mut request: Request,
    replacement: Option<Value>,
    (principal, now): (Option<Principal>, Timestamp),
    plans: UncachedPlans,
    beside: impl FnOnce(&Needles) -> Result<B, ExternalSearchError> + Send + 'static,
) -> Result<Redaction<B>, RedactError> {
    let mut replaced_at = None;
    if let Some(value) = replacement {
        request.keep = true;
        let (reader, board, redaction_request) = (Arc::clone(&journal), id.clone(), request.clone());
        let by = principal.clone();
        let decided = blocking(move || replace(&*reader, &board, &redaction_request, value, (by, now), &plans)).await?;
        if let Some((batch, version)) = decided {
            journal.append(batch).await?;
            replaced_at = Some(version);
        }
    }
    let erased = blocking(move || erase(&*journal, &id, &request, (principal, now), &plans, beside)).await?;
    Ok(Redaction { replaced_at, ..erased })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RedactError> + Send + 'static,
) -> Result<T, RedactError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(JournalError::Io(format!("the redaction was interrupted: {error}")).into()))
}

fn erase<B: Default>(
    journal: &dyn Journal,
    id: &BoardId,
    request: &Request,
    (principal, now): (Option<Principal>, Timestamp),
    plans: &dyn PlanSource,
    beside: impl FnOnce(&Needles) -> Result<B, ExternalSearchError>,
) -> Result<Redaction<B>, RedactError> {
    let records = records(journal, id)?;
    if records.is_empty() {
        return Err(JournalError::NotFound(format!("board {id}")).into());
    }
    if let Some((seq, body)) = redaction::find_earlier(&records, request)? {
        let hash = records.iter().find(|record| record.seq == seq).map_or(GENESIS, |record| record.hash);
        let purge_error = wait(journal.purge_erased_bytes()).err();
        let (head, remaining, external) = (Head { seq, hash }, Vec::new(), B::default());
        return Ok(Redaction { head, body, replaced_at: None, remaining, external, is_repeated: true, purge_error });
    }
    let mut driver = Driver::new(recovery::recover(journal, id, plans)?.board);
    let mut text = |hash| wait(journal.blob(hash)).ok().flatten();
    let planned = redaction::plan(driver.board(), &records, &mut text, request)?;
    let external = beside(&planned.needles)?;
    let append = driver.decide_as(now, Input::Redact(planned.body.clone()), principal, &mut |_, _| None).append;
    let append = append.ok_or_else(|| JournalError::Io("the redaction was not recorded".to_owned()))?;
    let texts = planned.body.texts.clone();
    let replaced =
        |record: Record| NewPayload { of: Head { seq: record.seq, hash: record.hash }, payload: record.payload };
    let payloads = planned.records.into_iter().map(replaced).collect();
    let head = wait(journal.erase(Erasure { batch: append, payloads, texts }))?;
    let purge_error = wait(journal.purge_erased_bytes()).err();
    let (body, remaining) = (planned.body, planned.remaining);
    Ok(Redaction { head, body, replaced_at: None, remaining, external, is_repeated: false, purge_error })
}

/// Returns the commit that writes the replacement. Returns none if an interrupted attempt has written it, or if the
/// request was completed before.
fn replace(
    journal: &dyn Journal,
    id: &BoardId,
    request: &Request,
    value: Value,
    (principal, now): (Option<Principal>, Timestamp),
    plans: &dyn PlanSource,
) -> Result<Option<(Batch, Version)>, RedactError> {
    let [place] = request.places.as_slice() else {
        let message = "another value takes the place of one: name one place, and no record".to_owned();
        let code = RedactionCode::BadRedaction;
        return Err(RedactionError { code, message, places: Vec::new(), questions: Vec::new() }.into());
    };
    // A completed redaction is not repeated: the place may have another value by now.
    if redaction::find_earlier(&records(journal, id)?, request)?.is_some() {
        return Ok(None);
    }
    let mut driver = Driver::new(recovery::recover(journal, id, plans)?.board);
    let there = driver.board().state().get(place).map(Node::to_value);
    if there.as_ref() == Some(&value) {
        return Ok(None);
    }
    let amend = Input::Amend { path: place.to_string(), value };
    let decided = driver.decide_as(now, amend, principal, &mut |_, _| None);
    match (decided.append, decided.released.and_then(|step| step.outcome)) {
        (Some(append), _) => Ok(Some((append, driver.board().version()))),
        (None, Some(Outcome::RejectedUnrecorded(rejection))) => Err(RedactError::Replacement(rejection)),
        (None, _) => Err(JournalError::Io("the replacement was not recorded".to_owned()).into()),
    }
}

fn records(journal: &dyn Journal, id: &BoardId) -> Result<Vec<Record>, JournalError> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let page = wait(journal.records(id, records.last().map(|record| record.seq), PAGE))?;
        if page.is_empty() {
            return Ok(records);
        }
        records.extend(page);
    }
}
