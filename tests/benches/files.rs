//! Measures the processor time of deciding an edit of a file, by the number of files that its author has read.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use patchboard_kernel::board::{Board, Input, Outcome};
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::{EDITS_MAX, Edit, EditAttempt, FileChange, FilePath, FileRead, Hunk};
use patchboard_kernel::id::Timestamp;
use patchboard_tests::boards;
use patchboard_tests::measure::{Laps, Row, Side, on_cpu, run};
use serde_json::json;

const CASE: &str = "an edit";
const SIZE: &str = "50 files";
/// Duration of all sides together.
const TIME: Duration = Duration::from_millis(4500);
const FILES: usize = 50;
/// Pieces of each edit that a file remembers.
const PIECES: u32 = 8;
/// Lines of a file; no edit touches those from [`QUIET`] on.
const LINES: u32 = 400;
const QUIET: u32 = 300;

fn main() -> ExitCode {
    run("files", |bench| {
        if !bench.wants(CASE, SIZE) {
            return;
        }
        let shop = Shop::new();
        let now = EDITS_MAX + 1;
        let sides = [
            ("that rests on its own file", 1, now),
            ("that rests on 50 files, as they are", FILES, now),
            ("that rests on 50 files, of 16 edits ago", FILES, now - EDITS_MAX / 2),
            ("that rests on 50 files, of 32 edits ago", FILES, now - EDITS_MAX),
        ];
        let edits = sides.map(|(what, files, version)| (what, shop.edit(files, version)));
        let mut timed: Vec<Side<'_>> = Vec::new();
        for (_, edit) in &edits {
            timed.push(Box::new(|laps: &mut Laps| {
                // Every run makes the same edit on a copy of the same board.
                let (input, mut board) = (Input::Edit(edit.clone()), shop.board.clone());
                let (step, time) = on_cpu(|| board.step(Timestamp(1), input));
                laps.note("step", time);
                assert!(matches!(step.outcome, Some(Outcome::Committed { .. })), "{:?}", step.outcome);
            }));
        }
        let laps = bench.interleave(TIME, &mut timed);
        let stats: Vec<_> = laps.iter().map(|laps| laps.stats("step").expect("samples were taken")).collect();
        for ((what, _), side) in edits.iter().zip(&stats) {
            let row = Row::time(CASE, SIZE, what, *side);
            bench.add(row.ratio(stats[0].times_as_long(side), "one that rests on its own file"));
        }
    })
}

/// Board of files that were each edited more often than is remembered, and an engineer with an open task.
struct Shop {
    board: Board,
    engineer: EditAttempt,
    hashes: Vec<Digest>,
}

impl Shop {
    fn new() -> Self {
        let blueprint = json!({
            "blueprint": 1, "name": "files", "state": {"schema": {}}, "workspace": {"dir": "code"},
            "workers": {"ada": {"agent": "remote", "files": {"edit": ["**"]}, "limits": {"timeout": "1h"}}},
            "rules": [{"name": "a", "trigger": "start", "run": "ada"}],
        });
        let (mut board, step) = boards::of(blueprint);
        let engineer = step.effects.calls.first();
        let engineer = engineer.map(|call| EditAttempt { invocation: call.invocation, attempt: call.attempt });
        let mut texts: BTreeMap<usize, Vec<String>> =
            (0..FILES).map(|file| (file, (1..=LINES).map(|line| format!("{file} {line}\n")).collect())).collect();
        let mut change = |version: u64, change: &mut dyn FnMut(usize, &mut Vec<String>) -> FileChange| {
            let changes = texts.iter_mut().map(|(file, lines)| change(*file, lines)).collect();
            let edit = Edit { of: None, token: None, name: None, intent: None, reads: Vec::new(), changes };
            let outcome = board.step(Timestamp(0), Input::Edit(edit)).outcome;
            assert!(matches!(outcome, Some(Outcome::Committed { .. })), "version {version}: {outcome:?}");
        };
        change(1, &mut |file, lines| made(file, None, lines, vec![hunk(1, String::new(), lines.concat())]));
        for version in 2..=EDITS_MAX + 1 {
            change(version, &mut |file, lines| {
                let before = sha256(lines.concat().as_bytes());
                let hunks = (0..PIECES).map(|piece| {
                    let at = piece * 30 + u32::try_from(version).unwrap_or(0) % 20;
                    let now = format!("{version} {piece}\n");
                    let was = std::mem::replace(&mut lines[at as usize], now.clone());
                    hunk(at + 1, was, now)
                });
                let hunks = hunks.collect();
                made(file, Some(before), lines, hunks)
            });
        }
        let hashes = texts.values().map(|lines| sha256(lines.concat().as_bytes())).collect();
        Self { board, engineer: engineer.expect("a call"), hashes }
    }

    /// Returns an edit of the first file, with reads of unchanged lines of `files` files at `version`.
    fn edit(&self, files: usize, version: u64) -> Edit {
        let read = |file| FileRead { path: path(file), version, lines: Some((QUIET, LINES)) };
        let was = format!("0 {QUIET}\n");
        let change = FileChange {
            path: path(0),
            from: Some(self.hashes[0]),
            hash: Some(sha256(b"another")),
            lines: LINES,
            bytes: 1,
            hunks: Some(vec![hunk(QUIET, was, "another\n".to_owned())]),
        };
        Edit {
            of: Some(self.engineer),
            token: None,
            name: None,
            intent: Some("a reason".to_owned()),
            reads: (0..files).map(read).collect(),
            changes: vec![change],
        }
    }
}

fn path(file: usize) -> FilePath {
    FilePath::parse(&format!("src/module_{file:02}.py")).expect("a name")
}

fn hunk(at: u32, was: String, now: String) -> Hunk {
    Hunk { at, was, now }
}

fn made(file: usize, from: Option<Digest>, lines: &[String], hunks: Vec<Hunk>) -> FileChange {
    let text = lines.concat();
    FileChange {
        path: path(file),
        from,
        hash: Some(sha256(text.as_bytes())),
        lines: LINES,
        bytes: text.len() as u64,
        hunks: Some(hunks),
    }
}
