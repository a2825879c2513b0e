//! Tracks which uncommitted changes each author has reviewed; a commit requires its committer to have seen its exact
//! content.
//!
//! A change is identified by its old and new content; once either differs, it counts as not reviewed. A change that
//! does not fit into an answer is shown in pieces, starting at its beginning.

use std::collections::BTreeMap;
use std::ops::Range;

use patchboard_kernel::files::{EditAttempt, FilePath};
use patchboard_kernel::id::InvocationId;

use super::change::Change;
use crate::edit_author::EditAuthor;

/// Changes shown to each attempt and agent; several agents may share a worker.
#[derive(Default)]
pub(super) struct Reviews(BTreeMap<(EditAttempt, String), BTreeMap<FilePath, ReviewedChange>>);

struct ReviewedChange {
    what: String,
    /// Bytes shown, from the beginning.
    up_to: usize,
    is_whole: bool,
}

impl Reviews {
    /// Drops the reviews of attempts that are over.
    pub(super) fn keep(&mut self, open: &[(InvocationId, u32)]) {
        self.0.retain(|(of, _), _| open.contains(&(of.invocation, of.attempt)));
    }

    /// Records the part of these changes inside `window`. Each change has a section of the text.
    pub(super) fn note(&mut self, author: &EditAuthor, changes: &[Change], sections: &[Section], window: Range<usize>) {
        let reviewed = self.0.entry(key(author)).or_default();
        for (change, section) in changes.iter().zip(sections) {
            let fresh = || ReviewedChange { what: change.what.clone(), up_to: 0, is_whole: false };
            let shown = reviewed.entry(change.path.clone()).or_insert_with(fresh);
            if shown.what != change.what {
                *shown = fresh();
            }
            // The window must overlap or adjoin the part that was already shown.
            let begins = window.start.saturating_sub(section.at.start);
            if window.end > section.at.start && begins <= shown.up_to {
                shown.up_to = shown.up_to.max(window.end.min(section.at.end) - section.at.start);
                shown.is_whole |= section.is_whole && shown.up_to == section.at.len();
            }
        }
    }

    /// Returns whether an author was shown all of a change.
    pub(super) fn holds(&self, author: &EditAuthor, change: &Change) -> bool {
        let shown = self.0.get(&key(author)).and_then(|reviewed| reviewed.get(&change.path));
        shown.is_some_and(|shown| shown.is_whole && shown.what == change.what)
    }

    /// Drops the reviews of committed changes.
    pub(super) fn forget(&mut self, author: &EditAuthor, changes: &[Change]) {
        if let Some(reviewed) = self.0.get_mut(&key(author)) {
            changes.iter().for_each(|change| drop(reviewed.remove(&change.path)));
        }
    }
}

fn key(author: &EditAuthor) -> (EditAttempt, String) {
    (author.attempt, author.label().to_owned())
}

/// Position of a change in a diff.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Section {
    at: Range<usize>,
    is_whole: bool,
}

/// Returns the position of each change in a diff that may be truncated; empty if diff and changes do not match.
pub(super) fn sections(text: &str, changes: &[Change], is_cut: bool) -> Vec<Section> {
    const BEGINS: &str = "diff --git ";
    // Content lines cannot begin like this, because a diff prefixes them.
    let behind_ends = text.match_indices('\n').map(|(at, _)| at + 1);
    let starts = [0].into_iter().chain(behind_ends).filter(|at| text[*at..].starts_with(BEGINS));
    let mut starts: Vec<usize> = starts.collect();
    let wanted: Vec<usize> = changes.iter().map(|change| 1 + usize::from(change.is_of_kind())).collect();
    let all: usize = wanted.iter().sum();
    if starts.len() > all || (starts.len() < all && !is_cut) {
        return Vec::new();
    }
    starts.push(text.len());
    let (mut sections, mut next) = (Vec::new(), 0);
    for count in wanted {
        if next + 1 >= starts.len() {
            break;
        }
        let end = (next + count).min(starts.len() - 1);
        let is_last = end == starts.len() - 1;
        sections.push(Section { at: starts[next]..starts[end], is_whole: !(is_cut && is_last) });
        next = end;
    }
    sections
}
