//! Handoff routing: candidates, their order, and the next step if no agent accepts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{Handoff, HandoffCode, HandoffError, HandoffState, Request};

/// Available agents and their capabilities.
pub type Agents = BTreeMap<String, BTreeSet<String>>;

/// Returns the agents that may take a request, by name: all with the required capabilities but the requesting one.
pub fn able<'a>(request: &Request, agents: &'a Agents) -> impl Iterator<Item = (&'a String, &'a BTreeSet<String>)> {
    agents.iter().filter(|(name, capabilities)| {
        **name != request.from_agent && request.capabilities_required.iter().all(|wanted| capabilities.contains(wanted))
    })
}

/// Selects the agent to ask: the named agent, unless it has rejected. Otherwise selects, of the agents with all
/// required capabilities, the one with the fewest, so that more capable agents stay free. Ties go by name. The
/// requesting agent and the agents in `refused` are never selected. Fails with `handoff_no_route` if no such agent is
/// available.
pub fn route<'a>(request: &Request, refused: &[String], agents: &'a Agents) -> Result<&'a str, HandoffError> {
    let mut able = able(request, agents).filter(|(name, _)| !refused.contains(name));
    let named = &request.to_agent;
    if named.is_empty() || refused.contains(named) {
        // `min_by_key` returns the first minimum, so ties go to the first name.
        let found = able.min_by_key(|(_, capabilities)| capabilities.len());
        return found.map(|(name, _)| name.as_str()).ok_or_else(|| {
            let message = format!("nobody is there who can take `{}` and has not refused", request.request_id);
            HandoffError::new(HandoffCode::NoRoute, message)
        });
    }
    able.find(|(name, _)| *name == named).map(|(name, _)| name.as_str()).ok_or_else(|| {
        let message = format!("`{named}`, who is to take `{}`, is not there or cannot", request.request_id);
        HandoffError::new(HandoffCode::NoRoute, message)
    })
}

/// Returns the pending handoffs for an agent, by descending priority, then in request order (W57).
pub fn pending<'h>(handoffs: &'h [Handoff], agent: &str) -> Vec<&'h Handoff> {
    let is_asked = |handoff: &&Handoff| handoff.state == HandoffState::Pending && handoff.to.as_deref() == Some(agent);
    let mut pending: Vec<&Handoff> = handoffs.iter().filter(is_asked).collect();
    pending.sort_by_key(|handoff| Reverse(handoff.request.priority));
    pending
}

/// Next step for a handoff.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HandoffAction {
    /// Offer the handoff to an agent.
    Offer {
        /// The agent to ask.
        to: String,
    },
    /// Request the handoff again.
    Retry {
        /// The agent to ask.
        to: String,
    },
    /// Transfer the context.
    Transfer {
        /// The receiving agent.
        to: String,
    },
    /// Ask a person for a decision.
    Escalate {
        /// Reason for the escalation.
        why: String,
    },
    /// No step: the handoff waits for an answer, or is done.
    Nothing,
}

/// Returns the next step for a handoff (W52). A rejected handoff is routed to another agent. An expired one is
/// requested from the same agent again, at most `retries` times. After that, or if no agent is left, it is escalated to
/// a person.
pub fn next_action(handoff: &Handoff, agents: &Agents, retries: u32) -> HandoffAction {
    let Handoff { request, state, to, attempt, rejection, .. } = handoff;
    let routed = |refused: &[String]| route(request, refused, agents).map(str::to_owned);
    let escalate = |why: HandoffError| HandoffAction::Escalate { why: why.message };
    match (state, to) {
        (HandoffState::Pending, None) => routed(&handoff.tried).map_or_else(escalate, |to| HandoffAction::Offer { to }),
        (HandoffState::Accepted, Some(to)) => HandoffAction::Transfer { to: to.clone() },
        (HandoffState::Rejected, Some(_)) => routed(&handoff.rejected_by()).map_or_else(
            |why| {
                let reason = rejection.as_ref().map_or("", |rejection| rejection.reason.as_str());
                HandoffAction::Escalate { why: format!("{}; the last one said: {reason}", why.message) }
            },
            |to| HandoffAction::Retry { to },
        ),
        // Only unanswered requests count.
        (HandoffState::Expired, Some(to)) if unanswered(handoff) <= retries => HandoffAction::Retry { to: to.clone() },
        (HandoffState::Expired, Some(_)) => {
            let tries = if *attempt == 1 { "once".to_owned() } else { format!("{attempt} times") };
            HandoffAction::Escalate {
                why: format!("`{}` was asked for {tries} and not answered in time", request.request_id),
            }
        }
        (HandoffState::Pending, Some(_))
        | (HandoffState::Accepted | HandoffState::Rejected | HandoffState::Expired, None)
        | (HandoffState::Completed, _) => HandoffAction::Nothing,
    }
}

/// Current state of a handoff's task.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TaskStatus<'w> {
    /// The task's owner, if the task exists.
    pub owner: Option<&'w str>,
    /// Another active handoff of the task.
    pub under_way: Option<&'w str>,
}

/// Returns the reason why a handoff is superseded: its task has another owner, or another handoff of it is active. An
/// accepted handoff proceeds to its transfer. One that was offered to an agent is not superseded by another handoff:
/// the other one is given back.
pub fn superseded(handoff: &Handoff, work: TaskStatus<'_>) -> Option<String> {
    let Handoff { request: Request { task, from_agent, .. }, state, to, .. } = handoff;
    match (state, to) {
        (HandoffState::Accepted | HandoffState::Completed, _) => None,
        (HandoffState::Pending | HandoffState::Rejected | HandoffState::Expired, _)
            if work.owner != Some(from_agent.as_str()) =>
        {
            Some(format!("`{task}` is not the work of `{from_agent}` any more"))
        }
        (HandoffState::Pending, Some(_)) => None,
        (HandoffState::Pending, None) | (HandoffState::Rejected | HandoffState::Expired, _) => {
            work.under_way.map(|other| format!("`{task}` is being handed over already, by `{other}`"))
        }
    }
}

/// Returns the number of unanswered requests, up to this one.
fn unanswered(handoff: &Handoff) -> u32 {
    handoff.attempt.saturating_sub(u32::try_from(handoff.tried.len()).unwrap_or(u32::MAX))
}
