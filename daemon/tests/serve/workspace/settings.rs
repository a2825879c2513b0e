//! The operator's settings for a directory in its `patchboard.toml`, and the right to change them.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Agent, command, directory, journal, lives, until};

fn says(directory: &Path, settings: &str) {
    std::fs::write(directory.join("patchboard.toml"), settings).expect("a file");
}

/// Returns an edit of `a.py` without an intent.
fn replaces(from: &str, to: &str) -> Value {
    json!({"path": "a.py", "old_str": from, "new_str": to})
}

#[test]
fn exclusions_of_the_operator_hold_and_agents_cannot_change_them() {
    let directory = directory();
    let path = directory.path();
    // No pattern may expose the settings file: agents could then decide what they see.
    says(
        path,
        "[workspace]\nexclude = [\"secrets/\", \"!patchboard.toml\", \"!/[p]atchboard.toml\"]\nmax_bytes = 2000000\n",
    );
    std::fs::create_dir(path.join("secrets")).expect("a directory");
    std::fs::write(path.join("secrets/key.txt"), "key\n").expect("a file");
    std::fs::write(path.join("large.txt"), "x\n".repeat(900_000)).expect("a file");
    std::fs::create_dir(path.join("part")).expect("a directory");
    std::fs::write(path.join("part/patchboard.toml"), "of another\n").expect("a file");
    let mut agent = Agent::new(path, "t", &[]);
    for file in ["secrets/key.txt", "patchboard.toml", "Patchboard.toml", "patchboard.toml/x"] {
        let text = agent.refuses("not_served", "view", &json!({"path": file}));
        assert!(text.contains("excluded by the operator"), "{file}: {text}");
        agent.refuses("not_served", "create", &json!({"path": file, "file_text": "\n", "intent": "to have it"}));
        let rename = json!({"path": "a.py", "new_path": file, "intent": "to have it"});
        agent.does("view", &json!({"path": "a.py"}));
        agent.refuses("not_served", "rename", &rename);
    }
    agent.refuses("not_served", "delete", &json!({"path": "patchboard.toml", "intent": "to see all"}));
    let list = agent.does("list", &json!({}));
    let names = ["a.py", "large.txt", "part/patchboard.toml", "secrets"].map(|name| list.contains(name));
    assert_eq!(names, [true, true, true, false], "{list}");
    assert!(!list.lines().any(|line| line.trim_start().starts_with("patchboard.toml")), "{list}");
    assert!(agent.does("search", &json!({"pattern": "of another"})).contains("part/patchboard.toml"));
    assert!(agent.does("search", &json!({"pattern": "max_bytes"})).contains("No line matches"));
    assert!(agent.does("view", &json!({"path": "large.txt", "view_range": [1, 2]})).contains('x'));
    assert!(agent.does("view", &json!({"path": "part/patchboard.toml"})).contains("of another"));
    agent.leaves();
}

#[test]
fn edit_settings_apply_to_all_agents_until_the_host_ends() {
    let directory = directory();
    let path = directory.path();
    let code = || std::fs::read_to_string(path.join("a.py")).expect("a file");
    says(path, "[workspace]\nannotate = false\ngranularity = \"file\"\nintent = \"optional\"\n");
    let (mut one, mut two) = (Agent::new(path, "t", &[]), Agent::new(path, "t", &[]));
    let tools = one.ask("tools/list", &json!({}))["result"]["tools"].to_string();
    assert!(!tools.contains("\"intent\"]"), "an intent is demanded: {tools}");
    let whole = json!({"path": "a.py"});
    one.does("view", &json!({"path": "a.py", "view_range": [2, 2]}));
    two.does("view", &whole);
    two.does("str_replace", &replaces("def one", "def two"));
    // The agent's other lines in the file are stale.
    one.refuses("stale_target", "str_replace", &replaces("return 1", "return 2"));
    one.does("view", &whole);
    let with_intent = json!({"path": "a.py", "old_str": "return 1", "new_str": "return 2", "intent": "to have two"});
    one.does("str_replace", &with_intent);
    assert_eq!(code(), "def two():\n    return 2\n", "there are no comments");
    assert!(journal(path, &["log", "last"]).contains("to have two"));
    // Clients already connected keep their settings.
    says(path, "");
    let mut three = Agent::new(path, "t", &[]);
    three.does("view", &whole);
    three.does("str_replace", &replaces("return 2", "return 3"));
    let host = super::host(path);
    for agent in [one, two, three] {
        agent.leaves();
    }
    until("the host stays", || !lives(host));
    let mut next = Agent::new(path, "t", &[]);
    next.does("view", &whole);
    next.refuses("intent_missing", "str_replace", &replaces("return 3", "return 4"));
    next.does("str_replace", &Agent::replaces("return 3", "return 4"));
    assert!(code().contains("    # t-1: from return-3 to return-4\n"), "{}", code());
    next.leaves();
    journal(path, &["verify", "last"]);
}

#[test]
fn invalid_settings_are_reported_to_the_agent_and_used_once_corrected() {
    let directory = directory();
    let path = directory.path();
    let mut agent = Agent::new(path, "t", &[]);
    for (settings, parts) in [
        ("[workspace]\nanotate = false\n", ["line 2", "annotate"]),
        ("[workspace]\nexclude = [\"{a,b\"]\n", ["line 2", "{a,b"]),
        ("\n[workspace]\nmax_bytes = 0\n", ["line 3", "above zero"]),
        ("[workspace]\ngranularity = \"word\"\n", ["line 2", "lines"]),
        ("[workspaec]\n", ["line 1", "workspace"]),
    ] {
        says(path, settings);
        let answer = agent.ask("tools/call", &json!({"name": "list", "arguments": {}}));
        let answer = &answer["result"]["structuredContent"];
        assert_eq!(answer["code"], "bad_config", "{settings}: {answer}");
        let message = answer["message"].as_str().expect("a message");
        assert!(message.contains("patchboard.toml") && parts.iter().all(|part| message.contains(part)), "{answer}");
        assert!(answer["help"].as_str().is_some_and(|help| help.contains("not served")), "{answer}");
    }
    says(path, "[workspace]\nannotate = true\n");
    assert!(agent.does("list", &json!({})).contains("a.py"));
    agent.leaves();
    // A configuration file of one agent would apply to all others.
    let mut with = command(path, &["--config", "patchboard.toml"]);
    let output = with.stdin(Stdio::null()).output().expect("the binary can be run");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{text}");
    assert!(text.contains("--config") && text.contains("[workspace]"), "{text}");
}
