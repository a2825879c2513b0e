//! Programs that run in a workspace, with the files that they may change and those that changed meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use patchboard_kernel::files::FilePath;

use super::disk::locks::PathSet;

/// Running programs of a workspace. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct RunningPrograms(Arc<Mutex<Vec<Program>>>);

/// Name and intent under which a change is reported.
pub(super) type Attribution = (Option<String>, Option<String>);

struct Program {
    /// Files that it may change.
    set: PathSet,
    /// Name for its changes.
    name: String,
    intent: String,
    effects: Arc<Mutex<ObservedChanges>>,
}

/// Files that changed while a program ran.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObservedChanges {
    /// Files of its declared set.
    pub own: BTreeSet<FilePath>,
    /// Other files.
    pub others: BTreeSet<FilePath>,
}

/// Guard of a running program.
#[must_use = "the program is over when this is dropped"]
pub struct ProgramGuard {
    programs: RunningPrograms,
    effects: Arc<Mutex<ObservedChanges>>,
}

impl RunningPrograms {
    /// Registers a program that may change the files of this set; its changes are reported under `name`.
    pub(super) fn begin(&self, set: PathSet, name: &str, intent: &str) -> ProgramGuard {
        let effects = Arc::new(Mutex::new(ObservedChanges::default()));
        let program = Program { set, name: name.to_owned(), intent: intent.to_owned(), effects: Arc::clone(&effects) };
        self.0.lock().push(program);
        ProgramGuard { programs: self.clone(), effects }
    }

    /// Records a change found now, and returns the name and intent of the first program that may have made it, if any.
    pub(super) fn attribute(&self, path: &FilePath) -> Attribution {
        let programs = self.0.lock();
        programs.iter().for_each(|program| program.note(path));
        let program = programs.iter().find(|program| program.set.contains(path));
        (program.map(|program| program.name.clone()), program.map(|program| program.intent.clone()))
    }
}

impl Program {
    fn note(&self, path: &FilePath) {
        let mut effects = self.effects.lock();
        let names = if self.set.contains(path) { &mut effects.own } else { &mut effects.others };
        names.insert(path.clone());
    }
}

impl ProgramGuard {
    /// Sets the final intent for its changes once the program has ended.
    pub(super) fn set_intent(&self, intent: String) {
        let mut programs = self.programs.0.lock();
        if let Some(own) = programs.iter_mut().find(|program| Arc::ptr_eq(&program.effects, &self.effects)) {
            own.intent = intent;
        }
    }

    /// Returns the changes found so far.
    pub fn effects(&self) -> ObservedChanges {
        self.effects.lock().clone()
    }
}

impl Drop for ProgramGuard {
    fn drop(&mut self) {
        self.programs.0.lock().retain(|program| !Arc::ptr_eq(&program.effects, &self.effects));
    }
}
