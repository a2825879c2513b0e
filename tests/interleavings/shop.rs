//! A board with all engineers at work, and the oracle that checks every decision.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use patchboard_kernel::blueprint::Granularity;
use patchboard_kernel::board::{Board, Input, Outcome, Step};
use patchboard_kernel::files::{Edit, EditAttempt, FileChange, FilePath, FileRead, Hunk};
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::{Body, Kind, Record};
use patchboard_kernel::rejection::{Code, Rejection, Stage, VIOLATIONS_MAX};
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use patchboard_tests::boards;
use serde_json::{Value, json};

use super::history::{Change, Line, Piece, Read, What, text_of};
use super::oracle::{Due, Kept, Oracle, Try};

/// Counts of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) interleavings: u64,
    pub(crate) tries: u64,
    pub(crate) made: u64,
    /// Accepted edits that left every file as it was.
    pub(crate) same: u64,
    pub(crate) external: u64,
    /// Rejections by stage and codes.
    pub(crate) refusals: BTreeMap<String, u64>,
    pub(crate) reservations: u64,
    /// Tries with a read that had changed.
    pub(crate) stale: u64,
    /// Rejected only because the board no longer remembered that the reads were unchanged.
    pub(crate) forgotten: u64,
    /// Tries with a read that had changed and changed back.
    pub(crate) back: u64,
    /// Tries that file versions alone would reject; `moved_falsely` counts those without a changed read.
    pub(crate) moved: u64,
    pub(crate) moved_falsely: u64,
    pub(crate) replays: u64,
    /// Deleted files that were forgotten.
    pub(crate) buried: u64,
}

impl Figures {
    pub(crate) fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.interleavings, other.interleavings),
            (&mut self.tries, other.tries),
            (&mut self.made, other.made),
            (&mut self.same, other.same),
            (&mut self.external, other.external),
            (&mut self.reservations, other.reservations),
            (&mut self.stale, other.stale),
            (&mut self.forgotten, other.forgotten),
            (&mut self.back, other.back),
            (&mut self.moved, other.moved),
            (&mut self.moved_falsely, other.moved_falsely),
            (&mut self.replays, other.replays),
            (&mut self.buried, other.buried),
        ];
        for (sum, more) in pairs {
            *sum += more;
        }
        for (name, count) in &other.refusals {
            *self.refusals.entry(name.clone()).or_default() += count;
        }
    }
}

/// Engineers at files, and the oracle that checks their board.
pub(crate) struct Shop {
    pub(crate) board: Board,
    pub(crate) now: i64,
    pub(crate) oracle: Oracle,
    pub(crate) figures: Figures,
    engineers: Vec<EditAttempt>,
    records: Vec<Record>,
}

/// Returns the name of an engineer.
pub(crate) fn name(engineer: usize) -> String {
    format!("engineer_{}", engineer + 1)
}

/// Disagreement between the oracle and the board.
pub(crate) type Doubt = String;

impl Shop {
    /// Creates a board with `engineers` called engineers and no files.
    pub(crate) fn new(granularity: Granularity, engineers: usize) -> Self {
        Self::with_room(granularity, engineers, patchboard_kernel::files::FILES_MAX)
    }

    /// Like [`Self::new`], with a limit of known files.
    pub(crate) fn with_room(granularity: Granularity, engineers: usize, files_max: usize) -> Self {
        let names: Vec<String> = (0..engineers).map(name).collect();
        let engineer =
            json!({"agent": "remote", "files": {"edit": ["**"]}, "limits": {"timeout": "90d", "invocations": 2}});
        let workers: BTreeMap<&String, &Value> = names.iter().map(|name| (name, &engineer)).collect();
        let rules: Vec<Value> =
            names.iter().map(|name| json!({"name": name, "trigger": "start", "run": name})).collect();
        let blueprint = json!({
            "blueprint": 1, "name": "shop", "state": {"schema": {}},
            "workspace": {"dir": "code", "granularity": granularity, "max_files": files_max}, "workers": workers, "rules": rules,
            "concurrency": engineers, "limits": {"edits": 10_000_000, "wall": "90d"},
        });
        let (board, step) = boards::of(blueprint);
        let mut calls: BTreeMap<String, EditAttempt> = BTreeMap::new();
        for call in &step.effects.calls {
            let of = EditAttempt { invocation: call.invocation, attempt: call.attempt };
            calls.insert(call.worker.to_string(), of);
        }
        let engineers = names.iter().map(|name| calls[name]).collect();
        let oracle = Oracle::new(granularity, files_max);
        Self { board, now: 0, oracle, figures: Figures::default(), engineers, records: step.records }
    }

    /// Proposes an edit to the board. Returns the outcome if the oracle agrees with it. `by` is `None` for an
    /// external edit.
    pub(crate) fn edit(&mut self, by: Option<usize>, reads: &[Read], changes: &[Change]) -> Result<Due, Doubt> {
        let of = by.map(|by| self.engineers[by]);
        let author = of.map(|of| of.invocation.0);
        let tried = Try { author, reads, changes, at: self.now };
        let due = self.oracle.judge(&tried);
        let edit = self.put(of, reads, changes);
        let step = self.board.step(Timestamp(self.now), Input::Edit(edit));
        self.count(&tried, &due);
        let explain =
            |what: &dyn Debug| format!("{what:?}\n  due: {due:?}\n  reads: {reads:?}\n  changes: {changes:?}");
        let outcome = step.outcome.as_ref().ok_or("an edit has an outcome")?;
        let stale = self.stale_of(&tried);
        check_outcome(outcome, &due, &stale, &self.oracle).map_err(|doubt| explain(&(doubt, outcome)))?;
        let writer = by.map_or_else(|| "external".to_owned(), name);
        let kept = self.oracle.decided(&tried, &writer, &due);
        check_reservation(&step, author, kept.as_ref()).map_err(|doubt| explain(&doubt))?;
        if matches!(due, Due::Made | Due::Same) {
            let checked = changes.iter().try_for_each(|change| self.check_entry(&change.path));
            checked.map_err(|doubt| explain(&doubt))?;
        }
        self.figures.reservations += u64::from(kept.is_some());
        self.records.extend(step.records);
        Ok(due)
    }

    fn put(&self, of: Option<EditAttempt>, reads: &[Read], changes: &[Change]) -> Edit {
        let reads = reads.iter().map(|read| {
            let lines = match &read.what {
                What::Whole => None,
                What::Part { first, lines } => Some((*first, first + number(lines.len()) - 1)),
            };
            FileRead { path: path(&read.path), version: read.version, lines }
        });
        let changes = changes.iter().map(|change| {
            let there = self.oracle.history.lines(&change.path).unwrap_or_default();
            let text = change.lines.as_deref().map(text_of);
            FileChange {
                path: path(&change.path),
                from: change.from,
                hash: text.as_ref().map(|text| patchboard_kernel::digest::sha256(text.as_bytes())),
                lines: change.lines.as_ref().map_or(0, |lines| number(lines.len())),
                bytes: text.as_ref().map_or(0, |text| text.len() as u64),
                hunks: change.pieces.as_ref().map(|pieces| pieces.iter().map(|piece| hunk(piece, there)).collect()),
            }
        });
        Edit {
            of,
            token: None,
            name: None,
            intent: of.map(|_| "a reason".to_owned()),
            reads: reads.collect(),
            changes: changes.collect(),
        }
    }

    fn count(&mut self, tried: &Try<'_>, due: &Due) {
        let figures = &mut self.figures;
        if tried.author.is_none() {
            figures.external += 1;
            return;
        }
        figures.tries += 1;
        let remarks = self.oracle.remarks(tried);
        let codes = |codes: &BTreeSet<(&'static str, String)>| {
            let codes: BTreeSet<&str> = codes.iter().map(|(code, _)| *code).collect();
            codes.into_iter().collect::<Vec<_>>().join("+")
        };
        match due {
            Due::Made => figures.made += 1,
            Due::Same => figures.same += 1,
            Due::Conflict(conflicts) => {
                *figures.refusals.entry(codes(conflicts)).or_default() += 1;
                let is_for_stale = conflicts.iter().all(|(code, _)| code.starts_with("stale_"));
                figures.forgotten += u64::from(is_for_stale && remarks.is_forgotten);
            }
            Due::Inapplicable(wrong) => *figures.refusals.entry(codes(wrong)).or_default() += 1,
            Due::TooMany => *figures.refusals.entry("result_too_large".to_owned()).or_default() += 1,
        }
        figures.stale += u64::from(remarks.is_stale);
        figures.back += u64::from(remarks.is_back);
        figures.moved += u64::from(remarks.has_moved);
        figures.moved_falsely += u64::from(remarks.has_moved && !remarks.is_stale);
    }

    /// Returns the files with stale reads, and the oldest version that was read of each.
    fn stale_of(&self, tried: &Try<'_>) -> BTreeMap<String, u64> {
        let mut oldest: BTreeMap<String, u64> = BTreeMap::new();
        for read in tried.reads {
            let alone = Try { author: Some(0), reads: std::slice::from_ref(read), changes: &[], at: tried.at };
            if let Due::Conflict(_) = self.oracle.judge(&alone) {
                let version = oldest.entry(read.path.clone()).or_insert(read.version);
                *version = read.version.min(*version);
            }
        }
        oldest
    }

    /// Checks the state's entry of a file against the history.
    fn check_entry(&self, path: &str) -> Result<(), Doubt> {
        let said = self.board.state().root().child("files").and_then(|files| files.child(path));
        let said = said.ok_or_else(|| format!("{path} is not in the state"))?.to_value();
        let version = self.oracle.history.version(path);
        let Some(now) = self.oracle.history.now(path) else { return Err(format!("{path} never was")) };
        let text = now.lines.as_deref().map(text_of);
        let expected = json!({
            "version": version, "hash": now.hash(), "writer": now.by,
            "lines": now.lines.as_ref().map_or(0, Vec::len), "bytes": text.map_or(0, |text| text.len()),
        });
        for (member, value) in expected.as_object().into_iter().flatten() {
            if said[member] != *value {
                return Err(format!("{path}: {member} is {}, and should be {value}", said[member]));
            }
        }
        let remembered = said["edits"].as_object().map_or(0, serde_json::Map::len) as u64;
        let due = (version - self.oracle.history.before(path) - 1).min(super::history::REMEMBERED);
        (remembered == due).then_some(()).ok_or_else(|| format!("{path}: {remembered} edits are remembered, not {due}"))
    }

    /// Checks all file entries. With `replays`, also checks that the journal alone rebuilds the board.
    pub(crate) fn check_all(&mut self, replays: bool) -> Result<(), Doubt> {
        let paths: Vec<String> = self.oracle.history.paths().cloned().collect();
        paths.iter().try_for_each(|path| self.check_entry(path))?;
        self.figures.buried = self.oracle.history.forgotten() as u64;
        let files = self.board.state().root().child("files").map_or(0, patchboard_kernel::tree::Node::part_count);
        if files != paths.len() {
            return Err(format!("the state has {files} files, not {}", paths.len()));
        }
        if replays {
            self.figures.replays += 1;
            let recovered = Board::recover(&self.records, &PLANS).map_err(|error| error.to_string())?;
            if recovered.snapshot_digest() != self.board.snapshot_digest() {
                return Err("the journal makes another board".to_owned());
            }
            let replayed = replay::replay(&self.records, None, &PLANS).map_err(|difference| difference.to_string())?;
            if replayed.board.head() != self.board.head() {
                return Err("the run does not follow from its journal".to_owned());
            }
        }
        Ok(())
    }
}

fn path(path: &str) -> FilePath {
    FilePath::parse(path).expect("a name")
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("files are small")
}

fn hunk(piece: &Piece, there: &[Line]) -> Hunk {
    let was: String = (piece.at..piece.at + piece.gone)
        .map(|at| there.get(at).map_or_else(|| "?\n".to_owned(), |line| text_of(&[*line])))
        .collect();
    Hunk { at: number(piece.at + 1), was, now: text_of(&piece.new) }
}

fn check_outcome(outcome: &Outcome, due: &Due, stale: &BTreeMap<String, u64>, oracle: &Oracle) -> Result<(), Doubt> {
    let (stage, codes) = match due {
        Due::Made => match outcome {
            Outcome::Committed { .. } => return Ok(()),
            _ => return Err("it was refused".to_owned()),
        },
        Due::Same => match outcome {
            Outcome::NoOp { .. } => return Ok(()),
            _ => return Err("it changes nothing".to_owned()),
        },
        Due::TooMany => {
            let Outcome::Rejected { rejection, .. } = outcome else { return Err("it was not refused".to_owned()) };
            let is_for_it = (rejection.stage, rejection.code) == (Stage::Syntax, Code::ResultTooLarge);
            return is_for_it.then_some(()).ok_or_else(|| "it was refused for something else".to_owned());
        }
        Due::Conflict(codes) => (Stage::Freshness, codes),
        Due::Inapplicable(codes) => (Stage::Application, codes),
    };
    let Outcome::Rejected { rejection, .. } = outcome else { return Err("it was not refused".to_owned()) };
    let said: BTreeSet<(&str, String)> =
        rejection.violations.iter().map(|violation| (violation.code.as_str(), file_of(&violation.pointer))).collect();
    let due: BTreeSet<(&str, String)> = codes.iter().cloned().collect();
    let is_cut = rejection.violations.len() == VIOLATIONS_MAX;
    if rejection.stage != stage || !(said == due || (is_cut && said.is_subset(&due))) {
        return Err("it was refused for something else".to_owned());
    }
    check_stale(rejection, stale, oracle)
}

/// Checks author and versions in stale violations.
fn check_stale(rejection: &Rejection, stale: &BTreeMap<String, u64>, oracle: &Oracle) -> Result<(), Doubt> {
    for violation in rejection.violations.iter().filter(|violation| violation.code.as_str().starts_with("stale_")) {
        let path = file_of(&violation.pointer);
        let Some(now) = oracle.history.now(&path) else {
            // A forgotten file has no recorded author.
            continue;
        };
        let stated = violation.stale.as_ref().ok_or_else(|| format!("of {path} it is not said what changed"))?;
        let due = (stale.get(&path).copied().unwrap_or(0), oracle.history.version(&path), now.by.as_str());
        if (stated.read_at.0, stated.now.0, stated.changed_by.as_str()) != due {
            return Err(format!("of {path} should be said {due:?}"));
        }
    }
    Ok(())
}

fn check_reservation(step: &Step, author: Option<u64>, kept: Option<&Kept>) -> Result<(), Doubt> {
    let records = step.records.iter().filter(|record| record.kind == Kind::Reserved);
    let bodies: Vec<&Body> = records.filter_map(|record| record.body().ok()).collect();
    match (bodies.as_slice(), kept) {
        ([], None) => Ok(()),
        ([Body::Reserved(said)], Some(kept)) => {
            let paths: BTreeSet<String> = said.places.iter().map(|place| file_of(place)).collect();
            let is_same = Some(said.invocation.0) == author
                && (&paths, said.decisions, said.until.0) == (&kept.paths, kept.decisions, kept.until);
            is_same.then_some(()).ok_or_else(|| format!("{said:?} should be {kept:?}"))
        }
        (said, kept) => Err(format!("{said:?} should be {kept:?}")),
    }
}

fn file_of(pointer: &str) -> String {
    pointer.strip_prefix("/files/").unwrap_or(pointer).replace("~1", "/").replace("~0", "~")
}
