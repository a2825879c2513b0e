//! File operations on single names, relative to open directories.
//!
//! No function here accepts a path: a name contains no `/`, is looked up in an open directory, and a symbolic link is
//! never followed. A walk therefore stays below its root even if directories are renamed meanwhile.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

pub(super) fn open_dir(parent: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Creates a directory in a directory, unless the name exists.
pub(super) fn new_directory(parent: impl AsFd, name: &str, mode: u16) -> Result<(), Errno> {
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode.into())) {
        Ok(()) => rustix::fs::fsync(&parent),
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Opens a directory in a directory and creates it if the name does not exist.
pub(super) fn directory_or_new(parent: impl AsFd, name: &str, mode: u16) -> Result<OwnedFd, Errno> {
    match open_dir(&parent, name) {
        Err(Errno::NOENT) => {
            new_directory(&parent, name, mode)?;
            open_dir(&parent, name)
        }
        found => found,
    }
}

/// Opens a regular file for reading; `None` for any other type. Does not block on pipes.
pub(super) fn file(parent: impl AsFd, name: &str) -> Result<Option<File>, Errno> {
    let Some(stat) = stat(&parent, name)? else { return Err(Errno::NOENT) };
    if kind(&stat) != FileType::RegularFile { Ok(None) } else { open(parent, name) }
}

/// Opens a name that may have changed its type since it was checked.
pub(super) fn open(parent: impl AsFd, name: &str) -> Result<Option<File>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(&parent, name, flags, Mode::empty()) {
        // A symbolic link or a socket.
        Err(Errno::LOOP | Errno::NXIO) => return Ok(None),
        opened => opened?,
    };
    let is_regular = kind(&rustix::fs::fstat(&file)?) == FileType::RegularFile;
    Ok(is_regular.then(|| File::from(file)))
}

/// Creates a file; fails if the name exists.
pub(super) fn new_file(parent: impl AsFd, name: &str, mode: u16) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode.into()))?))
}

/// Returns the metadata of a name without following a link; `None` if it does not exist.
pub(super) fn stat(parent: impl AsFd, name: &str) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Returns the names in a directory, sorted by bytes; `None` if there are more than `max`.
pub(super) fn names(directory: impl AsFd, max: usize) -> Result<Option<Vec<CString>>, Errno> {
    let mut names: Vec<CString> = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if names.len() == max {
            return Ok(None);
        }
        names.push(name.to_owned());
    }
    names.sort();
    Ok(Some(names))
}

/// Removes a name if it exists.
pub(super) fn unlink(parent: impl AsFd, name: &str) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}
