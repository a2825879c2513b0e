//! What an agent asks for, and what it knows when it does.
//!
//! An agent may ask for several things at once. What it is told of the first it did not know when it asked for the second,
//! so an edit is not held against that, but against what was known when it was asked for. What was known after each of the
//! last answers is kept for that ([`Bases`]). Who can tell which answers it had heard says so ([`Order`]); of who does not,
//! it is assumed that it heard all that had been answered when it asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use patchboard_kernel::files::{Entry, FilePath, Move};
use patchboard_kernel::record::Principal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::reads::Reads;
use super::Session;
use crate::tools::ROOM_MAX;

/// Answers of which it is kept what was known after them; who had heard none of these knows what was known after the oldest.
/// There are more than an agent of `patchboard mcp` can ask for before it hears one.
const KEPT_MAX: usize = 128;

/// What an agent asks for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The arguments of the editor.
    pub arguments: Value,
    /// What makes a repetition of an edit one.
    pub key: Option<String>,
    /// Characters that it can be told.
    pub room: usize,
    /// When it asked, if it says so.
    pub order: Option<Order>,
    /// What it had read when it asked; what it has read by now, if nothing is said.
    pub basis: Option<Basis>,
    /// The caller from outside who asks; none for a worker that the runtime calls.
    pub principal: Option<Principal>,
}

impl From<Value> for Asked {
    fn from(arguments: Value) -> Self {
        Self { arguments, key: None, room: ROOM_MAX, order: None, basis: None, principal: None }
    }
}

/// When something was asked for, by the numbers that an agent gives to what it asks for. Each is larger than those before, and
/// it is answered in their order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The number of this.
    pub number: u64,
    /// The last whose answer it had heard by then.
    pub heard: u64,
    /// Those before this one whose answers it will not hear.
    #[serde(default)]
    pub unheard: Vec<u64>,
}

/// What an agent had read when it asked for something. Its own edits since belong to it.
#[derive(Clone, Debug)]
pub struct Basis {
    reads: Arc<Mutex<Reads>>,
    /// Whether it had read something before that is not known, and had not been told so.
    is_lost: bool,
}

impl Basis {
    fn of(reads: Reads, is_lost: bool) -> Self {
        Self { reads: Arc::new(Mutex::new(reads)), is_lost }
    }

    pub(super) fn reads(&self) -> Reads {
        lock(&self.reads).clone()
    }

    pub(super) const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether somebody has asked then who is not answered yet.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.reads) > 1
    }
}

/// An own edit of a file.
#[derive(Clone, Copy)]
pub(super) struct Wrote<'a> {
    pub(super) path: &'a FilePath,
    pub(super) before: Option<&'a Entry>,
    pub(super) moves: &'a [Move],
    pub(super) version: u64,
    pub(super) text: Option<&'a Arc<str>>,
}

impl Wrote<'_> {
    pub(super) fn note(self, reads: &mut Reads) {
        reads.wrote(self.path, self.before, self.moves, self.version, self.text);
    }
}

/// What an agent knew after each of the last answers, by their numbers, for whoever asks in its name, also while something
/// else is done for it. There always is one.
#[derive(Clone, Debug)]
pub struct Bases(Arc<Mutex<BTreeMap<u64, Basis>>>);

impl Bases {
    /// Those of an agent that was told nothing yet; `is_lost`: here.
    pub(super) fn new(is_lost: bool) -> Self {
        Self(Arc::new(Mutex::new(BTreeMap::from([(0, Basis::of(Reads::default(), is_lost))]))))
    }

    /// What is known to who asks now.
    pub fn now(&self) -> Basis {
        self.after(u64::MAX)
    }

    /// What is known to who has heard this answer, and none after it. What was known before that nobody needs any more.
    pub fn after(&self, heard: u64) -> Basis {
        let mut told = lock(&self.0);
        let found = told.range(..=heard).next_back().or_else(|| told.first_key_value());
        let (number, basis) =
            found.map_or_else(|| (0, Basis::of(Reads::default(), true)), |(at, it)| (*at, it.clone()));
        told.retain(|at, basis| *at >= number || basis.is_in_use());
        basis
    }

    /// What is known after an answer; its number, which is this if the agent gave it one. Only those that may be asked about
    /// with the next answer keep the texts that refusals compare with.
    pub(super) fn told(&self, number: Option<u64>, reads: &Reads) -> u64 {
        let mut told = lock(&self.0);
        if let Some((_, before)) = told.last_key_value().filter(|(_, before)| !before.is_in_use()) {
            lock(&before.reads).drop_texts();
        }
        let last = told.last_key_value().map_or(0, |(last, _)| *last);
        let number = number.map_or(last.saturating_add(1), |number| number.max(last));
        told.insert(number, Basis::of(reads.clone(), false));
        if told.len() > KEPT_MAX {
            told.pop_first();
        }
        number
    }

    /// Who asked before an own edit knows of it as well.
    pub(super) fn wrote(&self, wrote: Wrote<'_>) {
        lock(&self.0).values().for_each(|basis| wrote.note(&mut lock(&basis.reads)));
    }

    /// Takes back an answer; what is known without it, if it was the last.
    fn take_back(&self, number: u64) -> Option<Basis> {
        let mut told = lock(&self.0);
        let is_last = told.last_key_value().is_some_and(|(last, _)| *last == number);
        if told.len() > 1 && told.remove(&number).is_some() && is_last {
            return told.last_key_value().map(|(_, basis)| basis.clone());
        }
        None
    }
}

impl Session {
    /// Takes back what was told in answers that the agent has not heard and will not hear, as far as nothing was told since.
    pub fn unheard(&mut self, numbers: &[u64]) {
        for number in numbers {
            let of_it = self.answers.iter_mut().filter(|answered| answered.number == *number);
            of_it.for_each(|answered| answered.is_taken_back = true);
            if let Some(before) = self.bases.take_back(*number) {
                self.is_anew |= before.is_lost;
                self.reads.become_again(&lock(&before.reads));
            }
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole whatever thread ended while it held it.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
