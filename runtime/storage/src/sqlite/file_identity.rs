//! Identity of the journal's files; detects their replacement.
//!
//! Writes to an unlinked or replaced file succeed as before, and are lost with the process.

use std::ffi::OsString;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::journal::{JournalError, Result};

/// Identity of a file, independent of its name.
pub(super) type Identity = (u64, u64);

/// Files of a journal: database and log.
pub(super) struct WatchedFiles {
    file: PathBuf,
    log: PathBuf,
    identity: Option<Identity>,
    /// Set once the log exists.
    log_identity: OnceLock<Identity>,
}

impl WatchedFiles {
    /// Records the file that is at a path now.
    pub(super) fn new(file: &Path) -> Self {
        let mut log = OsString::from(file);
        log.push("-wal");
        let identity = identity(file);
        Self { file: file.to_owned(), log: log.into(), identity, log_identity: OnceLock::new() }
    }

    /// Returns an error if the file or its log is not the one being written to.
    pub(super) fn check(&self) -> Result<()> {
        if identity(&self.file) != self.identity {
            return Err(replaced(&self.file));
        }
        let log = identity(&self.log);
        match (self.log_identity.get(), log) {
            (Some(known), log) if log != Some(*known) => Err(replaced(&self.log)),
            (None, Some(log)) => {
                // Two concurrent checks see the same identity.
                let _ = self.log_identity.set(log);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn replaced(path: &Path) -> JournalError {
    JournalError::Replaced(path.display().to_string())
}

pub(super) fn identity(path: &Path) -> Option<Identity> {
    identity_of(&std::fs::metadata(path).ok()?)
}

#[cfg(unix)]
pub(super) fn identity_of(metadata: &Metadata) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    Some((metadata.dev(), metadata.ino()))
}

/// On other systems an open file can be neither unlinked nor replaced.
#[cfg(not(unix))]
pub(super) fn identity_of(_: &Metadata) -> Option<Identity> {
    None
}
