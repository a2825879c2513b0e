//! Measures the stages of a commit, each timed alone.
//!
//! Every stage of the whole-document way is a function. On the board's side, only stages with a public kernel function
//! are timed: reading and applying the patch, digesting the candidate, sealing the record. **Add further stages in
//! [`in_kernel`]**: authorization, freshness and validation have no function of their own. They are the remainder of
//! `step` when the timed stages are subtracted.

use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::blueprint::PatchLimits;
use patchboard_kernel::board::{Board, Outcome};
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::json::{self, Limits};
use patchboard_kernel::patch;
use patchboard_kernel::record::{GENESIS, Record};
use patchboard_kernel::state::ResultLimits;
use patchboard_protocols::PLANS;
use patchboard_tests::boards::{self, Across, Work, Writer};
use patchboard_tests::measure::{Bench, Row, Side, on_cpu};
use patchboard_tests::whole::{self, Whole};
use serde_json::Value;

use super::SEED;

/// Duration of one size.
const TIME: Duration = Duration::from_millis(1500);

const CASE: &str = "stages";

/// Limits that no patch here reaches.
const UNLIMITED: ResultLimits = ResultLimits { bytes: u64::MAX, depth: 64 };
const TEXT_LIMITS: Limits = Limits { bytes: 1 << 20, depth: 64 };

/// Stages of the whole-document way.
const OF_WHOLE: [&str; 6] =
    ["whole: parse", "whole: clone", "whole: apply", "whole: validate", "whole: digest", "whole: drop"];
/// Stages of a board.
const OF_KERNEL: [&str; 6] = [
    "kernel: parse",
    "kernel: apply",
    "kernel: digest",
    "kernel: seal",
    "kernel: step (with all)",
    "kernel: fold (recovery)",
];

/// Measures every size.
pub(super) fn all(bench: &mut Bench) {
    for (size, bytes) in bench.options.sizes() {
        if !bench.wants(CASE, size) {
            continue;
        }
        let schema = boards::schema(Across::Nothing);
        let (document, writer) = boards::document(bytes, SEED);
        let mut sides = [in_kernel(&schema, document.clone(), writer.clone()), in_whole(&schema, document, writer)];
        let laps = bench.interleave(TIME, &mut sides);
        for (laps, names) in laps.iter().zip([OF_KERNEL.as_slice(), &OF_WHOLE]) {
            for name in names {
                let stats = laps.stats(name).expect("every stage is timed");
                bench.add(Row::time(CASE, size, name, stats));
            }
        }
    }
}

fn in_whole<'a>(schema: &Value, document: Value, mut writer: Writer) -> Side<'a> {
    let mut whole = Whole::new(schema, document, &Salt::ZERO).expect("generated documents fit their schema");
    let handles = writer.handles();
    Box::new(move |laps| {
        if let Some(trim) = writer.trim(handles) {
            whole.commit(&trim).expect("what was added can be removed");
        }
        let text = writer.patch(Work::Mix);
        let [parse, copy, apply, validate, digest, drop] = OF_WHOLE;
        let (ops, time) = on_cpu(|| whole::parse(&text).expect("it is a patch"));
        laps.note(parse, time);
        let (mut candidate, time) = on_cpu(|| whole::copy(whole.document()));
        laps.note(copy, time);
        let (applied, time) = on_cpu(|| whole::apply(&mut candidate, &ops));
        laps.note(apply, time);
        applied.expect("it applies");
        let (valid, time) = on_cpu(|| whole::is_valid(whole.validator(), &candidate));
        laps.note(validate, time);
        assert!(valid, "it fits the schema");
        let (made, time) = on_cpu(|| whole::digest(whole.hasher(), &candidate));
        laps.note(digest, time);
        let ((), time) = on_cpu(|| whole.replace(candidate, made));
        laps.note(drop, time);
    })
}

fn in_kernel<'a>(schema: &Value, document: Value, mut writer: Writer) -> Side<'a> {
    let (mut board, created) = boards::board(schema.clone(), document);
    let mut follower = Board::recover(&created.records, &PLANS).expect("what was recorded can be recovered");
    let (hasher, patch_limits) = (Hasher::new(&Salt::ZERO), PatchLimits::default());
    let handles = writer.handles();
    let mut number = 0;
    Box::new(move |laps| {
        let [parse, apply, digest, seal, step, fold] = OF_KERNEL;
        if let Some(trim) = writer.trim(handles) {
            number += 1;
            let made = board.step(at(number), boards::input(trim, None));
            made.records.iter().for_each(|record| follower.fold(record).expect("it follows"));
        }
        number += 1;
        let text = writer.patch(Work::Mix);
        let (patch, time) = on_cpu(|| {
            let patch = json::parse(text.as_bytes(), TEXT_LIMITS).expect("it is JSON");
            assert!(patch::parse(&patch, &patch_limits).is_ok_and(|ops| !ops.is_empty()), "it is a patch");
            patch
        });
        laps.note(parse, time);
        let ops = patch::parse(&patch, &patch_limits).expect("it is a patch");
        let mut candidate = board.state().candidate();
        let (applied, time) = on_cpu(|| ops.iter().all(|op| candidate.apply(op, UNLIMITED).is_ok()));
        laps.note(apply, time);
        assert!(applied, "it applies");
        let (candidate, time) = on_cpu(|| candidate.into_state());
        laps.note(digest, time);
        let (made, time) = on_cpu(|| board.step(at(number), boards::input(text, Some(number))));
        laps.note(step, time);
        assert!(matches!(made.outcome, Some(Outcome::Committed { .. })), "{:?}", made.outcome);
        assert_eq!(board.state().digest(), candidate.digest(), "both ways make the same state");
        let record = made.records.first().expect("a commit is recorded");
        let body = Arc::new(record.body().expect("it was just written").clone());
        let (_, time) = on_cpu(|| Record::seal(GENESIS, record.seq, record.at, Arc::clone(&body), &hasher));
        laps.note(seal, time);
        let ((), time) = on_cpu(|| made.records.iter().for_each(|record| follower.fold(record).expect("it follows")));
        laps.note(fold, time);
    })
}

fn at(number: u64) -> Timestamp {
    Timestamp(i64::try_from(number * 1000).unwrap_or(i64::MAX))
}
