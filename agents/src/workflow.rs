//! `builtin:workflow`: the seat that decides which node of a workflow is next (`docs/workflows.md`).
//!
//! What it decides is [`engine::turn`]; here that becomes a reply. It goes by the document and not by its view, so that what
//! nodes hand to each other may be of any size: it may read all of it, and copies it without a look.

use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::RuleName;
use patchboard_kernel::workflow::{With, WorkflowCode, engine};
use patchboard_runtime::agent::{Answer, Call};

use crate::builtin::seat::{Stop, not_configured, told, with};
use crate::failure;

/// What is wrong with a seat, if anything is.
pub(crate) fn problem(seat: &Worker) -> Option<String> {
    with::<With>(seat).err()
}

/// Does the next turn; passes where there is nothing to do, or what is asked for cannot be done now.
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
