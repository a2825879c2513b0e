//! Place of a write, as an operation names it.

use jsonptr::Pointer;

use crate::pattern::{Pattern, PatternToken};
use crate::state::Candidate;

/// Place of a write.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    /// Path as the operation names it.
    pub(super) path: &'a Pointer,
    /// Path with `-` in place of an index that appends.
    pub(super) granted_at: &'a Pointer,
    /// True for the target of a move; its path refers to the document after the removal at `from`.
    pub(super) arrives: bool,
    pub(super) candidate: &'a Candidate,
}

impl Target<'_> {
    /// Returns true if a pattern matches the place by either path.
    pub(super) fn is_matched_by(self, pattern: &Pattern) -> bool {
        // In an object, `-` is an ordinary name and not the append position.
        let appends = |path: &Pointer| {
            let container = path.parent().and_then(|parent| self.candidate.get(parent));
            container.is_none_or(|container| container.as_object().is_none())
        };
        let wants_append = pattern.tokens().last() == Some(&PatternToken::Append);
        let matches = |path: &Pointer| pattern.matches(path) && (!wants_append || appends(path));
        matches(self.path) || (self.path != self.granted_at && matches(self.granted_at))
    }
}
