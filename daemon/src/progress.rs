//! Live progress of a run on stderr: active workers, commits and rejections, and cost so far.
//!
//! Shows only durable records. A terminal has a live status line at the bottom; other output has one line per event and
//! no animation.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use owo_colors::{AnsiColors, OwoColorize as _};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{InvocationId, RuleName, Seq, WorkerName};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Body, Kind, Record};

use crate::describe::{self, NestedShortage, ViewShortages, grouped};
use crate::outages::OutageUpdate;
use crate::output::{Output, short};

/// Redraw interval of the status line.
const TICK: Duration = Duration::from_millis(120);

/// Maximum number of undecided rules that are kept.
const UNDECIDED_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) commits: u64,
    pub(crate) rejected: u64,
    pub(crate) failed: u64,
    /// Code and message of the last failure.
    pub(crate) last_failure: Option<(FailureCode, String)>,
    /// Last message of a provider that requires an operator.
    pub(crate) last_provider_error: Option<String>,
    /// Set if part of the usage is an estimate.
    pub(crate) is_estimated: bool,
    /// Calls with incomplete views: readable data did not fit.
    pub(crate) shortages: ViewShortages,
    pub(crate) nested_shortages: Vec<NestedShortage>,
    /// Rules that could not be decided and have not fired since, each with the place of its trigger.
    pub(crate) undecided: BTreeSet<(RuleName, Option<String>)>,
}

impl Totals {
    pub(crate) fn from_records(records: &[Record]) -> Self {
        let mut totals = Self::default();
        for body in records.iter().filter_map(|record| record.body().ok()) {
            drop(totals.count(body));
        }
        totals
    }

    /// Adds a record. Returns sentences about data omitted from its view, once for each worker.
    fn count(&mut self, body: &Body) -> Vec<String> {
        match body {
            Body::Skipped(skipped) => {
                if let (Some(rule), Some(trigger)) = (&skipped.rule, &skipped.trigger)
                    && self.undecided.len() < UNDECIDED_MAX
                {
                    self.undecided.insert((rule.clone(), trigger.place().map(str::to_owned)));
                }
            }
            Body::Scheduled(scheduled) => {
                if let Some(rule) = &scheduled.rule {
                    self.undecided.remove(&(rule.clone(), scheduled.trigger.place().map(str::to_owned)));
                }
            }
            Body::Continued(continued) => self.note_estimated_usage(continued.by.usage),
            Body::Committed(_) => self.commits += 1,
            Body::Rejected(_) => self.rejected += 1,
            Body::Failed(failed) => {
                self.failed += 1;
                self.last_failure = Some((failed.code, failed.message.clone()));
            }
            Body::Deferred(deferred) if deferred.reason.needs_operator() && !deferred.is_served_elsewhere => {
                self.last_provider_error = Some(deferred.message.clone());
            }
            Body::Created(created) => {
                self.note_estimated_usage(created.architect.as_ref().map(|architect| architect.usage))
            }
            _ => {}
        }
        self.note_estimated_usage(body.author().and_then(|by| by.usage));
        self.shortages.note(body)
    }

    fn note_estimated_usage(&mut self, usage: Option<Usage>) {
        self.is_estimated |= usage.is_some_and(|usage| usage.estimated && usage.total() > 0);
    }
}

/// Prints progress and sums up the records.
pub(crate) struct Progress {
    output: Output,
    bar: Option<ProgressBar>,
    /// Records up to this one are counted but not printed, since they existed before.
    print_after: Option<Seq>,
    pub(crate) last: Option<Seq>,
    pub(crate) totals: Totals,
    working: BTreeMap<InvocationId, WorkerName>,
    /// Line about unavailable models; empty if there are none.
    unavailable_models: String,
    /// Tokens of the board's completed calls.
    pub(crate) spent: u64,
}

impl Progress {
    /// Prints the records after `print_after`.
    pub(crate) fn new(output: Output, print_after: Option<Seq>) -> Self {
        let moves = !output.quiet && std::io::stderr().is_terminal();
        let bar = moves.then(|| {
            let bar = ProgressBar::new_spinner().with_style(
                ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}").expect("the template is well-formed"),
            );
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(TICK);
            bar
        });
        Self {
            output,
            bar,
            print_after,
            last: None,
            totals: Totals::default(),
            working: BTreeMap::new(),
            unavailable_models: String::new(),
            spent: 0,
        }
    }

    /// Counts a record and prints it.
    pub(crate) fn record(&mut self, record: &Record) {
        self.last = Some(record.seq);
        let Ok(body) = record.body() else { return };
        let hidden = self.totals.count(body);
        self.follow_work(body);
        if self.print_after.is_none_or(|after| record.seq > after) && is_printed(body.kind()) {
            self.print(&format!("{} {}", mark(body.kind()), describe::body_text(body)));
            self.print_shortages(&hidden);
        }
        if let Some(bar) = &self.bar {
            bar.set_message(self.status());
        }
    }

    /// Counts and prints new findings of nested boards' views; `found` has all findings so far.
    pub(crate) fn hidden_inside(&mut self, found: &[NestedShortage]) {
        for hidden in found.iter().skip(self.totals.nested_shortages.len()) {
            self.print_shortages(&hidden.sentences());
        }
        self.totals.nested_shortages = found.to_vec();
    }

    fn print_shortages(&self, sentences: &[String]) {
        for sentence in sentences {
            self.print(&format!("{} {sentence}", "not shown".yellow()));
        }
    }

    pub(crate) fn outage(&mut self, news: &OutageUpdate) {
        match news {
            OutageUpdate::Changed(sentence) => self.print(sentence),
            OutageUpdate::Line(line) => self.unavailable_models.clone_from(line),
        }
        if let Some(bar) = &self.bar {
            bar.set_message(self.status());
        }
    }

    /// Prints a line that is not about a record.
    pub(crate) fn print(&self, text: &str) {
        if let Some(bar) = &self.bar { bar.suspend(|| self.output.note(text)) } else { self.output.note(text) }
    }

    /// Removes the status line.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn follow_work(&mut self, body: &Body) {
        match body {
            Body::Invoked(invoked) => {
                self.working.insert(invoked.invocation, invoked.worker.clone());
            }
            Body::Epoch(_) | Body::Ended(_) => self.working.clear(),
            other => {
                if let Some(attempt) = other.author().and_then(|by| by.attempt.as_ref()) {
                    self.working.remove(&attempt.invocation);
                }
            }
        }
    }

    fn status(&self) -> String {
        let names: Vec<String> = self.working.values().map(|worker| short(worker.as_str(), 24)).collect();
        let away =
            if self.unavailable_models.is_empty() { String::new() } else { format!("{} · ", self.unavailable_models) };
        let workers = if names.is_empty() { "waiting".to_owned() } else { names.join(", ") };
        format!(
            "{away}{workers} · {} committed, {} rejected, {} failed · {} tokens",
            self.totals.commits,
            self.totals.rejected,
            self.totals.failed,
            grouped(self.spent)
        )
    }
}

/// Returns true if a record is printed during a run; the journal has all of them.
const fn is_printed(kind: Kind) -> bool {
    use Kind::*;
    match kind {
        Created | Epoch | Invoked | Deferred | Retried | Committed | NoOp | Expanded | Approval | Answer | Rejected
        | Failed | Late | Reserved | Skipped | Breaker | Budget | Paused | Resumed | Redacted | Signal => true,
        // The command's result reports the end.
        Scheduled | Continued | Tick | Jumped | Snapshot | Ended => false,
    }
}

fn mark(kind: Kind) -> String {
    match colour(kind) {
        Some(colour) => kind.as_str().color(colour).to_string(),
        None => kind.as_str().dimmed().to_string(),
    }
}

/// Returns the colour of a kind that a reader should notice.
pub(crate) const fn colour(kind: Kind) -> Option<AnsiColors> {
    use Kind::*;
    match kind {
        Committed => Some(AnsiColors::Green),
        Rejected | Failed | Late => Some(AnsiColors::Red),
        Approval | Answer | Deferred | Breaker | Budget | Reserved | Skipped | Redacted => Some(AnsiColors::Yellow),
        Created | Epoch | Scheduled | Invoked | Continued | NoOp | Expanded | Retried | Paused | Resumed | Tick
        | Jumped | Signal | Snapshot | Ended => None,
    }
}
