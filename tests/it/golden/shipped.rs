//! Plays boards of all shipped blueprints, without a model and without a network.

use std::sync::Arc;

use patchboard_faults::random::Random;
use patchboard_faults::scenario::{self, Scenario};
use patchboard_kernel::record::{Answer, End};
use patchboard_runtime::agent::Call;
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::status::BoardStatus;
use serde_json::{Value, json};

use super::play::{House, Own, Seats, recorded, request_of, scripted, seated, shipped, shown, until};

/// Plays a question that a model answered, its rejected attempts included; done.
pub(super) async fn evidence_review(house: &House) {
    let (agent, founding) = recorded("evidence-review");
    house.play_as(agent, shipped("evidence-review.yaml"), request_of("evidence-review"), founding).await;
}

/// Plays a question that experts answered by a vote, two of them after a talk in a room; done.
pub(super) async fn blackboard(house: &House) {
    let (agent, founding) = recorded("blackboard");
    let mut blueprint = shipped("blackboard.yaml");
    blueprint.draw_by(1);
    house.play_as(agent, blueprint, request_of("blackboard"), founding).await;
}

/// Plays a conversation with departments, which are nested boards; it rests until the next message.
pub(super) async fn clipboard(house: &House) {
    let (agent, founding) = recorded("clipboard");
    let runtime = house.runtime(agent).await;
    let board =
        runtime.create_with(shipped("clipboard.yaml"), request_of("clipboard"), founding).await.expect("a board");
    for words in ["Put bananas on the office list.", "Throw the bananas off the list.", "the household one"] {
        at_rest(&board).await;
        board.signal("say", json!(words), None).await.expect("heard");
    }
    at_rest(&board).await;
    runtime.shutdown().await;
}

async fn at_rest(board: &BoardHandle) {
    until(board, |snapshot| snapshot.ended.is_some_and(|ended| ended.end == End::Quiescent)).await;
}

/// Plays a household game in which every worker errs once; done.
pub(super) async fn alfworld(house: &House) {
    scenario(house, "alfworld").await;
}

/// Plays orders on one stock, several concurrently, with stale and invalid proposals; done.
pub(super) async fn stockroom(house: &House) {
    scenario(house, "stockroom").await;
}

async fn scenario(house: &House, name: &str) {
    let scenario: &'static dyn Scenario = *scenario::ALL.iter().find(|one| one.name() == name).expect("it is played");
    let request = scenario.request(&mut Random::new(11), None);
    house.play(errs_once(scenario), shipped(&format!("{name}.yaml")), request).await;
}

/// Returns the agents of a scenario; the second attempt of each worker is not a patch.
pub(super) fn errs_once(scenario: &'static dyn Scenario) -> Seats {
    seated(move |call, document| {
        if call.occurrence == 1 {
            return Own::Says("I had rather not say.".to_owned());
        }
        let ops = scenario.answer(call.worker.as_str(), scenario::trigger_path(&call.prompt.user), document);
        Own::Says(json!({"patch": ops, "intent": "the task"}).to_string())
    })
}

/// Plays plans that critics vote on: sent back, decided by a person, approved; done.
pub(super) async fn approval_room(house: &House) {
    let runtime = house.runtime(seated(|call, _| room_seat(call))).await;
    let board = runtime.create(shipped("approval-room.yaml"), json!({"goal": "Move the shop online."}), None).await;
    let board = board.expect("a board");
    until(&board, |snapshot| !snapshot.pending.is_empty()).await;
    answer(&board, "REVISION_REQUESTED").await;
    board.wait_for_end().await.expect("it ends");
    runtime.shutdown().await;
}

/// Answers the only question of a board.
pub(super) async fn answer(board: &BoardHandle, text: &str) {
    let snapshot: Arc<BoardStatus> = board.status();
    let (of, question) = snapshot.pending.iter().next().expect("a question");
    let (by, digest) = (question.approver.clone(), question.digest);
    let text = question.clarify.as_ref().map(|_| text.to_owned());
    let answer = Answer { of: *of, by, digest, agrees: true, reason: Some("It is right.".to_owned()), text };
    board.answer(answer).await.expect("it counts");
}

/// Answers for the room: the author proposes three plans; critics send the first back, disagree on the second, and
/// approve the third.
fn room_seat(call: &Call) -> Own {
    let worker = call.worker.as_str();
    let patch = match worker {
        "author" => {
            let number = shown(call, "/room/proposals").as_object().map_or(0, serde_json::Map::len) + 1;
            let value = json!({"artifact_type": "PLAN", "artifact": ["Build the shop", "Move the articles"],
                "artifact_content_type": "application/json", "producer": "author"});
            json!([{"op": "add", "path": format!("/room/proposals/plan-{number}"), "value": value}])
        }
        "feasibility" | "completeness" | "risk" => {
            let artifact =
                call.context.trigger_place().and_then(|place| place.split('/').nth(3)).expect("a ballot").to_owned();
            let (score, confidence) = match (artifact.as_str(), worker) {
                ("plan-1", _) => (5.0, 0.9),
                ("plan-2", "risk") => (1.0, 0.9),
                ("plan-2", _) => (9.5, 0.8),
                _ => (9.0, 0.9),
            };
            let vote = json!({"artifact_id": artifact, "critic_id": worker, "score": score, "confidence": confidence,
                "passed": score > 6.0});
            json!([{"op": "add", "path": "/room/votes/-", "value": vote}])
        }
        _ => return Own::Product,
    };
    Own::Says(patch.to_string())
}

/// Plays a workflow of five nodes, one of them started by a person; done.
pub(super) async fn etl(house: &House) {
    let runtime = house.runtime(scripted()).await;
    let board = runtime.create(shipped("etl.yaml"), json!({}), None).await.expect("a board");
    board.signal("start-inspect", Value::Null, Some("start".into())).await.expect("heard");
    board.wait_for_end().await.expect("it ends");
    runtime.shutdown().await;
}

/// Plays a ticket that one agent declines and another accepts; done.
pub(super) async fn handoff(house: &House) {
    house.play(scripted(), shipped("handoff.yaml"), json!({"ticket": "Why was I charged in March?"})).await;
}

/// Plays two parties that agree after an invalid draft, with a person's approval of the last one; done.
pub(super) async fn negotiation(house: &House) {
    let runtime = house.runtime(scripted()).await;
    let request = json!({"topic": "steel", "corr": "c-7", "profile": "careful"});
    let board = runtime.create(shipped("negotiation.yaml"), request, None).await.expect("a board");
    until(&board, |snapshot| !snapshot.pending.is_empty()).await;
    answer(&board, "accept").await;
    board.wait_for_end().await.expect("it ends");
    runtime.shutdown().await;
}
