//! Differences between two drafts: a magnitude, the changed places, and a patch (W27, W32).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Content;
use patchboard_kernel::expressions::push_token;
use patchboard_kernel::json;

/// Maximum number of changed places that are listed.
pub const PATHS_MAX: usize = 256;
/// Maximum total bytes of their names.
const PATH_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of line comparisons. Beyond it, everything between the common first and last lines counts as
/// different.
const LINE_PAIRS_MAX: usize = 1 << 22;

/// Difference between two drafts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeltaSummary {
    /// Share of differing parts, from 0 (equal, and only then) to 1; see [`delta`].
    pub magnitude: f64,
    /// The smallest differing places, as JSON Pointers; `""` unless both drafts are JSON. The first [`PATHS_MAX`] in
    /// document order.
    pub changed_paths: BTreeSet<String>,
    /// Number of further places.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub more: u64,
}

/// Compares two drafts.
///
/// `magnitude` is `1 - common / max(parts of one, parts of the other)`. The parts of a JSON draft are its scalars and
/// empty containers, in common if equal at the same place; array elements are placed by index. The parts of any other
/// draft are its lines; common is the longest common subsequence. JSON and other drafts have nothing in common.
pub fn delta(before: &Content, after: &Content) -> DeltaSummary {
    let (common, one, other) = match (before, after) {
        (Content::Json(before), Content::Json(after)) => {
            let mut changes = Changes::default();
            changes.walk(before, after, &mut String::new());
            let common = common(before, after);
            let magnitude = magnitude(common, leaves(before), leaves(after));
            return DeltaSummary { magnitude, changed_paths: changes.paths, more: changes.more };
        }
        (Content::Json(value), other) | (other, Content::Json(value)) => (0, leaves(value), lines(other.bytes()).len()),
        (before, after) => {
            let (before, after) = (lines(before.bytes()), lines(after.bytes()));
            (common_lines(&before, &after), before.len(), after.len())
        }
    };
    let magnitude = magnitude(common, one, other);
    let changed_paths = if magnitude > 0.0 { BTreeSet::from([String::new()]) } else { BTreeSet::new() };
    DeltaSummary { magnitude, changed_paths, more: 0 }
}

/// Returns the patch (RFC 6902) from one JSON draft to another. Arrays are compared element by element; the patch
/// replaces the whole draft if that is shorter. Returns `None` unless both are JSON.
pub fn patch(before: &Content, after: &Content) -> Option<Value> {
    let (Content::Json(before), Content::Json(after)) = (before, after) else { return None };
    let whole = json!([{"op": "replace", "path": "", "value": after}]);
    let mut changes = Changes { bytes_max: json::size(&whole), ..Changes::default() };
    changes.walk(before, after, &mut String::new());
    match changes.is_long {
        true => Some(whole),
        false => Some(Value::Array(changes.ops)),
    }
}

fn magnitude(common: usize, one: usize, other: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "nobody counts 2^53 parts")]
    let share = |part: usize, all: usize| part as f64 / all as f64;
    match one.max(other) {
        0 => 0.0,
        all => share(all - common, all),
    }
}

/// Counts scalars and empty containers. The recursion is as deep as the value, which was parsed within limits.
fn leaves(value: &Value) -> usize {
    match value {
        Value::Array(items) if !items.is_empty() => items.iter().map(leaves).sum(),
        Value::Object(members) if !members.is_empty() => members.values().map(leaves).sum(),
        _ => 1,
    }
}

/// Counts the parts that are equal at the same place.
fn common(one: &Value, other: &Value) -> usize {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) if !one.is_empty() && !other.is_empty() => {
            one.iter().zip(other).map(|(one, other)| common(one, other)).sum()
        }
        (Value::Object(one), Value::Object(other)) if !one.is_empty() && !other.is_empty() => {
            one.iter().filter_map(|(name, one)| Some(common(one, other.get(name)?))).sum()
        }
        (one, other) => usize::from(one == other),
    }
}

/// Differences, as places and as operations.
#[derive(Default)]
struct Changes {
    paths: BTreeSet<String>,
    path_bytes: usize,
    more: u64,
    ops: Vec<Value>,
    /// Maximum bytes of the operations; 0 collects none.
    bytes_max: u64,
    bytes: u64,
    is_long: bool,
}

impl Changes {
    /// Compares two values recursively. `at` is their place, and is restored before returning.
    fn walk(&mut self, before: &Value, after: &Value, at: &mut String) {
        match (before, after) {
            (Value::Object(before), Value::Object(after)) => self.members(before, after, at),
            (Value::Array(before), Value::Array(after)) => {
                let shared = before.len().min(after.len());
                for (index, (before, after)) in before.iter().zip(after).enumerate() {
                    within(at, &index.to_string(), |at| self.walk(before, after, at));
                }
                // Remove from the end, so that earlier removals shift no later ones.
                for index in (shared..before.len()).rev() {
                    within(at, &index.to_string(), |at| self.changed("remove", at, None));
                }
                for (index, value) in after.iter().enumerate().skip(shared) {
                    within(at, &index.to_string(), |at| self.changed("add", at, Some(value)));
                }
            }
            (before, after) if before == after => {}
            (_, after) => self.changed("replace", at, Some(after)),
        }
    }

    fn members(&mut self, before: &Map<String, Value>, after: &Map<String, Value>, at: &mut String) {
        for (name, was) in before {
            within(at, name, |at| match after.get(name) {
                Some(is) => self.walk(was, is, at),
                None => self.changed("remove", at, None),
            });
        }
        for (name, is) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
            within(at, name, |at| self.changed("add", at, Some(is)));
        }
    }

    fn changed(&mut self, op: &str, at: &str, value: Option<&Value>) {
        if self.paths.len() < PATHS_MAX && self.path_bytes + at.len() <= PATH_BYTES_MAX {
            self.path_bytes += at.len();
            self.paths.insert(at.to_owned());
        } else {
            self.more += 1;
        }
        if self.bytes_max == 0 || self.is_long {
            return;
        }
        // A lower bound of an operation's bytes besides its place and value.
        self.bytes += json::text_size(at) + value.map_or(0, json::size) + 20;
        self.is_long = self.bytes > self.bytes_max;
        if self.is_long {
            self.ops.clear();
            return;
        }
        self.ops.push(match value {
            Some(value) => json!({"op": op, "path": at, "value": value}),
            None => json!({"op": op, "path": at}),
        });
    }
}

/// Runs `work` with a token appended to the place.
fn within(at: &mut String, token: &str, work: impl FnOnce(&mut String)) {
    let length = at.len();
    push_token(at, token);
    work(at);
    at.truncate(length);
}

/// Splits into lines, with their ends.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Returns the length of a longest common subsequence. Common first and last lines are counted directly.
fn common_lines(one: &[&[u8]], other: &[&[u8]]) -> usize {
    let begin = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let (one, other) = (&one[begin..], &other[begin..]);
    let end = one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
    let (one, other) = (&one[..one.len() - end], &other[..other.len() - end]);
    if one.len().saturating_mul(other.len()) > LINE_PAIRS_MAX {
        return begin + end;
    }
    let mut row = vec![0_usize; other.len() + 1];
    for line in one {
        let mut above_before = 0;
        for (at, candidate) in other.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if line == candidate { above_before + 1 } else { above.max(row[at]) };
            above_before = above;
        }
    }
    begin + end + row.last().copied().unwrap_or(0)
}
