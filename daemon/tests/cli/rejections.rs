//! `patchboard rejections`: the counts of a board.

use serde_json::Value;

use crate::sandbox::Sandbox;

#[test]
fn rejections_are_counted_by_worker_stage_and_code() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["run", "notes.yaml", "--request", r#"{"topic":"x"}"#, "-q"]).code, 0);
    let ran = sandbox.run(&["rejections", "last", "--output", "json"]);
    let denials: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let rejected = sandbox.run(&["log", "last", "--rejected"]);
    let all: u64 = denials.as_array().expect("a list").iter().filter_map(|one| one["count"].as_u64()).sum();
    assert_eq!(all as usize, rejected.stdout.lines().filter(|line| line.contains("rejected")).count());
    assert_eq!(denials[0]["worker"], "writer", "{denials}");
    assert!(sandbox.run(&["denials", "last"]).stdout.contains("WORKER"));
}
