//! One invocation of a department makes one change, however often its board is created.

use std::sync::Arc;

use jsonptr::PointerBuf;
use patchboard_agents::config::{Config, Environment};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::call_context::CallContext;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::freshness::ReadSet;
use patchboard_kernel::id::InvocationId;
use patchboard_kernel::plan::PlanSource as _;
use patchboard_kernel::record::Parent;
use patchboard_kernel::state::State;
use patchboard_protocols::PLANS;
use patchboard_roles::departments::storage::Storage;
use patchboard_runtime::agent::{Agent as _, Call};
use serde_json::{Value, json};

use super::clipboard;
use crate::support;

/// Returns a call of the notes' `crud` with a resolved request, on a board nested in another.
fn asked_to_do(board: &str, invocation: u64, of: (&str, u64), found: &Value) -> Call {
    let mut blueprint = clipboard().boards.remove("notes").expect("the notes");
    let fields = blueprint.workers.get_mut("crud").expect("its crud").clone();
    let plan = PLANS.plan(blueprint, &Mode::default()).expect("a plan");
    let state = State::new(&json!({"resolved": found}), &Hasher::new(&Salt::ZERO));
    let basis = ReadSet { state, reads: vec![PointerBuf::from_tokens(["resolved"])], members: Vec::new() };
    let shown = CallContext::new(plan, "crud".into(), Arc::new(basis), false).expect("the worker is there");
    let parent = Parent { board: of.0.into(), invocation: InvocationId(of.1) };
    let mut call = support::call("crud", fields, "x", 0);
    call.decided.board = board.into();
    call.decided.invocation = InvocationId(invocation);
    call.decided.parent = Some(parent);
    call.decided.context = Arc::new(shown);
    call
}

#[tokio::test]
async fn boards_recreated_for_one_invocation_make_each_change_once() {
    let data = tempfile::tempdir().expect("a directory");
    let seats = AgentRegistry::new(Config::default(), &Environment::default(), InlinePrograms::Denied);
    let seats = seats.with_storage(Storage::in_dir(data.path()));
    let found = |item: &str| json!({"status": "found", "action": "add", "slots": {"list": "office", "item": item}});
    let status = async |board: &str, invocation: u64, of: (&str, u64), item: &str| {
        let reply = seats.call(&asked_to_do(board, invocation, of, &found(item))).await.expect("a reply");
        let patch: Value = serde_json::from_str(&reply.text).expect("JSON");
        let outcome = &patch["patch"][0]["value"];
        json!([outcome["status"], outcome["slots"]["item"]])
    };
    assert_eq!(status("inner-0", 3, ("outer", 7), "tea").await, json!(["done", "tea"]));
    assert_eq!(
        status("inner-1", 3, ("outer", 7), "tea").await,
        json!(["done", "tea"]),
        "it gets what the first one got"
    );
    // Also holds if the new board resolves another item: one invocation, one change.
    assert_eq!(status("inner-2", 3, ("outer", 7), "milk").await, json!(["done", "tea"]));
    assert_eq!(status("inner-3", 4, ("outer", 7), "milk").await, json!(["done", "milk"]), "another call within");
    assert_eq!(status("inner-4", 3, ("outer", 8), "tea").await, json!(["error", "tea"]), "it is there already");
}
