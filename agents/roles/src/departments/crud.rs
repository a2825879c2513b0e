//! `builtin:crud`: executes a resolved request, and nothing else. It never sees the user's words.
//!
//! Four phases: recognise (the action and its target), validate (every value, and that the row is unchanged), execute,
//! verify (read back, within the transaction). An error that a user can cause gives an outcome with the status `error`,
//! as a code with values, and changes nothing. A call is executed once: its outcome is stored by its key in the same
//! transaction.

use std::time::Duration;

use patchboard_kernel::id::Timestamp;
use patchboard_protocols::department::{Action, Department, RowOperation};
use patchboard_storage::private_files;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params_from_iter, types};
use serde_json::Value;

use super::similarity::display_text;
use super::similarity::words;
use super::storage::{FILE, PATIENCE, ROWS_MAX, Storage, StorageError, current, current_row, sql, to_sql};
use super::types::{ChangeError, Outcome, OutcomeStatus, Resolution, Row, RowChange, Status, Values};
use super::values::{is_given, stored};

/// Greatest number of rows in an outcome.
const SHOWN_MAX: usize = 100;

/// Executes a resolved request. `key` identifies the call; `bytes_max` limits the serialised rows of the outcome.
///
/// # Errors
/// See [`StorageError`]; nothing is changed then.
pub fn execute(
    storage: &Storage,
    department: &Department,
    key: &str,
    resolved: &Resolution,
    now: Timestamp,
    bytes_max: usize,
) -> Result<Outcome, StorageError> {
    let recognised = match recognise(department, resolved) {
        Ok(recognised) => recognised,
        Err(why) => return Ok(nothing(resolved).with_error(why)),
    };
    storage.with_table(department, |connection| {
        if recognised.action.does == RowOperation::Select {
            return select(connection, department, resolved, bytes_max);
        }
        let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let known: Option<(String, String)> =
            transaction.query_row(sql::OUTCOME, [key], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        if let Some((of, outcome)) = known {
            let outcome = serde_json::from_str(&outcome).ok().filter(|_| of == department.name);
            return outcome.ok_or_else(|| StorageError::NotConfigured(format!("the outcome of {key} cannot be read")));
        }
        let savepoint = transaction.savepoint()?;
        let change = Change { connection: &savepoint, department, recognised: &recognised, key, now };
        let outcome = match change.make() {
            Ok(changed) => {
                savepoint.commit()?;
                let rows = vec![changed];
                Outcome { rows, count: 1, verified: true, ..nothing(resolved) }.into_done()
            }
            Err(ChangeFailure::Change(why)) => {
                drop(savepoint);
                nothing(resolved).with_error(why)
            }
            Err(ChangeFailure::Storage(fault)) => return Err(fault),
        };
        put_outcome(&transaction, department, key, now, &outcome)?;
        transaction.commit()?;
        settle(connection);
        Ok(outcome)
    })
}

/// Empties the write-ahead log. A flipped bit in it would revert every later commit, and no hash of rows would reveal
/// it.
fn settle(connection: &Connection) {
    // If another process reads, or the disk fails, the commit is still valid; the next change empties the log.
    let settled = connection.busy_timeout(Duration::ZERO).and_then(|()| private_files::truncate_wal(connection));
    if let Err(error) = settled.and_then(|_| connection.busy_timeout(PATIENCE)) {
        tracing::warn!(%error, "the log of {FILE} is not empty");
    }
}

impl Outcome {
    fn into_done(self) -> Self {
        Self { status: OutcomeStatus::Done, ..self }
    }

    fn with_error(self, wrong: ChangeError) -> Self {
        Self { wrong: Some(wrong), ..self }
    }
}

fn put_outcome(
    transaction: &Transaction<'_>,
    department: &Department,
    key: &str,
    now: Timestamp,
    outcome: &Outcome,
) -> Result<(), StorageError> {
    let text = serde_json::to_string(outcome).map_err(|why| StorageError::NotConfigured(why.to_string()))?;
    transaction.execute(sql::PUT_OUTCOME, (key, &department.name, now.0, text))?;
    Ok(())
}

/// Builds the outcome of a request that changed nothing.
fn nothing(resolved: &Resolution) -> Outcome {
    Outcome {
        status: OutcomeStatus::Error,
        action: resolved.action.clone(),
        slots: resolved.slots.clone(),
        rows: Vec::new(),
        count: 0,
        verified: false,
        wrong: None,
    }
}

/// Recognised request.
struct Recognised<'a> {
    action: &'a Action,
    /// Values to write, by field.
    sets: Values,
    /// Row to change and the values that it must still have; `None` for an insert or a select.
    row: Option<(i64, Values)>,
}

/// Runs the first phase, and the checks of the second that need no rows.
fn recognise<'a>(department: &'a Department, resolved: &Resolution) -> Result<Recognised<'a>, ChangeError> {
    let action = department.actions.get(&resolved.action);
    let action = action.ok_or(ChangeError::UnknownAction)?;
    if resolved.status != Status::Found {
        return Err(ChangeError::Unclear);
    }
    let slot_value = |slot: &str| resolved.slots.get(slot).filter(|value| is_given(value)).cloned();
    let fields = &department.storage.fields;
    let is_value = |field: &String, value: Value| match fields.get(field) {
        None => Err(ChangeError::UnknownField { field: field.clone() }),
        Some(known) if known.value_error(&value).is_some() => Err(ChangeError::Unfit { field: field.clone(), value }),
        Some(known) => Ok((field.clone(), stored(known, value))),
    };
    let mut sets = Values::new();
    for name in &action.sets {
        match slot_value(&action.slot_set(name)) {
            Some(value) => sets.extend([is_value(name, value)?]),
            None if action.does == RowOperation::Insert => return Err(ChangeError::Missing { field: name.clone() }),
            None => {}
        }
    }
    if action.does == RowOperation::Update && sets.is_empty() {
        return Err(ChangeError::NoChange);
    }
    let row = match (action.does, resolved.ids.as_slice()) {
        (RowOperation::Insert, []) | (RowOperation::Select, _) => None,
        (RowOperation::Update | RowOperation::Delete, [id]) => {
            let has = |name: &String| Some((name.clone(), stored(fields.get(name)?, slot_value(name)?)));
            Some((*id, action.finds.iter().filter_map(has).collect()))
        }
        (RowOperation::Insert, _) => return Err(ChangeError::NotNew),
        (RowOperation::Update | RowOperation::Delete, _) => return Err(ChangeError::NotOne),
    };
    Ok(Recognised { action, sets, row })
}

/// Returns the current values of the found rows, within the limits; rows that are gone are left out.
fn select(
    connection: &Connection,
    department: &Department,
    resolved: &Resolution,
    bytes_max: usize,
) -> Result<Outcome, StorageError> {
    let (mut rows, mut count, mut bytes) = (Vec::new(), 0, 0);
    for id in &resolved.ids {
        let Some(row) = current_row(connection, department, *id)? else { continue };
        count += 1;
        bytes += Value::Object(row.values.clone()).to_string().len() + 32;
        if rows.len() < SHOWN_MAX && bytes <= bytes_max {
            rows.push(RowChange { id: row.id, before: None, after: Some(row.values) });
        }
    }
    Ok(Outcome { rows, count, verified: true, ..nothing(resolved) }.into_done())
}

/// Reason that a change was not made.
enum ChangeFailure {
    /// Error that a user can cause.
    Change(ChangeError),
    Storage(StorageError),
}

impl<E: Into<StorageError>> From<E> for ChangeFailure {
    fn from(fault: E) -> Self {
        Self::Storage(fault.into())
    }
}

struct Change<'a> {
    connection: &'a Connection,
    department: &'a Department,
    recognised: &'a Recognised<'a>,
    key: &'a str,
    now: Timestamp,
}

impl Change<'_> {
    /// Runs the phases that need the rows. On an error the caller rolls back their changes.
    fn make(&self) -> Result<RowChange, ChangeFailure> {
        match &self.recognised.row {
            None => self.insert(),
            Some((id, expected)) => {
                let before = current_row(self.connection, self.department, *id)?;
                let is_as_found = |row: &Row| expected.iter().all(|(name, value)| row.values.get(name) == Some(value));
                let Some(before) = before.filter(is_as_found) else {
                    return Err(ChangeFailure::Change(ChangeError::Stale));
                };
                match self.recognised.action.does {
                    RowOperation::Delete => self.delete(before),
                    RowOperation::Insert | RowOperation::Select | RowOperation::Update => self.update(before),
                }
            }
        }
    }

    fn insert(&self) -> Result<RowChange, ChangeFailure> {
        let rows = current(self.connection, self.department)?;
        if rows.len() >= ROWS_MAX {
            return Err(ChangeFailure::Change(ChangeError::Full));
        }
        let after = self.recognised.sets.clone();
        self.check_unique(&rows, None, &after)?;
        let id = self.connection.query_row(&sql::next_id(self.department), (), |row| row.get(0))?;
        self.begin(id, 1, self.now.0, false, &after)?;
        self.verify(id, Some((&after, 1)))?;
        Ok(RowChange { id, before: None, after: Some(after) })
    }

    fn update(&self, before: Row) -> Result<RowChange, ChangeFailure> {
        let mut after = before.values.clone();
        after.extend(self.recognised.sets.clone());
        let rows = current(self.connection, self.department)?;
        self.check_unique(&rows, Some(before.id), &after)?;
        let now = self.end(before.id)?;
        self.begin(before.id, before.version + 1, now, false, &after)?;
        self.verify(before.id, Some((&after, before.version + 1)))?;
        Ok(RowChange { id: before.id, before: Some(before.values), after: Some(after) })
    }

    fn delete(&self, before: Row) -> Result<RowChange, ChangeFailure> {
        let now = self.end(before.id)?;
        self.begin(before.id, before.version + 1, now, true, &before.values)?;
        self.verify(before.id, None)?;
        Ok(RowChange { id: before.id, before: Some(before.values), after: None })
    }

    /// Checks that no other row has the same identity.
    fn check_unique(&self, rows: &[Row], own: Option<i64>, values: &Values) -> Result<(), ChangeFailure> {
        let identity = &self.department.storage.identity;
        let has = |values: &Values, name: &String| values.get(name).map(|value| words(&display_text(value)));
        let is_same = |row: &Row| identity.iter().all(|name| has(&row.values, name) == has(values, name));
        let is_taken = !identity.is_empty() && rows.iter().any(|row| Some(row.id) != own && is_same(row));
        if is_taken {
            let value = |name: &String| Some((name.clone(), values.get(name)?.clone()));
            return Err(ChangeFailure::Change(ChangeError::Taken {
                values: identity.iter().filter_map(value).collect(),
            }));
        }
        Ok(())
    }

    /// Ends the current state of a row. Returns the time of its end, which always advances, even if the clock does not.
    fn end(&self, id: i64) -> Result<i64, ChangeFailure> {
        let (valid, recorded): (i64, i64) =
            self.connection.query_row(&sql::since(self.department), [id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let now = self.now.0.max(valid.saturating_add(1)).max(recorded.saturating_add(1));
        self.connection.execute(&sql::supersede(self.department), (id, now))?;
        self.connection.execute(&sql::close(self.department), (id, now))?;
        Ok(now)
    }

    fn begin(&self, id: i64, version: i64, now: i64, is_deleted: bool, values: &Values) -> Result<(), ChangeFailure> {
        let fixed = [
            types::Value::Integer(id),
            types::Value::Integer(version),
            types::Value::Integer(now),
            types::Value::Integer(is_deleted.into()),
            types::Value::Text(self.key.to_owned()),
        ];
        let fields = self.department.storage.fields.keys().map(|name| to_sql(values.get(name)));
        self.connection.execute(&sql::begin(self.department), params_from_iter(fixed.into_iter().chain(fields)))?;
        Ok(())
    }

    /// Runs the last phase: compares the stored row with the intended one.
    fn verify(&self, id: i64, expected: Option<(&Values, i64)>) -> Result<(), ChangeFailure> {
        let found = current_row(self.connection, self.department, id)?;
        let is_right = match (&found, expected) {
            (None, None) => true,
            (Some(row), Some((values, version))) => row.values == *values && row.version == version,
            _ => false,
        };
        if is_right {
            return Ok(());
        }
        Err(ChangeFailure::Change(ChangeError::Unverified))
    }
}

#[cfg(test)]
mod tests;
