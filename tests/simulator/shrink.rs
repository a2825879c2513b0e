//! Reproduction of a failure by its seed, and the fewest inputs that reproduce it.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::Once;

use patchboard_faults::simulation::{AppendOutcome, Delivery, GateDecision, SimulatedBoard, SimulationHooks};
use patchboard_kernel::admission::WaitingCall;
use patchboard_kernel::board::{Board, Call, Input, Step};
use patchboard_kernel::driver::Batch;
use patchboard_kernel::id::Timestamp;
use patchboard_protocols::PLANS;

use super::checks::Checks;
use super::outages::Outages;
use super::plans::Shared;
use super::world::{Simulation, genesis};

/// Maximum number of runs in the search for the shortest trace.
const RUNS_MAX: usize = 250;

/// An event of a board.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// An input, and the fate of its records, unless the process died before.
    Given(Timestamp, Box<Input>, AppendOutcome),
    /// A crash, with recovery from the journal. The flag says if the records being written, if any, survive.
    Crashed(Option<bool>),
}

/// Events so far, shared with the code that reports a panic.
pub(super) type History = Rc<RefCell<Vec<Event>>>;

/// Failure of a board.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) seed: u64,
    pub(super) message: String,
    /// Total number of events.
    pub(super) of: usize,
    /// Fewest events that reproduce it; `None` if the events, played again, do not.
    pub(super) shortest: Option<Vec<Event>>,
}

impl Failure {
    /// Formats the failure for people.
    pub(super) fn describe(&self) -> String {
        let Self { seed, message, of, shortest } = self;
        let Some(shortest) = shortest else {
            return format!(
                "{message}\nits {of} inputs alone do not bring it about, so there is no shorter trace \
                 (SIMULATOR_SEED={seed} prints all)\n"
            );
        };
        let mut text = format!(
            "{message}\n{} of {of} inputs bring it about (SIMULATOR_SEED={seed} prints all):\n",
            shortest.len()
        );
        for event in shortest {
            let _ = match event {
                Event::Given(at, input, fate) if *fate == AppendOutcome::IMMEDIATE => {
                    writeln!(text, "  {} {input:?}", at.0)
                }
                Event::Given(at, input, fate) => writeln!(text, "  {} {input:?}, {fate:?}", at.0),
                Event::Crashed(None) => writeln!(text, "  the board is made from its journal"),
                Event::Crashed(Some(true)) => writeln!(text, "  the process dies, and the records are written"),
                Event::Crashed(Some(false)) => writeln!(text, "  the process dies, and the records are not written"),
            };
        }
        text
    }
}

/// Runs the board of a seed.
pub(super) fn simulate(seed: u64, trace: bool) -> Result<Simulation, Failure> {
    let history = History::default();
    let run = || {
        let mut simulation = Simulation::new(seed, trace, Rc::clone(&history));
        simulation.run();
        simulation
    };
    caught(run).map_err(|message| {
        let all = history.take();
        let shortest = shortest(seed, all.clone(), &message);
        Failure { seed, message, of: all.len(), shortest }
    })
}

/// Removes events as long as the failure stays of the same kind (ddmin: Zeller and Hildebrandt, 2002).
fn shortest(seed: u64, mut events: Vec<Event>, message: &str) -> Option<Vec<Event>> {
    let due = manner(message);
    let plans = Shared::default();
    let fails = |events: &[Event]| caught(|| play(seed, &plans, events)).is_err_and(|message| manner(&message) == due);
    if !fails(&events) {
        return None;
    }
    let mut runs = 0;
    let mut chunk = events.len() / 2;
    while chunk > 0 && runs < RUNS_MAX {
        let (mut at, before) = (0, events.len());
        while at < events.len() && runs < RUNS_MAX {
            let mut fewer = events.clone();
            fewer.drain(at..events.len().min(at + chunk));
            runs += 1;
            if fails(&fewer) {
                events = fewer;
            } else {
                at += chunk;
            }
        }
        // Events that could not be removed may be removable after others.
        if chunk > 1 || events.len() == before {
            chunk /= 2;
        }
    }
    Some(events)
}

/// Returns the kind of a failure: the beginning of its message, without values and numbers.
pub(super) fn manner(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let words = first.split([':', ',', ';']).take(3).collect::<Vec<_>>().join(":");
    words.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Plays events on a board, and checks it after each.
fn play(seed: u64, plans: &Shared, events: &[Event]) {
    let genesis = genesis(seed);
    let outages = Outages::of(seed, genesis.at);
    let mut replay = Replay { checks: Checks::new(seed), outages, fate: AppendOutcome::IMMEDIATE };
    let mut world = SimulatedBoard::new(genesis, plans, &mut replay).expect("the request fits");
    for event in events {
        match event {
            Event::Given(at, input, fate) => {
                if world.is_writing() && !world.complete_append(&mut replay) {
                    recover(&mut world, false, &mut replay);
                }
                replay.fate = *fate;
                world.submit_at(*at, Input::clone(input), &mut replay);
            }
            Event::Crashed(Some(is_written)) => recover(&mut world, *is_written, &mut replay),
            Event::Crashed(None) => {
                world.complete_append(&mut replay);
                recover(&mut world, false, &mut replay);
            }
        }
    }
    if world.is_writing() {
        world.complete_append(&mut replay);
    }
    if world.is_over() {
        replay.checks.at_the_end(world.board(), world.records());
    }
}

fn recover(world: &mut SimulatedBoard, is_written: bool, replay: &mut Replay) {
    world.crash(true, is_written, replay);
    let recovered = Board::recover(world.records(), &PLANS).expect("the journal is enough");
    replay.checks.recovered(&recovered, world.records());
    world.replace(recovered);
}

/// Replays answers and the disk's outcomes from the events.
struct Replay {
    checks: Checks,
    outages: Outages,
    fate: AppendOutcome,
}

impl SimulationHooks for Replay {
    fn admit(&mut self, at: Timestamp, call: &WaitingCall) -> GateDecision {
        let passage = self.outages.passage(at, call);
        self.checks.asked_gate(call, &passage);
        passage
    }

    fn on_call(&mut self, call: &Call, board: &Board) -> Vec<Delivery> {
        self.checks.called(call, board);
        Vec::new()
    }

    fn append_outcome(&mut self, _: &Batch) -> AppendOutcome {
        self.fate
    }

    fn on_durable(&mut self, append: &Batch) {
        self.checks.wrote(append);
    }

    fn on_step(&mut self, at: Timestamp, input: Option<&Input>, step: &Step, board: &Board) {
        self.checks.stepped(at, input, step, board);
    }

    fn on_release(&mut self, released: &Step, _: &Board) {
        self.checks.released(released);
    }
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Returns the result of `run`, or the message of its panic, which is not printed.
pub(super) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                usual(info);
            }
        }));
    });
    let was_quiet = IS_QUIET.replace(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(run));
    IS_QUIET.set(was_quiet);
    outcome.map_err(|panicked| {
        let text = panicked.downcast_ref::<String>().cloned();
        text.or_else(|| panicked.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

#[test]
fn failures_are_the_same_whatever_their_numbers_and_what_cannot_be_played_again_is_reported() {
    let at_once = |seed: u64, calls: u64| manner(&format!("SEED={seed}: {calls} calls at once"));
    assert_eq!(at_once(3, 4), at_once(17, 5));
    assert_ne!(at_once(3, 4), manner("SEED=3: 4 calls too few"));
    let failure = Failure { seed: 3, message: "SEED=3: odd".to_owned(), of: 9, shortest: None };
    assert!(failure.describe().contains("its 9 inputs alone do not bring it about"), "{}", failure.describe());
}
