//! `patchboard init`: each template is valid and runs at once from its scripts.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;

/// Writes a template to a new directory and runs the command that `init` prints; returns the JSON of the run.
fn begun(sandbox: &Sandbox, template: &str, exit: i32) -> Value {
    let created: Value =
        sandbox.run(&["init", template, "--template", template, "--output", "json"]).expect_exit(0).json();
    let command = created["run"].as_str().expect("a command");
    let arguments: Vec<&str> = command.split_whitespace().skip(1).chain(["--output", "json"]).collect();
    let blueprint = format!("{template}/blueprint.yaml");
    let checked = sandbox.run(&["check", &blueprint, "--request", &format!("@{template}/request.json")]).expect_exit(0);
    assert!(checked.stdout.ends_with("0 errors, 0 warnings: ok\n"), "{}", checked.stdout);
    sandbox.run(&arguments).expect_exit(exit).json()
}

#[test]
fn each_template_runs_at_once_and_comes_to_its_result() {
    let sandbox = Sandbox::new();
    for (template, place, expected) in [
        ("map-review", "/report/sources", json!(["0", "1", "2"])),
        (
            "pipeline",
            "/drafts/1",
            json!("We are sorry that the lamp came without a shade. A new one leaves today, free of charge."),
        ),
        (
            "supervisor",
            "/answer",
            json!("The lighthouse was built from 1868 to 1870 and cost 5,100 pounds with its lamp."),
        ),
        ("workspace", "/reports/1", json!("There is a test of the night.")),
    ] {
        let ran = begun(&sandbox, template, 0);
        assert_eq!((&ran["end"], &ran["rejected"]), (&json!("done"), &json!(0)), "{template}: {ran}");
        assert_eq!(ran["state"].pointer(place), Some(&expected), "{template}");
        let result = ran["result"].as_object().expect("an object");
        assert!(
            !result.is_empty()
                && result.iter().all(|(at, value)| place.starts_with(at) && ran["state"].pointer(at) == Some(value)),
            "{ran}"
        );
        sandbox.run(&["replay", "last"]).expect_exit(0);
    }
    let lamp = std::fs::read_to_string(sandbox.path().join("workspace/code/lamp.py")).expect("it is there");
    assert!(lamp.contains("Whether the lamp is needed."), "{lamp}");
}

#[test]
fn the_approval_template_waits_for_a_person() {
    let sandbox = Sandbox::new();
    let ran = begun(&sandbox, "approval", 5);
    assert_eq!((&ran["end"], &ran["result"]), (&Value::Null, &json!({})), "{ran}");
    let seq = ran["questions"][0]["seq"].to_string();
    let approved = sandbox.run(&["approve", "last", &seq]).expect_exit(0);
    assert!(
        approved.stdout.starts_with("On Sunday the lighthouse is open to all"),
        "the result comes first: {}",
        approved.stdout
    );
    assert!(!approved.stdout.contains("\"draft\""), "the rest is told on request: {}", approved.stdout);
}

#[test]
fn nothing_is_written_over_and_templates_are_listed() {
    let sandbox = Sandbox::new();
    let listed = sandbox.run(&["init", "--list"]).expect_exit(0);
    assert_eq!(listed.stdout.lines().count(), 5, "{}", listed.stdout);
    let first = sandbox.run(&["init", "here"]).expect_exit(0);
    assert!(
        first.stdout.contains("patchboard run here/blueprint.yaml --request @here/request.json --scripted"),
        "{}",
        first.stdout
    );
    let again = sandbox.run(&["init", "here"]).expect_exit(2);
    assert!(again.stderr.contains("exists already"), "{}", again.stderr);
    let unknown = sandbox.run(&["init", "there", "--template", "map"]).expect_exit(2);
    assert!(unknown.stderr.contains("map-review"), "{}", unknown.stderr);
    let unscripted = sandbox.run(&["run", "notes.yaml", "--request", r#"{"topic": "x"}"#]).expect_exit(0);
    assert!(unscripted.stdout.contains("end      done"), "{}", unscripted.stdout);
}
