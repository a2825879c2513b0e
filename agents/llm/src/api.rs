//! Wire protocols of model servers. The rest of the client composes requests and reads answers in the form of Chat
//! Completions; [`encode`] and [`decode`] translate. Streams are assembled into whole answers before
//! (`super::stream`).

mod anthropic;
mod responses;

use serde_json::{Map, Value, json};

use crate::config::Api;

pub(super) const fn path(api: Api) -> &'static str {
    match api {
        Api::Chat => "/chat/completions",
        Api::Responses => "/responses",
        Api::Anthropic => "/messages",
    }
}

/// Translates the body of a request. `has_include` asks the Responses API for encrypted reasoning. `extra` holds the
/// operator's members.
pub(super) fn encode(api: Api, body: Value, has_include: bool, extra: &Map<String, Value>) -> Value {
    let mut body = match api {
        Api::Chat => return body,
        Api::Responses => responses::encode(&body, has_include),
        Api::Anthropic => anthropic::encode(&body),
    };
    if let Value::Object(members) = &mut body {
        merge(members, extra);
    }
    body
}

/// Merges the operator's members into a request: objects member by member, other values as replacements.
fn merge(members: &mut Map<String, Value>, extra: &Map<String, Value>) {
    for (name, value) in extra {
        match (members.get_mut(name), value) {
            (Some(Value::Object(own)), Value::Object(more)) => merge(own, more),
            _ => drop(members.insert(name.clone(), value.clone())),
        }
    }
}

/// Translates an answer. Some gateways wrap it in a member of their own, or in a list.
pub(super) fn decode(api: Api, answer: Value) -> Value {
    let places = ["/data", "/result", "/response", "/0"];
    let inner = places.iter().filter_map(|place| answer.pointer(place)).find(|inner| inner.get("choices").is_some());
    let answer = match inner {
        Some(inner) if answer.get("choices").is_none() => inner.clone(),
        _ => answer,
    };
    if api == Api::Chat && answer["message"].is_object() && answer["done"].is_boolean() {
        return ollama(&answer);
    }
    match api {
        // Some gateways answer every protocol in the form of Chat Completions.
        _ if answer.get("choices").is_some() => answer,
        Api::Chat => answer,
        Api::Responses => responses::decode(&answer),
        Api::Anthropic => anthropic::decode(&answer),
    }
}

/// Translates an answer of Ollama's own protocol, which some proxies pass on.
fn ollama(answer: &Value) -> Value {
    let choice = json!({"index": 0, "message": answer["message"], "finish_reason": answer["done_reason"]});
    let usage = json!({"prompt_tokens": answer["prompt_eval_count"], "completion_tokens": answer["eval_count"]});
    json!({"model": answer["model"], "choices": [choice], "usage": usage})
}

struct ParsedMessage<'a> {
    content: String,
    /// Tool calls, each as [`chat_call`].
    calls: Vec<Value>,
    /// Member of the answer to send back with calls, and its name in a message.
    echo: (&'a str, &'a str),
    finish: &'a str,
    prompt: Option<u64>,
    cached: u64,
    completion: Option<u64>,
}

impl ParsedMessage<'_> {
    /// Builds an answer of Chat Completions with one choice. `more` is a further member of its message.
    fn chat_answer(self, answer: &Value, more: (&str, String)) -> Value {
        let mut message = Map::new();
        message.insert("role".into(), json!("assistant"));
        message.insert("content".into(), self.content.into());
        if !more.1.is_empty() {
            message.insert(more.0.to_owned(), more.1.into());
        }
        if !self.calls.is_empty() {
            message.insert("tool_calls".into(), self.calls.into());
            carry(answer, self.echo.0, &mut message, self.echo.1);
        }
        let usage = self.prompt.zip(self.completion).map(|(prompt, completion)| {
            let details = json!({"cached_tokens": self.cached});
            json!({"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": details})
        });
        let choice = json!({"index": 0, "message": message, "finish_reason": self.finish});
        json!({"id": answer["id"], "model": answer["model"], "choices": [choice], "usage": usage})
    }
}

fn chat_call(id: &Value, name: &Value, arguments: Value) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// Copies a member under another name, unless it is null or absent.
fn carry(from: &Value, name: &str, to: &mut Map<String, Value>, as_name: &str) {
    if let Some(value) = from.get(name).filter(|value| !value.is_null()) {
        to.insert(as_name.to_owned(), value.clone());
    }
}

/// Returns the token limit of a reply, under either name.
fn limit(body: &Value) -> Option<&Value> {
    body.get("max_tokens").or_else(|| body.get("max_completion_tokens"))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_in_a_gateways_own_member() {
        let answer = json!({"choices": [{"message": {"content": "[]"}}]});
        for wrapped in [json!({"data": answer}), json!({"result": answer, "success": true}), json!([answer])] {
            assert_eq!(decode(Api::Chat, wrapped.clone()), answer, "{wrapped}");
        }
        let own =
            json!({"model": "m", "message": {"content": "[]"}, "done": true, "done_reason": "stop", "eval_count": 2});
        let decoded = decode(Api::Chat, own);
        assert_eq!(decoded["choices"][0]["message"]["content"], "[]");
        assert_eq!(
            (&decoded["choices"][0]["finish_reason"], &decoded["usage"]["completion_tokens"]),
            (&json!("stop"), &json!(2))
        );
        let other = json!({"data": [1], "object": "list"});
        assert_eq!(decode(Api::Chat, other.clone()), other);
    }
}
