//! Live progress of a run on stderr: who works, what was committed or refused, and what it has cost so far.
//!
//! Everything comes from durable records, so what is told has happened. On a terminal the last line says where the run
//! stands; elsewhere there is one line per event and nothing that moves.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use owo_colors::OwoColorize as _;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{InvocationId, RuleName, Seq, WorkerName};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Body, Kind, Record};

use crate::narrative::{self, HiddenInside, Hiding, grouped};
use crate::outages::News;
use crate::output::{Output, short};

/// How often the line that moves is drawn anew.
const TICK: Duration = Duration::from_millis(120);

/// The most undecided rules that are kept.
const UNDECIDED_MAX: usize = 1024;

/// What a run has done so far.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Commits.
    pub(crate) commits: u64,
    /// Refused proposals.
    pub(crate) rejected: u64,
    /// Calls that failed.
    pub(crate) failed: u64,
    /// How the last of them failed.
    pub(crate) last_failure: Option<(FailureCode, String)>,
    /// What the provider said that an operator must mend, the last time.
    pub(crate) last_refusal: Option<String>,
    /// True if something of what its calls cost is an estimate.
    pub(crate) is_estimated: bool,
    /// First calls whose views had no room for everything.
    pub(crate) hiding: Hiding,
    /// The same of boards inside.
    pub(crate) inside: Vec<HiddenInside>,
    /// Rules that could not be decided and have not fired since, each with the place of its trigger.
    pub(crate) undecided: BTreeSet<(RuleName, Option<String>)>,
}

impl Totals {
    /// The totals of records that were read before.
    pub(crate) fn of(records: &[Record]) -> Self {
        let mut totals = Self::default();
        for body in records.iter().filter_map(|record| record.body().ok()) {
            drop(totals.count(&body));
        }
        totals
    }

    /// Adds a record. Returns sentences about what its view has no room for, once for each worker.
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
            Body::Continued(continued) => self.pay(continued.by.usage),
            Body::Committed(_) => self.commits += 1,
            Body::Rejected(_) => self.rejected += 1,
            Body::Failed(failed) => {
                self.failed += 1;
                self.last_failure = Some((failed.code, failed.message.clone()));
            }
            Body::Deferred(deferred) => {
                if deferred.reason.needs_operator() && !deferred.is_served_elsewhere {
                    self.last_refusal = Some(deferred.message.clone());
                }
            }
            Body::Created(created) => self.pay(created.architect.as_ref().map(|architect| architect.usage)),
            Body::Invoked(_)
            | Body::Late(_)
            | Body::NoOp(_)
            | Body::Expanded(_)
            | Body::Approval(_)
            | Body::Answer(_)
            | Body::Epoch(_)
            | Body::Reserved(_)
            | Body::Breaker(_)
            | Body::Budget(_)
            | Body::Paused(_)
            | Body::Retried(_)
            | Body::Resumed(_)
            | Body::Tick(_)
            | Body::Jumped(_)
            | Body::Signal(_)
            | Body::Snapshot(_)
            | Body::Redacted(_)
            | Body::Ended(_) => {}
        }
        self.pay(body.author().and_then(|by| by.usage));
        self.hiding.note(body)
    }

    fn pay(&mut self, usage: Option<Usage>) {
        self.is_estimated |= usage.is_some_and(|usage| usage.estimated && usage.total() > 0);
    }
}

/// Shows progress, and adds up what it saw.
pub(crate) struct Progress {
    output: Output,
    bar: Option<ProgressBar>,
    /// Records up to this one are counted and not told: they were there before.
    told_after: Option<Seq>,
    /// The last record seen.
    pub(crate) last: Option<Seq>,
    /// The sum of everything seen.
    pub(crate) totals: Totals,
    working: BTreeMap<InvocationId, WorkerName>,
    /// The models that are away.
    away: String,
    /// Tokens of the board's calls that are over.
    pub(crate) spent: u64,
}

impl Progress {
    /// Tells of the records after `told_after`.
    pub(crate) fn new(output: Output, told_after: Option<Seq>) -> Self {
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
            told_after,
            last: None,
            totals: Totals::default(),
            working: BTreeMap::new(),
            away: String::new(),
            spent: 0,
        }
    }

    /// Takes a record into account and tells of it.
    pub(crate) fn record(&mut self, record: &Record) {
        self.last = Some(record.seq);
        let Ok(body) = record.body() else { return };
        let hidden = self.totals.count(&body);
        self.follow_work(&body);
        if self.told_after.is_none_or(|after| record.seq > after) && is_told(body.kind()) {
            self.say(&format!("{} {}", mark(body.kind()), narrative::of(&body)));
            self.not_shown(&hidden);
        }
        if let Some(bar) = &self.bar {
            bar.set_message(self.status());
        }
    }

    /// Takes into account and tells what views in boards inside had no room for, of all that was found.
    pub(crate) fn hidden_inside(&mut self, found: &[HiddenInside]) {
        for hidden in found.iter().skip(self.totals.inside.len()) {
            self.not_shown(&hidden.sentences());
        }
        self.totals.inside = found.to_vec();
    }

    fn not_shown(&self, sentences: &[String]) {
        for sentence in sentences {
            self.say(&format!("{} {sentence}", "not shown".yellow()));
        }
    }

    /// Takes news of a model into account.
    pub(crate) fn outage(&mut self, news: &News) {
        match news {
            News::Changed(sentence) => self.say(sentence),
            News::Line(line) => self.away.clone_from(line),
        }
        if let Some(bar) = &self.bar {
            bar.set_message(self.status());
        }
    }

    /// Tells something that is not in the journal.
    pub(crate) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.output.note(text)),
            None => self.output.note(text),
        }
    }

    /// Takes the line that moves away.
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
        let away = if self.away.is_empty() { String::new() } else { format!("{} · ", self.away) };
        let who = if names.is_empty() { "waiting".to_owned() } else { names.join(", ") };
        format!(
            "{away}{who} · {} committed, {} refused, {} failed · {} tokens",
            self.totals.commits,
            self.totals.rejected,
            self.totals.failed,
            grouped(self.spent)
        )
    }
}

/// Whether a record is worth a line while a run goes on; the journal has all of them.
const fn is_told(kind: Kind) -> bool {
    match kind {
        Kind::Created
        | Kind::Epoch
        | Kind::Invoked
        | Kind::Deferred
        | Kind::Retried
        | Kind::Committed
        | Kind::NoOp
        | Kind::Expanded
        | Kind::Approval
        | Kind::Answer
        | Kind::Rejected
        | Kind::Failed
        | Kind::Late
        | Kind::Reserved
        | Kind::Skipped
        | Kind::Breaker
        | Kind::Budget
        | Kind::Paused
        | Kind::Resumed
        | Kind::Redacted
        | Kind::Signal => true,
        // An end is told as the command's result.
        Kind::Scheduled | Kind::Continued | Kind::Tick | Kind::Jumped | Kind::Snapshot | Kind::Ended => false,
    }
}

fn mark(kind: Kind) -> String {
    let word = kind.as_str();
    match kind {
        Kind::Committed => word.green().to_string(),
        Kind::Rejected | Kind::Failed | Kind::Late => word.red().to_string(),
        Kind::Approval
        | Kind::Answer
        | Kind::Deferred
        | Kind::Breaker
        | Kind::Budget
        | Kind::Reserved
        | Kind::Skipped
        | Kind::Redacted => word.yellow().to_string(),
        Kind::Created
        | Kind::Epoch
        | Kind::Scheduled
        | Kind::Invoked
        | Kind::Continued
        | Kind::NoOp
        | Kind::Expanded
        | Kind::Retried
        | Kind::Paused
        | Kind::Resumed
        | Kind::Tick
        | Kind::Jumped
        | Kind::Signal
        | Kind::Snapshot
        | Kind::Ended => word.dimmed().to_string(),
    }
}
