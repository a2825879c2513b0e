//! Compares the metric families with the page and the dashboard, and checks the text format.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::admission;
use patchboard_kernel::board::{Board, Input, NewBoard};
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{InvocationId, Timestamp};
use patchboard_kernel::ledger::Usage;
use patchboard_lint::source::Source;
use patchboard_llm::gate::{ModelKey, ModelState, Outage};
use patchboard_protocols::PLANS;
use patchboard_runtime::observer::{DurableStep, Observer as _, RestartScope};
use serde_json::{Value, json};

use super::{Counting, GaugeValues, Metrics, by_server, described};

const PAGE: &str = include_str!("../../../../../docs/operations.md");
const DASHBOARD: &str = include_str!("../../../../../docs/operations/grafana.json");
const ALERTS: &str = include_str!("../../../../../docs/operations/alerts.yml");

#[test]
fn the_page_lists_the_families_that_are_exposed_and_no_others() {
    let exposed: BTreeSet<String> = described()
        .into_iter()
        .map(|(name, kind, labels, help)| {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            format!("| `{name}` | {kind} | {} | {} |", labels.join(", "), help.trim_end_matches('.'))
        })
        .collect();
    let documented: BTreeSet<String> = PAGE
        .lines()
        .filter(|line| line.starts_with("| `patchboard_") || line.starts_with("| `process_"))
        .map(str::to_owned)
        .collect();
    let missing: Vec<&String> = exposed.difference(&documented).collect();
    let stale: Vec<&String> = documented.difference(&exposed).collect();
    assert!(missing.is_empty() && stale.is_empty(), "docs/operations.md lacks {missing:#?} and has {stale:#?}");
}

#[test]
fn one_model_of_two_servers_counts_for_each() {
    let state = |url: &str, is_away: bool, waiting| ModelState {
        key: ModelKey::new(url, "m"),
        outage: is_away.then_some(Outage {
            reason: DeferralReason::Overloaded,
            elapsed: Duration::ZERO,
            next_try: None,
        }),
        waiting,
        in_flight: 0,
        pace: None,
        deferred: BTreeMap::new(),
    };
    let states = [
        state("http://127.0.0.1:9/v1", true, 2),
        state("https://example.org/v1", false, 1),
        state("https://example.org/v2", false, 3),
    ];
    let entry = |server: &str, value| (("m", server.to_owned()), value);
    let expected = [entry("127.0.0.1:9", (false, 2)), entry("example.org", (true, 4))];
    assert_eq!(by_server(&states).into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn the_dashboard_asks_for_families_and_labels_that_are_exposed() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("the dashboard is JSON");
    let expressions = expressions(&dashboard);
    assert!(expressions.len() > 8, "the expressions were found: {expressions:?}");
    are_exposed(&expressions);
}

#[test]
fn the_alert_rules_ask_for_families_and_labels_that_are_exposed() {
    let rules = Source::read("alerts.yml", ALERTS).expect("the rules are YAML");
    let expressions = expressions(rules.value());
    assert!(expressions.iter().any(|expression| *expression == "patchboard_model_available == 0"));
    assert_eq!(expressions.len(), 8);
    are_exposed(&expressions);
    let rules = rules.value()["groups"][0]["rules"].as_array().expect("rules").iter();
    let own = ["model", "server", "reason", "receiver", "actor"];
    for rule in rules {
        let summary = rule["annotations"]["summary"].as_str().expect("a summary");
        for label in summary.split("$labels.").skip(1) {
            let label = label.split(' ').next().unwrap_or_default();
            let expression = rule["expr"].as_str().expect("an expression");
            let is_kept = own.contains(&label) && (!expression.contains(" by (") || expression.contains(label));
            assert!(is_kept, "{summary}: {expression} has no label {label}");
        }
    }
}

fn expressions(page: &Value) -> Vec<String> {
    let mut expressions = Vec::new();
    collect(page, "expr", &mut expressions);
    expressions
}

fn are_exposed(expressions: &[String]) {
    let exposed = described();
    let labels: BTreeSet<&str> =
        exposed.iter().flat_map(|(_, _, labels, _)| labels.iter().map(String::as_str)).collect();
    for expression in expressions {
        let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let asked: Vec<&str> =
            words.filter(|word| word.starts_with("patchboard_") || word.starts_with("process_")).collect();
        assert!(!asked.is_empty(), "{expression} asks for nothing of ours");
        for name in asked {
            let is_exposed = exposed.iter().any(|(family, kind, ..)| {
                let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
                suffixes.iter().any(|suffix| name.strip_suffix(suffix) == Some(family))
            });
            assert!(is_exposed, "{expression} asks for {name}, which is not exposed");
        }
        // `by (a, b)` names labels.
        for group in expression.split("by (").skip(1) {
            let group = group.split(')').next().unwrap_or_default();
            for label in group.split(',').map(str::trim) {
                assert!(label == "le" || labels.contains(label), "{expression} groups by {label}");
            }
        }
    }
}

/// Collects the texts under a key, at any depth.
fn collect(value: &Value, name: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                match member.as_str().filter(|_| key == name) {
                    Some(text) => found.push(text.to_owned()),
                    None => collect(member, name, found),
                }
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| collect(element, name, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn a_family_of_which_nothing_has_happened_is_there_with_its_kind() {
    let text = Metrics::new().text(&GaugeValues::default());
    for (name, kind, ..) in described() {
        let line = format!("# TYPE {name} {kind}\n");
        assert_eq!(text.matches(&line).count(), 1, "{line}");
    }
    assert!(text.contains("patchboard_commits_total 0\n"), "{text}");
}

#[test]
fn metric_labels_are_escaped() {
    let metrics = Metrics::new();
    metrics.count_request("/v1/boards/{board}", "GET", 200, 0.003);
    metrics.count_request("a\"b\\c\nd", "other", 404, 0.003);
    let text = metrics.text(&GaugeValues::default());
    assert!(
        text.contains(r#"patchboard_http_requests_total{method="other",route="a\"b\\c\nd",status="404"} 1"#),
        "{text}"
    );
}

#[test]
fn restarts_and_repetitions_are_counted_as_they_are_reported() {
    let metrics = Arc::new(Metrics::new());
    let counting = Counting::new(Arc::clone(&metrics));
    for what in [RestartScope::Board, RestartScope::Board, RestartScope::JournalWriter] {
        counting.on_restart(what);
    }
    counting.on_duplicate(&"b".into());
    let text = metrics.text(&GaugeValues::default());
    for line in [
        r#"patchboard_restarts_total{actor="board"} 2"#,
        r#"patchboard_restarts_total{actor="journal_writer"} 1"#,
        "patchboard_duplicates_total 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

#[test]
fn an_attempt_of_several_calls_is_one_invocation_and_spends_with_each() {
    let blueprint = json!({
        "blueprint": 1, "name": "b", "state": {"schema": {}, "initial": {}}, "workers": {"w": {"agent": "llm"}},
        "rules": [{"name": "begin", "trigger": "start", "run": "w"}],
    });
    let genesis =
        NewBoard::new("b", serde_json::from_value(blueprint).expect("a blueprint"), Value::Null, Timestamp(0));
    let (mut board, mut first) = Board::create(genesis, &PLANS).expect("a board");
    board.admit(Timestamp(0), &mut first, &mut admission::admit_all);
    let metrics = Arc::new(Metrics::new());
    let counting = Counting::new(Arc::clone(&metrics));
    let (invocation, attempt) = (InvocationId(1), 1);
    let usage = Some(Usage { prompt: 30, completion: 4, ..Usage::default() });
    let goes_on = board.step(Timestamp(2_000), Input::Continue { invocation, attempt, usage, reserve: 100 });
    let (code, message) = (FailureCode::Refused, String::new());
    let ends = board.step(Timestamp(5_000), Input::AgentFailed { invocation, attempt, code, message, usage });
    for step in [first, goes_on, ends] {
        counting.on_durable_step(&DurableStep { board: &"b".into(), records: &step.records, took: Duration::ZERO });
    }
    let text = metrics.text(&GaugeValues::default());
    for line in [
        r#"patchboard_records_total{kind="continued"} 1"#,
        r#"patchboard_tokens_total{component="worker",kind="prompt"} 60"#,
        r#"patchboard_tokens_total{component="worker",kind="completion"} 8"#,
        r#"patchboard_invocation_duration_seconds_sum{outcome="failed"} 5"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(!text.contains(r#"patchboard_invocation_duration_seconds_count{outcome="continued"} 1"#), "{text}");
}
