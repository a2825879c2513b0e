//! Equality of instances as defined by JSON Schema: numbers are compared by value.
//!
//! Numbers of a tree are normalised, but above 2^53 an integer and a double may still be equal.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Number, Value};

use crate::tree::{Array, Node};

/// Maximum array length for pairwise comparison; for longer arrays hashing is cheaper.
const PAIRWISE_MAX: usize = 12;

/// Returns true if two numbers have the same value.
fn equal_numbers(one: &Number, other: &Number) -> bool {
    match (integer(one), integer(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => one.as_f64() == other.as_f64(),
        (Some(whole), None) => other.as_f64().is_some_and(|double| is_integer(double, whole)),
        (None, Some(whole)) => one.as_f64().is_some_and(|double| is_integer(double, whole)),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn is_integer(double: f64, whole: i128) -> bool {
    // Beyond 2^64 the cast would saturate; document integers are smaller.
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and small enough, as was just asked")]
    let same = double.fract() == 0.0 && double.abs() < 2e19 && double as i128 == whole;
    same
}

pub(super) fn equals_value(node: &Node, value: &Value) -> bool {
    node.is_of_value(value, equal_numbers)
}

/// Returns true if two parts of a tree are equal in JSON Schema, where `1` and `1.0` are one number.
pub(super) fn equal(one: &Node, other: &Node) -> bool {
    one.is_equal(other, equal_numbers)
}

/// Returns true if no two elements are equal.
pub(super) fn is_unique(array: &Array) -> bool {
    if array.len() <= PAIRWISE_MAX {
        return array.iter().enumerate().all(|(index, one)| array.iter().take(index).all(|other| !equal(one, other)));
    }
    let mut hashed: Vec<(u64, &Node)> = array.iter().map(|node| (hash(node), node)).collect();
    hashed.sort_unstable_by_key(|(hash, _)| *hash);
    hashed.chunk_by(|one, other| one.0 == other.0).all(|alike| {
        alike.iter().enumerate().all(|(index, one)| alike[..index].iter().all(|other| !equal(one.1, other.1)))
    })
}

/// Returns true if an array is still unique after the elements at `changed` have changed; it must have been unique
/// before.
pub(super) fn stays_unique(array: &Array, changed: &[usize]) -> bool {
    if changed.len() > PAIRWISE_MAX {
        return is_unique(array);
    }
    changed.iter().all(|&index| {
        let Some(one) = array.get(index) else { return true };
        array.iter().enumerate().all(|(at, other)| at == index || !equal(one, other))
    })
}

/// Returns a hash that is the same for equal nodes.
fn hash(node: &Node) -> u64 {
    let mut hasher = DefaultHasher::new();
    feed(node, &mut hasher);
    hasher.finish()
}

fn feed(node: &Node, hasher: &mut DefaultHasher) {
    match node {
        Node::Null => hasher.write_u8(0),
        Node::Bool(truth) => hasher.write_u8(1 + u8::from(*truth)),
        // Equal numbers convert to the same double; `-0.0` does not occur in normalised numbers.
        Node::Number(number) => hasher.write_u64(number.as_f64().unwrap_or(0.0).to_bits()),
        Node::Short(_) | Node::Long(_) => node.as_str().hash(hasher),
        Node::Array(array) => {
            hasher.write_usize(array.len());
            array.iter().for_each(|item| feed(item, hasher));
        }
        Node::Object(object) => {
            hasher.write_usize(object.len());
            for (key, member) in object.iter() {
                key.hash(hasher);
                feed(member, hasher);
            }
        }
    }
}

#[cfg(test)]
mod tests;
