//! Conditional write grants.
//!
//! A condition is evaluated on the state before the patch, so a patch cannot make its own condition true. A missing
//! place, a false condition and an evaluation error all reject the write, and look the same to the worker.

use jsonptr::{Pointer, PointerBuf};
use serde_json::{Value, json};

use super::target::Target;
use super::{CompiledGrant, Contract, ContractError};
use crate::blueprint::WriteCondition;
use crate::expr::{Allowance, Expr, Variables};
use crate::expressions::{BOUND, ExpressionCompiler, ExpressionOwner};
use crate::pattern::{Pattern, PatternToken};
use crate::rejection::{Code, Violation};
use crate::targets::Targets;
use crate::tree::Node;

pub(super) struct Condition {
    /// The condition as the blueprint has it.
    pub(super) written: WriteCondition,
    /// Number of path tokens that `of` matches.
    depth: usize,
    expr: Expr,
}

pub(super) struct ConditionInput<'a> {
    /// The document before the patch.
    pub(super) state: &'a Node,
    /// Targets of the patch so far.
    pub(super) targets: &'a Targets,
    /// Remaining evaluation steps.
    pub(super) allowance: &'a mut Allowance,
}

/// Returns the number of tokens of `of`. The pattern must be a prefix of its grant's path, of fixed depth, and name
/// existing values. The error is a message for people.
pub fn prefix_depth(of: &Pattern, path: &Pattern) -> Result<usize, String> {
    let (of_tokens, depth) = (of.tokens(), of.tokens().len());
    if depth == 0 || !path.tokens().starts_with(of_tokens) {
        return Err(format!("`{of}` is no beginning of `{path}`, token for token"));
    }
    if of_tokens.contains(&PatternToken::Deep) {
        return Err(format!("`{of}` matches places of any depth, so it is not said which of them is meant"));
    }
    if of_tokens.last() == Some(&PatternToken::Append) {
        return Err(format!("nothing stands at `{of}` yet"));
    }
    Ok(depth)
}

impl Condition {
    /// Compiles the condition of a grant on `path`; `pointer` is its position in the blueprint.
    pub(super) fn compile(
        written: &WriteCondition,
        path: &Pattern,
        expressions: &ExpressionCompiler<'_>,
        pointer: &str,
    ) -> Result<Self, ContractError> {
        let wrong = |below: &str, message: String| ContractError { pointer: format!("{pointer}/{below}"), message };
        let of = expressions.paths.parse(&written.of).map_err(|error| wrong("of", error.to_string()))?;
        let depth = prefix_depth(&of, path).map_err(|message| wrong("of", message))?;
        let compiled = expressions.compile(&written.expr, ExpressionOwner::Write(written));
        let expr = compiled.map_err(|error| wrong("expr", error.message))?;
        Ok(Self { written: written.clone(), depth, expr })
    }

    pub(super) fn uses(&self, variable: &str) -> bool {
        self.expr.uses(variable)
    }
}

impl Contract {
    /// Returns the variables of a condition, except `self`.
    pub(super) fn variables<'d>(&'d self, document: &'d Node) -> Variables<'d> {
        let mut variables = Variables::new();
        variables.extend(self.worker.as_ref().map(|name| ("worker", Value::from(name.as_str()).into())));
        let request = self.original_request.as_ref().or_else(|| document.child("request"));
        variables.extend(request.map(|request| ("request", request.into())));
        if !self.bound.is_empty() {
            variables.insert(BOUND, self.bound.to_value().into());
        }
        variables
    }

    /// Returns true if the condition of a grant that matches the target holds there, or if it has none.
    pub(super) fn holds(&self, write: &CompiledGrant, target: Target<'_>, input: &mut ConditionInput<'_>) -> bool {
        let Some(condition) = &write.condition else { return true };
        let place = first_tokens(target.path, condition.depth);
        // Translates the place to the state before the patch, because the patch may have shifted elements.
        let stood = input.targets.original_place_for_op(&place, target.arrives);
        let Some(there) = stood.and_then(|stood| input.state.get(&stood)) else { return false };
        let mut variables = self.variables(input.state);
        variables.insert("self", there.into());
        condition.expr.evaluate_within(&variables, input.allowance) == Ok(true)
    }
}

/// Builds the violation for a target that grants match, but only under conditions that do not hold. Quotes the contract
/// alone.
pub(super) fn condition_not_met(path: &Pointer, grants: &[&CompiledGrant]) -> Violation {
    let conditions = || grants.iter().filter_map(|write| Some((&write.pattern, &write.condition.as_ref()?.written)));
    let messages: Vec<String> = conditions()
        .map(|(pattern, condition)| {
            let WriteCondition { of, expr } = condition;
            format!("the grant on `{pattern}` holds only where this is true of `{of}`: {}", on_one_line(expr))
        })
        .collect();
    let expected = conditions().map(|(_, condition)| json!(condition)).collect();
    Violation::new(Code::ConditionNotMet, path.as_str(), messages.join("; ")).with_expected(Value::Array(expected))
}

/// Collapses the white space of an expression, for use in a sentence.
pub(crate) fn on_one_line(expr: &str) -> String {
    expr.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn first_tokens(path: &Pointer, tokens: usize) -> PointerBuf {
    let mut place = PointerBuf::new();
    path.tokens().take(tokens).for_each(|token| place.push_back(token));
    place
}
