//! The daemon's tokens: random, stored as hashes, revocable, shown once.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use patchboard_kernel::digest::sha256;
use patchboard_kernel::id::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Serialize;

use super::access::Scope;
use crate::failure::Failure;

/// The file in the data directory, beside the journal: what belongs to the daemon and to no board.
const FILE: &str = "daemon.db";

/// What a token begins with, so that people and scanners of leaked secrets know it.
pub(crate) const PREFIX: &str = "pb_";

/// Random bytes of a token.
const BYTES: usize = 32;

/// The most tokens that are kept, revoked ones included.
const TOKENS_MAX: i64 = 10_000;

/// How long to wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(5);

/// The tokens of a data directory. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tokens {
    connection: Arc<Mutex<Connection>>,
}

/// A token, without what opens the door.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Token {
    /// Its number.
    pub(crate) id: i64,
    /// What it is for, in the words of who made it.
    pub(crate) name: String,
    /// What its holder may do.
    #[serde(serialize_with = "display")]
    pub(crate) scope: Scope,
    /// When it was made.
    pub(crate) created_at: Timestamp,
    /// When it stopped opening anything.
    pub(crate) revoked_at: Option<Timestamp>,
}

/// What came of the wish for a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Made {
    /// A token, and its text.
    Now(Token, String),
    /// The key has made the token of this number before, and its text was shown then.
    Before(i64),
}

fn display<S: serde::Serializer>(scope: &Scope, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(scope)
}

impl Tokens {
    /// Opens the tokens of a data directory that is there.
    pub(crate) fn open(data_dir: &Path) -> Result<Self, Failure> {
        let path = data_dir.join(FILE);
        let connection = Connection::open(&path).map_err(fault)?;
        restrict(&path)?;
        connection.busy_timeout(PATIENCE).map_err(fault)?;
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL;
                 PRAGMA synchronous = FULL;
                 CREATE TABLE IF NOT EXISTS tokens (
                   id INTEGER PRIMARY KEY AUTOINCREMENT,
                   hash BLOB NOT NULL UNIQUE,
                   name TEXT NOT NULL,
                   scope TEXT NOT NULL,
                   created_at INTEGER NOT NULL,
                   revoked_at INTEGER
                 ) STRICT;
                 CREATE TABLE IF NOT EXISTS token_keys (
                   key TEXT PRIMARY KEY,
                   token INTEGER NOT NULL
                 ) STRICT, WITHOUT ROWID;",
            )
            .map_err(fault)?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }

    /// Whether a data directory has any, or has had.
    pub(crate) fn exist(data_dir: &Path) -> bool {
        data_dir.join(FILE).exists()
    }

    /// Makes a token. The text is in nothing but what is returned.
    pub(crate) fn create(&self, name: &str, scope: Scope, at: Timestamp) -> Result<(Token, String), Failure> {
        insert(&self.lock(), name, scope, at)
    }

    /// The same once for a key: as the text is not kept, a repetition is told only which token that was.
    pub(crate) fn create_once(&self, key: &str, name: &str, scope: Scope, at: Timestamp) -> Result<Made, Failure> {
        let mut connection = self.lock();
        let both = connection.transaction().map_err(fault)?;
        let before = both.query_row("SELECT token FROM token_keys WHERE key = ?1", [key], |row| row.get(0));
        if let Some(id) = before.optional().map_err(fault)? {
            return Ok(Made::Before(id));
        }
        let (token, text) = insert(&both, name, scope, at)?;
        both.execute("INSERT INTO token_keys (key, token) VALUES (?1, ?2)", params![key, token.id]).map_err(fault)?;
        both.commit().map_err(fault)?;
        Ok(Made::Now(token, text))
    }

    /// What the holder of a text may do; none if it opens nothing.
    pub(crate) fn scope_of(&self, text: &str) -> Result<Option<Scope>, Failure> {
        let connection = self.lock();
        let mut found = connection
            .prepare_cached("SELECT scope FROM tokens WHERE hash = ?1 AND revoked_at IS NULL")
            .map_err(fault)?;
        let scope: Option<String> =
            found.query_row([sha256(text.as_bytes()).0], |row| row.get(0)).optional().map_err(fault)?;
        scope.map(|scope| scope.parse().map_err(bad)).transpose()
    }

    /// Whether anybody has one.
    pub(crate) fn is_empty(&self) -> Result<bool, Failure> {
        let exists = "SELECT EXISTS(SELECT 1 FROM tokens WHERE revoked_at IS NULL)";
        self.lock().query_row(exists, [], |row| row.get::<_, bool>(0)).map(|exists| !exists).map_err(fault)
    }

    /// All of them, the oldest first.
    pub(crate) fn list(&self) -> Result<Vec<Token>, Failure> {
        let connection = self.lock();
        let mut all = connection
            .prepare("SELECT id, name, scope, created_at, revoked_at FROM tokens ORDER BY id")
            .map_err(fault)?;
        let rows = all.query_map([], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?, row.get(3)?, row.get::<_, Option<i64>>(4)?))
        });
        let token = |row: rusqlite::Result<(i64, String, String, i64, Option<i64>)>| {
            let (id, name, scope, created_at, revoked_at) = row.map_err(fault)?;
            let (scope, revoked_at) = (scope.parse().map_err(bad)?, revoked_at.map(Timestamp));
            Ok(Token { id, name, scope, created_at: Timestamp(created_at), revoked_at })
        };
        rows.map_err(fault)?.map(token).collect()
    }

    /// Ends a token; `false` if there is none of this number, or it was ended before.
    pub(crate) fn revoke(&self, id: i64, at: Timestamp) -> Result<bool, Failure> {
        let changed = self
            .lock()
            .execute("UPDATE tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL", params![id, at.0])
            .map_err(fault)?;
        Ok(changed > 0)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // Every statement is whole or not at all, so a panic in between leaves nothing half done.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text of a token that nobody has.
pub(crate) fn random() -> Result<String, Failure> {
    let mut random = [0; BYTES];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::failed("no_randomness", format!("the system gives no random bytes: {error}")))?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random)))
}

fn insert(connection: &Connection, name: &str, scope: Scope, at: Timestamp) -> Result<(Token, String), Failure> {
    let text = random()?;
    let count: i64 = connection.query_row("SELECT COUNT(*) FROM tokens", [], |row| row.get(0)).map_err(fault)?;
    if count >= TOKENS_MAX {
        return Err(Failure::refused("too_many_tokens", format!("there are {count} tokens"))
            .help("give one token to those who do the same"));
    }
    connection
        .execute(
            "INSERT INTO tokens (hash, name, scope, created_at) VALUES (?1, ?2, ?3, ?4)",
            params![sha256(text.as_bytes()).0, name, scope.to_string(), at.0],
        )
        .map_err(fault)?;
    let id = connection.last_insert_rowid();
    Ok((Token { id, name: name.to_owned(), scope, created_at: at, revoked_at: None }, text))
}

/// Only the operator reads what opens doors, be it hashes.
fn restrict(path: &Path) -> Result<(), Failure> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .map_err(|error| Failure::failed("tokens_io", format!("{} cannot be closed: {error}", path.display())))?;
    }
    Ok(())
}

fn fault(error: rusqlite::Error) -> Failure {
    Failure::failed("tokens_io", format!("the tokens cannot be read or written: {error}"))
}

fn bad(message: String) -> Failure {
    Failure::failed("tokens_corrupt", format!("the tokens hold what is none: {message}"))
}

#[cfg(test)]
mod tests {
    use patchboard_kernel::id::Timestamp;

    use super::{Made, Scope, Tokens};

    #[test]
    fn a_token_opens_until_it_is_revoked_and_its_text_is_in_no_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::open(dir.path()).expect("they open");
        assert!(tokens.is_empty().expect("readable"));
        let (token, text) = tokens.create("ci", Scope::Read, Timestamp(5)).expect("made");
        assert_eq!(text.len(), 3 + 43);
        assert_eq!(tokens.scope_of(&text).expect("readable"), Some(Scope::Read));
        assert_eq!(tokens.scope_of(&text[..text.len() - 1]).expect("readable"), None);
        for file in std::fs::read_dir(dir.path()).expect("a directory") {
            let bytes = std::fs::read(file.expect("an entry").path()).expect("readable");
            assert!(!bytes.windows(text.len()).any(|window| window == text.as_bytes()));
        }
        let again = Tokens::open(dir.path()).expect("they open");
        assert_eq!(again.list().expect("readable"), std::slice::from_ref(&token));
        assert!(again.revoke(token.id, Timestamp(9)).expect("writable"));
        assert!(!again.revoke(token.id, Timestamp(10)).expect("writable"));
        assert_eq!(tokens.scope_of(&text).expect("readable"), None);
        assert!(tokens.is_empty().expect("readable"));
    }
    #[test]
    fn a_key_makes_one_token() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::open(dir.path()).expect("they open");
        let make = |key| tokens.create_once(key, "ci", Scope::Read, Timestamp(5)).expect("made");
        let Made::Now(first, _) = make("one") else { panic!("it is new") };
        assert_eq!(make("one"), Made::Before(first.id));
        assert!(matches!(make("two"), Made::Now(..)));
        assert_eq!(tokens.list().expect("readable").len(), 2);
    }
}
