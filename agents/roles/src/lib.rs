//! Builtin roles of rooms, negotiations, handoffs, workflows, departments and blackboards, in one table ([`ALL`]).
//!
//! Owns the path from a seat's view to its patch. Does not decide: the pure parts are in [`patchboard_protocols`], and
//! the kernel judges every patch. Does not know the operator's configuration.
//!
//! * [`blackboard`]: turns the words of a blackboard's roles into patches; its vote.
//! * [`departments`]: the roles of a department that need no model, and its rows.
//! * `handoff`: the role that advances handoffs.
//! * `negotiation`: the role that leads a negotiation.
//! * `room`: the coordinator of a negotiation room.
//! * `workflow`: the role that advances a workflow.
//! * `context`: what a role has in addition to its view.
//! * `role_io`: reads views and builds replies.

pub mod blackboard;
mod context;
pub mod departments;
mod handoff;
mod negotiation;
mod role_io;
mod room;
mod workflow;

use std::fmt;
use std::sync::Arc;

use patchboard_kernel::blueprint::Worker;
use patchboard_runtime::agent::{Call, CallResult};

use crate::blackboard::vote;
use crate::context::{AnswerFuture, run_blocking};
use crate::departments::roles as department;

use Execution::{Async, Blocking, Immediate};

pub use crate::context::RoleContext;

/// All roles, by the names in [`AgentKind::BUILTINS`](patchboard_kernel::blueprint::AgentKind::BUILTINS).
const ALL: &[Builtin] = &[
    role("begin", department::begin_config_error, Immediate(department::begin)),
    role("confirm", department::department_config_error, Immediate(department::confirm)),
    role("coordinator", room::config_error, Immediate(room::answer)),
    role("crud", department::department_config_error, Blocking(department::crud)),
    role("handoff", handoff::config_error, Immediate(|call, _| handoff::answer(call))),
    role("negotiator", negotiation::config_error, Immediate(negotiation::answer)),
    role("perceive", department::perceive_config_error, Immediate(department::perceive)),
    role("resolve", department::department_config_error, Async(department::resolve)),
    role("resume", department::department_config_error, Immediate(department::resume)),
    role("vote", vote::config_error, Immediate(|call, _| vote::answer(call))),
    role("workflow", workflow::config_error, Immediate(|call, _| workflow::answer(call))),
];

/// A builtin role.
pub struct Builtin {
    name: &'static str,
    config_error: fn(&Worker) -> Option<String>,
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

const fn role(name: &'static str, config_error: fn(&Worker) -> Option<String>, answer: Execution) -> Builtin {
    Builtin { name, config_error, answer }
}

/// Returns the role of this name, without `builtin:`.
pub fn find(name: &str) -> Option<&'static Builtin> {
    ALL.iter().find(|builtin| builtin.name == name)
}

impl Builtin {
    /// Checks a seat of this role; returns an error message.
    pub fn config_error(&self, worker: &Worker) -> Option<String> {
        (self.config_error)(worker)
    }

    /// Answers a call.
    ///
    /// # Errors
    /// The role cannot work as configured, or its work failed.
    pub async fn call(&'static self, call: &Call, context: &Arc<RoleContext>) -> CallResult {
        match self.answer {
            Immediate(answer) => answer(call, context),
            Blocking(answer) => {
                let (call, context) = (call.clone(), Arc::clone(context));
                run_blocking(move || answer(&call, &context)).await?
            }
            Async(answer) => answer(call, context).await,
        }
    }
}

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Builtin").field(&self.name).finish()
    }
}
