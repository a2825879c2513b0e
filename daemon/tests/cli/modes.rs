//! `patchboard run --ablate` and `--system`: a run in every mode, with a deterministic model.

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use serde_json::{Value, json};

use crate::sandbox::{Sandbox, notes_by};

const REQUEST: &str = r#"{"topic":"x"}"#;

/// Starts a chat endpoint that recognises the four prompt formats and answers as the writer in each.
fn endpoint() -> Endpoint {
    Endpoint::serving(|request| ScriptedResponse::answer(&reply(request), 100, 10))
}

fn reply(request: &Value) -> String {
    let text = |nth: usize| request["messages"][nth]["content"].as_str().unwrap_or_default();
    let (system, view) = (text(0), text(1));
    let kind = &request["response_format"]["json_schema"]["schema"];
    let note = json!({"text": "first", "status": "draft"});
    if system.contains("Answer with that whole object") {
        assert_eq!(*kind, json!({"type": "object"}));
        let shown = view.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut object = shown.expect("the view shows an object");
        object["notes"] = json!([note]);
        object.to_string()
    } else if system.contains("RFC 7396") {
        assert_eq!(*kind, json!({"type": "object"}));
        json!({"/notes/-": note}).to_string()
    } else if system.contains("one blackboard that everybody reads") {
        assert_eq!(*kind, Value::Null, "words have no schema");
        format!("Here is a note.\n/notes/-: {note}")
    } else {
        json!({"patch": [{"op": "add", "path": "/notes/-", "value": note}]}).to_string()
    }
}

/// Returns a directory with the notes, written by a model and checked by a script.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("model.yaml", notes_by("llm", ""));
    sandbox
}

#[test]
fn a_blueprint_runs_in_every_mode_and_the_mode_is_reported_and_kept() {
    let Endpoint { url, .. } = &endpoint();
    for (arguments, mode, shown) in [
        (&[][..], json!({"system": "patchboard"}), None),
        (&["--ablate", "patch"], json!({"system": "patchboard", "ablate": ["patch"]}), Some("without patch")),
        (&["--ablate", "schema"], json!({"system": "patchboard", "ablate": ["schema"]}), Some("without schema")),
        (
            &["--system", "patchboard", "--ablate", "patch"],
            json!({"system": "patchboard", "ablate": ["patch"]}),
            Some("without patch"),
        ),
        (
            &["--ablate", "contracts"],
            json!({"system": "patchboard", "ablate": ["contracts"]}),
            Some("without contracts"),
        ),
        (&["--ablate", "slicing"], json!({"system": "patchboard", "ablate": ["slicing"]}), Some("without slicing")),
        (&["--ablate", "feedback"], json!({"system": "patchboard", "ablate": ["feedback"]}), Some("without feedback")),
        (
            &["--ablate", "slicing,patch", "--ablate", "contracts,schema,feedback"],
            json!({"system": "patchboard", "ablate": ["patch", "schema", "contracts", "slicing", "feedback"]}),
            Some("without patch, schema, contracts, slicing, feedback"),
        ),
        (&["--system", "structured"], json!({"system": "structured"}), Some("as structured")),
        (&["--system", "plain"], json!({"system": "plain"}), Some("as plain")),
    ] {
        let sandbox = sandbox();
        let run = ["run", "model.yaml", "-r", REQUEST, "--model-url", url, "--model", "m", "--output", "json", "-q"];
        let result = sandbox.run(&[&run, arguments].concat()).expect_exit(0).json();
        assert_eq!((&result["state"]["answer"], &result["mode"]), (&json!("ok"), &mode));
        assert_eq!(result["state"]["notes"], json!([{"text": "first", "status": "checked"}]), "{mode}");
        assert_eq!(result["tokens"]["total"], 110, "{mode}: one call of the model");
        let boards = sandbox.run(&["boards", "--output", "json"]).expect_exit(0).json();
        assert_eq!(boards["mode"], mode);
        let log = sandbox.run(&["log", "last"]).expect_exit(0).stdout;
        assert_eq!(log.contains(", as "), shown.is_some(), "{log}");
        assert!(shown.is_none_or(|shown| log.contains(shown)), "{log}");
        for check in ["replay", "verify"] {
            sandbox.run(&[check, "last"]).expect_exit(0);
        }
        // The worker's replies are validated with the schema that the model got.
        let schema = sandbox.run(&["view", "last", "writer", "--schema", "--output", "json"]);
        let is_whole = arguments == ["--ablate", "patch"] || arguments == ["--system", "structured"];
        match arguments {
            ["--system", "plain"] => assert_eq!(schema.expect_exit(2).error()["code"], "no_schema"),
            _ => assert_eq!(
                schema.expect_exit(0).json() == json!({"type": "object"}),
                is_whole || arguments.len() == 4,
                "{mode}"
            ),
        }
    }
}

#[test]
fn a_board_that_is_taken_up_again_keeps_its_mode() {
    let Endpoint { url, .. } = &endpoint();
    let sandbox = sandbox();
    // No worker is triggered at first: the board waits for its signal.
    let blueprint = std::fs::read_to_string(sandbox.path().join("model.yaml")).expect("it was written");
    sandbox.write("model.yaml", blueprint.replace("trigger: start", "trigger: {signal: go}"));
    let seats = ["--model-url", url, "--model", "m", "-q"];
    sandbox.run(&[&["run", "model.yaml", "-r", REQUEST, "--system", "plain"][..], &seats].concat()).expect_exit(4);
    let signalled = sandbox.run(&[&["signal", "last", "go", "--output", "json"][..], &seats].concat());
    let state = sandbox.run(&["state", "last", "--output", "json"]).expect_exit(0).json();
    assert_eq!(state["state"]["answer"], "ok", "{} {}", signalled.stdout, signalled.stderr);
    assert_eq!(state["state"]["$messages"][0]["from"], "writer");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn invalid_ablations_are_rejected_and_help_lists_the_parts() {
    let sandbox = Sandbox::new();
    let run = |more: &[&str]| sandbox.run(&[&["run", "notes.yaml", "-r", REQUEST][..], more].concat());
    for wrong in [&["--ablate", "journal"][..], &["--system", "other"], &["--system", "plain", "--ablate", "patch"]] {
        run(wrong).expect_exit(2);
    }
    let help = sandbox.run(&["run", "--help"]).expect_exit(0).stdout;
    assert!(help.contains("did not agree") && help.contains("--approve without a terminal"), "{help}");
    for part in ["patch:", "schema:", "contracts:", "slicing:", "feedback:", "plain:", "structured:"] {
        assert!(help.contains(part), "{part} is not in:\n{help}");
    }
    // Workers without a language model keep patches and contracts.
    let ran = run(&["--ablate", "patch,contracts", "--output", "json"]).expect_exit(0).json();
    assert_eq!((&ran["rejected"], &ran["state"]["answer"]), (&json!(1), &json!("ok")));
}
