//! The parts of a view around the state: write grants, rejections and the trigger.
//!
//! Owns their wording, and their shorter forms for a small budget.

use serde_json::Value;

use crate::ablation::Interface;
use crate::blueprint::{Worker, WriteCondition, WriteGrant};
use crate::contract::on_one_line;

use super::{FragmentLookup, text};

pub(super) const WRITE_HEADING: &str = "## You may write\n";
pub(super) const SEE_HEADING: &str = "## You see\n";
pub(super) const REJECTIONS_HEADING: &str = "## Refused before\n";
pub(super) const ANSWERED_HEADING: &str = "## You asked, and were told\n";
pub(super) const TRIGGER_HEADING: &str = "## Why you were woken\n";

/// Instructions to ask for more.
pub(super) const EXPAND_HINT: &str =
    "To be shown what is not, answer {\"patch\": [], \"expand\": [\"/its/path\"]}; you are then asked again.\n";

/// Instructions that also offer parts, longest first.
pub(super) const RANGE_HINTS: &[&str] = &[
    "To be shown what is not, answer {\"patch\": [], \"expand\": [\"/its/path\"]}, or [{\"at\": \"/its/path\", \"from\": FIRST}] with \
     a name, an index or a number of characters; you are then asked again.\n",
    EXPAND_HINT,
];

/// Notice that an object is incomplete.
pub(super) const NOT_EVERYTHING: &str = "Only parts are shown; what is not stays as it is.\n";

/// Maximum characters of the line about the trigger, including the line feed.
pub(super) const TRIGGER_MAX: usize = 200;
/// Maximum characters of a name's value, without the name.
pub(super) const BOUND_MAX: usize = TOKEN_MAX + 16;
/// Maximum characters of a bound token; a longer one is cut.
const TOKEN_MAX: usize = 256;
/// Maximum characters of the reminder, including the line feed.
const REMINDER_MAX: usize = 200;
/// Maximum characters of one rejection.
const REJECTION_MAX: usize = 800;
/// Maximum characters of one rejection under a tight budget.
const SHORT_REJECTION_MAX: usize = 240;
/// Maximum characters of a question and its answer.
const ANSWER_MAX: usize = 1200;
/// Maximum characters of a question and its answer under a tight budget.
const SHORT_ANSWER_MAX: usize = 240;
/// Maximum characters of a worker's name.
const NAME_MAX: usize = 40;
/// Minimum characters of a cut violation that still informs.
const CUT_VIOLATION_MIN: usize = 40;
/// Maximum characters of a value in a rejection.
const FOUND_MAX: usize = 160;

/// Level of detail about a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Detail {
    /// Path, operations, the grant's value schema and the state's schema there.
    Full,
    /// Without the state's schema.
    NoFragments,
    /// Path and operations.
    Bare,
}

/// Describes the write grants, one after another, and the conditions of reads. Workers that answer with values see no
/// operations.
pub(super) fn grants(worker: &Worker, interface: Interface, fragment: FragmentLookup<'_>, detail: Detail) -> String {
    let grants = &worker.writes;
    let mut out = WRITE_HEADING.to_owned();
    if grants.is_empty() {
        out.push_str("Nothing.\n");
    }
    for grant in grants {
        out.push_str(&text::name(&grant.path));
        if matches!(interface, Interface::Patch | Interface::Whole) {
            let ops: Vec<&str> = grant.ops.iter().map(|op| op.as_str()).collect();
            out.push_str(&format!(": {}", ops.join(", ")));
        }
        out.push('\n');
        if let (Some(WriteCondition { of, expr }), Detail::Full | Detail::NoFragments) = (&grant.condition, detail) {
            out.push_str(&format!("  only where this is true of {}: {}\n", text::name(of), on_one_line(expr)));
        }
        if grant.approval.is_some() {
            out.push_str("  a person must agree first\n");
        }
        if let (Some(value), Detail::Full | Detail::NoFragments) = (&grant.value, detail) {
            out.push_str(&format!("  the value must match: {}\n", text::whole_json(value)));
        }
        if detail == Detail::Full
            && let Some(schema) = fragment(&grant.path)
        {
            out.push_str(&format!("  schema there: {}\n", text::whole_json(&schema)));
        }
    }
    for read in worker.reads.iter().filter(|_| detail != Detail::Bare) {
        if let Some(condition) = &read.condition {
            let (path, condition) = (text::name(&read.path), on_one_line(condition));
            out.push_str(&format!("You see of {path} only where this is true: {condition}\n"));
        }
    }
    out
}

/// Returns the trigger on one line of at most [`TRIGGER_MAX`] characters, and the values of names in paths on another.
pub(super) fn trigger(trigger: &Value, may_show: &dyn Fn(&str) -> bool) -> String {
    let field = |name: &str| trigger.get(name).and_then(Value::as_str);
    let mut line = match field("rule") {
        Some(rule) => format!("You were woken by rule {}", text::name(rule)),
        None => "You were woken".to_owned(),
    };
    match (field("op"), field("path").filter(|path| may_show(path))) {
        // Worded unlike an operation, because small models repeat operations.
        (op, Some(path)) => {
            let done = match op {
                Some("add") => "is new",
                Some("replace") => "was replaced",
                Some("remove") => "was removed",
                Some(_) | None => "changed",
            };
            line.push_str(&format!(", because {} {done}", text::name(path)));
            if trigger.get("gone").is_some() {
                line.push_str("; it is gone by now");
            }
        }
        (_, None) => {
            let known = ["kind", "rule", "op", "path", "answers", "bound"];
            if let Some(kind) = field("kind") {
                line.push_str(&format!(": {}", text::name(kind)));
            }
            for (name, value) in trigger.as_object().into_iter().flatten() {
                if !known.contains(&name.as_str())
                    && let Some(value) = text::json(value, FOUND_MAX)
                {
                    line.push_str(&format!(", {} {value}", text::name(name)));
                }
            }
        }
    }
    let describe = |(name, token): (&String, &Value)| {
        let token = token.as_str().map(text::name).unwrap_or_default();
        format!("{{{name}}} is {}", text::prose(&token, TOKEN_MAX))
    };
    let bound: Vec<String> =
        trigger.get("bound").and_then(Value::as_object).into_iter().flatten().map(describe).collect();
    // The values of names are necessary for any answer, so they are never cut off.
    let bound = if bound.is_empty() { String::new() } else { format!("Here {}.\n", bound.join(", ")) };
    format!("{}.\n{bound}", text::prose(&line, TRIGGER_MAX - 2))
}

/// Returns the last line: the write grants once more, in few words, because small models remember the end best. With
/// file tools it asks to use them first, because a small model follows a request to answer immediately.
pub(super) fn reminder(grants: &[WriteGrant], interface: Interface, has_tools: bool) -> String {
    let of_grant = |grant: &WriteGrant| {
        let path = text::name(&grant.path);
        match interface {
            Interface::Patch => {
                let ops: Vec<&str> = grant.ops.iter().map(|op| op.as_str()).collect();
                format!("{} at {path}", ops.join(" or "))
            }
            Interface::Message => format!("set {path}: VALUE"),
            Interface::Whole | Interface::Merge => path,
        }
    };
    let places = grants.iter().map(of_grant).collect::<Vec<_>>().join("; ");
    let (full, short) = match interface {
        Interface::Patch => (format!("your patch: {places}"), "answer"),
        Interface::Whole => (
            format!("the whole object, with what you change at {places}"),
            "answer with the whole object as it should be",
        ),
        Interface::Merge => {
            (format!("a JSON object of what you set: {places}"), "answer with a JSON object of what you set")
        }
        Interface::Message => (
            format!("your message, with a line for what you set, which begins with its place: {places}"),
            "write your message",
        ),
    };
    let when = if has_tools { "Now do your task with your tools. When it is done," } else { "Now" };
    let line = format!("{when} answer with {full}.\n");
    if grants.is_empty() || text::chars(&line) > REMINDER_MAX { format!("{when} {short}.\n") } else { line }
}

/// Returns the rejections that fit into `limit` characters, including the heading: the newest are kept, in order of
/// age. With `once`, equal ones are merged into the newest, with their number.
pub(super) fn feedback(refusals: &[Value], once: bool, limit: usize) -> String {
    let is_last = |(index, refusal): &(usize, &Value)| !once || !refusals[index + 1..].contains(refusal);
    let distinct = refusals.iter().enumerate().filter(is_last).map(|(_, refusal)| refusal);
    newest(REJECTIONS_HEADING, distinct.collect::<Vec<_>>().into_iter(), limit, |entry, left| {
        let times = if once { refusals.iter().filter(|refusal| *refusal == entry).count() } else { 1 };
        // Under a tight budget, at least the reason of the rejection is kept.
        [REJECTION_MAX, SHORT_REJECTION_MAX, left].map(|max| format_rejection(entry, times, max)).to_vec()
    })
}

/// Returns persons' answers, one per line; the newest are kept, and shortened under a tight budget.
pub(super) fn answers(trigger: &Value, limit: usize) -> String {
    let answers = trigger.get("answers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    newest(ANSWERED_HEADING, answers.iter(), limit, |entry, left| {
        [ANSWER_MAX, SHORT_ANSWER_MAX].map(|max| answer(entry, max.min(left))).to_vec()
    })
}

/// Returns a heading with the newest entries that fit: each in the first of its forms that fits the room left.
fn newest<'a>(
    heading: &str,
    entries: impl DoubleEndedIterator<Item = &'a Value>,
    limit: usize,
    forms: impl Fn(&Value, usize) -> Vec<String>,
) -> String {
    let mut left = limit.saturating_sub(text::chars(heading));
    let mut kept = Vec::new();
    for entry in entries.rev() {
        let Some(text) = forms(entry, left).into_iter().find(|form| text::chars(form) <= left) else { break };
        left -= text::chars(&text);
        kept.push(text);
    }
    if kept.is_empty() {
        return String::new();
    }
    kept.push(heading.to_owned());
    kept.reverse();
    kept.concat()
}

/// Renders a question and its answer. The answer matters more, so the question gets a third of the room.
fn answer(answer: &Value, limit: usize) -> String {
    let field = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
    let question = text::prose(field("question"), limit / 3);
    let by = text::prose(&text::name(field("by")), NAME_MAX);
    let begun = format!("- {question} {by} says: ");
    let room = limit.saturating_sub(text::chars(&begun) + 1);
    format!("{begun}{}\n", text::prose(field("answer"), room))
}

/// Renders one rejection: a line with stage and code, then violations and allowed operations while they fit.
fn format_rejection(refusal: &Value, times: usize, limit: usize) -> String {
    let field = |name: &str| refusal.get(name).and_then(Value::as_str).map(text::name);
    let name = match (field("stage"), field("code")) {
        (Some(stage), Some(code)) => format!("{stage}/{code}"),
        (None, Some(code)) | (Some(code), None) => code,
        (None, None) => "refused".to_owned(),
    };
    let mut out = format!("- {}", text::prose(&name, 80));
    if let Some(by) = refusal.get("by").and_then(Value::as_str) {
        out.push_str(&format!(" of {}", text::prose(&text::name(by), 40)));
    }
    if times > 1 {
        out.push_str(&format!(", {times} times"));
    }
    if let Some(message) = refusal.get("message").and_then(Value::as_str) {
        out.push_str(&format!(": {}", text::prose(message, 100)));
    }
    out.push('\n');
    let list = |name: &str| refusal.get(name).and_then(Value::as_array).into_iter().flatten();
    let violations = list("violations").map(violation);
    let allowed = list("allowed").map(allowed);
    for (number, line) in violations.chain(allowed).enumerate() {
        let line = text::prose(&line, SHORT_REJECTION_MAX);
        let room = limit.saturating_sub(text::chars(&out) + 1);
        let fits = text::chars(&line) <= room;
        // The first violation is cut rather than left out: without it the cause is unknown.
        if !fits && (number > 0 || room < CUT_VIOLATION_MIN) {
            break;
        }
        out.push_str(&text::prose(&line, room));
        out.push('\n');
    }
    out
}

fn violation(violation: &Value) -> String {
    let field = |name: &str| violation.get(name).and_then(Value::as_str);
    let mut out = "  ".to_owned();
    if let Some(op) = violation.get("op").and_then(Value::as_u64) {
        out.push_str(&format!("operation {op}, "));
    }
    let pointer = field("pointer").filter(|pointer| !pointer.is_empty()).map_or("the whole".to_owned(), text::name);
    out.push_str(&pointer);
    if let Some(rule) = field("rule") {
        out.push_str(&format!(" ({})", text::name(rule)));
    }
    out.push_str(&format!(": {}", field("message").or(field("code")).unwrap_or("refused")));
    if let Some(by) = violation.pointer("/stale/changed_by").and_then(Value::as_str) {
        out.push_str(&format!(" (by {})", text::name(by)));
    }
    // The difference precedes the current value: it is shorter, and the view shows the current value anyway.
    out.push_str(&violation.get("diff").and_then(difference).unwrap_or_default());
    for name in ["expected", "found"] {
        if let Some(value) = violation.get(name).and_then(|value| text::json(value, FOUND_MAX)) {
            out.push_str(&format!("; {name} {value}"));
        }
    }
    out
}

/// Describes the difference between the value that a worker read and the current one; `None` if it is too long.
fn difference(diff: &Value) -> Option<String> {
    let part = |name: &str| text::json(diff.get(name)?, FOUND_MAX);
    if let Some(was) = part("was") {
        return Some(format!("; was {was}"));
    }
    Some(match (part("removed")?, part("added")?) {
        (removed, added) if removed == r#""""# => format!("; put in {added}"),
        (removed, added) if added == r#""""# => format!("; taken out {removed}"),
        (removed, added) => format!("; {removed} became {added}"),
    })
}

fn allowed(allowed: &Value) -> String {
    let ops = allowed.get("ops").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let ops: Vec<String> = ops.map(text::name).collect();
    let path = allowed.get("path").and_then(Value::as_str).map(text::name).unwrap_or_default();
    format!("  you may: {} at {path}", ops.join(", "))
}
