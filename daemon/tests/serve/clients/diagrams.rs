//! The parsers of Mermaid and Graphviz read the output of `patchboard graph` and find the graph of its JSON output.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::Client;

/// Time limit of the client.
const TIME: Duration = Duration::from_secs(120);

/// Paths with special characters of Mermaid, Graphviz, Markdown or HTML.
const NASTY: &str = r##"blueprint: 1
name: nasty
state:
  schema: {type: object}
  initial: {"x\"y\\z/<b>&amp;#35;`_*_`": 1, "": 2}
workers:
  a: {agent: llm, reads: ["/x\"y\\z~1<b>&amp;#35;`_*_`"], writes: [{path: "/end"}]}
  end: {agent: llm, reads: ["/**"], writes: [{path: "/end"}, {path: "/- 1. |x] --> n0"}, {path: "/"}, {path: "/<br~1>\\n; é"}]}
rules:
  - {name: "on", trigger: {signal: "go|\"x\""}, run: "end"}
  - {name: begin, trigger: start, run: "a"}
models: {default: x}
"##;

fn graph(blueprint: &Path, format: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_patchboard"));
    let ran = command.args(["graph", "-q", "--format", format]).arg(blueprint).output().expect("the binary can be run");
    assert!(ran.status.success(), "{}: {}", blueprint.display(), String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("it is text")
}

/// Returns the label of a node in a drawing.
fn label(graph: &Value, node: &Value) -> String {
    let (kind, name) = node.as_object().and_then(|node| node.iter().next()).unwrap_or_else(|| panic!("{node}"));
    let text = name.as_str().expect("a text");
    match (kind.as_str(), text) {
        ("place", "") => "the whole document".to_owned(),
        ("place", place) => match graph["contested"][place].as_array() {
            Some(writers) => format!("{place}\n{} writers", writers.len()),
            None => place.to_owned(),
        },
        (_, text) => text.to_owned(),
    }
}

/// Returns the graph that a parser must find in a drawing.
fn expected(graph: &Value) -> Value {
    let nodes = graph["nodes"].as_array().expect("nodes");
    let place = |node: &Value| format!("n{}", nodes.iter().position(|other| other == node).expect("it is a node"));
    let edge = |edge: &Value| {
        let ops = edge["ops"].as_array().map(|ops| ops.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "));
        let on = edge["on"].as_str().map(|on| format!("on {on}"));
        let wakes: Vec<String> = [on, edge["rule"].as_str().map(str::to_owned)].into_iter().flatten().collect();
        let label = match edge["kind"].as_str() {
            Some("asks") => "asks".to_owned(),
            Some("wakes") => wakes.join(": "),
            _ => {
                let condition = edge["where"].as_str().map(|condition| format!("where {condition}"));
                ops.filter(|_| edge["kind"] != "reads").into_iter().chain(condition).collect::<Vec<_>>().join(" ")
            }
        };
        json!([place(&edge["from"]), place(&edge["to"]), label])
    };
    json!({
        "nodes": nodes.iter().map(|node| match node {
            // The only node without a name.
            Value::String(_) => "files of the workspace".to_owned(),
            node => label(graph, node),
        }).collect::<Vec<_>>(),
        "edges": graph["edges"].as_array().expect("edges").iter().map(edge).collect::<Vec<_>>(),
        "marked": graph["contested"].as_object().expect("places").len(),
    })
}

#[test]
#[ignore = "full tier: packages from registries"]
fn their_parsers_read_every_drawing_as_it_was_meant() {
    let Some(client) = Client::find("diagrams") else { return };
    let directory = tempfile::tempdir().expect("a directory can be made");
    let nasty = directory.path().join("nasty.yaml");
    fs::write(&nasty, NASTY).expect("a file can be written");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../blueprints");
    let files = fs::read_dir(shipped).expect("blueprints are shipped").map(|file| file.expect("an entry").path());
    let mut blueprints: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|it| it == "yaml")).collect();
    assert!(blueprints.len() >= 5, "{blueprints:?}");
    blueprints.push(nasty);
    let (mut drawings, mut meant) = (Vec::new(), Vec::new());
    for (number, blueprint) in blueprints.iter().enumerate() {
        let graph_json: Value = serde_json::from_str(&graph(blueprint, "json")).expect("JSON");
        for (format, ending) in [("mermaid", "mmd"), ("dot", "dot")] {
            let path = directory.path().join(format!("{number}.{ending}"));
            fs::write(&path, graph(blueprint, format)).expect("a file can be written");
            drawings.push(path.to_str().expect("the path is text").to_owned());
            meant.push(expected(&graph_json));
        }
    }
    let paths: Vec<&str> = drawings.iter().map(String::as_str).collect();
    let read: Vec<Value> = serde_json::from_str(&client.run("diagrams.mjs", &paths, TIME)).expect("JSON");
    assert_eq!(read.len(), meant.len());
    for ((read, meant), path) in read.iter().zip(&meant).zip(&paths) {
        assert_eq!(read, meant, "{path}");
    }
}
