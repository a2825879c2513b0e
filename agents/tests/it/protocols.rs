//! OpenAI's Responses and Anthropic's Messages over a real connection: whole answers, streams and refusals.

use std::collections::BTreeSet;
use std::time::Duration;

use patchboard_agents::config::{Api, Model, Streaming};
use patchboard_endpoint::{Endpoint, ScriptedResponse};
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::ledger::Usage;
use patchboard_llm::{Chat, Variables};
use patchboard_runtime::agent::{Agent as _, Call, Permit};
use serde_json::{Value, json};

use crate::llm::{KEY, ask, llm_call, say};
use crate::support::{call, seat};
use crate::tools::{Bench, logged};

/// Headers of a stream.
const EVENTS: &str = "content-type: text/event-stream; charset=utf-8\r\n";

/// Protocols other than Chat Completions.
const OTHERS: [Api; 2] = [Api::Responses, Api::Anthropic];

/// All protocols.
const ALL: [Api; 3] = [Api::Chat, Api::Responses, Api::Anthropic];

/// Serialises events as servers do.
fn stream(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| match event["type"].as_str() {
            Some(kind) => format!("event: {kind}\ndata: {event}\n\n"),
            None => format!("data: {event}\n\n"),
        })
        .collect()
}

/// Returns the events of a reply in three parts: its start, its text, and its end with token counts.
fn parts(api: Api, text: &str) -> [Vec<Value>; 3] {
    match api {
        Api::Chat => {
            let chunk = |delta: Value, finish: Value| json!({"choices": [{"delta": delta, "finish_reason": finish}]});
            let usage = json!({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 8}}});
            [
                vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)],
                vec![chunk(json!({"content": text}), Value::Null)],
                vec![chunk(json!({}), json!("stop")), usage],
            ]
        }
        Api::Responses => {
            let item =
                json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
            let whole = json!({"id": "resp_1", "model": "m", "status": "completed", "output": [item],
                "usage": {"input_tokens": 12, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 3}});
            [
                vec![
                    json!({"type": "response.created", "response": {"id": "resp_1", "error": null}}),
                    json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}}),
                ],
                vec![
                    json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text}),
                ],
                vec![json!({"type": "response.completed", "response": whole})],
            ]
        }
        Api::Anthropic => [
            vec![
                json!({"type": "message_start", "message": {"id": "msg_1", "model": "m", "content": [],
                    "usage": {"input_tokens": 4, "cache_read_input_tokens": 8, "output_tokens": 1}}}),
                json!({"type": "ping"}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            ],
            vec![json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})],
            vec![
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
                json!({"type": "message_stop"}),
            ],
        ],
    }
}

fn streamed(api: Api, text: &str) -> String {
    stream(&parts(api, text).concat())
}

#[tokio::test]
async fn other_protocols_are_asked_in_their_own_way_and_answer_alike() {
    let anthropic = json!({
        "id": "msg_1", "model": "m", "stop_reason": "end_turn", "content": [{"type": "text", "text": "[]"}],
        "usage": {"input_tokens": 4, "cache_read_input_tokens": 8, "output_tokens": 3},
    });
    let responses = json!({
        "id": "resp_1", "model": "m", "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "[]"}]}],
        "usage": {"input_tokens": 12, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 3},
    });
    for (api, answer, path, key, schema) in [
        (Api::Anthropic, anthropic, "/v1/messages", "x-api-key: ", "/output_config/format/schema"),
        (Api::Responses, responses, "/v1/responses", "authorization: bearer ", "/text/format/schema"),
    ] {
        let (answer, endpoint, _) = ask(vec![ScriptedResponse::Say(200, "", answer.to_string())], |model, _| {
            model.api = api;
            model.extra_body.insert("service_tier".into(), "flex".into());
        })
        .await;
        let reply = answer.expect("a reply");
        let usage = Usage { prompt: 12, completion: 3, cached: 8, estimated: false, money: 0 };
        assert_eq!((reply.text.as_str(), reply.usage), ("[]", Some(usage)), "{api:?}");
        let (head, body) = endpoint.requests().remove(0);
        assert!(head.starts_with(&format!("post {path} http/1.1")), "{head}");
        assert!(head.contains(&format!("{key}{KEY}\r\n")), "{head}");
        assert_eq!(head.contains("anthropic-version: 2023-06-01\r\n"), api == Api::Anthropic, "{head}");
        assert_eq!((&body["model"], &body["service_tier"]), (&json!("m"), &json!("flex")));
        assert_eq!(body.pointer(schema).expect("a form")["type"], "object", "{body}");
    }
}

#[tokio::test]
async fn other_protocols_refuse_in_words_that_are_kept_and_forms_are_left_out() {
    let refusal = r#"{"type": "error", "error": {"type": "invalid_request_error", "message": "output_config.format: too complex"}}"#;
    let said = r#"{"content": [{"type": "text", "text": "[]"}], "stop_reason": "end_turn"}"#;
    let endpoint = Endpoint::serving(move |body| match body.pointer("/output_config/format") {
        Some(_) => say(400, refusal),
        None => say(200, said),
    });
    let model = Model { api: Api::Anthropic, ..Model::new(endpoint.url.clone(), "m") };
    let chat = Chat::new(&model, &Variables::new()).expect("a client");
    assert_eq!(chat.call(&llm_call()).await.expect("a reply").text, "[]");
    let overloaded = r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#;
    let (answer, _, _) = ask(vec![say(529, overloaded)], |model, _| {
        (model.api, model.max_tries) = (Api::Anthropic, 1);
    })
    .await;
    let failure = answer.expect_err("it is overloaded");
    assert_eq!(failure.code, FailureCode::Unreachable);
    assert!(failure.message.contains("Overloaded"), "{failure}");
}

#[tokio::test]
async fn streams_are_read_asked_for_or_not_with_a_form_and_cached_tokens() {
    for api in OTHERS {
        for (headers, asked) in [(EVENTS, Streaming::Always), (EVENTS, Streaming::Auto), ("", Streaming::Never)] {
            let (answer, endpoint, _) =
                ask(vec![ScriptedResponse::Say(200, headers, streamed(api, "[]"))], |model, _| {
                    (model.api, model.stream) = (api, asked);
                })
                .await;
            let reply = answer.expect("a reply");
            let usage = Usage { prompt: 12, completion: 3, cached: 8, estimated: false, money: 0 };
            assert_eq!((reply.text.as_str(), reply.usage), ("[]", Some(usage)), "{api:?}");
            let body = endpoint.bodies().remove(0);
            assert_eq!(body.get("stream"), (asked == Streaming::Always).then_some(&json!(true)), "{body}");
            assert_eq!(body.get("stream_options"), None, "{body}");
            let form = if api == Api::Anthropic { "/output_config/format/schema" } else { "/text/format/schema" };
            assert_eq!(body.pointer(form).expect("a form")["type"], "object", "{body}");
        }
    }
}

#[tokio::test]
async fn a_server_that_was_silent_is_asked_for_a_stream() {
    for api in ALL {
        let endpoint =
            Endpoint::new(vec![ScriptedResponse::Hang, ScriptedResponse::Say(200, EVENTS, streamed(api, "[]"))]);
        let model = Model { api, ..Model::new(endpoint.url.clone(), "m") };
        let chat = Chat::new(&model, &Variables::new()).expect("a client");
        let mut call = deferrable();
        call.timeout = Duration::from_secs(2);
        let deferral = chat.call(&call).await.expect_err("no byte came").deferral.expect("it waits");
        assert_eq!(deferral.reason, DeferralReason::NoAnswer);
        call.timeout = Duration::from_secs(20);
        assert_eq!(chat.call(&call).await.expect("a reply").text, "[]");
        let streams = endpoint.bodies().into_iter().map(|body| body["stream"] == true);
        assert_eq!(streams.collect::<Vec<_>>(), [false, true], "{api:?}");
    }
}

/// Returns a call from a board that waits for the provider.
fn deferrable() -> Call {
    Call { permit: Some(Permit::ungated()), ..llm_call() }
}

#[tokio::test]
async fn streams_that_break_off_or_end_in_an_error_are_judged_alike_in_all_protocols() {
    use DeferralReason as R;
    use FailureCode as F;
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    let limited = json!({"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}});
    let wrong_key = json!({"type": "error", "error": {"type": "authentication_error", "message": "no"}});
    let fault = json!({"type": "error", "error": {"type": "api_error", "message": "oops"}});
    for api in ALL {
        let [begin, text, end] = parts(api, "[]").map(|events| stream(&events));
        let cut = |body: String| ScriptedResponse::CutOff(EVENTS, body);
        let ends = |body: String| ScriptedResponse::Say(200, EVENTS, body);
        let failed = |code: &str| match api {
            Api::Responses => {
                let error = json!({"code": code, "message": "busy"});
                stream(&[json!({"type": "response.failed", "response": {"status": "failed", "error": error}})])
            }
            Api::Chat | Api::Anthropic => stream(&[json!({"error": {"code": code, "message": "busy"}})]),
        };
        let error = |error: &Value| stream(std::slice::from_ref(error));
        for (act, expected) in [
            (cut(String::new()), Err((F::Unreachable, Some(R::Unreachable)))),
            (cut(": ping\n\n".to_owned()), Err((F::Unreachable, Some(R::Unreachable)))),
            (cut(begin.clone()), Err((F::Protocol, None))),
            (cut(format!("{begin}{text}")), Err((F::Protocol, None))),
            (cut(format!("{begin}{text}{end}")), Ok(())),
            (ends(": ping\n\n".to_owned()), Err((F::Unreachable, Some(R::Unreachable)))),
            (ends("data: [DONE]\n\n".to_owned()), Err((F::Protocol, None))),
            (ends(error(&overloaded)), Err((F::Unreachable, Some(R::Overloaded)))),
            (ends(format!("{begin}{}", error(&overloaded))), Err((F::Unreachable, Some(R::Overloaded)))),
            (cut(format!("{begin}{}", error(&limited))), Err((F::RateLimited, Some(R::RateLimited)))),
            (ends(error(&wrong_key)), Err((F::Refused, Some(R::KeyRefused)))),
            (ends(format!("{begin}{}", error(&fault))), Err((F::Protocol, Some(R::Overloaded)))),
            (ends(format!("{begin}{}", failed("server_error"))), Err((F::Protocol, Some(R::Overloaded)))),
            (ends(format!("{begin}{}", failed("rate_limit_exceeded"))), Err((F::RateLimited, Some(R::RateLimited)))),
            (ends(format!("{begin}{text}{}", error(&overloaded))), Err((F::Protocol, None))),
            (ends(format!("{begin}{text}{}", failed("server_error"))), Err((F::Protocol, None))),
        ] {
            let shown = format!("{api:?} {act:?}");
            let (answer, ..) = ask(vec![act], |model, call| {
                (model.api, model.stream) = (api, Streaming::Always);
                call.permit = Some(Permit::ungated());
            })
            .await;
            let judged = answer.map(|_| ());
            let judged = judged.map_err(|failure| (failure.code, failure.deferral.map(|deferral| deferral.reason)));
            assert_eq!(judged, expected, "{shown}");
        }
    }
}

#[tokio::test]
async fn tools_are_used_over_streams_and_reasoning_goes_back_as_it_came() {
    let block =
        |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let messages = |name: &str, input: &str| {
        stream(&[
            json!({"type": "message_start", "message": {"id": "msg_1", "content": [],
                "usage": {"input_tokens": 10, "output_tokens": 1}}}),
            block(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
            delta(0, json!({"type": "signature_delta", "signature": "sig"})),
            block(1, json!({"type": "redacted_thinking", "data": "x"})),
            block(2, json!({"type": "text", "text": ""})),
            block(3, json!({"type": "tool_use", "id": "a", "name": name, "input": {}})),
            delta(3, json!({"type": "input_json_delta", "partial_json": &input[..5]})),
            delta(3, json!({"type": "input_json_delta", "partial_json": &input[5..]})),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}}),
            json!({"type": "message_stop"}),
        ])
    };
    let reasoning = json!({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"});
    let items = |name: &str, arguments: &str| {
        let call = json!({"type": "function_call", "call_id": "a", "name": name, "arguments": ""});
        let output =
            [reasoning.clone(), json!({"type": "function_call", "call_id": "a", "name": name, "arguments": arguments})];
        stream(&[
            json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "r"}}),
            json!({"type": "response.output_item.done", "output_index": 0, "item": reasoning}),
            json!({"type": "response.output_item.added", "output_index": 1, "item": call}),
            json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": &arguments[..5]}),
            json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": &arguments[5..]}),
            json!({"type": "response.completed", "response": {"status": "completed", "output": output,
                "usage": {"input_tokens": 10, "output_tokens": 2}}}),
        ])
    };
    let (echo, answer) = (("echo", r#"{"text":"hi"}"#), ("answer", r#"{"patch":[]}"#));
    let thought = json!([{"type": "thinking", "thinking": "hm", "signature": "sig"}, {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": "a", "name": "echo", "input": {"text": "hi"}}]);
    let called = json!({"type": "function_call", "call_id": "a", "name": "echo", "arguments": echo.1});
    for (api, said, back) in [
        (Api::Anthropic, [messages(echo.0, echo.1), messages(answer.0, answer.1)], ("/messages/1/content", thought)),
        (Api::Responses, [items(echo.0, echo.1), items(answer.0, answer.1)], ("/input/3", called)),
    ] {
        let endpoint = Endpoint::new(said.map(|body| ScriptedResponse::Say(200, EVENTS, body)).to_vec());
        let model = Model { api, stream: Streaming::Always, ..Model::new(endpoint.url.clone(), "m") };
        let chat = Chat::new(&model, &Variables::new()).expect("a client");
        let fields = json!({"agent": "llm", "writes": [{"path": "/a"}], "limits": {"reply_tokens": 77},
            "files": {"iterations": 3}});
        let mut bench = Bench::default();
        let reply =
            chat.run_tool_loop(&call("w", seat(fields), "What is shown.", 0), &mut bench).await.expect("a reply");
        assert_eq!((reply.text.as_str(), reply.usage.map(Usage::total)), (r#"{"patch":[]}"#, Some(12)), "{api:?}");
        assert!(logged(&bench.log).contains(&"go on: 12 spent".to_owned()), "{:?}", logged(&bench.log));
        assert!(logged(&bench.log).contains(&format!("echo {}", echo.1)), "{:?}", logged(&bench.log));
        let bodies = endpoint.bodies();
        assert!(bodies[0]["tools"].as_array().is_some_and(|tools| tools.len() > 1), "{}", bodies[0]);
        assert_eq!(bodies[1].pointer(back.0), Some(&back.1), "{}", bodies[1]);
        assert_eq!(bodies[1]["stream"], true);
        let all = bodies[1].to_string();
        assert!(all.contains("tool_result") || all.contains("function_call_output"), "{all}");
        assert!(api != Api::Responses || bodies[1].pointer("/input/2") == Some(&reasoning), "{all}");
    }
}

#[tokio::test]
async fn waits_of_anthropic_are_kept() {
    let limited = r#"{"type": "error", "error": {"type": "rate_limit_error", "message": "This request would exceed your rate limit"}}"#;
    let overloaded = r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#;
    let day = 24 * 60 * 60 * 1000;
    let resets = "anthropic-ratelimit-requests-remaining: 12\r\nanthropic-ratelimit-requests-reset: 2001-01-01T00:00:00Z\r\n\
        anthropic-ratelimit-input-tokens-remaining: 0\r\nanthropic-ratelimit-input-tokens-reset: 2999-01-01T00:00:00Z\r\n";
    for (status, headers, body, reason, wait) in [
        (529, "", overloaded, DeferralReason::Overloaded, None),
        (529, "retry-after: 7\r\n", overloaded, DeferralReason::Overloaded, Some(7000)),
        (429, "retry-after: 30\r\n", limited, DeferralReason::RateLimited, Some(30_000)),
        (429, resets, limited, DeferralReason::RateLimited, Some(day)),
    ] {
        let (answer, endpoint, _) =
            ask(vec![ScriptedResponse::Say(status, headers, body.to_owned())], |model, call| {
                model.api = Api::Anthropic;
                call.permit = Some(Permit::ungated());
            })
            .await;
        let deferral = answer.expect_err("not taken").deferral.expect("it waits");
        assert_eq!((deferral.reason, deferral.wait_ms), (reason, wait), "{headers}");
        assert_eq!(endpoint.requests().len(), 1);
    }
}

#[tokio::test]
async fn members_that_a_model_of_anthropic_refuses_are_left_out_and_the_rest_stays() {
    let said = r#"{"content": [{"type": "text", "text": "[]"}], "stop_reason": "end_turn"}"#;
    let members = |body: &Value| -> BTreeSet<String> {
        let output = body["output_config"].as_object().into_iter().flatten();
        body.as_object().into_iter().flatten().chain(output).map(|(name, _)| name.clone()).collect()
    };
    type Refusal = fn(&Value) -> Option<&'static str>;
    let cases: [(Refusal, &[&str], usize); 8] = [
        (
            |body| body["temperature"].is_number().then_some("temperature: is deprecated for this model."),
            &["temperature"],
            2,
        ),
        (
            |body| {
                (body["temperature"].is_number() && body["top_p"].is_number()).then_some(
                    "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
                )
            },
            &["temperature"],
            2,
        ),
        (
            |body| {
                (body["temperature"].is_number() || body["top_p"].is_number())
                    .then_some("`temperature` and `top_p` are not supported for this model.")
            },
            &["temperature", "top_p"],
            4,
        ),
        (
            |body| match (body["temperature"].is_number(), body["top_p"].is_number()) {
                (true, _) => Some("temperature: Extra inputs are not permitted"),
                (false, true) => Some("top_p: Extra inputs are not permitted"),
                _ => None,
            },
            &["temperature", "top_p"],
            3,
        ),
        (
            |body| body.pointer("/output_config/effort").map(|_| "This model does not support the effort parameter."),
            &["effort"],
            2,
        ),
        (
            |body| {
                body.pointer("/output_config/effort").map(|_| "output_config.effort: Extra inputs are not permitted")
            },
            &["effort"],
            2,
        ),
        (
            |body| {
                body.pointer("/output_config/format").map(|_| "output_config.format: Extra inputs are not permitted")
            },
            &["format"],
            4,
        ),
        (
            |body| body.get("output_config").map(|_| "output_config: Extra inputs are not permitted"),
            &["effort", "format", "output_config"],
            3,
        ),
    ];
    for (refusal, left_out, asked) in cases {
        let endpoint = Endpoint::serving(move |body| match refusal(body) {
            Some(message) => {
                let error = json!({"type": "invalid_request_error", "message": message});
                say(400, &json!({"type": "error", "error": error}).to_string())
            }
            None => say(200, said),
        });
        let model = Model {
            api: Api::Anthropic,
            top_p: Some(0.9),
            reasoning_effort: Some("high".into()),
            ..Model::new(endpoint.url.clone(), "m")
        };
        let chat = Chat::new(&model, &Variables::new()).expect("a client");
        assert_eq!(chat.call(&llm_call()).await.expect("a reply").text, "[]");
        let bodies = endpoint.bodies();
        let (first, last) = (members(&bodies[0]), members(&bodies[bodies.len() - 1]));
        let missing: Vec<&str> = first.difference(&last).map(String::as_str).collect();
        assert_eq!((missing.as_slice(), bodies.len()), (left_out, asked), "{bodies:#?}");
        // The finding also applies to the next call.
        chat.call(&llm_call()).await.expect("a reply");
        assert_eq!(endpoint.bodies().len(), asked + 1, "{left_out:?}");
    }
}

#[tokio::test]
async fn a_limit_of_tokens_that_is_too_high_is_lowered_as_the_server_says() {
    for (api, name, message) in [
        (
            Api::Anthropic,
            "max_tokens",
            "max_tokens: 77 > 64, which is the maximum allowed number of output tokens for m",
        ),
        (
            Api::Responses,
            "max_output_tokens",
            "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 64, but got 77 instead.",
        ),
    ] {
        let endpoint = Endpoint::serving(move |body| match body[name].as_u64() {
            Some(..=64) => ScriptedResponse::Say(200, EVENTS, streamed(api, "[]")),
            _ => say(400, &json!({"error": {"message": message}}).to_string()),
        });
        let model = Model { api, ..Model::new(endpoint.url.clone(), "m") };
        let chat = Chat::new(&model, &Variables::new()).expect("a client");
        assert_eq!(chat.call(&llm_call()).await.expect("a reply").text, "[]");
        let limits: Vec<Value> = endpoint.bodies().into_iter().map(|body| body[name].clone()).collect();
        assert_eq!(limits, [77, 64], "{api:?}");
    }
}

#[tokio::test]
async fn a_model_that_gives_no_encrypted_reasoning_is_asked_without_it() {
    let endpoint = Endpoint::serving(|body| match body["include"] {
        Value::Null => ScriptedResponse::Say(200, EVENTS, streamed(Api::Responses, "[]")),
        _ => {
            let refusal =
                r#"{"error": {"message": "Encrypted content is not supported with this model.", "param": "include"}}"#;
            ScriptedResponse::Say(400, "", refusal.to_owned())
        }
    });
    let model = Model { api: Api::Responses, ..Model::new(endpoint.url.clone(), "m") };
    let chat = Chat::new(&model, &Variables::new()).expect("a client");
    for sent in [2, 3] {
        assert_eq!(chat.call(&deferrable()).await.expect("a reply").text, "[]");
        assert_eq!(endpoint.bodies().len(), sent, "what the refusal names is left out first, and remembered");
    }
    let bodies = endpoint.bodies();
    let [with, without] = [&bodies[0], &bodies[1]].map(|body| {
        let mut body = body.clone();
        body.as_object_mut().expect("an object").remove("include");
        body
    });
    assert_eq!(with, without, "nothing else is");
}
