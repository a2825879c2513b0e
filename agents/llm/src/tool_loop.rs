//! Tool loop of an attempt: calls the model, runs the tools it requests, and calls it again with the results, until it
//! replies.
//!
//! Bounded by the seat's `files.iterations` calls of the model, the last of them without tools, and by the attempt's
//! timeout. The board must also grant each further call from its budgets. Messages are only appended, so that a
//! provider's prompt cache stays valid. When they outgrow the model's context, the oldest tool results are replaced by
//! [`SHOWN_EARLIER`], enough of them at once that this is rare. A tool result is limited to a quarter of the context,
//! and all results of one answer to a half; the tool gets the limit as an argument.

use std::borrow::Cow;
use std::collections::BTreeSet;

use async_openai::types::chat::Role;
use patchboard_kernel::ablation::Interface;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::ledger::Usage;
use patchboard_runtime::agent::{Call, CallResult, Failure, Reply};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use super::exchange::Question;
use super::inline_tool_calls::parse_inline_calls;
use super::interrupted::ConversationTail;
use super::reply::{Completion, ToolCall, estimate};
use super::request::{ANSWER, Message, RequestSource};
use super::schema::SchemaLevel;
use super::{Chat, ModelReply, out_of_time, pause, reply_text};
use crate::{admission, telemetry};
use patchboard_runtime::tools::{Memory, ROOM_MAX, ToolDefinition, ToolOutput, Tools, cut};

/// Tool calls of one answer that are run; further ones get an error.
const CALLS_MAX: usize = 32;

/// Replaces a tool result that no longer fits.
const SHOWN_EARLIER: &str = "(shown earlier; ask again if you need it)";

/// Message of the last call.
const LAST: &str = "You can use no more tools. Give your reply now, in the form that the instructions ask for.";

impl Chat {
    /// Answers a call with a model that may use these tools.
    ///
    /// Each call of the model but the last is settled by [`Tools::checkpoint`]; the usage of the reply, or of the
    /// failure, is the last one's.
    pub async fn run_tool_loop(&self, call: &Call, tools: &mut dyn Tools) -> CallResult {
        let task = self.attempt(call);
        let deadline = Instant::now() + task.timeout;
        pause(task, deadline).await;
        let iterations = call.worker_config().files.as_ref().map_or(1, |files| files.iterations).max(1);
        let definitions = tools.definitions();
        let mut talk = Conversation::new(task, &definitions, self.model.context);
        let prompt = talk.messages.len();
        let model = admission::key(&self.model);
        let begun = self.interrupted.lock().take(call, &talk.messages, &model);
        let iterations = match begun {
            None => iterations,
            Some(rest) => {
                let left = talk.resume(rest, tools);
                // So far only the prompt is reserved.
                let asking = timeout_at(deadline, tools.checkpoint(Some(Usage::default()), talk.needed())).await;
                asking.map_err(|_| out_of_time(task))??;
                left
            }
        };
        for left in (0..iterations).rev() {
            let offered = if left == 0 { &[][..] } else { &definitions[..] };
            let reply = self.ask(Question { task, messages: &talk.messages, offered, deadline }).await;
            if talk.messages.len() > prompt && reply.as_ref().is_err_and(|failure| failure.deferral.is_some()) {
                let (prompt, rest) = talk.into_tail(prompt, left + 1, tools.take_memory());
                self.interrupted.lock().keep(call, &prompt, model, rest);
                return reply.map(|said| said.completion.into_reply());
            }
            let ModelReply { mut completion, takes_answers } = reply?;
            let usage = completion.usage;
            for call in &mut completion.calls {
                unwrap_call(call, &definitions);
            }
            if left > 0 && completion.calls.is_empty() {
                let is_offered =
                    |name: &str| definitions.iter().any(|tool| tool.name == name) || (takes_answers && name == ANSWER);
                let calls = parse_inline_calls(reply_text::strip_wrapping(&completion.raw), is_offered);
                if !calls.is_empty() {
                    completion = Completion { text: String::new(), calls, ..completion };
                }
            }
            // Without offered tools, calls are ignored.
            if left == 0 || completion.calls.is_empty() {
                return Ok(completion.into_reply());
            }
            let late = || Failure { usage, ..out_of_time(task) };
            talk.identify(&mut completion.calls);
            let calls = completion.calls.clone();
            talk.push_completion(completion);
            if calls.len() > 1 {
                tools.begin_batch();
            }
            for (index, used) in calls.iter().enumerate() {
                if used.name == ANSWER && takes_answers {
                    match reply_from_answer_tool(&used.arguments, call.context.worker_plan().interface) {
                        Ok(text) => {
                            let raw = (used.arguments != text).then(|| used.arguments.clone());
                            return Ok(Reply { raw, ..Reply::new(text, usage) });
                        }
                        Err(why) => talk.messages.push(Message::result(used, cut(why, talk.room(calls.len())))),
                    }
                    continue;
                }
                let doing = run(tools, &definitions, used, index, talk.room(calls.len()));
                let ToolOutput { text, .. } = timeout_at(deadline, doing).await.map_err(|_| late())?;
                talk.messages.push(Message::result(used, text));
            }
            if left == 1 {
                talk.messages.push(Message::new(Role::User, LAST));
            }
            talk.truncate();
            let asking = timeout_at(deadline, tools.checkpoint(usage, talk.needed())).await;
            asking.map_err(|_| late())?.map_err(|failure| Failure { usage: failure.usage.or(usage), ..failure })?;
        }
        // The last iteration always returns.
        Err(Failure::new(FailureCode::Empty, "the model was not asked"))
    }
}

struct Conversation<'a> {
    messages: Vec<Message<'a>>,
    ids: BTreeSet<String>,
    generated_ids: usize,
    /// Characters of the tool definitions and of the reply schema.
    tools: usize,
    reply_tokens: u64,
    /// Context of the model in tokens.
    context: usize,
}

impl<'a> Conversation<'a> {
    fn new(task: RequestSource<'a>, definitions: &[ToolDefinition], context: u32) -> Self {
        let of = |tool: &ToolDefinition| {
            tool.name.chars().count() + tool.description.chars().count() + tool.parameters.to_string().chars().count()
        };
        let form = task.form(SchemaLevel::Derived);
        Self {
            messages: task.messages(),
            ids: BTreeSet::new(),
            generated_ids: 0,
            tools: definitions.iter().map(of).sum::<usize>() + form.map_or(0, |(_, form)| form.json().chars().count()),
            reply_tokens: u64::from(task.reply_tokens),
            context: usize::try_from(context).unwrap_or(usize::MAX),
        }
    }

    /// Continues an interrupted conversation; returns the remaining calls of the model.
    fn resume(&mut self, rest: ConversationTail, tools: &mut dyn Tools) -> u32 {
        let ConversationTail { messages, ids, generated_ids: made, left, memory } = rest;
        tools.restore_memory(memory);
        self.messages.extend(messages);
        (self.ids, self.generated_ids) = (ids, made);
        left
    }

    /// Splits the conversation after its first `prompt` messages.
    fn into_tail(mut self, prompt: usize, left: u32, memory: Memory) -> (Vec<Message<'a>>, ConversationTail) {
        let messages = self.messages.split_off(prompt).into_iter().map(Message::into_owned).collect();
        (self.messages, ConversationTail { messages, ids: self.ids, generated_ids: self.generated_ids, left, memory })
    }

    /// Generates ids for calls without one, or with one that the conversation already has.
    fn identify(&mut self, calls: &mut [ToolCall]) {
        for call in calls {
            while call.id.is_empty() || self.ids.contains(&call.id) {
                self.generated_ids += 1;
                // Some servers accept only nine letters and digits.
                call.id = format!("call{:05}", self.generated_ids);
            }
            self.ids.insert(call.id.clone());
        }
    }

    /// Adds the model's message with its calls, including prose around JSON.
    fn push_completion(&mut self, completion: Completion) {
        let text = match completion.text.is_empty() {
            true => String::new(),
            false => reply_text::strip_wrapping(&completion.raw).to_owned(),
        };
        let completion = Completion { text, ..completion };
        self.messages.push(Message::from_completion(completion));
    }

    /// Returns the character limit of one result among `of`.
    fn room(&self, of: usize) -> usize {
        self.context.min(2 * self.context / of.max(1)).min(ROOM_MAX)
    }

    fn chars(&self) -> usize {
        self.messages.iter().map(Message::chars).sum()
    }

    /// Estimates the tokens of the next call, its reply included.
    fn needed(&self) -> u64 {
        estimate(self.chars() + self.tools) + self.reply_tokens
    }

    /// Shortens the oldest messages as far as the context requires. Messages new to the model stay.
    fn truncate(&mut self) {
        let reply = usize::try_from(self.reply_tokens).unwrap_or(usize::MAX);
        let most = self.context.saturating_sub(reply).saturating_mul(4).saturating_sub(self.tools);
        let mut chars = self.chars();
        if chars <= most {
            return;
        }
        let seen = self.messages.iter().rposition(|message| !message.tool_calls.is_empty()).unwrap_or_default();
        for message in &mut self.messages[..seen] {
            if chars <= most / 3 * 2 {
                break;
            }
            let before = message.chars();
            shorten(message);
            chars = chars + message.chars() - before;
        }
    }
}

/// Shortens a tool message to the parts needed to follow the conversation.
fn shorten(message: &mut Message<'_>) {
    if message.role == Role::Tool && message.content.len() > SHOWN_EARLIER.len() {
        message.content = SHOWN_EARLIER.into();
    }
    for call in message.tool_calls.iter_mut().filter(|call| call.arguments.len() > SHOWN_EARLIER.len()) {
        // Servers parse arguments as an object.
        "{}".clone_into(&mut call.arguments);
    }
}

/// Strips additions to a tool's name, such as a prefix `functions.` or trailing special tokens, and the wrapping of
/// its arguments.
fn unwrap_call(call: &mut ToolCall, definitions: &[ToolDefinition]) {
    let names = || definitions.iter().map(|tool| tool.name.as_str()).chain([ANSWER]);
    let plain = call.name.split("<|").next().unwrap_or_default().trim();
    let last = plain.rsplit(['.', ':', '/']).next().unwrap_or(plain);
    let same = |written: &str| names().find(|name| *name == written);
    let similar = |written: &str| names().find(|name| name.eq_ignore_ascii_case(written));
    let meant = same(&call.name).or_else(|| same(plain)).or_else(|| same(last)).or_else(|| similar(last));
    if let Some(name) = meant.map(str::to_owned) {
        call.name = name;
    }
    if let Cow::Owned(arguments) = object(&call.arguments) {
        call.arguments = arguments;
    }
}

/// Extracts the JSON object from arguments.
fn object(arguments: &str) -> Cow<'_, str> {
    let is_object = |text: &str| serde_json::from_str::<Map<String, Value>>(text).is_ok();
    match reply_text::extract_json(arguments) {
        found if !is_object(arguments) && is_object(&found) => Cow::Owned(found.into_owned()),
        _ => Cow::Borrowed(arguments),
    }
}

/// Extracts the reply from an answer-tool call. A patch that is written as text is decoded.
fn reply_from_answer_tool(arguments: &str, interface: Interface) -> Result<String, String> {
    let mut members = serde_json::from_str::<Map<String, Value>>(arguments).map_err(|error| no_object(&error))?;
    let encoded = members.get("patch").and_then(Value::as_str).filter(|_| interface == Interface::Patch);
    match encoded.and_then(decoded) {
        Some(patch) => {
            members.insert("patch".to_owned(), patch);
            Ok(Value::Object(members).to_string())
        }
        None => Ok(arguments.trim().to_owned()),
    }
}

/// Decodes a list from a text, which may be encoded twice.
fn decoded(text: &str) -> Option<Value> {
    let once: Value = serde_json::from_str(text).ok()?;
    let value = match once {
        Value::String(again) => serde_json::from_str(&again).ok()?,
        value => value,
    };
    value.is_array().then_some(value)
}

/// Runs a tool; returns an error for an unknown name or invalid arguments.
async fn run(
    tools: &mut dyn Tools,
    definitions: &[ToolDefinition],
    call: &ToolCall,
    index: usize,
    room: usize,
) -> ToolOutput {
    let span = telemetry::execute_tool(&call.name, &call.id);
    let doing = async {
        if index >= CALLS_MAX {
            return ToolOutput::error(format!("not done: at most {CALLS_MAX} tools may be used at once"));
        }
        if !definitions.iter().any(|tool| tool.name == call.name) {
            let names: Vec<&str> = definitions.iter().map(|tool| tool.name.as_str()).collect();
            return ToolOutput::error(format!("there is no such tool; there are: {}", names.join(", ")));
        }
        let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
        match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments) {
            Ok(_) => tools.call(&call.name, arguments, room).await,
            Err(error) => ToolOutput::error(cut(no_object(&error), room)),
        }
    };
    let used = doing.instrument(span.clone()).await;
    telemetry::record_tool_result(&span, used.is_error);
    used
}

fn no_object(error: &serde_json::Error) -> String {
    format!("the arguments are no JSON object: {error}")
}

#[cfg(test)]
mod tests;
