//! Comparisons of an expression with constants.

use serde_json::{Value, json};

use super::super::lower::{Binary, Node};
use super::Lookup;

/// Operand that an expression compares with a constant.
#[derive(Clone, PartialEq, Debug)]
pub enum Operand {
    /// Value at a place.
    Place(Lookup),
    /// Size of the value at a place.
    Size(Lookup),
    /// Result of a function: a number, or else a text.
    FunctionResult {
        /// Name of the function.
        function: &'static str,
        /// True for a number.
        is_number: bool,
    },
    /// A constant.
    Constant(Value),
}

/// Kind of comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompareOp {
    /// `==`, or `in` with an operand that is not a list of constants.
    Equal,
    /// `in` with a list of constants.
    Among,
    /// `!=`.
    Unequal,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
}

impl CompareOp {
    /// Returns the operator as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::Among => "in",
            Self::Unequal => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    /// Returns the negation of this test.
    pub(in super::super) const fn negated(self) -> Self {
        match self {
            Self::Equal | Self::Among => Self::Unequal,
            Self::Unequal => Self::Equal,
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
            Self::GreaterOrEqual => Self::Less,
        }
    }

    pub(in super::super) const fn with_exchanged_operands(self) -> Self {
        match self {
            Self::Equal | Self::Among | Self::Unequal => self,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }
}

/// A comparison with a constant of the expression.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// Possible operands: each branch of a conditional, or the single operand.
    pub of: Vec<Operand>,
    /// The constant.
    pub with: Value,
    /// Operator, with the operand on its left.
    pub test: CompareOp,
}

pub(in super::super) fn constant(node: &Node) -> Option<Value> {
    match node {
        Node::Null => Some(Value::Null),
        Node::Bool(value) => Some(json!(value)),
        Node::Int(value) => Some(json!(value)),
        Node::UInt(value) => Some(json!(value)),
        Node::Double(value) => Some(json!(value)),
        Node::Text(value) => Some(json!(value)),
        Node::Negate(of) => match of.as_ref() {
            Node::Int(value) => value.checked_neg().map(|value| json!(value)),
            Node::Double(value) => Some(json!(-value)),
            _ => None,
        },
        Node::List(elements) => elements.iter().map(constant).collect(),
        Node::Map(entries) => {
            let member = |(name, value): &(Node, Node)| match name {
                Node::Text(name) => Some((name.clone(), constant(value)?)),
                _ => None,
            };
            entries.iter().map(member).collect::<Option<_>>().map(Value::Object)
        }
        _ => None,
    }
}

/// Returns the test that an operator performs, if it is a comparison.
pub(in super::super) const fn test_of(binary: Binary) -> Option<CompareOp> {
    match binary {
        Binary::Equal => Some(CompareOp::Equal),
        Binary::Unequal => Some(CompareOp::Unequal),
        Binary::Less => Some(CompareOp::Less),
        Binary::LessOrEqual => Some(CompareOp::LessOrEqual),
        Binary::Greater => Some(CompareOp::Greater),
        Binary::GreaterOrEqual => Some(CompareOp::GreaterOrEqual),
        _ => None,
    }
}
