//! API tokens: random, stored as hashes, shown once; valid until revoked or expired.

mod api_token;
mod audit_log;
mod document;
mod stored;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration as Time;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use patchboard_kernel::blueprint::Duration;
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::Principal;
use patchboard_storage::blocking::wait;
use patchboard_storage::board_id;
use patchboard_storage::documents::{Change, DocumentError, Documents, all, number_key, transact};
use serde_json::json;
use tokio::sync::watch;

pub use self::api_token::ApiToken;
pub use self::audit_log::{Action, AuditEntry, AuditedAction};
use self::document::{corrupt, parsed};
use self::stored::{
    HASHES, KEYS, Numbers, StoredToken, TOKENS, TokenTransaction, bytes, fingerprint_keys, hash, secret,
};
use super::access::Scope;
use super::idempotency_keys::Secret;
use super::problem::Code;
use crate::failure::Failure;
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
const TOKENS_MAX: u64 = 10_000;

/// Maximum lifetime of a token: a hundred years.
const LIFETIME_MS_MAX: u64 = 100 * 366 * 86_400_000;

/// Pause after changes could not be looked for.
const PAUSE: Time = Time::from_secs(1);

/// Tokens of a data directory. Cheap to clone.
#[derive(Clone)]
pub struct TokenStore {
    documents: Arc<dyn Documents>,
    /// Secret for the fingerprints of idempotency keys.
    pub(crate) secret: Secret,
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

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Holder {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) scope: Scope,
    /// Caller that created the token; `None` if an earlier version did.
    pub(crate) made_by: Option<Principal>,
    pub(crate) expires_at: Option<Timestamp>,
}

/// Result of a token request with an idempotency key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TokenCreation {
    /// New token, and its text.
    New(Box<ApiToken>, String),
    /// Number of the token that the key created before; its text was shown then.
    Existing(i64),
}

impl TokenStore {
    /// Opens the tokens of an existing data directory. Blocks.
    pub fn open(data_dir: &Path) -> Result<Self, Failure> {
        let documents = patchboard_storage::open_documents(data_dir, FILE)?;
        let secret = wait(secret(&*documents))?;
        wait(fingerprint_keys(&*documents, &secret))?;
        Ok(Self { documents, secret, changes: watch::Sender::new(0) })
    }

    /// Returns true if a data directory has, or had, tokens.
    pub fn exist(data_dir: &Path) -> bool {
        patchboard_storage::has_documents(data_dir, FILE)
    }

    /// Creates a token. Only the returned value holds its text.
    pub async fn create(&self, new_token: &NewToken<'_>, at: Timestamp) -> Result<(ApiToken, String), Failure> {
        match self.create_once(None, new_token, at).await? {
            TokenCreation::New(token, text) => Ok((*token, text)),
            TokenCreation::Existing(id) => Err(corrupt(format!("token {id} was made without a key"))),
        }
    }

    /// Like [`TokenStore::create`], once per key: as the text is not stored, a retry gets only the token's number.
    pub(crate) async fn create_once(
        &self,
        key: Option<&str>,
        new_token: &NewToken<'_>,
        at: Timestamp,
    ) -> Result<TokenCreation, Failure> {
        check(new_token)?;
        let NewToken { name, scope, lifetime, by } = new_token;
        let decide = async || {
            if let Some(key) = key
                && let Some(known) = self.documents.get(KEYS, key).await?
            {
                return Ok((TokenCreation::Existing(parsed(known)?), Vec::new()));
            }
            let mut transaction = TokenTransaction::begin(&*self.documents).await?;
            let Numbers { tokens: count, last_token, .. } = &mut transaction.numbers;
            if *count >= TOKENS_MAX {
                return Err(Failure::invalid_input("too_many_tokens", format!("there are {count} tokens"))
                    .help("share a token between clients of one kind, or delete expired tokens"));
            }
            (*count, *last_token) = (*count + 1, *last_token + 1);
            let (id, text) = (*last_token, random()?);
            let expires_at = lifetime.map(|lifetime| Timestamp(at.0.saturating_add_unsigned(lifetime.as_ms())));
            let (name, scope, made_by) = ((*name).to_owned(), scope.clone(), Some(by.clone()));
            let token = ApiToken { id, name, scope, created_at: at, made_by, expires_at, revoked_at: None };
            let hash = hash(&text);
            let stored = StoredToken { hash: hash.clone(), key: key.map(str::to_owned), token: token.clone() };
            transaction.changes.push(Change::put(TOKENS, number_key(id), json!(stored)).expecting(None));
            transaction.changes.push(Change::put(HASHES, hash, id.into()).expecting(None));
            transaction.changes.extend(key.map(|key| Change::put(KEYS, key, id.into()).expecting(None)));
            let subject = id.to_string();
            let audited = AuditedAction { action: Action::TokenCreated, subject: Some(&subject), by: Some(by) };
            transaction.log(at, &audited, true);
            Ok((TokenCreation::New(Box::new(token), text), transaction.end()))
        };
        transact(&*self.documents, decide).await
    }

    /// Returns the holder of a token text; `None` if the token is invalid.
    pub(crate) async fn holder(&self, text: &str, now: Timestamp) -> Result<Option<Holder>, Failure> {
        let hash = hash(text);
        let Some(id) = self.documents.get(HASHES, &hash).await?.map(parsed::<i64>).transpose()? else {
            return Ok(None);
        };
        let stored = self.stored(id).await?.filter(|(stored, _)| stored.hash == hash && stored.token.is_valid(now));
        Ok(stored.map(|(StoredToken { token, .. }, _)| {
            let ApiToken { id, name, scope, made_by, expires_at, .. } = token;
            Holder { id, name, scope, made_by, expires_at }
        }))
    }

    /// Returns a token, and the revision of its document.
    async fn stored(&self, id: i64) -> Result<Option<(StoredToken, u64)>, Failure> {
        let Some(found) = self.documents.get(TOKENS, &number_key(id)).await? else { return Ok(None) };
        let revision = found.revision;
        Ok(Some((parsed(found)?, revision)))
    }

    pub(crate) async fn is_valid(&self, id: i64, now: Timestamp) -> Result<bool, Failure> {
        Ok(self.stored(id).await?.is_some_and(|(stored, _)| stored.token.is_valid(now)))
    }

    /// Returns true if no token is valid.
    pub(crate) async fn is_empty(&self, now: Timestamp) -> Result<bool, Failure> {
        Ok(!self.list().await?.iter().any(|token| token.is_valid(now)))
    }

    /// Subscribes to changes, as [`TokenStore::watch`] detects them.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Detects changes, by this process at once. Never returns.
    pub(crate) async fn watch(&self) {
        let mut seen = 0;
        loop {
            match self.documents.changed(seen).await {
                Ok(now) => {
                    seen = now;
                    self.changes.send_modify(|count| *count += 1);
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Lists all tokens, the oldest first.
    pub async fn list(&self) -> Result<Vec<ApiToken>, Failure> {
        let stored = all(&*self.documents, TOKENS).await?.into_iter().map(parsed::<StoredToken>);
        stored.map(|stored| Ok(stored?.token)).collect()
    }

    /// Revokes a token; `false` if the number is unknown or the token already invalid.
    pub async fn revoke(&self, id: i64, by: &Principal, at: Timestamp) -> Result<bool, Failure> {
        self.end(id, Action::TokenRevoked, by, at).await
    }

    /// Deletes a token, which becomes invalid; `false` if the number is unknown. Numbers are not reused.
    pub async fn delete(&self, id: i64, by: &Principal, at: Timestamp) -> Result<bool, Failure> {
        self.end(id, Action::TokenDeleted, by, at).await
    }

    async fn end(&self, id: i64, action: Action, by: &Principal, at: Timestamp) -> Result<bool, Failure> {
        let decide = async || {
            let mut transaction = TokenTransaction::begin(&*self.documents).await?;
            let Some((mut stored, revision)) = self.stored(id).await? else { return Ok((false, Vec::new())) };
            // A hash without a number opens nothing.
            transaction.changes.push(Change::remove(HASHES, &stored.hash));
            let place = Change::remove(TOKENS, number_key(id)).expecting(Some(revision));
            if action == Action::TokenDeleted {
                transaction.numbers.tokens = transaction.numbers.tokens.saturating_sub(1);
                transaction.changes.extend(stored.key.map(|key| Change::remove(KEYS, key)));
                transaction.changes.push(place);
            } else if stored.token.is_valid(at) {
                stored.token.revoked_at = Some(at);
                transaction.changes.push(Change { value: Some(json!(stored)), ..place });
            } else {
                return Ok((false, Vec::new()));
            }
            transaction.log(at, &AuditedAction { action, subject: Some(&id.to_string()), by: Some(by) }, true);
            Ok((true, transaction.end()))
        };
        transact(&*self.documents, decide).await
    }

    /// Records an action in the audit log, runs it, and marks it as done. An action that cannot be recorded is not run.
    /// Blocks.
    pub fn audited<T, E: From<Failure>>(
        &self,
        intended: &AuditedAction<'_>,
        at: Timestamp,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let entry = wait(self.begin(intended, at))?;
        let done = work()?;
        wait(self.finish(entry));
        Ok(done)
    }

    /// Records an action about to run in the audit log; returns the number of the entry.
    pub async fn begin(&self, intended: &AuditedAction<'_>, at: Timestamp) -> Result<i64, Failure> {
        let decide = async || {
            let mut transaction = TokenTransaction::begin(&*self.documents).await?;
            let entry = transaction.log(at, intended, false);
            Ok((entry, transaction.end()))
        };
        transact(&*self.documents, decide).await
    }

    /// Marks an action as done.
    pub async fn finish(&self, entry: i64) {
        if let Err(error) = audit_log::finish(&*self.documents, entry).await {
            // The action itself has succeeded.
            tracing::warn!(?error, entry = entry, "the audit log does not say that the action is done");
        }
    }

    /// Lists the entries of the audit log after a number, the oldest first.
    pub async fn audit_log(&self, after: i64, limit: usize) -> Result<Vec<AuditEntry>, Failure> {
        audit_log::list(&*self.documents, after, limit).await
    }
}

/// Returns the text of a new token.
pub fn random() -> Result<String, Failure> {
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes::<BYTES>()?)))
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    name.len() <= 64 && name.bytes().all(fits) && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

/// Rejects a token that could never be used.
fn check(new_token: &NewToken<'_>) -> Result<(), Failure> {
    let bad = |message: String| Err(Failure::invalid_input(Code::BadScope.as_str(), message));
    if new_token.name.chars().count() > NAME_MAX {
        let message = format!("a name has at most {NAME_MAX} characters");
        return Err(Failure::invalid_input(Code::BadToken.as_str(), message));
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
        let message = "a token opens something for a millisecond to a hundred years";
        return Err(Failure::invalid_input(Code::BadToken.as_str(), message));
    }
    Ok(())
}

impl From<DocumentError> for Failure {
    fn from(error: DocumentError) -> Self {
        Self::failed("tokens_io", format!("the tokens cannot be read or written: {error}"))
    }
}

#[cfg(test)]
mod tests;
