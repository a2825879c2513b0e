//! Proves that the checks of golden journals fail if a journal was altered.

use std::collections::BTreeMap;
use std::fs;

use patchboard_kernel::digest::sha256;
use patchboard_kernel::record::FORMAT;
use serde_json::{Value, json};

use super::expected_of;
use super::store::{self, Golden};

/// Alteration of an archive's lines, without the last one.
type Alters = fn(&mut Vec<Value>);

/// Changes a value of a payload.
fn value(lines: &mut [Value]) {
    let payload = payload(lines, "created");
    *payload = json!(payload.as_str().expect("a text").replacen("\"name\":\"", "\"name\":\"x", 1));
}

/// Changes the time of a record.
fn column(lines: &mut [Value]) {
    let at = &mut lines[1]["record"]["at"];
    *at = json!(at.as_i64().expect("a time") + 1);
}

/// Changes a header.
fn header(lines: &mut [Value]) {
    let header = &mut lines[1]["record"]["header"];
    *header = json!(header.as_str().expect("a text").replacen("\"seq\":0", "\"seq\": 0", 1));
}

/// Removes the last record, and moves the archive's stated end to match.
fn end(lines: &mut Vec<Value>) {
    let last = lines.iter().rposition(|line| line.get("record").is_some()).expect("records");
    lines.remove(last);
    let (seq, hash) = (lines[last - 1]["record"]["seq"].clone(), lines[last - 1]["record"]["hash"].clone());
    (lines[0]["archive"]["seq"], lines[0]["archive"]["hash"]) = (seq, hash);
}

/// Removes a text that a record names; without one, changes a value.
fn text(lines: &mut Vec<Value>) {
    if let Some(at) = lines.iter().position(|line| line.get("text").is_some()) {
        lines.remove(at);
    } else {
        value(lines);
    }
}

fn payload<'a>(lines: &'a mut [Value], kind: &str) -> &'a mut Value {
    let line = lines.iter_mut().find(|line| line["record"]["kind"] == kind).expect("a record of the kind");
    &mut line["record"]["payload"]
}

/// Writes a golden journal with an alteration into a directory of its own. The archive is sealed again, as by a forger.
fn altered(golden: &Golden, directory: &std::path::Path, alters: Alters) -> Golden {
    let text = fs::read_to_string(&golden.archive).expect("an archive");
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    lines.pop();
    alters(&mut lines);
    let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    text += &format!("{}\n", json!({"end": sha256(text.as_bytes())}));
    let archive = directory.join(format!("{}.jsonl", golden.name));
    fs::write(&archive, text).expect("written");
    Golden { archive, ..golden.clone() }
}

#[test]
fn an_altered_golden_journal_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let golden: Vec<Golden> = store::formats().iter().flat_map(|format| store::read(format)).collect();
    // Checking all of them would take minutes. The small ones cover all kinds; two of each earlier format are enough.
    let small = golden.iter().filter(|golden| golden.expected.export.bytes < 40_000);
    let mut earlier = BTreeMap::new();
    let small: Vec<&Golden> = small
        .filter(|golden| {
            let count = earlier.entry(golden.expected.format).or_insert(0);
            *count += 1;
            golden.expected.format == FORMAT || *count <= 2
        })
        .collect();
    assert!(small.len() >= 8 + 2 * (store::formats().len() - 1), "{} golden journals are small", small.len());
    for golden in &small {
        expected_of(&altered(golden, directory.path(), |_| {})).unwrap_or_else(|why| panic!("{}: {why}", golden.name));
        let alterations: [(&str, Alters); 5] = [
            ("value", |it| value(it)),
            ("column", |it| column(it)),
            ("header", |it| header(it)),
            ("end", end),
            ("text", text),
        ];
        for (what, alters) in alterations {
            let found = expected_of(&altered(golden, directory.path(), alters));
            let Err(why) = found else { panic!("{}: another {what} is not found", golden.name) };
            // The journal itself reveals every alteration, except for a cut end and for values with a destroyed salt.
            let shows = what != "end" && !(what == "value" && golden.expected.verify.is_salt_gone);
            assert!(!shows || !why.starts_with("found "), "{}: another {what}: {why}", golden.name);
        }
        let (mut state, mut export) = ((*golden).clone(), (*golden).clone());
        state.expected.state = sha256(b"another");
        export.expected.export.sha256 = sha256(b"another");
        assert!(expected_of(&state).is_err() && expected_of(&export).is_err(), "{}", golden.name);
    }
}

#[test]
fn an_altered_part_of_a_snapshot_is_found() {
    for mut golden in store::formats().iter().flat_map(|format| store::read(format)) {
        if let Some(part) = golden.parts.last_mut() {
            part.text = format!("{} ", part.text).into();
            let found = expected_of(&golden);
            assert!(found.is_err(), "{}: another part is not found", golden.name);
        }
    }
}
