//! Renders a choice: the lines in document order, and the read set they establish.

use super::super::explanation::{ITEMS_MAX, OutcomeReason, PlaceExplanation, PlaceOutcome};
use super::super::layout::Kind;
use super::super::selection::Selection;
use super::super::summarised_places::SummarisedPlaces;
use super::super::summary::{self, Hidden, MatchCount};
use super::super::text;
use super::super::truncated::{self, TruncatedPlace};
use super::super::{NAMES, RANGES};
use super::{PaidLine, Selector};
use crate::tree::Node;

impl Selector<'_, '_> {
    pub(super) fn finish(mut self) -> Selection {
        let marks = self.marks();
        let is_shown = |child: usize| {
            let is = |marks: &[bool]| marks.get(child).copied().unwrap_or(false);
            is(&marks.any) || is(&marks.whole)
        };
        let finds_room = self.finds_room(&|_, child| is_shown(child));
        let mut out = Out {
            text: String::with_capacity(self.lines.len() + self.lines.len() / 4),
            summarised: SummarisedPlaces::up_to(self.bounds.summarised),
            ..Out::default()
        };
        let tops = self.tops();
        for node in self.layout.in_order() {
            let is_top = tops.contains(&node);
            self.finish_node(node, is_top, &marks, &mut out);
        }
        for line in self.loose_pages(&is_shown) {
            out.text.push_str(&line);
        }
        let names = if self.input.compiler >= NAMES { out.unmentioned.as_slice() } else { &[] };
        let room = self.limit.saturating_sub(text::chars(&out.text));
        let line = unmentioned(out.unmentioned.len(), names, room);
        out.text.extend(line);
        out.reads.sort_unstable();
        let shown = Selection::new(out.text, out.reads, out.members, out.containers);
        let mut unshown = Vec::new();
        tops.into_iter().for_each(|top| self.note_unshown(top, &marks, &mut unshown));
        let unshown = truncated::largest(unshown);
        Selection { summarised: out.summarised, unshown, items: out.items, is_everything: false, finds_room, ..shown }
    }

    /// Collects the incompletely shown collections and texts at or below a node.
    fn note_unshown(&self, node: usize, marks: &Marks, unshown: &mut Vec<TruncatedPlace>) {
        if marks.whole[node] {
            return;
        }
        let this = &self.layout.nodes[node];
        let is_split = this.kind == Kind::Object && !self.layout.is_collection(node);
        if is_split && this.value.is_some_and(|value| value.part_count() == this.children.len()) {
            return this.children.values().for_each(|child| self.note_unshown(*child, marks, unshown));
        }
        let shown = this.children.values().filter(|child| marks.whole[**child]).count();
        let tally = self.tallies.get(node);
        let (of, bytes, is_least) = match (this.value, tally) {
            (Some(value), _) if this.kind == Kind::Line => (1, value.bytes(), false),
            (Some(value), _) => (value.part_count(), value.bytes(), false),
            (None, Some(tally)) => {
                (tally.count().unwrap_or(tally.counted().len()), tally.bytes(), tally.count().is_none())
            }
            (None, None) => return,
        };
        if of > 0 {
            unshown.push(TruncatedPlace { at: self.layout.label(node), shown, of: of.max(shown), bytes, is_least });
        }
    }

    fn finish_node(&self, node: usize, is_top: bool, marks: &Marks, out: &mut Out) {
        let this = &self.layout.nodes[node];
        let (whole, any) = (marks.whole[node], marks.any[node]);
        let above = this.parent.filter(|above| self.layout.nodes[*above].value.is_some());
        if this.value.is_some() && whole && !above.is_some_and(|above| marks.whole[above]) {
            out.reads.push(self.layout.label(node));
        }
        if this.value.is_some() && is_top && !any && !whole {
            out.summarised.push(&self.layout.label(node));
        }
        // Hidden content of a partly shown node; always computed for a pattern.
        let wanted = out.summarised.room();
        let hidden =
            if this.kind != Kind::Line && !whole && (any || this.kind == Kind::Pattern || self.paid(node).is_some()) {
                let is_shown = |child: usize| marks.any[child] || marks.whole[child];
                Some(Hidden::collect(&self.layout, node, self.tallies.get(node), &is_shown, wanted))
            } else {
                None
            };
        if let Some(hidden) = &hidden
            && (any || this.kind == Kind::Pattern)
        {
            hidden.note(&mut out.summarised);
            if self.bounds.summarised > 0 {
                out.items.extend(hidden.items(&|step| self.why_hidden(this.children.get([step].as_slice()).copied())));
            }
        }
        match self.paid(node) {
            Some(PaidLine::Value(line)) => {
                out.text.push_str(&self.lines[line.clone()]);
                self.explain(node, PlaceOutcome::Shown, out);
            }
            Some(PaidLine::Beginning(line)) => {
                out.text.push_str(&self.lines[line.clone()]);
                self.explain(node, PlaceOutcome::Begun, out);
            }
            Some(PaidLine::Summary(_)) => {
                let is_shown = |child: usize| marks.any[child] || marks.whole[child];
                let names = match self.page(node) {
                    Some(page) if !whole => {
                        self.names(page, &is_shown).or_else(|| hidden.as_ref().and_then(Hidden::list))
                    }
                    _ => hidden.as_ref().and_then(Hidden::list),
                };
                let tally = self.tallies.get(node);
                let label = self.layout.label(node);
                match (this.kind, this.value) {
                    (Kind::Array, Some(value)) => {
                        let count = text::count_of_elements(&label, value.part_count(), self.input.appendable);
                        out.push(count, names, self.writer(node));
                        out.members.push(label);
                    }
                    (Kind::Object, Some(value)) if !whole => {
                        out.push(summary::of_object(&label, value), names, self.writer(node));
                        out.members.push(label);
                    }
                    (Kind::Line, Some(value)) if !whole => {
                        out.push(summary::of_line(&label, value), None, self.writer(node));
                        self.explain(node, PlaceOutcome::Summarised, out);
                        if value.has_parts() {
                            out.members.push(label);
                        }
                    }
                    (Kind::Pattern, _) => {
                        let Some(tally) = tally else { return };
                        out.containers.extend_from_slice(tally.containers());
                        if !whole {
                            out.push(tally.summary(&label), names, self.writer(node));
                        }
                    }
                    _ => {}
                }
            }
            None if is_top && !whole && (!any || self.input.compiler >= RANGES) => {
                out.unmentioned.push(self.layout.label(node));
                if !any {
                    self.explain(node, PlaceOutcome::LeftOut, out);
                }
            }
            // An empty match reveals membership, too.
            None if self.tallies.get(node).is_some_and(MatchCount::is_empty) => {
                out.containers.extend_from_slice(self.tallies[node].containers());
            }
            None => {}
        }
    }

    /// Returns the words that name the last author of a line's content.
    fn writer(&self, node: usize) -> String {
        let this = &self.layout.nodes[node];
        let container = this.value.or_else(|| self.tallies.get(node)?.container());
        let at = container.map_or(this.floor, |value| this.floor.max(value.modified_at()));
        let writer = self.input.writer.and_then(|writer| writer(at));
        writer.map(|writer| summary::of_writer(&writer)).unwrap_or_default()
    }

    /// Returns the reason for which a part of a collection is hidden; `node` is its node, if it has one.
    fn why_hidden(&self, node: Option<usize>) -> OutcomeReason {
        node.and_then(|node| self.reasons.get(node).copied().flatten()).unwrap_or(OutcomeReason::NoRoom)
    }

    /// Records the fate of a node and the reason, if explanations are requested.
    fn explain(&self, node: usize, fate: PlaceOutcome, out: &mut Out) {
        if self.bounds.summarised > 0 && out.items.len() < ITEMS_MAX {
            let why = self.why_hidden(Some(node));
            out.items.push(PlaceExplanation { place: self.layout.label(node), last: None, fate, why });
        }
    }

    /// Marks the nodes that are shown completely, and those shown in part.
    fn marks(&self) -> Marks {
        let count = self.layout.nodes.len();
        let mut marks = Marks { whole: vec![false; count], any: vec![false; count] };
        // Children follow their parents, so one pass from the end computes all marks.
        for node in (0..count).rev() {
            let this = &self.layout.nodes[node];
            let is_shown = matches!(self.paid(node), Some(PaidLine::Value(_)));
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

/// Returns the line about places without a line, with as many of their names as fit.
fn unmentioned(count: usize, names: &[String], room: usize) -> Option<String> {
    let begun = format!("… {count} more places not shown");
    // Includes the line feed.
    if count == 0 || text::chars(&begun) + 1 > room {
        return None;
    }
    let mut line = begun.clone();
    let mut named = begun;
    for (nth, name) in names.iter().enumerate() {
        named.push_str(if nth == 0 { ": " } else { ", " });
        named.push_str(name);
        let rest = names.len() - nth - 1;
        let whole = if rest == 0 { named.clone() } else { format!("{named} and {rest} more") };
        if text::chars(&whole) < room {
            line = whole;
        } else if text::chars(&named) >= room {
            break;
        }
    }
    Some(line + "\n")
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
    summarised: SummarisedPlaces,
    /// Places without a line.
    unmentioned: Vec<String>,
    items: Vec<PlaceExplanation>,
}

impl Out {
    /// Appends a line with a count, the names of hidden parts, and the last author.
    fn push(&mut self, count: String, names: Option<String>, writer: String) {
        self.text.push_str(&count);
        if let Some(names) = names {
            self.text.push_str("; not shown: ");
            self.text.push_str(&names);
        }
        self.text.push_str(&writer);
        self.text.push('\n');
    }
}
