//! Erases rows that contain a redacted value of a board, with all their states.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use patchboard_kernel::redaction::Needles;
use patchboard_storage::blocking::wait;
use patchboard_storage::documents::{CHANGES_MAX, Change, DocumentError, Documents, PAGE_MAX, all, transact};
use serde_json::{Value, json};

use super::{CallOutcome, FILE, HEADERS, OUTCOMES, State, StorageError, Table, parsed};
use crate::departments::types::{Outcome, Values};

/// Placeholder for an erased value of an outcome.
const ERASED: &str = "$redacted";

/// Rows and outcomes that contain given texts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TextMatches {
    /// Numbers of rows, by the name of the department.
    pub rows: BTreeMap<String, BTreeSet<i64>>,
    /// Number of outcomes.
    pub outcomes: usize,
}

impl TextMatches {
    /// Returns whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.outcomes == 0
    }
}

/// Searches rows and outcomes of the departments of a data directory for texts. Blocks.
pub fn find(data_dir: &Path, texts: &Needles) -> Result<TextMatches, StorageError> {
    match patchboard_storage::open_documents_read_only(data_dir, FILE)? {
        Some(documents) => wait(Search { documents: &*documents, texts, is_erasing: false }.run()),
        None => Ok(TextMatches::default()),
    }
}

/// Ends each row that contains one of the texts, and empties all its states; its number is not reused. In stored
/// outcomes, a placeholder replaces each value with such a text. Then rewrites the file and empties its log, even if
/// nothing was found, because an earlier attempt may have been interrupted. Blocks.
/// After an error the file may still contain erased bytes; a retry removes them.
pub fn erase(data_dir: &Path, texts: &Needles) -> Result<TextMatches, StorageError> {
    if !patchboard_storage::has_documents(data_dir, FILE) {
        return Ok(TextMatches::default());
    }
    let documents = patchboard_storage::open_documents(data_dir, FILE)?;
    let found = wait(Search { documents: &*documents, texts, is_erasing: true }.run())?;
    match wait(documents.purge_erased_bytes()) {
        Err(DocumentError::Locked) => Err(StorageError::Busy),
        purged => Ok(purged.map(|()| found)?),
    }
}

/// Search for texts in all departments.
struct Search<'a> {
    documents: &'a dyn Documents,
    texts: &'a Needles,
    /// True if what is found is erased.
    is_erasing: bool,
}

impl Search<'_> {
    async fn run(&self) -> Result<TextMatches, StorageError> {
        let mut found = TextMatches::default();
        for header in all(self.documents, HEADERS).await? {
            let rows = self.rows(&header.key).await?;
            if !rows.is_empty() {
                found.rows.insert(header.key, rows);
            }
        }
        let mut after = None;
        loop {
            let (count, last) = transact(self.documents, || self.outcomes(after.clone())).await?;
            found.outcomes += count;
            if last.is_none() {
                return Ok(found);
            }
            after = last;
        }
    }

    /// Returns the numbers of a department's rows that contain one of the texts.
    async fn rows(&self, department: &str) -> Result<BTreeSet<i64>, StorageError> {
        let mut found = BTreeSet::new();
        loop {
            let (ids, is_all) = transact(self.documents, || self.rows_batch(department)).await?;
            found.extend(ids);
            if is_all {
                return Ok(found);
            }
        }
    }

    /// Returns numbers of rows, and whether none are left after the changes.
    async fn rows_batch(&self, department: &str) -> Result<((BTreeSet<i64>, bool), Vec<Change>), StorageError> {
        let table = Table::read(self.documents, department, true).await?;
        let has_text = |value: &Value| value.as_str().is_some_and(|text| self.texts.occur_in(text));
        let is_match = |state: &&State| state.values.values().any(has_text);
        let ids: BTreeSet<i64> = table.states().filter(is_match).map(|state| state.id).collect();
        if !self.is_erasing || ids.is_empty() {
            return Ok(((ids, true), Vec::new()));
        }
        let mut states: Vec<&State> = table.states().filter(|state| ids.contains(&state.id)).collect();
        // The states with a text are the last ones, so an interrupted erasure finds the row again.
        states.sort_by_key(is_match);
        let mut changes = Vec::new();
        for state in states.into_iter().filter(|state| !state.deleted || !state.values.is_empty()) {
            changes.push(State { deleted: true, values: Values::new(), ..state.clone() }.put(department));
            if state.is_current() {
                changes.push(state.remove(department));
            }
        }
        let is_all = changes.len() < CHANGES_MAX;
        changes.truncate(CHANGES_MAX - 1);
        changes.push(table.put_header(0));
        Ok(((ids, is_all), changes))
    }

    /// Returns the number of outcomes with one of the texts in the page after a key, and the last key of the page.
    /// Placeholders replace their values.
    async fn outcomes(&self, after: Option<String>) -> Result<((usize, Option<String>), Vec<Change>), StorageError> {
        let page = self.documents.page(OUTCOMES, after.as_deref(), PAGE_MAX.min(CHANGES_MAX)).await?;
        let last = page.last().map(|last| last.key.clone());
        let mut changes = Vec::new();
        for document in page {
            let (key, revision) = (document.key.clone(), document.revision);
            let call: CallOutcome = parsed(document)?;
            if !self.texts.occur_in(&call.outcome.to_string()) {
                continue;
            }
            let unreadable = |why| StorageError::NotConfigured(format!("the outcome of {key} cannot be read: {why}"));
            let outcome: Outcome = serde_json::from_value(call.outcome.clone()).map_err(unreadable)?;
            let mut marked = outcome.clone();
            marked.each_value(&mut |value| mark(value, self.texts));
            // Only a status or a field name may have matched.
            if marked != outcome {
                let call = CallOutcome { outcome: json!(marked), ..call };
                changes.push(Change::put(OUTCOMES, key, json!(call)).expecting(Some(revision)));
            }
        }
        Ok(((changes.len(), last), if self.is_erasing { changes } else { Vec::new() }))
    }
}

/// Replaces each text that contains one of these, and each object with such a member name, by a placeholder.
fn mark(value: &mut Value, texts: &Needles) {
    match value {
        Value::String(text) if texts.occur_in(text) => ERASED.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| mark(item, texts)),
        Value::Object(members) if members.keys().any(|name| texts.occur_in(name)) => *value = ERASED.into(),
        Value::Object(members) => members.values_mut().for_each(|member| mark(member, texts)),
        _ => {}
    }
}
