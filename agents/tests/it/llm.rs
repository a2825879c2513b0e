//! The chat agent, with an endpoint that answers as servers do.

use std::time::{Duration, Instant};

use patchboard_agents::config::{Model, Setting, Streaming, Structured};
use patchboard_endpoint::{Endpoint, ScriptedResponse};
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::scheduler::AttemptHistory;
use patchboard_llm::{Chat, Variables};
use patchboard_runtime::agent::{Agent as _, Call, CallResult, Permit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{call, seat};

pub(crate) const KEY: &str = "hush-key-0123456789";

/// Calls an endpoint that performs `acts`, with a key.
pub(crate) async fn ask(
    acts: Vec<ScriptedResponse>,
    change: impl FnOnce(&mut Model, &mut Call),
) -> (CallResult, Endpoint, Duration) {
    let endpoint = Endpoint::new(acts);
    let mut model = Model { api_key_env: Some("KEY".into()), ..Model::new(endpoint.url.clone(), "m") };
    let mut call = llm_call();
    change(&mut model, &mut call);
    let chat = Chat::new(&model, &[("KEY".to_owned(), KEY.into())].into()).expect("a client");
    let started = Instant::now();
    let answer = chat.call(&call).await;
    if let Err(failure) = &answer {
        assert!(!failure.message.contains("hush"), "a secret is shown: {failure}");
        assert!(failure.message.chars().count() <= 340, "too long: {failure}");
    }
    (answer, endpoint, started.elapsed())
}

pub(crate) fn llm_call() -> Call {
    let seat = seat(json!({"agent": "llm", "writes": [{"path": "/a"}], "limits": {"reply_tokens": 77}}));
    call("w", seat, "What is shown.", 0)
}

pub(crate) fn keep(_: &mut Model, _: &mut Call) {}

fn ok(content: &str) -> ScriptedResponse {
    ScriptedResponse::complete(content, "stop", json!({"prompt_tokens": 12, "completion_tokens": 3}))
}

pub(crate) fn say(status: u16, body: &str) -> ScriptedResponse {
    ScriptedResponse::Say(status, "retry-after-ms: 10\r\n", body.to_owned())
}

#[tokio::test]
async fn a_call_sends_what_the_seat_and_the_configuration_say() {
    let (answer, endpoint, _) = ask(vec![ok("[]")], |model, _| {
        model.seed = Some(7);
        model.headers.insert("X-Title".into(), Setting::Text("hush-header".into()));
    })
    .await;
    let reply = answer.expect("a reply");
    assert_eq!(reply.text, "[]");
    assert_eq!(reply.usage, Some(Usage { prompt: 12, completion: 3, cached: 0, estimated: false, money: 0 }));

    let (head, body) = endpoint.requests().remove(0);
    assert!(head.starts_with("post /v1/chat/completions http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("authorization: bearer {KEY}\r\n")), "{head}");
    assert!(head.contains("x-title: hush-header\r\n"), "{head}");
    assert_eq!(body["model"], "m");
    assert_eq!(body["messages"][0], json!({"role": "system", "content": "You are a test."}));
    assert_eq!(body["messages"][1], json!({"role": "user", "content": "What is shown."}));
    assert_eq!(
        (&body["temperature"], &body["max_tokens"], &body["seed"], &body["stream"]),
        (&json!(0.0), &json!(77), &json!(7), &json!(false))
    );
    assert_eq!(body["response_format"]["json_schema"]["strict"], false);
    let schema = &body["response_format"]["json_schema"]["schema"];
    assert_eq!(schema["type"], "object");
    // Operations that the seat may perform there now; the view does not show whether the value exists.
    let branches = schema["properties"]["patch"]["items"]["anyOf"].as_array().expect("two grants");
    let path = json!({"type": "string", "enum": ["/a"]});
    assert!(branches.iter().all(|branch| branch["properties"]["path"] == path), "{schema}");
}

#[tokio::test]
async fn no_key_and_no_form_are_sent_where_none_is_configured() {
    let endpoint = Endpoint::new(vec![ok("[]")]);
    let model = Model { structured: Structured::Off, ..Model::new(endpoint.url.clone(), "m") };
    let chat = Chat::new(&model, &Variables::new()).expect("a client");
    chat.call(&llm_call()).await.expect("a reply");
    let (head, body) = endpoint.requests().remove(0);
    assert!(!head.contains("authorization"), "{head}");
    assert_eq!(body.get("response_format"), None);
    assert_eq!(body.get("seed"), None);
}

#[tokio::test]
async fn cached_tokens_are_counted_and_missing_counts_are_estimated() {
    let usage = json!({"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}});
    let (answer, ..) = ask(vec![ScriptedResponse::complete("[]", "stop", usage)], keep).await;
    assert_eq!(answer.expect("a reply").usage.expect("usage").cached, 8);

    let (answer, ..) = ask(vec![ScriptedResponse::complete("[1,2]", "stop", Value::Null)], keep).await;
    // "You are a test." and "What is shown." are 29 characters.
    let estimated = Usage { prompt: 8, completion: 2, cached: 0, estimated: true, money: 0 };
    assert_eq!(answer.expect("a reply").usage, Some(estimated));
}

#[tokio::test]
async fn a_fence_around_the_whole_reply_is_taken_off_and_prose_is_not() {
    let (answer, ..) = ask(vec![ok("```json\n[]\n```\n")], keep).await;
    let reply = answer.expect("a reply");
    assert_eq!((reply.text.as_str(), reply.raw.as_deref()), ("[]", Some("```json\n[]\n```\n")));
    let (answer, ..) = ask(vec![ok("Sure: []")], keep).await;
    let reply = answer.expect("a reply");
    assert_eq!((reply.text.as_str(), reply.raw), ("Sure: []", None));
}

#[tokio::test]
async fn transient_errors_are_retried_within_the_attempt() {
    let vllm = r#"{"object": "error", "message": "busy", "code": 429}"#;
    for first in [
        ScriptedResponse::Say(429, "retry-after: 0\r\n", r#"{"error": {"message": "slow down"}}"#.into()),
        say(429, vllm),
        say(500, r#"{"error": {"message": "oops", "code": 500}}"#),
        say(502, "<html><body><h1>502 Bad Gateway</h1></body></html>"),
        say(503, ""),
        say(200, r#"{"error": {"message": "upstream", "code": 503}}"#),
    ] {
        let shown = format!("{first:?}");
        let (answer, endpoint, _) = ask(vec![first, ok("[]")], keep).await;
        assert_eq!(answer.expect(&shown).text, "[]");
        assert_eq!(endpoint.requests().len(), 2, "{shown}");
    }
}

#[tokio::test]
async fn a_server_may_say_how_long_to_wait() {
    let wait = ScriptedResponse::Say(429, "retry-after: 1\r\n", String::new());
    let (answer, _, took) = ask(vec![wait, ok("[]")], keep).await;
    answer.expect("a reply");
    assert!(took >= Duration::from_secs(1), "waited only {took:?}");
}

#[tokio::test]
async fn a_wait_longer_than_we_will_ends_the_attempt_at_once() {
    for (headers, timeout) in [("retry-after: 3600\r\n", 60), ("retry-after: 5\r\n", 4)] {
        let acts = vec![ScriptedResponse::Say(429, headers, String::new()), ok("[]")];
        let (answer, endpoint, took) = ask(acts, |_, call| call.timeout = Duration::from_secs(timeout)).await;
        let failure = answer.expect_err("must fail");
        assert_eq!(failure.code, FailureCode::RateLimited);
        assert!(failure.message.contains("asks to wait"), "{failure}");
        assert_eq!(endpoint.requests().len(), 1);
        assert!(took < Duration::from_secs(3), "took {took:?}");
    }
}

#[tokio::test]
async fn failures_have_the_code_their_cause_deserves_and_tries_are_bounded() {
    let long = format!(r#"{{"error": {{"message": "{}"}}}}"#, "no ".repeat(500));
    let echo = format!(r#"{{"error": {{"message": "Incorrect API key provided: {KEY} or sk-hush1234"}}}}"#);
    for (act, code, requests, words) in [
        (say(400, &long), FailureCode::Refused, 14, "shows what the model takes): no no"),
        (say(401, &echo), FailureCode::Refused, 1, "Incorrect API key provided: *** or sk-***"),
        (say(403, "\u{1b}[31mforbidden"), FailureCode::Refused, 1, "or region): [31mforbidden"),
        (say(404, r#"{"error": "no such model"}"#), FailureCode::Refused, 6, "no such model"),
        (say(429, r#"{"error": {"message": "m"}}"#), FailureCode::RateLimited, 3, "429"),
        (say(429, r#"{"error": {"code": "insufficient_quota"}}"#), FailureCode::Refused, 1, "insufficient_quota"),
        (say(500, "oops"), FailureCode::Protocol, 8, "500 Internal Server Error (asks to wait 0.01 s): oops"),
        (
            say(502, "<html>\n<h1>Bad <b>Gateway</b></h1>"),
            FailureCode::Unreachable,
            3,
            "502 Bad Gateway (asks to wait 0.01 s): Bad Gateway",
        ),
        (
            ScriptedResponse::Say(307, "location: http://elsewhere/v1\r\n", String::new()),
            FailureCode::Refused,
            1,
            "redirects to http://elsewhere/v1",
        ),
        (say(200, "<html>login</html>"), FailureCode::Protocol, 1, "a web page (does the url of the model end"),
        (say(204, ""), FailureCode::Protocol, 1, "answered 204 No Content without an answer of a model (does the url"),
        (say(405, "{}"), FailureCode::Refused, 1, "405 Method Not Allowed (does the url of the model end"),
        (say(423, ""), FailureCode::Unreachable, 3, "423 Locked"),
        (say(200, r#"{"choices": [{"#), FailureCode::Protocol, 1, "not JSON"),
        (say(200, r#"{"choices": []}"#), FailureCode::Protocol, 1, "no choice"),
        (say(200, r#"{"error": {"message": "strange"}}"#), FailureCode::Protocol, 1, "strange"),
        (ScriptedResponse::BreakOff, FailureCode::Protocol, 1, "broke"),
        (say(504, "gone"), FailureCode::Timeout, 3, "504 Gateway Timeout"),
        (say(408, ""), FailureCode::Timeout, 3, "408"),
        (ok(""), FailureCode::Empty, 1, "nothing"),
        (ok("``` \n```"), FailureCode::Empty, 1, "nothing"),
        (ScriptedResponse::complete("[", "length", Value::Null), FailureCode::Truncated, 1, "77 tokens"),
        (ScriptedResponse::complete("", "content_filter", Value::Null), FailureCode::Refused, 1, "content filter"),
    ] {
        let shown = format!("{act:?}");
        let (answer, endpoint, _) = ask(vec![act], keep).await;
        let failure = answer.expect_err(&shown);
        assert_eq!(failure.code, code, "{failure} for {shown}");
        assert!(failure.message.contains(words), "{words:?} is not in {failure}");
        assert_eq!(endpoint.requests().len(), requests, "{shown}");
    }
}

#[tokio::test]
async fn advice_comes_before_the_words_of_the_provider() {
    let long = "words of the provider ".repeat(30);
    for (status, said, advice) in [
        (401, "", "401 Unauthorized (check the key of the model: api_key_env or api_key_command"),
        (404, "", "404 Not Found (does the url of the model end as the provider says"),
        (413, "", "413 Payload Too Large (make view.budget of the worker smaller)"),
        (
            400,
            "maximum context length is 4096: ",
            "400 Bad Request (make view.budget or limits.reply_tokens of the worker",
        ),
        (400, "", "400 Bad Request (`patchboard doctor --models` shows what the model takes)"),
    ] {
        let body = json!({"error": {"message": format!("{said}{long}")}}).to_string();
        let (answer, ..) = ask(vec![say(status, &body)], |_, call| call.permit = Some(Permit::ungated())).await;
        let failure = answer.expect_err("refused");
        assert!(failure.message.starts_with(advice), "{failure}");
        assert!(failure.message.contains("words of the provider"), "{failure}");
    }
}

#[tokio::test]
async fn answers_from_a_missing_api_defer_the_call() {
    for (act, reason) in [
        (say(405, ""), DeferralReason::ModelNotFound),
        (say(451, ""), DeferralReason::AccessDenied),
        (
            ScriptedResponse::Say(302, "location: http://elsewhere/login\r\n", String::new()),
            DeferralReason::ModelNotFound,
        ),
        (
            say(200, r#"{"success": false, "errors": [{"message": "Authentication error"}]}"#),
            DeferralReason::KeyRefused,
        ),
        (say(421, ""), DeferralReason::Overloaded),
    ] {
        let shown = format!("{act:?}");
        let (answer, ..) = ask(vec![act], |_, call| call.permit = Some(Permit::ungated())).await;
        assert_eq!(answer.expect_err("refused").deferral.map(|deferral| deferral.reason), Some(reason), "{shown}");
    }
}

#[tokio::test]
async fn a_redirect_within_the_server_is_followed_with_the_same_request() {
    for status in [301, 302, 307, 308] {
        let to = ScriptedResponse::Say(status, "location: /v1/chat/completions/\r\n", String::new());
        let (answer, endpoint, _) = ask(vec![to, ok("[]")], keep).await;
        assert_eq!(answer.expect("a reply").text, "[]");
        let requests = endpoint.requests();
        assert!(requests[1].0.starts_with("post /v1/chat/completions/ "), "{}", requests[1].0);
        assert!(requests[1].0.contains(KEY) && requests[0].1 == requests[1].1);
    }
    // A redirect to itself, and an endless chain.
    for location in ["location: /v1/chat/completions\r\n", "location: a/b\r\n"] {
        let (answer, endpoint, _) = ask(vec![ScriptedResponse::Say(307, location, String::new())], keep).await;
        assert_eq!(answer.expect_err("it leads nowhere").code, FailureCode::Refused);
        assert!(endpoint.requests().len() <= 4);
    }
}

#[tokio::test]
async fn stream_options_and_response_format_are_omitted_where_both_are_refused() {
    let endpoint = Endpoint::serving(|body| {
        let extra = ["stream_options", "response_format"].into_iter().filter(|name| body.get(*name).is_some());
        let extra: Vec<Value> =
            extra.map(|name| json!({"loc": ["body", name], "msg": format!("{name}: extra input")})).collect();
        match extra.is_empty() {
            true => ScriptedResponse::Say(
                200,
                "content-type: text/event-stream\r\n",
                "data: {\"choices\": [{\"delta\": {\"content\": \"[]\"}, \"finish_reason\": \"stop\"}]}\n\n".to_owned(),
            ),
            false => ScriptedResponse::Say(422, "", json!({"message": {"detail": extra}}).to_string()),
        }
    });
    let model = Model { stream: Streaming::Always, ..Model::new(endpoint.url.clone(), "m") };
    let chat = Chat::new(&model, &Variables::new()).expect("a client");
    assert_eq!(chat.call(&llm_call()).await.expect("a reply").text, "[]");
    assert_eq!(chat.call(&llm_call()).await.expect("a reply").text, "[]");
    let bodies = endpoint.bodies();
    assert!(bodies.len() <= 10 && bodies.iter().all(|body| body["stream"] == true), "{}", bodies.len());
}

#[tokio::test]
async fn the_plainest_request_holds_nothing_that_it_need_not() {
    let endpoint = Endpoint::serving(|body| {
        let known = ["model", "messages", "max_tokens", "temperature"];
        match body.as_object().expect("an object").keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => ScriptedResponse::Say(
                400,
                "",
                json!({"error": {"message": format!("Unknown field: {name}")}}).to_string(),
            ),
            None => ScriptedResponse::complete("[]", "stop", Value::Null),
        }
    });
    let chat = Chat::new(&Model::new(endpoint.url.clone(), "m"), &Variables::new()).expect("a client");
    assert_eq!(chat.call(&llm_call()).await.expect("a reply").text, "[]");
}

#[tokio::test]
async fn a_reply_has_the_room_that_the_prompt_leaves_of_the_context() {
    let words = "This model's maximum context length is 800 tokens. However, you requested 840 tokens (750 in the messages, \
                 90 in the completion).";
    let refused = say(400, &json!({"error": {"message": words}}).to_string());
    let (answer, endpoint, _) = ask(vec![refused, ok("[]")], keep).await;
    assert_eq!(answer.expect("a reply").text, "[]");
    let [first, second] = &endpoint.bodies()[..] else { panic!("two requests") };
    assert_eq!((&first["max_tokens"], &second["max_tokens"]), (&json!(77), &json!(50)));
    assert_eq!(first["response_format"], second["response_format"]);
}

#[tokio::test]
async fn a_failure_after_the_model_has_written_says_what_it_cost() {
    let usage = json!({"prompt_tokens": 5, "completion_tokens": 77});
    let (answer, ..) = ask(vec![ScriptedResponse::complete("[", "length", usage)], keep).await;
    let spent = Usage { prompt: 5, completion: 77, cached: 0, estimated: false, money: 0 };
    assert_eq!(answer.expect_err("cut off").usage, Some(spent));
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let (answer, ..) = ask(vec![say(200, &"x".repeat(5 * 1024 * 1024))], keep).await;
    let failure = answer.expect_err("too long");
    assert_eq!(failure.code, FailureCode::Protocol);
    assert!(failure.message.contains("longer than"), "{failure}");
}

#[tokio::test]
async fn a_server_that_hangs_costs_no_more_than_the_calls_time() {
    let (answer, endpoint, took) =
        ask(vec![ScriptedResponse::Hang], |_, call| call.timeout = Duration::from_secs(2)).await;
    let failure = answer.expect_err("no answer");
    assert_eq!(failure.code, FailureCode::Timeout);
    assert!(failure.message.contains("2 s"), "{failure}");
    assert_eq!(endpoint.requests().len(), 1);
    assert!(took < Duration::from_secs(10), "took {took:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_again_and_then_unreachable() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let (answer, _, took) = ask(vec![ScriptedResponse::Hang], |model, _| {
        model.url = format!("http://{free}/v1");
        model.max_tries = 2;
    })
    .await;
    let failure = answer.expect_err("nobody there");
    assert_eq!(failure.code, FailureCode::Unreachable);
    assert!(failure.message.contains("refused"), "{failure}");
    assert!(took >= Duration::from_millis(500), "it was tried again after {took:?}");
}

#[tokio::test]
async fn a_parameter_that_is_refused_by_name_is_left_out_once_and_for_all() {
    let refuse = |what: &str| say(400, &format!(r#"{{"error": {{"message": "{what} is not supported"}}}}"#));
    let renamed = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead. It";
    let schema = || refuse("response_format");
    let endpoint = Endpoint::new(vec![schema(), schema(), refuse(renamed), refuse("'temperature'"), ok("[]")]);
    let chat = Chat::new(&Model::new(endpoint.url.clone(), "m"), &Variables::new()).expect("a client");
    for _ in 0..2 {
        chat.call(&llm_call()).await.expect("a reply");
    }
    let has = |name: &str| endpoint.requests().iter().map(|(_, body)| body.get(name).is_some()).collect::<Vec<_>>();
    assert_eq!(has("response_format"), [true; 6]);
    assert_eq!(has("max_tokens"), [true, true, true, false, false, false]);
    assert_eq!(has("max_completion_tokens"), [false, false, false, true, true, true]);
    assert_eq!(has("temperature"), [true, true, true, true, false, false]);
}

#[tokio::test]
async fn a_server_that_refuses_a_derived_form_gets_the_generic_one_from_that_seat() {
    let refusal = say(400, r#"{"error": {"message": "Failed to parse grammar"}}"#);
    let endpoint = Endpoint::new(vec![refusal.clone(), refusal.clone(), refusal, ok("[]")]);
    let chat = Chat::new(&Model::new(endpoint.url.clone(), "m"), &Variables::new()).expect("a client");
    let mut other = llm_call();
    other.decided.worker = "other".into();
    for call in [llm_call(), llm_call(), other] {
        chat.call(&call).await.expect("a reply");
    }
    let paths: Vec<Value> = endpoint
        .requests()
        .iter()
        .map(|(_, body)| {
            let items = &body["response_format"]["json_schema"]["schema"]["properties"]["patch"]["items"];
            let branch = items["anyOf"].get(0).unwrap_or(items);
            branch["properties"]["path"].clone()
        })
        .collect();
    let (derived, generic) = (json!({"type": "string", "enum": ["/a"]}), json!({"type": "string"}));
    assert_eq!(paths, [derived.clone(), derived.clone(), derived.clone(), generic.clone(), generic, derived]);
}

#[tokio::test]
async fn a_server_that_refuses_even_the_bare_request_is_believed() {
    let refusal = say(400, r#"{"error": "response_format, temperature, max_completion_tokens: all wrong"}"#);
    let (answer, endpoint, _) = ask(vec![refusal], keep).await;
    assert_eq!(answer.expect_err("refused").code, FailureCode::Refused);
    assert_eq!(endpoint.requests().len(), 15, "each part in its steps, those that are named, then all at once");
}

#[tokio::test]
async fn a_wrong_key_is_not_tried_in_other_ways() {
    for body in [
        r#"[{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT"}}]"#,
        r#"{"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***mp."}"#,
    ] {
        let (answer, endpoint, _) = ask(vec![say(400, body)], |_, call| call.permit = Some(Permit::ungated())).await;
        let deferral = answer.expect_err("refused").deferral.expect("an operator can act");
        assert_eq!((deferral.reason, endpoint.requests().len()), (DeferralReason::KeyRefused, 1), "{body}");
    }
}

#[tokio::test]
async fn one_seats_form_is_no_other_seats_and_a_fault_counts_twice() {
    let refusal = || say(400, r#"{"error": "response_format"}"#);
    let fault = || say(500, "oops");
    let forms = async |acts: Vec<ScriptedResponse>| {
        let endpoint = Endpoint::new(acts);
        let chat = Chat::new(&Model::new(endpoint.url.clone(), "m"), &Variables::new()).expect("a client");
        let mut other = llm_call();
        other.decided.worker = "other".into();
        let mut asked = Vec::new();
        for mut call in [llm_call(), llm_call(), llm_call(), other] {
            call.permit = Some(Permit::ungated());
            let before = endpoint.requests().len();
            chat.call(&call).await.expect("a reply");
            asked.push(endpoint.requests().len() - before);
        }
        let has: Vec<bool> = endpoint.bodies().iter().map(|body| body.get("response_format").is_some()).collect();
        (asked, has.ends_with(&[true]))
    };
    // Refusals of all forms but the last, any object, apply to this seat only.
    let acts = [refusal(), refusal(), refusal(), refusal(), ok("[]"), ok("[]"), ok("[]"), ok("[]")].to_vec();
    assert_eq!(forms(acts).await, (vec![5, 1, 1, 1], true));
    // Refusals of every form apply to the model.
    let acts = [refusal(), refusal(), refusal(), refusal(), refusal(), ok("[]")].to_vec();
    assert_eq!(forms(acts).await, (vec![6, 1, 1, 1], false));
    // A short request is answered, then one with a plainer form.
    let twice = || [fault(), ok("yes"), ok("[]")];
    let acts = [&twice()[..], &twice()].concat();
    assert_eq!(forms(acts).await, (vec![3, 3, 1, 1], true), "twice in a row is the form's fault");
    let acts = [&twice()[..], &[ok("[]")], &twice()].concat();
    assert_eq!(forms(acts).await, (vec![3, 1, 3, 1], true), "an answer in between clears the form");
}

#[tokio::test]
async fn a_fault_that_another_request_meets_as_well_is_the_servers() {
    let fault = || say(500, "oops");
    for (acts, requests, is_ambiguous) in [
        (vec![fault(), fault(), ok("[]")], 2, Some(false)),
        (vec![fault(), say(503, "busy"), ok("[]")], 2, Some(false)),
        // The request's own failure is charged.
        (vec![fault(), ok("yes"), fault(), fault(), fault(), fault(), fault()], 7, None),
        // The gate decides.
        (vec![fault(), say(400, "too short"), fault(), fault(), fault(), fault(), fault()], 7, Some(true)),
    ] {
        let (answer, endpoint, _) = ask(acts, |_, call| call.permit = Some(Permit::ungated())).await;
        let deferral = answer.expect_err("it failed").deferral;
        let is_deferred = deferral.map(|deferral| deferral.is_ambiguous);
        assert_eq!((endpoint.requests().len(), is_deferred), (requests, is_ambiguous));
    }
}

#[tokio::test]
async fn usage_is_estimated_where_the_provider_counts_no_tokens() {
    let usage = json!({"prompt_tokens": 12, "completion_tokens": 0});
    let (answer, ..) = ask(vec![ScriptedResponse::complete("[1,2]", "stop", usage)], keep).await;
    let expected = Usage { prompt: 12, completion: 2, cached: 0, estimated: true, money: 0 };
    assert_eq!(answer.expect("a reply").usage, Some(expected));
}

#[tokio::test]
async fn the_reason_for_an_end_that_is_not_known_counts_only_amid_a_reply() {
    for (content, reason, expected) in [
        ("[]", "abort", None),
        ("[]", "STOP", None),
        ("[{", "abort", Some(FailureCode::Truncated)),
        ("[{", "MAX_TOKENS", Some(FailureCode::Truncated)),
        ("[]", "MAX_TOKENS", None),
        ("[]", "SAFETY", Some(FailureCode::Refused)),
    ] {
        let (answer, ..) = ask(vec![ScriptedResponse::complete(content, reason, Value::Null)], keep).await;
        assert_eq!(answer.err().map(|failure| failure.code), expected, "{content} {reason}");
    }
}

#[tokio::test]
async fn after_an_empty_reply_less_reasoning_is_asked_for_and_what_is_refused_of_it_is_left_out() {
    let endpoint = Endpoint::serving(|body| match &body["reasoning_effort"] {
        Value::Null => ok("[]"),
        Value::String(effort) if effort == "high" => ok(""),
        _ => say(400, r#"{"error": {"message": "Unrecognized request argument supplied: reasoning_effort"}}"#),
    });
    let model =
        Model { reasoning_effort: Some("high".into()), top_p: Some(0.9), ..Model::new(endpoint.url.clone(), "m") };
    let chat = Chat::new(&model, &Variables::new()).expect("a client");
    let failed = chat.call(&llm_call()).await.expect_err("it is empty").code;
    assert_eq!(failed, FailureCode::Empty);
    let mut call = llm_call();
    call.decided.earlier_attempts = AttemptHistory { failures: vec![failed], ..AttemptHistory::default() };
    assert_eq!(chat.call(&call).await.expect("a reply").text, "[]");
    let sent = endpoint.bodies();
    assert_eq!((&sent[1]["reasoning_effort"], &sent[2]["top_p"]), (&json!("low"), &json!(0.9)));
    assert_eq!(sent.len(), 3, "the refusal names what is left out first");
    chat.call(&call).await.expect("a reply");
    assert_eq!(endpoint.bodies().len(), 4, "what was refused is remembered");
}

/// Calls an endpoint that serves one stream in these writes, then closes it.
async fn written(writes: &'static [&'static str]) -> CallResult {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut request = vec![0; 64 * 1024];
        let _ = stream.read(&mut request).await.expect("a request");
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        for part in std::iter::once(&head).chain(writes) {
            stream.write_all(part.as_bytes()).await.expect("it is read");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let chat = Chat::new(&Model::new(url, "m"), &Variables::new()).expect("a client");
    let answer = chat.call(&Call { permit: Some(Permit::ungated()), ..llm_call() }).await;
    serving.await.expect("it ends");
    answer
}

#[tokio::test]
async fn a_stream_is_taken_however_it_is_cut_and_one_without_a_byte_is_deferred() {
    const KEPT: &str = ": OPENROUTER PROCESSING\n\n";
    const WHOLE: &str = "data: {\"choices\": [{\"index\": 0, \"delta\": {\"content\": \"[]\"}, \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n";
    for writes in [&[WHOLE][..], &[KEPT, WHOLE], &[KEPT, KEPT, WHOLE]] {
        assert_eq!(written(writes).await.expect("a reply").text, "[]", "{writes:?}");
    }
    for writes in [&[][..], &[KEPT], &[KEPT, KEPT]] {
        let failure = written(writes).await.expect_err("no reply");
        assert!(failure.deferral.is_some(), "{writes:?}: {failure:?}");
    }
}
