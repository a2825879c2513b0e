//! Erases rows that contain a redacted value of a board, with all their states.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use patchboard_kernel::redaction::Needles;
use patchboard_storage::private_files;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, TransactionBehavior};
use serde_json::Value;

use super::{FILE, PATIENCE, StorageError, departments, fields_there, format_of, sql};
use crate::departments::types::Outcome;

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

/// Searches rows and outcomes of the departments of a data directory for texts.
///
/// # Errors
/// See [`StorageError`].
pub fn find(data_dir: &Path, texts: &Needles) -> Result<TextMatches, StorageError> {
    let Some(mut connection) = open(data_dir)? else { return Ok(TextMatches::default()) };
    let reading = connection.transaction()?;
    Ok(TextMatches { rows: rows(&reading, texts)?, outcomes: outcomes(&reading, texts)?.len() })
}

/// Ends each row that contains one of the texts, and empties all its states; its number is not reused. In stored
/// outcomes, a placeholder replaces each value with such a text. Then rewrites the file and empties its log, even if
/// nothing was found, because an earlier attempt may have been interrupted.
///
/// # Errors
/// See [`StorageError`]. The file may then still contain erased bytes; a retry removes them.
pub fn erase(data_dir: &Path, texts: &Needles) -> Result<TextMatches, StorageError> {
    let Some(mut connection) = open(data_dir)? else { return Ok(TextMatches::default()) };
    connection.pragma_update(None, "secure_delete", true)?;
    let writing = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let rows = rows(&writing, texts)?;
    for (department, ids) in &rows {
        let fields = fields_there(&writing, department)?.unwrap_or_default();
        let mut empty = writing.prepare(&sql::empty(department, &fields))?;
        for id in ids {
            empty.execute([id])?;
        }
    }
    let outcomes = outcomes(&writing, texts)?;
    for (key, outcome) in &outcomes {
        writing.execute(sql::SET_OUTCOME, (key, outcome))?;
    }
    writing.commit()?;
    connection.execute_batch("VACUUM")?;
    if !private_files::truncate_wal(&connection)? {
        return Err(StorageError::Busy);
    }
    Ok(TextMatches { rows, outcomes: outcomes.len() })
}

/// Opens the file, if it exists and has tables.
fn open(data_dir: &Path) -> Result<Option<Connection>, StorageError> {
    let path = data_dir.join(FILE);
    if !path.try_exists()? {
        return Ok(None);
    }
    let connection = private_files::connect(&path, PATIENCE)?;
    Ok((format_of(&connection)? > 0).then_some(connection))
}

/// Returns the numbers of rows that contain one of the texts.
fn rows(connection: &Connection, texts: &Needles) -> Result<BTreeMap<String, BTreeSet<i64>>, StorageError> {
    let mut found: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
    for department in departments(connection)? {
        let fields = fields_there(connection, &department)?.unwrap_or_default();
        let mut statement = connection.prepare(&sql::all(&department, &fields))?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            for column in 1..=fields.len() {
                if matches!(row.get_ref(column)?, ValueRef::Text(text) if texts.occur_in(&String::from_utf8_lossy(text)))
                {
                    found.entry(department.clone()).or_default().insert(row.get(0)?);
                }
            }
        }
    }
    Ok(found)
}

/// Returns the outcomes that contain one of the texts, by key, with placeholders in place of such values.
fn outcomes(connection: &Connection, texts: &Needles) -> Result<Vec<(String, String)>, StorageError> {
    let mut statement = connection.prepare(sql::OUTCOMES)?;
    let mut rows = statement.query(())?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (key, text): (String, String) = (row.get(0)?, row.get(1)?);
        if texts.occur_in(&text) {
            let unreadable = |why| StorageError::NotConfigured(format!("the outcome of {key} cannot be read: {why}"));
            let outcome: Outcome = serde_json::from_str(&text).map_err(unreadable)?;
            let mut marked = outcome.clone();
            marked.each_value(&mut |value| mark(value, texts));
            // Only a status or a field name may have matched.
            if marked != outcome {
                found.push((key.clone(), serde_json::to_string(&marked).map_err(unreadable)?));
            }
        }
    }
    Ok(found)
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
