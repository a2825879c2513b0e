//! Ablation modes of a board, to measure the contribution of its components.
//!
//! A mode belongs to a board and not to its blueprint: a blueprint runs in every mode. It concerns language models
//! only; programs, scripts and persons keep patches and contracts, so that the environment is equal for all systems.
//! `docs/modes.md` lists the components that each mode leaves out.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::blueprint::{AgentKind, Freshness, GrantOp, Unit, Worker};
use crate::rejection::code_enum;

/// Maximum characters of a view without slicing; longer ones are summarised, because model contexts are bounded.
pub const UNSLICED_CHARS: u32 = 64_000;

/// Maximum extra reply tokens for a worker that has to write out values instead of copying or leaving them in place.
const EXTRA_REPLY_TOKENS_MAX: u32 = 16_384;
/// Characters of JSON for each extra token of such a reply.
const CHARS_PER_TOKEN: u32 = 3;

code_enum! {
    /// Component of PatchBoard that can be left out.
    Component {
        /// Proposals are patches. Without it a worker answers with the complete new value of the object it was shown.
        Patch = "patch",
        /// Each committed state satisfies the state schema and the invariants.
        Schema = "schema",
        /// Writes are limited to the worker's grants.
        Contracts = "contracts",
        /// A view shows the places that the worker may read, within its budget.
        Slicing = "slicing",
        /// A view shows earlier rejections.
        Feedback = "feedback",
    }
}

/// System as which a board runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "system", rename_all = "snake_case", deny_unknown_fields)]
pub enum Mode {
    /// PatchBoard without these components.
    Patchboard {
        /// Components to leave out; usually empty.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        ablate: BTreeSet<Component>,
    },
    /// Blackboard of messages: every worker sees all of them and writes another.
    Plain {},
    /// Blackboard of structured data: every worker sees the whole document and sets members of it, unchecked.
    Structured {},
}

impl Default for Mode {
    fn default() -> Self {
        Self::without([])
    }
}

/// Format of a worker's input and reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Interface {
    /// Places and their values; the reply is a patch (RFC 6902) or an envelope around one.
    #[default]
    Patch,
    /// An object; the reply is the complete new object.
    Whole,
    /// An object; the reply is merged into it (RFC 7396).
    Merge,
    /// Messages; the reply is another message.
    Message,
}

impl Mode {
    /// Returns PatchBoard without these components.
    pub fn without(parts: impl IntoIterator<Item = Component>) -> Self {
        Self::Patchboard { ablate: parts.into_iter().collect() }
    }

    /// Returns true if no component is left out.
    pub fn is_default(&self) -> bool {
        Component::ALL.iter().all(|part| self.has(*part))
    }

    /// Returns true if it has this component. The plain blackboard has none; the structured one has feedback only, for
    /// replies that are no JSON object.
    pub fn has(&self, part: Component) -> bool {
        match self {
            Self::Patchboard { ablate } => !ablate.contains(&part),
            Self::Plain {} => false,
            Self::Structured {} => part == Component::Feedback,
        }
    }

    /// Returns true for the two blackboards without checks.
    pub const fn is_baseline(&self) -> bool {
        match self {
            Self::Patchboard { .. } => false,
            Self::Plain {} | Self::Structured {} => true,
        }
    }

    /// Returns the interface of a worker.
    pub fn interface(&self, worker: &Worker) -> Interface {
        match self {
            _ if worker.agent != AgentKind::Llm => Interface::Patch,
            Self::Patchboard { ablate } if ablate.contains(&Component::Patch) => Interface::Whole,
            Self::Patchboard { .. } => Interface::Patch,
            Self::Structured {} => Interface::Merge,
            Self::Plain {} => Interface::Message,
        }
    }

    /// Returns the worker with its settings for this mode.
    pub(crate) fn adapt_worker(&self, mut worker: Worker) -> Worker {
        if worker.agent != AgentKind::Llm {
            return worker;
        }
        let interface = self.interface(&worker);
        let is_copy = |op: &GrantOp| matches!(op, GrantOp::Copy | GrantOp::Move);
        let could_copy = worker.writes.iter().any(|grant| grant.ops.iter().any(is_copy));
        // A worker that loses its copy operations has to write out at most the values that a patch could have named.
        let copied = if could_copy { worker.view_chars() } else { 0 };
        if !self.has(Component::Slicing) {
            worker.reads = vec!["/*".into()];
            worker.view.budget = Some(UNSLICED_CHARS);
            worker.view.unit = Unit::Chars;
        }
        if self.is_baseline() {
            worker.freshness = Freshness::None;
        }
        if interface != Interface::Patch {
            let chars = if interface == Interface::Whole { worker.view_chars() } else { copied };
            let more = (chars / CHARS_PER_TOKEN).min(EXTRA_REPLY_TOKENS_MAX);
            worker.limits.reply_tokens = worker.limits.reply_tokens.saturating_add(more);
            for grant in &mut worker.writes {
                grant.ops = without_copies(&grant.ops);
            }
        }
        if !self.has(Component::Contracts) {
            worker.writes.iter_mut().for_each(|grant| grant.approval = None);
        }
        worker
    }
}

/// Replaces copies and moves in a grant by `add`, because values have to be written out.
fn without_copies(ops: &[GrantOp]) -> Vec<GrantOp> {
    let written = ops.iter().map(|op| match op {
        GrantOp::Copy | GrantOp::Move => GrantOp::Add,
        other => *other,
    });
    written.fold(Vec::new(), |mut ops, op| {
        if !ops.contains(&op) {
            ops.push(op);
        }
        ops
    })
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain {} => f.write_str("plain"),
            Self::Structured {} => f.write_str("structured"),
            Self::Patchboard { ablate } => {
                f.write_str("patchboard")?;
                for (nth, part) in ablate.iter().enumerate() {
                    let before = if nth == 0 { " without " } else { ", " };
                    write!(f, "{before}{part}")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_mode_is_recorded_as_little_and_read_back() {
        for (mode, recorded, text) in [
            (Mode::default(), json!({"system": "patchboard"}), "patchboard"),
            (
                Mode::without([Component::Slicing, Component::Patch]),
                json!({"system": "patchboard", "ablate": ["patch", "slicing"]}),
                "patchboard without patch, slicing",
            ),
            (Mode::Plain {}, json!({"system": "plain"}), "plain"),
            (Mode::Structured {}, json!({"system": "structured"}), "structured"),
        ] {
            assert_eq!(serde_json::to_value(&mode).expect("JSON"), recorded);
            assert_eq!(serde_json::from_value::<Mode>(recorded).expect("a mode"), mode);
            assert_eq!(mode.to_string(), text);
        }
        for wrong in [json!({"system": "other"}), json!({"system": "plain", "ablate": ["patch"]}), Value::Null] {
            assert!(serde_json::from_value::<Mode>(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_language_models_are_seated_otherwise() {
        for mode in [Mode::without(Component::ALL.iter().copied()), Mode::Plain {}, Mode::Structured {}] {
            for agent in ["command", "script", "human"] {
                let worker: Worker =
                    serde_json::from_value(json!({"agent": agent, "reads": ["/a"]})).expect("a worker");
                assert_eq!(mode.adapt_worker(worker.clone()), worker);
                assert_eq!(mode.interface(&worker), Interface::Patch);
            }
        }
    }
}
