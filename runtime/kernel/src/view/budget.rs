//! Chooses what is shown when not everything fits.
//!
//! Owns the arithmetic over the characters of lines: a line is taken if it fits together with the lines about what it is
//! part of. `asked` takes what comes before all else, `order` says what is tried, and in which order; `outcome` what comes of it, and why. Nothing is looked at that could
//! not be shown but for the bounds in [`Bounds`], so the cost is the budget's and not the state's.

mod asked;
mod order;
mod outcome;

use std::collections::BTreeMap;
use std::ops::Range;

use super::explained::{Item, Why};
use super::layout::{Kind, Layout};
use super::search::{CONTAINERS_MAX, Reads};
use super::summarised::{SUMMARISED_MAX, Summarised};
use super::summary::Tally;
use super::unshown::Unshown;
use super::{RANGES, summary, text, whole};
use crate::pattern::Pattern;
use crate::tree::{At, Node};
pub(super) use asked::First;

/// Room for lines that is set aside at first; more is asked for when it is needed.
const LINES_BYTES: usize = 1 << 13;
/// Characters of the line that counts what has no line of its own.
const MORE_MAX: usize = 40;
/// The fewest characters of a text whose beginning is shown.
const BEGINNING_MIN: usize = 80;
/// Characters that say which part of the text it is.
const BEGINNING_WORDS_MAX: usize = 80;

/// What is wanted of a choice, beside the state and what may be read of it.
pub(super) struct Wanted<'a> {
    /// Says of a pointer whether the worker may append to the array there.
    pub(super) appendable: &'a dyn Fn(&str) -> bool,
    /// Places that come before all others, most wanted first.
    pub(super) first: &'a [First<'a>],
    /// Number of those that were asked for last.
    pub(super) newest: usize,
    /// See [`Inputs::compiler`](super::Inputs::compiler).
    pub(super) compiler: u32,
    /// Characters to keep free if not everything fits.
    pub(super) reserve: usize,
    /// Who made a version, as it may be told; nobody is named without.
    pub(super) writer: Option<&'a dyn Fn(At) -> Option<String>>,
}

/// Where looking for something to show ends although some of the budget is left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Lines of a collection in a row that did not fit.
    pub(super) misses: usize,
    /// Values laid out.
    pub(super) laid_out: usize,
    /// Steps of one search of a pattern, for what there is or for what changed last.
    pub(super) steps: usize,
    /// Places named of which no more than a summary is shown; what is shown does not depend on it.
    pub(super) summarised: usize,
}

impl Bounds {
    /// Those for a budget of this many characters.
    pub(super) const fn of(limit: usize) -> Self {
        Self { misses: 16, laid_out: 64 + limit / 4, steps: 256 + limit / 4, summarised: SUMMARISED_MAX }
    }
}

/// The shown part of a state.
#[derive(Debug)]
pub(super) struct Shown {
    /// Lines about the state, in order, each ended by a line feed.
    pub(super) text: String,
    /// Pointers whose whole values are shown; none lies below another.
    pub(super) reads: Vec<String>,
    /// Pointers of containers whose membership is shown and that are not, and not in something, in `reads`.
    pub(super) members: Vec<String>,
    /// Readable values of which nothing is shown, the highest such.
    pub(super) summarised: Summarised,
    /// See [`View::unshown`](super::View::unshown).
    pub(super) unshown: Vec<Unshown>,
    /// Why, if somebody asked.
    pub(super) items: Vec<Item>,
    /// Whether everything is shown that may be read.
    pub(super) is_everything: bool,
    /// True if something of what was asked for last is shown or named.
    pub(super) finds_room: bool,
}

impl Shown {
    /// `reads` are sorted. Of the `containers` that were looked through the highest [`CONTAINERS_MAX`] are members as
    /// well; those that lie in `reads` are not.
    pub(super) fn new(text: String, reads: Vec<String>, mut members: Vec<String>, mut containers: Vec<String>) -> Self {
        containers.sort_by_cached_key(|place| place.matches('/').count());
        containers.truncate(CONTAINERS_MAX);
        members.append(&mut containers);
        let is_read = |place: &str| {
            let mut above = Some(place);
            while let Some(place) = above {
                if reads.binary_search_by(|read| read.as_str().cmp(place)).is_ok() {
                    return true;
                }
                above = place.rfind('/').map(|end| &place[..end]);
            }
            false
        };
        members.retain(|place| !is_read(place));
        members.sort_unstable();
        members.dedup();
        Self {
            text,
            reads,
            members,
            summarised: Summarised::default(),
            unshown: Vec::new(),
            items: Vec::new(),
            is_everything: true,
            finds_room: true,
        }
    }
}

/// Shows as much as fits into `limit` characters.
pub(super) fn choose(state: &Node, reads: &[Pattern], limit: usize, bounds: Bounds, wanted: &Wanted<'_>) -> Shown {
    let steps = bounds.steps;
    let reads = &Reads::new(reads);
    let tallies: Vec<Tally<'_>> =
        (0..reads.patterns.len()).map(|which| Tally::of(state, reads, which, steps)).collect();
    let is_explained = bounds.summarised > 0;
    if let Some(everything) = whole::show(state, reads, &tallies, limit, steps, wanted.appendable, is_explained) {
        return everything;
    }
    let limit = limit.saturating_sub(wanted.reserve);
    let mut choice = Choice {
        state,
        reads,
        wanted,
        bounds,
        limit,
        left: limit,
        layout: Layout::new(reads.patterns),
        paid: Vec::new(),
        why: Vec::new(),
        because: Why::Brief,
        may_begin: false,
        begins_at: 0,
        begun: BTreeMap::new(),
        is_first: false,
        pages: Vec::new(),
        lines: String::with_capacity(limit.min(LINES_BYTES)),
        label: String::new(),
        tallies,
    };
    choice.lay_out_places();
    choice.left = choice.left.saturating_sub(MORE_MAX);
    let asked = wanted.first.iter().filter(|first| first.why == Why::Asked).count();
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

/// What is paid for a node.
enum Paid {
    /// A line that tells of it: what it is and what of it is not shown.
    Summary(usize),
    /// The value itself: where its line is in [`Choice::lines`].
    Value(Range<usize>),
    /// A part of a text: where its line is.
    Beginning(Range<usize>),
}

struct Choice<'a, 'b> {
    state: &'a Node,
    reads: &'a Reads<'a>,
    wanted: &'b Wanted<'b>,
    bounds: Bounds,
    limit: usize,
    left: usize,
    layout: Layout<'a>,
    /// By node, as far as something is paid.
    paid: Vec<Option<Paid>>,
    /// By node, why it is shown or not, as far as it was tried and somebody asks.
    why: Vec<Option<Why>>,
    /// Why what is tried is tried.
    because: Why,
    /// True where a part of a text will do.
    may_begin: bool,
    /// Number of characters before that part.
    begins_at: usize,
    /// By node, number of characters before the part that is shown.
    begun: BTreeMap<usize, usize>,
    /// True for what comes before all else: lines about its containers are paid for later.
    is_first: bool,
    /// Collections that were asked for.
    pages: Vec<asked::Page<'a>>,
    /// The lines taken, in the order in which they were.
    lines: String,
    /// The label that was asked for last.
    label: String,
    /// Of each pattern.
    tallies: Vec<Tally<'a>>,
}

impl<'a> Choice<'a, '_> {
    /// Lays out the places that patterns without wildcards name.
    fn lay_out_places(&mut self) {
        for which in 0..self.reads.patterns.len() {
            if self.layout.nodes[which].kind == Kind::Place
                && let Some(found) = self.tallies[which].counted().first()
            {
                self.layout.top(which, found.clone());
            }
        }
    }

    /// What answers for itself where it is not shown, in order: patterns that match, and the places of the others.
    fn tops(&self) -> Vec<usize> {
        let top = |root: usize| match self.layout.nodes[root].kind {
            Kind::Pattern => (!self.tallies[root].is_empty()).then_some(root),
            Kind::Place | Kind::Array | Kind::Object | Kind::Line => {
                self.layout.nodes[root].children.values().next().copied()
            }
        };
        (0..self.reads.patterns.len()).filter_map(top).collect()
    }

    /// Pays for one line about everything at the top, as far as the characters go.
    fn reserve_summaries(&mut self) {
        for node in self.tops() {
            if self.paid(node).is_some() {
                continue;
            }
            // A short value is said in fewer words than that it is not shown.
            let size = self.summary_max(node);
            if let Some((line, length)) = self.write(node, size.min(self.left)) {
                self.left -= length;
                self.pay(node, Paid::Value(line));
                self.note(node, Why::Brief);
            } else if let Some(left) = self.left.checked_sub(size) {
                self.left = left;
                self.pay(node, Paid::Summary(size));
            }
        }
    }

    /// The most characters the line about a node can have.
    fn summary_max(&mut self, node: usize) -> usize {
        let label = self.label(node);
        let name = text::name_chars(label);
        match (self.layout.nodes[node].kind, self.layout.nodes[node].value) {
            // And a line feed.
            (Kind::Line, Some(value)) => text::chars(&summary::of_line(&self.label, value)) + 1 + self.writer_max(),
            _ => name + summary::WORDS_MAX + self.names_max(node) + self.writer_max(),
        }
    }

    /// The most characters that say who wrote something.
    const fn writer_max(&self) -> usize {
        if self.wanted.writer.is_some() { summary::WRITER_MAX } else { 0 }
    }

    /// JSON Pointer of a value; for a pattern, its text.
    fn label(&mut self, node: usize) -> &str {
        self.label.clear();
        self.layout.push_label(&mut self.label, node);
        &self.label
    }

    fn paid(&self, node: usize) -> Option<&Paid> {
        self.paid.get(node).and_then(Option::as_ref)
    }

    fn pay(&mut self, node: usize, paid: Paid) {
        if self.paid.len() <= node {
            self.paid.resize_with(node + 1, || None);
        }
        self.paid[node] = Some(paid);
    }

    /// Keeps why something is shown or not, if somebody asks.
    fn note(&mut self, node: usize, why: Why) {
        if self.bounds.summarised == 0 {
            return;
        }
        if self.why.len() <= node {
            self.why.resize(node + 1, None);
        }
        self.why[node] = Some(why);
    }

    /// Whether no more may be laid out.
    fn is_worn_out(&self) -> bool {
        self.layout.nodes.len() >= self.bounds.laid_out.saturating_add(self.reads.patterns.len())
    }

    /// Takes a line if it fits, together with the lines about what it is part of; whether it is shown.
    fn take(&mut self, node: usize) -> bool {
        let released = match self.paid(node) {
            Some(Paid::Value(_)) => return true,
            Some(Paid::Beginning(_)) => return false,
            Some(Paid::Summary(size)) => *size,
            None => 0,
        };
        let because = self.because;
        self.note(node, Why::TooLong);
        let is_unpaid = |above: &usize| self.layout.nodes[*above].kind != Kind::Place && self.paid(*above).is_none();
        let unpaid: Vec<usize> = self.layout.above(node).filter(is_unpaid).filter(|_| !self.is_first).collect();
        let unpaid: Vec<(usize, usize)> = unpaid.into_iter().map(|above| (above, self.summary_max(above))).collect();
        let summaries: usize = unpaid.iter().map(|(_, size)| size).sum();
        let Some(left) = (self.left + released).checked_sub(summaries) else { return false };
        let whole = self.write(node, left).map(|(line, length)| (Paid::Value(line), length));
        let begun = || self.begin(node, left).map(|(line, length)| (Paid::Beginning(line), length));
        let Some((paid, length)) = whole.or_else(begun) else { return false };
        let is_whole = matches!(paid, Paid::Value(_));
        if !is_whole {
            self.begun.insert(node, self.begins_at);
        }
        self.left = left - length;
        unpaid.into_iter().for_each(|(above, size)| self.pay(above, Paid::Summary(size)));
        self.pay(node, paid);
        self.note(node, because);
        is_whole
    }

    /// Writes as much of a text as fits, if that will do.
    fn begin(&mut self, node: usize, limit: usize) -> Option<(Range<usize>, usize)> {
        if !self.may_begin {
            return None;
        }
        let value = self.layout.nodes[node].value?;
        let text = value.as_str()?;
        let room = limit.checked_sub(text::name_chars(self.label(node)) + BEGINNING_WORDS_MAX)?;
        if room < BEGINNING_MIN {
            return None;
        }
        let (at, _) = text.char_indices().nth(self.begins_at)?;
        let (part, count) = text::beginning(&text[at..], room);
        let (first, last) = (self.begins_at + 1, self.begins_at + count);
        let which = match self.wanted.compiler >= RANGES {
            true => format!("characters {first} to {last} of {}", text::chars(text)),
            false => format!("its first {count} characters, there are more"),
        };
        let start = self.lines.len();
        text::push_name(&mut self.lines, &self.label);
        self.lines.push_str(&format!(": {part} ({which})\n"));
        Some((start..self.lines.len(), text::chars(&self.lines[start..])))
    }

    /// Writes the line of a value that is shown on one, if it has at most `limit` characters; where it is, and how many
    /// it has.
    fn write(&mut self, node: usize, limit: usize) -> Option<(Range<usize>, usize)> {
        let laid_out = Some(&self.layout.nodes[node]).filter(|node| node.kind == Kind::Line)?;
        let (value, length) = (laid_out.value?, laid_out.length);
        let name = text::name_chars(self.label(node));
        if length.is_some_and(|length| name + length + 3 > limit) {
            return None;
        }
        let start = self.lines.len();
        let length = text::push_line(&mut self.lines, &self.label, value, limit, self.wanted.appendable)?;
        Some((start..self.lines.len(), length))
    }
}
