//! Groups: rules that trigger all members, or the member named by a write, and schemas that refer to a group.

use crate::played::Played;
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Input, Outcome};
use patchboard_kernel::plan::PlanSource as _;
use patchboard_kernel::record::{Body, Kind, Scheduled, Trigger};
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

/// Returns a board with a chair that names members of a crew in rounds, or triggers all of them.
fn crew(more: Value) -> Played {
    let member = |description: &str| {
        json!({"agent": "llm", "group": "crew", "description": description, "limits": {"attempts": 1},
               "reads": ["/rounds"], "writes": [{"path": "/said/-", "ops": ["add"]}]})
    };
    let mut members = json!({
        "state": {
            "schema": {
                "type": "object",
                "properties": {
                    "rounds": {"type": "array", "items": {"type": "array", "items": {"$ref": "#/$defs/group:crew"}}},
                    "orders": {"type": "array"}, "said": {"type": "array"}, "looks": {"type": "integer"},
                },
            },
            "initial": {"rounds": [], "orders": [], "said": [], "looks": 0},
        },
        "workers": {
            "chair": {"agent": "llm", "reads": ["/said"], "writes": [
                {"path": "/rounds/-", "ops": ["add"]}, {"path": "/orders/-", "ops": ["add"]},
                {"path": "/looks", "ops": ["replace"]},
            ]},
            "cid": member("plans"), "ada": member(""), "bob": member("counts"),
        },
        "rules": [
            {"name": "begin", "trigger": {"signal": "begin"}, "run": "chair"},
            {"name": "turn", "trigger": {"op": "add", "path": "/rounds/*/*"}, "run": {"group": "crew", "at": ""}},
            {"name": "order", "trigger": {"op": "add", "path": "/orders/*"}, "run": {"group": "crew", "at": "/who"}},
            {"name": "all", "trigger": {"signal": "go"}, "run": {"group": "crew"}},
            {"name": "call", "trigger": {"signal": "call"}, "when": "value != 'nobody'", "run": {"group": "crew", "at": ""}},
            {"name": "next", "trigger": {"idle": ["turn", "all"]}, "run": "chair"},
        ],
        "concurrency": 1,
    });
    members.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    Played::new(members)
}

/// Returns the workers that a rule triggered, in order.
fn woken(played: &Played, by: &str) -> Vec<String> {
    let by_rule = |body| match body {
        Body::Scheduled(Scheduled { rule: Some(rule), worker, .. }) if rule.as_str() == by => Some(worker.to_string()),
        _ => None,
    };
    played.bodies().filter_map(by_rule).collect()
}

fn skipped(played: &Played) -> Vec<(String, String)> {
    let skip = |body| match body {
        Body::Skipped(skipped) => Some((skipped.rule.map(|rule| rule.to_string())?, skipped.message)),
        _ => None,
    };
    played.bodies().filter_map(skip).collect()
}

fn propose(played: &mut Played, path: &str, value: Value) -> Outcome {
    played.direct("chair", &json!([{"op": "add", "path": path, "value": value}]).to_string())
}

fn call(played: &mut Played, name: &str, value: Value) {
    played.give(Input::Signal { name: name.to_owned(), value, key: None });
}

fn said() -> Value {
    json!([{"op": "add", "path": "/said/-", "value": 1}])
}

#[test]
fn a_rule_triggers_the_named_worker_once_for_each_event() {
    let mut played = crew(json!({}));
    propose(&mut played, "/rounds/-", json!(["cid", "ada", "cid"]));
    assert_eq!(woken(&played, "turn"), ["cid", "ada", "cid"]);
    propose(&mut played, "/orders/-", json!({"what": "count", "who": "bob"}));
    assert_eq!(woken(&played, "order"), ["bob"]);
    assert_eq!(skipped(&played), []);
    // One after the other, in the order of their naming.
    for expected in ["cid", "ada", "cid", "bob"] {
        assert_eq!(played.calls.iter().map(|call| call.2.as_str()).collect::<Vec<_>>(), [expected]);
        played.answer(said(), None);
    }
    played.holds();
}

#[test]
fn a_name_outside_the_group_is_skipped_and_recorded() {
    let mut played = crew(json!({}));
    for order in [json!({"who": "chair"}), json!({"who": "nobody"}), json!({"who": 7}), json!({}), json!("ada")] {
        propose(&mut played, "/orders/-", order);
    }
    assert_eq!(woken(&played, "order"), Vec::<String>::new());
    let message =
        |number: usize| format!("what stands at /orders/{number}/who is no name of a worker of the group crew");
    assert_eq!(skipped(&played), (0..5).map(|number| ("order".to_owned(), message(number))).collect::<Vec<_>>());
    call(&mut played, "call", json!("zoe"));
    assert_eq!(skipped(&played)[5].1, "what the signal carries is no name of a worker of the group crew");
    // The condition is checked first; if it is false, nothing is recorded.
    call(&mut played, "call", json!("nobody"));
    assert_eq!(played.count(Kind::Skipped), 6);
    // Recorded once per commit, and the valid names are triggered.
    let orders: Vec<Value> =
        ["x", "bob", "y"].map(|name| json!({"op": "add", "path": "/orders/-", "value": {"who": name}})).to_vec();
    played.direct("chair", &Value::Array(orders).to_string());
    assert_eq!((woken(&played, "order"), played.count(Kind::Skipped)), (vec!["bob".to_owned()], 7));
    played.holds();
}

#[test]
fn the_whole_group_is_woken_in_the_order_of_names_and_waited_for() {
    let mut played = crew(json!({}));
    played.signal();
    assert_eq!(woken(&played, "all"), ["ada", "bob", "cid"]);
    for _ in 0..3 {
        assert_eq!(woken(&played, "next"), Vec::<String>::new(), "one of the group is at work, or waits for its turn");
        played.answer(said(), None);
    }
    assert_eq!(woken(&played, "next"), ["chair"]);
    played.holds();
}

#[test]
fn a_group_says_in_which_order_all_of_it_is_woken() {
    let mut members = serde_json::to_value(&*crew(json!({})).board.plan().blueprint).expect("it is JSON");
    members["workers"]["cid"]["order"] = json!(-1);
    members["workers"]["ada"]["order"] = json!(1);
    let mut played = Played::new(members);
    played.signal();
    assert_eq!(woken(&played, "all"), ["cid", "bob", "ada"]);
    // Named members are triggered in the order of the names.
    propose(&mut played, "/rounds/-", json!(["ada", "cid"]));
    assert_eq!(woken(&played, "turn"), ["ada", "cid"]);
    played.holds();
}

#[test]
fn invocations_of_high_priority_go_before_all_that_wait_and_not_before_each_other() {
    for (word, value) in [("priority", json!("high")), ("urgent", json!(true))] {
        prioritized(word, value);
    }
}

/// Plays the crew with one rule of high priority.
fn prioritized(word: &str, value: Value) {
    let mut members = serde_json::to_value(&*crew(json!({})).board.plan().blueprint).expect("it is JSON");
    members["rules"][4][word] = value;
    let mut played = Played::new(members);
    played.signal();
    for name in ["cid", "ada"] {
        call(&mut played, "call", json!(name));
    }
    propose(&mut played, "/orders/-", json!({"who": "bob"}));
    // Ada has an open call when they arrive.
    let mut called = Vec::new();
    while woken(&played, "next").is_empty() {
        called.push(played.calls[0].2.clone());
        played.answer(said(), None);
    }
    assert_eq!(called, ["ada", "cid", "ada", "bob", "cid"]);
    played.holds();
}

#[test]
fn after_a_group_is_after_the_first_of_it_and_fires_once_for_all() {
    let rules = json!([
        {"name": "all", "trigger": {"signal": "go"}, "run": {"group": "crew"}},
        {"name": "then", "trigger": {"after": ["all"]}, "run": {"group": "crew"}},
    ]);
    let mut played = crew(json!({"rules": rules}));
    played.signal();
    played.answer(said(), None);
    assert_eq!(woken(&played, "then"), ["ada", "bob", "cid"]);
    for _ in 0..5 {
        played.answer(said(), None);
    }
    assert_eq!((woken(&played, "then").len(), played.calls.len()), (3, 0));
    played.holds();
}

#[test]
fn limits_of_a_rule_and_breakers_hold_for_each_of_the_group() {
    let rules =
        json!([{"name": "all", "trigger": {"signal": "go"}, "run": {"group": "crew"}, "limits": {"tokens": 1500}}]);
    let more = json!({"rules": rules, "circuit": {"rejections": {"limit": 1, "then": "stop_branch"}}});
    let mut played = crew(more);
    played.signal();
    // Ada's patch is rejected: her branch stops, and the others continue.
    played.answer(json!([{"op": "add", "path": "/rounds/-", "value": []}]), None);
    played.answer(said(), None);
    played.answer(said(), None);
    played.signal();
    assert_eq!(woken(&played, "all").len(), 6);
    let called: Vec<&str> = played.calls.iter().map(|call| call.2.as_str()).collect();
    assert_eq!(called, ["bob"], "ada's branch is stopped");
    assert_eq!(played.count(Kind::Budget), 0, "no branch has used up what its rule allows it");
    assert_eq!(played.count(Kind::Breaker), 1);
    played.holds();
}

#[test]
fn a_schedule_is_due_while_anybody_of_the_group_has_invocations_left() {
    let member = |invocations: u32| {
        json!({"agent": "llm", "group": "crew", "limits": {"invocations": invocations},
               "writes": [{"path": "/list/-", "ops": ["add"]}]})
    };
    let mut played = Played::new(json!({
        "workers": {"ada": member(1), "bob": member(2)},
        "rules": [{"name": "often", "trigger": {"every": "* * * * *"}, "run": {"group": "crew"}}],
        "concurrency": 4,
    }));
    for minute in 1..=4 {
        played.now = minute * 60_000;
        played.give(Input::Tick);
        while !played.calls.is_empty() {
            played.answer(json!([{"op": "add", "path": "/list/-", "value": minute}]), None);
        }
    }
    assert_eq!(woken(&played, "often"), ["ada", "bob", "bob"]);
    assert_eq!(played.count(Kind::Budget), 1, "that ada's are used up is said once");
    let due = played
        .bodies()
        .filter(|body| matches!(body, Body::Scheduled(of) if matches!(of.trigger, Trigger::Every { .. })));
    assert_eq!(due.count(), 3);
    played.holds();
}

#[test]
fn a_chooser_learns_its_candidates_and_is_held_to_them() {
    let mut played = crew(json!({}));
    call(&mut played, "begin", Value::Null);
    let prompt = format!("{}\n{}", played.instructions(), played.view());
    for line in ["ada", "bob: counts", "cid: plans"] {
        assert!(prompt.contains(line), "{line} is told in\n{prompt}");
    }
    assert!(prompt.contains(r#""enum":["ada","bob","cid"]"#), "{prompt}");
    let refused = played.rejection("chair", json!([{"op": "add", "path": "/rounds/-", "value": ["zoe"]}]));
    assert!(refused.violations.iter().any(|violation| violation.pointer == "/rounds/0/0"), "{refused:?}");
}

#[test]
fn stored_blueprints_define_their_groups_and_read_back_unchanged() {
    let played = crew(json!({}));
    let Body::Created(created) = played.records[0].body().expect("readable") else { panic!("the first creates") };
    let definition = &created.blueprint["state"]["schema"]["$defs"]["group:crew"];
    assert_eq!(*definition, json!({"enum": ["ada", "bob", "cid"], "description": "bob: counts\ncid: plans"}));
    let read: Blueprint = serde_json::from_value(created.blueprint.clone()).expect("a blueprint");
    assert_eq!(serde_json::to_value(&read).expect("it is JSON"), created.blueprint);
}

#[test]
fn rules_with_an_invalid_target_fail_to_compile() {
    let compile = |rule: Value, definitions: Value| {
        let blueprint = json!({
            "blueprint": 1, "name": "bad", "state": {"schema": {"$defs": definitions}},
            "workers": {"w": {"agent": "llm", "group": "g"}}, "rules": [rule],
        });
        let blueprint: Blueprint = serde_json::from_value(blueprint).expect("a blueprint");
        PLANS.plan(blueprint, &Mode::default()).err().unwrap_or_default()
    };
    let rule = |trigger: Value, run: Value| json!({"name": "r", "trigger": trigger, "run": run});
    for (rule, definitions, expected) in [
        (rule(json!("start"), json!({"group": "h"})), json!({}), "rule r: there is no group h"),
        (rule(json!("start"), json!({"group": "g", "at": ""})), json!({}), "rule r: run.at: nothing comes with this"),
        (rule(json!("manual"), json!({"group": "g", "at": "who"})), json!({}), "rule r: run.at: "),
        (
            rule(json!("start"), json!("w")),
            json!({"group:g": {"enum": ["w", "v"]}}),
            "state.schema.$defs: group:g is made of",
        ),
        (rule(json!("manual"), json!({"group": "g", "at": "/who"})), json!({}), ""),
    ] {
        let error = compile(rule, definitions);
        assert!(error.starts_with(expected) && error.is_empty() == expected.is_empty(), "{error:?}: {expected}");
    }
}

#[test]
fn a_condition_on_the_worker_is_evaluated_for_each_member() {
    let rules = json!([
        {"name": "all", "trigger": {"signal": "go"}, "when": "worker in state.there", "run": {"group": "crew"}},
        {"name": "call", "trigger": {"signal": "call"}, "when": "worker == value", "run": {"group": "crew", "at": ""}},
        {"name": "broken", "trigger": {"signal": "go"}, "when": "state[worker]", "run": {"group": "crew"}},
        {"name": "one", "trigger": {"signal": "go"}, "when": "worker == 'chair'", "run": "chair"},
    ]);
    let mut played = crew(json!({
        "rules": rules,
        "state": {"schema": {}, "initial": {"there": {"ada": 1, "cid": 1}, "ada": false, "bob": true, "said": []}},
    }));
    played.signal();
    assert_eq!(woken(&played, "all"), ["ada", "cid"]);
    assert_eq!(woken(&played, "broken"), ["bob"], "what cannot be evaluated for one is nothing to others");
    assert_eq!(woken(&played, "one"), ["chair"]);
    let names: Vec<String> = skipped(&played).into_iter().map(|(rule, _)| rule).collect();
    assert_eq!(names, ["broken"], "said once");
    // The target must be known before the condition can be evaluated.
    call(&mut played, "call", json!("nobody"));
    call(&mut played, "call", json!("bob"));
    assert_eq!(woken(&played, "call"), ["bob"]);
    assert_eq!(skipped(&played)[1].1, "what the signal carries is no name of a worker of the group crew");
    played.holds();
}
