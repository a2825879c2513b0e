//! Files of the data directory: only their owner reads and writes them, whatever the directory and the umask allow.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

/// Pause between two attempts at what SQLite does not wait for by itself.
const PAUSE: Duration = Duration::from_millis(10);

/// Returns options that make files private.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes an empty file, or empties one; private from then on.
///
/// # Errors
/// Storage.
pub fn create(path: &Path) -> io::Result<File> {
    let file = options().write(true).create(true).truncate(true).open(path)?;
    restrict(path)?;
    Ok(file)
}

/// Opens a file, and makes it if there is none; private from then on.
///
/// # Errors
/// Storage.
pub fn open(path: &Path) -> io::Result<File> {
    let file = options().read(true).write(true).create(true).truncate(false).open(path)?;
    restrict(path)?;
    Ok(file)
}

/// Makes a file if there is none; private from then on. One that is there is not opened: closing it would take the locks
/// from those of this process that have it open.
///
/// # Errors
/// Storage.
pub fn ensure(path: &Path) -> io::Result<()> {
    match options().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => restrict(path),
        made => made.map(drop),
    }
}

/// Makes a directory that only its owner may look into, with those above it.
///
/// # Errors
/// Storage.
pub fn make_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Opens a private SQLite file. Waits as long as `patience` for others that write.
///
/// # Errors
/// Storage.
pub fn connect(path: &Path, patience: Duration) -> rusqlite::Result<Connection> {
    // The log and its index get the rights of the file.
    ensure(path).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let connection = Connection::open(path)?;
    connection.busy_timeout(patience)?;
    Ok(connection)
}

/// Gives a SQLite file a write-ahead log whose commits are durable. Waits as long as `patience` for others that have it open.
///
/// # Errors
/// Storage, or no turn in time.
pub fn write_ahead(connection: &Connection, patience: Duration) -> rusqlite::Result<()> {
    let since = Instant::now();
    loop {
        // SQLite does not wait for others here.
        match connection.query_row("PRAGMA journal_mode = WAL", (), |_| Ok(())) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && since.elapsed() < patience => {
                sleep(PAUSE);
            }
            done => break done?,
        }
    }
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF;")
}

/// Moves all commits from the log of a SQLite file into the file and empties the log; false if another reads, and the log keeps them.
///
/// # Errors
/// Storage.
pub fn empty_log(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, i64>(0)).map(|busy| busy == 0)
}

/// Takes the rights of others from a file that was made before, if this process may.
fn restrict(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::fs::{Permissions, metadata, set_permissions};
        use std::os::unix::fs::PermissionsExt as _;
        let about = metadata(path)?;
        // A device is not of this user alone.
        if about.is_file() && about.permissions().mode() & 0o077 != 0 {
            match set_permissions(path, Permissions::from_mode(0o600)) {
                // Whose file it is decides.
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

    use super::{connect, write_ahead};

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
        write_ahead(&database, Duration::from_secs(1)).expect("it has a log");
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
                    write_ahead(&database, Duration::from_secs(30)).expect("it has a log");
                    let written = format!("CREATE TABLE IF NOT EXISTS t (x); INSERT INTO t VALUES ({number});");
                    database.execute_batch(&written).expect("written");
                });
            }
        });
    }
}
