//! Expected outcome of an edit, derived only from the rules, the lines shown and the earlier rejections.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::blueprint::Granularity;

use super::history::{Change, Freshness, History, Line, Read, What};

/// Duration of a reservation after a rejection, in decisions and in milliseconds.
pub(crate) const KEPT_DECISIONS: u64 = 8;
pub(crate) const KEPT_MS: i64 = 30_000;

/// Reservation of files for one author.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) paths: BTreeSet<String>,
    /// Number of the decision at which the reservation ends.
    pub(crate) decisions: u64,
    pub(crate) until: i64,
}

/// A try to edit.
#[derive(Clone, Debug)]
pub(crate) struct Try<'a> {
    /// Author, or `None` for an external edit.
    pub(crate) author: Option<u64>,
    pub(crate) reads: &'a [Read],
    pub(crate) changes: &'a [Change],
    pub(crate) at: i64,
}

/// Expected outcome of a try.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    Made,
    /// Accepted, and every file keeps its content: the new lines have the text of the old ones.
    Same,
    /// Rejected because of other agents' edits: codes and files.
    Conflict(BTreeSet<(&'static str, String)>),
    /// Rejected because there would be too many files.
    TooMany,
    /// Rejected because it does not apply.
    Inapplicable(BTreeSet<(&'static str, String)>),
}

/// Additional facts about a try, for the figures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Remarks {
    /// A read has changed.
    pub(crate) is_stale: bool,
    /// Stale only because the board does not remember enough edits.
    pub(crate) is_forgotten: bool,
    /// A read changed and changed back.
    pub(crate) is_back: bool,
    /// A file in the read set has another version.
    pub(crate) has_moved: bool,
}

pub(crate) struct Oracle {
    pub(crate) history: History,
    granularity: Granularity,
    pub(crate) decisions: u64,
    pub(crate) kept: BTreeMap<u64, Kept>,
}

impl Oracle {
    pub(crate) fn new(granularity: Granularity, files_max: usize) -> Self {
        Self { history: History::new(files_max), granularity, decisions: 0, kept: BTreeMap::new() }
    }

    /// Returns true if a board must treat a read as changed.
    fn counts_as_stale(&self, read: &Read) -> bool {
        match self.granularity {
            Granularity::File => read.version != self.history.version(&read.path),
            Granularity::Lines => self.history.freshness(read) != Freshness::Yes,
        }
    }

    fn holder(&self, path: &str, author: u64, at: i64) -> Option<u64> {
        let others = self.kept.iter().filter(|(holder, _)| **holder != author);
        let held = others.filter(|(_, kept)| kept.decisions > self.decisions && kept.until > at);
        held.filter(|(_, kept)| kept.paths.contains(path)).map(|(holder, _)| *holder).next()
    }

    /// Returns the expected outcome of a try.
    pub(crate) fn judge(&self, tried: &Try<'_>) -> Due {
        if self.history.to_forget(tried.changes).is_none() {
            return Due::TooMany;
        }
        let done = match tried.changes.iter().all(|change| self.history.stays(change)) {
            true if !tried.changes.is_empty() => Due::Same,
            _ => Due::Made,
        };
        let Some(author) = tried.author else { return done };
        let mut conflicts = BTreeSet::new();
        for change in tried.changes {
            let path = &change.path;
            if self.holder(path, author, tried.at).is_some() {
                conflicts.insert(("reserved", path.clone()));
            }
            if let Some(code) = self.judge_target(change, tried.reads) {
                conflicts.insert((code, path.clone()));
            }
        }
        let is_target = |path: &str| tried.changes.iter().any(|change| change.path == path);
        let others = tried.reads.iter().filter(|read| !is_target(&read.path));
        let stale = others.filter(|read| self.counts_as_stale(read));
        conflicts.extend(stale.map(|read| ("stale_read", read.path.clone())));
        if !conflicts.is_empty() {
            return Due::Conflict(conflicts);
        }
        let wrong = tried.changes.iter().filter_map(|change| {
            let now = self.history.now(&change.path).and_then(super::history::Version::hash);
            match (now, change.from) {
                (None, Some(_)) => Some(("path_not_found", change.path.clone())),
                (now, from) if now != from => Some(("test_failed", change.path.clone())),
                _ => None,
            }
        });
        let wrong: BTreeSet<_> = wrong.collect();
        if wrong.is_empty() { done } else { Due::Inapplicable(wrong) }
    }

    fn judge_target(&self, change: &Change, reads: &[Read]) -> Option<&'static str> {
        let own: Vec<&Read> = reads.iter().filter(|read| read.path == change.path).collect();
        let there = self.history.lines(&change.path);
        let is_new = change.from.is_none();
        if own.iter().any(|read| self.counts_as_stale(read)) {
            return Some("stale_target");
        }
        if is_new {
            return there.map(|_| "file_exists");
        }
        (!self.has_seen(change, there.unwrap_or_default(), &own)).then_some("unseen_target")
    }

    /// Returns true if every deleted line was shown, and for an insertion one of its two neighbours.
    fn has_seen(&self, change: &Change, there: &[Line], own: &[&Read]) -> bool {
        if own.is_empty() {
            return false;
        }
        if self.granularity == Granularity::File || self.history.version(&change.path) == 0 {
            return true;
        }
        let mut shown: BTreeSet<Line> = BTreeSet::new();
        for read in own {
            match &read.what {
                What::Whole => shown.extend(there),
                What::Part { lines, .. } => shown.extend(lines),
            }
        }
        let knows = |at: Option<usize>| at.and_then(|at| there.get(at)).is_some_and(|line| shown.contains(line));
        let Some(pieces) = &change.pieces else {
            return there.iter().all(|line| shown.contains(line));
        };
        pieces.iter().all(|piece| match piece.gone {
            0 => there.is_empty() || knows(piece.at.checked_sub(1)) || knows(Some(piece.at)),
            gone => (piece.at..piece.at + gone).all(|at| knows(Some(at))),
        })
    }

    pub(crate) fn remarks(&self, tried: &Try<'_>) -> Remarks {
        let freshness: Vec<(Freshness, &Read)> =
            tried.reads.iter().map(|read| (self.history.freshness(read), read)).collect();
        let is_stale = freshness.iter().any(|(freshness, _)| *freshness == Freshness::No);
        let forgotten = |freshness: Freshness| matches!(freshness, Freshness::BeyondMemory | Freshness::BehindCoarse);
        Remarks {
            is_stale,
            is_forgotten: !is_stale && freshness.iter().any(|(freshness, _)| forgotten(*freshness)),
            is_back: freshness
                .iter()
                .any(|(freshness, read)| *freshness == Freshness::No && self.history.is_back(read)),
            has_moved: tried.reads.iter().any(|read| read.version != self.history.version(&read.path)),
        }
    }

    /// Records a decision. Returns the author's new reservation, if there is one.
    pub(crate) fn decided(&mut self, tried: &Try<'_>, by: &str, due: &Due) -> Option<Kept> {
        self.decisions += 1;
        let decisions = self.decisions;
        self.kept.retain(|_, kept| kept.decisions > decisions && kept.until > tried.at);
        match due {
            Due::Made | Due::Same => {
                if *due == Due::Made {
                    self.history.edit(tried.changes, by);
                }
                tried.author.map(|author| self.kept.remove(&author));
                None
            }
            Due::Inapplicable(_) | Due::TooMany => None,
            Due::Conflict(conflicts) => {
                let author = tried.author?;
                // An author that had not read the file gets no reservation: it lost no race.
                if !conflicts.iter().any(|(code, _)| matches!(*code, "stale_target" | "stale_read")) {
                    return None;
                }
                let is_free = |path: &&String| self.holder(path, author, tried.at).is_none();
                let paths: BTreeSet<String> =
                    tried.changes.iter().map(|change| &change.path).filter(is_free).cloned().collect();
                if paths.is_empty() {
                    return None;
                }
                let kept = Kept { paths, decisions: decisions + KEPT_DECISIONS, until: tried.at + KEPT_MS };
                self.kept.insert(author, kept.clone());
                Some(kept)
            }
        }
    }
}
