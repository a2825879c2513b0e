//! The coordination roles of this project, `builtin:NAME`: one table of what each is.
//!
//! A role looks at its call and answers at once. One that reads or writes a file does so on a thread that may wait; one
//! may ask a server in between.

pub(crate) mod seat;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::failure::FailureCode;
use patchboard_runtime::agent::{Answer, Call, Failure};
use patchboard_runtime::clock::Clock;

use crate::blackboard::vote;
use crate::departments::seats;
use crate::departments::storage::Storage;
use crate::failure;
use crate::handoff;
use crate::llm::embeddings::Embedder;
use crate::negotiation;
use crate::room;
use crate::workflow;

/// A coordination role.
pub(crate) struct Builtin {
    /// Its name, without `builtin:`.
    pub(crate) name: &'static str,
    /// What is wrong with a seat of it, if anything is.
    pub(crate) problem: fn(&Worker) -> Option<String>,
    answer: How,
}

/// How a role answers.
enum How {
    /// At once.
    AtOnce(fn(&Call, &Means) -> Answer),
    /// It may have to wait for a file.
    Waiting(fn(&Call, &Means) -> Answer),
    /// It may have to wait for a file, and for a server.
    Asking(for<'a> fn(&'a Call, &'a Arc<Means>) -> Answering<'a>),
}

/// An answer that is still to come.
pub(crate) type Answering<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// What roles have beside what they are shown.
pub(crate) struct Means {
    /// What departments keep.
    pub(crate) storage: Arc<Storage>,
    /// The time.
    pub(crate) clock: Arc<dyn Clock>,
    /// What tells what words mean, if the operator has it.
    pub(crate) embedder: Option<Arc<Embedder>>,
}

/// All of them.
pub(crate) const ALL: [Builtin; 11] = [
    Builtin { name: "begin", problem: seats::problem_of_begin, answer: How::AtOnce(seats::begin) },
    Builtin { name: "confirm", problem: seats::problem_within, answer: How::AtOnce(seats::confirm) },
    Builtin { name: "coordinator", problem: room::problem, answer: How::AtOnce(room::answer) },
    Builtin { name: "crud", problem: seats::problem_within, answer: How::Waiting(seats::crud) },
    Builtin { name: "handoff", problem: handoff::problem, answer: How::AtOnce(|call, _means| handoff::answer(call)) },
    Builtin { name: "negotiator", problem: negotiation::problem, answer: How::AtOnce(negotiation::answer) },
    Builtin { name: "perceive", problem: seats::problem_of_perceive, answer: How::AtOnce(seats::perceive) },
    Builtin { name: "resolve", problem: seats::problem_within, answer: How::Asking(seats::resolve) },
    Builtin { name: "resume", problem: seats::problem_within, answer: How::AtOnce(seats::resume) },
    Builtin { name: "vote", problem: vote::problem, answer: How::AtOnce(|call, _means| vote::answer(call)) },
    Builtin {
        name: "workflow",
        problem: workflow::problem,
        answer: How::AtOnce(|call, _means| workflow::answer(call)),
    },
];

/// The role of this name, if there is one.
pub(crate) fn named(name: &str) -> Option<&'static Builtin> {
    const TABLE: &[Builtin] = &ALL;
    TABLE.iter().find(|builtin| builtin.name == name)
}

impl Builtin {
    /// Answers a call.
    pub(crate) async fn call(&'static self, call: &Call, means: &Arc<Means>) -> Answer {
        match self.answer {
            How::AtOnce(answer) => answer(call, means),
            How::Waiting(answer) => {
                let (call, means) = (call.clone(), Arc::clone(means));
                waiting(move || answer(&call, &means)).await?
            }
            How::Asking(answer) => answer(call, means).await,
        }
    }
}

/// Does what may take a while on a thread that may wait.
///
/// # Errors
/// It has panicked.
pub(crate) async fn waiting<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let worked = tokio::task::spawn_blocking(work).await;
    worked.map_err(|why| failure(FailureCode::Crashed, format!("a role of this project: {why}")))
}

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Builtin").field(&self.name).finish()
    }
}
