//! Finds the sources of `copy` and `move`: values that the target's schema and its grant accept.
//!
//! Copy sources are shown values at any depth, so that one sentence of a document can be copied. Move sources need a
//! grant to remove.

use std::collections::BTreeSet;

use jsonptr::Pointer;
use serde_json::Value;

use super::expression;
use super::need::Need;
use super::places::{KnownDocument, PLACES_MAX, Places};
use super::value::{self, Detail};
use crate::blueprint::GrantOp;
use crate::schema::Schema;
use crate::targets::index_in;
use crate::tree::Node;

/// Maximum number of values that one search examines.
const STEPS_MAX: usize = 4096;
/// Maximum bytes of values that one search validates. The values are part of a view, and each is validated again within
/// every container around it.
const BYTES_MAX: u64 = 256 * 1024;
/// Maximum number of expressions for places that are too many to list.
const SHAPES_MAX: usize = 8;
/// Maximum number of source and target lists for the moves of one grant.
const MOVES_MAX: usize = 4;

/// Sources and targets of a move.
pub(super) struct Move {
    pub(super) from: Places,
    pub(super) path: Places,
}

/// Returns a test for the target's schema, as far as it is known, and the grant's schema.
pub(super) fn fits<'a>(at_target: &Value, granted: Option<&'a Schema>) -> Box<dyn Fn(&Node) -> bool + 'a> {
    let Some(schema) = value::finish(at_target, Detail { described: false, depth: usize::MAX }) else {
        return Box::new(|_| false);
    };
    let kinds: Option<Vec<String>> = schema.get("type").map(|kinds| match kinds {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        kind => kind.as_str().map(str::to_owned).into_iter().collect(),
    });
    // A part that cannot be compiled separately is left to the kernel's own check.
    let at_target = Schema::compile(&schema, false).ok();
    Box::new(move |node| {
        // Most values fail the type check, and converting a container costs its size.
        if kinds.as_ref().is_some_and(|kinds| !kinds.iter().any(|kind| has_type(node, kind))) {
            return false;
        }
        let value = node.to_value();
        at_target.as_ref().is_none_or(|schema| schema.is_valid(&value))
            && granted.is_none_or(|schema| schema.is_valid(&value))
    })
}

fn has_type(node: &Node, kind: &str) -> bool {
    match node {
        Node::Array(_) => kind == "array",
        Node::Object(_) => kind == "object",
        Node::Null | Node::Bool(_) | Node::Number(_) | Node::Short(_) | Node::Long(_) => {
            value::has_type(&node.to_value(), kind)
        }
    }
}

/// Returns the places of shown values that fit.
pub(super) fn readable(document: &KnownDocument<'_>, fits: &dyn Fn(&Node) -> bool) -> Places {
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
            // Reversed, so that the first is popped first.
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
        let reads = document.worker_plan.contract.declared_reads();
        let contract = &document.worker_plan.contract;
        let reads = reads.map(|pattern| expression::of_pattern(contract.template(pattern), document.schema, None));
        reads.map(|read| expression::at_or_below(&read)).collect()
    };
    found
}

/// Returns the possible moves to the places of a grant.
///
/// Removing an element shifts the indices behind it, and a move is validated after the removal. Only targets that keep
/// their place and their meaning are offered for each source.
pub(super) fn moves(document: &KnownDocument<'_>, path: Places, fits: &dyn Fn(&Node) -> bool) -> Vec<Move> {
    let mut from = Places::default();
    for grant in
        document.worker_plan.contract.grants(document.schema).filter(|grant| grant.ops.contains(&GrantOp::Remove))
    {
        from.join(document.places(grant.pattern, Need::Overwrite));
    }
    // Unreadable values are not examined: the result of the check would reveal them.
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

/// Returns the places that keep their meaning once the value at `from` is removed.
fn without(path: &Places, from: &Pointer, document: &KnownDocument<'_>) -> Places {
    let element = document.array_of(from).and_then(|(array, length)| Some((array, index_in(from, array)?.0, length)));
    let keeps = |place: &Pointer| {
        if place.starts_with(from) {
            return false;
        }
        let Some((array, taken, length)) = element else { return true };
        match index_in(place, array) {
            None => true,
            // After a removal the last index is the append position.
            Some((index, rest)) if rest.is_root() => length.is_none_or(|length| index + 1 < length),
            Some((index, _)) => index < taken,
        }
    };
    let exact = path.exact.iter().filter(|place| keeps(place)).cloned().collect();
    let free = path.free.iter().filter(|(object, _)| keeps(object)).cloned().collect();
    Places { exact, free, ..path.clone() }
}
