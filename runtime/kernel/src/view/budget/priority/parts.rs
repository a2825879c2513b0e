//! Parts of a collection with priority: the first requested one, and the names of those that are not shown.

use jsonptr::Pointer;

use super::super::super::search::{self, Order, Search};
use super::super::super::{DISTINCT, summary, text};
use super::super::Selector;
use super::{AND_MORE, FROM_THERE, HELD_STEPS, ID, NAME_MAX, NAME_SHARE, NO_ROOM, Page, id_of, pointer};
use crate::expand_request::{RangeStart, TRUNCATION_MARK};
use crate::pattern::PatternToken;
use crate::tree::{Node, PathSegment};

impl<'a> Selector<'a, '_> {
    /// Returns the first requested part of a container, by index and by name. A number is an index, or a name in an
    /// object; a name is the `id` of an element in an array, or an index.
    pub(super) fn first_part(
        &self,
        value: &Node,
        path: &[PathSegment<'_>],
        from: Option<&RangeStart>,
    ) -> (usize, String) {
        let name = match from {
            None => return (0, String::new()),
            Some(RangeStart::Number(number)) => {
                return (usize::try_from(*number).unwrap_or(usize::MAX), number.to_string());
            }
            Some(from) if self.input.compiler >= DISTINCT && value.as_array().is_none() => {
                return (0, from.name_in(value).into_owned());
            }
            Some(RangeStart::Name(name)) => name,
        };
        let Node::Array(elements) = value else { return (0, name.clone()) };
        let container = pointer(path);
        let has_id = |(index, element): (usize, &Node)| {
            let is_it = element.child(ID).and_then(Node::as_str) == Some(name);
            is_it && self.may_read(&id_of(&PathSegment::Index(index).below(&container)))
        };
        let by_id = elements.iter().enumerate().position(has_id);
        let by_index = || name.parse().ok().filter(|index: &usize| index.to_string() == *name);
        (by_id.or_else(by_index).unwrap_or(elements.len()), name.clone())
    }

    /// Names the parts of a page that are not shown; `None` without such parts.
    pub(in super::super) fn names(&self, page: &Page<'_>, is_shown: &dyn Fn(usize) -> bool) -> Option<String> {
        let Page { node, place, value, path, first: (index, name), is_from_start, chars } = page;
        let (mut out, mut is_cut, mut way) = (String::new(), false, path.clone());
        let mut before = name.as_str();
        for (number, (step, part)) in self.seen_parts(place, value, (*index, name)).enumerate() {
            // Unnamed parts count as well.
            if number >= self.bounds.steps {
                is_cut = true;
                break;
            }
            #[cfg(test)]
            crate::view::tests::visit();
            let place = step.below(place);
            way.truncate(path.len());
            way.push(step);
            let is_shown = match node {
                Some(node) => {
                    let children = &self.layout.nodes[*node].children;
                    let child = children.get([step].as_slice()).or_else(|| children.get(way.as_slice()));
                    child.is_some_and(|child| is_shown(*child))
                }
                None => self.shows_below(&way),
            };
            // A name that may not be read must not affect the next one.
            if !is_shown && node.is_none() && !self.holds_readable(&place, &way, part) {
                continue;
            }
            let previous = before;
            if let PathSegment::Key(key) = step {
                before = key.as_str();
            }
            if is_shown {
                continue;
            }
            let end = out.len();
            if end > 0 {
                out.push_str(", ");
            }
            match step {
                PathSegment::Key(name) => {
                    let most = match self.input.compiler >= DISTINCT {
                        true => (common(previous, name.as_str()) + 1).max(NAME_MAX.min(chars / NAME_SHARE)),
                        false => NAME_MAX,
                    };
                    push_part_name(&mut out, name.as_str(), most);
                }
                PathSegment::Index(index) => {
                    search::push_index(&mut out, index);
                    let id = part.child(ID).filter(|id| !id.has_parts() && self.may_read(&id_of(&place)));
                    if let Some(id) = id.and_then(|id| text::short(id, summary::ID_MAX)) {
                        out.push_str(&format!(" ({id})"));
                    }
                }
            }
            if text::chars(&out) + AND_MORE.len() > *chars {
                out.truncate(end);
                is_cut = true;
                break;
            }
        }
        let more = match (out.is_empty(), is_cut) {
            (true, false) => return None,
            (true, true) => NO_ROOM,
            (false, true) => AND_MORE,
            (false, false) => "",
        };
        Some([if *is_from_start { "" } else { FROM_THERE }, &out, more].concat())
    }

    /// Returns true if a place or one below it may be read.
    pub(super) fn holds_readable(&self, place: &Pointer, way: &[PathSegment<'_>], part: &Node) -> bool {
        let finds = |which: usize| {
            let search = Search::new(part, self.reads, which, Order::Document, HELD_STEPS);
            search.below(way.to_vec(), part, 0).next().is_some()
        };
        let reaching = |which: &usize| self.reads.patterns[*which].reaches_below(place);
        self.may_read(place) || (0..self.reads.patterns.len()).filter(reaching).any(finds)
    }

    pub(super) fn may_read(&self, place: &Pointer) -> bool {
        self.reads.patterns.iter().any(|read| read.covers(place))
    }

    /// Returns the parts of a container with readable content, from a start on. If patterns name the parts, no others
    /// are visited, so that these cannot affect the view.
    pub(super) fn seen_parts<'n>(
        &self,
        container: &Pointer,
        value: &'n Node,
        (index, name): (usize, &'n str),
    ) -> Box<dyn Iterator<Item = (PathSegment<'n>, &'n Node)> + 'n>
    where
        'a: 'n,
    {
        let depth = container.tokens().count();
        let reading = self.reads.patterns.iter().filter(|read| read.covers(container) || read.reaches_below(container));
        let mut named = Vec::new();
        for read in reading {
            let tokens = read.tokens();
            match tokens.get(depth) {
                Some(PatternToken::Literal(name)) if !tokens[..depth].contains(&PatternToken::Deep) => {
                    named.extend(value.part(name).map(|(step, part, _)| (step, part)));
                }
                // Matches no existing part.
                Some(PatternToken::Bound(_) | PatternToken::Append) => {}
                _ => return value.parts_from(index, name),
            }
        }
        named.sort_unstable_by_key(|(step, _)| *step);
        named.dedup_by_key(|(step, _)| *step);
        named.retain(|(step, _)| match step {
            PathSegment::Index(at) => *at >= index,
            PathSegment::Key(key) => key.as_str() >= name,
        });
        Box::new(named.into_iter())
    }
}

/// Returns the length of the common prefix in characters.
fn common(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count()
}

/// Appends a name to `out`, or the beginning of one with more than `most` characters.
fn push_part_name(out: &mut String, name: &str, most: usize) {
    match name.char_indices().nth(most) {
        None => text::push_name(out, name),
        Some((end, _)) => {
            text::push_name(out, &name[..end]);
            out.push(TRUNCATION_MARK);
        }
    }
}
