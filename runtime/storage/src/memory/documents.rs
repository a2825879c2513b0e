//! Documents in memory, which end with the last handle.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use crate::documents::{Answer, Change, Document, DocumentError, Documents, PAGE_MAX, checked};

/// Documents by collection and key, with their revisions.
type Stored = BTreeMap<(String, String), (u64, Value)>;

/// Documents in memory. A clone is another handle of the same store.
#[derive(Clone, Default)]
pub struct MemoryDocuments {
    stored: Arc<Mutex<Stored>>,
    revision: watch::Sender<u64>,
}

impl MemoryDocuments {
    /// Creates a store of given documents: collection, key and content.
    pub fn of(documents: impl IntoIterator<Item = (String, String, Value)>) -> Self {
        let store = Self { revision: watch::Sender::new(1), ..Self::default() };
        store
            .stored
            .lock()
            .extend(documents.into_iter().map(|(collection, key, value)| ((collection, key), (1, value))));
        store
    }

    fn apply(&self, changes: Vec<Change>) -> Result<u64, DocumentError> {
        checked(&changes)?;
        let mut stored = self.stored.lock();
        let place = |change: &Change| (change.collection.clone(), change.key.clone());
        for change in &changes {
            change.check(stored.get(&place(change)).map(|(revision, _)| *revision))?;
        }
        let revision = *self.revision.borrow() + 1;
        for change in changes {
            let place = place(&change);
            match change.value {
                Some(value) => drop(stored.insert(place, (revision, value))),
                None => drop(stored.remove(&place)),
            }
        }
        self.revision.send_replace(revision);
        Ok(revision)
    }
}

fn document(((_, key), (revision, value)): (&(String, String), &(u64, Value))) -> Document {
    Document { key: key.clone(), revision: *revision, value: value.clone() }
}

impl Documents for MemoryDocuments {
    fn get<'a>(&'a self, collection: &'a str, key: &'a str) -> Answer<'a, Option<Document>> {
        Box::pin(
            async move { Ok(self.stored.lock().get_key_value(&(collection.to_owned(), key.to_owned())).map(document)) },
        )
    }

    fn page<'a>(&'a self, collection: &'a str, after: Option<&'a str>, limit: usize) -> Answer<'a, Vec<Document>> {
        Box::pin(async move {
            // In byte order, the text that follows `after`.
            let first = after.map(|after| format!("{after}\0")).unwrap_or_default();
            let stored = self.stored.lock();
            let of_collection =
                stored.range((collection.to_owned(), first)..).take_while(|((of, _), _)| of == collection);
            Ok(of_collection.take(limit.min(PAGE_MAX)).map(document).collect())
        })
    }

    fn change(&self, changes: Vec<Change>) -> Answer<'_, u64> {
        Box::pin(async move { self.apply(changes) })
    }

    fn revision(&self) -> Answer<'_, u64> {
        Box::pin(async move { Ok(*self.revision.borrow()) })
    }

    fn changed(&self, since: u64) -> Answer<'_, u64> {
        Box::pin(async move {
            let changed = self.revision.subscribe().wait_for(|revision| *revision != since).await.map(|now| *now);
            changed.map_err(|error| DocumentError::Io(error.to_string()))
        })
    }

    fn purge_erased_bytes(&self) -> Answer<'_, ()> {
        Box::pin(async move { Ok(()) })
    }
}
