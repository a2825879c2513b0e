//! External check of the design's invariants 2 to 8 after every step.
//!
//! Shares no code with the kernel's contracts, pipeline or schema wrapper: the rules of the simulated blueprint are
//! written a second time, by hand.

use std::collections::BTreeMap;

use patchboard_kernel::ablation::{Component, Mode};
use patchboard_kernel::board::{Board, Input, Outcome, ProposalSource, Step};
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{IdempotencyKey, Timestamp, Version, WorkerName};
use patchboard_kernel::record::{Body, Kind, Record};
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use serde_json::Value;

use super::plans::Shared;

/// Lifetime of a caller's idempotency key, in milliseconds.
const WINDOW: u64 = 3_600_000;

pub(super) struct Invariants {
    seed: u64,
    state: Value,
    digest: Digest,
    version: Version,
    /// Commits in released steps, with the digest of the resulting state.
    acknowledged: Vec<(Version, Digest)>,
    /// Idempotency keys of commits, with the time of each.
    committed_tokens: BTreeMap<String, Timestamp>,
}

impl Invariants {
    pub(super) fn new(seed: u64, board: &Board) -> Self {
        Self {
            seed,
            state: board.state().root().to_value(),
            digest: board.state().digest(),
            version: board.version(),
            acknowledged: Vec::new(),
            committed_tokens: BTreeMap::new(),
        }
    }

    pub(super) fn after_step(&mut self, input: Option<&Input>, step: &Step, board: &Board) {
        let seed = self.seed;
        let commits: Vec<_> = step.records.iter().filter(|record| record.kind == Kind::Committed).collect();
        assert!(commits.len() <= 1, "SEED={seed}: one input, two commits");
        if let Some(record) = commits.first() {
            self.committed(record, board);
        } else {
            // 2 and 3: a step without a commit does not change the document.
            assert_eq!(board.state().root(), &self.state, "SEED={seed}: a step without a commit changed the state");
            assert_eq!(board.state().digest(), self.digest, "SEED={seed}: and its digest");
            assert_eq!(board.version(), self.version, "SEED={seed}: and its version");
        }
        if let Some(Outcome::Rejected { seq, .. }) = &step.outcome {
            assert!(step.records.iter().any(|record| record.seq == *seq), "SEED={seed}: a rejection left no record");
        }
        if let Some(Outcome::Duplicate(_)) = &step.outcome {
            assert!(step.records.is_empty(), "SEED={seed}: a duplicate was recorded");
        }
        // 8: a key is committed once, regardless of the proposal that carries it. An attempt's key is unique forever,
        // a caller's for its lifetime.
        if let (Some(Input::Propose(proposal)), Some(Outcome::Committed { .. })) = (input, &step.outcome) {
            let token = match &proposal.from {
                ProposalSource::Attempt { invocation, attempt } => {
                    Some(IdempotencyKey::for_attempt(*invocation, *attempt).to_string())
                }
                ProposalSource::Direct { key: token, .. } => {
                    token.as_ref().map(|token| format!("{}/{token}", proposal.worker))
                }
            };
            if let (Some(token), Some(commit)) = (token, commits.first()) {
                let before = self.committed_tokens.insert(token.clone(), commit.at);
                let is_direct = matches!(proposal.from, ProposalSource::Direct { .. });
                let is_forgotten = |before: Timestamp| is_direct && commit.at.ms_since(before) >= WINDOW;
                assert!(before.is_none_or(is_forgotten), "SEED={seed}: token {token} committed twice");
            }
        }
        for record in &step.records {
            let unknown = record.body().err();
            assert_eq!(unknown, None, "SEED={seed}: record {} cannot be read back", record.seq);
        }
    }

    /// Checks invariants 4 and 7 for a commit.
    fn committed(&mut self, record: &Record, board: &Board) {
        let seed = self.seed;
        let Ok(Body::Committed(committed)) = record.body() else { panic!("SEED={seed}: a commit cannot be read") };
        assert_eq!(committed.version, self.version.next(), "SEED={seed}: versions have no gaps");
        let now = &board.state().root().to_value();
        let (before, mode) = (&self.state, &board.plan().mode);
        if mode.has(Component::Schema) {
            check_document(seed, now, mode.has(Component::Contracts));
            let len = |state: &Value, list: &str| state[list].as_array().map_or(0, Vec::len);
            assert!(len(now, "tasks") >= len(before, "tasks"), "SEED={seed}: titles-stay is broken");
        }
        // The checker is a program, and as such bound by its contract in every mode.
        if mode.has(Component::Contracts) || committed.by.worker.as_str() == "checker" {
            check_writes(seed, committed.by.worker.as_str(), before, now);
        }
        self.state = now.clone();
        self.digest = board.state().digest();
        self.version = board.version();
        assert_eq!(committed.state, self.digest, "SEED={seed}: the commit names another state");
        self.acknowledged.push((self.version, self.digest));
    }

    /// Checks invariant 7 for a view.
    pub(super) fn seen(&self, worker: &WorkerName, view: &str, mode: &Mode) {
        if !mode.has(Component::Slicing) && worker.as_str() != "checker" {
            return;
        }
        assert!(!view.contains("nobody-may-read-this"), "SEED={}: {worker} was shown the vault", self.seed);
        if worker.as_str() == "checker" {
            assert!(!view.contains("\"task "), "SEED={}: checker was shown a title", self.seed);
        }
    }

    /// Checks that two boards are indistinguishable from outside.
    pub(super) fn same(&self, one: &Board, other: &Board) {
        let seed = self.seed;
        assert_eq!(one.state().root(), other.state().root(), "SEED={seed}: recovery made another state");
        assert_eq!(one.state().digest(), other.state().digest(), "SEED={seed}: recovery made another digest");
        assert_eq!(one.version(), other.version(), "SEED={seed}: recovery made another version");
        assert_eq!(one.head(), other.head(), "SEED={seed}: recovery made another head");
        assert_eq!(one.ended(), other.ended(), "SEED={seed}: recovery made another end");
        assert_eq!(one.is_paused(), other.is_paused(), "SEED={seed}: recovery made another pause");
        assert_eq!(one.running_ms(), other.running_ms(), "SEED={seed}: recovery made another running time");
        assert_eq!(one.scheduler().queue(), other.scheduler().queue(), "SEED={seed}: recovery made another queue");
        assert_eq!(one.scheduler().open(), other.scheduler().open(), "SEED={seed}: recovery made other calls");
        assert_eq!(one.ledger().board(), other.ledger().board(), "SEED={seed}: recovery made another account");
        assert!(one.breaker().states().eq(other.breaker().states()), "SEED={seed}: recovery made another breaker");
    }

    /// Checks invariants 5, 6 and 8 after the board has ended.
    pub(super) fn at_the_end(&self, board: &Board, records: &[Record]) {
        let seed = self.seed;
        let made = Board::from_created(&records[0], &Shared::of_board(board.plan())).and_then(|mut made| {
            records[1..].iter().try_for_each(|record| made.fold(record))?;
            Ok(made)
        });
        self.same(board, &made.unwrap_or_else(|error| panic!("SEED={seed}: {error}")));
        let replayed =
            replay::replay(records, None, &PLANS).unwrap_or_else(|difference| panic!("SEED={seed}: {difference}"));
        self.same(board, &replayed.board);
        // One version of most boards, because each is derived from the beginning.
        let every = if seed.is_multiple_of(super::AGAIN) { 1 } else { self.acknowledged.len().max(1) };
        let (mut past, mut rest) = (Board::from_created(&records[0], &PLANS).expect("a board"), records[1..].iter());
        for (version, digest) in self.acknowledged.iter().step_by(every) {
            while past.version() < *version {
                let record = rest.next().unwrap_or_else(|| panic!("SEED={seed}: there is no version {version}"));
                past.fold(record).unwrap_or_else(|error| panic!("SEED={seed}: {error}"));
            }
            assert_eq!(past.state().digest(), *digest, "SEED={seed}: version {version} was lost");
        }
        let account = board.ledger().board();
        assert_eq!(account.reserved, 0, "SEED={seed}: an ended board holds reservations");
    }
}

/// Checks the document against the schema and the per-task invariant of the simulated blueprint, by hand.
fn check_document(seed: u64, document: &Value, has_contracts: bool) {
    let mut members: Vec<_> =
        document.as_object().expect("the document is an object").keys().map(String::as_str).collect();
    if !has_contracts {
        // Without contracts, members that the schema does not require may be removed.
        members.retain(|name| !["request", "vault"].contains(name));
        assert_eq!(members, ["notes", "tasks"], "SEED={seed}: unexpected members");
    } else {
        assert_eq!(members, ["notes", "request", "tasks", "vault"], "SEED={seed}: unexpected members");
    }
    for note in document["notes"].as_array().expect("notes is an array") {
        assert!(note.as_str().is_some_and(|note| note.chars().count() <= 40), "SEED={seed}: a bad note {note}");
    }
    let tasks = document["tasks"].as_array().expect("tasks is an array");
    assert!(tasks.len() <= super::world::TASKS_MAX, "SEED={seed}: too many tasks");
    for task in tasks {
        assert_eq!(task.as_object().map(serde_json::Map::len), Some(3), "SEED={seed}: a bad task {task}");
        assert!(task["title"].is_string(), "SEED={seed}: a bad title {task}");
        let status = task["status"].as_str().unwrap_or_default();
        assert!(["open", "doing", "done"].contains(&status), "SEED={seed}: a bad status {task}");
        let checked = task["checked"].as_bool().unwrap_or_else(|| panic!("SEED={seed}: a bad check {task}"));
        assert!(!checked || status == "done", "SEED={seed}: checked-means-done is broken by {task}");
    }
}

/// Checks that a worker changed only permitted parts, by comparing the documents before and after.
fn check_writes(seed: u64, worker: &str, before: &Value, now: &Value) {
    let same = |part: &str| assert_eq!(before[part], now[part], "SEED={seed}: {worker} changed {part}");
    same("vault");
    same("request");
    if worker != "doer" {
        same("notes");
    }
    let list = |state: &Value, part: &str| state[part].as_array().cloned().unwrap_or_default();
    let (old, new) = (list(before, "notes"), list(now, "notes"));
    assert!(new.starts_with(&old), "SEED={seed}: {worker} changed a note");
    let (old, new) = (list(before, "tasks"), list(now, "tasks"));
    assert!(worker == "planner" || old.len() == new.len(), "SEED={seed}: {worker} added a task");
    for (old, new) in old.iter().zip(&new) {
        for field in ["title", "status", "checked"] {
            let may = matches!((worker, field), ("doer", "status") | ("checker", "checked"));
            assert!(may || old[field] == new[field], "SEED={seed}: {worker} changed {field}");
        }
    }
    for new in new.iter().skip(old.len()) {
        assert_eq!(new["status"], "open", "SEED={seed}: a task arrived {new}");
    }
}
