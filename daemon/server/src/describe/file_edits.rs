//! Describes edits of files: author, files, versions, and intent.
//!
//! Uses only the board's data on its files, which remains when the text of an edit is redacted.

use patchboard_kernel::files::{EXTERNAL, Edit, FILES, FilePath};
use patchboard_kernel::id::InvocationId;
use patchboard_kernel::record::{Attempt, Author, Committed, Rejected};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{TEXT_CHARS_MAX, first_of, name};
use crate::text::short;

const FILES_SHOWN: usize = 4;

/// Accepted edit of files.
#[derive(Serialize, ToSchema)]
pub struct EditInfo {
    /// Name of the author; differs from the worker if several authors share that worker.
    by: String,
    /// Invocation that made the edit; null for changes that bypassed the workspace.
    #[schema(required, value_type = Option<u64>)]
    invocation: Option<InvocationId>,
    /// Attempt of the invocation, from 1.
    #[schema(required)]
    attempt: Option<u32>,
    /// Purpose, in the author's words.
    #[schema(required)]
    intent: Option<String>,
    /// Edited files.
    files: Vec<EditedFile>,
}

/// File of an edit.
#[derive(Serialize, ToSchema)]
pub(crate) struct EditedFile {
    /// Path of the file.
    path: String,
    /// Version after the edit.
    version: u64,
    /// False if the edit deleted the file.
    exists: bool,
}

/// Description of an accepted edit.
pub struct EditLine<'a> {
    /// Author's name; differs from the worker if several authors share that worker.
    pub writer: String,
    worker: &'a str,
    /// Attempt that made the edit; `None` for changes that bypassed the workspace.
    pub(crate) attempt: Option<&'a Attempt>,
    pub(crate) intent: Option<&'a str>,
    /// Files with their versions; false for a file that was deleted.
    pub(crate) files: Vec<(FilePath, u64, bool)>,
}

impl<'a> EditLine<'a> {
    /// Describes a commit, if it is an edit of files.
    pub fn from_commit(committed: &'a Committed) -> Option<Self> {
        let attempt = committed.by.edit.as_ref()?.attempt.as_ref();
        let mut editing = Self {
            writer: committed.by.worker.to_string(),
            worker: committed.by.worker.as_str(),
            attempt,
            intent: committed.intent.as_deref(),
            files: Vec::new(),
        };
        for op in committed.patch.as_array().into_iter().flatten() {
            editing.take(op);
        }
        Some(editing)
    }

    fn take(&mut self, op: &Value) -> Option<()> {
        let place = jsonptr::Pointer::parse(op["path"].as_str()?).ok()?;
        let mut tokens = place.tokens().map(|token| token.decoded().into_owned());
        let (first, path) = (tokens.next()?, FilePath::parse(&tokens.next()?).ok()?);
        let value = op.get("value").filter(|_| first == FILES)?;
        let member = tokens.next();
        match member.as_deref() {
            None => {
                self.files.push((path, value["version"].as_u64()?, true));
                self.write(&value["writer"])?;
            }
            Some("version") => self.files.push((path, value.as_u64()?, true)),
            Some("hash") => self.files.iter_mut().filter(|(file, ..)| *file == path).for_each(|file| {
                file.2 = !value.is_null();
            }),
            Some("writer") => self.write(value)?,
            _ => {}
        }
        Some(())
    }

    fn write(&mut self, writer: &Value) -> Option<()> {
        writer.as_str()?.clone_into(&mut self.writer);
        Some(())
    }

    /// Returns `ada #3.1`, or `external`.
    pub fn by(&self) -> String {
        by(&self.writer, self.worker, self.attempt)
    }

    /// Returns `src/a.py to version 5, src/b.py (gone, version 3)`.
    pub fn changes(&self) -> String {
        let describe = |(path, version, is_there): &(FilePath, u64, bool)| match is_there {
            true => format!("{} to version {version}", short(path.as_str(), TEXT_CHARS_MAX)),
            false => format!("{} (gone, version {version})", short(path.as_str(), TEXT_CHARS_MAX)),
        };
        first_of(&self.files, FILES_SHOWN, describe)
    }

    pub(crate) fn sentence(&self, committed: &Committed) -> String {
        let intent = self.intent.map(|intent| format!(" “{}”", short(intent, TEXT_CHARS_MAX))).unwrap_or_default();
        format!("version {}: {} edits {}{intent}", committed.version, self.by(), self.changes())
    }

    pub(crate) fn info(&self) -> EditInfo {
        let file = |(path, version, exists): &(FilePath, u64, bool)| EditedFile {
            path: path.to_string(),
            version: *version,
            exists: *exists,
        };
        EditInfo {
            by: self.writer.clone(),
            invocation: self.attempt.map(|attempt| attempt.invocation),
            attempt: self.attempt.map(|attempt| attempt.number),
            intent: self.intent.map(ToOwned::to_owned),
            files: self.files.iter().map(file).collect(),
        }
    }
}

fn by(writer: &str, worker: &str, attempt: Option<&Attempt>) -> String {
    let attempt = attempt.map(|attempt| format!("#{}.{}", attempt.invocation, attempt.number));
    match (writer == worker, attempt) {
        (true, Some(attempt)) => format!("{} {attempt}", name(writer)),
        (false, Some(attempt)) => format!("{} ({} {attempt})", name(writer), name(worker)),
        (true, None) => name(writer),
        (false, None) => format!("{} ({EXTERNAL})", name(writer)),
    }
}

/// Returns the author of a rejected edit, and its files; `None` if the proposal is no edit of files.
pub(super) fn rejected_edit(rejected: &Rejected) -> Option<String> {
    let Author { worker, edit, .. } = &rejected.by;
    let attempt = edit.as_ref()?.attempt.as_ref();
    let Ok(edit) = serde_json::from_str::<Edit>(&rejected.reply) else {
        return Some(by(worker.as_str(), worker.as_str(), attempt));
    };
    let writer = edit.name.as_deref().unwrap_or(worker.as_str());
    let paths = first_of(&edit.changes, FILES_SHOWN, |change| short(change.path.as_str(), TEXT_CHARS_MAX));
    let intent = edit.intent.map(|intent| format!(" “{}”", short(&intent, TEXT_CHARS_MAX))).unwrap_or_default();
    Some(format!("{} edits {}{intent}:", by(writer, worker.as_str(), attempt), paths))
}
