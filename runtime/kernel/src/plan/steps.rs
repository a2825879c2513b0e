//! Steps of the pipeline that a mode takes.

use std::sync::Arc;

use crate::ablation::{Component, Mode};

/// Step of the pipeline: a stage as it is in every mode, or its replacement in a mode that omits a component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Syntax,
    Authorization,
    /// Replaces authorization on blackboards without checks.
    NoAuthorization,
    Freshness,
    Application,
    /// Replaces application on a plain blackboard, which shows a message about each write.
    ApplicationWithMessage,
    Schema,
    Invariant,
    Approval,
}

/// All stages, in order.
pub(crate) const STAGES: [Step; 7] = [
    Step::Syntax,
    Step::Authorization,
    Step::Freshness,
    Step::Application,
    Step::Schema,
    Step::Invariant,
    Step::Approval,
];

impl Step {
    /// Returns the steps of a worker's replies in a mode. `is_model` is true for language models.
    pub(crate) fn of_mode(mode: &Mode, is_model: bool) -> Arc<[Step]> {
        let in_mode = |step| match step {
            Step::Authorization if is_model && mode.is_baseline() => Some(Step::NoAuthorization),
            Step::Freshness if is_model && mode.is_baseline() => None,
            Step::Application if *mode == Mode::Plain {} => Some(Step::ApplicationWithMessage),
            Step::Schema | Step::Invariant if !mode.has(Component::Schema) => None,
            Step::Approval if is_model && !mode.has(Component::Contracts) => None,
            step => Some(step),
        };
        STAGES.into_iter().filter_map(in_mode).collect()
    }
}
