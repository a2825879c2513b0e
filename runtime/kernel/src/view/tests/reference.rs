//! Reference implementation of the view's selection: slow, and simple enough to check by reading.
//!
//! Lays out the whole state, sorts all lines by priority, and takes them in that order while they fit. It has no work
//! bounds, so its choice equals that of [`super::super::budget`] only when those are lifted too.

use std::cmp::Reverse;

use jsonptr::{Pointer, PointerBuf, Token};

use crate::pattern::{Pattern, PatternToken};
use crate::tree::{self, Node as Tree, Revision};
use crate::view::layout::{Kind, kind_of};
use crate::view::text;

/// A node of the tree.
struct Node<'a> {
    kind: Kind,
    /// JSON Pointer of the value, or the text of a pattern.
    label: String,
    /// The value; absent for a pattern.
    value: Option<&'a Tree>,
    parent: Option<usize>,
    /// In document order.
    children: Vec<usize>,
    /// Time of the last change and name of each value on the way from the root.
    way: Vec<(Revision, Name)>,
}

/// Everything that a worker may see.
struct Layout<'a> {
    /// Nodes, parents before their children, children in document order.
    nodes: Vec<Node<'a>>,
}

impl<'a> Layout<'a> {
    /// Lays out the values that the patterns cover.
    fn new(state: &'a Tree, reads: &[Pattern]) -> Self {
        let mut layout = Self { nodes: Vec::new() };
        for pattern in reads {
            let is_place = pattern.tokens().iter().all(|token| matches!(token, PatternToken::Literal(_)));
            let kind = if is_place { Kind::Place } else { Kind::Pattern };
            layout.push(Node {
                kind,
                label: pattern.to_string(),
                value: None,
                parent: None,
                children: Vec::new(),
                way: Vec::new(),
            });
        }
        layout.descend(state, PointerBuf::new(), reads, Vec::new(), 0);
        layout
    }

    /// Places the highest covered values below the first pattern that covers them.
    fn descend(
        &mut self,
        value: &'a Tree,
        pointer: PointerBuf,
        reads: &[Pattern],
        way: Vec<(Revision, Name)>,
        floor: Revision,
    ) {
        if let Some(first) = reads.iter().position(|pattern| pattern.covers(&pointer)) {
            self.place(value, pointer.to_string(), first, true, way, floor);
        } else if reads.iter().any(|pattern| pattern.reaches_below(&pointer)) {
            for (token, child, changed, name) in children(value, floor) {
                let mut below = pointer.clone();
                below.push_back(Token::new(token));
                let way = [&way[..], &[(changed.max(child.modified_at()), name)]].concat();
                self.descend(child, below, reads, way, changed);
            }
        }
    }

    fn place(
        &mut self,
        value: &'a Tree,
        label: String,
        parent: usize,
        is_root: bool,
        way: Vec<(Revision, Name)>,
        floor: Revision,
    ) {
        let kind = kind_of(value, is_root);
        let node = self.push(Node {
            kind,
            label: label.clone(),
            value: Some(value),
            parent: Some(parent),
            children: Vec::new(),
            way: way.clone(),
        });
        if let Some(parent) = self.nodes.get_mut(parent) {
            parent.children.push(node);
        }
        if kind != Kind::Line {
            for (token, child, changed, name) in children(value, floor) {
                let way = [&way[..], &[(changed.max(child.modified_at()), name)]].concat();
                self.place(child, format!("{label}/{}", Token::new(token).encoded()), node, false, way, changed);
            }
        }
    }

    fn push(&mut self, node: Node<'a>) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Returns all nodes in document order, pattern by pattern, each node before its descendants.
    fn in_order(&self) -> Vec<usize> {
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

    /// Returns the ancestors of a node, nearest first.
    fn above(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.nodes[node].parent, |node| self.nodes[*node].parent)
    }

    /// Returns the token of a node within its parent.
    fn token(&self, node: usize) -> String {
        let label = &self.nodes[node].label;
        let pointer = Pointer::parse(label.as_str()).ok();
        pointer.and_then(Pointer::back).map(|token| token.decoded().into_owned()).unwrap_or_default()
    }

    /// Returns true for containers whose members are expected to be added and removed.
    fn is_collection(&self, node: usize) -> bool {
        /// Member count above which an object is treated as a collection.
        const FIELDS_MAX: usize = 16;
        let node = &self.nodes[node];
        match node.kind {
            Kind::Pattern | Kind::Array => true,
            Kind::Object => node.children.len() > FIELDS_MAX,
            Kind::Place | Kind::Line => false,
        }
    }
}

/// Index or key, ordered as in the document.
type Name = (usize, String);

/// Returns token, value, time of the last write, and name of each child.
fn children(value: &Tree, floor: Revision) -> Vec<(String, &Tree, Revision, Name)> {
    match value {
        Tree::Array(elements) => (0..elements.len())
            .map(|index| {
                let (child, stamp) = elements.slot(index).expect("an element");
                (index.to_string(), child, stamp.under(floor).changed, (index, String::new()))
            })
            .collect(),
        Tree::Object(members) => members
            .iter()
            .map(|(name, _)| {
                let (child, stamp) = members.slot(name).expect("a member");
                (name.to_string(), child, stamp.under(floor).changed, (0, name.to_string()))
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Maximum length in characters of a list of hidden parts.
const HIDDEN_MAX: usize = 120;
/// Maximum length in characters of the fixed words of a summary line.
const WORDS_MAX: usize = 80;
/// Maximum length of a field that is kept in preference to collections.
const SMALL_FIELD_MAX: usize = 200;
/// Number of newest elements of every collection that precede the remaining elements of any.
const NEWEST: usize = 3;
/// Maximum number of pointers kept for values that are not shown.
const SUMMARISED_MAX: usize = 256;
/// Maximum length in characters of the line that counts values without a line of their own.
const MORE_MAX: usize = 40;

/// Shown part of a layout.
pub(super) struct Shown {
    /// Lines about the state, in order, each ended by a line feed.
    pub(super) text: String,
    /// Pointers of the values shown in full; none lies below another.
    pub(super) reads: Vec<String>,
    /// Pointers of containers for which the number of parts, or all parts, are shown.
    pub(super) members: Vec<String>,
    /// Pointers of the highest readable values that are entirely hidden; at most [`SUMMARISED_MAX`].
    pub(super) summarised: Vec<String>,
}

/// Selects the lines that fit into `limit` characters. `appendable` returns true if the worker may append to the array
/// at a pointer; `trigger` is the place that triggered the call.
pub(super) fn choose(
    state: &Tree,
    reads: &[Pattern],
    limit: usize,
    appendable: &dyn Fn(&str) -> bool,
    trigger: Option<&str>,
) -> Shown {
    let layout = &Layout::new(state, reads);
    let mut choice =
        Choice { layout, appendable, limit, left: limit, states: layout.nodes.iter().map(|_| None).collect() };
    if !choice.take_everything() {
        choice.reserve_summaries();
        for line in choice.by_priority(trigger) {
            choice.take(line);
        }
    }
    choice.finish(state, reads)
}

/// Budget spent on a node.
enum Paid {
    /// Summary line: what the node is, and which of its parts are hidden. Holds the characters reserved.
    Summary(usize),
    /// Line with the value itself.
    Value(String),
}

struct Choice<'a> {
    layout: &'a Layout<'a>,
    appendable: &'a dyn Fn(&str) -> bool,
    limit: usize,
    left: usize,
    states: Vec<Option<Paid>>,
}

impl Choice<'_> {
    /// Takes all lines if all of them fit; otherwise takes none.
    fn take_everything(&mut self) -> bool {
        for node in 0..self.layout.nodes.len() {
            let paid = match self.layout.nodes[node].kind {
                Kind::Place | Kind::Pattern | Kind::Object => Some(0),
                Kind::Array => Some(text::chars(&self.header(node, &[]))),
                Kind::Line => match self.line(node, self.left) {
                    Some(line) => {
                        let size = text::chars(&line);
                        self.states[node] = Some(Paid::Value(line));
                        Some(size)
                    }
                    None => None,
                },
            };
            match paid.and_then(|size| self.left.checked_sub(size)) {
                Some(left) => self.left = left,
                None => {
                    self.left = self.limit;
                    self.states.iter_mut().for_each(|state| *state = None);
                    return false;
                }
            }
        }
        true
    }

    /// Reserves one line for each top-level node, as far as the budget allows.
    fn reserve_summaries(&mut self) {
        self.left = self.left.saturating_sub(MORE_MAX);
        for node in self.layout.in_order() {
            if self.is_top(node) && !self.is_empty_pattern(node) {
                // A short value may need fewer characters than its summary.
                let size = self.summary_max(node);
                let line = self.line(node, size.min(self.left));
                if let Some(line) = line {
                    self.left -= text::chars(&line);
                    self.states[node] = Some(Paid::Value(line));
                } else if let Some(left) = self.left.checked_sub(size) {
                    self.left = left;
                    self.states[node] = Some(Paid::Summary(size));
                }
            }
        }
    }

    /// Returns true for a node that is summarised on its own when hidden: a pattern, or the only place of a pattern.
    fn is_top(&self, node: usize) -> bool {
        let above = self.layout.nodes[node].parent.map(|parent| self.layout.nodes[parent].kind);
        match self.layout.nodes[node].kind {
            Kind::Place => false,
            Kind::Pattern => true,
            Kind::Array | Kind::Object | Kind::Line => above == Some(Kind::Place),
        }
    }

    fn is_empty_pattern(&self, node: usize) -> bool {
        self.layout.nodes[node].kind == Kind::Pattern && self.layout.nodes[node].children.is_empty()
    }

    /// Returns the maximum length of a node's summary line.
    fn summary_max(&self, node: usize) -> usize {
        match self.layout.nodes[node].kind {
            Kind::Line => text::chars(&self.header(node, &[])),
            Kind::Place | Kind::Pattern | Kind::Array | Kind::Object => {
                text::chars(&text::name(&self.layout.nodes[node].label)) + WORDS_MAX + HIDDEN_MAX
            }
        }
    }

    /// Returns the lines by descending priority.
    fn by_priority(&self, trigger: Option<&str>) -> Vec<usize> {
        let lines = (0..self.layout.nodes.len()).filter(|node| self.layout.nodes[*node].kind == Kind::Line);
        let mut lines: Vec<_> = lines.map(|node| (self.rank(node, trigger), node)).collect();
        lines.sort_unstable();
        lines.into_iter().map(|(_, node)| node).collect()
    }

    /// Returns the sort key of a line. It holds the class, the pattern, and how many parts of the outermost collection
    /// above it changed later. Its last part is the place below the pattern, with the parts of collections sorted by
    /// time of change.
    fn rank(&self, node: usize, trigger: Option<&str>) -> (u8, usize, usize, Vec<usize>) {
        let (mut newer, mut place) = (None, Vec::new());
        let mut way: Vec<usize> = [node].into_iter().chain(self.layout.above(node)).collect();
        way.reverse();
        for step in way.windows(2) {
            let [above, below] = [step[0], step[1]];
            let is_outermost = newer.is_none();
            let mut children = self.layout.nodes[above].children.clone();
            if self.layout.is_collection(above) {
                let depth =
                    if self.layout.nodes[above].value.is_some() { self.layout.nodes[above].way.len() } else { 0 };
                children.sort_by_cached_key(|child| {
                    let way = self.layout.nodes[*child].way[depth..].iter();
                    let key = |(changed, name): &(Revision, Name)| {
                        let (last, first) = (Reverse(name.clone()), name.clone());
                        (Reverse(*changed), is_outermost.then_some(last), (!is_outermost).then_some(first))
                    };
                    way.map(key).collect::<Vec<_>>()
                });
            }
            let position = children.iter().position(|child| *child == below).expect("it is a child");
            if self.layout.is_collection(above) && is_outermost {
                newer = Some(position);
            }
            place.push(position);
        }
        let (label, top) = (&self.layout.nodes[node].label, way[0]);
        if trigger.is_some_and(|trigger| is_on_one_line(trigger, label)) {
            return (0, top, 0, place);
        }
        match newer {
            Some(newer) if newer < NEWEST => (2, newer, top, place),
            Some(newer) => (4, top, newer, place),
            None => {
                let is_small = self.layout.nodes[node].value.is_some_and(|value| text::fits(value, SMALL_FIELD_MAX));
                (if is_small { 1 } else { 3 }, top, 0, place)
            }
        }
    }

    /// Takes a line if it fits, together with the summary lines of its ancestors.
    fn take(&mut self, node: usize) {
        let released = match &self.states[node] {
            Some(Paid::Value(_)) => return,
            Some(Paid::Summary(size)) => *size,
            None => 0,
        };
        let unpaid: Vec<usize> = self
            .layout
            .above(node)
            .filter(|above| self.layout.nodes[*above].kind != Kind::Place && self.states[*above].is_none())
            .collect();
        let summaries: usize = unpaid.iter().map(|above| self.summary_max(*above)).sum();
        let Some(left) = (self.left + released).checked_sub(summaries) else { return };
        let Some(line) = self.line(node, left) else { return };
        self.left = left - text::chars(&line);
        for above in unpaid {
            self.states[above] = Some(Paid::Summary(self.summary_max(above)));
        }
        self.states[node] = Some(Paid::Value(line));
    }

    /// Returns the line of a single-line value, line feed included, if it has at most `limit` characters.
    fn line(&self, node: usize, limit: usize) -> Option<String> {
        let node = Some(&self.layout.nodes[node]).filter(|node| node.kind == Kind::Line)?;
        let mut line = format!("{}: ", text::name(&node.label));
        line.push_str(&text::json(&node.value?.to_value(), limit)?);
        if node.value.is_some_and(|value| value.as_array().is_some_and(tree::Array::is_empty)) {
            line.push_str(self.append_hint(&node.label));
        }
        line.push('\n');
        (text::chars(&line) <= limit).then_some(line)
    }

    fn append_hint(&self, label: &str) -> &'static str {
        if (self.appendable)(label) { " (you may append)" } else { "" }
    }

    /// Returns the summary line of a collection or a partly shown value; `hidden` are the children that are entirely
    /// hidden.
    fn header(&self, node: usize, hidden: &[usize]) -> String {
        let Some(value) = self.layout.nodes.get(node) else { return String::new() };
        let count = value.children.len();
        let mut line = match value.kind {
            Kind::Place => return String::new(),
            Kind::Pattern => format!("{}: {count} places", text::name(&value.label)),
            Kind::Array => {
                let unit = if count == 1 { "element" } else { "elements" };
                format!("{}: {count} {unit}{}", text::name(&value.label), self.append_hint(&value.label))
            }
            Kind::Object => format!("{}: an object with {count} members", text::name(&value.label)),
            Kind::Line => format!("{}: {}, not shown", text::name(&value.label), described_value(value.value)),
        };
        if !hidden.is_empty() {
            line.push_str("; not shown: ");
            line.push_str(&self.hidden(node, hidden));
        }
        line.push('\n');
        line
    }

    /// Lists hidden children by name within the node, or by pointer if the pattern matches several places. Adjacent
    /// indices form ranges: `0 to 8, 11`.
    fn hidden(&self, node: usize, hidden: &[usize]) -> String {
        let parent = &self.layout.nodes[node];
        let prefix = match parent.kind {
            Kind::Array | Kind::Object | Kind::Place | Kind::Line => Some(parent.label.as_str()),
            Kind::Pattern => parent.label.strip_suffix("/*").filter(|prefix| !prefix.contains('*')),
        };
        let mut items: Vec<Item> = Vec::new();
        for child in hidden {
            let within = prefix.map(|_| self.layout.token(*child));
            let index = within.as_ref().and_then(|token| token.parse::<usize>().ok());
            match (items.last_mut(), index) {
                (Some(Item::Range(_, last)), Some(index)) if *last + 1 == index => *last = index,
                (_, Some(index)) => items.push(Item::Range(index, index)),
                (_, None) => {
                    items.push(Item::Name(within.unwrap_or_else(|| self.layout.nodes[*child].label.clone())));
                }
            }
        }
        list(&items)
    }

    fn finish(self, state: &Tree, reads: &[Pattern]) -> Shown {
        let mut shown = Shown { text: String::new(), reads: Vec::new(), members: Vec::new(), summarised: Vec::new() };
        let count = self.layout.nodes.len();
        // Children follow their parents, so one pass from the end computes what is shown below each node.
        let (mut whole, mut any) = (vec![false; count], vec![false; count]);
        for node in (0..count).rev() {
            let children = &self.layout.nodes[node].children;
            let is_line = self.layout.nodes[node].kind == Kind::Line;
            let is_shown = matches!(self.states[node], Some(Paid::Value(_)));
            whole[node] = if is_line { is_shown } else { children.iter().all(|child| whole[*child]) };
            any[node] = is_shown || children.iter().any(|child| any[*child]);
        }
        let mut unmentioned: Vec<&str> = Vec::new();
        for node in self.layout.in_order() {
            let above = self.layout.nodes[node].parent;
            let is_value = self.layout.nodes[node].value.is_some();
            let is_below =
                |marks: &[bool]| above.is_some_and(|above| marks[above] && self.layout.nodes[above].value.is_some());
            if is_value && whole[node] && !is_below(&whole) {
                shown.reads.push(self.layout.nodes[node].label.clone());
            }
            if is_value && !any[node] && !whole[node] {
                let nothing_above = above.is_some_and(|above| self.layout.nodes[above].value.is_some() && !any[above]);
                if !nothing_above && shown.summarised.len() < SUMMARISED_MAX {
                    shown.summarised.push(self.layout.nodes[node].label.clone());
                }
            }
            match &self.states[node] {
                Some(Paid::Value(line)) => shown.text.push_str(line),
                Some(Paid::Summary(_)) => {
                    let children = &self.layout.nodes[node].children;
                    let hidden: Vec<usize> =
                        children.iter().copied().filter(|child| !any[*child] && !whole[*child]).collect();
                    let value = self.layout.nodes[node].value;
                    if !whole[node] && value.is_some_and(Tree::has_parts) {
                        shown.members.push(self.layout.nodes[node].label.clone());
                    }
                    if self.layout.nodes[node].kind == Kind::Array || !whole[node] {
                        shown.text.push_str(&self.header(node, &hidden));
                    }
                }
                None if self.layout.nodes[node].kind == Kind::Array && whole[node] => {
                    shown.text.push_str(&self.header(node, &[]));
                }
                None if self.is_top(node) && !self.is_empty_pattern(node) && !any[node] && !whole[node] => {
                    unmentioned.push(&self.layout.nodes[node].label);
                }
                None => {}
            }
        }
        let count = unmentioned.len();
        // Tries all names first, then fewer; the first line that fits is taken.
        let mut lines = (0..=count).rev().map(|named| match (named, count - named) {
            (0, _) => format!("… {count} more places not shown\n"),
            (_, 0) => format!("… {count} more places not shown: {}\n", unmentioned.join(", ")),
            (_, rest) => {
                format!("… {count} more places not shown: {} and {rest} more\n", unmentioned[..named].join(", "))
            }
        });
        let room = self.limit.saturating_sub(text::chars(&shown.text));
        if let Some(line) = lines.find(|line| text::chars(line) <= room).filter(|_| count > 0) {
            shown.text.push_str(&line);
        }
        for (which, pattern) in reads.iter().enumerate() {
            if whole[which] || self.states[which].is_some() {
                looked_through(state, PointerBuf::new(), reads, pattern, &mut shown.members);
            }
        }
        let is_read = |place: &String| {
            shown.reads.iter().any(|read| {
                place.strip_prefix(read.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        shown.members.retain(|place| !is_read(place));
        shown.members.sort_unstable();
        shown.members.dedup();
        shown.reads.sort_unstable();
        shown.summarised.sort_unstable();
        shown
    }
}

/// Hidden part of a list.
enum Item {
    Name(String),
    /// First and last index.
    Range(usize, usize),
}

/// Formats a list within its character limit; items that do not fit are counted.
fn list(items: &[Item]) -> String {
    /// Characters reserved for the count of the remaining items.
    const COUNT_MAX: usize = 30;
    let (mut out, mut more) = (String::new(), 0_usize);
    for item in items {
        let (item, count) = match item {
            Item::Name(name) => (text::name(name), 1),
            Item::Range(from, to) if from == to => (from.to_string(), 1),
            Item::Range(from, to) => (format!("{from} to {to}"), to - from + 1),
        };
        if more == 0 && text::chars(&out) + text::chars(&item) + 2 + COUNT_MAX <= HIDDEN_MAX {
            if !out.is_empty() {
                out.push_str(", ");
            }
            out.push_str(&item);
        } else {
            more += count;
        }
    }
    match (out.is_empty(), more) {
        (_, 0) => out,
        (true, more) => format!("{more} of them"),
        (false, more) => format!("{out} and {more} more"),
    }
}

fn described_value(value: Option<&Tree>) -> String {
    match value {
        Some(Tree::Array(elements)) => format!("a list of {}", elements.len()),
        Some(Tree::Object(members)) => format!("an object with {} members", members.len()),
        Some(value) if value.as_str().is_some() => {
            format!("a text of {} characters", text::chars(value.as_str().unwrap_or_default()))
        }
        Some(_) | None => "a value".to_owned(),
    }
}

/// Returns true if the pointers are equal or one is an ancestor of the other.
fn is_on_one_line(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Collects the containers that the pattern matches in part or passes through, and that no pattern covers.
fn looked_through(value: &Tree, place: PointerBuf, reads: &[Pattern], pattern: &Pattern, found: &mut Vec<String>) {
    if reads.iter().any(|pattern| pattern.covers(&place)) {
        return;
    }
    let depth = place.count();
    let before_deep = pattern.tokens().iter().take_while(|token| **token != PatternToken::Deep).count();
    let is_open = match pattern.tokens().get(depth) {
        _ if depth >= before_deep => before_deep < pattern.tokens().len() && pattern.reaches_below(&place),
        Some(PatternToken::Any) => pattern.prefix(depth).matches(&place),
        _ => false,
    };
    if is_open && matches!(value, Tree::Array(_) | Tree::Object(_)) {
        found.push(place.to_string());
    }
    for (token, child, ..) in children(value, 0) {
        looked_through(child, place.with_trailing_token(token), reads, pattern, found);
    }
}
