//! The drivers under test.

use std::path::Path;
use std::sync::Arc;

use patchboard_storage::journal::{Journal, JournalError};
use patchboard_storage::memory::MemoryJournal;
use tempfile::TempDir;

/// A driver, with storage of its own.
pub(crate) trait Driver: Default + Send + Sync + 'static {
    /// Opens the storage; each handle behaves as one of another process.
    fn open(&self) -> Arc<dyn Journal>;

    /// Returns the directory of its files; none if the storage ends with the process.
    fn directory(&self) -> Option<&Path> {
        None
    }

    /// Opens a copy of the files of which `cut` bytes at the end of the last written one are missing, as after a loss
    /// of power; none if there are no such files, or they are shorter.
    fn torn(&self, _cut: usize) -> Option<Result<Torn, JournalError>> {
        None
    }
}

/// Storage that was torn.
pub(crate) struct Torn {
    pub(crate) journal: Arc<dyn Journal>,
    _directory: TempDir,
}

#[derive(Default)]
pub(crate) struct Memory(MemoryJournal);

impl Driver for Memory {
    fn open(&self) -> Arc<dyn Journal> {
        Arc::new(self.0.clone())
    }
}

pub(crate) struct Sqlite(TempDir);

impl Default for Sqlite {
    fn default() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }
}

impl Driver for Sqlite {
    fn open(&self) -> Arc<dyn Journal> {
        patchboard_storage::open(self.0.path()).expect("opened")
    }

    fn directory(&self) -> Option<&Path> {
        Some(self.0.path())
    }

    fn torn(&self, cut: usize) -> Option<Result<Torn, JournalError>> {
        let copy = tempfile::tempdir().expect("a directory");
        for entry in std::fs::read_dir(self.0.path()).expect("a directory") {
            let entry = entry.expect("an entry");
            if entry.path().is_file() {
                std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copied");
            }
        }
        let log = copy.path().join("patchboard.db-wal");
        let bytes = std::fs::read(&log).expect("a log");
        std::fs::write(&log, &bytes[..bytes.len().checked_sub(cut)?]).expect("written");
        let opened = patchboard_storage::open(copy.path());
        Some(opened.map(|journal| Torn { journal, _directory: copy }))
    }
}

/// Runs tests for every driver.
macro_rules! for_every_driver {
    ($($test:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(&$crate::drivers::Memory::default()).await;
            })*
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(&$crate::drivers::Sqlite::default()).await;
            })*
        }
    };
}
pub(crate) use for_every_driver;
