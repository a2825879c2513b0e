//! `patchboard why`: traces a place of the document to its author, trigger and view.

use std::path::Path;

use clap::Args;
use owo_colors::OwoColorize as _;
use patchboard_kernel::id::Version;
use patchboard_kernel::tree::Node;
use serde_json::json;

use crate::arguments::BoardArgument;
use crate::describe::{self, EditLine};
use crate::failure::{Exit, Outcome};
use crate::output::{Output, one_line, short};
use crate::queries::why::{InitialSource, InitialWrite, Provenance, Write, attempt_of, explain};
use crate::reader::format_time;

/// Maximum characters of a foreign text in the output.
const SHOWN: usize = 200;

/// Trace a place of the document: the record, trigger and view of its last write, and earlier rejections
///
/// Finds the last commit that wrote the place, one of its ancestors or a value in it. Array elements are followed to
/// their earlier positions across insertions and removals.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard why last /answer
  patchboard why last /claims/0/status --output json | jq .rejected")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
    /// A JSON Pointer, like /claims/0/status; the empty string is the whole document
    #[arg(value_name = "POINTER")]
    pointer: String,
}

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let (reader, summary) = arguments.board.open(data_dir)?;
    if output.is_json() {
        output.json(&json!(explain(&reader, &summary, &arguments.pointer, |write| write.report())?))?;
    } else {
        output.text(&explain(&reader, &summary, &arguments.pointer, text)?)?;
    }
    Ok(Exit::Done)
}

fn text(write: &Write<'_>) -> String {
    match write {
        Write::Initial(write) => initial_text(write),
        Write::Commit { pointer, value, commit } => commit_text(commit, pointer, *value),
    }
}

fn initial_text(write: &InitialWrite<'_>) -> String {
    let created = write.created.map(|record| format_time(record.at)).unwrap_or_default();
    let from = match write.source() {
        InitialSource::Request => "the user's request",
        InitialSource::Blueprint => "the blueprint's initial state",
    };
    let caller = write.created.and_then(describe::caller).map(|caller| format!("caller     {caller}\n"));
    let caller = caller.unwrap_or_default();
    format!(
        "{} came with {from}\nrecord     0 ({created}), version 0; no commit has written it since\n{caller}",
        one_line(write.pointer).bold()
    )
}

fn commit_text(commit: &Provenance<'_>, pointer: &str, value: Option<&Node>) -> String {
    let by = &commit.committed.by;
    let verb = if value.is_some() { "was last written by" } else { "is not there any more; it was last changed by" };
    let place = if pointer.is_empty() { "the document" } else { pointer };
    let editing = EditLine::from_commit(&commit.committed);
    let writer = editing.as_ref().map_or(by.worker.as_str(), |editing| editing.writer.as_str());
    let mut text = format!("{} {verb} {}\n", one_line(place).bold(), one_line(writer).bold());
    let mut row = |label: &str, content: String| text.push_str(&format!("{label:<10} {content}\n"));
    if let Some(value) = value {
        row("value", short(&value.to_string(), SHOWN));
    }
    let Version(version) = commit.committed.version;
    row("record", format!("{} ({}), version {version}", commit.record.seq, format_time(commit.record.at)));
    if commit.then != pointer {
        row("then at", one_line(commit.then));
    }
    match &editing {
        Some(editing) => row("edit", format!("{} edits {}", editing.by(), editing.changes())),
        None => commit.ops.iter().for_each(|op| row("operation", describe::operation(op))),
    }
    if let Some(intent) = &commit.committed.intent {
        row("intent", short(intent, SHOWN));
    }
    if let Some((record, answer)) = &commit.agreed {
        let reason = answer.reason.as_ref().map(|reason| format!(": {}", short(reason, SHOWN)));
        let by = one_line(answer.by.as_str());
        let caller = describe::caller(record).map(|caller| format!(", {caller}")).unwrap_or_default();
        row("approval", format!("{by} agreed (record {}{caller}){}", record.seq, reason.unwrap_or_default()));
    }
    if let Some(caller) = describe::caller(commit.record) {
        row("caller", caller);
    }
    match (attempt_of(by), &commit.scheduled) {
        (Some(attempt), Some((record, scheduled))) => {
            row("invocation", format!("#{}, attempt {}", attempt.invocation, attempt.number));
            let cause = describe::cause(scheduled.rule.as_ref(), &scheduled.trigger);
            row("trigger", format!("{cause} (record {})", record.seq));
        }
        _ if editing.is_some() => row("trigger", "none: it happened around the workspace".to_owned()),
        _ => row("trigger", "none: it was proposed directly".to_owned()),
    }
    if let Some((record, invoked)) = &commit.invoked {
        let reads: Vec<String> = invoked.reads.iter().map(|read| one_line(read)).collect();
        let reads = if reads.is_empty() { "nothing".to_owned() } else { short(&reads.join(" "), SHOWN) };
        row("view", format!("{} of version {} (record {})", invoked.view, invoked.base, record.seq));
        row("showed", reads);
        if !invoked.members.is_empty() {
            let members: Vec<String> = invoked.members.iter().map(|place| one_line(place)).collect();
            row("members of", short(&members.join(" "), SHOWN));
        }
    }
    if let Some(usage) = by.usage {
        row("cost", describe::tokens(usage));
    }
    for (record, rejected) in &commit.rejected {
        let first = rejected.rejection.violations.first();
        let what = first.map(|violation| format!(" at {}: {}", violation.pointer, violation.message_with_author()));
        let what = short(&what.unwrap_or_default(), SHOWN);
        let attempt = attempt_of(&rejected.by).map_or(0, |attempt| attempt.number);
        let code = format!("{}/{}", rejected.stage, rejected.code);
        row("refused", format!("record {}, attempt {attempt}, {code} {what}", record.seq));
    }
    text
}
