//! A workspace's directory on disk: served names, reads and replacement of files.
//!
//! Every access starts from the handle of the root, opened once, and resolves one name at a time (`dir_fd`). Nothing
//! outside can be read or written, even if names change meanwhile. Symbolic links are not served: a file has exactly
//! one name here, and its version is counted under that name.
//!
//! * `ignore_rules`: rules for served names.
//! * `scan`: all files, and the omitted names; `bulk_read`: bulk reads of sorted paths.
//! * `replace`: writes new content durably (`stage`) and moves it in place later (`put`), so that callers can commit in
//!   between. External writes made meanwhile are kept. `recover` completes or discards staged changes after a crash.
//! * [`watch`]: early notice of external changes.
//! * [`locks`]: queued locks on sets of paths.
//!
//! All calls except those of [`locks`] block. The workspace's own data is in `.patchboard`, with a lock that excludes
//! other processes.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::FilePath;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

mod bulk_read;
mod dir_fd;
mod error;
mod ignore_rules;
pub mod locks;
mod recover;
mod replace;
mod scan;
#[cfg(test)]
mod tests;
pub mod watch;

pub use error::{DiskCode, DiskError, NotServed, UnservedReason};
pub use recover::{RecoveredChange, Recovery};
pub use replace::{ApplyOutcome, ExternalContent, StagedChange, StagedOutcome};
pub use scan::{OmittedNames, Scan, ScannedFile};

use ignore_rules::{ActiveRules, IgnoreRules, PRIVATE};

/// Default maximum size of a file, in bytes.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Default maximum number of files in a workspace.
pub const FILES_MAX: usize = 20_000;
/// Maximum directory depth of a file.
pub const DEPTH_MAX: usize = 64;
/// Lock file in `.patchboard`, held by the process that has the directory open.
const LOCK: &str = "lock";

/// Number of leading bytes in which a zero byte makes a file binary.
const BINARY_BYTES: usize = 8 * 1024;

/// The operator's settings for a directory.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// Names that are not served, as lines of a `.gitignore` at the root.
    pub exclude: Vec<String>,
    /// Maximum size of a file, in bytes.
    pub max_bytes: u64,
    /// Maximum number of files.
    pub max_files: usize,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self { exclude: Vec::new(), max_bytes: FILE_BYTES_MAX, max_files: FILES_MAX }
    }
}

/// Checks that the lines are valid `.gitignore` patterns.
/// Fails at the first invalid one.
pub fn check_exclude_patterns(lines: &[String]) -> Result<(), DiskError> {
    IgnoreRules::new(lines).map(drop)
}

/// A directory that is open as a workspace.
#[derive(Debug)]
pub struct Disk {
    /// Canonical path, for messages and the watcher only; a watcher's hints are checked through `root`.
    path: PathBuf,
    root: OwnedFd,
    /// Device number of the root's file system.
    device: u64,
    rules: IgnoreRules,
    options: DiskOptions,
    staged: OwnedFd,
    displaced: OwnedFd,
    swap: replace::Swap,
    /// Locked while the workspace is open.
    lock: File,
}

/// A file's content and metadata at the time of the read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// Text of the file.
    pub text: String,
    /// SHA-256 of the text.
    pub hash: Digest,
    /// True if its owner may execute it.
    pub is_executable: bool,
}

/// Checks on the way to a file: the serving rules as well, or the file system alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PathCheck {
    Rules,
    /// For changes that are already decided; a rule added since does not undo them.
    Nothing,
}

/// Locks a file, retrying for about 0.5 s. A child process holds copies of this process's descriptors until its `exec`,
/// and so keeps locks that were released here.
fn lock_exclusively(lock: impl AsFd) -> Result<(), Errno> {
    const TRIES: u32 = 50;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 1..TRIES {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => thread::sleep(PAUSE),
            done => return done,
        }
    }
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
}

impl Disk {
    /// Opens a directory as a workspace.
    /// Fails if the directory is already open as a workspace.
    pub fn open(path: impl AsRef<Path>, options: DiskOptions) -> Result<Self, DiskError> {
        let path = path.as_ref();
        let shown = path.display().to_string();
        let bad = |error: io::Error| DiskError::Directory { path: shown.clone(), error };
        let rules = IgnoreRules::new(&options.exclude)?;
        // Links are followed in this path alone, because the operator chose it.
        let path = path.canonicalize().map_err(bad)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| bad(error.into()))?;
        let device = device(&root).map_err(|error| bad(error.into()))?;
        let (private, lock) = private(&root).map_err(bad)?;
        match lock_exclusively(&lock) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(DiskError::Locked { path: shown }),
            Err(error) => return Err(bad(error.into())),
        }
        let own = |name| dir_fd::directory_or_new(&private, name, 0o700).map_err(|error| bad(error.into()));
        let (staged, displaced) = (own("staged")?, own("displaced")?);
        let swap = replace::Swap::find(&staged).map_err(bad)?;
        Ok(Self { path, root, device, rules, options, staged, displaced, swap, lock })
    }

    /// Returns the canonical path at the time of opening.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether `.patchboard` and its lock file are still those of this workspace. Without them nothing can be
    /// replaced, and another process may have locked the directory.
    pub fn is_there(&self) -> bool {
        let there = match dir_fd::open_dir(&self.root, PRIVATE) {
            Ok(private) => dir_fd::stat(&private, LOCK),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error),
        };
        match (there, rustix::fs::fstat(&self.lock)) {
            (Ok(there), Ok(own)) => there.is_some_and(|there| (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)),
            // A failed lookup does not prove that it is gone.
            (Err(_), _) | (_, Err(_)) => true,
        }
    }

    /// Returns the operator's settings.
    pub const fn options(&self) -> &DiskOptions {
        &self.options
    }

    /// Reads a file; `None` if it does not exist.
    pub fn read(&self, path: &FilePath) -> Result<Option<Contents>, DiskError> {
        match self.parent(path, PathCheck::Rules)? {
            Some(parent) => self.read_in(&parent, path.as_str(), path.name()),
            None => Ok(None),
        }
    }

    /// Opens the directory of a file; `None` if it does not exist.
    fn parent(&self, path: &FilePath, ask: PathCheck) -> Result<Option<OwnedFd>, DiskError> {
        let mut rules = (ask == PathCheck::Rules).then(|| self.rules.active_rules(&self.root)).transpose()?;
        let judge = |rules: &Option<ActiveRules<'_>>, path: &str, is_directory| match rules.as_ref() {
            Some(rules) => {
                rules.judge(path, is_directory).map_or(Ok(()), |reason| Err(DiskError::not_served(path, reason)))
            }
            None => Ok(()),
        };
        let mut at = Some(self.root.try_clone().map_err(|error| DiskError::io(path, error))?);
        for (depth, (end, _)) in path.as_str().match_indices('/').enumerate() {
            let prefix = &path.as_str()[..end];
            if depth == DEPTH_MAX {
                return Err(DiskError::not_served(path.as_str(), UnservedReason::TooDeep));
            }
            judge(&rules, prefix, true)?;
            if let Some(directory) = at {
                at = self.enter(&directory, prefix)?;
            }
            if let (Some(rules), Some(directory)) = (&mut rules, &at) {
                rules.enter(directory, prefix)?;
            }
        }
        judge(&rules, path.as_str(), false)?;
        Ok(at)
    }

    /// Opens the directory `path`, by its last name, in its parent; `None` if it does not exist.
    fn enter(&self, parent: impl AsFd, path: &str) -> Result<Option<OwnedFd>, DiskError> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let not_served = |reason| Err(DiskError::not_served(path, reason));
        match dir_fd::open_dir(&parent, name) {
            // A mount point: staged files cannot be renamed to there.
            Ok(directory) => match device(&directory) {
                Ok(device) if device == self.device => Ok(Some(directory)),
                Ok(_) => not_served(UnservedReason::Outside),
                Err(error) => Err(DiskError::io(path, error)),
            },
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => match dir_fd::stat(&parent, name) {
                Ok(Some(stat)) if dir_fd::kind(&stat).is_symlink() => not_served(UnservedReason::Symlink),
                _ => not_served(UnservedReason::NotRegular),
            },
            Err(Errno::ACCESS | Errno::PERM) => not_served(UnservedReason::Unreadable),
            Err(Errno::NAMETOOLONG) => not_served(UnservedReason::Name),
            Err(error) => Err(DiskError::io(path, error)),
        }
    }

    /// Reads the file `name` of a directory; errors name it `path`.
    fn read_in(&self, parent: impl AsFd, path: &str, name: &str) -> Result<Option<Contents>, DiskError> {
        let not_served = |reason| Err(DiskError::not_served(path, reason));
        let file = match dir_fd::file(&parent, name) {
            Ok(Some(file)) => file,
            Ok(None) => {
                let stat = dir_fd::stat(&parent, name).ok().flatten();
                let is_link = stat.is_some_and(|stat| dir_fd::kind(&stat).is_symlink());
                return not_served(if is_link { UnservedReason::Symlink } else { UnservedReason::NotRegular });
            }
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::ACCESS | Errno::PERM) => return not_served(UnservedReason::Unreadable),
            Err(Errno::NAMETOOLONG) => return not_served(UnservedReason::Name),
            Err(error) => return Err(DiskError::io(path, error)),
        };
        let failed = |error| DiskError::io(format_args!("{path} cannot be read"), error);
        let metadata = file.metadata().map_err(failed)?;
        if metadata.len() > self.options.max_bytes {
            return not_served(UnservedReason::TooLarge);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
        // The file may grow during the read.
        file.take(self.options.max_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
        if let Some(reason) = self.unserved_reason(&bytes) {
            return not_served(reason);
        }
        let hash = sha256(&bytes);
        let Ok(text) = String::from_utf8(bytes) else { return not_served(UnservedReason::Binary) };
        Ok(Some(Contents { text, hash, is_executable: metadata.permissions().mode() & 0o100 != 0 }))
    }

    /// Returns why content like this is not served. UTF-8 is checked by the caller.
    fn unserved_reason(&self, bytes: &[u8]) -> Option<UnservedReason> {
        let is_too_large = u64::try_from(bytes.len()).is_ok_and(|length| length > self.options.max_bytes);
        let is_binary = || bytes[..bytes.len().min(BINARY_BYTES)].contains(&0);
        if is_too_large { Some(UnservedReason::TooLarge) } else { is_binary().then_some(UnservedReason::Binary) }
    }
}

/// Opens the private directory and its lock file, creating both if necessary.
fn private(root: impl AsFd) -> io::Result<(OwnedFd, File)> {
    let private = dir_fd::directory_or_new(root, PRIVATE, 0o700)?;
    match dir_fd::new_file(&private, ".gitignore", 0o600) {
        Ok(mut file) => file.write_all(b"*\n")?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = File::from(rustix::fs::openat(&private, LOCK, flags, Mode::from_raw_mode(0o600))?);
    Ok((private, lock))
}

/// Returns the device number of a directory's file system.
#[expect(clippy::allow_attributes, reason = "the number is of another type elsewhere")]
fn device(directory: impl AsFd) -> Result<u64, Errno> {
    let stat = rustix::fs::fstat(directory)?;
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast, clippy::useless_conversion)]
    Ok(stat.st_dev as u64)
}
