//! Enforces write-ahead ordering: a step's effects are released only after its records are durable.
//!
//! Holds the output of a step until the journal has answered. Appends nothing itself; the shell appends records and
//! executes released effects. The kernel actor of the runtime and the boards on a virtual clock both use it, so results
//! of the simulator apply to both.

use crate::admission::AdmissionGate;
use crate::board::{Blob, Board, Effects, Input, Step};
use crate::digest::Digest;
use crate::id::{BoardId, Seq, Timestamp};
use crate::mutants::{self, Mutant};
use crate::record::{Principal, Record};

/// Board and its step that is not durable yet.
pub struct Driver {
    board: Board,
    /// Step with an append that the journal has not acknowledged.
    in_flight: Option<Step>,
}

/// Result of an input.
#[derive(Debug, Default)]
pub struct Ready {
    /// Records to append. The step's output is released by [`Driver::complete_append`].
    pub append: Option<Batch>,
    /// Output to release at once: a step without records needs no append.
    pub released: Option<Step>,
}

/// The last record of a board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Number of the record.
    pub seq: Seq,
    /// Hash of the record, which covers all records before it.
    pub hash: Digest,
}

/// Records to append together, with the texts they name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Board to append to.
    pub board: BoardId,
    /// Epoch of the writer: the board's own, or a higher one that an `epoch` record in this batch claims.
    pub epoch: u64,
    /// Last record of the board that the writer knows; `None` requires that the board does not exist.
    pub expected: Option<Head>,
    /// Records to append, in order; not empty, and numbered from the one after `expected`.
    pub records: Vec<Record>,
    /// Texts that the records name by hash. Stored ones are left unchanged.
    pub blobs: Vec<Blob>,
}

impl Driver {
    /// Wraps a board without pending appends.
    pub const fn new(board: Board) -> Self {
        Self { board, in_flight: None }
    }

    /// Returns the board. It is ahead of the journal while an append is pending.
    pub const fn board(&self) -> &Board {
        &self.board
    }

    /// Returns the step with a pending append.
    pub const fn in_flight(&self) -> Option<&Step> {
        self.in_flight.as_ref()
    }

    /// Applies an input. Calls that need admission stay waiting: no gate is asked.
    ///
    /// # Panics
    /// Panics if the last append is unanswered or was rejected. The board is then ahead of the journal, and must be
    /// recovered from it.
    pub fn decide(&mut self, at: Timestamp, input: Input) -> Ready {
        self.decide_with(at, input, &mut |_, _| None)
    }

    /// Applies an input and the admissions of the gate, with one append for all of it.
    ///
    /// # Panics
    /// Like [`Driver::decide`].
    pub fn decide_with(&mut self, at: Timestamp, input: Input, gate: &mut AdmissionGate<'_>) -> Ready {
        self.decide_as(at, input, None, gate)
    }

    /// Like [`Driver::decide_with`], for an input from an external caller.
    ///
    /// # Panics
    /// Like [`Driver::decide`].
    pub fn decide_as(
        &mut self,
        at: Timestamp,
        input: Input,
        principal: Option<Principal>,
        gate: &mut AdmissionGate<'_>,
    ) -> Ready {
        assert!(self.in_flight.is_none(), "a board takes no input while it is ahead of its journal");
        let (seq, hash) = self.board.head();
        let mut step = self.board.step_as(at, input, principal);
        self.board.admit(at, &mut step, gate);
        if step.records.is_empty() {
            return Ready { append: None, released: Some(step) };
        }
        let append = Batch {
            board: self.board.id().clone(),
            epoch: self.board.epoch(),
            expected: Some(Head { seq, hash }),
            records: step.records.clone(),
            blobs: std::mem::take(&mut step.blobs),
        };
        let released = release_early(&mut step);
        self.in_flight = Some(step);
        Ready { append: Some(append), released }
    }

    /// Handles the journal's answer: with `Ok` the records are durable, and the step's output is released. After an
    /// error of the journal the records may be durable nevertheless, so the board must be dropped and recovered from
    /// the journal.
    pub fn complete_append<E>(&mut self, answer: Result<(), E>) -> Result<Step, E> {
        match answer {
            Err(error) if !mutants::is_active(Mutant::IgnoreAppendError) => Err(error),
            Ok(()) | Err(_) => Ok(self.in_flight.take().unwrap_or_default()),
        }
    }
}

/// Returns output released before its records are durable: `None`, unless such a bug is planted.
fn release_early(step: &mut Step) -> Option<Step> {
    if mutants::is_active(Mutant::EarlyEffects) && step.effects != Effects::default() {
        return Some(Step { effects: std::mem::take(&mut step.effects), ..Step::default() });
    }
    if mutants::is_active(Mutant::EarlyOutcome) && step.outcome.is_some() {
        return Some(Step { outcome: step.outcome.take(), ..Step::default() });
    }
    None
}
