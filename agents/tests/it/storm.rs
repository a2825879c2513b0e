//! The shipped blueprint of a manager and engineers, with an engineer that never finishes.

use std::sync::Arc;

use patchboard_agents::config::{Config, Environment};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_endpoint::{Endpoint, ScriptedResponse};
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::record::{Body, Cause, End, Ended};
use patchboard_lint::source::Source;
use patchboard_protocols::PLANS;
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal as _;
use patchboard_storage::sqlite::SqliteJournal;
use serde_json::{Value, json};

/// Model calls that an engineer has for a task, in each attempt.
const ITERATIONS: usize = 80;

/// Returns the blueprint, with scripts in the manager's seats.
fn blueprint() -> Blueprint {
    let task = |name: &str, round: u32, more: Value| {
        let mut value = json!({"task": name, "round": round, "engineer_id": "engineer_1", "file_path": "a.py",
            "functions_to_implement": ["f"], "instruction": "Write it."});
        value.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({"op": "add", "path": "/tasks/-", "value": value})
    };
    let review = |round: u32, task: &str| {
        let tasks = json!([{"task": task, "committed": false, "note": "Nobody has reported."}]);
        json!({"op": "add", "path": "/reviews/-", "value": {"round": round, "tasks": tasks}})
    };
    let verdict = json!({"passed": 0, "failed": 1, "notes": "t1 is not done."});
    let text = include_str!("../../../blueprints/storm.yaml");
    let mut blueprint = Source::read("storm.yaml", text).expect("it can be read").value().clone();
    for (worker, script) in [
        ("manager_scan", json!([[{"op": "add", "path": "/summary", "value": "One file."}]])),
        ("manager_delegate", json!([[task("t1", 1, json!({}))]])),
        ("manager_review", json!([[review(1, "t1"), task("t2", 2, json!({"again_of": "t1"}))], [review(2, "t2")]])),
        ("manager_final", json!([[{"op": "add", "path": "/verdict", "value": verdict}]])),
    ] {
        let seat = &mut blueprint["workers"][worker];
        (seat["agent"], seat["script"]) = (json!("script"), script);
    }
    serde_json::from_value(blueprint).expect("a blueprint")
}

#[tokio::test]
async fn an_engineer_who_uses_up_its_iterations_has_failed_and_its_task_is_given_out_once_more() {
    let (directory, data) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    std::fs::write(directory.path().join("a.py"), "def f():\n    pass\n").expect("written");
    let made = std::process::Command::new("git").args(["init", "-q"]).current_dir(directory.path()).status();
    assert!(made.expect("git runs").success());
    // Views files as long as it has tools, and then has no report.
    let model = Endpoint::serving(|asked| match asked.get("tools") {
        Some(_) => ScriptedResponse::call_tools(&[("a", "view", r#"{"path": "a.py"}"#)], 100, 10),
        None => ScriptedResponse::answer("I would have to look at it once more.", 100, 10),
    });
    let text = format!(
        "[models.default]\nurl = \"{}\"\nmodel = \"m\"\n[workspaces.code]\ndir = {:?}\n[commands.tests]\nprogram = [\"true\"]\n",
        model.url,
        directory.path()
    );
    let config = Config::parse(&text, "patchboard.toml").expect("a good file");
    let seats = Arc::new(AgentRegistry::new(config, &Environment::from_process(), InlinePrograms::Denied));
    let (blueprint, workspaces) = (blueprint(), Arc::clone(seats.workspaces()));
    assert_eq!(seats.check(&blueprint), []);
    let journal = Arc::new(SqliteJournal::open(data.path()).expect("a journal"));
    let runtime = Runtime::start(Arc::clone(&journal) as _, Options::new(seats), PLANS).await.expect("a runtime");
    let taking_up = workspaces.begin_activation();
    let board = runtime.create(blueprint, json!({"task": "Write f."}), None).await.expect("a board");
    taking_up.attach(&board).await.expect("it is open").expect("it has a directory");
    assert_eq!(board.wait_for_end().await.expect("it ends"), Ended { end: End::Done, cause: Cause::Done });

    // Two attempts at each of the two tasks; the last call of each has no tools.
    let asked = model.bodies();
    let lasts: Vec<usize> = (0..asked.len()).filter(|at| asked[*at].get("tools").is_none()).collect();
    assert_eq!(lasts, [1, 2, 3, 4].map(|attempts| attempts * ITERATIONS - 1));
    assert_eq!(asked.len(), 4 * ITERATIONS);
    let records = wait(journal.records(board.id(), None, usize::MAX)).expect("records");
    let refused = records.iter().filter_map(|record| match record.body().expect("readable") {
        Body::Rejected(rejected) => {
            Some((rejected.by.worker.to_string(), rejected.code.to_string(), rejected.is_final))
        }
        _ => None,
    });
    let refused: Vec<_> = refused.collect();
    let expected = [false, true, false, true].map(|is_final| ("engineer_1".into(), "invalid_json".into(), is_final));
    assert_eq!(refused, expected);
    let state = board.status().state.root().to_value();
    assert_eq!((&state["reports"], &state["tasks"][1]["again_of"]), (&json!([]), &json!("t1")));
    assert_eq!(state["verdict"]["notes"], "t1 is not done.");
}
