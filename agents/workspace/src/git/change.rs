//! Files that differ between two trees.

use patchboard_kernel::files::FilePath;

/// File that differs between two trees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub(crate) path: FilePath,
    /// Old and new modes and hashes.
    pub(super) what: String,
    /// Index entry: mode and hash; mode 0 removes the file.
    pub(super) entry: String,
}

impl Change {
    /// Returns whether the file became another kind of entry; a diff shows that as a deletion and an addition.
    pub(super) fn is_of_kind(&self) -> bool {
        let mut modes = self.what.split(' ').map(|mode| mode.get(..3).unwrap_or_default());
        let (was, is) = (modes.next(), modes.next());
        was != is && was != Some("000") && is != Some("000")
    }
}
