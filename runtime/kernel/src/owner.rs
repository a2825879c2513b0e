//! A board with the order that durability demands: step, append, and only then let anybody see what came of it.
//!
//! Owns what a step made until the journal has answered. Does not append anything: that is the shell's, as is what is
//! done with what is let out. The kernel actor of the runtime and the boards on a virtual clock go through here, so what
//! the simulator finds out about it holds for both.

use crate::admission::Gate;
use crate::board::{Blob, Board, Input, Step};
use crate::digest::Digest;
use crate::id::{BoardId, Seq, Timestamp};
use crate::planted::{self, Bug};
use crate::record::{Principal, Record};

/// A board and what of it is not durable yet.
pub struct Owner {
    board: Board,
    /// The step that the journal has not answered for.
    waiting: Option<Step>,
}

/// What comes of an input.
#[derive(Debug, Default)]
pub struct Decided {
    /// To append. What the step made is let out when [`Owner::appended`] has been told of the answer.
    pub append: Option<Append>,
    /// Let out at once: a step without records has nothing to wait for.
    pub released: Option<Step>,
}

/// Records to append together, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Append {
    /// The board.
    pub board: BoardId,
    /// The epoch of its owner.
    pub epoch: u64,
    /// Number and hash of the record that these follow; none: there must be no such board.
    pub expected: Option<(Seq, Digest)>,
    /// In order; not empty.
    pub records: Vec<Record>,
    /// Texts that the records name by hash.
    pub blobs: Vec<Blob>,
}

impl Owner {
    /// Of a board of which everything is durable.
    pub const fn new(board: Board) -> Self {
        Self { board, waiting: None }
    }

    /// The board. It is ahead of the journal while an append is waited for.
    pub const fn board(&self) -> &Board {
        &self.board
    }

    /// The step that an append is waited for.
    pub const fn waiting(&self) -> Option<&Step> {
        self.waiting.as_ref()
    }

    /// Gives the board an input. The calls that it names wait for admission.
    ///
    /// # Panics
    /// If the journal has not answered for the last one, or has refused it: the board is ahead of the journal then, and
    /// another is to be made from it.
    pub fn decide(&mut self, at: Timestamp, input: Input) -> Decided {
        self.decide_with(at, input, &mut |_, _| None)
    }

    /// Gives the board an input, and with it the calls that the gate admits at once: one append for all of it.
    ///
    /// # Panics
    /// As [`Owner::decide`].
    pub fn decide_with(&mut self, at: Timestamp, input: Input, gate: &mut Gate<'_>) -> Decided {
        self.decide_by(at, input, None, gate)
    }

    /// The same for an input that a caller caused from outside.
    ///
    /// # Panics
    /// As [`Owner::decide`].
    pub fn decide_by(
        &mut self,
        at: Timestamp,
        input: Input,
        principal: Option<Principal>,
        gate: &mut Gate<'_>,
    ) -> Decided {
        assert!(self.waiting.is_none(), "a board takes no input while it is ahead of its journal");
        let expected = Some(self.board.head());
        let mut step = self.board.step_by(at, input, principal);
        self.board.admit(at, &mut step, gate);
        if step.records.is_empty() {
            return Decided { append: None, released: Some(step) };
        }
        let append = Append {
            board: self.board.id().clone(),
            epoch: self.board.epoch(),
            expected,
            records: step.records.clone(),
            blobs: std::mem::take(&mut step.blobs),
        };
        let released = early(&mut step);
        self.waiting = Some(step);
        Decided { append: Some(append), released }
    }

    /// The journal has answered: with `Ok` the records are durable, and what the step made is let out.
    ///
    /// # Errors
    /// The journal's. Whether the records are durable all the same is not known: the board has to go, and another is to
    /// be made from the journal.
    pub fn appended<E>(&mut self, answer: Result<(), E>) -> Result<Step, E> {
        match answer {
            Err(error) if !planted::is(Bug::RefusalOverheard) => Err(error),
            Ok(()) | Err(_) => Ok(self.waiting.take().unwrap_or_default()),
        }
    }
}

/// What is let out before its records are durable: nothing, unless that bug is switched on.
fn early(step: &mut Step) -> Option<Step> {
    if planted::is(Bug::EarlyEffects) && !step.effects.is_empty() {
        return Some(Step { effects: std::mem::take(&mut step.effects), ..Step::default() });
    }
    if planted::is(Bug::EarlyWord) && step.outcome.is_some() {
        return Some(Step { outcome: step.outcome.take(), ..Step::default() });
    }
    None
}
