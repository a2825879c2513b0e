//! The end of a board: a `done` that is missing, never evaluated, or true at the beginning.

use serde_json::Value;

use super::Linter;
use patchboard_kernel::blueprint::{Rule, Trigger};
use patchboard_kernel::expr::{Expr, Variable, Variables};
use patchboard_kernel::expressions::ExpressionOwner;

pub(super) const ASK_FOR_MORE: &str = "Ask for what the last worker writes: `has(state.answer)`; of a collection that begins empty also that \
                                       something is in it: `size(state.notes) > 0 && …`.";

const NAME_THE_END: &str =
    "Write `done: {when: has(state.answer)}`; without it a board that has nothing left to do ends as quiescent.";

impl Linter<'_> {
    /// Warns of a board that never ends as done, or that is done before it begins.
    pub(super) fn ending(&self) {
        if self.blueprint.done.is_none() {
            return self.report("no_done", "", "nothing says when the task is finished", NAME_THE_END);
        }
        let done = self.expressions.iter().find(|expression| matches!(expression.owner, ExpressionOwner::Done));
        let Some(done) = done.map(|done| &done.expr) else { return };
        if done.references().is_empty() {
            if self.has("no_done") {
                return;
            }
            let message = "`done` looks at nothing of the document, so no commit can make it hold";
            self.report("no_done", "/done/when", message, NAME_THE_END);
        } else if holds_at_start(done, &self.blueprint.state.initial) && self.blueprint.rules.iter().any(begins) {
            let message = "`done` holds at the beginning: the board ends before any worker is triggered";
            self.report("done_at_start", "/done/when", message, ASK_FOR_MORE);
        }
    }
}

/// Returns true if a rule triggers a worker when the board begins.
pub(super) const fn begins(rule: &Rule) -> bool {
    matches!(rule.trigger, Trigger::Start | Trigger::Each(_))
}

/// Returns true if `done` holds at the beginning, independent of the request.
fn holds_at_start(done: &Expr, initial: &Value) -> bool {
    let asks = done.references().iter().any(|reference| {
        reference.variable == "request" || reference.path.first().is_none_or(|name| name == "request")
    });
    let variables = Variables::from([("state", Variable::from(initial))]);
    !asks && done.evaluate(&variables) == Ok(true)
}
