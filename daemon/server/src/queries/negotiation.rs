//! Status of negotiations.

use patchboard_kernel::tree::Node;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Status of a board's negotiation.
#[derive(Serialize, ToSchema)]
pub(crate) struct NegotiationStatus {
    /// Phase.
    status: NegotiationPhase,
    /// Rules in force, as stored in the document; null before the opening.
    #[schema(required, value_type = Option<Object>)]
    policy: Option<Value>,
    /// Last round begun, with its `turn`.
    #[schema(required, value_type = Option<Object>)]
    round: Option<Value>,
    /// Current draft of the round.
    #[schema(required, value_type = Option<Object>)]
    version: Option<Value>,
    /// Event that ended the negotiation; null for callers that may not read the events.
    #[schema(required, value_type = Option<Object>)]
    end: Option<Value>,
    /// Report with the reason of the decision.
    #[schema(required, value_type = Option<Object>)]
    decision: Option<Value>,
}

/// Phase of a negotiation.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum NegotiationPhase {
    /// Not opened.
    New,
    /// Under way.
    Open,
    /// Ended by a decision.
    Decided,
    /// Ended without a decision.
    Aborted,
}

impl NegotiationStatus {
    pub(crate) fn read(document: &Node) -> Option<Self> {
        let negotiation = document.child("negotiation")?;
        let events = negotiation.child("events")?.as_array()?;
        let last = |list: &str| negotiation.child(list)?.as_array()?.iter().last().map(Node::to_value);
        let ending = |event: &Node| match event.child("kind").and_then(Node::as_str) {
            Some("decide") => Some(NegotiationPhase::Decided),
            Some("abort") => Some(NegotiationPhase::Aborted),
            _ => None,
        };
        // Events after the end have no effect.
        let end = events.iter().find_map(|event| Some((ending(event)?, event.to_value())));
        let policy = negotiation.child("policy").map(Node::to_value);
        let status = match (&end, &policy) {
            (Some((phase, _)), _) => *phase,
            (None, Some(_)) => NegotiationPhase::Open,
            (None, None) => NegotiationPhase::New,
        };
        let round = last("rounds");
        let version = last("versions").filter(|version| round.as_ref().is_some_and(|round| round["n"] == version["n"]));
        Some(Self {
            status,
            policy,
            round,
            version,
            end: end.map(|(_, event)| event),
            // A report that continues the round is no decision.
            decision: last("reports").filter(|report| report["kind"] == "decision" && report["outcome"] != "continue"),
        })
    }

    /// Returns true if the negotiation has ended, and its report is written.
    pub(crate) const fn is_complete(&self) -> bool {
        self.end.is_some() && self.decision.is_some()
    }

    /// Hides the event that ended the negotiation.
    pub(crate) fn without_end(self) -> Self {
        Self { end: None, ..self }
    }
}
