//! Measures the processor time of a commit, against the whole-document way and against `json_patch` alone.

use std::process::ExitCode;
use std::time::Duration;

use patchboard_kernel::ablation::Interface;
use patchboard_kernel::board::{Board, Outcome, Proposal};
use patchboard_kernel::digest::Salt;
use patchboard_kernel::freshness::{CommitLookup, ProposalContext, Reservations};
use patchboard_kernel::id::{Seq, Timestamp, Version, WorkerName};
use patchboard_kernel::pipeline::{self, Proposer, Verdict};
use patchboard_tests::boards::{self, Across, Work, Writer};
use patchboard_tests::measure::{Bench, Goal, Laps, Row, Side, Stats, on_cpu, run};
use patchboard_tests::whole::{self, Whole};
use serde_json::Value;

#[path = "commit/stages.rs"]
mod stages;

/// Duration of one comparison.
const TIME: Duration = Duration::from_millis(2500);
/// Seed for every size and side.
const SEED: u64 = 7;

/// Goals for the processor time of a commit, by size: the whole-document way takes this many times as long.
const GOALS_AGAINST_WHOLE: [(&str, f64); 6] =
    [("1 KB", 1.0), ("10 KB", 4.0), ("100 KB", 40.0), ("1 MB", 500.0), ("10 MB", 5000.0), ("100 MB", 50_000.0)];
/// Goal against `json_patch` reading and applying the same patch in place.
const GOAL_AGAINST_IN_PLACE: f64 = 4.0;
/// Goal for a commit alone, in microseconds.
const GOAL_MICROS: f64 = 15.0;
/// Goal for the largest board against one of 10 KB.
const GOAL_FLAT: f64 = 1.5;

fn main() -> ExitCode {
    run("commit", |bench| {
        mix(bench);
        flat(bench);
        for (case, work, across) in [
            ("refused by the schema", Work::Refused, Across::Nothing),
            ("member of a big object", Work::Member, Across::Nothing),
            ("insert at the front", Work::Front, Across::Nothing),
            ("uniqueItems", Work::Mix, Across::UniqueItems),
            ("contains", Work::Mix, Across::Contains),
        ] {
            for (size, bytes) in bench.options.sizes() {
                if bench.wants(case, size) {
                    special(bench, case, size, bytes, work, across);
                }
            }
        }
        stages::all(bench);
    })
}

/// Measures the mix of appends and revisions, at every size.
fn mix(bench: &mut Bench) {
    let case = "mix";
    for (size, bytes) in bench.options.sizes() {
        if !bench.wants(case, size) {
            continue;
        }
        let schema = boards::schema(Across::Nothing);
        let (document, writer) = boards::document(bytes, SEED);
        let laps = bench.interleave(
            TIME,
            &mut [
                in_judge(&schema, document.clone(), writer.clone(), Work::Mix),
                in_board(&schema, document.clone(), writer.clone(), Work::Mix, true),
                in_whole(&schema, document.clone(), writer.clone(), Work::Mix),
                in_place(document, writer, Work::Mix),
            ],
        );
        let [judge, board, whole, place] = [&laps[0], &laps[1], &laps[2], &laps[3]].map(total);
        let micros = judge.median.as_secs_f64() * 1e6;
        bench.add(Row::time(case, size, JUDGE, judge).goal(Goal::at_most(GOAL_MICROS, micros, " µs")));
        bench.add(Row::time(case, size, "Board::step", board).ratio(judge.times_as_long(&board), JUDGE));
        let times = judge.times_as_long(&whole);
        let goal = GOALS_AGAINST_WHOLE.iter().find(|(name, _)| *name == size).map_or(1.0, |(_, goal)| *goal);
        let row = Row::time(case, size, "whole document", whole).ratio(times, JUDGE);
        bench.add(row.goal(Goal::at_least(goal, times, "×")));
        let times = place.times_as_long(&judge);
        let row = Row::time(case, size, "json_patch in place", place).ratio_of(JUDGE, times);
        bench.add(row.goal(Goal::at_most(GOAL_AGAINST_IN_PLACE, times, "×")));
    }
}

/// Compares a large board with one of 10 KB, with no other side in between that would flush the processor's caches.
fn flat(bench: &mut Bench) {
    let case = "flat";
    const SMALL: usize = 10_000;
    for (size, bytes) in bench.options.sizes() {
        if bytes <= SMALL || !bench.wants(case, size) {
            continue;
        }
        let schema = boards::schema(Across::Nothing);
        let side = |bytes| {
            let (document, writer) = boards::document(bytes, SEED);
            in_judge(&schema, document, writer, Work::Mix)
        };
        let laps = bench.interleave(TIME, &mut [side(SMALL), side(bytes)]);
        let [small, large] = [&laps[0], &laps[1]].map(total);
        let micros = large.median.as_secs_f64() * 1e6;
        bench.add(Row::time(case, size, JUDGE, large).goal(Goal::at_most(GOAL_MICROS, micros, " µs")));
        let times = small.times_as_long(&large);
        let row = Row::time(case, size, "parse to digest at 10 KB", small).ratio_of(JUDGE, times);
        bench.add(row.goal(Goal::at_most(GOAL_FLAT, times, "×")));
    }
}

/// Measures one kind of work against the whole-document way.
fn special(bench: &mut Bench, case: &str, size: &str, bytes: usize, work: Work, across: Across) {
    let schema = boards::schema(across);
    let (document, writer) = boards::document(bytes, SEED);
    let laps = bench.interleave(
        TIME / 3,
        &mut [
            in_board(&schema, document.clone(), writer.clone(), work, true),
            in_whole(&schema, document, writer, work),
        ],
    );
    let [board, whole] = [&laps[0], &laps[1]].map(total);
    let times = board.times_as_long(&whole);
    bench.add(Row::time(case, size, "Board::step", board));
    bench.add(Row::time(case, size, "whole document", whole).ratio(times, "Board::step"));
}

const TOTAL: &str = "total";

/// Label of the work from the text of a proposal to the digest of the new state, as in the whole-document way.
/// `Board::step` adds recording, idempotency keys, circuit breakers and rules.
const JUDGE: &str = "parse to digest";

fn total(laps: &Laps) -> Stats {
    laps.stats(TOTAL).expect("every side takes samples")
}

/// Judges each proposal as a board does; the commit itself is not timed.
fn in_judge<'a>(schema: &Value, document: Value, mut writer: Writer, work: Work) -> Side<'a> {
    let (mut board, _) = boards::board(schema.clone(), document);
    let handles = writer.handles();
    let (mut number, reservations) = (0, Reservations::default());
    Box::new(move |laps| {
        if let Some(trim) = writer.trim(handles) {
            number += 1;
            assert_committed(&mut board, number, trim);
        }
        let text = writer.patch(work);
        let Proposal { worker, reply, .. } = boards::proposal(text.clone(), None);
        let context = ProposalContext {
            expansions_left: 0,
            base: board.version(),
            basis: None,
            invocation: None,
            reservations: &reservations,
            commits: &NoCommits,
        };
        let by = Proposer { worker: &worker, worker_plan: board.plan().workers.get(&worker).map(|seat| &**seat) };
        let (verdict, time) =
            on_cpu(|| pipeline::judge(board.plan(), board.state(), by, &reply, Interface::Patch, &context));
        laps.note(TOTAL, time);
        assert_eq!(matches!(verdict, Verdict::Accepted(_)), work != Work::Refused);
        number += 1;
        assert_committed(&mut board, number, text);
    })
}

/// Author lookup that is never called, because no proposal is rejected here.
struct NoCommits;

impl CommitLookup for NoCommits {
    fn commit_of(&self, _: Version) -> Option<(Seq, WorkerName)> {
        None
    }
}

/// Commits through a board. With `token`, each proposal has an idempotency key, as those of agents do.
fn in_board<'a>(schema: &Value, document: Value, mut writer: Writer, work: Work, token: bool) -> Side<'a> {
    let (mut board, _) = boards::board(schema.clone(), document);
    let handles = writer.handles();
    let mut number = 0;
    Box::new(move |laps| {
        if let Some(trim) = writer.trim(handles) {
            number += 1;
            assert_committed(&mut board, number, trim);
        }
        number += 1;
        // Proposals are one second apart, so that the idempotency keys remembered are those of one hour.
        let at = Timestamp(i64::try_from(number * 1000).unwrap_or(i64::MAX));
        let input = boards::input(writer.patch(work), token.then_some(number));
        let (step, time) = on_cpu(|| board.step(at, input));
        laps.note(TOTAL, time);
        let committed = matches!(step.outcome, Some(Outcome::Committed { .. }));
        assert_eq!(committed, work != Work::Refused, "{:?}", step.outcome);
    })
}

fn assert_committed(board: &mut Board, number: u64, text: String) {
    let at = Timestamp(i64::try_from(number * 1000).unwrap_or(i64::MAX));
    let outcome = board.step(at, boards::input(text, None)).outcome;
    assert!(matches!(outcome, Some(Outcome::Committed { .. })), "{outcome:?}");
}

/// Commits in the whole-document way.
fn in_whole<'a>(schema: &Value, document: Value, mut writer: Writer, work: Work) -> Side<'a> {
    let mut whole = Whole::new(schema, document, &Salt::ZERO).expect("generated documents fit their schema");
    let handles = writer.handles();
    Box::new(move |laps| {
        if let Some(trim) = writer.trim(handles) {
            whole.commit(&trim).expect("what was added can be removed");
        }
        let text = writer.patch(work);
        let (done, time) = on_cpu(|| whole.commit(&text));
        laps.note(TOTAL, time);
        assert_eq!(done.is_ok(), work != Work::Refused, "{done:?}");
    })
}

/// Reads and applies in place with `json_patch`, without any checks: the minimum of work.
fn in_place<'a>(mut document: Value, mut writer: Writer, work: Work) -> Side<'a> {
    let handles = writer.handles();
    Box::new(move |laps| {
        if let Some(trim) = writer.trim(handles) {
            let ops = whole::parse(&trim).expect("it is a patch");
            whole::apply(&mut document, &ops).expect("what was added can be removed");
        }
        let text = writer.patch(work);
        let (done, time) = on_cpu(|| {
            let patch: json_patch::Patch = serde_json::from_str(&text).expect("it is a patch");
            json_patch::patch(&mut document, &patch)
        });
        laps.note(TOTAL, time);
        done.expect("it applies");
    })
}
