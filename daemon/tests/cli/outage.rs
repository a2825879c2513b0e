//! Runs with a model provider that is unavailable, rate-limited, or in need of an operator.

#![cfg(unix)]

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use serde_json::{Value, json};

use crate::sandbox::{NOTES, Sandbox, notes_by};

const REQUEST: &str = r#"{"topic":"x"}"#;

fn note() -> ScriptedResponse {
    ScriptedResponse::answer(r#"[{"op":"add","path":"/notes/-","value":{"text":"held","status":"draft"}}]"#, 10, 5)
}

fn sandbox(seat: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("llm.yaml", notes_by("llm", seat));
    sandbox
}

fn run<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["run", "llm.yaml", "--request", REQUEST, "--model-url", url, "--model", "m"];
    arguments.extend(more);
    arguments
}

fn kinds(sandbox: &Sandbox) -> Vec<String> {
    let log = sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
    log.iter().map(|record| record["kind"].as_str().expect("a kind").to_owned()).collect()
}

fn count(kinds: &[String], kind: &str) -> usize {
    kinds.iter().filter(|known| *known == kind).count()
}

#[test]
fn a_passing_refusal_loses_no_attempt_and_no_time_of_the_board() {
    for refusal in [
        ScriptedResponse::Say(429, "retry-after: 1\r\n", r#"{"error":{"message":"Rate limit reached"}}"#.into()),
        ScriptedResponse::Say(503, "", r#"{"error":{"code":503,"message":"Loading model"}}"#.into()),
        ScriptedResponse::Say(529, "", "overloaded".into()),
    ] {
        let sandbox = sandbox("    limits: {attempts: 1}\n");
        let endpoint = Endpoint::new(vec![refusal.clone(), note()]);
        sandbox.run(&run(&endpoint.url, &[])).expect_exit(0);
        let kinds = kinds(&sandbox);
        assert_eq!((count(&kinds, "deferred"), count(&kinds, "failed")), (1, 0), "{refusal:?}");
        assert_eq!(endpoint.bodies().len(), 2, "{refusal:?}");
        sandbox.run(&["replay", "last"]).expect_exit(0);
        sandbox.run(&["verify", "last"]).expect_exit(0);
    }
}

#[test]
fn a_run_that_is_killed_while_its_provider_is_away_goes_on_where_it_was() {
    let sandbox = sandbox("");
    let (is_back, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let endpoint = {
        let (is_back, answered) = (Arc::clone(&is_back), Arc::clone(&answered));
        Endpoint::serving(move |_| match is_back.load(Ordering::Relaxed) {
            false => ScriptedResponse::Say(503, "", "away".into()),
            true => {
                answered.fetch_add(1, Ordering::Relaxed);
                note()
            }
        })
    };
    let mut child = sandbox
        .command(&run(&endpoint.url, &[]))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be run");
    let mut stderr = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
    let deferred = stderr.by_ref().map_while(Result::ok).filter(|line| line.contains("deferred"));
    assert_eq!(deferred.take(2).count(), 2, "it waits for its provider");
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    is_back.store(true, Ordering::Relaxed);
    let resume = ["resume", "last", "--model-url", &endpoint.url, "--model", "m", "--output", "json"];
    let ended = sandbox.run(&resume).expect_exit(0).json();
    assert_eq!(ended["end"], "done");
    let kinds = kinds(&sandbox);
    assert_eq!(answered.load(Ordering::Relaxed), 1, "one call, one commit");
    assert_eq!((count(&kinds, "failed"), count(&kinds, "epoch")), (0, 1));
    assert!(sandbox.run(&["replay", "last"]).expect_exit(0).stdout.contains("replay OK"));
}

#[test]
fn operator_errors_pause_the_run_and_resume_retries() {
    let sandbox = sandbox("");
    let refused =
        ScriptedResponse::Say(401, "", r#"{"error":{"message":"Incorrect API key provided: sk-live-12345"}}"#.into());
    let endpoint = Endpoint::new(vec![refused.clone(), refused, note()]);
    let ran = sandbox.run(&run(&endpoint.url, &["--output", "json"])).expect_exit(5);
    assert_eq!(ran.json()["cause"], "provider_unavailable");
    assert!(ran.stderr.contains("no key was sent") && ran.stderr.contains("patchboard resume"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("sk-live-12345"), "{}", ran.stderr);
    let table = sandbox.run(&["boards"]).expect_exit(0).stdout;
    assert!(table.contains("resume (model default: key_refused)"), "{table}");
    let listed = sandbox.run(&["boards", "--output", "json"]).expect_exit(0).json();
    assert_eq!((&listed["status"], &listed["waits"]["provider"]["reason"]), (&"paused".into(), &"key_refused".into()));
    assert_eq!(listed["waits"]["provider"]["model"], "default");
    let resume = ["resume", "last", "--model-url", &endpoint.url, "--model", "m", "--output", "json"];
    sandbox.run(&resume).expect_exit(5);
    assert_eq!(sandbox.run(&resume).expect_exit(0).json()["end"], "done");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn invocations_given_up_are_retried_by_command() {
    let sandbox = sandbox("    limits: {attempts: 1}\n");
    let endpoint = Endpoint::new(vec![ScriptedResponse::answer("I would rather not", 10, 5), note()]);
    let ran = sandbox.run(&run(&endpoint.url, &["--output", "json"])).expect_exit(4);
    assert_eq!(ran.json()["cause"], "gave_up");
    let stderr = sandbox.run(&["resume", "last", "--model-url", &endpoint.url, "--model", "m"]).expect_exit(4).stderr;
    assert!(stderr.contains("patchboard retry"), "{stderr}");
    let models = ["--model-url", &endpoint.url, "--model", "m", "--output", "json"];
    let retry = |more: &[&'static str]| {
        let mut arguments = vec!["retry", "last"];
        arguments.extend(more);
        arguments.extend(models);
        sandbox.run(&arguments)
    };
    let wrong: Value =
        serde_json::from_str(retry(&["--worker", "nobody"]).expect_exit(2).stderr.lines().last().expect("a line"))
            .unwrap_or_default();
    assert_eq!(wrong["error"]["code"].as_str().or(wrong["code"].as_str()), Some("nothing_given_up"), "{wrong}");
    assert_eq!(retry(&["--worker", "writer"]).expect_exit(0).json()["end"], "done");
    retry(&[]).expect_exit(2);
    let kinds = kinds(&sandbox);
    assert_eq!(count(&kinds, "retried"), 1);
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn the_commands_that_are_named_reach_the_same_boards_and_models() {
    let sandbox = sandbox("    limits: {attempts: 1}\n");
    let endpoint = Endpoint::new(vec![ScriptedResponse::answer("I would rather not", 10, 5)]);
    sandbox.write("own.toml", "[models.unused]\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n");
    let place = ["--data-dir", "kept here", "--config", "own.toml"];
    let model = ["--model-url", &endpoint.url, "--model", "m"];
    let ran = sandbox.run(&[&run(&endpoint.url, &["--output", "json"])[..], &place].concat()).expect_exit(4);
    let board = ran.json()["board"].as_str().expect("an id").to_owned();
    let named = format!(
        "patchboard retry {board} --data-dir 'kept here' --config own.toml --model-url {} --model m",
        endpoint.url
    );
    assert!(ran.stderr.contains(&named), "{}", ran.stderr);
    let stderr = sandbox.run(&[&["resume", "last"][..], &place, &model].concat()).expect_exit(4).stderr;
    assert!(stderr.contains(&named), "{stderr}");
    let stdout = sandbox.run(&[&["retry", "last", "--no-run"][..], &place, &model].concat()).expect_exit(0).stdout;
    assert!(stdout.contains(&named.replace("retry", "resume")), "{stdout}");
}

#[test]
fn a_retry_without_a_run_is_only_recorded_with_its_principal() {
    let sandbox = sandbox("    limits: {attempts: 1}\n");
    let endpoint = Endpoint::new(vec![ScriptedResponse::answer("I would rather not", 10, 5), note()]);
    sandbox.run(&run(&endpoint.url, &[])).expect_exit(4);
    let (asked, records) = (endpoint.requests().len(), kinds(&sandbox).len());
    let models = ["--model-url", &endpoint.url, "--model", "m"];
    sandbox.run(&[&["retry", "last", "--no-run"][..], &models].concat()).expect_exit(0);
    assert_eq!(endpoint.requests().len(), asked);
    let log = sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
    for record in log[records..].iter().filter(|record| record["kind"] == "retried" || record["kind"] == "paused") {
        assert_eq!(record["principal"]["kind"], "user", "{record}");
    }
    assert_eq!(count(&kinds(&sandbox), "retried"), 1);
    sandbox.run(&[&["resume", "last"][..], &models].concat()).expect_exit(0);
    assert_eq!(endpoint.requests().len(), asked + 1);
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_script_says_nothing_to_a_retry_that_is_only_recorded() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "notes.yaml",
        NOTES.replace("    role: Write notes.\n", "    role: Write notes.\n    limits: {attempts: 1}\n"),
    );
    sandbox.run(&["run", "notes.yaml", "--request", REQUEST]).expect_exit(4);
    let before = kinds(&sandbox);
    sandbox.run(&["retry", "last", "--no-run"]).expect_exit(0);
    let after = kinds(&sandbox);
    for kind in ["rejected", "committed"] {
        assert_eq!(count(&after, kind), count(&before, kind), "{after:?}");
    }
    sandbox.run(&["resume", "last"]).expect_exit(0);
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_limit_that_is_retried_with_is_above_the_one_in_force_and_none_beyond_numbers() {
    let sandbox = sandbox("    limits: {attempts: 1}\n");
    let endpoint = Endpoint::new(vec![ScriptedResponse::answer("I would rather not", 10, 5), note()]);
    sandbox.run(&run(&endpoint.url, &[])).expect_exit(4);
    let models = ["--model-url", &endpoint.url, "--model", "m"];
    let retry = |limit: &[&'static str]| sandbox.run(&[&["retry", "last"], limit, &models].concat());
    for (limit, words) in [
        (&["--tokens", "18446744073709551615"][..], "1000000000000 tokens at most"),
        (&["--tokens", "1"], "may use 1000000 tokens already"),
        (&["--commits", "0"], "may use 1000 commits already"),
        (&["--wall", "1s"], "may use 3600 s of running time already"),
        (&["--wall", "9999999d"], "8640000000 s of running time at most"),
        (&["--money", "5"], "no `limits.money`"),
    ] {
        let stderr = retry(limit).expect_exit(2).stderr;
        assert!(stderr.contains("bad_limit") && stderr.contains(words), "{limit:?}: {stderr}");
    }
    let stderr = retry(&["--tokens", "2000000", "--invocation", "77"]).expect_exit(2).stderr;
    assert!(stderr.contains("nothing_given_up"), "{stderr}");
    assert_eq!(count(&kinds(&sandbox), "retried"), 0);
    retry(&["--tokens", "1000000000000", "--wall", "2h"]).expect_exit(0);
    let cost = sandbox.run(&["cost", "last", "--output", "json"]).expect_exit(0).json();
    assert_eq!(cost["tokens"]["limit"], 1_000_000_000_000_u64, "{cost}");
    sandbox.run(&["verify", "last"]).expect_exit(0);
}

#[test]
fn tokens_of_a_worker_are_raised_by_command_and_by_nothing_else() {
    let sandbox = sandbox("    limits: {reply_tokens: 300, tokens: 400}\n");
    let endpoint = Endpoint::new(vec![note()]);
    let stderr = sandbox.run(&run(&endpoint.url, &[])).expect_exit(3).stderr;
    assert!(stderr.contains("patchboard retry") && stderr.contains("--worker-tokens"), "{stderr}");
    let models = ["--model-url", &endpoint.url, "--model", "m"];
    let retry = |limit: &[&'static str]| sandbox.run(&[&["retry", "last"], limit, &models].concat());
    let stderr = retry(&["--tokens", "2000000"]).expect_exit(2).stderr;
    assert!(stderr.contains("limit_reached") && stderr.contains("raise the limit of the worker"), "{stderr}");
    let stderr = retry(&["--worker-tokens", "9000"]).expect_exit(2).stderr;
    assert!(stderr.contains("--worker"), "{stderr}");
    let stderr = retry(&["--worker", "writer", "--worker-tokens", "400"]).expect_exit(2).stderr;
    assert!(stderr.contains("bad_limit") && stderr.contains("worker writer may use 400 tokens already"), "{stderr}");
    let stderr = retry(&["--worker", "writer", "--worker-money", "1"]).expect_exit(2).stderr;
    assert!(stderr.contains("no `limits.money` of worker writer"), "{stderr}");
    assert!(endpoint.bodies().is_empty());
    retry(&["--worker", "writer", "--worker-tokens", "9000"]).expect_exit(0);
    let cost = sandbox.run(&["cost", "last", "--output", "json"]).expect_exit(0).json();
    assert_eq!(cost["workers"]["writer"]["limit"], 9000, "{cost}");
    let log = sandbox.run(&["log", "last"]).expect_exit(0).stdout;
    assert!(log.contains("the worker may use 9,000 tokens"), "{log}");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_quota_that_returns_after_patience_pauses_no_board_that_another_model_serves() {
    let sandbox = sandbox("");
    let spent =
        || ScriptedResponse::Say(429, "retry-after: 90000\r\n", r#"{"error":{"message":"daily quota"}}"#.into());
    let (first, other) = (Endpoint::new(vec![spent()]), Endpoint::new(vec![note()]));
    sandbox.write(
        "patchboard.toml",
        format!(
            "[models.default]\nurl = \"{}\"\nmodel = \"first\"\nfallback = [\"other\"]\nfallback_after = \"1s\"\n\
             [models.other]\nurl = \"{}\"\nmodel = \"second\"\n",
            first.url, other.url
        ),
    );
    let ended = sandbox.run(&["run", "llm.yaml", "--request", REQUEST, "--output", "json"]).expect_exit(0).json();
    assert_eq!((ended["end"].as_str(), other.bodies().len()), (Some("done"), 1));
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_provider_that_asks_for_more_than_patience_is_waited_for_until_patience_ends() {
    let sandbox = sandbox("");
    let spent =
        || ScriptedResponse::Say(429, "retry-after: 90000\r\n", r#"{"error":{"message":"daily quota"}}"#.into());
    let endpoint = Endpoint::serving(move |_| spent());
    let config = format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\npatience = \"3s\"\n", endpoint.url);
    sandbox.write("patchboard.toml", config);
    let begun = std::time::Instant::now();
    sandbox.run(&["run", "llm.yaml", "--request", REQUEST]).expect_exit(5);
    assert!(begun.elapsed() >= std::time::Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(endpoint.bodies().len(), 1, "it is not asked before");
}

#[test]
fn a_retry_that_is_only_recorded_sends_nothing() {
    let sandbox = sandbox("    limits: {attempts: 1}\n");
    let endpoint = Endpoint::new(vec![ScriptedResponse::answer("I would rather not", 10, 5), note()]);
    sandbox.run(&run(&endpoint.url, &[])).expect_exit(4);
    let models = ["--model-url", &endpoint.url, "--model", "m"];
    sandbox.run(&[&["retry", "last", "--no-run"][..], &models].concat()).expect_exit(0);
    assert_eq!(endpoint.bodies().len(), 1, "nothing is sent");
    let before = kinds(&sandbox);
    assert_eq!((count(&before, "invoked"), before.last().map(String::as_str)), (1, Some("paused")));
    sandbox.run(&[&["resume", "last"][..], &models].concat()).expect_exit(0);
    assert_eq!(endpoint.bodies().len(), 2);
    assert!(!kinds(&sandbox)[before.len()..].contains(&"failed".to_owned()), "no call was lost");
}

#[test]
fn requests_that_a_server_fails_with_are_given_up_and_hold_up_no_others() {
    let endpoint = Endpoint::serving(|request| {
        let prompt = request["messages"].to_string();
        let (is_poison, is_good) = (prompt.contains("Poison"), prompt.contains("/good"));
        match (is_poison, is_good) {
            (true, _) => ScriptedResponse::Say(500, "", "internal error".into()),
            (_, true) => ScriptedResponse::answer(r#"[{"op":"replace","path":"/good","value":"done"}]"#, 9, 9),
            // The probe that distinguishes a failing server from a failing request.
            _ => ScriptedResponse::answer("yes", 9, 1),
        }
    });
    let seat = |name: &str, role: &str| {
        format!(
            "  {name}: {{agent: llm, role: {role}., reads: [/{name}], writes: [{{path: /{name}, ops: [replace]}}], \
             limits: {{attempts: 2}}}}\n"
        )
    };
    let rule = |name: &str| format!("  - {{name: {name}, trigger: start, run: {name}}}\n");
    let all = |each: &dyn Fn(&str) -> String| ["one", "two", "good"].map(each).concat();
    let sandbox = Sandbox::new();
    sandbox.write(
        "three.yaml",
        format!(
            "blueprint: 1\nname: three\nstate:\n  schema:\n    type: object\n    properties:\n{}  \
             initial: {{one: \"\", two: \"\", good: \"\"}}\nworkers:\n{}rules:\n{}",
            all(&|name| format!("      {name}: {{type: string}}\n")),
            all(&|name| seat(name, if name == "good" { "Work" } else { "Poison" })),
            all(&rule),
        ),
    );
    let more = ["--model-url", &endpoint.url, "--model", "m", "--output", "json"];
    let ran = sandbox.run(&[&["run", "three.yaml"][..], &more].concat()).expect_exit(4).json();
    assert_eq!((&ran["end"], &ran["cause"]), (&json!("quiescent"), &json!("gave_up")), "{ran}");
    let kinds = kinds(&sandbox);
    assert_eq!(
        (count(&kinds, "committed"), count(&kinds, "failed"), count(&kinds, "deferred")),
        (1, 4, 0),
        "{kinds:?}"
    );
    let cost = sandbox.run(&["cost", "last", "--output", "json"]).expect_exit(0).json();
    assert!(
        cost["tokens"]["unanswered"].as_u64().is_some_and(|tokens| tokens > 4 * 1000),
        "the reservations of failed calls stay: {cost}"
    );
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_request_that_a_server_fails_with_goes_to_another_model() {
    let first =
        Endpoint::serving(|request| match request["messages"].to_string().contains("Reply with the word yes") {
            true => ScriptedResponse::answer("yes", 9, 1),
            false => ScriptedResponse::Say(500, "", "internal error".into()),
        });
    let other = Endpoint::new(vec![note()]);
    let sandbox = sandbox("    limits: {attempts: 2}\n");
    sandbox.write(
        "patchboard.toml",
        format!(
            "[models.default]\nurl = \"{}\"\nmodel = \"first\"\nfallback = [\"other\"]\n\
             [models.other]\nurl = \"{}\"\nmodel = \"second\"\n",
            first.url, other.url
        ),
    );
    sandbox.run(&["run", "llm.yaml", "--request", REQUEST]).expect_exit(0);
    let kinds = kinds(&sandbox);
    assert_eq!((count(&kinds, "failed"), count(&kinds, "deferred")), (1, 0), "the attempt counts: {kinds:?}");
    assert_eq!(other.bodies().len(), 1);
}

#[test]
fn the_search_for_a_form_goes_on_where_the_limits_of_the_model_broke_it_off() {
    // Allows two requests at once, then one every two seconds: the search exceeds the timeout.
    let endpoint = Endpoint::serving(|request| match request.get("response_format") {
        Some(_) => ScriptedResponse::Say(400, "", "bad request".into()),
        None => note(),
    });
    let sandbox = sandbox("    limits: {attempts: 1, timeout: 3s}\n");
    let config = format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\nrequests_per_minute = 30\n", endpoint.url);
    sandbox.write("patchboard.toml", config);
    sandbox.run(&["run", "llm.yaml", "--request", REQUEST]).expect_exit(0);
    let bodies: Vec<String> = endpoint.bodies().iter().map(Value::to_string).collect();
    let different: std::collections::BTreeSet<&String> = bodies.iter().collect();
    assert!(bodies.len() > 2 && different.len() == bodies.len(), "{bodies:#?}");
    assert!(count(&kinds(&sandbox), "deferred") > 0);
}

/// Writes a board with a nested board as its only worker.
fn with_a_board_inside(sandbox: &Sandbox, limits: &str) {
    let text = r#"
blueprint: 2
name: outer
limits: {wall: 4s}
request: {type: object, properties: {text: {type: string}}}
state: {schema: {type: object, properties: {request: true, out: {type: string}}}, initial: {}}
workers:
  sub:
    agent: board
    reads: [/request/text]
    writes: [{path: /out, ops: [add]}]
    limits: LIMITS
    board: {of: inner, input: {text: /request/text}, output: {/out: /answer}}
rules: [{name: go, trigger: start, run: sub}]
done: {when: has(state.out)}
boards:
  inner:
    blueprint: 1
    name: inner
    request: {type: object, additionalProperties: false, properties: {text: {type: string}}}
    state:
      schema: {type: object, properties: {request: true, answer: {type: string}}}
      initial: {answer: ""}
    workers:
      w: {agent: llm, role: Answer., reads: [/request], writes: [{path: /answer, ops: [replace]}]}
    rules: [{name: go, trigger: start, run: w}]
    done: {when: 'state.answer != ""'}
"#;
    sandbox.write("outer.yaml", text.trim_start().replace("LIMITS", limits));
}

fn here() -> ScriptedResponse {
    ScriptedResponse::answer(r#"[{"op":"replace","path":"/answer","value":"here"}]"#, 10, 5)
}

#[test]
fn a_board_inside_that_waits_for_its_provider_uses_up_no_attempt_of_the_one_outside() {
    let sandbox = Sandbox::new();
    with_a_board_inside(&sandbox, "{timeout: 1s, attempts: 1}");
    let away = |wait| ScriptedResponse::Say(503, wait, "away".into());
    let endpoint = Endpoint::new(vec![away("retry-after: 4\r\n"), away("retry-after: 2\r\n"), here()]);
    let more = ["--model-url", &endpoint.url, "--model", "m", "--output", "json"];
    let ended =
        sandbox.run(&[&["run", "outer.yaml", "--request", r#"{"text":"x"}"#][..], &more].concat()).expect_exit(0);
    assert_eq!(ended.json()["end"], "done");
    assert_eq!(endpoint.bodies().len(), 3, "the board inside is the same all the time");
    let kinds = kinds(&sandbox);
    assert_eq!((count(&kinds, "invoked"), count(&kinds, "deferred"), count(&kinds, "failed")), (2, 1, 0), "{kinds:?}");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_board_inside_that_needs_an_operator_pauses_the_one_outside_and_goes_on_with_it() {
    let sandbox = Sandbox::new();
    with_a_board_inside(&sandbox, "{timeout: 60s, attempts: 1}");
    let refused = ScriptedResponse::Say(401, "", r#"{"error":{"message":"Incorrect API key provided"}}"#.into());
    let endpoint = Endpoint::new(vec![refused.clone(), refused, here()]);
    let more = ["--model-url", &endpoint.url, "--model", "m", "--output", "json"];
    let ran = sandbox.run(&[&["run", "outer.yaml", "--request", r#"{"text":"x"}"#][..], &more].concat()).expect_exit(5);
    assert_eq!(ran.json()["cause"], "provider_unavailable");
    let listed = sandbox.run(&["boards", "--output", "json"]).expect_exit(0).lines();
    let reasons: Vec<&Value> = listed.iter().map(|board| &board["waits"]["provider"]["reason"]).collect();
    assert_eq!(reasons, ["key_refused", "key_refused"], "the board inside and the one outside: {listed:?}");
    let resume = [&["resume", "last"][..], &more].concat();
    sandbox.run(&resume).expect_exit(5);
    assert_eq!(sandbox.run(&resume).expect_exit(0).json()["end"], "done");
    assert_eq!(endpoint.bodies().len(), 3);
    assert_eq!(sandbox.run(&["boards", "--output", "json"]).expect_exit(0).lines().len(), 2, "nothing was begun anew");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn the_patience_of_a_board_inside_is_that_of_the_one_outside() {
    let sandbox = Sandbox::new();
    with_a_board_inside(&sandbox, "{timeout: 1s, attempts: 1}");
    let endpoint = Endpoint::new(vec![ScriptedResponse::Say(503, "retry-after: 3\r\n", "away".into()), here()]);
    let model = format!("[models.default]\nurl = {:?}\nmodel = \"m\"\npatience = \"2s\"\n", endpoint.url);
    sandbox.write("patchboard.toml", model);
    let ran = sandbox.run(&["run", "outer.yaml", "--request", r#"{"text":"x"}"#, "--output", "json"]).expect_exit(5);
    assert_eq!(ran.json()["cause"], "provider_unavailable");
    let resumed = sandbox.run(&["resume", "last", "--output", "json"]).expect_exit(0);
    assert_eq!(resumed.json()["end"], "done");
    assert_eq!((endpoint.bodies().len(), count(&kinds(&sandbox), "failed")), (2, 0));
}

#[test]
fn a_board_inside_that_waits_for_its_provider_takes_no_running_time_of_the_one_outside() {
    let sandbox = Sandbox::new();
    with_a_board_inside(&sandbox, "{timeout: 60s, attempts: 1}");
    let endpoint = Endpoint::new(vec![ScriptedResponse::Say(503, "retry-after: 7\r\n", "away".into()), here()]);
    let more = ["--model-url", &endpoint.url, "--model", "m", "--output", "json"];
    let ended =
        sandbox.run(&[&["run", "outer.yaml", "--request", r#"{"text":"x"}"#][..], &more].concat()).expect_exit(0);
    assert_eq!(ended.json()["end"], "done");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn the_money_of_a_board_inside_is_the_money_of_the_one_outside() {
    let sandbox = Sandbox::new();
    with_a_board_inside(&sandbox, "{timeout: 60s, attempts: 1}");
    let text = std::fs::read_to_string(sandbox.path().join("outer.yaml")).expect("it is there");
    let text = text.replace("limits: {wall: 4s}", "limits: {money: 0.01}").replace(
        "rules: [{name: go, trigger: start, run: sub}]",
        "rules: [{name: go, trigger: start, run: sub}, {name: more, trigger: {op: add, path: /out}, run: sub}]",
    );
    sandbox.write("outer.yaml", text.replacen("done: {when: has(state.out)}\n", "", 1));
    let endpoint =
        Endpoint::new(vec![ScriptedResponse::answer(r#"[{"op":"replace","path":"/answer","value":"here"}]"#, 100, 10)]);
    let model = "model = \"m\"\nprice = { input = 100, output = 100, currency = \"USD\" }\n";
    sandbox.write("patchboard.toml", format!("[models.default]\nurl = {:?}\n{model}", endpoint.url));
    let ran = sandbox.run(&["run", "outer.yaml", "--request", r#"{"text":"x"}"#, "--output", "json"]);
    assert_eq!(ran.json()["cause"], "exhausted", "{}", ran.stderr);
    assert!(ran.stderr.contains("0.00 left"), "{}", ran.stderr);
    let stdout = sandbox.run(&["cost", "last"]).expect_exit(0).stdout;
    assert!(stdout.contains("money: 0.011 of 0.01"), "{stdout}");
    assert_eq!(endpoint.bodies().len(), 1, "the first board inside has spent it all");
    sandbox.run(&["replay", "last"]).expect_exit(0);

    sandbox.write("patchboard.toml", format!("[models.default]\nurl = {:?}\nmodel = \"m\"\n", endpoint.url));
    let refused = sandbox.run(&["run", "outer.yaml", "--request", r#"{"text":"x"}"#]).expect_exit(2);
    assert!(refused.stderr.contains("limits.money needs a price of model default"), "{}", refused.stderr);
}

#[test]
fn a_board_with_less_patience_than_its_model_is_paused_when_that_is_over() {
    let sandbox = sandbox("");
    let text = notes_by("llm", "").replacen("blueprint: 1", "blueprint: 2\nlimits: {patience: 2s}", 1);
    sandbox.write("llm.yaml", text);
    let endpoint = Endpoint::new(vec![ScriptedResponse::Say(503, "retry-after: 600\r\n", "away".into())]);
    let ran = sandbox.run(&run(&endpoint.url, &["--output", "json"])).expect_exit(5);
    assert_eq!(ran.json()["cause"], "provider_unavailable");
    assert_eq!(endpoint.bodies().len(), 1, "the provider is not asked before the time that it names");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_board_that_was_stopped_works_at_its_directory_again() {
    let sandbox = Sandbox::new();
    let edit = |old: &str, new: &str| {
        let with = json!({"path": "a.txt", "old_str": old, "new_str": new, "intent": "count"}).to_string();
        ScriptedResponse::call_tools(&[("c1", "str_replace", &with)], 10, 5)
    };
    let view = || ScriptedResponse::call_tools(&[("c0", "view", r#"{"path":"a.txt"}"#)], 10, 5);
    let patch = ScriptedResponse::answer(r#"[{"op":"replace","path":"/answer","value":"counted"}]"#, 20, 2);
    let endpoint = Endpoint::new(vec![view(), edit("one", "two"), view(), edit("two", "three"), patch]);
    sandbox.write(
        "patchboard.toml",
        format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n[workspaces.code]\ndir = \"code\"\n", endpoint.url),
    );
    sandbox.write("code/a.txt", "one\n");
    sandbox.write(
        "edit.yaml",
        "blueprint: 1\nname: edit\nworkspace: {dir: code}\nlimits: {edits: 1}\nstate:\n  schema: {type: object, properties: \
         {answer: {type: string}}}\n  initial: {answer: \"\"}\nworkers:\n  a:\n    agent: llm\n    role: Edit.\n    writes: [{path: \
         /answer, ops: [replace]}]\n    files: {view: [\"**\"], edit: [\"**\"]}\nrules: [{name: go, trigger: start, run: a}]\n\
         done: {when: 'state.answer != \"\"'}\n",
    );
    let stderr = sandbox.run(&["run", "edit.yaml"]).expect_exit(3).stderr;
    assert!(stderr.contains("--edits N"), "{stderr}");
    // A rejected command records nothing, even with `--no-run`.
    let before = kinds(&sandbox);
    let stderr = sandbox.run(&["retry", "last", "--edits", "1", "--no-run"]).expect_exit(2).stderr;
    assert!(stderr.contains("bad_limit"), "{stderr}");
    assert_eq!(kinds(&sandbox), before);
    assert_eq!(
        sandbox.run(&["retry", "last", "--edits", "9", "--output", "json"]).expect_exit(0).json()["end"],
        "done"
    );
    assert_eq!(std::fs::read_to_string(sandbox.path().join("code/a.txt")).expect("a file"), "three\n");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}
