//! Files of the data directory: only their owner can read and write them, independent of directory and umask.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

/// Pause between retries of an operation that SQLite does not wait for by itself.
const PAUSE: Duration = Duration::from_millis(10);

/// Returns options that create private files.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates an empty file or empties an existing one, and makes it private.
pub fn create(path: &Path) -> io::Result<File> {
    let file = options().write(true).create(true).truncate(true).open(path)?;
    restrict(path)?;
    Ok(file)
}

/// Opens a file, creating it if it is missing, and makes it private.
pub fn open(path: &Path) -> io::Result<File> {
    let file = options().read(true).write(true).create(true).truncate(false).open(path)?;
    restrict(path)?;
    Ok(file)
}

/// Creates a file if it is missing, and makes it private. Does not open an existing file: closing it would release the
/// locks of other descriptors of this process.
pub fn ensure(path: &Path) -> io::Result<()> {
    match options().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => restrict(path),
        made => made.map(drop),
    }
}

/// Creates a directory that only its owner may access, with its parents.
pub fn make_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Opens a private SQLite file. Waits up to `patience` for other writers.
pub(crate) fn connect(path: &Path, patience: Duration) -> rusqlite::Result<Connection> {
    // SQLite gives the log and its index the permissions of the file.
    ensure(path).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let connection = Connection::open(path)?;
    connection.busy_timeout(patience)?;
    Ok(connection)
}

/// Enables a write-ahead log with durable commits. Waits up to `patience` for other connections.
pub(crate) fn enable_wal(connection: &Connection, patience: Duration) -> rusqlite::Result<()> {
    let since = Instant::now();
    loop {
        // SQLite does not apply its busy timeout here.
        match connection.query_row("PRAGMA journal_mode = WAL", (), |_| Ok(())) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && since.elapsed() < patience => {
                sleep(PAUSE);
            }
            done => break done?,
        }
    }
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF;")
}

/// Moves all commits from the log of a SQLite file into the file and empties the log. Returns false if a reader keeps
/// the log.
pub(crate) fn truncate_wal(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, i64>(0)).map(|busy| busy == 0)
}

/// Removes the permissions of other users from an existing file, if this process may.
fn restrict(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::fs::{Permissions, metadata, set_permissions};
        use std::os::unix::fs::PermissionsExt as _;
        let about = metadata(path)?;
        // A device is not private to this user.
        if about.is_file() && about.permissions().mode() & 0o077 != 0 {
            match set_permissions(path, Permissions::from_mode(0o600)) {
                // Only the owner can change it.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
                done => done?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{connect, enable_wal};

    #[cfg(unix)]
    #[test]
    fn files_are_their_owners_whatever_they_were() {
        use std::fs;
        use std::os::unix::fs::PermissionsExt as _;

        let dir = tempfile::tempdir().expect("a directory");
        let mode = |name: &str| fs::metadata(dir.path().join(name)).expect("a file").permissions().mode() & 0o777;
        fs::write(dir.path().join("old"), "text").expect("written");
        fs::set_permissions(dir.path().join("old"), fs::Permissions::from_mode(0o644)).expect("changed");
        super::ensure(&dir.path().join("old")).expect("it is there");
        assert_eq!((mode("old"), fs::read(dir.path().join("old")).expect("read")), (0o600, b"text".to_vec()));
        drop(super::create(&dir.path().join("new")).expect("made"));
        assert_eq!(mode("new"), 0o600);
        let database = connect(&dir.path().join("base"), Duration::from_secs(1)).expect("opened");
        enable_wal(&database, Duration::from_secs(1)).expect("it has a log");
        database.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1);").expect("written");
        for name in ["base", "base-wal", "base-shm"] {
            assert_eq!(mode(name), 0o600, "{name}");
        }
    }

    #[test]
    fn many_open_a_new_file_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("base");
        std::thread::scope(|scope| {
            for number in 0..16 {
                let path = &path;
                scope.spawn(move || {
                    let database = connect(path, Duration::from_secs(30)).expect("opened");
                    enable_wal(&database, Duration::from_secs(30)).expect("it has a log");
                    let written = format!("CREATE TABLE IF NOT EXISTS t (x); INSERT INTO t VALUES ({number});");
                    database.execute_batch(&written).expect("written");
                });
            }
        });
    }
}
