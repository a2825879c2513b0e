//! Whose a file is that is not committed yet, as the journal knows it.
//!
//! Of the edits since what is committed, the author is who wrote the most lines, the last of them if several wrote as many;
//! the others have a part in it. What programs changed counts only where nobody has edited: who runs a formatter has not
//! written what it touches. What others changed around the workspace counts last, and has no name.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::digest::Digest;
use patchboard_kernel::files::{EXTERNAL, Edit, FilePath, Move};
use patchboard_kernel::id::Seq;
use patchboard_kernel::record::Body;
use patchboard_runtime::runtime::BoardHandle;

use crate::workspace::metrics;

/// Who has edited which files, in order.
#[derive(Default)]
pub(super) struct Histories {
    /// The last record that is in it.
    last: Option<Seq>,
    files: BTreeMap<FilePath, Vec<Made>>,
}

/// A version of a file.
#[derive(Clone, Debug)]
struct Made {
    by: String,
    how: How,
    /// Lines that were written.
    lines: u64,
    hash: Option<Digest>,
}

/// How a version came to be; what counts more comes later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum How {
    Outside,
    Program,
    Edit,
}

/// Whose a file is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Authors {
    pub(super) first: String,
    pub(super) others: BTreeSet<String>,
}

impl Histories {
    /// Reads what the journal has that is not in here.
    pub(super) async fn read_on(
        &mut self,
        board: &BoardHandle,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let head = board.snapshot().head.seq;
        let mut records = board.subscribe(self.last);
        while self.last.is_none_or(|last| last < head) {
            let Some(record) = records.next().await else { break };
            let record = record?;
            if let Body::Committed(committed) = record.body()?
                && let Some(edit) = metrics::edit(&committed.by, committed.written.as_deref())
            {
                self.take_up(&metrics::author_of(&committed.by, &edit), &edit);
            }
            self.last = Some(record.seq);
        }
        Ok(())
    }

    fn take_up(&mut self, by: &str, edit: &Edit) {
        let how = match &edit.of {
            Some(_) => How::Edit,
            None if by == EXTERNAL => How::Outside,
            None => How::Program,
        };
        // Under another name a file is still of those who wrote it.
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
                Some(hunks) => hunks.iter().map(|hunk| Move::from(hunk).added).map(u64::from).sum(),
                None => change.lines.into(),
            };
            let lines = if renamed == Some(&change.path) { 0 } else { written };
            let made = Made { by: by.to_owned(), how, lines, hash: change.hash };
            self.files.entry(change.path.clone()).or_default().push(made);
        }
    }

    /// Whether a file is of more than one.
    pub(super) fn has_several(&self, path: &FilePath) -> bool {
        let mut names = self.files.get(path).into_iter().flatten().map(|made| &made.by);
        let first = names.next();
        names.any(|name| Some(name) != first)
    }

    /// Whose a file is, if this is what is committed of it; all that is known of it counts, if that is not among it.
    pub(super) fn authors(&self, path: &FilePath, committed: Option<Digest>) -> Authors {
        let made = self.files.get(path).map(Vec::as_slice).unwrap_or_default();
        let since = made.iter().rposition(|made| committed.is_some() && made.hash == committed).map_or(0, |at| at + 1);
        let since = &made[since..];
        let how = since.iter().map(|made| made.how).max().unwrap_or(How::Outside);
        let mut lines: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
        for (index, made) in since.iter().enumerate().filter(|(_, made)| made.how == how && how != How::Outside) {
            let (written, last) = lines.entry(&made.by).or_default();
            (*written, *last) = (*written + made.lines, index);
        }
        let first = lines.iter().max_by_key(|(_, weight)| **weight).map_or(EXTERNAL, |(name, _)| *name);
        let others = lines.keys().filter(|name| **name != first).map(|name| (*name).to_owned()).collect();
        Authors { first: first.to_owned(), others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use patchboard_kernel::digest::sha256;
    use serde_json::{Value, json};

    /// Edits by name, what came out, and how many lines were written.
    fn authors(edits: &[(&str, bool, &str, u32)], committed: Option<&str>) -> Authors {
        let mut histories = Histories::default();
        for (by, is_edit, text, lines) in edits {
            let hunk = json!({"at": 1, "was": "", "now": "x\n".repeat(*lines as usize)});
            edited(&mut histories, by, *is_edit, json!([change("a.py", Some(text), &hunk)]));
        }
        histories.authors(&FilePath::parse("a.py").expect("a name"), committed.map(|text| sha256(text.as_bytes())))
    }

    fn change(path: &str, text: Option<&str>, hunk: &Value) -> Value {
        let hash = text.map(|text| sha256(text.as_bytes()));
        json!({"path": path, "hash": hash, "lines": 9, "bytes": 1, "hunks": [hunk]})
    }

    fn edited(histories: &mut Histories, by: &str, is_edit: bool, changes: Value) {
        let mut edit = json!({"reads": [], "changes": changes});
        if is_edit {
            edit["of"] = json!({"invocation": 1, "attempt": 1});
        }
        histories.take_up(by, &serde_json::from_value(edit).expect("an edit"));
    }

    fn of(first: &str, others: &[&str]) -> Authors {
        Authors { first: first.to_owned(), others: others.iter().map(|name| (*name).to_owned()).collect() }
    }

    #[test]
    fn who_wrote_most_since_the_commit_is_the_author_and_the_others_have_a_part() {
        let edits = [("external", false, "0", 9), ("ada", true, "1", 8), ("bob", true, "2", 3), ("ada", true, "3", 1)];
        assert_eq!(authors(&edits, Some("0")), of("ada", &["bob"]));
        assert_eq!(authors(&edits, Some("1")), of("bob", &["ada"]), "what is committed counts no more");
        assert_eq!(authors(&edits, Some("2")), of("ada", &[]));
        assert_eq!(authors(&edits, Some("?")), of("ada", &["bob"]), "what is committed is not known");
        assert_eq!(authors(&[("ada", true, "1", 2), ("bob", true, "2", 2)], None), of("bob", &["ada"]), "the last");
    }

    #[test]
    fn a_program_takes_no_authorship_from_who_has_edited() {
        let formatted = [("ada", true, "1", 2), ("manager", false, "2", 400), ("external", false, "3", 50)];
        assert_eq!(authors(&formatted, None), of("ada", &[]));
        assert_eq!(authors(&formatted, Some("1")), of("manager", &[]), "nothing but the program's is new");
        assert_eq!(authors(&formatted, Some("2")), of("external", &[]));
        assert_eq!(authors(&[], None), of("external", &[]));
    }

    #[test]
    fn a_file_under_another_name_is_still_of_those_who_wrote_it() {
        let mut histories = Histories::default();
        let hunk = |lines: usize| json!({"at": 1, "was": "", "now": "x\n".repeat(lines)});
        edited(&mut histories, "ada", true, json!([change("a.py", Some("1"), &hunk(5))]));
        let renamed = json!([change("a.py", None, &hunk(0)), change("b.py", Some("1"), &hunk(5))]);
        edited(&mut histories, "bob", true, renamed);
        assert_eq!(histories.authors(&FilePath::parse("b.py").expect("a name"), None), of("ada", &["bob"]));
    }
}
