//! Which programs run at a workspace, what they may change, and what has changed while they ran.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use patchboard_kernel::files::FilePath;

use super::disk::locks::PathSet;

/// The programs that run at a workspace. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct RunningPrograms(Arc<Mutex<Vec<Program>>>);

/// In whose name a change is told, and what it is for.
pub(super) type Teller = (Option<String>, Option<String>);

struct Program {
    /// What it may change.
    set: PathSet,
    /// In whose name.
    name: String,
    intent: String,
    effects: Arc<Mutex<Effects>>,
}

/// Files that changed while a program ran.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Effects {
    /// Those that it may change.
    pub own: BTreeSet<FilePath>,
    /// Others.
    pub others: BTreeSet<FilePath>,
}

/// A program runs until this is dropped.
#[must_use = "the program is over when this is dropped"]
pub struct Running {
    programs: RunningPrograms,
    effects: Arc<Mutex<Effects>>,
}

impl RunningPrograms {
    /// A program runs from now on that may change the files of this set, in somebody's name.
    pub(super) fn begin(&self, set: PathSet, name: &str, intent: &str) -> Running {
        let effects = Arc::new(Mutex::new(Effects::default()));
        let program = Program { set, name: name.to_owned(), intent: intent.to_owned(), effects: Arc::clone(&effects) };
        self.lock().push(program);
        Running { programs: self.clone(), effects }
    }

    /// In whose name a change is told that was found while they run: of the first that may have made it, or of nobody.
    pub(super) fn teller(&self, path: &FilePath) -> Teller {
        let programs = self.lock();
        programs.iter().for_each(|program| program.note(path));
        let program = programs.iter().find(|program| program.set.contains(path));
        (program.map(|program| program.name.clone()), program.map(|program| program.intent.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Program>> {
        // A list is whole whatever thread ended while it held it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Program {
    fn note(&self, path: &FilePath) {
        let mut effects = self.effects.lock().unwrap_or_else(PoisonError::into_inner);
        let names = if self.set.contains(path) { &mut effects.own } else { &mut effects.others };
        names.insert(path.clone());
    }
}

impl Running {
    /// It has come to its end: from now on this is said of what it is for.
    pub(super) fn came_to(&self, intent: String) {
        let mut programs = self.programs.lock();
        if let Some(own) = programs.iter_mut().find(|program| Arc::ptr_eq(&program.effects, &self.effects)) {
            own.intent = intent;
        }
    }

    /// What has changed so far.
    pub fn effects(&self) -> Effects {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.programs.lock().retain(|program| !Arc::ptr_eq(&program.effects, &self.effects));
    }
}
