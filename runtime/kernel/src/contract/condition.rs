//! Write grants under a condition: what must be true where something is written.
//!
//! It is asked of the state before the patch, so nobody can make it true with the patch that needs it. What is not there,
//! what is not true and what cannot be evaluated allows nothing, and cannot be told apart from outside.

use jsonptr::{Pointer, PointerBuf};
use serde_json::{Value, json};

use super::{Contract, ContractError, Target, Write};
use crate::blueprint::WriteCondition;
use crate::expr::{Allowance, Expr, Variables};
use crate::freshness::Targets;
use crate::pattern::{Pattern, PatternToken};
use crate::plan::{BOUND, Expressions, Owner};
use crate::rejection::{Code, Violation};
use crate::tree::Node;

/// A compiled condition.
pub(super) struct Condition {
    /// As the blueprint has it.
    pub(super) written: WriteCondition,
    /// How many tokens of a path `of` matches.
    depth: usize,
    expr: Expr,
}

/// What conditions are asked of.
pub(super) struct Asked<'a> {
    /// The document before the patch.
    pub(super) state: &'a Node,
    /// What the patch does to its places.
    pub(super) targets: &'a Targets,
    /// The steps that are left.
    pub(super) allowance: &'a mut Allowance,
}

/// How many tokens a pattern has that a condition may be `of`: it begins the path of its grant, and matches paths of one
/// length that name something.
///
/// # Errors
/// In words, what is wrong with it.
pub(crate) fn beginning(of: &Pattern, path: &Pattern) -> Result<usize, String> {
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
    /// Compiles the condition of a grant on `path`, which stands at `pointer`.
    pub(super) fn compile(
        written: &WriteCondition,
        path: &Pattern,
        expressions: &Expressions<'_>,
        pointer: &str,
    ) -> Result<Self, ContractError> {
        let wrong = |below: &str, message: String| ContractError { pointer: format!("{pointer}/{below}"), message };
        let of = expressions.paths.parse(&written.of).map_err(|error| wrong("of", error.to_string()))?;
        let depth = beginning(&of, path).map_err(|message| wrong("of", message))?;
        let compiled = expressions.compile(&written.expr, Owner::Write(written));
        let expr = compiled.map_err(|error| wrong("expr", error.message))?;
        Ok(Self { written: written.clone(), depth, expr })
    }

    /// Returns true if it looks at this variable.
    pub(super) fn uses(&self, variable: &str) -> bool {
        self.expr.uses(variable)
    }
}

impl Contract {
    /// The variables of a condition but `self`.
    pub(super) fn variables<'d>(&'d self, document: &'d Node) -> Variables<'d> {
        let mut variables = Variables::new();
        variables.extend(self.worker.as_ref().map(|name| ("worker", Value::from(name.as_str()).into())));
        let request = self.given.as_ref().or_else(|| document.child("request"));
        variables.extend(request.map(|request| ("request", request.into())));
        if !self.bound.is_empty() {
            variables.insert(BOUND, self.bound.to_value().into());
        }
        variables
    }

    /// Whether a grant that matches a place allows something there.
    pub(super) fn holds(&self, write: &Write, target: Target<'_>, asked: &mut Asked<'_>) -> bool {
        let Some(condition) = &write.condition else { return true };
        let place = first_tokens(target.path, condition.depth);
        // An index names what it named before the patch moved elements.
        let stood = asked.targets.stood(&place, target.arrives);
        let Some(there) = stood.and_then(|stood| asked.state.get(&stood)) else { return false };
        let mut variables = self.variables(asked.state);
        variables.insert("self", there.into());
        condition.expr.evaluate_within(&variables, asked.allowance) == Ok(true)
    }
}

/// That grants match a place and what is done there, and that no condition of them holds. It says what the contract says.
pub(super) fn condition_not_met(path: &Pointer, grants: &[&Write]) -> Violation {
    let conditions = || grants.iter().filter_map(|write| Some((&write.pattern, &write.condition.as_ref()?.written)));
    let told: Vec<String> = conditions()
        .map(|(pattern, condition)| {
            let WriteCondition { of, expr } = condition;
            format!("the grant on `{pattern}` holds only where this is true of `{of}`: {}", on_one_line(expr))
        })
        .collect();
    let expected = conditions().map(|(_, condition)| json!(condition)).collect();
    Violation::new(Code::ConditionNotMet, path.as_str(), told.join("; ")).expecting(Value::Array(expected))
}

/// An expression as sentences have it.
pub(crate) fn on_one_line(expr: &str) -> String {
    expr.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The place of the first so many tokens of a path.
fn first_tokens(path: &Pointer, tokens: usize) -> PointerBuf {
    let mut place = PointerBuf::new();
    path.tokens().take(tokens).for_each(|token| place.push_back(token));
    place
}
