//! Joins: rules that wait for all runs of other rules, or for the first of them.

use crate::played::Played;
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::admission;
use patchboard_kernel::board::{Board, BoardError, Input, NewBoard, Outcome};
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_kernel::record::{Body, Cause, End, Kind, Retried, Trigger};
use patchboard_protocols::PLANS;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Returns a pipeline: documents are split off one by one, each is mapped, and a rule with this trigger reduces them.
fn pipeline(trigger: Value, mapper: Value) -> Value {
    let mut seat = json!({"agent": "llm", "reads": ["/docs/{doc}"], "limits": {"attempts": 1},
        "writes": [{"path": "/docs/{doc}/sum", "ops": ["add"]}]});
    seat.as_object_mut().expect("an object").extend(mapper.as_object().expect("members").clone());
    json!({
        "blueprint": 2, "concurrency": 100, "state": {"schema": {}, "initial": {"docs": []}},
        "circuit": {"no_ops": {"limit": 50, "then": "stop_branch"}},
        "workers": {
            "splitter": {"agent": "llm", "writes": [{"path": "/docs/-", "ops": ["add"]}]},
            "mapper": seat,
            "reducer": {"agent": "llm", "reads": ["/docs"], "writes": [{"path": "/answer", "ops": ["add"]}]},
        },
        "rules": [
            {"name": "split", "trigger": "start", "run": "splitter"},
            {"name": "map", "trigger": {"op": "add", "path": "/docs/{doc}"}, "run": "mapper"},
            {"name": "reduce", "trigger": trigger, "run": "reducer"},
        ],
        "done": {"when": "has(state.answer)"},
    })
}

fn docs(count: usize) -> Value {
    (0..count).map(|n| json!({"op": "add", "path": "/docs/-", "value": {"text": n}})).collect()
}

fn sum() -> Value {
    json!([{"op": "add", "path": "/docs/{doc}/sum", "value": 1}])
}

fn answer() -> Value {
    json!([{"op": "add", "path": "/answer", "value": 1}])
}

fn refusal() -> Value {
    json!([{"op": "add", "path": "/elsewhere", "value": 1}])
}

fn called(played: &Played) -> Vec<&str> {
    played.calls.iter().map(|(_, _, worker)| worker.as_str()).collect()
}

fn joins(played: &Played) -> usize {
    played.bodies().filter(|body| matches!(body, Body::Scheduled(of) if of.trigger == Trigger::After)).count()
}

fn ended(played: &Played) -> Option<(End, Cause)> {
    played.board.ended().map(|ended| (ended.end, ended.cause))
}

#[test]
fn a_join_waits_for_all_that_its_rules_do_and_fires_once() {
    for trigger in [json!({"after": ["map"]}), json!({"settled": ["map"]})] {
        let mut played = Played::new(pipeline(trigger, json!({})));
        assert_eq!(called(&played), ["splitter"], "what can still wake the mapper is under way");
        played.answer(docs(3), None);
        for left in (0..3).rev() {
            assert_eq!(called(&played), vec!["mapper"; left + 1]);
            assert!(matches!(played.answer(sum(), None), Outcome::Committed { .. }));
        }
        assert_eq!(called(&played), ["reducer"]);
        assert!(played.view().contains("You were woken by rule reduce: after."), "{}", played.view());
        // A direct proposal adds another document after the join has fired.
        played.direct("splitter", &docs(1).to_string());
        let mapper = played.calls.pop().expect("the mapper is asked");
        played.calls.insert(0, mapper);
        played.answer(sum(), None);
        assert_eq!((called(&played), joins(&played)), (vec!["reducer"], 1));
        played.answer(answer(), None);
        assert_eq!(ended(&played), Some((End::Done, Cause::Done)));
        played.holds();
    }
}

#[test]
fn an_empty_join_fires_when_its_possible_sources_are_at_rest() {
    let mut played = Played::new(pipeline(json!({"after": ["map"]}), json!({})));
    assert!(matches!(played.answer(json!([]), None), Outcome::NoOp { .. }));
    assert_eq!(called(&played), ["reducer"]);
    played.holds();
    // No rule has run at the start. Future signals do not count, and before the first the join has nothing to follow.
    let mut blueprint = pipeline(json!({"after": ["map"]}), json!({}));
    blueprint["rules"][0]["trigger"] = json!({"signal": "go"});
    let mut played = Played::new(blueprint);
    assert_eq!((called(&played), joins(&played)), (vec![], 0));
    played.signal();
    played.answer(docs(1), None);
    played.answer(sum(), None);
    assert_eq!(called(&played), ["reducer"], "no further signal is waited for");
    played.holds();
    // A start rule with a false condition counts as run, too.
    let mut blueprint = pipeline(json!({"after": ["map"]}), json!({}));
    blueprint["rules"][0]["when"] = json!("false");
    let played = Played::new(blueprint);
    assert_eq!(called(&played), ["reducer"]);
    played.holds();
}

#[test]
fn after_does_not_fire_for_less_than_all_and_a_retry_mends_it() {
    let mut played = Played::new(pipeline(json!({"after": ["map"]}), json!({})));
    played.answer(docs(2), None);
    assert!(matches!(played.answer(refusal(), None), Outcome::Rejected { .. }));
    assert!(matches!(played.answer(sum(), None), Outcome::Committed { .. }));
    assert_eq!((called(&played), joins(&played)), (vec![], 0));
    assert_eq!(ended(&played), Some((End::Quiescent, Cause::GaveUp)));
    played.give(Input::Retry(Retried::default()));
    assert_eq!(called(&played), ["mapper"]);
    assert!(matches!(played.answer(sum(), None), Outcome::Committed { .. }));
    assert_eq!(called(&played), ["reducer"]);
    played.answer(answer(), None);
    assert_eq!((ended(&played), joins(&played)), (Some((End::Done, Cause::Done)), 1));
    played.holds();
}

#[test]
fn settled_fires_whatever_became_of_it() {
    let mut played = Played::new(pipeline(json!({"settled": ["map"]}), json!({})));
    played.answer(docs(2), None);
    played.answer(refusal(), None);
    assert_eq!(called(&played), ["mapper"]);
    played.answer(refusal(), None);
    assert_eq!(called(&played), ["reducer"]);
    played.holds();
    // Work beyond the mapper's invocation limit is not done.
    for (trigger, called_then) in [(json!({"settled": ["map"]}), vec!["reducer"]), (json!({"after": ["map"]}), vec![])]
    {
        let mut played = Played::new(pipeline(trigger, json!({"limits": {"invocations": 1}})));
        played.answer(docs(2), None);
        played.answer(sum(), None);
        assert_eq!(called(&played), called_then);
        played.holds();
    }
}

#[test]
fn work_behind_a_stopped_branch_is_settled_but_incomplete() {
    for (trigger, called_then) in [(json!({"settled": ["map"]}), vec!["reducer"]), (json!({"after": ["map"]}), vec![])]
    {
        let mut blueprint = pipeline(trigger, json!({}));
        blueprint["concurrency"] = json!(1);
        blueprint["circuit"] = json!({"rejections": {"limit": 1, "then": "stop_branch"}});
        let mut played = Played::new(blueprint);
        played.answer(docs(3), None);
        played.answer(refusal(), None);
        assert_eq!(called(&played), called_then);
        played.holds();
    }
}

#[test]
fn a_delayed_element_is_waited_for() {
    let mut blueprint = pipeline(json!({"after": ["map"]}), json!({}));
    blueprint["rules"][1]["delay"] = json!("1s");
    let mut played = Played::new(blueprint);
    played.answer(docs(1), None);
    assert_eq!((called(&played), ended(&played)), (vec![], None));
    played.now += 1000;
    played.give(Input::Tick);
    played.answer(sum(), None);
    assert_eq!(called(&played), ["reducer"]);
    played.holds();
}

#[test]
fn joins_of_joins_fire_in_turn() {
    let mut blueprint = pipeline(json!({"after": ["map"]}), json!({}));
    let worker = |path: &str| json!({"agent": "llm", "writes": [{"path": path, "ops": ["add"]}]});
    blueprint["workers"]["reviewer"] = worker("/review");
    blueprint["workers"]["publisher"] = worker("/published");
    blueprint["rules"].as_array_mut().expect("rules").extend([
        json!({"name": "publish", "trigger": {"after": ["review"]}, "run": "publisher"}),
        json!({"name": "review", "trigger": {"after": ["reduce"]}, "run": "reviewer"}),
    ]);
    blueprint["done"] = json!({"when": "has(state.published)"});
    let mut played = Played::new(blueprint);
    played.answer(json!([]), None);
    for (worker, reply) in [
        ("reducer", answer()),
        ("reviewer", json!([{"op": "add", "path": "/review", "value": 1}])),
        ("publisher", json!([{"op": "add", "path": "/published", "value": 1}])),
    ] {
        assert_eq!(called(&played), [worker]);
        assert!(matches!(played.answer(reply, None), Outcome::Committed { .. }));
    }
    assert_eq!(ended(&played), Some((End::Done, Cause::Done)));
    played.holds();
}

#[test]
fn a_join_that_triggers_its_own_source_fires_once() {
    let mut blueprint = pipeline(json!({"after": ["map"]}), json!({}));
    let again = json!({"path": "/docs/-", "ops": ["add"]});
    blueprint["workers"]["reducer"]["writes"].as_array_mut().expect("grants").push(again);
    let mut played = Played::new(blueprint);
    played.answer(docs(1), None);
    played.answer(sum(), None);
    assert_eq!(called(&played), ["reducer"]);
    played.answer(docs(1), None);
    played.answer(sum(), None);
    assert_eq!((called(&played), joins(&played)), (vec![], 1), "once");
    played.holds();
}

#[test]
fn a_worker_that_a_breaker_wakes_is_waited_for_where_it_can_bring_more() {
    let mut blueprint = pipeline(json!({"settled": ["map"]}), json!({}));
    blueprint["workers"]["helper"] = blueprint["workers"]["splitter"].clone();
    blueprint["circuit"] = json!({"rejections": {"limit": 1, "then": {"wake": "helper"}}});
    let mut played = Played::new(blueprint);
    played.answer(docs(1), None);
    played.answer(refusal(), None);
    assert_eq!((called(&played), joins(&played)), (vec!["helper"], 0));
    played.answer(json!([]), None);
    assert_eq!(called(&played), ["reducer"]);
    played.holds();
}

#[test]
fn the_first_completion_has_a_word_of_its_own_and_is_what_after_means_in_format_1() {
    let mut blueprint = pipeline(json!({"after_first": ["map"]}), json!({}));
    let mut played = Played::new(blueprint.clone());
    played.answer(docs(2), None);
    played.answer(sum(), None);
    assert_eq!((called(&played), joins(&played)), (vec!["mapper", "reducer"], 1));
    played.holds();
    blueprint["blueprint"] = json!(1);
    blueprint["rules"][2]["trigger"] = json!({"after": ["map"]});
    blueprint["rules"][1]["trigger"]["path"] = json!("/docs/*");
    blueprint["workers"]["mapper"]["writes"] = json!([{"path": "/docs/*/sum"}]);
    let mut played = Played::new(blueprint);
    played.answer(docs(2), None);
    played.answer(json!([{"op": "add", "path": "/docs/0/sum", "value": 1}]), None);
    assert_eq!((called(&played), joins(&played)), (vec!["mapper", "reducer"], 1));
    played.holds();
}

/// Returns a blueprint with a rule for each document of the initial state.
fn each(request: &Value) -> Value {
    json!({
        "blueprint": 2, "concurrency": 100, "state": {"schema": {}, "initial": {"sums": {}, "docs": request.clone()}},
        "workers": {
            "mapper": {"agent": "llm", "reads": ["/docs/{doc}"], "writes": [{"path": "/sums/{doc}", "ops": ["add"]}]},
            "reducer": {"agent": "llm", "reads": ["/sums"], "writes": [{"path": "/answer", "ops": ["add"]}]},
        },
        "rules": [
            {"name": "map", "trigger": {"start": "/docs/{doc}"}, "when": "value.text != '' && event.op == 'add' && bound.doc != '9'", "run": "mapper"},
            {"name": "reduce", "trigger": {"after": ["map"]}, "run": "reducer"},
        ],
    })
}

#[test]
fn a_rule_can_begin_with_every_place_of_the_document() {
    let texts: Vec<Value> =
        (0..4).map(|n| json!({"text": if n == 2 { String::new() } else { format!("<{n}>") }})).collect();
    let mut played = Played::new(each(&json!(texts)));
    assert_eq!(called(&played), ["mapper"; 3]);
    for (n, (_, prompt, shown)) in [0, 1, 3].iter().zip(&played.prompts) {
        assert_eq!(shown.worker_plan().bound().get("doc"), Some(n.to_string().as_str()));
        assert!(prompt.user.contains(&format!("because /docs/{n} is new")), "{}", prompt.user);
        assert_eq!((0..4).filter(|n| prompt.user.contains(&format!("<{n}>"))).collect::<Vec<_>>(), [*n]);
    }
    for _ in 0..3 {
        let reply = json!([{"op": "add", "path": "/sums/{doc}", "value": 1}]);
        assert!(matches!(played.answer(reply, None), Outcome::Committed { .. }));
    }
    assert_eq!(called(&played), ["reducer"]);
    assert_eq!(played.board.state().root().to_value()["sums"], json!({"0": 1, "1": 1, "3": 1}));
    played.holds();
    // The join fires for an empty list, too.
    assert_eq!(called(&Played::new(each(&json!([])))), ["reducer"]);
}

#[test]
fn a_board_with_too_many_places_for_a_start_rule_is_rejected() {
    let make = |count: usize| {
        let docs: Vec<Value> = (0..count).map(|_| json!({"text": "x"})).collect();
        let mut blueprint = each(&json!(docs));
        blueprint["name"] = json!("many");
        let genesis = NewBoard::new(
            BoardId::from("many"),
            serde_json::from_value(blueprint).expect("a blueprint"),
            Value::Null,
            Timestamp(0),
        );
        let made = Board::create(genesis, &PLANS);
        made.map(|(mut board, mut step)| board.admit(Timestamp(0), &mut step, &mut admission::admit_all))
    };
    assert!(make(1024).is_ok());
    match make(1025) {
        Err(BoardError::BadRequest(violations)) => {
            assert!(violations[0].message.contains("at most 1024"), "{violations:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// Random run of a pipeline.
#[derive(Clone, Debug)]
struct Course {
    stages: usize,
    /// Number of elements that each answer of a stage adds to the next stage.
    brings: Vec<usize>,
    /// Indices of the calls to answer next; true means a failure.
    answers: Vec<(usize, bool)>,
    concurrency: u32,
    is_settled: bool,
}

fn course() -> impl Strategy<Value = Course> {
    let brings = proptest::collection::vec(0..3_usize, 64);
    let answers = proptest::collection::vec((0..8_usize, proptest::bool::weighted(0.1)), 64);
    (1..4_usize, brings, answers, 1..6_u32, any::<bool>()).prop_map(
        |(stages, brings, answers, concurrency, is_settled)| Course {
            stages,
            brings,
            answers,
            concurrency,
            is_settled,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Holds for any number of elements and order of answers. A join over the last stage fires once, after all work of
    /// every stage; `after` requires that no invocation was given up.
    #[test]
    fn a_join_fires_once_after_everything(course in course()) {
        let Course { stages, brings, answers, concurrency, is_settled } = course;
        let mut workers = json!({"join": {"agent": "llm", "writes": [{"path": "/end", "ops": ["add"]}]}});
        let mut rules = Vec::new();
        for stage in 0..=stages {
            workers[format!("w{stage}")] = json!({"agent": "llm", "limits": {"attempts": 1, "invocations": 1000},
                "writes": [{"path": format!("/s{}/-", stage + 1), "ops": ["add"]}], "patch": {"max_ops": 8}});
            let trigger = match stage {
                0 => json!("start"),
                stage => json!({"op": "add", "path": format!("/s{stage}/{{it}}")}),
            };
            rules.push(json!({"name": format!("r{stage}"), "trigger": trigger, "run": format!("w{stage}")}));
        }
        let word = if is_settled { "settled" } else { "after" };
        let join = json!({"name": "join", "trigger": {word: [format!("r{stages}")]}, "run": "join"});
        rules.insert(0, join);
        let initial: serde_json::Map<String, Value> = (0..=stages + 1).map(|stage| (format!("s{stage}"), json!([]))).collect();
        let mut played = Played::new(json!({
            "blueprint": 2, "concurrency": concurrency, "state": {"schema": {}, "initial": initial},
            "circuit": {"rejections": {"limit": 1000, "then": "stop_branch"}, "no_ops": {"limit": 1000, "then": "stop_branch"},
                        "cycles": {"window": 1, "repeats": 1000, "then": "stop_branch"}},
            "workers": workers, "rules": rules,
        }));
        let (mut answers, mut brings) = (answers.into_iter(), brings.into_iter());
        let mut failed = false;
        while !played.calls.is_empty() {
            let (place, fails) = answers.next().unwrap_or_default();
            let call = played.calls.remove(place % played.calls.len());
            let worker = call.2.clone();
            played.calls.insert(0, call);
            if worker == "join" {
                prop_assert_eq!(played.calls.len(), 1, "nothing is under way beside it");
                prop_assert!(is_settled || !failed);
                played.answer(json!([{"op": "add", "path": "/end", "value": 1}]), None);
                continue;
            }
            let stage: usize = worker[1..].parse().expect("a number");
            let reply: Value = match fails {
                true => { failed = true; refusal() }
                false => (0..brings.next().unwrap_or(0))
                    .map(|n| json!({"op": "add", "path": format!("/s{}/-", stage + 1), "value": n})).collect(),
            };
            played.answer(reply, None);
        }
        let has_joined = played.board.state().root().to_value().get("end").is_some();
        prop_assert_eq!((has_joined, joins(&played)), (is_settled || !failed, usize::from(is_settled || !failed)));
        prop_assert_eq!(played.count(Kind::Skipped), 0);
        played.holds();
    }
}

/// Returns a blueprint with these rules and with workers that have these writes.
fn scene(writes: &[(&str, &[&str])], rules: Value) -> Value {
    let worker = |paths: &[&str]| {
        let writes: Vec<Value> = paths.iter().map(|path| json!({"path": path, "ops": ["add"]})).collect();
        json!({"agent": "llm", "writes": writes, "limits": {"attempts": 1}})
    };
    let workers: serde_json::Map<String, Value> =
        writes.iter().map(|(name, paths)| ((*name).to_owned(), worker(paths))).collect();
    let initial = json!({"tasks": [], "results": [], "xs": [], "ys": []});
    json!({"blueprint": 2, "concurrency": 100, "state": {"schema": {}, "initial": initial}, "workers": workers, "rules": rules})
}

#[test]
fn a_join_goes_after_those_it_names_in_whatever_order_they_are_written() {
    // The lead splits and reports: its contract would let the report add more work.
    let rules = json!([
        {"name": "split", "trigger": "start", "run": "lead"},
        {"name": "work", "trigger": {"op": "add", "path": "/tasks/*"}, "run": "worker"},
        {"name": "report", "trigger": {"after": ["review"]}, "run": "lead"},
        {"name": "review", "trigger": {"after": ["work"]}, "run": "reviewer"},
    ]);
    let writes: [(&str, &[&str]); 3] =
        [("lead", &["/tasks/-", "/report"]), ("worker", &["/results/-"]), ("reviewer", &["/review"])];
    for mode in [Mode::default(), Mode::without([patchboard_kernel::ablation::Component::Contracts])] {
        let mut played = Played::in_mode(mode, scene(&writes, rules.clone()));
        let add = |path: &str| json!([{"op": "add", "path": path, "value": 1}]);
        for (worker, reply) in [
            ("lead", add("/tasks/-")),
            ("worker", add("/results/-")),
            ("reviewer", add("/review")),
            ("lead", add("/report")),
        ] {
            assert_eq!(called(&played), [worker]);
            assert!(matches!(played.answer(reply, None), Outcome::Committed { .. }));
        }
        assert_eq!((called(&played), joins(&played)), (vec![], 2));
        played.holds();
    }
}

#[test]
fn of_joins_that_wait_for_each_other_one_goes_first_and_none_that_only_waits_for_them() {
    let rules = json!([
        {"name": "pub", "trigger": {"after": ["a", "b"]}, "run": "p"},
        {"name": "ea", "trigger": {"op": "add", "path": "/xs/*"}, "run": "e"},
        {"name": "eb", "trigger": {"op": "add", "path": "/ys/*"}, "run": "e"},
        {"name": "begin", "trigger": "start", "run": "e"},
        {"name": "a", "trigger": {"after": ["ea", "begin"]}, "run": "wa"},
        {"name": "b", "trigger": {"after": ["eb", "begin"]}, "run": "wb"},
    ]);
    let writes: [(&str, &[&str]); 4] = [("e", &["/tasks/-"]), ("wa", &["/ys/-"]), ("wb", &["/xs/-"]), ("p", &["/end"])];
    let mut played = Played::new(scene(&writes, rules));
    for worker in ["e", "wa", "wb", "p"] {
        assert_eq!(called(&played), [worker]);
        played.answer(json!([]), None);
    }
    played.holds();
}

#[test]
fn after_does_not_fire_where_more_was_given_up_than_a_board_keeps() {
    let mut blueprint = pipeline(json!({"after": ["map"]}), json!({"limits": {"invocations": 1, "attempts": 1}}));
    blueprint["workers"]["splitter"]["patch"] = json!({"max_ops": 2000, "max_bytes": 1_000_000});
    blueprint["limits"] = json!({"commits": 9000});
    let mut played = Played::new(blueprint);
    played.answer(docs(1100), None);
    played.answer(sum(), None);
    assert_eq!((called(&played), joins(&played)), (vec![], 0));
    played.give(Input::Retry(Retried { worker: Some("mapper".into()), ..Retried::default() }));
    while !played.calls.is_empty() {
        assert!(matches!(played.answer(sum(), None), Outcome::Committed { .. }));
    }
    assert!(played.board.given_up().is_empty(), "all that is known was done");
    assert_eq!(joins(&played), 0);
    // A board restored from a snapshot does not fire the join either.
    played.holds();
}

#[test]
fn a_delayed_join_that_is_skipped_fires_when_it_comes_to_rest_again() {
    let mut blueprint = pipeline(json!({"after": ["map"]}), json!({}));
    blueprint["rules"][2]["delay"] = json!("1s");
    blueprint["rules"][2]["when"] = json!("size(state.docs) != 2");
    let mut played = Played::new(blueprint);
    played.answer(docs(1), None);
    played.answer(sum(), None);
    // Another document is added and mapped meanwhile, so the condition is false when the delay ends.
    played.direct("splitter", &docs(1).to_string());
    played.answer(sum(), None);
    played.now += 1000;
    played.give(Input::Tick);
    assert_eq!((called(&played), played.count(Kind::Skipped)), (vec![], 1));
    played.direct("splitter", &docs(1).to_string());
    played.answer(sum(), None);
    played.now += 1000;
    played.give(Input::Tick);
    assert_eq!(called(&played), ["reducer"]);
    played.holds();
}
