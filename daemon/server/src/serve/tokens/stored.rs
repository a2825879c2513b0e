//! Documents of tokens: their collections and contents, and the numbers that every change rewrites.

use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::id::Timestamp;
use patchboard_storage::documents::{CHANGES_MAX, Change, Document, Documents, number_key, transact};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::idempotency_keys::{SECRET_BYTES, Secret};
use super::api_token::ApiToken;
use super::audit_log::{self, AuditEntry, AuditedAction};
use super::document::{corrupt, parsed};
use crate::failure::Failure;

/// Collection of the tokens, by number.
pub(super) const TOKENS: &str = "tokens";
/// Collection of the numbers of tokens that are not revoked, by the hashes of their texts.
pub(super) const HASHES: &str = "hashes";
/// Collection of the numbers of tokens, by the fingerprints of idempotency keys.
pub(super) const KEYS: &str = "keys";
/// Collection of the same by plain keys, which earlier versions stored.
const PLAIN_KEYS: &str = "plain_keys";
/// Collection of the documents of the whole file.
const HEADER: &str = "header";
/// Key of the numbers, which every change of a token and every new entry of the audit log rewrites.
const NUMBERS: &str = "numbers";
/// Key of the secret for idempotency keys.
const SECRET: &str = "secret";

/// Content of a token's document.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredToken {
    /// Hash of the text.
    pub(super) hash: String,
    /// Fingerprint of the idempotency key that created the token.
    pub(super) key: Option<String>,
    pub(super) token: ApiToken,
}

/// Numbers of tokens and of entries in the audit log; none is reused.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Numbers {
    pub(super) tokens: u64,
    pub(super) last_token: i64,
    pub(super) last_entry: i64,
}

/// Changes that are decided on the numbers as read, and applied only if those have not changed since.
pub(super) struct TokenTransaction {
    pub(super) numbers: Numbers,
    revision: Option<u64>,
    pub(super) changes: Vec<Change>,
}

impl TokenTransaction {
    pub(super) async fn begin(documents: &dyn Documents) -> Result<Self, Failure> {
        let read = documents.get(HEADER, NUMBERS).await?;
        let revision = read.as_ref().map(|read| read.revision);
        Ok(Self { numbers: read.map(parsed).transpose()?.unwrap_or_default(), revision, changes: Vec::new() })
    }

    /// Adds an entry to the audit log for an action that is done or about to run; returns its number.
    pub(super) fn log(&mut self, at: Timestamp, audited: &AuditedAction<'_>, done: bool) -> i64 {
        self.numbers.last_entry += 1;
        let id = self.numbers.last_entry;
        let (subject, principal) = (audited.subject.map(str::to_owned), audited.by.cloned());
        let action = audited.action.as_str().to_owned();
        self.changes.extend(audit_log::added(&AuditEntry { id, at, action, subject, principal, done }));
        id
    }

    pub(super) fn end(mut self) -> Vec<Change> {
        self.changes.push(Change::put(HEADER, NUMBERS, json!(self.numbers)).expecting(self.revision));
        self.changes
    }
}

pub(super) fn hash(text: &str) -> String {
    sha256(text.as_bytes()).to_string()
}

/// Returns the secret of the data directory; creates it if it is missing.
pub(super) async fn secret(documents: &dyn Documents) -> Result<Secret, Failure> {
    let decide = async || -> Result<(String, Vec<Change>), Failure> {
        if let Some(kept) = documents.get(HEADER, SECRET).await? {
            return Ok((parsed(kept)?, Vec::new()));
        }
        let made = Digest(bytes::<SECRET_BYTES>()?).to_string();
        let change = Change::put(HEADER, SECRET, json!(made)).expecting(None);
        Ok((made, vec![change]))
    };
    let secret = transact(documents, decide).await?.parse();
    secret.map(|Digest(secret)| Secret::new(secret)).map_err(|_| corrupt("the secret is none".to_owned()))
}

/// Replaces the plain keys of earlier versions by fingerprints.
pub(super) async fn fingerprint_keys(documents: &dyn Documents, secret: &Secret) -> Result<(), Failure> {
    let mut has_plain = false;
    while transact(documents, || fingerprint_page(documents, secret)).await? {
        has_plain = true;
    }
    if has_plain {
        documents.purge_erased_bytes().await?;
    }
    Ok(())
}

/// Returns true if there are plain keys, and the changes that replace the first ones.
async fn fingerprint_page(documents: &dyn Documents, secret: &Secret) -> Result<(bool, Vec<Change>), Failure> {
    let mut changes = Vec::new();
    for Document { key, revision, value } in documents.page(PLAIN_KEYS, None, CHANGES_MAX / 3).await? {
        let hidden = secret.token_of(&key).as_str().to_owned();
        if let Some(token) = documents.get(TOKENS, &number_key(value.as_i64().unwrap_or_default())).await? {
            let (place, read_at) = (token.key.clone(), token.revision);
            let stored = StoredToken { key: Some(hidden.clone()), ..parsed(token)? };
            changes.push(Change::put(TOKENS, place, json!(stored)).expecting(Some(read_at)));
        }
        changes.push(Change::put(KEYS, hidden, value));
        changes.push(Change::remove(PLAIN_KEYS, key).expecting(Some(revision)));
    }
    Ok((!changes.is_empty(), changes))
}

pub(super) fn bytes<const COUNT: usize>() -> Result<[u8; COUNT], Failure> {
    let mut random = [0; COUNT];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::failed("no_randomness", format!("the system gives no random bytes: {error}")))?;
    Ok(random)
}
