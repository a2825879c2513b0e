//! Tests of the manager-and-engineers blueprint: how work may be split, assigned again, and continued.

use crate::played::Played;
use patchboard_kernel::board::{Input, Outcome};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::record::End;
use patchboard_lint::source::Source;
use serde_json::{Value, json};

/// Maximum number of functions of a task, and of tasks in a patch.
const FUNCTIONS: usize = 60;
const TASKS: u32 = 16;

fn members() -> Value {
    let text = include_str!("../../../../blueprints/storm.yaml");
    Source::read("storm.yaml", text).expect("it can be read").value().clone()
}

fn request() -> Value {
    json!({"task": "Write what is missing."})
}

/// Returns a board without any calls yet; its start trigger is not played.
fn board() -> Played {
    board_asked(request())
}

fn board_asked(request: Value) -> Played {
    let mut members = members();
    members["rules"].as_array_mut().expect("rules").retain(|rule| rule["name"] != "scan");
    Played::asked(request, members)
}

fn task(name: &str, engineer: u32, file: &str, more: Value) -> Value {
    let mut value = json!({"task": name, "round": 1, "engineer_id": format!("engineer_{engineer}"), "file_path": file,
        "functions_to_implement": ["f"], "instruction": "Write it."});
    value.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    json!({"op": "add", "path": "/tasks/-", "value": value})
}

fn report(name: &str, engineer: u32) -> Value {
    json!([{"op": "add", "path": "/reports/-",
        "value": {"task": name, "engineer_id": format!("engineer_{engineer}"), "status": "done", "notes": ""}}])
}

fn review(round: u32, tasks: &[(&str, bool)]) -> Value {
    let of = |(task, committed): &(&str, bool)| json!({"task": task, "committed": committed, "note": ""});
    let tasks: Vec<Value> = tasks.iter().map(of).collect();
    json!({"op": "add", "path": "/reviews/-", "value": {"round": round, "tasks": tasks}})
}

fn commits(played: &mut Played, worker: &str, patch: &Value) {
    let outcome = played.direct(worker, &patch.to_string());
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
}

/// Returns the names of the violated rules, or the code if there are none.
fn wrong(played: &mut Played, worker: &str, patch: Value) -> Vec<String> {
    let rejection = played.rejection(worker, patch);
    let named = |violation: &patchboard_kernel::rejection::Violation| match &violation.rule {
        Some(rule) => rule.clone(),
        None => violation.code.to_string(),
    };
    let mut names: Vec<String> = rejection.violations.iter().map(named).collect();
    names.sort();
    names.dedup();
    names
}

fn called(played: &Played) -> Vec<&str> {
    played.calls.iter().map(|call| call.2.as_str()).collect()
}

fn fail(played: &mut Played, code: FailureCode) {
    let (invocation, attempt, ..) = played.calls.remove(0);
    played.give(Input::AgentFailed { invocation, attempt, code, message: "no more".to_owned(), usage: None });
}

#[test]
fn no_file_and_no_function_belongs_to_two_engineers() {
    let mut played = board();
    for (one, two, by) in [
        // Identical functions of a file, an empty list, or the file as a whole.
        (json!({}), json!({}), "disjoint-files"),
        (json!({}), json!({"functions_to_implement": []}), "minItems"),
        // A class and its members, whichever task has the class.
        (
            json!({"functions_to_implement": ["P", "g"]}),
            json!({"functions_to_implement": ["h", "P.read"]}),
            "disjoint-files",
        ),
        (json!({"functions_to_implement": ["P.Q.read"]}), json!({"functions_to_implement": ["P"]}), "disjoint-files"),
        (json!({"also": ["b.py"]}), json!({"file_path": "b.py"}), "disjoint-others"),
        (json!({"file_path": "b.py"}), json!({"functions_to_implement": ["g"], "also": ["b.py"]}), "disjoint-others"),
        (json!({"file_path": "b.py", "also": ["x/c.py"]}), json!({"also": ["x/c.py"]}), "disjoint-others"),
        // Other spellings of the same name.
        (json!({}), json!({"file_path": "./a.py"}), "pattern"),
        (json!({}), json!({"file_path": "x/../a.py"}), "pattern"),
        (json!({}), json!({"file_path": "x//a.py"}), "pattern"),
        (json!({}), json!({"file_path": "/a.py"}), "pattern"),
        (json!({}), json!({"file_path": "x\\a.py"}), "pattern"),
        (json!({}), json!({"file_path": "b.py", "also": ["x/./a.py"]}), "pattern"),
        (json!({}), json!({"functions_to_implement": ["f()"]}), "pattern"),
        (json!({}), json!({"functions_to_implement": [" f"]}), "pattern"),
        (json!({}), json!({"functions_to_implement": ["P::f"]}), "pattern"),
        (json!({}), json!({"functions_to_implement": ["P..f"]}), "pattern"),
        (json!({}), json!({"functions_to_implement": ["f."]}), "pattern"),
        (json!({}), json!({"functions_to_implement": ["f\n"]}), "pattern"),
        (json!({}), json!({"task": "t1", "file_path": "b.py"}), "tasks-by-name"),
        (json!({}), json!({"file_path": "b.py", "round": 2}), "const"),
        (json!({}), json!({"file_path": "b.py", "again_of": "t1"}), "tried-again-once"),
    ] {
        let patch = json!([task("t1", 1, "a.py", one), task("t2", 2, "a.py", two)]);
        assert_eq!(wrong(&mut played, "manager_delegate", patch.clone()), [by], "{patch}");
    }
    let patch = json!([
        task("t1", 1, "a.py", json!({"also": [".github/ci.yml", "..x/b"]})),
        task("t2", 1, "a.py", json!({"functions_to_implement": ["f", "g", "P.read", "größe", "_$1"]})),
        // A name that begins with another name is a different one.
        task("t3", 2, "a.py", json!({"functions_to_implement": ["h", "g2", "P.readall", "P2"], "also": ["x/.hidden"]})),
    ]);
    // A split file belongs to both engineers by its functions, and to neither as a whole.
    commits(&mut played, "manager_delegate", &patch);
    assert_eq!(called(&played), ["engineer_1", "engineer_2"], "one task of an engineer's after the other");
    played.answer(report("t1", 1), None);
    assert_eq!(called(&played), ["engineer_2", "engineer_1"]);
    played.holds();
}

#[test]
fn as_many_functions_of_one_file_as_tasks_may_have_can_be_checked() {
    let mut played = board_asked(json!({"task": "Write what is missing.", "engineers": 8}));
    let tasks = |round: u32| -> Vec<Value> {
        let of = |t: u32| {
            let functions: Vec<String> = (0..FUNCTIONS).map(|n| format!("Parser.read_{t}_{n}")).collect();
            let more = json!({"round": round, "functions_to_implement": functions});
            task(&format!("t{}", (round - 1) * TASKS + t), t % 8 + 1, "a.py", more)
        };
        (0..TASKS).map(of).collect()
    };
    commits(&mut played, "manager_delegate", &Value::Array(tasks(1)));
    while !called(&played).contains(&"manager_review") {
        fail(&mut played, FailureCode::Refused);
    }
    let names: Vec<String> = (0..TASKS).map(|t| format!("t{t}")).collect();
    let names: Vec<_> = names.iter().map(|name| (name.as_str(), false)).collect();
    let mut patch = vec![review(1, &names)];
    patch.extend(tasks(2));
    commits(&mut played, "manager_review", &Value::Array(patch));
    played.holds();
}

#[test]
fn as_many_engineers_as_allowed_have_tasks_or_fewer() {
    for (engineers, most) in [(json!(null), 4), (json!(1), 1), (json!(3), 3), (json!(8), 8)] {
        let mut asked = request();
        if engineers.is_u64() {
            asked["engineers"] = engineers;
        }
        let tasks = |numbers: std::ops::RangeInclusive<u32>| -> Value {
            numbers.map(|n| task(&format!("t{n}"), n, &format!("{n}.py"), json!({}))).collect()
        };
        let mut played = board_asked(asked.clone());
        if most < 8 {
            let refused = wrong(&mut played, "manager_delegate", tasks(1..=most + 1));
            assert_eq!(refused, ["as-many-engineers-as-allowed"], "{asked}");
        }
        commits(&mut played, "manager_delegate", &tasks(1..=most));
        assert_eq!(called(&played).len(), most as usize, "{asked}");

        // A single task is enough, for any engineer: once it is done, the board waits for no other.
        let mut played = board_asked(asked);
        commits(&mut played, "manager_delegate", &tasks(most..=most));
        played.answer(report(&format!("t{most}"), most), None);
        assert_eq!(called(&played), ["manager_review"]);
        played.holds();
    }
}

/// Roles are the same for every way to share a directory; the tools describe the way in use.
#[test]
fn roles_promise_nothing_of_edits() {
    for (name, worker) in members()["workers"].as_object().expect("workers") {
        let role = worker["role"].as_str().unwrap_or_default();
        for word in ["share one", "refus", "while you work"] {
            assert!(!role.contains(word), "{name}: {word}");
        }
    }
}

#[test]
fn a_task_of_an_engineer_that_gives_up_fails_and_is_reassigned_once() {
    let mut played = board();
    let patch = json!([task("t1", 1, "a.py", json!({})), task("t2", 2, "b.py", json!({}))]);
    commits(&mut played, "manager_delegate", &patch);
    played.answer(report("t1", 1), None);
    fail(&mut played, FailureCode::Timeout);
    assert_eq!(called(&played), ["engineer_2"], "its second attempt");
    fail(&mut played, FailureCode::Refused);
    assert_eq!(called(&played), ["manager_review"]);

    let again = |name: &str, more: Value| {
        let mut value = json!({"round": 2, "again_of": "t2"});
        value.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        task(name, 3, "b.py", value)
    };
    let first = || review(1, &[("t1", true), ("t2", false)]);
    for (patch, by) in [
        (json!([review(1, &[("t1", true), ("t2", true)])]), "whole-reviews"),
        (json!([review(1, &[("t1", true)])]), "whole-reviews"),
        (json!([review(1, &[("t1", true), ("t2", false), ("t2", false)])]), "whole-reviews"),
        (json!([review(1, &[("t1", true), ("t2", false), ("t9", false)])]), "whole-reviews"),
        (json!([first(), again("t3", json!({"again_of": "t1"}))]), "tried-again-once"),
        (json!([first(), again("t3", json!({"again_of": "t7"}))]), "tried-again-once"),
        (json!([first(), again("t3", json!({})), again("t4", json!({}))]), "tried-again-once"),
        (json!([task("t3", 3, "c.py", json!({"round": 2}))]), "two-rounds"),
        (json!([first(), first()]), "two-rounds"),
        // Otherwise no worker would be triggered after it.
        (json!([first(), again("t3", json!({})), review(2, &[("t3", false)])]), "two-rounds"),
    ] {
        assert_eq!(wrong(&mut played, "manager_review", patch.clone()), [by], "{patch}");
    }
    let outcome = played.answer(json!([first(), again("t3", json!({}))]), None);
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    assert_eq!(called(&played), ["engineer_3"], "and nothing else: the round is not over");

    // The task fails again, and is not assigned a third time.
    fail(&mut played, FailureCode::Refused);
    assert_eq!(called(&played), ["manager_review"]);
    let third = json!([review(2, &[("t3", false)]), again("t4", json!({"again_of": "t3"}))]);
    assert_eq!(wrong(&mut played, "manager_review", third), ["tried-again-once", "two-rounds", "whole-reviews"]);
    let outcome = played.answer(json!([review(2, &[("t3", false)])]), None);
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    assert_eq!(called(&played), ["manager_final"]);
    let verdict = json!([{"op": "add", "path": "/verdict", "value": {"passed": 1, "failed": 1, "notes": ""}}]);
    played.answer(verdict, None);
    assert!(played.board.ended().is_some_and(|ended| ended.is_final()));
    played.holds();
}

#[test]
fn a_round_that_leaves_nothing_to_do_is_the_last() {
    let mut played = board();
    commits(&mut played, "manager_delegate", &json!([task("t1", 1, "a.py", json!({}))]));
    assert_eq!(wrong(&mut played, "engineer_2", report("t1", 2)), ["own-reports"]);
    played.answer(report("t1", 1), None);
    assert_eq!(wrong(&mut played, "engineer_1", report("t1", 1)), ["own-reports"], "one report of a task");
    assert_eq!(called(&played), ["manager_review"]);
    played.answer(json!([review(1, &[("t1", true)])]), None);
    assert_eq!(called(&played), ["manager_final"]);
    played.holds();
}

/// Returns the stages in order, each with its worker and patch, if the tasks with these numbers are given up. The
/// engineer of `t2` does not complete it.
fn stages(given_up: &[usize]) -> Vec<(&'static str, Value)> {
    let is_done = !given_up.contains(&2);
    let again = task("t3", 2, "b.py", json!({"round": 2, "again_of": "t2"}));
    vec![
        ("manager_scan", json!([{"op": "add", "path": "/summary", "value": "Two files."}])),
        ("manager_delegate", json!([task("t1", 1, "a.py", json!({})), task("t2", 2, "b.py", json!({}))])),
        ("engineer_1", report("t1", 1)),
        ("engineer_2", report("t2", 2)),
        ("manager_review", json!([review(1, &[("t1", is_done), ("t2", false)]), again])),
        ("engineer_2", report("t3", 2)),
        ("manager_review", json!([review(2, &[("t3", false)])])),
        (
            "manager_final",
            json!([{"op": "add", "path": "/verdict", "value": {"passed": 1, "failed": 1, "notes": "t2"}}]),
        ),
    ]
}

/// Plays the stages and gives up those with these numbers. Returns the workers in the order of their calls.
fn play(given_up: &[usize]) -> (Played, Vec<String>) {
    let mut played = Played::asked(request(), members());
    let (mut stages, mut order) = (stages(given_up).into_iter().enumerate().peekable(), Vec::new());
    while played.board.ended().is_none() {
        let worker = played.calls.first().expect("somebody is called").2.clone();
        order.push(worker.clone());
        // Stages of workers that were not called are skipped.
        while stages.next_if(|(_, (by, _))| *by != worker).is_some() {}
        let outcome = match stages.next() {
            // Reply from the worker's script.
            None => {
                let script = &played.board.plan().blueprint.workers["no_verdict"].script;
                let reply = script[0].clone();
                assert_eq!(worker, "no_verdict");
                played.answer(reply, None)
            }
            Some((at, _)) if given_up.contains(&at) => {
                fail(&mut played, FailureCode::Refused);
                continue;
            }
            Some((_, (_, reply))) => played.answer(reply, None),
        };
        assert!(matches!(outcome, Outcome::Committed { .. }), "{worker}: {outcome:?}");
    }
    played.holds();
    (played, order)
}

#[test]
fn a_board_ends_with_a_verdict_whichever_worker_gives_up() {
    let (scan, delegate, first, second) = ("manager_scan", "manager_delegate", "engineer_1", "engineer_2");
    let (review, last, none) = ("manager_review", "manager_final", "no_verdict");
    for (given_up, expected) in [
        (vec![], vec![scan, delegate, first, second, review, second, review, last]),
        (vec![0], vec![scan, last]),
        (vec![1], vec![scan, delegate, last]),
        (vec![2], vec![scan, delegate, first, second, review, second, review, last]),
        (vec![4], vec![scan, delegate, first, second, review, last]),
        (vec![5], vec![scan, delegate, first, second, review, second, review, last]),
        (vec![6], vec![scan, delegate, first, second, review, second, review, last]),
        (vec![7], vec![scan, delegate, first, second, review, second, review, last, none]),
        (vec![0, 7], vec![scan, last, none]),
        (vec![1, 7], vec![scan, delegate, last, none]),
        (vec![4, 7], vec![scan, delegate, first, second, review, last, none]),
    ] {
        let (played, order) = play(&given_up);
        assert_eq!(order, expected, "{given_up:?}");
        assert!(played.board.ended().is_some_and(|ended| ended.end == End::Done), "{given_up:?}");
        let verdict = &played.board.state().root().to_value()["verdict"];
        assert_eq!(verdict["passed"].is_u64(), !given_up.contains(&7), "nobody claims to have counted: {verdict}");
    }
}

#[test]
fn a_board_without_budget_ends_with_a_verdict_too() {
    let mut members = members();
    members["limits"]["tokens"] = json!(1);
    let mut played = Played::asked(request(), members);
    assert_eq!(called(&played), ["no_verdict"]);
    let reply = played.board.plan().blueprint.workers["no_verdict"].script[0].clone();
    played.answer(reply, None);
    assert!(played.board.ended().is_some_and(|ended| ended.end == End::Done));
    played.holds();
}
