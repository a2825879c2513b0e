//! An attempt with several model calls, as shown by the commands that read journals.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use patchboard_kernel::board::Outcome;
use patchboard_kernel::ledger::Usage;
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::{Agent, Call, CallResult, Reply};
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::sqlite::SqliteJournal;
use serde_json::{Value, json};

use crate::sandbox::Sandbox;

/// An agent that continues twice before it answers; the usage of the second call is unknown.
#[derive(Default)]
struct Busy(OnceLock<BoardHandle>);

impl Agent for Busy {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        Box::pin(async move {
            let board = loop {
                match self.0.get() {
                    Some(board) => break board,
                    None => tokio::task::yield_now().await,
                }
            };
            for usage in [usage(100, 10), None] {
                let outcome =
                    board.continue_attempt(call.invocation, call.attempt, usage, 500).await.expect("it is heard");
                assert!(matches!(outcome, Outcome::Continued { .. }), "{outcome:?}");
            }
            let text = r#"[{"op": "add", "path": "/list/-", "value": 1}]"#.to_owned();
            Ok(Reply::new(text, usage(160, 7)))
        })
    }
}

fn usage(prompt: u64, completion: u64) -> Option<Usage> {
    Some(Usage { prompt, completion, ..Usage::default() })
}

/// Runs such a board to its end in the sandbox's journal.
pub(crate) fn played(sandbox: &Sandbox, iterations: u32) {
    let blueprint = json!({
        "blueprint": 1, "name": "busy", "state": {"schema": {}, "initial": {"list": []}},
        "workspace": {"dir": "code"},
        "workers": {"ada": {"agent": "llm", "reads": ["/list"], "writes": [{"path": "/list/-"}],
            "files": {"iterations": iterations}}},
        "rules": [{"name": "begin", "trigger": "start", "run": "ada"}],
        "done": {"when": "size(state.list) > 0"},
    });
    let run = async {
        let agent = Arc::new(Busy::default());
        let journal = SqliteJournal::open(&sandbox.path().join(".patchboard")).expect("it opens");
        let runtime = Runtime::start(Arc::new(journal), Options::new(agent.clone()), PLANS).await.expect("started");
        let blueprint = serde_json::from_value(blueprint).expect("a blueprint");
        let board = runtime.create(blueprint, Value::Null, None).await.expect("created");
        assert!(agent.0.set(board.clone()).is_ok());
        board.wait_for_end().await.expect("ended");
        runtime.shutdown().await;
    };
    tokio::runtime::Runtime::new().expect("a runtime").block_on(run);
}

#[test]
fn every_call_of_an_attempt_is_counted_and_what_tools_gave_has_a_part_of_its_own() {
    let sandbox = Sandbox::new();
    played(&sandbox, 4);
    let json = |arguments: &[&str]| -> Value {
        let ran = sandbox.run(&[arguments, &["--output", "json"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        serde_json::from_str(&ran.stdout).expect("JSON")
    };
    let cost = json(&["cost", "last"]);
    let tokens = &cost["tokens"];
    assert_eq!([&tokens["calls"], &tokens["prompt"], &tokens["completion"]], [3, 260, 17], "{cost}");
    assert_eq!([&tokens["spent"], &tokens["unanswered"], &tokens["reserved"]], [777, 500, 0], "{cost}");
    assert_eq!(tokens["retries"]["calls"], 0);
    let parts = cost["prompts"].as_object().expect("parts");
    assert_eq!(parts["tools"], 60);
    assert_eq!(parts.values().map(|part| part.as_u64().expect("a number")).sum::<u64>(), 260, "{cost}");
    let text = sandbox.run(&["cost", "last"]).stdout;
    assert!(text.contains(", tools 60 (23 %)") && text.contains("charged without an answer: 500"), "{text}");

    let why = json(&["why", "last", "/list/0"]);
    assert_eq!(why["usage"]["prompt"], 260, "of all calls of the attempt: {why}");
    let log = sandbox.run(&["log", "last"]).stdout;
    assert_eq!(log.matches("ada #1.1 asks its model again").count(), 2, "{log}");
    for command in ["verify", "replay"] {
        let ran = sandbox.run(&[command, "last"]);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn an_attempt_that_made_all_its_calls_is_named_where_tests_fail() {
    for (iterations, causes) in [(3, json!(["budget_or_runtime"])), (4, json!([]))] {
        let sandbox = Sandbox::new();
        played(&sandbox, iterations);
        let report = sandbox.run(&["edits", "last", "--score", "1/2", "--output", "json"]).expect_exit(0).json();
        assert_eq!(report["boards"][0]["causes"], causes, "{iterations}");
        let report = sandbox.run(&["edits", "last", "--score", "2/2", "--output", "json"]).expect_exit(0).json();
        assert_eq!(report["boards"][0]["causes"], json!([]));
    }
}
