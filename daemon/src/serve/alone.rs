//! One process at a time on a data directory: a daemon, or a command that writes the file anew.

use std::fs::{File, TryLockError};
use std::path::Path;

use patchboard_runtime::journal::sqlite::SqliteJournal;
use patchboard_runtime::private;

use crate::failure::Failure;
use crate::reader::{Reader, storage};

/// The file that is locked.
pub(crate) const LOCK: &str = "daemon.lock";

/// The code of a data directory that has a daemon.
pub(crate) const ALREADY_SERVED: &str = "already_served";

/// Makes sure that one daemon runs on a data directory, for as long as what is returned lives: two would take boards from
/// each other at every start.
pub(crate) fn only_one(data_dir: &Path) -> Result<File, Failure> {
    let path = data_dir.join(LOCK);
    let fault = |error| Failure::failed("journal_io", format!("{} cannot be locked: {error}", path.display()));
    let file = private::open(&path).map_err(fault)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let message = format!("a daemon is running on {} already", data_dir.display());
            Err(Failure::refused(ALREADY_SERVED, message).help("stop that one, or name another place with --data-dir"))
        }
        Err(TryLockError::Error(error)) => Err(fault(error)),
    }
}

/// A data directory for a command that writes the file anew: not beside a daemon, whose boards would stand still without
/// knowing why. `instead`: the request that does the same there.
pub(crate) fn alone_on(data_dir: &Path, instead: &str) -> Result<(SqliteJournal, File), Failure> {
    // Nothing is made where there is nothing.
    drop(Reader::open(data_dir)?);
    alone_in(data_dir, instead)
}

/// The same of a data directory that is made if there is none.
pub(crate) fn alone_in(data_dir: &Path, instead: &str) -> Result<(SqliteJournal, File), Failure> {
    let journal = SqliteJournal::open(data_dir).map_err(storage)?;
    let lock = only_one(data_dir).map_err(|failure| failure.help(format!("ask the daemon: {instead}")))?;
    Ok((journal, lock))
}
