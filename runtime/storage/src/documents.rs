//! Storage interface of small JSON documents under keys, in named collections: API tokens, rows of departments.
//!
//! Owns the rules for every driver. A batch of changes is applied wholly or not at all, and only if each document is as
//! its writer expects. A writer that decides on more than it changes, like uniqueness among rows, has a header document
//! for all of them: every such change rewrites the header and expects the revision that it has read. [`transact`]
//! repeats the decision when another writer was first. Drivers: [`crate::sqlite::SqliteDocuments`] and
//! [`crate::memory::MemoryDocuments`].

mod error;

use serde_json::Value;

pub use self::error::DocumentError;
use crate::journal::BoxFuture;

/// Size limit of the name of a collection, and of a key, in bytes.
pub const NAME_BYTES_MAX: usize = 1024;

/// Size limit of a document's JSON text.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of changes of one batch.
pub const CHANGES_MAX: usize = 1000;

/// Maximum number of documents of a page, whatever its limit.
pub const PAGE_MAX: usize = 1000;

/// Attempts of a transaction that meets changes of others.
const ATTEMPTS: usize = 100;

/// Stored document.
#[derive(Clone, PartialEq, Debug)]
pub struct Document {
    /// Key within the collection.
    pub key: String,
    /// Revision of the store that wrote the document.
    pub revision: u64,
    /// Content.
    pub value: Value,
}

/// State of a document that a change requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Any state.
    Any,
    /// No such document.
    Absent,
    /// The document as written by this revision.
    Revision(u64),
}

/// Change of one document.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// Collection.
    pub collection: String,
    /// Key within the collection.
    pub key: String,
    /// State before the change.
    pub expected: Expected,
    /// New content; `None` removes the document.
    pub value: Option<Value>,
}

impl Change {
    /// Writes a document, whatever its state.
    pub fn put(collection: impl Into<String>, key: impl Into<String>, value: Value) -> Self {
        Self { collection: collection.into(), key: key.into(), expected: Expected::Any, value: Some(value) }
    }

    /// Removes a document, if it exists.
    pub fn remove(collection: impl Into<String>, key: impl Into<String>) -> Self {
        Self { collection: collection.into(), key: key.into(), expected: Expected::Any, value: None }
    }

    /// Requires the document as it was read: by its revision, or absent.
    #[must_use]
    pub fn expecting(self, revision: Option<u64>) -> Self {
        Self { expected: revision.map_or(Expected::Absent, Expected::Revision), ..self }
    }

    pub(crate) fn check(&self, found: Option<u64>) -> Result<(), DocumentError> {
        let is_expected = match self.expected {
            Expected::Any => true,
            Expected::Absent => found.is_none(),
            Expected::Revision(revision) => found == Some(revision),
        };
        let Self { collection, key, .. } = self;
        let conflict = || DocumentError::Conflict { collection: collection.clone(), key: key.clone() };
        is_expected.then_some(()).ok_or_else(conflict)
    }
}

/// Answer of an operation on documents.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, DocumentError>>;

/// Store of documents. Each batch of changes raises the revision of the store, which is never reused.
pub trait Documents: Send + Sync + 'static {
    /// Returns a document.
    fn get<'a>(&'a self, collection: &'a str, key: &'a str) -> Answer<'a, Option<Document>>;

    /// Returns at most `limit` documents of a collection with keys after `after`, in byte order of the keys; empty at
    /// the end. One page shows one revision of the store; two pages may show two.
    fn page<'a>(&'a self, collection: &'a str, after: Option<&'a str>, limit: usize) -> Answer<'a, Vec<Document>>;

    /// Applies changes of different documents, all or none; `Ok` means durable. Each written document is read back
    /// before the batch counts. Returns the revision of the written documents. A batch with a removal outlives the loss
    /// of a log of the driver, unless another process keeps that log in use. Fails with [`DocumentError::Conflict`] if
    /// a document is not as expected, and with [`DocumentError::Invalid`] beyond a limit. After a storage error the
    /// batch may have been applied.
    fn change(&self, changes: Vec<Change>) -> Answer<'_, u64>;

    /// Returns the revision of the store.
    fn revision(&self) -> Answer<'_, u64>;

    /// Waits until this or another process has changed the store since a revision. Returns the new one.
    fn changed(&self, since: u64) -> Answer<'_, u64>;

    /// Removes the bytes of removed and replaced documents from every file. Fails with [`DocumentError::Locked`] if
    /// another process keeps the files in use.
    fn purge_erased_bytes(&self) -> Answer<'_, ()>;
}

/// Returns the key of a numbered document. Keys sort as their numbers, from 0 on.
pub fn number_key(number: i64) -> String {
    format!("{number:019}")
}

/// Returns all documents of a collection, in order.
pub async fn all(documents: &dyn Documents, collection: &str) -> Result<Vec<Document>, DocumentError> {
    let mut all: Vec<Document> = Vec::new();
    loop {
        let page = documents.page(collection, all.last().map(|last| last.key.as_str()), PAGE_MAX).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

/// Applies what `decide` returns beside its result; decides again if another writer was first.
pub async fn transact<T, E, F>(documents: &dyn Documents, decide: impl Fn() -> F) -> Result<T, E>
where
    E: From<DocumentError>,
    F: Future<Output = Result<(T, Vec<Change>), E>>,
{
    for _ in 0..ATTEMPTS {
        let (result, changes) = decide().await?;
        if changes.is_empty() {
            return Ok(result);
        }
        match documents.change(changes).await {
            Ok(_) => return Ok(result),
            Err(DocumentError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(DocumentError::Locked.into())
}

/// Checks the limits of a batch. Returns the JSON texts of the new documents, in order.
pub(crate) fn checked(changes: &[Change]) -> Result<Vec<Option<String>>, DocumentError> {
    let invalid = |what: String| Err(DocumentError::Invalid(what));
    if changes.len() > CHANGES_MAX {
        return invalid(format!("{} changes at once are more than {CHANGES_MAX}", changes.len()));
    }
    let mut places: Vec<(&str, &str)> = changes.iter().map(|one| (one.collection.as_str(), one.key.as_str())).collect();
    places.sort_unstable();
    if let Some(same) = places.windows(2).find(|pair| pair[0] == pair[1]) {
        return invalid(format!("two changes at once of the document {} of {}", same[0].1, same[0].0));
    }
    if places.iter().any(|(collection, key)| collection.len().max(key.len()) > NAME_BYTES_MAX) {
        return invalid(format!("a key has at most {NAME_BYTES_MAX} bytes"));
    }
    let texts: Vec<_> = changes.iter().map(|change| change.value.as_ref().map(Value::to_string)).collect();
    match texts.iter().flatten().map(String::len).find(|bytes| *bytes > VALUE_BYTES_MAX) {
        Some(bytes) => invalid(format!("a document has {bytes} bytes; at most {VALUE_BYTES_MAX} are possible")),
        None => Ok(texts),
    }
}
