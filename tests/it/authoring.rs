//! Checks first blueprints of new users, and their expected outcomes: the cases of `cases/authoring`.

mod views;

use std::fs;

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::Input;
use patchboard_kernel::id::{Seq, Timestamp};
use patchboard_kernel::record::{Answer, Approval, Body, Cause, End, Kind, Trigger};
use patchboard_lint::source::Source;
use patchboard_tests::scripted_model::{ModelCall, PlayedBoard, blueprint};
use patchboard_tests::{documents, elements, shared};
use serde_json::{Value, json};

/// Maximum records of a step, on a board of few workers.
const STEP_RECORDS_MAX: usize = 100;

fn case(name: &str) -> Option<String> {
    let path = shared::find(&format!("cases/authoring/{name}"))?;
    Some(fs::read_to_string(path).expect("a file"))
}

fn value(name: &str) -> Option<Value> {
    Some(serde_json::from_str(&case(name)?).expect("JSON"))
}

/// Returns codes and places of the findings of `check`.
fn findings(text: &str) -> Vec<(&'static str, String)> {
    let source = Source::read("case", text).expect("YAML");
    patchboard_protocols::check(&source).findings.into_iter().map(|finding| (finding.code, finding.pointer)).collect()
}

#[test]
fn the_readmes_blueprint_costs_as_much_for_each_element_however_many_there_are() {
    let text = elements::readme();
    assert_eq!(findings(&text), []);
    let few = elements::play(&text, 5);
    for elements in [5, 10, 20, 40, 100] {
        let cost = elements::play(&text, elements);
        assert_eq!((cost.checked, cost.calls, cost.rejected), (elements, elements + 1, 0), "{cost:?}");
        let ratio = cost.per_element() / few.per_element();
        assert!((0.9..1.1).contains(&ratio), "{cost:?} beside {few:?}");
    }
}

#[test]
fn a_small_budget_saves_tokens_and_hides_documents_and_a_bound_path_does_not() {
    let (all, bound) = (documents::read(false, None), documents::read(true, None));
    assert_eq!((all.whole, bound.whole), (documents::DOCUMENTS, documents::DOCUMENTS));
    assert!(bound.tokens * 3 < all.tokens, "{bound:?} beside {all:?}");
    let small = documents::read(false, Some(4_000));
    assert!(small.whole < documents::DOCUMENTS && small.calls > all.calls, "{small:?}");
}

#[test]
fn elements_that_are_shown_to_all_get_in_each_others_way() {
    let Some(text) = case("n10.yaml") else { return };
    assert!(findings(&text).iter().all(|(code, _)| *code != "unbound_name"));
    let cost = elements::play(&text, 10);
    assert!(cost.checked < 10 && cost.rejected > 10, "the case is what it was: {cost:?}");
    let bound = text
        .replace("blueprint: 1", "blueprint: 2")
        .replace("reads: [/notes/*]", "reads: [\"/notes/{note}\"]")
        .replace("path: /notes/*/status", "path: \"/notes/{note}/status\"")
        .replace("path: /notes/*}", "path: \"/notes/{note}\"}");
    let cost = elements::play(&bound, 10);
    assert_eq!((cost.checked, cost.calls, cost.rejected), (10, 11, 0), "{cost:?}");
}

/// Answers with five facts, a check of each, and a report, like the case's own model.
fn reporter(asked: &ModelCall) -> Value {
    match asked.worker.as_str() {
        "researcher" => (1..=5)
            .map(|n| {
                let fact = json!({"text": format!("fact {n}"), "source": format!("d{n}"), "status": "draft"});
                json!({"op": "add", "path": "/facts/-", "value": fact})
            })
            .collect(),
        "checker" => {
            json!([{"op": "replace", "path": format!("{}/status", woken_at(asked)), "value": "checked"}])
        }
        _ => {
            let report = json!({"title": "t", "summary": "s", "recommendation": "yes"});
            json!([{"op": "add", "path": "/report", "value": report}])
        }
    }
}

#[test]
fn a_report_is_written_from_all_facts_or_check_warns() {
    let (Some(text), Some(request)) = (case("report.yaml"), value("docs.json")) else { return };
    let unchecked = |played: &PlayedBoard| {
        let facts = played.state()["facts"].as_array().cloned().unwrap_or_default();
        facts.iter().filter(|fact| fact["status"] == "draft").count()
    };
    assert!(findings(&text).contains(&("first_only", "/rules/2/trigger/after".to_owned())));
    let played = PlayedBoard::of(blueprint("report.yaml", &text), request.clone(), reporter);
    assert!(unchecked(&played) > 0, "the case is what it was");
    let waits = text.replace("blueprint: 1", "blueprint: 2");
    let played = PlayedBoard::of(blueprint("report.yaml", &waits), request.clone(), reporter);
    assert!(unchecked(&played) == 0 || played.state()["report"].is_null(), "{}", played.state());
    let text = waits.replace("[/request/documents, /facts/*]", "[/request/documents, /facts/*]\n    freshness: target");
    assert!(findings(&text).iter().all(|(code, _)| *code != "first_only"));
    let played = PlayedBoard::of(blueprint("report.yaml", &text), request, reporter);
    assert_eq!((unchecked(&played), played.asked.len()), (0, 7));
    assert!(played.state()["report"].is_object());
}

#[test]
fn each_mapper_sees_its_document_and_pays_for_no_other() {
    let Some(request) = value("mrbig.json") else { return };
    for name in ["mapreduce_big.yaml", "mapreduce.yaml"] {
        let Some(text) = case(name) else { return };
        mapped(&text, &request);
    }
}

/// Plays a blueprint of six mappers unchanged, and with each mapper bound to its document.
fn mapped(text: &str, request: &Value) {
    let count = request["documents"].as_array().map_or(0, Vec::len);
    let answer = |asked: &ModelCall| {
        let doc = asked.shown.trigger()["path"].as_str().and_then(|path| path.rsplit('/').next()?.parse::<u64>().ok());
        match asked.worker.as_str() {
            "mapper" => json!([{"op": "add", "path": "/summaries/-", "value": {"doc": doc, "text": "a summary"}}]),
            _ => json!([{"op": "add", "path": "/answer", "value": "an answer"}]),
        }
    };
    let play = |text: &str| PlayedBoard::of(blueprint("mapreduce", text), request.clone(), answer);
    let before = play(text);
    let bound = text
        .replace("blueprint: 1", "blueprint: 2")
        .replace("/docs/*]", "\"/docs/{doc}\"]")
        .replace("path: /docs/*}", "path: \"/docs/{doc}\"}")
        .replace("{idle: [map]}", "{after: [map]}");
    assert_eq!(findings(&bound), []);
    let played = play(&bound);
    assert_eq!(played.asked.len(), count + 1);
    assert_eq!(played.state()["summaries"].as_array().map(Vec::len), Some(count));
    let names: Vec<&str> =
        request["documents"].as_array().into_iter().flatten().filter_map(|it| it["name"].as_str()).collect();
    for asked in played.asked.iter().filter(|asked| asked.worker.as_str() == "mapper") {
        let seen = names.iter().filter(|name| asked.prompt.user.contains(&format!("\"{name}\""))).count();
        assert_eq!(seen, 1, "{}", asked.prompt.user);
    }
    let (before, after) = (before.prompt_tokens(), played.prompt_tokens());
    assert!(before > 50_000 && after * 4 <= before, "{after} tokens beside {before}");
}

#[test]
fn each_commit_of_a_loop_makes_as_many_records_however_many_there_were() {
    let Some(text) = case("growth.yaml") else { return };
    for commits in [10, 60] {
        let text = text.replace("COMMITS", &commits.to_string());
        assert_eq!(findings(&text), [("no_done", String::new())]);
        let played = PlayedBoard::of(blueprint("growth", &text), json!({}), |_| json!([]));
        assert_eq!((played.count(Kind::Committed), played.count(Kind::Invoked)), (commits, commits));
        assert_eq!(played.count(Kind::Scheduled), commits + 1, "what begins, and what each commit wakes");
        let ended = played.board.ended().expect("an end");
        assert_eq!((ended.end, ended.cause), (End::Stopped, Cause::Commits));
    }
}

#[test]
fn check_finds_what_would_go_wrong() {
    for (name, expected) in [
        (
            "typo.yaml",
            vec![
                ("unknown_keyword", "/state/schema/properties/title/maxLenght"),
                ("unknown_keyword", "/state/schema/properties/tags/item"),
                ("unknown_keyword", "/state/schema/properties/who/propertes"),
                ("unknown_keyword", "/state/schema/properties/kind/nullable"),
                ("unknown_keyword", "/state/schema/properties/kind/enums"),
            ],
        ),
        ("script_lint.yaml", vec![("script_refused", "/workers/s/script/0/0/path")]),
        ("reqw.yaml", vec![("writes_request", "/workers/w/writes/1/path"), ("wide_grant", "/workers/w/writes/2/path")]),
        ("report.yaml", vec![("first_only", "/rules/2/trigger/after")]),
        ("typos/path_typo.yaml", vec![("undeclared_name", "/workers/checker/writes/0/path")]),
        ("typos/cel_typo.yaml", vec![("unknown_member", "/done/when")]),
        ("n10.yaml", vec![("stale_storm", "/rules/1/run")]),
        ("typos/agent.yaml", vec![("bad_value", "/workers/writer/agent")]),
        ("typos/cel_js.yaml", vec![("unknown_member", "/done/when")]),
        ("typos/cel_len.yaml", vec![("bad_condition", "/done/when")]),
        ("typos/cel_typo_closed.yaml", vec![("unknown_member", "/done/when")]),
        ("typos/no_done.yaml", vec![("no_done", "")]),
        ("typos/op_update.yaml", vec![("bad_value", "/workers/checker/writes/0/ops/0")]),
        ("typos/path_dollar.yaml", vec![("bad_pattern", "/workers/writer/writes/0/path")]),
        ("typos/path_typo_closed.yaml", vec![("unknown_path", "/workers/checker/writes/0/path")]),
        ("typos/prompt.yaml", vec![("unknown_field", "/workers/writer/prompt")]),
        ("typos/reads_str.yaml", vec![("bad_type", "/workers/writer/reads")]),
        ("typos/run_typo.yaml", vec![("undeclared_worker", "/rules/2/run")]),
        ("typos/trig_parent.yaml", vec![("never_fires", "/rules/1/trigger")]),
        ("typos/trig_typo.yaml", vec![("bad_rule", "/rules/0/trigger")]),
        ("typos/type_strng.yaml", vec![("bad_schema", "/state/schema/properties/report/properties/title/type")]),
        ("typos/unknown_key.yaml", vec![("unknown_field", "/agents")]),
        ("typos/wall.yaml", vec![("bad_value", "/limits/wall")]),
        ("typos/trig_dash.yaml", vec![("never_fires", "/rules/1/trigger")]),
        ("typos/trig_dash_closed.yaml", vec![("never_fires", "/rules/1/trigger")]),
    ] {
        let Some(text) = case(name) else { return };
        let found = findings(&text.replace("COMMITS", "50"));
        for (code, pointer) in expected {
            assert!(found.contains(&(code, pointer.to_owned())), "{name}: {code} at {pointer} is not in {found:?}");
        }
    }
}

#[test]
fn a_place_that_may_be_read_in_part_is_named() {
    let Some(text) = case("trig.yaml") else { return };
    let text = text.replace("blueprint: 1", "blueprint: 2");
    let played = PlayedBoard::of(blueprint("trig.yaml", &text), Value::Null, |asked| {
        let trigger = asked.shown.trigger();
        let place = trigger["path"].as_str().unwrap_or_default();
        assert!(asked.prompt.user.contains(&format!("because {place} is new")), "{}", asked.prompt.user);
        assert_eq!((&trigger["partial"], trigger["value"]["t"].is_string()), (&json!(true), true), "{trigger}");
        json!([{"op": "add", "path": format!("{place}/r"), "value": "done"}])
    });
    assert_eq!(played.asked.len(), 2);
}

#[test]
fn numbers_are_alike_however_a_worker_writes_them() {
    for name in ["price.yaml", "price2.yaml"] {
        let Some(text) = case(name) else { return };
        assert_eq!(findings(&text), []);
        for price in [json!(3), json!(3.0), json!(3.5)] {
            let reply = json!([{"op": "replace", "path": "/price", "value": price}]);
            let played = PlayedBoard::of(blueprint(name, &text), json!({}), |_| reply.clone());
            assert_eq!((played.count(Kind::Committed), played.count(Kind::Rejected)), (1, 0), "{name}: {price}");
        }
        let dear = json!([{"op": "replace", "path": "/total", "value": 1000.5}]);
        let played = PlayedBoard::of(blueprint(name, &text), json!({}), |_| dear.clone());
        assert_eq!(played.count(Kind::Committed), 0, "{name}: the invariant is evaluated, and does not hold");
    }
    let Some(text) = case("rule.yaml") else { return };
    let played = PlayedBoard::of(blueprint("rule.yaml", &text), json!({}), |_| json!([]));
    assert_eq!((&played.state()["alarm"], played.count(Kind::Skipped)), (&json!("too dear"), 0));
}

#[test]
fn invariants_loop_over_objects_and_what_they_guard_must_not_be_written_around() {
    let Some(text) = case("inv.yaml") else { return };
    let errors = |text: &str| -> Vec<&'static str> {
        let found = findings(text).into_iter().map(|(code, _)| code);
        found.filter(|code| matches!(*code, "overlapping_grants" | "bad_condition" | "invalid_initial_state")).collect()
    };
    // An added group brings rows that no `value` was checked for.
    assert_eq!(errors(&text), ["overlapping_grants"]);
    assert_eq!(errors(&text.replace("      - {path: '/groups/*', ops: [add]}\n", "")), [""; 0]);
}

#[test]
fn a_rule_that_waits_for_itself_makes_few_records_in_a_step() {
    let (Some(keepgoing), Some(idle_self)) = (case("keepgoing.yaml"), case("idle_self.json")) else { return };
    for format in ["1", "2"] {
        for text in [&keepgoing, &idle_self] {
            let text = text.replace("blueprint: 1", &format!("blueprint: {format}"));
            let text = text.replace("\"blueprint\": 1", &format!("\"blueprint\": {format}"));
            let made: Blueprint = blueprint("case", &text);
            let mut value = serde_json::to_value(made).expect("a blueprint");
            for worker in value["workers"].as_object_mut().into_iter().flatten().map(|(_, worker)| worker) {
                worker["limits"]["invocations"] = json!(1_000_000);
            }
            let made = serde_json::from_value(value).expect("a blueprint");
            let played = PlayedBoard::of(made, json!({}), |_| json!([]));
            assert!(played.longest_step <= STEP_RECORDS_MAX, "{} records in a step", played.longest_step);
            let idle = |record: &patchboard_kernel::record::Record| matches!(record.body(), Ok(patchboard_kernel::record::Body::Scheduled(of)) if of.trigger == Trigger::Idle);
            assert!(played.records.iter().filter(|record| idle(record)).count() < 100);
            assert!(played.board.ended().is_some(), "it comes to an end");
            assert_eq!(played.count(Kind::Late), 0);
        }
    }
}

/// Returns the place of the change that triggered the call of a model.
fn woken_at(asked: &ModelCall) -> String {
    asked.shown.trigger()["path"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn five_documents_are_shown_whole_or_said_to_be_hidden() {
    let (Some(text), Some(request)) = (case("report.yaml"), value("docs_long.json")) else { return };
    let documents = request["documents"].as_array().cloned().unwrap_or_default();
    let shown_of = |text: &str| {
        let played = PlayedBoard::of(blueprint("report.yaml", text), request.clone(), reporter);
        let view = played.asked[0].prompt.user.clone();
        let is_shown = |document: &&Value| document["text"].as_str().is_some_and(|text| view.contains(text));
        let unshown = played
            .records
            .iter()
            .any(|one| one.kind == Kind::Invoked && one.values().expect("values").contains_key("unshown"));
        (documents.iter().filter(is_shown).count(), unshown)
    };
    assert_eq!(shown_of(&text), (5, false));
    let small = text.replace("  researcher:\n", "  researcher:\n    view: {budget: 4000}\n");
    assert_eq!(shown_of(&small), (0, true));
}

#[test]
fn debaters_take_turns_and_a_judge_has_the_last_word() {
    let Some(text) = case("debate.yaml") else { return };
    let played = PlayedBoard::of(blueprint("debate.yaml", &text), json!({"motion": "Tabs."}), |asked| {
        let value = match asked.worker.as_str() {
            "judge" => return json!([{"op": "add", "path": "/verdict", "value": {"winner": "tie", "reason": "r"}}]),
            debater => json!({"from": debater, "text": "t"}),
        };
        json!([{"op": "add", "path": "/speeches/-", "value": value}])
    });
    let asked: Vec<&str> = played.asked.iter().map(|asked| asked.worker.as_str()).collect();
    assert_eq!((asked, played.count(Kind::Rejected)), (vec!["pro", "con", "pro", "con", "judge"], 0));
}

#[test]
fn a_lead_splits_a_task_and_reports_when_all_is_accepted() {
    let Some(text) = case("supervisor.yaml") else { return };
    // Coders and writers work concurrently on one list.
    for rule in ["/rules/1/run", "/rules/2/run"] {
        assert!(findings(&text).contains(&("stale_storm", rule.to_owned())), "{rule}");
    }
    let played = PlayedBoard::of(blueprint("supervisor.yaml", &text), json!({"task": "t"}), |asked| {
        let open = |owner: &str| json!({"op": "add", "path": "/tasks/-", "value": {"owner": owner, "what": "w", "status": "open"}});
        let at = woken_at(asked);
        match asked.worker.as_str() {
            "lead" => json!([open("coder"), open("writer")]),
            "reviewer" => {
                let task: usize = at.split('/').nth(2).and_then(|index| index.parse().ok()).expect("a task");
                let owner = ["coder", "writer"][task];
                let review = json!({"task": task, "to": owner, "verdict": "accepted"});
                json!([{"op": "replace", "path": at, "value": "accepted"}, {"op": "add", "path": "/reviews/-", "value": review}])
            }
            "reporter" => json!([{"op": "add", "path": "/report", "value": "r"}]),
            specialist => {
                let task = if specialist == "coder" { "/tasks/0" } else { "/tasks/1" };
                json!([
                    {"op": "add", "path": format!("{task}/result"), "value": "r"},
                    {"op": "replace", "path": format!("{task}/status"), "value": "delivered"},
                ])
            }
        }
    });
    let asked = played.asked.len() - played.count(Kind::Rejected);
    assert_eq!((asked, &played.state()["report"]), (1 + 2 + 2 + 1, &json!("r")));
}

#[test]
fn cases_of_other_sizes_come_out_alike() {
    let (Some(n5), Some(n20), Some(n10t)) = (case("n5.yaml"), case("n20.yaml"), case("n10t.yaml")) else { return };
    let storms = |text: &str| findings(text).iter().any(|(code, _)| *code == "stale_storm");
    assert!(storms(&n5) && storms(&n20) && !storms(&n10t));
    // With `freshness: target` all are checked, and each worker is shown all.
    let (few, many) = (elements::play(&n10t, 10), elements::play(&n10t, 20));
    assert_eq!((few.checked, few.rejected, many.checked, many.rejected), (10, 0, 20, 0));
    assert!(many.per_element() > few.per_element() * 1.2, "{many:?} beside {few:?}");
    let (Some(text), Some(request)) = (case("report2.yaml"), value("docs.json")) else { return };
    let played = PlayedBoard::of(blueprint("report2.yaml", &text), request, reporter);
    assert_eq!((played.count(Kind::Rejected), played.asked.len()), (0, 7));
}

#[test]
fn each_of_two_writers_waits_for_its_own_approval() {
    let Some(text) = case("appr.yaml") else { return };
    assert_eq!(findings(&text), []);
    let mut played = PlayedBoard::of(blueprint("appr.yaml", &text), json!({}), |_| json!([]));
    let approvals: Vec<(Seq, Approval)> = played
        .records
        .iter()
        .filter_map(|record| match record.body().expect("a body") {
            Body::Approval(approval) => Some((record.seq, approval.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(approvals.len(), 2);
    for (number, (of, Approval { digest, approver, .. })) in approvals.into_iter().enumerate() {
        let answer = Input::Answer(Answer { of, by: approver, digest, agrees: true, reason: None, text: None });
        let step = played.board.step(Timestamp(1_000), answer);
        assert!(step.records.iter().any(|record| record.kind == Kind::Committed), "{:?}", step.records);
        assert_eq!(played.board.version().0, number as u64 + 1, "the answer to one does not outdate the other");
    }
    assert_eq!((&played.state()["a"], &played.state()["b"]), (&json!("left"), &json!("right")));
}
