//! Counts what becomes of boards, from the records as they become durable.
//!
//! Of a record only the members of the header are read that are counted; they are a few hundred bytes, whatever a patch
//! weighs.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashmap::DashMap;
use patchboard_kernel::admission::Admission;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, InvocationId, Timestamp};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Attempt, Kind, Record};
use patchboard_runtime::observer::{Durable, Observer, Restarted};
use patchboard_runtime::runtime::RuntimeError;
use prometheus::IntCounter;
use serde::Deserialize;

use super::Metrics;

/// Counts for the metrics of a daemon.
pub(crate) struct Counting {
    metrics: Arc<Metrics>,
    /// By kind, in the order of [`Kind::ALL`]: looked up once.
    records: Vec<IntCounter>,
    /// Since when attempts are under way: as many as a board's blueprint lets run at once.
    begun: DashMap<BoardId, BTreeMap<InvocationId, Begun>>,
}

struct Begun {
    attempt: u32,
    at: Timestamp,
    /// Admission of its calls.
    admitted: Admission,
}

/// What tokens were for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Component {
    /// Having a blueprint written.
    Architect,
    /// The first attempts of invocations.
    Worker,
    /// Their further attempts.
    Retry,
    /// Answers that nobody waited for any more.
    Late,
}

impl Component {
    pub(super) const ALL: [Self; 4] = [Self::Architect, Self::Worker, Self::Retry, Self::Late];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Architect => "architect",
            Self::Worker => "worker",
            Self::Retry => "retry",
            Self::Late => "late",
        }
    }
}

/// What is read of a header; the rest is passed over.
#[derive(Deserialize)]
struct Header<'a> {
    by: Option<By>,
    #[serde(borrow)]
    stage: Option<&'a str>,
    #[serde(borrow)]
    code: Option<&'a str>,
    invocation: Option<InvocationId>,
    attempt: Option<u32>,
    usage: Option<Usage>,
    admitted: Option<Admission>,
    architect: Option<Architect>,
    #[serde(borrow)]
    change: Option<&'a str>,
    #[serde(borrow)]
    reason: Option<&'a str>,
    #[serde(borrow)]
    end: Option<&'a str>,
}

#[derive(Deserialize)]
struct By {
    attempt: Option<Attempt>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Architect {
    usage: Usage,
    admitted: Option<Admission>,
}

impl Counting {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        let records = Kind::ALL.iter().map(|kind| metrics.records.with_label_values(&[kind.as_str()])).collect();
        Self { metrics, records, begun: DashMap::new() }
    }

    fn count(&self, board: &BoardId, record: &Record) {
        self.records[record.kind as usize].inc();
        match record.kind {
            Kind::Created
            | Kind::Invoked
            | Kind::Continued
            | Kind::Committed
            | Kind::NoOp
            | Kind::Expanded
            | Kind::Rejected
            | Kind::Failed
            | Kind::Deferred
            | Kind::Late
            | Kind::Approval
            | Kind::Breaker
            | Kind::Ended => {}
            Kind::Epoch
            | Kind::Scheduled
            | Kind::Reserved
            | Kind::Skipped
            | Kind::Answer
            | Kind::Budget
            | Kind::Paused
            | Kind::Resumed
            | Kind::Retried
            | Kind::Tick
            | Kind::Jumped
            | Kind::Signal
            | Kind::Snapshot
            | Kind::Redacted => return,
        }
        let Ok(header) = serde_json::from_str::<Header<'_>>(&record.header) else {
            tracing::debug!(%board, seq = %record.seq, kind = %record.kind, "a record could not be counted in full");
            return;
        };
        let metrics = &self.metrics;
        let code = header.code.unwrap_or_default();
        match record.kind {
            Kind::Invoked => return self.begins(board, header, record.at),
            Kind::Committed => metrics.commits.inc(),
            Kind::NoOp => metrics.no_ops.inc(),
            Kind::Rejected => metrics.rejections.with_label_values(&[header.stage.unwrap_or_default(), code]).inc(),
            Kind::Failed => metrics.failures.with_label_values(&[code]).inc(),
            Kind::Deferred => metrics.deferrals.with_label_values(&[header.reason.unwrap_or_default()]).inc(),
            Kind::Late => {
                metrics.late.with_label_values(&[code]).inc();
                return self.spent(Component::Late, header.usage);
            }
            Kind::Breaker => {
                let (change, reason) = (header.change.unwrap_or_default(), header.reason.unwrap_or_default());
                return metrics.breaker_moves.with_label_values(&[change, reason]).inc();
            }
            Kind::Ended => {
                // Nothing is under way any more, whatever was.
                self.begun.remove(board);
                return metrics.boards_ended.with_label_values(&[header.end.unwrap_or_default()]).inc();
            }
            Kind::Created => {
                let Some(Architect { usage, admitted }) = header.architect else { return };
                self.charge(&admitted.unwrap_or_default(), usage);
                return self.spent(Component::Architect, Some(usage));
            }
            _ => {}
        }
        let Some(by) = header.by else { return };
        if let Some(attempt) = by.attempt {
            self.paid(board, &attempt, by.usage);
            if record.kind != Kind::Continued {
                self.ends(board, &attempt, record, code == FailureCode::Lost.as_str());
            }
            let component = if attempt.number > 1 { Component::Retry } else { Component::Worker };
            self.spent(component, by.usage);
        }
    }

    fn begins(&self, board: &BoardId, header: Header<'_>, at: Timestamp) {
        if let (Some(invocation), Some(attempt)) = (header.invocation, header.attempt) {
            let begun = Begun { attempt, at, admitted: header.admitted.unwrap_or_default() };
            self.begun.entry(board.clone()).or_default().insert(invocation, begun);
        }
    }

    /// Counts the money of a call that was answered, by the price at which it was made.
    fn paid(&self, board: &BoardId, attempt: &Attempt, usage: Option<Usage>) {
        let (Some(usage), Some(begun)) = (usage, self.begun.get(board)) else { return };
        let begun = begun.get(&attempt.invocation).filter(|begun| begun.attempt == attempt.number);
        if let Some(begun) = begun {
            self.charge(&begun.admitted, usage);
        }
    }

    /// Counts the money of calls, if their model has a price.
    fn charge(&self, admitted: &Admission, usage: Usage) {
        let Admission { model, price: Some(price), .. } = admitted else { return };
        let labels = [model.as_deref().unwrap_or_default(), price.currency.as_str()];
        #[expect(clippy::cast_precision_loss, reason = "a metric is a float")]
        self.metrics.money.with_label_values(&labels).inc_by(price.of(usage) as f64 / 1e9);
    }

    /// An attempt has come to its end; one that a person agreed to had before, when it was put to the person. Of one that
    /// was lost nobody knows how long it took.
    fn ends(&self, board: &BoardId, attempt: &Attempt, record: &Record, is_lost: bool) {
        let Some(mut begun) = self.begun.get_mut(board) else { return };
        if begun.get(&attempt.invocation).is_none_or(|begun| begun.attempt != attempt.number) {
            return;
        }
        if let Some(Begun { at, .. }) = begun.remove(&attempt.invocation)
            && !is_lost
        {
            #[expect(clippy::cast_precision_loss, reason = "a span of time in milliseconds")]
            let seconds = record.at.ms_since(at) as f64 / 1000.0;
            self.metrics.invocation_seconds.with_label_values(&[record.kind.as_str()]).observe(seconds);
        }
    }

    fn spent(&self, component: Component, usage: Option<Usage>) {
        let Some(usage) = usage else { return };
        for (kind, tokens) in [("prompt", usage.prompt), ("completion", usage.completion)] {
            self.metrics.tokens.with_label_values(&[component.as_str(), kind]).inc_by(tokens);
        }
    }
}

impl Observer for Counting {
    fn durable(&self, step: &Durable<'_>) {
        for record in step.records {
            self.count(step.board, record);
        }
        if step.records.iter().any(|record| record.kind == Kind::Committed) {
            self.metrics.commit_seconds.observe(step.took.as_secs_f64());
        }
    }

    fn duplicate(&self, _: &BoardId) {
        self.metrics.duplicates.inc();
    }

    fn restarted(&self, what: Restarted) {
        self.metrics.restarts.with_label_values(&[what.as_str()]).inc();
    }

    fn gone(&self, board: &BoardId, _: &RuntimeError) {
        self.begun.remove(board);
    }
}
