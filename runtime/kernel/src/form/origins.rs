//! Finds what can be copied and moved: values whose shape the target and its grant accept.
//!
//! Copied is from what was shown, at any depth, so that one sentence of a document can be taken. Moved is from where
//! removing is granted.

use std::collections::BTreeSet;

use jsonptr::Pointer;
use serde_json::Value;

use super::expression;
use super::places::{Document, Need, PLACES_MAX, Places};
use super::value::{self, Detail};
use crate::blueprint::GrantOp;
use crate::freshness::index_in;
use crate::schema::Schema;
use crate::tree::Node;

/// The most values that one search looks at.
const STEPS_MAX: usize = 4096;
/// The most bytes of values that one search checks against schemas. The values lie in a view, and each is checked with
/// everything around it.
const BYTES_MAX: u64 = 256 * 1024;
/// The most expressions by which places are told that are too many to list.
const SHAPES_MAX: usize = 8;
/// The most pairs of lists that the moves of one grant are told by.
const MOVES_MAX: usize = 4;

/// Something that can be moved, and where to.
pub(super) struct Move {
    pub(super) from: Places,
    pub(super) path: Places,
}

/// Whether a value satisfies the schema at a target and that of its grant, as far as the first is known.
pub(super) fn fits<'a>(at_target: &Value, granted: Option<&'a Schema>) -> Box<dyn Fn(&Node) -> bool + 'a> {
    let Some(schema) = value::finish(at_target, Detail { described: false, depth: usize::MAX }) else {
        return Box::new(|_| false);
    };
    let kinds: Option<Vec<String>> = schema.get("type").map(|kinds| match kinds {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        kind => kind.as_str().map(str::to_owned).into_iter().collect(),
    });
    // What cannot be compiled apart is left to the kernel's own check.
    let at_target = Schema::compile(&schema, false).ok();
    Box::new(move |node| {
        // Of the wrong type are most, and a container costs what it holds.
        if kinds.as_ref().is_some_and(|kinds| !kinds.iter().any(|kind| is(node, kind))) {
            return false;
        }
        let value = node.to_value();
        at_target.as_ref().is_none_or(|schema| schema.is_valid(&value))
            && granted.is_none_or(|schema| schema.is_valid(&value))
    })
}

fn is(node: &Node, kind: &str) -> bool {
    match node {
        Node::Array(_) => kind == "array",
        Node::Object(_) => kind == "object",
        Node::Null | Node::Bool(_) | Node::Number(_) | Node::Short(_) | Node::Long(_) => {
            value::is(&node.to_value(), kind)
        }
    }
}

/// The places of values that were shown and fit.
pub(super) fn readable(document: &Document<'_>, fits: &dyn Fn(&Node) -> bool) -> Places {
    let mut found = Places::default();
    let mut shapes = BTreeSet::new();
    let (mut steps, mut bytes, mut is_complete) = (0, 0, true);
    let reads = document.read().map(|spot| (spot.place, spot.node)).collect::<Vec<_>>();
    for (place, node) in reads {
        let mut pending = vec![(place, node)];
        while let Some((place, node)) = pending.pop() {
            let Some(node) = node else { continue };
            steps += 1;
            bytes += node.bytes();
            if steps > STEPS_MAX || bytes > BYTES_MAX {
                is_complete = false;
                break;
            }
            let below = pending.len();
            match node {
                Node::Array(array) => {
                    let items = array.iter().take(STEPS_MAX).enumerate();
                    pending.extend(items.map(|(index, item)| (place.with_trailing_token(index), Some(item))));
                }
                Node::Object(object) => {
                    let members = object.iter().take(STEPS_MAX);
                    pending
                        .extend(members.map(|(name, member)| (place.with_trailing_token(name.as_str()), Some(member))));
                }
                Node::Null | Node::Bool(_) | Node::Number(_) | Node::Short(_) | Node::Long(_) => {}
            }
            // The first is to be taken first.
            pending[below..].reverse();
            if fits(node) {
                shapes.insert(expression::shape(&place));
                if found.exact.len() <= PLACES_MAX {
                    found.exact.push(place);
                }
            }
        }
    }
    found.is_cut = !is_complete || found.exact.len() > PLACES_MAX;
    found.general = if is_complete && shapes.len() <= SHAPES_MAX {
        shapes.into_iter().collect()
    } else {
        let reads = document.seat.contract.declared_reads();
        let contract = &document.seat.contract;
        let reads = reads.map(|pattern| expression::of_pattern(contract.template(pattern), document.schema, None));
        reads.map(|read| expression::at_or_below(&read)).collect()
    };
    found
}

/// What can be moved to the places of a grant.
///
/// What lies behind an element in its array gets another index when the element goes, and a move is judged by what it
/// finds then: of each value, only those places are told that stay where and what they are.
pub(super) fn moves(document: &Document<'_>, path: Places, fits: &dyn Fn(&Node) -> bool) -> Vec<Move> {
    let mut from = Places::default();
    for grant in document.seat.contract.grants(document.schema).filter(|grant| grant.ops.contains(&GrantOp::Remove)) {
        from.join(document.places(grant.pattern, Need::Overwrite));
    }
    // What may not be read is not looked at: that it fits or not would tell of it.
    let value = |place: &Pointer| document.value(place);
    from.exact.retain(|place| value(place).is_none_or(|node| node.bytes() > BYTES_MAX || fits(node)));
    if !from.is_listed() || !path.is_listed() {
        return vec![Move { from, path }];
    }
    let mut moves: Vec<Move> = Vec::new();
    for place in &from.exact {
        let path = without(&path, place, document);
        match moves.iter_mut().find(|group| group.path.exact == path.exact && group.path.free == path.free) {
            Some(group) => group.from.exact.push(place.clone()),
            None if path.is_empty() => {}
            None => {
                let from = Places { exact: vec![place.clone()], general: from.general.clone(), ..Places::default() };
                moves.push(Move { from, path });
            }
        }
    }
    if moves.len() > MOVES_MAX {
        return vec![Move { from: Places { is_cut: true, ..from }, path }];
    }
    moves
}

/// The places that stay what they are without what is at `from`.
fn without(path: &Places, from: &Pointer, document: &Document<'_>) -> Places {
    let element = document.array_of(from).and_then(|(array, length)| Some((array, index_in(from, array)?.0, length)));
    let keeps = |place: &Pointer| {
        if place.starts_with(from) {
            return false;
        }
        let Some((array, taken, length)) = element else { return true };
        match index_in(place, array) {
            None => true,
            // The last index is where to append, once one of the elements is gone.
            Some((index, rest)) if rest.is_root() => length.is_none_or(|length| index + 1 < length),
            Some((index, _)) => index < taken,
        }
    };
    let exact = path.exact.iter().filter(|place| keeps(place)).cloned().collect();
    let free = path.free.iter().filter(|(object, _)| keeps(object)).cloned().collect();
    Places { exact, free, ..path.clone() }
}
