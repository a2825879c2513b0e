//! Files of tokens and of departments with tables of their own, as versions before documents wrote them.

use patchboard_kernel::json;
use rusqlite::types::Value as Column;
use rusqlite::{Connection, Result, Row};
use serde_json::{Map, Value, json};

use super::Format;
use crate::documents::number_key;

/// Collection, key and content of a document.
type Legacy = (String, String, Value);

/// Prefix of an idempotency key that is stored as a fingerprint. Earlier versions stored plain keys.
const FINGERPRINT_PREFIX: &str = "key:";

/// Selects the statements that drop the tables of earlier formats.
const TABLES: &str = "SELECT 'DROP TABLE \"' || replace(name, '\"', '\"\"') || '\";' FROM sqlite_schema \
    WHERE type = 'table' AND (name IN ('tokens', 'token_keys', 'key_secret', 'audit_log', 'departments', 'outcomes') \
    OR name LIKE 'department\\_%' ESCAPE '\\')";

/// Returns the content of a file as documents.
pub(super) fn documents(connection: &Connection, format: Format) -> Result<Vec<Legacy>> {
    match format {
        Format::Empty | Format::Documents => Ok(Vec::new()),
        Format::Tokens => tokens(connection),
        Format::Departments => departments(connection),
    }
}

/// Returns the statements that drop the tables of a file.
pub(super) fn drop_tables(connection: &Connection) -> Result<String> {
    rows(connection, TABLES, |row| row.get::<_, String>(0)).map(|drops| drops.concat())
}

fn tokens(connection: &Connection) -> Result<Vec<Legacy>> {
    // The first versions had fewer tables and columns.
    let has = |table: &str, column: &str| {
        let sql = "SELECT EXISTS(SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2)";
        connection.query_row(sql, [table, column], |row| row.get::<_, bool>(0))
    };
    let mut all = Vec::new();
    let mut keys = Map::new();
    if has("token_keys", "key")? {
        for (text, token) in rows(connection, "SELECT key, token FROM token_keys", |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
        })? {
            let collection = if text.starts_with(FINGERPRINT_PREFIX) { "keys" } else { "plain_keys" };
            all.push((collection.to_owned(), text.clone(), token.into()));
            keys.insert(token.to_string(), text.into());
        }
    }
    let column = |name: &'static str| has("tokens", name).map(|has| if has { name } else { "NULL" });
    let sql = format!(
        "SELECT id, lower(hex(hash)), name, scope, created_at, revoked_at, {}, {} FROM tokens ORDER BY id",
        column("expires_at")?,
        column("made_by")?
    );
    let (mut count, mut last) = (0, 0);
    let tokens = rows(connection, &sql, |row| {
        let id: i64 = row.get(0)?;
        let token = json!({
            "id": id,
            "name": row.get::<_, String>(2)?,
            "scope": row.get::<_, String>(3)?,
            "created_at": row.get::<_, i64>(4)?,
            "revoked_at": row.get::<_, Option<i64>>(5)?,
            "expires_at": row.get::<_, Option<i64>>(6)?,
            "made_by": parsed(row, 7)?,
        });
        Ok((id, row.get::<_, String>(1)?, token))
    })?;
    for (id, hash, token) in tokens {
        (count, last) = (count + 1, id);
        if token["revoked_at"].is_null() {
            all.push(("hashes".to_owned(), hash.clone(), id.into()));
        }
        let stored = json!({"hash": hash, "key": keys.get(&id.to_string()), "token": token});
        all.push(("tokens".to_owned(), number_key(id), stored));
    }
    let mut last_entry = 0;
    if has("audit_log", "id")? {
        let sql = "SELECT id, at, action, subject, principal, done FROM audit_log ORDER BY id";
        for (id, entry) in rows(connection, sql, |row| {
            let (id, at, action): (i64, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let (subject, done): (Option<String>, bool) = (row.get(3)?, row.get(5)?);
            let principal = parsed(row, 4)?;
            let entry =
                json!({"id": id, "at": at, "action": action, "subject": subject, "principal": principal, "done": done});
            Ok((id, entry))
        })? {
            last_entry = id;
            all.push(("audit".to_owned(), number_key(id), entry));
        }
    }
    if has("key_secret", "secret")? {
        for secret in rows(connection, "SELECT lower(hex(secret)) FROM key_secret", |row| row.get::<_, String>(0))? {
            all.push(("header".to_owned(), "secret".to_owned(), secret.into()));
        }
    }
    // The numbers of deleted tokens are not reused.
    for (table, number) in rows(connection, "SELECT name, seq FROM sqlite_sequence", |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
    })? {
        match table.as_str() {
            "tokens" => last = last.max(number),
            _ => last_entry = last_entry.max(number),
        }
    }
    let header = json!({"tokens": count, "last_token": last, "last_entry": last_entry});
    all.push(("header".to_owned(), "numbers".to_owned(), header));
    Ok(all)
}

fn departments(connection: &Connection) -> Result<Vec<Legacy>> {
    let mut all = Vec::new();
    for (name, fields) in
        rows(connection, "SELECT name, fields FROM departments", |row| Ok((row.get::<_, String>(0)?, parsed(row, 1)?)))?
    {
        let types = fields.as_object().cloned().unwrap_or_default();
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let columns: String = types.keys().map(|field| format!(", {}", quoted(field))).collect();
        let sql = format!(
            "SELECT id, version, valid_from, valid_to, recorded_from, recorded_to, deleted, key{columns} FROM {}",
            quoted(&format!("department_{name}"))
        );
        let mut last = 0;
        for (id, state) in rows(connection, &sql, |row| Ok((row.get::<_, i64>(0)?, state(row, &types)?)))? {
            last = last.max(id);
            let is_current = state["valid_to"].is_null() && state["recorded_to"].is_null() && state["deleted"] == false;
            all.push(match is_current {
                true => (format!("rows/{name}"), number_key(id), state),
                false => {
                    let key = format!("{}/{}/{}", number_key(id), state["version"], state["recorded_from"]);
                    (format!("history/{name}"), key, state)
                }
            });
        }
        all.push(("departments".to_owned(), name, json!({"fields": fields, "last_id": last})));
    }
    let outcomes = rows(connection, "SELECT key, department, recorded, outcome FROM outcomes", |row| {
        let (key, department, recorded): (String, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let outcome = json!({"department": department, "recorded": recorded, "outcome": parsed(row, 3)?});
        Ok(("outcomes".to_owned(), key, outcome))
    })?;
    all.extend(outcomes);
    Ok(all)
}

/// Returns a state of a row: the fixed columns, and the fields by their types.
fn state(row: &Row<'_>, types: &Map<String, Value>) -> Result<Value> {
    let mut values = Map::new();
    for (index, (field, kind)) in types.iter().enumerate() {
        let mut value: Value = match row.get(index + 8)? {
            Column::Null | Column::Blob(_) => continue,
            Column::Integer(number) if kind == "boolean" => (number != 0).into(),
            Column::Integer(number) => number.into(),
            Column::Real(number) => number.into(),
            Column::Text(text) => text.into(),
        };
        json::normalise(&mut value);
        values.insert(field.clone(), value);
    }
    Ok(json!({
        "id": row.get::<_, i64>(0)?,
        "version": row.get::<_, i64>(1)?,
        "valid_from": row.get::<_, i64>(2)?,
        "valid_to": row.get::<_, Option<i64>>(3)?,
        "recorded_from": row.get::<_, i64>(4)?,
        "recorded_to": row.get::<_, Option<i64>>(5)?,
        "deleted": row.get::<_, bool>(6)?,
        "key": row.get::<_, String>(7)?,
        "values": values,
    }))
}

/// Reads a column of JSON text; null if it has none.
fn parsed(row: &Row<'_>, column: usize) -> Result<Value> {
    let text: Option<String> = row.get(column)?;
    let read = text.map_or(Ok(Value::Null), |text| serde_json::from_str(&text));
    read.map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into()))
}

/// Runs a query, and reads each of its rows.
fn rows<T>(connection: &Connection, sql: &str, read: impl FnMut(&Row<'_>) -> Result<T>) -> Result<Vec<T>> {
    connection.prepare(sql)?.query_map((), read)?.collect()
}
