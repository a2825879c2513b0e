//! Attribution of uncommitted files, from the journal.
//!
//! Of the edits since the commit, the author is the agent that wrote the most lines; on a tie, the later one. All other
//! editors are co-authors. Changes by programs count only if no agent has edited the file, since running a formatter is
//! no authorship. Changes from outside the workspace count last, and have no name.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::digest::Digest;
use patchboard_kernel::files::{EXTERNAL, Edit, FilePath, LineShift};
use patchboard_kernel::id::Seq;
use patchboard_kernel::record::Body;
use patchboard_runtime::handle::BoardHandle;

use crate::metrics;

/// Versions of each file, in order, with their authors.
#[derive(Default)]
pub(super) struct Histories {
    /// Last record included.
    last: Option<Seq>,
    files: BTreeMap<FilePath, Vec<FileVersion>>,
}

#[derive(Clone, Debug)]
struct FileVersion {
    by: String,
    origin: VersionOrigin,
    /// Number of lines written.
    lines: u64,
    hash: Option<Digest>,
}

/// Origin of a version, in ascending weight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum VersionOrigin {
    External,
    Program,
    Edit,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Authors {
    pub(super) first: String,
    pub(super) others: BTreeSet<String>,
}

impl Histories {
    /// Reads the records that are not included yet.
    pub(super) async fn read_on(
        &mut self,
        board: &BoardHandle,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let head = board.status().head.seq;
        let mut records = board.subscribe(self.last);
        while self.last.is_none_or(|last| last < head) {
            let Some(record) = records.next().await else { break };
            let record = record?;
            if let Body::Committed(committed) = record.body()?
                && let Some(edit) = metrics::edit(&committed.by, committed.written.as_deref())
            {
                self.apply_edit(&metrics::author_of(&committed.by, &edit), &edit);
            }
            self.last = Some(record.seq);
        }
        Ok(())
    }

    fn apply_edit(&mut self, by: &str, edit: &Edit) {
        let how = match &edit.of {
            Some(_) => VersionOrigin::Edit,
            None if by == EXTERNAL => VersionOrigin::External,
            None => VersionOrigin::Program,
        };
        // A renamed file keeps its authors.
        let renamed = match (&edit.of, edit.changes.as_slice()) {
            (Some(_), [one, two]) if one.hash.is_none() != two.hash.is_none() => {
                let (from, to) = if one.hash.is_none() { (one, two) } else { (two, one) };
                let before = self.files.get(&from.path).cloned().unwrap_or_default();
                self.files.insert(to.path.clone(), before);
                Some(&to.path)
            }
            _ => None,
        };
        for change in &edit.changes {
            let written = match &change.hunks {
                Some(hunks) => hunks.iter().map(|hunk| LineShift::from(hunk).added).map(u64::from).sum(),
                None => change.lines.into(),
            };
            let lines = if renamed == Some(&change.path) { 0 } else { written };
            let made = FileVersion { by: by.to_owned(), origin: how, lines, hash: change.hash };
            self.files.entry(change.path.clone()).or_default().push(made);
        }
    }

    /// Returns whether a file has more than one author.
    pub(super) fn has_several(&self, path: &FilePath) -> bool {
        let mut names = self.files.get(path).into_iter().flatten().map(|made| &made.by);
        let first = names.next();
        names.any(|name| Some(name) != first)
    }

    /// Returns the authors of a file since the version with the hash `committed`. If that version is unknown, all edits
    /// count.
    pub(super) fn authors(&self, path: &FilePath, committed: Option<Digest>) -> Authors {
        let made = self.files.get(path).map(Vec::as_slice).unwrap_or_default();
        let since = made.iter().rposition(|made| committed.is_some() && made.hash == committed).map_or(0, |at| at + 1);
        let since = &made[since..];
        let origin = since.iter().map(|made| made.origin).max().unwrap_or(VersionOrigin::External);
        let mut lines: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
        for (index, made) in
            since.iter().enumerate().filter(|(_, made)| made.origin == origin && origin != VersionOrigin::External)
        {
            let (written, last) = lines.entry(&made.by).or_default();
            (*written, *last) = (*written + made.lines, index);
        }
        let first = lines.iter().max_by_key(|(_, weight)| **weight).map_or(EXTERNAL, |(name, _)| *name);
        let others = lines.keys().filter(|name| **name != first).map(|name| (*name).to_owned()).collect();
        Authors { first: first.to_owned(), others }
    }
}

#[cfg(test)]
mod tests;
