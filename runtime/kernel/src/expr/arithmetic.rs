//! Arithmetic and conversions. Nothing is rounded, cut off or wrapped around without being asked for.

use std::rc::Rc;

use super::eval::{Meter, Stop};
use super::value::{Text, Val, mismatch, misplaced};

/// 2^63 and 2^64, both exact.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

impl<'a> Val<'a> {
    /// `self + other`: a sum, or one text or list after another.
    pub(super) fn add(&self, other: &Self, meter: &mut Meter) -> Result<Self, Stop> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.checked_add(*b).map(Self::Int).ok_or_else(overflow),
            (Self::UInt(a), Self::UInt(b)) => a.checked_add(*b).map(Self::UInt).ok_or_else(overflow),
            (Self::Double(a), Self::Double(b)) => Ok(Self::Double(a + b)),
            (Self::Text(a), Self::Text(b)) => {
                meter.spend_text(a.len() + b.len())?;
                Ok(Self::Text(Text::Made([&**a, &**b].concat().into())))
            }
            _ => {
                let (Some(a), Some(b)) = (self.elements(), other.elements()) else {
                    return Err(mismatch("+", self, other));
                };
                meter.spend(self.list_len().unwrap_or(0) + other.list_len().unwrap_or(0))?;
                Ok(Self::List(Rc::new(a.chain(b).collect())))
            }
        }
    }

    /// `self - other`.
    pub(super) fn subtract(&self, other: &Self) -> Result<Self, Stop> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.checked_sub(*b).map(Self::Int).ok_or_else(overflow),
            (Self::UInt(a), Self::UInt(b)) => a.checked_sub(*b).map(Self::UInt).ok_or_else(overflow),
            (Self::Double(a), Self::Double(b)) => Ok(Self::Double(a - b)),
            _ => Err(mismatch("-", self, other)),
        }
    }

    /// `self * other`.
    pub(super) fn multiply(&self, other: &Self) -> Result<Self, Stop> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.checked_mul(*b).map(Self::Int).ok_or_else(overflow),
            (Self::UInt(a), Self::UInt(b)) => a.checked_mul(*b).map(Self::UInt).ok_or_else(overflow),
            (Self::Double(a), Self::Double(b)) => Ok(Self::Double(a * b)),
            _ => Err(mismatch("*", self, other)),
        }
    }

    /// `self / other`; integers are cut towards zero.
    pub(super) fn divide(&self, other: &Self) -> Result<Self, Stop> {
        match (self, other) {
            (Self::Int(_), Self::Int(0)) | (Self::UInt(_), Self::UInt(0)) => Err(Stop::error("division by zero")),
            (Self::Int(a), Self::Int(b)) => a.checked_div(*b).map(Self::Int).ok_or_else(overflow),
            (Self::UInt(a), Self::UInt(b)) => a.checked_div(*b).map(Self::UInt).ok_or_else(overflow),
            (Self::Double(a), Self::Double(b)) => Ok(Self::Double(a / b)),
            _ => Err(mismatch("/", self, other)),
        }
    }

    /// `self % other`; integers only, with the sign of `self`.
    pub(super) fn remainder(&self, other: &Self) -> Result<Self, Stop> {
        match (self, other) {
            (Self::Int(_), Self::Int(0)) | (Self::UInt(_), Self::UInt(0)) => Err(Stop::error("division by zero")),
            (Self::Int(a), Self::Int(b)) => a.checked_rem(*b).map(Self::Int).ok_or_else(overflow),
            (Self::UInt(a), Self::UInt(b)) => a.checked_rem(*b).map(Self::UInt).ok_or_else(overflow),
            _ => Err(mismatch("%", self, other)),
        }
    }

    /// `-self`.
    pub(super) fn negate(&self) -> Result<Self, Stop> {
        match self {
            Self::Int(int) => int.checked_neg().map(Self::Int).ok_or_else(overflow),
            Self::Double(double) => Ok(Self::Double(-double)),
            _ => Err(misplaced("-", self)),
        }
    }

    /// `size(self)`: characters (code points), elements or members.
    pub(super) fn size(&self, meter: &mut Meter) -> Result<Self, Stop> {
        let size = match self {
            Self::Text(text) => {
                meter.spend_text(text.len())?;
                text.chars().count()
            }
            _ => self.list_len().or_else(|| self.map_len()).ok_or_else(|| misplaced("size()", self))?,
        };
        i64::try_from(size).map(Self::Int).map_err(|_| overflow())
    }

    /// `int(self)`; a fraction is cut off.
    pub(super) fn to_int(&self, meter: &mut Meter) -> Result<Self, Stop> {
        let int = match self {
            Self::Int(int) => Some(*int),
            Self::UInt(uint) => i64::try_from(*uint).ok(),
            Self::Double(double) => whole(double.trunc()),
            Self::Text(text) => {
                meter.spend_text(text.len())?;
                return text.parse().map(Self::Int).map_err(|_| Stop::error("int() of a text that is no integer"));
            }
            _ => return Err(misplaced("int()", self)),
        };
        int.map(Self::Int).ok_or_else(overflow)
    }

    /// `uint(self)`; a fraction is cut off.
    pub(super) fn to_uint(&self, meter: &mut Meter) -> Result<Self, Stop> {
        let uint = match self {
            Self::Int(int) => u64::try_from(*int).ok(),
            Self::UInt(uint) => Some(*uint),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
            Self::Double(double) => (*double >= 0.0 && *double < TWO_TO_64).then_some(*double as u64),
            Self::Text(text) => {
                meter.spend_text(text.len())?;
                return text.parse().map(Self::UInt).map_err(|_| Stop::error("uint() of a text that is no integer"));
            }
            _ => return Err(misplaced("uint()", self)),
        };
        uint.map(Self::UInt).ok_or_else(overflow)
    }

    /// `double(self)`.
    pub(super) fn to_double(&self, meter: &mut Meter) -> Result<Self, Stop> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "CEL's conversion rounds to the nearest double")]
            Self::Int(int) => Ok(Self::Double(*int as f64)),
            #[expect(clippy::cast_precision_loss, reason = "CEL's conversion rounds to the nearest double")]
            Self::UInt(uint) => Ok(Self::Double(*uint as f64)),
            Self::Double(double) => Ok(Self::Double(*double)),
            Self::Text(text) => {
                meter.spend_text(text.len())?;
                text.parse().map(Self::Double).map_err(|_| Stop::error("double() of a text that is no number"))
            }
            _ => Err(misplaced("double()", self)),
        }
    }

    /// `string(self)`.
    pub(super) fn to_text(&self) -> Result<Self, Stop> {
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

/// The integer a double is, if it is one.
pub(super) fn whole(double: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    (double.trunc() == double && double > -TWO_TO_63 && double < TWO_TO_63).then_some(double as i64)
}

fn overflow() -> Stop {
    Stop::error("the result is out of the range of its type")
}
