//! What an agent asks for, and what it knows when it does.
//!
//! An agent may ask for several things at once. What it is told of the first it did not know when it asked for the second,
//! so an edit is not held against that, but against what was known when it was asked for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use patchboard_kernel::files::{Entry, FilePath, Move};
use serde_json::Value;

use super::super::reads::Reads;
use crate::tools::ROOM_MAX;

/// What an agent asks for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The arguments of the editor.
    pub arguments: Value,
    /// What makes a repetition of an edit one.
    pub key: Option<String>,
    /// Characters that it can be told.
    pub room: usize,
    /// What it had read when it asked; what it has read by now, if nothing is said.
    pub basis: Option<Basis>,
}

impl From<Value> for Asked {
    fn from(arguments: Value) -> Self {
        Self { arguments, key: None, room: ROOM_MAX, basis: None }
    }
}

/// What an agent had read when it asked for something. Its own edits since belong to it.
#[derive(Clone, Debug)]
pub struct Basis(Arc<Mutex<Reads>>);

impl Basis {
    pub(super) fn reads(&self) -> Reads {
        lock(&self.0).clone()
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

/// What an agent has read, for whoever asks in its name, also while something else is done for it.
#[derive(Clone, Debug, Default)]
pub struct Bases(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// When the last thing was told.
    last: Reads,
    asked: Vec<Weak<Mutex<Reads>>>,
}

impl Bases {
    /// What is known to who asks now.
    pub fn now(&self) -> Basis {
        let mut known = lock(&self.0);
        let basis = Arc::new(Mutex::new(known.last.clone()));
        known.asked.retain(|asked| asked.strong_count() > 0);
        known.asked.push(Arc::downgrade(&basis));
        Basis(basis)
    }

    pub(super) fn told(&self, reads: &Reads) {
        lock(&self.0).last = reads.clone();
    }

    /// Who asked before an own edit knows of it as well.
    pub(super) fn wrote(&self, wrote: Wrote<'_>) {
        let mut known = lock(&self.0);
        wrote.note(&mut known.last);
        known.asked.iter().filter_map(Weak::upgrade).for_each(|asked| wrote.note(&mut lock(&asked)));
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole whatever thread ended while it held it.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
