//! View budgets: how much of the state a worker sees.
//!
//! Owns the default budget: it is derived from the context size of the worker's model when a board is created, and
//! recorded with the blueprint.

use serde::{Deserialize, Serialize};

use super::{AgentKind, Blueprint, Worker};
use crate::rejection::code_enum;

/// Assumed context, in tokens, of a model without a description.
pub const CONTEXT_DEFAULT: u32 = 32_768;

/// Bounds of a default view size, in characters. Each view is stored in the journal.
const DEFAULT_CHARS: std::ops::RangeInclusive<u32> = 2_000..=200_000;

/// Characters per token, a low estimate: the surplus leaves room for instructions and reply formats beside the view.
const CHARS_PER_TOKEN: u32 = 2;

/// Size of the views of a worker.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ViewSpec {
    /// Maximum size of the view, in `unit`. Absent: derived from the context of the worker's model at board creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<u32>,
    /// Unit of the budget.
    pub unit: Unit,
}

code_enum! {
    /// Unit of a view's budget.
    #[derive(Default)]
    Unit {
        /// Unicode scalar values.
        #[default]
        Chars = "chars",
        /// Tokens of the worker's model, estimated at four characters each.
        Tokens = "tokens",
    }
}

impl Worker {
    /// Returns the maximum size of the worker's view, in its unit.
    pub fn view_budget(&self) -> u32 {
        self.view.budget.unwrap_or_else(|| self.budget_within(self.usual_context()))
    }

    /// Returns the maximum size of the worker's view, in characters.
    pub fn view_chars(&self) -> u32 {
        match self.view.unit {
            Unit::Chars => self.view_budget(),
            Unit::Tokens => self.view_budget().saturating_mul(4),
        }
    }

    /// Returns the default view size for a model with this context: three quarters of the context without the reply.
    fn budget_within(&self, context: u32) -> u32 {
        let left = context.saturating_sub(self.limits.reply_tokens);
        let chars = (left / 4 * 3).saturating_mul(CHARS_PER_TOKEN);
        let chars = chars.clamp(*DEFAULT_CHARS.start(), *DEFAULT_CHARS.end());
        match self.view.unit {
            Unit::Chars => chars,
            Unit::Tokens => chars / 4,
        }
    }

    /// Returns the context, in tokens, that a view must fit into if the model is unknown.
    const fn usual_context(&self) -> u32 {
        match self.agent {
            AgentKind::Command | AgentKind::Script => u32::MAX,
            _ => CONTEXT_DEFAULT,
        }
    }
}

impl Blueprint {
    /// Sets the default view budgets, also in nested boards. `context` maps the operator's model name to the
    /// tokens that prompt and reply may use together.
    pub fn fit_views(&mut self, context: &dyn Fn(Option<&str>) -> Option<u32>) {
        let absent = self.workers.iter().filter(|(_, worker)| worker.view.budget.is_none());
        let fitted = absent.map(|(name, worker)| {
            let tokens = if worker.agent == AgentKind::Llm { context(self.model_of(name)) } else { None };
            (name.clone(), worker.budget_within(tokens.unwrap_or_else(|| worker.usual_context())))
        });
        for (name, budget) in fitted.collect::<Vec<_>>() {
            if let Some(worker) = self.workers.get_mut(&name) {
                worker.view.budget = Some(budget);
            }
        }
        self.boards.values_mut().for_each(|board| board.fit_views(context));
    }

    /// Returns true if `made`, a board's blueprint, was created from this one. Default view budgets are ignored.
    pub fn is_that_of(&self, made: &Self) -> bool {
        let mut blueprint = self.clone();
        blueprint.fit_views_as(made);
        blueprint == *made
    }

    /// Copies default view budgets from a board's blueprint.
    fn fit_views_as(&mut self, made: &Self) {
        for (name, worker) in self.workers.iter_mut().filter(|(_, worker)| worker.view.budget.is_none()) {
            worker.view.budget = made.workers.get(name).and_then(|worker| worker.view.budget);
        }
        for (name, board) in &mut self.boards {
            if let Some(made) = made.boards.get(name) {
                board.fit_views_as(made);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn worker(view: serde_json::Value) -> Worker {
        serde_json::from_value(json!({"agent": "llm", "view": view, "limits": {"reply_tokens": 1000}}))
            .expect("a worker")
    }

    #[test]
    fn a_budget_follows_from_the_context() {
        let chars = |context: u32| worker(json!({})).budget_within(context);
        assert_eq!(chars(4_096), 4_644);
        assert_eq!(chars(32_768), 47_652);
        assert_eq!(chars(128_000), 190_500);
        assert_eq!([chars(0), chars(1_000), chars(u32::MAX)], [2_000, 2_000, 200_000]);
        assert_eq!(worker(json!({"unit": "tokens"})).budget_within(32_768), 47_652 / 4);
        let set = worker(json!({"budget": 70}));
        assert_eq!((set.view_budget(), worker(json!({})).view_budget()), (70, 47_652));
    }
}
