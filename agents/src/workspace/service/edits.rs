//! Plain values of the workspace service: requests, file contents, results and errors.

use std::sync::Arc;

use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::{Entry, FileChange, FilePath, Hunk, Lines, count};
use patchboard_kernel::rejection::Rejection;
use patchboard_runtime::runtime::RuntimeError;

use super::super::disk::DiskError;
use super::super::disk::locks::LockError;

/// Maximum number of files named in a report of rejected changes.
const NAMED_MAX: usize = 20;

/// Renders all violations of a rejection as one text.
fn told(rejection: &Rejection) -> String {
    let each: Vec<_> = rejection.violations.iter().map(|violation| violation.told().into_owned()).collect();
    each.join("; ")
}

/// Errors of a workspace or its board.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// Error of the directory.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Error of the board.
    #[error(transparent)]
    Board(#[from] RuntimeError),
    /// Rejection of external changes by the board.
    #[error("files were changed in a way that the board does not allow, and nothing that rests on them can be done until that is mended: {}", told(.0))]
    Refused(Box<Rejection>),
    /// Board without a workspace.
    #[error("the board has no workspace")]
    None,
    /// Directory that is not configured or cannot be opened.
    #[error("{0}")]
    NotConfigured(String),
    /// Path lock not acquired.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Failed task or thread.
    #[error("the work was broken off: {0}")]
    Broken(String),
}

impl WorkspaceError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Disk(error) => error.code().as_str(),
            Self::Lock(error) => error.code().as_str(),
            Self::Board(error) => error.code(),
            Self::Refused(_) => "workspace_refused",
            Self::None | Self::NotConfigured(_) => "not_configured",
            Self::Broken(_) => "internal",
        }
    }
}

/// A file's recorded entry and its text. Both describe the same content.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Entry in the board's state; `None` if it never had a file of this name.
    pub entry: Option<Entry>,
    /// Text of the file; `None` if it does not exist.
    pub text: Option<Arc<str>>,
}

impl Standing {
    /// Returns the version; 0 if the file never existed.
    pub fn version(&self) -> u64 {
        self.entry.as_ref().map_or(0, |entry| entry.version)
    }

    /// Returns the SHA-256 of the content.
    pub fn hash(&self) -> Option<Digest> {
        self.entry.as_ref().and_then(|entry| entry.hash)
    }
}

/// A requested change of one file.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Path of the file.
    pub path: FilePath,
    /// Content that the request is based on.
    pub before: Option<Arc<str>>,
    /// New content; `None` for a deletion.
    pub after: Option<Arc<str>>,
    /// Changed lines.
    pub hunks: Option<Vec<Hunk>>,
    /// Current lines that only the signature touches; the edit declares them as read.
    pub signed: Vec<Lines>,
}

impl Wanted {
    /// Returns the change as the board records it.
    pub(super) fn change(&self) -> FileChange {
        let hash = |text: &Option<Arc<str>>| text.as_ref().map(|text| sha256(text.as_bytes()));
        FileChange {
            path: self.path.clone(),
            from: hash(&self.before),
            hash: hash(&self.after),
            lines: self.after.as_deref().map_or(0, count),
            bytes: self.after.as_ref().map_or(0, |text| text.len() as u64),
            hunks: self.hunks.clone(),
        }
    }
}

/// Outcome of an edit.
#[derive(Clone, PartialEq, Debug)]
pub enum Edited {
    /// Committed, with the version of each file; `None` for a file that has changed since.
    Done(Vec<Option<u64>>),
    /// Rejected by the board.
    Refused(Rejection),
}

/// A decided edit.
#[derive(Clone, Debug)]
pub struct Made {
    /// Outcome.
    pub edited: Edited,
    /// Files before the edit.
    pub standing: Vec<Standing>,
    /// Requested changes.
    pub wanted: Vec<Wanted>,
}

/// Result of reporting external changes.
#[derive(Debug, Default)]
pub struct ByOthers {
    /// Number of files that had changed.
    pub found: usize,
    /// Changes that the board rejected. Work that does not depend on these files continues.
    pub untaken: Vec<NotTaken>,
    /// Number of times that a rejected report was split in half.
    pub(super) halved: usize,
}

/// Files with content that the board rejects; its state and the disk differ.
#[derive(Debug)]
pub struct NotTaken {
    /// Paths of the files.
    pub paths: Vec<FilePath>,
    /// Reason.
    pub rejection: Rejection,
}

impl ByOthers {
    /// Returns the number of changed files if the board accepted all of them.
    ///
    /// # Errors
    /// The board rejected a change.
    pub fn all(self) -> Result<usize, WorkspaceError> {
        match self.untaken.into_iter().next() {
            Some(NotTaken { rejection, .. }) => Err(WorkspaceError::Refused(Box::new(rejection))),
            None => Ok(self.found),
        }
    }

    /// Returns one sentence per rejected report; empty if there is none.
    pub fn said(&self) -> Vec<String> {
        let one = |NotTaken { paths, rejection }: &NotTaken| {
            let named: Vec<&str> = paths.iter().take(NAMED_MAX).map(FilePath::as_str).collect();
            let more = match paths.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("{}{more} changed in a way that the board does not allow: {}", named.join(", "), told(rejection))
        };
        self.untaken.iter().map(one).collect()
    }
}
