//! Hunks applied to a text, and reversed: the oracle of the hunks that edits make.

use patchboard_kernel::files::{Hunk, count};

use crate::text::hunks::{lines, number, places};

/// Reasons why hunks do not apply to a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum HunkError {
    /// Hunk out of order, overlapping the previous one, or outside the text.
    Place(u32),
    /// Lines in the text that differ from those of the hunk.
    Other(u32),
    /// Inserted text without whole lines, so that two lines would be joined.
    Joined(u32),
}

/// Applies hunks to a text.
pub(super) fn apply_hunks(text: &str, hunks: &[Hunk]) -> Result<String, HunkError> {
    let lines = lines(text);
    let mut after = String::with_capacity(text.len());
    let mut done = 0;
    for hunk in hunks {
        let place = || HunkError::Place(hunk.at);
        let start = usize::try_from(hunk.at).ok().and_then(|at| at.checked_sub(1)).ok_or_else(place)?;
        if start < done || start > lines.len() {
            return Err(place());
        }
        let end = start + count(&hunk.was) as usize;
        if lines.get(start..end).is_none_or(|there| there.concat() != hunk.was) {
            return Err(HunkError::Other(hunk.at));
        }
        after.extend(lines[done..start].iter().copied());
        join(&mut after, &hunk.now, hunk.at)?;
        done = end;
    }
    join(&mut after, &lines[done..].concat(), number(done).saturating_add(1))?;
    Ok(after)
}

fn join(before: &mut String, lines: &str, at: u32) -> Result<(), HunkError> {
    if !lines.is_empty() && !before.is_empty() && !before.ends_with('\n') {
        return Err(HunkError::Joined(at));
    }
    before.push_str(lines);
    Ok(())
}

/// Returns the reverse hunks, which restore the old text from the new one.
pub(super) fn reverse_hunks(hunks: &[Hunk]) -> Vec<Hunk> {
    let blocks = places(hunks);
    hunks.iter().zip(blocks).map(|(hunk, (at, _))| Hunk { at, was: hunk.now.clone(), now: hunk.was.clone() }).collect()
}
