//! Plays `blueprints/handoff.yaml` with agents written in Rust. A ticket is offered to an agent, which gives a reason
//! to reject it; another agent accepts it, and only that one can answer it.
//!
//! The coordinator (`builtin:handoff`, docs/handoff.md) selects agents, checks transitions and grants write access; the
//! agents only contribute their knowledge.
//!
//! `cargo run --package patchboard-examples --bin handoff`

use std::error::Error;
use std::path::Path;

use patchboard_examples::custom_agents::{play, view_value};
use patchboard_runtime::agent::Call;
use serde_json::{Value, json};

/// Returns an agent's reply: `ada` inspects the ticket, the others answer offers, and the owner continues the work.
fn agent(call: &Call) -> Option<Value> {
    let worker = call.worker.as_str();
    if !["ada", "bob", "cyd"].contains(&worker) {
        return None;
    }
    let woken_at: Vec<&str> = call.context.trigger_place().unwrap_or_default().split('/').skip(1).collect();
    Some(match woken_at[..] {
        ["handoffs", handoff, "to"] => answer(call, handoff),
        ["tasks", task, "owner"] => {
            let text = format!("{worker} has looked into it: the contract had ended, so nothing is owed for March.");
            json!([{"op": "add", "path": format!("/tasks/{task}/answer"), "value": text}])
        }
        _ => json!([{"op": "add", "path": "/handoffs/march", "value": {
            "request_id": "march", "from_agent": worker, "reason": "It is about an invoice.", "capabilities_required": ["billing"],
            "priority": 5, "timeout_ms": 600_000, "task": "ticket", "state": "PENDING",
            "context": {"content_type": "application/json", "content": {"invoice": "2026-03", "contract": "ended"}},
        }}]),
    })
}

/// Accepts or rejects a handoff: `bob` rejects those about a contract.
fn answer(call: &Call, handoff: &str) -> Value {
    let place = format!("/handoffs/{handoff}");
    let context = view_value(call, &format!("{place}/context"));
    if call.worker.as_str() == "bob" && context["content"].get("contract").is_some() {
        return json!([
            {"op": "replace", "path": format!("{place}/state"), "value": "REJECTED"},
            {"op": "add", "path": format!("{place}/rejection"), "value": {"by": "bob", "reason": "I know no contracts."}},
        ]);
    }
    json!([{"op": "replace", "path": format!("{place}/state"), "value": "ACCEPTED"}])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../blueprints/handoff.yaml");
    let played = play(&path, json!({"ticket": "Why was I charged in March?"}), agent).await?;
    for (name, handoff) in played.state["handoffs"].as_object().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let why = handoff.get("rejection").map(|rejection| format!(": {}", text(&rejection["reason"])));
        let (from, to, state) = (text(&handoff["from_agent"]), text(&handoff["to"]), text(&handoff["state"]));
        println!("{name}: {from} to {to}, {state}{}", why.unwrap_or_default());
    }
    let ticket = &played.state["tasks"]["ticket"];
    println!("{}: {}", ticket["owner"].as_str().unwrap_or_default(), ticket["answer"].as_str().unwrap_or_default());
    println!("{} at version {}, {} records verified", played.end, played.version, played.records);
    Ok(())
}
