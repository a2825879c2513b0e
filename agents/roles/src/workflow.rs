//! `builtin:workflow`: the seat that decides the next node of a workflow (`docs/workflows.md`).
//!
//! [`engine::compute_turn`] decides; this file turns the decision into a reply. It reads the document and not its view,
//! so that values passed between nodes may be of any size. The seat may read all of them, and copies them uninspected.

use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::RuleName;
use patchboard_protocols::workflow::{WorkflowArgs, WorkflowCode, engine};
use patchboard_runtime::agent::{Call, CallResult, Failure};

use crate::role_io::{NoPatch, not_configured, respond, role_config};

/// Takes the next turn; passes if there is nothing to do, or if the request cannot be met now.
pub(crate) fn answer(call: &Call) -> CallResult {
    respond(call, || {
        let with = role_config::<WorkflowArgs>(call.worker_config()).map_err(not_configured)?;
        let rule = call.context.triggered_by().map_or("", RuleName::as_str);
        let resumed = call.context.signal().and_then(|signal| signal["node"].as_str());
        let happened = with.event_of_rule(rule, resumed);
        let document = call.context.basis().state.root();
        match engine::compute_turn(&with.clone().definition(), document, happened) {
            Ok(Some(turn)) => Ok(turn.patch),
            Ok(None) => Err(NoPatch::Pass("nothing is to be done now".to_owned())),
            Err(why) => match why.code {
                WorkflowCode::IllegalTransition | WorkflowCode::UnknownNode => {
                    Err(NoPatch::Pass(format!("{}: {why}", why.code)))
                }
                _ => Err(Failure::new(FailureCode::Refused, format!("{}: {why}", why.code)).into()),
            },
        }
    })
}
