//! Journal of boards that need no disk, and of exports that are read.
//!
//! Keeps the rules of the interface as any driver does. Clones share the boards, as processes share a file. What is
//! immutable of a record lies apart from its payload, which a redaction replaces.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::Arc;

use parking_lot::Mutex;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::driver::{Batch, Head};
use patchboard_kernel::id::{BoardId, Seq, Timestamp};
use patchboard_kernel::record::{Body, Kind, Record};
use patchboard_kernel::snapshot::SnapshotPart;
use tokio::sync::watch;

use crate::journal::rules::{self, bad_batch, named_texts};
use crate::journal::{
    Answer, BoardSummary, BoxFuture, Claim, Erasure, GarbageCollection, Journal, JournalError, KeptSnapshot,
    ListCursor, NewParts, RecordLoss, Result, Tombstone, VacuumStats,
};

/// A journal in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryJournal {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stored: Mutex<Stored>,
    claims: Arc<Mutex<BTreeSet<BoardId>>>,
    /// Notified of every append.
    appends: watch::Sender<()>,
    access: Access,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Access {
    #[default]
    Full,
    /// Read only.
    Read,
    /// Read only, and without texts.
    ReadWithoutTexts,
}

#[derive(Default)]
struct Stored {
    boards: BTreeMap<BoardId, StoredBoard>,
    texts: BTreeMap<Digest, Arc<str>>,
    /// Records that erased texts, with their boards.
    erased: BTreeMap<Digest, (BoardId, Seq)>,
    tombstones: BTreeMap<BoardId, Tombstone>,
}

struct StoredBoard {
    summary: BoardSummary,
    records: Vec<Fixed>,
    payloads: Vec<String>,
    snapshots: BTreeMap<Seq, KeptSnapshot>,
    parts: BTreeMap<Digest, SnapshotPart>,
}

/// Immutable part of a record.
struct Fixed {
    seq: Seq,
    kind: Kind,
    at: Timestamp,
    header: String,
    hash: Digest,
}

impl StoredBoard {
    fn new(summary: BoardSummary) -> Self {
        let (records, payloads) = (Vec::new(), Vec::new());
        Self { summary, records, payloads, snapshots: BTreeMap::new(), parts: BTreeMap::new() }
    }

    fn extend(&mut self, records: Vec<Record>) {
        for record in records {
            let Record { seq, kind, at, header, payload, hash, .. } = record;
            self.payloads.push(payload);
            self.records.push(Fixed { seq, kind, at, header, hash });
        }
    }

    /// Returns the records from this index on.
    fn records(&self, from: usize) -> impl Iterator<Item = Record> {
        let pairs = self.records.iter().zip(&self.payloads).skip(from);
        pairs.map(|(fixed, payload)| {
            let Fixed { seq, kind, at, header, hash } = fixed;
            Record::new(*seq, *kind, *at, header.clone(), payload.clone(), *hash)
        })
    }

    fn has(&self, head: Head) -> bool {
        let found = usize::try_from(head.seq.0).ok().and_then(|index| self.records.get(index));
        found.is_some_and(|record| record.hash == head.hash)
    }
}

impl MemoryJournal {
    /// Returns a journal of one board that can only be read. `texts` are none if it has no texts.
    pub fn read_only(summary: BoardSummary, records: Vec<Record>, texts: Option<BTreeMap<Digest, Arc<str>>>) -> Self {
        let access = if texts.is_some() { Access::Read } else { Access::ReadWithoutTexts };
        let mut board = StoredBoard::new(summary);
        board.extend(records);
        let boards = BTreeMap::from([(board.summary.id.clone(), board)]);
        let stored = Stored { boards, texts: texts.unwrap_or_default(), ..Stored::default() };
        Self { shared: Arc::new(Shared { stored: Mutex::new(stored), access, ..Shared::default() }) }
    }

    /// Notes that a record of a board erased a text.
    pub fn note_erased(&self, text: Digest, by: (BoardId, Seq)) {
        self.shared.stored.lock().erased.insert(text, by);
    }

    fn read<'a, T: Send + 'a>(&self, read: impl FnOnce(&Stored) -> T) -> Answer<'a, T> {
        Box::pin(ready(Ok(read(&self.shared.stored.lock()))))
    }

    /// Reads of a board; returns the default if there is none.
    fn read_board<'a, T: Default + Send + 'a>(
        &self,
        board: &BoardId,
        read: impl FnOnce(&StoredBoard) -> T,
    ) -> Answer<'a, T> {
        self.read(|stored| stored.boards.get(board).map(read).unwrap_or_default())
    }

    fn write<'a, T: Send + 'a>(&self, write: impl FnOnce(&mut Stored) -> Result<T>) -> Answer<'a, T> {
        let written = match self.shared.access {
            Access::Full => write(&mut self.shared.stored.lock()),
            Access::Read | Access::ReadWithoutTexts => Err(JournalError::ReadOnly),
        };
        Box::pin(ready(written))
    }
}

impl Stored {
    fn append(&mut self, batch: &Batch) -> Result<Head> {
        rules::check_form(batch)?;
        let stored = self.boards.get(&batch.board);
        let summary = rules::summary_after(batch, stored.map(|board| board.summary.clone()))?;
        let mut named = Vec::new();
        for record in batch.records.iter().filter(|record| record.kind == Kind::Snapshot) {
            let Ok(Body::Snapshot(snapshot)) = record.body() else {
                return Err(bad_batch(batch, format!("record {} names no snapshot", record.seq)));
            };
            if stored.is_some_and(|board| board.parts.contains_key(&snapshot.digest)) {
                named.push(KeptSnapshot { of: snapshot.of, digest: snapshot.digest, record: record.seq });
            }
        }
        let head = summary.head;
        let board = self.boards.entry(batch.board.clone()).or_insert_with(|| StoredBoard::new(summary.clone()));
        board.summary = summary;
        board.extend(batch.records.clone());
        board.snapshots.extend(named.into_iter().map(|snapshot| (snapshot.of, snapshot)));
        for blob in &batch.blobs {
            self.texts.entry(blob.hash).or_insert_with(|| Arc::clone(&blob.text));
        }
        Ok(head)
    }

    fn in_epoch(&mut self, board: &BoardId, epoch: u64) -> Result<&mut StoredBoard> {
        let found = self.boards.get_mut(board).filter(|stored| stored.summary.epoch == epoch);
        let reason = || format!("a snapshot is taken in epoch {epoch}, the board is not in it");
        found.ok_or_else(|| JournalError::Fenced { board: board.clone(), reason: reason() })
    }

    fn erase(&mut self, erasure: &Erasure) -> Result<Head> {
        let missing = |what: String| bad_batch(&erasure.batch, what);
        let Some(last) = erasure.batch.records.last() else { return Err(missing("it is empty".to_owned())) };
        let id = &erasure.batch.board;
        let stored = self.boards.get(id);
        if let Some(absent) = erasure.payloads.iter().find(|new| stored.is_none_or(|board| !board.has(new.of))) {
            return Err(missing(format!("record {} is not the one whose values are erased", absent.of.seq)));
        }
        let head = self.append(&erasure.batch)?;
        for hash in &erasure.texts {
            self.texts.remove(hash);
            self.erased.insert(*hash, (id.clone(), last.seq));
        }
        if let Some(board) = self.boards.get_mut(id) {
            for new in &erasure.payloads {
                let index = usize::try_from(new.of.seq.0).unwrap_or(usize::MAX);
                board.payloads[index].clone_from(&new.payload);
            }
            board.snapshots.clear();
            board.parts.clear();
        }
        Ok(head)
    }

    /// Removes texts that no record names; returns their number.
    fn remove_unnamed_texts(&mut self) -> u64 {
        let records = self.boards.values().flat_map(|board| board.records(0));
        let named: BTreeSet<Digest> =
            records.flat_map(|record| record.body().map(named_texts).unwrap_or_default()).collect();
        let before = self.texts.len();
        self.texts.retain(|hash, _| named.contains(hash));
        (before - self.texts.len()) as u64
    }
}

fn is_after(cursor: Option<&ListCursor>, at: Timestamp, board: &BoardId) -> bool {
    cursor.is_none_or(|(last_at, last)| (at, board) > (*last_at, last))
}

impl Journal for MemoryJournal {
    fn append_all(&self, batches: Vec<Batch>) -> BoxFuture<'_, Vec<Result<Head>>> {
        let count = batches.len();
        let appended = self.write(|stored| Ok(batches.iter().map(|batch| stored.append(batch)).collect()));
        self.shared.appends.send_replace(());
        Box::pin(async move { appended.await.unwrap_or_else(|error| vec![Err(error); count]) })
    }

    fn records<'a>(&'a self, board: &'a BoardId, after: Option<Seq>, limit: usize) -> Answer<'a, Vec<Record>> {
        self.read_board(board, |board| {
            let from = after.map_or(0, |after| usize::try_from(after.0).map_or(usize::MAX, |it| it.saturating_add(1)));
            board.records(from).take(limit).collect()
        })
    }

    fn appended<'a>(&'a self, board: &'a BoardId, after: Option<Seq>) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut appends = self.shared.appends.subscribe();
            while self.head(board).await?.is_none_or(|head| after.is_some_and(|after| head.seq <= after)) {
                drop(appends.changed().await);
            }
            Ok(())
        })
    }

    fn blob(&self, hash: Digest) -> Answer<'_, Option<String>> {
        self.read(|stored| stored.texts.get(&hash).map(|text| text.to_string()))
    }

    fn has_texts(&self) -> bool {
        self.shared.access != Access::ReadWithoutTexts
    }

    fn snapshots<'a>(&'a self, board: &'a BoardId) -> Answer<'a, Vec<KeptSnapshot>> {
        self.read_board(board, |board| board.snapshots.values().rev().copied().collect())
    }

    fn part<'a>(&'a self, board: &'a BoardId, hash: Digest) -> Answer<'a, Option<String>> {
        self.read_board(board, |board| board.parts.get(&hash).map(|part| part.text.to_string()))
    }

    fn cached_refs<'a>(&'a self, board: &'a BoardId, hash: Digest) -> Answer<'a, Option<Vec<Digest>>> {
        self.read_board(board, |board| board.parts.get(&hash).map(|part| part.names.clone()))
    }

    fn store_parts<'a>(&'a self, board: &'a BoardId, epoch: u64, parts: Vec<SnapshotPart>) -> Answer<'a, NewParts> {
        self.write(|stored| {
            let stored = &mut stored.in_epoch(board, epoch)?.parts;
            let mut known: BTreeSet<Digest> = BTreeSet::new();
            for part in &parts {
                let is_missing = |hash: &&Digest| !stored.contains_key(*hash) && !known.contains(*hash);
                if let Some(hash) = part.names.iter().find(is_missing).filter(|_| !stored.contains_key(&part.hash)) {
                    return Err(JournalError::MissingPart { board: board.clone(), hash: *hash });
                }
                known.insert(part.hash);
            }
            let mut new = NewParts::default();
            for part in parts {
                let bytes = part.text.len() as u64;
                if let std::collections::btree_map::Entry::Vacant(place) = stored.entry(part.hash) {
                    place.insert(part);
                    new.count += 1;
                    new.bytes += bytes;
                }
            }
            Ok(new)
        })
    }

    fn collect_garbage<'a>(
        &'a self,
        board: &'a BoardId,
        epoch: u64,
        keep: usize,
        unusable: &'a [Seq],
    ) -> Answer<'a, GarbageCollection> {
        self.write(|stored| {
            let board = stored.in_epoch(board, epoch)?;
            let usable = board.snapshots.keys().rev().filter(|of| !unusable.contains(of)).take(keep);
            let kept: BTreeSet<Seq> = usable.copied().collect();
            board.snapshots.retain(|of, _| kept.contains(of));
            let mut pending: Vec<Digest> = board.snapshots.values().map(|snapshot| snapshot.digest).collect();
            let mut live = BTreeSet::new();
            while let Some(hash) = pending.pop() {
                if let Some(part) = board.parts.get(&hash)
                    && live.insert(hash)
                {
                    pending.extend(&part.names);
                }
            }
            let before = board.parts.len();
            board.parts.retain(|hash, _| live.contains(hash));
            Ok(GarbageCollection { kept: live.len() as u64, removed: (before - board.parts.len()) as u64 })
        })
    }

    fn erase(&self, erasure: Erasure) -> Answer<'_, Head> {
        let erased = self.write(|stored| stored.erase(&erasure));
        self.shared.appends.send_replace(());
        erased
    }

    fn erased_text(&self, hash: Digest) -> Answer<'_, Option<(BoardId, Seq)>> {
        self.read(|stored| stored.erased.get(&hash).cloned())
    }

    fn purge_erased_bytes(&self) -> Answer<'_, ()> {
        self.write(|_| Ok(()))
    }

    fn vacuum(&self) -> Answer<'_, VacuumStats> {
        self.write(|stored| Ok(VacuumStats { texts: stored.remove_unnamed_texts(), ..VacuumStats::default() }))
    }

    fn remove<'a>(&'a self, board: &'a BoardId, head: Head, archive: Option<&'a str>, at: Timestamp) -> Answer<'a, ()> {
        self.write(|stored| {
            let Some(found) = stored.boards.get(board).filter(|stored| stored.summary.head == head) else {
                let reason = format!("its last record is not {}", head.seq);
                return Err(JournalError::Fenced { board: board.clone(), reason });
            };
            let (name, archive) = (found.summary.name.clone(), archive.map(str::to_owned));
            let tombstone = Tombstone { board: board.clone(), name, head, at, archive };
            stored.tombstones.insert(board.clone(), tombstone);
            stored.boards.remove(board);
            Ok(())
        })
    }

    fn tombstone_page(&self, after: Option<ListCursor>, limit: usize) -> Answer<'_, Vec<Tombstone>> {
        self.read(|stored| {
            let gone = stored.tombstones.values().filter(|gone| !stored.boards.contains_key(&gone.board));
            let mut page: Vec<_> =
                gone.filter(|gone| is_after(after.as_ref(), gone.at, &gone.board)).cloned().collect();
            page.sort_by(|one, other| (one.at, &one.board).cmp(&(other.at, &other.board)));
            page.truncate(limit);
            page
        })
    }

    fn record_losses(&self) -> Answer<'_, Vec<RecordLoss>> {
        self.read(|_| Vec::new())
    }

    fn accept_loss<'a>(&'a self, _: &'a BoardId) -> Answer<'a, ()> {
        self.write(|_| Ok(()))
    }

    fn summary<'a>(&'a self, board: &'a BoardId) -> Answer<'a, Option<BoardSummary>> {
        self.read_board(board, |board| Some(board.summary.clone()))
    }

    fn board_page(&self, after: Option<ListCursor>, limit: usize) -> Answer<'_, Vec<BoardSummary>> {
        self.read(|stored| {
            let boards = stored.boards.values().map(|board| &board.summary);
            let mut page: Vec<_> =
                boards.filter(|board| is_after(after.as_ref(), board.created_at, &board.id)).cloned().collect();
            page.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
            page.truncate(limit);
            page
        })
    }

    fn claim<'a>(&'a self, board: &'a BoardId, force: bool) -> Answer<'a, Claim> {
        self.write(|_| match self.shared.claims.lock().insert(board.clone()) {
            true => Ok(Claim::with_guard(Release { board: board.clone(), claims: Arc::clone(&self.shared.claims) })),
            false if force => Ok(Claim::unguarded()),
            false => Err(JournalError::Owned { board: board.clone() }),
        })
    }

    fn is_claimed<'a>(&'a self, board: &'a BoardId) -> BoxFuture<'a, bool> {
        Box::pin(ready(self.shared.claims.lock().contains(board)))
    }

    fn check_writable(&self) -> Answer<'_, ()> {
        self.write(|_| Ok(()))
    }

    fn check_storage(&self) -> Answer<'_, ()> {
        self.read(|_| ())
    }
}

/// Releases a claim when dropped.
struct Release {
    board: BoardId,
    claims: Arc<Mutex<BTreeSet<BoardId>>>,
}

impl Drop for Release {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.board);
    }
}
