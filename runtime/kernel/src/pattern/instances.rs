//! The places of a document that a pattern matches: all of them, or those that changed.

use jsonptr::PointerBuf;

use super::{Pattern, PatternToken, Positions};
use crate::tree::{Array, Node, Since};

/// A place that a pattern matches.
#[derive(Clone, Debug)]
pub struct Instance<'a> {
    /// Where it is.
    pub place: PointerBuf,
    /// What is there, and whether it was there before.
    pub part: Since<'a>,
}

impl Pattern {
    /// The locations of an existing document that it matches, in document order, at most `max`; `-` matches none.
    /// Members come in the order of their names.
    pub fn instances<'a>(&self, root: &'a Node, max: usize) -> Vec<Instance<'a>> {
        self.instances_since(Since::anew(root), max)
    }

    /// Those in which something changed, in the same order, at most `max`.
    ///
    /// An instance whose `part` is new was not there before, or something else was; any other was an instance before,
    /// at this place or, where an insertion or removal moved it, at another. One that was only moved is left out,
    /// unless the pattern names its index: what is at `/queue/0` now may not have been an instance before. Costs what
    /// was touched: what did not change is not entered.
    pub fn instances_since<'a>(&self, root: Since<'a>, max: usize) -> Vec<Instance<'a>> {
        self.instances_where(root, max, false)
    }

    /// Returns them, and elements that are only moved: they have another index.
    pub fn instances_since_or_moved<'a>(&self, root: Since<'a>, max: usize) -> Vec<Instance<'a>> {
        self.instances_where(root, max, true)
    }

    fn instances_where<'a>(&self, root: Since<'a>, max: usize, with_moved: bool) -> Vec<Instance<'a>> {
        let mut found = Vec::new();
        let mut pending = vec![(PointerBuf::root(), root, self.start())];
        while let Some((place, part, positions)) = pending.pop() {
            if found.len() == max {
                break;
            }
            let from = pending.len();
            let mut visit = |token: &str, below: Since<'a>| {
                let positions = self.step(positions, token, false);
                if positions != 0 && below.is_touched() {
                    pending.push((place.with_trailing_token(token), below, positions));
                }
            };
            match (part.node, self.only_name(positions)) {
                _ if !self.goes_on(positions) => {}
                (Node::Array(array), Some(name)) => {
                    if let Some(slot) = part.node.slot(name) {
                        let is_shifted = self.shifted(positions, array, &part, false).next().is_some();
                        visit(name, if is_shifted { Since::anew(slot.0) } else { part.below(slot) });
                    }
                }
                (Node::Object(object), Some(name)) => {
                    object.slot(name).into_iter().for_each(|slot| visit(name, part.below(slot)));
                }
                (Node::Array(array), None) if part.is_new() => {
                    let below = array.iter().enumerate();
                    below.for_each(|(index, node)| visit(&index.to_string(), Since { node, ..part }));
                }
                (Node::Object(object), None) if part.is_new() => {
                    object.iter().for_each(|(name, node)| visit(name, Since { node, ..part }));
                }
                (Node::Array(array), None) => {
                    let touched = array.touched_since(part.version).into_iter();
                    let mut below: Vec<_> =
                        touched.map(|(index, node, stamp)| (index, part.below((node, stamp)))).collect();
                    for index in self.shifted(positions, array, &part, with_moved) {
                        let Some(node) = array.get(index) else { continue };
                        match below.binary_search_by_key(&index, |(index, _)| *index) {
                            Ok(at) => below[at].1 = Since::anew(node),
                            Err(at) => below.insert(at, (index, Since::anew(node))),
                        }
                    }
                    below.into_iter().for_each(|(index, below)| visit(&index.to_string(), below));
                }
                (Node::Object(object), None) => {
                    let touched = object.touched_since(part.version).into_iter();
                    touched.for_each(|(name, node, stamp)| visit(name, part.below((node, stamp))));
                }
                (Node::Null | Node::Bool(_) | Node::Number(_) | Node::Short(_) | Node::Long(_), _) => {}
            }
            // The first is to be taken first.
            pending[from..].reverse();
            if self.is_end(positions) && part.is_touched() {
                found.push(Instance { place, part });
            }
        }
        found
    }

    /// Whether a token can be taken from there.
    fn goes_on(&self, positions: Positions) -> bool {
        positions & !(1 << self.tokens.len()) != 0
    }

    /// The one token that can be taken from there, if there is only one.
    fn only_name(&self, positions: Positions) -> Option<&str> {
        let at = usize::try_from(positions.trailing_zeros()).ok()?;
        match self.tokens.get(at) {
            Some(PatternToken::Literal(name)) if positions == 1 << at => Some(name),
            _ => None,
        }
    }

    /// The indices that can be taken from there by name, or by a wildcard, too, and hold what was elsewhere before.
    fn shifted(
        &self,
        positions: Positions,
        array: &Array,
        part: &Since<'_>,
        with_moved: bool,
    ) -> impl Iterator<Item = usize> {
        let all = if with_moved && array.lost_since(part.version).is_some() { array.len() } else { 0 };
        let names = self.tokens.iter().enumerate().filter_map(move |(at, token)| match token {
            PatternToken::Literal(name) if positions >> at & 1 == 1 && super::is_index(name) => name.parse().ok(),
            _ => None,
        });
        let version = part.version;
        names.chain(0..all).filter(move |index| *index < array.len() && array.shifted_since(*index, version).is_some())
    }
}
