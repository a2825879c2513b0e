//! Builtin roles of rooms, negotiations, handoffs, workflows, departments and blackboards ([`Role`]).
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

use std::sync::Arc;

use patchboard_kernel::blueprint::Worker;
use patchboard_protocols::Role;
use patchboard_protocols::workflow::WorkflowArgs;
use patchboard_runtime::agent::{Call, CallResult};

use crate::blackboard::vote;
use crate::context::run_blocking;
use crate::departments::roles;
use crate::role_io::role_config;

pub use crate::context::RoleContext;

/// Checks a seat of a role; returns an error message.
pub fn config_error(role: Role, worker: &Worker) -> Option<String> {
    match role {
        Role::Begin => roles::places(worker).err(),
        Role::Confirm | Role::Crud | Role::Resolve | Role::Resume => roles::department(worker).err(),
        Role::Coordinator => room::config(worker).err(),
        Role::Handoff => handoff::config(worker).err(),
        Role::Negotiator => negotiation::config(worker).err(),
        Role::Perceive => roles::into(worker).err(),
        Role::Vote => vote::config(worker).err(),
        Role::Workflow => role_config::<WorkflowArgs>(worker).err(),
    }
}

/// Answers a call of a role.
pub async fn answer(role: Role, call: &Call, context: &Arc<RoleContext>) -> CallResult {
    match role {
        Role::Begin => roles::begin(call, context),
        Role::Confirm => roles::confirm(call, context),
        Role::Coordinator => room::answer(call),
        Role::Crud => {
            let (call, context) = (call.clone(), Arc::clone(context));
            run_blocking(move || roles::crud(&call, &context)).await?
        }
        Role::Handoff => handoff::answer(call),
        Role::Negotiator => negotiation::answer(call, context),
        Role::Perceive => roles::perceive(call),
        Role::Resolve => roles::resolve(call, context).await,
        Role::Resume => roles::resume(call, context),
        Role::Vote => vote::answer(call),
        Role::Workflow => workflow::answer(call),
    }
}
