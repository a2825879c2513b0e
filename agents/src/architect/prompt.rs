//! Prompt for the model of an architect: instructions, an example, the task, and the findings of the last draft.
//!
//! The part common to all requests comes first, so that prompt caches of providers hit. The prompt is written for
//! models with a context of 8,192 tokens, answer included. Parts that depend on the request share the remaining room;
//! excerpts, findings and the last draft are truncated to it ([`PROMPT_MAX`]).

use std::fmt::Write as _;

use patchboard_kernel::view::Prompt;
use patchboard_lint::source::Source;
use patchboard_lint::{Diagnostic, Severity};
use serde_json::{Value, json};

use super::{DesignRequest, Round, reply_schema};
use crate::config::DesignLimits;
use patchboard_kernel::text::one_line;
use patchboard_llm::key_order::OrderedJson;

/// Example blueprint, as shipped.
const EXAMPLE: &str = include_str!("../../../blueprints/evidence-review.yaml");

/// Greatest length of a prompt in characters. At three characters a token, usual for JSON and English, it leaves 2,500
/// of 8,192 tokens for the answer.
pub const PROMPT_MAX: usize = 17_000;

/// Greatest length of a request in the prompt, in characters.
pub const REQUEST_MAX: usize = 4000;

/// Greatest number of documents that are described one by one.
const DOCUMENTS_MAX: usize = 12;

/// Characters shown of each document.
const EXCERPT_MAX: usize = 160;

/// Characters shown of the user's input.
const INPUT_MAX: usize = 1200;

/// Characters shown of each text in the input.
const SKETCH_TEXT_MAX: usize = 160;

const SKETCH_ITEMS_MAX: usize = 3;

const SKETCH_MEMBERS_MAX: usize = 32;

const SKETCH_DEPTH_MAX: usize = 6;

const FINDINGS_MAX: usize = 10;

/// Characters shown of a finding's message and of its help.
const FINDING_MAX: usize = 300;

const INSTRUCTIONS: &str = r#"You are an architect. Workers (language models) will do a task together by editing one shared JSON document, the board. You write the blueprint of the board: what the document looks like, which workers there are, what each may read and write, and what wakes them. You do not do the task.

Answer with the blueprint alone, one JSON object with these members in this order:
- blueprint: 2
- name: letters, digits and dashes. description: one sentence.
- request: JSON Schema of what the user supplies. The program puts it at /request; no worker writes there, and what workers make is not in it.
- state: {schema, initial}. schema: JSON Schema of the document, without request. initial: the document at the start, without request. initial must fit schema: lists start as [] and so have no minItems, and what a worker adds later is not in `required`.
- workers: by name: {agent, role, reads, writes, view?, limits?}
  agent: llm. (human: a person who only agrees to writes that have approval: {by: NAME}.)
  role: what to do when woken, and where to write it, as an instruction.
  reads: paths it is shown, with everything below them. It sees nothing else.
  writes: [{path, ops, value?}]: the only places it may write. value: a JSON Schema of what it may put there.
- rules: [{name, trigger, when?, run}]: what wakes a worker. run: a name from workers, nothing else; `done` ends the board by itself.
- invariants: [{name, for?, expr}]: CEL that must hold after every write. [] if none is needed.
- done: {when}: CEL that becomes true when the task is finished.

Rules that decide whether it works:
1. A path begins with / and names a place of state.schema, or of request below /request. `*` stands for one index or key. A last `-` stands for the end of a list. `{claim}` stands for the one element that woke the worker.
2. To append to the list /claims, a worker needs {path: /claims/-, ops: [add]}. To set a field of the element that woke it, {path: /claims/{claim}/status, ops: [replace]}. To write a member that is not there at first, {path: /answer, ops: [add]}; to overwrite one that is there, ops: [replace]. A grant covers exactly its path, nothing above or below.
3. Triggers: start (once, at the beginning); {start: /request/documents/{document}} (at the beginning, once for each); {op: add, path: /claims/{claim}} (an element came; never /claims/-); {op: replace, path: /claims/{claim}/status}; {after: [rule names]} (once, when all that these rules do is finished). One rule has the trigger start. Every worker is run by a rule.
4. A worker reads what woke it, and all it needs for its role. One that is woken for each element has the name of its trigger in its paths, not `*`: reads /claims/{claim}.
5. CEL knows: state, request; in `when` also event and value (what is at the event's path); in invariants also before, and self (the value at the path) only if there is a `for`. A member that may be missing is tested first: has(state.answer) && size(state.answer.text) > 0. The length of lists and texts: size(l). Lists: l.all(x, x.done), l.exists(x, x.id == 1). Objects: m.all(key, x, x.done), m.exists(key, x, x.id == 1). Text in double quotes.
6. `done.when` must become true by what the workers write.
7. Two to four workers, each with one job and places of its own. Let one check what another wrote, if errors would matter.
8. view: {budget: N} is the most characters that a worker is shown. Leave it out: it follows from the model.
9. limits of the board: {commits, tokens, wall: "30m"}; leave them out unless the request asks for them. Nothing is unlimited.
10. No programs, scripts, models or files: only what is named above."#;

/// Builds the prompt for a brief; after a round, with its draft and findings.
///
/// A draft that the model has repeated is not shown again, because small models copy what they see.
pub fn build(brief: &DesignRequest, terms: &DesignLimits, rounds: &[Round]) -> Prompt {
    let mut system = format!("{INSTRUCTIONS}\n\nA blueprint that works:\n");
    for example in examples() {
        system.push_str(&OrderedJson::new(&example, reply_schema::ORDER).json());
        system.push('\n');
    }
    let room = PROMPT_MAX.saturating_sub(system.chars().count());
    Prompt { system, user: task(brief, terms, rounds, room) }
}

/// Returns the examples of the prompt, as values.
pub fn examples() -> Vec<Value> {
    let source = Source::read("example", EXAMPLE).expect("a shipped blueprint, which a test reads");
    let mut value = source.value().clone();
    // Drops members that have defaults, and those that the request's schema repeats.
    if let Some(members) = value.as_object_mut() {
        members.retain(|name, _| name != "circuit" && name != "limits");
    }
    for worker in value["workers"].as_object_mut().into_iter().flatten().map(|(_, worker)| worker) {
        if let Some(members) = worker.as_object_mut() {
            members.retain(|name, _| name != "limits" && name != "patch");
        }
    }
    if let Some(place) = value.pointer_mut("/state/schema/properties/request") {
        *place = json!(true);
    }
    without_descriptions(&mut value["state"]["schema"]);
    // Triggers one invocation for each claim, limited to that claim.
    for place in ["/workers/verifier/reads/0", "/rules/2/trigger/path"] {
        if let Some(path) = value.pointer_mut(place).filter(|path| **path == "/claims/*") {
            *path = json!("/claims/{claim}");
        }
    }
    vec![value]
}

fn without_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.retain(|name, value| !(name == "description" && value.is_string()));
            members.values_mut().for_each(without_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(without_descriptions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Builds the part that depends on the request, in at most `room` characters.
fn task(brief: &DesignRequest, terms: &DesignLimits, rounds: &[Round], room: usize) -> String {
    const CLOSING: &str = "\nWrite the blueprint for this request.\n";
    let mut head = format!("The request:\n{}\n", cut(brief.request.trim(), REQUEST_MAX));
    if !brief.documents.is_empty() {
        describe(brief, &mut head);
    }
    let mut text = String::new();
    if let Some(input) = &brief.input {
        let documents =
            if brief.documents.is_empty() { "" } else { ", with room for `documents`, which the program adds" };
        let _ = write!(
            text,
            "\nThe user supplies this at /request (long texts and lists are cut):\n{}\n`request` is a schema that it fits{documents}.\n",
            cut(&sketch(input, 0).to_string(), INPUT_MAX)
        );
    }
    if brief.asks_for_input() {
        let documents = if brief.documents.is_empty() { "" } else { ", without `documents`, which the program adds" };
        let _ = write!(
            text,
            "\nAdd one more member, input: what this request supplies, as a value that fits the schema in `request`{documents}.\n"
        );
    }
    let caps = &terms.caps;
    let _ = write!(
        text,
        "\nLimits may be at most {} commits, {} tokens, {} of running time.\n",
        caps.commits, caps.tokens, caps.wall
    );
    let taken: usize = [head.as_str(), &text, CLOSING].iter().map(|part| part.chars().count()).sum();
    let left = room.saturating_sub(taken);
    // Once there is a draft, it is more useful than the beginnings of the documents.
    let excerpts = excerpts(brief, if rounds.is_empty() { left } else { left / 5 });
    let left = left.saturating_sub(excerpts.chars().count());
    let complaint = match rounds {
        [] => String::new(),
        [.., before, last] if before.draft == last.draft && !last.draft.is_empty() => repeated(last, left),
        [.., last] => last_draft_section(last, left),
    };
    [head.as_str(), &excerpts, &text, &complaint, CLOSING].concat()
}

/// Truncates long texts and lists of a value, and keeps what is needed to write its schema.
fn sketch(value: &Value, depth: usize) -> Value {
    match value {
        Value::String(text) => cut(text, SKETCH_TEXT_MAX).into(),
        Value::Array(_) | Value::Object(_) if depth == SKETCH_DEPTH_MAX => "[cut]".into(),
        Value::Array(items) => {
            let few = items.iter().take(SKETCH_ITEMS_MAX).map(|item| sketch(item, depth + 1));
            let more = items.len().checked_sub(SKETCH_ITEMS_MAX + 1).map(|more| format!("[{} more]", more + 1).into());
            few.chain(more).collect()
        }
        Value::Object(members) => members
            .iter()
            .take(SKETCH_MEMBERS_MAX)
            .map(|(name, value)| (cut(name, SKETCH_TEXT_MAX), sketch(value, depth + 1)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn describe(brief: &DesignRequest, text: &mut String) {
    let sizes: usize = brief.documents.iter().map(|document| document.text.chars().count()).sum();
    let _ = write!(
        text,
        "\nThe user gives {} documents, {sizes} characters in all. They are at /request/documents, a list of {{title, text}}: \
         `request` has documents in `properties` (and `required`) as {}, and the workers that need them read \
         /request/documents/*. They begin like this:\n",
        brief.documents.len(),
        json!({"type": "array", "items": {"type": "object", "properties": {"title": {"type": "string"}, "text": {"type": "string"}}}})
    );
}

/// Lists the beginnings of the documents, as many as fit.
fn excerpts(brief: &DesignRequest, max: usize) -> String {
    let lines = brief.documents.iter().take(DOCUMENTS_MAX).map(|document| {
        let excerpt = one_line(&document.text, EXCERPT_MAX);
        let chars = document.text.chars().count();
        format!("- {} ({chars} characters): {excerpt}\n", one_line(&document.title, 80))
    });
    fitting(lines, max)
}

/// Shows the last draft and its findings, in at most `max` characters. Findings take at most half of them; the draft
/// gets the rest.
fn last_draft_section(last: &Round, max: usize) -> String {
    const AGAIN: &str = "Write the whole blueprint again, mended.\n";
    let verdict = match last.findings.iter().any(|finding| finding.severity == Severity::Error) {
        false => "\nIt can be used. Better would be to heed this, if it is right:\n",
        true => "\nIt was refused. What is wrong with it:\n",
    };
    let lead =
        if last.draft.is_empty() { "\nYour last answer could not be read.\n" } else { "\nYour last answer was:\n" };
    let left = max.saturating_sub([lead, verdict, AGAIN, "\n"].iter().map(|part| part.chars().count()).sum());
    let findings = findings(last, left / 2, |finding| line_of(finding) + &format_finding(finding));
    let mut draft = cut(last.draft.trim(), left.saturating_sub(findings.chars().count()));
    if !draft.is_empty() {
        draft.push('\n');
    }
    [lead, &draft, verdict, &findings, AGAIN].concat()
}

/// Lists the findings of a draft that was repeated, without the draft.
fn repeated(last: &Round, max: usize) -> String {
    const LEAD: &str = "\nYour last two answers were the same, and wrong in this:\n";
    const REQUEST: &str = "Write another one that is different there.\n";
    let left = max.saturating_sub([LEAD, REQUEST].iter().map(|part| part.chars().count()).sum());
    [LEAD, &findings(last, left, format_finding), REQUEST].concat()
}

/// Lists the findings of a round, one per line, as many as fit.
fn findings(round: &Round, max: usize, render: impl Fn(&Diagnostic) -> String) -> String {
    fitting(round.findings.iter().take(FINDINGS_MAX).map(|finding| format!("- {}\n", render(finding))), max)
}

/// Joins the first of these lines, as many as fit into `max` characters.
fn fitting(lines: impl Iterator<Item = String>, max: usize) -> String {
    let mut text = String::new();
    let mut left = max;
    for line in lines {
        let Some(rest) = left.checked_sub(line.chars().count()) else { break };
        left = rest;
        text.push_str(&line);
    }
    text
}

/// Formats the line of a finding in the draft.
fn line_of(finding: &Diagnostic) -> String {
    finding.position.map(|position| format!("line {}, ", position.line)).unwrap_or_default()
}

/// Formats a finding on one line: `/rules/0/run [undeclared_worker]: … Did you mean …?`
fn format_finding(finding: &Diagnostic) -> String {
    let place = if finding.pointer.is_empty() { "the whole" } else { &finding.pointer };
    let (message, help) = (one_line(&finding.message, FINDING_MAX), one_line(&finding.help, FINDING_MAX));
    format!("{} [{}]: {message}. {help}", one_line(place, FINDING_MAX), finding.code)
}

/// Truncates a text to `max` characters, with a sign at the cut.
fn cut(text: &str, max: usize) -> String {
    const SIGN: &str = " [cut]";
    if text.char_indices().nth(max).is_none() {
        return text.to_owned();
    }
    let end = text.char_indices().nth(max.saturating_sub(SIGN.len())).map_or(0, |(end, _)| end);
    format!("{}{SIGN}", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests;
