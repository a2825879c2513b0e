//! Formats findings about a blueprint as a compiler does: code, place, the source line, and a fix.

use owo_colors::OwoColorize as _;
use patchboard_kernel::schema::SMALL_COLLECTION_MAX;
use patchboard_lint::{Diagnostic, OpaquePlace, Severity};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::text::{clean, one_line};

/// Maximum characters of a source line.
const LINE_MAX: usize = 160;

/// Formats a finding as text of several lines; `source` is the content of `file`.
pub fn text(finding: &Diagnostic, file: &str, source: &str) -> String {
    let head = format!("{}[{}]", word(finding.severity), finding.code);
    let head = match finding.severity {
        Severity::Error => head.red().bold().to_string(),
        Severity::Warning => head.yellow().bold().to_string(),
    };
    let mut text = format!("{head}: {}\n", one_line(&finding.message).bold());
    let Some(position) = finding.position else {
        let pointer = Some(&finding.pointer).filter(|pointer| !pointer.is_empty());
        let at = pointer.map_or_else(String::new, |pointer| format!(" at {}", one_line(pointer)));
        text.push_str(&format!("  {} {}{at}\n", "-->".blue().bold(), one_line(file)));
        text.push_str(&help(0, finding));
        return text;
    };
    let margin = position.line.to_string().len();
    let place = format!("{}:{}:{}", one_line(file), position.line, position.column);
    text.push_str(&format!("{:margin$}{} {place}\n", "", "-->".blue().bold()));
    let line = usize::try_from(position.line).ok().and_then(|line| source.lines().nth(line.checked_sub(1)?));
    if let Some(line) = line {
        let column = usize::try_from(position.column).unwrap_or(1).max(1);
        let (shown, caret) = excerpt(line, column);
        let bar = "|".blue().bold().to_string();
        text.push_str(&format!("{:margin$} {bar}\n", ""));
        text.push_str(&format!("{} {bar} {shown}\n", position.line.blue().bold()));
        text.push_str(&format!("{:margin$} {bar} {:caret$}{}\n", "", "", "^".red().bold()));
    }
    text.push_str(&help(margin, finding));
    text
}

/// Finding on a blueprint.
#[derive(Serialize, ToSchema)]
#[schema(as = Finding)]
pub(crate) struct FindingInfo {
    /// Stable code; docs/codes.md has the meanings.
    code: &'static str,
    /// Column in the line, from 1, if the place is known.
    #[schema(required)]
    column: Option<u32>,
    /// Advice for the author of the blueprint.
    help: String,
    /// Line of the text, from 1, if the place is known.
    #[schema(required)]
    line: Option<u32>,
    /// Message for people.
    message: String,
    /// JSON Pointer into the blueprint.
    pointer: String,
    /// Severity: `error` or `warning`.
    severity: &'static str,
}

impl FindingInfo {
    pub(crate) fn new(finding: &Diagnostic) -> Self {
        Self {
            code: finding.code,
            column: finding.position.map(|position| position.column),
            help: finding.help.clone(),
            line: finding.position.map(|position| position.line),
            message: finding.message.clone(),
            pointer: finding.pointer.clone(),
            severity: word(finding.severity),
        }
    }
}

/// Formats a finding as JSON.
pub fn json(finding: &Diagnostic) -> Value {
    json!(FindingInfo::new(finding))
}

/// Formats an opaque place as a line: `file:line:column: a write under /claims validates the whole of /claims because
/// of …`.
pub fn opaque_text(opaque: &OpaquePlace, file: &str) -> String {
    let at = opaque.position.map_or(String::new(), |position| format!(":{}:{}", position.line, position.column));
    let named =
        |place: &str| if place.is_empty() { "the document".to_owned() } else { format!("`{}`", one_line(place)) };
    let (place, keyword) = (named(&opaque.cost.place), &opaque.cost.keyword);
    let does = match keyword.as_str() {
        _ if opaque.cost.is_whole => format!("validates the whole of {place} because of `{keyword}`"),
        "uniqueItems" => format!("compares what it changes with all of {place} because of `{keyword}`"),
        _ => format!("runs `{keyword}` again on the whole of {place}"),
    };
    let size = match &opaque.cost.collection {
        Some(collection) if *collection == opaque.cost.place => "nothing bounds its size".to_owned(),
        Some(collection) => format!("nothing bounds the size of {}", named(collection)),
        None => {
            format!("it goes through no collection that may have more than {SMALL_COLLECTION_MAX} elements or members")
        }
    };
    let writers: Vec<&str> = opaque.writers.iter().map(|name| name.as_str()).collect();
    let writers = match writers.as_slice() {
        [] => "no worker writes in it".to_owned(),
        [writer] => format!("{writer} writes in it"),
        writers => format!("{} write in it", writers.join(", ")),
    };
    format!("{}{at}: a write under {place} {does}; {size}; {writers}", one_line(file))
}

/// Formats an opaque place as JSON.
pub fn opaque_json(opaque: &OpaquePlace, file: &str) -> Value {
    json!({
        "file": file,
        "place": opaque.cost.place,
        "keyword": opaque.cost.keyword,
        "is_whole": opaque.cost.is_whole,
        "pointer": opaque.cost.pointer,
        "line": opaque.position.map(|position| position.line),
        "column": opaque.position.map(|position| position.column),
        "grows": opaque.cost.collection,
        "writers": opaque.writers,
    })
}

/// Returns the stable name of a severity.
pub const fn word(severity: Severity) -> &'static str {
    if let Severity::Error = severity { "error" } else { "warning" }
}

fn help(margin: usize, finding: &Diagnostic) -> String {
    if finding.help.is_empty() {
        return String::new();
    }
    let indent = margin + 1;
    format!("{:indent$}{} {}\n", "", "= help:".blue().bold(), one_line(&finding.help))
}

/// Returns the displayed part of a source line, and the number of its characters before the column. A long line is cut
/// to the surroundings of the column.
fn excerpt(line: &str, column: usize) -> (String, usize) {
    let characters: Vec<char> = line.chars().collect();
    let target = (column - 1).min(characters.len());
    let start = if characters.len() <= LINE_MAX { 0 } else { target.saturating_sub(LINE_MAX / 2) };
    let end = characters.len().min(start + LINE_MAX);
    let part = |range: std::ops::Range<usize>| {
        let raw: String = characters[range].iter().map(|c| if *c == '\t' { ' ' } else { *c }).collect();
        clean(&raw).into_owned()
    };
    let before = part(start..target.min(end));
    let sign = if start > 0 { "…" } else { "" };
    let caret = before.chars().count() + sign.chars().count();
    let after = part(target.min(end)..end);
    let tail = if end < characters.len() { "…" } else { "" };
    (format!("{sign}{before}{after}{tail}"), caret)
}

#[cfg(test)]
mod tests;
