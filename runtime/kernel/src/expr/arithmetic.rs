//! Arithmetic and conversions. Rounds, truncates and wraps only where the operation is defined to.

use std::cmp::Ordering;
use std::rc::Rc;

use super::Dialect;
use super::meter::{EvalAbort, Meter, Result};
use super::value::{Text, Val, integer, mismatch, misplaced, whole};

/// 2^64, exact.
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

/// Operation on two numbers, for each pair of types that it can have.
pub(super) struct Operation {
    sign: &'static str,
    int: fn(i64, i64) -> Option<i64>,
    uint: fn(u64, u64) -> Option<u64>,
    wide: fn(i128, i128) -> Option<i128>,
    double: fn(f64, f64) -> f64,
    divides: bool,
}

/// Defines an operation: its sign, the checked functions of integers, and the operator of doubles.
macro_rules! operation {
    ($name:ident, $sign:tt, $checked:ident, divides: $divides:literal) => {
        pub(super) const $name: Operation = Operation {
            sign: stringify!($sign),
            int: i64::$checked,
            uint: u64::$checked,
            wide: i128::$checked,
            double: |a, b| a $sign b,
            divides: $divides,
        };
    };
}

operation!(SUM, +, checked_add, divides: false);
operation!(DIFFERENCE, -, checked_sub, divides: false);
operation!(PRODUCT, *, checked_mul, divides: false);
// For two integers the quotient is truncated towards zero.
operation!(QUOTIENT, /, checked_div, divides: true);
operation!(REMAINDER, %, checked_rem, divides: true);

impl Operation {
    pub(super) fn apply<'a>(&self, a: &Val<'a>, b: &Val<'a>, dialect: Dialect) -> Result<Val<'a>> {
        match dialect {
            Dialect::Strict => self.of_like(a, b),
            Dialect::Plain => self.of_any(a, b),
        }
    }

    /// Combines operands of one type, within the range of that type.
    fn of_like<'a>(&self, a: &Val<'a>, b: &Val<'a>) -> Result<Val<'a>> {
        match (a, b) {
            (Val::Int(_), Val::Int(0)) | (Val::UInt(_), Val::UInt(0)) if self.divides => Err(by_zero()),
            (Val::Int(a), Val::Int(b)) => (self.int)(*a, *b).map(Val::Int).ok_or_else(overflow),
            (Val::UInt(a), Val::UInt(b)) => (self.uint)(*a, *b).map(Val::UInt).ok_or_else(overflow),
            (Val::Double(a), Val::Double(b)) => Ok(Val::Double((self.double)(*a, *b))),
            _ => Err(mismatch(self.sign, a, b)),
        }
    }

    /// Combines all numbers; exact for two integers.
    fn of_any<'a>(&self, a: &Val<'a>, b: &Val<'a>) -> Result<Val<'a>> {
        if let (Some(a), Some(b)) = (integer(a), integer(b)) {
            return if self.divides && b == 0 { Err(by_zero()) } else { narrowed((self.wide)(a, b)) };
        }
        let (Some(a), Some(b)) = (as_double(a), as_double(b)) else { return Err(mismatch(self.sign, a, b)) };
        if self.divides && b == 0.0 { Err(by_zero()) } else { finite((self.double)(a, b)) }
    }
}

impl<'a> Val<'a> {
    /// `self + other`: a sum, or the concatenation of texts or lists.
    pub(super) fn add(&self, other: &Self, dialect: Dialect, meter: &mut Meter) -> Result<Self> {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => {
                meter.spend_text(a.len() + b.len())?;
                Ok(Self::Text(Text::Made([&**a, &**b].concat().into())))
            }
            _ => {
                let (Some(a), Some(b)) = (self.elements(), other.elements()) else {
                    return SUM.apply(self, other, dialect);
                };
                meter.spend(self.list_len().unwrap_or(0) + other.list_len().unwrap_or(0))?;
                Ok(Self::List(Rc::new(a.chain(b).collect())))
            }
        }
    }

    /// `self / other` without truncation.
    pub(super) fn ratio(&self, other: &Self, dialect: Dialect) -> Result<Self> {
        match (integer(self), integer(other)) {
            (Some(a), Some(b)) if b != 0 && a % b == 0 => narrowed(a.checked_div(b)),
            (Some(_), Some(_)) => QUOTIENT.apply(&self.rounded(), &other.rounded(), dialect),
            _ => QUOTIENT.apply(self, other, dialect),
        }
    }

    /// `self % other`, with the sign of `self`.
    pub(super) fn remainder(&self, other: &Self, dialect: Dialect) -> Result<Self> {
        match (self, dialect) {
            (Self::Double(_), Dialect::Strict) => Err(mismatch("%", self, other)),
            _ => REMAINDER.apply(self, other, dialect),
        }
    }

    /// `sum(self)`: the sum of a list of numbers; 0 for an empty list.
    pub(super) fn sum(&self, dialect: Dialect, meter: &mut Meter) -> Result<Self> {
        let elements = self.elements().ok_or_else(|| misplaced("sum()", self))?;
        let mut sum = Self::Int(0);
        for element in elements {
            meter.spend(1)?;
            if as_double(&element).is_none() {
                return Err(misplaced("sum()", &element));
            }
            sum = SUM.apply(&sum, &element, dialect)?;
        }
        Ok(sum)
    }

    /// `min(self)` or `max(self)`: the first extreme number or text of a list, in this order.
    pub(super) fn extreme(&self, name: &str, order: Ordering, meter: &mut Meter) -> Result<Self> {
        let elements = self.elements().ok_or_else(|| misplaced(name, self))?;
        let mut found: Option<Self> = None;
        for element in elements {
            meter.spend(1)?;
            if !matches!(element, Self::Text(_)) && as_double(&element).is_none() {
                return Err(misplaced(name, &element));
            }
            let is_beyond = match &found {
                Some(found) => element.compare(found, name, meter)? == order,
                None => true,
            };
            if is_beyond {
                found = Some(element);
            }
        }
        found.ok_or_else(|| EvalAbort::Error(format!("{name} of a list without elements")))
    }

    fn rounded(&self) -> Self {
        as_double(self).map_or_else(|| self.clone(), Self::Double)
    }

    pub(super) fn negate(&self, dialect: Dialect) -> Result<Self> {
        match self {
            Self::Int(_) | Self::UInt(_) if dialect == Dialect::Plain => {
                narrowed(integer(self).and_then(i128::checked_neg))
            }
            Self::Int(int) => int.checked_neg().map(Self::Int).ok_or_else(overflow),
            Self::Double(double) => Ok(Self::Double(-double)),
            _ => Err(misplaced("-", self)),
        }
    }

    /// `size(self)`: characters (code points), elements or members.
    pub(super) fn size(&self, meter: &mut Meter) -> Result<Self> {
        let size = match self {
            Self::Text(text) => {
                meter.spend_text(text.len())?;
                text.chars().count()
            }
            _ => self.list_len().or_else(|| self.map_len()).ok_or_else(|| misplaced("size()", self))?,
        };
        i64::try_from(size).map(Self::Int).map_err(|_| overflow())
    }

    /// `int(self)`; truncates a fraction.
    pub(super) fn to_int(&self, meter: &mut Meter) -> Result<Self> {
        let int = match self {
            Self::Int(int) => Some(*int),
            Self::UInt(uint) => i64::try_from(*uint).ok(),
            Self::Double(double) => whole(double.trunc()),
            Self::Text(text) => {
                meter.spend_text(text.len())?;
                return text.parse().map(Self::Int).map_err(|_| EvalAbort::error("int() of a text that is no integer"));
            }
            _ => return Err(misplaced("int()", self)),
        };
        int.map(Self::Int).ok_or_else(overflow)
    }

    /// `uint(self)`; truncates a fraction.
    pub(super) fn to_uint(&self, meter: &mut Meter) -> Result<Self> {
        let uint = match self {
            Self::Int(int) => u64::try_from(*int).ok(),
            Self::UInt(uint) => Some(*uint),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
            Self::Double(double) => (*double >= 0.0 && *double < TWO_TO_64).then_some(*double as u64),
            Self::Text(text) => {
                meter.spend_text(text.len())?;
                return text
                    .parse()
                    .map(Self::UInt)
                    .map_err(|_| EvalAbort::error("uint() of a text that is no integer"));
            }
            _ => return Err(misplaced("uint()", self)),
        };
        uint.map(Self::UInt).ok_or_else(overflow)
    }

    pub(super) fn to_double(&self, dialect: Dialect, meter: &mut Meter) -> Result<Self> {
        match self {
            Self::Text(text) => {
                meter.spend_text(text.len())?;
                let double = text.parse().ok().filter(|double: &f64| double.is_finite() || dialect == Dialect::Strict);
                double.map(Self::Double).ok_or_else(|| EvalAbort::error("double() of a text that is no number"))
            }
            _ => as_double(self).map(Self::Double).ok_or_else(|| misplaced("double()", self)),
        }
    }

    pub(super) fn to_text(&self) -> Result<Self> {
        let text = match self {
            Self::Text(_) => return Ok(self.clone()),
            Self::Bool(value) => value.to_string(),
            Self::Int(int) => int.to_string(),
            Self::UInt(uint) => uint.to_string(),
            Self::Double(double) => double.to_string(),
            _ => return Err(misplaced("string()", self)),
        };
        Ok(Self::Text(Text::Made(text.into())))
    }
}

fn by_zero() -> EvalAbort {
    EvalAbort::error("division by zero")
}

/// Returns the double nearest to a number.
fn as_double(value: &Val<'_>) -> Option<f64> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
        Val::Int(int) => Some(*int as f64),
        #[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
        Val::UInt(uint) => Some(*uint as f64),
        Val::Double(double) => Some(*double),
        _ => None,
    }
}

/// Returns an integer as an `int`, or as a `uint` if it is too large.
fn narrowed<'a>(wide: Option<i128>) -> Result<Val<'a>> {
    let wide = wide.ok_or_else(overflow)?;
    let int = i64::try_from(wide).map(Val::Int);
    int.or_else(|_| u64::try_from(wide).map(Val::UInt)).map_err(|_| overflow())
}

/// Rejects infinite results, because JSON has only finite numbers.
fn finite<'a>(double: f64) -> Result<Val<'a>> {
    if double.is_finite() { Ok(Val::Double(double)) } else { Err(overflow()) }
}

fn overflow() -> EvalAbort {
    EvalAbort::error("the result is out of the range of its type")
}
