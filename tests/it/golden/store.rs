//! Stores golden journals: an archive per board, the parts of its snapshots, and the expected facts.
//!
//! `NAME.jsonl` is an archive as `patchboard archive` writes it and `patchboard restore` reads it. `NAME.parts.jsonl`
//! holds the parts of the board's snapshots, which archives leave out. `expected.json` holds the [`Facts`] of all
//! boards of a format.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use patchboard_kernel::board::Blob;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::driver::{Batch, Head};
use patchboard_kernel::id::BoardId;
use patchboard_kernel::record::{Body, Kind, Record};
use patchboard_kernel::snapshot::{self, SnapshotPart};
use patchboard_protocols::PLANS;
use patchboard_runtime::archive;
use patchboard_storage::archives::Archives as _;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal as _;
use patchboard_storage::sqlite::SqliteJournal;
use patchboard_storage::testing::MemoryArchives;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::facts::Facts;

/// File of the expected facts, by the names of the boards.
pub(super) const EXPECTED: &str = "expected.json";

/// A golden journal.
#[derive(Clone, Debug)]
pub(super) struct Golden {
    pub(super) name: String,
    /// Path of the archive.
    pub(super) archive: PathBuf,
    /// Parts of its snapshots, each after the parts that it names.
    pub(super) parts: Vec<SnapshotPart>,
    pub(super) expected: Facts,
}

/// Returns the directory of all formats.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// Returns the directories of the formats that are kept, the earliest first.
pub(super) fn formats() -> Vec<PathBuf> {
    let entries = fs::read_dir(root()).expect("the golden journals are there");
    let mut formats: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a folder").path()).filter(|path| path.is_dir()).collect();
    let number = |path: &PathBuf| path.to_str()?.rsplit_once('-')?.1.parse::<u32>().ok();
    formats.sort_by_key(number);
    formats
}

/// Reads all golden journals of a directory.
pub(super) fn read(directory: &Path) -> Vec<Golden> {
    let text = fs::read_to_string(directory.join(EXPECTED)).expect("the expected facts are there");
    let expected: BTreeMap<String, Facts> = serde_json::from_str(&text).expect("facts");
    let golden = |(name, expected): (String, Facts)| {
        let parts = fs::read_to_string(directory.join(format!("{name}.parts.jsonl"))).unwrap_or_default();
        let parts = parts.lines().map(|line| part(serde_json::from_str(line).expect("a part"))).collect();
        Golden { archive: directory.join(format!("{name}.jsonl")), name, parts, expected }
    };
    expected.into_iter().map(golden).collect()
}

fn part(line: Value) -> SnapshotPart {
    let text = line["text"].as_str().expect("a part has a text");
    let hash = serde_json::from_value(line["hash"].clone()).expect("a part has a hash");
    SnapshotPart { hash, text: Arc::from(text), names: snapshot::part_refs(text).unwrap_or_default() }
}

/// Writes every board of a journal: the first without a parent as `name`, its nested boards as `name-1` and so on.
pub(super) fn write(journal: &SqliteJournal, name: &str, directory: &Path) -> BTreeMap<String, Facts> {
    let mut written = BTreeMap::new();
    let boards = wait(journal.boards()).expect("boards");
    let (inside, outside): (Vec<_>, Vec<_>) = boards.iter().partition(|board| board.parent.is_some());
    assert_eq!(outside.len(), 1, "{name}: one board beside those inside it");
    let named = outside.into_iter().map(|board| (name.to_owned(), board));
    let named = named.chain(inside.into_iter().enumerate().map(|(at, board)| (format!("{name}-{}", at + 1), board)));
    for (name, board) in named {
        let archives = MemoryArchives::default();
        archive::save(journal, &archives, &board.id, &PLANS).expect("an archive");
        let mut file = fs::File::create(directory.join(format!("{name}.jsonl"))).expect("a file");
        std::io::copy(&mut wait(archives.open(&board.id)).expect("it is there"), &mut file).expect("written");
        let parts = stored_parts(journal, &board.id);
        if !parts.is_empty() {
            let lines = parts.iter().map(|part| format!("{}\n", json!({"hash": part.hash, "text": &*part.text})));
            fs::write(directory.join(format!("{name}.parts.jsonl")), lines.collect::<String>()).expect("written");
        }
        written.insert(name, Facts::of(journal, &board.id).expect("what was just played is sound"));
    }
    written
}

/// Returns the parts of a board's kept snapshots, each after those that it names.
fn stored_parts(journal: &SqliteJournal, board: &BoardId) -> Vec<SnapshotPart> {
    fn visit(
        journal: &SqliteJournal,
        board: &BoardId,
        hash: Digest,
        seen: &mut BTreeSet<Digest>,
        parts: &mut Vec<SnapshotPart>,
    ) {
        if !seen.insert(hash) {
            return;
        }
        let text = wait(journal.part(board, hash)).expect("read").expect("a kept snapshot has its parts");
        let names = snapshot::part_refs(&text).expect("the present layout");
        for name in &names {
            visit(journal, board, *name, seen, parts);
        }
        parts.push(SnapshotPart { hash, text: text.into(), names });
    }
    let (mut seen, mut parts) = (BTreeSet::new(), Vec::new());
    for kept in wait(journal.snapshots(board)).expect("snapshots") {
        visit(journal, board, kept.digest, &mut seen, &mut parts);
    }
    parts
}

impl Golden {
    /// Restores the board into a new journal, with its snapshots.
    ///
    /// # Errors
    /// The reason why it cannot be restored.
    pub(super) async fn restored(&self) -> Result<(TempDir, SqliteJournal, BoardId), String> {
        let (data, journal) = empty();
        let source = BufReader::new(fs::File::open(&self.archive).map_err(|error| error.to_string())?);
        let carried = archive::read_recoverable(&self.archive.display().to_string(), source, Some(&journal), &PLANS);
        let board = archive::append_restored(&journal, carried.map_err(|error| error.to_string())?).await;
        let board = board.map_err(|error| error.to_string())?;
        if self.parts.is_empty() {
            return Ok((data, journal, board));
        }
        // A snapshot is kept only if its parts are stored before the record that names it is appended.
        let records = wait(journal.records(&board, None, usize::MAX)).map_err(|error| error.to_string())?;
        let named =
            records.iter().position(|record| record.kind == Kind::Snapshot).ok_or("no record names a snapshot")?;
        let (before, after) = records.split_at(named);
        let (data_again, again) = empty();
        append(&again, &board, before, texts(&journal, before)).await?;
        wait(again.store_parts(&board, epoch(before), self.parts.clone())).map_err(|error| error.to_string())?;
        append(&again, &board, after, texts(&journal, after)).await?;
        Ok((data_again, again, board))
    }
}

fn empty() -> (TempDir, SqliteJournal) {
    let data = tempfile::tempdir().expect("a directory");
    let journal = SqliteJournal::open(data.path()).expect("a journal");
    (data, journal)
}

/// Appends records in the latest epoch that they claim.
async fn append(journal: &SqliteJournal, board: &BoardId, records: &[Record], blobs: Vec<Blob>) -> Result<(), String> {
    let expected = wait(journal.head(board)).map_err(|error| error.to_string())?;
    let earlier = wait(journal.records(board, None, usize::MAX)).map_err(|error| error.to_string())?;
    let epoch = epoch(earlier.iter().chain(records));
    let batch = Batch { board: board.clone(), epoch, expected, records: records.to_vec(), blobs };
    journal.append(batch).await.map(|_: Head| ()).map_err(|error| error.to_string())
}

/// Returns the epoch after some records.
fn epoch<'a>(records: impl IntoIterator<Item = &'a Record>) -> u64 {
    let epochs = records.into_iter().filter_map(|record| match record.body() {
        Ok(Body::Epoch(epoch)) => Some(epoch.epoch),
        _ => None,
    });
    epochs.last().unwrap_or_default()
}

/// Returns the texts that records name, as far as they are stored.
fn texts(journal: &SqliteJournal, records: &[Record]) -> Vec<Blob> {
    let mut named = BTreeSet::new();
    for record in records {
        match record.body() {
            Ok(Body::Invoked(invoked)) => named.extend([invoked.view, invoked.prompt]),
            Ok(Body::Created(created)) => {
                named.extend(created.architect.iter().flat_map(|it| it.prompts.iter().copied()))
            }
            _ => {}
        }
    }
    let stored = |hash: Digest| {
        let text = wait(journal.blob(hash)).ok().flatten()?;
        Some(Blob { hash, text: text.into() })
    };
    named.into_iter().filter_map(stored).collect()
}
