//! Coordination roles of this project, `builtin:NAME`, in one table.
//!
//! Most roles answer at once. A role that reads or writes a file runs on a blocking thread; an asynchronous role may
//! call a server as well.

pub(crate) mod role_io;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::failure::FailureCode;
use patchboard_runtime::agent::{Call, CallResult, Failure};
use patchboard_runtime::clock::Clock;

use crate::blackboard::vote;
use crate::departments::roles;
use crate::departments::storage::Storage;

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
    pub(crate) config_error: fn(&Worker) -> Option<String>,
    answer: Execution,
}

/// Execution of a role.
enum Execution {
    /// Answers at once.
    Immediate(fn(&Call, &RoleContext) -> CallResult),
    /// May block on a file.
    Blocking(fn(&Call, &RoleContext) -> CallResult),
    /// May block on a file and await a server.
    Async(for<'a> fn(&'a Call, &'a Arc<RoleContext>) -> AnswerFuture<'a>),
}

/// Future of an answer.
pub(crate) type AnswerFuture<'a> = Pin<Box<dyn Future<Output = CallResult> + Send + 'a>>;

/// Resources of a role in addition to its view.
pub(crate) struct RoleContext {
    /// Storage of departments.
    pub(crate) storage: Arc<Storage>,
    /// Clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// Embeddings client, if the operator configured one.
    pub(crate) embedder: Option<Arc<Embedder>>,
}

/// All roles.
pub(crate) const ALL: [Builtin; 11] = [
    Builtin { name: "begin", config_error: roles::begin_config_error, answer: Execution::Immediate(roles::begin) },
    Builtin {
        name: "confirm",
        config_error: roles::department_config_error,
        answer: Execution::Immediate(roles::confirm),
    },
    Builtin { name: "coordinator", config_error: room::config_error, answer: Execution::Immediate(room::answer) },
    Builtin { name: "crud", config_error: roles::department_config_error, answer: Execution::Blocking(roles::crud) },
    Builtin {
        name: "handoff",
        config_error: handoff::config_error,
        answer: Execution::Immediate(|call, _means| handoff::answer(call)),
    },
    Builtin {
        name: "negotiator",
        config_error: negotiation::config_error,
        answer: Execution::Immediate(negotiation::answer),
    },
    Builtin {
        name: "perceive",
        config_error: roles::perceive_config_error,
        answer: Execution::Immediate(roles::perceive),
    },
    Builtin { name: "resolve", config_error: roles::department_config_error, answer: Execution::Async(roles::resolve) },
    Builtin {
        name: "resume",
        config_error: roles::department_config_error,
        answer: Execution::Immediate(roles::resume),
    },
    Builtin {
        name: "vote",
        config_error: vote::config_error,
        answer: Execution::Immediate(|call, _means| vote::answer(call)),
    },
    Builtin {
        name: "workflow",
        config_error: workflow::config_error,
        answer: Execution::Immediate(|call, _means| workflow::answer(call)),
    },
];

/// Returns the role of this name.
pub(crate) fn find(name: &str) -> Option<&'static Builtin> {
    const TABLE: &[Builtin] = &ALL;
    TABLE.iter().find(|builtin| builtin.name == name)
}

impl Builtin {
    /// Answers a call.
    pub(crate) async fn call(&'static self, call: &Call, context: &Arc<RoleContext>) -> CallResult {
        match self.answer {
            Execution::Immediate(answer) => answer(call, context),
            Execution::Blocking(answer) => {
                let (call, context) = (call.clone(), Arc::clone(context));
                run_blocking(move || answer(&call, &context)).await?
            }
            Execution::Async(answer) => answer(call, context).await,
        }
    }
}

/// Runs work that may block on a thread for blocking work.
///
/// # Errors
/// The work panicked.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let worked = tokio::task::spawn_blocking(work).await;
    worked.map_err(|why| Failure::new(FailureCode::Crashed, format!("a role of this project: {why}")))
}

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Builtin").field(&self.name).finish()
    }
}
