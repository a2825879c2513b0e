//! Measures the processor time of compiling a view of 4,000 characters.

use std::process::ExitCode;
use std::time::Duration;

use patchboard_kernel::bindings::Bindings;
use patchboard_kernel::id::WorkerName;
use patchboard_tests::boards::{self, Across, Work};
use patchboard_tests::measure::{Goal, Row, Stats, on_cpu, run};

const CASE: &str = "4,000 characters";
/// Duration of one size.
const TIME: Duration = Duration::from_millis(1500);
const SEED: u64 = 13;
/// Goal, in microseconds.
const GOAL_MICROS: f64 = 100.0;

fn main() -> ExitCode {
    run("views", |bench| {
        let mut smallest: Option<Stats> = None;
        for (size, bytes) in bench.options.sizes() {
            if !bench.wants(CASE, size) {
                continue;
            }
            let (document, mut writer) = boards::document(bytes, SEED);
            let (mut board, _) = boards::board(boards::schema(Across::Nothing), document);
            let reader = WorkerName::from(boards::READER);
            let seat = board.worker_plan(&reader, &Bindings::default()).expect("there is such a worker");
            let mut number = 0;
            let laps = bench.interleave(
                TIME,
                &mut [Box::new(|laps| {
                    // Each run has another state, as when a commit triggers a worker.
                    number += 1;
                    let at = patchboard_kernel::id::Timestamp(number);
                    let step = board.step(at, boards::input(writer.patch(Work::Mix), None));
                    assert_eq!(step.records.len(), 1, "{:?}", step.outcome);
                    let (view, time) = on_cpu(|| {
                        let view = board.preview(&seat);
                        (view.hash(), view)
                    });
                    laps.note("view", time);
                    let (_, view) = view;
                    let length = view.text.chars().count();
                    assert!(length <= 4000, "the view has {length} characters");
                })],
            );
            let stats = laps[0].stats("view").expect("samples were taken");
            let micros = stats.median.as_secs_f64() * 1e6;
            let mut row =
                Row::time(CASE, size, "view and its hash", stats).goal(Goal::at_most(GOAL_MICROS, micros, " µs"));
            match smallest {
                Some(smallest) => row = row.ratio(smallest.times_as_long(&stats), "the smallest board's"),
                None => smallest = Some(stats),
            }
            bench.add(row);
        }
    })
}
