//! Runs the tests of departments: compares the tests of a manifest with the results of its roles.

use patchboard_kernel::text::truncated;
use patchboard_lint::source::Source;
use patchboard_lint::{Diagnostic, Severity};
use patchboard_protocols::department::Manifest;
use patchboard_roles::departments::declared_tests;
use serde_json::Value;

/// Runs the tests of a manifest. Returns their number and a finding for each mismatch; other texts have no tests.
pub(crate) fn run(name: &str, text: &str) -> (usize, Vec<Diagnostic>) {
    let is_manifest = name.rsplit('/').next() == Some("department.yaml");
    let read = is_manifest.then(|| Source::read(name, text).ok()).flatten();
    let manifest = read.as_ref().and_then(|read| serde_json::from_value::<Manifest>(read.value().clone()).ok());
    let (Some(read), Some(manifest)) = (read, manifest) else { return (0, Vec::new()) };
    let department = manifest.department();
    let mut findings = Vec::new();
    for (index, test) in manifest.tests.iter().enumerate() {
        let of = if test.name.is_empty() { format!("test {}", index + 1) } else { format!("`{}`", test.name) };
        let mut find = |below: &str, message: String| {
            let at = format!("/tests/{index}{below}");
            let help = "Fix the action or the test; docs/departments.md says how a test runs.";
            let finding = Diagnostic {
                severity: Severity::Error,
                ..Diagnostic::at(&read, declared_tests::FAILED, &at, message, help)
            };
            findings.push(finding.in_file(name));
        };
        match declared_tests::run(&department, test) {
            Ok(misses) => {
                for miss in misses {
                    let message = format!("{of}: {} is {}, not {}", miss.at, short(&miss.found), short(&miss.expected));
                    find(&place(&miss.at), message);
                }
            }
            Err(fault) => find("", format!("{of} cannot be run: {fault}")),
        }
    }
    (manifest.tests.len(), findings)
}

/// Returns the pointer, within a test, of the expectation that failed.
fn place(at: &str) -> String {
    match at {
        "rows" => "/then".to_owned(),
        at if at.starts_with("rows/") => format!("/{at}"),
        at => format!("/expect/{at}"),
    }
}

fn short(value: &Value) -> String {
    truncated(&value.to_string(), 200).into_owned()
}
