//! `patchboard architect` and `run --architect`, against a scripted chat endpoint.

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use serde_json::{Value, json};

use crate::sandbox::{CommandResult, Sandbox};

/// Starts a chat endpoint that answers with these texts in order and repeats the last one.
fn saying(texts: Vec<String>) -> Endpoint {
    Endpoint::new(texts.iter().map(|text| ScriptedResponse::answer(text, 1000, 100)).collect())
}

/// Returns a blueprint with one worker, which answers a question.
fn blueprint() -> Value {
    json!({
        "blueprint": 1,
        "name": "owls",
        "description": "Answers.",
        "request": {"type": "object", "required": ["question"], "properties": {
            "question": {"type": "string"}, "documents": {"type": "array"},
        }},
        "state": {
            "schema": {"type": "object", "properties": {"answer": {"type": "string"}}},
            "initial": {},
        },
        "workers": {"writer": {
            "agent": "llm", "role": "Answer.", "reads": ["/request"], "writes": [{"path": "/answer", "ops": ["add"]}],
        }},
        "rules": [{"name": "begin", "trigger": "start", "run": "writer"}],
        "invariants": [],
        "done": {"when": "has(state.answer)"},
        "limits": {"commits": 10},
    })
}

fn with_input() -> String {
    let mut answer = blueprint();
    answer["input"] = json!({"question": "Do owls sleep?"});
    answer.to_string()
}

fn broken() -> String {
    blueprint().to_string().replace("\"run\":\"writer\"", "\"run\":\"nobody\"")
}

const PATCH: &str = r#"{"patch": [{"op": "add", "path": "/answer", "value": "By day."}]}"#;

fn run(sandbox: &Sandbox, model: &Endpoint, arguments: &[&str]) -> CommandResult {
    sandbox.run(&[arguments, &["--model-url", &model.url, "--model", "m"]].concat())
}

#[test]
fn a_blueprint_is_written_for_a_request_and_can_be_checked_and_read() {
    let sandbox = Sandbox::new();
    let model = saying(vec![broken(), blueprint().to_string()]);
    let ran = run(&sandbox, &model, &["architect", "Find out about\nowls.", "-o", "owls.yaml"]).expect_exit(0);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains("1 error: undeclared_worker"), "{}", ran.stderr);
    let text = std::fs::read_to_string(sandbox.path().join("owls.yaml")).expect("it was written");
    assert!(
        text.starts_with("# Made by the architect, for: Find out about owls.\nblueprint: 1\nname: owls\n"),
        "{text}"
    );
    sandbox.run(&["check", "owls.yaml"]).expect_exit(0);
    let sent = model.bodies();
    assert_eq!(sent.len(), 2);
    let schema = &sent[0]["response_format"]["json_schema"]["schema"];
    assert!(schema["properties"]["workers"].is_object() && schema["properties"]["use"].is_null(), "{schema}");

    let result = run(&sandbox, &model, &["architect", "x", "--output", "json"]).expect_exit(0).json();
    assert_eq!((&result["blueprint"]["name"], &result["usage"]["total"]), (&json!("owls"), &json!(1100)));
    let printed = run(&sandbox, &model, &["architect", "x"]).expect_exit(0);
    assert!(printed.stdout.contains("\nname: owls\n"), "{}", printed.stdout);
}

#[test]
fn an_invalid_blueprint_is_rejected_with_its_findings_after_all_repairs() {
    let sandbox = Sandbox::new();
    let model = saying(vec![broken()]);
    let arguments = ["architect", "x", "-o", "x.yaml", "--repairs", "1", "--output", "json"];
    let error = run(&sandbox, &model, &arguments).expect_exit(2).error();
    assert_eq!((&error["code"], &error["findings"][0]["code"]), (&json!("no_blueprint"), &json!("undeclared_worker")));
    assert_eq!((&error["draft"], &error["usage"]["calls"]), (&json!(broken()), &json!(2)));
    assert_eq!((&error["usage"]["total"], &error["usage"]["repairs"]), (&json!(2200), &json!(1100)));
    assert_eq!(model.bodies().len(), 2);
    assert!(!sandbox.path().join("x.yaml").exists());

    let stderr = run(&sandbox, &model, &["architect", "x", "--repairs", "0"]).expect_exit(2).stderr;
    assert!(stderr.contains("error[undeclared_worker]") && stderr.contains("error[no_blueprint]"), "{stderr}");
    let none = run(&sandbox, &model, &["run", "--architect", "x", "--repairs", "0", "--output", "json"]).expect_exit(2);
    assert_eq!(none.error()["code"], "no_blueprint");
    assert_eq!(sandbox.run(&["boards", "--output", "json"]).expect_exit(0).stdout, "");
    let error = sandbox.run(&["architect", "x", "--output", "json"]).expect_exit(2).error();
    assert_eq!(error["code"], "not_configured");
}

#[test]
fn a_repair_that_fails_hides_neither_draft_nor_findings() {
    let sandbox = Sandbox::new();
    for json in [false, true] {
        let refused = ScriptedResponse::Say(400, "", r#"{"error": {"message": "no"}}"#.into());
        let model = Endpoint::new(vec![ScriptedResponse::answer(&broken(), 1000, 100), refused]);
        let format = if json { "json" } else { "text" };
        let ran = run(&sandbox, &model, &["architect", "x", "--output", format]).expect_exit(1);
        if json {
            let error = ran.error();
            assert_eq!((&error["code"], &error["draft"]), (&json!("architect_failed"), &json!(broken())));
            assert_eq!(error["findings"][0]["code"], "undeclared_worker");
        } else {
            let stderr = ran.stderr;
            assert!(stderr.contains("the last draft:\n{") && stderr.contains("error[undeclared_worker]"), "{stderr}");
        }
    }
}

#[test]
fn a_run_designs_its_blueprint_and_the_board_pays_for_it() {
    let sandbox = Sandbox::new();
    sandbox.write("owl.txt", "Owls sleep by day.");
    let model = saying(vec![broken(), with_input(), PATCH.to_owned()]);
    let arguments = ["run", "--architect", "Answer.", "--documents", "owl.txt", "--output", "json"];
    let result = run(&sandbox, &model, &arguments).expect_exit(0).json();
    assert_eq!((&result["end"], &result["state"]["answer"]), (&json!("done"), &json!("By day.")));
    let request =
        json!({"question": "Do owls sleep?", "documents": [{"title": "owl.txt", "text": "Owls sleep by day."}]});
    assert_eq!(result["state"]["request"], request);
    assert_eq!((&result["tokens"]["total"], &result["calls"]), (&json!(3300), &json!(3)));

    let cost = sandbox.run(&["cost", "last", "--output", "json"]).expect_exit(0).json();
    let architect = &cost["architect"];
    assert_eq!((&architect["calls"], &architect["spent"]), (&json!(2), &json!(2200)));
    assert_eq!(architect["retries"], json!({"calls": 1, "tokens": 1100}));
    assert_eq!((&cost["tokens"]["spent"], &cost["workers"]["writer"]["spent"]), (&json!(3300), &json!(1100)));
    let parts: u64 = cost["prompts"].as_object().expect("parts").values().filter_map(Value::as_u64).sum();
    assert_eq!(parts, 1000, "what the architect was told is in its own line: {cost}");
    let text = sandbox.run(&["cost", "last"]).expect_exit(0).stdout;
    let row = text.lines().find(|line| line.contains("(architect)")).expect("a row for the architect");
    assert!(row.contains("2,200") && row.contains("1,100"), "{text}");
    let log = sandbox.run(&["log", "last"]).expect_exit(0).stdout;
    assert!(log.contains("which an architect wrote in 2 calls, 2,200 tokens"), "{log}");
    for command in ["replay", "verify"] {
        sandbox.run(&[command, "last"]).expect_exit(0);
    }

    let model = saying(vec![blueprint().to_string(), PATCH.to_owned()]);
    let arguments = ["run", "--architect", "Answer.", "--request", r#"{"question": "Why?"}"#, "--output", "json"];
    let result = run(&sandbox, &model, &arguments).expect_exit(0).json();
    assert_eq!(result["state"]["request"], json!({"question": "Why?"}));
    assert_eq!(model.bodies()[0]["response_format"]["json_schema"]["schema"]["properties"]["input"], Value::Null);
}

#[test]
fn a_request_that_does_not_fit_is_the_models_to_mend() {
    let sandbox = Sandbox::new();
    let misfit = blueprint().to_string().replace("question", "asked");
    let model = saying(vec![misfit, blueprint().to_string(), PATCH.to_owned()]);
    let arguments = ["run", "--architect", "Answer.", "--request", r#"{"question": "Why?"}"#, "--output", "json"];
    let result = run(&sandbox, &model, &arguments).expect_exit(0).json();
    assert_eq!(result["state"]["request"], json!({"question": "Why?"}));
    let prompt =
        |number: usize| model.bodies()[number]["messages"][1]["content"].as_str().unwrap_or_default().to_owned();
    assert!(prompt(0).contains(r#"{"question":"Why?"}"#), "{}", prompt(0));
    assert!(prompt(1).contains("[bad_input]"), "{}", prompt(1));

    sandbox.write("owl.txt", "Owls sleep by day.");
    for request in ["3", r#"{"documents": []}"#] {
        let arguments = ["run", "--architect", "x", "--request", request, "--documents", "owl.txt", "--output", "json"];
        assert_eq!(run(&sandbox, &model, &arguments).expect_exit(2).error()["code"], "bad_request");
    }
    assert_eq!(model.bodies().len(), 3, "nobody was asked");
}

#[test]
fn a_boards_budget_includes_what_its_blueprint_cost() {
    let sandbox = Sandbox::new();
    let mut dear: Value = serde_json::from_str(&with_input()).expect("JSON");
    dear["limits"] = json!({"tokens": 1500});
    let model = saying(vec![dear.to_string(), PATCH.to_owned()]);
    let result = run(&sandbox, &model, &["run", "--architect", "Answer.", "--output", "json"]).expect_exit(3).json();
    assert_eq!((&result["end"], &result["tokens"]["total"]), (&json!("stopped"), &json!(1100)));
    assert_eq!(model.bodies().len(), 1, "nobody was called");
}

#[test]
fn a_blueprint_that_needs_approval_waits_without_a_terminal() {
    let sandbox = Sandbox::new();
    let model = saying(vec![with_input()]);
    for arguments in [
        &["architect", "x", "--approve", "-o", "owls.yaml"][..],
        &["run", "--architect", "x", "--approve", "-o", "owls.yaml"],
    ] {
        let ran = run(&sandbox, &model, arguments).expect_exit(5);
        assert!(ran.stderr.contains("approval needs a terminal") && ran.stderr.contains("owls.yaml"), "{}", ran.stderr);
        sandbox.run(&["check", "owls.yaml"]).expect_exit(0);
        std::fs::remove_file(sandbox.path().join("owls.yaml")).expect("it was written");
    }
    assert_eq!(sandbox.run(&["boards", "--output", "json"]).expect_exit(0).stdout, "");
}

#[test]
fn the_request_of_the_architect_is_kept_and_the_next_command_printed() {
    let sandbox = Sandbox::new();
    let mut answer = blueprint();
    let question = format!("Do `owls` sleep? {} It's the end", "So? ".repeat(100));
    answer["input"] = json!({"question": question});
    sandbox.write("an owl.txt", "Owls sleep by day.");
    let model = saying(vec![answer.to_string(), answer.to_string(), PATCH.to_owned()]);
    let arguments = ["run", "--architect", "x", "--approve", "--documents", "an owl.txt"];
    // Without `-o`, the printed command contains everything, quoted for a shell.
    let stderr = run(&sandbox, &model, &arguments).expect_exit(5).stderr;
    let quoted = json!({"question": question}).to_string().replace('\'', r"'\''");
    assert!(
        stderr.contains(&format!("patchboard run BLUEPRINT --request '{quoted}' --documents 'an owl.txt'")),
        "{stderr}"
    );

    let stderr = run(&sandbox, &model, &[&arguments[..], &["-o", "owls.yaml"]].concat()).expect_exit(5).stderr;
    let again = "patchboard run owls.yaml --request @owls.request.json --documents 'an owl.txt' --model-url";
    assert!(stderr.contains(again), "{stderr}");
    let kept = std::fs::read_to_string(sandbox.path().join("owls.request.json")).expect("it was written");
    assert_eq!(serde_json::from_str::<Value>(&kept).expect("JSON"), json!({"question": question}));
    let arguments =
        ["run", "owls.yaml", "--request", "@owls.request.json", "--documents", "an owl.txt", "--output", "json"];
    let state = run(&sandbox, &model, &arguments).expect_exit(0).json()["state"].clone();
    let documents = json!([{"title": "an owl.txt", "text": "Owls sleep by day."}]);
    assert_eq!(state["request"], json!({"question": question, "documents": documents}));

    // An existing request file is not overwritten either.
    std::fs::remove_file(sandbox.path().join("owls.yaml")).expect("it was written");
    let arguments = ["run", "--architect", "x", "-o", "owls.yaml", "--output", "json"];
    assert_eq!(run(&sandbox, &model, &arguments).expect_exit(2).error()["code"], "output_exists");
    assert_eq!(model.bodies().len(), 3, "nobody was asked");
}

#[test]
fn documents_are_bounded_in_sum_before_anybody_is_asked() {
    let sandbox = Sandbox::new();
    let model = saying(vec![with_input()]);
    // Each byte takes six in JSON.
    sandbox.write("a.txt", "\u{1}".repeat(4 * 1024 * 1024));
    let documents = ["--documents", "a.txt", "a.txt", "a.txt", "--output", "json"];
    for command in [&["architect", "x"][..], &["run", "--architect", "x"]] {
        let error = run(&sandbox, &model, &[command, &documents].concat()).expect_exit(2).error();
        assert_eq!(error["code"], "bad_request", "{error}");
    }
    assert_eq!(model.bodies().len(), 0, "nobody was asked");
}

#[test]
fn a_file_is_run_with_documents_and_they_replace_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("owl.txt", "Owls sleep by day.");
    sandbox.write("owls.yaml", blueprint().to_string());
    let model = saying(vec![PATCH.to_owned()]);
    let go = |request: &[&str]| {
        let flags = ["--documents", "owl.txt", "--output", "json"];
        run(&sandbox, &model, &[&["run", "owls.yaml"][..], request, &flags].concat())
    };
    let state = go(&["--request", r#"{"question": "Why?"}"#]).expect_exit(0).json()["state"].clone();
    let documents = json!([{"title": "owl.txt", "text": "Owls sleep by day."}]);
    assert_eq!(state["request"], json!({"question": "Why?", "documents": documents}));
    for request in [&["--request", r#"{"question": "Why?", "documents": ["mine"]}"#][..], &["--request", "[]"], &[]] {
        assert_eq!(go(request).expect_exit(2).error()["code"], "bad_request", "{request:?}");
    }
    let mut small = blueprint();
    small["limits"] = json!({"state_bytes": 60});
    sandbox.write("owls.yaml", small.to_string());
    let error = go(&["--request", r#"{"question": "Why?"}"#]).expect_exit(2).error();
    assert!(error["message"].as_str().is_some_and(|message| message.contains("60 bytes")), "{error}");

    small["limits"] = json!({});
    small["request"] = json!({"type": "object", "properties": {"documents": {"type": "array"}}});
    sandbox.write("owls.yaml", small.to_string());
    assert_eq!(go(&[]).expect_exit(0).json()["state"]["request"], json!({"documents": documents}));
}

#[test]
fn an_unwritable_output_is_reported_before_the_model_is_called() {
    let sandbox = Sandbox::new();
    let model = saying(vec![with_input()]);
    sandbox.write("old.yaml", "mine");
    let run_it = |more: &[&str]| run(&sandbox, &model, &[&["run", "--architect", "x"][..], more].concat());
    for (ran, code) in [
        (run(&sandbox, &model, &["architect", "x", "-o", "none/x.yaml", "--output", "json"]), "output_failed"),
        (run(&sandbox, &model, &["architect", "x", "-o", "old.yaml", "--output", "json"]), "output_exists"),
        (run(&sandbox, &model, &["architect", "x", "-o", ".", "--force", "--output", "json"]), "output_failed"),
        (run_it(&["-o", "none/x.yaml", "--output", "json"]), "output_failed"),
        (run_it(&["-o", "old.yaml", "--output", "json"]), "output_exists"),
        (run_it(&["--record", "none/x.cassette", "--output", "json"]), "cassette_io"),
        (run_it(&["--record", "old.yaml", "--output", "json"]), "cassette_exists"),
    ] {
        assert_eq!(ran.expect_exit(2).error()["code"], code);
    }
    let lost = run_it(&["--data-dir", "old.yaml", "--output", "json"]);
    assert_ne!(lost.code, 0, "{}", lost.stderr);
    assert_eq!(model.bodies().len(), 0, "nobody was asked");
    assert_eq!(std::fs::read_to_string(sandbox.path().join("old.yaml")).expect("it is there"), "mine");
    run(&sandbox, &model, &["architect", "x", "-o", "old.yaml", "--force"]).expect_exit(0);
    sandbox.run(&["check", "old.yaml"]).expect_exit(0);
}

#[test]
fn a_blueprint_that_cannot_be_written_is_printed() {
    for command in [&["architect", "x"][..], &["run", "--architect", "x"]] {
        let sandbox = Sandbox::new();
        let path = sandbox.path().join("owls.yaml");
        let model = Endpoint::serving(move |_| {
            std::fs::create_dir(&path).expect("a directory in its place");
            ScriptedResponse::answer(&with_input(), 1000, 100)
        });
        let ran = run(&sandbox, &model, &[command, &["-o", "owls.yaml"]].concat()).expect_exit(1);
        assert!(ran.stdout.contains("\nname: owls\n"), "{}", ran.stdout);
        assert!(ran.stderr.contains("error[output_failed]"), "{}", ran.stderr);
    }
}

#[test]
fn flags_of_the_architect_make_sense_with_one_only() {
    let sandbox = Sandbox::new();
    for (arguments, code) in [
        (&["run", "notes.yaml", "--approve", "--output", "json"][..], "usage"),
        (&["run", "notes.yaml", "--architect", "x", "--output", "json"], "usage"),
        (&["run", "--output", "json"], "usage"),
        (&["architect", " ", "--output", "json"], "bad_request"),
        (&["architect", "@none.txt", "--output", "json"], "document_unreadable"),
        (&["architect", "x", "--documents", "none.txt", "--output", "json"], "document_unreadable"),
    ] {
        assert_eq!(sandbox.run(arguments).expect_exit(2).error()["code"], code, "{arguments:?}");
    }
}

#[test]
fn money_of_the_calls_that_wrote_a_blueprint_is_the_boards_first_expense() {
    let sandbox = Sandbox::new();
    let model = saying(vec![broken(), with_input(), PATCH.to_owned()]);
    let config = |name: &str, output: u32| {
        let url = &model.url;
        format!(
            "[models.{name}]\nurl = \"{url}\"\nmodel = \"m\"\nprice = {{ input = 2, output = {output}, currency = \"EUR\" }}\n"
        )
    };
    sandbox.write("patchboard.toml", config("default", 10) + &config("architect", 20));
    sandbox.run(&["run", "--architect", "Do owls sleep?"]).expect_exit(0);
    let cost = sandbox.run(&["cost", "last", "--output", "json"]).expect_exit(0).json();
    // Each of three calls has 1,000 prompt tokens, at 2.00 per million, and 100 reply tokens.
    let costs = (&cost["models"]["architect"], &cost["models"]["default"], &cost["money"]["spent"]);
    let architect = json!({"calls": 2, "tokens": 2200, "money": 0.008});
    assert_eq!(costs, (&architect, &json!({"calls": 1, "tokens": 1100, "money": 0.003}), &json!(0.011)));
    sandbox.run(&["replay", "last"]).expect_exit(0);
}
