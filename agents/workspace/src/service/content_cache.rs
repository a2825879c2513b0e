//! Bounded cache of the file contents that the board last recorded. Without a cached text the changed lines of an
//! external edit are unknown, and the whole file counts as changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::FilePath;

/// Maximum bytes of cached texts.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// Overhead charged per text, so that the number of empty texts is bounded too.
const COST: usize = 256;

/// LRU cache of texts by file. It has its own lock, so that reads can fill it.
pub(super) struct ContentCache {
    kept: Mutex<CacheState>,
    bytes_max: usize,
}

#[derive(Default)]
struct CacheState {
    texts: BTreeMap<FilePath, Text>,
    /// Files by last use, least recent first.
    used: BTreeMap<u64, FilePath>,
    clock: u64,
    bytes: usize,
}

struct Text {
    text: Arc<str>,
    used: u64,
}

impl Default for ContentCache {
    fn default() -> Self {
        Self { kept: Mutex::default(), bytes_max: BYTES_MAX }
    }
}

impl ContentCache {
    /// Returns the cached text of a file if it has this hash.
    pub(super) fn get(&self, path: &FilePath, hash: Digest) -> Option<Arc<str>> {
        let text = Arc::clone(&self.kept.lock().texts.get(path)?.text);
        (sha256(text.as_bytes()) == hash).then_some(text)
    }

    /// Caches the current text of a file; `None` if it does not exist.
    pub(super) fn keep(&self, path: &FilePath, text: Option<&Arc<str>>) {
        let mut kept = self.kept.lock();
        kept.remove(path);
        let Some(text) = text.filter(|text| cost(text) <= self.bytes_max) else { return };
        while kept.bytes + cost(text) > self.bytes_max
            && let Some(oldest) = kept.used.first_key_value().map(|(_, path)| path.clone())
        {
            kept.remove(&oldest);
        }
        kept.insert(path, Arc::clone(text));
    }

    /// Like [`ContentCache::keep`], but evicts nothing: for files that no agent has requested by name.
    pub(super) fn keep_if_room(&self, path: &FilePath, text: &str) {
        let mut kept = self.kept.lock();
        let before = kept.texts.get(path);
        if before.is_some_and(|before| *before.text == *text) {
            return;
        }
        if kept.bytes - before.map_or(0, |before| cost(&before.text)) + cost(text) <= self.bytes_max {
            kept.remove(path);
            kept.insert(path, text.into());
        }
    }
}

impl CacheState {
    fn insert(&mut self, path: &FilePath, text: Arc<str>) {
        self.clock += 1;
        self.bytes += cost(&text);
        self.used.insert(self.clock, path.clone());
        self.texts.insert(path.clone(), Text { text, used: self.clock });
    }

    fn remove(&mut self, path: &FilePath) {
        if let Some(Text { text, used }) = self.texts.remove(path) {
            self.bytes -= cost(&text);
            self.used.remove(&used);
        }
    }
}

const fn cost(text: &str) -> usize {
    text.len() + COST
}

#[cfg(test)]
mod tests;
