//! Selects the lines of a view if not everything fits.
//!
//! Owns the arithmetic over the characters of lines: a line is taken if it fits together with the lines about its
//! containers. `priority` takes the places with priority, `order` ranks the rest, and `outcome` renders the result with
//! its reasons. The search is limited by [`Bounds`], so the cost depends on the budget and not on the state.

mod order;
mod outcome;
mod priority;

use std::collections::BTreeMap;
use std::ops::Range;

use super::explanation::OutcomeReason;
use super::layout::{Kind, Layout};
use super::search::Reads;
use super::selection::Selection;
use super::summarised_places::SUMMARISED_MAX;
use super::summary::MatchCount;
use super::{RANGES, full, summary, text};
use crate::pattern::Pattern;
use crate::tree::{Node, Revision};
pub(super) use priority::PriorityPlace;

/// Initial capacity for lines; it grows as needed.
const LINES_BYTES: usize = 1 << 13;
/// Maximum characters of the line that counts places without a line.
const MORE_MAX: usize = 40;
/// Minimum characters of a text excerpt.
const BEGINNING_MIN: usize = 80;
/// Maximum characters that describe the range of an excerpt.
const BEGINNING_WORDS_MAX: usize = 80;

/// Parameters of a choice, in addition to the state and the read patterns.
pub(super) struct SelectionInput<'a> {
    /// Returns true for the pointer of an array that the worker may append to.
    pub(super) appendable: &'a dyn Fn(&str) -> bool,
    /// Places with priority, most wanted first.
    pub(super) first: &'a [PriorityPlace<'a>],
    /// Number of places in the latest request.
    pub(super) newest: usize,
    /// See [`Inputs::compiler`](super::Inputs::compiler).
    pub(super) compiler: u32,
    /// Characters to keep free if not everything fits.
    pub(super) reserve: usize,
    /// Returns the name of a version's author, if the worker may see it; `None`: names are not shown.
    pub(super) writer: Option<&'a dyn Fn(Revision) -> Option<String>>,
}

/// Bounds of the search, which apply even if some of the budget is left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Consecutive lines of a collection that did not fit.
    pub(super) misses: usize,
    pub(super) laid_out: usize,
    /// Steps of one pattern search, for existing places or for the latest changes.
    pub(super) steps: usize,
    /// Names listed of places that only a summary covers; they do not affect the view.
    pub(super) summarised: usize,
}

impl Bounds {
    /// Returns the bounds for a budget of this many characters.
    pub(super) const fn for_limit(limit: usize) -> Self {
        Self { misses: 16, laid_out: 64 + limit / 4, steps: 256 + limit / 4, summarised: SUMMARISED_MAX }
    }
}

/// Selects as much as fits into `limit` characters.
pub(super) fn choose(
    state: &Node,
    reads: &[Pattern],
    limit: usize,
    bounds: Bounds,
    wanted: &SelectionInput<'_>,
) -> Selection {
    let steps = bounds.steps;
    let reads = &Reads::new(reads);
    let tallies: Vec<MatchCount<'_>> =
        (0..reads.patterns.len()).map(|which| MatchCount::count_matches(state, reads, which, steps)).collect();
    let is_explained = bounds.summarised > 0;
    if let Some(everything) = full::show(state, reads, &tallies, limit, steps, wanted.appendable, is_explained) {
        return everything;
    }
    let limit = limit.saturating_sub(wanted.reserve);
    let mut choice = Selector {
        state,
        reads,
        input: wanted,
        bounds,
        limit,
        left: limit,
        layout: Layout::new(reads.patterns),
        paid: Vec::new(),
        reasons: Vec::new(),
        reason: OutcomeReason::Brief,
        may_begin: false,
        excerpt_start: 0,
        excerpt_starts: BTreeMap::new(),
        is_first: false,
        pages: Vec::new(),
        lines: String::with_capacity(limit.min(LINES_BYTES)),
        label: String::new(),
        tallies,
    };
    choice.lay_out_places();
    choice.left = choice.left.saturating_sub(MORE_MAX);
    let asked = wanted.first.iter().filter(|first| first.why == OutcomeReason::Asked).count();
    if wanted.compiler >= RANGES && asked > 0 {
        choice.take_first(asked);
        choice.reserve_summaries();
        choice.mention_asked();
    } else {
        choice.reserve_summaries();
        choice.take_first_of_4();
    }
    choice.take_by_rank();
    choice.finish()
}

/// The line that a node has paid for.
enum PaidLine {
    /// A summary line of this many characters: what the node is, and which part of it is not shown.
    Summary(usize),
    /// The value itself: the range of its line in [`Selector::lines`].
    Value(Range<usize>),
    /// An excerpt of a text: the range of its line.
    Beginning(Range<usize>),
}

struct Selector<'a, 'b> {
    state: &'a Node,
    reads: &'a Reads<'a>,
    input: &'b SelectionInput<'b>,
    bounds: Bounds,
    limit: usize,
    left: usize,
    layout: Layout<'a>,
    /// By node; `None` where no line is paid.
    paid: Vec<Option<PaidLine>>,
    /// By node: the reason for its fate, for nodes that were tried, if explanations are requested.
    reasons: Vec<Option<OutcomeReason>>,
    /// The reason for the current attempts.
    reason: OutcomeReason,
    /// True if an excerpt of a text is acceptable.
    may_begin: bool,
    /// Number of characters before the excerpt.
    excerpt_start: usize,
    /// By node: number of characters before its excerpt.
    excerpt_starts: BTreeMap<usize, usize>,
    /// True for places with priority: lines about their containers are paid for later.
    is_first: bool,
    /// Requested collections.
    pages: Vec<priority::Page<'a>>,
    /// The taken lines, in the order of taking.
    lines: String,
    /// Buffer with the latest label.
    label: String,
    /// By pattern.
    tallies: Vec<MatchCount<'a>>,
}

impl<'a> Selector<'a, '_> {
    /// Lays out the places named by patterns without wildcards.
    fn lay_out_places(&mut self) {
        for which in 0..self.reads.patterns.len() {
            if self.layout.nodes[which].kind == Kind::Place
                && let Some(found) = self.tallies[which].counted().first()
            {
                self.layout.top(which, found.clone());
            }
        }
    }

    /// Returns the top nodes, in order: each has a line of its own if it is not shown. They are the patterns with
    /// matches, and the places of the other patterns.
    fn tops(&self) -> Vec<usize> {
        let top = |root: usize| match self.layout.nodes[root].kind {
            Kind::Pattern => (!self.tallies[root].is_empty()).then_some(root),
            Kind::Place | Kind::Array | Kind::Object | Kind::Line => {
                self.layout.nodes[root].children.values().next().copied()
            }
        };
        (0..self.reads.patterns.len()).filter_map(top).collect()
    }

    /// Pays for one line about every top node, as far as the budget suffices.
    fn reserve_summaries(&mut self) {
        for node in self.tops() {
            if self.paid(node).is_some() {
                continue;
            }
            // A short value takes less room than its summary.
            let size = self.summary_max(node);
            if let Some((line, length)) = self.write(node, size.min(self.left)) {
                self.left -= length;
                self.pay(node, PaidLine::Value(line));
                self.note(node, OutcomeReason::Brief);
            } else if let Some(left) = self.left.checked_sub(size) {
                self.left = left;
                self.pay(node, PaidLine::Summary(size));
            }
        }
    }

    /// Returns the maximum characters of the line about a node.
    fn summary_max(&mut self, node: usize) -> usize {
        let label = self.label(node);
        let name = text::name_chars(label);
        match (self.layout.nodes[node].kind, self.layout.nodes[node].value) {
            // The value and its line feed.
            (Kind::Line, Some(value)) => text::chars(&summary::of_line(&self.label, value)) + 1 + self.writer_max(),
            _ => name + summary::WORDS_MAX + self.names_max(node) + self.writer_max(),
        }
    }

    /// Returns the maximum characters that name the author of a change.
    const fn writer_max(&self) -> usize {
        if self.input.writer.is_some() { summary::WRITER_MAX } else { 0 }
    }

    /// Returns the JSON Pointer of a value; for a pattern, its text.
    fn label(&mut self, node: usize) -> &str {
        self.label.clear();
        self.layout.push_label(&mut self.label, node);
        &self.label
    }

    fn paid(&self, node: usize) -> Option<&PaidLine> {
        self.paid.get(node).and_then(Option::as_ref)
    }

    fn pay(&mut self, node: usize, paid: PaidLine) {
        if self.paid.len() <= node {
            self.paid.resize_with(node + 1, || None);
        }
        self.paid[node] = Some(paid);
    }

    /// Records the reason for a node's fate, if explanations are requested.
    fn note(&mut self, node: usize, why: OutcomeReason) {
        if self.bounds.summarised == 0 {
            return;
        }
        if self.reasons.len() <= node {
            self.reasons.resize(node + 1, None);
        }
        self.reasons[node] = Some(why);
    }

    /// Returns true if no more nodes may be laid out.
    fn is_exhausted(&self) -> bool {
        self.layout.nodes.len() >= self.bounds.laid_out.saturating_add(self.reads.patterns.len())
    }

    /// Takes a line if it fits together with the lines about its containers; returns true if the value is shown
    /// completely.
    fn take(&mut self, node: usize) -> bool {
        let released = match self.paid(node) {
            Some(PaidLine::Value(_)) => return true,
            Some(PaidLine::Beginning(_)) => return false,
            Some(PaidLine::Summary(size)) => *size,
            None => 0,
        };
        let because = self.reason;
        self.note(node, OutcomeReason::TooLong);
        let is_unpaid = |above: &usize| self.layout.nodes[*above].kind != Kind::Place && self.paid(*above).is_none();
        let unpaid: Vec<usize> = self.layout.above(node).filter(is_unpaid).filter(|_| !self.is_first).collect();
        let unpaid: Vec<(usize, usize)> = unpaid.into_iter().map(|above| (above, self.summary_max(above))).collect();
        let summaries: usize = unpaid.iter().map(|(_, size)| size).sum();
        let Some(left) = (self.left + released).checked_sub(summaries) else { return false };
        let whole = self.write(node, left).map(|(line, length)| (PaidLine::Value(line), length));
        let begun = || self.write_excerpt(node, left).map(|(line, length)| (PaidLine::Beginning(line), length));
        let Some((paid, length)) = whole.or_else(begun) else { return false };
        let is_whole = matches!(paid, PaidLine::Value(_));
        if !is_whole {
            self.excerpt_starts.insert(node, self.excerpt_start);
        }
        self.left = left - length;
        unpaid.into_iter().for_each(|(above, size)| self.pay(above, PaidLine::Summary(size)));
        self.pay(node, paid);
        self.note(node, because);
        is_whole
    }

    /// Writes the excerpt of a text that fits, if excerpts are acceptable.
    fn write_excerpt(&mut self, node: usize, limit: usize) -> Option<(Range<usize>, usize)> {
        if !self.may_begin {
            return None;
        }
        let value = self.layout.nodes[node].value?;
        let text = value.as_str()?;
        let room = limit.checked_sub(text::name_chars(self.label(node)) + BEGINNING_WORDS_MAX)?;
        if room < BEGINNING_MIN {
            return None;
        }
        let (at, _) = text.char_indices().nth(self.excerpt_start)?;
        let (part, count) = text::beginning(&text[at..], room);
        let (first, last) = (self.excerpt_start + 1, self.excerpt_start + count);
        let which = match self.input.compiler >= RANGES {
            true => format!("characters {first} to {last} of {}", text::chars(text)),
            false => format!("its first {count} characters, there are more"),
        };
        let start = self.lines.len();
        text::push_name(&mut self.lines, &self.label);
        self.lines.push_str(&format!(": {part} ({which})\n"));
        Some((start..self.lines.len(), text::chars(&self.lines[start..])))
    }

    /// Writes the line of a value if it has at most `limit` characters; returns its range and its number of characters.
    fn write(&mut self, node: usize, limit: usize) -> Option<(Range<usize>, usize)> {
        let laid_out = Some(&self.layout.nodes[node]).filter(|node| node.kind == Kind::Line)?;
        let (value, length) = (laid_out.value?, laid_out.length);
        let name = text::name_chars(self.label(node));
        if length.is_some_and(|length| name + length + 3 > limit) {
            return None;
        }
        let start = self.lines.len();
        let length = text::push_line(&mut self.lines, &self.label, value, limit, self.input.appendable)?;
        Some((start..self.lines.len(), length))
    }
}
