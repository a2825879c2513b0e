//! Reviews the answer of an architect's model: findings of the lint, and restrictions on architects.
//!
//! Owns the restrictions of SPEC section 11 for blueprints that a model wrote ([`CODES`]), the caps, and the check of
//! the board's request. An answer is untrusted until it has passed: its size is bounded before it is read.

use patchboard_kernel::blueprint::{AgentKind, Blueprint, Duration, EventOp, GrantOp, Trigger, WriteGrant};
use patchboard_kernel::board::{Board, BoardError, NewBoard};
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::rejection::{VIOLATIONS_MAX, Violation};
use patchboard_kernel::schema::Schema;
use patchboard_lint::source::Source;
use patchboard_lint::{Diagnostic, FindingCode, Severity};
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::Failure;
use serde_json::{Value, json};

use super::{Design, DesignRequest, reply_schema, with_documents};
use crate::config::{Caps, DesignLimits};
use patchboard_kernel::text::one_line;
use patchboard_llm::key_order::OrderedJson;
use patchboard_llm::unfence;

/// Findings in addition to the lint's: code, severity, meaning.
pub const CODES: &[FindingCode] = &[
    (
        "not_for_architects",
        Severity::Error,
        "Something only people may write into a blueprint: programs, scripts, models, rules that are set off by hand.",
    ),
    ("no_answer", Severity::Error, "The model wrote nothing, or was cut off."),
    ("no_rules", Severity::Error, "No rule would ever trigger a worker."),
    ("no_start", Severity::Error, "No rule has the trigger `start`: no worker would ever be the first."),
    ("bad_input", Severity::Error, "The board's request does not fit what the blueprint demands."),
    (
        "unbound_element",
        Severity::Error,
        "A worker is triggered for each element of a collection, and its paths name any element.",
    ),
    ("documents_unread", Severity::Error, "Documents were given, and no worker may read them."),
    ("capped", Severity::Warning, "A limit was lowered to what the operator, or the board's own limit, allows."),
];

/// Greatest size of an answer in bytes; the rest is not read.
pub const ANSWER_MAX: usize = 64 * 1024;

/// Characters of the request in the blueprint's comment.
const COMMENT_MAX: usize = 300;

/// Warnings that do not justify another call: they concern performance, spelling, or decisions of the operator.
const IGNORED_WARNINGS: [&str; 7] =
    ["costly_schema", "costly_shift", "costly_invariant", "default_model", "unused_model", "renamed_field", "capped"];

/// Returns the number of warnings that justify another call.
pub(super) fn advice(draft: &Design) -> usize {
    draft.findings.iter().filter(|finding| !IGNORED_WARNINGS.contains(&finding.code)).count()
}

/// Reviews an answer in JSON or YAML, with or without a fence around it. Returns the draft without its rounds, or its
/// errors.
pub(super) fn review(text: &str, brief: &DesignRequest, terms: &DesignLimits) -> Result<Design, Vec<Diagnostic>> {
    let single = |finding| vec![finding];
    if text.len() > ANSWER_MAX {
        let message = format!("the answer is longer than {ANSWER_MAX} bytes");
        return Err(vec![Diagnostic::new("too_large", "", message, "Write a smaller blueprint.")]);
    }
    let mut source = Source::read("answer", inside(text)).map_err(single)?;
    let input = source.take_member("input");
    let mut findings = Vec::new();
    restrict(&source, &mut findings);
    let report = patchboard_protocols::check(&source);
    let found = report.findings.clone();
    let Some(blueprint) = report.blueprint.filter(|_| findings.is_empty()) else {
        findings.extend(report.findings.into_iter().filter(|finding| finding.severity == Severity::Error));
        return Err(findings);
    };
    let mut refusals = unbound_elements(&blueprint, &source);
    // For people this is only a warning, because they may intend it.
    let wide = found.into_iter().filter(|finding| finding.code == "wide_grant");
    refusals.extend(wide.map(|finding| Diagnostic { severity: Severity::Error, ..finding }));
    if !refusals.is_empty() {
        return Err(refusals);
    }
    let input = fit(&blueprint, input, brief)?;
    if !brief.documents.is_empty() && !reads_documents(&blueprint) {
        let help = "Give `/request/documents/*` to the `reads` of who works with them.";
        return Err(vec![Diagnostic::new("documents_unread", "/workers", "no worker reads /request/documents", help)]);
    }
    let mut value = source.value().clone();
    if let Some(members) = value.as_object_mut() {
        members.insert("limits".to_owned(), serde_json::to_value(&blueprint.limits).unwrap_or_default());
    }
    let (value, capped) = cap(value, &blueprint, &terms.caps);
    let yaml = format!(
        "# Made by the architect, for: {}\n{}",
        one_line(&brief.request, COMMENT_MAX),
        OrderedJson::new(&value, reply_schema::ORDER).yaml()
    );
    // Checks the text again as it will be read, so that findings name its lines and lowered limits are checked as well.
    let report = patchboard_protocols::check(&Source::read("blueprint", &yaml).map_err(single)?);
    let Some(blueprint) = report.blueprint else { return Err(report.findings) };
    let mut findings = report.findings;
    findings.extend(capped);
    Ok(Design { blueprint, yaml, input, findings, rounds: Vec::new() })
}

pub(super) fn incomplete_answer(failure: &Failure) -> Diagnostic {
    let help = "Answer with one complete blueprint: fewer workers, short roles, no descriptions.";
    Diagnostic::new("no_answer", "", failure.message.clone(), help)
}

/// Truncates an answer to the size that is kept.
pub(super) fn bounded(text: &str) -> &str {
    let end = (0..=ANSWER_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// Returns the text without a fence around it, or the content of the only fence in it.
fn inside(text: &str) -> &str {
    let text = unfence(text);
    let mut fences = text.match_indices("```").map(|(at, _)| at);
    if let (Some(open), Some(close), None) = (fences.next(), fences.next(), fences.next())
        && let Some((_, inside)) = text.get(open..close).and_then(|fenced| fenced.split_once('\n'))
    {
        return inside.trim();
    }
    text
}

/// Finds members that people may write into a blueprint but models may not (SPEC section 11).
fn restrict(source: &Source, findings: &mut Vec<Diagnostic>) {
    let value = source.value();
    let mut refuse = |pointer: &str, what: &str, help: &str| {
        findings.push(Diagnostic::at(source, "not_for_architects", pointer, what, help));
    };
    if value["use"].as_array().is_none_or(|names| !names.is_empty()) && !value["use"].is_null() {
        refuse("/use", "a blueprint of an architect includes no files", "Leave `use` out.");
    }
    if value["boards"].as_object().is_some_and(|boards| !boards.is_empty()) {
        refuse("/boards", "a blueprint of an architect has no boards inside", "Leave `boards` out.");
    }
    if !value["departments"].is_null() {
        refuse("/departments", "a blueprint of an architect has no departments", "Leave `departments` out.");
    }
    if !value["workflow"].is_null() {
        refuse(
            "/workflow",
            "a blueprint of an architect has rules and no workflow",
            "Write the rules, and leave `workflow` out.",
        );
    }
    for (name, model) in value["models"].as_object().into_iter().flatten() {
        if name != "default" || model != "default" {
            let pointer = child("/models", name);
            refuse(&pointer, "which models there are is the operator's to say", "Leave `models` out.");
        }
    }
    for (name, worker) in value["workers"].as_object().into_iter().flatten() {
        let at = child("/workers", name);
        let agent = worker["agent"].as_str().unwrap_or("llm");
        if !(agent == "llm" || agent == "human" || agent.starts_with("builtin:")) {
            let what = format!("`{}` is no agent for an architect", one_line(agent, 60));
            refuse(&format!("{at}/agent"), &what, "Use `llm`, or `human` for a person who agrees to a write.");
        }
        for field in ["program", "command", "restart", "script", "model"] {
            if worker.get(field).is_some() {
                refuse(&format!("{at}/{field}"), &format!("`{field}` is not for architects"), "Leave it out.");
            }
        }
    }
    let rules = value["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, _) in rules.iter().enumerate().filter(|(_, rule)| rule["trigger"] == "manual") {
        let what = "nobody is there to set off a rule by hand";
        refuse(&format!("/rules/{index}/trigger"), what, "Use `start`, an operation on a path, or `after`.");
    }
    if value["workers"].is_object() && rules.is_empty() {
        let help = "Add rules, the first with `trigger: start`.";
        findings.push(Diagnostic::at(source, "no_rules", "/rules", "nothing would ever wake a worker", help));
    } else if !rules.is_empty() && !rules.iter().any(|rule| rule["trigger"] == "start") {
        let (what, help) = ("no rule begins the work", "Give the first rule `trigger: start`.");
        findings.push(Diagnostic::at(source, "no_start", "/rules", what, help));
    }
}

/// Finds rules that fire for each element of a collection, but trigger a worker with access to any element.
fn unbound_elements(blueprint: &Blueprint, source: &Source) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    for (number, rule) in blueprint.rules.iter().enumerate() {
        // After a removal there is no element to bind to.
        let is_removal = matches!(rule.trigger, Trigger::Event { op: Some(EventOp::Remove), .. });
        let Some(path) = rule.trigger.template().filter(|_| !is_removal) else { continue };
        let tokens: Vec<&str> = path.split('/').collect();
        let Some(element) = tokens.iter().rposition(|token| is_any(token)) else { continue };
        let all = tokens[..element].join("/");
        // Finds paths that name any element of the collection.
        let is_of_any = |grant: &&String| {
            let of_grant: Vec<&str> = grant.split('/').collect();
            let is_within = tokens[..element].iter().zip(&of_grant).all(|(a, b)| a == b || (is_any(a) && is_any(b)));
            of_grant.len() > element && is_within && matches!(of_grant[element], "*" | "**")
        };
        for name in blueprint.triggered_workers(&rule.run) {
            let Some(worker) = blueprint.workers.get(name) else { continue };
            // A grant that only adds may add another element.
            let is_new =
                |write: &&WriteGrant| write.ops == [GrantOp::Add] && write.path.split('/').count() == element + 1;
            let written = worker.writes.iter().filter(|write| !is_new(write)).map(|write| &write.path);
            let mut grants = worker.reads.iter().map(|read| &read.path).chain(written);
            if let Some(grant) = grants.find(is_of_any) {
                let message = format!("`{name}` is woken for one of `{all}`, and `{grant}` is any of them");
                let bound = match tokens[element] {
                    "*" | "**" => "{element}",
                    name => name,
                };
                let help = format!(
                    "Write `{all}/{bound}` in the trigger and in the paths of `{name}`, with a name for the element, in `blueprint: 2`; or read `{all}` if it needs all of them."
                );
                let pointer = format!("/rules/{number}/trigger");
                findings.push(Diagnostic::at(source, "unbound_element", &pointer, message, help));
            }
        }
    }
    findings
}

/// Returns true for a token of a path that matches any name or index.
fn is_any(token: &str) -> bool {
    matches!(token, "*" | "**") || (token.starts_with('{') && token.ends_with('}'))
}

fn reads_documents(blueprint: &Blueprint) -> bool {
    let reads = blueprint.workers.values().flat_map(|worker| &worker.reads);
    let mut tokens = reads.map(|read| read.path.split('/').skip(1).take(2).collect::<Vec<_>>());
    tokens.any(|tokens| match tokens.as_slice() {
        [] | ["**" | "request" | "*"] => true,
        [first, second, ..] => {
            *first == "**" || (["request", "*"].contains(first) && ["documents", "*", "**"].contains(second))
        }
        _ => false,
    })
}

/// Returns the board's request, including the documents, if it fits the blueprint.
fn fit(blueprint: &Blueprint, input: Option<Value>, brief: &DesignRequest) -> Result<Option<Value>, Vec<Diagnostic>> {
    const WRITTEN: &str = "`input` must fit the schema in `request`; the program adds `documents` to it, as a list of \
                           {title, text}, for which `request` must leave room.";
    const GIVEN: &str = "What the user supplies is as it is: `request` must be a schema that it fits, with room for \
                         `documents`, a list of {title, text}, if there are any.";
    let (place, help) = if brief.asks_for_input() { ("/input", WRITTEN) } else { ("/request", GIVEN) };
    let bad = |violations: Vec<Violation>| -> Vec<Diagnostic> {
        let found = |violation: Violation| {
            let pointer = format!("{place}{}", violation.pointer);
            let said = one_line(&violation.message, 300);
            let message = if brief.asks_for_input() { said } else { format!("what the user supplies: {said}") };
            Diagnostic::new("bad_input", &pointer, message, help)
        };
        violations.into_iter().map(found).collect()
    };
    let supplied = if brief.asks_for_input() { input } else { brief.input.clone() };
    let Some(request) = with_documents(supplied.unwrap_or(Value::Null), &brief.documents) else {
        let message = "the board's request is no object, so that documents have no place in it";
        return Err(vec![Diagnostic::new("bad_input", place, message, help)]);
    };
    if brief.wants_input || brief.input.is_some() {
        // The kernel decides whether a board can be created from it.
        let genesis = NewBoard::new("draft", blueprint.clone(), request.clone(), Timestamp(0));
        return match Board::create(genesis, &PLANS) {
            Ok(_) => Ok(Some(request)),
            Err(BoardError::BadRequest(violations)) => Err(bad(violations)),
            Err(other) => Err(vec![Diagnostic::new("bad_input", place, other.to_string(), help)]),
        };
    }
    if !brief.documents.is_empty()
        && let Ok(schema) = Schema::compile(&blueprint.request, blueprint.state.assert_formats)
    {
        // Violations that also occur without documents will be resolved by the user's input, unless no object is
        // allowed at all.
        let without = schema.violations(&json!({}), VIOLATIONS_MAX);
        let is_no_object = |one: &Violation| one.pointer.is_empty() && one.rule.as_deref() == Some("type");
        let mut violations = schema.violations(&request, VIOLATIONS_MAX);
        let is_old = |one: &Violation| without.iter().any(|old| (&old.pointer, &old.rule) == (&one.pointer, &one.rule));
        violations.retain(|violation| is_no_object(violation) || !is_old(violation));
        if !violations.is_empty() {
            return Err(bad(violations));
        }
    }
    Ok(None)
}

/// Lowers all limits to the caps. Returns the blueprint and a warning for each lowered limit.
fn cap(mut value: Value, read: &Blueprint, caps: &Caps) -> (Value, Vec<Diagnostic>) {
    const OPERATOR: (&str, &str) =
        ("the most that the operator allows", "The operator's caps stand in patchboard.toml, under [architect].");
    const BOARD: (&str, &str) =
        ("the limit of the whole board", "The board's own limits stand in the blueprint, under `limits`.");
    let mut lowered = Vec::new();
    // Lowers a limit inside a member, which is created if it is missing.
    let mut lower = |at: &str, below: &str, name: &str, to: Value, (most, help): (&str, &str)| {
        let Some(mut members) = value.pointer_mut(at).and_then(Value::as_object_mut) else { return };
        let mut pointer = format!("{at}/{name}");
        if !below.is_empty() {
            let inner = members.entry(below).or_insert_with(|| json!({}));
            let Some(inner) = inner.as_object_mut() else { return };
            members = inner;
            pointer = format!("{at}/{below}/{name}");
        }
        let text = to.as_str().map_or_else(|| to.to_string(), str::to_owned);
        members.insert(name.to_owned(), to);
        let message = format!("{pointer} was lowered to {text}, {most}");
        lowered.push(Diagnostic { severity: Severity::Warning, ..Diagnostic::new("capped", &pointer, message, help) });
    };
    let limits = &read.limits;
    for (name, is_over, most) in [
        ("commits", limits.commits > caps.commits, caps.commits.into()),
        ("tokens", limits.tokens > caps.tokens, caps.tokens.into()),
        ("state_bytes", limits.state_bytes > caps.state_bytes, caps.state_bytes.into()),
        ("wall", limits.wall > caps.wall, caps.wall.to_string().into()),
    ] {
        if is_over {
            lower("", "limits", name, most, OPERATOR);
        }
    }
    if read.concurrency > caps.concurrency {
        lower("", "", "concurrency", caps.concurrency.into(), OPERATOR);
    }
    let says = |is_boards: bool| if is_boards { BOARD } else { OPERATOR };
    let (tokens, wall): (u64, Duration) = (limits.tokens.min(caps.tokens), limits.wall.min(caps.wall));
    let (of_tokens, of_wall) = (says(limits.tokens < caps.tokens), says(limits.wall < caps.wall));
    // A person uses no tokens, and the grant sets the time limit of its approval.
    for (name, worker) in read.workers.iter().filter(|(_, worker)| worker.agent != AgentKind::Human) {
        let at = child("/workers", name.as_str());
        if worker.limits.tokens.is_some_and(|given| given > tokens) {
            lower(&at, "limits", "tokens", tokens.into(), of_tokens);
        }
        if u64::from(worker.limits.reply_tokens) > tokens {
            lower(&at, "limits", "reply_tokens", tokens.into(), of_tokens);
        }
        if worker.limits.timeout > wall {
            lower(&at, "limits", "timeout", wall.to_string().into(), of_wall);
        }
    }
    (value, lowered)
}

fn child(pointer: &str, token: &str) -> String {
    format!("{pointer}/{}", token.replace('~', "~0").replace('/', "~1"))
}
