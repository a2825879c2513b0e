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

impl Metrics {
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

pub(super) fn author_of(by: &Author, edit: &Edit) -> String {
    edit.name.clone().unwrap_or_else(|| by.worker.to_string())
}

/// Decodes the edit of a record; `None` if it is not a file edit or is redacted.
pub(super) fn edit(by: &Author, written: Option<&str>) -> Option<Edit> {
    by.edit.as_ref()?;
    serde_json::from_str(written?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use patchboard_kernel::digest::{Digest, Hasher, Salt};
    use patchboard_kernel::id::{Seq, Timestamp, Version};
    use patchboard_kernel::record::{Committed, EditOrigin, Rejected};
    use patchboard_kernel::rejection::{Code, Rejection, Stage, Violation};
    use serde_json::json;

    fn edit(of: bool, name: Option<&str>, paths: &[&str]) -> String {
        let changes: Vec<_> = paths.iter().map(|path| json!({"path": path, "lines": 1, "bytes": 1})).collect();
        let mut edit = json!({"reads": [], "changes": changes});
        if of {
            edit["of"] = json!({"invocation": 1, "attempt": 1});
        }
        if let Some(name) = name {
            edit["name"] = json!(name);
        }
        edit.to_string()
    }

    fn author(worker: &str) -> Author {
        Author {
            worker: worker.into(),
            attempt: None,
            token: None,
            base: Version(0),
            usage: None,
            approval: None,
            edit: Some(EditOrigin::default()),
        }
    }

    fn made(worker: &str, written: String) -> Body {
        Body::Committed(Committed {
            by: author(worker),
            version: Version(1),
            state: Digest([0; 32]),
            patch: json!([]),
            intent: None,
            expand: Vec::new(),
            written: Some(written),
            raw: None,
        })
    }

    fn refused(worker: &str, code: Code, reply: String) -> Body {
        let rejection = Rejection::new(Stage::Freshness, vec![Violation::new(code, "", "no")]);
        let by = author(worker);
        Body::Rejected(Box::new(Rejected {
            by,
            stage: Stage::Freshness,
            code,
            is_final: false,
            rejection,
            elided: None,
            reply,
            written: None,
            raw: None,
        }))
    }

    fn counted(bodies: Vec<Body>) -> Metrics {
        let hasher = Hasher::new(&Salt([7; 32]));
        let (mut records, mut last) = (Vec::new(), Digest([0; 32]));
        for (seq, body) in bodies.into_iter().enumerate() {
            let record = Record::seal(last, Seq(seq as u64), Timestamp(0), body, &hasher);
            last = record.hash;
            records.push(record);
        }
        metrics(&records).expect("records that can be read")
    }

    #[test]
    fn attempts_are_counted_by_author_and_by_what_became_of_them() {
        let metrics = counted(vec![
            made("ada", edit(true, None, &["a.py"])),
            refused("bob", Code::StaleTarget, edit(true, None, &["a.py"])),
            refused("bob", Code::Reserved, edit(true, None, &["a.py"])),
            made("bob", edit(true, None, &["a.py"])),
            made("bob", edit(true, None, &["a.py"])),
            made("external", edit(false, None, &["b.py"])),
        ]);
        assert_eq!((metrics.total.attempts, metrics.total.accepted, metrics.external), (5, 3, 1));
        assert_eq!(metrics.total.acceptance(), Some(0.6));
        let bob = &metrics.authors["bob"];
        assert_eq!((bob.attempts, bob.accepted, bob.rejections()), (4, 2, 2));
        assert_eq!(bob.rejected, BTreeMap::from([("stale_target".to_owned(), 1), ("reserved".to_owned(), 1)]));
        assert_eq!(bob.retries, 2, "the one after the first refusal, and the one after the second");
        assert_eq!(metrics.authors["ada"].retries, 0);
    }

    #[test]
    fn authors_meet_in_files_that_more_than_one_has_tried() {
        let metrics = counted(vec![
            made("seat", edit(true, Some("ada"), &["a.py", "b.py"])),
            made("seat", edit(true, Some("bob"), &["b.py"])),
            refused("seat", Code::StaleTarget, edit(true, Some("bob"), &["a.py"])),
            made("seat", edit(true, Some("bob"), &["c.py", "d.py"])),
        ]);
        assert_eq!(metrics.overlap(), Some(0.5));
        let shared: Vec<_> = metrics.shared().map(FilePath::as_str).collect();
        assert_eq!(shared, ["b.py"], "what was refused has changed nothing");
        assert_eq!(metrics.authors.keys().collect::<Vec<_>>(), ["ada", "bob"]);
    }

    #[test]
    fn lines_that_another_had_put_there_are_told_apart() {
        let edit = |name: &str, hunks: serde_json::Value, lines: u32| {
            let change = json!({"path": "a.py", "hash": Digest([1; 32]), "lines": lines, "bytes": 1, "hunks": hunks});
            json!({"of": {"invocation": 1, "attempt": 1}, "name": name, "reads": [], "changes": [change]}).to_string()
        };
        let metrics = counted(vec![
            made("seat", edit("ada", json!([{"at": 1, "was": "", "now": "1\n2\n3\n4\n"}]), 4)),
            made("seat", edit("bob", json!([{"at": 2, "was": "2\n", "now": "two\nzwei\n"}]), 5)),
            // Removes one line of Ada's and one of Bob's, then replaces one of Ada's.
            made(
                "seat",
                edit(
                    "ada",
                    json!([{"at": 1, "was": "1\ntwo\n", "now": ""}, {"at": 5, "was": "4\n", "now": "vier\n"}]),
                    3,
                ),
            ),
        ]);
        assert_eq!((metrics.taken, metrics.taken_of_others), (4, 2));
        let scopes = BTreeMap::from([("bob".to_owned(), BTreeSet::from(["b.py".to_owned()]))]);
        let drift = metrics.drift(&scopes);
        let path = FilePath::parse("a.py").expect("a name");
        assert_eq!(drift, [Drift { author: "bob".to_owned(), path, edits: 1 }]);
    }

    #[test]
    fn without_edits_there_is_nothing_to_divide_by() {
        let metrics = counted(vec![Body::Tick(patchboard_kernel::record::Empty {})]);
        assert_eq!((metrics.total.acceptance(), metrics.overlap()), (None, None));
    }
}
