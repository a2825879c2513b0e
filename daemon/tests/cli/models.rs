//! Settings of a model: fallbacks, keys, headers and queries, prices.

#![cfg(unix)]

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use serde_json::{Value, json};

use crate::sandbox::{CommandResult, Sandbox, notes_by};

const REQUEST: &str = r#"{"topic":"x"}"#;

fn note() -> ScriptedResponse {
    ScriptedResponse::answer(r#"[{"op":"add","path":"/notes/-","value":{"text":"held","status":"draft"}}]"#, 1000, 50)
}

/// Returns a sandbox with a language model as the writer, and this configuration.
fn sandbox(config: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("llm.yaml", notes_by("llm", ""));
    sandbox.write("patchboard.toml", config);
    sandbox
}

fn run(sandbox: &Sandbox) -> CommandResult {
    sandbox.run(&["--output", "json", "run", "llm.yaml", "--request", REQUEST])
}

fn log(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines()
}

fn of_kind<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["kind"] == kind).collect()
}

#[test]
fn a_fallback_serves_while_a_model_is_away_and_what_it_refuses() {
    for (status, body, reason) in [
        (503, "away", "overloaded"),
        (401, "no key", "key_refused"),
        (404, r#"{"error":{"message":"The model `first` does not exist"}}"#, "model_not_found"),
        (400, r#"{"error":{"message":"flagged","code":"content_filter"}}"#, "request_refused"),
    ] {
        let first = Endpoint::new(vec![ScriptedResponse::Say(status, "", body.into())]);
        let second = Endpoint::new(vec![note()]);
        let sandbox = sandbox(&format!(
            "[models.default]\nurl = \"{}\"\nmodel = \"first\"\nfallback = [\"other\"]\nfallback_after = \"1s\"\n\
             [models.other]\nurl = \"{}\"\nmodel = \"second\"\n",
            first.url, second.url
        ));
        run(&sandbox).expect_exit(0);
        let records = log(&sandbox);
        let deferred = of_kind(&records, "deferred");
        assert_eq!(deferred.last().map(|record| &record["reason"]), Some(&json!(reason)), "{status}");
        let invoked = of_kind(&records, "invoked");
        let mut models = invoked.iter().map(|record| &record["admitted"]["model"]).filter(|model| !model.is_null());
        assert_eq!(models.next_back(), Some(&json!("other")), "{status}");
        assert!(of_kind(&records, "paused").is_empty() && of_kind(&records, "failed").is_empty(), "{status}");
        let cost = sandbox.run(&["cost", "last", "--output", "json"]).expect_exit(0).json();
        assert_eq!((&cost["models"]["other"]["calls"], &cost["models"]["other"]["tokens"]), (&json!(1), &json!(1050)));
        let stdout = sandbox.run(&["log", "last"]).expect_exit(0).stdout;
        assert!(stdout.contains("on model other"), "{stdout}");
        sandbox.run(&["replay", "last"]).expect_exit(0);
    }
}

#[test]
fn requests_refused_by_every_model_fail_and_operator_errors_pause() {
    let refuses =
        || ScriptedResponse::Say(400, "", r#"{"error":{"message":"flagged","code":"content_filter"}}"#.into());
    let keyless = || ScriptedResponse::Say(401, "", "no key".into());
    for (act, code, cause) in [(refuses(), 4, "gave_up"), (keyless(), 5, "provider_unavailable")] {
        let (first, second) = (Endpoint::new(vec![act.clone()]), Endpoint::new(vec![act]));
        let sandbox = sandbox(&format!(
            "[models.default]\nurl = \"{}\"\nmodel = \"first\"\nfallback = [\"other\"]\n\
             [models.other]\nurl = \"{}\"\nmodel = \"second\"\n",
            first.url, second.url
        ));
        assert_eq!(run(&sandbox).expect_exit(code).json()["cause"], cause);
        assert!(!first.requests().is_empty() && !second.requests().is_empty());
        sandbox.run(&["replay", "last"]).expect_exit(0);
    }
}

#[test]
fn a_key_is_printed_by_a_program_and_asked_for_again_when_it_is_refused() {
    let endpoint = Endpoint::new(vec![ScriptedResponse::Say(401, "", "expired".into()), note()]);
    let sandbox = sandbox(&format!(
        "[models.default]\nurl = \"{}\"\nmodel = \"m\"\n\
         api_key_command = [\"sh\", \"-c\", \"echo >> runs; echo sk-secret-$(wc -l < runs | tr -d ' ')\"]\n\
         headers = {{ x-tenant = {{ env = \"TENANT\" }} }}\nquery = {{ api-version = \"2026-01\", code = {{ env = \"CODE\" }} }}\n\
         extra_body = {{ seed = 5, provider = {{ order = [\"a\"] }} }}\nseed = 4\ntop_p = 0.5\nstop = [\"END\"]\n\
         reasoning_effort = \"low\"\nmax_reply_tokens = 99\nstream = true\n",
        endpoint.url
    ));
    let arguments = ["--output", "json", "run", "llm.yaml", "--request", REQUEST];
    let missing = sandbox.run(&arguments).expect_exit(2);
    assert!(
        missing.stderr.contains("set CODE, which query.code") || missing.stderr.contains("set TENANT"),
        "{}",
        missing.stderr
    );
    let mut command = sandbox.command(&arguments);
    let output = command.env("TENANT", "hush-tenant").env("CODE", "hush-code").output().expect("the binary can be run");
    CommandResult::from(output).expect_exit(0);
    let requests = endpoint.requests();
    let keys: Vec<&str> = requests
        .iter()
        .map(|(head, _)| head.split("bearer ").nth(1).expect("a key").lines().next().expect("a line"))
        .collect();
    assert_eq!(keys, ["sk-secret-1", "sk-secret-2"]);
    let (head, body) = requests.last().expect("a request");
    assert!(head.starts_with("post /v1/chat/completions?api-version=2026-01&code=hush-code "), "{head}");
    assert!(head.contains("x-tenant: hush-tenant"), "{head}");
    assert_eq!((&body["seed"], &body["provider"]), (&json!(5), &json!({"order": ["a"]})), "the operator's members win");
    assert_eq!(
        (&body["top_p"], &body["stop"], &body["reasoning_effort"]),
        (&json!(0.5), &json!(["END"]), &json!("low"))
    );
    assert_eq!((&body["max_tokens"], &body["stream"]), (&json!(99), &json!(true)));
    let kept = sandbox.run(&["export", "last"]).expect_exit(0).stdout;
    assert!(!kept.contains("hush-") && !kept.contains("sk-secret"), "{kept}");
}

#[test]
fn money_is_reported_and_limited_for_boards_with_priced_models() {
    let endpoint = Endpoint::new(vec![note()]);
    let config = |price: &str| format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n{price}\n", endpoint.url);
    let priced = "price = { input = 2.5, cached = 1.25, output = 10, currency = \"EUR\" }";
    let sandbox = sandbox(&config(priced));
    run(&sandbox).expect_exit(0);
    let cost = sandbox.run(&["cost", "last", "--output", "json"]).expect_exit(0).json();
    // 1,000 tokens at 2.50 and 50 at 10.00 per million.
    assert_eq!((&cost["money"]["spent"], &cost["money"]["currency"]), (&json!(0.003), &json!("EUR")), "{cost}");
    assert_eq!(cost["models"]["default"]["money"], 0.003);
    let stdout = sandbox.run(&["cost", "last"]).expect_exit(0).stdout;
    assert!(stdout.contains("money: 0.003 EUR"), "{stdout}");

    let of_worker = notes_by("llm", "    limits: {money: 0.5}\n").replacen("blueprint: 1", "blueprint: 2", 1);
    sandbox.write("llm.yaml", of_worker);
    run(&sandbox).expect_exit(0);
    let stdout = sandbox.run(&["cost", "last"]).expect_exit(0).stdout;
    assert!(stdout.contains("money of writer: 0.003 of 0.50 EUR"), "{stdout}");
    let cost = sandbox.run(&["cost", "last", "--output", "json"]).expect_exit(0).json();
    assert_eq!(
        (&cost["workers"]["writer"]["money"], &cost["workers"]["writer"]["money_limit"]),
        (&json!(0.003), &json!(0.5))
    );

    let limited = notes_by("llm", "").replacen("blueprint: 1", "blueprint: 2\nlimits: {money: 0.001}", 1);
    sandbox.write("llm.yaml", &limited);
    assert_eq!(run(&sandbox).expect_exit(3).json()["cause"], "exhausted");
    let short = sandbox.run(&["cost", "last"]).expect_exit(0).stdout;
    assert!(short.contains("the board's money does not suffice"), "{short}");
    sandbox.run(&["replay", "last"]).expect_exit(0);
    let again = sandbox.run(&["retry", "last", "--money", "1"]).expect_exit(0);
    assert!(again.stderr.contains("done") || again.stdout.contains("done"), "{}{}", again.stdout, again.stderr);

    sandbox.write("patchboard.toml", config(""));
    let refused = run(&sandbox).expect_exit(2);
    assert!(refused.stderr.contains("limits.money needs a price of model default"), "{}", refused.stderr);
    sandbox.write("llm.yaml", limited.replacen("blueprint: 2", "blueprint: 1", 1));
    let refused = sandbox.run(&["check", "llm.yaml"]);
    assert!(refused.stdout.contains("newer_format") && refused.stdout.contains("blueprint: 2"), "{}", refused.stdout);
}

#[test]
fn a_reply_that_has_more_room_is_reserved_with_that_room() {
    // The model uses up the whole token limit of the reply.
    let endpoint = Endpoint::serving(|request| {
        let room = request["max_tokens"].as_u64().expect("a limit");
        let usage = json!({"prompt_tokens": 100, "completion_tokens": room});
        ScriptedResponse::complete("[{\"op\": \"add\", ", "length", usage)
    });
    for (limits, spent, limit) in [("tokens: 3000", "tokens", 3000.0), ("money: 0.03", "money", 0.03)] {
        let sandbox = sandbox(&format!(
            "[models.default]\nurl = \"{}\"\nmodel = \"m\"\nprice = {{ input = 10, output = 10 }}\n",
            endpoint.url
        ));
        let limited = notes_by("llm", "").replacen("blueprint: 1", &format!("blueprint: 2\nlimits: {{{limits}}}"), 1);
        sandbox.write("llm.yaml", limited);
        assert_eq!(run(&sandbox).expect_exit(3).json()["cause"], "exhausted", "{limits}");
        let cost = sandbox.run(&["cost", "last", "--output", "json"]).expect_exit(0).json();
        assert!(cost[spent]["spent"].as_f64().is_some_and(|spent| spent > 0.3 * limit && spent <= limit), "{cost}");
        assert!(of_kind(&log(&sandbox), "failed").iter().all(|record| record["code"] == "truncated"));
        sandbox.run(&["replay", "last"]).expect_exit(0);
        sandbox.run(&["verify", "last"]).expect_exit(0);
    }
}

#[test]
fn a_board_waits_for_its_model_rather_than_an_unaffordable_fallback() {
    let first = Endpoint::new(vec![ScriptedResponse::Say(503, "retry-after: 3\r\n", "away".into()), note()]);
    let dear = Endpoint::new(vec![note()]);
    let sandbox = sandbox(&format!(
        "[models.default]\nurl = \"{}\"\nmodel = \"first\"\nfallback = [\"dear\"]\nfallback_after = \"1s\"\n\
         price = {{ input = 1, output = 1 }}\n\
         [models.dear]\nurl = \"{}\"\nmodel = \"second\"\nprice = {{ input = 100, output = 100 }}\n",
        first.url, dear.url
    ));
    let limited = notes_by("llm", "").replacen("blueprint: 1", "blueprint: 2\nlimits: {money: 0.02}", 1);
    sandbox.write("llm.yaml", limited);
    assert_eq!(run(&sandbox).expect_exit(0).json()["end"], "done");
    assert_eq!((first.bodies().len(), dear.bodies().len()), (2, 0));
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn environment_secrets_repeated_by_a_server_are_redacted() {
    let reply = r#"[{"op":"add","path":"/notes/-","value":{"text":"hush-tenant-0123456789 and hush-code-0123456789","status":"draft"}}]"#;
    let endpoint = Endpoint::new(vec![ScriptedResponse::answer(reply, 10, 5)]);
    let sandbox = sandbox(&format!(
        "[models.default]\nurl = \"{}\"\nmodel = \"m\"\n\
         headers = {{ x-tenant = {{ env = \"TENANT\" }}, x-title = \"draft\" }}\nquery = {{ code = {{ env = \"CODE\" }} }}\n",
        endpoint.url
    ));
    let mut command = sandbox.command(&["run", "llm.yaml", "--request", r#"{"topic":"x"}"#]);
    let output = command
        .env("TENANT", "hush-tenant-0123456789")
        .env("CODE", "hush-code-0123456789")
        .output()
        .expect("the binary can be run");
    CommandResult::from(output).expect_exit(0);
    let kept = sandbox.run(&["export", "last"]).expect_exit(0).stdout;
    assert!(!kept.contains("hush-") && kept.contains("*** and ***"), "{kept}");
    assert!(kept.contains("draft"), "a text of the configuration is none");
}

#[test]
fn secrets_repeated_in_a_tool_call_are_redacted() {
    let secrets = ["sk-secret-0123456789", "hush-literal-0123456789", "hush/query/0123456789"];
    let answer = json!({"patch": [{"op": "replace", "path": "/answer", "value": secrets.join(" and ")}]});
    let endpoint = Endpoint::new(vec![ScriptedResponse::call_tools(&[("c1", "answer", &answer.to_string())], 100, 10)]);
    let sandbox = Sandbox::new();
    sandbox.write(
        "patchboard.toml",
        format!(
            "[models.default]\nurl = \"{}\"\nmodel = \"m\"\napi_key_env = \"MODEL_KEY\"\n\
             headers = {{ x-token = \"{}\" }}\nquery = {{ code = \"{}\" }}\n[workspaces.code]\ndir = \"code\"\n",
            endpoint.url, secrets[1], secrets[2]
        ),
    );
    sandbox.write("code/a.txt", "one\n");
    sandbox.write("edit.yaml", EDIT);
    let mut command = sandbox.command(&["run", "edit.yaml"]);
    let output = command.env("MODEL_KEY", secrets[0]).output().expect("the binary can be run");
    CommandResult::from(output).expect_exit(0);
    let kept = sandbox.run(&["export", "last"]).expect_exit(0).stdout;
    assert!(kept.contains("*** and *** and ***"), "{kept}");
    assert!(secrets.iter().all(|secret| !kept.contains(secret)), "{kept}");
}

#[test]
fn limits_of_a_model_hold_for_each_request_of_a_conversation() {
    // Allows three requests at once, then one per second.
    let view = |id: usize| ScriptedResponse::call_tools(&[(&format!("c{id}"), "view", r#"{"path":"a.txt"}"#)], 100, 10);
    let patch = ScriptedResponse::answer(r#"[{"op":"replace","path":"/answer","value":"counted"}]"#, 200, 20);
    let endpoint = Endpoint::new((0..5).map(view).chain([patch]).collect());
    let sandbox = Sandbox::new();
    sandbox.write(
        "patchboard.toml",
        format!(
            "[models.default]\nurl = \"{}\"\nmodel = \"m\"\nrequests_per_minute = 60\n[workspaces.code]\ndir = \"code\"\n",
            endpoint.url
        ),
    );
    sandbox.write("code/a.txt", "one\n");
    sandbox.write("edit.yaml", EDIT);
    let began = std::time::Instant::now();
    assert_eq!(sandbox.run(&["--output", "json", "run", "edit.yaml"]).expect_exit(0).json()["end"], "done");
    assert_eq!(endpoint.bodies().len(), 6);
    assert!(began.elapsed() > std::time::Duration::from_secs(2), "{:?}", began.elapsed());
}

/// A blueprint with a worker that has workspace tools.
const EDIT: &str = r#"blueprint: 1
name: edit
workspace: {dir: code}
state:
  schema: {type: object, properties: {answer: {type: string}}}
  initial: {answer: ""}
workers:
  a:
    agent: llm
    role: Edit.
    writes: [{path: /answer, ops: [replace]}]
    files: {view: ["**"], edit: ["**"]}
rules: [{name: go, trigger: start, run: a}]
done: {when: 'state.answer != ""'}
"#;

#[test]
fn a_fallback_goes_on_with_a_conversation_that_the_first_model_began() {
    let calls = |calls: &[(&str, Value)]| {
        let calls: Vec<(String, &str, String)> =
            (1..).zip(calls).map(|(id, (name, with))| (format!("c{id}"), *name, with.to_string())).collect();
        let calls: Vec<(&str, &str, &str)> =
            calls.iter().map(|(id, name, with)| (id.as_str(), *name, with.as_str())).collect();
        ScriptedResponse::call_tools(&calls, 100, 10)
    };
    let view = ("view", json!({"path": "a.txt"}));
    let edit = json!({"path": "a.txt", "old_str": "one", "new_str": "two", "intent": "count"});
    let first = Endpoint::new(vec![calls(&[view]), ScriptedResponse::Say(503, "", "away".into())]);
    let patch = r#"[{"op":"replace","path":"/answer","value":"counted"}]"#;
    let second = Endpoint::new(vec![calls(&[("str_replace", edit)]), ScriptedResponse::answer(patch, 200, 20)]);
    let sandbox = Sandbox::new();
    sandbox.write(
        "patchboard.toml",
        format!(
            "[models.default]\nurl = \"{}\"\nmodel = \"first\"\nfallback = [\"other\"]\nfallback_after = \"1s\"\n\
         [models.other]\nurl = \"{}\"\nmodel = \"second\"\n[workspaces.code]\ndir = \"code\"\n",
            first.url, second.url
        ),
    );
    sandbox.write("code/a.txt", "one\n");
    sandbox.write("edit.yaml", EDIT);
    let ran = sandbox.run(&["--output", "json", "run", "edit.yaml"]).expect_exit(0);
    assert_eq!(ran.json()["end"], "done");
    assert_eq!((first.bodies().len(), second.bodies().len()), (2, 2), "nothing is asked twice");
    let messages: Vec<Value> = second.bodies()[0]["messages"].as_array().expect("messages").clone();
    assert!(
        messages.iter().any(|message| message["role"] == "tool" && message.to_string().contains("one")),
        "{messages:?}"
    );
    assert!(of_kind(&log(&sandbox), "failed").is_empty());
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn calls_for_which_a_fallback_was_too_dear_are_made_when_others_are_settled() {
    for status in ["503", "401"] {
        let code = status.parse().expect("a number");
        let first = Endpoint::new(vec![ScriptedResponse::Say(code, "retry-after: 600\r\n", "away".into())]);
        let second = Endpoint::serving(|request| {
            let prompt = request["messages"].to_string();
            let worker = ["w0", "w1", "w2"].into_iter().find(|name| prompt.contains(&format!("/{name}")));
            // Slow, so that the calls of the other workers wait.
            std::thread::sleep(std::time::Duration::from_millis(300));
            let path = format!("/{}", worker.expect("a worker"));
            ScriptedResponse::answer(&json!([{"op": "replace", "path": path, "value": "done"}]).to_string(), 100, 10)
        });
        let sandbox = Sandbox::new();
        sandbox.write(
            "patchboard.toml",
            format!(
                "[models.default]\nurl = \"{}\"\nmodel = \"first\"\nfallback = [\"dear\"]\nfallback_after = \"1s\"\n\
                 price = {{ input = 0, output = 0, currency = \"USD\" }}\n\
                 [models.dear]\nurl = \"{}\"\nmodel = \"second\"\nprice = {{ input = 1000, output = 1000, currency = \"USD\" }}\n",
                first.url, second.url
            ),
        );
        let member = |name: &str| format!("      {name}: {{type: string}}\n");
        let seat = |name: &str| {
            format!(
                "  {name}: {{agent: llm, role: Work., reads: [/{name}], writes: [{{path: /{name}, ops: [replace]}}], \
                 limits: {{reply_tokens: 1000}}}}\n"
            )
        };
        let rule = |name: &str| format!("  - {{name: r-{name}, trigger: start, run: {name}}}\n");
        let all = |each: &dyn Fn(&str) -> String| ["w0", "w1", "w2"].map(each).concat();
        sandbox.write(
            "many.yaml",
            format!(
                "blueprint: 2\nname: many\nlimits: {{money: 1.8}}\nstate:\n  schema:\n    type: object\n    properties:\n{}  \
                 initial: {{w0: \"\", w1: \"\", w2: \"\"}}\nworkers:\n{}rules:\n{}\
                 done: {{when: 'state.w0 != \"\" && state.w1 != \"\" && state.w2 != \"\"'}}\n",
                all(&member), all(&seat), all(&rule)
            ),
        );
        let ran = sandbox.run(&["--output", "json", "run", "many.yaml"]).expect_exit(0).json();
        assert_eq!(ran["end"], "done", "{status}");
        assert_eq!(second.bodies().len(), 3, "{status}");
        sandbox.run(&["replay", "last"]).expect_exit(0);
    }
}
