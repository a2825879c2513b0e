//! Conditions and invariants: boolean CEL expressions with static and dynamic cost limits (SPEC section 6).
//!
//! Owns the language and its evaluation. Parser and evaluator are our own: an expression needs bounds before it is
//! parsed and a step count during evaluation. Its meaning must be stable across runs and releases. `tests` compares
//! both with the `cel` crate. Stages: `token` reads and bounds the text, `parse` builds the tree, `lower` resolves and
//! bounds it, `eval` computes with `value`s, and `arithmetic` holds their arithmetic. `numbers` finds divisions that
//! schemas declare as fractional, and `analysis` reports to the lint the places that an expression looks up.

mod analysis;
mod arithmetic;
mod contradictions;
mod demands;
mod eval;
mod lower;
mod meter;
mod numbers;
mod parse;
#[cfg(test)]
mod tests;
mod token;
mod value;

use std::borrow::Cow;
use std::collections::BTreeMap;

use jsonptr::Pointer;
use serde_json::Value;

pub use analysis::{CompareOp, Comparison, Existence, Lookup, LookupStep, Operand};
pub use contradictions::{DecidedComparisons, EXACT_MAX};
pub(crate) use demands::{Demand, Requirement};
use eval::STEPS_MAX;
use lower::Node;
use meter::{EvalAbort, Meter};
use value::Val;

use crate::{record, tree};

/// Load-time rejection of an expression.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CompileError {
    /// Stable code of the finding: `cel_syntax`, `cel_too_long`, `cel_too_complex`, `cel_unknown_variable`,
    /// `cel_unknown_function`, `cel_shadowed_variable`, `cel_bad_pattern`, `cel_not_boolean`,
    /// `cel_unsupported`.
    pub code: &'static str,
    /// Byte offset in the source, if known.
    pub offset: Option<usize>,
    /// Message for people.
    pub message: String,
}

/// Reason for which an evaluation has no truth value. An invariant then rejects, and a condition does not fire.
///
/// The text names types, and members that occur in the expression, but never a value from the document.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct EvalError(pub String);

/// The value of a variable: a part of a tree, or of a patch, an event or a request.
///
/// Both forms give the same result in the same number of steps.
#[derive(Clone, Debug)]
pub enum Variable<'a> {
    /// Parsed JSON.
    Value(Cow<'a, Value>),
    /// A node of a document.
    Node(&'a tree::Node),
}

impl Variable<'_> {
    /// Returns true if it is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.value(), Val::Null)
    }

    /// Returns the string at a place in it, if one is there.
    pub fn text_at(&self, place: &Pointer) -> Option<&str> {
        match self {
            Self::Value(value) => value.pointer(place.as_str())?.as_str(),
            Self::Node(node) => node.get(place)?.as_str(),
        }
    }

    /// Returns the non-negative integer at a place in it, if one is there.
    pub fn count_at(&self, place: &Pointer) -> Option<u64> {
        match self {
            Self::Value(value) => value.pointer(place.as_str())?.as_u64(),
            Self::Node(node) => node.get(place)?.to_value().as_u64(),
        }
    }

    fn value(&self) -> Val<'_> {
        match self {
            Self::Value(value) => Val::from(value.as_ref()),
            Self::Node(node) => Val::from(*node),
        }
    }
}

impl<'a> From<&'a Value> for Variable<'a> {
    fn from(value: &'a Value) -> Self {
        Self::Value(Cow::Borrowed(value))
    }
}

impl From<Value> for Variable<'_> {
    fn from(value: Value) -> Self {
        Self::Value(Cow::Owned(value))
    }
}

impl<'a> From<&'a tree::Node> for Variable<'a> {
    fn from(node: &'a tree::Node) -> Self {
        Self::Node(node)
    }
}

/// Variables with names that a loop may redefine, because older blueprints did so before these variables existed.
const SHADOWED: [&str; 2] = ["key", "old"];

/// Version of the expression semantics, by the board's journal format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// Before format 14: arithmetic needs operands of one type, and a loop over an object is an error.
    Strict,
    /// Arithmetic accepts all numbers, division keeps fractions where a schema says `number`, and loops accept objects.
    Plain,
}

impl Dialect {
    /// Returns the dialect of a journal format.
    pub const fn for_journal_format(journal: u32) -> Self {
        if journal >= record::SINCE_MIXED_NUMBERS { Self::Plain } else { Self::Strict }
    }
}

/// The variables that an expression may use.
pub type Variables<'a> = BTreeMap<&'static str, Variable<'a>>;

/// A part of a variable that an expression depends on: `state.tasks` is `state` and `["tasks"]`.
///
/// Changes outside its references cannot change an expression's result. A path ends where the expression continues
/// dynamically: at an index, a loop, a function.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Reference {
    /// The variable.
    pub variable: &'static str,
    /// Member names below it; empty for the whole variable.
    pub path: Vec<String>,
}

impl Reference {
    /// Returns true if the other reference lies at or below this one.
    pub fn covers(&self, other: &Self) -> bool {
        self.variable == other.variable && other.path.starts_with(&self.path)
    }
}

/// Steps for all evaluations of one proposal together. An invariant is evaluated for every instance and a condition for
/// every event, and one board must not delay others.
const ALLOWANCE: usize = 10_000_000;

/// Step allowance shared by the evaluations for one proposal.
pub struct Allowance(Meter);

impl Allowance {
    /// Creates an allowance of ten million steps.
    #[expect(clippy::new_without_default, reason = "there is no neutral allowance")]
    pub const fn new() -> Self {
        Self(Meter::new(ALLOWANCE))
    }

    /// Returns true if earlier evaluations may leave too few steps for the next one.
    pub const fn is_used_up(&self) -> bool {
        self.0.left() < STEPS_MAX
    }
}

/// A compiled expression.
#[derive(Debug)]
pub struct Expr {
    source: String,
    dialect: Dialect,
    node: Node,
    references: Vec<Reference>,
}

impl Expr {
    /// Compiles an expression; `variables` are the names it may use. Returns the first error: every bound and every
    /// name is checked here, none at evaluation.
    pub fn compile(source: &str, variables: &[&'static str]) -> Result<Self, CompileError> {
        Self::compile_in(Dialect::Plain, source, variables)
    }

    /// Compiles in a dialect.
    pub fn compile_in(dialect: Dialect, source: &str, variables: &[&'static str]) -> Result<Self, CompileError> {
        let (node, references) = lower::lower(&parse::parse(source)?, variables)?;
        Ok(Self { source: source.to_owned(), dialect, node, references })
    }

    /// Returns the source text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns true if it uses a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.references.iter().any(|reference| reference.variable == variable)
    }

    /// Returns its references, in order; none lies below another.
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    /// Evaluates to true or false, deterministically and within the step limit. Fails for a missing member or variable,
    /// an operator or function on unsupported types, overflow, division by zero, a result that is not boolean, or more
    /// steps than the limit.
    pub fn evaluate(&self, variables: &Variables<'_>) -> Result<bool, EvalError> {
        self.evaluate_within(variables, &mut Allowance::new())
    }

    /// Like [`Expr::evaluate`], within what is left of an allowance that several evaluations share. Fails like
    /// [`Expr::evaluate`], also when the allowance is used up.
    pub fn evaluate_within(&self, variables: &Variables<'_>, allowance: &mut Allowance) -> Result<bool, EvalError> {
        let mut meter = allowance.0.part(STEPS_MAX);
        let before = meter.left();
        let verdict = eval::evaluate(&self.node, variables, self.dialect, &mut meter);
        allowance.0.take_off(&meter, before);
        verdict.map_err(|stop| match stop {
            EvalAbort::Exhausted if before < STEPS_MAX => {
                EvalError(format!("this and the evaluations before it take more than {ALLOWANCE} steps"))
            }
            EvalAbort::Exhausted => EvalError(format!("the evaluation takes more than {STEPS_MAX} steps")),
            EvalAbort::Error(message) => EvalError(message),
        })
    }
}
