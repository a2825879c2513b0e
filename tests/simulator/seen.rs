//! Counts of outages and retries on simulated boards.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::board::{Input, Outcome, Step};
use patchboard_kernel::record::{Body, Kind, PauseCause, Record, Retried};
use patchboard_kernel::rejection::Code;

/// Outages and rejected retries of one board.
#[derive(Default)]
pub(super) struct Met {
    /// Indexes of the outages in which a request was made.
    pub(super) outages: BTreeSet<usize>,
    /// Calls that the gate held back without a request.
    pub(super) held: u64,
    refused: BTreeMap<Code, u64>,
}

impl Met {
    /// Counts a rejected retry.
    pub(super) fn stepped(&mut self, input: Option<&Input>, step: &Step) {
        if let (Some(Input::Retry(_)), Some(Outcome::RejectedUnrecorded(rejection))) = (input, &step.outcome) {
            *self.refused.entry(rejection.code).or_default() += 1;
        }
    }
}

/// Counts of all boards.
#[derive(Default, Debug)]
pub(super) struct Interruptions {
    outages: u64,
    held: u64,
    deferrals: u64,
    /// Pauses because a provider took no request.
    pauses: u64,
    retries: Retries,
    /// Invocations that retries queued again.
    queued_again: u64,
    refused: BTreeMap<Code, u64>,
}

/// Retries by what they name.
#[derive(Default, Debug)]
struct Retries {
    of_board: u64,
    of_worker: u64,
    of_invocation: u64,
    with_limits: u64,
}

impl Interruptions {
    /// Adds the counts of a board.
    pub(super) fn add(&mut self, met: &Met, records: &[Record]) {
        self.outages += met.outages.len() as u64;
        self.held += met.held;
        for (code, count) in &met.refused {
            *self.refused.entry(*code).or_default() += count;
        }
        let is_counted = |kind| matches!(kind, Kind::Deferred | Kind::Paused | Kind::Retried | Kind::Scheduled);
        for record in records.iter().filter(|record| is_counted(record.kind)) {
            match record.body() {
                Ok(Body::Deferred(_)) => self.deferrals += 1,
                Ok(Body::Paused(steered)) => {
                    self.pauses += u64::from(steered.cause == Some(PauseCause::ProviderUnavailable));
                }
                Ok(Body::Retried(retried)) => self.retries.add(retried),
                Ok(Body::Scheduled(scheduled)) => self.queued_again += u64::from(scheduled.retries.is_some()),
                _ => {}
            }
        }
    }

    /// Asserts that every kind was seen.
    pub(super) fn assert_all_seen(&self) {
        let Self { outages, held, deferrals, pauses, retries, queued_again, refused } = self;
        let Retries { of_board, of_worker, of_invocation, with_limits } = retries;
        let counts = [outages, held, deferrals, pauses, queued_again, of_board, of_worker, of_invocation, with_limits];
        assert!(counts.into_iter().all(|count| *count > 0), "not every interruption was seen: {self:?}");
        for code in [Code::BoardNotRunning, Code::LimitReached, Code::NothingGivenUp, Code::TokenConflict] {
            assert!(refused.contains_key(&code), "no retry was refused as {code}: {self:?}");
        }
    }
}

impl Retries {
    fn add(&mut self, retried: &Retried) {
        let count = match (&retried.worker, retried.invocation) {
            (None, None) => &mut self.of_board,
            (Some(_), None) => &mut self.of_worker,
            (_, Some(_)) => &mut self.of_invocation,
        };
        *count += 1;
        self.with_limits += u64::from(!retried.limits.is_none());
    }
}
