//! Sends a request, and plainer ones where the server refuses it.

use std::collections::BTreeSet;
use std::time::Duration;

use patchboard_kernel::digest::sha256;
use tokio::time::Instant;

use super::known::{Place, SeatKey};
use super::ladder::{Climb, Shape};
use super::refusals::{self, deferral_of};
use super::request::{Message, Request, Task};
use super::transport::{Answered, HttpFailure};
use super::{Chat, again};
use crate::config::Streaming;
use crate::tools::Definition;

/// An answer, and the request that it answers.
pub(super) struct Exchanged {
    pub(super) answer: Answered,
    pub(super) has_tools: bool,
    /// The model could reply by a tool.
    pub(super) takes_answers: bool,
    /// The refusal of a request with tools, where one without them was answered.
    pub(super) tools_refused: Option<String>,
    pub(super) shape: Shape,
    /// Every optional part was left out at once.
    pub(super) is_bare: bool,
    /// Time of the last request.
    pub(super) took: Duration,
}

impl Chat {
    /// Sends a request, and plainer ones as long as the server refuses them.
    pub(super) async fn exchange(
        &self,
        task: Task<'_>,
        messages: &[Message<'_>],
        offered: &[Definition],
        deadline: Instant,
    ) -> Result<Exchanged, HttpFailure> {
        let key = task.key();
        let place = if offered.is_empty() { Place::Format } else { Place::Tool };
        let mut climb = Climb::new(self.known().shape(&key, place, self.model.structured), !offered.is_empty());
        let mut refused: Option<HttpFailure> = None;
        let mut sent = BTreeSet::new();
        loop {
            let has_tools = !offered.is_empty() && !climb.shape().no_tools;
            let request = self.request(task, messages, if has_tools { offered } else { &[] }, climb.shape());
            let body = self.body(&request).map_err(|error| HttpFailure::Form(error.to_string()))?;
            // A step may change nothing.
            if !sent.insert(sha256(&body))
                && let Some(failure) = refused.take()
            {
                match &failure {
                    HttpFailure::Status { status, body, .. } if climb.next(*status, body) => {
                        refused = Some(failure);
                        continue;
                    }
                    _ => return Err(failure),
                }
            }
            let began = Instant::now();
            let failure = match self.insist(task, &request, body, deadline, refused.is_none()).await {
                Ok(answer) => {
                    let tools_refused = (!has_tools && !offered.is_empty())
                        .then(|| refused.as_ref().map(ToString::to_string).unwrap_or_default());
                    if tools_refused.is_none() {
                        self.learn(&key, place, &climb);
                    }
                    return Ok(Exchanged {
                        answer,
                        has_tools,
                        takes_answers: request.takes_answers(),
                        tools_refused,
                        shape: climb.shape(),
                        is_bare: climb.is_bare(),
                        took: began.elapsed(),
                    });
                }
                Err(failure) => failure,
            };
            if matches!(failure, HttpFailure::NoAnswer { came: false }) && self.model.stream == Streaming::Auto {
                self.known().prefer_streams();
            }
            if has_tools && refusals::is_of_tools(&failure) {
                return Err(failure);
            }
            let (climbs, is_refusal) = match &failure {
                // Its words say that no other request is taken either.
                HttpFailure::Status { status: 400 | 403 | 422 | 429, .. } if deferral_of(&failure).is_some() => {
                    (false, false)
                }
                HttpFailure::Status { status, body, .. } => {
                    (climb.next(*status, body), deferral_of(&failure).is_none())
                }
                _ => (false, false),
            };
            // The refusal of a request without tools explains nothing about the one with them.
            if has_tools || offered.is_empty() || !is_refusal {
                refused = Some(failure);
            }
            if !climbs && let Some(failure) = refused.take() {
                return Err(failure);
            }
        }
    }

    /// Keeps what a climb has found.
    fn learn(&self, seat: &SeatKey, place: Place, climb: &Climb) {
        match climb.found() {
            Some(found) => {
                self.known().remember(seat, place, found);
                tracing::info!(model = %self.model.model, ?found, "the server refused a request as it was");
            }
            None => self.known().clear(seat, place),
        }
    }

    /// Sends the request until it is answered, cannot be, or may not be sent again. A worker's call is sent once: its board
    /// waits for the provider.
    async fn insist(
        &self,
        task: Task<'_>,
        request: &Request<'_>,
        body: Vec<u8>,
        deadline: Instant,
        is_first: bool,
    ) -> Result<Answered, HttpFailure> {
        // A plainer request stands for a repetition.
        let tries = if task.is_deferred() || !is_first { 1 } else { self.model.max_tries };
        let may = |failure: &HttpFailure| request.tools.is_empty() || !refusals::is_of_tools(failure);
        again(tries, deadline, may, || self.send(body.clone(), deadline)).await
    }
}
