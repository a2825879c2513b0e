//! Who made which version.

use std::collections::BTreeMap;

use crate::freshness;
use crate::id::{Seq, Version, WorkerName};

/// The commits of one board, in a few bytes each.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Commits {
    /// Version 1 first: the record, and the number of its author.
    made: Vec<(Seq, u32)>,
    authors: Vec<WorkerName>,
    numbers: BTreeMap<WorkerName, u32>,
}

impl Commits {
    /// Notes the next version.
    pub(super) fn push(&mut self, seq: Seq, author: &WorkerName) {
        let number = match self.numbers.get(author) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.authors.len()).expect("a blueprint has fewer workers");
                self.authors.push(author.clone());
                self.numbers.insert(author.clone(), number);
                number
            }
        };
        self.made.push((seq, number));
    }
}

impl freshness::Commits for Commits {
    fn by(&self, version: Version) -> Option<(Seq, WorkerName)> {
        let index = usize::try_from(version.0).ok()?.checked_sub(1)?;
        let (seq, author) = self.made.get(index)?;
        Some((*seq, self.authors.get(*author as usize)?.clone()))
    }
}
