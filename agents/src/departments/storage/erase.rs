//! Erases rows in which the text of an erased value of a board stands, with every state that they ever had.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use patchboard_kernel::redaction::Needles;
use patchboard_runtime::private;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, TransactionBehavior};
use serde_json::Value;

use super::{FILE, Fault, PATIENCE, departments, fields_there, format_of, sql};
use crate::departments::found::Outcome;

/// The mark in place of a value of an outcome.
const ERASED: &str = "$redacted";

/// Rows and outcomes in which texts stand, or stood.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Found {
    /// Numbers of rows, by the name of the department.
    pub rows: BTreeMap<String, BTreeSet<i64>>,
    /// Outcomes of calls.
    pub outcomes: usize,
}

impl Found {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.outcomes == 0
    }
}

/// Looks for texts in rows and outcomes of the departments of a data directory.
///
/// # Errors
/// See [`Fault`].
pub fn find(data_dir: &Path, texts: &Needles) -> Result<Found, Fault> {
    let Some(mut connection) = open(data_dir)? else { return Ok(Found::default()) };
    let reading = connection.transaction()?;
    Ok(Found { rows: rows(&reading, texts)?, outcomes: outcomes(&reading, texts)?.len() })
}

/// Ends each row in which one of the texts stands, and empties all states that it had: its number is never another's. Of
/// outcomes, which a call that is made again gets, a mark takes the place of each value with such a text. Then the file is
/// written anew and its log emptied, also where nothing was found: an attempt before may have been broken off.
///
/// # Errors
/// See [`Fault`]. What was erased may still be found in the file then; the same once more mends that.
pub fn erase(data_dir: &Path, texts: &Needles) -> Result<Found, Fault> {
    let Some(mut connection) = open(data_dir)? else { return Ok(Found::default()) };
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
    if !private::empty_log(&connection)? {
        return Err(Fault::Busy);
    }
    Ok(Found { rows, outcomes: outcomes.len() })
}

/// Opens the file, if there is one with tables.
fn open(data_dir: &Path) -> Result<Option<Connection>, Fault> {
    let path = data_dir.join(FILE);
    if !path.try_exists()? {
        return Ok(None);
    }
    let connection = private::connect(&path, PATIENCE)?;
    Ok((format_of(&connection)? > 0).then_some(connection))
}

/// The numbers of rows in which one of the texts stands.
fn rows(connection: &Connection, texts: &Needles) -> Result<BTreeMap<String, BTreeSet<i64>>, Fault> {
    let mut found: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
    for department in departments(connection)? {
        let fields = fields_there(connection, &department)?.unwrap_or_default();
        let mut statement = connection.prepare(&sql::all(&department, &fields))?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            for column in 1..=fields.len() {
                if matches!(row.get_ref(column)?, ValueRef::Text(text) if texts.are_in(&String::from_utf8_lossy(text)))
                {
                    found.entry(department.clone()).or_default().insert(row.get(0)?);
                }
            }
        }
    }
    Ok(found)
}

/// Outcomes in which one of the texts stands, by the keys of their calls, with marks in place of the values that have it.
fn outcomes(connection: &Connection, texts: &Needles) -> Result<Vec<(String, String)>, Fault> {
    let mut statement = connection.prepare(sql::OUTCOMES)?;
    let mut rows = statement.query(())?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (key, text): (String, String) = (row.get(0)?, row.get(1)?);
        if texts.are_in(&text) {
            let unreadable = |why| Fault::NotConfigured(format!("the outcome of {key} cannot be read: {why}"));
            let outcome: Outcome = serde_json::from_str(&text).map_err(unreadable)?;
            let mut marked = outcome.clone();
            marked.each_value(&mut |value| mark(value, texts));
            // A status or the name of a field may be the same word.
            if marked != outcome {
                found.push((key.clone(), serde_json::to_string(&marked).map_err(unreadable)?));
            }
        }
    }
    Ok(found)
}

/// Puts a mark in the place of each text that holds one of these, and of members whose names do.
fn mark(value: &mut Value, texts: &Needles) {
    match value {
        Value::String(text) if texts.are_in(text) => ERASED.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| mark(item, texts)),
        Value::Object(members) if members.keys().any(|name| texts.are_in(name)) => *value = ERASED.into(),
        Value::Object(members) => members.values_mut().for_each(|member| mark(member, texts)),
        _ => {}
    }
}
