//! Edit history beyond the state: intents of older versions, and the agent that holds a reservation where several share
//! a worker. Covers recent edits since the directory was opened.

use std::collections::{BTreeMap, VecDeque};

use patchboard_kernel::files::{Edit, FilePath};
use patchboard_kernel::rejection::{Code, Rejection, Violation};
use serde_json::json;

use super::edits::EditOutcome;

/// Maximum number of remembered intents of file versions.
const INTENTS_MAX: usize = 1_024;

/// Maximum number of files with a remembered reservation.
const KEPT_MAX: usize = 256;

/// Remembered edits, oldest first.
#[derive(Default)]
pub(super) struct EditHistory {
    intents: VecDeque<(FilePath, u64, String)>,
    kept: VecDeque<(FilePath, String)>,
}

impl EditHistory {
    /// Records an edit's outcome, and names the agent that holds a reservation in its rejection.
    pub(super) fn note(&mut self, edit: &Edit, edited: &mut EditOutcome) {
        match edited {
            EditOutcome::Committed(versions) => {
                let made = edit.changes.iter().zip(versions.iter().copied());
                for (path, version) in made.filter_map(|(change, version)| Some((&change.path, version?))) {
                    if let Some(intent) = edit.intent.as_deref().filter(|intent| !intent.is_empty()) {
                        push(&mut self.intents, INTENTS_MAX, (path.clone(), version, intent.to_owned()));
                    }
                }
            }
            EditOutcome::Rejected(rejection) => self.note_rejection(edit, rejection),
        }
    }

    fn note_rejection(&mut self, edit: &Edit, rejection: &mut Rejection) {
        let is_slow = |violation: &Violation| matches!(violation.code, Code::StaleTarget | Code::StaleRead);
        let is_slow = rejection.violations.iter().any(is_slow);
        for path in edit.changes.iter().map(|change| &change.path) {
            let place = path.place();
            let is_kept = |it: &&mut Violation| it.code == Code::Reserved && it.pointer == place.as_str();
            if let Some(violation) = rejection.violations.iter_mut().find(is_kept) {
                if let Some((_, name)) = self.kept.iter().find(|(of, _)| of == path) {
                    keep_for(violation, name);
                }
            } else if is_slow {
                // The kernel now reserves the file for this agent.
                self.kept.retain(|(of, _)| of != path);
                if let Some(name) = &edit.name {
                    push(&mut self.kept, KEPT_MAX, (path.clone(), name.clone()));
                }
            }
        }
    }

    pub(super) fn intents(&self, path: &FilePath) -> BTreeMap<u64, String> {
        let of_file = self.intents.iter().filter(|(of, ..)| of == path);
        of_file.map(|(_, version, intent)| (*version, intent.clone())).collect()
    }
}

fn push<T>(queue: &mut VecDeque<T>, max: usize, newest: T) {
    if queue.len() >= max {
        queue.pop_front();
    }
    queue.push_back(newest);
}

/// Replaces the worker's name in a violation by that of the agent.
fn keep_for(violation: &mut Violation, name: &str) {
    let Some(found) = &mut violation.found else { return };
    let Some(seat) = found["kept_for"].as_str() else { return };
    violation.message = violation.message.replacen(&format!(" for {seat} "), &format!(" for {name} "), 1);
    found["kept_for"] = json!(name);
}
