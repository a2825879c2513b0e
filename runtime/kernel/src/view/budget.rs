//! Chooses what is shown when not everything fits.
//!
//! Arithmetic over the characters of lines. What the trigger points at comes first, then short fields, the few parts of
//! every collection that changed last, long fields, and the rest of the collections, latest change first; a collection
//! that is not shown wholly says so in one line that is paid for beforehand. Nothing is looked at that could not be
//! shown but for the bounds in [`Bounds`], so the cost is the budget's and not the state's.

use std::collections::HashMap;

use jsonptr::Pointer;

use super::layout::{Kind, Layout};
use super::search::{CONTAINERS_MAX, Found, Order, Search};
use super::summary::{Hidden, Tally};
use super::{summary, text, whole};
use crate::pattern::Pattern;
use crate::tree::{Latest, Node, Step, Ties};

/// The most a field may measure to be kept before collections are.
const SMALL_FIELD_MAX: usize = 200;
/// How many parts of every collection come before the rest of any.
const NEWEST: usize = 3;
/// Characters of the line that counts what has no line of its own.
const MORE_MAX: usize = 40;
/// How many pointers of what is not shown are kept.
pub(super) const SUMMARISED_MAX: usize = 256;

/// Where looking for something to show ends although some of the budget is left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Lines in a row, within one part of a collection, and parts in a row, that did not fit.
    pub(super) misses: usize,
    /// Values laid out.
    pub(super) laid_out: usize,
    /// Steps of one search of a pattern, for what there is or for what changed last.
    pub(super) steps: usize,
}

impl Bounds {
    /// Those for a budget of this many characters.
    pub(super) const fn of(limit: usize) -> Self {
        Self { misses: 16, laid_out: 64 + limit / 4, steps: 512 + limit / 4 }
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
    /// Pointers of readable values of which nothing is shown, the highest such; at most [`SUMMARISED_MAX`].
    pub(super) summarised: Vec<String>,
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
        Self { text, reads, members, summarised: Vec::new() }
    }
}

/// Shows as much as fits into `limit` characters; `appendable` says of a pointer whether the worker may append to the
/// array there, `trigger` is the place that woke it.
pub(super) fn choose(
    state: &Node,
    reads: &[Pattern],
    limit: usize,
    bounds: Bounds,
    appendable: &dyn Fn(&str) -> bool,
    trigger: Option<&str>,
) -> Shown {
    let steps = bounds.steps;
    let tallies: Vec<Tally<'_>> = (0..reads.len()).map(|which| Tally::of(state, reads, which, steps)).collect();
    if let Some(shown) = whole::show(state, reads, &tallies, limit, steps, appendable) {
        return shown;
    }
    let mut choice = Choice {
        state,
        reads,
        appendable,
        bounds,
        limit,
        left: limit,
        layout: Layout::new(reads),
        paid: HashMap::new(),
        tallies,
    };
    choice.lay_out_places();
    choice.reserve_summaries();
    if let Some(trigger) = trigger.and_then(|trigger| Pointer::parse(trigger).ok()) {
        choice.take_at(trigger);
    }
    choice.take_by_rank();
    choice.finish()
}

/// What is paid for a node.
enum Paid {
    /// A line that tells of it: what it is and what of it is not shown.
    Summary(usize),
    /// The value itself.
    Value(String),
}

/// A collection none other lies above, and what of it was not yet tried.
struct Collection<'a> {
    node: usize,
    /// The pattern it lies under.
    root: usize,
    rest: Rest<'a>,
    /// Parts in a row of which nothing fitted.
    misses: usize,
    is_over: bool,
}

enum Rest<'a> {
    Parts(Latest<'a>),
    Places(Box<Search<'a>>),
}

struct Choice<'a, 'b> {
    state: &'a Node,
    reads: &'a [Pattern],
    appendable: &'b dyn Fn(&str) -> bool,
    bounds: Bounds,
    limit: usize,
    left: usize,
    layout: Layout<'a>,
    paid: HashMap<usize, Paid>,
    /// Of each pattern.
    tallies: Vec<Tally<'a>>,
}

impl<'a> Choice<'a, '_> {
    /// Lays out the places that patterns without wildcards name.
    fn lay_out_places(&mut self) {
        for which in 0..self.reads.len() {
            if self.layout.nodes[which].kind == Kind::Place {
                let found = Search::new(self.state, self.reads, which, Order::Latest, usize::MAX).next();
                if let Some(found) = found {
                    self.layout.top(which, found);
                }
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
        (0..self.reads.len()).filter_map(top).collect()
    }

    /// Pays for one line about everything at the top, as far as the characters go.
    fn reserve_summaries(&mut self) {
        self.left = self.left.saturating_sub(MORE_MAX);
        for node in self.tops() {
            // A short value is said in fewer words than that it is not shown.
            let size = self.summary_max(node);
            let line = self.line(node, size.min(self.left));
            if let Some(line) = line {
                self.left -= text::chars(&line);
                self.paid.insert(node, Paid::Value(line));
            } else if let Some(left) = self.left.checked_sub(size) {
                self.left = left;
                self.paid.insert(node, Paid::Summary(size));
            }
        }
    }

    /// The most characters the line about a node can have.
    fn summary_max(&self, node: usize) -> usize {
        let node = &self.layout.nodes[node];
        match (node.kind, node.value) {
            (Kind::Line, Some(value)) => text::chars(&summary::of_line(&node.label, value)),
            _ => text::chars(&text::name(&node.label)) + summary::CHARS_MAX,
        }
    }

    /// Takes what is on one line with the trigger: it, what it is in, or what is in it.
    fn take_at(&mut self, trigger: &Pointer) {
        let (mut value, mut floor, mut path) = (self.state, 0, Vec::new());
        let mut tokens = trigger.tokens();
        let mut place = jsonptr::PointerBuf::new();
        loop {
            if let Some(root) = self.reads.iter().position(|pattern| pattern.covers(&place)) {
                let found = Found { label: place.to_string(), path, value, floor };
                let mut node = self.layout.top(root, found);
                for token in tokens {
                    if self.layout.nodes[node].kind == Kind::Line {
                        break;
                    }
                    let Some((step, child, stamp)) = value.part(&token.decoded()) else { return };
                    (value, floor) = (child, stamp.under(floor).changed);
                    node = self.layout.child(node, step, value, floor);
                }
                self.expand(node, &mut 0);
                return;
            }
            let Some(token) = tokens.next() else { break };
            let token = token.decoded();
            let Some((step, child, stamp)) = value.part(&token) else { return };
            (value, floor) = (child, stamp.under(floor).changed);
            path.push(step);
            place.push_back(token.as_ref());
        }
        // No more than parts of it may be read.
        for which in 0..self.reads.len() {
            if self.reads[which].reaches_below(trigger) {
                let search = Search::new(self.state, self.reads, which, Order::Latest, self.bounds.steps);
                let search = Box::new(search.below(trigger, path.clone(), value, floor));
                let mut below = Collection::new(which, which, Rest::Places(search));
                while !below.is_over {
                    self.advance(&mut below);
                }
            }
        }
    }

    /// Takes what fits, most wanted first.
    fn take_by_rank(&mut self) {
        let (mut long, mut collections) = (Vec::new(), Vec::new());
        for top in self.tops() {
            let root = self.layout.above(top).last().unwrap_or(top);
            self.take_fields(top, root, &mut long, &mut collections);
        }
        for _ in 0..NEWEST {
            collections.iter_mut().for_each(|collection| self.advance(collection));
        }
        for field in long {
            self.take(field);
        }
        for of_one_root in collections.chunk_by_mut(|a, b| a.root == b.root) {
            while of_one_root.iter().any(|collection| !collection.is_over) {
                of_one_root.iter_mut().for_each(|collection| self.advance(collection));
            }
        }
    }

    /// Takes the short values that are in no collection; notes the long ones and the collections.
    fn take_fields(&mut self, node: usize, root: usize, long: &mut Vec<usize>, collections: &mut Vec<Collection<'a>>) {
        let layout = &self.layout.nodes[node];
        let Some(value) = layout.value else {
            let search = Search::new(self.state, self.reads, node, Order::Latest, self.bounds.steps);
            return collections.push(Collection::new(node, root, Rest::Places(Box::new(search))));
        };
        if self.layout.is_collection(node) {
            let parts = value.latest(layout.floor, Ties::Last);
            return collections.push(Collection::new(node, root, Rest::Parts(parts)));
        }
        if layout.kind == Kind::Line {
            if text::fits(value, SMALL_FIELD_MAX) {
                self.take(node);
            } else {
                long.push(node);
            }
            return;
        }
        for child in self.fields(node) {
            self.take_fields(child, root, long, collections);
        }
    }

    /// Lays out the members of an object that is no collection.
    fn fields(&mut self, node: usize) -> Vec<usize> {
        let Some(value) = self.layout.nodes[node].value else { return Vec::new() };
        let floor = self.layout.nodes[node].floor;
        let mut fields = Vec::new();
        for (step, member) in value.parts() {
            if self.is_worn_out() {
                break;
            }
            let Step::Key(key) = step else { continue };
            let changed = value.part(key).map_or(0, |(_, _, stamp)| stamp.changed);
            fields.push(self.layout.child(node, step, member, changed.max(floor)));
        }
        fields
    }

    /// Whether no more may be laid out.
    fn is_worn_out(&self) -> bool {
        self.layout.nodes.len() >= self.bounds.laid_out.saturating_add(self.reads.len())
    }

    /// Whether not even the shortest line about a part of the value fits.
    fn is_full(&self, node: usize) -> bool {
        let node = &self.layout.nodes[node];
        let label = if node.kind == Kind::Pattern { 0 } else { text::chars(&node.label) };
        self.left < label + 5 || self.is_worn_out()
    }

    /// Takes what fits of the next part of a collection.
    fn advance(&mut self, collection: &mut Collection<'a>) {
        if collection.is_over || self.is_full(collection.node) {
            collection.is_over = true;
            return;
        }
        let floor = self.layout.nodes[collection.node].floor;
        let next = match &mut collection.rest {
            Rest::Parts(parts) => parts.next().map(|(step, value, stamp)| {
                self.layout.child(collection.node, step, value, stamp.under(floor).changed)
            }),
            Rest::Places(places) => places.next().map(|found| self.layout.top(collection.node, found)),
        };
        match next {
            Some(part) if self.expand(part, &mut 0) => collection.misses = 0,
            Some(_) => collection.misses += 1,
            None => collection.is_over = true,
        }
        collection.is_over |= collection.misses >= self.bounds.misses;
    }

    /// Takes what fits of a value; whether something of it is shown. `misses` counts the lines in a row that did not
    /// fit.
    fn expand(&mut self, node: usize, misses: &mut usize) -> bool {
        let layout = &self.layout.nodes[node];
        let (Some(value), floor) = (layout.value, layout.floor) else { return false };
        if layout.kind == Kind::Line {
            let is_taken = self.take(node);
            *misses = if is_taken { 0 } else { *misses + 1 };
            return is_taken;
        }
        let mut is_any = false;
        if self.layout.is_collection(node) {
            let is_outermost = !self.layout.above(node).any(|above| self.layout.is_collection(above));
            // Within a part of a collection ties go as the document does, so that it reads from its beginning.
            let ties = if is_outermost { Ties::Last } else { Ties::First };
            for (step, part, stamp) in value.latest(floor, ties) {
                if *misses >= self.bounds.misses || self.is_full(node) {
                    break;
                }
                let child = self.layout.child(node, step, part, stamp.changed);
                is_any |= self.expand(child, misses);
            }
        } else {
            for child in self.fields(node) {
                if *misses >= self.bounds.misses {
                    break;
                }
                is_any |= self.expand(child, misses);
            }
        }
        is_any
    }

    /// Takes a line if it fits, together with the lines about what it is part of; whether it is shown.
    fn take(&mut self, node: usize) -> bool {
        let released = match self.paid.get(&node) {
            Some(Paid::Value(_)) => return true,
            Some(Paid::Summary(size)) => *size,
            None => 0,
        };
        let is_unpaid = |above: &usize| self.layout.nodes[*above].kind != Kind::Place && !self.paid.contains_key(above);
        let unpaid: Vec<(usize, usize)> =
            self.layout.above(node).filter(is_unpaid).map(|above| (above, self.summary_max(above))).collect();
        let summaries: usize = unpaid.iter().map(|(_, size)| size).sum();
        let Some(left) = (self.left + released).checked_sub(summaries) else { return false };
        let Some(line) = self.line(node, left) else { return false };
        self.left = left - text::chars(&line);
        self.paid.extend(unpaid.into_iter().map(|(above, size)| (above, Paid::Summary(size))));
        self.paid.insert(node, Paid::Value(line));
        true
    }

    /// The line of a value that is shown on one, if it has at most `limit` characters.
    fn line(&self, node: usize, limit: usize) -> Option<String> {
        let node = Some(&self.layout.nodes[node]).filter(|node| node.kind == Kind::Line)?;
        text::line(&node.label, node.value?, limit, self.appendable)
    }

    fn finish(self) -> Shown {
        let marks = self.marks();
        let mut out = Out::default();
        let tops = self.tops();
        for node in self.layout.in_order() {
            let is_top = tops.contains(&node);
            self.finish_node(node, is_top, &marks, &mut out);
        }
        let more = format!("… {} more places not shown\n", out.unmentioned);
        if out.unmentioned > 0 && text::chars(&out.text) + text::chars(&more) <= self.limit {
            out.text.push_str(&more);
        }
        out.reads.sort_unstable();
        out.summarised.sort_unstable();
        let shown = Shown::new(out.text, out.reads, out.members, out.containers);
        Shown { summarised: out.summarised, ..shown }
    }

    fn finish_node(&self, node: usize, is_top: bool, marks: &Marks, out: &mut Out) {
        let this = &self.layout.nodes[node];
        let (whole, any) = (marks.whole[node], marks.any[node]);
        let above = this.parent.filter(|above| self.layout.nodes[*above].value.is_some());
        if this.value.is_some() && whole && !above.is_some_and(|above| marks.whole[above]) {
            out.reads.push(this.label.clone());
        }
        if this.value.is_some() && is_top && !any && !whole && out.summarised.len() < SUMMARISED_MAX {
            out.summarised.push(this.label.clone());
        }
        // What is not shown of something that is shown in part; a pattern is always asked.
        let wanted = SUMMARISED_MAX - out.summarised.len();
        let hidden = if this.kind != Kind::Line
            && !whole
            && (any || this.kind == Kind::Pattern || self.paid.contains_key(&node))
        {
            let is_shown = |child: usize| marks.any[child] || marks.whole[child];
            Some(Hidden::of(this, self.tallies.get(node), &is_shown, wanted))
        } else {
            None
        };
        if let Some(hidden) = &hidden
            && (any || this.kind == Kind::Pattern)
        {
            out.summarised.extend(hidden.pointers(wanted));
        }
        match self.paid.get(&node) {
            Some(Paid::Value(line)) => out.text.push_str(line),
            Some(Paid::Summary(_)) => {
                let tally = self.tallies.get(node);
                match (this.kind, this.value) {
                    (Kind::Array, Some(value)) => {
                        out.members.push(this.label.clone());
                        let count = text::count_of_elements(&this.label, value.part_count(), self.appendable);
                        out.push(count, hidden.as_ref());
                    }
                    (Kind::Object, Some(value)) if !whole => {
                        out.members.push(this.label.clone());
                        out.push(summary::of_object(&this.label, value), hidden.as_ref());
                    }
                    (Kind::Line, Some(value)) if !whole => {
                        if value.has_parts() {
                            out.members.push(this.label.clone());
                        }
                        out.text.push_str(&summary::of_line(&this.label, value));
                    }
                    (Kind::Pattern, _) => {
                        let Some(tally) = tally else { return };
                        out.containers.extend_from_slice(tally.containers());
                        if !whole {
                            out.push(tally.summary(&this.label), hidden.as_ref());
                        }
                    }
                    _ => {}
                }
            }
            None if is_top && !any && !whole => out.unmentioned += 1,
            // That there is nothing is known as well.
            None if self.tallies.get(node).is_some_and(Tally::is_empty) => {
                out.containers.extend_from_slice(self.tallies[node].containers());
            }
            None => {}
        }
    }

    /// What is shown wholly, and of what something is.
    fn marks(&self) -> Marks {
        let count = self.layout.nodes.len();
        let mut marks = Marks { whole: vec![false; count], any: vec![false; count] };
        // Children come after their parents, so one pass from the end knows of each node what is shown below it.
        for node in (0..count).rev() {
            let this = &self.layout.nodes[node];
            let is_shown = matches!(self.paid.get(&node), Some(Paid::Value(_)));
            let parts = match (this.kind, this.value) {
                (Kind::Pattern, _) => self.tallies[node].count(),
                (_, value) => Some(value.map_or(this.children.len(), Node::part_count)),
            };
            marks.whole[node] = match this.kind {
                Kind::Line => is_shown,
                _ => parts == Some(this.children.len()) && this.children.values().all(|child| marks.whole[*child]),
            };
            marks.any[node] = is_shown || this.children.values().any(|child| marks.any[*child]);
        }
        marks
    }
}

impl<'a> Collection<'a> {
    const fn new(node: usize, root: usize, rest: Rest<'a>) -> Self {
        Self { node, root, rest, misses: 0, is_over: false }
    }
}

struct Marks {
    whole: Vec<bool>,
    any: Vec<bool>,
}

#[derive(Default)]
struct Out {
    text: String,
    reads: Vec<String>,
    members: Vec<String>,
    containers: Vec<String>,
    summarised: Vec<String>,
    unmentioned: usize,
}

impl Out {
    /// A line that counts, and names what is not shown.
    fn push(&mut self, count: String, hidden: Option<&Hidden<'_>>) {
        self.text.push_str(&count);
        if let Some(list) = hidden.and_then(Hidden::list) {
            self.text.push_str("; not shown: ");
            self.text.push_str(&list);
        }
        self.text.push('\n');
    }
}
