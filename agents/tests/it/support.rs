//! Helpers that create calls and inspect processes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jsonptr::PointerBuf;
use patchboard_agents::config::Program;
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::board;
use patchboard_kernel::call_context::CallContext;
use patchboard_kernel::digest::{Hasher, Salt, sha256};
use patchboard_kernel::freshness::ReadSet;
use patchboard_kernel::id::{BoardId, IdempotencyKey, InvocationId, Seq};
use patchboard_kernel::plan::PlanSource as _;
use patchboard_kernel::scheduler::AttemptHistory;
use patchboard_kernel::state::State;
use patchboard_kernel::view::Prompt;
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::Call;
use serde_json::{Value, json};

/// Parses a seat, given as in a blueprint.
pub(crate) fn seat(fields: Value) -> Worker {
    serde_json::from_value(fields).expect("a seat")
}

/// Returns the n-th call of a worker, with `shown` as its view.
pub(crate) fn call(worker: &str, seat: Worker, shown: &str, occurrence: u32) -> Call {
    let invocation = InvocationId(u64::from(occurrence) + 1);
    let decided = board::Call {
        board: BoardId::from("b"),
        parent: None,
        invocation,
        cause: Seq(1),
        attempt: 1,
        occurrence,
        earlier_attempts: AttemptHistory::default(),
        idempotency_key: IdempotencyKey::from(format!("{worker}:{invocation}:1")),
        worker: worker.into(),
        model: None,
        view_hash: sha256(shown.as_bytes()),
        prompt: Arc::new(Prompt { system: "You are a test.".into(), user: shown.into() }),
        context: Arc::new(values(worker, &seat)),
        timeout_ms: 10_000,
        admitted: None,
    };
    Call::new(decided, None)
}

/// Returns the view of a small board for a worker with this seat.
fn values(worker: &str, seat: &Worker) -> CallContext {
    let blueprint = json!({"blueprint": 1, "name": "b", "state": {"schema": true}, "workers": {worker: seat}});
    let plan = PLANS.plan(serde_json::from_value(blueprint).expect("a blueprint"), &Mode::default()).expect("a plan");
    let state = State::new(&json!({"seen": {"count": 2}, "hidden": 3}), &Hasher::new(&Salt::ZERO));
    let basis = ReadSet { state, reads: vec![PointerBuf::from_tokens(["seen"])], members: Vec::new() };
    CallContext::new(plan, worker.into(), Arc::new(basis), false).expect("the worker is there")
}

/// Returns a program that runs a shell script.
pub(crate) fn sh(script: &str) -> Program {
    Program::new(vec!["sh".into(), "-c".into(), script.into()])
}

/// Returns whether a process runs; a zombie does not count.
pub(crate) fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    status.is_ok_and(|text| !text.rsplit(')').next().expect("a state").trim_start().starts_with('Z'))
}

/// Waits for a process to end, because a kill takes effect a little later.
pub(crate) async fn is_soon_gone(pid: &str) -> bool {
    for _ in 0..200 {
        if !is_alive(pid) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

/// Reads the process id that a process has written to a file.
pub(crate) async fn pid_in(file: &Path) -> String {
    for _ in 0..500 {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if text.ends_with('\n') {
            return text.trim().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no process has written its number");
}
