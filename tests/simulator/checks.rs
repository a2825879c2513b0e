//! All checks of a board, independent of the source of its inputs. They see a step once it is durable.

use patchboard_faults::simulation::GateDecision;
use patchboard_kernel::admission::WaitingCall;
use patchboard_kernel::board::{Board, Call, Input, Step};
use patchboard_kernel::driver::Batch;
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::Record;

use super::invariants::Invariants;
use super::journal::Journal;
use super::model::Model;

pub(super) struct Checks {
    seed: u64,
    journal: Journal,
    /// `None` while the board is being created.
    of_board: Option<OfBoard>,
}

struct OfBoard {
    invariants: Invariants,
    model: Model,
    /// Board after the last durable step.
    durable: Board,
}

impl Checks {
    pub(super) const fn new(seed: u64) -> Self {
        Self { seed, journal: Journal::new(seed), of_board: None }
    }

    pub(super) fn wrote(&mut self, append: &Batch) {
        self.journal.wrote(append);
    }

    pub(super) fn stepped(&mut self, at: Timestamp, input: Option<&Input>, step: &Step, board: &Board) {
        let seed = self.seed;
        let of_board = self.of_board.get_or_insert_with(|| OfBoard {
            invariants: Invariants::new(seed, board),
            model: Model::new(seed, board, at),
            durable: board.clone(),
        });
        of_board.invariants.after_step(input, step, board);
        if let Some(input) = input {
            of_board.model.requested(at, input, step);
        }
        of_board.model.after_step(input, step, board);
        of_board.durable = board.clone();
    }

    pub(super) fn released(&mut self, released: &Step) {
        self.journal.released(released);
    }

    /// Records that the gate was asked to admit a call.
    pub(super) fn asked_gate(&mut self, call: &WaitingCall, passage: &GateDecision) {
        if let Some(of_board) = &mut self.of_board {
            of_board.model.asked_gate(call, matches!(passage, GateDecision::After(_)));
        }
    }

    pub(super) fn called(&self, call: &Call, board: &Board) {
        self.invariants().seen(&call.worker, &call.prompt.user, &board.plan().mode);
    }

    /// Checks a board that was recovered from all durable records.
    pub(super) fn recovered(&self, board: &Board, records: &[Record]) {
        self.journal.recovered(board, records);
        let durable = &self.of_board.as_ref().expect("the board was made").durable;
        self.invariants().same(durable, board);
    }

    /// Checks a board that was restored from a snapshot of this one.
    pub(super) fn restored(&self, board: &Board, restored: &Board) {
        self.invariants().same(board, restored);
    }

    pub(super) fn at_the_end(&self, board: &Board, records: &[Record]) {
        self.journal.recovered(board, records);
        self.invariants().at_the_end(board, records);
    }

    fn invariants(&self) -> &Invariants {
        &self.of_board.as_ref().expect("the board was made").invariants
    }
}
