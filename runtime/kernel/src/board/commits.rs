//! Who made which version.

use serde::{Deserialize, Serialize};

use crate::freshness;
use crate::id::{Seq, Version, WorkerName};

/// The commits of one board, in a few bytes each.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Commits {
    /// Version 1 first: the record, and which of the authors.
    made: Vec<(Seq, u32)>,
    /// In the order of their first commits.
    authors: Vec<WorkerName>,
}

impl Commits {
    /// Notes the next version.
    pub(super) fn push(&mut self, seq: Seq, author: &WorkerName) {
        // A board has few workers, and fewer that commit.
        let known = self.authors.iter().position(|known| known == author);
        let number = known.unwrap_or_else(|| {
            self.authors.push(author.clone());
            self.authors.len() - 1
        });
        self.made.push((seq, u32::try_from(number).expect("a blueprint has fewer workers")));
    }

    /// How many versions there are after the first.
    pub(super) const fn len(&self) -> usize {
        self.made.len()
    }
}

impl freshness::Commits for Commits {
    fn by(&self, version: Version) -> Option<(Seq, WorkerName)> {
        let index = usize::try_from(version.0).ok()?.checked_sub(1)?;
        let (seq, author) = self.made.get(index)?;
        Some((*seq, self.authors.get(*author as usize)?.clone()))
    }
}
