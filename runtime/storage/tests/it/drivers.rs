//! The drivers under test.

use std::path::Path;
use std::sync::Arc;

use patchboard_storage::archives::Archives;
use patchboard_storage::documents::Documents;
use patchboard_storage::journal::{Journal, JournalError};
use patchboard_storage::memory::{MemoryDocuments, MemoryJournal};
use patchboard_storage::testing::MemoryArchives;
use tempfile::TempDir;

/// Store of documents.
pub(crate) type Store = Arc<dyn Documents>;

/// A driver, with storage of its own.
pub(crate) trait Driver: Default + Send + Sync + 'static {
    /// Opens the journal; each handle behaves as one of another process.
    fn open(&self) -> Arc<dyn Journal>;

    /// Opens a store of documents; each handle behaves as one of another process.
    fn documents(&self) -> Store;

    /// Returns the archives.
    fn archives(&self) -> Arc<dyn Archives>;

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
pub(crate) struct Memory {
    journal: MemoryJournal,
    documents: MemoryDocuments,
    archives: MemoryArchives,
}

impl Driver for Memory {
    fn open(&self) -> Arc<dyn Journal> {
        Arc::new(self.journal.clone())
    }

    fn documents(&self) -> Store {
        Arc::new(self.documents.clone())
    }

    fn archives(&self) -> Arc<dyn Archives> {
        Arc::new(self.archives.clone())
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

    fn documents(&self) -> Store {
        patchboard_storage::open_documents(self.0.path(), "documents.db").expect("opened")
    }

    fn archives(&self) -> Arc<dyn Archives> {
        patchboard_storage::archives(self.0.path())
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

/// Runs a test on two handles of a new store of documents of every driver, as two processes have them.
pub(crate) fn on_each(test: impl Fn(&str, [Store; 2])) {
    let (memory, sqlite) = (Memory::default(), Sqlite::default());
    test("memory", [memory.documents(), memory.documents()]);
    test("sqlite", [sqlite.documents(), sqlite.documents()]);
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
