//! Handoffs of work: states and their transitions, routing, and the steps after a rejection.
//!
//! All functions here are pure; a board decides about offers and their times (docs/handoff.md). Source: SW4RM section
//! 3.11.2 (requirement rows W50 to W57).

mod lint;
mod request;
mod route;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use patchboard_kernel::rejection::code_enum;
use patchboard_lint::extension::Extension;
use patchboard_lint::{FindingCode, LintContext, Severity};

pub use request::{
    CAPABILITIES_MAX, CONTENT_BYTES_MAX, Context, NAME_CHARS_MAX, REASON_CHARS_MAX, Request, TIMEOUT_MS_MAX,
};
pub use route::{Agents, HandoffAction, TaskStatus, able, next_action, pending, route, superseded};

/// Warns of grants that outlive a handoff.
pub struct Handoffs;

impl Extension for Handoffs {
    fn codes(&self) -> &'static [FindingCode] {
        &[("handoff_unguarded", Severity::Warning, "A worker may still write to work that it has handed over.")]
    }

    fn lint(&self, context: &mut LintContext<'_, '_>) {
        lint::check(context);
    }
}

code_enum! {
    /// State of a handoff (W50).
    HandoffState {
        /// Requested, without an answer.
        Pending = "PENDING",
        /// The agent asked has accepted it.
        Accepted = "ACCEPTED",
        /// The agent asked has rejected it, with a reason.
        Rejected = "REJECTED",
        /// The context is transferred: the work now belongs to the other agent (W53, W54).
        Completed = "COMPLETED",
        /// The offer was not answered in time.
        Expired = "EXPIRED",
    }
}

/// All allowed transitions.
pub const TRANSITIONS: [(HandoffState, HandoffState); 4] = [
    (HandoffState::Pending, HandoffState::Accepted),
    (HandoffState::Pending, HandoffState::Rejected),
    (HandoffState::Pending, HandoffState::Expired),
    (HandoffState::Accepted, HandoffState::Completed),
];

impl HandoffState {
    /// Returns true if no transition leads out of it.
    pub fn is_terminal(self) -> bool {
        TRANSITIONS.iter().all(|(from, _)| *from != self)
    }
}

code_enum! {
    /// Reason why an operation on a handoff was rejected.
    HandoffCode {
        /// The current state of the handoff does not allow the requested transition.
        IllegalTransition = "handoff_illegal_move",
        /// The handoff is in a final state.
        Terminal = "handoff_terminal",
        /// The rejection has no reason.
        ReasonMissing = "handoff_reason_missing",
        /// No eligible agent has the required capabilities.
        NoRoute = "handoff_no_route",
        /// There is no handoff with this id.
        Unknown = "handoff_unknown",
        /// The answer comes from an agent other than the one asked.
        NotAddressed = "handoff_not_addressed",
        /// The accepting agent lacks a required capability.
        Incapable = "handoff_incapable",
        /// The context does not match its content type.
        BadContext = "handoff_bad_context",
        /// There is no such task.
        UnknownTask = "handoff_unknown_task",
        /// A member of the request is missing or exceeds its limit.
        BadRequest = "handoff_bad_request",
    }
}

/// Rejected operation on a handoff.
pub type HandoffError = crate::ProtocolError<HandoffCode>;

/// Checks a transition. Fails with [`HandoffCode::Terminal`] if `from` is a final state, else
/// [`HandoffCode::IllegalTransition`].
pub fn check_transition(from: HandoffState, to: HandoffState) -> Result<(), HandoffCode> {
    if TRANSITIONS.contains(&(from, to)) {
        return Ok(());
    }
    Err(if from.is_terminal() { HandoffCode::Terminal } else { HandoffCode::IllegalTransition })
}

/// Handoff as stored by a board at `/handoffs/ID`: a request and its progress.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Handoff {
    /// Request of the handoff.
    #[serde(flatten)]
    pub request: Request,
    /// Current state.
    pub state: HandoffState,
    /// Agent asked to take it; absent before the first offer.
    pub to: Option<String>,
    /// Agents that have rejected it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<String>,
    /// Attempt number, starting at 1.
    #[serde(default = "one")]
    pub attempt: u32,
    /// Id of the first attempt's request; absent for the first attempt.
    pub first: Option<String>,
    /// Reason of the rejection.
    pub rejection: Option<HandoffRejection>,
}

const fn one() -> u32 {
    1
}

/// Rejection of a handoff (W52).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandoffRejection {
    /// Agent that rejected it.
    pub by: String,
    /// Reason given.
    pub reason: String,
}

impl Handoff {
    /// Creates a pending handoff for a request.
    pub const fn new(request: Request) -> Self {
        Self {
            request,
            state: HandoffState::Pending,
            to: None,
            tried: Vec::new(),
            attempt: 1,
            first: None,
            rejection: None,
        }
    }

    /// Offers it to an agent.
    #[must_use]
    pub fn offer(self, to: impl Into<String>) -> Self {
        Self { to: Some(to.into()), ..self }
    }

    /// Accepts it for an agent with these capabilities. Fails with `handoff_not_addressed`, `handoff_incapable`, or as
    /// [`check_transition`].
    pub fn accept(self, by: &str, capabilities: &BTreeSet<String>) -> Result<Self, HandoffError> {
        let handoff = self.answered(by, HandoffState::Accepted)?;
        match handoff.request.capabilities_required.iter().find(|wanted| !capabilities.contains(*wanted)) {
            None => Ok(handoff),
            Some(lacked) => Err(HandoffError::new(HandoffCode::Incapable, format!("`{by}` lacks `{lacked}`"))),
        }
    }

    /// Rejects it for an agent. Fails with `handoff_reason_missing`, `handoff_not_addressed`, or as
    /// [`check_transition`].
    pub fn reject(self, by: &str, reason: &str) -> Result<Self, HandoffError> {
        if reason.trim().is_empty() {
            return Err(HandoffError::new(HandoffCode::ReasonMissing, format!("`{by}` does not say why")));
        }
        let handoff = self.answered(by, HandoffState::Rejected)?;
        Ok(Self { rejection: Some(HandoffRejection { by: by.to_owned(), reason: reason.to_owned() }), ..handoff })
    }

    /// Creates the next attempt, offered to an agent, after an unsuccessful one. Its id is the first attempt's id with
    /// the attempt number.
    #[must_use]
    pub fn next_attempt(&self, to: impl Into<String>) -> Self {
        let request = Request { request_id: self.next_id(), ..self.request.clone() };
        let first = Some(self.first.as_ref().unwrap_or(&self.request.request_id).clone());
        let attempt = self.attempt.saturating_add(1);
        Self { tried: self.rejected_by(), attempt, first, ..Self::new(request).offer(to) }
    }

    /// Returns the id of the next attempt.
    pub fn next_id(&self) -> String {
        let first = self.first.as_ref().unwrap_or(&self.request.request_id);
        format!("{first}.{}", self.attempt.saturating_add(1))
    }

    /// Returns the agents that have rejected it so far.
    pub fn rejected_by(&self) -> Vec<String> {
        let last = self.to.iter().filter(|to| self.state == HandoffState::Rejected && !self.tried.contains(to));
        self.tried.iter().chain(last).cloned().collect()
    }

    fn answered(self, by: &str, state: HandoffState) -> Result<Self, HandoffError> {
        if self.to.as_deref() != Some(by) {
            let message = format!("`{by}` was not asked to take `{}`", self.request.request_id);
            return Err(HandoffError::new(HandoffCode::NotAddressed, message));
        }
        self.moved(state)
    }

    /// Moves it to a state. Fails as [`check_transition`].
    pub fn moved(self, state: HandoffState) -> Result<Self, HandoffError> {
        let Self { request: Request { request_id, .. }, state: from, .. } = &self;
        let message = || format!("`{request_id}` is {from}, and {state} does not follow that");
        check_transition(*from, state).map_err(|code| HandoffError::new(code, message()))?;
        Ok(Self { state, ..self })
    }
}

/// Checks a new request against the existing handoffs and tasks. Fails as [`Request::check`], with
/// `handoff_unknown_task`, or for an existing id as [`check_transition`] to `PENDING`.
pub fn check_request(request: &Request, handoffs: &[Handoff], tasks: &BTreeSet<String>) -> Result<(), HandoffError> {
    request.check()?;
    if !tasks.contains(&request.task) {
        let message = format!("there is no piece of work `{}`", request.task);
        return Err(HandoffError::new(HandoffCode::UnknownTask, message));
    }
    match find(handoffs, &request.request_id) {
        Ok(there) => there.clone().moved(HandoffState::Pending).map(drop),
        Err(_) => Ok(()),
    }
}

/// Returns the handoff with this id. Fails with `handoff_unknown` if there is none.
pub fn find<'h>(handoffs: &'h [Handoff], request_id: &str) -> Result<&'h Handoff, HandoffError> {
    let found = handoffs.iter().find(|handoff| handoff.request.request_id == request_id);
    found.ok_or_else(|| HandoffError::new(HandoffCode::Unknown, format!("there is no handoff `{request_id}`")))
}

#[cfg(test)]
mod tests;
