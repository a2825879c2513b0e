//! Collects observations of the machine for [`super`]. Changes nothing permanently.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use patchboard_agents::config::Program;
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_kernel::record::End;
use patchboard_protocols::PLANS;
use patchboard_runtime::audit::{self, AuditError};
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::{BoardSummary, Journal, JournalError, RecordLoss};

use crate::serve::instance_lock::LOCK;

/// Interval of progress reports while boards are verified.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DataDir {
    /// Missing or inaccessible; `creatable` is the result of creating a probe directory in its first existing ancestor.
    Missing {
        path: String,
        creatable: Result<(), String>,
    },
    NoDirectory {
        path: String,
    },
    Exists {
        path: String,
        /// Set if users beside its owner may read it.
        is_open_to_others: bool,
        /// Duration of syncing a test file, or the error of writing it.
        written: Result<Duration, String>,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum JournalCheck {
    None,
    Broken {
        code: &'static str,
        message: String,
    },
    /// Journal that has lost acknowledged records.
    Lost(Vec<RecordLoss>),
    Read {
        took: Duration,
        boards: usize,
        /// Boards that have not ended, held by a process.
        running: usize,
        /// Boards that have not ended, held by no process.
        interrupted: usize,
        failed: usize,
        newest: Option<Timestamp>,
        /// Boards that fail verification, with the reason.
        damaged_boards: Vec<(BoardId, AuditError)>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DaemonPresence {
    Free,
    Served,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum BindResult {
    Free,
    Taken,
    Impossible(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ProgramLookup {
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
        Ok(found) => DataDir::Exists {
            path: name,
            is_open_to_others: found.permissions().mode() & 0o077 != 0,
            written: write_synced(path).map_err(|error| error.to_string()),
        },
    }
}

/// Checks that a directory could be created: creates and removes one in its first existing ancestor.
fn creatable(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let there = path.ancestors().skip(1).find(|parent| parent.exists()).unwrap_or(Path::new("/"));
    let probe = there.join(probe_name());
    fs::create_dir(&probe)?;
    fs::remove_dir(&probe)
}

/// Writes a small file, syncs it, and removes it. Returns the duration of the sync.
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
    // The file was created here, or not at all.
    let _ = fs::remove_file(&path);
    took
}

fn probe_name() -> String {
    format!(".patchboard-doctor-{}", std::process::id())
}

/// Returns the free bytes for a directory, or for its first existing ancestor.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, String> {
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    let there = path.ancestors().find(|parent| parent.exists()).unwrap_or(Path::new("/"));
    let found = rustix::fs::statvfs(there).map_err(|error| error.to_string())?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Reads a journal's whole file and verifies every board. Passes progress to `report_progress`: boards verified, and
/// all boards.
pub(crate) fn journal(data_dir: &Path, report_progress: &dyn Fn(usize, usize)) -> JournalCheck {
    if !patchboard_storage::has_journal(data_dir) {
        return match patchboard_storage::losses_without_journal(data_dir) {
            Ok(lost) if lost.is_empty() => JournalCheck::None,
            Ok(lost) => JournalCheck::Lost(lost),
            Err(error) => JournalCheck::Broken { code: error.code(), message: error.to_string() },
        };
    }
    let began = Instant::now();
    let check = || -> Result<JournalCheck, JournalError> {
        let journal = patchboard_storage::open_read_only(data_dir)?;
        wait(journal.check_storage())?;
        let lost = wait(journal.record_losses())?;
        if !lost.is_empty() {
            return Ok(JournalCheck::Lost(lost));
        }
        let boards = wait(journal.boards())?;
        let damaged_boards = find_damaged_boards(&*journal, &boards, report_progress)?;
        let unfinished = || boards.iter().filter(|board| board.ended.is_none());
        let running = unfinished().filter(|board| wait(journal.is_claimed(&board.id))).count();
        Ok(JournalCheck::Read {
            took: began.elapsed(),
            boards: boards.len(),
            running,
            interrupted: unfinished().count() - running,
            failed: boards.iter().filter(|board| board.ended == Some(End::Failed)).count(),
            newest: boards.iter().map(|board| board.updated_at).max(),
            damaged_boards,
        })
    };
    check().unwrap_or_else(|error| JournalCheck::Broken { code: error.code(), message: error.to_string() })
}

/// Verifies boards; skips boards that are deleted meanwhile.
fn find_damaged_boards(
    journal: &dyn Journal,
    boards: &[BoardSummary],
    report_progress: &dyn Fn(usize, usize),
) -> Result<Vec<(BoardId, AuditError)>, JournalError> {
    let (mut faults, mut reported_at) = (Vec::new(), Instant::now());
    for (nth, board) in boards.iter().enumerate() {
        if reported_at.elapsed() > PROGRESS_INTERVAL {
            report_progress(nth, boards.len());
            reported_at = Instant::now();
        }
        match audit::verify(journal, &board.id, None, &PLANS) {
            Ok(_) | Err(AuditError::Journal(JournalError::NotFound(_))) => {}
            Err(AuditError::Journal(error)) => return Err(error),
            Err(fault) => faults.push((board.id.clone(), fault)),
        }
    }
    Ok(faults)
}

/// Probes a daemon's lock without taking it.
pub(crate) fn daemon_presence(data_dir: &Path) -> DaemonPresence {
    let locked = File::open(data_dir.join(LOCK)).map(|file| file.try_lock_shared());
    if let Ok(Err(TryLockError::WouldBlock)) = locked { DaemonPresence::Served } else { DaemonPresence::Free }
}

/// Returns the process's limit of open files; `None` if unlimited.
pub(crate) fn files() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

pub(crate) fn bound(address: SocketAddr) -> BindResult {
    match TcpListener::bind(address) {
        Ok(_) => BindResult::Free,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => BindResult::Taken,
        Err(error) => BindResult::Impossible(error.to_string()),
    }
}

/// Finds a program as the system would.
pub(crate) fn program(program: &Program) -> ProgramLookup {
    if let Some(cwd) = program.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
        return ProgramLookup::NoDirectory(cwd.display().to_string());
    }
    let Some(name) = program.program.first() else { return ProgramLookup::Missing };
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
        (Some(place), _) => ProgramLookup::Executable(place.display().to_string()),
        (None, Some(place)) => ProgramLookup::NotExecutable(place.display().to_string()),
        (None, None) => ProgramLookup::Missing,
    }
}

/// Returns the local address of a daemon that listens on all addresses.
pub(crate) fn local_address(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port()),
        _ => address,
    }
}
