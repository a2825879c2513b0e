//! Request to a chat endpoint: messages, the reply schema, and the offered tools.

use std::borrow::Cow;
use std::time::Duration;

use async_openai::types::chat::Role;
use patchboard_kernel::ablation::Interface;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::view::Prompt;
use patchboard_protocols::blackboard;
use patchboard_runtime::agent::Call;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::markers;
use super::reply::{Completion, ToolCall, estimate};
use super::reply_failures::ReplyFailures;
use super::request_shape::{RequestShape, ToolForms, TurnFormat};
use super::schema::{self, SchemaLevel};
use super::server_profile::{CallKey, WorkerKey};
use crate::key_order::OrderedJson;
use patchboard_runtime::tools::ToolDefinition;

/// Name of the reply tool, for requests with tools: many servers apply no reply schema while tools are offered.
pub(super) const ANSWER: &str = "answer";

/// A prompt to complete outside of a board.
#[derive(Clone, Copy, Debug)]
pub struct PromptRequest<'a> {
    /// Name of the caller; findings about its schema are remembered by it.
    pub caller: &'a str,
    /// The prompt.
    pub prompt: &'a Prompt,
    /// JSON Schema of the reply. If the server rejects it, the schema of any object is sent, then none.
    pub schema: &'a Value,
    /// Order of the members in the text of the schema.
    pub order: &'a [&'a str],
    /// Token limit of the reply.
    pub reply_tokens: u32,
    /// Timeout, retries included.
    pub timeout: Duration,
    /// Waits for an unavailable provider until the timeout, beyond `max_tries`.
    pub wait_for_provider: bool,
}

/// A prompt with its limits, from a call of a board or from outside of one.
#[derive(Clone, Copy)]
pub(super) struct RequestSource<'a> {
    pub(super) origin: Origin<'a>,
    pub(super) prompt: &'a Prompt,
    pub(super) reply_tokens: u32,
    pub(super) timeout: Duration,
    /// Trouble of a call's earlier attempts.
    pub(super) failures: Option<ReplyFailures>,
}

#[derive(Clone, Copy)]
pub(super) enum Origin<'a> {
    Call(&'a Call),
    Prompt(&'a PromptRequest<'a>),
}

impl<'a> From<&'a PromptRequest<'a>> for RequestSource<'a> {
    fn from(asked: &'a PromptRequest<'a>) -> Self {
        let PromptRequest { prompt, reply_tokens, timeout, .. } = *asked;
        Self { origin: Origin::Prompt(asked), prompt, reply_tokens, timeout, failures: None }
    }
}

impl<'a> RequestSource<'a> {
    pub(super) fn from_call(call: &'a Call, failures: Option<ReplyFailures>, reply_tokens: u32) -> Self {
        Self { origin: Origin::Call(call), prompt: &call.prompt, reply_tokens, timeout: call.timeout, failures }
    }

    /// Returns the call of the board, if one makes the request.
    pub(super) const fn call(self) -> Option<&'a Call> {
        if let Origin::Call(call) = self.origin { Some(call) } else { None }
    }

    pub(super) fn call_key(self) -> Option<CallKey> {
        self.call().map(|call| (call.board.clone(), call.invocation))
    }

    /// Returns true if the previous attempt may have failed because of too much reasoning.
    pub(super) fn reduces_reasoning(self) -> bool {
        self.failures.is_some_and(ReplyFailures::may_be_reasoning)
    }

    pub(super) fn key(self) -> WorkerKey {
        match self.origin {
            Origin::Call(call) => (call.context.plan().blueprint.name.clone(), call.worker.to_string()),
            Origin::Prompt(asked) => (String::new(), asked.caller.to_owned()),
        }
    }

    /// Returns the schema of the reply and its level.
    pub(super) fn form(self, level: SchemaLevel) -> Option<(SchemaLevel, OrderedJson<'a>)> {
        let (level, schema, first) = match self.origin {
            Origin::Call(call) => {
                let (level, schema) = schema::reply_schema(&call.context, level)?;
                let order = if call.worker_config().format.is_some() { blackboard::ORDER } else { &[] };
                (level, Cow::Owned(schema), order)
            }
            Origin::Prompt(asked) => match level {
                SchemaLevel::Derived => (level, Cow::Borrowed(asked.schema), asked.order),
                SchemaLevel::Generic => (level, Cow::Owned(json!({"type": "object"})), asked.order),
                SchemaLevel::None => return None,
            },
        };
        Some((level, OrderedJson { value: schema, first }))
    }

    pub(super) fn is_json(self) -> bool {
        self.call().is_none_or(|call| call.context.worker_plan().interface != Interface::Message)
    }

    pub(super) fn is_patch(self) -> bool {
        self.call().is_some_and(|call| call.context.worker_plan().interface == Interface::Patch)
    }

    pub(super) fn takes_null(self) -> bool {
        self.call().is_some_and(|call| schema::takes_null(&call.context))
    }

    /// Returns true if the call's board waits for the provider.
    pub(super) fn is_deferred(self) -> bool {
        self.call().is_some_and(|call| call.permit.is_some())
    }

    pub(super) fn messages(self) -> Vec<Message<'a>> {
        let parts = [(Role::System, &self.prompt.system), (Role::User, &self.prompt.user)];
        let parts = parts.into_iter().filter(|(_, content)| !content.is_empty());
        let messages = parts.map(|(role, content)| Message::new(role, content.as_str()));
        let note = self.failures.map(|trouble| Message::new(Role::User, trouble.note()));
        messages.chain(note).collect()
    }
}

#[derive(Serialize)]
pub(super) struct Request<'a> {
    pub(super) model: &'a str,
    pub(super) messages: Cow<'a, [Message<'a>]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stream: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seed: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) stop: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_format: Option<ResponseFormat<'a>>,
    /// Operator's members.
    #[serde(flatten)]
    pub(super) extra: Cow<'a, Map<String, Value>>,
    #[serde(skip)]
    pub(super) has_form: bool,
    /// Encrypted reasoning is requested from the Responses API.
    #[serde(skip)]
    pub(super) has_include: bool,
}

impl<'a> Request<'a> {
    /// Requests a reply with this schema, as a tool if tools are offered. Returns false if that is impossible.
    pub(super) fn require_schema(
        &mut self,
        schema: OrderedJson<'a>,
        offered: &'a [ToolDefinition],
        is_strict: bool,
    ) -> bool {
        if offered.is_empty() {
            let named =
                JsonSchemaFormat { name: "reply", strict: is_strict || schema::is_strict(&schema.value), schema };
            self.response_format = Some(ResponseFormat { r#type: "json_schema", json_schema: Some(named) });
            return true;
        }
        if schema.value["type"] != "object" || offered.iter().any(|tool| tool.name == ANSWER) {
            return false;
        }
        let description = "Gives your reply, in the form that the instructions ask for, and ends the task.";
        let mut tool = Tool::new(ANSWER, description, schema);
        tool.function.strict = is_strict.then_some(true);
        self.tools.push(tool);
        true
    }

    /// Requests a reply of any JSON object. Has no effect if tools are offered.
    pub(super) fn require_json_object(&mut self) {
        if !self.tools.is_empty() {
            return;
        }
        self.response_format = Some(ResponseFormat { r#type: "json_object", json_schema: None });
        // Servers require that the messages mention JSON.
        if !self.messages.iter().any(|message| message.content.to_ascii_lowercase().contains("json"))
            && let Some(last) = self.messages.to_mut().last_mut()
        {
            last.content.to_mut().push_str("\n\nReply with JSON.");
        }
    }

    pub(super) fn order(&self) -> &'a [&'a str] {
        let named = self.response_format.as_ref().and_then(|format| format.json_schema.as_ref());
        let of_tool = self.tools.last().map(|tool| tool.function.parameters.first);
        named.map(|named| named.schema.first).or(of_tool).unwrap_or_default()
    }

    /// Removes members that the operator's replace.
    pub(super) fn drop_overridden_members(&mut self) {
        let extra = &self.extra;
        let has = |names: &[&str]| names.iter().any(|name| extra.contains_key(*name));
        self.stream_options.take_if(|_| has(&["stream_options"]));
        self.temperature.take_if(|_| has(&["temperature"]));
        self.seed.take_if(|_| has(&["seed"]));
        self.top_p.take_if(|_| has(&["top_p"]));
        self.reasoning_effort.take_if(|_| has(&["reasoning_effort"]));
        if self.response_format.take_if(|_| has(&["response_format"])).is_some() {
            self.has_form = false;
        }
        if has(&["stop"]) {
            self.stop = &[];
        }
    }

    pub(super) const fn accepts_answer_tool(&self) -> bool {
        !self.tools.is_empty() && self.has_form
    }
}

#[derive(Serialize)]
pub(super) struct StreamOptions {
    pub(super) include_usage: bool,
}

/// Arranges the messages for a shape.
pub(super) fn arranged<'a>(messages: &'a [Message<'a>], shape: RequestShape) -> Cow<'a, [Message<'a>]> {
    let mut messages = if shape.folded { folded(messages) } else { Cow::Borrowed(messages) };
    if shape.turns != TurnFormat::Unchanged && messages.iter().any(|message| !message.tool_calls.is_empty()) {
        for message in messages.to_mut() {
            message.generalize();
            message.is_filled = shape.turns == TurnFormat::Filled;
        }
    }
    messages
}

/// Merges the system message into the first user message, and adjacent user messages into one: servers without a
/// system role often require alternating roles.
fn folded<'a>(messages: &'a [Message<'a>]) -> Cow<'a, [Message<'a>]> {
    let mut all: Vec<Message<'_>> = Vec::with_capacity(messages.len());
    for message in messages {
        let role = if message.role == Role::System { Role::User } else { message.role };
        match all.last_mut().filter(|last| last.role == Role::User && role == Role::User) {
            Some(last) => last.content = format!("{}\n\n{}", last.content, message.content).into(),
            None => all.push(Message { role, ..message.clone() }),
        }
    }
    Cow::Owned(all)
}

#[derive(Serialize)]
pub(super) struct ResponseFormat<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    json_schema: Option<JsonSchemaFormat<'a>>,
}

#[derive(Serialize)]
struct JsonSchemaFormat<'a> {
    name: &'static str,
    strict: bool,
    schema: OrderedJson<'a>,
}

#[derive(Serialize)]
pub(super) struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: OrderedJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

impl<'a> Tool<'a> {
    fn new(name: &'a str, description: &'a str, parameters: OrderedJson<'a>) -> Self {
        Self { r#type: "function", function: Function { name, description, parameters, strict: None } }
    }

    pub(super) fn from_definition(definition: &'a ToolDefinition, forms: ToolForms) -> Self {
        let mut parameters = OrderedJson::new(&definition.parameters, &[]);
        if forms == ToolForms::Plain {
            schema::open(parameters.value.to_mut());
        }
        Self::new(&definition.name, &definition.description, parameters)
    }
}

#[derive(Clone)]
pub(super) struct Message<'a> {
    pub(super) role: Role,
    pub(super) content: Cow<'a, str>,
    pub(super) tool_calls: Vec<ToolCall>,
    /// Call that this message answers.
    of_call: Option<ToolCallRef>,
    /// Members that a provider requires back.
    extra: Map<String, Value>,
    /// See [`TurnFormat::Filled`].
    is_filled: bool,
}

/// Id of a call, and its tool.
#[derive(Clone)]
struct ToolCallRef {
    id: String,
    tool: String,
}

impl<'a> Message<'a> {
    pub(super) fn new(role: Role, content: impl Into<Cow<'a, str>>) -> Self {
        let (tool_calls, of_call, extra) = (Vec::new(), None, Map::new());
        Self { role, content: content.into(), tool_calls, of_call, extra, is_filled: false }
    }

    pub(super) fn from_completion(completion: Completion) -> Self {
        Self { tool_calls: completion.calls, extra: completion.extra, ..Self::new(Role::Assistant, completion.text) }
    }

    pub(super) fn result(of: &ToolCall, text: String) -> Self {
        let text = if text.is_empty() { "(no output)".to_owned() } else { text };
        let of_call = Some(ToolCallRef { id: of.id.clone(), tool: of.name.clone() });
        Self { of_call, ..Self::new(Role::Tool, text) }
    }

    pub(super) fn into_owned(self) -> Message<'static> {
        Message { content: self.content.into_owned().into(), ..self }
    }

    /// Drops the members that only their provider understands.
    pub(super) fn generalize(&mut self) {
        self.extra.clear();
        for call in &mut self.tool_calls {
            call.extra.clear();
            call.extra_function.clear();
        }
    }

    /// Counts the characters, for the token estimate.
    pub(super) fn chars(&self) -> usize {
        let calls = self.tool_calls.iter().map(|call| call.name.chars().count() + call.arguments.chars().count());
        let extra = self.extra.values().filter_map(Value::as_str).map(|text| text.chars().count());
        self.content.chars().count() + calls.sum::<usize>() + extra.sum::<usize>()
    }
}

impl Serialize for Message<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("role", &self.role)?;
        // Some servers reject an empty text next to tool calls, others its absence.
        let is_text = self.is_filled || !self.content.is_empty();
        members.serialize_entry("content", &is_text.then(|| markers::escape_markers(&self.content)))?;
        if !self.tool_calls.is_empty() {
            members.serialize_entry("tool_calls", &self.tool_calls.iter().map(call).collect::<Vec<_>>())?;
        }
        if let Some(ToolCallRef { id, tool }) = &self.of_call {
            members.serialize_entry("tool_call_id", id)?;
            if self.is_filled {
                members.serialize_entry("name", tool)?;
            }
        }
        for (name, value) in &self.extra {
            members.serialize_entry(name, value)?;
        }
        members.end()
    }
}

fn call(call: &ToolCall) -> Value {
    let mut function = call.extra_function.clone();
    function.insert("name".to_owned(), json!(call.name));
    function.insert("arguments".to_owned(), json!(markers::escape_markers(&call.arguments)));
    let mut members = call.extra.clone();
    members.insert("id".to_owned(), json!(call.id));
    members.insert("type".to_owned(), json!("function"));
    members.insert("function".to_owned(), Value::Object(function));
    Value::Object(members)
}

/// Estimates the usage of a call without reported counts, from its messages and its completion.
pub(super) fn estimate_usage(messages: &[Message<'_>], completion: &Completion) -> Usage {
    let calls = completion.calls.iter().map(|call| call.name.chars().count() + call.arguments.chars().count());
    Usage {
        prompt: estimate(messages.iter().map(Message::chars).sum()),
        completion: estimate(completion.text.chars().count() + calls.sum::<usize>()),
        estimated: true,
        ..Usage::default()
    }
}
