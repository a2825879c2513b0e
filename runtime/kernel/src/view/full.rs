//! The text of all readable content, if it fits.

use crate::tree::{Node, PathSegment};

use super::explanation::{ITEMS_MAX, OutcomeReason, PlaceExplanation, PlaceOutcome};
use super::layout::{Kind, kind_of};
use super::search::{Found, Order, Reads, Search, push_step};
use super::selection::Selection;
use super::summary::MatchCount;
use super::text;

/// Returns all readable content, if it has at most `limit` characters. Stops at the limit, at the latest after `steps`
/// steps of every pattern's search. `tallies` belong to the patterns by index.
pub(super) fn show<'a>(
    state: &'a Node,
    reads: &'a Reads<'a>,
    tallies: &[MatchCount<'a>],
    limit: usize,
    steps: usize,
    appendable: &dyn Fn(&str) -> bool,
    is_explained: bool,
) -> Option<Selection> {
    // Skips far too large containers. The line of a part has at least a slash, a colon, a space, a value and a line
    // feed.
    let is_hopeless = |container: &Node| container.part_count() > limit / 5 || cannot_fit(container, limit);
    if tallies.iter().filter_map(MatchCount::container).any(is_hopeless) {
        return None;
    }
    let mut whole = FullText { left: limit, text: String::new(), appendable, items: is_explained.then(Vec::new) };
    let (mut shown, mut containers) = (Vec::new(), Vec::new());
    for (which, tally) in tallies.iter().enumerate() {
        let mut show = |place: &Found<'_>| {
            let mut label = place.label();
            whole.value(place.value, &mut label, true)?;
            shown.push(label);
            Some(())
        };
        // The places already counted come first.
        let counted = tally.counted();
        counted.iter().try_for_each(&mut show)?;
        if tally.count() == Some(counted.len()) {
            containers.extend_from_slice(tally.containers());
            continue;
        }
        // All parts of a container are visited, because it is small enough.
        let steps = if tally.container().is_some() { usize::MAX } else { steps };
        let mut search = Search::new(state, reads, which, Order::Document, steps);
        if tally.is_out_of_steps()
            || search.by_ref().skip(counted.len()).any(|place| show(&place).is_none())
            || search.is_cut()
        {
            return None;
        }
        containers.extend(search.containers());
    }
    shown.sort_unstable();
    let FullText { text, items, .. } = whole;
    Some(Selection { items: items.unwrap_or_default(), ..Selection::new(text, shown, Vec::new(), containers) })
}

/// Returns true if a value has more than `limit` characters for certain, however it is split into lines. A character
/// has at most four bytes, and lines are no shorter than JSON.
fn cannot_fit(value: &Node, limit: usize) -> bool {
    /// Covers the braces of an object, which lines omit.
    const SLACK: u64 = 64;
    value.bytes() > (limit as u64).saturating_mul(4).saturating_add(SLACK)
}

struct FullText<'a> {
    left: usize,
    text: String,
    appendable: &'a dyn Fn(&str) -> bool,
    items: Option<Vec<PlaceExplanation>>,
}

impl FullText<'_> {
    fn value(&mut self, value: &Node, label: &mut String, is_top: bool) -> Option<()> {
        if cannot_fit(value, self.left) {
            return None;
        }
        match kind_of(value, is_top) {
            Kind::Line => {
                self.left -= text::push_line(&mut self.text, label, value, self.left, self.appendable)?;
                if let Some(items) = self.items.as_mut().filter(|items| items.len() < ITEMS_MAX) {
                    let (place, last, fate, why) =
                        (label.clone(), None, PlaceOutcome::Shown, OutcomeReason::Everything);
                    items.push(PlaceExplanation { place, last, fate, why });
                }
                Some(())
            }
            Kind::Array => {
                self.push(&text::elements(label, value.part_count(), self.appendable))?;
                self.parts(value, label)
            }
            Kind::Object | Kind::Place | Kind::Pattern => self.parts(value, label),
        }
    }

    fn parts(&mut self, value: &Node, label: &mut String) -> Option<()> {
        // Each has a line with the label, a slash, a colon, a space, a value and a line feed.
        if value.part_count().saturating_mul(text::chars(label) + 5) > self.left {
            return None;
        }
        let end = label.len();
        value.parts().try_for_each(|(step, part): (PathSegment<'_>, &Node)| {
            push_step(label, step);
            let fits = self.value(part, label, false);
            label.truncate(end);
            fits
        })
    }

    fn push(&mut self, line: &str) -> Option<()> {
        self.left = self.left.checked_sub(text::chars(line))?;
        self.text.push_str(line);
        Some(())
    }
}
