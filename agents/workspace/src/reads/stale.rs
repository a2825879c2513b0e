//! Updates stale reads of a file after its current content was shown. A stale read is resolved once the content now in
//! its place is known; until then it stays, and leads to a rejection.

use patchboard_kernel::blueprint::Granularity;
use patchboard_kernel::files::{FileEntry, FilePath, FileRead, LineRange, LineShift, ReadState, cover};

use super::{FileReads, Reads, VersionRead, overlapping};

/// Lines of an earlier version that still exist, contiguous then and now. A virtual line before the first line of a
/// file and another after its last line are never edited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LineRun {
    was: LineRange,
    /// Current number of its first line.
    now: u32,
}

impl LineRun {
    const fn last_now(&self) -> u32 {
        self.now + (self.was.1 - self.was.0)
    }
}

impl Reads {
    /// Updates the stale reads of a file after part of it was shown. A changed place is resolved only if all its
    /// current content is known; unchanged lines move to the file's current version.
    pub fn catch_up(&mut self, path: &FilePath, entry: &FileEntry, granularity: Granularity) {
        let Some(known) = self.files.get_mut(path) else { return };
        let seen = |part: &VersionRead, granularity| {
            entry.check_read(&FileRead { path: path.clone(), version: part.version, lines: part.lines }, granularity)
        };
        let fresh = known.seen.iter().filter_map(|part| match seen(part, Granularity::Lines) {
            ReadState::Fresh(lines) => lines,
            ReadState::Stale => None,
        });
        let fresh = overlapping(fresh.collect());
        let shown = if known.shown.0 == entry.version { known.shown.1.clone() } else { Vec::new() };
        let before = known.bytes();
        let (stale, mut kept): (Vec<VersionRead>, Vec<VersionRead>) =
            std::mem::take(&mut known.seen).into_iter().partition(|part| seen(part, granularity) == ReadState::Stale);
        // An agent that has seen a part of the file no longer takes it for absent.
        let sees = kept.iter().any(|part| part.version == entry.version);
        for part in stale.into_iter().filter(|part| !(part.is_absent && sees)) {
            match runs(entry, part.version) {
                Some(runs) => {
                    kept.extend(update_part(part, &runs, &KnownLines { known: &fresh, shown: &shown }, entry))
                }
                // If the edits since are unknown, only an agent that has seen the whole file has seen the change.
                None if sees && cover(&fresh, (1, entry.lines)) => {}
                None => kept.push(part),
            }
        }
        known.seen = joined(kept);
        known.forget_texts();
        let after = known.bytes();
        self.adjust_bytes(before, after);
    }

    /// Replaces these reads of a file by the lines known now. Other reads of it stay.
    pub fn replace(
        &mut self,
        path: &FilePath,
        replaced: &[FileRead],
        version: u64,
        lines: &[Option<LineRange>],
        text: Option<&std::sync::Arc<str>>,
    ) {
        if let Some(known) = self.files.get_mut(path) {
            let is_replaced = |part: &VersionRead| {
                replaced.iter().any(|read| (read.version, read.lines) == (part.version, part.lines))
            };
            known.seen.retain(|part| !is_replaced(part));
        }
        lines.iter().for_each(|lines| self.note(path, version, *lines, text));
    }
}

impl FileReads {
    /// Drops the texts of versions without reads.
    pub(super) fn forget_texts(&mut self) {
        let seen = &self.seen;
        self.texts.retain(|version, _| seen.iter().any(|part| part.version == *version));
    }
}

/// Merges the lines of each version; a read of a whole version includes its lines.
fn joined(parts: Vec<VersionRead>) -> Vec<VersionRead> {
    let mut joined: Vec<VersionRead> = parts.iter().copied().filter(|part| part.lines.is_none()).collect();
    let mut versions: Vec<u64> = parts.iter().map(|part| part.version).collect();
    versions.sort_unstable();
    versions.dedup();
    versions.retain(|version| joined.iter().all(|whole| whole.version != *version));
    for version in versions {
        let lines = parts.iter().filter(|part| part.version == version).filter_map(|part| part.lines).collect();
        let lines = overlapping(lines);
        joined.extend(lines.into_iter().map(|lines| VersionRead { version, lines: Some(lines), is_absent: false }));
    }
    joined
}

/// Returns the runs of a version that still exist; `None` unless the moves of every edit since are known.
fn runs(entry: &FileEntry, version: u64) -> Option<Vec<LineRun>> {
    let edits = (version.checked_add(1)?..=entry.version)
        .map(|made| Some(entry.edits.get(&made)?.moves.as_ref()?.iter().copied().map(LineShift::from).collect()));
    let edits: Vec<Vec<LineShift>> = edits.collect::<Option<_>>()?;
    let more: i64 = edits.iter().flatten().map(|step| i64::from(step.added) - i64::from(step.removed)).sum();
    let behind = u32::try_from(i64::from(entry.lines) - more).ok()?.checked_add(1)?;
    let mut runs = vec![LineRun { was: (0, behind), now: 0 }];
    for edit in &edits {
        runs = runs.into_iter().flat_map(|run| after(run, edit)).collect();
    }
    Some(runs)
}

/// Returns what an edit leaves of a run, in one or more pieces.
fn after(run: LineRun, edit: &[LineShift]) -> Vec<LineRun> {
    let mut left = Vec::new();
    let (mut from, last, mut shift) = (run.now, run.last_now(), 0_i64);
    let mut keep = |from: u32, last: u32, shift: i64| {
        let was = |line: u32| run.was.0 + (line - run.now);
        let now = u32::try_from(i64::from(from) + shift).unwrap_or(u32::MAX);
        left.push(LineRun { was: (was(from), was(last)), now });
    };
    for step in edit.iter().take_while(|step| step.at <= last) {
        if step.at > from {
            keep(from, step.at - 1, shift);
        }
        from = from.max(step.at.saturating_add(step.removed));
        shift += i64::from(step.added) - i64::from(step.removed);
    }
    if from <= last {
        keep(from, last, shift);
    }
    left
}

/// Knowledge of a file's current version.
struct KnownLines<'a> {
    /// Lines known, as returned by [`overlapping`].
    known: &'a [LineRange],
    /// Lines shown at this version.
    shown: &'a [LineRange],
}

impl KnownLines<'_> {
    /// Returns whether the current content between two runs is known.
    fn knows_between(&self, above: LineRun, below: LineRun, entry: &FileEntry) -> bool {
        let there = (above.last_now() + 1, below.now - 1);
        if there.0 <= there.1 {
            return cover(self.known, there);
        }
        // If nothing is left in between, both adjacent lines must have been shown; at an edge of the file, the one that
        // exists.
        let beside = (above.last_now().max(1), below.now.min(entry.lines));
        entry.lines > 0 && cover(self.shown, beside)
    }
}

/// Converts a stale read. Lines that still exist move to the file's current version; places with unknown new content
/// stay at the version that was read.
fn update_part(part: VersionRead, runs: &[LineRun], seeing: &KnownLines<'_>, entry: &FileEntry) -> Vec<VersionRead> {
    let behind = runs.last().map_or(0, |run| run.was.1);
    let (first, last) = part.lines.unwrap_or((0, behind));
    // Without the virtual lines at both edges of the file.
    let bare = |lines: LineRange| (lines.0.max(first).max(1), lines.1.min(last).min(behind.saturating_sub(1)));
    let (mut left, mut whole) = (Vec::new(), Vec::with_capacity(runs.len()));
    for pair in runs.windows(2) {
        let (above, below) = (pair[0], pair[1]);
        let has_lost = below.was.0 > above.was.1 + 1;
        let concerns = match has_lost {
            true => above.was.1 < last && first < below.was.0,
            false => first <= above.was.1 && below.was.0 <= last,
        };
        let has_new = above.last_now() + 1 < below.now;
        let is_open = concerns && (has_lost || has_new) && !seeing.knows_between(above, below, entry);
        whole.push(!is_open);
        if is_open {
            let is_edge = !has_lost && (above.was.1 == 0 || below.was.0 == behind);
            let lines = bare((above.was.1, below.was.0));
            let lines = Some(lines).filter(|(from, to)| !is_edge && from <= to);
            left.push(VersionRead { lines: lines.or(part.lines), ..part });
        }
    }
    let mut pieces: Vec<LineRange> = Vec::with_capacity(runs.len());
    for (at, run) in runs.iter().enumerate() {
        let (from, to) = bare(run.was);
        if from > to {
            continue;
        }
        let now = |line: u32| run.now + (line - run.was.0);
        match pieces.last_mut() {
            // Includes the lines that are now between them.
            Some(before) if at > 0 && whole[at - 1] => before.1 = now(to),
            _ => pieces.push((now(from), now(to))),
        }
    }
    let held = |lines| VersionRead { version: entry.version, lines: Some(lines), is_absent: false };
    pieces.into_iter().map(held).chain(left).collect()
}

#[cfg(test)]
mod tests;
