//! `builtin:handoff`: advances a handoff by one step (docs/handoff.md).
//!
//! A new handoff, its answer or its timeout triggers the seat. [`next_action`] decides the step; this file turns it
//! into a patch, or into a question to a person.

use jsonptr::{Pointer, PointerBuf};
use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::tree::Node;
use patchboard_protocols::handoff::{
    Agents, Handoff, HandoffAction, HandoffState, TaskStatus, able, next_action, superseded,
};
use patchboard_runtime::agent::{Call, CallResult};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::role_io::{NoPatch, document_node, is_place, not_configured, read, read_required, respond, role_config};
use patchboard_kernel::text::one_line;

/// Choice offered to a person in addition to agent names.
const GIVE_BACK: &str = "give it back";
/// Agents in a question, at most: a question has 16 choices.
const NAMED_MAX: usize = 15;
/// Characters of each reason that a question repeats.
const SAID_CHARS_MAX: usize = 600;

/// Configuration of a seat, its `with`: pointers into the state, and the number of retries.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HandoffConfig {
    /// Pointer of the handoffs, by id.
    handoffs: String,
    /// Pointer of the agents: each name with its capabilities.
    agents: String,
    /// Pointer of the tasks, by id, each with its `owner`.
    tasks: String,
    /// Retries of a request that no agent answers.
    retries: u32,
}

impl Default for HandoffConfig {
    fn default() -> Self {
        let [handoffs, agents, tasks] = ["/handoffs", "/agents", "/tasks"].map(str::to_owned);
        Self { handoffs, agents, tasks, retries: 2 }
    }
}

pub(crate) fn config(worker: &Worker) -> Result<HandoffConfig, String> {
    let with: HandoffConfig = role_config(worker)?;
    [&with.handoffs, &with.agents, &with.tasks].into_iter().try_for_each(|place| is_place(place))?;
    Ok(with)
}

/// Advances the handoff that triggered the call by one step.
pub(crate) fn answer(call: &Call) -> CallResult {
    respond(call, || next_step(call))
}

struct BoardHandoff {
    handoff: Handoff,
    handoffs: PointerBuf,
    /// Pointer of this handoff.
    place: PointerBuf,
    /// Pointer of the task's owner.
    owner: PointerBuf,
}

fn next_step(call: &Call) -> Result<Vec<Value>, NoPatch> {
    let with = config(call.worker_config()).map_err(not_configured)?;
    let Some((seen, is_late)) = triggering_handoff(call, &with)? else {
        return Err(NoPatch::Pass("no handoff has woken it".to_owned()));
    };
    let Handoff { state, request, .. } = &seen.handoff;
    if is_late {
        return match state {
            HandoffState::Pending => Ok(vec![seen.moves_to(HandoffState::Expired)]),
            HandoffState::Accepted | HandoffState::Rejected | HandoffState::Completed | HandoffState::Expired => {
                Err(NoPatch::Pass(format!("`{}` was answered in time", request.request_id)))
            }
        };
    }
    if *state == HandoffState::Pending
        && let Err(why) = request.check()
    {
        return Ok(seen.return_to_owner(Some((call.worker.as_str(), &why.message))));
    }
    if let Some(why) = superseded_reason(call, &seen)? {
        return Err(NoPatch::Pass(why));
    }
    let owner: Option<String> = read(call, seen.owner.as_str())?;
    let other = other_open_handoff(call, &seen)?;
    if let Some(why) = superseded(&seen.handoff, TaskStatus { owner: owner.as_deref(), under_way: other.as_deref() }) {
        let is_pending = *state == HandoffState::Pending;
        return Ok(seen.return_to_owner(is_pending.then_some((call.worker.as_str(), why.as_str()))));
    }
    if owner.as_ref() != Some(&request.from_agent) {
        return Err(NoPatch::Pass(format!("`{}` is not the work of `{}` any more", request.task, request.from_agent)));
    }
    let agents: Agents = read_required(call, &with.agents)?;
    // An agent that a person chose gets the request, even if it has changed since.
    if !call.context.answers().is_empty() {
        return escalate(call, &seen, &agents, "a person gave it back");
    }
    match next_action(&seen.handoff, &agents, with.retries) {
        HandoffAction::Offer { to } => Ok(vec![seen.offer(&to)]),
        HandoffAction::Retry { to } => Ok(vec![seen.retry_request(&to)]),
        HandoffAction::Transfer { to } => Ok(seen.transfer(&to)),
        HandoffAction::Escalate { why } => escalate(call, &seen, &agents, &why),
        HandoffAction::Nothing => {
            Err(NoPatch::Pass(format!("`{}` waits for an answer, or is done", request.request_id)))
        }
    }
}

/// Returns the handoff that triggered the call, and true if it has timed out. Returns none for any other cause.
fn triggering_handoff(call: &Call, with: &HandoffConfig) -> Result<Option<(BoardHandoff, bool)>, NoPatch> {
    let [handoffs, tasks] = [&with.handoffs, &with.tasks].map(|place| PointerBuf::parse(place.as_str()));
    let (Ok(handoffs), Ok(tasks)) = (handoffs, tasks) else {
        return Err(not_configured("places are no pointers").into());
    };
    let woken_at = call.context.trigger_place().and_then(|place| Pointer::parse(place).ok());
    let Some((id, member)) = woken_at.and_then(|at| below(at, &handoffs)) else { return Ok(None) };
    let place = handoffs.with_trailing_token(id.as_str());
    let Some(handoff) = read::<Handoff>(call, place.as_str())? else { return Ok(None) };
    let owner = tasks.with_trailing_token(handoff.request.task.as_str()).with_trailing_token("owner");
    let is_late = member.as_deref() == Some("timeout_ms");
    Ok(Some((BoardHandoff { handoff, handoffs, place, owner }, is_late)))
}

/// Returns the reason why a handoff that was not accepted needs no further step: it was retried or returned already.
fn superseded_reason(call: &Call, seen: &BoardHandoff) -> Result<Option<String>, NoPatch> {
    let id = &seen.handoff.request.request_id;
    match seen.handoff.state {
        HandoffState::Pending | HandoffState::Accepted | HandoffState::Completed => return Ok(None),
        HandoffState::Rejected | HandoffState::Expired => {}
    }
    let next = seen.handoff.next_id();
    if document_node(call, seen.handoffs.with_trailing_token(next.as_str()).as_str())?.is_some() {
        return Ok(Some(format!("`{next}` was made already")));
    }
    let is_returned = document_node(call, seen.place.with_trailing_token("returned").as_str())?.is_some();
    Ok(is_returned.then(|| format!("`{id}` was given back already")))
}

/// Returns another open handoff of the same task, if there is one.
fn other_open_handoff(call: &Call, seen: &BoardHandoff) -> Result<Option<String>, NoPatch> {
    let all = document_node(call, seen.handoffs.as_str())?.and_then(Node::as_object);
    let request = &seen.handoff.request;
    for (id, node) in all.into_iter().flat_map(|all| all.iter()) {
        let text = |name: &str| node.child(name).and_then(Node::as_str).unwrap_or_default();
        let is_open = HandoffState::ALL.iter().any(|state| !state.is_terminal() && state.as_str() == text("state"));
        if is_open && text("task") == request.task && **id != *request.request_id {
            return Ok(Some((**id).to_owned()));
        }
    }
    Ok(None)
}

/// Returns the member of a collection that contains a place, and the name below it.
fn below(place: &Pointer, collection: &Pointer) -> Option<(String, Option<String>)> {
    let below = place.starts_with(collection).then(|| place.strip_prefix(collection)).flatten()?;
    let mut tokens = below.tokens().map(|token| token.decoded().into_owned());
    Some((tokens.next()?, tokens.next()))
}

/// Returns the patch for a person's answer, or the question if there is none yet.
fn escalate(call: &Call, seen: &BoardHandoff, agents: &Agents, why: &str) -> Result<Vec<Value>, NoPatch> {
    let request = &seen.handoff.request;
    let mut choices: Vec<String> = able(request, agents).take(NAMED_MAX).map(|(name, _)| name.clone()).collect();
    choices.push(GIVE_BACK.to_owned());
    let Some(answered) = call.context.answers().last() else {
        let (why, reason) = (one_line(why, SAID_CHARS_MAX), one_line(&request.reason, SAID_CHARS_MAX));
        let question = format!("{why}. `{}` hands over `{}`: {reason} Who takes it?", request.from_agent, request.task);
        return Err(NoPatch::Ask { question, choices });
    };
    match (answered.answer.as_str(), seen.handoff.state) {
        (GIVE_BACK, HandoffState::Pending) => Ok(seen.return_to_owner(Some((answered.by.as_str(), why)))),
        (GIVE_BACK, _) => Ok(seen.return_to_owner(None)),
        (to, HandoffState::Pending) => Ok(vec![seen.offer(to)]),
        (to, _) => Ok(vec![seen.retry_request(to)]),
    }
}

impl BoardHandoff {
    fn moves_to(&self, state: HandoffState) -> Value {
        json!({"op": "replace", "path": self.place.with_trailing_token("state"), "value": state})
    }

    fn offer(&self, to: &str) -> Value {
        json!({"op": "add", "path": self.place.with_trailing_token("to"), "value": to})
    }

    /// Repeats the request, to the agent `to`.
    fn retry_request(&self, to: &str) -> Value {
        let place = self.handoffs.with_trailing_token(self.handoff.next_id().as_str());
        json!({"op": "add", "path": place, "value": self.handoff.next_attempt(to)})
    }

    /// Transfers the task to `to` and completes the handoff, in one patch, so that no state lies between.
    fn transfer(&self, to: &str) -> Vec<Value> {
        let owner = json!({"op": "replace", "path": self.owner, "value": to});
        vec![owner, self.moves_to(HandoffState::Completed)]
    }

    /// Returns the task to its owner. `refused` has the rejecting agent and the reason, unless they are recorded
    /// already.
    fn return_to_owner(&self, refused: Option<(&str, &str)>) -> Vec<Value> {
        let at = |member: &str| self.place.with_trailing_token(member);
        let mut patch = Vec::new();
        if let Some((by, reason)) = refused {
            patch.push(json!({"op": "add", "path": at("rejection"), "value": {"by": by, "reason": reason}}));
            patch.push(self.moves_to(HandoffState::Rejected));
        }
        patch.push(json!({"op": "add", "path": at("returned"), "value": self.handoff.request.from_agent}));
        patch
    }
}
