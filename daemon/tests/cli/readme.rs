//! Runs the README's first command.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::sandbox::CommandResult;

const README: &str = include_str!("../../../README.md");

/// Returns the arguments after `cargo run --` of the README's offline run.
fn arguments() -> Vec<&'static str> {
    let commands = README.lines().filter_map(|line| line.strip_prefix("cargo run -- "));
    let offline = commands.filter(|command| command.contains("--cassette")).collect::<Vec<_>>();
    assert_eq!(offline.len(), 1, "the README has one offline run");
    offline[0].split_whitespace().collect()
}

fn run(data_dir: &Path, arguments: &[&str]) -> CommandResult {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above");
    let output = Command::new(env!("CARGO_BIN_EXE_patchboard"))
        .current_dir(root)
        .arg("--data-dir")
        .arg(data_dir)
        .args(arguments)
        .env_remove("PATCHBOARD_DATA_DIR")
        .output()
        .expect("the binary can be run");
    CommandResult::from(output)
}

#[test]
fn the_main_job_runs_offline_as_the_readme_has_it() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let mut arguments = arguments();
    arguments.extend(["--output", "json"]);
    let result = run(directory.path(), &arguments).expect_exit(0).json();
    assert_eq!(result["end"], "done");
    let state = &result["state"];
    let (says, shown_by) = (&state["answer"]["says"], &state["answer"]["shown_by"]);
    let quoted: Vec<&str> = shown_by.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    // Birth year of the tale's author.
    assert_eq!(says, "1805");
    let says = says.as_str().expect("a text");
    for needed in
        ["The Little Mermaid is a fairy tale by Hans Christian Andersen.", "Hans Christian Andersen was a writer"]
    {
        assert!(quoted.iter().any(|claim| claim.starts_with(needed)), "{needed} is not among {quoted:?}");
    }
    assert!(quoted.iter().any(|claim| claim.contains(says)), "{quoted:?} shows {says}");
    let documents = state["request"]["documents"].as_array().expect("the request has documents");
    let sentences = documents.iter().flat_map(|document| document["sentences"].as_array().into_iter().flatten());
    let sentences: Vec<&Value> = sentences.collect();
    for claim in quoted {
        assert!(sentences.contains(&&Value::from(claim)), "nobody wrote {claim}");
    }
    assert_ne!(result["rejected"], 0, "refused attempts and their repairs are part of it: {result}");
    check_cost(directory.path(), &result);
    for reading in
        [&["replay", "last"][..], &["verify", "last"], &["why", "last", "/answer"], &["state", "last", "--at", "0"]]
    {
        run(directory.path(), reading).expect_exit(0);
    }
}

/// Checks that the costs add up, by worker and by part of the prompts, to the tokens that the run printed.
fn check_cost(directory: &Path, result: &Value) {
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} is a number"));
    let cost = run(directory, &["cost", "last", "--output", "json"]).expect_exit(0).json();
    let (board, tokens) = (&cost["tokens"], &result["tokens"]);
    assert_eq!(
        [&board["spent"], &board["prompt"], &board["cached"]],
        [&tokens["total"], &tokens["prompt"], &tokens["cached"]]
    );
    assert_eq!([&board["unanswered"], &board["reserved"], &cost["late"]], [&Value::from(0); 3]);
    let workers: Vec<&Value> = cost["workers"].as_object().expect("workers by name").values().collect();
    for part in ["calls", "spent", "prompt", "cached", "completion"] {
        assert_eq!(
            workers.iter().map(|worker| number(&worker[part])).sum::<u64>(),
            number(&board[part]),
            "{part}: {cost}"
        );
    }
    let prompts = cost["prompts"].as_object().expect("parts of prompts");
    assert_eq!(prompts.values().map(number).sum::<u64>(), number(&board["prompt"]), "{cost}");
    // The workers have no tools.
    assert!(prompts.iter().all(|(name, part)| (number(part) > 0) != (name == "tools")), "{cost}");
    // Every rejected attempt was retried; there are no conflicts.
    assert_eq!(board["retries"]["calls"], result["rejected"], "{cost}");
    let retried = number(&board["retries"]["tokens"]);
    assert!(retried > 0 && retried < number(&board["spent"]), "{cost}");
    let text = run(directory, &["cost", "last"]).expect_exit(0).stdout;
    let row = text.lines().find(|line| line.contains("(board)")).expect("a row for the board");
    assert!(text.contains("prompts: instructions ") && row.split_whitespace().count() == 9, "{text}");
}
