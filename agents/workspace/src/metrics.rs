//! Statistics of the edits in a board's records: attempts, acceptances, rejections by code, and overlap between
//! authors.
//!
//! A pure function of records; token costs and correctness are not covered. `symptoms` classifies the output of failed
//! tests. `limits` detects attempts that ran out of calls, tokens or time.

mod limits;
mod symptoms;

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::files::{Edit, FilePath, count};
use patchboard_kernel::record::{Author, Body, Record, RecordError};
use patchboard_kernel::rejection::Code;
use serde::Serialize;

pub use limits::ran_out;
pub use symptoms::{Symptom, of_output};

/// Edit counts of one author, or of all.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct EditCounts {
    /// Number of proposed edits.
    pub attempts: u64,
    /// Number of accepted edits.
    pub accepted: u64,
    /// Rejected edits by rejection code.
    pub rejected: BTreeMap<String, u64>,
    /// Edits of a file after a rejection of the same author's edit of it: retries.
    pub retries: u64,
}

impl EditCounts {
    /// Returns the number of rejected edits.
    pub fn rejections(&self) -> u64 {
        self.rejected.values().sum()
    }

    /// Returns the number of edits rejected because of other authors: conflicts found before anything was written.
    pub fn conflicts(&self) -> u64 {
        let of_others = [Code::StaleTarget, Code::StaleRead, Code::Reserved];
        of_others.iter().filter_map(|code| self.rejected.get(code.as_str())).sum()
    }

    /// Returns the acceptance rate; `None` without attempts.
    pub fn acceptance(&self) -> Option<f64> {
        (self.attempts > 0).then(|| self.accepted as f64 / self.attempts as f64)
    }

    fn add(&mut self, rejection: Option<&str>, is_again: bool) {
        self.attempts += 1;
        self.retries += u64::from(is_again);
        match rejection {
            Some(code) => *self.rejected.entry(code.to_owned()).or_default() += 1,
            None => self.accepted += 1,
        }
    }
}

/// Edit statistics of a board.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Metrics {
    /// Counts over all authors, without external changes.
    pub total: EditCounts,
    /// Counts by author.
    pub authors: BTreeMap<String, EditCounts>,
    /// Number of external changes.
    pub external: u64,
    /// Authors that tried to edit each file.
    pub tried: BTreeMap<FilePath, BTreeSet<String>>,
    /// Number of accepted edits by file and author.
    pub edited: BTreeMap<FilePath, BTreeMap<String, u64>>,
    /// Number of lines that accepted edits removed.
    pub taken: u64,
    /// Number of removed lines that another author had written.
    pub taken_of_others: u64,
}

/// Edits of a file outside the author's scope.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Drift {
    /// Author of the edits.
    pub author: String,
    /// File outside the scope.
    pub path: FilePath,
    /// Number of edits.
    pub edits: u64,
}

/// Author of each line, by file; `None` if unknown.
type Lines = BTreeMap<FilePath, Vec<Option<String>>>;

impl Metrics {
    /// Returns the share of attempted files that more than one author tried to edit; `None` without attempts.
    pub fn overlap(&self) -> Option<f64> {
        let met = self.tried.values().filter(|authors| authors.len() > 1).count();
        (!self.tried.is_empty()).then(|| met as f64 / self.tried.len() as f64)
    }

    /// Returns the files with accepted edits of more than one author.
    pub fn shared(&self) -> impl Iterator<Item = &FilePath> {
        self.edited.iter().filter(|(_, authors)| authors.len() > 1).map(|(path, _)| path)
    }

    /// Returns the edits of files outside each author's scope. Authors without an entry in `scopes` are skipped.
    pub fn drift(&self, scopes: &BTreeMap<String, BTreeSet<String>>) -> Vec<Drift> {
        let of = |path: &FilePath, author: &String, edits: u64| {
            let is_outside = scopes.get(author).is_some_and(|files| !files.contains(path.as_str()));
            is_outside.then(|| Drift { author: author.clone(), path: path.clone(), edits })
        };
        let edited = self.edited.iter();
        edited
            .flat_map(|(path, authors)| authors.iter().filter_map(move |(author, edits)| of(path, author, *edits)))
            .collect()
    }

    /// Updates the authorship of lines.
    fn follow(&mut self, edit: &Edit, author: Option<&String>, lines: &mut Lines) {
        for change in &edit.changes {
            let mut there = lines.remove(&change.path).unwrap_or_default();
            let Some(hunks) = change.hunks.as_ref().filter(|_| change.hash.is_some()) else {
                if change.hash.is_some() {
                    lines.insert(change.path.clone(), vec![None; change.lines as usize]);
                }
                continue;
            };
            // Backwards, so that earlier line numbers stay valid.
            for hunk in hunks.iter().rev() {
                let from = (hunk.at.saturating_sub(1) as usize).min(there.len());
                let to = from.saturating_add(count(&hunk.was) as usize).min(there.len());
                let put = vec![author.cloned(); count(&hunk.now) as usize];
                let taken: Vec<_> = there.splice(from..to, put).collect();
                if let Some(author) = author {
                    self.taken += taken.len() as u64;
                    let of_others = taken.iter().flatten().filter(|by| *by != author);
                    self.taken_of_others += of_others.count() as u64;
                }
            }
            lines.insert(change.path.clone(), there);
        }
    }

    fn count(
        &mut self,
        by: &Author,
        edit: &Edit,
        rejection: Option<&str>,
        rejected_pairs: &mut BTreeSet<(String, FilePath)>,
    ) {
        if edit.of.is_none() {
            self.external += u64::from(rejection.is_none());
            return;
        }
        let author = author_of(by, edit);
        let pairs = || edit.changes.iter().map(|change| (author.clone(), change.path.clone()));
        let is_again = pairs().any(|pair| rejected_pairs.contains(&pair));
        self.total.add(rejection, is_again);
        self.authors.entry(author.clone()).or_default().add(rejection, is_again);
        for pair in pairs() {
            self.tried.entry(pair.1.clone()).or_default().insert(author.clone());
            if rejection.is_none() {
                *self.edited.entry(pair.1.clone()).or_default().entry(author.clone()).or_default() += 1;
                rejected_pairs.remove(&pair);
            } else {
                rejected_pairs.insert(pair);
            }
        }
    }
}

/// Computes the statistics of records in journal order. Only the given records count, for example those of a first
/// round.
pub fn metrics(records: &[Record]) -> Result<Metrics, RecordError> {
    let mut metrics = Metrics::default();
    // Files with a rejected edit of an author and no accepted one since.
    let mut rejected_pairs: BTreeSet<(String, FilePath)> = BTreeSet::new();
    let mut lines = Lines::new();
    for record in records {
        match record.body()? {
            Body::Committed(committed) => {
                let Some(edit) = edit(&committed.by, committed.written.as_deref()) else { continue };
                metrics.count(&committed.by, &edit, None, &mut rejected_pairs);
                let author = edit.of.is_some().then(|| author_of(&committed.by, &edit));
                metrics.follow(&edit, author.as_ref(), &mut lines);
            }
            Body::Rejected(rejected) => {
                let Some(edit) = edit(&rejected.by, Some(&rejected.reply)) else { continue };
                metrics.count(&rejected.by, &edit, Some(rejected.code.as_str()), &mut rejected_pairs);
            }
            _ => {}
        }
    }
    Ok(metrics)
}

pub(super) fn author_of(by: &Author, edit: &Edit) -> String {
    edit.name.clone().unwrap_or_else(|| by.worker.to_string())
}

/// Decodes the edit of a record; `None` if it is not a file edit or is redacted.
pub(super) fn edit(by: &Author, written: Option<&str>) -> Option<Edit> {
    by.edit.as_ref()?;
    serde_json::from_str(written?).ok()
}

#[cfg(test)]
mod tests;
