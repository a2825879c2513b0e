//! What can be wrong with a file or with the directory, as values with stable codes.

use std::fmt;
use std::io;

use patchboard_kernel::coded;
use rustix::io::Errno;

coded! {
    /// Why a name of a directory is not served.
    Reason {
        /// It is a symbolic link, or one is on the way to it: a file has one name, and none leads out of the directory.
        Symlink = "symlink",
        /// It belongs to git's own data.
        Git = "git",
        /// It belongs to what the workspace keeps for itself.
        Private = "private",
        /// A `.gitignore` or `.git/info/exclude` excludes it.
        Ignored = "ignored",
        /// The operator excludes it.
        Excluded = "excluded",
        /// It is not text: not UTF-8, or with a zero byte near its beginning.
        Binary = "binary",
        /// It is larger than a file may be.
        TooLarge = "too_large",
        /// It is a directory, a device, a pipe or a socket, or on the way to it is something that is not a directory.
        NotRegular = "not_regular",
        /// It is on another file system than the directory.
        Outside = "outside",
        /// It is below more directories than are looked into.
        TooDeep = "too_deep",
        /// Its name cannot be written as the name of a file in a workspace.
        Name = "name",
        /// The operating system does not let it be read.
        Unreadable = "unreadable",
    }
}

impl Reason {
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

coded! {
    /// What can go wrong with a workspace's directory.
    DiskCode {
        /// The file is not served; the reason says why.
        NotServed = "not_served",
        /// The directory of the workspace cannot be opened or written.
        BadDirectory = "bad_directory",
        /// Another process has the directory open as a workspace.
        DirectoryLocked = "directory_locked",
        /// A pattern of what the operator excludes cannot be read.
        BadExclude = "bad_exclude",
        /// There are more files than a workspace may have.
        TooManyFiles = "too_many_files",
        /// The operating system watches no more directories.
        TooManyWatches = "too_many_watches",
        /// The file was changed by others again and again while it was to be replaced.
        FileBusy = "file_busy",
        /// An edit was recorded and cannot be put in place; the board knows what is there instead.
        NotInPlace = "not_in_place",
        /// There is no space left for what is to be written.
        DiskFull = "disk_full",
        /// The operating system does not allow the write.
        WriteForbidden = "write_forbidden",
        /// The operating system reports another error.
        DiskError = "disk_error",
        /// A set of paths has too many members, or a pattern that cannot be read.
        BadPathSet = "bad_path_set",
        /// The paths were not free in time.
        LockTimeout = "lock_timeout",
        /// Too many wait for paths already.
        TooManyWaiting = "too_many_waiting",
    }
}

/// A name that is not served.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path} {}", reason.advice())]
pub struct NotServed {
    /// The name, or the part of it that is the trouble.
    pub path: String,
    /// Why.
    pub reason: Reason,
}

/// Why something could not be done with a directory.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A file that is not served.
    #[error(transparent)]
    NotServed(#[from] NotServed),
    /// The directory itself.
    #[error("{path} cannot be used as a workspace: {error}")]
    Directory {
        /// As it was given.
        path: String,
        /// What the operating system says.
        error: io::Error,
    },
    /// Somebody else has it.
    #[error("{path} is the workspace of another process already: end that one first")]
    Locked {
        /// As it was given.
        path: String,
    },
    /// An exclusion.
    #[error("{glob:?} cannot be read as a pattern of what is excluded: {message}")]
    Exclude {
        /// The pattern.
        glob: String,
        /// What is wrong with it.
        message: String,
    },
    /// Too many files.
    #[error("the directory has more than {max} files that would be served: exclude some, or allow more")]
    TooManyFiles {
        /// How many it may have.
        max: usize,
    },
    /// Too many directories to be watched.
    #[error("the operating system watches no more directories: look at the files from time to time instead")]
    TooManyWatches,
    /// Others are faster.
    #[error("{path} was changed by others while it was to be replaced, again and again: try again")]
    Busy {
        /// The file.
        path: String,
    },
    /// Something is in the way of what was recorded.
    #[error(
        "the edit of {path} was recorded and cannot be put in place, so the file is not what it was to be: {why}. What it \
         was to hold is kept in .patchboard/displaced; view it again"
    )]
    NotInPlace {
        /// The file.
        path: String,
        /// What is in the way.
        why: String,
    },
    /// What the operating system says.
    #[error("{what}: {error}")]
    Io {
        /// What was to be done.
        what: String,
        /// What came of it.
        error: io::Error,
    },
}

impl DiskError {
    pub(super) fn not_served(path: impl Into<String>, reason: Reason) -> Self {
        Self::NotServed(NotServed { path: path.into(), reason })
    }

    pub(super) fn io(what: impl fmt::Display, error: impl Into<io::Error>) -> Self {
        Self::Io { what: what.to_string(), error: error.into() }
    }

    /// The stable code.
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

    /// Whether it may go without anybody's doing something about the file: room on the disk, say. What does not must keep
    /// nobody else from working.
    pub(super) fn may_pass(&self) -> bool {
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

    /// Why a file is not served, if that is it.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::NotServed(NotServed { reason, .. }) => Some(*reason),
            _ => None,
        }
    }
}
