//! A board in a file: the records of an export or an archive, readable by every reader of journals.
//!
//! Such a file is untrusted. Reading it checks the format; [`crate::audit`] checks the rest, as in a data directory.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read as _};
use std::sync::Arc;

use patchboard_kernel::board::Blob;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::id::{BoardId, Seq, Timestamp};
use patchboard_kernel::json::{self, Limits};
use patchboard_kernel::record::{Kind, Record};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use patchboard_kernel::driver::{Batch, Head};
use patchboard_storage::blocking::wait;
use patchboard_storage::board_id;
use patchboard_storage::journal::rules::named_texts;
use patchboard_storage::journal::{BoardSummary, Journal, JournalError};
use patchboard_storage::memory::MemoryJournal;

/// Version of the archive format.
pub(crate) const FORMAT: u32 = 1;

/// Size limit of a line in bytes: a record with its values, or a text.
const LINE_MAX: usize = 256 << 20;

/// Size limit of a file in bytes.
const FILE_MAX: u64 = 4 << 30;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Line {
    /// First line.
    Archive {
        format: u32,
        board: BoardId,
        epoch: u64,
        seq: Seq,
        hash: Digest,
    },
    Record {
        seq: Seq,
        kind: Kind,
        at: Timestamp,
        header: String,
        payload: String,
        hash: Digest,
    },
    /// A view or a prompt.
    Text {
        hash: Digest,
        text: String,
    },
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

/// A board in a file, with a read-only journal.
pub struct BoardFile {
    /// Summary from the file's head, or derived from the records if it has none.
    listed: BoardSummary,
    journal: MemoryJournal,
}

impl BoardFile {
    /// Reads an archive or an export, distinguished by the first line.
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
            ) => Ok(summary(board, &[Record::new(seq, kind, at, header, payload, hash)])),
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
                    records.push(Record::new(seq, kind, at, header, payload, hash));
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
        Ok(Self { journal: MemoryJournal::read_only(listed.clone(), records, Some(texts)), listed })
    }

    fn exported(first: &str, lines: &mut Lines<impl BufRead>) -> Result<Self, BoardFileError> {
        let (mut records, mut board) = (Vec::new(), None);
        let mut line = Some(first.to_owned());
        while let Some(text) = line {
            let Exported { header, payload, hash } = lines.read(&text)?;
            let columns: Columns = lines.read(&header)?;
            board = board.or(columns.board);
            let payload = Value::Object(payload).to_string();
            records.push(Record::new(columns.seq, columns.kind, columns.at, header, payload, hash));
            line = lines.next()?;
        }
        let board = board.ok_or_else(|| BoardFileError::Damaged("no record names its board".to_owned()))?;
        let listed = summary(board, &records);
        Ok(Self { journal: MemoryJournal::read_only(listed.clone(), records, None), listed })
    }

    /// Returns the board's id.
    pub const fn board(&self) -> &BoardId {
        &self.listed.id
    }

    /// Returns the last record according to the file.
    pub const fn last(&self) -> Head {
        self.listed.head
    }

    /// Returns the journal of the board.
    pub const fn journal(&self) -> &MemoryJournal {
        &self.journal
    }

    /// Looks up in a journal which missing texts were erased. Blocks.
    pub fn load_erased_texts(&self, journal: &dyn Journal) -> Result<(), JournalError> {
        for hash in self.named_texts()? {
            if wait(self.journal.blob(hash))?.is_none()
                && let Some(by) = wait(journal.erased_text(hash))?
            {
                self.journal.note_erased(hash, by);
            }
        }
        Ok(())
    }

    pub(crate) fn has(&self, head: Head) -> bool {
        matches!(wait(self.journal.record(&self.listed.id, head.seq)), Ok(Some(record)) if record.hash == head.hash)
    }

    /// Converts the board into a batch, to append where no board has its id.
    pub(crate) fn into_batch(self) -> Result<Batch, JournalError> {
        let mut blobs = Vec::new();
        for hash in self.named_texts()? {
            blobs.extend(wait(self.journal.blob(hash))?.map(|text| Blob { hash, text: text.into() }));
        }
        let BoardSummary { id: board, epoch, .. } = self.listed;
        let records = wait(self.journal.records(&board, None, usize::MAX))?;
        Ok(Batch { board, epoch, expected: None, records, blobs })
    }

    /// Returns the texts that the records name.
    fn named_texts(&self) -> Result<BTreeSet<Digest>, JournalError> {
        let records = wait(self.journal.records(&self.listed.id, None, usize::MAX))?;
        Ok(records.iter().filter_map(|record| record.body().ok()).flat_map(named_texts).collect())
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
