//! Knows the files that the journal is in, and notices when others stand in their place.
//!
//! A file that was unlinked or replaced is written to as before, and gone with the process: what is acknowledged then is lost.

use std::ffi::OsString;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::JournalError;

/// What tells a file from others of other names.
pub(super) type Identity = (u64, u64);

/// The file of a journal, and its log.
pub(super) struct Place {
    file: PathBuf,
    log: PathBuf,
    identity: Option<Identity>,
    /// Known once the log is there.
    log_identity: OnceLock<Identity>,
}

impl Place {
    /// Remembers the file that stands at a path now.
    pub(super) fn of(file: &Path) -> Self {
        let mut log = OsString::from(file);
        log.push("-wal");
        let identity = identity(file);
        Self { file: file.to_owned(), log: log.into(), identity, log_identity: OnceLock::new() }
    }

    /// Returns an error if the file or its log is not the one that is written to.
    pub(super) fn check(&self) -> Result<(), JournalError> {
        if identity(&self.file) != self.identity {
            return Err(replaced(&self.file));
        }
        let log = identity(&self.log);
        match (self.log_identity.get(), log) {
            (Some(known), log) if log != Some(*known) => Err(replaced(&self.log)),
            (None, Some(log)) => {
                // Two that look at once see the same.
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

/// Elsewhere an open file can be neither unlinked nor replaced.
#[cfg(not(unix))]
pub(super) fn identity_of(_: &Metadata) -> Option<Identity> {
    None
}
