//! `builtin:workflow`: the seat that decides the next node of a workflow (`docs/workflows.md`).
//!
//! [`engine::turn`] decides; this file turns the decision into a reply. It reads the document and not its view, so
//! that values passed between nodes may be of any size. The seat may read all of them, and copies them uninspected.

use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::RuleName;
use patchboard_kernel::workflow::{With, WorkflowCode, engine};
use patchboard_runtime::agent::{Answer, Call};

use crate::builtin::seat::{Stop, not_configured, told, with};
use crate::failure;

/// Checks a seat; returns an error message.
pub(crate) fn problem(seat: &Worker) -> Option<String> {
    with::<With>(seat).err()
}

/// Takes the next turn; passes if there is nothing to do, or if the request cannot be met now.
pub(crate) fn answer(call: &Call) -> Answer {
    told(call, || {
        let with = with::<With>(call.seat()).map_err(not_configured)?;
        let rule = call.shown.woken_by().map_or("", RuleName::as_str);
        let resumed = call.shown.signal().and_then(|signal| signal["node"].as_str());
        let happened = with.happened(rule, resumed);
        let document = call.shown.basis().state.root();
        match engine::turn(&with.clone().definition(), document, happened) {
            Ok(Some(turn)) => Ok(turn.patch),
            Ok(None) => Err(Stop::Pass("nothing is to be done now".to_owned())),
            Err(why) => match why.code {
                WorkflowCode::IllegalMove | WorkflowCode::UnknownNode => {
                    Err(Stop::Pass(format!("{}: {why}", why.code)))
                }
                _ => Err(failure(FailureCode::Refused, format!("{}: {why}", why.code)).into()),
            },
        }
    })
}
