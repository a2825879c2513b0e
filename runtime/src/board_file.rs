//! A board in a file: the records of an export or an archive, readable by every reader of journals.
//!
//! Such a file is untrusted. Reading it checks the format; [`crate::audit`] checks the rest, as in a data directory.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _};
use std::sync::Arc;

use patchboard_kernel::board::Blob;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::id::{BoardId, Seq, Timestamp};
use patchboard_kernel::json::{self, Limits};
use patchboard_kernel::record::{Body, Kind, Record};
use patchboard_kernel::snapshot::SnapshotPart;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use patchboard_storage::board_id;
use patchboard_storage::journal::{
    Batch, BoardSummary, BoxFuture, Claim, GarbageCollection, Head, Journal, JournalError, KeptSnapshot, NewParts,
};

/// Version of the archive format.
pub(crate) const FORMAT: u32 = 1;

/// Size limit of a line in bytes: a record with its values, or a text.
const LINE_MAX: usize = 256 << 20;

/// Size limit of a file in bytes.
const FILE_MAX: u64 = 4 << 30;

/// A line of an archive.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Line {
    /// First line.
    Archive { format: u32, board: BoardId, epoch: u64, seq: Seq, hash: Digest },
    /// A record.
    Record { seq: Seq, kind: Kind, at: Timestamp, header: String, payload: String, hash: Digest },
    /// A view or a prompt.
    Text { hash: Digest, text: String },
    /// Last line: SHA-256 of all lines before.
    End(Digest),
}

/// A line of an export, as written by [`Record::to_json`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exported {
    header: String,
    payload: Map<String, Value>,
    hash: Digest,
}

/// Columns of a record that its header contains.
#[derive(Deserialize)]
struct Columns {
    seq: Seq,
    kind: Kind,
    at: Timestamp,
    /// Set in the first record.
    board: Option<BoardId>,
}

/// Reason why a file has no readable board.
#[derive(Debug, thiserror::Error)]
pub enum BoardFileError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file has another format, or is incomplete.
    #[error("{0}")]
    Damaged(String),
    /// The board id is invalid.
    #[error("its board is called {0}, and an id has {rule}", rule = board_id::RULE)]
    BadId(String),
}

/// A board in a file, as a read-only journal.
pub struct BoardFile {
    /// Summary from the file's head, or derived from the records if it has none.
    listed: BoardSummary,
    records: Vec<Record>,
    /// Texts; none if the file has no texts.
    texts: Option<BTreeMap<Digest, Arc<str>>>,
    /// Texts that are missing because a board erased them.
    erased: BTreeMap<Digest, (BoardId, Seq)>,
}

impl BoardFile {
    /// Reads an archive or an export, distinguished by the first line.
    ///
    /// # Errors
    /// [`BoardFileError`].
    pub fn read(source: impl BufRead) -> Result<Self, BoardFileError> {
        let mut lines = Lines { source: source.take(FILE_MAX + 1), number: 0 };
        let first = lines.next()?.ok_or_else(|| BoardFileError::Damaged("it is empty".to_owned()))?;
        let carried = match lines.read::<Exported>(&first).is_ok() {
            true => Self::exported(&first, &mut lines)?,
            false => Self::archived(&first, &mut lines)?,
        };
        if !board_id::is_usable(&carried.listed.id) {
            return Err(BoardFileError::BadId(board_id::shown(&carried.listed.id)));
        }
        Ok(carried)
    }

    /// Reads the summary of an archive's board from its first two lines.
    ///
    /// # Errors
    /// [`BoardFileError`].
    pub(crate) fn outline(source: impl BufRead) -> Result<BoardSummary, BoardFileError> {
        let mut lines = Lines { source: source.take(FILE_MAX + 1), number: 0 };
        let mut line = || {
            let text = lines.next()?.ok_or_else(|| BoardFileError::Damaged("its beginning is missing".to_owned()))?;
            lines.read::<Line>(&text)
        };
        match (line()?, line()?) {
            (
                Line::Archive { format: FORMAT, board, .. },
                Line::Record { seq, kind: kind @ Kind::Created, at, header, payload, hash },
            ) => Ok(summary(board, &[Record { seq, kind, at, header, payload, hash }])),
            _ => Err(BoardFileError::Damaged("its beginning is missing".to_owned())),
        }
    }

    fn archived(first: &str, lines: &mut Lines<impl BufRead>) -> Result<Self, BoardFileError> {
        let damaged = |what: String| BoardFileError::Damaged(what);
        let (board, epoch, head) = match lines.read(first)? {
            Line::Archive { format: FORMAT, board, epoch, seq, hash } => (board, epoch, Head { seq, hash }),
            Line::Archive { format, .. } => {
                return Err(damaged(format!("it has format {format}, this version reads {FORMAT}")));
            }
            _ => return Err(damaged("its beginning is missing".to_owned())),
        };
        let (mut text, mut records, mut texts) = (first.to_owned(), Vec::new(), BTreeMap::new());
        loop {
            let line = lines.next()?.ok_or_else(|| damaged("its end is missing".to_owned()))?;
            match lines.read(&line)? {
                Line::Archive { .. } => return Err(damaged("it begins twice".to_owned())),
                Line::Record { seq, kind, at, header, payload, hash } => {
                    records.push(Record { seq, kind, at, header, payload, hash });
                }
                Line::Text { hash, text } => drop(texts.insert(hash, Arc::from(text))),
                Line::End(hash) if sha256(text.as_bytes()) == hash => break,
                Line::End(_) => return Err(damaged("it was altered".to_owned())),
            }
            text.push_str(&line);
        }
        if lines.next()?.is_some() {
            return Err(damaged("it goes on after its end".to_owned()));
        }
        let listed = BoardSummary { epoch, head, ..summary(board, &records) };
        Ok(Self { listed, records, texts: Some(texts), erased: BTreeMap::new() })
    }

    fn exported(first: &str, lines: &mut Lines<impl BufRead>) -> Result<Self, BoardFileError> {
        let (mut records, mut board) = (Vec::new(), None);
        let mut line = Some(first.to_owned());
        while let Some(text) = line {
            let Exported { header, payload, hash } = lines.read(&text)?;
            let columns: Columns = lines.read(&header)?;
            board = board.or(columns.board);
            let payload = Value::Object(payload).to_string();
            records.push(Record { seq: columns.seq, kind: columns.kind, at: columns.at, header, payload, hash });
            line = lines.next()?;
        }
        let board = board.ok_or_else(|| BoardFileError::Damaged("no record names its board".to_owned()))?;
        Ok(Self { listed: summary(board, &records), records, texts: None, erased: BTreeMap::new() })
    }

    /// Returns the board's id.
    pub const fn board(&self) -> &BoardId {
        &self.listed.id
    }

    /// Returns the last record according to the file.
    pub const fn last(&self) -> Head {
        self.listed.head
    }

    /// Returns true for an archive, which has texts, too.
    pub const fn is_archive(&self) -> bool {
        self.texts.is_some()
    }

    /// Looks up in a journal which missing texts were erased.
    ///
    /// # Errors
    /// Storage.
    pub fn load_erased_texts(&mut self, journal: &dyn Journal) -> Result<(), JournalError> {
        let Some(texts) = &self.texts else { return Ok(()) };
        let named = self.records.iter().filter_map(|record| record.body().ok()).flat_map(|body| named_texts(&body));
        for hash in named.filter(|hash| !texts.contains_key(hash)) {
            if let Some(by) = journal.erased_text(hash)? {
                self.erased.insert(hash, by);
            }
        }
        Ok(())
    }

    /// Returns true if this is one of the records.
    pub(crate) fn has(&self, head: Head) -> bool {
        self.records.iter().any(|record| record.seq == head.seq && record.hash == head.hash)
    }

    /// Converts the board into a batch, to append where no board has its id.
    pub(crate) fn into_batch(self) -> Batch {
        let Self { listed: BoardSummary { id: board, epoch, .. }, records, texts, .. } = self;
        let blobs = texts.unwrap_or_default().into_iter().map(|(hash, text)| Blob { hash, text });
        Batch { board, epoch, expected: None, records, blobs: blobs.collect() }
    }
}

/// Returns the texts that a record names.
pub(crate) fn named_texts(body: &Body) -> Vec<Digest> {
    match body {
        Body::Invoked(invoked) => vec![invoked.view, invoked.prompt],
        Body::Created(created) => created.architect.iter().flat_map(|architect| architect.prompts.clone()).collect(),
        _ => Vec::new(),
    }
}

/// Derives a board's summary from its records, up to the first unreadable one.
fn summary(board: BoardId, records: &[Record]) -> BoardSummary {
    let mut summary = BoardSummary::empty(board);
    for record in records {
        if summary.apply(record).is_err() {
            break;
        }
    }
    summary
}

struct Lines<R> {
    source: io::Take<R>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// Returns the next line, including its line end.
    fn next(&mut self) -> Result<Option<String>, BoardFileError> {
        self.number += 1;
        let mut line = Vec::new();
        self.source.by_ref().take(LINE_MAX as u64 + 1).read_until(b'\n', &mut line)?;
        if line.len() > LINE_MAX {
            return Err(self.damaged(format!("it has more than {} MiB", LINE_MAX >> 20)));
        }
        if self.source.limit() == 0 {
            return Err(BoardFileError::Damaged(format!("it has more than {} GiB", FILE_MAX >> 30)));
        }
        let line = String::from_utf8(line).map_err(|error| self.damaged(error.to_string()))?;
        Ok((!line.is_empty()).then_some(line))
    }

    /// Parses a JSON text of the line. Rejects duplicate member names, which other parsers may resolve differently.
    fn read<T: for<'de> Deserialize<'de>>(&self, text: &str) -> Result<T, BoardFileError> {
        let limits = Limits { bytes: LINE_MAX, depth: json::DEPTH_MAX };
        json::parse(text.as_bytes(), limits).map_err(|refusal| self.damaged(refusal.to_string()))?;
        serde_json::from_str(text).map_err(|error| self.damaged(error.to_string()))
    }

    fn damaged(&self, what: String) -> BoardFileError {
        BoardFileError::Damaged(format!("line {}: {what}", self.number))
    }
}

impl Journal for BoardFile {
    fn append_all(&self, batches: Vec<Batch>) -> BoxFuture<'_, Vec<Result<Head, JournalError>>> {
        Box::pin(async move { vec![Err(JournalError::ReadOnly); batches.len()] })
    }

    fn head(&self, board: &BoardId) -> Result<Option<Head>, JournalError> {
        Ok(self.summary(board)?.map(|summary| summary.head))
    }

    fn records(&self, board: &BoardId, after: Option<Seq>, limit: usize) -> Result<Vec<Record>, JournalError> {
        let from =
            after.map_or(0, |after| usize::try_from(after.0).map_or(usize::MAX, |after| after.saturating_add(1)));
        let records = if *board == self.listed.id { self.records.get(from..).unwrap_or_default() } else { &[] };
        Ok(records.iter().take(limit).cloned().collect())
    }

    fn blob(&self, hash: Digest) -> Result<Option<String>, JournalError> {
        Ok(self.texts.as_ref().and_then(|texts| texts.get(&hash)).map(|text| text.to_string()))
    }

    fn has_texts(&self) -> bool {
        self.is_archive()
    }

    fn erased_text(&self, hash: Digest) -> Result<Option<(BoardId, Seq)>, JournalError> {
        Ok(self.erased.get(&hash).cloned())
    }

    fn snapshots(&self, _: &BoardId) -> Result<Vec<KeptSnapshot>, JournalError> {
        Ok(Vec::new())
    }

    fn part(&self, _: &BoardId, _: Digest) -> Result<Option<String>, JournalError> {
        Ok(None)
    }

    fn store_parts(&self, _: &BoardId, _: u64, _: &[SnapshotPart]) -> Result<NewParts, JournalError> {
        Err(JournalError::ReadOnly)
    }

    fn collect_garbage(&self, _: &BoardId, _: u64, _: usize, _: &[Seq]) -> Result<GarbageCollection, JournalError> {
        Err(JournalError::ReadOnly)
    }

    fn summary(&self, board: &BoardId) -> Result<Option<BoardSummary>, JournalError> {
        Ok((*board == self.listed.id).then(|| self.listed.clone()))
    }

    fn boards(&self) -> Result<Vec<BoardSummary>, JournalError> {
        Ok(vec![self.listed.clone()])
    }

    fn claim(&self, _: &BoardId, _: bool) -> Result<Claim, JournalError> {
        Err(JournalError::ReadOnly)
    }

    fn check_storage(&self) -> Result<(), JournalError> {
        Ok(())
    }
}
