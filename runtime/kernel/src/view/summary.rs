//! Lines about what is not shown.
//!
//! Owns their wording and their bounds, and the counting of what a pattern matches, which ends after a bounded look.

use crate::pattern::Pattern;
use crate::tree::{Node, Step};

use super::layout;
use super::search::{self, Found, Members, Order, Search};
use super::text;

/// Characters of a list of what is not shown.
const HIDDEN_MAX: usize = 120;
/// Characters of the fixed words of a line about a collection.
const WORDS_MAX: usize = 80;
/// Characters of a line about a collection, its name aside.
pub(super) const CHARS_MAX: usize = WORDS_MAX + HIDDEN_MAX;
/// No more names than this fit into a list.
const NAMES_MAX: usize = HIDDEN_MAX / 3;
/// How many places of a pattern are counted one by one.
const FOUND_MAX: usize = 256;
/// The longest text whose characters are counted, in bytes.
const COUNTED_BYTES_MAX: usize = 1 << 16;

/// Why counting ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum End {
    /// All was counted.
    #[default]
    Whole,
    /// There are more than are counted.
    Many,
    /// Too much was looked at.
    WornOut,
}

/// What a pattern matches, as far as it is known.
#[derive(Default)]
pub(super) struct Tally<'a> {
    /// If it is known without looking.
    members: Option<Members<'a>>,
    /// Otherwise the first places in the order of the document.
    found: Vec<Found<'a>>,
    end: End,
    containers: Vec<String>,
}

impl<'a> Tally<'a> {
    pub(super) fn of(state: &'a Node, reads: &'a [Pattern], which: usize, steps: usize) -> Self {
        if let Some(members) = Members::of(state, reads, which) {
            let is_container = matches!(members.container, Node::Array(_) | Node::Object(_));
            let containers = is_container.then(|| members.label.clone()).into_iter().collect();
            return Self { members: Some(members), containers, ..Self::default() };
        }
        let mut search = Search::new(state, reads, which, Order::Document, steps);
        let found = search.by_ref().take(FOUND_MAX).collect();
        let end = match (search.next(), search.is_cut()) {
            (Some(_), _) => End::Many,
            (None, true) => End::WornOut,
            (None, false) => End::Whole,
        };
        let containers = if end == End::Whole { search.containers() } else { Vec::new() };
        Self { members: None, found, end, containers }
    }

    /// How many places there are, if that is known.
    pub(super) fn count(&self) -> Option<usize> {
        match &self.members {
            Some(members) => Some(members.count()),
            None => (self.end == End::Whole).then_some(self.found.len()),
        }
    }

    /// All places in the order of the document, if they were all counted one by one.
    pub(super) fn places(&self) -> Option<&[Found<'a>]> {
        (self.members.is_none() && self.end == End::Whole).then_some(&self.found)
    }

    /// Whether too much was looked at before all was counted.
    pub(super) fn is_worn_out(&self) -> bool {
        self.end == End::WornOut
    }

    /// The container, if the pattern is known to cover its parts and nothing else.
    pub(super) fn container(&self) -> Option<&'a Node> {
        self.members.as_ref().map(|members| members.container)
    }

    /// Whether it is known that there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.count() == Some(0)
    }

    /// The containers whose parts were all looked at.
    pub(super) fn containers(&self) -> &[String] {
        &self.containers
    }

    /// How many places there are, in words.
    pub(super) fn summary(&self, label: &str) -> String {
        let name = text::name(label);
        match (self.count(), self.found.len()) {
            (Some(count), _) => format!("{name}: {count} places"),
            (None, 0) => format!("{name}: no place found; not everything was looked at"),
            (None, found) => format!("{name}: at least {found} places"),
        }
    }
}

/// A value that would be a line of its own.
pub(super) fn of_line(label: &str, value: &Node) -> String {
    let what = match value {
        Node::Array(elements) => format!("a list of {}", elements.len()),
        Node::Object(members) => format!("an object with {} members", members.len()),
        value => match value.as_str() {
            Some(text) if text.len() <= COUNTED_BYTES_MAX => format!("a text of {} characters", text::chars(text)),
            Some(text) => format!("a text of {} bytes", text.len()),
            None => "a value".to_owned(),
        },
    };
    format!("{}: {what}, not shown\n", text::name(label))
}

/// How many members an object has, in words.
pub(super) fn of_object(label: &str, value: &Node) -> String {
    format!("{}: an object with {} members", text::name(label), value.part_count())
}

/// The highest values in something of which nothing is shown.
pub(super) struct Hidden<'a> {
    /// JSON Pointer of the container of `Part` and `Range`.
    container: String,
    /// In the order of the document; not all if there are more than anybody asks for.
    items: Vec<Item<'a>>,
    /// How many there are.
    total: usize,
    /// Whether there may be more than that.
    is_cut: bool,
}

/// Something that is not shown.
enum Item<'a> {
    Part(Step<'a>),
    /// The first and the last index.
    Range(usize, usize),
    Place(String),
}

impl<'a> Hidden<'a> {
    /// `is_shown` says of a node whether something of it is shown; at least `wanted` of the pointers are kept.
    pub(super) fn of(
        node: &layout::Node<'a>,
        tally: Option<&Tally<'a>>,
        is_shown: &dyn Fn(usize) -> bool,
        wanted: usize,
    ) -> Self {
        let shown = node.children.iter().filter(|(_, child)| is_shown(**child));
        let shown_parts = shown.filter_map(|(path, _)| path.last().copied());
        match (node.value, tally) {
            (Some(value), _) => Self::parts(&node.label, value, shown_parts.collect(), wanted),
            (None, Some(Tally { members: Some(members), .. })) => {
                let mut excluded: Vec<Step<'a>> = shown_parts.chain(members.foreign.iter().copied()).collect();
                excluded.sort_unstable();
                Self::parts(&members.label, members.container, excluded, wanted)
            }
            (None, Some(tally)) => Self::places(node, tally, is_shown),
            (None, None) => Self { container: String::new(), items: Vec::new(), total: 0, is_cut: false },
        }
    }

    /// The parts of a container but for some, which are in the order of the document.
    fn parts(label: &str, container: &'a Node, excluded: Vec<Step<'a>>, wanted: usize) -> Self {
        let mut items = Vec::new();
        if let Node::Array(elements) = container {
            let mut from = 0;
            let indices = excluded.iter().filter_map(|step| match step {
                Step::Index(index) => Some(*index),
                Step::Key(_) => None,
            });
            for index in indices.chain([elements.len()]) {
                if from < index {
                    items.push(Item::Range(from, index - 1));
                }
                from = index + 1;
            }
        } else {
            let mut excluded = excluded.iter().peekable();
            let is_hidden = |step: &Step<'a>| {
                #[cfg(test)]
                super::tests::visit();
                excluded.next_if_eq(&step).is_none()
            };
            let parts = container.parts().map(|(step, _)| step).filter(is_hidden);
            items.extend(parts.take(wanted.max(NAMES_MAX)).map(Item::Part));
        }
        let total = container.part_count() - excluded.len();
        Self { container: label.to_owned(), items, total, is_cut: false }
    }

    /// The places of a pattern; by index where they are the parts of one container.
    fn places(node: &layout::Node<'a>, tally: &Tally<'a>, is_shown: &dyn Fn(usize) -> bool) -> Self {
        let container = node.label.strip_suffix("/*").filter(|container| !container.contains('*'));
        let mut hidden = Self {
            container: container.unwrap_or_default().to_owned(),
            items: Vec::new(),
            total: 0,
            is_cut: tally.end != End::Whole,
        };
        for Found { path, label, .. } in &tally.found {
            if node.children.get(path).is_some_and(|child| is_shown(*child)) {
                continue;
            }
            hidden.total += 1;
            match (container.and(path.last()), hidden.items.last_mut()) {
                (Some(Step::Index(index)), Some(Item::Range(_, last))) if *last + 1 == *index => *last = *index,
                (Some(Step::Index(index)), _) => hidden.items.push(Item::Range(*index, *index)),
                (Some(step), _) => hidden.items.push(Item::Part(*step)),
                (None, _) => hidden.items.push(Item::Place(label.clone())),
            }
        }
        hidden
    }

    /// The first `max` pointers.
    pub(super) fn pointers(&self, max: usize) -> impl Iterator<Item = String> {
        let part = |step| {
            let mut pointer = self.container.clone();
            search::push_step(&mut pointer, step);
            pointer
        };
        let pointers = self.items.iter().flat_map(move |item| {
            let (from, to) = match item {
                Item::Range(from, to) => (*from, *to + 1),
                Item::Part(_) | Item::Place(_) => (0, 1),
            };
            (from..to).map(move |index| match item {
                Item::Range(..) => part(Step::Index(index)),
                Item::Part(step) => part(*step),
                Item::Place(label) => label.clone(),
            })
        });
        pointers.take(max)
    }

    /// What is hidden, by name within its container or by pointer, under a limit of characters: `0 to 8, 11`. What
    /// does not fit is counted. None if nothing is hidden.
    pub(super) fn list(&self) -> Option<String> {
        /// Room that is kept for the count of the rest.
        const COUNT_MAX: usize = 30;
        let (mut out, mut more) = (String::new(), self.total);
        for item in &self.items {
            let (item, count) = match item {
                Item::Place(label) => (text::name(label), 1),
                Item::Part(step) => (text::name(&search::name_of(*step)), 1),
                Item::Range(from, to) if from == to => (from.to_string(), 1),
                Item::Range(from, to) => (format!("{from} to {to}"), to - from + 1),
            };
            if text::chars(&out) + text::chars(&item) + 2 + COUNT_MAX > HIDDEN_MAX {
                break;
            }
            if !out.is_empty() {
                out.push_str(", ");
            }
            out.push_str(&item);
            more -= count;
        }
        match (out.is_empty(), more, self.is_cut) {
            (true, 0, _) => None,
            (false, 0, false) => Some(out),
            (false, _, true) => Some(format!("{out} and more")),
            (true, more, _) => Some(format!("{more} of them")),
            (false, more, false) => Some(format!("{out} and {more} more")),
        }
    }
}
