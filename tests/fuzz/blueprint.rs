//! Fuzzes the blueprint reader and the lint, with any text and with mutated blueprints.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Duration;

use jsonptr::Pointer;
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Board, NewBoard};
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_kernel::json::{self, Limits};
use patchboard_kernel::plan::PlanSource as _;
use patchboard_lint::Position;
use patchboard_lint::source::{COPIED_BYTES_MAX, DEPTH_MAX, Source, VALUES_MAX};
use patchboard_lint::{Diagnostic, FINDINGS_MAX, Report, Severity};
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

use crate::bytes::Bytes;
use crate::{values, within};

/// Time limit for reading and checking one input. Optimised builds take milliseconds, unless regular expressions use up
/// their budget: an accepted blueprint is compiled ten times here, each for up to half a second.
const BOUND: Duration = Duration::from_secs(20);

/// Checks a blueprint given as text; if the first byte is 0, the rest are changes of a valid blueprint.
pub fn blueprint(data: &[u8]) {
    within(BOUND, "reading a blueprint", || match data.split_first() {
        Some((0, choices)) => check(&changed(&mut Bytes::new(choices)).to_string()),
        _ => check(&String::from_utf8_lossy(data)),
    });
}

fn check(text: &str) {
    let limits = Limits { bytes: usize::MAX, depth: DEPTH_MAX };
    let as_json = json::parse(text.as_bytes(), limits).ok();
    let source = match Source::read("fuzzed", text) {
        Ok(source) => source,
        Err(finding) => {
            check_finding(&finding, text);
            assert!(finding.position.is_some(), "{finding:?}");
            assert_eq!(finding.severity, Severity::Error, "{finding:?}");
            assert!(as_json.is_none() || !is_yaml(text), "every JSON text is YAML: {finding:?}");
            return;
        }
    };
    if let Some(value) = as_json {
        assert_eq!(*source.value(), value, "a JSON text means what it says");
    }
    let (values, bytes) = weight(source.value());
    assert!(values <= VALUES_MAX && bytes <= COPIED_BYTES_MAX && json::depth(source.value()) <= DEPTH_MAX);
    for place in values::places(source.value(), 1000) {
        for position in [source.position(place.as_str()), source.key_position(place.as_str())] {
            check_position(position.expect("what was read stands somewhere"), text);
        }
        let length = place.resolve(source.value()).ok().and_then(Value::as_str).map_or(0, str::len);
        for offset in [0, length / 2, length.saturating_sub(1), length, usize::MAX] {
            check_position(source.position_in(place.as_str(), offset).expect("as above"), text);
        }
    }
    let report = patchboard_protocols::check(&source);
    check_report(&report, text);
    if source.beyond_json().next().is_some() {
        assert!(report.blueprint.is_none(), "a number that JSON does not have was accepted");
        return;
    }
    // Positions in a text do not affect the result.
    let from_value = patchboard_protocols::check_value(source.value().clone());
    assert_eq!(from_value.blueprint, report.blueprint);
    if report.findings.len() < FINDINGS_MAX {
        assert_eq!(places(&from_value), places(&report));
    }
    if let Some(blueprint) = report.blueprint {
        check_accepted(blueprint);
    }
}

fn check_report(report: &Report, text: &str) {
    assert!(report.findings.len() <= FINDINGS_MAX);
    for finding in &report.findings {
        check_finding(finding, text);
    }
    assert!(report.findings.iter().map(|finding| finding.severity).is_sorted(), "errors come first");
    let is_refused = report.findings.iter().any(|finding| finding.severity == Severity::Error);
    assert_eq!(report.blueprint.is_none(), is_refused, "{:?}", report.findings);
}

fn check_finding(finding: &Diagnostic, text: &str) {
    assert!(
        patchboard_protocols::codes().any(|(code, severity, _)| (*code, *severity) == (finding.code, finding.severity)),
        "{finding:?}"
    );
    assert!(Pointer::parse(&finding.pointer).is_ok(), "{finding:?}");
    assert!(!finding.message.is_empty() && !finding.help.is_empty(), "{finding:?}");
    // Findings quote names, but only a few of them.
    assert!(finding.message.len() + finding.help.len() <= 4096 + 16 * text.len(), "{finding:?}");
    if let Some(position) = finding.position {
        check_position(position, text);
    }
}

/// Returns false for JSON texts that the YAML reader is documented to reject. These have a name of about a thousand
/// bytes or more as written, or a character that YAML has only as an escape.
fn is_yaml(text: &str) -> bool {
    let is_printed = |c: char| match c {
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' => true,
        '\u{feff}' => false,
        _ => matches!(c, '\u{a0}'..='\u{fffd}' | '\u{10000}'..),
    };
    text.chars().all(is_printed) && text.split('"').all(|between| between.len() <= 500)
}

/// Checks that a position exists in a text: at a character of a line, or right after it. A lone carriage return ends a
/// line if the parser meets it between values, and otherwise is a character.
fn check_position(at: Position, text: &str) {
    let text = text.replace("\r\n", "\n");
    let is_in = |text: &str| {
        let line = (at.line as usize).checked_sub(1).and_then(|above| text.split('\n').nth(above));
        line.is_some_and(|line| (1..=line.chars().count() + 1).contains(&(at.column as usize)))
    };
    assert!(is_in(&text) || is_in(&text.replace('\r', "\n")), "{at:?} is not in the text");
}

/// Returns codes and pointers of the findings, in an order that does not depend on positions.
fn places(report: &Report) -> BTreeSet<(&'static str, &str)> {
    report.findings.iter().map(|finding| (finding.code, finding.pointer.as_str())).collect()
}

fn check_accepted(blueprint: Blueprint) {
    let spelt_out = serde_json::to_value(&blueprint).expect("a blueprint can be written");
    let again = patchboard_protocols::check_value(spelt_out.clone());
    let errors: Vec<_> = again.findings.iter().filter(|finding| finding.severity == Severity::Error).collect();
    assert_eq!(again.blueprint.as_ref(), Some(&blueprint), "with its defaults spelt out: {errors:?}");
    let printed = format!("{spelt_out:#}");
    match Source::read("printed", &printed) {
        Ok(source) => assert_eq!(*source.value(), spelt_out),
        Err(finding) => assert!(!is_yaml(&printed), "a blueprint that is printed can be read: {finding:?}"),
    }
    PLANS.plan(blueprint.clone(), &Mode::default()).expect("what has no error compiles");
    for request in [Value::Null, json!({}), json!({"a": [1, "x"]})] {
        let genesis = NewBoard::new(BoardId::from("fuzzed"), blueprint.clone(), request, Timestamp(0));
        if let Ok((board, step)) = Board::create(genesis, &PLANS) {
            let recovered =
                Board::recover(&step.records, &PLANS).expect("a board that was made can be made from its records");
            assert_eq!(recovered.state(), board.state());
        }
    }
}

/// Returns the number of values, and the bytes of strings and keys.
fn weight(value: &Value) -> (usize, usize) {
    let (mut values, mut bytes) = (0, 0);
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        values += 1;
        match value {
            Value::Array(items) => pending.extend(items),
            Value::Object(members) => {
                bytes += members.keys().map(String::len).sum::<usize>();
                pending.extend(members.values());
            }
            Value::String(text) => bytes += text.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    (values, bytes)
}

/// Words with a meaning in blueprints, as names or as values.
const WORDS: &[&str] = &[
    "$ref",
    "#/$defs/a",
    "#",
    "$defs",
    "$id",
    "$anchor",
    "$dynamicRef",
    "$schema",
    "type",
    "object",
    "array",
    "string",
    "integer",
    "properties",
    "patternProperties",
    "additionalProperties",
    "items",
    "prefixItems",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "enum",
    "const",
    "pattern",
    "format",
    "regex",
    "uniqueItems",
    "contains",
    "required",
    "minItems",
    "maxItems",
    "unevaluatedProperties",
    "dependentSchemas",
    "propertyNames",
    "llm",
    "human",
    "script",
    "command",
    "/**",
    "/*",
    "/tasks/-",
    "/tasks/*/status",
    "/tasks/0",
    "/notes/a~1b",
    "~2",
    "start",
    "manual",
    "signal",
    "after",
    "idle",
    "every",
    "op",
    "add",
    "insert",
    "remove",
    "value",
    "approval",
    "by",
    "expires",
    "1h",
    "30s",
    "0s",
    "freshness",
    "reads",
    "view",
    "limits",
    "state.tasks",
    "state.tasks.all(t, t.status == 'done')",
    "self.status == before",
    "size(state.tasks) < 9u",
    "((((",
    "request",
    "worker",
    "checker",
    "(a+)+$",
    "^[a-z]{1,1000}$",
    "\\p{L}",
    "$expand",
    "",
    "é",
    "18446744073709551615",
];

/// Returns a valid blueprint with some changes. Without changes it must be accepted.
fn changed(bytes: &mut Bytes<'_>) -> Value {
    let mut value = good().clone();
    if bytes.is_empty() {
        let report = patchboard_protocols::check_value(value.clone());
        assert!(report.blueprint.is_some(), "the blueprint that is changed is good: {:?}", report.findings);
    }
    for _ in 0..16 {
        if bytes.is_empty() {
            break;
        }
        values::change(&mut value, bytes, WORDS);
    }
    value
}

/// Returns a blueprint that has nearly every construct.
fn good() -> &'static Value {
    static GOOD: OnceLock<Value> = OnceLock::new();
    GOOD.get_or_init(|| {
        json!({
            "blueprint": 1,
            "name": "fuzzed",
            "request": {"type": "object", "properties": {"goal": {"type": "string"}}},
            "state": {
                "schema": {
                    "$defs": {"status": {"enum": ["open", "done"]}},
                    "type": "object",
                    "required": ["tasks"],
                    "properties": {
                        "request": true,
                        "notes": {"type": "object", "additionalProperties": {"type": "string", "pattern": "^[a-z]*$"}},
                        "tasks": {
                            "type": "array",
                            "maxItems": 20,
                            "items": {
                                "type": "object",
                                "required": ["title", "status"],
                                "properties": {
                                    "title": {"type": "string", "maxLength": 40},
                                    "status": {"$ref": "#/$defs/status"},
                                },
                                "additionalProperties": false,
                            },
                        },
                    },
                    "additionalProperties": false,
                },
                "initial": {"tasks": [{"title": "first", "status": "open"}], "notes": {"a": "b"}},
            },
            "workers": {
                "planner": {
                    "agent": "llm",
                    "role": "Plan.",
                    "reads": ["/request", "/tasks"],
                    "writes": [
                        {"path": "/tasks/-", "ops": ["add"], "value": {"properties": {"status": {"const": "open"}}}},
                        {"path": "/notes/*", "approval": {"by": "boss", "expires": "30s"}},
                    ],
                    "limits": {"attempts": 3, "timeout": "10s", "invocations": 4},
                },
                "checker": {
                    "agent": "llm",
                    "role": "Check.",
                    "reads": ["/tasks/*/title", "/tasks/*/status"],
                    "writes": [{"path": "/tasks/*/status", "ops": ["replace"]}],
                },
                "boss": {"agent": "human"},
            },
            "rules": [
                {"name": "begin", "trigger": "start", "run": "planner"},
                {"name": "new", "trigger": {"op": "add", "path": "/tasks/*"}, "when": "value.status == 'open'", "run": "checker"},
                {"name": "later", "trigger": {"after": ["new"]}, "run": "planner"},
                {"name": "more", "trigger": {"signal": "more"}, "run": "planner"},
            ],
            "invariants": [{"name": "titled", "for": "/tasks/*", "expr": "size(self.title) > 0"}],
            "done": {"when": "state.tasks.all(t, t.status == 'done')"},
            "circuit": {"rejections": {"limit": 3, "then": "stop_branch"}, "cooldown": 4},
            "limits": {"commits": 10, "tokens": 5000, "wall": "5m"},
            "concurrency": 2,
        })
    })
}
