//! What the records of a board say of the edits of its files: how many were tried, taken and refused, why, and where
//! authors met. A plain function of records; what edits cost in tokens and whether they were right is not in it.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::files::{Edit, FilePath};
use patchboard_kernel::record::{Author, Body, Record, RecordError};
use serde::Serialize;

/// What became of the edits of one author, or of all.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Edits {
    /// Edits that were put to the board.
    pub attempts: u64,
    /// Those that were made.
    pub accepted: u64,
    /// Those that were not, by the code of the refusal.
    pub refused: BTreeMap<String, u64>,
    /// Edits of files for which the same author had been refused right before: what had to be done again.
    pub again: u64,
}

impl Edits {
    /// Those that were not made.
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }

    /// The part of the attempts that was accepted; none if nothing was tried.
    pub fn acceptance(&self) -> Option<f64> {
        (self.attempts > 0).then(|| self.accepted as f64 / self.attempts as f64)
    }

    fn add(&mut self, refusal: Option<&str>, is_again: bool) {
        self.attempts += 1;
        self.again += u64::from(is_again);
        match refusal {
            Some(code) => *self.refused.entry(code.to_owned()).or_default() += 1,
            None => self.accepted += 1,
        }
    }
}

/// What the edits of a board came to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Metrics {
    /// Of all authors; what happened around the workspace is not among it.
    pub total: Edits,
    /// Of each author.
    pub authors: BTreeMap<String, Edits>,
    /// Changes that were made around the workspace.
    pub external: u64,
    /// Who tried to edit each file.
    pub tried: BTreeMap<FilePath, BTreeSet<String>>,
    /// Who edited each file.
    pub edited: BTreeMap<FilePath, BTreeSet<String>>,
}

impl Metrics {
    /// The part of the files that somebody tried to edit which more than one author tried to edit; none if there are none.
    pub fn overlap(&self) -> Option<f64> {
        let met = self.tried.values().filter(|authors| authors.len() > 1).count();
        (!self.tried.is_empty()).then(|| met as f64 / self.tried.len() as f64)
    }

    /// Files to which edits of more than one author were accepted.
    pub fn shared(&self) -> impl Iterator<Item = &FilePath> {
        self.edited.iter().filter(|(_, authors)| authors.len() > 1).map(|(path, _)| path)
    }
}

/// Counts the edits among records, which are in order; those of a first round alone, if only these are given.
///
/// # Errors
/// A record cannot be read.
pub fn metrics(records: &[Record]) -> Result<Metrics, RecordError> {
    let mut metrics = Metrics::default();
    // Files for which an author was refused, and has not been accepted since.
    let mut refused: BTreeSet<(String, FilePath)> = BTreeSet::new();
    for record in records {
        match record.body()? {
            Body::Committed(committed) => {
                let Some(edit) = edit(&committed.by, committed.written.as_deref()) else { continue };
                metrics.count(&committed.by, &edit, None, &mut refused);
            }
            Body::Rejected(rejected) => {
                let Some(edit) = edit(&rejected.by, Some(&rejected.reply)) else { continue };
                metrics.count(&rejected.by, &edit, Some(rejected.code.as_str()), &mut refused);
            }
            _ => {}
        }
    }
    Ok(metrics)
}

impl Metrics {
    fn count(&mut self, by: &Author, edit: &Edit, refusal: Option<&str>, refused: &mut BTreeSet<(String, FilePath)>) {
        if edit.of.is_none() {
            self.external += u64::from(refusal.is_none());
            return;
        }
        let author = edit.name.clone().unwrap_or_else(|| by.worker.to_string());
        let pairs = || edit.changes.iter().map(|change| (author.clone(), change.path.clone()));
        let is_again = pairs().any(|pair| refused.contains(&pair));
        self.total.add(refusal, is_again);
        self.authors.entry(author.clone()).or_default().add(refusal, is_again);
        for pair in pairs() {
            self.tried.entry(pair.1.clone()).or_default().insert(author.clone());
            if refusal.is_none() {
                self.edited.entry(pair.1.clone()).or_default().insert(author.clone());
                refused.remove(&pair);
            } else {
                refused.insert(pair);
            }
        }
    }
}

/// The edit of a record, if it is of files and not erased.
fn edit(by: &Author, written: Option<&str>) -> Option<Edit> {
    by.edit.as_ref()?;
    serde_json::from_str(written?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use patchboard_kernel::digest::{Digest, Hasher, Salt};
    use patchboard_kernel::id::{Seq, Timestamp, Version};
    use patchboard_kernel::record::{Committed, Editing, Rejected};
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
            edit: Some(Editing::default()),
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
        })
    }

    fn refused(worker: &str, code: Code, reply: String) -> Body {
        let rejection = Rejection::new(Stage::Freshness, vec![Violation::new(code, "", "no")]);
        let by = author(worker);
        Body::Rejected(Box::new(Rejected { by, stage: Stage::Freshness, code, is_final: false, rejection, reply }))
    }

    fn counted(bodies: Vec<Body>) -> Metrics {
        let hasher = Hasher::new(&Salt([7; 32]));
        let (mut records, mut last) = (Vec::new(), Digest([0; 32]));
        for (seq, body) in bodies.into_iter().enumerate() {
            let record = Record::seal(last, Seq(seq as u64), Timestamp(0), &body, &hasher);
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
        assert_eq!((bob.attempts, bob.accepted, bob.refusals()), (4, 2, 2));
        assert_eq!(bob.refused, BTreeMap::from([("stale_target".to_owned(), 1), ("reserved".to_owned(), 1)]));
        assert_eq!(bob.again, 2, "the one after the first refusal, and the one after the second");
        assert_eq!(metrics.authors["ada"].again, 0);
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
    fn without_edits_there_is_nothing_to_divide_by() {
        let metrics = counted(vec![Body::Tick(patchboard_kernel::record::Empty {})]);
        assert_eq!((metrics.total.acceptance(), metrics.overlap()), (None, None));
    }
}
