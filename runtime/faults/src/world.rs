//! One board on a virtual clock: what the kernel asks for is delivered to whoever plays its workers, and what they answer
//! comes back when they say.
//!
//! Does what the actors of the runtime do, without threads, timers and disks: the same inputs give the same records,
//! byte for byte. Owns time and order, decides nothing. As there, the board takes one input at a time, what reaches it while
//! the journal writes waits, and nothing of a step is let out before its records are durable. How long the journal takes, and
//! whether it refuses, is for whoever watches to say; where nobody does, it takes no time and refuses nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use patchboard_kernel::admission::{Admission, Waiting};
use patchboard_kernel::board::{Board, BoardError, Effect, Genesis, Input, Outcome, Step};
use patchboard_kernel::id::{InvocationId, Seq, Timestamp, WorkerName};
use patchboard_kernel::owner::{Append, Owner};
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

/// What becomes of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fate {
    /// In how many milliseconds the journal answers.
    pub after_ms: u64,
    /// Whether the records are durable then.
    pub is_written: bool,
    /// Whether the journal says that it has failed. Records can be durable all the same.
    pub is_refused: bool,
}

impl Fate {
    /// The records are durable at once.
    pub const AT_ONCE: Self = Self { after_ms: 0, is_written: true, is_refused: false };
}

/// What the gate says of a call that needs admission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Passage {
    /// It may be made now.
    Now(Admission),
    /// It may be made in so many milliseconds.
    After(u64),
}

/// Who answers a board, and who watches it.
pub trait Others {
    /// What the gate says of a call; by default every call may be made now.
    fn admits(&mut self, _at: Timestamp, _call: &Waiting) -> Passage {
        Passage::Now(Admission::default())
    }

    /// What comes of a call: nothing, one answer, or several.
    fn called(&mut self, call: Call<'_>, board: &Board) -> Vec<Delivery>;

    /// What persons answer to the question of this record.
    fn asked(&mut self, _seq: Seq, _board: &Board) -> Vec<Delivery> {
        Vec::new()
    }

    /// Hears of every input before the board does.
    fn taken(&mut self, _at: Timestamp, _input: &Input) {}

    /// What becomes of an append.
    fn appends(&mut self, _append: &Append) -> Fate {
        Fate::AT_ONCE
    }

    /// Hears of records when they are durable.
    fn wrote(&mut self, _append: &Append) {}

    /// Hears of every step that is durable, with the time it was made at and the board right after it; of the first one
    /// without an input.
    fn stepped(&mut self, _at: Timestamp, _input: Option<&Input>, _step: &Step, _board: &Board) {}

    /// Hears of whatever is let out, before anybody else does.
    fn released(&mut self, _released: &Step, _board: &Board) {}
}

/// A board, its clock, its journal, and what is on its way to it.
pub struct World {
    owner: Owner,
    now: Timestamp,
    alarm: Option<Timestamp>,
    /// By the time it is due, and in the order in which it was sent.
    due: BTreeMap<(Timestamp, u64), Input>,
    sent: u64,
    /// What has come while the journal was waited for.
    inbox: VecDeque<Input>,
    /// Calls that the gate lets through later.
    waiting: BTreeSet<(InvocationId, u32)>,
    /// What is durable.
    records: Vec<Record>,
    writing: Option<Writing>,
    has_failed: bool,
}

/// An append under way.
struct Writing {
    /// When the step was made.
    at: Timestamp,
    input: Input,
    append: Append,
    fate: Fate,
}

impl World {
    /// Makes a board and delivers its first effects. It is durable at once: without that there is none.
    ///
    /// # Errors
    /// As [`Board::create`].
    pub fn new(genesis: Genesis, plans: &dyn Plans, others: &mut impl Others) -> Result<Self, BoardError> {
        let now = genesis.at;
        let (mut board, mut step) = Board::create(genesis, plans)?;
        let (mut waiting, mut later) = (BTreeSet::new(), Vec::new());
        board.admit(now, &mut step, &mut |_, call| passage(call, now, &mut waiting, &mut later, others));
        let (id, epoch) = (board.id().clone(), board.epoch());
        let append = Append { board: id, epoch, expected: None, records: step.records.clone(), blobs: Vec::new() };
        let mut world = Self {
            owner: Owner::new(board),
            now,
            alarm: None,
            due: BTreeMap::new(),
            sent: 0,
            inbox: VecDeque::new(),
            waiting,
            records: Vec::new(),
            writing: None,
            has_failed: false,
        };
        world.write(&append, others);
        others.stepped(now, None, &step, world.board());
        later.into_iter().for_each(|delivery| world.send(delivery));
        world.release(&step, others);
        Ok(world)
    }

    /// The board; ahead of the records while the journal is writing.
    pub const fn board(&self) -> &Board {
        self.owner.board()
    }

    /// The virtual time.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// All its records that are durable.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Whether the journal has yet to answer.
    pub const fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Whether the journal has failed. The board takes nothing any more: another is to be made from what is durable.
    pub const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether the board has ended and nothing is on its way to it any more.
    pub fn is_over(&self) -> bool {
        let is_still = self.due.is_empty() && self.writing.is_none() && !self.has_failed;
        is_still && self.board().ended().is_some()
    }

    /// Lets the next thing happen: what is due first, or the alarm if that rings before, or the journal's answer if that
    /// does not come later. False if there is nothing.
    pub fn advance(&mut self, others: &mut impl Others) -> bool {
        let next = self.due.first_key_value().map(|(key, _)| *key);
        let answer = self.writing.as_ref().map(|writing| writing.at.plus_ms(writing.fate.after_ms));
        let is_first = |at: Timestamp| next.is_none_or(|(due, _)| at <= due) && self.alarm.is_none_or(|due| at <= due);
        if let Some(at) = answer.filter(|at| is_first(*at)) {
            self.now = self.now.max(at);
            self.answer(others);
            self.work(others);
            return true;
        }
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

    /// Gives the board an input now; what became of it, if that can be told at once.
    pub fn give(&mut self, input: Input, others: &mut impl Others) -> Option<Outcome> {
        if self.has_failed {
            return None;
        }
        if self.writing.is_some() {
            self.inbox.push_back(input);
            return None;
        }
        self.decide(input, others)
    }

    /// The same at a later time.
    pub fn give_at(&mut self, at: Timestamp, input: Input, others: &mut impl Others) -> Option<Outcome> {
        self.now = self.now.max(at);
        self.give(input, others)
    }

    /// Sets the clock forward. The board is given the jump before what waits for it, as by an actor that looks at its clock
    /// before each input.
    pub fn jump(&mut self, ms: u64, others: &mut impl Others) {
        self.now = self.now.plus_ms(ms);
        if !self.has_failed && self.writing.is_some() {
            self.inbox.push_front(Input::Jump { ms });
        } else {
            self.give(Input::Jump { ms }, others);
        }
    }

    /// Lets the journal answer now if it has yet to; false if it has failed then.
    pub fn answer_now(&mut self, others: &mut impl Others) -> bool {
        self.answer(others);
        self.work(others);
        !self.has_failed
    }

    /// Sends something that arrives later.
    pub fn send(&mut self, delivery: Delivery) {
        self.sent += 1;
        self.due.insert((self.now.plus_ms(delivery.after_ms), self.sent), delivery.input);
    }

    /// Puts another board in this one's place, made from its journal, or from a snapshot. What the gate was asked for stays
    /// asked for, unless the process has died ([`Self::die`]).
    pub fn replace(&mut self, board: Board) {
        self.owner = Owner::new(board);
        self.has_failed = false;
    }

    /// The process dies: nobody rings any more, what waited for the board is lost, and if `loses` all that was on its way.
    /// With `is_written` an append that was under way is durable, though nobody heard of it. Another board has to be made
    /// from the records.
    pub fn die(&mut self, loses: bool, is_written: bool, others: &mut impl Others) {
        self.alarm = None;
        self.inbox.clear();
        self.waiting.clear();
        if loses {
            self.due.clear();
        }
        if let Some(writing) = self.writing.take().filter(|_| is_written) {
            self.written(&writing, others);
        }
        self.has_failed = true;
    }

    /// Takes what has come while the journal was waited for.
    fn work(&mut self, others: &mut impl Others) {
        while self.writing.is_none()
            && !self.has_failed
            && let Some(input) = self.inbox.pop_front()
        {
            self.decide(input, others);
        }
    }

    fn decide(&mut self, input: Input, others: &mut impl Others) -> Option<Outcome> {
        let at = self.now;
        others.taken(at, &input);
        if let Input::Admit { invocation, attempt, .. } = &input {
            self.waiting.remove(&(*invocation, *attempt));
        }
        let (waiting, mut later) = (&mut self.waiting, Vec::new());
        let mut gate = |_: &Board, call: &Waiting| passage(call, at, waiting, &mut later, others);
        let decided = self.owner.decide_with(at, input.clone(), &mut gate);
        later.into_iter().for_each(|delivery| self.send(delivery));
        if let Some(released) = &decided.released {
            if decided.append.is_none() {
                others.stepped(at, Some(&input), released, self.owner.board());
            }
            self.release(released, others);
        }
        let Some(append) = decided.append else { return decided.released.and_then(|step| step.outcome) };
        let fate = others.appends(&append);
        self.writing = Some(Writing { at, input, append, fate });
        if fate.after_ms == 0 { self.answer(others) } else { None }
    }

    /// The journal answers.
    fn answer(&mut self, others: &mut impl Others) -> Option<Outcome> {
        let writing = self.writing.take()?;
        if writing.fate.is_written {
            self.written(&writing, others);
        }
        match self.owner.appended(if writing.fate.is_refused { Err(()) } else { Ok(()) }) {
            Ok(step) => {
                self.release(&step, others);
                step.outcome
            }
            Err(()) => {
                self.has_failed = true;
                self.inbox.clear();
                None
            }
        }
    }

    /// What was to be appended is durable.
    fn written(&mut self, writing: &Writing, others: &mut impl Others) {
        self.write(&writing.append, others);
        if let Some(step) = self.owner.waiting() {
            others.stepped(writing.at, Some(&writing.input), step, self.owner.board());
        }
    }

    fn write(&mut self, append: &Append, others: &mut impl Others) {
        self.records.extend(append.records.iter().cloned());
        others.wrote(append);
    }

    /// Lets out what a step made.
    fn release(&mut self, step: &Step, others: &mut impl Others) {
        let board = self.owner.board();
        others.released(step, board);
        let mut deliveries = Vec::new();
        if let Some(Outcome::AwaitingApproval { seq }) = step.outcome {
            deliveries.extend(others.asked(seq, board));
        }
        for effect in &step.effects {
            match effect {
                Effect::Call { invocation, attempt, worker, prompt, shown, timeout_ms, occurrence, .. } => {
                    let (invocation, attempt) = (*invocation, *attempt);
                    let (timeout_ms, occurrence) = (*timeout_ms, *occurrence);
                    let call = Call { invocation, attempt, worker, prompt, shown, timeout_ms, occurrence };
                    deliveries.extend(others.called(call, board));
                }
                // A call that is withdrawn may be answered all the same: the kernel must cope.
                Effect::Cancel { .. } => {}
                Effect::WakeAt(at) => self.alarm = Some(*at),
                Effect::Ended(_) => self.alarm = None,
                Effect::Await(named) => {
                    let is_named =
                        |key: &(InvocationId, u32)| named.iter().any(|call| (call.invocation, call.attempt) == *key);
                    self.waiting.retain(is_named);
                }
            }
        }
        deliveries.into_iter().for_each(|delivery| self.send(delivery));
    }
}

/// Asks the gate for a call, unless it lets that through later already.
fn passage(
    call: &Waiting,
    at: Timestamp,
    waiting: &mut BTreeSet<(InvocationId, u32)>,
    later: &mut Vec<Delivery>,
    others: &mut impl Others,
) -> Option<Admission> {
    let (invocation, attempt) = (call.invocation, call.attempt);
    if waiting.contains(&(invocation, attempt)) {
        return None;
    }
    match others.admits(at, call) {
        Passage::Now(admission) => Some(admission),
        Passage::After(after_ms) => {
            waiting.insert((invocation, attempt));
            let admission = Admission::default();
            later.push(Delivery { after_ms, input: Input::Admit { invocation, attempt, admission } });
            None
        }
    }
}
