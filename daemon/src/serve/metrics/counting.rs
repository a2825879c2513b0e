//! Counts the outcomes of boards from the records, as these become durable.
//!
//! Only the counted members of the header are parsed: a few hundred bytes, for a patch of any size.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashmap::DashMap;
use patchboard_kernel::admission::Admission;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, InvocationId, Timestamp};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Attempt, Kind, Record};
use patchboard_runtime::observer::{DurableStep, Observer, RestartScope};
use patchboard_runtime::runtime::RuntimeError;
use prometheus::IntCounter;
use serde::Deserialize;

use super::Metrics;

/// Observer that updates the metrics of a daemon.
pub(crate) struct Counting {
    metrics: Arc<Metrics>,
    /// Counters in the order of [`Kind::ALL`], looked up once.
    records: Vec<IntCounter>,
    /// Start of the attempts under way. Bounded by the concurrency limit of each blueprint.
    open_attempts: DashMap<BoardId, BTreeMap<InvocationId, OpenAttempt>>,
}

struct OpenAttempt {
    attempt: u32,
    at: Timestamp,
    /// Model and price at which the call was admitted.
    admitted: Admission,
}

/// Purpose of model tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TokenPurpose {
    /// Design of a blueprint.
    Architect,
    /// First attempts of invocations.
    Worker,
    /// Further attempts of invocations.
    Retry,
    /// Replies that arrived after their attempt was closed.
    Late,
}

impl TokenPurpose {
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

/// Counted members of a header; others are skipped.
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
        Self { metrics, records, open_attempts: DashMap::new() }
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
            Kind::Invoked => return self.start_attempt(board, header, record.at),
            Kind::Committed => metrics.commits.inc(),
            Kind::NoOp => metrics.no_ops.inc(),
            Kind::Rejected => metrics.rejections.with_label_values(&[header.stage.unwrap_or_default(), code]).inc(),
            Kind::Failed => metrics.failures.with_label_values(&[code]).inc(),
            Kind::Deferred => metrics.deferrals.with_label_values(&[header.reason.unwrap_or_default()]).inc(),
            Kind::Late => {
                metrics.late.with_label_values(&[code]).inc();
                return self.count_tokens(TokenPurpose::Late, header.usage);
            }
            Kind::Breaker => {
                let (change, reason) = (header.change.unwrap_or_default(), header.reason.unwrap_or_default());
                return metrics.breaker_moves.with_label_values(&[change, reason]).inc();
            }
            Kind::Ended => {
                // The end of a board closes all its attempts.
                self.open_attempts.remove(board);
                return metrics.boards_ended.with_label_values(&[header.end.unwrap_or_default()]).inc();
            }
            Kind::Created => {
                let Some(Architect { usage, admitted }) = header.architect else { return };
                self.charge(&admitted.unwrap_or_default(), usage);
                return self.count_tokens(TokenPurpose::Architect, Some(usage));
            }
            _ => {}
        }
        let Some(by) = header.by else { return };
        if let Some(attempt) = by.attempt {
            self.count_cost(board, &attempt, by.usage);
            if record.kind != Kind::Continued {
                self.end_attempt(board, &attempt, record, code == FailureCode::Lost.as_str());
            }
            let component = if attempt.number > 1 { TokenPurpose::Retry } else { TokenPurpose::Worker };
            self.count_tokens(component, by.usage);
        }
    }

    fn start_attempt(&self, board: &BoardId, header: Header<'_>, at: Timestamp) {
        if let (Some(invocation), Some(attempt)) = (header.invocation, header.attempt) {
            let begun = OpenAttempt { attempt, at, admitted: header.admitted.unwrap_or_default() };
            self.open_attempts.entry(board.clone()).or_default().insert(invocation, begun);
        }
    }

    /// Counts the cost of an answered call, at the price of its admission.
    fn count_cost(&self, board: &BoardId, attempt: &Attempt, usage: Option<Usage>) {
        let (Some(usage), Some(begun)) = (usage, self.open_attempts.get(board)) else { return };
        let begun = begun.get(&attempt.invocation).filter(|begun| begun.attempt == attempt.number);
        if let Some(begun) = begun {
            self.charge(&begun.admitted, usage);
        }
    }

    /// Counts the cost of calls, if their model has a price.
    fn charge(&self, admitted: &Admission, usage: Usage) {
        let Admission { model, price: Some(price), .. } = admitted else { return };
        let labels = [model.as_deref().unwrap_or_default(), price.currency.as_str()];
        #[expect(clippy::cast_precision_loss, reason = "a metric is a float")]
        self.metrics.money.with_label_values(&labels).inc_by(price.cost(usage) as f64 / 1e9);
    }

    /// Observes the duration of an attempt. For an approval, the attempt ended when the proposal was submitted to the
    /// person. The duration of a lost attempt is unknown, and not observed.
    fn end_attempt(&self, board: &BoardId, attempt: &Attempt, record: &Record, is_lost: bool) {
        let Some(mut begun) = self.open_attempts.get_mut(board) else { return };
        if begun.get(&attempt.invocation).is_none_or(|begun| begun.attempt != attempt.number) {
            return;
        }
        if let Some(OpenAttempt { at, .. }) = begun.remove(&attempt.invocation)
            && !is_lost
        {
            #[expect(clippy::cast_precision_loss, reason = "a span of time in milliseconds")]
            let seconds = record.at.ms_since(at) as f64 / 1000.0;
            self.metrics.invocation_seconds.with_label_values(&[record.kind.as_str()]).observe(seconds);
        }
    }

    fn count_tokens(&self, component: TokenPurpose, usage: Option<Usage>) {
        let Some(usage) = usage else { return };
        for (kind, tokens) in [("prompt", usage.prompt), ("completion", usage.completion)] {
            self.metrics.tokens.with_label_values(&[component.as_str(), kind]).inc_by(tokens);
        }
    }
}

impl Observer for Counting {
    fn on_durable_step(&self, step: &DurableStep<'_>) {
        for record in step.records {
            self.count(step.board, record);
        }
        if step.records.iter().any(|record| record.kind == Kind::Committed) {
            self.metrics.commit_seconds.observe(step.took.as_secs_f64());
        }
    }

    fn on_duplicate(&self, _: &BoardId) {
        self.metrics.duplicates.inc();
    }

    fn on_restart(&self, what: RestartScope) {
        self.metrics.restarts.with_label_values(&[what.as_str()]).inc();
    }

    fn on_board_closed(&self, board: &BoardId, _: &RuntimeError) {
        self.open_attempts.remove(board);
    }
}
