//! The directory of a workspace: what of it is served, how a file is read, and how it is replaced.
//!
//! The directory is reached by the handle that was opened at the beginning, and everything below it name by name from there
//! (`handle`), so that nothing outside can be read or written, whatever becomes of the names meanwhile. Symbolic links are
//! not served: a file has one name here, under which its version is counted.
//!
//! * `served`: which names are served.
//! * `scan`: all files, and what was left out; `series`: many files, one after the other.
//! * `replace`: a new content is made durable first (`stage`) and put in place later (`put`), so that something else can be
//!   made durable in between; what others wrote meanwhile is kept. `recover` does what a crash has left undone.
//! * [`watch`]: to notice early what others change.
//! * [`locks`]: turns for those who change the same files.
//!
//! All calls but those of [`locks`] block. What belongs to the workspace itself lies in `.patchboard`; a lock there keeps
//! other processes out.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::FilePath;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

mod error;
mod handle;
pub mod locks;
mod recover;
mod replace;
mod scan;
mod series;
mod served;
#[cfg(test)]
mod tests;
pub mod watch;

pub use error::{DiskCode, DiskError, NotServed, Reason};
pub use recover::{Outcome, Recovered, Recovery};
pub use replace::{Found, Put, Staged};
pub use scan::{Left, Scan, Scanned};

use served::{PRIVATE, Rules, Way};

/// Bytes of a file at most, unless the operator says otherwise.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Files of a workspace at most, unless the operator says otherwise.
pub const FILES_MAX: usize = 20_000;
/// How many directories a file may be below.
pub const DEPTH_MAX: usize = 64;
/// What is locked by who has the directory, in what is the workspace's own.
const LOCK: &str = "lock";

/// How far into a file a zero byte makes it binary.
const BINARY_BYTES: usize = 8 * 1024;

/// What the operator says of a directory.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// What is not served, as lines of a `.gitignore` at the root.
    pub exclude: Vec<String>,
    /// Bytes of a file at most.
    pub max_bytes: u64,
    /// Files at most.
    pub max_files: usize,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self { exclude: Vec::new(), max_bytes: FILE_BYTES_MAX, max_files: FILES_MAX }
    }
}

/// Whether these are lines of a `.gitignore`.
///
/// # Errors
/// [`DiskError::Exclude`] if not.
pub fn can_exclude(lines: &[String]) -> Result<(), DiskError> {
    Rules::new(lines).map(drop)
}

/// A directory that is open as a workspace.
#[derive(Debug)]
pub struct Disk {
    /// As it was given; for messages, and for the watcher, which is only told earlier what is checked later.
    path: PathBuf,
    root: OwnedFd,
    /// The number of the file system that the root is on.
    device: u64,
    rules: Rules,
    exclude: Vec<String>,
    max_bytes: u64,
    max_files: usize,
    staged: OwnedFd,
    displaced: OwnedFd,
    swap: replace::Swap,
    /// Held for as long as the workspace is open.
    lock: File,
}

/// A file as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// What is in it.
    pub text: String,
    /// SHA-256 of that.
    pub hash: Digest,
    /// When it was changed last, as the file system says.
    pub modified: SystemTime,
    /// Whether its owner may run it.
    pub is_executable: bool,
}

/// Whether rules are asked on the way to a file, or only the file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ask {
    Rules,
    /// For what has been decided already: a rule that came between does not undo it.
    Nothing,
}

/// Locks a file. Waits a little for a lock that is held: a process that this one starts has copies of its descriptors until it
/// runs its program, and so holds locks that are released here.
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
    ///
    /// # Errors
    /// It cannot be opened or written, is open as a workspace already, or the options cannot be read.
    pub fn open(path: impl AsRef<Path>, options: DiskOptions) -> Result<Self, DiskError> {
        let path = path.as_ref();
        let shown = path.display().to_string();
        let bad = |error: io::Error| DiskError::Directory { path: shown.clone(), error };
        let rules = Rules::new(&options.exclude)?;
        // The only path that is followed: which directory it is, is the operator's word.
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
        let own = |name| handle::directory_or_new(&private, name, 0o700).map_err(|error| bad(error.into()));
        let (staged, displaced) = (own("staged")?, own("displaced")?);
        let swap = replace::Swap::find(&staged).map_err(bad)?;
        let DiskOptions { exclude, max_bytes, max_files } = options;
        Ok(Self { path, root, device, rules, exclude, max_bytes, max_files, staged, displaced, swap, lock })
    }

    /// Where the directory was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether what the workspace keeps here for itself is still there. Without it nothing can be replaced, and others may have
    /// the directory.
    pub fn is_there(&self) -> bool {
        let there = match handle::directory(&self.root, PRIVATE) {
            Ok(private) => handle::stat(&private, LOCK),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error),
        };
        match (there, rustix::fs::fstat(&self.lock)) {
            (Ok(there), Ok(own)) => there.is_some_and(|there| (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)),
            // That it cannot be looked at now does not say that it is gone.
            (Err(_), _) | (_, Err(_)) => true,
        }
    }

    /// What the operator says of it.
    pub fn options(&self) -> DiskOptions {
        DiskOptions { exclude: self.exclude.clone(), max_bytes: self.max_bytes, max_files: self.max_files }
    }

    /// Whether a file of this name is served, or would be if there were one.
    ///
    /// # Errors
    /// [`DiskError::NotServed`] if not.
    pub fn serves(&self, path: &FilePath) -> Result<(), DiskError> {
        self.read(path).map(drop)
    }

    /// Reads a file; none if there is nothing of the name.
    ///
    /// # Errors
    /// It is not served, or cannot be read.
    pub fn read(&self, path: &FilePath) -> Result<Option<Contents>, DiskError> {
        match self.parent(path, Ask::Rules)? {
            Some(parent) => self.read_in(&parent, path.as_str(), path.name()),
            None => Ok(None),
        }
    }

    /// The directory that a file is in, or would be; none if that is not there.
    fn parent(&self, path: &FilePath, ask: Ask) -> Result<Option<OwnedFd>, DiskError> {
        let mut way = (ask == Ask::Rules).then(|| self.rules.way(&self.root)).transpose()?;
        let judge = |way: &Option<Way<'_>>, path: &str, is_directory| match way.as_ref() {
            Some(way) => {
                way.judge(path, is_directory).map_or(Ok(()), |reason| Err(DiskError::not_served(path, reason)))
            }
            None => Ok(()),
        };
        let mut at = Some(self.root.try_clone().map_err(|error| DiskError::io(path, error))?);
        for (depth, (end, _)) in path.as_str().match_indices('/').enumerate() {
            let prefix = &path.as_str()[..end];
            if depth == DEPTH_MAX {
                return Err(DiskError::not_served(path.as_str(), Reason::TooDeep));
            }
            judge(&way, prefix, true)?;
            if let Some(directory) = at {
                at = self.enter(&directory, prefix)?;
            }
            if let (Some(way), Some(directory)) = (&mut way, &at) {
                way.enter(directory, prefix)?;
            }
        }
        judge(&way, path.as_str(), false)?;
        Ok(at)
    }

    /// Opens the directory `path`, by the last of its names, in the one above it; none if there is nothing of the name.
    fn enter(&self, parent: impl AsFd, path: &str) -> Result<Option<OwnedFd>, DiskError> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let refuse = |reason| Err(DiskError::not_served(path, reason));
        match handle::directory(&parent, name) {
            // A mount point: what is staged here could not be put there.
            Ok(directory) => match device(&directory) {
                Ok(device) if device == self.device => Ok(Some(directory)),
                Ok(_) => refuse(Reason::Outside),
                Err(error) => Err(DiskError::io(path, error)),
            },
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => match handle::stat(&parent, name) {
                Ok(Some(stat)) if handle::kind(&stat).is_symlink() => refuse(Reason::Symlink),
                _ => refuse(Reason::NotRegular),
            },
            Err(Errno::ACCESS | Errno::PERM) => refuse(Reason::Unreadable),
            Err(Errno::NAMETOOLONG) => refuse(Reason::Name),
            Err(error) => Err(DiskError::io(path, error)),
        }
    }

    /// Reads the file `name` of a directory; `path` is what it is called in errors.
    fn read_in(&self, parent: impl AsFd, path: &str, name: &str) -> Result<Option<Contents>, DiskError> {
        let refuse = |reason| Err(DiskError::not_served(path, reason));
        let file = match handle::file(&parent, name) {
            Ok(Some(file)) => file,
            Ok(None) => {
                let stat = handle::stat(&parent, name).ok().flatten();
                let is_link = stat.is_some_and(|stat| handle::kind(&stat).is_symlink());
                return refuse(if is_link { Reason::Symlink } else { Reason::NotRegular });
            }
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::ACCESS | Errno::PERM) => return refuse(Reason::Unreadable),
            Err(Errno::NAMETOOLONG) => return refuse(Reason::Name),
            Err(error) => return Err(DiskError::io(path, error)),
        };
        let failed = |error| DiskError::io(format_args!("{path} cannot be read"), error);
        let metadata = file.metadata().map_err(failed)?;
        if metadata.len() > self.max_bytes {
            return refuse(Reason::TooLarge);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
        // It may grow while it is read.
        file.take(self.max_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
        if let Some(reason) = self.refuses(&bytes) {
            return refuse(reason);
        }
        let hash = sha256(&bytes);
        let Ok(text) = String::from_utf8(bytes) else { return refuse(Reason::Binary) };
        let (modified, mode) = (metadata.modified().map_err(failed)?, metadata.permissions().mode());
        Ok(Some(Contents { text, hash, modified, is_executable: mode & 0o100 != 0 }))
    }

    /// Why a file with this in it is not served, UTF-8 apart.
    fn refuses(&self, bytes: &[u8]) -> Option<Reason> {
        let is_too_large = u64::try_from(bytes.len()).is_ok_and(|length| length > self.max_bytes);
        let is_binary = || bytes[..bytes.len().min(BINARY_BYTES)].contains(&0);
        if is_too_large { Some(Reason::TooLarge) } else { is_binary().then_some(Reason::Binary) }
    }
}

/// The directory that is the workspace's own, and the file that is locked in it.
fn private(root: impl AsFd) -> io::Result<(OwnedFd, File)> {
    let private = handle::directory_or_new(root, PRIVATE, 0o700)?;
    match handle::new_file(&private, ".gitignore", 0o600) {
        Ok(mut file) => file.write_all(b"*\n")?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = File::from(rustix::fs::openat(&private, LOCK, flags, Mode::from_raw_mode(0o600))?);
    Ok((private, lock))
}

/// The number of the file system that a directory is on.
#[expect(clippy::allow_attributes, reason = "the number is of another type elsewhere")]
fn device(directory: impl AsFd) -> Result<u64, Errno> {
    let stat = rustix::fs::fstat(directory)?;
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast, clippy::useless_conversion)]
    Ok(stat.st_dev as u64)
}
