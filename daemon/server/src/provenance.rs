//! Finds the commit that last wrote a place of the document.
//!
//! Follows a place back through the journal. Insertions and removals before it in an array change its index, but do not
//! count as writes to it.

use patchboard_kernel::blueprint::{GrantOp, PatchLimits};
use patchboard_kernel::patch::{self, Op};
use patchboard_kernel::record::{Body, Record};
use patchboard_kernel::state::{Candidate, ResultLimits, State};

/// Commit that last wrote a place.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Writer {
    /// Index of its record.
    pub(crate) record: usize,
    /// Operations of its patch that touched the place, an ancestor, or a descendant.
    pub(crate) ops: Vec<usize>,
    /// Pointer of the place right after the commit.
    pub(crate) pointer: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Touch {
    /// Write or removal without a shift of other elements.
    At(String),
    /// Insertion into an array before other elements.
    Inserted {
        array: String,
        index: usize,
    },
    Removed {
        array: String,
        index: usize,
    },
}

/// Returns the last commit that touched the place, an ancestor or a descendant. Returns `None` if the place is
/// unchanged since `initial`, the state before the records.
///
/// # Errors
/// The index of a recorded patch that cannot be applied again, because the journal has been altered.
pub(crate) fn last_writer(initial: &State, records: &[Record], pointer: &str) -> Result<Option<Writer>, usize> {
    let commits = touches(initial, records)?;
    let mut place = pointer.to_owned();
    for (record, touches) in commits.iter().rev() {
        let after = place.clone();
        let mut ops = Vec::new();
        for (op, touch) in touches.iter().rev() {
            match step_back(touch, &mut place) {
                WriteExtent::Nothing => {}
                WriteExtent::Part => ops.push(*op),
                WriteExtent::All => {
                    // Earlier operations on the place were overwritten.
                    ops.push(*op);
                    break;
                }
            }
        }
        if !ops.is_empty() {
            ops.sort_unstable();
            ops.dedup();
            return Ok(Some(Writer { record: *record, ops, pointer: after }));
        }
    }
    Ok(None)
}

/// Effects of every commit: index of the record, and index of the operation with its effect.
type Touches = Vec<(usize, Vec<(usize, Touch)>)>;

fn touches(initial: &State, records: &[Record]) -> Result<Touches, usize> {
    // The patches passed validation once, so limits need not apply again.
    let patch_limits = PatchLimits { max_ops: u32::MAX, max_bytes: u32::MAX, ..PatchLimits::default() };
    let limits = ResultLimits { bytes: u64::MAX, depth: u32::MAX };
    let mut candidate = initial.candidate();
    let mut commits = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let Ok(Body::Committed(committed)) = record.body() else { continue };
        let ops = patch::parse(&committed.patch, &patch_limits).map_err(|_| index)?;
        let mut touches = Vec::new();
        for (number, op) in ops.iter().enumerate() {
            touches.extend(touches_of(&candidate, op).into_iter().map(|touch| (number, touch)));
            candidate.apply(op, limits).map_err(|_| index)?;
        }
        commits.push((index, touches));
    }
    Ok(commits)
}

fn touches_of(candidate: &Candidate, op: &Op<'_>) -> Vec<Touch> {
    let effect = candidate.effect(op);
    let lands_at = effect.lands_at.to_string();
    let arrival = match (effect.kind, element(&lands_at)) {
        (Some(GrantOp::Insert), Some((array, index))) => Touch::Inserted { array: array.to_owned(), index },
        _ => Touch::At(lands_at),
    };
    let departure = |path: &jsonptr::Pointer| {
        let text = path.to_string();
        let in_array =
            path.parent().and_then(|parent| candidate.get(parent)).is_some_and(|node| node.as_array().is_some());
        match element(&text) {
            Some((array, index)) if in_array => Touch::Removed { array: array.to_owned(), index },
            _ => Touch::At(text),
        }
    };
    match op {
        Op::Test { .. } => Vec::new(),
        Op::Add { .. } | Op::Replace { .. } | Op::Copy { .. } => vec![arrival],
        Op::Remove { path } => vec![departure(path)],
        Op::Move { from, .. } => vec![departure(from), arrival],
    }
}

/// Part of a place that an operation wrote.
enum WriteExtent {
    Nothing,
    Part,
    All,
}

/// Maps a place to its pointer before an operation.
fn step_back(touch: &Touch, place: &mut String) -> WriteExtent {
    let (array, index, inserted) = match touch {
        Touch::At(at) if is_within(place, at) => return WriteExtent::All,
        Touch::At(at) if is_within(at, place) => return WriteExtent::Part,
        Touch::At(_) => return WriteExtent::Nothing,
        Touch::Inserted { array, index } => (array, *index, true),
        Touch::Removed { array, index } => (array, *index, false),
    };
    if is_within(array, place) {
        // The place is the array or an ancestor, and an element was added or removed.
        return WriteExtent::Part;
    }
    let Some((own, rest)) = index_within(place, array) else { return WriteExtent::Nothing };
    let before = match (inserted, own.cmp(&index)) {
        (true, std::cmp::Ordering::Equal) => return WriteExtent::All,
        (true, std::cmp::Ordering::Greater) => own - 1,
        (false, std::cmp::Ordering::Equal | std::cmp::Ordering::Greater) => own + 1,
        (_, std::cmp::Ordering::Less) => own,
    };
    *place = format!("{array}/{before}{rest}");
    WriteExtent::Nothing
}

/// Returns true if `inner` is `outer` or lies below it.
fn is_within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Splits a pointer into array and index, if its last token is an index.
fn element(pointer: &str) -> Option<(&str, usize)> {
    let (array, index) = pointer.rsplit_once('/')?;
    Some((array, index.parse().ok()?))
}

/// Returns a place's index in an array, and the rest of its pointer.
fn index_within<'p>(place: &'p str, array: &str) -> Option<(usize, &'p str)> {
    let below = place.strip_prefix(array)?.strip_prefix('/')?;
    let end = below.find('/').unwrap_or(below.len());
    Some((below[..end].parse().ok()?, &below[end..]))
}

#[cfg(test)]
mod tests;
