//! Conditions and invariants: CEL, boolean only, with static and dynamic cost limits (SPEC section 6).
//!
//! Owns what an expression may say and what it comes to. Parser and evaluation are ours: an expression must have a bound
//! before it is read and a count of steps while it is evaluated, and mean the same in every run and release. `tests`
//! holds both against the `cel` crate's. The way of an expression: `token` reads and bounds its text, `parse` makes a tree
//! of it, `lower` resolves and bounds that, `eval` computes with `value`s, whose `arithmetic` has a file of its own;
//! `numbers` finds where a schema says number, `places` tells the lint what is looked at.

mod arithmetic;
mod demands;
mod eval;
mod lower;
mod numbers;
mod parse;
mod places;
#[cfg(test)]
mod tests;
mod together;
mod token;
mod value;

use std::borrow::Cow;
use std::collections::BTreeMap;

use jsonptr::Pointer;
use serde_json::Value;

pub(crate) use demands::{Demand, Must};
use eval::{Meter, STEPS_MAX, Stop};
use lower::Node;
pub(crate) use places::{Compared, Comparison, Known, Look, Step, Test};
pub(crate) use together::{EXACT_MAX, Together};
use value::Val;

use crate::{record, tree};

/// Why an expression is refused at load time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CompileError {
    /// Stable code of the finding: `cel_syntax`, `cel_too_long`, `cel_too_complex`, `cel_unknown_variable`,
    /// `cel_unknown_function`, `cel_shadowed_variable`, `cel_bad_pattern`, `cel_not_boolean`,
    /// `cel_unsupported`.
    pub code: &'static str,
    /// Byte offset in the source, if known.
    pub offset: Option<usize>,
    /// For people.
    pub message: String,
}

/// Why an evaluation has no truth value. In an invariant it rejects, in a condition it does not fire.
///
/// The text names types and members that the expression names, never a value it met.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct EvalError(pub String);

/// The value of a variable: a part of a tree, or of what a patch, an event or a request brought.
///
/// An expression comes to the same over either, in the same steps.
#[derive(Clone, Debug)]
pub enum Variable<'a> {
    /// JSON as it was read.
    Value(Cow<'a, Value>),
    /// A node of a document.
    Node(&'a tree::Node),
}

impl Variable<'_> {
    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.value(), Val::Null)
    }

    /// The string at a place of it, if one is there.
    pub fn text_at(&self, place: &Pointer) -> Option<&str> {
        match self {
            Self::Value(value) => value.pointer(place.as_str())?.as_str(),
            Self::Node(node) => node.get(place)?.as_str(),
        }
    }

    /// The whole number, 0 or more, at a place of it, if one is there.
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

/// Variables whose names a loop may take: blueprints that did so are older than they.
const SHADOWED: [&str; 2] = ["key", "old"];

/// Meaning of expressions where boards of different journal formats differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// Before format 14: arithmetic joins like types only, and a loop over an object is an error.
    Strict,
    /// Arithmetic joins all numbers, and nothing is cut off where a schema says number; loops go over objects.
    Plain,
}

impl Dialect {
    /// The one of boards of a journal format.
    pub const fn of(journal: u32) -> Self {
        if journal >= record::NUMBERS { Self::Plain } else { Self::Strict }
    }
}

/// The variables an expression may use.
pub type Variables<'a> = BTreeMap<&'static str, Variable<'a>>;

/// A part of a variable that an expression looks at: `state.tasks` is `state` and `["tasks"]`.
///
/// Whatever happens outside of its references cannot change what an expression comes to. A path ends where the
/// expression goes on dynamically: at an index, a loop, a function.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Reference {
    /// The variable.
    pub variable: &'static str,
    /// Member names below it; empty for the whole variable.
    pub path: Vec<String>,
}

impl Reference {
    /// Whether the other lies at or below this one.
    pub fn covers(&self, other: &Self) -> bool {
        self.variable == other.variable && other.path.starts_with(&self.path)
    }
}

/// Steps that all evaluations for one proposal may take together: an invariant is evaluated for every instance, a
/// condition for every event, and a board must not keep others waiting.
const ALLOWANCE: usize = 10_000_000;

/// What the evaluations for one proposal may take together.
pub struct Allowance(Meter);

impl Allowance {
    /// A fresh allowance of ten million steps.
    #[expect(clippy::new_without_default, reason = "there is no neutral allowance")]
    pub const fn new() -> Self {
        Self(Meter::new(ALLOWANCE))
    }

    /// Returns true if the next evaluation may end for what was evaluated before it.
    pub(crate) const fn is_used_up(&self) -> bool {
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
    /// Compiles; `variables` are the names it may use.
    ///
    /// # Errors
    /// The first thing that is wrong with it; every bound and every name is checked here, none at evaluation.
    pub fn compile(source: &str, variables: &[&'static str]) -> Result<Self, CompileError> {
        Self::compile_in(Dialect::Plain, source, variables)
    }

    /// Compiles in a dialect.
    ///
    /// # Errors
    /// As [`Expr::compile`].
    pub fn compile_in(dialect: Dialect, source: &str, variables: &[&'static str]) -> Result<Self, CompileError> {
        let (node, references) = lower::lower(&parse::parse(source)?, variables)?;
        Ok(Self { source: source.to_owned(), dialect, node, references })
    }

    /// As written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it uses a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.references.iter().any(|reference| reference.variable == variable)
    }

    /// What it looks at, in order; none lies below another.
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    /// Evaluates to true or false, deterministically and within the step limit.
    ///
    /// # Errors
    /// A missing member or variable, an operator or function on types it does not take, overflow, division by zero, a
    /// result that is not boolean, more steps than the limit.
    pub fn evaluate(&self, variables: &Variables<'_>) -> Result<bool, EvalError> {
        self.evaluate_within(variables, &mut Allowance::new())
    }

    /// Like [`Expr::evaluate`], within what is left of an allowance that several evaluations share.
    ///
    /// # Errors
    /// As [`Expr::evaluate`], also when the allowance is used up.
    pub fn evaluate_within(&self, variables: &Variables<'_>, allowance: &mut Allowance) -> Result<bool, EvalError> {
        let mut meter = allowance.0.part(STEPS_MAX);
        let before = meter.left();
        let verdict = eval::evaluate(&self.node, variables, self.dialect, &mut meter);
        allowance.0.take_off(&meter, before);
        verdict.map_err(|stop| match stop {
            Stop::Exhausted if before < STEPS_MAX => {
                EvalError(format!("this and the evaluations before it take more than {ALLOWANCE} steps"))
            }
            Stop::Exhausted => EvalError(format!("the evaluation takes more than {STEPS_MAX} steps")),
            Stop::Error(message) => EvalError(message),
        })
    }
}
