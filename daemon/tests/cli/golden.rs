//! Golden journals of all formats as an operator meets them: restored, replayed, verified and exported by the binary.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use patchboard_kernel::digest::sha256;
use serde_json::{Value, json};

use crate::sandbox::Sandbox;

#[test]
fn golden_journals_of_all_formats_are_restored_replayed_verified_and_exported() {
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let mut boards = 0;
    for format in fs::read_dir(formats).expect("the golden journals are there") {
        let (sandbox, format) = (Sandbox::new(), format.expect("a folder").path());
        // `restore` needs an existing journal.
        sandbox.run(&["run", "notes.yaml", "--request", r#"{"topic": "x"}"#]).expect_exit(0);
        let text = fs::read_to_string(format.join("expected.json")).expect("the expected facts are there");
        let expected: BTreeMap<String, Value> = serde_json::from_str(&text).expect("JSON");
        for (name, facts) in &expected {
            let archive = format.join(format!("{name}.jsonl"));
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
            boards += 1;
        }
    }
    assert!(boards >= 27, "{boards} boards were read");
}
