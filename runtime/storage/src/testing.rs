//! Journals for tests: synthetic records, sealed as the kernel seals them, and journals that fail.

use std::collections::BTreeMap;
use std::future::ready;
use std::io::{self, Cursor};
use std::sync::Arc;

use parking_lot::Mutex;
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::Unit;
use patchboard_kernel::board::Blob;
use patchboard_kernel::digest::{Digest, Hasher, Salt, sha256};
use patchboard_kernel::id::{BoardId, InvocationId, Seq, Timestamp, Version};
use patchboard_kernel::record::{Body, Created, Epoch, FORMAT, GENESIS, Invoked, Record, Signal};
use serde_json::json;

use crate::archives::{Answer as ArchiveAnswer, Archives, Source};
use crate::journal::{
    Answer, BoardSummary, BoxFuture, Claim, Erasure, GarbageCollection, Journal, JournalError, KeptSnapshot,
    ListCursor, NewParts, RecordLoss, Tombstone, VacuumStats,
};
use patchboard_kernel::driver::{Batch, Head};
use patchboard_kernel::snapshot::SnapshotPart;

/// Creates the records of one board, batch by batch.
#[derive(Clone)]
pub struct Writer {
    /// Board.
    pub board: BoardId,
    /// Current epoch.
    pub epoch: u64,
    /// Last record.
    pub head: Option<Head>,
    hasher: Hasher,
}

impl Writer {
    /// Creates the writer of a board without records.
    pub fn new(board: &str) -> Self {
        Self { board: board.into(), epoch: 0, head: None, hasher: Hasher::new(&Salt([7; 32])) }
    }

    /// Returns the board's first batch.
    pub fn created(&mut self) -> Batch {
        let created = Created {
            format: FORMAT,
            board: self.board.clone(),
            name: "test".to_owned(),
            state: sha256(b"state"),
            mode: Mode::default(),
            blueprint: json!({"name": "test"}),
            request: json!({"question": "why?"}),
            salt: Salt([7; 32]),
            drawn: BTreeMap::new(),
            architect: None,
            parent: None,
        };
        self.batch(vec![Body::Created(Box::new(created))])
    }

    /// Returns one signal with `value`.
    pub fn signal(&mut self, value: &str) -> Batch {
        self.batch(vec![Body::Signal(Signal { name: "s".to_owned(), value: json!(value), token: None })])
    }

    /// Takes the board over.
    pub fn taken_over(&mut self, writer: &str) -> Batch {
        self.epoch += 1;
        self.batch(vec![Body::Epoch(Epoch { epoch: self.epoch, writer: writer.to_owned(), format: None })])
    }

    /// Returns an attempt with this view, and a prompt around it.
    pub fn invoked(&mut self, view: &str) -> Batch {
        let prompt = format!(r#"{{"system":"","user":"{view}"}}"#);
        let invoked = Invoked {
            invocation: InvocationId(1),
            attempt: 1,
            worker: "w".into(),
            cause: Seq(0),
            base: Version(0),
            budget: 4000,
            unit: Unit::Chars,
            tokenizer: None,
            view_bytes: None,
            is_unspent: false,
            unshown: Vec::new(),
            compiler: 1,
            feedback: Vec::new(),
            view: sha256(view.as_bytes()),
            prompt: sha256(prompt.as_bytes()),
            reserved: 0,
            deadline: Timestamp(0),
            reads: vec!["/a".to_owned()],
            members: Vec::new(),
            admitted: None,
        };
        let mut batch = self.batch(vec![Body::Invoked(invoked)]);
        batch.blobs = [view, &prompt].map(|text| Blob { hash: sha256(text.as_bytes()), text: Arc::from(text) }).into();
        batch
    }

    /// Returns a batch with these bodies.
    pub fn batch(&mut self, bodies: Vec<Body>) -> Batch {
        let expected = self.head;
        let mut records = Vec::new();
        for body in bodies {
            let seq = self.head.map(|head| head.seq.next()).unwrap_or_default();
            let previous = self.head.map_or(GENESIS, |head| head.hash);
            let at = Timestamp(1_700_000_000_000 + i64::try_from(seq.0).expect("tests write few records"));
            let record = Record::seal(previous, seq, at, body, &self.hasher);
            self.head = Some(Head { seq, hash: record.hash });
            records.push(record);
        }
        Batch { board: self.board.clone(), epoch: self.epoch, expected, records, blobs: Vec::new() }
    }
}

/// Journal around another, for tests: replaces what a driver does in some operations.
pub trait Around: Send + Sync + 'static {
    /// Returns the journal that does the rest.
    fn inner(&self) -> &dyn Journal;
    /// See [`Journal::append_all`].
    fn append_all(&self, batches: Vec<Batch>) -> BoxFuture<'_, Vec<Result<Head, JournalError>>> {
        self.inner().append_all(batches)
    }
    /// See [`Journal::records`].
    fn records<'a>(&'a self, board: &'a BoardId, after: Option<Seq>, limit: usize) -> Answer<'a, Vec<Record>> {
        self.inner().records(board, after, limit)
    }
    /// See [`Journal::part`].
    fn part<'a>(&'a self, board: &'a BoardId, hash: Digest) -> Answer<'a, Option<String>> {
        self.inner().part(board, hash)
    }
    /// See [`Journal::store_parts`].
    fn store_parts<'a>(&'a self, board: &'a BoardId, epoch: u64, parts: Vec<SnapshotPart>) -> Answer<'a, NewParts> {
        self.inner().store_parts(board, epoch, parts)
    }
}

impl<T: Around> Journal for T {
    fn append_all(&self, batches: Vec<Batch>) -> BoxFuture<'_, Vec<Result<Head, JournalError>>> {
        Around::append_all(self, batches)
    }
    fn records<'a>(&'a self, board: &'a BoardId, after: Option<Seq>, limit: usize) -> Answer<'a, Vec<Record>> {
        Around::records(self, board, after, limit)
    }
    fn appended<'a>(&'a self, board: &'a BoardId, after: Option<Seq>) -> Answer<'a, ()> {
        self.inner().appended(board, after)
    }
    fn blob(&self, hash: Digest) -> Answer<'_, Option<String>> {
        self.inner().blob(hash)
    }
    fn has_texts(&self) -> bool {
        self.inner().has_texts()
    }
    fn snapshots<'a>(&'a self, board: &'a BoardId) -> Answer<'a, Vec<KeptSnapshot>> {
        self.inner().snapshots(board)
    }
    fn part<'a>(&'a self, board: &'a BoardId, hash: Digest) -> Answer<'a, Option<String>> {
        Around::part(self, board, hash)
    }
    fn cached_refs<'a>(&'a self, board: &'a BoardId, hash: Digest) -> Answer<'a, Option<Vec<Digest>>> {
        self.inner().cached_refs(board, hash)
    }
    fn store_parts<'a>(&'a self, board: &'a BoardId, epoch: u64, parts: Vec<SnapshotPart>) -> Answer<'a, NewParts> {
        Around::store_parts(self, board, epoch, parts)
    }
    fn collect_garbage<'a>(
        &'a self,
        board: &'a BoardId,
        epoch: u64,
        keep: usize,
        unusable: &'a [Seq],
    ) -> Answer<'a, GarbageCollection> {
        self.inner().collect_garbage(board, epoch, keep, unusable)
    }
    fn erase(&self, erasure: Erasure) -> Answer<'_, Head> {
        self.inner().erase(erasure)
    }
    fn erased_text(&self, hash: Digest) -> Answer<'_, Option<(BoardId, Seq)>> {
        self.inner().erased_text(hash)
    }
    fn purge_erased_bytes(&self) -> Answer<'_, ()> {
        self.inner().purge_erased_bytes()
    }
    fn vacuum(&self) -> Answer<'_, VacuumStats> {
        self.inner().vacuum()
    }
    fn remove<'a>(&'a self, board: &'a BoardId, head: Head, archive: Option<&'a str>, at: Timestamp) -> Answer<'a, ()> {
        self.inner().remove(board, head, archive, at)
    }
    fn tombstone_page(&self, after: Option<ListCursor>, limit: usize) -> Answer<'_, Vec<Tombstone>> {
        self.inner().tombstone_page(after, limit)
    }
    fn record_losses(&self) -> Answer<'_, Vec<RecordLoss>> {
        self.inner().record_losses()
    }
    fn accept_loss<'a>(&'a self, board: &'a BoardId) -> Answer<'a, ()> {
        self.inner().accept_loss(board)
    }
    fn summary<'a>(&'a self, board: &'a BoardId) -> Answer<'a, Option<BoardSummary>> {
        self.inner().summary(board)
    }
    fn board_page(&self, after: Option<ListCursor>, limit: usize) -> Answer<'_, Vec<BoardSummary>> {
        self.inner().board_page(after, limit)
    }
    fn claim<'a>(&'a self, board: &'a BoardId, force: bool) -> Answer<'a, Claim> {
        self.inner().claim(board, force)
    }
    fn is_claimed<'a>(&'a self, board: &'a BoardId) -> BoxFuture<'a, bool> {
        self.inner().is_claimed(board)
    }
    fn check_writable(&self) -> Answer<'_, ()> {
        self.inner().check_writable()
    }
    fn check_storage(&self) -> Answer<'_, ()> {
        self.inner().check_storage()
    }
}

/// Archives in memory.
#[derive(Clone, Default, Debug)]
pub struct MemoryArchives {
    texts: Arc<Mutex<BTreeMap<BoardId, String>>>,
}

impl Archives for MemoryArchives {
    fn place(&self, board: &BoardId) -> String {
        format!("memory:{board}")
    }

    fn write<'a>(&'a self, board: &'a BoardId, text: String) -> ArchiveAnswer<'a, ()> {
        self.texts.lock().insert(board.clone(), text);
        Box::pin(ready(Ok(())))
    }

    fn open<'a>(&'a self, board: &'a BoardId) -> ArchiveAnswer<'a, Source> {
        let text = self.texts.lock().get(board).cloned();
        let source = text.map(|text| Box::new(Cursor::new(text)) as Source);
        Box::pin(ready(source.ok_or_else(|| io::ErrorKind::NotFound.into())))
    }

    fn remove<'a>(&'a self, board: &'a BoardId) -> ArchiveAnswer<'a, ()> {
        self.texts.lock().remove(board);
        Box::pin(ready(Ok(())))
    }
}
