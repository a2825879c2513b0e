//! Choice of the agent that fills a seat.

use std::path::Path;
use std::time::Duration;

use patchboard_agents::config::{Config, Environment, Flags};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_endpoint::{Endpoint, ScriptedResponse};
use patchboard_kernel::admission::WaitingCall;
use patchboard_kernel::blueprint::{AgentKind, Blueprint, Isolation};
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::failure::FailureCode;
use patchboard_lint::source::Source;
use patchboard_runtime::agent::{AdmissionDecision, Agent as _, Call};
use serde_json::{Value, json};

use crate::support::{call, seat};

fn blueprint(workers: Value, models: Value) -> Blueprint {
    let fields = json!({"blueprint": 1, "name": "b", "state": {"schema": true}, "workers": workers, "models": models});
    serde_json::from_value(fields).expect("a blueprint")
}

fn process_path() -> Environment {
    Environment::from_iter([("PATH", std::env::var("PATH").expect("a path"))])
}

#[tokio::test]
async fn each_kind_of_seat_is_filled_with_what_the_operator_has_named() {
    let endpoint = Endpoint::new(vec![ScriptedResponse::complete("[1]", "stop", Value::Null)]);
    let text = format!(
        "[models.big]\nurl = \"{}\"\nmodel = \"m\"\napi_key_env = \"K\"\n[commands.three]\nprogram = [\"echo\", \"[3]\"]",
        endpoint.url
    );
    let env: Environment =
        [("PATH", std::env::var("PATH").expect("a path")), ("K", "hush".into())].into_iter().collect();
    let seats = AgentRegistry::new(Config::parse(&text, "p").expect("a good file"), &env, InlinePrograms::Allowed);
    for (fields, expected) in [
        (json!({"agent": "llm"}), "[1]"),
        (json!({"agent": "command", "command": "three"}), "[3]"),
        (json!({"agent": "command", "program": ["echo", "[4]"]}), "[4]"),
        (json!({"agent": "script", "script": [[5]]}), "[5]"),
    ] {
        let mut call = call("w", seat(fields.clone()), "x", 0);
        call.decided.model = Some("big".into());
        assert_eq!(seats.call(&call).await.expect("a reply").text, expected, "{fields}");
    }
    assert!(endpoint.requests()[0].0.contains("authorization: bearer hush"));
}

#[tokio::test]
async fn a_seat_that_cannot_be_filled_says_what_to_configure_before_and_at_the_call() {
    let text = "[models.keyed]\nurl = \"http://localhost:1\"\nmodel = \"m\"\napi_key_env = \"MY_KEY\"\n";
    let config = Config::parse(text, "p").expect("a good file");
    let seats = AgentRegistry::new(config, &process_path(), InlinePrograms::Denied);
    for (fields, models, words) in [
        (json!({"agent": "llm"}), json!({}), "--model-url"),
        (json!({"agent": "llm"}), json!({"default": "local"}), "[models.local]"),
        (json!({"agent": "llm"}), json!({"default": "keyed"}), "set MY_KEY"),
        (json!({"agent": "command"}), json!({}), "[commands.w]"),
        (json!({"agent": "command", "command": "c"}), json!({}), "[commands.c]"),
        (json!({"agent": "command", "program": ["true"]}), json!({}), "--allow-inline"),
        (json!({"agent": "command", "restart": "replay"}), json!({}), "rebuilds its state"),
        (json!({"agent": "script"}), json!({}), "empty"),
        (json!({"agent": "remote"}), json!({}), "patchboard serve"),
        (json!({"agent": "builtin:voting"}), json!({}), "kind builtin:voting"),
    ] {
        let blueprint = blueprint(json!({"w": fields}), models.clone());
        let problems = seats.check(&blueprint);
        assert_eq!(problems.len(), 1, "{fields}");
        assert!(problems[0].to_string().contains(words), "{words:?} is not in {}", problems[0]);

        let mut call = call("w", seat(fields), "x", 0);
        call.decided.model = models["default"].as_str().map(str::to_owned);
        let failure = seats.call(&call).await.expect_err("cannot be filled");
        assert_eq!(failure.code, FailureCode::NotConfigured);
        assert!(failure.message.contains(words), "{words:?} is not in {failure}");
    }
}

#[tokio::test]
async fn a_model_with_a_begun_reply_counts_as_available() {
    let begun = "data: {\"choices\": [{\"delta\": {\"content\": \"[\"}}]}\n\n";
    for (of_other, expected) in [
        (ScriptedResponse::Hang, Some(DeferralReason::NoAnswer)),
        (ScriptedResponse::Begin("content-type: text/event-stream\r\n", String::new()), Some(DeferralReason::NoAnswer)),
        (ScriptedResponse::Begin("content-type: text/event-stream\r\n", begun.to_owned()), None),
    ] {
        let shown = format!("{of_other:?}");
        let endpoint = Endpoint::serving(move |body| match body.to_string().contains("the other") {
            true => of_other.clone(),
            false => ScriptedResponse::Hang,
        });
        let text = format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n", endpoint.url);
        let seats = AgentRegistry::new(
            Config::parse(&text, "p").expect("a good file"),
            &process_path(),
            InlinePrograms::Denied,
        );
        let admitted = |shown, occurrence, timeout| {
            let mut call = call("w", seat(json!({"agent": "llm"})), shown, occurrence);
            let AdmissionDecision::Now(permit) = seats.admit(&call.board, &waiting(&call)) else {
                panic!("the model is there")
            };
            (call.permit, call.timeout) = (Some(permit), Duration::from_millis(timeout));
            call
        };
        let (silent, other) = (admitted("the silent one", 0, 1_000), admitted("the other", 1, 2_000));
        let (silent, other) = tokio::join!(seats.call(&silent), seats.call(&other));
        let (silent, other) = (silent.expect_err("no byte came"), other.expect_err("it never ends"));
        assert_eq!((silent.code, other.code), (FailureCode::Timeout, FailureCode::Timeout), "{shown}");
        assert_eq!(silent.deferral.map(|deferral| deferral.reason), expected, "{shown}");
    }
}

#[tokio::test]
async fn a_fallback_may_be_the_same_model_with_another_key() {
    let endpoint = Endpoint::new(vec![
        ScriptedResponse::Say(401, "", String::new()),
        ScriptedResponse::complete("[]", "stop", Value::Null),
    ]);
    let url = &endpoint.url;
    let text = format!(
        "[models.default]\nurl = \"{url}\"\nmodel = \"m\"\napi_key_env = \"ONE\"\nfallback = [\"second\"]\n\
         [models.second]\nurl = \"{url}\"\nmodel = \"m\"\napi_key_env = \"TWO\"\n"
    );
    let env: Environment = [("ONE", "key-one"), ("TWO", "key-two")].into_iter().collect();
    let seats = AgentRegistry::new(Config::parse(&text, "p").expect("a good file"), &env, InlinePrograms::Denied);
    let mut call = call("w", seat(json!({"agent": "llm"})), "x", 0);
    let mut asked = waiting(&call);
    for (model, is_answered) in [("default", false), ("second", true)] {
        let AdmissionDecision::Now(permit) = seats.admit(&call.board, &asked) else { panic!("{model} is asked") };
        assert_eq!(permit.admission.model.as_deref(), Some(model));
        call.decided.model = Some(model.to_owned());
        call.permit = Some(permit);
        let answer = seats.call(&call).await;
        assert_eq!(answer.is_ok(), is_answered, "{answer:?}");
        asked = waiting(&call);
    }
    let keys: Vec<bool> = endpoint.requests().iter().map(|(head, _)| head.contains("bearer key-two")).collect();
    assert_eq!(keys, [false, true]);
}

#[tokio::test]
async fn a_program_without_a_key_pauses_the_board_if_only_an_operator_can_mend_it() {
    for (program, reason) in [
        ("[\"/no/such/program\"]", DeferralReason::KeyRefused),
        ("[\"true\"]", DeferralReason::KeyRefused),
        ("[\"sh\", \"-c\", \"exit 3\"]", DeferralReason::Unreachable),
    ] {
        let text =
            format!("[models.default]\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\napi_key_command = {program}\n");
        let seats = AgentRegistry::new(
            Config::parse(&text, "p").expect("a good file"),
            &process_path(),
            InlinePrograms::Denied,
        );
        let mut call = call("w", seat(json!({"agent": "llm"})), "x", 0);
        let AdmissionDecision::Now(permit) = seats.admit(&call.board, &waiting(&call)) else {
            panic!("the model is asked")
        };
        call.permit = Some(permit);
        let failure = seats.call(&call).await.expect_err("there is no key");
        assert_eq!(failure.deferral.map(|deferral| deferral.reason), Some(reason), "{failure}");
        assert!(failure.message.contains("api_key_command"), "{failure}");
    }
}

#[test]
fn the_limit_of_a_models_replies_is_what_is_reserved() {
    let text = "[models.default]\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\nmax_reply_tokens = 20\n";
    let seats =
        AgentRegistry::new(Config::parse(text, "p").expect("a good file"), &process_path(), InlinePrograms::Denied);
    let call = call("w", seat(json!({"agent": "llm"})), "x", 0);
    let AdmissionDecision::Now(permit) = seats.admit(&call.board, &waiting(&call)) else {
        panic!("the model is asked")
    };
    assert_eq!(permit.admission.reply_tokens, Some(20), "the seat has 50");
}

/// Returns the first admission request of a call.
fn waiting(call: &Call) -> WaitingCall {
    WaitingCall {
        invocation: call.invocation,
        attempt: call.attempt,
        worker: call.worker.clone(),
        agent: AgentKind::Llm,
        model: None,
        tokens: 100,
        reply_tokens: 50,
        past: call.earlier_attempts.clone(),
        wait: None,
        patience_ms: None,
        money: None,
    }
}

#[test]
fn every_model_that_could_be_drawn_is_looked_at() {
    let text = "[models.small]\nurl = \"http://localhost:1\"\nmodel = \"m\"\n";
    let seats =
        AgentRegistry::new(Config::parse(text, "p").expect("a good file"), &process_path(), InlinePrograms::Denied);
    let workers = json!({"a": {"agent": "llm", "model": "crowd"}, "b": {"agent": "llm", "model": "crowd"}});
    let of = |crowd: Value| blueprint(workers.clone(), json!({"crowd": crowd}));
    assert_eq!(seats.check(&of(json!(["small"]))), []);
    let problems = seats.check(&of(json!(["small", "large", "huge"])));
    let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("workers a, b: no model large") && said[1].contains("no model huge"), "{said:?}");
}

#[test]
fn problems_shared_by_several_workers_are_reported_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let dir = directory.path().display();
    let config = |text: &str| {
        let text = format!("[workspaces.code]\ndir = \"{dir}\"\n{text}");
        AgentRegistry::new(Config::parse(&text, "p").expect("a good file"), &process_path(), InlinePrograms::Denied)
    };
    let worker = |run: Value| json!({"agent": "llm", "files": {"edit": ["**"], "run": run}});
    let workers =
        json!({"boss": worker(json!(["tests", "git"])), "one": worker(json!(["tests"])), "two": worker(json!([]))});
    let mut blueprint = blueprint(workers, json!({}));
    blueprint.workspace = Some(serde_json::from_value(json!({"dir": "code"})).expect("a workspace"));
    let problems = |seats: &AgentRegistry, blueprint: &Blueprint| -> Vec<String> {
        seats
            .check(blueprint)
            .iter()
            .map(|problem| problem.to_string().split(": ").take(2).collect::<Vec<_>>().join(": "))
            .collect()
    };
    let git = "it uses git, and the directory code is no working tree of git";
    let tests = "no program tests is configured, which files.run names";
    let model = "no model default is configured";
    let seats = config("");
    assert_eq!(
        problems(&seats, &blueprint),
        [
            format!("workers boss, one, two: {model}"),
            format!("worker boss: {git}"),
            format!("workers boss, one: {tests}")
        ]
    );
    let seats = config(
        "[models.default]\nurl = \"http://localhost:1\"\nmodel = \"m\"\n[commands.tests]\nprogram = [\"true\"]\n",
    );
    assert_eq!(problems(&seats, &blueprint), [format!("worker boss: {git}")]);
    std::fs::create_dir(directory.path().join(".git")).expect("made");
    assert_eq!(problems(&seats, &blueprint), [""; 0]);
    std::fs::remove_dir(directory.path().join(".git")).expect("removed");
    blueprint.workspace.as_mut().expect("there").isolation = Isolation::Worktree;
    assert_eq!(problems(&seats, &blueprint), [format!("workers boss, one, two: {git}")], "each has a tree of it");
}

#[test]
fn a_model_that_the_blueprint_does_not_name_is_a_problem() {
    let seats = AgentRegistry::new(Config::default(), &process_path(), InlinePrograms::Denied);
    let problems = seats.check(&blueprint(json!({"w": {"agent": "llm", "model": "fast"}}), json!({})));
    assert!(problems[0].message.contains("fast"), "{problems:?}");
}

#[test]
fn a_model_on_the_command_line_serves_every_seat() {
    let flags = Flags {
        model_url: Some("http://localhost:1/v1".into()),
        model: Some("m".into()),
        api_key_env: None,
        temperature: None,
    };
    let config = Config::default().with_flags(&flags, &process_path()).expect("complete");
    let seats = AgentRegistry::new(config, &process_path(), InlinePrograms::Denied);
    let workers = json!({"a": {"agent": "llm"}, "b": {"agent": "llm", "model": "fast"}});
    assert_eq!(seats.check(&blueprint(workers, json!({"default": "local", "fast": "quick"}))), []);
}

#[test]
fn the_example_of_a_configuration_fills_the_seats_of_its_blueprint() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let config = Config::read(&root.join("evals/alfworld/patchboard.toml")).expect("a good file");
    assert!(root.join("evals/alfworld").join(&config.commands["environment"].program[1]).is_file());
    let text = std::fs::read_to_string(root.join("blueprints/alfworld.yaml")).expect("the blueprint can be read");
    let report = patchboard_protocols::check(&Source::read("alfworld.yaml", &text).expect("it is YAML"));
    let blueprint = report.blueprint.expect("a blueprint without errors");
    assert_eq!(AgentRegistry::new(config, &process_path(), InlinePrograms::Denied).check(&blueprint), []);
}
