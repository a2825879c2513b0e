//! Storage interface of archives: one text per board that was removed from the journal, and its drivers.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};

use patchboard_kernel::id::BoardId;

use crate::journal::BoxFuture;
use crate::{blocking, private_files};

const DIRECTORY: &str = "archive";

/// Extension of an archive that is being written.
const UNFINISHED: &str = "unfinished";

/// Answer of an operation on archives.
pub type Answer<'a, T> = BoxFuture<'a, io::Result<T>>;

/// Text of an archive.
pub type Source = Box<dyn BufRead + Send>;

/// Store of archives.
pub trait Archives: Send + Sync + 'static {
    /// Returns the place of a board's archive, for people.
    fn place(&self, board: &BoardId) -> String;

    /// Writes a board's archive durably, wholly or not at all. Replaces an earlier one.
    fn write<'a>(&'a self, board: &'a BoardId, text: String) -> Answer<'a, ()>;

    /// Opens a board's archive. Fails with [`io::ErrorKind::NotFound`] if it has none.
    fn open<'a>(&'a self, board: &'a BoardId) -> Answer<'a, Source>;

    /// Removes a board's archive, and what an interrupted write left of one.
    fn remove<'a>(&'a self, board: &'a BoardId) -> Answer<'a, ()>;
}

/// Archives as files in a directory.
#[derive(Clone, Debug)]
pub struct DirectoryArchives {
    directory: PathBuf,
}

impl DirectoryArchives {
    /// Creates the store of a data directory. Its own directory is created by the first archive.
    pub fn new(data_dir: &Path) -> Self {
        Self { directory: data_dir.join(DIRECTORY) }
    }

    fn path(&self, board: &BoardId) -> PathBuf {
        self.directory.join(format!("{board}.jsonl"))
    }

    fn run<'a, T: Send + 'static>(&self, work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Answer<'a, T> {
        blocking::run(work, |error| Err(io::Error::other(error)))
    }
}

impl Archives for DirectoryArchives {
    fn place(&self, board: &BoardId) -> String {
        self.path(board).display().to_string()
    }

    fn write<'a>(&'a self, board: &'a BoardId, text: String) -> Answer<'a, ()> {
        let (directory, path) = (self.directory.clone(), self.path(board));
        self.run(move || {
            private_files::make_directory(&directory)?;
            let unfinished = path.with_extension(UNFINISHED);
            let mut file = private_files::create(&unfinished)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&unfinished, path)?;
            if cfg!(unix) {
                File::open(directory)?.sync_all()?;
            }
            Ok(())
        })
    }

    fn open<'a>(&'a self, board: &'a BoardId) -> Answer<'a, Source> {
        let path = self.path(board);
        self.run(move || Ok(Box::new(BufReader::new(File::open(path)?)) as Source))
    }

    fn remove<'a>(&'a self, board: &'a BoardId) -> Answer<'a, ()> {
        let path = self.path(board);
        self.run(move || [path.with_extension(UNFINISHED), path].iter().try_for_each(|path| remove_file(path)))
    }
}

/// Removes a file, if it exists.
fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
