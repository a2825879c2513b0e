//! Looks at the machine, for [`super`] to judge. Changes nothing that lasts.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use patchboard_agents::config::Program;
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_kernel::record::End;
use patchboard_runtime::audit::{self, Fault};
use patchboard_runtime::journal::sqlite::{FILE, SqliteJournal};
use patchboard_runtime::journal::{BoardSummary, Journal as _, JournalError, Lost};

use crate::commands::boards::is_claimed;
use crate::serve::alone::LOCK;

/// How often something is said of how far the boards are verified.
const TOLD_EVERY: Duration = Duration::from_secs(5);

/// A data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DataDir {
    /// It is not there; whether it could be made.
    Missing { path: String, creatable: Result<(), String> },
    /// Something else has its name.
    NoDirectory { path: String },
    /// It is there.
    There {
        path: String,
        /// Whether users beside its owner may look into it.
        is_open_to_others: bool,
        /// How long it took to write a file and to sync it, or why that failed.
        written: Result<Duration, String>,
    },
}

/// The journal in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Journaled {
    /// There is none.
    None,
    /// It cannot be used.
    Broken { code: &'static str, message: String },
    /// It has lost records that were acknowledged.
    Lost(Vec<Lost>),
    /// It can.
    Read {
        /// How long it took to find out.
        took: Duration,
        boards: usize,
        /// Have not ended, and a process has them.
        running: usize,
        /// Have not ended, and no process has them.
        interrupted: usize,
        failed: usize,
        /// When the newest record was written.
        newest: Option<Timestamp>,
        /// The boards that do not verify, and why.
        faults: Vec<(BoardId, Fault)>,
    },
}

/// Whether a daemon runs on a data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placed {
    Free,
    Served,
}

/// What became of listening on an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Bound {
    Free,
    Taken,
    Impossible(String),
}

/// What was found of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Executable(String),
    NotExecutable(String),
    Missing,
    NoDirectory(String),
}

pub(crate) fn data_dir(path: &Path) -> DataDir {
    let name = path.display().to_string();
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DataDir::Missing { path: name, creatable: creatable(path).map_err(|error| error.to_string()) }
        }
        Err(error) => DataDir::Missing { path: name, creatable: Err(error.to_string()) },
        Ok(found) if !found.is_dir() => DataDir::NoDirectory { path: name },
        Ok(found) => DataDir::There {
            path: name,
            is_open_to_others: found.permissions().mode() & 0o077 != 0,
            written: write_synced(path).map_err(|error| error.to_string()),
        },
    }
}

/// Whether a directory could be made: one is made and removed beside the first of its parents that is there.
fn creatable(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let there = path.ancestors().skip(1).find(|parent| parent.exists()).unwrap_or(Path::new("/"));
    let probe = there.join(probe_name());
    fs::create_dir(&probe)?;
    fs::remove_dir(&probe)
}

/// Writes a small file, waits until it is on the disk, and removes it.
fn write_synced(dir: &Path) -> io::Result<Duration> {
    let path = dir.join(probe_name());
    let written = || {
        let mut file = File::create_new(&path)?;
        file.write_all(&[0; 4096])?;
        let began = Instant::now();
        file.sync_all()?;
        Ok(began.elapsed())
    };
    let took = written();
    // It is ours, or was not made.
    let _ = fs::remove_file(&path);
    took
}

fn probe_name() -> String {
    format!(".patchboard-doctor-{}", std::process::id())
}

/// Bytes that are left for a directory, or for the first of its parents that is there.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, String> {
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    let there = path.ancestors().find(|parent| parent.exists()).unwrap_or(Path::new("/"));
    let found = rustix::fs::statvfs(there).map_err(|error| error.to_string())?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Reads the whole file of a journal, and verifies every board. Now and then `tell` is given how many are, of how many.
pub(crate) fn journal(data_dir: &Path, tell: &dyn Fn(usize, usize)) -> Journaled {
    if !data_dir.join(FILE).exists() {
        return match SqliteJournal::lost_with_file(data_dir) {
            Ok(lost) if lost.is_empty() => Journaled::None,
            Ok(lost) => Journaled::Lost(lost),
            Err(error) => Journaled::Broken { code: error.code(), message: error.to_string() },
        };
    }
    let began = Instant::now();
    let looked = || -> Result<Journaled, JournalError> {
        let journal = SqliteJournal::open_read_only(data_dir)?;
        journal.check_storage()?;
        let lost = journal.lost()?;
        if !lost.is_empty() {
            return Ok(Journaled::Lost(lost));
        }
        let boards = journal.boards()?;
        let faults = faults(&journal, &boards, tell)?;
        let unfinished = || boards.iter().filter(|board| board.ended.is_none());
        let running = unfinished().filter(|board| is_claimed(data_dir, board)).count();
        Ok(Journaled::Read {
            took: began.elapsed(),
            boards: boards.len(),
            running,
            interrupted: unfinished().count() - running,
            failed: boards.iter().filter(|board| board.ended == Some(End::Failed)).count(),
            newest: boards.iter().map(|board| board.updated_at).max(),
            faults,
        })
    };
    looked().unwrap_or_else(|error| Journaled::Broken { code: error.code(), message: error.to_string() })
}

/// Verifies boards; those that are gone meanwhile are left out.
fn faults(
    journal: &SqliteJournal,
    boards: &[BoardSummary],
    tell: &dyn Fn(usize, usize),
) -> Result<Vec<(BoardId, Fault)>, JournalError> {
    let (mut faults, mut told_at) = (Vec::new(), Instant::now());
    for (nth, board) in boards.iter().enumerate() {
        if told_at.elapsed() > TOLD_EVERY {
            tell(nth, boards.len());
            told_at = Instant::now();
        }
        match audit::verify(journal, &board.id, None) {
            Ok(_) | Err(Fault::Journal(JournalError::NotFound(_))) => {}
            Err(Fault::Journal(error)) => return Err(error),
            Err(fault) => faults.push((board.id.clone(), fault)),
        }
    }
    Ok(faults)
}

/// Looks at the lock that a daemon holds, without taking it from anybody.
pub(crate) fn placed(data_dir: &Path) -> Placed {
    let locked = File::open(data_dir.join(LOCK)).map(|file| file.try_lock_shared());
    match locked {
        Ok(Err(TryLockError::WouldBlock)) => Placed::Served,
        _ => Placed::Free,
    }
}

/// How many files this process may open; none where there is no limit.
pub(crate) fn files() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Listens on an address for a moment.
pub(crate) fn bound(address: SocketAddr) -> Bound {
    match TcpListener::bind(address) {
        Ok(_) => Bound::Free,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Bound::Taken,
        Err(error) => Bound::Impossible(error.to_string()),
    }
}

/// Looks for a program as the system would.
pub(crate) fn program(program: &Program) -> Found {
    if let Some(cwd) = program.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
        return Found::NoDirectory(cwd.display().to_string());
    }
    let Some(name) = program.program.first() else { return Found::Missing };
    let places: Vec<PathBuf> = match name.contains('/') {
        true => vec![PathBuf::from(name)],
        false => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).map(|folder| folder.join(name)).collect()
        }
    };
    let files = || places.iter().filter(|place| place.is_file());
    let is_executable =
        |place: &&PathBuf| fs::metadata(place).is_ok_and(|found| found.permissions().mode() & 0o111 != 0);
    match (files().find(is_executable), files().next()) {
        (Some(place), _) => Found::Executable(place.display().to_string()),
        (None, Some(place)) => Found::NotExecutable(place.display().to_string()),
        (None, None) => Found::Missing,
    }
}

/// Where a daemon that listens everywhere is reached from here.
pub(crate) fn reached(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port()),
        _ => address,
    }
}
