//! Snapshots in the file: their parts, which of them are kept, and how the rest is removed.
//!
//! Parts belong to a board and not to `blobs`, so that what no snapshot names any more can be found without knowing
//! what views and prompts name. `names` lists the parts that a part names, so that they are found without reading it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::{Body, Record};
use patchboard_kernel::snapshot::Part;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior};

use super::append::bad_batch;
use super::fault::sql_fault;
use super::format;
use super::{load_summary, to_sql_number, unpoisoned};
use crate::journal::{Batch, JournalError, KeptSnapshot, Swept};

/// How many bytes of parts are written before the log is folded into the file.
const FOLD_BYTES: u64 = 1 << 20;

/// Parts looked at, or removed, by one statement or transaction.
const PAGE: usize = 256;

/// Writes parts on a connection of its own.
pub(super) struct Writer {
    connection: Connection,
    /// Bytes written since the log was last folded.
    unfolded: u64,
}

impl Writer {
    pub(super) fn open(path: &Path, patience: Duration) -> Result<Self, JournalError> {
        Ok(Self { connection: format::open_for_parts(path, patience)?, unfolded: 0 })
    }

    pub(super) fn store(
        &mut self,
        turn: &Mutex<Connection>,
        board: &BoardId,
        epoch: u64,
        parts: &[Part],
    ) -> Result<u64, JournalError> {
        let bytes = self.transact(turn, board, epoch, |transaction| {
            let mut bytes = 0;
            for part in parts {
                if !is_stored(transaction, board, part.hash)? {
                    for hash in &part.names {
                        if !is_stored(transaction, board, *hash)? {
                            return Err(JournalError::MissingPart { board: board.clone(), hash: *hash });
                        }
                    }
                    insert(transaction, board, part)?;
                    bytes += part.text.len() as u64;
                }
            }
            Ok(bytes)
        })?;
        self.unfolded += bytes;
        if self.unfolded >= FOLD_BYTES {
            self.fold_log()?;
        }
        Ok(bytes)
    }

    pub(super) fn sweep(
        &mut self,
        turn: &Mutex<Connection>,
        board: &BoardId,
        epoch: u64,
        keep: usize,
        unusable: &[Seq],
    ) -> Result<Swept, JournalError> {
        let (mut useful, mut given_up) = (Vec::new(), Vec::new());
        for (seq, snapshot) in listed(&self.connection, board)? {
            match snapshot.filter(|snapshot| useful.len() < keep && !unusable.contains(&snapshot.of)) {
                Some(snapshot) => useful.push(snapshot),
                None => given_up.push(seq),
            }
        }
        self.transact(turn, board, epoch, |transaction| {
            for seq in &given_up {
                transaction
                    .prepare_cached("DELETE FROM snapshots WHERE board = ?1 AND seq = ?2")
                    .and_then(|mut delete| delete.execute((board.as_str(), seq)))
                    .map_err(sql_fault)?;
            }
            Ok(())
        })?;
        let live = self.live(board, useful.iter().map(|snapshot| snapshot.digest.to_string()))?;
        let mut removed = 0;
        let mut last = String::new();
        loop {
            let page = self.hashes(board, &last)?;
            let Some(end) = page.last() else { break };
            last.clone_from(end);
            let dead: Vec<_> = page.into_iter().filter(|hash| !live.contains(hash)).collect();
            if dead.is_empty() {
                continue;
            }
            removed += dead.len() as u64;
            self.transact(turn, board, epoch, |transaction| {
                let mut delete = transaction
                    .prepare_cached("DELETE FROM parts WHERE board = ?1 AND hash = ?2")
                    .map_err(sql_fault)?;
                for hash in &dead {
                    delete.execute((board.as_str(), hash)).map_err(sql_fault)?;
                }
                Ok(())
            })?;
        }
        self.fold_log()?;
        Ok(Swept { kept: live.len() as u64, removed })
    }

    /// What the parts with these hashes are made of, themselves included.
    fn live(&self, board: &BoardId, roots: impl Iterator<Item = String>) -> Result<HashSet<String>, JournalError> {
        let mut pending: Vec<String> = roots.collect();
        let mut live = HashSet::new();
        let mut names = self
            .connection
            .prepare_cached("SELECT names FROM parts WHERE board = ?1 AND hash = ?2")
            .map_err(sql_fault)?;
        while let Some(hash) = pending.pop() {
            if live.contains(&hash) {
                continue;
            }
            let named: Option<String> =
                names.query_row((board.as_str(), &hash), |row| row.get(0)).optional().map_err(sql_fault)?;
            pending.extend(named.iter().flat_map(|names| names.split_ascii_whitespace()).map(str::to_owned));
            live.insert(hash);
        }
        Ok(live)
    }

    /// The next hashes after one, in order.
    fn hashes(&self, board: &BoardId, after: &str) -> Result<Vec<String>, JournalError> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT hash FROM parts WHERE board = ?1 AND hash > ?2 ORDER BY hash LIMIT ?3")
            .map_err(sql_fault)?;
        let rows = statement.query_map((board.as_str(), after, PAGE as i64), |row| row.get(0)).map_err(sql_fault)?;
        rows.collect::<rusqlite::Result<_>>().map_err(sql_fault)
    }

    /// One transaction, for as long as the board is in this epoch. Appends of this process wait for their turn; those of
    /// others find the file busy for as long.
    fn transact<T>(
        &mut self,
        turn: &Mutex<Connection>,
        board: &BoardId,
        epoch: u64,
        write: impl FnOnce(&Transaction<'_>) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let _turn = unpoisoned(turn);
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql_fault)?;
        let stored = load_summary(&transaction, board)?.map(|summary| summary.epoch);
        if stored != Some(epoch) {
            let reason = format!("a snapshot is taken in epoch {epoch}, the board is not in it");
            return Err(JournalError::Fenced { board: board.clone(), reason });
        }
        let written = write(&transaction)?;
        transaction.commit().map_err(sql_fault)?;
        Ok(written)
    }

    /// Appends go on meanwhile.
    fn fold_log(&mut self) -> Result<(), JournalError> {
        self.unfolded = 0;
        self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(())).map_err(sql_fault)
    }
}

fn is_stored(connection: &Connection, board: &BoardId, hash: Digest) -> Result<bool, JournalError> {
    connection
        .prepare_cached("SELECT 1 FROM parts WHERE board = ?1 AND hash = ?2")
        .and_then(|mut statement| statement.exists((board.as_str(), hash.to_string())))
        .map_err(sql_fault)
}

fn insert(connection: &Connection, board: &BoardId, part: &Part) -> Result<(), JournalError> {
    let names: Vec<String> = part.names.iter().map(Digest::to_string).collect();
    let row = (board.as_str(), part.hash.to_string(), names.join(" "), part.text.as_bytes());
    connection
        .prepare_cached("INSERT INTO parts (board, hash, names, bytes) VALUES (?1, ?2, ?3, ?4)")
        .and_then(|mut statement| statement.execute(row))
        .map_err(sql_fault)?;
    Ok(())
}

/// Notes the snapshot that a record names, if it is stored here.
pub(super) fn keep_snapshot(connection: &Connection, batch: &Batch, record: &Record) -> Result<(), JournalError> {
    let Ok(Body::Snapshot(snapshot)) = record.body() else {
        return Err(bad_batch(batch, format!("record {} names no snapshot", record.seq)));
    };
    if is_stored(connection, &batch.board, snapshot.digest)? {
        let row = (
            batch.board.as_str(),
            to_sql_number(snapshot.of.0)?,
            snapshot.digest.to_string(),
            to_sql_number(record.seq.0)?,
        );
        connection
            .prepare_cached("INSERT OR REPLACE INTO snapshots (board, seq, digest, record) VALUES (?1, ?2, ?3, ?4)")
            .and_then(|mut statement| statement.execute(row))
            .map_err(sql_fault)?;
    }
    Ok(())
}

/// The snapshots that are kept, the newest first.
pub(super) fn kept(connection: &Connection, board: &BoardId) -> Result<Vec<KeptSnapshot>, JournalError> {
    if !format::has_snapshots(connection)? {
        return Ok(Vec::new());
    }
    let wrong =
        || JournalError::Corrupt { seq: None, what: format!("the list of snapshots of board {board} cannot be read") };
    listed(connection, board)?.into_iter().map(|(_, kept)| kept.ok_or_else(wrong)).collect()
}

/// The rows of that list by their keys, with what cannot be read.
fn listed(connection: &Connection, board: &BoardId) -> Result<Vec<(i64, Option<KeptSnapshot>)>, JournalError> {
    let mut statement = connection
        .prepare_cached("SELECT seq, digest, record FROM snapshots WHERE board = ?1 ORDER BY seq DESC")
        .map_err(sql_fault)?;
    let mut rows = statement.query([board.as_str()]).map_err(sql_fault)?;
    let mut listed = Vec::new();
    while let Some(row) = rows.next().map_err(sql_fault)? {
        let seq: i64 = row.get(0).map_err(sql_fault)?;
        listed.push((seq, kept_snapshot(seq, row)));
    }
    Ok(listed)
}

fn kept_snapshot(seq: i64, row: &Row<'_>) -> Option<KeptSnapshot> {
    // A text that is none must not keep the sweep from taking it out.
    let (digest, record): (String, i64) = (row.get(1).ok()?, row.get(2).ok()?);
    let (of, record) = (u64::try_from(seq).ok()?, u64::try_from(record).ok()?);
    Some(KeptSnapshot { of: Seq(of), digest: digest.parse().ok()?, record: Seq(record) })
}

/// The text of a part.
pub(super) fn text(connection: &Connection, board: &BoardId, hash: Digest) -> Result<Option<String>, JournalError> {
    if !format::has_snapshots(connection)? {
        return Ok(None);
    }
    let mut statement =
        connection.prepare_cached("SELECT bytes FROM parts WHERE board = ?1 AND hash = ?2").map_err(sql_fault)?;
    let bytes: Option<Vec<u8>> =
        statement.query_row((board.as_str(), hash.to_string()), |row| row.get(0)).optional().map_err(sql_fault)?;
    let not_text = |_| JournalError::Corrupt { seq: None, what: format!("the stored part {hash} is not UTF-8") };
    bytes.map(String::from_utf8).transpose().map_err(not_text)
}
