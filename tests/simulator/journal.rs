//! Durable records against released effects, from outside. No effect is released before its records are durable, no
//! released record is lost, and no record is written twice or outside the chain.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::board::{Board, Outcome, RememberedOutcome, Step};
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::driver::{Batch, Head};
use patchboard_kernel::id::{InvocationId, Seq};
use patchboard_kernel::record::{Body, Ended, Kind, Record};

pub(super) struct Journal {
    seed: u64,
    /// All durable records.
    durable: Vec<(Kind, Digest)>,
    /// Epoch of the last owner with a durable takeover.
    epoch: u64,
    /// Attempts that have a record.
    attempts: BTreeSet<(InvocationId, u32)>,
    /// Attempts that agents were called for.
    calls: BTreeSet<(InvocationId, u32)>,
    /// Last recorded end.
    ended: Option<Ended>,
    /// Published records.
    published: BTreeMap<Seq, Digest>,
    /// Outcomes that were returned to proposers.
    returned: BTreeMap<Seq, Kind>,
}

impl Journal {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            seed,
            durable: Vec::new(),
            epoch: 0,
            attempts: BTreeSet::new(),
            calls: BTreeSet::new(),
            ended: None,
            published: BTreeMap::new(),
            returned: BTreeMap::new(),
        }
    }

    /// Checks an append: directly after the durable records, and by the present owner.
    pub(super) fn wrote(&mut self, append: &Batch) {
        let seed = self.seed;
        assert_eq!(append.expected, self.head(), "SEED={seed}: records follow on others than those that are durable");
        assert!(!append.records.is_empty(), "SEED={seed}: nothing is appended");
        for record in &append.records {
            self.wrote_one(record);
        }
        assert_eq!(append.epoch, self.epoch, "SEED={seed}: somebody writes who does not own the board");
    }

    fn wrote_one(&mut self, record: &Record) {
        let seed = self.seed;
        assert_eq!(record.seq.0, self.durable.len() as u64, "SEED={seed}: a record is missing, or written twice");
        let mut chained = self.durable.last().map_or(vec![0; 32], |(_, hash)| hash.0.to_vec());
        chained.extend_from_slice(record.header.as_bytes());
        assert_eq!(record.hash, sha256(&chained), "SEED={seed}: record {} is besides the chain", record.seq);
        self.durable.push((record.kind, record.hash));
        let Record { seq, kind, at, header, payload, hash, .. } = record.clone();
        let read = Record::new(seq, kind, at, header, payload, hash);
        assert_eq!(read.body(), record.body(), "SEED={seed}: record {seq} is read otherwise than it was made");
        match record.body().unwrap_or_else(|error| panic!("SEED={seed}: {error}")) {
            Body::Epoch(epoch) => {
                assert!(epoch.epoch > self.epoch, "SEED={seed}: epoch {} comes again", epoch.epoch);
                self.epoch = epoch.epoch;
            }
            Body::Invoked(invoked) => {
                let attempt = (invoked.invocation, invoked.attempt);
                assert!(self.attempts.insert(attempt), "SEED={seed}: attempt {attempt:?} is recorded twice");
            }
            Body::Ended(ended) => self.ended = Some(*ended),
            _ => {}
        }
    }

    /// Returns the last durable record.
    fn head(&self) -> Option<Head> {
        let (_, hash) = *self.durable.last()?;
        Some(Head { seq: Seq(self.durable.len() as u64 - 1), hash })
    }

    /// Checks that everything a step releases is durable.
    pub(super) fn released(&mut self, released: &Step) {
        let seed = self.seed;
        for record in &released.records {
            self.is_durable(record.seq, record.hash);
            let before = self.published.insert(record.seq, record.hash);
            assert_eq!(before, None, "SEED={seed}: record {} is published twice", record.seq);
        }
        if let Some((seq, kinds)) = released.outcome.as_ref().and_then(says) {
            let found = usize::try_from(seq.0).ok().and_then(|place| self.durable.get(place));
            let kind = found.map(|(kind, _)| *kind).filter(|kind| kinds.contains(kind));
            let Some(kind) = kind else {
                panic!("SEED={seed}: somebody is told what is not durable, {kinds:?} by record {seq}: {found:?}")
            };
            self.returned.insert(seq, kind);
        }
        for call in &released.effects.calls {
            let call = (call.invocation, call.attempt);
            assert!(self.attempts.contains(&call), "SEED={seed}: a call that is not durable, {call:?}");
            assert!(self.calls.insert(call), "SEED={seed}: a call that is made twice, {call:?}");
        }
        if released.effects.ended.is_some() {
            assert_eq!(self.ended, released.effects.ended, "SEED={seed}: an end that is not durable");
        }
    }

    fn is_durable(&self, seq: Seq, hash: Digest) {
        let found = usize::try_from(seq.0).ok().and_then(|place| self.durable.get(place));
        let is_there = found.is_some_and(|(_, durable)| *durable == hash);
        assert!(is_there, "SEED={}: what was let out is not durable, record {seq}", self.seed);
    }

    /// Checks a recovered board: it is at the last durable record, and all released records are among the durable
    /// ones.
    pub(super) fn recovered(&self, board: &Board, records: &[Record]) {
        let seed = self.seed;
        let (seq, hash) = board.head();
        assert_eq!(Some(Head { seq, hash }), self.head(), "SEED={seed}: recovery ends at another record than the last");
        let kept = records.iter().map(|record| (record.kind, record.hash));
        assert!(kept.eq(self.durable.iter().copied()), "SEED={seed}: other records than were written");
        self.published.iter().for_each(|(seq, hash)| self.is_durable(*seq, *hash));
        for (seq, kind) in &self.returned {
            let found = usize::try_from(seq.0).ok().and_then(|place| records.get(place)).map(|record| record.kind);
            assert_eq!(found, Some(*kind), "SEED={seed}: what somebody was told is lost, record {seq}");
        }
    }
}

/// Returns the record that an outcome refers to, and the kinds it may have.
fn says(outcome: &Outcome) -> Option<(Seq, &'static [Kind])> {
    match outcome {
        Outcome::Continued { seq } => Some((*seq, &[Kind::Continued])),
        Outcome::Committed { seq, .. } => Some((*seq, &[Kind::Committed])),
        Outcome::NoOp { seq } => Some((*seq, &[Kind::NoOp])),
        Outcome::Expanded { seq } => Some((*seq, &[Kind::Expanded])),
        Outcome::AwaitingApproval { seq } => Some((*seq, &[Kind::Approval])),
        Outcome::Answered { seq } => Some((*seq, &[Kind::Answer])),
        Outcome::Rejected { seq, .. } => Some((*seq, &[Kind::Rejected, Kind::Late])),
        Outcome::Duplicate(verdict) => remembered(verdict),
        Outcome::RejectedUnrecorded(_) => None,
    }
}

/// Like [`says`], for the remembered verdict of an idempotency key.
fn remembered(verdict: &RememberedOutcome) -> Option<(Seq, &'static [Kind])> {
    Some(match verdict {
        RememberedOutcome::Committed { seq, .. } => (*seq, &[Kind::Committed]),
        RememberedOutcome::NoOp { seq } => (*seq, &[Kind::NoOp]),
        RememberedOutcome::Expanded { seq } => (*seq, &[Kind::Expanded]),
        RememberedOutcome::AwaitingApproval { seq } => (*seq, &[Kind::Approval]),
        RememberedOutcome::Rejected { seq, .. } => (*seq, &[Kind::Rejected]),
        RememberedOutcome::Recorded { seq } => (*seq, &[Kind::Signal, Kind::Paused, Kind::Resumed, Kind::Retried]),
    })
}
