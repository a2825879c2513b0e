//! What of the state may be shown, as a tree whose leaves are lines; laid out as far as somebody asks.
//!
//! Owns where a value is split: a short value is one line, a collection is one line for each element, so that indices
//! can be seen and parts can be left out. Only what the read patterns cover enters the tree, so nothing after this can
//! show more.

use std::collections::BTreeMap;

use crate::pattern::{Pattern, PatternToken};
use crate::tree::{self, At, Step};

use super::search::{self, Found};
use super::text;

/// The longest value, in characters of JSON, that is kept on one line although it has parts.
const LINE_MAX: usize = 500;
/// An object with more members is taken for a collection by name.
const FIELDS_MAX: usize = 16;

/// What a node of the tree stands for.
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
    /// A value, shown on one line.
    Line,
}

/// A node of the tree.
pub(super) struct Node<'a> {
    pub(super) kind: Kind,
    /// JSON Pointer of the value; for a pattern, its text.
    pub(super) label: String,
    /// The value; absent for a pattern.
    pub(super) value: Option<&'a tree::Node>,
    /// When it came where it is.
    pub(super) floor: At,
    pub(super) parent: Option<usize>,
    /// Those laid out so far, by the way from here (below a pattern: from the root), so in the document's order.
    pub(super) children: BTreeMap<Vec<Step<'a>>, usize>,
}

/// What a worker may see, as far as it is laid out.
pub(super) struct Layout<'a> {
    /// Parents come before their children; first, one for each pattern.
    pub(super) nodes: Vec<Node<'a>>,
}

impl<'a> Layout<'a> {
    /// Lays out the patterns themselves.
    pub(super) fn new(reads: &[Pattern]) -> Self {
        let root = |pattern: &Pattern| Node {
            kind: if is_place(pattern) { Kind::Place } else { Kind::Pattern },
            label: pattern.to_string(),
            value: None,
            floor: 0,
            parent: None,
            children: BTreeMap::new(),
        };
        Self { nodes: reads.iter().map(root).collect() }
    }

    /// Lays out a place that belongs to the pattern `root`, unless it is there already.
    pub(super) fn top(&mut self, root: usize, found: Found<'a>) -> usize {
        if let Some(there) = self.nodes[root].children.get(&found.path) {
            return *there;
        }
        let Found { label, path, value, floor } = found;
        self.push(root, path, label, value, floor, true)
    }

    /// Lays out a part of a value, unless it is there already.
    pub(super) fn child(&mut self, parent: usize, step: Step<'a>, value: &'a tree::Node, floor: At) -> usize {
        if let Some(there) = self.nodes[parent].children.get(&[step][..]) {
            return *there;
        }
        let mut label = self.nodes[parent].label.clone();
        search::push_step(&mut label, step);
        self.push(parent, vec![step], label, value, floor, false)
    }

    fn push(
        &mut self,
        parent: usize,
        path: Vec<Step<'a>>,
        label: String,
        value: &'a tree::Node,
        floor: At,
        is_top: bool,
    ) -> usize {
        let kind = kind_of(value, is_top);
        let children = BTreeMap::new();
        let node = self.nodes.len();
        self.nodes.push(Node { kind, label, value: Some(value), floor, parent: Some(parent), children });
        self.nodes[parent].children.insert(path, node);
        node
    }

    /// All nodes, pattern by pattern and below them in document order: a node before what is below it.
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

    /// The nodes above one, nearest first.
    pub(super) fn above(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.nodes[node].parent, |node| self.nodes[*node].parent)
    }

    /// Whether a member more or less is the ordinary life of what stands here.
    pub(super) fn is_collection(&self, node: usize) -> bool {
        let node = &self.nodes[node];
        match node.kind {
            Kind::Pattern | Kind::Array => true,
            Kind::Object => node.value.is_some_and(|value| value.part_count() > FIELDS_MAX),
            Kind::Place | Kind::Line => false,
        }
    }
}

/// Whether a pattern names one place.
pub(super) fn is_place(pattern: &Pattern) -> bool {
    pattern.tokens().iter().all(|token| matches!(token, PatternToken::Literal(_)))
}

/// How a value is shown. The root of what may be read is split as soon as it has parts worth a line.
pub(super) fn kind_of(value: &tree::Node, is_top: bool) -> Kind {
    #[cfg(test)]
    super::tests::visit();
    let fits = || text::fits(value, LINE_MAX);
    match value {
        tree::Node::Array(elements) if elements.is_empty() => Kind::Line,
        tree::Node::Array(elements) => {
            // Whether it fits first: what does is short, and so is the look at all of its elements.
            let is_line = !is_top && fits() && !elements.iter().any(tree::Node::has_parts);
            if is_line { Kind::Line } else { Kind::Array }
        }
        tree::Node::Object(members) if members.is_empty() => Kind::Line,
        tree::Node::Object(_) => {
            if fits() && !holds_a_collection(value) {
                Kind::Line
            } else {
                Kind::Object
            }
        }
        _ => Kind::Line,
    }
}

/// Whether there is an array of things with parts in it: its indices must be seen. Only asked of short values.
fn holds_a_collection(value: &tree::Node) -> bool {
    match value {
        tree::Node::Array(elements) => elements.iter().any(tree::Node::has_parts),
        tree::Node::Object(members) => members.iter().any(|(_, member)| holds_a_collection(member)),
        _ => false,
    }
}
