//! `builtin:negotiator`: adds the next steps of a negotiation to the document (`docs/negotiation.md`).
//!
//! [`patchboard_protocols::negotiation`] decides the steps. This file supplies the seat's configuration, the
//! participants, the time, and the answers of persons.

use patchboard_kernel::blueprint::{Rule, Run, Trigger, Worker};
use patchboard_kernel::id::GroupName;
use patchboard_kernel::scheduler::AnsweredQuestion;
use patchboard_protocols::negotiation::{self, Addition, AdvanceInput, OpenRequest, Participants, Session, advance};
use patchboard_runtime::agent::{Call, CallResult};
use serde::Deserialize;

use crate::context::RoleContext;
use crate::role_io::{NoPatch, is_place, not_configured, read_document, respond, role_config};

/// Configuration of a seat, its `with`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NegotiatorConfig {
    /// Pointer of the negotiation.
    at: String,
    /// Pointer of the request that opens it.
    request: String,
    /// Group that submits drafts, in its order.
    parties: GroupName,
    /// Group that evaluates drafts.
    evaluators: GroupName,
    /// The trigger is a person's missing answer.
    unanswered: bool,
}

impl Default for NegotiatorConfig {
    fn default() -> Self {
        Self {
            at: "/negotiation".to_owned(),
            request: "/request".to_owned(),
            parties: "parties".into(),
            evaluators: "evaluators".into(),
            unanswered: false,
        }
    }
}

pub(crate) fn config(worker: &Worker) -> Result<NegotiatorConfig, String> {
    let with: NegotiatorConfig = role_config(worker)?;
    is_place(&with.at)?;
    is_place(&with.request)?;
    Ok(with)
}

/// Adds the next steps or asks a person; passes if there are none.
pub(crate) fn answer(call: &Call, context: &RoleContext) -> CallResult {
    respond(call, || {
        let with = config(call.worker_config()).map_err(not_configured)?;
        let Some(session) = read_document::<Session>(call, &with.at)? else {
            return Err(NoPatch::Pass(format!("there is no negotiation at {}", with.at)));
        };
        let request: OpenRequest = read_document(call, &with.request)?.unwrap_or_default();
        // The board's id is the correlation id if the request has none.
        let corr = request.corr.or_else(|| Some(call.board.to_string()));
        let request = OpenRequest { corr, ..request };
        let woken_at = call.context.trigger_place().and_then(|place| place.strip_prefix(&with.at));
        let woken = AdvanceInput {
            now: context.clock.now(),
            timed_out: woken_at.and_then(|place| place.strip_prefix("/rounds/")?.parse::<usize>().ok()?.checked_add(1)),
            has_timer: has_timer(call, &with),
            answers: call.context.answers().iter().map(answered).collect(),
            is_unanswered: with.unanswered,
        };
        let step = advance(&session, &participants(call, &with), &request, &woken)
            .map_err(|why| not_configured(why.message))?;
        match step.ask {
            // Only one of the possible triggers asks, so that no person gets a question twice.
            Some(question) if woken_at.is_some_and(|place| place.starts_with("/reports/")) => {
                Err(NoPatch::Ask { question: question.text, choices: question.choices })
            }
            Some(_) => Err(NoPatch::Pass("a person is asked".to_owned())),
            None if step.additions.is_empty() => Err(NoPatch::Pass("nothing follows yet".to_owned())),
            None => Ok(step.additions.iter().map(|added: &Addition| added.op(&with.at)).collect()),
        }
    })
}

/// Returns true if a rule with a delay triggers the seat for its rounds.
fn has_timer(call: &Call, with: &NegotiatorConfig) -> bool {
    let rounds = format!("{}/rounds/*", with.at);
    let times = |rule: &Rule| {
        let is_for = matches!(&rule.run, Run::Worker(worker) if *worker == call.worker);
        is_for && rule.delay.is_some() && matches!(&rule.trigger, Trigger::Event { path, .. } if *path == rounds)
    };
    call.context.plan().blueprint.rules.iter().any(times)
}

fn answered(answered: &AnsweredQuestion) -> negotiation::Answer {
    let AnsweredQuestion { question, by, answer } = answered;
    negotiation::Answer { question: question.clone(), by: by.to_string(), text: answer.clone() }
}

/// Returns the participants, by the groups of the blueprint.
fn participants(call: &Call, with: &NegotiatorConfig) -> Participants {
    let blueprint = &call.context.plan().blueprint;
    let of = |group: &GroupName| blueprint.group(group).into_iter().map(ToString::to_string).collect();
    Participants { by: call.worker.to_string(), parties: of(&with.parties), evaluators: of(&with.evaluators) }
}
