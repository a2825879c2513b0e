//! Probes the abilities of a model with a few tiny requests.
//!
//! Requests use the path of a worker's call, through the ladder, and the report shows the ladder's findings. At most
//! four requests are made in addition to those of the ladder, each with a reply of at most 32 tokens:
//!
//! 1. as configured, with a form;
//! 2. with the optional members that are not configured;
//! 3. with a tool;
//! 4. as a stream.

use std::fmt;
use std::time::Duration;

use patchboard_kernel::code_enum;
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::money::Money;
use patchboard_kernel::view::Prompt;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};

use super::exchange::{ExchangeResult, Question};
use super::failure_codes::deferral_of;
use super::inline_tool_calls::parse_inline_calls;
use super::reply::Completion;
use super::request::{ANSWER, PromptRequest, RequestSource, estimate_usage};
pub use super::request_shape::OutputMode;
use super::request_shape::{Limit, Stream, Temperature};
use super::transport::{HttpFailure, Received};
use super::{Chat, Variables, api, reply_text};
use crate::config::{Api, Model, Streaming, Structured};
use patchboard_runtime::tools::ToolDefinition;

const REPLY_TOKENS: u32 = 32;

const TOOL: &str = "note";

/// Abilities of a model.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Capabilities {
    /// Latency of the first answered request.
    pub latency_ms: u64,
    /// Richest reply form that the server accepts.
    pub form: OutputMode,
    /// Calls of tools.
    pub tools: Capability,
    /// Replies as streams.
    pub stream: Capability,
    /// Name of the member that limits the tokens of a reply; none if the server accepts no limit.
    pub token_limit: Option<&'static str>,
    /// Largest limit that the server named in a refusal.
    pub token_limit_max: Option<u32>,
    /// Messages of the role `system`.
    pub system: Capability,
    /// The member `temperature`.
    pub temperature: Capability,
    /// The member `seed`.
    pub seed: Capability,
    /// The member `top_p`.
    pub top_p: Capability,
    /// The member `stop`.
    pub stop: Capability,
    /// The member `reasoning_effort`.
    pub reasoning_effort: Capability,
    /// Token counts in answers.
    pub usage: Capability,
    /// Tokens of all answered requests.
    pub tokens: Usage,
    /// Their price, if one is configured.
    pub cost: Option<Cost>,
}

/// An amount in a currency.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Cost {
    /// The amount.
    pub amount: Money,
    /// The currency.
    pub currency: String,
}

/// Finding about one ability of a server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Capability {
    /// The finding.
    pub state: Support,
    /// The provider's message, or the form that works.
    pub note: Option<String>,
}

code_enum! {
    /// State of a finding.
    Support {
        /// Supported.
        Yes = "yes",
        /// Not supported.
        No = "no",
        /// Not determined by the requests.
        Unknown = "unknown",
    }
}

/// Failure of the first request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapabilityProbeError {
    /// The provider's message, without secrets.
    pub message: String,
    /// Advice for the operator.
    pub help: &'static str,
}

impl Capability {
    fn new(state: Support, note: Option<&str>) -> Self {
        Self { state, note: note.map(str::to_owned) }
    }

    const fn is(taken: bool) -> Self {
        Self { state: if taken { Support::Yes } else { Support::No }, note: None }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.as_str();
        if let Some(note) = &self.note { write!(f, "{state} ({note})") } else { f.write_str(state) }
    }
}

impl Capabilities {
    /// Returns names and findings as text for people.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let limit = self.token_limit.unwrap_or("none");
        let limit = self.token_limit_max.map_or_else(|| limit.to_owned(), |max| format!("{limit}, at most {max}"));
        let estimated = if self.tokens.estimated { ", estimated" } else { "" };
        let mut lines = vec![
            ("reply form", self.form.to_string()),
            ("tools", self.tools.to_string()),
            ("stream", self.stream.to_string()),
            ("token limit", limit),
            ("system role", self.system.to_string()),
            ("temperature", self.temperature.to_string()),
            ("seed", self.seed.to_string()),
            ("top_p", self.top_p.to_string()),
            ("stop", self.stop.to_string()),
            ("reasoning_effort", self.reasoning_effort.to_string()),
            ("token counts", self.usage.to_string()),
            ("tokens", format!("{} prompt, {} reply{estimated}", self.tokens.prompt, self.tokens.completion)),
        ];
        if let Some(Cost { amount, currency }) = &self.cost {
            lines.push(("cost", format!("{amount} {currency}{estimated}")));
        }
        lines
    }
}

/// Probes a model within this time.
/// Fails if the first request was not answered.
pub async fn probe_capabilities(
    model: &Model,
    variables: &Variables,
    time: Duration,
) -> Result<Capabilities, CapabilityProbeError> {
    let model = Model { max_tries: 1, ..model.clone() };
    let chat = Chat::new(&model, variables).map_err(|message| CapabilityProbeError {
        message,
        help: "correct it in patchboard.toml, or set the variable that it names",
    })?;
    CapabilityProbe { chat, time, deadline: Instant::now() + time, tokens: Usage::default() }.run(&model).await
}

struct CapabilityProbe {
    chat: Chat,
    time: Duration,
    deadline: Instant,
    tokens: Usage,
}

impl CapabilityProbe {
    async fn run(mut self, model: &Model) -> Result<Capabilities, CapabilityProbeError> {
        let (first, completion) = match self.ask("Reply with {\"ok\": \"yes\"}.", None).await {
            Ok((first, Some(completion))) => (first, completion),
            Ok((_, None)) => return Err(unanswered("the answer holds no choice".to_owned(), None)),
            Err((message, failure)) => return Err(unanswered(message, Some(&failure))),
        };
        let [seed, top_p, stop, reasoning_effort] = self.members(model, &first).await;
        let tools = self.tools(model).await;
        let stream = self.stream(model, &first).await;
        let (shape, is_bare) = (first.shape, first.is_bare);
        let unless_bare = |ability: Capability| if is_bare { left_out_together() } else { ability };
        let cost = model
            .price
            .as_ref()
            .map(|price| Cost { amount: Money(self.tokens.cost(price)), currency: price.currency.clone() });
        let token_limit = match (model.api, shape.limit) {
            (Api::Anthropic, _) => Some("max_tokens"),
            (_, Limit::None) => None,
            (Api::Responses, _) => Some("max_output_tokens"),
            (Api::Chat, Limit::MaxTokens) => Some("max_tokens"),
            (Api::Chat, Limit::MaxCompletionTokens) => Some("max_completion_tokens"),
        };
        Ok(Capabilities {
            latency_ms: u64::try_from(first.took.as_millis()).unwrap_or(u64::MAX),
            form: shape.form,
            tools,
            stream,
            token_limit,
            token_limit_max: shape.cap,
            system: if shape.folded { unless_bare(Capability::is(false)) } else { Capability::is(true) },
            temperature: match shape.temperature {
                Temperature::Given => Capability::is(true),
                Temperature::Positive => Capability::new(Support::Yes, Some("above 0 only")),
                Temperature::None => unless_bare(Capability::is(false)),
            },
            seed,
            top_p,
            stop,
            reasoning_effort,
            usage: Capability::is(is_counted(&completion)),
            tokens: self.tokens,
            cost,
        })
    }

    /// Repeats the first request with the optional members that are not configured.
    async fn members(&mut self, model: &Model, first: &ExchangeResult) -> [Capability; 4] {
        let has = |name: &str, is_set: bool| is_set || model.extra_body.contains_key(name);
        let configured = [
            has("seed", model.seed.is_some()),
            has("top_p", model.top_p.is_some()),
            has("stop", !model.stop.is_empty()),
            has("reasoning_effort", model.reasoning_effort.is_some()),
        ];
        let sendable = MEMBERS.map(|(name, sample)| is_sent(model.api, name, &json!(sample)));
        self.chat.model = Model {
            structured: Structured::Off,
            seed: model.seed.or_else(|| (!configured[0]).then_some(1)),
            top_p: model.top_p.or_else(|| (!configured[1]).then_some(1.0)),
            stop: if configured[2] { model.stop.clone() } else { vec!["\n\n\n\n".to_owned()] },
            reasoning_effort: model.reasoning_effort.clone().or_else(|| (!configured[3]).then(|| "low".to_owned())),
            ..model.clone()
        };
        let is_open = configured.iter().zip(sendable).any(|(configured, sendable)| !configured && sendable);
        let second = if is_open { Some(self.ask("Reply with the word yes.", None).await) } else { None };
        std::array::from_fn(|at| {
            if !sendable[at] {
                return Capability::new(Support::Unknown, Some("not a part of this protocol"));
            }
            let exchanged = match (&second, configured[at]) {
                (_, true) | (None, _) => first,
                (Some(Ok((second, _))), false) => second,
                (Some(Err((why, _))), false) => return Capability::new(Support::Unknown, Some(why)),
            };
            let left_out = exchanged.shape.left_out;
            match [left_out.seed, left_out.top_p, left_out.stop, left_out.effort][at] {
                true if exchanged.is_bare || (!configured[at] && first.is_bare) => left_out_together(),
                is_left_out => Capability::is(!is_left_out),
            }
        })
    }

    /// Offers a tool, in addition to the one for the reply.
    async fn tools(&mut self, model: &Model) -> Capability {
        self.chat.model = model.clone();
        let parameters = json!({
            "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
            "additionalProperties": false
        });
        let tool = ToolDefinition { name: TOOL.to_owned(), description: "Keeps a short text.".to_owned(), parameters };
        match self.ask("Call the tool note with the text hi.", Some(&tool)).await {
            Ok((ExchangeResult { tools_refused: Some(why), .. }, _)) => {
                Capability::new(Support::No, Some(&self.chat.masked(&why)))
            }
            Ok((_, Some(completion))) if !completion.calls.is_empty() => Capability::is(true),
            Ok((_, Some(completion))) => {
                let is_offered = |name: &str| name == TOOL || name == ANSWER;
                match parse_inline_calls(reply_text::strip_wrapping(&completion.text), is_offered).is_empty() {
                    false => Capability::new(Support::Yes, Some("written as text")),
                    true => {
                        Capability::new(Support::Unknown, Some("the server takes tools; the short reply called none"))
                    }
                }
            }
            Ok((_, None)) => Capability::new(Support::Unknown, Some("the answer holds no choice")),
            Err((why, failure)) => refused_or_unknown(&why, &failure),
        }
    }

    /// Requests a stream, unless the first answer was one.
    async fn stream(&mut self, model: &Model, first: &ExchangeResult) -> Capability {
        if first.answer.is_stream {
            let is_only = model.stream == Streaming::Auto && first.shape.stream != Stream::Off;
            return Capability::new(Support::Yes, is_only.then_some("the server serves nothing else"));
        }
        self.chat.model = Model { stream: Streaming::Always, structured: Structured::Off, ..model.clone() };
        match self.ask("Reply with the word yes.", None).await {
            Ok((streamed, Some(completion))) if streamed.answer.is_stream => {
                Capability::new(Support::Yes, (!is_counted(&completion)).then_some("without token counts"))
            }
            Ok((streamed, None)) if streamed.answer.is_stream => {
                Capability::new(Support::Unknown, Some("the stream holds no choice"))
            }
            Ok(_) => Capability::new(Support::No, Some("the answer comes in one piece")),
            Err((why, failure)) => refused_or_unknown(&why, &failure),
        }
    }

    /// Sends one request. Replies that end at their token limit count as answers.
    async fn ask(
        &mut self,
        words: &str,
        tool: Option<&ToolDefinition>,
    ) -> Result<(ExchangeResult, Option<Completion>), (String, HttpFailure)> {
        let prompt = Prompt { system: "You answer briefly, in JSON where asked.".to_owned(), user: words.to_owned() };
        // Has one keyword of each kind that plainer forms omit, and an optional member.
        let schema = json!({
            "type": "object",
            "properties": {"ok": {"type": "string", "maxLength": 8}, "note": {"const": "none"}},
            "required": ["ok"]
        });
        let asked = PromptRequest {
            caller: "doctor",
            prompt: &prompt,
            schema: &schema,
            order: &[],
            reply_tokens: REPLY_TOKENS,
            timeout: self.time,
            wait_for_provider: false,
        };
        let task = RequestSource::from(&asked);
        let (messages, offered) = (task.messages(), tool.map(std::slice::from_ref).unwrap_or_default());
        let exchange = self.chat.exchange(Question { task, messages: &messages, offered, deadline: self.deadline });
        let exchanged = timeout_at(self.deadline, exchange).await;
        let exchanged =
            exchanged.unwrap_or(Err(HttpFailure::NoAnswer { received: Received::Nothing })).map_err(|failure| {
                let message = self.chat.name(task, &failure).message;
                (message, failure)
            })?;
        let completion = Completion::read(&exchanged.answer.value, exchanged.has_tools);
        if let Some(completion) = &completion {
            let counted = completion.usage.filter(|_| is_counted(completion));
            self.tokens.add(counted.unwrap_or_else(|| estimate_usage(&messages, completion)));
        }
        Ok((exchanged, completion))
    }
}

const MEMBERS: [(&str, &str); 4] = [("seed", "1"), ("top_p", "1"), ("stop", "x"), ("reasoning_effort", "low")];

fn is_sent(api: Api, name: &str, value: &Value) -> bool {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
    let mut with = body.clone();
    with[name] = value.clone();
    api::encode(api, with, true, &Map::new()) != api::encode(api, body, true, &Map::new())
}

fn is_counted(completion: &Completion) -> bool {
    completion.usage.is_some_and(|usage| usage.total() > 0)
}

fn left_out_together() -> Capability {
    Capability::new(Support::Unknown, Some("left out with others until the server answered"))
}

fn refused_or_unknown(why: &str, failure: &HttpFailure) -> Capability {
    let is_refusal = matches!(failure, HttpFailure::Status { status: 400 | 404 | 415 | 422 | 500 | 501, .. });
    Capability::new(if is_refusal { Support::No } else { Support::Unknown }, Some(why))
}

fn unanswered(message: String, failure: Option<&HttpFailure>) -> CapabilityProbeError {
    use DeferralReason as R;
    let form = "is url in patchboard.toml the base of a chat endpoint, and api its protocol?";
    let help = match (failure, failure.and_then(deferral_of).map(|deferral| deferral.reason)) {
        (Some(HttpFailure::Key(_)), _) => "set the key that api_key_env or api_key_command of the model names",
        (Some(HttpFailure::NoAnswer { .. }), _) => {
            "give it more time with --timeout, or see what keeps the server busy"
        }
        (_, Some(R::KeyRefused)) => "put the right key into the variable that api_key_env names",
        (_, Some(R::AccessDenied)) => "use a key whose account may use the model, or another model",
        (_, Some(R::PaymentRequired)) => "pay the provider, or configure another model",
        (_, Some(R::ModelNotFound)) => "correct model, or url, in patchboard.toml",
        (_, Some(R::Unreachable)) => {
            "start the server, or correct url in patchboard.toml; is a proxy or a firewall between?"
        }
        (_, Some(R::RateLimited | R::Overloaded | R::ModelLoading | R::NoAnswer)) => "wait, and ask again",
        (Some(HttpFailure::Status { .. }), _) => {
            "the server refused the plainest request, too: correct what its words name (model, url, api, extra_body)"
        }
        _ => form,
    };
    CapabilityProbeError { message, help }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_has_the_members_that_its_requests_carry() {
        let sent = |api| MEMBERS.map(|(name, sample)| is_sent(api, name, &json!(sample)));
        assert_eq!(sent(Api::Chat), [true; 4]);
        assert_eq!(sent(Api::Responses), [false, true, false, true]);
        assert_eq!(sent(Api::Anthropic), [false, true, true, true]);
    }
}
