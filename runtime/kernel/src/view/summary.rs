//! Lines about hidden content.
//!
//! Owns their wording and their bounds, and the bounded counting of a pattern's matches.

use crate::tree::{Node, PathSegment};

use super::explanation::{OutcomeReason, PlaceExplanation as Explained, PlaceOutcome};
use super::layout::Layout;
use super::search::{self, Found, Members, Order, Reads, Search};
use super::summarised_places::SummarisedPlaces;
use super::text;

/// Maximum characters of a list of hidden parts.
pub(super) const HIDDEN_MAX: usize = 120;
/// Characters that a list reserves for the count of the rest.
const COUNT_MAX: usize = 30;
/// Characters between two names of a list.
const SEPARATOR_CHARS: usize = 2;
/// Maximum characters of the fixed words of a line about a collection.
pub(super) const WORDS_MAX: usize = 80;
/// Maximum characters that name an author.
pub(super) const WRITER_MAX: usize = 50;
/// Maximum characters of an identifier after an index.
pub(super) const ID_MAX: usize = 20;
/// Maximum names in a list.
const NAMES_MAX: usize = HIDDEN_MAX / 4;
/// Maximum places of a pattern that are counted one by one.
const FOUND_MAX: usize = 128;
/// Maximum bytes of a text for which characters are counted.
const COUNTED_BYTES_MAX: usize = 1 << 16;

/// Reason for the end of counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum End {
    /// All matches were counted.
    #[default]
    Whole,
    /// More matches than are counted.
    Many,
    /// The search ran out of steps.
    OutOfSteps,
}

/// The matches of a pattern, as far as known.
#[derive(Default)]
pub(super) struct MatchCount<'a> {
    /// The matches, if known without a search.
    members: Option<Members<'a>>,
    /// Otherwise the first places in document order.
    found: Vec<Found<'a>>,
    end: End,
    containers: Vec<String>,
}

impl<'a> MatchCount<'a> {
    pub(super) fn count_matches(state: &'a Node, reads: &'a Reads<'a>, which: usize, steps: usize) -> Self {
        if let Some(members) = Members::find(state, reads.patterns, which) {
            let is_container = matches!(members.container, Node::Array(_) | Node::Object(_));
            let containers = is_container.then(|| members.label.clone()).into_iter().collect();
            return Self { members: Some(members), containers, ..Self::default() };
        }
        let mut search = Search::new(state, reads, which, Order::Document, steps);
        let found = search.by_ref().take(FOUND_MAX).collect();
        let end = match (search.next(), search.is_cut()) {
            (Some(_), _) => End::Many,
            (None, true) => End::OutOfSteps,
            (None, false) => End::Whole,
        };
        let containers = if end == End::Whole { search.containers() } else { Vec::new() };
        Self { members: None, found, end, containers }
    }

    /// Returns the number of places, if known.
    pub(super) fn count(&self) -> Option<usize> {
        match &self.members {
            Some(members) => Some(members.count()),
            None => (self.end == End::Whole).then_some(self.found.len()),
        }
    }

    /// Returns the places counted one by one, in document order.
    pub(super) fn counted(&self) -> &[Found<'a>] {
        &self.found
    }

    /// Returns the bytes of the counted places, as JSON.
    pub(super) fn bytes(&self) -> u64 {
        match &self.members {
            Some(members) => members.container.bytes(),
            None => self.found.iter().map(|found| found.value.bytes()).sum(),
        }
    }

    /// Returns true if the search ran out of steps before the end.
    pub(super) fn is_out_of_steps(&self) -> bool {
        self.end == End::OutOfSteps
    }

    /// Returns the container, if the pattern covers exactly its parts.
    pub(super) fn container(&self) -> Option<&'a Node> {
        self.members.as_ref().map(|members| members.container)
    }

    /// Returns true if the pattern is known to match nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.count() == Some(0)
    }

    /// Returns the containers with all parts visited.
    pub(super) fn containers(&self) -> &[String] {
        &self.containers
    }

    /// Describes the number of places.
    pub(super) fn summary(&self, label: &str) -> String {
        let name = text::name(label);
        match (self.count(), self.found.len()) {
            (Some(count), _) => format!("{name}: {count} places"),
            (None, 0) => format!("{name}: no place found; not everything was looked at"),
            (None, found) => format!("{name}: at least {found} places"),
        }
    }
}

/// Describes a value that would have a line of its own.
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
    format!("{}: {what}, not shown", text::name(label))
}

/// Names the last author, as the suffix of a line; at most [`WRITER_MAX`] characters.
pub(super) fn of_writer(writer: &str) -> String {
    const WORDS: &str = "; last by ";
    format!("{WORDS}{}", text::prose(&text::name(writer), WRITER_MAX - WORDS.len()))
}

/// Describes the number of an object's members.
pub(super) fn of_object(label: &str, value: &Node) -> String {
    format!("{}: an object with {} members", text::name(label), value.part_count())
}

/// The topmost completely hidden values below a node.
pub(super) struct Hidden<'a> {
    /// JSON Pointer of the container of `Part` and `Range`.
    container: String,
    /// The array with the elements, if it is one.
    array: Option<&'a Node>,
    /// In document order; incomplete if there are more than requested.
    items: Vec<Item<'a>>,
    total: usize,
    /// True if there may be more.
    is_cut: bool,
}

/// A hidden place.
enum Item<'a> {
    Part(PathSegment<'a>),
    /// The first and the last index.
    Range(usize, usize),
    Place(String),
}

impl<'a> Hidden<'a> {
    /// Collects the hidden parts of a node. `is_shown` returns true for a node that is shown at least in part; at least
    /// `wanted` of the pointers are kept.
    pub(super) fn collect(
        layout: &Layout<'a>,
        node: usize,
        tally: Option<&MatchCount<'a>>,
        is_shown: &dyn Fn(usize) -> bool,
        wanted: usize,
    ) -> Self {
        let laid_out = &layout.nodes[node];
        let shown = laid_out.children.iter().filter(|(_, child)| is_shown(**child));
        let shown_parts = shown.filter_map(|(way, _)| way.steps().last().copied());
        match (laid_out.value, tally) {
            (Some(value), _) => Self::parts(layout.label(node), value, shown_parts.collect(), wanted),
            (None, Some(MatchCount { members: Some(members), .. })) => {
                let mut excluded: Vec<PathSegment<'a>> = shown_parts.chain(members.foreign.iter().copied()).collect();
                excluded.sort_unstable();
                Self::parts(members.label.clone(), members.container, excluded, wanted)
            }
            (None, Some(tally)) => {
                let is_shown =
                    |path: &[PathSegment<'a>]| laid_out.children.get(path).is_some_and(|child| is_shown(*child));
                Self::places(&layout.label(node), tally, &is_shown)
            }
            (None, None) => Self { container: String::new(), array: None, items: Vec::new(), total: 0, is_cut: false },
        }
    }

    /// Returns the parts of a container except `excluded`, which is in document order.
    fn parts(container: String, value: &'a Node, excluded: Vec<PathSegment<'a>>, wanted: usize) -> Self {
        let mut items = Vec::new();
        let total = value.part_count() - excluded.len();
        if let Node::Array(elements) = value {
            let mut from = 0;
            let indices = excluded.iter().filter_map(|step| match step {
                PathSegment::Index(index) => Some(*index),
                PathSegment::Key(_) => None,
            });
            for index in indices.chain([elements.len()]) {
                if from < index {
                    items.push(Item::Range(from, index - 1));
                }
                from = index + 1;
            }
        } else {
            // If not all can be kept, the search stops at the number that a list shows.
            let most = wanted.max(NAMES_MAX);
            let most = if total > most { NAMES_MAX } else { most };
            let mut excluded = excluded.iter().peekable();
            let mut listed = 0;
            for (step, _) in value.first_parts() {
                #[cfg(test)]
                super::tests::visit();
                if excluded.next_if_eq(&&step).is_some() {
                    continue;
                }
                let is_list_full = listed > HIDDEN_MAX - COUNT_MAX + SEPARATOR_CHARS;
                if items.len() >= most || (is_list_full && items.len() >= wanted) {
                    break;
                }
                if let PathSegment::Key(name) = step {
                    listed += text::chars(name) + SEPARATOR_CHARS;
                }
                items.push(Item::Part(step));
            }
        }
        let array = value.as_array().is_some().then_some(value);
        Self { container, array, items, total, is_cut: false }
    }

    /// Returns the hidden places of a pattern; by index if they are the parts of one container.
    fn places(pattern: &str, tally: &MatchCount<'a>, is_shown: &dyn Fn(&[PathSegment<'a>]) -> bool) -> Self {
        let container = pattern.strip_suffix("/*").filter(|container| !container.contains('*'));
        let (container_place, is_cut) = (container.unwrap_or_default().to_owned(), tally.end != End::Whole);
        let mut hidden = Self { container: container_place, array: None, items: Vec::new(), total: 0, is_cut };
        for found in &tally.found {
            if is_shown(&found.path) {
                continue;
            }
            hidden.total += 1;
            match (container.and(found.path.last()), hidden.items.last_mut()) {
                (Some(PathSegment::Index(index)), Some(Item::Range(_, last))) if *last + 1 == *index => *last = *index,
                (Some(PathSegment::Index(index)), _) => hidden.items.push(Item::Range(*index, *index)),
                (Some(step), _) => hidden.items.push(Item::Part(*step)),
                (None, _) => hidden.items.push(Item::Place(found.label())),
            }
        }
        hidden
    }

    /// Appends neighbouring elements to `out`: the first and the last index, with the elements' identifiers.
    fn push_range(&self, out: &mut String, from: usize, to: usize, with_ids: bool) {
        for index in [Some(from), (from < to).then_some(to)].into_iter().flatten() {
            if index > from {
                out.push_str(" to ");
            }
            search::push_index(out, index);
            let element = || self.array?.as_array()?.get(index)?.child("id");
            let id = with_ids.then(element).flatten().filter(|id| !id.has_parts());
            if let Some(id) = id.and_then(|id| text::short(id, ID_MAX)) {
                out.push_str(&format!(" ({id})"));
            }
        }
    }

    /// Returns the hidden items with their reasons; `why` returns the reason for a part that is laid out.
    pub(super) fn items(&self, why: &dyn Fn(PathSegment<'a>) -> OutcomeReason) -> Vec<Explained> {
        let below = |step: PathSegment<'_>| {
            let mut place = self.container.clone();
            search::push_step(&mut place, step);
            place
        };
        let explained = |place, last, why| Explained { place, last, fate: PlaceOutcome::Summarised, why };
        let of = |item: &Item<'a>| match item {
            Item::Part(step) => explained(below(*step), None, why(*step)),
            Item::Place(place) => explained(place.clone(), None, OutcomeReason::NoRoom),
            Item::Range(from, to) => {
                // If one of them was tried and did not fit, the others were not tried.
                let whys = (*from..=(*to).min(*from + NAMES_MAX)).map(|index| why(PathSegment::Index(index)));
                let why = whys.min().unwrap_or(OutcomeReason::NoRoom);
                explained(below(PathSegment::Index(*from)), (from < to).then(|| below(PathSegment::Index(*to))), why)
            }
        };
        self.items.iter().map(of).collect()
    }

    /// Adds the hidden items to `summarised`, as far as there is room.
    pub(super) fn note(&self, summarised: &mut SummarisedPlaces) {
        for item in &self.items {
            match item {
                Item::Range(from, to) => summarised.push_elements(&self.container, *from..*to + 1),
                Item::Part(PathSegment::Index(index)) => summarised.push_elements(&self.container, *index..*index + 1),
                Item::Part(PathSegment::Key(name)) => summarised.push_member(&self.container, name),
                Item::Place(label) => summarised.push(label),
            }
        }
    }

    /// Lists the hidden items up to a limit of characters, by name within their container or by pointer: `0 to 8, 11`.
    /// Items that do not fit are counted. `None` if nothing is hidden.
    pub(super) fn list(&self) -> Option<String> {
        let (mut out, mut more) = (String::with_capacity(HIDDEN_MAX), self.total);
        for item in &self.items {
            let end = out.len();
            if end > 0 {
                out.push_str(", ");
            }
            match item {
                Item::Place(label) => text::push_name(&mut out, label),
                Item::Part(PathSegment::Key(name)) => text::push_name(&mut out, name),
                Item::Part(PathSegment::Index(index)) => search::push_index(&mut out, *index),
                Item::Range(from, to) => self.push_range(&mut out, *from, *to, true),
            }
            let separator = if end > 0 { 0 } else { SEPARATOR_CHARS };
            let is_too_long = |out: &str| text::chars(out) + separator + COUNT_MAX > HIDDEN_MAX;
            if let (Item::Range(from, to), true) = (item, is_too_long(&out)) {
                out.truncate(end);
                out.push_str(if end > 0 { ", " } else { "" });
                self.push_range(&mut out, *from, *to, false);
            }
            if is_too_long(&out) {
                out.truncate(end);
                break;
            }
            more -= match item {
                Item::Range(from, to) => to - from + 1,
                Item::Part(_) | Item::Place(_) => 1,
            };
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
