//! One board on a virtual clock: what the kernel asks for is delivered to whoever plays its workers, and what they answer
//! comes back when they say.
//!
//! Does what the actors of the runtime do, without threads, timers and disks: the same inputs give the same records,
//! byte for byte. Owns time and order, decides nothing.

use std::collections::BTreeMap;

use patchboard_kernel::board::{Board, BoardError, Effect, Genesis, Input, Outcome, Step};
use patchboard_kernel::id::{InvocationId, Seq, Timestamp, WorkerName};
use patchboard_kernel::plan::Plans;
use patchboard_kernel::record::Record;
use patchboard_kernel::shown::Shown;
use patchboard_kernel::view::Prompt;

/// A call of a worker's agent.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The invocation.
    pub invocation: InvocationId,
    /// Which attempt of it.
    pub attempt: u32,
    /// Whom.
    pub worker: &'a WorkerName,
    /// What it is shown.
    pub prompt: &'a Prompt,
    /// The same as values.
    pub shown: &'a Shown,
    /// The time it has, in milliseconds.
    pub timeout_ms: u64,
    /// How many attempts the worker had before, without those that reached nobody.
    pub occurrence: u32,
}

/// Something that reaches the board later.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// In how many milliseconds.
    pub after_ms: u64,
    /// What.
    pub input: Input,
}

/// Who answers a board, and who watches it.
pub trait Others {
    /// What comes of a call: nothing, one answer, or several.
    fn called(&mut self, call: Call<'_>, board: &Board) -> Vec<Delivery>;

    /// What persons answer to the question of this record.
    fn asked(&mut self, _seq: Seq, _board: &Board) -> Vec<Delivery> {
        Vec::new()
    }

    /// Hears of every step, made at this time; of the first one without an input.
    fn stepped(&mut self, _at: Timestamp, _input: Option<&Input>, _step: &Step, _board: &Board) {}
}

/// A board, its clock, and what is on its way to it.
pub struct World {
    board: Board,
    now: Timestamp,
    alarm: Option<Timestamp>,
    /// By the time it is due, and in the order in which it was sent.
    due: BTreeMap<(Timestamp, u64), Input>,
    sent: u64,
    records: Vec<Record>,
}

impl World {
    /// Makes a board and delivers its first effects.
    ///
    /// # Errors
    /// As [`Board::create`].
    pub fn new(genesis: Genesis, plans: &dyn Plans, others: &mut impl Others) -> Result<Self, BoardError> {
        let now = genesis.at;
        let (board, step) = Board::create(genesis, plans)?;
        let mut world = Self { board, now, alarm: None, due: BTreeMap::new(), sent: 0, records: Vec::new() };
        world.settle(None, step, others);
        Ok(world)
    }

    /// The board.
    pub const fn board(&self) -> &Board {
        &self.board
    }

    /// The virtual time.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// All its records.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Whether the board has ended and nothing is on its way to it any more.
    pub fn is_over(&self) -> bool {
        self.board.ended().is_some() && self.due.is_empty()
    }

    /// Lets the next thing happen: what is due first, or the alarm if that rings before. False if there is nothing.
    pub fn advance(&mut self, others: &mut impl Others) -> bool {
        let next = self.due.first_key_value().map(|(key, _)| *key);
        match (next, self.alarm) {
            (next, Some(alarm)) if next.is_none_or(|(due, _)| alarm < due) => {
                self.now = self.now.max(alarm);
                self.alarm = None;
                self.give(Input::Tick, others);
            }
            (Some(key), _) => {
                self.now = self.now.max(key.0);
                if let Some(input) = self.due.remove(&key) {
                    self.give(input, others);
                }
            }
            (None, _) => return false,
        }
        true
    }

    /// Gives the board an input now.
    pub fn give(&mut self, input: Input, others: &mut impl Others) -> Option<Outcome> {
        let step = self.board.step(self.now, input.clone());
        let outcome = step.outcome.clone();
        self.settle(Some(input), step, others);
        outcome
    }

    /// Sends something that arrives later.
    pub fn send(&mut self, delivery: Delivery) {
        self.sent += 1;
        self.due.insert((self.now.plus_ms(delivery.after_ms), self.sent), delivery.input);
    }

    /// Puts another board in this one's place, which knows the same: made from its journal, or from a snapshot.
    pub fn replace(&mut self, board: Board) {
        self.board = board;
    }

    /// The process dies: nobody rings any more, and if `loses` nothing that was on its way arrives.
    pub fn forget(&mut self, loses: bool) {
        self.alarm = None;
        if loses {
            self.due.clear();
        }
    }

    fn settle(&mut self, input: Option<Input>, step: Step, others: &mut impl Others) {
        self.records.extend(step.records.iter().cloned());
        others.stepped(self.now, input.as_ref(), &step, &self.board);
        let mut deliveries = Vec::new();
        if let Some(Outcome::AwaitingApproval { seq }) = step.outcome {
            deliveries.extend(others.asked(seq, &self.board));
        }
        for effect in &step.effects {
            match effect {
                Effect::Call { invocation, attempt, worker, prompt, shown, timeout_ms, occurrence, .. } => {
                    let (invocation, attempt) = (*invocation, *attempt);
                    let (timeout_ms, occurrence) = (*timeout_ms, *occurrence);
                    let call = Call { invocation, attempt, worker, prompt, shown, timeout_ms, occurrence };
                    deliveries.extend(others.called(call, &self.board));
                }
                // A call that is withdrawn may be answered all the same: the kernel must cope.
                Effect::Cancel { .. } => {}
                Effect::WakeAt(at) => self.alarm = Some(*at),
                Effect::Ended(_) => self.alarm = None,
            }
        }
        deliveries.into_iter().for_each(|delivery| self.send(delivery));
    }
}
