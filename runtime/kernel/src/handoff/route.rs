//! Who is asked to take a handoff, in which order, and what follows where nobody takes it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{Handoff, HandoffCode, Refused, Request, State};

/// Who is there, and what each can do.
pub type Agents = BTreeMap<String, BTreeSet<String>>;

/// Who is asked to take it: whom it names, as long as that one has not refused; else of those who can do what is required
/// the one who can do the least beside, so that whoever can do more stays free for what only they can, and of several the
/// first by name. Nobody is asked whose work it is, and nobody who has `refused`.
///
/// # Errors
/// `handoff_no_route`.
pub fn route<'a>(request: &Request, refused: &[String], agents: &'a Agents) -> Result<&'a str, Refused> {
    let required: BTreeSet<&String> = request.capabilities_required.iter().collect();
    let may_be_asked = |name: &String, capabilities: &BTreeSet<String>| {
        *name != request.from_agent
            && !refused.contains(name)
            && required.iter().all(|wanted| capabilities.contains(*wanted))
    };
    let mut able = agents.iter().filter(|(name, capabilities)| may_be_asked(name, capabilities));
    let named = &request.to_agent;
    if named.is_empty() || refused.contains(named) {
        // Ties go by name: the first of the smallest is taken, and agents come in the order of their names.
        let found = able.min_by_key(|(_, capabilities)| capabilities.len());
        return found.map(|(name, _)| name.as_str()).ok_or_else(|| {
            let message = format!("nobody is there who can take `{}` and has not refused", request.request_id);
            Refused::new(HandoffCode::NoRoute, message)
        });
    }
    able.find(|(name, _)| *name == named).map(|(name, _)| name.as_str()).ok_or_else(|| {
        let message = format!("`{named}`, who is to take `{}`, is not there or cannot", request.request_id);
        Refused::new(HandoffCode::NoRoute, message)
    })
}

/// What an agent is asked to take, of handoffs in the order in which they were asked for: the more urgent first, then the
/// older (W57).
pub fn pending<'h>(handoffs: &'h [Handoff], agent: &str) -> Vec<&'h Handoff> {
    let is_asked = |handoff: &&Handoff| handoff.state == State::Pending && handoff.to.as_deref() == Some(agent);
    let mut pending: Vec<&Handoff> = handoffs.iter().filter(is_asked).collect();
    pending.sort_by_key(|handoff| Reverse(handoff.request.priority));
    pending
}

/// What is to be done with a handoff now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Somebody is to be asked.
    Offer {
        /// Who.
        to: String,
    },
    /// It is asked for once more.
    Again {
        /// Of whom.
        to: String,
    },
    /// The context is to be transferred.
    Transfer {
        /// To whom.
        to: String,
    },
    /// A person has to say who takes it.
    Escalate {
        /// Why.
        why: String,
    },
    /// Nothing: it waits for an answer, or is done.
    Nothing,
}

/// What is to be done with a handoff (W52): one that was refused is offered to somebody else, one that expired to the same
/// once more, as long as that makes no more than `retries` requests after the first; where that is over, or nobody is left, a
/// person is asked.
pub fn next(handoff: &Handoff, agents: &Agents, retries: u32) -> Next {
    let Handoff { request, state, to, attempt, rejection, .. } = handoff;
    let routed = |refused: &[String]| route(request, refused, agents).map(str::to_owned);
    let escalate = |why: Refused| Next::Escalate { why: why.message };
    match (state, to) {
        (State::Pending, None) => routed(&handoff.tried).map_or_else(escalate, |to| Next::Offer { to }),
        (State::Accepted, Some(to)) => Next::Transfer { to: to.clone() },
        (State::Rejected, Some(_)) => routed(&handoff.refused_by()).map_or_else(
            |why| {
                let reason = rejection.as_ref().map_or("", |rejection| rejection.reason.as_str());
                Next::Escalate { why: format!("{}; the last one said: {reason}", why.message) }
            },
            |to| Next::Again { to },
        ),
        // Of the requests for the same those count that nobody has answered.
        (State::Expired, Some(to)) if unanswered(handoff) <= retries => Next::Again { to: to.clone() },
        (State::Expired, Some(_)) => {
            let tries = if *attempt == 1 { "once".to_owned() } else { format!("{attempt} times") };
            Next::Escalate { why: format!("`{}` was asked for {tries} and not answered in time", request.request_id) }
        }
        (State::Pending, Some(_))
        | (State::Accepted | State::Rejected | State::Expired, None)
        | (State::Completed, _) => Next::Nothing,
    }
}

/// How it stands with the work of a handoff.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Work<'w> {
    /// Whose it is, if it is there.
    pub owner: Option<&'w str>,
    /// Another handoff of it that is not over.
    pub under_way: Option<&'w str>,
}

/// Why a handoff goes no further, whoever could take it: its work is another's by now, or is handed over by another request.
/// One that was taken goes on: what is accepted is transferred. So does one that somebody is asked: the other is given back.
pub fn overtaken(handoff: &Handoff, work: Work<'_>) -> Option<String> {
    let Handoff { request: Request { task, from_agent, .. }, state, to, .. } = handoff;
    match (state, to) {
        (State::Accepted | State::Completed, _) => None,
        (State::Pending | State::Rejected | State::Expired, _) if work.owner != Some(from_agent.as_str()) => {
            Some(format!("`{task}` is not the work of `{from_agent}` any more"))
        }
        (State::Pending, Some(_)) => None,
        (State::Pending, None) | (State::Rejected | State::Expired, _) => {
            work.under_way.map(|other| format!("`{task}` is being handed over already, by `{other}`"))
        }
    }
}

/// How many of the requests for the same, up to this one, nobody has answered.
fn unanswered(handoff: &Handoff) -> u32 {
    handoff.attempt.saturating_sub(u32::try_from(handoff.tried.len()).unwrap_or(u32::MAX))
}
