//! External change of a file, as it is reported to the board.

use patchboard_kernel::digest::Digest;
use patchboard_kernel::files::{FileChange, FileEntry, FilePath, Hunk, count};

use super::content_cache::ContentCache;
use crate::text::hunks::hunks;

/// Maximum bytes of a report's hunks and texts.
pub(super) const BYTES_AT_ONCE: usize = 4 * 1024 * 1024;

/// Builds the external change of a file from its recorded entry and its hash and text now; `None` if it is gone.
pub(super) fn external_change(
    path: &FilePath,
    entry: Option<&FileEntry>,
    texts: &ContentCache,
    now: Option<(Digest, &str)>,
) -> FileChange {
    let from = entry.and_then(|entry| entry.hash);
    let before = from.and_then(|hash| texts.get(path, hash));
    let after = now.map_or("", |(_, text)| text);
    let hunks = match (from, before) {
        // Files that existed before the board are not copied into the journal.
        (None, _) => entry.is_some().then(|| hunks("", after)),
        (Some(_), Some(before)) => Some(hunks(&before, after)),
        (Some(_), None) => None,
    };
    FileChange {
        path: path.clone(),
        from,
        hash: now.map(|(hash, _)| hash),
        lines: count(after),
        bytes: after.len() as u64,
        // Without hunks the whole file counts as changed, which is safe.
        hunks: hunks.filter(|hunks| bytes_of(Some(hunks)) <= BYTES_AT_ONCE),
    }
}

pub(super) fn bytes_of(hunks: Option<&[Hunk]>) -> usize {
    hunks.unwrap_or_default().iter().map(|hunk| hunk.was.len() + hunk.now.len()).sum()
}
