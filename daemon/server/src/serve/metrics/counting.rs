//! Counts the outcomes of boards from the records, as these become durable.

use std::sync::Arc;

use dashmap::DashMap;
use patchboard_kernel::admission::Admission;
use patchboard_kernel::code_enum;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, InvocationId, Timestamp};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Attempt, Body, Kind, Record};
use patchboard_runtime::error::RuntimeError;
use patchboard_runtime::observer::{DurableStep, Observer, RestartScope};
use prometheus::IntCounter;

use super::Metrics;

pub(crate) struct Counting {
    metrics: Arc<Metrics>,
    /// Counters in the order of [`Kind::ALL`], looked up once.
    records: Vec<IntCounter>,
    /// Start of the attempts under way, few per board: the concurrency limit of its blueprint bounds them.
    open_attempts: DashMap<BoardId, Vec<OpenAttempt>>,
}

struct OpenAttempt {
    invocation: InvocationId,
    attempt: u32,
    at: Timestamp,
    /// Model and price at which the call was admitted.
    admitted: Admission,
}

impl OpenAttempt {
    fn is(&self, attempt: &Attempt) -> bool {
        (self.invocation, self.attempt) == (attempt.invocation, attempt.number)
    }
}

code_enum! {
    /// Purpose of model tokens.
    TokenPurpose {
        /// Design of a blueprint.
        Architect = "architect",
        /// First attempts of invocations.
        Worker = "worker",
        /// Further attempts of invocations.
        Retry = "retry",
        /// Replies that arrived after their attempt was closed.
        Late = "late",
    }
}

impl Counting {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        let records = Kind::ALL.iter().map(|kind| metrics.records.with_label_values(&[kind.as_str()])).collect();
        Self { metrics, records, open_attempts: DashMap::new() }
    }

    fn count(&self, board: &BoardId, record: &Record) {
        self.records[record.kind as usize].inc();
        let Ok(body) = record.body() else {
            tracing::debug!(%board, seq = %record.seq, kind = %record.kind, "a record could not be counted in full");
            return;
        };
        let metrics = &self.metrics;
        match body {
            Body::Created(created) => {
                if let Some(architect) = &created.architect {
                    self.charge(&architect.admitted.clone().unwrap_or_default(), architect.usage);
                    self.count_tokens(TokenPurpose::Architect, Some(architect.usage));
                }
            }
            Body::Invoked(invoked) => {
                let admitted = invoked.admitted.clone().unwrap_or_default();
                let (invocation, attempt) = (invoked.invocation, invoked.attempt);
                let begun = OpenAttempt { invocation, attempt, at: record.at, admitted };
                let mut open = self.open_attempts.entry(board.clone()).or_default();
                // Replaces an earlier attempt.
                open.retain(|open| open.invocation != invocation);
                open.reserve_exact(1);
                open.push(begun);
            }
            Body::Committed(_) => metrics.commits.inc(),
            Body::NoOp(_) => metrics.no_ops.inc(),
            Body::Rejected(rejected) => {
                metrics.rejections.with_label_values(&[rejected.stage.as_str(), rejected.code.as_str()]).inc();
            }
            Body::Failed(failed) => metrics.failures.with_label_values(&[failed.code.as_str()]).inc(),
            Body::Deferred(deferred) => metrics.deferrals.with_label_values(&[deferred.reason.as_str()]).inc(),
            Body::Late(late) => {
                metrics.late.with_label_values(&[late.code.as_str()]).inc();
                self.count_tokens(TokenPurpose::Late, late.usage);
            }
            Body::Breaker(moved) => {
                metrics.breaker_moves.with_label_values(&[moved.change.as_str(), moved.reason.as_str()]).inc();
            }
            Body::Ended(ended) => {
                // The end of a board closes all its attempts.
                self.open_attempts.remove(board);
                metrics.boards_ended.with_label_values(&[ended.end.as_str()]).inc();
            }
            _ => {}
        }
        let by = if let Body::Continued(continued) = body { Some(&continued.by) } else { body.author() };
        let Some((by, attempt)) = by.and_then(|by| Some((by, by.attempt.as_ref()?))) else { return };
        self.count_cost(board, attempt, by.usage);
        if record.kind != Kind::Continued {
            let is_lost = matches!(body, Body::Failed(failed) if failed.code == FailureCode::Lost);
            self.end_attempt(board, attempt, record, is_lost);
        }
        let component = if attempt.number > 1 { TokenPurpose::Retry } else { TokenPurpose::Worker };
        self.count_tokens(component, by.usage);
    }

    /// Counts the cost of an answered call, at the price of its admission.
    fn count_cost(&self, board: &BoardId, attempt: &Attempt, usage: Option<Usage>) {
        let (Some(usage), Some(begun)) = (usage, self.open_attempts.get(board)) else { return };
        if let Some(begun) = begun.iter().find(|begun| begun.is(attempt)) {
            self.charge(&begun.admitted, usage);
        }
    }

    /// Counts the cost of calls, if their model has a price.
    fn charge(&self, admitted: &Admission, usage: Usage) {
        let Admission { model, price: Some(price), .. } = admitted else { return };
        let labels = [model.as_deref().unwrap_or_default(), price.currency.as_str()];
        #[expect(clippy::cast_precision_loss, reason = "a metric is a float")]
        self.metrics.money.with_label_values(&labels).inc_by(usage.cost(price) as f64 / 1e9);
    }

    /// Observes the duration of an attempt. For an approval, the attempt ended when the proposal was submitted to the
    /// person. The duration of a lost attempt is unknown, and not observed.
    fn end_attempt(&self, board: &BoardId, attempt: &Attempt, record: &Record, is_lost: bool) {
        let Some(mut begun) = self.open_attempts.get_mut(board) else { return };
        let Some(at) = begun.iter().position(|begun| begun.is(attempt)) else { return };
        let OpenAttempt { at, .. } = begun.swap_remove(at);
        if !is_lost {
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
