//! Runs the JSON-Schema test suite, draft 2020-12, through the kernel's schemas.
//!
//! A group of the suite is a schema with instances and their verdicts. Some groups refer to documents on the suite's
//! own server, or use dialects of their own. Those are rejected here by design, and every rejection must give this
//! reason.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use patchboard_kernel::schema::Schema;
use serde_json::Value;

use crate::shared;

const SUITE: &str = "vectors/json-schema-test-suite/tests/draft2020-12";

/// Results of running some files of the suite.
#[derive(Default)]
struct Tally {
    cases: usize,
    /// Rejected groups by file.
    refused: BTreeMap<String, Vec<String>>,
    /// Wrong verdicts as `file: group: case`, with the expected verdict.
    wrong: Vec<String>,
}

#[test]
fn every_verdict_of_the_required_suite_is_the_expected_one() {
    let Some(tally) = run("", false) else { return };
    tally.report("required", 1200);
    assert_eq!(tally.wrong, Vec::<String>::new());
    tally.assert_refusals(&[("dynamicRef.json", 5), ("refRemote.json", 15), ("vocabulary.json", 2)]);
}

#[test]
fn every_verdict_of_the_optional_suite_is_the_expected_one() {
    let Some(tally) = run("optional", false) else { return };
    tally.report("optional", 150);
    assert_eq!(tally.wrong, Vec::<String>::new());
    tally.assert_refusals(&[("cross-draft.json", 1), ("format-assertion.json", 2)]);
}

#[test]
fn every_verdict_on_asserted_formats_is_the_expected_one() {
    let Some(tally) = run("optional/format", true) else { return };
    tally.report("optional/format", 600);
    assert_eq!(tally.wrong, Vec::<String>::new());
    // Unicode tables for them are not built in, and an asserted but unchecked format would mislead users.
    tally.assert_refusals(&[("idn-email.json", 1), ("idn-hostname.json", 2)]);
}

impl Tally {
    fn report(&self, name: &str, at_least: usize) {
        let groups = self.refused.values().map(Vec::len).sum::<usize>();
        // A closed terminal must not fail the test.
        let _ = writeln!(
            std::io::stderr(),
            "JSON-Schema suite, {name}: {} right, {} wrong, {groups} groups refused {:?}",
            self.cases - self.wrong.len(),
            self.wrong.len(),
            self.refused.iter().map(|(file, groups)| (file.as_str(), groups.len())).collect::<Vec<_>>(),
        );
        shared::ran(&format!("JSON-Schema suite, {name}"), self.cases, at_least);
    }

    /// Checks that exactly these numbers of groups are rejected, each for one of the expected reasons.
    fn assert_refusals(&self, expected: &[(&str, usize)]) {
        for said in self.refused.values().flatten() {
            let remote = said.contains("leads nowhere in this document") && said.contains("/$ref: ");
            let reasons = [remote, said.contains("is no dialect known here"), said.contains("cannot be asserted")];
            assert!(reasons.contains(&true), "{said}");
        }
        let refused = self.refused.iter().map(|(file, groups)| (file.as_str(), groups.len())).collect::<Vec<_>>();
        assert_eq!(refused, expected, "{:#?}", self.refused);
    }
}

/// Runs the files directly in a directory of the suite.
fn run(directory: &str, assert_formats: bool) -> Option<Tally> {
    let directory = shared::find(&format!("{SUITE}/{directory}"))?;
    let mut tally = Tally::default();
    for path in shared::files_in(&directory) {
        run_file(&path, assert_formats, &mut tally);
    }
    Some(tally)
}

fn run_file(path: &Path, assert_formats: bool, tally: &mut Tally) {
    let file = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
    let text = std::fs::read(path).expect("a file that was listed can be read");
    let groups: Vec<Value> = serde_json::from_slice(&text).expect("the suite is JSON");
    for group in groups {
        let described = group["description"].as_str().expect("every group is described");
        let schema = match Schema::compile(&group["schema"], assert_formats) {
            Ok(schema) => schema,
            Err(error) => {
                tally.refused.entry(file.clone()).or_default().push(format!("{described}: {}: {error}", error.pointer));
                continue;
            }
        };
        for case in group["tests"].as_array().expect("every group has cases") {
            tally.cases += 1;
            let (data, expected) = (&case["data"], case["valid"].as_bool().expect("a verdict"));
            let violations = schema.violations(data, 20);
            if schema.is_valid(data) != expected || violations.is_empty() != expected {
                tally.wrong.push(format!("{file}: {described}: {}: should be {expected}", case["description"]));
            }
        }
    }
}
