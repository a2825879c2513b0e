//! Attempts in which an agent uses tools: the model's requests, their bounds, and scripts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use patchboard_agents::config::{Config, Environment, Model};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_endpoint::{Endpoint, ScriptedResponse};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::ledger::Usage;
use patchboard_llm::{Chat, Variables};
use patchboard_runtime::agent::{Agent as _, Call, CallResult, Failure, Permit};
use patchboard_runtime::tools::{BoxFuture, ToolDefinition, ToolOutput, Toolbox, Tools, cut};
use serde_json::{Value, json};

use crate::support::{call, seat};

/// Log of tool calls, in order.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;

/// Tools that log their calls: `echo` returns its text, `slow` takes a minute, and `flaky` fails the first `errors`
/// times.
#[derive(Default)]
pub(crate) struct Bench {
    pub log: Log,
    /// Board's answers to further calls; after these, the budget suffices.
    pub budgets: VecDeque<Result<(), Failure>>,
    pub errors: u32,
}

impl Bench {
    fn record(&self, what: String) {
        self.log.lock().expect("whole").push(what);
    }
}

impl Tools for Bench {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let text = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        let tool =
            |name: &str| ToolDefinition { name: name.into(), description: "A tool.".into(), parameters: text.clone() };
        ["echo", "slow", "flaky"].map(tool).to_vec()
    }

    fn begin_batch(&mut self) {
        self.record("at once".to_owned());
    }

    fn call<'a>(&'a mut self, name: &'a str, arguments: &'a str, room: usize) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            self.record(format!("{name} {arguments}"));
            let arguments: Value = serde_json::from_str(arguments).expect("they were read before");
            match name {
                "slow" => tokio::time::sleep(Duration::from_secs(60)).await,
                "flaky" if self.errors > 0 => {
                    self.errors -= 1;
                    return ToolOutput::error("not yet");
                }
                _ => {}
            }
            ToolOutput::done(cut(arguments["text"].as_str().unwrap_or("nothing").to_owned(), room))
        })
    }

    fn checkpoint(&mut self, usage: Option<Usage>, reserve: u64) -> BoxFuture<'_, Result<(), Failure>> {
        let total = usage.map_or(0, Usage::total);
        self.record(format!("go on: {total} spent"));
        assert!(reserve > 77, "the reply is part of it: {reserve}");
        Box::pin(std::future::ready(self.budgets.pop_front().unwrap_or(Ok(()))))
    }
}

/// Toolbox of benches that share one log.
pub(crate) struct Benches(pub Log, pub u32);

impl Toolbox for Benches {
    fn open<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Result<Option<Box<dyn Tools>>, Failure>> {
        let bench = Bench { log: Arc::clone(&self.0), errors: self.1, ..Bench::default() };
        Box::pin(std::future::ready(Ok(Some(Box::new(bench) as Box<dyn Tools>))))
    }
}

pub(crate) fn logged(log: &Log) -> Vec<String> {
    log.lock().expect("whole").clone()
}

/// Returns a model call with this many iterations.
fn working(iterations: u32) -> Call {
    let fields = json!({"agent": "llm", "writes": [{"path": "/a"}], "limits": {"reply_tokens": 77},
        "files": {"iterations": iterations}});
    call("w", seat(fields), "What is shown.", 0)
}

/// Runs a call with a model that performs `acts`.
async fn work(
    acts: Vec<ScriptedResponse>,
    call: &Call,
    bench: &mut Bench,
    change: impl FnOnce(&mut Model),
) -> (CallResult, Vec<Value>) {
    let endpoint = Endpoint::new(acts);
    let mut model = Model::new(endpoint.url.clone(), "m");
    change(&mut model);
    let chat = Chat::new(&model, &Variables::new()).expect("a client");
    let answer = chat.run_tool_loop(call, bench).await;
    (answer, endpoint.bodies())
}

fn keep(_: &mut Model) {}

fn uses(calls: &[(&str, &str, &str)]) -> ScriptedResponse {
    ScriptedResponse::call_tools(calls, 10, 2)
}

fn echo(text: &str) -> (&'static str, String) {
    ("echo", json!({"text": text}).to_string())
}

fn spent(prompt: u64, completion: u64) -> Option<Usage> {
    Some(Usage { prompt, completion, ..Usage::default() })
}

#[tokio::test]
async fn a_model_uses_tools_in_their_order_and_then_replies() {
    let mut bench = Bench::default();
    let (name, arguments) = echo("one");
    let two = json!({"text": "two"}).to_string();
    let acts = vec![
        uses(&[("a", name, &arguments), ("b", "echo", &two)]),
        uses(&[("c", "echo", "{\"text\": \"three\"}")]),
        ScriptedResponse::answer(r#"{"patch": []}"#, 30, 3),
    ];
    let (answer, sent) = work(acts, &working(9), &mut bench, keep).await;
    let reply = answer.expect("a reply");
    assert_eq!((reply.text.as_str(), reply.usage), (r#"{"patch": []}"#, spent(30, 3)));
    assert_eq!(
        logged(&bench.log),
        [
            "at once",
            "echo {\"text\":\"one\"}",
            "echo {\"text\":\"two\"}",
            "go on: 12 spent",
            "echo {\"text\": \"three\"}",
            "go on: 12 spent"
        ]
    );
    // Earlier messages stay unchanged; each request only appends.
    let messages: Vec<&Vec<Value>> = sent.iter().map(|body| body["messages"].as_array().expect("messages")).collect();
    assert!(messages.windows(2).all(|pair| pair[1].starts_with(pair[0])), "{messages:?}");
    let roles: Vec<&str> = messages[2].iter().map(|one| one["role"].as_str().expect("a role")).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "assistant", "tool"]);
    assert_eq!(messages[2][2]["tool_calls"][1]["id"], "b");
    assert_eq!(messages[2][2]["tool_calls"][1]["function"], json!({"name": "echo", "arguments": two}));
    assert_eq!((&messages[2][4]["tool_call_id"], &messages[2][4]["content"]), (&json!("b"), &json!("two")));
    let names: Vec<&Value> =
        sent[0]["tools"].as_array().expect("tools").iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["echo", "slow", "flaky", "answer"]);
    assert!(sent.iter().all(|body| body["tools"] == sent[0]["tools"] && body.get("response_format").is_none()));
}

#[tokio::test]
async fn a_reply_may_come_by_a_tool_which_ends_the_attempt() {
    let mut bench = Bench::default();
    let reply = r#"{"patch": [{"op": "remove", "path": "/a"}]}"#;
    let acts =
        vec![uses(&[("a", "answer", "{"), ("b", "echo", "{}")]), uses(&[("c", "answer", reply), ("d", "echo", "{}")])];
    let (answer, sent) = work(acts, &working(9), &mut bench, keep).await;
    assert_eq!(answer.expect("a reply").text, reply);
    assert_eq!(
        logged(&bench.log),
        ["at once", "echo {}", "go on: 12 spent", "at once"],
        "nothing is done after the reply"
    );
    let form = &sent[0]["tools"][3]["function"]["parameters"];
    assert_eq!(form["properties"]["patch"]["type"], "array", "{form}");
    let result = sent[1]["messages"][3]["content"].as_str().expect("a text");
    assert!(result.starts_with("the arguments are no JSON object"), "{result}");
}

#[tokio::test]
async fn a_use_of_a_tool_that_is_written_as_text_is_one() {
    let mut bench = Bench::default();
    let acts = vec![
        ScriptedResponse::answer(
            "<tool_call>\n{\"name\": \"echo\", \"arguments\": {\"text\": \"one\"}}\n</tool_call>",
            10,
            2,
        ),
        ScriptedResponse::answer(r#"<{{"name": "answer", "arguments": {"patch": []}}}>"#, 10, 2),
    ];
    let (answer, sent) = work(acts, &working(9), &mut bench, keep).await;
    assert_eq!(answer.expect("a reply").text, r#"{"patch":[]}"#);
    assert_eq!(logged(&bench.log), ["echo {\"text\":\"one\"}", "go on: 12 spent"]);
    let said = &sent[1]["messages"][2]["tool_calls"][0];
    assert_eq!((&said["function"]["name"], &sent[1]["messages"][3]["tool_call_id"]), (&json!("echo"), &said["id"]));
    // Without tools this text is the model's reply.
    let text = r#"{"name": "echo", "arguments": {}}"#;
    let (answer, _) = work(vec![ScriptedResponse::answer(text, 10, 2)], &working(1), &mut bench, keep).await;
    assert_eq!(answer.expect("a reply").text, text);
}

#[tokio::test]
async fn tool_call_errors_are_reported_to_the_model() {
    let mut bench = Bench { errors: 1, ..Bench::default() };
    let calls =
        [("a", "echo", "text"), ("b", "echo", "[]"), ("c", "shout", "{}"), ("d", "flaky", ""), ("e", "echo", "")];
    let (answer, sent) =
        work(vec![uses(&calls), ScriptedResponse::answer("[]", 1, 1)], &working(9), &mut bench, keep).await;
    answer.expect("a reply");
    let results: Vec<&str> = (3..8).map(|at| sent[1]["messages"][at]["content"].as_str().expect("a text")).collect();
    assert!(results[0].starts_with("the arguments are no JSON object: "), "{results:?}");
    assert!(results[1].starts_with("the arguments are no JSON object: "), "{results:?}");
    assert_eq!(results[2..], ["there is no such tool; there are: echo, slow, flaky", "not yet", "nothing"]);
    assert_eq!(logged(&bench.log), ["at once", "flaky {}", "echo {}", "go on: 12 spent"]);
}

#[tokio::test]
async fn the_last_call_is_made_without_tools() {
    let mut bench = Bench::default();
    let acts = vec![uses(&[("a", "echo", "{}")]), uses(&[("b", "echo", "{}")]), ScriptedResponse::answer("[]", 1, 1)];
    let (answer, sent) = work(acts, &working(3), &mut bench, keep).await;
    assert_eq!(answer.expect("a reply").text, "[]");
    assert_eq!(sent.len(), 3);
    assert!(sent[2].get("tools").is_none() && sent[2].get("response_format").is_some(), "{}", sent[2]);
    let last = sent[2]["messages"].as_array().expect("messages").last().expect("one");
    assert!(
        last["role"] == "user" && last["content"].as_str().is_some_and(|text| text.contains("Give your reply now"))
    );
    // A call with a single iteration has no tools at all.
    let (answer, sent) =
        work(vec![ScriptedResponse::answer("[]", 1, 1)], &working(1), &mut Bench::default(), keep).await;
    assert_eq!(answer.expect("a reply").text, "[]");
    assert!(sent[0].get("tools").is_none() && sent[0]["messages"].as_array().expect("messages").len() == 2);
}

#[tokio::test]
async fn an_attempt_ends_where_the_board_lets_it_make_no_further_call() {
    let no = Failure { code: FailureCode::BudgetExhausted, message: "no".into(), usage: None, deferral: None };
    let mut bench = Bench { budgets: [Ok(()), Err(no)].into(), ..Bench::default() };
    let (answer, sent) = work(vec![uses(&[("a", "echo", "{}")])], &working(9), &mut bench, keep).await;
    let failure = answer.expect_err("it ends");
    assert_eq!((failure.code, failure.usage, sent.len()), (FailureCode::BudgetExhausted, spent(10, 2), 2));
}

#[tokio::test]
async fn time_is_over_in_the_middle_of_a_tool_too() {
    let mut call = working(9);
    // The first answer must arrive in time even on a busy machine.
    call.timeout = Duration::from_secs(4);
    let (answer, _) = work(vec![uses(&[("a", "slow", "{}")])], &call, &mut Bench::default(), keep).await;
    let failure = answer.expect_err("it ends");
    assert_eq!((failure.code, failure.usage), (FailureCode::Timeout, spent(10, 2)), "what the model said is paid for");
    let acts = vec![uses(&[("a", "echo", "{}")]), ScriptedResponse::Hang];
    let failure = work(acts, &call, &mut Bench::default(), keep).await.0.expect_err("it ends");
    assert_eq!((failure.code, failure.usage), (FailureCode::Timeout, None), "of the last call nothing is known");
}

#[tokio::test]
async fn a_server_that_takes_no_tools_is_reported_and_not_asked_again() {
    for (status, body) in [
        (400, r#"{"error": {"message": "'tools' is not supported by this model"}}"#),
        (404, r#"{"error": {"message": "No endpoints found that support tool use.", "code": 404}}"#),
        (422, r#"{"detail": "tools: extra fields not permitted"}"#),
        (500, r#"{"error": {"message": "tools param requires --jinja flag"}}"#),
    ] {
        let acts = vec![ScriptedResponse::Say(status, "", body.to_owned())];
        let (answer, sent) = work(acts, &working(9), &mut Bench::default(), keep).await;
        let failure = answer.expect_err(body);
        assert_eq!((failure.code, sent.len()), (FailureCode::Refused, 1));
        assert!(failure.message.starts_with("the server takes no tools"), "{failure}");
    }
}

#[tokio::test]
async fn a_server_that_answers_without_tools_alone_takes_none() {
    let refusal = || ScriptedResponse::Say(400, "", r#"{"error": {"message": "bad request: tools"}}"#.to_owned());
    // Plainer tool descriptions and forms of the answer tool are tried first.
    let before = |act: ScriptedResponse| std::iter::repeat_with(refusal).take(6).chain([act]).collect::<Vec<_>>();
    let (answer, sent) =
        work(before(ScriptedResponse::answer("[]", 7, 1)), &working(9), &mut Bench::default(), keep).await;
    let failure = answer.expect_err("no tools");
    assert!(
        failure.message.starts_with("the server takes no tools") && failure.message.contains("bad request"),
        "{failure}"
    );
    assert_eq!((failure.code, failure.usage), (FailureCode::Refused, spent(7, 1)), "what the trial cost is paid for");
    assert_eq!((sent.len(), sent[5]["tools"].as_array().map(Vec::len), sent[6].get("tools")), (7, Some(3), None));
    // A refusal that also occurs without tools is not about the tools.
    for body in [
        r#"{"error": {"message": "Missing `reasoning_content`, see https://api.example.com/guides#tool-calls"}}"#,
        r#"{"error": {"message": "tool_call_id call_1 is not found"}}"#,
        r#"{"error": {"message": "bad request: tools"}}"#,
    ] {
        let acts = vec![uses(&[("a", "echo", "{}")]), ScriptedResponse::Say(400, "", body.to_owned())];
        let failure = work(acts, &working(9), &mut Bench::default(), keep).await.0.expect_err(body);
        assert!(failure.message.starts_with("400 Bad Request"), "{failure}");
    }
    // A busy server's answer without tools says nothing about tools.
    let acts = before(ScriptedResponse::Say(429, "", String::new()));
    let mut call = working(9);
    call.permit = Some(patchboard_runtime::agent::Permit::ungated());
    let failure = work(acts, &call, &mut Bench::default(), keep).await.0.expect_err("later");
    assert!(failure.deferral.is_some(), "{failure}");
}

#[tokio::test]
async fn a_call_goes_back_as_it_came_under_an_id_of_its_own() {
    let signed = |id: Value| {
        let call = json!({"id": id, "type": "function", "extra_content": {"google": {"thought_signature": "s1"}},
            "function": {"name": "echo", "arguments": "{}"}});
        let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        let answer = json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]});
        ScriptedResponse::Say(200, "", answer.to_string())
    };
    let acts = vec![
        signed(json!("call_0")),
        signed(json!("call_0")),
        signed(Value::Null),
        ScriptedResponse::answer("[]", 1, 1),
    ];
    let (answer, sent) = work(acts, &working(9), &mut Bench::default(), keep).await;
    answer.expect("a reply");
    let last = sent.last().expect("a call")["messages"].as_array().expect("messages").clone();
    let calls: Vec<&Value> = last.iter().filter_map(|one| one["tool_calls"].get(0)).collect();
    assert!(calls.iter().all(|call| call["extra_content"]["google"]["thought_signature"] == "s1"), "{calls:?}");
    let ids: Vec<&Value> = calls.iter().map(|call| &call["id"]).collect();
    let results: Vec<&Value> = last.iter().filter_map(|one| one.get("tool_call_id")).collect();
    assert_eq!(ids, results);
    assert_eq!(ids.iter().map(|id| id.to_string()).collect::<std::collections::BTreeSet<_>>().len(), 3, "{ids:?}");
}

#[tokio::test]
async fn several_uses_in_words_are_done_in_their_order_and_a_patch_in_a_text_is_read() {
    let mut bench = Bench::default();
    let text = "<think>two</think>I look.\n<tool_call>{\"name\": \"echo\", \"arguments\": {\"text\": \"one\"}}</tool_call>\n\
                <tool_call>{\"name\": \"echo\", \"arguments\": {\"text\": \"two\"}}</tool_call>";
    let patch = json!([{"op": "add", "path": "/a", "value": 1}]);
    let encoded = json!({"patch": patch.to_string()}).to_string();
    let acts = vec![ScriptedResponse::answer(text, 1, 1), uses(&[("z", "answer", &encoded)])];
    let (answer, _) = work(acts, &working(9), &mut bench, keep).await;
    assert_eq!(answer.expect("a reply").text, json!({"patch": patch}).to_string());
    let done: Vec<String> = logged(&bench.log).into_iter().filter(|what| what.starts_with("echo")).collect();
    assert_eq!(done, ["echo {\"text\":\"one\"}", "echo {\"text\":\"two\"}"]);
}

#[tokio::test]
async fn a_form_that_is_refused_as_a_tool_is_loosened_and_then_left_out() {
    let refusal = || ScriptedResponse::Say(400, "", r#"{"error": "invalid schema for function answer"}"#.to_owned());
    let acts = vec![refusal(), refusal(), refusal(), refusal(), ScriptedResponse::answer("[]", 1, 1)];
    let (answer, sent) = work(acts, &working(9), &mut Bench::default(), keep).await;
    assert_eq!(answer.expect("a reply").text, "[]");
    let counts: Vec<usize> = sent.iter().map(|body| body["tools"].as_array().expect("tools").len()).collect();
    assert_eq!(counts, [4, 4, 4, 4, 3]);
    assert_ne!(sent[0]["tools"][3], sent[1]["tools"][3]);
    assert_ne!(sent[1]["tools"][3], sent[2]["tools"][3]);
}

#[tokio::test]
async fn a_tool_for_replies_that_is_refused_takes_no_form_from_other_turns() {
    let refusal = || ScriptedResponse::Say(400, "", r#"{"error": "invalid schema for function answer"}"#.to_owned());
    let acts = std::iter::repeat_with(refusal).take(4).chain([ScriptedResponse::answer("[]", 1, 1)]).collect();
    let endpoint = Endpoint::new(acts);
    let chat = Chat::new(&Model::new(endpoint.url.clone(), "m"), &Variables::new()).expect("a client");
    let other = call("other", seat(json!({"agent": "llm", "writes": [{"path": "/a"}]})), "What is shown.", 1);
    chat.run_tool_loop(&working(9), &mut Bench::default()).await.expect("a reply");
    let before = endpoint.bodies().len();
    chat.run_tool_loop(&working(9), &mut Bench::default()).await.expect("a reply");
    // This seat without tools, and another seat.
    chat.run_tool_loop(&working(1), &mut Bench::default()).await.expect("a reply");
    chat.call(&other).await.expect("a reply");
    let sent = endpoint.bodies().split_off(before);
    let forms: Vec<bool> = sent.iter().map(|body| body["response_format"]["type"] == "json_schema").collect();
    let tools: Vec<usize> = sent.iter().map(|body| body["tools"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!((forms, tools), (vec![false, true, true], vec![3, 0, 0]), "nothing is refused again");
}

#[tokio::test]
async fn tool_results_are_truncated_when_the_context_is_full() {
    let mut bench = Bench::default();
    let long = json!({"text": "x".repeat(5000)}).to_string();
    let mut acts: Vec<ScriptedResponse> = (0..8).map(|_| uses(&[("a", "echo", &long)])).collect();
    acts.push(ScriptedResponse::answer("[]", 1, 1));
    // Room for the prompt, the tools, and a little more.
    let (answer, sent) = work(acts, &working(20), &mut bench, |model| model.context = 1200).await;
    answer.expect("a reply");
    for body in &sent {
        let text = body["messages"].to_string();
        assert!(text.chars().count() < 4 * 1200 + 5000 + 1500, "{}", text.chars().count());
    }
    let last = sent.last().expect("a call")["messages"].as_array().expect("messages").clone();
    let results: Vec<&str> =
        last.iter().filter(|one| one["role"] == "tool").map(|one| one["content"].as_str().expect("a text")).collect();
    assert_eq!(results[0], "(shown earlier; ask again if you need it)");
    assert!(results[7].starts_with("xxx") && results[7].ends_with("… (3825 more characters)"), "{}", results[7]);
    assert_eq!(results[7].chars().count(), 1_200, "as much as the tool was told that there is room for");
    let arguments = |at: usize| {
        last.iter().filter(|one| one["role"] == "assistant").nth(at).expect("one")["tool_calls"][0]["function"]["arguments"].clone()
    };
    assert_eq!((arguments(0), arguments(7)), (json!("{}"), json!(long)));
}

#[tokio::test]
async fn a_cost_that_no_provider_counts_is_estimated_with_what_tools_gave() {
    let mut bench = Bench::default();
    let silent = |act: ScriptedResponse| match act {
        ScriptedResponse::Say(status, headers, body) => {
            ScriptedResponse::Say(status, headers, body.replace("\"usage\"", "\"unused\""))
        }
        act => act,
    };
    let long = json!({"text": "x".repeat(400)}).to_string();
    let acts = vec![silent(uses(&[("a", "echo", &long)])), silent(ScriptedResponse::answer("[]", 1, 1))];
    let (answer, _) = work(acts, &working(9), &mut bench, keep).await;
    let usage = answer.expect("a reply").usage.expect("an estimate");
    // 29 characters of prompt; the tool's name, its arguments and its result.
    assert_eq!((usage.prompt, usage.completion, usage.estimated), ((29 + 4 + 411 + 400_u64).div_ceil(4), 1, true));
}

fn scripted(entry: Value) -> Call {
    call("w", seat(json!({"agent": "script", "script": [entry], "files": {}})), "x", 0)
}

async fn play(entry: Value, errors: u32) -> (CallResult, Vec<String>) {
    let log = Log::default();
    let seats = AgentRegistry::new(Config::default(), &Environment::default(), InlinePrograms::Denied)
        .with_toolbox(Arc::new(Benches(Arc::clone(&log), errors)));
    let answer = seats.call(&scripted(entry)).await;
    (answer, logged(&log))
}

#[tokio::test]
async fn a_script_uses_its_tools_in_order_and_then_replies() {
    let steps = json!([{"name": "echo", "arguments": {"text": "one"}}, {"name": "echo"}]);
    let (answer, log) = play(json!({"tools": steps, "reply": {"patch": []}}), 0).await;
    assert_eq!(answer.expect("a reply").text, r#"{"patch":[]}"#);
    assert_eq!(log, [r#"echo {"text":"one"}"#, "echo {}"]);
    let (answer, _) = play(json!({"tools": steps, "reply": {"fail": "timeout"}}), 0).await;
    assert_eq!(answer.expect_err("it fails").code, FailureCode::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_script_fails_with_its_tools_unless_it_says_otherwise() {
    let step = |more: Value| {
        let mut step = json!({"name": "flaky"});
        step.as_object_mut().expect("an object").extend(more.as_object().expect("members").clone());
        json!({"tools": [step, {"name": "echo"}], "reply": []})
    };
    for (more, errors, is_done, uses) in [
        (json!({}), 1, false, 1),
        (json!({"may_fail": true}), 1, true, 2),
        (json!({"retry": 2}), 2, true, 4),
        (json!({"retry": 2}), 3, false, 3),
        (json!({"retry": 2, "may_fail": true}), 9, true, 4),
    ] {
        let (answer, log) = play(step(more.clone()), errors).await;
        assert_eq!((answer.is_ok(), log.len()), (is_done, uses), "{more}");
        if let Err(failure) = answer {
            assert_eq!((failure.code, failure.message.as_str()), (FailureCode::Crashed, "flaky: not yet"));
        }
    }
}

#[tokio::test]
async fn a_seat_that_needs_tools_says_so_where_there_are_none() {
    let seats = AgentRegistry::new(Config::default(), &Environment::default(), InlinePrograms::Denied);
    let call = scripted(json!({"tools": [{"name": "echo"}], "reply": []}));
    let failure = seats.call(&call).await.expect_err("there are none");
    assert_eq!(failure.code, FailureCode::NotConfigured);
    let blueprint = &call.context.plan().blueprint;
    assert_eq!(seats.check(blueprint)[0].message, failure.message);
    let seats = seats.with_toolbox(Arc::new(Benches(Log::default(), 0)));
    assert_eq!(seats.check(blueprint), []);
}

#[tokio::test]
async fn parts_of_turns_and_tools_that_a_server_refuses_stay_omitted() {
    type Refuses = fn(&Value) -> Option<&'static str>;
    fn messages(body: &Value) -> &Vec<Value> {
        body["messages"].as_array().expect("messages")
    }
    let echoed: Refuses = |body| {
        let is_echoed = messages(body).iter().any(|message| message.get("reasoning").is_some());
        is_echoed.then_some("'messages.2' : for 'role:assistant': property 'reasoning' is unsupported")
    };
    let null: Refuses = |body| {
        let is_null = messages(body).iter().any(|message| message["content"].is_null());
        is_null.then_some("messages[2].content: expected a string, got null")
    };
    let unnamed: Refuses = |body| {
        let is_unnamed =
            messages(body).iter().any(|message| message["role"] == "tool" && message.get("name").is_none());
        is_unnamed.then_some("contents[2].parts[0].function_response.name: Name cannot be empty.")
    };
    let closed: Refuses = |body| {
        let is_closed = body["tools"].to_string().contains("additionalProperties");
        is_closed.then_some("Unknown name \"additionalProperties\" at 'tools[0].function_declarations[0].parameters'")
    };
    for (refuses, most) in [(echoed, 2), (null, 3), (unnamed, 3), (closed, 2)] {
        let endpoint = Endpoint::serving(move |body| {
            if let Some(why) = refuses(body) {
                return ScriptedResponse::Say(400, "", json!({"error": {"message": why}}).to_string());
            }
            let has_result = messages(body).iter().any(|message| message["role"] == "tool");
            let call = json!({"id": "a", "type": "function", "function": {"name": "echo", "arguments": "{\"text\": \"one\"}"}});
            let message = match has_result {
                true => json!({"content": "{\"patch\": []}"}),
                false => json!({"content": null, "reasoning": "hm", "tool_calls": [call]}),
            };
            ScriptedResponse::Say(200, "", json!({"choices": [{"message": message}]}).to_string())
        });
        let chat = Chat::new(&Model::new(endpoint.url.clone(), "m"), &Variables::new()).expect("a client");
        for turn in 0..2 {
            let before = endpoint.requests().len();
            let reply = chat.run_tool_loop(&working(9), &mut Bench::default()).await;
            assert_eq!(reply.expect("a reply").text, r#"{"patch": []}"#);
            let sent = endpoint.requests().len() - before;
            assert!(sent <= if turn == 0 { 1 + most } else { 2 }, "{sent} requests in turn {turn}");
        }
    }
}

#[tokio::test]
async fn tool_calls_are_understood_with_noise_around_names_and_arguments() {
    for (name, arguments) in [
        ("echo<|channel|>commentary", r#"{"text": "one"}"#),
        (" Echo\n", r#"{"text": "one"}"#),
        ("functions.echo", "```json\n{\"text\": \"one\"}\n```"),
        ("echo", "{\"text\": \"one\"}<|im_end|>"),
        ("echo", "{\"text\": \"one\"}{\"text\": \"one\"}"),
    ] {
        let mut bench = Bench::default();
        let acts = vec![uses(&[("a", name, arguments)]), ScriptedResponse::answer(r#"{"patch": []}"#, 30, 3)];
        let (answer, _) = work(acts, &working(9), &mut bench, keep).await;
        answer.expect("a reply");
        assert!(
            logged(&bench.log).contains(&"echo {\"text\": \"one\"}".to_owned()),
            "{name}: {:?}",
            logged(&bench.log)
        );
    }
}

#[tokio::test]
async fn a_conversation_that_a_provider_breaks_off_goes_on_where_it_was() {
    let (name, arguments) = echo("one");
    let limited = || ScriptedResponse::Say(429, "", r#"{"error": {"message": "slow down"}}"#.to_owned());
    let acts = vec![
        uses(&[("a", name, &arguments)]),
        limited(),
        limited(),
        uses(&[("b", name, &arguments)]),
        ScriptedResponse::answer(r#"{"patch": []}"#, 30, 3),
        uses(&[("a", name, &arguments)]),
        limited(),
        ScriptedResponse::answer(r#"{"patch": []}"#, 30, 3),
    ];
    let endpoint = Endpoint::new(acts);
    let chat = Chat::new(&Model::new(endpoint.url.clone(), "m"), &Variables::new()).expect("a client");
    let mut bench = Bench::default();
    let gated = Call { permit: Some(Permit::ungated()), ..working(9) };
    for _ in 0..2 {
        let failure = chat.run_tool_loop(&gated, &mut bench).await.expect_err("it is not taken");
        assert!(failure.deferral.is_some() && failure.usage.is_none(), "{failure:?}");
    }
    assert_eq!(chat.run_tool_loop(&gated, &mut bench).await.expect("a reply").text, r#"{"patch": []}"#);
    let sent = endpoint.bodies();
    let lengths: Vec<usize> = sent.iter().map(|body| body["messages"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!(lengths, [2, 4, 4, 4, 6], "what was answered is not asked again");
    assert_eq!((&sent[1], &sent[1]), (&sent[2], &sent[3]));
    let echoes = logged(&bench.log).iter().filter(|line| line.starts_with("echo")).count();
    assert_eq!(echoes, 2, "nor done again");
    // Another prompt has no earlier messages.
    chat.run_tool_loop(&gated, &mut bench).await.expect_err("it is not taken");
    let mut other = gated;
    other.decided.prompt = call("w", seat(json!({"agent": "llm"})), "Another.", 0).decided.prompt;
    chat.run_tool_loop(&other, &mut bench).await.expect("a reply");
    assert_eq!(endpoint.bodies()[7]["messages"].as_array().map(Vec::len), Some(2));
}
