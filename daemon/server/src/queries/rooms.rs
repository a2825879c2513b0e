//! Reads the decision on an artefact from the document of a board with a negotiation room (`docs/rooms.md`).

use std::fmt;

use patchboard_kernel::tree::Node;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Member of the document that holds the room, as in the fragment `room.yaml`.
pub(crate) const PLACE: &str = "room";
/// Places that a reader of decisions must be allowed to read.
pub(crate) const READ: &[&str] = &["/room/decisions", "/room/rulings", "/room/votes"];

/// State of an artefact.
#[derive(Clone, PartialEq, Debug)]
pub enum DecisionStatus {
    /// Not decided.
    Open,
    /// Decided.
    Decided(Box<DecisionInfo>),
}

/// Decision on an artefact.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct DecisionInfo {
    /// Artefact.
    artifact_id: String,
    /// Final result: the outcome of the ruling, or of the decision.
    #[schema(value_type = String)]
    outcome: Value,
    /// Decision by the votes, as stored in the document; never changes.
    #[schema(value_type = Object)]
    decision: Value,
    /// Ruling of a person, or its timeout; absent if the votes decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    ruling: Option<Value>,
    /// Workers that voted after the decision.
    #[schema(value_type = Vec<String>)]
    late_votes: Vec<Value>,
}

/// Reason that there is no decision to wait for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DecisionError {
    /// Document without a room.
    Room,
    /// Room without an artefact of this id.
    Artifact(String),
}

impl DecisionError {
    /// Returns the stable code.
    pub const fn code(&self) -> &'static str {
        if let Self::Room = self { "no_room" } else { "no_such_artifact" }
    }
}

impl fmt::Display for DecisionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Room => f.write_str("the board has no negotiation room; docs/rooms.md says how a blueprint gets one"),
            Self::Artifact(artifact) => write!(f, "nothing called {artifact} is proposed in the room"),
        }
    }
}

/// Returns the state of an artefact. If a person has to rule, `ruled` waits for the ruling as well.
pub fn decision_status(document: &Node, artifact: &str, ruled: bool) -> Result<DecisionStatus, DecisionError> {
    let Some(room) = document.child(PLACE).filter(|room| room.child("proposals").is_some()) else {
        return Err(DecisionError::Room);
    };
    if room.child("proposals").and_then(|proposals| proposals.child(artifact)).is_none() {
        return Err(DecisionError::Artifact(artifact.to_owned()));
    }
    let list = |name: &str| match room.child(name).map(Node::to_value) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    let is_on_it = |entry: &Value| entry["artifact_id"] == artifact;
    let Some(decision) = list("decisions").into_iter().find(is_on_it) else { return Ok(DecisionStatus::Open) };
    let ruling = list("rulings").into_iter().find(is_on_it);
    if ruled && ruling.is_none() && decision["outcome"] == "ESCALATED_TO_HITL" {
        return Ok(DecisionStatus::Open);
    }
    let seen = decision["votes_seen"].as_u64().and_then(|seen| usize::try_from(seen).ok()).unwrap_or(usize::MAX);
    let late = list("votes").into_iter().skip(seen).filter(is_on_it);
    let late: Vec<Value> = late.map(|vote| vote["critic_id"].clone()).collect();
    let outcome = ruling.as_ref().unwrap_or(&decision)["outcome"].clone();
    let info = DecisionInfo { artifact_id: artifact.to_owned(), outcome, decision, ruling, late_votes: late };
    Ok(DecisionStatus::Decided(Box::new(info)))
}

#[cfg(test)]
mod tests {
    use patchboard_kernel::tree::Node;
    use serde_json::{Value, json};

    use super::{DecisionError, DecisionStatus, decision_status};

    fn room(decided: bool, ruled: bool) -> Node {
        let escalated = json!({"artifact_id": "a", "outcome": "ESCALATED_TO_HITL", "votes_seen": 2});
        let vote = |artifact: &str, critic: &str| json!({"artifact_id": artifact, "critic_id": critic});
        let ruling = json!({"artifact_id": "a", "outcome": "APPROVED", "by": "p"});
        let list = |is_there: bool, entry: &Value| if is_there { json!([entry]) } else { json!([]) };
        Node::from(&json!({"room": {
            "proposals": {"a": {}, "b": {}},
            "votes": [vote("a", "x"), vote("b", "x"), vote("b", "y"), vote("a", "late")],
            "decisions": list(decided, &escalated), "rulings": list(ruled, &ruling),
        }}))
    }

    #[test]
    fn decisions_are_reported_with_late_votes_and_the_ruling() {
        let status = |document: &Node, ruled| decision_status(document, "a", ruled).expect("it is proposed");
        assert_eq!(status(&room(false, false), false), DecisionStatus::Open);
        assert_eq!(status(&room(true, false), true), DecisionStatus::Open, "the person has still to rule");
        let DecisionStatus::Decided(decided) = status(&room(true, false), false) else { panic!("it is decided") };
        assert_eq!((decided.outcome, decided.late_votes), (json!("ESCALATED_TO_HITL"), vec![json!("late")]));
        let DecisionStatus::Decided(ruled) = status(&room(true, true), true) else { panic!("it is ruled over") };
        assert_eq!(ruled.outcome, json!("APPROVED"));
        assert_eq!(ruled.ruling.map(|ruling| ruling["by"].clone()), Some(json!("p")));
        assert_eq!(decision_status(&room(true, true), "c", false), Err(DecisionError::Artifact("c".to_owned())));
        assert_eq!(decision_status(&Node::from(&json!({})), "a", false), Err(DecisionError::Room));
    }
}
