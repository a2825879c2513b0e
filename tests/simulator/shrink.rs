//! A failure by its seed, and the fewest inputs that bring it about.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::Once;

use patchboard_kernel::board::{Board, Input};
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::plan::Own;

use super::invariants::Invariants;
use super::model::Model;
use super::world::{Simulation, genesis};

/// Runs of a board that looking for the shortest trace may take.
const RUNS_MAX: usize = 400;

/// Something that happened to a board.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// It was given an input.
    Given(Timestamp, Input),
    /// Its process died, and another rebuilt it from the journal.
    Crashed,
}

/// What has happened so far, shared with whoever looks at it after a panic.
pub(super) type History = Rc<RefCell<Vec<Event>>>;

/// What is wrong with a board.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) seed: u64,
    pub(super) message: String,
    /// How many events there were.
    pub(super) of: usize,
    /// The fewest that were found to bring it about; none if the same events, given again, do not.
    pub(super) shortest: Option<Vec<Event>>,
}

impl Failure {
    /// For people.
    pub(super) fn told(&self) -> String {
        let Self { seed, message, of, shortest } = self;
        let Some(shortest) = shortest else {
            return format!(
                "{message}\nits {of} inputs alone do not bring it about, so there is no shorter trace \
                 (SIMULATOR_SEED={seed} prints all)\n"
            );
        };
        let mut told = format!(
            "{message}\n{} of {of} inputs bring it about (SIMULATOR_SEED={seed} prints all):\n",
            shortest.len()
        );
        for event in shortest {
            let _ = match event {
                Event::Given(at, input) => writeln!(told, "  {} {input:?}", at.0),
                Event::Crashed => writeln!(told, "  the process dies"),
            };
        }
        told
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

/// The events without those that it fails without in the same way, too (ddmin: Zeller and Hildebrandt, 2002).
fn shortest(seed: u64, mut events: Vec<Event>, message: &str) -> Option<Vec<Event>> {
    let due = manner(message);
    let fails = |events: &[Event]| caught(|| play(seed, events)).is_err_and(|message| manner(&message) == due);
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
        // What could not go may go once others have gone.
        if chunk > 1 || events.len() == before {
            chunk /= 2;
        }
    }
    Some(events)
}

/// What is wrong, whatever it is wrong with: the beginning of a message up to what was found, without its numbers.
pub(super) fn manner(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let words = first.split([':', ',', ';']).take(3).collect::<Vec<_>>().join(":");
    words.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Gives a board these events, and checks it after each.
fn play(seed: u64, events: &[Event]) {
    let (mut board, first) = Board::create(genesis(seed), &Own).expect("the request fits");
    let (mut invariants, mut model) = (Invariants::new(seed, &board), Model::new(seed, &board, genesis(seed).at));
    let mut records = first.records.clone();
    invariants.after_step(None, &first, &board);
    model.after_step(None, &first, &board);
    for event in events {
        match event {
            Event::Given(at, input) => {
                let step = board.step(*at, input.clone());
                records.extend(step.records.iter().cloned());
                invariants.after_step(Some(input), &step, &board);
                model.after_step(Some(input), &step, &board);
            }
            Event::Crashed => {
                let recovered = Board::recover(&records).expect("the journal is enough");
                invariants.same(&board, &recovered);
                board = recovered;
            }
        }
    }
    if board.ended().is_some() {
        invariants.at_the_end(&board, &records);
    }
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// What this returns, or what it panicked with, which nobody else is told.
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
fn failures_are_the_same_whatever_their_numbers_and_what_cannot_be_played_again_is_told() {
    let at_once = |seed: u64, calls: u64| manner(&format!("SEED={seed}: {calls} calls at once"));
    assert_eq!(at_once(3, 4), at_once(17, 5));
    assert_ne!(at_once(3, 4), manner("SEED=3: 4 calls too few"));
    let failure = Failure { seed: 3, message: "SEED=3: odd".to_owned(), of: 9, shortest: None };
    assert!(failure.told().contains("its 9 inputs alone do not bring it about"), "{}", failure.told());
}
