//! API tokens: random, stored as hashes, shown once; valid until revoked or expired.

mod audit_log;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration as Time;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use patchboard_kernel::blueprint::Duration;
use patchboard_kernel::digest::sha256;
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::Principal;
use patchboard_storage::{board_id, private_files};
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use serde::Serialize;
use tokio::sync::watch;
use utoipa::ToSchema;

pub use self::audit_log::{Action, AuditEntry};
use super::access::Scope;
use super::idempotency_keys::{self, SECRET_BYTES, Secret};
use super::problem::Code;
use crate::failure::Failure;
use crate::queries::parts::PrincipalInfo;
use crate::text::one_line;

/// File in the data directory, next to the journal, with the daemon's own data.
const FILE: &str = "daemon.db";

/// Prefix of a token, recognisable to people and secret scanners.
pub const PREFIX: &str = "pb_";

/// Random bytes of a token.
const BYTES: usize = 32;

/// Maximum characters of a token's name.
const NAME_MAX: usize = 200;

/// Maximum number of tokens kept, invalid ones included.
const TOKENS_MAX: i64 = 10_000;

/// Maximum lifetime of a token: a hundred years.
const LIFETIME_MS_MAX: u64 = 100 * 366 * 86_400_000;

/// Lock timeout while another process writes.
const PATIENCE: Time = Time::from_secs(5);

/// Condition for tokens that are valid at time `?2`.
const IS_VALID: &str = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2)";

/// Interval at which changes by other processes are detected.
const LOOK: Time = Time::from_secs(1);

/// Tokens of a data directory. Cheap to clone.
#[derive(Clone)]
pub struct TokenStore {
    connection: Arc<Mutex<Connection>>,
    /// Secret for the fingerprints of idempotency keys.
    secret: Secret,
    /// Change counter.
    changes: watch::Sender<u64>,
}

/// Token to be created.
#[derive(Clone, Debug)]
pub struct NewToken<'a> {
    /// Purpose of the token.
    pub name: &'a str,
    /// Scope.
    pub scope: Scope,
    /// Lifetime; `None`: valid until revoked.
    pub lifetime: Option<Duration>,
    /// Caller that creates the token.
    pub by: Principal,
}

/// Holder of a valid token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Holder {
    /// Number of the token.
    pub(crate) id: i64,
    /// Name of the token.
    pub(crate) name: String,
    /// Scope.
    pub(crate) scope: Scope,
    /// Caller that created the token; `None` if an earlier version did.
    pub(crate) made_by: Option<Principal>,
    /// Expiry.
    pub(crate) expires_at: Option<Timestamp>,
}

/// Token without its secret text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[schema(as = TokenInfo)]
pub struct ApiToken {
    /// Number.
    pub id: i64,
    /// Purpose, as its creator described it.
    pub name: String,
    /// Scope, like `read` or `seat:BOARD/WORKER`.
    #[serde(serialize_with = "display")]
    #[schema(value_type = String)]
    pub scope: Scope,
    /// Time of creation, in milliseconds since 1970.
    #[schema(value_type = i64)]
    pub created_at: Timestamp,
    /// Caller that created the token; null if an earlier version did.
    #[schema(required, value_type = Option<PrincipalInfo>)]
    pub made_by: Option<Principal>,
    /// Expiry, in milliseconds since 1970; null if there is none.
    #[schema(required, value_type = Option<i64>)]
    pub expires_at: Option<Timestamp>,
    /// Time of revocation, in milliseconds since 1970; null if the token is not revoked.
    #[schema(required, value_type = Option<i64>)]
    pub revoked_at: Option<Timestamp>,
}

/// Action to be audited.
#[derive(Clone, Copy, Debug)]
pub struct AuditedAction<'a> {
    /// Action.
    pub action: Action,
    /// Board; `None` if the action concerns all of them.
    pub subject: Option<&'a str>,
    /// Caller; `None` if the daemon acts on its own.
    pub by: Option<&'a Principal>,
}

/// Result of a token request with an idempotency key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TokenCreation {
    /// New token, and its text.
    New(Box<ApiToken>, String),
    /// Number of the token that the key created before; its text was shown then.
    Existing(i64),
}

impl ApiToken {
    /// Returns true if the token is valid.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| at > now)
    }
}

fn display<S: serde::Serializer>(scope: &Scope, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(scope)
}

impl TokenStore {
    /// Opens the tokens of an existing data directory.
    pub fn open(data_dir: &Path) -> Result<Self, Failure> {
        let path = data_dir.join(FILE);
        let mut connection = private_files::connect(&path, PATIENCE).map_err(storage_error)?;
        private_files::enable_wal(&connection, PATIENCE).map_err(storage_error)?;
        connection.execute_batch("PRAGMA secure_delete = ON;").map_err(storage_error)?;
        let tables = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(storage_error)?;
        tables
            .execute_batch(
                "CREATE TABLE IF NOT EXISTS tokens (
                   id INTEGER PRIMARY KEY AUTOINCREMENT,
                   hash BLOB NOT NULL UNIQUE,
                   name TEXT NOT NULL,
                   scope TEXT NOT NULL,
                   created_at INTEGER NOT NULL,
                   revoked_at INTEGER,
                   expires_at INTEGER,
                   made_by TEXT
                 ) STRICT;
                 CREATE TABLE IF NOT EXISTS token_keys (
                   key TEXT PRIMARY KEY,
                   token INTEGER NOT NULL
                 ) STRICT, WITHOUT ROWID;
                 CREATE TABLE IF NOT EXISTS key_secret (
                   id INTEGER PRIMARY KEY CHECK (id = 1),
                   secret BLOB NOT NULL
                 ) STRICT;",
            )
            .map_err(storage_error)?;
        tables.execute_batch(audit_log::TABLE).map_err(storage_error)?;
        add_column(&tables, "expires_at", "INTEGER").map_err(storage_error)?;
        add_column(&tables, "made_by", "TEXT").map_err(storage_error)?;
        let secret = secret(&tables)?;
        let has_hidden = fingerprint_keys(&tables, &secret).map_err(storage_error)?;
        tables.commit().map_err(storage_error)?;
        if has_hidden {
            connection.execute_batch("VACUUM").map_err(storage_error)?;
            checkpoint(&connection);
        }
        Ok(Self { connection: Arc::new(Mutex::new(connection)), secret, changes: watch::Sender::new(0) })
    }

    /// Returns the secret for the fingerprints of idempotency keys.
    pub(crate) const fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Returns true if a data directory has, or had, tokens.
    pub fn exist(data_dir: &Path) -> bool {
        data_dir.join(FILE).exists()
    }

    /// Creates a token. Only the returned value holds its text.
    pub fn create(&self, new_token: &NewToken<'_>, at: Timestamp) -> Result<(ApiToken, String), Failure> {
        let mut connection = self.lock();
        let both = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(storage_error)?;
        let made = insert(&both, new_token, at)?;
        both.commit().map_err(storage_error)?;
        Ok(made)
    }

    /// Like [`TokenStore::create`], once per key: as the text is not stored, a retry gets only the token's number.
    pub(crate) fn create_once(
        &self,
        key: &str,
        new_token: &NewToken<'_>,
        at: Timestamp,
    ) -> Result<TokenCreation, Failure> {
        let mut connection = self.lock();
        let both = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(storage_error)?;
        let before = both.query_row("SELECT token FROM token_keys WHERE key = ?1", [key], |row| row.get(0));
        if let Some(id) = before.optional().map_err(storage_error)? {
            return Ok(TokenCreation::Existing(id));
        }
        let (token, text) = insert(&both, new_token, at)?;
        both.execute("INSERT INTO token_keys (key, token) VALUES (?1, ?2)", params![key, token.id])
            .map_err(storage_error)?;
        both.commit().map_err(storage_error)?;
        Ok(TokenCreation::New(Box::new(token), text))
    }

    /// Returns the holder of a token text; `None` if the token is invalid.
    pub(crate) fn holder(&self, text: &str, now: Timestamp) -> Result<Option<Holder>, Failure> {
        let connection = self.lock();
        let mut found = connection
            .prepare_cached(&format!(
                "SELECT id, name, scope, expires_at, made_by FROM tokens WHERE hash = ?1 AND {IS_VALID}"
            ))
            .map_err(storage_error)?;
        let holder = found.query_row(params![sha256(text.as_bytes()).0, now.0], |row| {
            let made_by = audit_log::principal(row, 4)?;
            Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?, row.get::<_, Option<i64>>(3)?, made_by))
        });
        let Some((id, name, scope, expires_at, made_by)) = holder.optional().map_err(storage_error)? else {
            return Ok(None);
        };
        let (scope, expires_at) = (scope.parse().map_err(corrupt)?, expires_at.map(Timestamp));
        Ok(Some(Holder { id, name, scope, made_by, expires_at }))
    }

    /// Returns true if a token is valid.
    pub(crate) fn is_valid(&self, id: i64, now: Timestamp) -> Result<bool, Failure> {
        let opens = format!("SELECT EXISTS(SELECT 1 FROM tokens WHERE id = ?1 AND {IS_VALID})");
        self.lock().query_row(&opens, params![id, now.0], |row| row.get(0)).map_err(storage_error)
    }

    /// Returns true if no token is valid.
    pub(crate) fn is_empty(&self, now: Timestamp) -> Result<bool, Failure> {
        let exists = format!("SELECT EXISTS(SELECT 1 FROM tokens WHERE id > ?1 AND {IS_VALID})");
        let exists = self.lock().query_row(&exists, params![0, now.0], |row| row.get::<_, bool>(0));
        exists.map(|exists| !exists).map_err(storage_error)
    }

    /// Subscribes to changes: those of this process at once, those of others as [`TokenStore::watch`] detects them.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Detects changes by other processes. Never returns.
    pub(crate) async fn watch(&self) {
        let mut seen = None;
        loop {
            // SQLite counts the commits of other connections.
            let version = self.lock().query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)).ok();
            if seen.is_some() && version != seen {
                self.changed();
            }
            seen = version;
            tokio::time::sleep(LOOK).await;
        }
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Lists all tokens, the oldest first.
    pub fn list(&self) -> Result<Vec<ApiToken>, Failure> {
        let connection = self.lock();
        let mut all = connection
            .prepare("SELECT id, name, scope, created_at, expires_at, revoked_at, made_by FROM tokens ORDER BY id")
            .map_err(storage_error)?;
        let rows = all.query_map([], |row| {
            let scope = row.get::<_, String>(2)?.parse().map_err(corrupt);
            let time = |column| row.get::<_, Option<i64>>(column).map(|time| time.map(Timestamp));
            let (id, name, created_at) = (row.get(0)?, row.get(1)?, Timestamp(row.get(3)?));
            let (expires_at, revoked_at, made_by) = (time(4)?, time(5)?, audit_log::principal(row, 6)?);
            Ok(scope.map(|scope| ApiToken { id, name, scope, created_at, made_by, expires_at, revoked_at }))
        });
        rows.map_err(storage_error)?.map(|row| row.map_err(storage_error)?).collect()
    }

    /// Revokes a token; `false` if the number is unknown or the token already invalid.
    pub fn revoke(&self, id: i64, by: &Principal, at: Timestamp) -> Result<bool, Failure> {
        let revoke = format!("UPDATE tokens SET revoked_at = ?2 WHERE id = ?1 AND {IS_VALID}");
        self.end(id, Action::TokenRevoked, by, at, |tokens| tokens.execute(&revoke, params![id, at.0]))
    }

    /// Deletes a token, which becomes invalid; `false` if the number is unknown. Numbers are not reused.
    pub fn delete(&self, id: i64, by: &Principal, at: Timestamp) -> Result<bool, Failure> {
        self.end(id, Action::TokenDeleted, by, at, |tokens| {
            tokens.execute("DELETE FROM token_keys WHERE token = ?1", [id])?;
            tokens.execute("DELETE FROM tokens WHERE id = ?1", [id])
        })
    }

    /// Invalidates a token by a change that returns the number of changed tokens.
    fn end(
        &self,
        id: i64,
        action: Action,
        by: &Principal,
        at: Timestamp,
        change: impl FnOnce(&Connection) -> rusqlite::Result<usize>,
    ) -> Result<bool, Failure> {
        let is_ended = {
            let mut connection = self.lock();
            let both = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(storage_error)?;
            let is_ended = change(&both).map_err(storage_error)? > 0;
            if is_ended {
                audit_log::add(&both, at, action, Some(&id.to_string()), Some(by), true).map_err(storage_error)?;
            }
            both.commit().map_err(storage_error)?;
            checkpoint(&connection);
            is_ended
        };
        self.changed();
        Ok(is_ended)
    }

    /// Records an action in the audit log, runs it, and marks it as done. An action that cannot be recorded is not run.
    pub fn audited<T, E: From<Failure>>(
        &self,
        intended: &AuditedAction<'_>,
        at: Timestamp,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let entry = self.begin(intended, at)?;
        let done = work()?;
        self.finish(entry);
        Ok(done)
    }

    /// Records an action about to run in the audit log; returns the number of the entry.
    pub fn begin(&self, intended: &AuditedAction<'_>, at: Timestamp) -> Result<i64, Failure> {
        audit_log::add(&self.lock(), at, intended.action, intended.subject, intended.by, false).map_err(storage_error)
    }

    /// Marks an action as done.
    pub fn finish(&self, entry: i64) {
        if let Err(error) = audit_log::finish(&self.lock(), entry) {
            // The action itself has succeeded.
            tracing::warn!(%error, entry = entry, "the audit log does not say that the action is done");
        }
    }

    /// Lists the entries of the audit log after a number, the oldest first.
    pub fn audit_log(&self, after: i64, limit: usize) -> Result<Vec<AuditEntry>, Failure> {
        audit_log::list(&self.lock(), after, limit).map_err(storage_error)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // Statements are atomic, so a panic in between leaves no partial update.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checkpoints the write-ahead log and empties it. A bit flip in the log would discard every commit after it, and make
/// a revoked token valid again.
fn checkpoint(connection: &Connection) {
    if !matches!(private_files::truncate_wal(connection), Ok(true)) {
        // The commit is in effect; the next revocation, and the last connection to close, repeat the checkpoint.
        tracing::warn!("the last commits of daemon.db are in its log alone, as another process reads the file");
    }
}

/// Returns the text of a new token.
pub fn random() -> Result<String, Failure> {
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes::<BYTES>()?)))
}

/// Returns random bytes of the system.
fn bytes<const COUNT: usize>() -> Result<[u8; COUNT], Failure> {
    let mut random = [0; COUNT];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::failed("no_randomness", format!("the system gives no random bytes: {error}")))?;
    Ok(random)
}

/// Adds a column that the tokens of an earlier version lack.
fn add_column(connection: &Connection, name: &str, of: &str) -> rusqlite::Result<()> {
    let has = "SELECT EXISTS(SELECT 1 FROM pragma_table_info('tokens') WHERE name = ?1)";
    if !connection.query_row(has, [name], |row| row.get::<_, bool>(0))? {
        connection.execute_batch(&format!("ALTER TABLE tokens ADD COLUMN {name} {of}"))?;
    }
    Ok(())
}

/// Returns the secret of the data directory; creates it if it is missing.
fn secret(connection: &Connection) -> Result<Secret, Failure> {
    let made: [u8; SECRET_BYTES] = bytes()?;
    connection
        .execute("INSERT OR IGNORE INTO key_secret (id, secret) VALUES (1, ?1)", [made])
        .map_err(storage_error)?;
    let kept = connection.query_row("SELECT secret FROM key_secret", [], |row| row.get(0)).map_err(storage_error)?;
    Ok(Secret::new(kept))
}

/// Replaces the plain keys of earlier versions by fingerprints; returns true if there were any.
fn fingerprint_keys(connection: &Connection, secret: &Secret) -> rusqlite::Result<bool> {
    let mut plain = connection.prepare("SELECT key FROM token_keys WHERE key NOT LIKE ?1 || '%'")?;
    let plain = plain
        .query_map([idempotency_keys::FINGERPRINT_PREFIX], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<String>>>()?;
    for key in &plain {
        let hidden = secret.token_of(key);
        connection.execute("UPDATE token_keys SET key = ?2 WHERE key = ?1", params![key, hidden.as_str()])?;
    }
    Ok(!plain.is_empty())
}

fn insert(connection: &Connection, new_token: &NewToken<'_>, at: Timestamp) -> Result<(ApiToken, String), Failure> {
    let NewToken { name, scope, lifetime, by } = new_token;
    check(new_token)?;
    let expires_at = lifetime.map(|lifetime| Timestamp(at.0.saturating_add_unsigned(lifetime.as_ms())));
    let text = random()?;
    let count: i64 =
        connection.query_row("SELECT COUNT(*) FROM tokens", [], |row| row.get(0)).map_err(storage_error)?;
    if count >= TOKENS_MAX {
        return Err(Failure::invalid_input("too_many_tokens", format!("there are {count} tokens"))
            .help("give one token to those who do the same, or delete those that have ended"));
    }
    connection
        .execute(
            "INSERT INTO tokens (hash, name, scope, created_at, expires_at, made_by) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                sha256(text.as_bytes()).0,
                name,
                scope.to_string(),
                at.0,
                expires_at.map(|time| time.0),
                audit_log::text(by)
            ],
        )
        .map_err(storage_error)?;
    let id = connection.last_insert_rowid();
    audit_log::add(connection, at, Action::TokenCreated, Some(&id.to_string()), Some(by), true)
        .map_err(storage_error)?;
    let (name, scope, made_by) = ((*name).to_owned(), scope.clone(), Some(by.clone()));
    Ok((ApiToken { id, name, scope, created_at: at, made_by, expires_at, revoked_at: None }, text))
}

/// Returns true for a valid worker name of a blueprint.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    name.len() <= 64 && name.bytes().all(fits) && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

/// Rejects a token that could never be used.
fn check(new_token: &NewToken<'_>) -> Result<(), Failure> {
    let bad = |message: String| Err(Failure::invalid_input(Code::BadScope.as_str(), message));
    if new_token.name.chars().count() > NAME_MAX {
        return Err(Failure::invalid_input(
            Code::BadToken.as_str(),
            format!("a name has at most {NAME_MAX} characters"),
        ));
    }
    if let Scope::Board(board) | Scope::Seat(board, _) | Scope::BoardAndPerson(board, _) = &new_token.scope
        && !board_id::is_usable(board)
    {
        return bad(format!("no board has this id: {}", one_line(board.as_str())));
    }
    if let Scope::Seat(_, worker)
    | Scope::Person(worker)
    | Scope::ReadAndPerson(worker)
    | Scope::BoardAndPerson(_, worker) = &new_token.scope
        && !is_name(worker.as_str())
    {
        return bad(format!("no worker has this name: {}", one_line(worker.as_str())));
    }
    if new_token.lifetime.is_some_and(|lifetime| !(1..=LIFETIME_MS_MAX).contains(&lifetime.as_ms())) {
        return Err(Failure::invalid_input(
            Code::BadToken.as_str(),
            "a token opens something for a millisecond to a hundred years",
        ));
    }
    Ok(())
}

fn storage_error(error: rusqlite::Error) -> Failure {
    Failure::failed("tokens_io", format!("the tokens cannot be read or written: {error}"))
}

fn corrupt(message: String) -> Failure {
    Failure::failed("tokens_corrupt", format!("the tokens hold what is none: {message}"))
}

#[cfg(test)]
mod tests {
    use patchboard_kernel::id::Timestamp;
    use patchboard_kernel::record::Principal;

    use super::{Action, AuditedAction, FILE, Failure, NewToken, Scope, TokenCreation, TokenStore};

    fn wanted(lifetime: Option<&str>) -> NewToken<'static> {
        let lifetime = lifetime.map(|text| text.parse().expect("a time"));
        NewToken { name: "ci", scope: Scope::Read, lifetime, by: ann() }
    }

    fn ann() -> Principal {
        Principal::User { name: "ann".to_owned() }
    }

    #[test]
    fn keys_that_an_earlier_version_wrote_out_become_fingerprints_and_are_known() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = TokenStore::open(dir.path()).expect("they open");
        let made = tokens.create_once("key:1", &wanted(None), Timestamp(5)).expect("made");
        let TokenCreation::New(token, _) = made else { panic!("{made:?}") };
        let plain = "UPDATE token_keys SET key = 'admin/Quisquilius-1979'";
        assert_eq!(tokens.lock().execute(plain, []).expect("writable"), 1);
        drop(tokens);
        let tokens = TokenStore::open(dir.path()).expect("they open");
        let key = tokens.secret().bind(&Scope::Admin, "Quisquilius-1979").idempotency_key();
        let again = tokens.create_once(key.as_str(), &wanted(None), Timestamp(6)).expect("readable");
        assert_eq!(again, TokenCreation::Existing(token.id));
        for file in std::fs::read_dir(dir.path()).expect("a directory") {
            let bytes = std::fs::read(file.expect("an entry").path()).expect("readable");
            assert!(!bytes.windows(11).any(|window| window == b"Quisquilius"));
        }
        drop(tokens);
        let tokens = TokenStore::open(dir.path()).expect("they open");
        assert_eq!(tokens.secret().bind(&Scope::Admin, "Quisquilius-1979").idempotency_key(), key);
        assert_ne!(tokens.secret().bind(&Scope::Read, "Quisquilius-1979").idempotency_key(), key);
    }

    #[test]
    fn a_token_opens_until_it_is_revoked_and_its_text_is_in_no_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = TokenStore::open(dir.path()).expect("they open");
        assert!(tokens.is_empty(Timestamp(5)).expect("readable"));
        let (token, text) = tokens.create(&wanted(None), Timestamp(5)).expect("made");
        assert_eq!(text.len(), 3 + 43);
        let opens =
            |tokens: &TokenStore, text: &str, at| tokens.holder(text, Timestamp(at)).expect("readable").is_some();
        assert!(opens(&tokens, &text, 6) && !opens(&tokens, &text[..text.len() - 1], 6));
        for file in std::fs::read_dir(dir.path()).expect("a directory") {
            let bytes = std::fs::read(file.expect("an entry").path()).expect("readable");
            assert!(!bytes.windows(text.len()).any(|window| window == text.as_bytes()));
        }
        let again = TokenStore::open(dir.path()).expect("they open");
        assert_eq!(again.list().expect("readable"), std::slice::from_ref(&token));
        assert!(again.revoke(token.id, &ann(), Timestamp(9)).expect("writable"));
        assert!(!again.revoke(token.id, &ann(), Timestamp(10)).expect("writable"));
        assert!(!opens(&tokens, &text, 9) && !tokens.is_valid(token.id, Timestamp(9)).expect("readable"));
        assert!(tokens.is_empty(Timestamp(9)).expect("readable"));
    }

    #[test]
    fn a_log_that_is_lost_brings_no_token_back_to_life() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = TokenStore::open(dir.path()).expect("they open");
        let made = [(); 2].map(|()| tokens.create(&wanted(None), Timestamp(5)).expect("made"));
        // The log is lost as a whole, while the process that wrote it still runs.
        let alone = tempfile::tempdir().expect("a directory");
        let opens = |text: &str| {
            std::fs::copy(dir.path().join(FILE), alone.path().join(FILE)).expect("copied");
            let left = TokenStore::open(alone.path()).expect("they open");
            left.holder(text, Timestamp(6)).expect("readable").is_some()
        };
        assert!(tokens.revoke(made[0].0.id, &ann(), Timestamp(6)).expect("writable"));
        assert!(!opens(&made[0].1) && opens(&made[1].1));
        assert!(tokens.delete(made[1].0.id, &ann(), Timestamp(7)).expect("writable"));
        assert!(!opens(&made[1].1));
    }

    #[test]
    fn a_token_ends_with_its_time_and_can_be_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = TokenStore::open(dir.path()).expect("they open");
        let (token, text) = tokens.create(&wanted(Some("2s")), Timestamp(5)).expect("made");
        assert_eq!(token.expires_at, Some(Timestamp(2005)));
        let holder = |at| tokens.holder(&text, Timestamp(at)).expect("readable");
        assert_eq!(holder(2004).map(|holder| (holder.id, holder.expires_at)), Some((token.id, token.expires_at)));
        assert_eq!((holder(2005), tokens.is_empty(Timestamp(2005)).expect("readable")), (None, true));
        assert!(!tokens.revoke(token.id, &ann(), Timestamp(2005)).expect("writable"), "it has ended");
        assert!(
            tokens.delete(token.id, &ann(), Timestamp(2006)).expect("writable")
                && !tokens.delete(token.id, &ann(), Timestamp(2006)).expect("writable")
        );
        assert_eq!((holder(6), tokens.list().expect("readable")), (None, Vec::new()));
        let (next, _) = tokens.create(&wanted(None), Timestamp(7)).expect("made");
        assert_ne!(next.id, token.id);
    }

    #[test]
    fn a_file_of_an_earlier_version_gets_what_it_lacks() {
        let dir = tempfile::tempdir().expect("a directory");
        let before = rusqlite::Connection::open(dir.path().join(super::FILE)).expect("a file");
        before
            .execute_batch(
                "CREATE TABLE tokens (id INTEGER PRIMARY KEY AUTOINCREMENT, hash BLOB NOT NULL UNIQUE, name TEXT NOT NULL,
                   scope TEXT NOT NULL, created_at INTEGER NOT NULL, revoked_at INTEGER) STRICT;
                 INSERT INTO tokens VALUES (7, x'00', 'old', 'admin', 5, NULL);",
            )
            .expect("a table");
        for _ in 0..2 {
            let tokens = TokenStore::open(dir.path()).expect("they open");
            assert!(tokens.is_valid(7, Timestamp(9)).expect("readable"));
            assert_eq!(tokens.list().expect("readable")[0].expires_at, None);
        }
    }

    #[tokio::test]
    async fn a_change_by_another_process_is_seen() {
        let dir = tempfile::tempdir().expect("a directory");
        let (here, there) = (TokenStore::open(dir.path()).expect("open"), TokenStore::open(dir.path()).expect("open"));
        let mut changes = here.changes();
        let changed = async {
            tokio::time::sleep(super::LOOK / 2).await;
            there.create(&wanted(None), Timestamp(5)).expect("made");
            changes.changed().await.expect("the tokens are there");
        };
        tokio::select! {
            () = here.watch() => {}
            () = changed => {}
        }
    }

    #[test]
    fn actions_name_their_callers_and_tokens_their_makers() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = TokenStore::open(dir.path()).expect("they open");
        let (token, text) = tokens.create(&wanted(None), Timestamp(5)).expect("made");
        let holder = tokens.holder(&text, Timestamp(6)).expect("readable").expect("it opens");
        assert_eq!((&token.made_by, &holder.made_by), (&Some(ann()), &Some(ann())));
        let made_by = Some(Box::new(ann()));
        let by = Principal::Token { id: token.id, name: "ci".to_owned(), person: None, made_by };
        let archived = AuditedAction { action: Action::BoardArchived, subject: Some("b1"), by: Some(&by) };
        tokens.audited(&archived, Timestamp(7), || Ok::<_, Failure>(())).expect("done");
        let deleted = AuditedAction { action: Action::BoardDeleted, subject: Some("b2"), by: None };
        let failed = || Err::<(), _>(Failure::failed("archive_io", "no disk"));
        assert!(tokens.audited(&deleted, Timestamp(8), failed).is_err());
        assert!(tokens.revoke(token.id, &by, Timestamp(9)).expect("writable"));
        assert!(!tokens.delete(99, &by, Timestamp(9)).expect("writable"), "no entry, either");
        let told: Vec<_> = tokens.audit_log(0, 9).expect("readable");
        let told: Vec<_> =
            told.iter().map(|it| (it.action.as_str(), it.subject.as_deref(), &it.principal, it.done)).collect();
        let id = token.id.to_string();
        assert_eq!(
            told,
            [
                ("token_created", Some(id.as_str()), &Some(ann()), true),
                ("board_archived", Some("b1"), &Some(by.clone()), true),
                ("board_deleted", Some("b2"), &None, false),
                ("token_revoked", Some(id.as_str()), &Some(by.clone()), true),
            ]
        );
        assert_eq!(tokens.audit_log(2, 1).expect("readable").len(), 1);
    }

    #[test]
    fn a_token_that_opens_nothing_is_not_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = TokenStore::open(dir.path()).expect("they open");
        let refused = |wanted: &NewToken<'_>| tokens.create(wanted, Timestamp(5)).is_err();
        for lifetime in ["0s", "0ms", "999999d"] {
            assert!(refused(&wanted(Some(lifetime))), "{lifetime}");
        }
        for scope in [
            "board:\0",
            "board:a b",
            "board:last",
            "seat:a\n/w",
            "seat:a/w\u{1b}",
            "person:\u{7}",
            "person:boss+read",
            "seat:a/b+person:x",
            "read+person: ",
        ] {
            let scope: Scope = scope.parse().expect("a scope");
            assert!(refused(&NewToken { scope: scope.clone(), ..wanted(None) }), "{scope:?}");
        }
        assert!(refused(&NewToken { name: &"x".repeat(201), ..wanted(None) }));
        assert_eq!(tokens.list().expect("readable"), []);
    }

    #[test]
    fn a_key_makes_one_token() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = TokenStore::open(dir.path()).expect("they open");
        let make = |key| tokens.create_once(key, &wanted(None), Timestamp(5)).expect("made");
        let TokenCreation::New(first, _) = make("one") else { panic!("it is new") };
        assert_eq!(make("one"), TokenCreation::Existing(first.id));
        assert!(matches!(make("two"), TokenCreation::New(..)));
        assert_eq!(tokens.list().expect("readable").len(), 2);
    }
}
