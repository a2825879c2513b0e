//! Golden journals of all formats as an operator meets them: restored, replayed, verified and exported by the binary.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use patchboard_kernel::digest::sha256;
use serde_json::{Value, json};

use crate::sandbox::Sandbox;

/// The quick tier checks one of so many journals of an earlier format: others in each format, so that every board of
/// eight formats is checked in one of them. `tests/it/golden` reads a quarter of them, in one process.
const EVERY: usize = 8;

#[test]
fn golden_journals_are_restored_replayed_verified_and_exported() {
    let boards = check(|age, name| age == 0 || (age + name.bytes().map(usize::from).sum::<usize>()) % EVERY == 0);
    assert!(boards >= 80, "{boards} boards were read");
}

#[test]
#[ignore = "full tier: four processes for each of some 400 journals"]
fn all_golden_journals_are_restored_replayed_verified_and_exported() {
    let boards = check(|_, _| true);
    assert!(boards >= 420, "{boards} boards were read");
}

/// Checks the boards that are chosen by the age of their format and their names; returns their number.
fn check(is_chosen: impl Fn(usize, &str) -> bool) -> usize {
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let formats = fs::read_dir(formats).expect("the golden journals are there");
    let number = |path: &Path| path.to_str()?.rsplit_once('-')?.1.parse::<u32>().ok();
    let mut formats: Vec<PathBuf> = formats.map(|format| format.expect("a folder").path()).collect();
    formats.sort_by_key(|path| Reverse(number(path)));
    let mut boards = 0;
    for (age, format) in formats.iter().enumerate() {
        let sandbox = Sandbox::new();
        // `restore` needs an existing journal.
        sandbox.run(&["run", "notes.yaml", "--request", r#"{"topic": "x"}"#]).expect_exit(0);
        let text = fs::read_to_string(format.join("expected.json")).expect("the expected facts are there");
        let expected: BTreeMap<String, Value> = serde_json::from_str(&text).expect("JSON");
        for (name, facts) in expected.iter().filter(|(name, _)| is_chosen(age, name)) {
            check_board(&sandbox, &format.join(format!("{name}.jsonl")), facts);
            boards += 1;
        }
    }
    boards
}

fn check_board(sandbox: &Sandbox, archive: &Path, facts: &Value) {
    let name = archive.display();
    sandbox.run(&["restore", archive.to_str().expect("a path")]).expect_exit(0);
    let asked = |command| {
        let board = facts["board"].as_str().expect("an id");
        sandbox.run(&["--output", "json", command, board]).expect_exit(0)
    };
    let (replayed, verified, exported) = (asked("replay").json(), asked("verify").json(), asked("export"));
    let records = &facts["replay"]["records"];
    assert_eq!((&replayed["ok"], &replayed["records"]), (&json!(true), records), "{name}: {replayed}");
    assert_eq!((&verified["ok"], &verified["records"]), (&json!(true), records), "{name}: {verified}");
    assert_eq!(verified["head"], json!({"seq": facts["seq"], "hash": facts["hash"]}), "{name}");
    let export = json!({"bytes": exported.stdout.len(), "sha256": sha256(exported.stdout.as_bytes())});
    assert_eq!(export, facts["export"], "{name}: other bytes are exported");
}
