//! Handing work over: what may follow what, who takes it, and what comes after nobody does.
//!
//! Everything here is a function of plain data; who is asked, and when, is a board's business (docs/handoff.md). Source:
//! SW4RM section 3.11.2 (requirement rows W50 to W57).

mod request;
mod route;

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rejection::coded;

pub use request::{
    CAPABILITIES_MAX, CONTENT_BYTES_MAX, Context, NAME_CHARS_MAX, REASON_CHARS_MAX, Request, TIMEOUT_MS_MAX,
};
pub use route::{Agents, Next, Work, next, overtaken, pending, route};

coded! {
    /// How far a handoff is (W50).
    State {
        /// It is asked for.
        Pending = "PENDING",
        /// Whoever was asked takes it.
        Accepted = "ACCEPTED",
        /// Whoever was asked does not take it, and says why.
        Rejected = "REJECTED",
        /// The context is transferred: from now on the work is the other's (W53, W54).
        Completed = "COMPLETED",
        /// Nobody has answered in time.
        Expired = "EXPIRED",
    }
}

/// Every move there is.
pub const MOVES: [(State, State); 4] = [
    (State::Pending, State::Accepted),
    (State::Pending, State::Rejected),
    (State::Pending, State::Expired),
    (State::Accepted, State::Completed),
];

impl State {
    /// Whether nothing follows it.
    pub fn is_terminal(self) -> bool {
        MOVES.iter().all(|(from, _)| *from != self)
    }
}

coded! {
    /// Why something is not done with a handoff.
    HandoffCode {
        /// What is asked for does not follow the state that the handoff has.
        IllegalMove = "handoff_illegal_move",
        /// The handoff is over.
        Terminal = "handoff_terminal",
        /// It is refused without saying why.
        ReasonMissing = "handoff_reason_missing",
        /// Nobody is there who may be asked and can do it.
        NoRoute = "handoff_no_route",
        /// There is no handoff of this id.
        Unknown = "handoff_unknown",
        /// It is answered by somebody else than who was asked.
        NotAddressed = "handoff_not_addressed",
        /// Whoever would take it lacks a capability that is required.
        Incapable = "handoff_incapable",
        /// The context is not what its content type says.
        BadContext = "handoff_bad_context",
        /// There is no such piece of work.
        UnknownTask = "handoff_unknown_task",
        /// A member of the request is missing, or larger than it may be.
        BadRequest = "handoff_bad_request",
    }
}

/// That something is not done with a handoff, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// To branch on.
    pub code: HandoffCode,
    /// For people.
    pub message: String,
}

impl Refused {
    fn new(code: HandoffCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refused {}

/// Whether one state follows another.
///
/// # Errors
/// [`HandoffCode::Terminal`] where nothing follows the first, else [`HandoffCode::IllegalMove`].
pub fn step(from: State, to: State) -> Result<(), HandoffCode> {
    if MOVES.contains(&(from, to)) {
        return Ok(());
    }
    Err(if from.is_terminal() { HandoffCode::Terminal } else { HandoffCode::IllegalMove })
}

/// A request, and what has come of it: what a board keeps at `/handoffs/ID`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Handoff {
    /// What is asked for.
    #[serde(flatten)]
    pub request: Request,
    /// How far it is.
    pub state: State,
    /// Who is asked to take it; absent: nobody yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Who has not taken it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<String>,
    /// The how-manieth request for the same it is, from 1.
    #[serde(default = "one")]
    pub attempt: u32,
    /// The first of these requests; absent: it is the first itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// Why it was not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejection: Option<Rejection>,
}

const fn one() -> u32 {
    1
}

/// Why a handoff was not taken (W52).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rejection {
    /// Who says so.
    pub by: String,
    /// Why.
    pub reason: String,
}

impl Handoff {
    /// What a request begins as.
    pub const fn new(request: Request) -> Self {
        Self { request, state: State::Pending, to: None, tried: Vec::new(), attempt: 1, first: None, rejection: None }
    }

    /// Asks somebody.
    #[must_use]
    pub fn offered(self, to: impl Into<String>) -> Self {
        Self { to: Some(to.into()), ..self }
    }

    /// Somebody takes it, who has these capabilities.
    ///
    /// # Errors
    /// `handoff_not_addressed`, `handoff_incapable`, and what [`step`] says.
    pub fn accepted(self, by: &str, capabilities: &BTreeSet<String>) -> Result<Self, Refused> {
        let handoff = self.answered(by, State::Accepted)?;
        match handoff.request.capabilities_required.iter().find(|wanted| !capabilities.contains(*wanted)) {
            None => Ok(handoff),
            Some(lacked) => Err(Refused::new(HandoffCode::Incapable, format!("`{by}` lacks `{lacked}`"))),
        }
    }

    /// Somebody does not take it.
    ///
    /// # Errors
    /// `handoff_reason_missing`, `handoff_not_addressed`, and what [`step`] says.
    pub fn rejected(self, by: &str, reason: &str) -> Result<Self, Refused> {
        if reason.trim().is_empty() {
            return Err(Refused::new(HandoffCode::ReasonMissing, format!("`{by}` does not say why")));
        }
        let handoff = self.answered(by, State::Rejected)?;
        Ok(Self { rejection: Some(Rejection { by: by.to_owned(), reason: reason.to_owned() }), ..handoff })
    }

    /// The context is transferred.
    ///
    /// # Errors
    /// What [`step`] says.
    pub fn completed(self) -> Result<Self, Refused> {
        self.moved(State::Completed)
    }

    /// The time is over.
    ///
    /// # Errors
    /// What [`step`] says.
    pub fn expired(self) -> Result<Self, Refused> {
        self.moved(State::Expired)
    }

    /// The same request once more, to somebody, after one that was not taken. Its id is that of the first with the number of
    /// the attempt.
    #[must_use]
    pub fn again(&self, to: impl Into<String>) -> Self {
        let request = Request { request_id: self.next_id(), ..self.request.clone() };
        let first = Some(self.first.as_ref().unwrap_or(&self.request.request_id).clone());
        let attempt = self.attempt.saturating_add(1);
        Self { tried: self.refused_by(), attempt, first, ..Self::new(request).offered(to) }
    }

    /// What the next request for the same is called.
    pub fn next_id(&self) -> String {
        let first = self.first.as_ref().unwrap_or(&self.request.request_id);
        format!("{first}.{}", self.attempt.saturating_add(1))
    }

    /// Who has refused it, up to now.
    pub fn refused_by(&self) -> Vec<String> {
        let last = self.to.iter().filter(|to| self.state == State::Rejected && !self.tried.contains(to));
        self.tried.iter().chain(last).cloned().collect()
    }

    fn answered(self, by: &str, state: State) -> Result<Self, Refused> {
        if self.to.as_deref() != Some(by) {
            let message = format!("`{by}` was not asked to take `{}`", self.request.request_id);
            return Err(Refused::new(HandoffCode::NotAddressed, message));
        }
        self.moved(state)
    }

    fn moved(self, state: State) -> Result<Self, Refused> {
        let Self { request: Request { request_id, .. }, state: from, .. } = &self;
        let message = || format!("`{request_id}` is {from}, and {state} does not follow that");
        step(*from, state).map_err(|code| Refused::new(code, message()))?;
        Ok(Self { state, ..self })
    }
}

/// Whether a request can be made where these handoffs and pieces of work are.
///
/// # Errors
/// What [`Request::check`] says, `handoff_unknown_task`; where there is a handoff of this id, what [`step`] says of asking for it
/// again.
pub fn requested(request: &Request, handoffs: &[Handoff], tasks: &BTreeSet<String>) -> Result<(), Refused> {
    request.check()?;
    if !tasks.contains(&request.task) {
        let message = format!("there is no piece of work `{}`", request.task);
        return Err(Refused::new(HandoffCode::UnknownTask, message));
    }
    match find(handoffs, &request.request_id) {
        Ok(there) => there.clone().moved(State::Pending).map(drop),
        Err(_) => Ok(()),
    }
}

/// The handoff of an id.
///
/// # Errors
/// `handoff_unknown`.
pub fn find<'h>(handoffs: &'h [Handoff], request_id: &str) -> Result<&'h Handoff, Refused> {
    let found = handoffs.iter().find(|handoff| handoff.request.request_id == request_id);
    found.ok_or_else(|| Refused::new(HandoffCode::Unknown, format!("there is no handoff `{request_id}`")))
}

#[cfg(test)]
mod tests;
