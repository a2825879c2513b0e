//! The coordination roles of this project, `builtin:NAME`: one table of what each is.
//!
//! A role looks at its call and answers at once. One that reads or writes a file does so on a thread that may wait.

use std::fmt;
use std::sync::Arc;

use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::failure::FailureCode;
use patchboard_runtime::agent::{Answer, Call};
use patchboard_runtime::clock::Clock;

use crate::blackboard::vote;
use crate::departments::seats;
use crate::departments::storage::Storage;
use crate::failure;

/// A coordination role.
pub(crate) struct Builtin {
    /// Its name, without `builtin:`.
    pub(crate) name: &'static str,
    /// What is wrong with a seat of it, if anything is.
    pub(crate) problem: fn(&Worker) -> Option<String>,
    answer: fn(&Call, &Means) -> Answer,
    /// Whether it may have to wait for a file.
    waits: bool,
}

/// What roles have beside what they are shown.
pub(crate) struct Means {
    /// What departments keep.
    pub(crate) storage: Storage,
    /// The time.
    pub(crate) clock: Arc<dyn Clock>,
}

/// All of them.
pub(crate) const ALL: [Builtin; 7] = [
    Builtin { name: "begin", problem: seats::problem_of_begin, answer: seats::begin, waits: false },
    Builtin { name: "confirm", problem: seats::problem_within, answer: seats::confirm, waits: false },
    Builtin { name: "crud", problem: seats::problem_within, answer: seats::crud, waits: true },
    Builtin { name: "perceive", problem: seats::problem_of_perceive, answer: seats::perceive, waits: false },
    Builtin { name: "resolve", problem: seats::problem_within, answer: seats::resolve, waits: true },
    Builtin { name: "resume", problem: seats::problem_within, answer: seats::resume, waits: false },
    Builtin { name: "vote", problem: vote::problem, answer: |call, _means| vote::answer(call), waits: false },
];

/// The role of this name, if there is one.
pub(crate) fn named(name: &str) -> Option<&'static Builtin> {
    const TABLE: &[Builtin] = &ALL;
    TABLE.iter().find(|builtin| builtin.name == name)
}

impl Builtin {
    /// Answers a call.
    pub(crate) async fn call(&'static self, call: &Call, means: &Arc<Means>) -> Answer {
        if !self.waits {
            return (self.answer)(call, means);
        }
        let (call, means) = (call.clone(), Arc::clone(means));
        let answered = tokio::task::spawn_blocking(move || (self.answer)(&call, &means)).await;
        answered.unwrap_or_else(|why| Err(failure(FailureCode::Crashed, format!("builtin:{}: {why}", self.name))))
    }
}

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Builtin").field(&self.name).finish()
    }
}
