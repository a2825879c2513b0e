//! Instance lock: one process at a time on a data directory, either a daemon or a command that rewrites the file.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;

use patchboard_storage::journal::Journal;
use patchboard_storage::private_files;

use crate::failure::Failure;
use crate::reader::{Reader, storage};

/// Name of the lock file.
pub const LOCK: &str = "daemon.lock";

/// Error code for a data directory that a daemon already serves.
pub(crate) const ALREADY_SERVED: &str = "already_served";

/// Locks a data directory for one daemon, until the returned file is dropped. Two daemons would take boards from each
/// other at every start.
pub fn lock_instance(data_dir: &Path) -> Result<File, Failure> {
    let path = data_dir.join(LOCK);
    let fault = |error| Failure::failed("journal_io", format!("{} cannot be locked: {error}", path.display()));
    let file = private_files::open(&path).map_err(fault)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let message = format!("a daemon is running on {} already", data_dir.display());
            Err(Failure::invalid_input(ALREADY_SERVED, message)
                .help("stop that one, or name another place with --data-dir"))
        }
        Err(TryLockError::Error(error)) => Err(fault(error)),
    }
}

/// Opens and locks an existing data directory for a command that rewrites its file. Fails while a daemon runs there,
/// because its boards would block without a diagnosis. `instead`: the equivalent request to the daemon.
pub fn open_exclusive(data_dir: &Path, instead: &str) -> Result<(Arc<dyn Journal>, File), Failure> {
    // Fails if there is no journal, so that none is created.
    drop(Reader::open(data_dir)?);
    open_or_create_exclusive(data_dir, instead)
}

/// Like [`open_exclusive`], but creates the data directory if it is missing.
pub fn open_or_create_exclusive(data_dir: &Path, instead: &str) -> Result<(Arc<dyn Journal>, File), Failure> {
    let journal = patchboard_storage::open(data_dir).map_err(storage)?;
    let lock = lock_instance(data_dir).map_err(|failure| failure.help(format!("ask the daemon: {instead}")))?;
    Ok((journal, lock))
}
