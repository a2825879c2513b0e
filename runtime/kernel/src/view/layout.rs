//! What of the state may be shown, as a tree whose leaves are lines.
//!
//! Owns where a value is split: a short value is one line, a collection is one line for each element, so that indices
//! can be seen and parts can be left out. Only what the read patterns cover enters the tree, so nothing after this can
//! show more.

use jsonptr::{Pointer, PointerBuf, Token};

use crate::pattern::{Pattern, PatternToken};
use crate::tree;

use super::text;

/// The longest value, in characters of JSON, that is kept on one line although it has parts.
const LINE_MAX: usize = 500;

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
    pub(super) parent: Option<usize>,
    /// In document order.
    pub(super) children: Vec<usize>,
}

/// Everything a worker may see.
pub(super) struct Layout<'a> {
    /// Parents come before their children, children in document order.
    pub(super) nodes: Vec<Node<'a>>,
}

impl<'a> Layout<'a> {
    /// Lays out what the patterns cover.
    pub(super) fn new(state: &'a tree::Node, reads: &[Pattern]) -> Self {
        let mut layout = Self { nodes: Vec::new() };
        for pattern in reads {
            let is_place = pattern.tokens().iter().all(|token| matches!(token, PatternToken::Literal(_)));
            let kind = if is_place { Kind::Place } else { Kind::Pattern };
            layout.push(Node { kind, label: pattern.to_string(), value: None, parent: None, children: Vec::new() });
        }
        layout.descend(state, PointerBuf::new(), reads);
        layout
    }

    /// Puts the highest covered values below the first pattern that covers them.
    fn descend(&mut self, value: &'a tree::Node, pointer: PointerBuf, reads: &[Pattern]) {
        if let Some(first) = reads.iter().position(|pattern| pattern.covers(&pointer)) {
            self.place(value, pointer.to_string(), first, true);
        } else if reads.iter().any(|pattern| pattern.reaches_below(&pointer)) {
            for (token, child) in children(value) {
                let mut below = pointer.clone();
                below.push_back(Token::new(token));
                self.descend(child, below, reads);
            }
        }
    }

    fn place(&mut self, value: &'a tree::Node, label: String, parent: usize, is_root: bool) {
        let kind = kind_of(value, is_root);
        let node = self.push(Node {
            kind,
            label: label.clone(),
            value: Some(value),
            parent: Some(parent),
            children: Vec::new(),
        });
        if let Some(parent) = self.nodes.get_mut(parent) {
            parent.children.push(node);
        }
        if kind != Kind::Line {
            for (token, child) in children(value) {
                self.place(child, format!("{label}/{}", Token::new(token).encoded()), node, false);
            }
        }
    }

    fn push(&mut self, node: Node<'a>) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// All nodes, pattern by pattern and below them in document order: a node before what is below it.
    pub(super) fn in_order(&self) -> Vec<usize> {
        let roots = (0..self.nodes.len()).filter(|node| self.nodes[*node].parent.is_none());
        let mut stack: Vec<usize> = roots.collect();
        stack.reverse();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(node) = stack.pop() {
            order.push(node);
            stack.extend(self.nodes[node].children.iter().rev());
        }
        order
    }

    /// The nodes above one, nearest first.
    pub(super) fn above(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.nodes[node].parent, |node| self.nodes[*node].parent)
    }

    /// The token of a node within its parent.
    pub(super) fn token(&self, node: usize) -> String {
        let label = &self.nodes[node].label;
        let pointer = Pointer::parse(label.as_str()).ok();
        pointer.and_then(Pointer::back).map(|token| token.decoded().into_owned()).unwrap_or_default()
    }

    /// Whether a member more or less is the ordinary life of what stands here.
    pub(super) fn is_collection(&self, node: usize) -> bool {
        /// An object with more members is taken for a collection by name.
        const FIELDS_MAX: usize = 16;
        let node = &self.nodes[node];
        match node.kind {
            Kind::Pattern | Kind::Array => true,
            Kind::Object => node.children.len() > FIELDS_MAX,
            Kind::Place | Kind::Line => false,
        }
    }
}

fn children(value: &tree::Node) -> Vec<(String, &tree::Node)> {
    match value {
        tree::Node::Array(elements) => {
            elements.iter().enumerate().map(|(index, child)| (index.to_string(), child)).collect()
        }
        tree::Node::Object(members) => members.iter().map(|(name, child)| (name.to_string(), child)).collect(),
        _ => Vec::new(),
    }
}

/// How a value is shown. The root of what may be read is split as soon as it has parts worth a line.
fn kind_of(value: &tree::Node, is_root: bool) -> Kind {
    match value {
        tree::Node::Array(elements) if elements.is_empty() => Kind::Line,
        tree::Node::Array(elements) => {
            let counts_for_itself = !is_root && !elements.iter().any(tree::Node::has_parts);
            if counts_for_itself && text::node(value, LINE_MAX).is_some() { Kind::Line } else { Kind::Array }
        }
        tree::Node::Object(members) if members.is_empty() => Kind::Line,
        tree::Node::Object(_) => {
            let fits = text::node(value, LINE_MAX).is_some() && !holds_a_collection(value);
            if fits { Kind::Line } else { Kind::Object }
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
