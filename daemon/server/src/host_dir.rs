//! The `.patchboard` directory of a shared directory: host lock, address of the host, and names of the agents.
//!
//! The directory may be deleted at any time, for example by `git clean -fdx`. Open files of a deleted one are no longer
//! used: [`HostDir::is_current`], [`HostDir::holds_name`].
//!
//! Files in the directory are untrusted. Symbolic links are not followed, files of other users are not used, and
//! written files are readable only by their owner.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use patchboard_agents::config::WorkspaceConfig;
use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::failure::Failure;

/// File with the operator's settings, and a `.gitignore` pattern that hides it from the agents. The pattern covers all
/// spellings, for case-insensitive file systems.
const SETTINGS: &str = "patchboard.toml";
pub(crate) const SETTINGS_PATTERN: &str = "/[Pp][Aa][Tt][Cc][Hh][Bb][Oo][Aa][Rr][Dd].[Tt][Oo][Mm][Ll]";

const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// Directory of the workspace's own files.
const OWN: &str = ".patchboard";

/// Subdirectory with the journal of the boards.
const DATA: &str = "workspace";

/// Maximum depth of that subdirectory.
const DATA_DEPTH_MAX: usize = 2;

/// Lock of the host, held while it runs.
const LOCK: &str = "host.lock";

const ADDRESS: &str = "host.json";

/// Log of the host; truncated at the start of the next one.
const LOG: &str = "host.log";

/// Prefix and suffix of the lock files of agent names.
const AGENT: (&str, &str) = ("agent-", ".lock");

const ADDRESS_BYTES_MAX: u64 = 4096;

/// Maximum number of agents with the same base name.
const NUMBERS_MAX: usize = 256;

const NAMES_MAX: usize = 10_000;

/// Directory shared by agents.
#[derive(Debug)]
pub struct HostDir {
    directory: PathBuf,
    own: OwnedFd,
}

/// Address of the host, on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Address {
    /// Port on 127.0.0.1.
    pub port: u16,
    /// Administrator's token.
    pub token: String,
    /// Current board.
    pub board: String,
    /// Process id of the host.
    pub pid: u32,
}

impl HostDir {
    /// Opens the `.patchboard` of a directory; creates it if it is missing.
    pub fn open(directory: &Path) -> Result<Self, Failure> {
        let shown = directory.display().to_string();
        let bad = |error: io::Error| {
            Failure::invalid_input("bad_directory", format!("{shown} cannot be used: {error}"))
                .help("name a directory that is there and that you may write")
        };
        // The only path that is resolved through links: the user chose the directory.
        let directory = directory.canonicalize().map_err(bad)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&directory, flags, Mode::empty()).map_err(|error| bad(error.into()))?;
        let own = own_directory(&root, OWN)?;
        match open(&own, ".gitignore", OFlags::EXCL) {
            Ok(mut file) => file.write_all(b"*\n").map_err(bad)?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(bad(error.into())),
        }
        Ok(Self { directory, own })
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads the operator's settings; the defaults if there is no file.
    pub fn settings(&self) -> Result<WorkspaceConfig, Failure> {
        let bad = |why: String| {
            Failure::invalid_input("bad_config", why)
                .help(format!("fix {SETTINGS} in the directory, or remove it; the file is not served to agents"))
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(self.directory.join(SETTINGS), flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(WorkspaceConfig::default()),
            Err(Errno::LOOP) => return Err(bad(format!("{SETTINGS} is a symbolic link, which is not followed"))),
            Err(error) => return Err(bad(format!("{SETTINGS} cannot be read: {error}"))),
        };
        let unreadable = |error: io::Error| bad(format!("{SETTINGS} cannot be read: {error}"));
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() || metadata.len() > SETTINGS_BYTES_MAX {
            return Err(bad(format!("{SETTINGS} is no file of at most {SETTINGS_BYTES_MAX} bytes")));
        }
        let mut text = String::new();
        file.take(SETTINGS_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
        WorkspaceConfig::parse(&text, SETTINGS).map_err(|error| bad(error.to_string()))
    }

    /// Returns the directory of the journal; creates it if it is missing, and rejects links in it.
    pub fn data(&self) -> Result<PathBuf, Failure> {
        without_links(&own_directory(&self.own, DATA)?, DATA, DATA_DEPTH_MAX)?;
        Ok(self.directory.join(OWN).join(DATA))
    }

    /// Acquires the host lock, held while the file lives; `None` if another process has it.
    pub fn host(&self) -> Result<Option<File>, Failure> {
        self.lock(LOCK)
    }

    /// Returns true if this is still the directory's `.patchboard`.
    pub fn is_current(&self) -> bool {
        let there = rustix::fs::lstat(self.directory.join(OWN));
        there.is_ok_and(|there| same(&there, rustix::fs::fstat(&self.own)))
    }

    /// Returns true if the holder of this lock is still the host.
    pub(crate) fn is_host(&self, lock: impl AsFd) -> bool {
        self.is_current() && self.has(LOCK, lock)
    }

    /// Returns true if the holder of this lock still has the name.
    pub fn holds_name(&self, name: &str, lock: impl AsFd) -> bool {
        self.is_current() && self.has(&file_of(name), lock)
    }

    fn has(&self, name: &str, file: impl AsFd) -> bool {
        let there = rustix::fs::statat(&self.own, name, AtFlags::SYMLINK_NOFOLLOW);
        there.is_ok_and(|there| same(&there, rustix::fs::fstat(file)))
    }

    /// Reserves a name while the returned file lives: `base` itself, if it `may_be_bare` and is free, else `base` with
    /// a number.
    pub fn name(&self, base: &str, may_be_bare: bool) -> Result<(String, File), Failure> {
        for number in 1..=NUMBERS_MAX {
            let is_bare = may_be_bare && number == 1;
            let name = if is_bare { base.to_owned() } else { format!("{base}-{number}") };
            if let Some(lock) = self.lock(&file_of(&name))? {
                return Ok((name, lock));
            }
        }
        let message = format!("{NUMBERS_MAX} agents at {} are called {base} already", self.directory.display());
        Err(Failure::invalid_input("too_many_agents", message))
    }

    /// Returns the names that agents have had here.
    pub(crate) fn names(&self) -> Vec<String> {
        let Ok(entries) = Dir::read_from(&self.own) else { return Vec::new() };
        let name = |entry: DirEntry| {
            let name = entry.file_name().to_str().ok()?.strip_prefix(AGENT.0)?.strip_suffix(AGENT.1)?.to_owned();
            Some(name)
        };
        entries.flatten().filter_map(name).take(NAMES_MAX).collect()
    }

    /// Returns the rest of a path into the directory, relative to it; `None` for other paths. Recognises the directory
    /// by any of its names, also through links.
    pub fn within(&self, path: &Path) -> Option<PathBuf> {
        let own = rustix::fs::stat(&self.directory);
        let root = path.ancestors().find(|above| rustix::fs::stat(*above).is_ok_and(|there| same(&there, own)))?;
        path.strip_prefix(root).ok().map(Path::to_owned)
    }

    /// Opens the log of the host.
    pub fn log(&self) -> Result<File, Failure> {
        open(&self.own, LOG, OFlags::TRUNC).map_err(|error| untrusted(LOG, &format!("cannot be opened: {error}")))
    }

    fn lock(&self, name: &str) -> Result<Option<File>, Failure> {
        let file = open(&self.own, name, OFlags::empty());
        let file = file.map_err(|error| untrusted(name, &format!("cannot be opened: {error}")))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(untrusted(name, &format!("cannot be locked: {error}"))),
        }
    }

    /// Reads the address of the host, if there is one.
    pub fn address(&self) -> Option<Address> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.own, ADDRESS, flags, Mode::empty()).ok()?);
        let metadata = file.metadata().ok()?;
        let is_private = metadata.is_file() && metadata.uid() == user() && metadata.mode() & 0o077 == 0;
        if !is_private {
            return None;
        }
        let mut text = Vec::new();
        file.take(ADDRESS_BYTES_MAX).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Writes the address of the host atomically.
    pub(crate) fn write_address(&self, address: &Address) -> Result<(), Failure> {
        let failed = |error: io::Error| untrusted(ADDRESS, &format!("cannot be written: {error}"));
        let name = format!("{ADDRESS}.{}", std::process::id());
        self.remove(&name);
        let mut file = open(&self.own, &name, OFlags::EXCL).map_err(|error| failed(error.into()))?;
        file.write_all(json!(address).to_string().as_bytes()).map_err(failed)?;
        rustix::fs::renameat(&self.own, &name, &self.own, ADDRESS).map_err(|error| failed(error.into()))
    }

    pub(crate) fn remove_address(&self) {
        self.remove(ADDRESS);
    }

    fn remove(&self, name: &str) {
        // Best effort: the file may be missing, and without permission to remove it, a write fails too.
        let _ = rustix::fs::unlinkat(&self.own, name, AtFlags::empty());
    }
}

/// Opens a file of the host for reading and writing, and creates it if necessary. With `EXCL` in `more`, the file must be new.
fn open(directory: &OwnedFd, name: &str, more: OFlags) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
    rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600)).map(File::from)
}

fn file_of(name: &str) -> String {
    format!("{}{name}{}", AGENT.0, AGENT.1)
}

fn same(there: &Stat, own: Result<Stat, Errno>) -> bool {
    own.is_ok_and(|own| (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino))
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Opens a directory of our own; creates it if the name is free.
fn own_directory(parent: impl AsFd, name: &str) -> Result<OwnedFd, Failure> {
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(untrusted(name, &format!("cannot be made: {error}"))),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(&parent, name, flags, Mode::empty())
        .map_err(|error| untrusted(name, &format!("is not a directory of its own: {error}")))?;
    let stat = rustix::fs::fstat(&directory).map_err(|error| untrusted(name, &format!("cannot be read: {error}")))?;
    if stat.st_uid != user() { Err(untrusted(name, "belongs to another user")) } else { Ok(directory) }
}

/// Rejects a directory with symbolic links, special files, or too deep a tree.
fn without_links(directory: &OwnedFd, path: &str, depth: usize) -> Result<(), Failure> {
    let unreadable = |error: Errno| untrusted(path, &format!("cannot be read: {error}"));
    for entry in Dir::read_from(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let path = format!("{path}/{}", name.to_string_lossy());
        let kind = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            // The entry was removed meanwhile.
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(unreadable(error)),
        };
        match kind {
            FileType::RegularFile => {}
            FileType::Directory if depth > 0 => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let below = rustix::fs::openat(directory, name, flags, Mode::empty()).map_err(unreadable)?;
                without_links(&below, &path, depth - 1)?;
            }
            FileType::Symlink => return Err(untrusted(&path, "is a symbolic link")),
            _ => return Err(untrusted(&path, "is not what belongs there")),
        }
    }
    Ok(())
}

fn untrusted(name: &str, why: &str) -> Failure {
    let name = if name == OWN { OWN.to_owned() } else { format!("{OWN}/{name}") };
    Failure::invalid_input("workspace_untrusted", format!("{name} {why}"))
        .help(format!("look at what is in {OWN}; without it a new one is made"))
}

#[cfg(test)]
mod tests;
