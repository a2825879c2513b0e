//! Snapshots in the file: their parts, which of them are kept, and garbage collection of the rest.
//!
//! Parts belong to a board and not to `blobs`, so that unreferenced ones can be found without knowing the references
//! to views and prompts. `names` caches the references of a part, for inspection with `sqlite3`. No hash covers that
//! column, so no removal relies on it.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::{Body, Record};
use patchboard_kernel::snapshot::{self, SnapshotPart};
use rusqlite::{Connection, Row, Transaction, TransactionBehavior};

use super::error_mapping::{execute, first_value, sql_error};
use super::format;
use super::rows::load_summary;
use super::to_sql_number;
use crate::journal::rules::bad_batch;
use crate::journal::{GarbageCollection, JournalError, KeptSnapshot, NewParts, Result};
use patchboard_kernel::driver::Batch;

/// Bytes of parts to write before the log is folded into the file.
const FOLD_BYTES: u64 = 1 << 20;

/// Parts that one statement or transaction examines or removes.
const PAGE: usize = 256;

/// Writer of parts with a connection of its own.
pub(super) struct Writer {
    connection: Connection,
    /// Bytes written since the log was last folded.
    unfolded: u64,
}

/// Parts that must be kept.
#[derive(Default)]
struct Live {
    parts: HashSet<String>,
    /// Kept parts with wrong cached references, each with the right ones.
    misnoted: Vec<(String, String)>,
}

impl Writer {
    pub(super) fn open(path: &Path, patience: Duration) -> Result<Self> {
        Ok(Self { connection: format::open_for_parts(path, patience)?, unfolded: 0 })
    }

    pub(super) fn store(
        &mut self,
        turn: &Mutex<Connection>,
        board: &BoardId,
        epoch: u64,
        parts: &[SnapshotPart],
    ) -> Result<NewParts> {
        let new = self.transact(turn, board, epoch, |transaction| {
            let mut new = NewParts::default();
            for part in parts {
                if !is_stored(transaction, board, part.hash)? {
                    for hash in &part.names {
                        if !is_stored(transaction, board, *hash)? {
                            return Err(JournalError::MissingPart { board: board.clone(), hash: *hash });
                        }
                    }
                    insert(transaction, board, part)?;
                    new.count += 1;
                    new.bytes += part.text.len() as u64;
                }
            }
            Ok(new)
        })?;
        self.unfolded += new.bytes;
        if self.unfolded >= FOLD_BYTES {
            self.fold_log()?;
        }
        Ok(new)
    }

    pub(super) fn sweep(
        &mut self,
        turn: &Mutex<Connection>,
        board: &BoardId,
        epoch: u64,
        keep: usize,
        unusable: &[Seq],
    ) -> Result<GarbageCollection> {
        let (mut useful, mut given_up) = (Vec::new(), Vec::new());
        for (seq, snapshot) in listed(&self.connection, board)? {
            match snapshot.filter(|snapshot| useful.len() < keep && !unusable.contains(&snapshot.of)) {
                Some(snapshot) => useful.push(snapshot),
                None => given_up.push(seq),
            }
        }
        self.transact(turn, board, epoch, |transaction| {
            for seq in &given_up {
                let sql = "DELETE FROM snapshots WHERE board = ?1 AND seq = ?2";
                execute(transaction, sql, (board.as_str(), seq))?;
            }
            Ok(())
        })?;
        let live = self.live(board, useful.iter().map(|snapshot| snapshot.digest.to_string()))?;
        for page in live.misnoted.chunks(PAGE) {
            self.transact(turn, board, epoch, |transaction| note_names(transaction, board, page))?;
        }
        let mut removed = 0;
        let mut last = String::new();
        loop {
            let page = self.hashes(board, &last)?;
            let Some(end) = page.last() else { break };
            last.clone_from(end);
            let dead: Vec<_> = page.into_iter().filter(|hash| !live.parts.contains(hash)).collect();
            if dead.is_empty() {
                continue;
            }
            removed += dead.len() as u64;
            self.transact(turn, board, epoch, |transaction| {
                let sql = "DELETE FROM parts WHERE board = ?1 AND hash = ?2";
                for hash in &dead {
                    execute(transaction, sql, (board.as_str(), hash))?;
                }
                Ok(())
            })?;
        }
        self.fold_log()?;
        Ok(GarbageCollection { kept: live.parts.len() as u64, removed })
    }

    /// Returns the parts reachable from these hashes, themselves included.
    fn live(&self, board: &BoardId, roots: impl Iterator<Item = String>) -> Result<Live> {
        let mut pending: Vec<String> = roots.collect();
        let mut live = Live::default();
        let mut statement = self
            .connection
            .prepare_cached("SELECT names, bytes FROM parts WHERE board = ?1 AND hash = ?2")
            .map_err(sql_error)?;
        while let Some(hash) = pending.pop() {
            if live.parts.contains(&hash) {
                continue;
            }
            let mut rows = statement.query((board.as_str(), &hash)).map_err(sql_error)?;
            let Some(row) = rows.next().map_err(sql_error)? else { continue };
            let (noted, text) = (bytes(row, 0)?, bytes(row, 1)?);
            // Much faster than parsing the part, and a superset of its references.
            let quoted = quoted_hashes(text).join(" ");
            let mut names = quoted.as_str();
            let exact;
            if noted != quoted.as_bytes() {
                exact = names_of(&hash, text);
                match &exact {
                    Some(exact) => {
                        names = exact;
                        if noted != exact.as_bytes() {
                            live.misnoted.push((hash.clone(), exact.clone()));
                        }
                    }
                    // Altered, or of another layout: keeps the cached references, too. It is safer to keep too much
                    // than too little.
                    None => pending.extend(String::from_utf8_lossy(noted).split_ascii_whitespace().map(str::to_owned)),
                }
            }
            pending.extend(names.split_ascii_whitespace().map(str::to_owned));
            live.parts.insert(hash);
        }
        Ok(live)
    }

    /// Returns the next page of hashes, in order.
    fn hashes(&self, board: &BoardId, after: &str) -> Result<Vec<String>> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT hash FROM parts WHERE board = ?1 AND hash > ?2 ORDER BY hash LIMIT ?3")
            .map_err(sql_error)?;
        let rows = statement.query_map((board.as_str(), after, PAGE as i64), |row| row.get(0)).map_err(sql_error)?;
        rows.collect::<rusqlite::Result<_>>().map_err(sql_error)
    }

    /// Runs one transaction, provided that the board is in this epoch. Appends of this process wait for their turn;
    /// those of others find the file busy meanwhile.
    fn transact<T>(
        &mut self,
        turn: &Mutex<Connection>,
        board: &BoardId,
        epoch: u64,
        write: impl FnOnce(&Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let _turn = turn.lock();
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql_error)?;
        let stored = load_summary(&transaction, board)?.map(|summary| summary.epoch);
        if stored != Some(epoch) {
            let reason = format!("a snapshot is taken in epoch {epoch}, the board is not in it");
            return Err(JournalError::Fenced { board: board.clone(), reason });
        }
        let written = write(&transaction)?;
        transaction.commit().map_err(sql_error)?;
        Ok(written)
    }

    /// Folds the log into the file. Appends continue meanwhile.
    fn fold_log(&mut self) -> Result<()> {
        self.unfolded = 0;
        self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(())).map_err(sql_error)
    }
}

fn is_stored(connection: &Connection, board: &BoardId, hash: Digest) -> Result<bool> {
    let sql = "SELECT 1 FROM parts WHERE board = ?1 AND hash = ?2";
    let found: Option<i64> = first_value(connection, sql, (board.as_str(), hash.to_string()))?;
    Ok(found.is_some())
}

fn insert(connection: &Connection, board: &BoardId, part: &SnapshotPart) -> Result<()> {
    let row = (board.as_str(), part.hash.to_string(), noted_as(&part.names), part.text.as_bytes());
    execute(connection, "INSERT INTO parts (board, hash, names, bytes) VALUES (?1, ?2, ?3, ?4)", row)?;
    Ok(())
}

/// Returns the bytes of a column of any type.
fn bytes<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r [u8]> {
    let value = row.get_ref(column).map_err(sql_error)?;
    value.as_bytes().map_err(|error| JournalError::Corrupt { seq: None, what: error.to_string() })
}

/// Returns every quoted text in a part that looks like a hash, a superset of its references.
fn quoted_hashes(text: &[u8]) -> Vec<&str> {
    let is_hash = |window: &&[u8]| {
        window[0] == b'"'
            && window[65] == b'"'
            && window[1..65].iter().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte))
    };
    let found = text.windows(66).filter(is_hash);
    found.filter_map(|window| std::str::from_utf8(&window[1..65]).ok()).collect()
}

/// Returns a part's references in the cached form; none if its text does not match its hash, or has another layout.
fn names_of(hash: &str, text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let names = snapshot::part_refs(text).filter(|_| sha256(text.as_bytes()).to_string() == hash)?;
    Some(noted_as(&names))
}

fn noted_as(names: &[Digest]) -> String {
    names.iter().map(Digest::to_string).collect::<Vec<_>>().join(" ")
}

fn note_names(connection: &Connection, board: &BoardId, parts: &[(String, String)]) -> Result<()> {
    let sql = "UPDATE parts SET names = ?3 WHERE board = ?1 AND hash = ?2";
    for (hash, names) in parts {
        tracing::warn!(%board, hash, "the stored references of a part of a snapshot were wrong; repaired");
        execute(connection, sql, (board.as_str(), hash, names))?;
    }
    Ok(())
}

/// Adds the snapshot that a record names to the list, if it is stored here.
pub(super) fn keep_snapshot(connection: &Connection, batch: &Batch, record: &Record) -> Result<()> {
    let Ok(Body::Snapshot(snapshot)) = record.body() else {
        return Err(bad_batch(batch, format!("record {} names no snapshot", record.seq)));
    };
    if is_stored(connection, &batch.board, snapshot.digest)? {
        let sql = "INSERT OR REPLACE INTO snapshots (board, seq, digest, record) VALUES (?1, ?2, ?3, ?4)";
        let (of, by) = (to_sql_number(snapshot.of.0)?, to_sql_number(record.seq.0)?);
        execute(connection, sql, (batch.board.as_str(), of, snapshot.digest.to_string(), by))?;
    }
    Ok(())
}

/// Returns the kept snapshots, the newest first.
pub(super) fn kept(connection: &Connection, board: &BoardId) -> Result<Vec<KeptSnapshot>> {
    if !format::has_snapshots(connection)? {
        return Ok(Vec::new());
    }
    let wrong =
        || JournalError::Corrupt { seq: None, what: format!("the list of snapshots of board {board} cannot be read") };
    listed(connection, board)?.into_iter().map(|(_, kept)| kept.ok_or_else(wrong)).collect()
}

/// Returns the rows of that list by their keys, including unreadable ones.
fn listed(connection: &Connection, board: &BoardId) -> Result<Vec<(i64, Option<KeptSnapshot>)>> {
    let mut statement = connection
        .prepare_cached("SELECT seq, digest, record FROM snapshots WHERE board = ?1 ORDER BY seq DESC")
        .map_err(sql_error)?;
    let mut rows = statement.query([board.as_str()]).map_err(sql_error)?;
    let mut listed = Vec::new();
    while let Some(row) = rows.next().map_err(sql_error)? {
        let seq: i64 = row.get(0).map_err(sql_error)?;
        listed.push((seq, kept_snapshot(seq, row)));
    }
    Ok(listed)
}

fn kept_snapshot(seq: i64, row: &Row<'_>) -> Option<KeptSnapshot> {
    // An unreadable text must not keep the sweep from removing the row.
    let (digest, record): (String, i64) = (row.get(1).ok()?, row.get(2).ok()?);
    let (of, record) = (u64::try_from(seq).ok()?, u64::try_from(record).ok()?);
    Some(KeptSnapshot { of: Seq(of), digest: digest.parse().ok()?, record: Seq(record) })
}

pub(super) fn text(connection: &Connection, board: &BoardId, hash: Digest) -> Result<Option<String>> {
    if !format::has_snapshots(connection)? {
        return Ok(None);
    }
    let sql = "SELECT bytes FROM parts WHERE board = ?1 AND hash = ?2";
    let bytes: Option<Vec<u8>> = first_value(connection, sql, (board.as_str(), hash.to_string()))?;
    let not_text = |_| JournalError::Corrupt { seq: None, what: format!("the stored part {hash} is not UTF-8") };
    bytes.map(String::from_utf8).transpose().map_err(not_text)
}

/// Returns the cached references of a part.
pub(super) fn noted(connection: &Connection, board: &BoardId, hash: Digest) -> Result<Option<Vec<Digest>>> {
    if !format::has_snapshots(connection)? {
        return Ok(None);
    }
    let mut statement =
        connection.prepare_cached("SELECT names FROM parts WHERE board = ?1 AND hash = ?2").map_err(sql_error)?;
    let mut rows = statement.query((board.as_str(), hash.to_string())).map_err(sql_error)?;
    let Some(row) = rows.next().map_err(sql_error)? else { return Ok(None) };
    let names = std::str::from_utf8(bytes(row, 0)?).ok();
    let names = names.and_then(|names| names.split_ascii_whitespace().map(|name| name.parse().ok()).collect());
    let what = || format!("what the part {hash} is noted to name cannot be read");
    names.map(Some).ok_or_else(|| JournalError::Corrupt { seq: None, what: what() })
}
