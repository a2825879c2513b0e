//! `builtin:crud`: executes a resolved request, and nothing else. It never sees the user's words.
//!
//! Four phases: recognise (the action and its target), validate (every value, and that the row is unchanged), execute,
//! verify (read back, within the transaction). An error that a user can cause gives an outcome with the status `error`,
//! as a code with values, and changes nothing. A call is executed once: its outcome is stored by its key in the same
//! transaction.

use patchboard_kernel::id::Timestamp;
use patchboard_protocols::department::{Action, Department, RowOperation};
use patchboard_storage::blocking::wait;
use patchboard_storage::documents::{Change, DocumentError, Documents, transact};
use serde_json::{Value, json};

use super::similarity::{display_text, words};
use super::storage::{CallOutcome, OUTCOMES, ROWS_MAX, State, Storage, StorageError, Table, parsed};
use super::types::{ChangeError, Outcome, OutcomeStatus, Resolution, RowChange, Status, Values};
use super::values::{bytes_of, is_given, stored};

/// Greatest number of rows in an outcome.
const SHOWN_MAX: usize = 100;

/// Executes a resolved request. `key` identifies the call; `bytes_max` limits the serialised rows of the outcome.
/// An error changes nothing.
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
        Err(why) => return Ok(Outcome { wrong: Some(why), ..nothing(resolved) }),
    };
    storage.with_documents(|documents| {
        if recognised.action.does == RowOperation::Select {
            let table = wait(Table::of(documents, department))?;
            return Ok(select(&table, resolved, bytes_max));
        }
        let call = WriteCall { documents, department, recognised: &recognised, resolved, key, now };
        match wait(call.run(None)) {
            Err(StorageError::Documents(DocumentError::Unverified { .. })) => {
                wait(call.run(Some(ChangeError::Unverified)))
            }
            done => done,
        }
    })
}

/// Call that may change rows.
struct WriteCall<'a> {
    documents: &'a dyn Documents,
    department: &'a Department,
    recognised: &'a Recognised<'a>,
    resolved: &'a Resolution,
    key: &'a str,
    now: Timestamp,
}

impl WriteCall<'_> {
    /// Makes the change, unless it has `failed`, and stores its outcome; returns the stored outcome of a repeated call.
    async fn run(&self, failed: Option<ChangeError>) -> Result<Outcome, StorageError> {
        transact(self.documents, || self.decide(failed.clone())).await
    }

    async fn decide(&self, failed: Option<ChangeError>) -> Result<(Outcome, Vec<Change>), StorageError> {
        let Self { documents, department, resolved, key, now, .. } = *self;
        let table = Table::of(documents, department).await?;
        if let Some(known) = documents.get(OUTCOMES, key).await? {
            let known: CallOutcome = parsed(known)?;
            let outcome = serde_json::from_value(known.outcome).ok().filter(|_| known.department == department.name);
            let outcome =
                outcome.ok_or_else(|| StorageError::NotConfigured(format!("the outcome of {key} cannot be read")))?;
            return Ok((outcome, Vec::new()));
        }
        let made = if let Some(why) = failed { Err(why) } else { RowWrite { call: self, table: &table }.make() };
        let (outcome, mut changes) = match made {
            Ok((changed, mut changes)) => {
                changes.push(table.put_header(changed.id));
                (done(resolved, vec![changed], 1), changes)
            }
            Err(why) => (Outcome { wrong: Some(why), ..nothing(resolved) }, vec![table.put_header(0)]),
        };
        let department = department.name.clone();
        let stored = CallOutcome { department, recorded: now.0, outcome: json!(outcome) };
        changes.push(Change::put(OUTCOMES, key, json!(stored)).expecting(None));
        Ok((outcome, changes))
    }
}

/// Builds the outcome of a request that was carried out.
fn done(resolved: &Resolution, rows: Vec<RowChange>, count: u64) -> Outcome {
    Outcome { status: OutcomeStatus::Done, rows, count, verified: true, ..nothing(resolved) }
}

/// Builds the outcome of a request that changed nothing.
fn nothing(resolved: &Resolution) -> Outcome {
    Outcome { action: resolved.action.clone(), slots: resolved.slots.clone(), ..Outcome::default() }
}

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
fn select(table: &Table, resolved: &Resolution, bytes_max: usize) -> Outcome {
    let (mut rows, mut count, mut bytes) = (Vec::new(), 0, 0);
    for State { id, values, .. } in resolved.ids.iter().filter_map(|id| table.rows.get(id)) {
        count += 1;
        bytes += bytes_of(values) + 32;
        if rows.len() < SHOWN_MAX && bytes <= bytes_max {
            rows.push(RowChange { id: *id, before: None, after: Some(values.clone()) });
        }
    }
    done(resolved, rows, count)
}

/// Write of one row, decided on the rows as read.
struct RowWrite<'a> {
    call: &'a WriteCall<'a>,
    table: &'a Table,
}

impl RowWrite<'_> {
    /// Returns the changes of the phases that need the rows.
    fn make(&self) -> Result<(RowChange, Vec<Change>), ChangeError> {
        let Some((id, expected)) = &self.call.recognised.row else { return self.insert() };
        let is_as_found = |row: &&State| expected.iter().all(|(name, value)| row.values.get(name) == Some(value));
        let before = self.table.rows.get(id).filter(is_as_found).ok_or(ChangeError::Stale)?;
        match self.call.recognised.action.does {
            RowOperation::Delete => Ok(self.delete(before)),
            RowOperation::Insert | RowOperation::Select | RowOperation::Update => self.update(before),
        }
    }

    fn insert(&self) -> Result<(RowChange, Vec<Change>), ChangeError> {
        if self.table.rows.len() >= ROWS_MAX {
            return Err(ChangeError::Full);
        }
        let values = self.call.recognised.sets.clone();
        self.check_unique(None, &values)?;
        let id = self.table.next_id();
        let change = RowChange { id, before: None, after: Some(values.clone()) };
        Ok((change, vec![self.begun(id, 1, self.call.now.0, values).put(&self.call.department.name)]))
    }

    fn update(&self, before: &State) -> Result<(RowChange, Vec<Change>), ChangeError> {
        let mut values = before.values.clone();
        values.extend(self.call.recognised.sets.clone());
        self.check_unique(Some(before.id), &values)?;
        let (now, mut changes) = self.end(before);
        changes.push(self.begun(before.id, before.version + 1, now, values.clone()).put(&self.call.department.name));
        Ok((RowChange { id: before.id, before: Some(before.values.clone()), after: Some(values) }, changes))
    }

    fn delete(&self, before: &State) -> (RowChange, Vec<Change>) {
        let (now, mut changes) = self.end(before);
        let end = self.begun(before.id, before.version + 1, now, before.values.clone());
        changes.push(State { deleted: true, ..end }.put(&self.call.department.name));
        changes.push(before.remove(&self.call.department.name));
        (RowChange { id: before.id, before: Some(before.values.clone()), after: None }, changes)
    }

    /// Checks that no other row has the same identity.
    fn check_unique(&self, own: Option<i64>, values: &Values) -> Result<(), ChangeError> {
        let identity = &self.call.department.storage.identity;
        let has = |values: &Values, name: &String| values.get(name).map(|value| words(&display_text(value)));
        let is_same = |row: &State| identity.iter().all(|name| has(&row.values, name) == has(values, name));
        let is_taken = !identity.is_empty() && self.table.rows.values().any(|row| Some(row.id) != own && is_same(row));
        if is_taken {
            let value = |name: &String| Some((name.clone(), values.get(name)?.clone()));
            return Err(ChangeError::Taken { values: identity.iter().filter_map(value).collect() });
        }
        Ok(())
    }

    /// Ends the current state of a row: what was known until now, and what is known of it from now on. Returns the time
    /// of its end, which always advances, even if the clock does not.
    fn end(&self, before: &State) -> (i64, Vec<Change>) {
        let State { valid_from, recorded_from, .. } = *before;
        let now = self.call.now.0.max(valid_from.saturating_add(1)).max(recorded_from.saturating_add(1));
        let superseded = State { recorded_to: Some(now), ..before.clone() };
        let closed = State { valid_to: Some(now), recorded_from: now, ..before.clone() };
        (now, [superseded, closed].map(|state| state.put(&self.call.department.name)).into())
    }

    /// Returns a current state of a row.
    fn begun(&self, id: i64, version: i64, now: i64, values: Values) -> State {
        let (valid_from, recorded_from, key) = (now, now, self.call.key.to_owned());
        State { id, version, valid_from, valid_to: None, recorded_from, recorded_to: None, deleted: false, key, values }
    }
}

#[cfg(test)]
mod tests;
