//! Values of expressions: JSON with CEL's types, borrowed where possible.
//!
//! Integers are `int`; those beyond `i64` are `uint`; all other numbers are `double`. Arithmetic, comparison and
//! equality accept all numbers together (before journal format 14, arithmetic needed operands of one type). Error
//! messages never contain a value, because they reach workers that may not read the evaluated data.
//!
//! JSON is given as a tree (the state) or as a `Value` (from a patch or an event). A value behaves the same in either
//! form and takes the same steps. Members are visited in name order, and a tree's extra knowledge provides no shortcut.

use std::cmp::Ordering;
use std::ops::Deref;
use std::rc::Rc;
use std::{slice, vec};

use serde_json::{Map, Number, Value};

use super::meter::{EvalAbort, Meter, Result};
use crate::tree::{self, Node};

/// Maximum nesting that equality follows; above the kernel's own limit on the state.
const DEPTH_MAX: usize = 128;

/// A text, borrowed from the state or the expression, or computed.
#[derive(Clone)]
pub(super) enum Text<'a> {
    Borrowed(&'a str),
    Made(Rc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Made(text) => text,
        }
    }
}

/// A value; cheap to clone.
#[derive(Clone)]
pub(super) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    Text(Text<'a>),
    Array(&'a [Value]),
    Object(&'a Map<String, Value>),
    TreeArray(&'a tree::Array),
    TreeObject(&'a tree::Object),
    List(Rc<Vec<Val<'a>>>),
    /// A computed map; it has at most as many entries as the expression has tokens.
    Entries(Rc<Vec<(Text<'a>, Val<'a>)>>),
}

impl<'a> From<&'a Value> for Val<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => Self::number(number),
            Value::String(text) => Self::Text(Text::Borrowed(text)),
            Value::Array(elements) => Self::Array(elements),
            Value::Object(members) => Self::Object(members),
        }
    }
}

impl<'a> From<&'a Node> for Val<'a> {
    fn from(node: &'a Node) -> Self {
        match node {
            Node::Null => Self::Null,
            Node::Bool(value) => Self::Bool(*value),
            Node::Number(number) => Self::number(number),
            Node::Short(_) | Node::Long(_) => Self::Text(Text::Borrowed(node.as_str().unwrap_or_default())),
            Node::Array(elements) => Self::TreeArray(elements),
            Node::Object(members) => Self::TreeObject(members),
        }
    }
}

/// Iterator over the elements of a list, in order.
pub(super) enum Elements<'a> {
    Values(slice::Iter<'a, Value>),
    Nodes(tree::Elements<'a>),
    Made(Rc<Vec<Val<'a>>>, usize),
}

impl<'a> Iterator for Elements<'a> {
    type Item = Val<'a>;

    fn next(&mut self) -> Option<Val<'a>> {
        match self {
            Self::Values(values) => values.next().map(Val::from),
            Self::Nodes(nodes) => nodes.next().map(Val::from),
            Self::Made(list, next) => {
                let element = list.get(*next).cloned();
                *next += 1;
                element
            }
        }
    }
}

/// Iterator over the members of a JSON object, in name order.
enum Members<'a> {
    Values(serde_json::map::Iter<'a>),
    Nodes(tree::Members<'a>),
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, Val<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Values(members) => members.next().map(|(name, value)| (name.as_str(), Val::from(value))),
            Self::Nodes(members) => members.next().map(|(name, node)| (name.as_str(), Val::from(node))),
        }
    }
}

/// Values of a loop's variables for one element or member.
pub(super) struct Item<'a> {
    /// The index or name, if the loop has a variable for it.
    pub(super) key: Option<Val<'a>>,
    pub(super) value: Val<'a>,
}

/// The elements of a list, or the members of a map in name order, for a loop.
pub(super) struct Items<'a> {
    over: Over<'a>,
    is_pair: bool,
    passed: i64,
}

enum Over<'a> {
    Elements(Elements<'a>),
    Members(Members<'a>),
    Entries(vec::IntoIter<(Text<'a>, Val<'a>)>),
}

impl<'a> Items<'a> {
    /// Returns `None` for a value that is neither list nor map. With `is_pair`, items have keys; otherwise members are
    /// represented by their names.
    pub(super) fn try_new(range: &Val<'a>, is_pair: bool) -> Option<Self> {
        let over = match range {
            Val::Entries(entries) => {
                let mut entries = entries.as_ref().clone();
                entries.sort_by_cached_key(|(name, _)| name.to_string());
                Over::Entries(entries.into_iter())
            }
            _ => match (range.elements(), range.members()) {
                (Some(elements), _) => Over::Elements(elements),
                (None, Some(members)) => Over::Members(members),
                (None, None) => return None,
            },
        };
        Some(Self { over, is_pair, passed: 0 })
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = match &mut self.over {
            Over::Elements(elements) => {
                let value = elements.next()?;
                let key = self.is_pair.then_some(Val::Int(self.passed));
                self.passed += 1;
                return Some(Item { key, value });
            }
            Over::Members(members) => members.next().map(|(name, value)| (Text::Borrowed(name), value))?,
            Over::Entries(entries) => entries.next()?,
        };
        let name = Val::Text(name);
        Some(if self.is_pair { Item { key: Some(name), value } } else { Item { key: None, value: name } })
    }
}

impl<'a> Val<'a> {
    fn number(number: &Number) -> Self {
        if let Some(int) = number.as_i64() {
            Self::Int(int)
        } else if let Some(uint) = number.as_u64() {
            Self::UInt(uint)
        } else {
            Self::Double(number.as_f64().unwrap_or(f64::NAN))
        }
    }

    pub(super) const fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::UInt(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Array(_) | Self::TreeArray(_) | Self::List(_) => "list",
            Self::Object(_) | Self::TreeObject(_) | Self::Entries(_) => "map",
        }
    }

    /// Returns the number of elements; `None` if it is not a list.
    pub(super) fn list_len(&self) -> Option<usize> {
        match self {
            Self::Array(elements) => Some(elements.len()),
            Self::TreeArray(elements) => Some(elements.len()),
            Self::List(elements) => Some(elements.len()),
            _ => None,
        }
    }

    /// Returns the elements; `None` if it is not a list.
    pub(super) fn elements(&self) -> Option<Elements<'a>> {
        match self {
            Self::Array(elements) => Some(Elements::Values(elements.iter())),
            Self::TreeArray(elements) => Some(Elements::Nodes(elements.iter())),
            Self::List(elements) => Some(Elements::Made(Rc::clone(elements), 0)),
            _ => None,
        }
    }

    /// Returns an element of a list.
    fn element(&self, index: usize) -> Option<Self> {
        match self {
            Self::Array(elements) => elements.get(index).map(Self::from),
            Self::TreeArray(elements) => elements.get(index).map(Self::from),
            Self::List(elements) => elements.get(index).cloned(),
            _ => None,
        }
    }

    /// Returns the number of members; `None` if it is not a map.
    pub(super) fn map_len(&self) -> Option<usize> {
        match self {
            Self::Object(members) => Some(members.len()),
            Self::TreeObject(members) => Some(members.len()),
            Self::Entries(entries) => Some(entries.len()),
            _ => None,
        }
    }

    /// Returns the members of a JSON object; `None` for a computed map or another type.
    fn members(&self) -> Option<Members<'a>> {
        match self {
            Self::Object(members) => Some(Members::Values(members.iter())),
            Self::TreeObject(members) => Some(Members::Nodes(members.iter())),
            _ => None,
        }
    }

    /// Returns a member of a map; `None` if it is not a map or has no such member.
    pub(super) fn member(&self, name: &str) -> Option<Self> {
        match self {
            Self::Object(members) => members.get(name).map(Self::from),
            Self::TreeObject(members) => members.get(name).map(Self::from),
            Self::Entries(entries) => entries.iter().find(|(key, _)| **key == *name).map(|(_, value)| value.clone()),
            _ => None,
        }
    }

    /// Returns the member at `key`, or the element at a non-negative integer `key`; `None` if there is none.
    pub(super) fn at(&self, key: &Self, meter: &mut Meter) -> Result<Option<Self>> {
        let index = match key {
            Self::Int(int) => Some(usize::try_from(*int).unwrap_or(usize::MAX)),
            Self::UInt(uint) => Some(usize::try_from(*uint).unwrap_or(usize::MAX)),
            Self::Double(double) => whole(*double).map(|whole| usize::try_from(whole).unwrap_or(usize::MAX)),
            _ => None,
        };
        match key {
            Self::Text(name) if self.map_len().is_some() => {
                meter.spend_text(name.len())?;
                Ok(self.member(name))
            }
            // JSON keys are strings: a lookup of another key is allowed, and finds nothing.
            Self::Int(_) | Self::UInt(_) | Self::Double(_) | Self::Bool(_) if self.map_len().is_some() => Ok(None),
            _ => match index {
                Some(index) if self.list_len().is_some() => Ok(self.element(index)),
                _ => Err(mismatch("[]", self, key)),
            },
        }
    }

    pub(super) fn contains(&self, element: &Self, meter: &mut Meter) -> Result<bool> {
        match (self.elements(), self.map_len()) {
            (Some(elements), _) => {
                for mine in elements {
                    if mine.equals(element, meter)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (None, Some(_)) => match self.at(element, meter) {
                Ok(member) => Ok(member.is_some()),
                Err(EvalAbort::Exhausted) => Err(EvalAbort::Exhausted),
                Err(EvalAbort::Error(_)) => Err(mismatch("in", element, self)),
            },
            (None, None) => Err(mismatch("in", element, self)),
        }
    }

    /// `self == other`: values of different types differ, numbers compare by value.
    pub(super) fn equals(&self, other: &Self, meter: &mut Meter) -> Result<bool> {
        self.equals_within(other, meter, DEPTH_MAX)
    }

    fn equals_within(&self, other: &Self, meter: &mut Meter, depth: usize) -> Result<bool> {
        meter.spend(1)?;
        let Some(depth) = depth.checked_sub(1) else {
            return Err(EvalAbort::error("values nested too deeply to compare"));
        };
        if let (Self::Text(mine), Self::Text(theirs)) = (self, other) {
            if mine.len() != theirs.len() {
                return Ok(false);
            }
            meter.spend_text(mine.len())?;
            return Ok(**mine == **theirs);
        }
        if let (Some(mine), Some(theirs)) = (self.elements(), other.elements()) {
            if self.list_len() != other.list_len() {
                return Ok(false);
            }
            for (mine, theirs) in mine.zip(theirs) {
                if !mine.equals_within(&theirs, meter, depth)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        if let (Some(len), Some(theirs)) = (self.map_len(), other.map_len()) {
            return if len == theirs { self.maps_equal(other, meter, depth) } else { Ok(false) };
        }
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(mine), Self::Bool(theirs)) => mine == theirs,
            _ => compare_numbers(self, other) == Some(Ordering::Equal),
        })
    }

    /// Compares two maps of equal size, up to the first difference.
    fn maps_equal(&self, other: &Self, meter: &mut Meter, depth: usize) -> Result<bool> {
        match (self.members(), other.members()) {
            // Sorted members need no lookup.
            (Some(mine), Some(theirs)) => {
                for ((name, mine), (their_name, theirs)) in mine.zip(theirs) {
                    meter.spend_text(name.len())?;
                    if name != their_name || !mine.equals_within(&theirs, meter, depth)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Some(mine), None) => {
                for (name, mine) in mine {
                    if !other.has_equal(name, &mine, meter, depth)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (None, _) => {
                let Self::Entries(entries) = self else { return Ok(false) };
                for (name, mine) in entries.iter() {
                    if !other.has_equal(name, mine, meter, depth)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    fn has_equal(&self, name: &str, value: &Val<'_>, meter: &mut Meter, depth: usize) -> Result<bool> {
        meter.spend_text(name.len())?;
        match self.member(name) {
            Some(mine) => mine.equals_within(value, meter, depth),
            None => Ok(false),
        }
    }

    /// Returns the order of two comparable values; `sign` is the operator, for the message.
    pub(super) fn compare(&self, other: &Self, sign: &str, meter: &mut Meter) -> Result<Ordering> {
        let order = match (self, other) {
            (Self::Text(mine), Self::Text(theirs)) => {
                meter.spend_text(mine.len().min(theirs.len()))?;
                Some((**mine).cmp(&**theirs))
            }
            (Self::Bool(mine), Self::Bool(theirs)) => Some(mine.cmp(theirs)),
            _ => compare_numbers(self, other),
        };
        order.ok_or_else(|| mismatch(sign, self, other))
    }
}

fn compare_numbers(a: &Val<'_>, b: &Val<'_>) -> Option<Ordering> {
    match (a, b) {
        (Val::Double(a), Val::Double(b)) => a.partial_cmp(b),
        (Val::Double(a), b) => compare_to_double(integer(b)?, *a).map(Ordering::reverse),
        (a, Val::Double(b)) => compare_to_double(integer(a)?, *b),
        (a, b) => Some(integer(a)?.cmp(&integer(b)?)),
    }
}

/// Returns an `int` or a `uint` in a type that holds both.
pub(super) fn integer(value: &Val<'_>) -> Option<i128> {
    match value {
        Val::Int(int) => Some((*int).into()),
        Val::UInt(uint) => Some((*uint).into()),
        _ => None,
    }
}

/// Compares by value: converting the integer to a double first would make neighbours beyond 2^53 equal.
fn compare_to_double(integer: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "`as` saturates, far outside of both integer types")]
    let whole = double.trunc() as i128;
    Some(integer.cmp(&whole).then_with(|| 0.0_f64.total_cmp(&(double.fract() + 0.0))))
}

/// Builds the error for an operator on two incompatible types.
pub(super) fn mismatch(sign: &str, a: &Val<'_>, b: &Val<'_>) -> EvalAbort {
    EvalAbort::Error(format!("{sign} cannot be applied to {} and {}", a.type_name(), b.type_name()))
}

/// Builds the error for an operator or function on an unsupported type.
pub(super) fn misplaced(name: &str, value: &Val<'_>) -> EvalAbort {
    EvalAbort::Error(format!("{name} cannot be applied to {}", value.type_name()))
}

/// Returns the integer that a double equals, if any.
pub(super) fn whole(double: f64) -> Option<i64> {
    /// 2^63, exact.
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    (double.trunc() == double && double > -TWO_TO_63 && double < TWO_TO_63).then_some(double as i64)
}
