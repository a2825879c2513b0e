//! Plays `blueprints/approval-room.yaml` with an author and critics written in Rust: a plan is proposed, voted on, sent
//! back, and approved.
//!
//! The critics vote; the coordinator (`builtin:coordinator`) decides, by the rules of docs/rooms.md.
//!
//! `cargo run --package patchboard-examples --bin approval_room`

use std::error::Error;
use std::path::Path;

use patchboard_examples::custom_agents::{play, view_value};
use patchboard_runtime::agent::Call;
use serde_json::{Value, json};

/// Maximum words of a step; a longer one is too large.
const WORDS_MAX: usize = 8;

/// Returns the next proposal: the latest plan in the view, changed as its critics recommend.
fn author(call: &Call) -> Value {
    let proposals = view_value(call, "/room/proposals");
    let number = proposals.as_object().map_or(0, serde_json::Map::len);
    let (id, last) = (format!("plan-{}", number + 1), format!("plan-{number}"));
    let mut value = json!({"artifact_type": "PLAN", "artifact_content_type": "application/json", "producer": "author"});
    let mut steps = vec!["Build the shop and move all of its articles into it at once", "Open it"];
    let votes = view_value(call, "/room/votes");
    if number > 0 {
        let is_on_last = |vote: &&Value| vote["artifact_id"] == last.as_str();
        let votes = votes.as_array().into_iter().flatten().filter(is_on_last);
        let recommended = votes.flat_map(|vote| vote["recommendations"].as_array().into_iter().flatten());
        let recommended: Vec<&str> = recommended.filter_map(Value::as_str).collect();
        if recommended.contains(&"split") {
            steps.splice(..1, ["Build the shop", "Move the articles"]);
        }
        let at = steps.len() - 1;
        steps.splice(at..at, recommended.into_iter().filter(|step| *step != "split"));
        value["revises"] = last.into();
    }
    value["artifact"] = json!(steps);
    json!([{"op": "add", "path": format!("/room/proposals/{id}"), "value": value}])
}

/// Returns a critic's vote on the plan of its trigger, by a single criterion.
fn critic(call: &Call) -> Option<Value> {
    let artifact = call.context.trigger_place()?.strip_prefix("/room/ballots/")?.split('/').next()?.to_owned();
    let steps = view_value(call, &format!("/room/proposals/{artifact}/artifact"));
    let steps: Vec<&str> = steps.as_array()?.iter().filter_map(Value::as_str).collect();
    let has = |word: &str| steps.iter().any(|step| step.to_lowercase().contains(word));
    let (is_good, recommends) = match call.worker.as_str() {
        "feasibility" => (steps.iter().all(|step| step.split(' ').count() <= WORDS_MAX), "split"),
        "completeness" => (has("test"), "Test it with ten customers"),
        "risk" => (has("back"), "Write down how to go back"),
        _ => return None,
    };
    let mut vote = json!({
        "artifact_id": artifact, "critic_id": call.worker, "score": if is_good { 9 } else { 5 }, "confidence": 0.9, "passed": is_good,
    });
    if !is_good {
        vote["recommendations"] = json!([recommends]);
    }
    Some(json!([{"op": "add", "path": "/room/votes/-", "value": vote}]))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../blueprints/approval-room.yaml");
    let seats = |call: &Call| match call.worker.as_str() {
        "author" => Some(author(call)),
        _ => critic(call),
    };
    let played = play(&path, json!({"goal": "Move the shop online."}), seats).await?;
    let room = &played.state["room"];
    for decision in room["decisions"].as_array().into_iter().flatten() {
        let id = decision["artifact_id"].as_str().unwrap_or_default();
        println!("{id}: {}", room["proposals"][id]["artifact"]);
        println!(
            "  {}: {}",
            decision["outcome"].as_str().unwrap_or_default(),
            decision["reason"].as_str().unwrap_or_default()
        );
    }
    println!("{} at version {}, {} records verified", played.end, played.version, played.records);
    Ok(())
}
