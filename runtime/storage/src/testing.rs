//! Journals of synthetic records, for tests of storage. The records are sealed as the kernel seals them.

use std::collections::BTreeMap;
use std::sync::Arc;

use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::Unit;
use patchboard_kernel::board::Blob;
use patchboard_kernel::digest::{Hasher, Salt, sha256};
use patchboard_kernel::id::{BoardId, InvocationId, Seq, Timestamp, Version};
use patchboard_kernel::record::{Body, Created, Epoch, FORMAT, GENESIS, Invoked, Record, Signal};
use serde_json::json;

use crate::journal::{Batch, Head};

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
            let record = Record::seal(previous, seq, at, &body, &self.hasher);
            self.head = Some(Head { seq, hash: record.hash });
            records.push(record);
        }
        Batch { board: self.board.clone(), epoch: self.epoch, expected, records, blobs: Vec::new() }
    }
}
