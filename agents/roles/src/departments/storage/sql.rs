//! SQL statements, built from the fields of a department. Values are always parameters; names are always quoted.

use patchboard_protocols::department::{Department, FieldType};

use super::Values;

/// Tables of every file.
pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS departments (
    name   TEXT NOT NULL PRIMARY KEY,
    fields TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS outcomes (
    key        TEXT    NOT NULL PRIMARY KEY,
    department TEXT    NOT NULL,
    recorded   INTEGER NOT NULL,
    outcome    TEXT    NOT NULL
) STRICT;
";

/// Selects the fields of a department's table.
pub(super) const FIELDS: &str = "SELECT fields FROM departments WHERE name = ?1";
/// Stores the fields of a department's table.
pub(super) const PUT_FIELDS: &str = "INSERT INTO departments (name, fields) VALUES (?1, ?2)
    ON CONFLICT (name) DO UPDATE SET fields = excluded.fields";

/// Selects the outcome of a call.
pub(in crate::departments) const OUTCOME: &str = "SELECT department, outcome FROM outcomes WHERE key = ?1";
/// Stores the outcome of a call.
pub(in crate::departments) const PUT_OUTCOME: &str =
    "INSERT INTO outcomes (key, department, recorded, outcome) VALUES (?1, ?2, ?3, ?4)";

/// Condition of a current state.
const CURRENT: &str = "valid_to IS NULL AND recorded_to IS NULL AND deleted = 0";

/// Selects all outcomes.
pub(super) const OUTCOMES: &str = "SELECT key, outcome FROM outcomes ORDER BY key";
/// Replaces the outcome of the call `?1`.
pub(super) const SET_OUTCOME: &str = "UPDATE outcomes SET outcome = ?2 WHERE key = ?1";

/// Selects the names of all departments.
pub(super) const DEPARTMENTS: &str = "SELECT name FROM departments ORDER BY name";
/// Deletes the outcomes recorded at `?1` or later.
pub(super) const FORGET_OUTCOMES: &str = "DELETE FROM outcomes WHERE recorded >= ?1";

/// Quotes a name for a statement.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn table(department: &Department) -> String {
    table_of(&department.name)
}

fn table_of(name: &str) -> String {
    quoted(&format!("department_{name}"))
}

/// Lists the columns of the fields, each after a comma.
fn columns(department: &Department) -> String {
    department.storage.fields.keys().map(|name| format!(", {}", quoted(name))).collect()
}

const fn column_type(kind: FieldType) -> &'static str {
    match kind {
        FieldType::String => "TEXT",
        FieldType::Integer | FieldType::Boolean => "INTEGER",
        FieldType::Number => "REAL",
    }
}

/// Returns the types of the fields, by name.
pub(super) fn fields(department: &Department) -> Values {
    let fields = department.storage.fields.iter();
    fields.map(|(name, field)| (name.clone(), field.kind.as_str().into())).collect()
}

/// Creates a table.
pub(super) fn create(department: &Department) -> String {
    let (table, fields) = (table(department), &department.storage.fields);
    let columns: String =
        fields.iter().map(|(name, field)| format!("\n    {} {},", quoted(name), column_type(field.kind))).collect();
    // Tables and indexes share one namespace, and no department has a name with a space.
    let index = |of: &str| quoted(&format!("department_{} {of}", department.name));
    let (current, history) = (index("current"), index("history"));
    format!(
        "CREATE TABLE {table} (
    seq INTEGER PRIMARY KEY,
    id INTEGER NOT NULL,
    version INTEGER NOT NULL,{columns}
    valid_from INTEGER NOT NULL,
    valid_to INTEGER,
    recorded_from INTEGER NOT NULL,
    recorded_to INTEGER,
    deleted INTEGER NOT NULL,
    key TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX {current} ON {table} (id) WHERE {CURRENT};
CREATE INDEX {history} ON {table} (id, recorded_from);
"
    )
}

/// Alters a table with the fields `there` into the one that a department needs.
///
/// # Errors
/// A field was removed or has another type; the message describes the fix.
pub(super) fn alter(department: &Department, there: &Values) -> Result<String, String> {
    let fields = &department.storage.fields;
    for (name, kind) in there {
        let kind = kind.as_str().unwrap_or_default();
        let wrong = match fields.get(name) {
            None => format!("has no field {name} any more, and its rows have"),
            Some(field) if field.kind.as_str() != kind => {
                format!("says that {name} is of type {}, and in its rows it is {kind}", field.kind)
            }
            Some(_) => continue,
        };
        return Err(format!(
            "the manifest of the department {} {wrong}: write the field as it was ({name}: {{type: {kind}}}), no action has \
             to use it; or give the department another name, so that it begins without rows",
            department.name
        ));
    }
    let table = table(department);
    let new = fields.iter().filter(|(name, _)| !there.contains_key(name.as_str()));
    let step = |(name, kind): (&String, FieldType)| {
        format!("ALTER TABLE {table} ADD COLUMN {} {};\n", quoted(name), column_type(kind))
    };
    Ok(new.map(|(name, field)| step((name, field.kind))).collect())
}

/// Selects all current rows, at most `?1`.
pub(super) fn current(department: &Department) -> String {
    format!("SELECT id, version{} FROM {} WHERE {CURRENT} ORDER BY id LIMIT ?1", columns(department), table(department))
}

/// Selects the current row `?1`.
pub(super) fn current_row(department: &Department) -> String {
    format!("SELECT id, version{} FROM {} WHERE id = ?1 AND {CURRENT}", columns(department), table(department))
}

/// Selects the rows that existed at `?1`, as known at `?2`.
pub(super) fn as_of(department: &Department) -> String {
    format!(
        "SELECT id, version{} FROM {} WHERE deleted = 0
    AND valid_from <= ?1 AND (valid_to IS NULL OR ?1 < valid_to)
    AND recorded_from <= ?2 AND (recorded_to IS NULL OR ?2 < recorded_to) ORDER BY id",
        columns(department),
        table(department)
    )
}

/// Reverts what was recorded at `?1` or later: deletes states that began, then clears the ends of earlier ones.
pub(super) fn forget_since(name: &str) -> [String; 2] {
    let table = table_of(name);
    [
        format!("DELETE FROM {table} WHERE recorded_from >= ?1"),
        format!("UPDATE {table} SET recorded_to = NULL WHERE recorded_to >= ?1"),
    ]
}

/// Selects the fields of all states of rows, each after the row's number.
pub(super) fn all(name: &str, fields: &Values) -> String {
    let columns: String = fields.keys().map(|field| format!(", {}", quoted(field))).collect();
    format!("SELECT id{columns} FROM {}", table_of(name))
}

/// Empties all states of the row `?1` and marks it as deleted.
pub(super) fn empty(name: &str, fields: &Values) -> String {
    let columns: String = fields.keys().map(|field| format!(", {} = NULL", quoted(field))).collect();
    format!("UPDATE {} SET deleted = 1{columns} WHERE id = ?1", table_of(name))
}

/// Selects the next row number.
pub(in crate::departments) fn next_id(department: &Department) -> String {
    format!("SELECT COALESCE(MAX(id), 0) + 1 FROM {}", table(department))
}

/// Selects the start of the validity and of the knowledge of the current row `?1`.
pub(in crate::departments) fn since(department: &Department) -> String {
    format!("SELECT valid_from, recorded_from FROM {} WHERE id = ?1 AND {CURRENT}", table(department))
}

/// Ends the knowledge of the current row `?1`, as valid without end, at `?2`.
pub(in crate::departments) fn supersede(department: &Department) -> String {
    format!("UPDATE {} SET recorded_to = ?2 WHERE id = ?1 AND {CURRENT}", table(department))
}

/// Inserts the knowledge, from `?2` on, that the row was valid until `?2`. Runs after [`supersede`].
pub(in crate::departments) fn close(department: &Department) -> String {
    let (table, columns) = (table(department), columns(department));
    format!(
        "INSERT INTO {table} (id, version{columns}, valid_from, valid_to, recorded_from, recorded_to, deleted, key)
    SELECT id, version{columns}, valid_from, ?2, ?2, NULL, 0, key FROM {table}
    WHERE id = ?1 AND recorded_to = ?2 AND valid_to IS NULL AND deleted = 0"
    )
}

/// Inserts a new state: `?1` row, `?2` version, `?3` time, `?4` deleted flag, `?5` key of the call, then the fields.
pub(in crate::departments) fn begin(department: &Department) -> String {
    let (table, columns) = (table(department), columns(department));
    let values: String = (0..department.storage.fields.len()).map(|index| format!(", ?{}", index + 6)).collect();
    format!(
        "INSERT INTO {table} (id, version, valid_from, valid_to, recorded_from, recorded_to, deleted, key{columns})
    VALUES (?1, ?2, ?3, NULL, ?3, NULL, ?4, ?5{values})"
    )
}
