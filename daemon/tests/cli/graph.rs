//! `patchboard graph`, and the lint that each field has one writer.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::sandbox::{NOTES, Sandbox};

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../blueprints")
}

fn graph(sandbox: &Sandbox, more: &[&str]) -> Value {
    sandbox.run(&[&["graph", "notes.yaml", "--output", "json"], more].concat()).expect_exit(0).json()
}

/// Returns the edges of a kind as `from to`.
fn edges(graph: &Value, kind: &str) -> Vec<String> {
    let name = |node: &Value| {
        node.as_object().and_then(|node| node.values().next()).unwrap_or(node).as_str().unwrap_or_default().to_owned()
    };
    let edges = graph["edges"].as_array().expect("edges").iter().filter(|edge| edge["kind"] == kind);
    edges.map(|edge| format!("{} {}", name(&edge["from"]), name(&edge["to"]))).collect()
}

#[test]
fn the_declarations_of_a_shipped_blueprint_are_its_graph() {
    let path = shipped().join("evidence-review.yaml");
    let path = path.to_str().expect("the path is text");
    let drawn = Sandbox::new().run(&["graph", path, "--format", "json"]).expect_exit(0).json();
    let drawn = serde_json::to_string_pretty(&drawn).expect("JSON");
    insta::assert_snapshot!("evidence_review", drawn);
}

#[test]
fn every_shipped_blueprint_is_drawn_in_every_notation_and_always_the_same() {
    let sandbox = Sandbox::new();
    let files = fs::read_dir(shipped()).expect("blueprints are shipped").map(|file| file.expect("an entry").path());
    let blueprints: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|it| it == "yaml")).collect();
    assert!(blueprints.len() >= 5);
    for path in &blueprints {
        let path = path.to_str().expect("the path is text");
        for more in [&["--format", "mermaid"][..], &["--format", "dot"], &["--format", "json"], &["--flow"]] {
            let draw = || sandbox.run(&[&["graph", "-q", path], more].concat()).expect_exit(0).stdout;
            let drawn = draw();
            assert!(drawn.lines().count() > usize::from(more[1..] != ["json"]), "{path} {more:?}: {drawn}");
            assert_eq!(draw(), drawn, "{path}");
        }
    }
}

#[test]
fn graph_edges_lead_from_an_append_to_readers_of_the_array() {
    let drawn = graph(&Sandbox::new(), &[]);
    assert_eq!(edges(&drawn, "reads"), ["/notes checker", "/notes writer", "/request writer"]);
    assert_eq!(edges(&drawn, "writes"), ["checker /answer", "checker /notes/*/status", "writer /notes/-"]);
    assert_eq!(edges(&drawn, "wakes"), ["start writer", "/notes/* checker"]);
    let shown: BTreeSet<String> = edges(&drawn, "shows_in").into_iter().collect();
    let expected = ["/notes/*/status /notes", "/notes/- /notes", "/notes/- /notes/*"].map(str::to_owned);
    assert_eq!(shown, expected.into_iter().collect());
    assert_eq!(drawn["writers"], "many");
}

#[test]
fn the_flow_and_the_neighbourhood_leave_the_rest_out() {
    let sandbox = Sandbox::new();
    let flow = graph(&sandbox, &["--flow"]);
    let feed = |from: &str, to: &str, place: &str| json!({"from": from, "to": to, "places": [place]});
    let (forth, back) = (feed("writer", "checker", "/notes/-"), feed("checker", "writer", "/notes/*/status"));
    assert_eq!(flow["feeds"], json!([back, forth]));
    let around = graph(&sandbox, &["--worker", "writer"]);
    assert!(!around.to_string().contains("/answer"), "{around}");
    assert_eq!(edges(&around, "writes"), ["checker /notes/*/status", "writer /notes/-"]);
    let refused =
        sandbox.run(&["graph", "notes.yaml", "--worker", "nobody", "--output", "json"]).expect_exit(2).error();
    assert_eq!((&refused["code"], &refused["workers"]), (&json!("no_such_worker"), &json!(["checker", "writer"])));
}

#[test]
fn a_blueprint_with_errors_is_rejected_as_by_check() {
    let sandbox = Sandbox::new();
    sandbox.write("bad.yaml", NOTES.replace("run: checker", "run: chekcer"));
    let ran = sandbox.run(&["graph", "bad.yaml"]).expect_exit(2);
    assert!(ran.stdout.is_empty() && ran.stderr.contains("error[undeclared_worker]"), "{}", ran.stderr);
    let error = sandbox.run(&["graph", "bad.yaml", "--output", "json"]).expect_exit(2).error();
    assert_eq!(
        (&error["code"], &error["findings"][0]["code"]),
        (&json!("blueprint_refused"), &json!("undeclared_worker"))
    );
    sandbox.run(&["graph", "notes.yaml", "--format", "dot", "--output", "json"]).expect_exit(2);
}

#[test]
fn a_department_is_drawn_by_its_roles() {
    let sandbox = Sandbox::new();
    let path = shipped().join("clipboard.yaml");
    let path = path.to_str().expect("the path is text");
    let draw = |board: &str| sandbox.run(&["graph", path, "--board", board, "--output", "json"]);
    let drawn = draw("notes").expect_exit(0).json();
    let (reads, writes) = (edges(&drawn, "reads"), edges(&drawn, "writes"));
    assert!(writes.contains(&"classify /classified".to_owned()), "{writes:?}");
    assert!(reads.contains(&"/request/text classify".to_owned()), "{reads:?}");
    assert!(!reads.contains(&"/request/text crud".to_owned()), "{reads:?}");
    let refused = draw("weather").expect_exit(2).stderr;
    assert!(refused.contains("no_such_board") && refused.contains("there are notes, timeline"), "{refused}");
}

#[test]
fn a_second_writer_is_marked_and_an_error_where_one_is_allowed() {
    let sandbox = Sandbox::new();
    let appending = "writes: [{path: /notes/-, ops: [add], value: {properties: {status: {const: draft}}}}]";
    assert!(NOTES.contains(appending));
    // Both may append, and only one sets the status.
    let both = NOTES.replace("{path: /answer, ops: [add, replace]}]", "{path: /answer}, {path: /notes/-, ops: [add]}]");
    assert_ne!(both, NOTES);
    sandbox.write("one.yaml", format!("{both}writers: one\n"));
    sandbox.run(&["check", "one.yaml"]).expect_exit(0);
    // A grant for a single value counts, too.
    let guarded = appending.replace("}}}}]", "}}}}, {path: /answer, ops: [add], value: {const: ok}}]");
    let second = both.replace(appending, &guarded);
    assert_ne!(second, both);
    sandbox.write("many.yaml", &second);
    sandbox.run(&["check", "many.yaml"]).expect_exit(0);
    let drawn = sandbox.run(&["graph", "-q", "many.yaml", "--format", "json"]).expect_exit(0).json();
    assert_eq!(drawn["contested"], json!({"/answer": ["checker", "writer"]}));
    let mermaid = sandbox.run(&["graph", "-q", "many.yaml"]).expect_exit(0).stdout;
    assert_eq!(mermaid.matches(":::contested").count(), 1, "{mermaid}");
    sandbox.write("one.yaml", format!("{second}writers: one\n"));
    let found = sandbox.run(&["check", "one.yaml", "--output", "json"]).expect_exit(2).json();
    assert_eq!((&found["errors"], &found["findings"][0]["code"]), (&json!(1), &json!("second_writer")));
}
