//! Errors of files and of the workspace directory, with stable codes.

use std::fmt;
use std::io;

use patchboard_kernel::code_enum;
use rustix::io::Errno;

code_enum! {
    /// Reasons why a name is not served.
    UnservedReason {
        /// A symbolic link, or a name below one. A file has exactly one name, and no name leads out of the directory.
        Symlink = "symlink",
        /// Part of git's own data.
        Git = "git",
        /// Part of the workspace's own data (`.patchboard`).
        Private = "private",
        /// Excluded by a `.gitignore` or `.git/info/exclude`.
        Ignored = "ignored",
        /// Excluded by the operator.
        Excluded = "excluded",
        /// Not text: invalid UTF-8, or a zero byte near the beginning.
        Binary = "binary",
        /// Larger than the maximum file size.
        TooLarge = "too_large",
        /// A directory, device, pipe or socket, or a name below anything but a directory.
        NotRegular = "not_regular",
        /// On another file system than the workspace directory.
        Outside = "outside",
        /// Below too many nested directories.
        TooDeep = "too_deep",
        /// Not a valid name for a file of a workspace.
        Name = "name",
        /// Not readable with the permissions of the process.
        Unreadable = "unreadable",
    }
}

impl UnservedReason {
    fn advice(self) -> &'static str {
        match self {
            Self::Symlink => "is a symbolic link, or leads through one: use the name of the file itself",
            Self::Git => "belongs to git: use git's commands for it",
            Self::Private => "belongs to the workspace itself: choose another name",
            Self::Ignored => "is excluded by .gitignore: choose another name, or take it out there",
            Self::Excluded => "is excluded by the operator: choose another name",
            Self::Binary => "is not text in UTF-8: only text can be read and edited here",
            Self::TooLarge => "is larger than a file may be here: work on a part of it in a file of its own",
            Self::NotRegular => {
                "is no ordinary file, or something on the way to it is no directory: choose another name"
            }
            Self::Outside => "is on another file system than the directory: choose another name",
            Self::TooDeep => "is below too many directories: choose a shorter name",
            Self::Name => "has a name that cannot be used here: rename it",
            Self::Unreadable => "cannot be read: its permissions forbid it",
        }
    }
}

code_enum! {
    /// Errors of a workspace's directory.
    DiskCode {
        /// The file is not served; the reason gives the cause.
        NotServed = "not_served",
        /// The workspace's directory cannot be opened or written.
        BadDirectory = "bad_directory",
        /// Another process has the directory open as a workspace.
        DirectoryLocked = "directory_locked",
        /// An exclusion pattern of the operator is invalid.
        BadExclude = "bad_exclude",
        /// The directory has more files than a workspace may have.
        TooManyFiles = "too_many_files",
        /// The operating system's limit of directory watches is reached.
        TooManyWatches = "too_many_watches",
        /// The file was changed externally on every attempt to replace it.
        FileBusy = "file_busy",
        /// An edit was recorded but cannot be put in place; the board records the actual content instead.
        NotInPlace = "not_in_place",
        /// The disk is full.
        DiskFull = "disk_full",
        /// The operating system denies the write.
        WriteForbidden = "write_forbidden",
        /// Any other error of the operating system.
        DiskError = "disk_error",
        /// A set of paths has too many members, or an invalid pattern.
        BadPathSet = "bad_path_set",
        /// The paths were still locked at the deadline.
        LockTimeout = "lock_timeout",
        /// The queue for path locks is full.
        TooManyWaiting = "too_many_waiting",
    }
}

/// A name that is not served.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path} {}", reason.advice())]
pub struct NotServed {
    /// The name, or the part of it that is not served.
    pub path: String,
    /// Cause.
    pub reason: UnservedReason,
}

/// Errors of a workspace's directory.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// File that is not served.
    #[error(transparent)]
    NotServed(#[from] NotServed),
    /// Directory that cannot be used.
    #[error("{path} cannot be used as a workspace: {error}")]
    Directory {
        /// Path as given.
        path: String,
        /// Error of the operating system.
        error: io::Error,
    },
    /// Directory that is locked by another process.
    #[error("{path} is the workspace of another process already: end that one first")]
    Locked {
        /// Path as given.
        path: String,
    },
    /// Invalid exclusion pattern.
    #[error("{glob:?} cannot be read as a pattern of what is excluded: {message}")]
    Exclude {
        /// Pattern as given.
        glob: String,
        /// Parser message.
        message: String,
    },
    /// Directory with too many files.
    #[error("the directory has more than {max} files that would be served: exclude some, or allow more")]
    TooManyFiles {
        /// Maximum number of files.
        max: usize,
    },
    /// Limit of directory watches.
    #[error("the operating system watches no more directories: look at the files from time to time instead")]
    TooManyWatches,
    /// File that kept changing during its replacement.
    #[error("{path} was changed by others while it was to be replaced, again and again: try again")]
    Busy {
        /// Path of the file.
        path: String,
    },
    /// Recorded edit that cannot be put in place.
    #[error(
        "the edit of {path} was recorded and cannot be put in place, so the file is not what it was to be: {why}. What it \
         was to hold is kept in .patchboard/displaced; view it again"
    )]
    NotInPlace {
        /// Path of the file.
        path: String,
        /// Obstacle.
        why: String,
    },
    /// Other error of the operating system.
    #[error("{what}: {error}")]
    Io {
        /// Description of the failed operation.
        what: String,
        /// Cause.
        error: io::Error,
    },
}

impl DiskError {
    pub(super) fn not_served(path: impl Into<String>, reason: UnservedReason) -> Self {
        Self::NotServed(NotServed { path: path.into(), reason })
    }

    pub(super) fn io(what: impl fmt::Display, error: impl Into<io::Error>) -> Self {
        Self::Io { what: what.to_string(), error: error.into() }
    }

    /// Returns the stable code.
    pub fn code(&self) -> DiskCode {
        match self {
            Self::NotServed(_) => DiskCode::NotServed,
            Self::Directory { .. } => DiskCode::BadDirectory,
            Self::Locked { .. } => DiskCode::DirectoryLocked,
            Self::Exclude { .. } => DiskCode::BadExclude,
            Self::TooManyFiles { .. } => DiskCode::TooManyFiles,
            Self::TooManyWatches => DiskCode::TooManyWatches,
            Self::Busy { .. } => DiskCode::FileBusy,
            Self::NotInPlace { .. } => DiskCode::NotInPlace,
            Self::Io { error, .. } => match Errno::from_io_error(error) {
                Some(Errno::NOSPC | Errno::DQUOT) => DiskCode::DiskFull,
                Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) => DiskCode::WriteForbidden,
                _ => DiskCode::DiskError,
            },
        }
    }

    /// Returns whether the error may be transient, like a full disk. A permanent error must not block the other users
    /// of the directory.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::NotServed(_) => false,
            Self::Io { error, .. } => Errno::from_io_error(error).is_none_or(|error| {
                matches!(
                    error,
                    Errno::NOSPC
                        | Errno::DQUOT
                        | Errno::NOMEM
                        | Errno::MFILE
                        | Errno::NFILE
                        | Errno::INTR
                        | Errno::AGAIN
                )
            }),
            _ => true,
        }
    }

    /// Returns why a file is not served, if that is the error.
    pub fn reason(&self) -> Option<UnservedReason> {
        if let Self::NotServed(NotServed { reason, .. }) = self { Some(*reason) } else { None }
    }
}
