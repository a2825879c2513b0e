//! Plain values of the workspace service: requests, file contents, results and errors.

use std::fmt::Display;
use std::sync::Arc;

use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::{FileChange, FileEntry, FilePath, Hunk, LineRange, count};
use patchboard_kernel::rejection::Rejection;
use patchboard_runtime::error::RuntimeError;

use super::super::disk::DiskError;
use super::super::disk::locks::LockError;
use super::super::render;

fn join_messages(rejection: &Rejection) -> String {
    let each: Vec<_> =
        rejection.violations.iter().map(|violation| violation.message_with_author().into_owned()).collect();
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
    #[error("files were changed in a way that the board does not allow, and nothing that rests on them can be done until that is mended: {}", join_messages(.0))]
    Rejected(Box<Rejection>),
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
    pub(crate) fn broken(why: impl Display) -> Self {
        Self::Broken(why.to_string())
    }

    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Disk(error) => error.code().as_str(),
            Self::Lock(error) => error.code().as_str(),
            Self::Board(error) => error.code(),
            Self::Rejected(_) => "workspace_refused",
            Self::None | Self::NotConfigured(_) => "not_configured",
            Self::Broken(_) => "internal",
        }
    }
}

/// A file's recorded entry and its text. Both describe the same content.
#[derive(Clone, Debug)]
pub struct CurrentFile {
    /// Entry in the board's state; `None` if it never had a file of this name.
    pub entry: Option<FileEntry>,
    /// Text of the file; `None` if it does not exist.
    pub text: Option<Arc<str>>,
}

impl CurrentFile {
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
pub struct ProposedChange {
    /// Path of the file.
    pub path: FilePath,
    /// Content that the request is based on.
    pub before: Option<Arc<str>>,
    /// New content; `None` for a deletion.
    pub after: Option<Arc<str>>,
    /// Changed lines.
    pub hunks: Option<Vec<Hunk>>,
    /// Current lines that only the signature touches; the edit declares them as read.
    pub signed: Vec<LineRange>,
}

impl ProposedChange {
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
pub enum EditOutcome {
    /// Committed, with the version of each file; `None` for a file that has changed since.
    Committed(Vec<Option<u64>>),
    /// Rejected by the board.
    Rejected(Rejection),
}

/// A decided edit.
#[derive(Clone, Debug)]
pub struct DecidedEdit {
    /// Outcome.
    pub outcome: EditOutcome,
    /// Files before the edit.
    pub current: Vec<CurrentFile>,
    /// Requested changes.
    pub proposed: Vec<ProposedChange>,
}

/// Result of reporting external changes.
#[derive(Debug, Default)]
pub struct ExternalChanges {
    /// Number of files that had changed.
    pub found: usize,
    /// Changes that the board rejected. Work that does not depend on these files continues.
    pub rejected: Vec<RejectedFiles>,
    /// Number of times that a rejected report was split in half.
    pub(super) halved: usize,
}

/// Files with content that the board rejects; its state and the disk differ.
#[derive(Debug)]
pub struct RejectedFiles {
    /// Paths of the files.
    pub paths: Vec<FilePath>,
    /// Reason.
    pub rejection: Rejection,
}

impl ExternalChanges {
    /// Returns the number of changed files if the board accepted all of them.
    pub fn require_accepted(self) -> Result<usize, WorkspaceError> {
        match self.rejected.into_iter().next() {
            Some(RejectedFiles { rejection, .. }) => Err(WorkspaceError::Rejected(Box::new(rejection))),
            None => Ok(self.found),
        }
    }

    /// Returns one sentence per rejected report; empty if there is none.
    pub fn messages(&self) -> Vec<String> {
        let one = |RejectedFiles { paths, rejection }: &RejectedFiles| {
            let (named, why) = (render::names(paths), join_messages(rejection));
            format!("{named} changed in a way that the board does not allow: {why}")
        };
        self.rejected.iter().map(one).collect()
    }
}
