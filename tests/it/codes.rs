//! Writes `docs/codes.md`: every stable code and its meaning, from the enums that define them.
//!
//! `cargo xtask codes` writes the page; otherwise this test compares it. The meanings are the doc comments of the
//! variants, so that they have a single source.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use patchboard_agents::architect;
use patchboard_kernel::breaker::{BreakerTransition, Reason};
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::record::{Cause, End, Kind, PauseCause, Resource};
use patchboard_kernel::redaction::RedactionCode;
use patchboard_kernel::rejection::{Code, Stage};
use patchboard_lint::{FindingCode, Severity};
use patchboard_protocols::handoff::HandoffCode;
use patchboard_protocols::negotiation::{NegotiationCode, StopReason};
use patchboard_protocols::workflow::{Status, WorkflowCode};
use patchboard_roles::departments::declared_tests;
use patchboard_workspace::disk::{self, DiskCode};
use patchboard_workspace::git::error::GitCode;
use patchboard_workspace::programs::ProgramCode;
use patchboard_workspace::session::SessionCode;
use patchboard_workspace::text::edit::EditCode;

/// Environment variable that `cargo xtask codes` sets.
const WRITE_DOCS: &str = "PATCHBOARD_WRITE_DOCS";

#[test]
fn the_page_of_codes_says_what_the_enums_say() {
    let path = root().join("docs/codes.md");
    let page = page();
    if std::env::var_os(WRITE_DOCS).is_some() {
        fs::write(&path, page).expect("docs/codes.md can be written");
        return;
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page, "docs/codes.md does not say what the enums say: run `cargo xtask codes`");
}

fn page() -> String {
    let mut page = String::from(
        "# Codes\n\n\
         Every stable name that users, models and programs may branch on. Messages may change between versions, codes \
         may not.\n\n\
         `cargo xtask codes` writes this page from the doc comments of the enums; change those. \
         `patchboard check --explain CODE` looks a code up in it.\n",
    );
    section(&mut page, "Stages", "Stages of the validation pipeline, in order.");
    table(&mut page, "runtime/kernel/src/rejection.rs", "Stage", Stage::ALL, Stage::as_str);
    section(&mut page, "Rejections", "Reasons for which a proposal is rejected.");
    table(&mut page, "runtime/kernel/src/rejection.rs", "Code", Code::ALL, Code::as_str);
    section(&mut page, "Rejected redactions", "Reasons for which nothing was erased.");
    table(&mut page, "runtime/kernel/src/redaction/mod.rs", "RedactionCode", RedactionCode::ALL, RedactionCode::as_str);
    section(&mut page, "Failures", "Reasons for which an attempt ended without a proposal.");
    table(&mut page, "runtime/kernel/src/failure.rs", "FailureCode", FailureCode::ALL, FailureCode::as_str);
    section(&mut page, "Deferrals", "Reasons for which a provider did not take a request.");
    table(&mut page, "runtime/kernel/src/deferral.rs", "DeferralReason", DeferralReason::ALL, DeferralReason::as_str);
    section(&mut page, "Files", "Errors of workspace commands, beside the rejections above.");
    table(&mut page, "agents/workspace/src/session.rs", "SessionCode", SessionCode::ALL, SessionCode::as_str);
    page.push('\n');
    table(&mut page, "agents/workspace/src/text/edit.rs", "EditCode", EditCode::ALL, EditCode::as_str);
    page.push('\n');
    table(&mut page, "agents/workspace/src/programs.rs", "ProgramCode", ProgramCode::ALL, ProgramCode::as_str);
    page.push('\n');
    table(&mut page, "agents/workspace/src/git/error.rs", "GitCode", GitCode::ALL, GitCode::as_str);
    let errors = "agents/workspace/src/disk/error.rs";
    section(&mut page, "Directories", "Errors of a workspace directory.");
    table(&mut page, errors, "DiskCode", DiskCode::ALL, DiskCode::as_str);
    section(&mut page, "Files that are not served", "Reasons of `not_served`.");
    table(&mut page, errors, "UnservedReason", disk::UnservedReason::ALL, disk::UnservedReason::as_str);
    section(&mut page, "Ends", "Outcomes of a board.");
    table(&mut page, "runtime/kernel/src/record/body/board.rs", "End", End::ALL, End::as_str);
    section(&mut page, "Causes", "Causes of a board's end.");
    table(&mut page, "runtime/kernel/src/record/body/board.rs", "Cause", Cause::ALL, Cause::as_str);
    section(&mut page, "Pauses", "Reasons for which the kernel paused a board.");
    table(&mut page, "runtime/kernel/src/record/body/board.rs", "PauseCause", PauseCause::ALL, PauseCause::as_str);
    section(&mut page, "Records", "Kinds of records in a journal.");
    table(&mut page, "runtime/kernel/src/record/body.rs", "Kind", Kind::ALL, Kind::as_str);
    section(&mut page, "Breaker moves", "Transitions of a branch.");
    table(
        &mut page,
        "runtime/kernel/src/breaker.rs",
        "BreakerTransition",
        BreakerTransition::ALL,
        BreakerTransition::as_str,
    );
    section(&mut page, "Breaker reasons", "Reasons of a transition.");
    table(&mut page, "runtime/kernel/src/breaker.rs", "Reason", Reason::ALL, Reason::as_str);
    section(&mut page, "Resources", "Units of budgets.");
    table(&mut page, "runtime/kernel/src/record/body/board.rs", "Resource", Resource::ALL, Resource::as_str);
    section(&mut page, "Findings", "Findings of `patchboard check` in a blueprint; an error rejects it.");
    findings(&mut page, patchboard_protocols::codes());
    section(&mut page, "Findings of the architect", "Findings in a blueprint that a model wrote, beside those above.");
    findings(&mut page, architect::CODES.iter());
    section(
        &mut page,
        "Findings of the tests of departments",
        "Findings of `patchboard check` when it runs the tests of a manifest.",
    );
    findings(&mut page, declared_tests::CODES.iter());
    section(
        &mut page,
        "Workflows",
        "Reasons for which a workflow has no order (`patchboard workflow check`) or does not resume.",
    );
    table(&mut page, "runtime/protocols/src/workflow.rs", "WorkflowCode", WorkflowCode::ALL, WorkflowCode::as_str);
    section(&mut page, "Nodes", "States of a workflow node.");
    table(&mut page, "runtime/protocols/src/workflow/status.rs", "Status", Status::ALL, Status::as_str);
    section(&mut page, "Handoffs", "Errors of handoffs.");
    table(&mut page, "runtime/protocols/src/handoff.rs", "HandoffCode", HandoffCode::ALL, HandoffCode::as_str);
    let negotiations = "runtime/protocols/src/negotiation.rs";
    section(
        &mut page,
        "Negotiations",
        "Reasons for which an event of a negotiation does not count, or there is no negotiation.",
    );
    table(&mut page, negotiations, "NegotiationCode", NegotiationCode::ALL, NegotiationCode::as_str);
    section(&mut page, "Ends of negotiations", "Values of `stop_reason` in the decision of a negotiation.");
    table(&mut page, negotiations, "StopReason", StopReason::ALL, StopReason::as_str);
    section(&mut page, "Problems", "Errors of the HTTP API, beside the codes above and those of commands.");
    page.push_str("| code | meaning |\n|---|---|\n");
    for (code, meaning) in meanings("daemon/server/src/serve/problem.rs", "Code") {
        writeln!(page, "| `{code}` | {} |", cell(&meaning)).expect("a string takes everything");
    }
    page
}

fn findings(page: &mut String, codes: impl Iterator<Item = &'static FindingCode>) {
    page.push_str("| code | severity | meaning |\n|---|---|---|\n");
    for (code, severity, meaning) in codes {
        let severity = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        writeln!(page, "| `{code}` | {severity} | {} |", cell(meaning)).expect("a string takes everything");
    }
}

fn section(page: &mut String, title: &str, what: &str) {
    write!(page, "\n## {title}\n\n{what}\n\n").expect("a string takes everything");
}

/// Writes a table of an enum's variants. The meanings are read from the source; every variant must have one.
fn table<T: Copy + 'static>(page: &mut String, source: &str, name: &str, all: &[T], code: impl Fn(T) -> &'static str) {
    let meanings = meanings(source, name);
    page.push_str("| code | meaning |\n|---|---|\n");
    for member in all {
        let code = code(*member);
        let meaning = meanings.iter().find(|(known, _)| known == code).map(|(_, meaning)| meaning);
        let meaning = meaning.unwrap_or_else(|| panic!("{source} has no doc comment for {name} {code}"));
        writeln!(page, "| `{code}` | {} |", cell(meaning)).expect("a string takes everything");
    }
}

/// Returns codes and doc comments of a `coded!` enum, read from its source.
fn meanings(source: &str, name: &str) -> Vec<(String, String)> {
    let path = root().join(source);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{source}: {error}"));
    let head = format!("    {name} {{");
    let body = text.lines().skip_while(|line| *line != head).skip(1).take_while(|line| *line != "    }");
    let mut meanings = Vec::new();
    let mut comment = Vec::new();
    for line in body.map(str::trim) {
        if let Some(words) = line.strip_prefix("/// ") {
            comment.push(words);
        } else if let Some((_, code)) = line.split_once(" = \"") {
            let code = code.split('"').next().unwrap_or_default();
            meanings.push((code.to_owned(), comment.join(" ")));
            comment.clear();
        }
    }
    assert!(!meanings.is_empty(), "{source} has no enum {name} made by coded!");
    meanings
}

/// Formats a text for a table cell: links of the documentation become plain words.
fn cell(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is a folder of the workspace").to_owned()
}
