//! Layout tree of the readable state, with lines as leaves; laid out lazily.
//!
//! Owns the decision where a value is split. A short value is one line; a collection is one line per element, so that
//! indices are visible and parts can be left out. Only values covered by the read patterns enter the tree, so later
//! stages can show nothing else.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::pattern::Pattern;
use crate::tree::{self, PathSegment, Revision, equal_by_order};

use super::search::{Found, push_step, push_steps};
use super::text;

/// Maximum characters of JSON of a value with parts that stays on one line.
const LINE_MAX: usize = 500;
/// Maximum members of an ordinary object; a larger one is treated as a collection by name.
const FIELDS_MAX: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A read pattern that names one place.
    Place,
    /// A read pattern with wildcards; its children need not be neighbours.
    Pattern,
    /// An array, shown by its elements.
    Array,
    /// An object, shown by its members.
    Object,
    Line,
}

/// Path to a node from its parent: one step, or below a pattern the steps from the root. Ordered like the document.
#[derive(Clone, Debug)]
pub(super) enum NodePath<'a> {
    Step(PathSegment<'a>),
    Steps(Box<[PathSegment<'a>]>),
}

impl<'a> NodePath<'a> {
    pub(super) fn steps(&self) -> &[PathSegment<'a>] {
        match self {
            Self::Step(step) => std::slice::from_ref(step),
            Self::Steps(steps) => steps,
        }
    }
}

impl<'a> Borrow<[PathSegment<'a>]> for NodePath<'a> {
    fn borrow(&self) -> &[PathSegment<'a>] {
        self.steps()
    }
}

equal_by_order!(NodePath<'_>);

impl Ord for NodePath<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.steps().cmp(other.steps())
    }
}

/// A node of the tree. It has no text of its own: most are laid out only to find that they do not fit.
pub(super) struct Node<'a> {
    pub(super) kind: Kind,
    way: NodePath<'a>,
    /// The value; absent for a pattern.
    pub(super) value: Option<&'a tree::Node>,
    /// Length of the JSON in characters, if counted.
    pub(super) length: Option<usize>,
    /// Version that put the value at this place.
    pub(super) floor: Revision,
    pub(super) parent: Option<usize>,
    /// Children laid out so far, in document order.
    pub(super) children: BTreeMap<NodePath<'a>, usize>,
}

/// The readable state, as far as it is laid out.
pub(super) struct Layout<'a> {
    reads: &'a [Pattern],
    /// Parents precede their children; the first nodes are one for each pattern.
    pub(super) nodes: Vec<Node<'a>>,
}

impl<'a> Layout<'a> {
    /// Lays out the patterns themselves.
    pub(super) fn new(reads: &'a [Pattern]) -> Self {
        /// Enough for most states.
        const NODES: usize = 64;
        let root = |pattern: &Pattern| Node {
            kind: if pattern.is_place() { Kind::Place } else { Kind::Pattern },
            way: NodePath::Steps(Box::default()),
            value: None,
            length: None,
            floor: 0,
            parent: None,
            children: BTreeMap::new(),
        };
        let mut nodes = Vec::with_capacity(reads.len() + NODES);
        nodes.extend(reads.iter().map(root));
        Self { reads, nodes }
    }

    /// Lays out a place of the pattern `root`, if it is new; returns its node.
    pub(super) fn top(&mut self, root: usize, found: Found<'a>) -> usize {
        let Found { path, value, floor } = found;
        self.below(root, NodePath::Steps(path.into()), value, floor)
    }

    /// Lays out a part of a value, if it is new; returns its node.
    pub(super) fn child(
        &mut self,
        parent: usize,
        step: PathSegment<'a>,
        value: &'a tree::Node,
        floor: Revision,
    ) -> usize {
        self.below(parent, NodePath::Step(step), value, floor)
    }

    fn below(&mut self, parent: usize, way: NodePath<'a>, value: &'a tree::Node, floor: Revision) -> usize {
        let is_top = matches!(way, NodePath::Steps(_));
        let node = self.nodes.len();
        match self.nodes[parent].children.entry(way.clone()) {
            Entry::Occupied(there) => return *there.get(),
            Entry::Vacant(vacant) => vacant.insert(node),
        };
        let (kind, length) = form_of(value, is_top);
        let (value, parent, children) = (Some(value), Some(parent), BTreeMap::new());
        self.nodes.push(Node { kind, way, value, length, floor, parent, children });
        node
    }

    /// Splits a one-line value into its parts.
    pub(super) fn split(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.kind = match node.value {
            Some(tree::Node::Array(elements)) if !elements.is_empty() => Kind::Array,
            Some(tree::Node::Object(members)) if !members.is_empty() => Kind::Object,
            _ => node.kind,
        };
    }

    /// Returns the JSON Pointer of a value; for a pattern, its text.
    pub(super) fn label(&self, node: usize) -> String {
        /// Enough bytes for most labels.
        const BYTES: usize = 32;
        let mut label = String::with_capacity(BYTES);
        self.push_label(&mut label, node);
        label
    }

    /// Appends the label of a node to `out`.
    pub(super) fn push_label(&self, out: &mut String, node: usize) {
        let Node { parent, way, .. } = &self.nodes[node];
        match (parent, way) {
            (None, _) => out.push_str(&self.reads[node].to_string()),
            (Some(parent), NodePath::Step(step)) => {
                self.push_label(out, *parent);
                push_step(out, *step);
            }
            (Some(_), NodePath::Steps(steps)) => push_steps(out, steps),
        }
    }

    /// Returns all nodes, pattern by pattern and in document order below; parents precede their children.
    pub(super) fn in_order(&self) -> Vec<usize> {
        let roots = (0..self.nodes.len()).filter(|node| self.nodes[*node].parent.is_none());
        let mut stack: Vec<usize> = roots.collect();
        stack.reverse();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(node) = stack.pop() {
            order.push(node);
            stack.extend(self.nodes[node].children.values().rev());
        }
        order
    }

    /// Returns the ancestors of a node, nearest first.
    pub(super) fn above(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.nodes[node].parent, |node| self.nodes[*node].parent)
    }

    /// Returns true if the number of the node's members is expected to vary.
    pub(super) fn is_collection(&self, node: usize) -> bool {
        let node = &self.nodes[node];
        match node.kind {
            Kind::Pattern | Kind::Array => true,
            Kind::Object => node.value.is_some_and(|value| value.part_count() > FIELDS_MAX),
            Kind::Place | Kind::Line => false,
        }
    }
}

/// Returns the kind of a value's node. A top-level value is split as soon as it has parts that merit a line.
pub(super) fn kind_of(value: &tree::Node, is_top: bool) -> Kind {
    form_of(value, is_top).0
}

/// Returns the kind, and the length of the JSON in characters if it was counted.
fn form_of(value: &tree::Node, is_top: bool) -> (Kind, Option<usize>) {
    #[cfg(test)]
    super::tests::visit();
    // The length check comes first: a value that fits is short, and so is the scan of its parts.
    let line_unless = |kind: Kind, must_split: &dyn Fn() -> bool| {
        let (fits, length) = if text::is_short(value, LINE_MAX) {
            (true, None)
        } else {
            let length = text::length(value, LINE_MAX);
            (length.is_some(), length)
        };
        (if fits && !must_split() { Kind::Line } else { kind }, length)
    };
    match value {
        tree::Node::Array(elements) if elements.is_empty() => (Kind::Line, None),
        tree::Node::Array(_) if is_top => (Kind::Array, None),
        tree::Node::Array(elements) => line_unless(Kind::Array, &|| elements.iter().any(tree::Node::has_parts)),
        tree::Node::Object(members) if members.is_empty() => (Kind::Line, None),
        tree::Node::Object(_) => line_unless(Kind::Object, &|| holds_a_collection(value)),
        _ => (Kind::Line, None),
    }
}

/// Returns true for a short value that contains an array of elements with parts: its indices must be visible.
fn holds_a_collection(value: &tree::Node) -> bool {
    match value {
        tree::Node::Array(elements) => elements.iter().any(tree::Node::has_parts),
        tree::Node::Object(members) => members.iter().any(|(_, member)| holds_a_collection(member)),
        _ => false,
    }
}
