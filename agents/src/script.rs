//! Replies written in the blueprint: for tests, examples and runs without a model.
//!
//! A worker's n-th attempt on a board gets the n-th reply of its seat's `script`; the last one repeats. Which attempt it
//! is comes with the call, counted from the journal, so a restart does not begin the script again.
//!
//! A reply is a patch (an array), an envelope (an object), or one of two special forms: `{"text": "…"}` answers with
//! exactly that text, `{"fail": "code", "message": "…"}` fails the attempt with a
//! [`FailureCode`]; the message may be left out.

use std::future::Future;
use std::pin::Pin;

use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::failure::FailureCode;
use patchboard_runtime::agent::{Agent, Answer, Call, Failure, Reply};
use serde_json::Value;

use crate::failure;

/// Answers from the seat's script.
#[derive(Clone, Copy, Debug, Default)]
pub struct Script;

impl Agent for Script {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        Box::pin(std::future::ready(answer(call.seat(), call.occurrence)))
    }
}

/// What is wrong with a seat's script, if anything is.
pub fn problem(seat: &Worker) -> Option<String> {
    if seat.script.is_empty() {
        return Some("its script is empty: give it at least one reply".into());
    }
    seat.script.iter().enumerate().find_map(|(index, entry)| match read(entry) {
        Ok(_) => None,
        Err(why) => Some(format!("reply {index} of its script is {why}")),
    })
}

fn answer(seat: &Worker, occurrence: u32) -> Answer {
    let last = seat.script.len().checked_sub(1);
    let index = last.map(|last| last.min(usize::try_from(occurrence).unwrap_or(usize::MAX)));
    let Some(entry) = index.and_then(|index| seat.script.get(index)) else {
        return Err(failure(FailureCode::NotConfigured, "the script of this worker is empty"));
    };
    match read(entry) {
        Ok(answer) => answer,
        Err(why) => Err(failure(FailureCode::NotConfigured, format!("the script's reply is {why}"))),
    }
}

fn read(entry: &Value) -> Result<Answer, String> {
    let reply = |text: String| Ok(Ok(Reply { text, usage: None }));
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
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        fail: FailureCode,
        #[serde(default)]
        message: Option<String>,
    }
    let fields: Fields = serde::Deserialize::deserialize(entry).map_err(|why| format!("no failure: {why}"))?;
    Ok(failure(fields.fail, fields.message.unwrap_or_else(|| "the script says so".into())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seat(script: Value) -> Worker {
        serde_json::from_value(json!({"agent": "script", "script": script})).expect("a seat")
    }

    fn text(seat: &Worker, occurrence: u32) -> String {
        answer(seat, occurrence).expect("a reply").text
    }

    #[test]
    fn the_nth_attempt_gets_the_nth_reply_and_the_last_repeats() {
        let seat = seat(json!([[], {"patch": []}, {"text": "not json"}]));
        assert_eq!(text(&seat, 0), "[]");
        assert_eq!(text(&seat, 1), r#"{"patch":[]}"#);
        for occurrence in [2, 3, u32::MAX] {
            assert_eq!(text(&seat, occurrence), "not json");
        }
    }

    #[test]
    fn a_script_may_fail_on_purpose() {
        let seat = seat(json!([{"fail": "rate_limited"}, {"fail": "crashed", "message": "bang"}]));
        assert_eq!(answer(&seat, 0).expect_err("fails").code, FailureCode::RateLimited);
        assert_eq!(answer(&seat, 1).expect_err("fails"), failure(FailureCode::Crashed, "bang"));
    }

    #[test]
    fn a_script_that_cannot_be_followed_is_reported_before_and_at_the_call() {
        for (script, word) in [
            (json!([]), "empty"),
            (json!([3]), "neither"),
            (json!([{"text": 1}]), "text"),
            (json!([{"fail": "boredom"}]), "boredom"),
            (json!([{"fail": "timeout", "when": "now"}]), "when"),
        ] {
            let seat = seat(script);
            assert!(problem(&seat).expect("a problem").contains(word), "{seat:?}");
            assert_eq!(answer(&seat, 0).expect_err("fails").code, FailureCode::NotConfigured);
        }
        assert_eq!(problem(&seat(json!([[]]))), None);
    }
}
