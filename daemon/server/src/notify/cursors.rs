//! Cursors on disk: one small file for each board, in a directory of the receiver.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use patchboard_kernel::digest::sha256;
use patchboard_kernel::id::BoardId;
use patchboard_storage::blocking::wait;
use patchboard_storage::private_files;
use serde::{Deserialize, Serialize};

use super::notice::Cursor;
use crate::failure::Failure;
use crate::reader::{Reader, storage};

/// Directory of all receivers' cursors in a data directory.
const DIRECTORY: &str = "notify";

/// Marker file: all boards existing when notices were first configured have a cursor.
const INITIALIZED: &str = "begun";

const BYTES_MAX: u64 = 1 << 20;

/// Layout version written by this program. Files before version 1 have no version.
const VERSION: u32 = 2;

#[derive(Serialize)]
struct Stored<'a> {
    version: u32,
    #[serde(flatten)]
    cursor: &'a Cursor,
}

#[derive(Deserialize)]
struct Versioned {
    #[serde(default)]
    version: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Cursors {
    directory: PathBuf,
}

impl Cursors {
    pub(crate) fn new(data_dir: &Path, receiver: &str) -> Self {
        Self { directory: data_dir.join(DIRECTORY).join(receiver) }
    }

    /// Creates a cursor for every board when notices are first configured: after its last record, with its pending
    /// questions. A board without a cursor after that is new, and starts at its first record. Blocks.
    pub(crate) fn begin(&self, reader: &Reader) -> Result<(), Failure> {
        let fault = |error| self.storage_error(&error);
        if self.directory.join(INITIALIZED).exists() {
            return Ok(());
        }
        private_files::make_directory(&self.directory).map_err(fault)?;
        for summary in wait(reader.journal.boards()).map_err(storage)? {
            if self.load(&summary.id).is_some() {
                continue;
            }
            let mut questions = Vec::new();
            if summary.ended.is_none() {
                match reader.board(&summary, None) {
                    Ok(board) => questions.extend(board.pending().keys().filter(|seq| **seq <= summary.head.seq)),
                    // Start-up reports the reason.
                    Err(_) => tracing::warn!(board = %summary.id, "open questions of the board cannot be read"),
                }
            }
            self.save(&summary.id, &Cursor::after_record(summary.head.seq, questions)).map_err(fault)?;
        }
        for archived in
            wait(reader.journal.tombstones()).map_err(storage)?.iter().filter(|board| board.archive.is_some())
        {
            self.save(&archived.board, &Cursor::after_record(archived.head.seq, Vec::new())).map_err(fault)?;
        }
        self.write(INITIALIZED, b"").map_err(fault)
    }

    /// Removes the cursors of boards that were deleted. Blocks.
    pub(crate) fn sweep(&self, reader: &Reader) -> Result<(), Failure> {
        let tombstones = wait(reader.journal.tombstones()).map_err(storage)?;
        for board in tombstones.iter().filter(|board| board.archive.is_none()) {
            // Most deleted boards have no cursor.
            let _ = fs::remove_file(self.directory.join(name(&board.board)));
        }
        Ok(())
    }

    /// Reads the cursor of a board; `None` if it is missing or unreadable. Blocks.
    pub(crate) fn load(&self, board: &BoardId) -> Option<Cursor> {
        let path = self.directory.join(name(board));
        let mut text = String::new();
        File::open(&path).ok()?.take(BYTES_MAX).read_to_string(&mut text).ok()?;
        read(&text)
            .inspect_err(|error| {
                tracing::warn!(%board, error, "the cursor of notices is unreadable; all notices of the board are repeated");
            })
            .ok()
    }

    /// Stores the cursor of a board atomically. Blocks.
    pub(crate) fn save(&self, board: &BoardId, cursor: &Cursor) -> io::Result<()> {
        self.write(&name(board), &serde_json::to_vec(&Stored { version: VERSION, cursor })?)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.directory.join(format!("{name}.new"));
        let mut file = private_files::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, self.directory.join(name))?;
        File::open(&self.directory)?.sync_all()
    }

    fn storage_error(&self, error: &io::Error) -> Failure {
        let place = self.directory.display();
        Failure::failed("journal_io", format!("cursors of notices cannot be kept in {place}: {error}"))
    }
}

/// Parses a cursor's file, of this version or an earlier one.
fn read(text: &str) -> Result<Cursor, String> {
    let Versioned { version } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if version > VERSION {
        return Err(format!("its version {version} is later than {VERSION}"));
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn name(board: &BoardId) -> String {
    let id = board.as_str();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    match id.len() <= 100 && id.bytes().all(is_plain) {
        true => format!("{id}.json"),
        false => format!("{}.json", sha256(id.as_bytes())),
    }
}

#[cfg(test)]
mod tests;
