//! Replies written in the blueprint: for tests, examples and runs without a model.
//!
//! A worker's n-th attempt on a board gets the n-th reply of its seat's `script`; the last one repeats. The number
//! comes with the call, counted from the journal, so a restart does not begin the script again.
//!
//! A reply is a patch (an array), an envelope (an object), or one of two special forms. `{"text": "…"}` answers with
//! exactly that text, `{"fail": "code", "message": "…"}` fails the attempt with a [`FailureCode`]; the message is
//! optional.
//!
//! `{name}` in a reply is replaced by the value that the trigger binds to the name. It is encoded as a token in
//! `path`, `from` and the places of `expand`, and unchanged in every other text. So one reply serves each element that
//! triggers its worker.
//!
//! A worker with files can use tools before: `{"tools": [{"name": "view", "arguments": {"path": "a.py"}}, …], "reply":
//! …}`. They run in that order; a tool error fails the attempt, unless its step says `"may_fail": true`. With
//! `"retry": n` the step is retried up to n times after an error, for conflicts with other agents.

use std::time::Duration;

use jsonptr::Token;
use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::failure::FailureCode;
use patchboard_runtime::agent::{Agent, Call, CallResult, Failure, Reply};
use serde::Deserialize;
use serde_json::{Map, Value};
use tracing::Instrument as _;

use patchboard_kernel::text::one_line;
use patchboard_llm::telemetry;
use patchboard_runtime::tools::{BoxFuture, ROOM_MAX, ToolOutput, Tools};

/// Retries of a step, at most.
const RETRIES_MAX: u32 = 100;

/// Pause before the first retry of a step; doubled each time, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Longest pause before a retry.
const PAUSE_MAX: Duration = Duration::from_millis(640);

/// Characters of a tool's error that are kept.
const MESSAGE_MAX: usize = 300;

/// Answers from the seat's script.
#[derive(Clone, Copy, Debug, Default)]
pub struct Script;

struct ScriptedAttempt {
    steps: Vec<Step>,
    answer: CallResult,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    #[serde(default)]
    may_fail: bool,
    #[serde(default)]
    retry: u32,
}

impl Script {
    /// Runs the attempt's part of the script with these tools.
    pub async fn run(&self, call: &Call, tools: Option<&mut dyn Tools>) -> CallResult {
        let ScriptedAttempt { steps, answer } =
            turn(call.worker_config(), call.occurrence, trigger_bindings(call).as_ref())?;
        match tools {
            _ if steps.is_empty() => answer,
            Some(tools) => {
                for step in &steps {
                    step.take(tools).await?;
                }
                answer
            }
            None => Err(Failure::new(FailureCode::NotConfigured, "the script uses tools, and there are none")),
        }
    }
}

impl Agent for Script {
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, CallResult> {
        Box::pin(self.run(call, None))
    }
}

impl Step {
    async fn take(&self, tools: &mut dyn Tools) -> Result<(), Failure> {
        let arguments = Value::Object(self.arguments.clone()).to_string();
        let (mut left, mut pause) = (self.retry, PAUSE_MIN);
        loop {
            let span = telemetry::execute_tool(&self.name, "");
            let ToolOutput { text, is_error } =
                tools.call(&self.name, &arguments, ROOM_MAX).instrument(span.clone()).await;
            telemetry::record_tool_result(&span, is_error);
            if !is_error || (self.may_fail && left == 0) {
                return Ok(());
            }
            if left == 0 {
                let message = format!("{}: {}", self.name, one_line(&text, MESSAGE_MAX));
                return Err(Failure::new(FailureCode::Crashed, message));
            }
            left -= 1;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Checks a seat's script; returns an error message.
pub fn config_error(worker: &Worker) -> Option<String> {
    if worker.script.is_empty() {
        return Some("its script is empty: give it at least one reply".into());
    }
    worker.script.iter().enumerate().find_map(|(index, entry)| match read(entry) {
        Ok(turn) if !turn.steps.is_empty() && worker.files.is_none() => {
            Some(format!("reply {index} of its script uses tools, and the worker has no files"))
        }
        Ok(_) => None,
        Err(why) => Some(format!("reply {index} of its script is {why}")),
    })
}

pub(crate) fn trigger_bindings(call: &Call) -> Option<Map<String, Value>> {
    if let Value::Object(bound) = call.context.trigger().get_mut("bound")?.take() { Some(bound) } else { None }
}

fn turn(worker: &Worker, occurrence: u32, bound: Option<&Map<String, Value>>) -> Result<ScriptedAttempt, Failure> {
    let last = worker.script.len().checked_sub(1);
    let index = last.map(|last| last.min(usize::try_from(occurrence).unwrap_or(usize::MAX)));
    let Some(entry) = index.and_then(|index| worker.script.get(index)) else {
        return Err(Failure::new(FailureCode::NotConfigured, "the script of this worker is empty"));
    };
    let entry = if let Some(bound) = bound { &filled(entry, bound) } else { entry };
    read(entry).map_err(|why| Failure::new(FailureCode::NotConfigured, format!("the script's reply is {why}")))
}

/// Replaces `{name}` in a reply by the bound values: encoded in the paths of operations and of `expand`.
fn filled(entry: &Value, bound: &Map<String, Value>) -> Value {
    let operation = |op: &Value| with_places(op, bound, &["path", "from"], false);
    let asked = |one: &Value| with_places(one, bound, &["at"], true);
    let each = |list: &Value, one: &dyn Fn(&Value) -> Value| match list {
        Value::Array(elements) => elements.iter().map(one).collect(),
        other => with_names(other, bound, false),
    };
    match entry {
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                let value = match name.as_str() {
                    "reply" => filled(value, bound),
                    "patch" => each(value, &operation),
                    "expand" => each(value, &asked),
                    _ => with_names(value, bound, false),
                };
                (name.clone(), value)
            };
            members.iter().map(member).collect()
        }
        patch => each(patch, &operation),
    }
}

/// Fills names into the members of an object, encoded in the members `places`. `encoded` applies to other values.
fn with_places(value: &Value, bound: &Map<String, Value>, places: &[&str], encoded: bool) -> Value {
    let Value::Object(members) = value else { return with_names(value, bound, encoded) };
    let member =
        |(name, value): (&String, &Value)| (name.clone(), with_names(value, bound, places.contains(&name.as_str())));
    members.iter().map(member).collect()
}

/// Fills names into all texts of a value. `encoded` writes them as tokens of JSON Pointers.
pub(crate) fn with_names(value: &Value, bound: &Map<String, Value>, encoded: bool) -> Value {
    match value {
        Value::String(text) => {
            let (mut filled, mut rest) = (String::with_capacity(text.len()), text.as_str());
            while let Some((before, after)) = rest.split_once('{') {
                filled.push_str(before);
                let named = after.split_once('}').and_then(|(name, rest)| Some((bound.get(name)?.as_str()?, rest)));
                if let Some((token, behind)) = named {
                    match encoded {
                        true => filled.push_str(Token::new(token).encoded()),
                        false => filled.push_str(token),
                    }
                    rest = behind;
                } else {
                    filled.push('{');
                    rest = after;
                }
            }
            filled.push_str(rest);
            filled.into()
        }
        Value::Array(elements) => elements.iter().map(|element| with_names(element, bound, encoded)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), with_names(value, bound, encoded))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn read(entry: &Value) -> Result<ScriptedAttempt, String> {
    if entry.get("tools").is_none() {
        return Ok(ScriptedAttempt { steps: Vec::new(), answer: read_reply(entry)? });
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        tools: Vec<Step>,
        reply: Value,
    }
    let Fields { tools: steps, reply } =
        Fields::deserialize(entry).map_err(|why| format!("not {{\"tools\": […], \"reply\": …}}: {why}"))?;
    if let Some(step) = steps.iter().find(|step| step.retry > RETRIES_MAX) {
        return Err(format!(
            "not bounded: {} is retried {} times, at most {RETRIES_MAX} are allowed",
            step.name, step.retry
        ));
    }
    Ok(ScriptedAttempt { steps, answer: read_reply(&reply)? })
}

fn read_reply(entry: &Value) -> Result<CallResult, String> {
    let reply = |text: String| Ok(Ok(Reply::new(text, None)));
    match entry {
        Value::Array(_) => reply(entry.to_string()),
        Value::Object(map) if map.contains_key("fail") => read_failure(entry).map(Err),
        Value::Object(map) => match map.get("text") {
            Some(Value::String(text)) if map.len() == 1 => reply(text.clone()),
            Some(_) => Err("not one {\"text\": \"…\"} alone".into()),
            None => reply(entry.to_string()),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err("neither a patch nor an envelope nor {\"text\": \"…\"} nor {\"fail\": \"code\"}".into())
        }
    }
}

fn read_failure(entry: &Value) -> Result<Failure, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        fail: FailureCode,
        message: Option<String>,
    }
    let fields = Fields::deserialize(entry).map_err(|why| format!("no failure: {why}"))?;
    Ok(Failure::new(fields.fail, fields.message.unwrap_or_else(|| "the script says so".into())))
}

#[cfg(test)]
mod tests;
