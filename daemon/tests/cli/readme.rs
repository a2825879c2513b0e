//! The README's first command, run as it stands there.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::sandbox::Ran;

const README: &str = include_str!("../../../README.md");

/// The arguments behind `cargo run --` of the README's offline run.
fn arguments() -> Vec<&'static str> {
    let commands = README.lines().filter_map(|line| line.strip_prefix("cargo run -- "));
    let offline = commands.filter(|command| command.contains("--cassette")).collect::<Vec<_>>();
    assert_eq!(offline.len(), 1, "the README has one offline run");
    offline[0].split_whitespace().collect()
}

fn run(data_dir: &Path, arguments: &[&str]) -> Ran {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above");
    let output = Command::new(env!("CARGO_BIN_EXE_patchboard"))
        .current_dir(root)
        .arg("--data-dir")
        .arg(data_dir)
        .args(arguments)
        .env_remove("PATCHBOARD_DATA_DIR")
        .output()
        .expect("the binary can be run");
    Ran::from(output)
}

#[test]
fn the_main_job_runs_offline_as_the_readme_has_it() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let mut arguments = arguments();
    arguments.extend(["--output", "json"]);
    let result = run(directory.path(), &arguments).exits(0).json();
    assert_eq!(result["end"], "done");
    let state = &result["state"];
    let cited = state["answer"]["rests_on"].as_array().expect("an answer names its claims");
    assert!(!cited.is_empty(), "the recorded answer rests on claims: {}", state["answer"]);
    let documents = state["request"]["documents"].as_array().expect("the request has documents");
    let sentences = documents.iter().flat_map(|document| document["sentences"].as_array().into_iter().flatten());
    let sentences: Vec<&Value> = sentences.collect();
    for index in cited {
        let index = index.as_u64().and_then(|index| usize::try_from(index).ok()).expect("an index");
        let claim = &state["verified"][index];
        assert!(sentences.contains(&claim), "nobody wrote {claim}");
    }
    assert_ne!(result["rejected"], 0, "refused attempts and their repairs are part of it: {result}");
    for reading in
        [&["replay", "last"][..], &["verify", "last"], &["why", "last", "/answer"], &["state", "last", "--at", "0"]]
    {
        run(directory.path(), reading).exits(0);
    }
}
