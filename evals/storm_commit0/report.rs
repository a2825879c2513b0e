//! Figures of a run, and a classification of its failures.

use std::collections::BTreeMap;
use std::time::Duration;

use patchboard_workspace::metrics::Symptom;
use serde::Serialize;

use crate::engineer::EngineerStats;
use crate::library::{Library, Verdict};
use crate::modes::{Merges, Mode, Outcome};

/// Result of a library in one mode.
#[derive(Serialize)]
pub(crate) struct Row {
    library: String,
    pub(crate) mode: Mode,
    engineers: usize,
    /// Number of passed tests, among those that the original library passes.
    pub(crate) passed: usize,
    pub(crate) tests: usize,
    /// Rejections by code: conflicts detected before a write.
    pub(crate) refused: BTreeMap<String, u64>,
    merges: Option<Merges>,
    /// Failed tests, by kind of error.
    failed: BTreeMap<&'static str, usize>,
    causes: Vec<&'static str>,
    /// Number of bodies missing at the end.
    pub(crate) left: usize,
    edits: u64,
    accepted: u64,
    /// Number of repeated edits.
    rework: u64,
    /// Share of reviewed attempts that were accepted: edits if the workspace reviews them, merges if git does.
    acceptance: Option<f64>,
    reviewed: u64,
    /// Share of the edited files that more than one engineer tried to edit.
    overlap: Option<f64>,
    views: u64,
    seconds: f64,
}

impl Row {
    pub(crate) fn new(
        library: &Library,
        mode: Mode,
        engineers: usize,
        outcome: &Outcome,
        verdict: &Verdict,
        time: Duration,
    ) -> Self {
        let EngineerStats { views, edits, accepted, refused, again, .. } = &outcome.deeds;
        let passed = library.reference.iter().filter(|test| matches!(verdict.tests.get(*test), Some(None))).count();
        let merges = outcome.merges.clone();
        let (reviewed, taken) = match (&merges, &outcome.metrics) {
            (Some(merges), _) => (merges.tried, merges.tried - merges.conflicts),
            (None, Some(metrics)) => (metrics.total.attempts, metrics.total.accepted),
            (None, None) => (0, 0),
        };
        let left = library.left(outcome.directory.path());
        Self {
            library: library.exercise.library.clone(),
            mode,
            engineers,
            passed,
            tests: library.reference.len(),
            refused: refused.clone(),
            failed: failed(library, verdict),
            causes: causes(outcome, verdict, left, passed == library.reference.len()),
            left,
            edits: *edits,
            accepted: *accepted,
            rework: again + merges.as_ref().map_or(0, |merges| merges.again),
            merges,
            acceptance: (reviewed > 0).then(|| taken as f64 / reviewed as f64),
            reviewed,
            overlap: outcome.metrics.as_ref().and_then(|metrics| metrics.overlap()),
            views: *views,
            seconds: time.as_secs_f64(),
        }
    }
}

/// Counts the failed tests by kind of error.
fn failed(library: &Library, verdict: &Verdict) -> BTreeMap<&'static str, usize> {
    let mut failed: BTreeMap<&'static str, usize> = BTreeMap::new();
    for test in &library.reference {
        let message = match verdict.tests.get(test) {
            Some(None) => continue,
            Some(Some(message)) => message,
            None if !verdict.is_over => "it takes too long",
            None => uncollected(test, verdict),
        };
        *failed.entry(kind(message)).or_default() += 1;
    }
    failed
}

/// Returns the reason that a test was not found: the error of its file, or any other error.
fn uncollected<'a>(test: &str, verdict: &'a Verdict) -> &'a str {
    let errors = || verdict.tests.iter().filter_map(|(name, message)| Some((name.as_str(), message.as_deref()?)));
    let of_file = errors().find(|(name, _)| test.starts_with(name.trim_start_matches("::")));
    of_file.or_else(|| errors().find(|(name, _)| name.starts_with("::"))).map_or("", |(_, message)| message)
}

fn kind(message: &str) -> &'static str {
    match Symptom::from_message(message) {
        Symptom::Assertion => "assertion/semantic",
        Symptom::MissingSymbol => "missing API/symbol",
        Symptom::Contract => "type/contract",
        Symptom::NotImplemented => "not implemented",
        Symptom::Runtime => "other runtime",
    }
}

fn causes(outcome: &Outcome, verdict: &Verdict, left: usize, is_right: bool) -> Vec<&'static str> {
    let mut causes = Vec::new();
    if is_right {
        return causes;
    }
    if left > 0 {
        causes.push("incomplete API");
    }
    if !outcome.is_whole || !verdict.is_over {
        causes.push("budget/runtime");
    }
    if outcome.metrics.as_ref().is_some_and(|metrics| metrics.shared().next().is_some()) {
        causes.push("accepted same-file overlap");
    }
    causes
}

pub(crate) fn print(rows: &[Row]) {
    println!(
        "| library | mode | engineers | tests | before commit | after commit | edits accepted/tried | again | acceptance | \
         overlap | failures | s |"
    );
    println!("|---|---|--:|--:|---|---|--:|--:|--:|--:|---|--:|");
    for row in rows {
        let mode = serde_json::to_value(row.mode).ok().and_then(|mode| mode.as_str().map(str::to_owned));
        let before: Vec<String> = row.refused.iter().map(|(code, count)| format!("{count} {code}")).collect();
        let mut after = Vec::new();
        after.extend(
            row.merges
                .iter()
                .filter(|merges| merges.conflicts > 0)
                .map(|merges| format!("{} of {} merges", merges.conflicts, merges.tried)),
        );
        let missed = row.tests - row.passed;
        after.extend((missed > 0).then(|| format!("{missed} tests")));
        let mut failures: Vec<String> = row.failed.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        failures.extend((row.left > 0).then(|| format!("{} bodies lost", row.left)));
        failures.extend(row.causes.iter().map(|cause| (*cause).to_owned()));
        let part = |part: Option<f64>| part.map_or_else(String::new, |part| format!("{:.1} %", part * 100.0));
        println!(
            "| {} | {} | {} | {}/{} ({:.1} %) | {} | {} | {}/{} | {} | {} | {} | {} | {:.1} |",
            row.library,
            mode.unwrap_or_default(),
            row.engineers,
            row.passed,
            row.tests,
            100.0 * row.passed as f64 / row.tests as f64,
            before.join(", "),
            after.join(", "),
            row.accepted,
            row.edits,
            row.rework,
            part(row.acceptance),
            part(row.overlap),
            failures.join(", "),
            row.seconds,
        );
    }
}
