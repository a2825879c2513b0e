//! Eviction of texts.

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
fn the_least_recently_used_text_is_evicted() {
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
fn unrequested_texts_are_cached_only_in_free_room() {
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
