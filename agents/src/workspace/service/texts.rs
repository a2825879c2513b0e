//! What was in files when the board last knew of them, as far as there is room: without it nobody can say which lines others
//! have changed, and all of a file counts as changed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::FilePath;

/// Bytes of texts that are kept.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// What a text costs beside its bytes, so that empty ones have a limit too.
const COST: usize = 256;

/// Texts by the names of their files. Those that were not used for longest make room. Has a lock of its own, so that it can
/// be filled by those who only look.
pub(super) struct Texts {
    kept: Mutex<Kept>,
    bytes_max: usize,
}

#[derive(Default)]
struct Kept {
    texts: BTreeMap<FilePath, Text>,
    /// When each was used last, the longest ago first.
    used: BTreeMap<u64, FilePath>,
    clock: u64,
    bytes: usize,
}

struct Text {
    text: Arc<str>,
    used: u64,
}

impl Default for Texts {
    fn default() -> Self {
        Self { kept: Mutex::default(), bytes_max: BYTES_MAX }
    }
}

impl Texts {
    /// What was in a file when it had this hash.
    pub(super) fn known(&self, path: &FilePath, hash: Digest) -> Option<Arc<str>> {
        let text = Arc::clone(&self.lock().texts.get(path)?.text);
        (sha256(text.as_bytes()) == hash).then_some(text)
    }

    /// What is in a file now; none: there is none.
    pub(super) fn keep(&self, path: &FilePath, text: Option<&Arc<str>>) {
        let mut kept = self.lock();
        kept.remove(path);
        let Some(text) = text.filter(|text| cost(text) <= self.bytes_max) else { return };
        while kept.bytes + cost(text) > self.bytes_max
            && let Some(oldest) = kept.used.first_key_value().map(|(_, path)| path.clone())
        {
            kept.remove(&oldest);
        }
        kept.insert(path, Arc::clone(text));
    }

    /// The same, as long as nothing has to make room for it: for files that nobody has asked for by name.
    pub(super) fn keep_beside(&self, path: &FilePath, text: &str) {
        let mut kept = self.lock();
        let before = kept.texts.get(path);
        if before.is_some_and(|before| *before.text == *text) {
            return;
        }
        if kept.bytes - before.map_or(0, |before| cost(&before.text)) + cost(text) <= self.bytes_max {
            kept.remove(path);
            kept.insert(path, text.into());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing in here ends a thread halfway; if it did, a text would be missing.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
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

    fn texts(of: usize) -> Texts {
        Texts { bytes_max: of * (COST + 10), ..Texts::default() }
    }

    fn is_known(texts: &Texts, name: &str, text: &str) -> bool {
        texts.known(&path(name), sha256(text.as_bytes())).is_some_and(|known| *known == *text)
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
        // A larger one takes the room of several; one that is gone gives it back; what is too large is not kept.
        texts.keep(&path("e"), Some(&"x".repeat(COST + 20).into()));
        assert!(!is_known(&texts, "c", ten) && !is_known(&texts, "a", ten) && is_known(&texts, "d", ten));
        texts.keep(&path("e"), None);
        texts.keep(&path("f"), Some(&"x".repeat(3 * (COST + 10)).into()));
        assert!(is_known(&texts, "d", ten));
        assert_eq!(texts.lock().bytes, COST + 10);
        let kept = texts.lock();
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
            texts.keep_beside(&path(name), ten);
        }
        assert!(is_known(&texts, "a", ten) && is_known(&texts, "b", ten) && !is_known(&texts, "c", ten));
        texts.keep_beside(&path("b"), "9876543210");
        assert!(is_known(&texts, "b", "9876543210"));
        texts.keep_beside(&path("b"), "98765432100");
        assert!(is_known(&texts, "b", "9876543210"), "it is left as it was");
        assert_eq!(texts.lock().bytes, 2 * (COST + 10));
    }
}
