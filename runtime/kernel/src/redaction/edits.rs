//! Redaction of file edits: the requested ones, and those that contain the same lines.
//!
//! An edit quotes the lines that it removes, so its text occurs in other edits, too. In edits of the same file, under
//! any name, every shared line counts. In edits of other files a line may coincide by chance, as `import sys` does.
//! These are reported, and redacted only on request.

use std::collections::{BTreeMap, BTreeSet};

use jsonptr::Pointer;
use serde_json::Value;

use super::Request;
use super::text_search::CHARS_MIN;
use crate::files::{Edit, FILES, FileChange, FilePath};
use crate::id::Seq;
use crate::record::{Body, Record};

/// Shorter lines occur in other files by chance.
const LINE_CHARS_MIN: usize = 12;

/// The edits with redacted texts.
#[derive(Default)]
pub(super) struct Edits {
    erased: BTreeSet<Seq>,
    /// Edits of other files with the same lines, which are kept.
    kept_files: BTreeMap<Seq, FilePath>,
    /// Lines that identify texts which quote an edit.
    lines: BTreeSet<String>,
}

/// Relation of a place to the state's file entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileRelation {
    /// The place is or contains a file entry: selects the edits of the file.
    File,
    /// The place lies inside a file entry.
    Detail,
    /// The place lies outside the file entries.
    Elsewhere,
}

/// Returns the relation of a place to the file entries.
pub(super) fn file_relation(place: &Pointer) -> FileRelation {
    let is_of_files = place.first().is_none_or(|first| first.decoded() == FILES);
    match place.count() {
        _ if !is_of_files => FileRelation::Elsewhere,
        0..=2 => FileRelation::File,
        _ => FileRelation::Detail,
    }
}

impl Edits {
    pub(super) fn find(records: &[Record], request: &Request) -> Result<Self, String> {
        let mut edits: BTreeMap<Seq, Edit> = BTreeMap::new();
        for record in records {
            edits.extend(edit_of(record)?.map(|edit| (record.seq, edit)));
        }
        let is_at = |edit: &Edit| {
            let says =
                |change: &FileChange| edit.intent.is_some() || change.hunks.iter().any(|hunks| !hunks.is_empty());
            edit.changes.iter().any(|change| says(change) && is_named(&change.path, request))
        };
        let is_asked = |seq: &Seq, edit: &Edit| request.records.contains(seq) || is_at(edit);
        let requested: BTreeSet<Seq> =
            edits.iter().filter(|(seq, edit)| is_asked(seq, edit)).map(|(seq, _)| *seq).collect();
        let all: BTreeSet<&str> = requested.iter().flat_map(|seq| lines_of(&edits[seq])).collect();
        let names = FileAliases::from_edits(edits.values());
        let files = requested.iter().flat_map(|seq| names.files_of(&edits[seq])).collect::<BTreeSet<_>>();
        let mut found = Self { erased: requested, ..Self::default() };
        let mut common: BTreeSet<&str> = BTreeSet::new();
        for (seq, edit) in edits.iter().filter(|(seq, _)| !found.erased.contains(*seq)).collect::<Vec<_>>() {
            let is_same_file = names.files_of(edit).any(|file| files.contains(file));
            let is_long = |line: &&str| line.chars().count() >= LINE_CHARS_MIN;
            let shared: Vec<&str> = lines_of(edit).filter(|line| all.contains(line)).collect();
            if is_same_file || request.everywhere {
                found.erased.extend((!shared.is_empty()).then_some(*seq));
            } else if shared.iter().any(is_long) {
                common.extend(shared);
                found.kept_files.extend(edit.changes.first().map(|change| (*seq, change.path.clone())));
            }
        }
        let telling = all.iter().filter(|line| line.chars().count() >= LINE_CHARS_MIN && !common.contains(*line));
        found.lines = telling.map(|line| (*line).to_owned()).collect();
        Ok(found)
    }

    /// Returns true if the text of an edit is redacted.
    pub(super) fn is_redacted(&self, seq: Seq) -> bool {
        self.erased.contains(&seq)
    }

    /// Returns a file changed by an edit that is kept although it contains the same lines.
    pub(super) fn kept_file(&self, seq: Seq) -> Option<&FilePath> {
        self.kept_files.get(&seq)
    }

    /// Returns the lines that identify texts which quote a redacted edit.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.lines.iter().cloned()
    }
}

/// Returns the edit of a record, if it has one that is not redacted.
fn edit_of(record: &Record) -> Result<Option<Edit>, String> {
    let written = match record.body().map_err(|error| error.to_string())? {
        Body::Committed(committed) if committed.by.edit.is_some() => committed.written.as_deref(),
        Body::NoOp(no_op) if no_op.by.edit.is_some() => no_op.written.as_deref(),
        Body::Rejected(rejected) if rejected.by.edit.is_some() => Some(rejected.reply.as_str()),
        _ => None,
    };
    Ok(written.and_then(|written| serde_json::from_str(written).ok()))
}

fn is_named(path: &FilePath, request: &Request) -> bool {
    let place = path.place();
    request.places.iter().any(|asked| file_relation(asked) == FileRelation::File && place.starts_with(asked))
}

/// Returns the trimmed lines that an edit removes and adds.
fn lines_of(edit: &Edit) -> impl Iterator<Item = &str> {
    let hunks = edit.changes.iter().filter_map(|change| change.hunks.as_ref()).flatten();
    let lines = hunks.flat_map(|hunk| hunk.was.lines().chain(hunk.now.lines())).map(str::trim);
    lines.filter(|line| line.chars().count() >= CHARS_MIN)
}

/// File names grouped by file: an edit that creates one file while it removes another may be a rename.
struct FileAliases<'a>(BTreeMap<&'a FilePath, &'a FilePath>);

impl<'a> FileAliases<'a> {
    fn from_edits(edits: impl Iterator<Item = &'a Edit>) -> Self {
        let mut names = Self(BTreeMap::new());
        for edit in edits {
            let gone = edit.changes.iter().filter(|change| change.hash.is_none());
            for gone in gone.map(|change| &change.path) {
                for made in edit.changes.iter().filter(|change| change.from.is_none()).map(|change| &change.path) {
                    let (from, to) = (names.first(gone), names.first(made));
                    if from != to {
                        names.0.insert(to, from);
                    }
                }
            }
        }
        names
    }

    /// Returns the first of a file's names, which represents all of them.
    fn first(&self, mut name: &'a FilePath) -> &'a FilePath {
        while let Some(before) = self.0.get(name) {
            name = before;
        }
        name
    }

    fn files_of(&self, edit: &'a Edit) -> impl Iterator<Item = &'a FilePath> {
        edit.changes.iter().map(|change| self.first(&change.path))
    }
}

/// Returns, for each scalar in the kernel's patch for an edit in order, true if it is an intent. All others are the
/// board's own data about files.
pub(super) fn intents(patch: &Value) -> Vec<bool> {
    let mut found = Vec::new();
    for op in patch.as_array().into_iter().flatten() {
        let Some(value) = op.get("value") else { continue };
        let path = op.get("path").and_then(Value::as_str).unwrap_or_default();
        let is_intent = path.ends_with("/intent");
        match value {
            // `/files/NAME`; NAME contains no other `/`.
            Value::Object(members) if path.matches('/').count() == 2 => members.iter().for_each(|(name, member)| {
                each_scalar(member, &mut |_| found.push(name == "intent"));
            }),
            value => each_scalar(value, &mut |_| found.push(is_intent)),
        }
    }
    found
}

/// Visits every scalar of a value, in the order of numbering.
pub(super) fn each_scalar<'v>(value: &'v Value, scalar: &mut dyn FnMut(&'v Value)) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| each_scalar(item, scalar)),
        Value::Object(members) => members.values().for_each(|member| each_scalar(member, scalar)),
        _ => scalar(value),
    }
}
