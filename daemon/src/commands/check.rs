//! `patchboard check`: lints blueprints.

use std::path::{Path, PathBuf};

use clap::Args;
use owo_colors::OwoColorize as _;
use patchboard_agents::config::Config;
use patchboard_lint::{FINDINGS_MAX, Severity};
use serde_json::{Value, json};

use super::run::json_argument;
use crate::blueprint_file::{self};
use crate::codes;
use crate::config_tables;
use crate::diagnostics::word;
use crate::failure::{Exit, Failure, Outcome};
use crate::input;
use crate::output::Output;
use crate::trust::config_file;
use patchboard_kernel::text::counted;

/// Check blueprints: every finding with its line, a stable code and a fix
///
/// Reads each file with its fragments and checks its structure, its names, the state schema and the initial state,
/// every path against the schema, the CEL conditions, and the triggers of workers. A blueprint with errors is rejected;
/// warnings mark constructs that run, but probably not as intended.
///
/// A file that cannot be read is an error like others; the remaining files are still checked.
///
/// The tests of a blueprint's departments are run: rows and classified words pass through the real roles, on an
/// in-memory table. A result that differs from the manifest is an error.
///
/// A write costs time in proportion to the data it touches, except below an opaque place. The schema of an opaque place
/// has a keyword that applies to the whole value (`contains`, `oneOf`, `if`, `uniqueItems` …) and is validated again at
/// every write in it. A warning marks opaque places that a worker may write and that hold an unbounded collection;
/// `--costs` lists all of them (for very large schemas the first 5,000 places). Each element scanned takes about 0.1 µs
/// for a simple keyword, several times that for one that examines the whole element.
///
/// A configuration given with `--config` is checked as well; `patchboard doctor` checks it further.
///
/// Exits with 0 if no file has an error, else with 2.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard check blueprints/evidence-review.yaml
  patchboard check --deny-warnings blueprints/*.yaml
  patchboard check --costs blueprints/evidence-review.yaml
  patchboard check blueprints/clipboard.yaml                 with the tests of its departments
  patchboard check --whole blueprints/clipboard.yaml | jq '{blueprint: ., request: {}}' > board.json
  patchboard check review.yaml --request @request.json       with what views have no room for at the beginning
  patchboard check --explain overlapping_grants
  patchboard check --output json review.yaml | jq '.findings[].code'")]
pub(crate) struct Arguments {
    /// Blueprint files, in YAML or JSON; `-` is standard input
    #[arg(value_name = "BLUEPRINT", required_unless_present_any = ["explain", "codes"])]
    blueprints: Vec<PathBuf>,
    /// Exit with 2 for warnings, too
    #[arg(long)]
    deny_warnings: bool,
    /// List the opaque places: where a write validates more than it touches, and why
    #[arg(long, conflicts_with_all = ["explain", "codes"])]
    costs: bool,
    /// Create a board with this request, in memory, and check what its workers may read and what exceeds their views
    #[arg(long, short, value_name = "JSON|@FILE", conflicts_with_all = ["explain", "codes", "whole"])]
    request: Option<String>,
    /// Print the blueprint as JSON with all its files included, as a daemon accepts it; findings go to stderr
    #[arg(long, conflicts_with_all = ["explain", "codes", "costs"])]
    whole: bool,
    /// Explain a code of a finding or of a rejection
    #[arg(long, value_name = "CODE", conflicts_with_all = ["blueprints", "codes"])]
    explain: Option<String>,
    /// List the codes of all findings
    #[arg(long, conflicts_with = "blueprints")]
    codes: bool,
}

pub(crate) fn run(arguments: &Arguments, config: Option<&Path>, output: Output) -> Outcome {
    if let Some(file) = config {
        config_tables::check(file)?;
    }
    let models = if arguments.request.is_some() { config_file(config)? } else { config };
    let models = models.map(Config::read).transpose().map_err(|error| Failure::invalid_input("bad_config", error))?;
    input::check_single_stdin(arguments.blueprints.iter().map(PathBuf::as_path), arguments.request.as_deref())?;
    let request = arguments.request.as_deref().map(json_argument).transpose()?;
    if let Some(code) = &arguments.explain {
        return explain(code, output);
    }
    if arguments.codes {
        return list(output);
    }
    if arguments.whole {
        return whole(&arguments.blueprints, output);
    }
    let (mut findings, mut costs) = (Vec::new(), Vec::new());
    let (mut errors, mut warnings, mut tests) = (0, 0, 0);
    for path in &arguments.blueprints {
        let mut reading = blueprint_file::read_or_find(path).run_tests();
        if let Some(request) = &request {
            reading = reading
                .check_with_request(request, &|model| models.as_ref().and_then(|models| models.context(model)))?;
        }
        tests += reading.tests;
        errors += reading.count(Severity::Error);
        warnings += reading.count(Severity::Warning);
        for finding in &reading.report.findings {
            if output.is_json() {
                findings.push(reading.json(finding));
            } else {
                output.line(&reading.text(finding))?;
            }
        }
        if reading.report.findings.len() == FINDINGS_MAX {
            output.note(&format!(
                "these are the first {FINDINGS_MAX} findings on {}: fix them, and check again for more",
                path.display()
            ));
        }
        for opaque in reading.report.opaque.iter().filter(|_| arguments.costs) {
            if output.is_json() {
                costs.push(reading.opaque_json(opaque));
            } else {
                output.line(&reading.opaque_text(opaque))?;
            }
        }
    }
    let refused = errors > 0 || (arguments.deny_warnings && warnings > 0);
    if output.is_json() {
        let mut report = json!({"ok": !refused, "errors": errors, "warnings": warnings, "findings": findings});
        if arguments.costs {
            report["costs"] = costs.into();
        }
        if tests > 0 {
            report["tests"] = tests.into();
        }
        output.json(&report)?;
    } else {
        let counts = format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"));
        let mut files = counted(arguments.blueprints.len(), "blueprint");
        if tests > 0 {
            files = format!("{files}, {}", counted(tests, "test"));
        }
        let verdict = if refused { "refused".red().bold().to_string() } else { "ok".green().bold().to_string() };
        output.line(&format!("{files}: {counts}: {verdict}"))?;
    }
    Ok(if refused { Exit::InvalidInput } else { Exit::Done })
}

/// Prints a blueprint as stored with a board.
fn whole(paths: &[PathBuf], output: Output) -> Outcome {
    let [path] = paths else {
        return Err(Failure::invalid_input("usage", "--whole prints one blueprint").help("name one file"));
    };
    output.json(&json!(blueprint_file::read_valid(path, None, output)?))?;
    Ok(Exit::Done)
}

fn list(output: Output) -> Outcome {
    for (code, severity, meaning) in patchboard_protocols::codes() {
        if output.is_json() {
            output.json(&json!({"code": code, "severity": word(*severity), "meaning": meaning}))?;
        } else {
            output.line(&format!("{:<26} {:<8} {meaning}", code, word(*severity)))?;
        }
    }
    Ok(Exit::Done)
}

fn explain(code: &str, output: Output) -> Outcome {
    // A code may name both a finding and a rejection, e.g. `too_large`.
    let entries: Vec<_> = codes::entries().filter(|entry| entry.code == code).collect();
    if entries.is_empty() {
        return Err(Failure::invalid_input("unknown_code", format!("there is no code {code}"))
            .help("`patchboard check --codes` lists the codes of findings; docs/codes.md has all of them"));
    }
    if output.is_json() {
        let entries: Vec<Value> =
            entries.iter().map(|entry| json!({"of": entry.section, "meaning": entry.meaning})).collect();
        output.json(&json!({"code": code, "meanings": entries}))?;
    } else {
        for entry in entries {
            output.line(&format!("{} ({}): {}", code.bold(), entry.section, entry.meaning))?;
        }
    }
    Ok(Exit::Done)
}
