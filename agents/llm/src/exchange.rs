//! Sends a request, and plainer ones if the server rejects it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use patchboard_kernel::digest::sha256;
use patchboard_kernel::view::Prompt;
use serde_json::Value;
use tokio::time::Instant;

use super::downgrade::{self, Certainty, Downgrade, DowngradeResult};
use super::failure_codes::{self, deferral_of};
use super::reply::estimate;
use super::request::{Message, Origin, PromptRequest, Request, RequestSource};
use super::request_shape::{OutputMode, RequestShape, Stream};
use super::retries::retry_request;
use super::server_profile::SchemaPlacement;
use super::transport::{FailureCause, HttpAnswer, HttpFailure, Received};
use super::{Chat, provider_errors};
use crate::admission::{await_limits, note_limited, note_reply, note_request_failure};
use crate::config::Streaming;
use patchboard_runtime::tools::ToolDefinition;

/// Turn of a conversation to be answered.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) task: RequestSource<'a>,
    pub(super) messages: &'a [Message<'a>],
    pub(super) offered: &'a [ToolDefinition],
    pub(super) deadline: Instant,
}

pub(super) struct ExchangeResult {
    pub(super) answer: HttpAnswer,
    pub(super) has_tools: bool,
    /// The model could reply by a tool call.
    pub(super) takes_answers: bool,
    /// The server's refusal of tools, if a request without them was answered.
    pub(super) tools_refused: Option<String>,
    pub(super) shape: RequestShape,
    pub(super) lesson: OutputModeFinding,
    /// All optional parts were left out at once.
    pub(super) is_bare: bool,
    /// Time of the last request.
    pub(super) took: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OutputModeFinding {
    Accepted,
    /// Rejected first; a plainer form was accepted.
    Downgraded,
    /// Made plainer than this known form, since the reply before was empty.
    AfterEmpty(OutputMode),
}

/// Timeout of the short request that distinguishes a failing server from a failing prompt.
const CAUSE_PROBE_TIMEOUT: Duration = Duration::from_secs(10);

const CAUSE_PROBE_TOKENS: u32 = 16;

/// Returns true if server or request may have caused a failure, and its text names no part of the request.
fn is_unexplained(status: u16, body: &str) -> bool {
    failure_codes::is_ambiguous_status(status)
        && !downgrade::is_explained(&provider_errors::error_message(body).to_ascii_lowercase())
}

impl Chat {
    /// Sends a request, and plainer ones as long as the server rejects them.
    pub(super) async fn exchange(&self, question: Question<'_>) -> Result<ExchangeResult, HttpFailure> {
        let Question { task, messages, offered, deadline } = question;
        let key = task.key();
        let place = SchemaPlacement::for_tools(offered);
        let known = self.server_profile.lock().shape(&key, place, self.model.structured);
        let known = match self.model.stream {
            Streaming::Always => RequestShape { stream: known.stream.max(Stream::WithUsage), ..known },
            Streaming::Auto | Streaming::Never => known,
        };
        let form = task.failures.map_or(known.form, |trouble| known.form.max(trouble.form()));
        let start = RequestShape { form, ..known };
        let broken_off = task.call_key();
        let broken_off = broken_off.and_then(|call| self.server_profile.lock().take_downgrade(&(call, place), start));
        let (mut climb, mut refused) = match broken_off {
            Some((climb, refused)) => (climb, Some(refused)),
            None => (Downgrade::new(start, !offered.is_empty()), None),
        };
        let mut sent = BTreeSet::new();
        let mut fault = FailureCause::Unknown;
        loop {
            let has_tools = !offered.is_empty() && !climb.shape.no_tools;
            let request = self.request(task, messages, if has_tools { offered } else { &[] }, climb.shape);
            let body = self.body(&request).map_err(|error| HttpFailure::InvalidBody(error.to_string()))?;
            // A step may leave the request unchanged.
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
            let tokens = estimate(body.len()).saturating_add(u64::from(task.reply_tokens));
            if let Err(wait) = await_limits(task.call(), tokens, deadline).await {
                note_limited(task.call());
                if let Some((call, refused)) = task.call_key().zip(refused) {
                    self.server_profile.lock().keep_downgrade((call, place), climb, refused);
                }
                return Err(HttpFailure::Limited { wait });
            }
            let began = Instant::now();
            let failure = match self.send_with_retries(task, &request, body, deadline, refused.is_none()).await {
                Ok(answer) => {
                    let tools_refused = (!has_tools && !offered.is_empty())
                        .then(|| refused.as_ref().map(ToString::to_string).unwrap_or_default());
                    let is_lowered = form != known.form;
                    let found = climb.found();
                    if let Some(found) = found {
                        let (shape, name) = (found.shape, &self.model.model);
                        let with = shape.beside(RequestShape { form, ..known });
                        let note =
                            format!("model {name} is asked with {with}: its server refused the request as it was");
                        match shape.drops_settings_of(known) {
                            true => tracing::warn!("{note}"),
                            false => tracing::info!("{note}"),
                        }
                    }
                    if tools_refused.is_none()
                        && let Some(found) = found.filter(|found| !is_lowered || found.proof == Certainty::Rejection)
                    {
                        // A form that was made plainer after an empty reply is no finding about the known one.
                        let form = if is_lowered { found.refused } else { found.shape.form };
                        let shape = RequestShape { form, ..found.shape };
                        self.server_profile.lock().remember(&key, place, DowngradeResult { shape, ..found });
                    }
                    let lesson = match found {
                        _ if is_lowered => OutputModeFinding::AfterEmpty(known.form),
                        None => OutputModeFinding::Accepted,
                        Some(_) => OutputModeFinding::Downgraded,
                    };
                    return Ok(ExchangeResult {
                        answer,
                        has_tools,
                        takes_answers: request.accepts_answer_tool(),
                        tools_refused,
                        shape: climb.shape,
                        lesson,
                        is_bare: climb.is_bare,
                        took: began.elapsed(),
                    });
                }
                Err(failure) => failure,
            };
            let failure = match failure {
                HttpFailure::Status { status, wait, body, .. }
                    if task.is_deferred() && is_unexplained(status, &body) =>
                {
                    if fault == FailureCause::Unknown && refused.is_none() {
                        fault = self.determine_cause(task, climb.shape, deadline).await;
                    }
                    if fault == FailureCause::Request {
                        note_request_failure(task.call());
                    }
                    HttpFailure::Status { status, wait, body, cause: fault }
                }
                failure => failure,
            };
            if matches!(failure, HttpFailure::NoAnswer { received: Received::Nothing })
                && self.model.stream == Streaming::Auto
            {
                self.server_profile.lock().prefer_streams();
            }
            if has_tools && failure_codes::is_tools_rejection(&failure) {
                return Err(failure);
            }
            let (climbs, is_refusal) = match &failure {
                // According to its text, no other request is accepted either.
                HttpFailure::Status { status: 400 | 403 | 422 | 429, .. } if deferral_of(&failure).is_some() => {
                    (false, false)
                }
                // The server accepts no request now.
                HttpFailure::Status { cause: FailureCause::Server, .. } => (false, false),
                HttpFailure::Status { status, body, .. } => {
                    (climb.next(*status, body), deferral_of(&failure).is_none())
                }
                _ => (false, false),
            };
            // A rejection without tools explains nothing about the request with them.
            if has_tools || offered.is_empty() || !is_refusal {
                refused = Some(failure);
            }
            if !climbs && let Some(failure) = refused.take() {
                return Err(failure);
            }
        }
    }

    /// Determines the cause of a failure by sending a short request.
    async fn determine_cause(&self, failed: RequestSource<'_>, shape: RequestShape, deadline: Instant) -> FailureCause {
        let prompt = Prompt { system: String::new(), user: "Reply with the word yes.".to_owned() };
        let probe = PromptRequest {
            caller: "another",
            prompt: &prompt,
            schema: &Value::Null,
            order: &[],
            reply_tokens: CAUSE_PROBE_TOKENS,
            timeout: CAUSE_PROBE_TIMEOUT,
            wait_for_provider: false,
        };
        let task = RequestSource::from(&probe);
        let messages = task.messages();
        let request = self.request(task, &messages, &[], RequestShape { form: OutputMode::None, ..shape });
        let Ok(body) = self.body(&request) else { return FailureCause::Unknown };
        let deadline = deadline.min(Instant::now() + CAUSE_PROBE_TIMEOUT);
        let tokens = estimate(body.len()).saturating_add(u64::from(CAUSE_PROBE_TOKENS));
        if await_limits(failed.call(), tokens, deadline).await.is_err() {
            return FailureCause::Unknown;
        }
        match self.send(body, deadline, &|| {}).await {
            Ok(_) => FailureCause::Request,
            Err(failure) if deferral_of(&failure).is_some() => FailureCause::Server,
            Err(_) => FailureCause::Unknown,
        }
    }

    /// Records the finding of a non-empty reply about its form.
    pub(super) fn record_finding(&self, task: RequestSource<'_>, place: SchemaPlacement, exchanged: &ExchangeResult) {
        match exchanged.lesson {
            OutputModeFinding::Downgraded => {}
            OutputModeFinding::Accepted => self.server_profile.lock().clear(&task.key(), place),
            OutputModeFinding::AfterEmpty(refused) => {
                let found = DowngradeResult {
                    shape: exchanged.shape,
                    refused,
                    proof: Certainty::ServerFailure,
                    is_form_refused: false,
                };
                self.server_profile.lock().remember(&task.key(), place, found);
            }
        }
    }

    /// Sends the request until it is answered, fails for good, or may not be repeated. A worker's call is sent once,
    /// because its board waits for the provider.
    async fn send_with_retries(
        &self,
        task: RequestSource<'_>,
        request: &Request<'_>,
        body: Vec<u8>,
        deadline: Instant,
        is_first: bool,
    ) -> Result<HttpAnswer, HttpFailure> {
        // A plainer request replaces a retry.
        let tries = match task.origin {
            _ if task.is_deferred() || !is_first => 1,
            Origin::Prompt(asked) if asked.wait_for_provider => u32::MAX,
            _ => self.model.max_tries,
        };
        // A wrong address or key is no outage, so tries without a connection are limited.
        let unsent = AtomicU32::new(0);
        let is_patient = |failure: &HttpFailure| {
            let is_unsent = matches!(failure, HttpFailure::Key(_) | HttpFailure::Connect(_));
            let before =
                if is_unsent { unsent.fetch_add(1, Ordering::Relaxed) } else { unsent.swap(0, Ordering::Relaxed) };
            !is_unsent || before + 1 < self.model.max_tries
        };
        let may = |failure: &HttpFailure| {
            (request.tools.is_empty() || !failure_codes::is_tools_rejection(failure)) && is_patient(failure)
        };
        let begun = || note_reply(task.call());
        retry_request(tries, deadline, may, || self.send(body.clone(), deadline, &begun)).await
    }
}
