//! What comes of a choice: the lines in the order of the document, and what they say of the state.

use super::super::layout::Kind;
use super::super::summarised::Summarised;
use super::super::summary::{self, Hidden, Tally};
use super::super::text;
use super::{Choice, Paid, Shown};
use crate::tree::Node;

impl Choice<'_, '_> {
    pub(super) fn finish(self) -> Shown {
        let marks = self.marks();
        let mut out = Out {
            text: String::with_capacity(self.lines.len() + self.lines.len() / 4),
            summarised: Summarised::up_to(self.bounds.summarised),
            ..Out::default()
        };
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
        let shown = Shown::new(out.text, out.reads, out.members, out.containers);
        Shown { summarised: out.summarised, ..shown }
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
        // What is not shown of something that is shown in part; a pattern is always asked.
        let wanted = out.summarised.room();
        let hidden =
            if this.kind != Kind::Line && !whole && (any || this.kind == Kind::Pattern || self.paid(node).is_some()) {
                let is_shown = |child: usize| marks.any[child] || marks.whole[child];
                Some(Hidden::of(&self.layout, node, self.tallies.get(node), &is_shown, wanted))
            } else {
                None
            };
        if let Some(hidden) = &hidden
            && (any || this.kind == Kind::Pattern)
        {
            hidden.note(&mut out.summarised);
        }
        match self.paid(node) {
            Some(Paid::Value(line)) => out.text.push_str(&self.lines[line.clone()]),
            Some(Paid::Summary(_)) => {
                let tally = self.tallies.get(node);
                let label = self.layout.label(node);
                match (this.kind, this.value) {
                    (Kind::Array, Some(value)) => {
                        let count = text::count_of_elements(&label, value.part_count(), self.appendable);
                        out.push(count, hidden.as_ref());
                        out.members.push(label);
                    }
                    (Kind::Object, Some(value)) if !whole => {
                        out.push(summary::of_object(&label, value), hidden.as_ref());
                        out.members.push(label);
                    }
                    (Kind::Line, Some(value)) if !whole => {
                        out.text.push_str(&summary::of_line(&label, value));
                        if value.has_parts() {
                            out.members.push(label);
                        }
                    }
                    (Kind::Pattern, _) => {
                        let Some(tally) = tally else { return };
                        out.containers.extend_from_slice(tally.containers());
                        if !whole {
                            out.push(tally.summary(&label), hidden.as_ref());
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
            let is_shown = matches!(self.paid(node), Some(Paid::Value(_)));
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
    summarised: Summarised,
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
