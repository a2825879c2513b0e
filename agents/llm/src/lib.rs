//! Client for OpenAI-compatible chat endpoints, and for the APIs of OpenAI and Anthropic.
//!
//! Owns one attempt of a call: its requests, and the classification of the outcome. A board's call is sent once: if the provider
//! does not accept it, the failure carries a deferral, and the board waits. Other callers have no board that waits, so
//! their requests are retried (`send_with_retries`). Pauses grow with jitter. A pause that the server asks for is kept
//! if it ends before the call's timeout; otherwise the attempt ends at once. The kernel decides about further attempts.
//!
//! A request that a server rejects is sent in plainer ways (`downgrade`). Findings are remembered as long as the
//! process lives (`server_profile`).
//!
//! A model with tools is called more than once in an attempt ([`Chat::run_tool_loop`]).
//!
//! * [`config`]: settings of a model and of an embeddings endpoint.
//! * [`gate`]: admission of calls to models, one bulkhead per endpoint and model.
//! * [`admission`]: requests of boards to the gate, and the deferrals from its answers.
//! * [`capabilities`]: probes the abilities of a model.
//! * [`schema`]: reply schemas.
//! * [`reply`]: parses answers.
//! * `reply_text`: strips the text around the JSON of a reply.
//! * `chat_request`: builds a request, without the parts that the server rejects.
//! * `http_body`: decodes the bodies of answers.
//! * `request_shape`: shape of a request, in which parts can be plainer.
//! * `downgrade`: plainer forms of a rejected request; `downgrade/rejection_words`: parts that a rejection names.
//! * `exchange`: sends a request and its plainer forms, until one is answered.
//! * `server_profile`: findings about a server.
//! * `interrupted`: conversations with tools that a deferral interrupted.
//! * `failure_codes`: failure codes and deferrals of failed exchanges.
//! * `stream`: assembles answers from events.
//! * `provider_errors`: reads a provider's reason for a failure.
//! * `reply_failures`: adapts an attempt after a reply that could not be judged.
//! * `retry_after`: reads the pause that a provider asks for; `retries`: repeats a request.
//! * [`embeddings`]: client for an embeddings endpoint.
//! * [`probe`]: checks that a server is reachable.
//! * [`telemetry`]: spans of calls.
//! * [`key_order`]: JSON text with a given order of members.
//! * [`transport`]: requests, TLS, timeouts.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::ledger::Usage;
use patchboard_runtime::agent::{Agent, Call, CallResult, Failure, Permit};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use self::exchange::Question;
use self::failure_codes::{code_of, deferral_of};
pub use self::interrupted::InterruptedConversations;
use self::reply::{Completion, FinishReason};
use self::reply_failures::ReplyFailures;
pub use self::request::PromptRequest;
use self::request::{Message, RequestSource, estimate_usage};
use self::server_profile::{SchemaPlacement, ServerProfile};
use self::transport::{HttpAnswer, HttpFailure, OnReplyStart, Received};
use crate::config::Model;
use patchboard_kernel::text::one_line;
use patchboard_runtime::tools::BoxFuture;

pub mod admission;
mod api;
pub mod capabilities;
mod chat_request;
pub mod config;
mod credentials;
mod downgrade;
pub mod embeddings;
mod exchange;
mod failure_codes;
pub mod gate;
mod http_body;
mod inline_tool_calls;
mod interrupted;
pub mod key_order;
mod keys;
mod markers;
pub mod probe;
mod provider_errors;
pub mod reply;
mod reply_failures;
mod reply_text;
mod request;
mod request_shape;
mod retries;
mod retry_after;
pub mod schema;
mod server_profile;
mod stream;
pub mod telemetry;
mod tool_loop;
pub mod transport;

pub use self::credentials::Variables;
pub use self::reply_text::{first_value, unfence};
pub use self::transport::install_tls_provider;

/// Characters of a provider's message that are kept.
const MESSAGE_MAX: usize = 300;

/// Characters of a rejected reply that its failure shows.
const REFUSED_MAX: usize = 200;

/// A model behind a chat endpoint.
pub struct Chat {
    endpoint: transport::Endpoint,
    model: Model,
    server_profile: Mutex<ServerProfile>,
    interrupted: Arc<Mutex<InterruptedConversations>>,
}

struct ModelReply {
    completion: Completion,
    /// The model could reply by a tool call.
    takes_answers: bool,
}

impl Chat {
    /// Creates the agent of a model; makes no request yet.
    /// An error omits values that may be secret.
    pub fn new(model: &Model, variables: &Variables) -> Result<Self, String> {
        let endpoint = transport::Endpoint::new(model, variables)?;
        Ok(Self { endpoint, model: model.clone(), server_profile: Mutex::default(), interrupted: Arc::default() })
    }

    /// Shares interrupted conversations with other models.
    #[must_use]
    pub fn with_interrupted(self, broken_off: &Arc<Mutex<InterruptedConversations>>) -> Self {
        Self { interrupted: Arc::clone(broken_off), ..self }
    }

    /// Completes a prompt, with the retries and the leniency of a worker's call.
    /// If the cost of a failed call is unknown, its usage is the charge of a board: the estimated prompt and
    /// the whole reply limit.
    pub async fn complete(&self, prompt_request: &PromptRequest<'_>) -> CallResult {
        let answer = self.in_time(RequestSource::from(prompt_request)).await;
        answer.map_err(|failure| {
            let is_free = matches!(
                failure.code,
                FailureCode::Unreachable | FailureCode::NotConfigured | FailureCode::Refused | FailureCode::RateLimited
            );
            let charged = || {
                let prompt =
                    reply::estimate(RequestSource::from(prompt_request).messages().iter().map(Message::chars).sum());
                let completion = u64::from(prompt_request.reply_tokens);
                Usage { prompt, completion, estimated: true, ..Usage::default() }
            };
            Failure { usage: failure.usage.or_else(|| (!is_free).then(charged)), ..failure }
        })
    }

    async fn in_time(&self, task: RequestSource<'_>) -> CallResult {
        let deadline = Instant::now() + task.timeout;
        pause(task, deadline).await;
        let question = Question { task, messages: &task.messages(), offered: &[], deadline };
        let ModelReply { completion, .. } = self.ask(question).await?;
        Ok(completion.into_reply())
    }

    async fn ask(&self, question: Question<'_>) -> Result<ModelReply, Failure> {
        let Question { task, deadline, .. } = question;
        let span = telemetry::chat(&self.model, task.reply_tokens);
        let asking = self.ask_with_downgrades(question).instrument(span.clone());
        let reply = tokio::time::timeout_at(deadline, asking).await.unwrap_or_else(|_| Err(out_of_time(task)));
        telemetry::record_outcome(&span, reply.as_ref().map(|said| said.completion.usage));
        reply
    }

    /// Makes one call of the model, without the parts that the server rejects.
    async fn ask_with_downgrades(&self, question: Question<'_>) -> Result<ModelReply, Failure> {
        let Question { task, messages, offered, .. } = question;
        let exchanged = self.exchange(question).await.map_err(|failure| {
            match !offered.is_empty() && failure_codes::is_tools_rejection(&failure) {
                true => self.no_tools(&failure.to_string()),
                false => self.name(task, &failure),
            }
        })?;
        let (answer, has_tools) = (&exchanged.answer.value, exchanged.has_tools);
        if let Some(why) = &exchanged.tools_refused {
            let usage =
                self.read(task, messages, answer, false).map_or_else(|f| f.usage, |completion| completion.usage);
            return Err(Failure { usage, ..self.no_tools(why) });
        }
        telemetry::record_response(&Span::current(), answer);
        let completion = self.read(task, messages, answer, has_tools)?;
        self.record_finding(task, SchemaPlacement::for_tools(offered), &exchanged);
        Ok(ModelReply { completion, takes_answers: exchanged.takes_answers })
    }

    fn no_tools(&self, why: &str) -> Failure {
        let why = self.masked(why);
        Failure::new(FailureCode::Refused, format!("the server takes no tools, which the seat's files need: {why}"))
    }

    /// Builds the task of a call, adapted to the outcomes of earlier attempts.
    fn attempt<'a>(&self, call: &'a Call) -> RequestSource<'a> {
        let trouble = ReplyFailures::from_past(&call.earlier_attempts, call.view_hash);
        let tokens = call.worker_config().limits.reply_tokens;
        let reply_tokens = match &call.permit {
            Some(Permit { admission, guard: Some(_) }) => {
                admission.reply_tokens.map_or(tokens, |reserved| u32::try_from(reserved).unwrap_or(u32::MAX))
            }
            _ => trouble.map_or(tokens, |trouble| trouble.reply_tokens(tokens, &self.model)),
        };
        RequestSource::from_call(call, trouble, reply_tokens)
    }

    /// Sends a request. Calls `begun` at the first part of a streamed reply.
    async fn send(&self, body: Vec<u8>, deadline: Instant, begun: OnReplyStart<'_>) -> Result<HttpAnswer, HttpFailure> {
        let api = self.model.api;
        let answered = self.endpoint.post(api::path(api), body, deadline, begun).await?;
        Ok(HttpAnswer { value: api::decode(api, answered.value), ..answered })
    }

    fn read(
        &self,
        task: RequestSource<'_>,
        messages: &[Message<'_>],
        answer: &Value,
        has_tools: bool,
    ) -> Result<Completion, Failure> {
        let Some(mut completion) = Completion::read(answer, has_tools) else {
            let why = format!("the answer holds no choice: {answer}");
            return Err(Failure::new(FailureCode::Protocol, self.masked(&why)));
        };
        let is_counted = |usage: &Usage| usage.prompt > 0 || usage.completion > 0;
        let mut usage = completion.usage.filter(is_counted).unwrap_or_else(|| estimate_usage(messages, &completion));
        if usage.completion == 0 {
            usage.completion = estimate_usage(messages, &completion).completion;
            usage.estimated |= usage.completion > 0;
        }
        completion.usage = Some(usage);
        let fail = |code, message: &str| {
            Err(Failure { code, message: self.masked(message), usage: Some(usage), deferral: None })
        };
        let limit = task.reply_tokens;
        completion.strip_wrapping(task.is_json());
        let arguments = completion.calls.iter_mut().map(|call| &mut call.arguments);
        for text in [&mut completion.text, &mut completion.raw].into_iter().chain(arguments) {
            if let Some(masked) = self.endpoint.access.without_keys(text) {
                *text = masked;
            }
        }
        // An object without members is no patch.
        let is_blank =
            completion.calls.is_empty() && (completion.text.is_empty() || task.is_patch() && completion.text == "{}");
        match &completion.end {
            FinishReason::Length if !completion.is_whole(task.is_json()) => {
                let advice = match task.call() {
                    Some(_) => ": raise limits.reply_tokens of the worker, or max_reply_tokens of the model",
                    None => "",
                };
                fail(FailureCode::Truncated, &format!("the reply was cut off at {limit} tokens{advice}"))
            }
            FinishReason::Other(why) if completion.is_cut_off(task.is_json()) => {
                fail(FailureCode::Truncated, &format!("the reply ended before its end ({why})"))
            }
            FinishReason::Refused(why) => match one_line(&completion.text, REFUSED_MAX) {
                text if text.is_empty() => fail(FailureCode::Refused, &format!("the model refused: {why}")),
                text => fail(FailureCode::Refused, &format!("the model refused: {why}: {text}")),
            },
            _ if !is_blank => Ok(completion),
            FinishReason::Other(why) => fail(FailureCode::Empty, &format!("the model wrote nothing ({why})")),
            _ if completion.text.is_empty() => fail(FailureCode::Empty, "the model wrote nothing"),
            _ => fail(FailureCode::Empty, "the model wrote nothing but {}"),
        }
    }

    fn name(&self, task: RequestSource<'_>, error: &HttpFailure) -> Failure {
        let deferral = task.is_deferred().then(|| deferral_of(error)).flatten();
        if let HttpFailure::NoAnswer { received } = error {
            let mut failure = out_of_time(task);
            failure.message.push_str(match received {
                Received::Nothing => "",
                Received::KeepAlives => "; it kept the connection alive, and sent nothing else",
                Received::Part => "; a part of it had come",
            });
            if task.call().is_some() {
                failure.message.push_str(": if the model is only slow, raise limits.timeout of the worker");
            }
            return Failure { deferral, ..failure };
        }
        // Precedes the provider's text, which may be long.
        let message = match (error, advice(error)) {
            (HttpFailure::Status { status, body, .. }, Some(advice)) => {
                provider_errors::status_text(*status, &format!(" ({advice})"), body)
            }
            (HttpFailure::NotAnApi { why, said }, Some(advice)) => {
                provider_errors::format_failure(why, &format!(" ({advice})"), said)
            }
            _ => error.to_string(),
        };
        Failure { deferral, ..Failure::new(code_of(error), self.masked(&message)) }
    }

    /// Returns one line of bounded length, with secrets masked.
    fn masked(&self, text: &str) -> String {
        one_line(&mask_keys(&self.endpoint.access.mask(text)), MESSAGE_MAX)
    }
}

impl Agent for Chat {
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, CallResult> {
        Box::pin(self.in_time(self.attempt(call)))
    }
}

fn advice(error: &HttpFailure) -> Option<Cow<'static, str>> {
    const ADDRESS: &str = "does the url of the model end as the provider says, most often with /v1?";
    let HttpFailure::Status { status, body, wait, .. } = error else {
        return matches!(error, HttpFailure::NotAnApi { .. }).then_some(ADDRESS.into());
    };
    let is_final = deferral_of(error).is_none();
    let words = match status {
        404 | 405 if !provider_errors::names_model(body) => ADDRESS,
        401 => "check the key of the model: api_key_env or api_key_command in patchboard.toml",
        402 => "add credit at the provider",
        403 | 451 if !is_final => "ask the provider for access to this model, or use another key or region",
        413 => "make view.budget of the worker smaller",
        400 | 422 if is_final && provider_errors::is_context_exceeded(body) => {
            "make view.budget or limits.reply_tokens of the worker smaller, or use a model with a larger context"
        }
        400 if is_final => "`patchboard doctor --models` shows what the model takes",
        _ => {
            return wait
                .map(|wait| format!("asks to wait {} s", (wait.as_secs_f64() * 1000.0).round() / 1000.0).into());
        }
    };
    Some(words.into())
}

/// Waits before a further attempt, if the trouble of the last one asks for it.
async fn pause(task: RequestSource<'_>, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    let wait = task.failures.map(ReplyFailures::pause).unwrap_or_default().min(left / 4);
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
}

fn out_of_time(task: RequestSource<'_>) -> Failure {
    let limit = task.timeout.as_secs_f64();
    Failure::new(FailureCode::Timeout, format!("no answer from the model within {limit} s"))
}

/// Masks words that look like keys, because providers repeat (parts of) other keys than ours in their messages.
fn mask_keys(text: &str) -> String {
    let is_key_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*' | '.');
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("sk-") {
        let (before, key) = rest.split_at(start);
        let end = key.find(|c| !is_key_char(c)).unwrap_or(key.len());
        masked.push_str(before);
        // `task-list` has no key.
        let inside_word = before.chars().next_back().is_some_and(|c| c.is_ascii_alphanumeric());
        masked.push_str(if inside_word { &key[..end] } else { "sk-***" });
        rest = &key[end..];
    }
    masked + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_foreign_messages_are_hidden_and_words_are_not() {
        for (text, expected) in [
            ("Incorrect API key provided: sk-abc***xyz. You", "Incorrect API key provided: sk-*** You"),
            ("sk-1 and sk-2", "sk-*** and sk-***"),
            ("the task-list of ask-me", "the task-list of ask-me"),
            ("sk-", "sk-***"),
            ("", ""),
        ] {
            assert_eq!(mask_keys(text), expected);
        }
    }
}
