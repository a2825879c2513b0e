//! Signals, pauses and retries. A request with an idempotency key takes effect once, and a repetition gets the first
//! outcome. A signal is rejected if there is no room for it.

use std::collections::BTreeMap;

use patchboard_kernel::board::{Input, Outcome, RememberedOutcome, Step};
use patchboard_kernel::id::{Seq, Timestamp};
use patchboard_kernel::record::{Kind, Retried};
use patchboard_kernel::rejection::Code;

/// Lifetime of an idempotency key, in milliseconds.
const WINDOW: i64 = 3_600_000;

/// Readiness of the board for requests.
#[derive(Clone, Copy)]
pub(super) struct Heed {
    /// True if the board has ended for good.
    pub(super) is_over: bool,
    /// True if there is no room for the effects of a signal.
    pub(super) is_full: bool,
    /// Outcome of a retry.
    pub(super) retry: Retry,
}

/// Outcome of a retry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    Heard,
    Refused(Code),
    /// Rejected if the prompts of all covered invocations exceed the budgets.
    Open,
}

/// Accepted requests, by idempotency key.
#[derive(Default)]
pub(super) struct Requests(BTreeMap<String, Heard>);

struct Heard {
    what: String,
    seq: Seq,
    at: i64,
}

impl Requests {
    /// Checks the outcome of an input, if it is such a request.
    pub(super) fn check(&mut self, seed: u64, at: Timestamp, input: &Input, step: &Step, heed: Heed) {
        let (token, what, kind) = match input {
            Input::Signal { name, value, key: token } => (token, format!("{name} {value}"), Kind::Signal),
            Input::Pause { key: token } => (token, "pause".to_owned(), Kind::Paused),
            Input::Resume { key: token } => (token, "resume".to_owned(), Kind::Resumed),
            Input::Retry(retried) => {
                let Retried { worker, invocation, limits, worker_limits, token } = retried;
                (token, format!("retry {worker:?} {invocation:?} {limits:?} {worker_limits:?}"), Kind::Retried)
            }
            _ => return,
        };
        let first = step.records.first();
        let known = token.as_ref().and_then(|token| self.0.get(token.as_str()));
        match known.filter(|heard| at.0 - heard.at < WINDOW) {
            Some(heard) if heard.what == what => {
                let expected = Some(Outcome::Duplicate(RememberedOutcome::Recorded { seq: heard.seq }));
                assert_eq!((&step.outcome, first), (&expected, None), "SEED={seed}: {what} was heard before");
            }
            Some(heard) => {
                let is_refused = matches!(step.outcome, Some(Outcome::RejectedUnrecorded(_))) && first.is_none();
                assert!(is_refused, "SEED={seed}: {what} has the token of {}", heard.what);
            }
            None if heed.is_over && kind != Kind::Retried => {
                assert!(first.is_none(), "SEED={seed}: {what} was recorded after the end")
            }
            None if heed.is_full && kind == Kind::Signal => {
                let found = (refusal(step), first);
                assert_eq!(found, (Some(Code::BacklogFull), None), "SEED={seed}: there was no room for {what}");
            }
            None if kind == Kind::Retried
                && let Some(code) = refused_with(heed.retry, step) =>
            {
                assert_eq!((refusal(step), first), (Some(code), None), "SEED={seed}: {what} was not refused");
            }
            None => {
                // A pause that changes nothing is recorded only for its key.
                let is_record = token.is_some() || matches!(kind, Kind::Signal | Kind::Retried);
                let found = first.map(|record| record.kind);
                assert!(!is_record || found == Some(kind), "SEED={seed}: {what} was not heard, but {found:?}");
                if let (Some(token), Some(first)) = (token, first) {
                    self.0.insert(token.as_str().to_owned(), Heard { what, seq: first.seq, at: at.0 });
                }
            }
        }
    }
}

/// Returns the code of the rejection, or `None` if the retry is accepted.
fn refused_with(retry: Retry, step: &Step) -> Option<Code> {
    match retry {
        Retry::Heard => None,
        Retry::Refused(code) => Some(code),
        Retry::Open => refusal(step).and(Some(Code::LimitReached)),
    }
}

/// Returns the code of a rejection.
fn refusal(step: &Step) -> Option<Code> {
    match &step.outcome {
        Some(Outcome::RejectedUnrecorded(rejection)) => Some(rejection.code),
        _ => None,
    }
}
