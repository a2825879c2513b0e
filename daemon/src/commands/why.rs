//! `patchboard why`: traces a place of the document to its author, trigger and view.

use std::path::Path;

use clap::Args;
use owo_colors::OwoColorize as _;
use patchboard_kernel::id::{InvocationId, Version};
use patchboard_kernel::record::{
    self, Attempt, Author, Body, Committed, Invoked, Principal, Record, Rejected, Scheduled,
};
use patchboard_kernel::tree::Node;
use patchboard_runtime::journal::BoardSummary;
use serde_json::{Value, json};

use crate::cli::BoardArgument;
use crate::describe::{self, EditLine};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, one_line, short};
use crate::provenance::{self, Writer};
use crate::reader::{Reader, format_time};

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
    let reader = Reader::open(data_dir)?;
    let summary = reader.find(&arguments.board.board)?;
    let form = if output.is_json() { ExplanationFormat::Json } else { ExplanationFormat::Text };
    match why(&reader, &summary, &arguments.pointer, form)? {
        Explanation::Json(value) => output.json(&value)?,
        Explanation::Text(text) => output.text(&text)?,
    }
    Ok(Exit::Done)
}

/// Returns the provenance of a place as JSON.
pub(crate) fn json(reader: &Reader, summary: &BoardSummary, pointer: &str) -> Result<Value, Failure> {
    match why(reader, summary, pointer, ExplanationFormat::Json)? {
        Explanation::Json(value) => Ok(value),
        Explanation::Text(text) => Ok(text.into()),
    }
}

/// Output format.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExplanationFormat {
    Json,
    Text,
}

/// Answer in the requested format.
enum Explanation {
    Json(Value),
    Text(String),
}

fn why(
    reader: &Reader,
    summary: &BoardSummary,
    pointer: &str,
    form: ExplanationFormat,
) -> Result<Explanation, Failure> {
    let pointer = jsonptr::PointerBuf::parse(pointer.to_owned()).map_err(|_| {
        Failure::invalid_input("bad_pointer", format!("{pointer} is no JSON Pointer"))
            .help("a pointer is empty or begins with /; ~ is written ~0, and / within a name ~1")
    })?;
    let board = reader.board(summary, None)?;
    let records = reader.records(&summary.id)?;
    let value = board.state().get(&pointer);
    // The state knows when a value last changed; a removed value requires a search of the whole journal.
    let since = board.state().root().last_changed(&pointer);
    if since == Some(0) {
        return Ok(untouched(&records, pointer.as_str(), value, form));
    }
    let before = reader.board(summary, Some(since.map_or(0, |version| u64::from(version) - 1)))?;
    let first = records.iter().position(|record| record.seq > before.head().0).unwrap_or(records.len());
    let writer = provenance::last_writer(before.state(), &records[first..], pointer.as_str());
    let writer = writer.map(|found| found.map(|writer| Writer { record: writer.record + first, ..writer }));
    let writer = writer.map_err(|index| {
        let seq = records[first + index].seq;
        Failure::failed("bad_record", format!("record {seq} holds a patch that does not apply"))
            .detail("seq", seq.0.into())
    })?;
    let Some(writer) = writer else {
        let message = format!("there is nothing at {pointer}, and there never was");
        let failure = Failure::invalid_input("no_such_place", message);
        return Err(failure.help("`patchboard state BOARD` prints the document"));
    };
    let answer = Provenance::new(&records, &writer).ok_or_else(|| {
        let seq = records[writer.record].seq;
        Failure::failed("bad_record", format!("record {seq} cannot be read")).detail("seq", seq.0.into())
    })?;
    Ok(match form {
        ExplanationFormat::Json => Explanation::Json(answer.json(pointer.as_str(), value)),
        ExplanationFormat::Text => Explanation::Text(answer.text(pointer.as_str(), value)),
    })
}

fn untouched(records: &[Record], pointer: &str, value: Option<&Node>, form: ExplanationFormat) -> Explanation {
    let source = if pointer == "/request" || pointer.starts_with("/request/") { "request" } else { "blueprint" };
    let created = records.first().map(|record| format_time(record.at)).unwrap_or_default();
    if form == ExplanationFormat::Json {
        let told = json!({"pointer": pointer, "exists": true, "value": value, "source": source, "seq": 0, "version": 0, "principal": records.first().and_then(principal)});
        return Explanation::Json(told);
    }
    let from = if source == "request" { "the user's request" } else { "the blueprint's initial state" };
    let caller = records.first().and_then(describe::caller).map(|caller| format!("caller     {caller}\n"));
    let caller = caller.unwrap_or_default();
    Explanation::Text(format!(
        "{} came with {from}\nrecord     0 ({created}), version 0; no commit has written it since\n{caller}",
        one_line(pointer).bold()
    ))
}

/// Data in the journal about one commit.
struct Provenance<'a> {
    record: &'a Record,
    committed: Committed,
    ops: Vec<Value>,
    /// Pointer of the place right after the commit.
    then: &'a str,
    scheduled: Option<(&'a Record, Scheduled)>,
    invoked: Option<(&'a Record, Invoked)>,
    rejected: Vec<(&'a Record, Rejected)>,
    /// Person's answer, if approval was required.
    agreed: Option<(&'a Record, record::Answer)>,
}

impl<'a> Provenance<'a> {
    /// Returns `None` if the record cannot be read.
    fn new(records: &'a [Record], writer: &'a Writer) -> Option<Self> {
        let record = &records[writer.record];
        let Ok(Body::Committed(mut committed)) = record.body() else { return None };
        let ops = writer.ops.iter().filter_map(|op| committed.patch.get(*op).cloned()).collect();
        let (mut scheduled, mut invoked, mut rejected) = (None, None, Vec::new());
        let mut agreed = None;
        if let Some(question) = committed.by.approval {
            for earlier in &records[..writer.record] {
                match earlier.body() {
                    // The cost of the call is recorded with the approval request.
                    Ok(Body::Approval(body)) if earlier.seq == question => committed.by.usage = body.by.usage,
                    Ok(Body::Answer(body)) if body.of == question => agreed = Some((earlier, body)),
                    _ => {}
                }
            }
        }
        if let Some(attempt) = &attempt_of(&committed.by).cloned() {
            let invocation = attempt.invocation;
            for earlier in &records[..writer.record] {
                match earlier.body() {
                    Ok(Body::Scheduled(body)) if body.invocation == invocation => scheduled = Some((earlier, body)),
                    Ok(Body::Invoked(body)) if is_attempt(&body, attempt) => invoked = Some((earlier, body)),
                    // Earlier calls of the attempt; not counted for a single edit.
                    Ok(Body::Continued(body))
                        if committed.by.edit.is_none() && body.by.attempt.as_ref() == Some(attempt) =>
                    {
                        let usage = committed.by.usage.get_or_insert_default();
                        usage.add(body.by.usage.unwrap_or_default());
                    }
                    Ok(Body::Rejected(body)) if invocation_of(&body) == Some(invocation) => {
                        rejected.push((earlier, *body));
                    }
                    _ => {}
                }
            }
        }
        Some(Self { record, committed, ops, then: &writer.pointer, scheduled, invoked, rejected, agreed })
    }

    fn json(&self, pointer: &str, value: Option<&Node>) -> Value {
        let by = &self.committed.by;
        let attempt = attempt_of(by);
        json!({
            "pointer": pointer,
            "exists": value.is_some(),
            "value": value,
            "source": "commit",
            "worker": by.worker,
            "seq": self.record.seq,
            "at": self.record.at,
            "version": self.committed.version,
            "pointer_then": self.then,
            "ops": self.ops,
            "intent": self.committed.intent,
            "principal": principal(self.record),
            "base": by.base,
            "state_hash": self.committed.state,
            "usage": by.usage,
            "agreed": self.agreed.as_ref().map(|(record, answer)| {
                json!({"seq": record.seq, "by": answer.by, "reason": answer.reason, "principal": principal(record)})
            }),
            "edit": EditLine::from_commit(&self.committed).map(|editing| editing.json()),
            "invocation": attempt.map(|attempt| attempt.invocation),
            "attempt": attempt.map(|attempt| attempt.number),
            "trigger": self.scheduled.as_ref().map(|(record, scheduled)| {
                json!({"seq": record.seq, "rule": scheduled.rule, "cause": scheduled.trigger})
            }),
            "view": self.invoked.as_ref().map(|(record, invoked)| {
                json!({
                    "seq": record.seq,
                    "hash": invoked.view,
                    "version": invoked.base,
                    "reads": invoked.reads,
                    "members": invoked.members,
                })
            }),
            "rejected": self.rejected.iter().map(|(record, rejected)| {
                json!({
                    "seq": record.seq,
                    "attempt": attempt_of(&rejected.by).map(|attempt| attempt.number),
                    "stage": rejected.stage,
                    "code": rejected.code,
                    "violations": rejected.rejection.violations,
                })
            }).collect::<Vec<_>>(),
        })
    }

    fn text(&self, pointer: &str, value: Option<&Node>) -> String {
        let by = &self.committed.by;
        let verb =
            if value.is_some() { "was last written by" } else { "is not there any more; it was last changed by" };
        let place = if pointer.is_empty() { "the document" } else { pointer };
        let editing = EditLine::from_commit(&self.committed);
        let writer = editing.as_ref().map_or(by.worker.as_str(), |editing| editing.writer.as_str());
        let mut text = format!("{} {verb} {}\n", one_line(place).bold(), one_line(writer).bold());
        let mut row = |label: &str, content: String| text.push_str(&format!("{label:<10} {content}\n"));
        if let Some(value) = value {
            row("value", short(&value.to_string(), SHOWN));
        }
        let Version(version) = self.committed.version;
        row("record", format!("{} ({}), version {version}", self.record.seq, format_time(self.record.at)));
        if self.then != pointer {
            row("then at", one_line(self.then));
        }
        match &editing {
            Some(editing) => row("edit", format!("{} edits {}", editing.by(), editing.changes())),
            None => self.ops.iter().for_each(|op| row("operation", describe::operation(op))),
        }
        if let Some(intent) = &self.committed.intent {
            row("intent", short(intent, SHOWN));
        }
        if let Some((record, answer)) = &self.agreed {
            let reason = answer.reason.as_ref().map(|reason| format!(": {}", short(reason, SHOWN)));
            let by = one_line(answer.by.as_str());
            let caller = describe::caller(record).map(|caller| format!(", {caller}")).unwrap_or_default();
            row("approval", format!("{by} agreed (record {}{caller}){}", record.seq, reason.unwrap_or_default()));
        }
        if let Some(caller) = describe::caller(self.record) {
            row("caller", caller);
        }
        match (attempt_of(by), &self.scheduled) {
            (Some(attempt), Some((record, scheduled))) => {
                row("invocation", format!("#{}, attempt {}", attempt.invocation, attempt.number));
                let cause = describe::cause(scheduled.rule.as_ref(), &scheduled.trigger);
                row("trigger", format!("{cause} (record {})", record.seq));
            }
            _ if editing.is_some() => row("trigger", "none: it happened around the workspace".to_owned()),
            _ => row("trigger", "none: it was proposed directly".to_owned()),
        }
        if let Some((record, invoked)) = &self.invoked {
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
        for (record, rejected) in &self.rejected {
            let first = rejected.rejection.violations.first();
            let what = first.map(|violation| format!(" at {}: {}", violation.pointer, violation.told()));
            let what = short(&what.unwrap_or_default(), SHOWN);
            let attempt = attempt_of(&rejected.by).map_or(0, |attempt| attempt.number);
            let code = format!("{}/{}", rejected.stage, rejected.code);
            row("refused", format!("record {}, attempt {attempt}, {code} {what}", record.seq));
        }
        text
    }
}

/// Returns the caller of a record, or null.
fn principal(record: &Record) -> Option<Principal> {
    record.principal().ok().flatten()
}

/// Returns the attempt of a proposal, or of an edit of files.
fn attempt_of(by: &Author) -> Option<&Attempt> {
    by.attempt.as_ref().or_else(|| by.edit.as_ref()?.attempt.as_ref())
}

fn is_attempt(invoked: &Invoked, attempt: &Attempt) -> bool {
    invoked.invocation == attempt.invocation && invoked.attempt == attempt.number
}

fn invocation_of(rejected: &Rejected) -> Option<InvocationId> {
    attempt_of(&rejected.by).map(|attempt| attempt.invocation)
}
