//! What the state does not say of edits: what those before a file's last were for, and whose name the agent has for whom a
//! file is kept, where several share a seat. It is known of the last edits since the directory was opened.

use std::collections::{BTreeMap, VecDeque};

use patchboard_kernel::files::{Edit, FilePath};
use patchboard_kernel::rejection::{Code, Rejection, Violation};
use serde_json::json;

use super::edits::Edited;

/// Versions of files of which it is known what they were made for.
const INTENTS_MAX: usize = 1_024;

/// Files of which it is known for whom they are kept.
const KEPT_MAX: usize = 256;

/// What is remembered of edits, the oldest first.
#[derive(Default)]
pub(super) struct Memory {
    intents: VecDeque<(FilePath, u64, String)>,
    kept: VecDeque<(FilePath, String)>,
}

impl Memory {
    /// Notes what became of an edit, and says whom it has to wait for.
    pub(super) fn note(&mut self, edit: &Edit, edited: &mut Edited) {
        match edited {
            Edited::Done(versions) => {
                let made = edit.changes.iter().zip(versions.iter().copied());
                for (path, version) in made.filter_map(|(change, version)| Some((&change.path, version?))) {
                    if let Some(intent) = edit.intent.as_deref().filter(|intent| !intent.is_empty()) {
                        push(&mut self.intents, INTENTS_MAX, (path.clone(), version, intent.to_owned()));
                    }
                }
            }
            Edited::Refused(rejection) => self.refused(edit, rejection),
        }
    }

    fn refused(&mut self, edit: &Edit, rejection: &mut Rejection) {
        let is_slow = |violation: &Violation| matches!(violation.code, Code::StaleTarget | Code::StaleRead);
        let is_slow = rejection.violations.iter().any(is_slow);
        for path in edit.changes.iter().map(|change| &change.path) {
            let place = path.place();
            let is_kept = |it: &&mut Violation| it.code == Code::Reserved && it.pointer == place.as_str();
            if let Some(violation) = rejection.violations.iter_mut().find(is_kept) {
                if let Some((_, name)) = self.kept.iter().find(|(of, _)| of == path) {
                    for_whom(violation, name);
                }
            } else if is_slow {
                // From now on it is kept for this one.
                self.kept.retain(|(of, _)| of != path);
                if let Some(name) = &edit.name {
                    push(&mut self.kept, KEPT_MAX, (path.clone(), name.clone()));
                }
            }
        }
    }

    /// What the versions of a file were made for, as far as that is known.
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

/// Names the agent in the place of its seat.
fn for_whom(violation: &mut Violation, name: &str) {
    let Some(found) = &mut violation.found else { return };
    let Some(seat) = found["kept_for"].as_str() else { return };
    violation.message = violation.message.replacen(&format!(" for {seat} "), &format!(" for {name} "), 1);
    found["kept_for"] = json!(name);
}
