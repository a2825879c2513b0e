//! The statements, made from the fields of a department. Values never stand in them, and names only in quotes.

use patchboard_kernel::department::{Department, FieldType};

use super::Values;

/// What every file has.
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

/// The fields of a department's table.
pub(super) const FIELDS: &str = "SELECT fields FROM departments WHERE name = ?1";
/// The same, kept.
pub(super) const PUT_FIELDS: &str = "INSERT INTO departments (name, fields) VALUES (?1, ?2)
    ON CONFLICT (name) DO UPDATE SET fields = excluded.fields";

/// What a call led to.
pub(in crate::departments) const OUTCOME: &str = "SELECT department, outcome FROM outcomes WHERE key = ?1";
/// The same, kept.
pub(in crate::departments) const PUT_OUTCOME: &str =
    "INSERT INTO outcomes (key, department, recorded, outcome) VALUES (?1, ?2, ?3, ?4)";

/// What is current.
const CURRENT: &str = "valid_to IS NULL AND recorded_to IS NULL AND deleted = 0";

/// All outcomes.
pub(super) const OUTCOMES: &str = "SELECT key, outcome FROM outcomes ORDER BY key";
/// Another outcome of the call `?1`.
pub(super) const SET_OUTCOME: &str = "UPDATE outcomes SET outcome = ?2 WHERE key = ?1";

/// The names of all departments.
pub(super) const DEPARTMENTS: &str = "SELECT name FROM departments ORDER BY name";
/// No call was carried out at `?1` or later.
pub(super) const FORGET_OUTCOMES: &str = "DELETE FROM outcomes WHERE recorded >= ?1";

/// A name as it stands in a statement.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn table(department: &Department) -> String {
    table_of(&department.name)
}

fn table_of(name: &str) -> String {
    quoted(&format!("department_{name}"))
}

/// The columns of the fields; each begins with a comma.
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

/// The types of the fields, by their names.
pub(super) fn fields(department: &Department) -> Values {
    let fields = department.storage.fields.iter();
    fields.map(|(name, field)| (name.clone(), field.kind.as_str().into())).collect()
}

/// A new table.
pub(super) fn create(department: &Department) -> String {
    let (table, fields) = (table(department), &department.storage.fields);
    let columns: String =
        fields.iter().map(|(name, field)| format!("\n    {} {},", quoted(name), column_type(field.kind))).collect();
    // Tables and indexes share their names, and no department has one with a space.
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

/// What makes a table that has these fields into the one that a department needs.
///
/// # Errors
/// A field is gone, or of another type: what to do about it.
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

/// All current rows, at most `?1`.
pub(super) fn current(department: &Department) -> String {
    format!("SELECT id, version{} FROM {} WHERE {CURRENT} ORDER BY id LIMIT ?1", columns(department), table(department))
}

/// The current row `?1`.
pub(super) fn current_row(department: &Department) -> String {
    format!("SELECT id, version{} FROM {} WHERE id = ?1 AND {CURRENT}", columns(department), table(department))
}

/// The rows that were there at `?1`, as it was known at `?2`.
pub(super) fn as_of(department: &Department) -> String {
    format!(
        "SELECT id, version{} FROM {} WHERE deleted = 0
    AND valid_from <= ?1 AND (valid_to IS NULL OR ?1 < valid_to)
    AND recorded_from <= ?2 AND (recorded_to IS NULL OR ?2 < recorded_to) ORDER BY id",
        columns(department),
        table(department)
    )
}

/// What was recorded at `?1` or later is taken back: states that began, and then ends of those before.
pub(super) fn forget_since(name: &str) -> [String; 2] {
    let table = table_of(name);
    [
        format!("DELETE FROM {table} WHERE recorded_from >= ?1"),
        format!("UPDATE {table} SET recorded_to = NULL WHERE recorded_to >= ?1"),
    ]
}

/// The fields of all states of rows, each after its row's number.
pub(super) fn all(name: &str, fields: &Values) -> String {
    let columns: String = fields.keys().map(|field| format!(", {}", quoted(field))).collect();
    format!("SELECT id{columns} FROM {}", table_of(name))
}

/// All states of the row `?1` are empty, and it has ended.
pub(super) fn empty(name: &str, fields: &Values) -> String {
    let columns: String = fields.keys().map(|field| format!(", {} = NULL", quoted(field))).collect();
    format!("UPDATE {} SET deleted = 1{columns} WHERE id = ?1", table_of(name))
}

/// The next number of a row.
pub(in crate::departments) fn next_id(department: &Department) -> String {
    format!("SELECT COALESCE(MAX(id), 0) + 1 FROM {}", table(department))
}

/// Since when the current row `?1` is so, and since when that is known.
pub(in crate::departments) fn since(department: &Department) -> String {
    format!("SELECT valid_from, recorded_from FROM {} WHERE id = ?1 AND {CURRENT}", table(department))
}

/// From `?2` on, the current row `?1` is no longer known to be so without end.
pub(in crate::departments) fn supersede(department: &Department) -> String {
    format!("UPDATE {} SET recorded_to = ?2 WHERE id = ?1 AND {CURRENT}", table(department))
}

/// Instead, from `?2` on it is known that it was so until `?2`. Comes after [`supersede`].
pub(in crate::departments) fn close(department: &Department) -> String {
    let (table, columns) = (table(department), columns(department));
    format!(
        "INSERT INTO {table} (id, version{columns}, valid_from, valid_to, recorded_from, recorded_to, deleted, key)
    SELECT id, version{columns}, valid_from, ?2, ?2, NULL, 0, key FROM {table}
    WHERE id = ?1 AND recorded_to = ?2 AND valid_to IS NULL AND deleted = 0"
    )
}

/// A state that begins: `?1` the row, `?2` its version, `?3` the time, `?4` whether it has ended, `?5` the key of the call,
/// and the fields.
pub(in crate::departments) fn begin(department: &Department) -> String {
    let (table, columns) = (table(department), columns(department));
    let values: String = (0..department.storage.fields.len()).map(|index| format!(", ?{}", index + 6)).collect();
    format!(
        "INSERT INTO {table} (id, version, valid_from, valid_to, recorded_from, recorded_to, deleted, key{columns})
    VALUES (?1, ?2, ?3, NULL, ?3, NULL, ?4, ?5{values})"
    )
}
