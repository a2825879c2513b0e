//! Plays boards at a directory of files, with real edits and real commits.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use patchboard_agents::config::{Config, Directory, Environment};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_kernel::blueprint::{AgentKind, Blueprint};
use patchboard_kernel::files::{Access, EditAttempt};
use patchboard_workspace::boards::Workspaces;
use patchboard_workspace::edit_author::EditAuthor;
use patchboard_workspace::service::Workspace;
use patchboard_workspace::session::Session;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::play::{House, Own, Seats, seated, shipped, source_of, until};

const OPS: &str = "def add(a, b):\n    pass\n\n\ndef scale(xs, k):\n    pass\n";
const TEXT: &str = "from ops import add\n\n\ndef total(xs):\n    pass\n";

fn directory() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("ops.py"), OPS).expect("written");
    std::fs::write(directory.path().join("text.py"), TEXT).expect("written");
    directory
}

fn git(directory: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=someone", "-c", "user.email=someone@example"];
    let ran = Command::new("git").current_dir(directory).args(identity).args(arguments).output().expect("git runs");
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

fn tool(name: &str, arguments: Value) -> Value {
    json!({"name": name, "arguments": arguments, "retry": 20})
}

fn replace(path: &str, old: &str, new: &str) -> Value {
    json!({"path": path, "old_str": old, "new_str": new, "intent": "what the task says"})
}

/// Replies of the manager and of two engineers.
fn scripts() -> [(&'static str, Value); 6] {
    let view = |path: &str| tool("view", json!({"path": path}));
    let edit = |path: &str, old: &str, new: &str| tool("str_replace", replace(path, old, new));
    let task = |task: &str, engineer: &str, file: &str, functions: &[&str]| {
        json!({"op": "add", "path": "/tasks/-", "value": {"task": task, "round": 1, "engineer_id": engineer,
            "file_path": file, "functions_to_implement": functions, "instruction": "Write them."}})
    };
    let report = |task: &str, engineer: &str| {
        json!([{"op": "add", "path": "/reports/-",
            "value": {"task": task, "engineer_id": engineer, "status": "done", "notes": "Written."}}])
    };
    let engineer = |name: &str, tasks: &str, tools: Value| json!([{"tools": tools, "reply": report(tasks, name)}]);
    let reviewed = ["t1", "t2"].map(|task| json!({"task": task, "committed": true, "note": "It is right."}));
    let commit = |message: &str, author: &str| tool("commit", json!({"message": message, "author": author}));
    [
        (
            "manager_scan",
            json!([{
                "tools": [
                    view("ops.py"),
                    tool("insert", json!({"path": "ops.py", "insert_line": 6, "intent": "it is wanted",
                        "insert_text": "\n\ndef negate(a):\n    pass\n"})),
                    tool("diff", json!({})),
                    tool("commit", json!({"message": "add a stub"})),
                ],
                "reply": [{"op": "add", "path": "/summary", "value": "ops.py: add, scale, negate. text.py: total."}],
            }]),
        ),
        (
            "manager_delegate",
            json!([
                [task("t1", "engineer_1", "ops.py", &["add"]), task("t2", "engineer_2", "ops.py", &["add"])],
                [
                    task("t1", "engineer_1", "ops.py", &["add", "negate"]),
                    task("t2", "engineer_2", "text.py", &["total"])
                ],
            ]),
        ),
        (
            "engineer_1",
            engineer(
                "engineer_1",
                "t1",
                json!([
                    view("ops.py"),
                    edit("ops.py", "b):\n    pass", "b):\n    return a + b"),
                    edit("ops.py", "(a):\n    pass", "(a):\n    return -a")
                ]),
            ),
        ),
        (
            "engineer_2",
            engineer("engineer_2", "t2", json!([view("text.py"), edit("text.py", "    pass", "    return sum(xs)")])),
        ),
        (
            "manager_review",
            json!([{
                "tools": [
                    tool("diff", json!({})), commit("operations", "engineer_1"), commit("totals", "engineer_2"),
                ],
                "reply": [{"op": "add", "path": "/reviews/-", "value": {"round": 1, "tasks": reviewed}}],
            }]),
        ),
        (
            "manager_final",
            json!([{
                "tools": [tool("run", json!({"program": "tests"}))],
                "reply": [{"op": "add", "path": "/verdict", "value": {"passed": 2, "failed": 0, "notes": "All of it."}}],
            }]),
        ),
    ]
}

/// Plays a manager and two engineers at one repository: edits, notes of intent, commits, and a rejected task split;
/// done.
pub(super) async fn storm(house: &House) {
    let directory = directory();
    for arguments in [&["init", "-q"][..], &["add", "."], &["commit", "-qm", "begin"]] {
        git(directory.path(), arguments);
    }
    let mut blueprint = source_of("storm.yaml").value().clone();
    for (worker, script) in scripts() {
        let seat = &mut blueprint["workers"][worker];
        (seat["agent"], seat["script"]) = (json!("script"), script);
    }
    let mut blueprint: Blueprint = serde_json::from_value(blueprint).expect("a blueprint");
    for seat in blueprint.workers.values_mut().filter(|seat| seat.agent == AgentKind::Llm) {
        (seat.agent, seat.script) = (AgentKind::Script, vec![json!({"fail": "crashed"})]);
    }
    let config = Config::parse(
        &format!("[workspaces.code]\ndir = {:?}\n[commands.tests]\nprogram = [\"true\"]\n", directory.path()),
        "patchboard.toml",
    );
    let seats = AgentRegistry::new(config.expect("a good file"), &Environment::from_process(), InlinePrograms::Denied);
    assert_eq!(seats.check(&blueprint), []);
    let workspaces = Arc::clone(seats.workspaces());
    let runtime = house.runtime(Seats::of(Arc::new(seats))).await;
    let taking_up = workspaces.begin_activation();
    let request = json!({"task": "Write what is missing.", "engineers": 2});
    let board = runtime.create(blueprint, request, None).await.expect("a board");
    taking_up.attach(&board).await.expect("it is open").expect("it has a directory");
    board.wait_for_end().await.expect("it ends");
    runtime.shutdown().await;
}

/// Plays two agents who edit one directory, one of them with reads from before the other's edit; cancelled.
pub(super) async fn workspace(house: &House) {
    let directory = directory();
    let place = ("workspace".to_owned(), Directory::new(directory.path().to_owned()));
    let workspaces = Arc::new(Workspaces::new(BTreeMap::from([place])));
    let runtime = house.runtime(seated(|_, _| Own::Silent)).await;
    let board = runtime.create(shipped("workspace.yaml"), Value::Null, None).await.expect("a board");
    let workspace =
        workspaces.begin_activation().attach(&board).await.expect("it is open").expect("it has a directory");
    let mut sessions = Vec::new();
    for name in ["ada", "bob"] {
        board.signal("join", json!({"name": name}), Some(name.into())).await.expect("heard");
        let joined = until(&board, |snapshot| snapshot.attempts.len() > sessions.len()).await;
        let (invocation, attempt) = joined.attempts[sessions.len()];
        sessions.push(session(&board.status().blueprint, &workspace, EditAttempt { invocation, attempt }, name));
    }
    let [ada, bob] = sessions.as_mut_slice() else { panic!("two have come") };
    let with = |command: &str, mut arguments: Value| {
        arguments["command"] = command.into();
        arguments
    };
    for session in [&mut *ada, &mut *bob] {
        session.call(with("view", json!({"path": "ops.py"}))).await;
    }
    let edited = ada.call(with("str_replace", replace("ops.py", "b):\n    pass", "b):\n    return a + b"))).await;
    assert!(!edited.is_error(), "{}", edited.text);
    let refused =
        bob.call(with("str_replace", replace("ops.py", "add(a, b):\n    pass", "add(a, b):\n    return b"))).await;
    assert!(refused.is_error(), "{}", refused.text);
    let made =
        bob.call(with("create", json!({"path": "new.py", "file_text": "X = 1\n", "intent": "a constant"}))).await;
    assert!(!made.is_error(), "{}", made.text);
    board.cancel().await.expect("cancelled");
    drop((sessions, workspace));
    runtime.shutdown().await;
}

fn session(blueprint: &Blueprint, workspace: &Arc<Workspace>, of: EditAttempt, name: &str) -> Session {
    let files = blueprint.workers["editor"].files.as_ref().expect("its files");
    let access = Access::compile(files).expect("patterns");
    let author = EditAuthor { attempt: of, access, worker: "editor".to_owned(), name: Some(name.to_owned()) };
    Session::new(Arc::clone(workspace), author)
}
