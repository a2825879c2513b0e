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
mod tests {
    use super::*;

    fn path(name: &str) -> FilePath {
        FilePath::parse(name).expect("a name")
    }

    fn texts(of: usize) -> ContentCache {
        ContentCache { bytes_max: of * (COST + 10), ..ContentCache::default() }
    }

    fn is_known(texts: &ContentCache, name: &str, text: &str) -> bool {
        texts.get(&path(name), sha256(text.as_bytes())).is_some_and(|known| *known == *text)
    }

    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        let texts = texts(3);
        let ten = "0123456789";
        for name in ["a", "b", "c", "a", "d"] {
            texts.keep(&path(name), Some(&ten.into()));
        }
        let known: Vec<&str> = ["a", "b", "c", "d"].into_iter().filter(|name| is_known(&texts, name, ten)).collect();
        assert_eq!(known, ["a", "c", "d"]);
        // A larger text evicts several, a deleted one frees its room, and one above the limit is not cached.
        texts.keep(&path("e"), Some(&"x".repeat(COST + 20).into()));
        assert!(!is_known(&texts, "c", ten) && !is_known(&texts, "a", ten) && is_known(&texts, "d", ten));
        texts.keep(&path("e"), None);
        texts.keep(&path("f"), Some(&"x".repeat(3 * (COST + 10)).into()));
        assert!(is_known(&texts, "d", ten));
        assert_eq!(texts.kept.lock().bytes, COST + 10);
        let kept = texts.kept.lock();
        assert_eq!((kept.texts.len(), kept.used.len()), (1, 1));
        drop(kept);
        assert!(!is_known(&texts, "d", "another"));
    }

    #[test]
    fn what_nobody_has_asked_for_takes_nobodys_room() {
        let texts = texts(2);
        let ten = "0123456789";
        texts.keep(&path("a"), Some(&ten.into()));
        for name in ["b", "c"] {
            texts.keep_if_room(&path(name), ten);
        }
        assert!(is_known(&texts, "a", ten) && is_known(&texts, "b", ten) && !is_known(&texts, "c", ten));
        texts.keep_if_room(&path("b"), "9876543210");
        assert!(is_known(&texts, "b", "9876543210"));
        texts.keep_if_room(&path("b"), "98765432100");
        assert!(is_known(&texts, "b", "9876543210"), "it is left as it was");
        assert_eq!(texts.kept.lock().bytes, 2 * (COST + 10));
    }
}
