//! The shipped blueprint of a manager and engineers, run from scripts on a small repository with real files, tests and
//! commits.

use std::process::Command;

use patchboard_lint::source::Source;
use serde_json::{Value, json};

use crate::sandbox::Sandbox;

const OPS: &str = "\
def add(a, b):\n    \"\"\"The sum.\"\"\"\n    pass\n\n\ndef scale(xs, k):\n    \"\"\"Each times k.\"\"\"\n    pass\n";
const TEXT: &str =
    "from calc.ops import add, scale\n\n\ndef total(xs):\n    \"\"\"All of them in one.\"\"\"\n    pass\n";
const TESTS: &str = "\
import unittest\n\nfrom calc import VERSION\nfrom calc.ops import add, scale, negate\nfrom calc.text import total\n\n\n\
class All(unittest.TestCase):\n\
\x20   def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n\n\
\x20   def test_scale(self):\n        self.assertEqual(scale([1, 2], 3), [3, 6])\n\n\
\x20   def test_negate(self):\n        self.assertEqual(negate(2), -2)\n\n\
\x20   def test_total(self):\n        self.assertEqual(total([1, 2, 3]), \"6 in all\")\n\n\
\x20   def test_version(self):\n        self.assertEqual(VERSION, 2)\n";

const CONFIG: &str = "\
[commands.tests]\nprogram = [\"python3\", \"-B\", \"-m\", \"unittest\", \"-q\"]\n";

/// Returns the blueprint with script agents in place of its models.
fn scripted() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../blueprints/storm.yaml");
    let text = std::fs::read_to_string(path).expect("the blueprint is there");
    let source = Source::read("storm.yaml", &text).expect("it can be read");
    let mut blueprint = source.value().clone();
    for (worker, script) in scripts() {
        let seat = blueprint["workers"][worker].as_object_mut().expect("a seat");
        seat.insert("agent".to_owned(), json!("script"));
        seat.insert("script".to_owned(), script);
    }
    for worker in blueprint["workers"].as_object_mut().expect("workers").values_mut() {
        if worker["agent"] == "llm" {
            worker["agent"] = json!("script");
            worker["script"] = json!([{"fail": "crashed", "message": "nobody gives it a task"}]);
        }
    }
    blueprint
}

fn tool(name: &str, arguments: Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

fn view(path: &str) -> Value {
    tool("view", json!({"path": path}))
}

fn replace(path: &str, old: &str, new: &str, intent: &str) -> Value {
    json!({"name": "str_replace", "retry": 20,
        "arguments": {"path": path, "old_str": old, "new_str": new, "intent": intent}})
}

fn scripts() -> Vec<(&'static str, Value)> {
    let task = |task: &str, round: u32, engineer: &str, file: &str, functions: &[&str]| {
        json!({"op": "add", "path": "/tasks/-", "value": {"task": task, "round": round, "engineer_id": engineer,
            "file_path": file, "functions_to_implement": functions, "instruction": "Write them as the tests want them."}})
    };
    let report = |task: &str, engineer: &str, status: &str| {
        json!([{"op": "add", "path": "/reports/-",
            "value": {"task": task, "engineer_id": engineer, "status": status, "notes": "as told"}}])
    };
    let tests = || tool("run", json!({"program": "tests"}));
    let commit = |message: &str, author: &str| tool("commit", json!({"message": message, "author": author}));
    let review = |round: u32, tasks: &[(&str, bool)]| {
        let tasks: Vec<Value> = tasks
            .iter()
            .map(|(task, committed)| json!({"task": task, "committed": committed, "note": "by its tests"}))
            .collect();
        json!({"op": "add", "path": "/reviews/-", "value": {"round": round, "tasks": tasks}})
    };
    let mut again = task("t3", 2, "engineer_2", "calc/text.py", &["total"]);
    again["value"]["again_of"] = json!("t2");
    vec![
        (
            "manager_scan",
            json!([{
                "tools": [
                    tests(), view("calc/ops.py"), view("calc/__init__.py"),
                    tool("insert", json!({"path": "calc/ops.py", "insert_line": 8, "intent": "the tests want it",
                        "insert_text": "\n\ndef negate(a):\n    \"\"\"Minus a.\"\"\"\n    pass\n"})),
                    tool("diff", json!({})), tool("commit", json!({"message": "add stubs"})),
                ],
                "reply": [{"op": "add", "path": "/summary", "value": "calc/ops.py: add, scale, negate. calc/text.py: total."}],
            }]),
        ),
        // Plans with more engineers than allowed, or with one function given to two of them, are rejected.
        (
            "manager_delegate",
            json!([
                [
                    task("t1", 1, "engineer_1", "calc/ops.py", &["add"]),
                    task("t2", 1, "engineer_3", "calc/text.py", &["total"])
                ],
                [
                    task("t1", 1, "engineer_1", "calc/ops.py", &["add"]),
                    task("t2", 1, "engineer_2", "calc/ops.py", &["add"])
                ],
                [
                    task("t1", 1, "engineer_1", "calc/ops.py", &["add", "scale", "negate"]),
                    task("t2", 1, "engineer_2", "calc/text.py", &["total"])
                ],
            ]),
        ),
        (
            "engineer_1",
            json!([{
                "tools": [
                    view("calc/ops.py"),
                    replace("calc/ops.py", "The sum.\"\"\"\n    pass", "The sum.\"\"\"\n    return a + b", "sum"),
                    replace("calc/ops.py", "Each times k.\"\"\"\n    pass", "Each times k.\"\"\"\n    return [x * k for x in xs]", "scale"),
                    replace("calc/ops.py", "Minus a.\"\"\"\n    pass", "Minus a.\"\"\"\n    return -a", "negate"),
                    // Both engineers change the shared file.
                    view("calc/__init__.py"),
                    replace("calc/__init__.py", "AUTHORS = [", "AUTHORS = [\n    \"one\",", "name the author"),
                ],
                "reply": report("t1", "engineer_1", "done"),
            }]),
        ),
        (
            "engineer_2",
            json!([
                {
                    "tools": [
                        view("calc/text.py"), view("calc/ops.py"), view("calc/__init__.py"),
                        replace("calc/text.py", "one.\"\"\"\n    pass", "one.\"\"\"\n    return str(add(xs[0], xs[1]))", "total"),
                        replace("calc/__init__.py", "AUTHORS = [", "AUTHORS = [\n    \"two\",", "name the author"),
                    ],
                    "reply": report("t2", "engineer_2", "failed"),
                },
                {
                    "tools": [
                        view("calc/text.py"), view("calc/__init__.py"),
                        replace("calc/text.py", "return str(add(xs[0], xs[1]))",
                            "result = 0\n    for x in xs:\n        result = add(result, x)\n    return f\"{result} in all\"", "total of all"),
                        replace("calc/__init__.py", "VERSION = 1", "VERSION = 2", "the version that the tests want"),
                    ],
                    "reply": report("t3", "engineer_2", "done"),
                },
            ]),
        ),
        (
            "manager_review",
            json!([
                {
                    "tools": [tool("diff", json!({})), tests(), commit("calc: operations", "engineer_1")],
                    "reply": [review(1, &[("t1", true), ("t2", false)]), again],
                },
                // A third round exceeds the limit of two.
                [review(2, &[("t3", false)]), task("t4", 2, "engineer_2", "calc/text.py", &["total"])],
                {
                    "tools": [tool("diff", json!({})), tests(), commit("calc: totals", "engineer_2")],
                    "reply": [review(2, &[("t3", true)])],
                },
            ]),
        ),
        (
            "manager_final",
            json!([{
                "tools": [tests()],
                "reply": [{"op": "add", "path": "/verdict", "value": {"passed": 5, "failed": 0, "notes": "All of it."}}],
            }]),
        ),
    ]
}

fn git(sandbox: &Sandbox, arguments: &[&str]) -> String {
    let identity = ["-c", "user.name=me", "-c", "user.email=me@example"];
    let ran = Command::new("git").current_dir(sandbox.path().join("repo")).args(identity).args(arguments).output();
    let ran = ran.expect("git runs");
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

fn repository() -> Sandbox {
    let sandbox = Sandbox::new();
    for (name, text) in [
        ("repo/calc/__init__.py", "VERSION = 1\nAUTHORS = [\n    \"first\",\n]\n"),
        ("repo/calc/ops.py", OPS),
        ("repo/calc/text.py", TEXT),
        ("repo/test_calc.py", TESTS),
        ("patchboard.toml", CONFIG),
    ] {
        sandbox.write(name, text);
    }
    sandbox.write("storm.json", scripted().to_string());
    git(&sandbox, &["init", "-q"]);
    git(&sandbox, &["add", "."]);
    git(&sandbox, &["commit", "-qm", "begin"]);
    sandbox
}

#[test]
fn a_manager_and_engineers_work_on_one_repository() {
    let sandbox = repository();
    let request = json!({"task": "Write what is missing.", "engineers": 2}).to_string();
    let arguments = ["run", "storm.json", "--request", &request, "--workspace", "code=repo", "--output", "json"];
    let result = sandbox.run(&arguments).expect_exit(0).json();
    assert_eq!((&result["end"], &result["state"]["verdict"]["passed"]), (&json!("done"), &json!(5)));
    assert_eq!(result["state"]["tasks"].as_array().map(Vec::len), Some(3), "the failed task was given out once more");

    // The tests really pass, as the verdict says.
    let mut tested = Command::new("python3");
    let tested = tested.args(["-B", "-m", "unittest", "-q"]).current_dir(sandbox.path().join("repo")).output();
    let tested = tested.expect("python3 runs");
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
    assert!(String::from_utf8_lossy(&tested.stderr).contains("Ran 5 tests"));
    let log = git(&sandbox, &["log", "--format=%an|%cn|%s"]);
    let mut authors: Vec<&str> = log.lines().collect();
    authors.reverse();
    assert_eq!(
        authors,
        [
            "me|me|begin",
            "manager_scan|manager_scan|add stubs",
            "engineer_1|manager_review|calc: operations",
            "engineer_2|manager_review|calc: totals",
        ]
    );
    assert_eq!(git(&sandbox, &["status", "--porcelain"]), "", "everything is committed");
    let ops = std::fs::read_to_string(sandbox.path().join("repo/calc/ops.py")).expect("a file");
    assert!(ops.contains("    # engineer_1: sum\n    return a + b"), "{ops}");
    let authors = std::fs::read_to_string(sandbox.path().join("repo/calc/__init__.py")).expect("a file");
    assert!(authors.contains("\"one\"") && authors.contains("\"two\""), "nobody's edit is lost: {authors}");

    // The run can be replayed, verified and queried.
    sandbox.run(&["replay", "last"]).expect_exit(0);
    sandbox.run(&["verify", "last"]).expect_exit(0);
    let why = sandbox.run(&["why", "last", "/files/calc~1text.py/hash"]).expect_exit(0);
    assert!(why.stdout.contains("engineer_2"), "{}", why.stdout);
    let log = sandbox.run(&["log", "last"]).expect_exit(0);
    for refusal in ["as-many-engineers-as-allowed", "disjoint-files", "two-rounds"] {
        assert!(log.stdout.contains(refusal), "{refusal}: {}", log.stdout);
    }
    // There may be many files, so the text output prints only their number.
    let stdout = sandbox.run(&["resume", "last"]).expect_exit(0).stdout;
    assert!(
        stdout.contains("\nfiles    4; see `patchboard edit-stats ") && !stdout.contains("calc/ops.py\":"),
        "{stdout}"
    );
    let (result, _) = stdout.split_once("\n\nboard ").expect("a result, and what the board came to");
    let verdict: Value = serde_json::from_str(result).expect("JSON");
    assert!(verdict["notes"].is_string(), "what `done` is about comes first: {stdout}");
    log_and_why_report_the_author_of_an_edit(&sandbox, &log.stdout);
    edits_are_counted(&sandbox);
    the_text_of_an_edit_can_be_redacted(&sandbox);
}

fn log_and_why_report_the_author_of_an_edit(sandbox: &Sandbox, log: &str) {
    let line = log.lines().find(|line| line.contains("total of all")).expect("the last edit of the file");
    assert!(line.contains("engineer_2 #") && line.contains("edits calc/text.py to version 3 “total of all”"), "{line}");
    assert!(!log.contains("(direct)") && log.contains(": external edits "), "{log}");
    let why = sandbox.run(&["why", "last", "/files/calc~1text.py"]).expect_exit(0).stdout;
    for part in ["was last written by engineer_2", "edits calc/text.py to version 3", "total of all", "rule task"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let why = sandbox.run(&["why", "last", "/files/calc~1text.py", "--output", "json"]).expect_exit(0).json();
    assert_eq!(
        (&why["edit"]["by"], &why["edit"]["intent"], &why["edit"]["files"]),
        (
            &json!("engineer_2"),
            &json!("total of all"),
            &json!([{"path": "calc/text.py", "version": 3, "exists": true}])
        ),
        "{why}"
    );
    assert!(why["invocation"].is_u64() && why["trigger"]["rule"] == "task", "{why}");
}

fn edits_are_counted(sandbox: &Sandbox) {
    let edits =
        |more: &[&str]| sandbox.run(&[&["edits", "last", "--output", "json"], more].concat()).expect_exit(0).json();
    let report = edits(&[]);
    let board = &report["boards"][0];
    // Counts the journal's records independently.
    let records = sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
    let of = |kind: &str, name: Option<&str>| {
        let is_one = |record: &&Value| {
            let attempt = &record["by"]["edit"]["attempt"];
            record["kind"] == kind && attempt.is_object() && name.is_none_or(|name| record["by"]["worker"] == name)
        };
        records.iter().filter(is_one).count() as u64
    };
    let (made, refused) = (of("committed", None), of("rejected", None));
    assert_eq!(
        (&board["edits"]["made"], &board["edits"]["reviewed"]),
        (&json!(made), &json!(made + refused)),
        "{report}"
    );
    assert_eq!(board["authors"]["engineer_1"]["made"], json!(of("committed", Some("engineer_1"))));
    let codes = board["edits"]["refused"].as_object().expect("codes").values().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!((codes, &board["external"]), (refused, &json!(1)), "{report}");
    let shared = board["files"]["shared"].as_array().expect("files");
    assert!(shared.contains(&json!("calc/__init__.py")) && shared.contains(&json!("calc/ops.py")), "{shared:?}");
    // An engineer removed the `pass` of the manager's stub.
    assert!(board["lines"]["of_others"].as_u64() >= Some(1), "{board}");
    assert_eq!((&board["score"]["percent"], &board["causes"]), (&json!(100.0), &json!([])), "by its verdict");

    assert_eq!(
        board["tasks"],
        json!({"first_round": 2, "single_file": 100.0, "overlap": 0.0, "functions": {"engineer_1": 3, "engineer_2": 1}})
    );
    // The shared file belongs to no task.
    let outside = json!([{"author": "engineer_1", "path": "calc/__init__.py", "edits": 1},
        {"author": "engineer_2", "path": "calc/__init__.py", "edits": 2}]);
    assert_eq!(board["drift"], json!({"edits": 3, "files": outside}));

    let output = "FAILED test_calc.py::All::test_add - AttributeError: no\nFAILED test_calc.py::All::test_total - assert 1 == 2\n";
    sandbox.write("pytest.txt", output);
    let report = edits(&["--score", "3/5", "--tests", "pytest.txt", "--dollars", "6"]);
    let board = &report["boards"][0];
    assert_eq!(board["symptoms"], json!({"assertion": 1, "missing_symbol": 1}));
    assert_eq!(board["causes"], json!(["incomplete_api", "scope_drift", "same_file_overlap"]));
    assert_eq!((&report["score_w"], &report["score"], &report["cost_eff"]), (&json!(60.0), &json!(60.0), &json!(0.1)));
    let by_point = |of: &str| json!(board[of].as_f64().expect("a number") / 60.0);
    assert_eq!((&report["tokens_eff"], &report["time_eff"]), (&by_point("tokens"), &by_point("minutes")));
    let two = sandbox
        .run(&["edits", "last", "last", "--score", "1/1", "--score", "0/3", "--output", "json"])
        .expect_exit(0)
        .json();
    assert_eq!((&two["score_w"], &two["score"]), (&json!(25.0), &json!(50.0)));
    let text = sandbox.run(&["edits", "last", "--score", "3/5"]).expect_exit(0).stdout;
    assert!(text.contains("engineer_2") && text.contains("score_w 60.0 %") && text.contains("scope_drift"), "{text}");
    assert!(text.contains("edits outside of their authors' tasks: 3; 1 of calc/__init__.py by engineer_1"), "{text}");
    assert_eq!(sandbox.run(&["edits", "last", "--score", "5"]).code, 2);
}

fn the_text_of_an_edit_can_be_redacted(sandbox: &Sandbox) {
    let records = sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
    let holds =
        |record: &&Value| record["written"].as_str().is_some_and(|edit| edit.contains("result = add(result, x)"));
    let leak = records.iter().find(holds).expect("the edit")["seq"].to_string();
    sandbox.run(&["redact", "last", &leak]).expect_exit(0);
    // The first record contains the scripts.
    let records = sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
    let log: String = records[1..].iter().map(Value::to_string).collect();
    assert!(!log.contains("result = add(result, x)") && log.contains("calc/ops.py"));
    sandbox.run(&["verify", "last"]).expect_exit(0);
    sandbox.run(&["replay", "last"]).expect_exit(0);
    let text = sandbox.run(&["log", "last"]).expect_exit(0).stdout;
    assert!(text.contains("edits calc/text.py to version 3"), "{text}");
}

/// An engineer gives up for good without a report: its task is reassigned, and the run finishes.
#[test]
fn a_run_finishes_after_an_engineer_gives_up() {
    let sandbox = repository();
    let mut blueprint = scripted();
    let work = blueprint["workers"]["engineer_2"]["script"].as_array().expect("a script").clone();
    let mut whole = work[0].clone();
    whole["tools"][3] = replace(
        "calc/text.py",
        "one.\"\"\"\n    pass",
        "one.\"\"\"\n    return f\"{add(sum(xs), 0)} in all\"",
        "total",
    );
    whole["tools"].as_array_mut().expect("steps").push(replace(
        "calc/__init__.py",
        "VERSION = 1",
        "VERSION = 2",
        "wanted",
    ));
    whole["reply"] = work[1]["reply"].clone();
    // Both attempts fail; the next call is for the reassigned task.
    let crash = json!({"fail": "crashed", "message": "out of order"});
    blueprint["workers"]["engineer_2"]["script"] = json!([crash, crash, whole]);
    sandbox.write("storm.json", blueprint.to_string());
    let request = json!({"task": "Write what is missing.", "engineers": 2}).to_string();
    let arguments = ["run", "storm.json", "--request", &request, "--workspace", "code=repo", "--output", "json"];
    let result = sandbox.run(&arguments).expect_exit(0).json();
    assert_eq!((&result["end"], result["state"]["reports"].as_array().map(Vec::len)), (&json!("done"), Some(2)));
    let reviews = &result["state"]["reviews"];
    assert_eq!(
        (&reviews[0]["tasks"][1]["committed"], &reviews[1]["tasks"][0]["committed"]),
        (&json!(false), &json!(true))
    );
    let log = git(&sandbox, &["log", "--format=%an %s"]);
    assert!(log.starts_with("engineer_2 calc: totals\nengineer_1 calc: operations\n"), "{log}");
    sandbox.run(&["replay", "last"]).expect_exit(0);
    let log = sandbox.run(&["log", "last"]).expect_exit(0);
    assert!(log.stdout.contains("no run of the rules it waited for is in progress"), "{}", log.stdout);
}

#[test]
fn a_missing_workspace_is_reported_before_the_run() {
    let sandbox = repository();
    let request = json!({"task": "Write what is missing."}).to_string();
    let ran = sandbox.run(&["run", "storm.json", "--request", &request]).expect_exit(2);
    assert!(ran.stderr.contains("[workspaces.code]") && ran.stderr.contains("--workspace code=DIR"), "{}", ran.stderr);
    let ran = sandbox.run(&["run", "storm.json", "--request", &request, "--workspace", "code=nowhere"]).expect_exit(2);
    assert!(ran.stderr.contains("nowhere"), "{}", ran.stderr);
    let ran = sandbox.run(&["run", "storm.json", "--request", &request, "--workspace", "code"]).expect_exit(2);
    assert!(ran.stderr.contains("give a name and a directory"), "{}", ran.stderr);
}

/// With one working tree per engineer, conflicting edits surface at the merge.
#[test]
fn in_working_trees_of_their_own_conflicts_come_with_the_merge() {
    let sandbox = repository();
    let mut blueprint = scripted();
    blueprint["workspace"]["isolation"] = json!("worktree");
    // An engineer with two tasks is called twice.
    let second = json!({"task": "t3", "round": 1, "engineer_id": "engineer_1", "file_path": "calc/more.py",
        "functions_to_implement": ["more"], "instruction": "Write it."});
    let script = &mut blueprint["workers"]["manager_delegate"]["script"];
    let mut delegated = script[2].take();
    delegated.as_array_mut().expect("a patch").push(json!({"op": "add", "path": "/tasks/-", "value": second}));
    *script = json!([delegated]);
    let one = &mut blueprint["workers"]["engineer_1"]["script"];
    let report = json!({"task": "t3", "engineer_id": "engineer_1", "status": "done", "notes": ""});
    one.as_array_mut().expect("a script").push(json!({
        "tools": [tool("create", json!({"path": "calc/more.py", "file_text": "more = 1\n", "intent": "more"})),
            tool("run", json!({"program": "tests"}))],
        "reply": [{"op": "add", "path": "/reports/-", "value": report}],
    }));
    let merge = |author: &str| json!({"name": "merge", "arguments": {"author": author}, "may_fail": true});
    let reviewed = json!({"round": 1, "tasks": [{"task": "t1", "committed": true, "note": ""}, {"task": "t2", "committed": false, "note": "it conflicts"},
        {"task": "t3", "committed": true, "note": ""}]});
    blueprint["workers"]["manager_review"]["script"] = json!([{
        "tools": [merge("engineer_1"), merge("engineer_2"), merge("nobody")],
        "reply": [{"op": "add", "path": "/reviews/-", "value": reviewed}],
    }]);
    sandbox.write("storm.json", blueprint.to_string());
    // The request does not set the number of engineers: two of the allowed ones are used.
    let request = json!({"task": "Write what is missing."}).to_string();
    let arguments = ["run", "storm.json", "--request", &request, "--workspace", "code=repo", "--output", "json"];
    sandbox.run(&arguments).expect_exit(0);
    let read = |name: &str| std::fs::read_to_string(sandbox.path().join("repo").join(name)).expect("a file");
    assert!(read("calc/ops.py").contains("return a + b") && read("calc/__init__.py").contains("\"one\""));
    assert_eq!(read("calc/more.py").lines().last(), Some("more = 1"));
    assert!(!read("calc/__init__.py").contains("\"two\""), "the second merge conflicts, and nothing of it is merged");
    assert_eq!(read("calc/text.py"), TEXT);
    assert_eq!(git(&sandbox, &["status", "--porcelain"]), "", "and nothing half merged is left");
    let log = git(&sandbox, &["log", "--format=%an %s"]);
    assert!(
        log.contains("manager_review work of engineer_1\n") && log.contains("\nengineer_1 work of engineer_1\n"),
        "{log}"
    );
    assert!(!log.contains("engineer_2"), "{log}");
    let tree = sandbox.path().join("repo/.patchboard/worktrees/engineer_2/calc/text.py");
    assert!(std::fs::read_to_string(tree).expect("its work is there").contains("str(add("));
}

/// Compares isolation modes: an engineer that overwrites lines it has not read is rejected under `storm`; under `soft`
/// the other engineer's lines are silently lost.
#[test]
fn without_checks_what_others_wrote_is_lost_and_with_them_it_is_not() {
    for (isolation, is_kept) in [("storm", true), ("soft", false)] {
        let sandbox = repository();
        let mut blueprint = scripted();
        blueprint["workspace"]["isolation"] = json!(isolation);
        let blind = json!({"path": "calc/__init__.py", "file_text": "VERSION = 1\nAUTHORS = [\n]\n", "intent": "anew"});
        let work = &mut blueprint["workers"]["engineer_2"]["script"][0]["tools"];
        let steps = work.as_array_mut().expect("steps");
        steps.insert(0, json!({"name": "create", "arguments": blind, "may_fail": true}));
        // Engineers may not edit tests in either mode.
        let tests = replace("test_calc.py", "VERSION, 2", "VERSION, 1", "so that it passes");
        steps.insert(0, view("test_calc.py"));
        steps.insert(1, json!({"name": tests["name"], "arguments": tests["arguments"], "may_fail": true}));
        sandbox.write("storm.json", blueprint.to_string());
        let request = json!({"task": "Write what is missing.", "engineers": 2}).to_string();
        let arguments = ["run", "storm.json", "--request", &request, "--workspace", "code=repo", "--output", "json"];
        let result = sandbox.run(&arguments).expect_exit(0).json();
        assert_eq!(result["end"], "done", "{isolation}");
        let authors = std::fs::read_to_string(sandbox.path().join("repo/calc/__init__.py")).expect("a file");
        assert_eq!(authors.contains("\"first\""), is_kept, "{isolation}: {authors}");
        assert_eq!(std::fs::read_to_string(sandbox.path().join("repo/test_calc.py")).expect("a file"), TESTS);
        let report = sandbox.run(&["edits", "last", "--output", "json"]).expect_exit(0).json();
        let refused = &report["boards"][0]["edits"]["refused"];
        let is_refused = |code: &&str| refused[code].is_u64();
        // The engineer has not read the file, or another engineer has reserved it.
        assert_eq!(["file_exists", "reserved"].iter().any(is_refused), is_kept, "{isolation}: {refused}");
        let is_fresh = !["stale_target", "stale_read", "unseen_target"].iter().any(is_refused);
        assert!(is_kept || is_fresh, "nothing for freshness: {refused}");
    }
}
