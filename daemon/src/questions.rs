//! Formats questions to persons as text.

use jsonptr::PointerBuf;
use patchboard_kernel::board::PendingQuestion;
use patchboard_kernel::id::{Seq, Timestamp};
use patchboard_kernel::state::State;
use serde_json::Value;

use crate::output::{json_line, json_pretty, one_line, short};
use crate::reader::format_time;

const CURRENT_VALUE_CHARS_MAX: usize = 400;

pub(crate) fn question_text(seq: Seq, question: &PendingQuestion, state: &State) -> String {
    let (by, approver) = (one_line(question.by.worker.as_str()), one_line(question.approver.as_str()));
    let intent = question.intent.as_ref().map(|intent| format!("\n  because: {}", one_line(intent)));
    let (until, intent) = (until(question.expires), intent.unwrap_or_default());
    if let Some(clarify) = &question.clarify {
        let choices = clarify.choices.iter().map(|choice| format!("\n  - {}", one_line(choice))).collect::<String>();
        let asked = indented(&one_line(&clarify.question), seq);
        return format!("{by} asks {approver}{until}{intent}\n{asked}{choices}");
    }
    let shown = question.expand.iter().map(|place| one_line(&place.to_string())).collect::<Vec<_>>().join(", ");
    let shown = if shown.is_empty() { shown } else { format!("\n  and requests: {shown}") };
    let now: Vec<String> =
        affected_values(&question.patch, state).map(|(place, value)| format!("  now {place}: {value}")).collect();
    let now = if now.is_empty() { String::new() } else { format!("\n{}", now.join("\n")) };
    let asked = indented(&json_pretty(&question.patch), seq);
    format!("{by} asks {approver} to agree{until}{intent}{shown}\n{asked}{now}")
}

pub(crate) fn until(expires: Option<Timestamp>) -> String {
    expires.map(|expires| format!(", until {}", format_time(expires))).unwrap_or_default()
}

/// Returns the places that a patch reads or overwrites, with their current values.
fn affected_values<'a>(patch: &'a Value, state: &'a State) -> impl Iterator<Item = (String, String)> + 'a {
    let ops = patch.as_array().into_iter().flatten();
    let places = ops.flat_map(|op| [&op["path"], &op["from"]]).filter_map(Value::as_str);
    places.filter_map(|place| {
        let there = state.root().get(&PointerBuf::parse(place).ok()?)?.to_value();
        Some((one_line(place), short(&json_line(&there), CURRENT_VALUE_CHARS_MAX)))
    })
}

/// Indents lines under the number of their record.
fn indented(text: &str, seq: Seq) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("  {line}")).collect();
    format!("  record {seq}:\n{}", lines.join("\n"))
}
