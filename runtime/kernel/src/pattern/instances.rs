//! Enumerates the places of a document that a pattern matches: all of them, or those that changed.

use jsonptr::PointerBuf;

use super::{Pattern, PatternToken, Positions};
use crate::tree::{Array, ChangesSince, Node};

/// A place that a pattern matches.
#[derive(Clone, Debug)]
pub struct Instance<'a> {
    /// Location of the match.
    pub place: PointerBuf,
    /// The value, and its change since a version.
    pub part: ChangesSince<'a>,
}

impl Pattern {
    /// Returns the matching places of a document, in document order, at most `max`; `-` matches none. Members are in
    /// the order of their names.
    pub fn instances<'a>(&self, root: &'a Node, max: usize) -> Vec<Instance<'a>> {
        self.instances_since(ChangesSince::all_changed(root), max)
    }

    /// Returns the matching places with a change, in the same order, at most `max`.
    ///
    /// A new `part` means that the value was not an instance at this place before. Any other part was an instance, at
    /// this place or, before an insertion or removal moved it, at another. Elements that only moved are left out unless
    /// the pattern names their index: the value at `/queue/0` may not have been an instance before. The cost depends on
    /// the changes alone, since unchanged values are not entered.
    pub fn instances_since<'a>(&self, root: ChangesSince<'a>, max: usize) -> Vec<Instance<'a>> {
        self.instances_where(root, max, false)
    }

    /// Like [`Self::instances_since`], but includes elements that only moved and so have another index.
    pub fn instances_since_or_moved<'a>(&self, root: ChangesSince<'a>, max: usize) -> Vec<Instance<'a>> {
        self.instances_where(root, max, true)
    }

    fn instances_where<'a>(&self, root: ChangesSince<'a>, max: usize, with_moved: bool) -> Vec<Instance<'a>> {
        let mut found = Vec::new();
        let mut pending = vec![(PointerBuf::root(), root, self.start())];
        while let Some((place, part, positions)) = pending.pop() {
            if found.len() == max {
                break;
            }
            let from = pending.len();
            let mut visit = |token: &str, below: ChangesSince<'a>| {
                let positions = self.step(positions, token, false);
                if positions != 0 && below.is_changed() {
                    pending.push((place.with_trailing_token(token), below, positions));
                }
            };
            match (part.node, self.only_name(positions)) {
                _ if !self.goes_on(positions) => {}
                (Node::Array(array), Some(name)) => {
                    if let Some(slot) = part.node.slot(name) {
                        let is_shifted = self.shifted(positions, array, &part, false).next().is_some();
                        visit(name, if is_shifted { ChangesSince::all_changed(slot.0) } else { part.below(slot) });
                    }
                }
                (Node::Object(object), Some(name)) => {
                    object.slot(name).into_iter().for_each(|slot| visit(name, part.below(slot)));
                }
                (Node::Array(array), None) if part.is_new() => {
                    let below = array.iter().enumerate();
                    below.for_each(|(index, node)| visit(&index.to_string(), ChangesSince { node, ..part }));
                }
                (Node::Object(object), None) if part.is_new() => {
                    object.iter().for_each(|(name, node)| visit(name, ChangesSince { node, ..part }));
                }
                (Node::Array(array), None) => {
                    let touched = array.changed_since(part.version).into_iter();
                    let mut below: Vec<_> =
                        touched.map(|(index, node, stamp)| (index, part.below((node, stamp)))).collect();
                    for index in self.shifted(positions, array, &part, with_moved) {
                        let Some(node) = array.get(index) else { continue };
                        match below.binary_search_by_key(&index, |(index, _)| *index) {
                            Ok(at) => below[at].1 = ChangesSince::all_changed(node),
                            Err(at) => below.insert(at, (index, ChangesSince::all_changed(node))),
                        }
                    }
                    below.into_iter().for_each(|(index, below)| visit(&index.to_string(), below));
                }
                (Node::Object(object), None) => {
                    let touched = object.changed_since(part.version).into_iter();
                    touched.for_each(|(name, node, stamp)| visit(name, part.below((node, stamp))));
                }
                (Node::Null | Node::Bool(_) | Node::Number(_) | Node::Short(_) | Node::Long(_), _) => {}
            }
            // Reversed, so that the first is popped first.
            pending[from..].reverse();
            if self.is_end(positions) && part.is_changed() {
                found.push(Instance { place, part });
            }
        }
        found
    }

    /// Returns true if another token can match from there.
    fn goes_on(&self, positions: Positions) -> bool {
        positions & !(1 << self.tokens.len()) != 0
    }

    /// Returns the only token that can match from there, if there is only one.
    fn only_name(&self, positions: Positions) -> Option<&str> {
        let at = usize::try_from(positions.trailing_zeros()).ok()?;
        match self.tokens.get(at) {
            Some(PatternToken::Literal(name)) if positions == 1 << at => Some(name),
            _ => None,
        }
    }

    /// Returns the indices that can match by name, or by a wildcard too, and hold a value that was elsewhere before.
    fn shifted(
        &self,
        positions: Positions,
        array: &Array,
        part: &ChangesSince<'_>,
        with_moved: bool,
    ) -> impl Iterator<Item = usize> {
        let all = if with_moved && array.removed_since(part.version).is_some() { array.len() } else { 0 };
        let names = self.tokens.iter().enumerate().filter_map(move |(at, token)| match token {
            PatternToken::Literal(name) if positions >> at & 1 == 1 && super::is_index(name) => name.parse().ok(),
            _ => None,
        });
        let version = part.version;
        names.chain(0..all).filter(move |index| *index < array.len() && array.shifted_since(*index, version).is_some())
    }
}
