//! A board on a virtual clock. The kernel's calls go to the [`SimulationHooks`] that play its workers, and their
//! replies arrive after the delays that they name.
//!
//! Does the work of the runtime's actors without threads, timers and disks: the same inputs give the same records, byte
//! for byte. Owns time and order, decides nothing. The board handles one input at a time, and inputs during a journal
//! write wait. A step's effects are released only after its records are durable. The watcher decides how long an append
//! takes and if it fails; by default appends are immediate and succeed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use patchboard_kernel::admission::{Admission, WaitingCall};
use patchboard_kernel::board::{Board, BoardError, Call, Effects, Input, NewBoard, Outcome, Step};
use patchboard_kernel::driver::{Batch, Driver};
use patchboard_kernel::id::{InvocationId, Seq, Timestamp};
use patchboard_kernel::plan::PlanSource;
use patchboard_kernel::record::Record;

/// An input that reaches the board later.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Delay in milliseconds.
    pub after_ms: u64,
    /// The input.
    pub input: Input,
}

/// Outcome of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendOutcome {
    /// Delay of the journal's answer, in milliseconds.
    pub after_ms: u64,
    /// True if the records are durable then.
    pub is_written: bool,
    /// True if the journal reports a failure. Records can be durable despite it.
    pub is_failed: bool,
}

impl AppendOutcome {
    /// The records are durable at once.
    pub const IMMEDIATE: Self = Self { after_ms: 0, is_written: true, is_failed: false };
}

/// Decision of the gate about a call that needs admission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GateDecision {
    /// The call may be made now.
    Now(Admission),
    /// The call may be made after this many milliseconds.
    After(u64),
}

/// Players of a board's workers and persons, and watchers of its steps.
pub trait SimulationHooks {
    /// Decides the admission of a call; by default every call may be made now.
    fn admit(&mut self, _at: Timestamp, _call: &WaitingCall) -> GateDecision {
        GateDecision::Now(Admission::default())
    }

    /// Plays a call: returns no reply, one, or several.
    fn on_call(&mut self, call: &Call, board: &Board) -> Vec<Delivery>;

    /// Returns the persons' answers to the question of this record.
    fn answer_question(&mut self, _seq: Seq, _board: &Board) -> Vec<Delivery> {
        Vec::new()
    }

    /// Observes every input before the board handles it.
    fn before_input(&mut self, _at: Timestamp, _input: &Input) {}

    /// Decides the outcome of an append.
    fn append_outcome(&mut self, _append: &Batch) -> AppendOutcome {
        AppendOutcome::IMMEDIATE
    }

    /// Observes records when they are durable.
    fn on_durable(&mut self, _append: &Batch) {}

    /// Observes every durable step, with its time and the board right after it. The first step has no input.
    fn on_step(&mut self, _at: Timestamp, _input: Option<&Input>, _step: &Step, _board: &Board) {}

    /// Observes every released step, before its effects are delivered.
    fn on_release(&mut self, _released: &Step, _board: &Board) {}
}

/// A board with its clock, its journal, and the inputs on their way to it.
pub struct SimulatedBoard {
    owner: Driver,
    now: Timestamp,
    alarm: Option<Timestamp>,
    /// Inputs by due time, and in the order in which they were sent.
    due: BTreeMap<(Timestamp, u64), Input>,
    sent: u64,
    /// Inputs that arrived during a journal write.
    inbox: VecDeque<Input>,
    /// Calls that the gate admits later.
    waiting: BTreeSet<(InvocationId, u32)>,
    /// Durable records.
    records: Vec<Record>,
    writing: Option<PendingAppend>,
    has_failed: bool,
}

struct PendingAppend {
    at: Timestamp,
    input: Input,
    append: Batch,
    fate: AppendOutcome,
}

impl SimulatedBoard {
    /// Creates a board and delivers its first effects. The first records are durable at once.
    pub fn new(
        genesis: NewBoard,
        plans: &dyn PlanSource,
        others: &mut impl SimulationHooks,
    ) -> Result<Self, BoardError> {
        let now = genesis.at;
        let (mut board, mut step) = Board::create(genesis, plans)?;
        let (mut waiting, mut later) = (BTreeSet::new(), Vec::new());
        board.admit(now, &mut step, &mut |_, call| passage(call, now, &mut waiting, &mut later, others));
        let (id, epoch) = (board.id().clone(), board.epoch());
        let append = Batch { board: id, epoch, expected: None, records: step.records.clone(), blobs: Vec::new() };
        let mut world = Self {
            owner: Driver::new(board),
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
        others.on_step(now, None, &step, world.board());
        later.into_iter().for_each(|delivery| world.send(delivery));
        world.release(&step, others);
        Ok(world)
    }

    /// Returns the board; ahead of the records during a journal write.
    pub const fn board(&self) -> &Board {
        self.owner.board()
    }

    /// Returns the virtual time.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns all durable records.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns true during a journal write.
    pub const fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Returns true if the journal has failed. The board then handles no inputs; restore another from the durable
    /// records.
    pub const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns true if the board has ended and no inputs are on their way to it.
    pub fn is_over(&self) -> bool {
        let is_still = self.due.is_empty() && self.writing.is_none() && !self.has_failed;
        is_still && self.board().ended().is_some()
    }

    /// Processes the next event: the first due input, an earlier alarm, or the journal's answer if it is not later.
    /// Returns false if there is none.
    pub fn advance(&mut self, others: &mut impl SimulationHooks) -> bool {
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
                self.submit(Input::Tick, others);
            }
            (Some(key), _) => {
                self.now = self.now.max(key.0);
                if let Some(input) = self.due.remove(&key) {
                    self.submit(input, others);
                }
            }
            (None, _) => return false,
        }
        true
    }

    /// Gives the board an input now. Returns the outcome if it is known at once.
    pub fn submit(&mut self, input: Input, others: &mut impl SimulationHooks) -> Option<Outcome> {
        if self.has_failed {
            return None;
        }
        if self.writing.is_some() {
            self.inbox.push_back(input);
            return None;
        }
        self.decide(input, others)
    }

    /// Gives the board an input at a later time; see [`Self::submit`].
    pub fn submit_at(&mut self, at: Timestamp, input: Input, others: &mut impl SimulationHooks) -> Option<Outcome> {
        self.now = self.now.max(at);
        self.submit(input, others)
    }

    /// Sets the clock forward. The board handles the jump before queued inputs, as with an actor that checks its clock
    /// before each input.
    pub fn jump(&mut self, ms: u64, others: &mut impl SimulationHooks) {
        self.now = self.now.plus_ms(ms);
        if !self.has_failed && self.writing.is_some() {
            self.inbox.push_front(Input::ClockJump { ms });
        } else {
            self.submit(Input::ClockJump { ms }, others);
        }
    }

    /// Makes the journal answer now if it is writing; returns false if it has failed.
    pub fn complete_append(&mut self, others: &mut impl SimulationHooks) -> bool {
        self.answer(others);
        self.work(others);
        !self.has_failed
    }

    /// Sends an input that arrives later.
    pub fn send(&mut self, delivery: Delivery) {
        self.sent += 1;
        self.due.insert((self.now.plus_ms(delivery.after_ms), self.sent), delivery.input);
    }

    /// Replaces the board with another, restored from its journal or from a snapshot. Pending admissions remain, unless
    /// the process has died ([`Self::crash`]).
    pub fn replace(&mut self, board: Board) {
        self.owner = Driver::new(board);
        self.has_failed = false;
    }

    /// Simulates the death of the process: the alarm, queued inputs and pending admissions are lost, and with `loses`
    /// also the inputs on their way. With `is_written`, an append in progress is durable but not acknowledged. Another
    /// board must then be restored from the records.
    pub fn crash(&mut self, loses: bool, is_written: bool, others: &mut impl SimulationHooks) {
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

    /// Handles the inputs that arrived during a journal write.
    fn work(&mut self, others: &mut impl SimulationHooks) {
        while self.writing.is_none()
            && !self.has_failed
            && let Some(input) = self.inbox.pop_front()
        {
            self.decide(input, others);
        }
    }

    fn decide(&mut self, input: Input, others: &mut impl SimulationHooks) -> Option<Outcome> {
        let at = self.now;
        others.before_input(at, &input);
        if let Input::Admit { invocation, attempt, .. } = &input {
            self.waiting.remove(&(*invocation, *attempt));
        }
        let (waiting, mut later) = (&mut self.waiting, Vec::new());
        let mut gate = |_: &Board, call: &WaitingCall| passage(call, at, waiting, &mut later, others);
        let decided = self.owner.decide_with(at, input.clone(), &mut gate);
        later.into_iter().for_each(|delivery| self.send(delivery));
        if let Some(released) = &decided.released {
            if decided.append.is_none() {
                others.on_step(at, Some(&input), released, self.owner.board());
            }
            self.release(released, others);
        }
        let Some(append) = decided.append else { return decided.released.and_then(|step| step.outcome) };
        let fate = others.append_outcome(&append);
        self.writing = Some(PendingAppend { at, input, append, fate });
        if fate.after_ms == 0 { self.answer(others) } else { None }
    }

    /// Completes the journal write.
    fn answer(&mut self, others: &mut impl SimulationHooks) -> Option<Outcome> {
        let writing = self.writing.take()?;
        if writing.fate.is_written {
            self.written(&writing, others);
        }
        match self.owner.complete_append(if writing.fate.is_failed { Err(()) } else { Ok(()) }) {
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

    /// Records that the append is durable.
    fn written(&mut self, writing: &PendingAppend, others: &mut impl SimulationHooks) {
        self.write(&writing.append, others);
        if let Some(step) = self.owner.in_flight() {
            others.on_step(writing.at, Some(&writing.input), step, self.owner.board());
        }
    }

    fn write(&mut self, append: &Batch, others: &mut impl SimulationHooks) {
        self.records.extend(append.records.iter().cloned());
        others.on_durable(append);
    }

    fn release(&mut self, step: &Step, others: &mut impl SimulationHooks) {
        let board = self.owner.board();
        others.on_release(step, board);
        let mut deliveries = Vec::new();
        if let Some(Outcome::AwaitingApproval { seq }) = step.outcome {
            deliveries.extend(others.answer_question(seq, board));
        }
        // A cancelled call may be answered nevertheless: the kernel must cope.
        let Effects { calls, cancellations: _, awaiting_admission, wake_at, ended } = &step.effects;
        for call in calls {
            deliveries.extend(others.on_call(call, board));
        }
        if let Some(named) = awaiting_admission {
            let is_named = |key: &(InvocationId, u32)| named.iter().any(|call| (call.invocation, call.attempt) == *key);
            self.waiting.retain(is_named);
        }
        if ended.is_some() {
            self.alarm = None;
        }
        self.alarm = wake_at.or(self.alarm);
        deliveries.into_iter().for_each(|delivery| self.send(delivery));
    }
}

/// Asks the gate to admit a call, unless a later admission is already scheduled.
fn passage(
    call: &WaitingCall,
    at: Timestamp,
    waiting: &mut BTreeSet<(InvocationId, u32)>,
    later: &mut Vec<Delivery>,
    others: &mut impl SimulationHooks,
) -> Option<Admission> {
    let (invocation, attempt) = (call.invocation, call.attempt);
    if waiting.contains(&(invocation, attempt)) {
        return None;
    }
    match others.admit(at, call) {
        GateDecision::Now(admission) => Some(admission),
        GateDecision::After(after_ms) => {
            waiting.insert((invocation, attempt));
            let admission = Admission::default();
            later.push(Delivery { after_ms, input: Input::Admit { invocation, attempt, admission } });
            None
        }
    }
}
