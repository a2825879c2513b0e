//! Coordination roles of this project, `builtin:NAME`, in one table.
//!
//! Most roles answer at once. A role that reads or writes a file runs on a blocking thread; an asynchronous role may
//! call a server as well.

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
    /// Name without `builtin:`.
    pub(crate) name: &'static str,
    /// Checks a seat of this role; returns an error message.
    pub(crate) problem: fn(&Worker) -> Option<String>,
    answer: How,
}

/// Execution of a role.
enum How {
    /// Answers at once.
    AtOnce(fn(&Call, &Means) -> Answer),
    /// May block on a file.
    Waiting(fn(&Call, &Means) -> Answer),
    /// May block on a file and await a server.
    Asking(for<'a> fn(&'a Call, &'a Arc<Means>) -> Answering<'a>),
}

/// Future of an answer.
pub(crate) type Answering<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// Resources of a role in addition to its view.
pub(crate) struct Means {
    /// Storage of departments.
    pub(crate) storage: Arc<Storage>,
    /// Clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// Embeddings client, if the operator configured one.
    pub(crate) embedder: Option<Arc<Embedder>>,
}

/// All roles.
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

/// Returns the role of this name.
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

/// Runs work that may block on a thread for blocking work.
///
/// # Errors
/// The work panicked.
pub(crate) async fn waiting<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let worked = tokio::task::spawn_blocking(work).await;
    worked.map_err(|why| failure(FailureCode::Crashed, format!("a role of this project: {why}")))
}

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Builtin").field(&self.name).finish()
    }
}
