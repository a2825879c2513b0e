//! Checks stored boards: every record's hash, values and texts, and completeness.
//!
//! Needs no running board. `patchboard_kernel::replay` checks that the records follow from each other.

mod report;

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::board::Board;
use patchboard_kernel::digest::{Digest, Hasher};
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::plan::PlanSource;
use patchboard_kernel::record::{Body, Kind, Record, RecordError, Redacted, Snapshot};
use patchboard_kernel::snapshot::{self, SnapshotError};

pub use report::{AuditError, AuditReport, ErasureCounts};

use crate::recovery;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::{BoardSummary, DECIDES_END, Journal, JournalError, KeptSnapshot};

/// Result of an audit.
pub type Result<T, E = AuditError> = std::result::Result<T, E>;

/// Records read at once.
const PAGE: usize = 256;

/// Compares a board's summary with its last records: head, version and end. Reads much less than [`verify`]. Fails with
/// [`JournalError::BadRecord`] if they differ.
pub fn check_listed(journal: &dyn Journal, board: &BoardId) -> Result<(), JournalError> {
    loop {
        let Some(listed) = wait(journal.summary(board))? else { return Ok(()) };
        let Some(what) = summary_difference(journal, &listed)? else { return Ok(()) };
        // A process that runs the board may have appended in between.
        if wait(journal.summary(board))?.as_ref() == Some(&listed) {
            let why = format!("the list of boards has another {what} of board {board} than its records");
            return Err(JournalError::BadRecord { seq: listed.head.seq, why });
        }
    }
}

/// Returns the field in which a summary differs from the last records of the board.
fn summary_difference(journal: &dyn Journal, listed: &BoardSummary) -> Result<Option<String>, JournalError> {
    let after = |seq: u64| seq.checked_sub(1).map(Seq);
    let tail = wait(journal.records(&listed.id, after(listed.head.seq.0), 2))?;
    match tail.as_slice() {
        [last] if (last.seq, last.hash) == (listed.head.seq, listed.head.hash) => {}
        _ => return Ok(Some("head".to_owned())),
    }
    let (mut version, mut ended) = (None, None);
    let mut until = listed.head.seq.0.saturating_add(1);
    while until > 0 && (version.is_none() || ended.is_none()) {
        let from = until.saturating_sub(PAGE as u64);
        let page = wait(journal.records(&listed.id, after(from), usize::try_from(until - from).unwrap_or(PAGE)))?;
        for record in page.iter().rev() {
            let mut alone = BoardSummary::empty(listed.id.clone());
            let unreadable = |error: RecordError| JournalError::BadRecord { seq: record.seq, why: error.to_string() };
            if DECIDES_END.contains(&record.kind) && ended.is_none() {
                alone.apply(record).map_err(unreadable)?;
                ended = Some(alone.ended);
            }
            if record.kind == Kind::Committed && version.is_none() {
                alone.apply(record).map_err(unreadable)?;
                version = Some(alone.version);
            }
        }
        until = from;
    }
    let differs = |what: &str, is: bool| (!is).then(|| what.to_owned());
    Ok(differs("version", version.unwrap_or_default() == listed.version)
        .or_else(|| differs("end", ended.flatten() == listed.ended)))
}

/// Checks all of a board's records. `expected_head` is a hash kept elsewhere, which the head or an earlier record must
/// have.
pub fn verify(
    journal: &dyn Journal,
    board: &BoardId,
    expected_head: Option<Digest>,
    plans: &dyn PlanSource,
) -> Result<AuditReport> {
    // Read first: a running board may append records meanwhile, but never removes any.
    let listed = wait(journal.summary(board))?;
    // Reported last: other faults matter more.
    let (kept, unreadable) = match wait(journal.snapshots(board)) {
        Err(JournalError::Corrupt { what, .. }) => (Vec::new(), Some(what)),
        kept => (kept?, None),
    };
    let mut walk = Auditor::new(journal, board, expected_head, &kept);
    let mut limit = PAGE;
    loop {
        let page = match wait(journal.records(board, walk.last(), limit)) {
            Ok(page) => page,
            // One by one, to find the first bad record and not the first bad page.
            Err(JournalError::Corrupt { .. } | JournalError::BadRecord { .. }) if limit > 1 => {
                limit = 1;
                continue;
            }
            Err(JournalError::Corrupt { what, .. }) => return Err(walk.record_error(what)),
            Err(JournalError::BadRecord { why, .. }) => return Err(walk.record_error(why)),
            Err(error) => return Err(error.into()),
        };
        if page.is_empty() {
            break;
        }
        for record in &page {
            walk.record(record)?;
            if let Some(listed) = &listed
                && listed.head.seq == record.seq
                && *listed != walk.summary
            {
                return Err(AuditError::Summary(difference(listed, &walk.summary)));
            }
        }
    }
    let Some(listed) = listed else {
        return Err(match walk.records {
            0 => JournalError::NotFound(format!("board {board}")).into(),
            _ => AuditError::Summary(format!("board {board} is not in it")),
        });
    };
    if walk.last() < Some(listed.head.seq) {
        return Err(
            walk.record_error(format!("it is missing; the last one in the list of boards is {}", listed.head.seq))
        );
    }
    if let Some((seq, reason)) = walk.missing.values().min().cloned() {
        return Err(AuditError::Record { seq, reason });
    }
    let mut unchecked = 0;
    for snapshot in &kept {
        unchecked += u64::from(walk.snapshot(*snapshot, plans)? == SnapshotCheck::ByAnother);
    }
    wait(journal.check_storage())?;
    let head = walk.summary.head;
    // A step that was cut in the middle has a sound chain; deriving it shows the missing records.
    if let Err(JournalError::BadRecord { seq, why: reason }) = recovery::check_end(journal, board, plans) {
        return Err(AuditError::Record { seq, reason });
    }
    if let Some(expected) = expected_head
        && walk.expected_at.is_none()
    {
        return Err(AuditError::Head { expected, head });
    }
    let misnoted = |hash: Digest| format!("part {hash} is noted to name other parts than it does");
    if let Some((by, owed)) = walk.pending_erasures.first_key_value() {
        let seq = owed.first().map_or(*by, |(seq, _)| *seq);
        let reason = format!("its values are said to be erased by record {by}, which does not say so");
        return Err(AuditError::Record { seq, reason });
    }
    if let Some(what) = unreadable.or_else(|| walk.wrong_refs.map(misnoted)) {
        return Err(AuditError::SnapshotList(what));
    }
    Ok(AuditReport {
        head,
        records: walk.records,
        blobs: if journal.has_texts() { walk.texts.len() as u64 } else { 0 },
        unchecked_blobs: if journal.has_texts() { 0 } else { walk.texts.len() as u64 },
        snapshots: kept.len() as u64 - unchecked,
        unchecked_snapshots: unchecked,
        expected_at: walk.expected_at,
        erased: walk.erased,
    })
}

/// Result of checking a sound snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SnapshotCheck {
    Sound,
    /// Another version can check it.
    ByAnother,
}

/// Traversal of one board's records, in order.
struct Auditor<'a> {
    journal: &'a dyn Journal,
    board: &'a BoardId,
    expected: Option<Digest>,
    expected_at: Option<Seq>,
    /// Set from the first record on.
    hasher: Option<Hasher>,
    summary: BoardSummary,
    records: u64,
    texts: BTreeSet<Digest>,
    first: Option<Record>,
    /// Digest of the state after the last commit.
    state: Digest,
    /// Snapshots named by records, by the naming record.
    named: BTreeMap<Seq, Snapshot>,
    /// Hash and state digest at the last records of kept snapshots.
    states_at: BTreeMap<Seq, Option<(Digest, Digest)>>,
    /// A part of a kept snapshot with wrong reference metadata.
    wrong_refs: Option<Digest>,
    /// Replacements of redacted values, each with its record, by the record that must have committed to it.
    pending_erasures: BTreeMap<Seq, Vec<(Seq, Digest)>>,
    /// Erased texts; each is listed in a `redacted` record, of this board or of another.
    erased_texts: BTreeSet<Digest>,
    /// Missing texts, each with the first record that names it and the message.
    missing: BTreeMap<Digest, (Seq, String)>,
    erased: ErasureCounts,
    /// The salt of the commitments is destroyed.
    is_unsalted: bool,
}

impl<'a> Auditor<'a> {
    fn new(journal: &'a dyn Journal, board: &'a BoardId, expected: Option<Digest>, kept: &[KeptSnapshot]) -> Self {
        let summary = BoardSummary::empty(board.clone());
        Self {
            journal,
            board,
            expected,
            expected_at: None,
            hasher: None,
            summary,
            records: 0,
            texts: BTreeSet::new(),
            first: None,
            state: Digest([0; 32]),
            named: BTreeMap::new(),
            states_at: kept.iter().map(|kept| (kept.of, None)).collect(),
            wrong_refs: None,
            pending_erasures: BTreeMap::new(),
            erased_texts: BTreeSet::new(),
            missing: BTreeMap::new(),
            erased: ErasureCounts::default(),
            is_unsalted: false,
        }
    }

    fn last(&self) -> Option<Seq> {
        (self.records > 0).then_some(self.summary.head.seq)
    }

    fn next(&self) -> Seq {
        self.last().map(Seq::next).unwrap_or_default()
    }

    /// Builds a fault of the next record.
    fn record_error(&self, reason: impl Into<String>) -> AuditError {
        AuditError::Record { seq: self.next(), reason: reason.into() }
    }

    fn record(&mut self, record: &Record) -> Result<()> {
        let fault = |error: RecordError| self.record_error(error.to_string());
        if record.seq != self.next() {
            return Err(self.record_error(format!("it is missing; the next one stored is {}", record.seq)));
        }
        record.check_chain(self.summary.head.hash).map_err(fault)?;
        // The values first, since a changed one may also be unreadable. But the first record holds the salt.
        if let Some(hasher) = self.hasher.as_ref().filter(|_| !self.is_unsalted) {
            record.check_values(hasher).map_err(fault)?;
        }
        let body = record.body().map_err(fault)?;
        if self.hasher.is_none() {
            let Body::Created(created) = body else { return Err(self.record_error("a journal begins with created")) };
            let hasher = Hasher::new(&created.salt);
            record.check_values(&hasher).map_err(fault)?;
            if created.board != *self.board {
                return Err(self.record_error(format!("it is of board {}", created.board)));
            }
            self.hasher = Some(hasher);
            self.is_unsalted = self.is_salt_erased(record)?;
            self.first = Some(record.clone());
            for prompt in created.architect.iter().flat_map(|architect| &architect.prompts) {
                self.text("architect's prompt", *prompt)?;
            }
            self.state = created.state;
        }
        if let Body::Invoked(invoked) = body {
            self.text("view", invoked.view)?;
            self.text("prompt", invoked.prompt)?;
        }
        if let Body::Committed(committed) = body {
            self.state = committed.state;
        }
        if let Body::Snapshot(snapshot) = body {
            if snapshot.of >= record.seq {
                return Err(
                    self.record_error(format!("its snapshot includes record {}, which comes later", snapshot.of))
                );
            }
            self.named.insert(record.seq, *snapshot);
        }
        self.note_erasure(record)?;
        if let Body::Redacted(redacted) = body {
            self.redacted(record.seq, redacted)?;
        }
        if let Some(moment) = self.states_at.get_mut(&record.seq) {
            *moment = Some((record.hash, self.state));
        }
        self.summary.apply(record).map_err(|error| self.record_error(error.to_string()))?;
        self.records += 1;
        if self.expected == Some(record.hash) {
            self.expected_at = Some(record.seq);
        }
        Ok(())
    }

    /// Notes the commitment that a later record must have.
    fn note_erasure(&mut self, record: &Record) -> Result<()> {
        let Some(hasher) = &self.hasher else { return Ok(()) };
        let replacement = record.replacement(hasher).map_err(|error| self.record_error(error.to_string()))?;
        if let Some((by, commitment)) = replacement {
            if by <= record.seq {
                return Err(
                    self.record_error(format!("its values are said to be erased by record {by}, which is not later"))
                );
            }
            self.pending_erasures.entry(by).or_default().push((record.seq, commitment));
            self.erased.records += 1;
        }
        Ok(())
    }

    /// Checks that the current replacements match a record of a redaction.
    fn redacted(&mut self, by: Seq, redacted: &Redacted) -> Result<()> {
        let recorded: BTreeMap<Seq, Digest> = redacted.records.iter().copied().collect();
        for (seq, commitment) in self.pending_erasures.remove(&by).unwrap_or_default() {
            // Without the salt of the commitments, there is nothing to compare.
            let is_recorded = recorded.get(&seq).is_some_and(|said| *said == commitment || self.is_unsalted);
            if !is_recorded {
                let reason = format!("the replacement of its erased values differs from record {by}");
                return Err(AuditError::Record { seq, reason });
            }
        }
        for hash in &redacted.texts {
            if self.missing.remove(hash).is_some() {
                self.erased.texts += u64::from(self.erased_texts.insert(*hash));
            }
        }
        self.erased.values += redacted.erased;
        self.erased.salt |= redacted.salt;
        Ok(())
    }

    /// Returns true if a record says that the board's salt was destroyed; the chain covers that record.
    fn is_salt_erased(&self, first: &Record) -> Result<bool> {
        let fault = |error: RecordError| self.record_error(error.to_string());
        let Some(erasure) = first.redaction_marker().map_err(fault)? else { return Ok(false) };
        let record = wait(self.journal.record(self.board, erasure.by))?;
        Ok(matches!(record.as_ref().map(Record::body), Some(Ok(Body::Redacted(redacted))) if redacted.salt))
    }

    /// Checks a kept snapshot: every part, and that it restores the board of the records.
    fn snapshot(&mut self, kept: KeptSnapshot, plans: &dyn PlanSource) -> Result<SnapshotCheck> {
        let of = kept.of;
        let fault = |reason: String| Err(AuditError::Snapshot { of, reason });
        let is_named = self.named.get(&kept.record).is_some_and(|named| (named.of, named.digest) == (of, kept.digest));
        let (Some(first), Some((hash, state)), true) =
            (&self.first, self.states_at.get(&of).copied().flatten(), is_named)
        else {
            return fault("no record names it".to_owned());
        };
        let (mut noted_wrong, mut unread) = (None, None);
        let mut fetch = |hash| {
            let read = || {
                let text = wait(self.journal.part(self.board, hash))?;
                let is_noted = text.as_deref().map_or(Ok(true), |text| self.has_right_refs(hash, text))?;
                Ok((text, is_noted))
            };
            let (text, is_noted) = read().map_err(|error: JournalError| {
                let why = SnapshotError::Storage(error.to_string());
                unread = Some(error);
                why
            })?;
            if !is_noted {
                noted_wrong = noted_wrong.or(Some(hash));
            }
            Ok(text)
        };
        let restored_board = Board::restore(first, kept.digest, &mut fetch, plans);
        if let Some(error) = unread.filter(JournalError::is_transient) {
            return Err(error.into());
        }
        let restored = match restored_board {
            Ok(board) if board.head() != (of, hash) => fault("its last record is another one".to_owned()),
            Ok(board) if board.state().digest() != state => {
                fault("its document is not the one that the last commit made".to_owned())
            }
            Ok(_) => Ok(SnapshotCheck::Sound),
            // The version that wrote it can check it.
            Err(error) if error.is_of_another_version() => Ok(SnapshotCheck::ByAnother),
            Err(error) => fault(error.to_string()),
        };
        self.wrong_refs = self.wrong_refs.or(noted_wrong);
        // A running board may have dropped the snapshot meanwhile.
        if restored.is_err() && !wait(self.journal.snapshots(self.board))?.contains(&kept) {
            return Ok(SnapshotCheck::Sound);
        }
        restored
    }

    /// Returns true if the stored references of a part are right; no hash covers them.
    fn has_right_refs(&self, hash: Digest, text: &str) -> Result<bool, JournalError> {
        match wait(self.journal.cached_refs(self.board, hash)) {
            Ok(Some(noted)) => Ok(snapshot::part_refs(text).is_none_or(|names| names == noted)),
            Ok(None) => Ok(true),
            Err(JournalError::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns true if a text was erased and the responsible record confirms it.
    fn is_erased(&self, hash: Digest) -> Result<bool> {
        let Some((board, seq)) = wait(self.journal.erased_text(hash))? else { return Ok(false) };
        let Some(record) = wait(self.journal.record(&board, seq))? else {
            // The other board was deleted since.
            return Ok(wait(self.journal.summary(&board))?.is_none());
        };
        let body = record.body().ok();
        Ok(matches!(body, Some(Body::Redacted(redacted)) if redacted.texts.contains(&hash)))
    }

    /// Returns true if a text has this name, as far as that can be checked.
    fn names(&self, text: &str, name: Digest) -> bool {
        self.is_unsalted || self.hasher.as_ref().is_some_and(|hasher| hasher.matches_name(text, name))
    }

    /// Checks a text that the next record names.
    fn text(&mut self, what: &str, hash: Digest) -> Result<()> {
        if self.texts.contains(&hash) {
            return Ok(());
        }
        if !self.journal.has_texts() {
            self.texts.insert(hash);
            return Ok(());
        }
        match wait(self.journal.blob(hash)) {
            Ok(Some(text)) if self.names(&text, hash) => {
                self.texts.insert(hash);
                Ok(())
            }
            Ok(Some(_)) => {
                Err(self.record_error(format!("the text of its {what} is not the one with the hash {hash}")))
            }
            Ok(None) if self.is_erased(hash)? => {
                self.erased.texts += u64::from(self.erased_texts.insert(hash));
                Ok(())
            }
            // A later record may say that it was erased.
            Ok(None) => {
                let missing = (self.next(), format!("the text of its {what}, {hash}, is missing"));
                self.missing.entry(hash).or_insert(missing);
                Ok(())
            }
            Err(JournalError::Corrupt { what: why, .. }) => {
                Err(self.record_error(format!("the text of its {what}: {why}")))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Describes the differences between two summaries of one board.
fn difference(listed: &BoardSummary, derived: &BoardSummary) -> String {
    let ended = |summary: &BoardSummary| summary.ended.map_or("not ended", |end| end.as_str());
    let columns = [
        ("name", listed.name.clone(), derived.name.clone()),
        ("created_at", listed.created_at.0.to_string(), derived.created_at.0.to_string()),
        ("updated_at", listed.updated_at.0.to_string(), derived.updated_at.0.to_string()),
        ("epoch", listed.epoch.to_string(), derived.epoch.to_string()),
        ("last_hash", listed.head.hash.to_string(), derived.head.hash.to_string()),
        ("version", listed.version.to_string(), derived.version.to_string()),
        ("ended", ended(listed).to_owned(), ended(derived).to_owned()),
    ];
    let differing = columns.into_iter().filter(|(_, listed, derived)| listed != derived);
    let named = differing.map(|(name, listed, derived)| format!("{name} is {listed}, the records say {derived}"));
    named.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
