//! What is wanted of files, what they are, and what became of it: plain values.

use std::sync::Arc;

use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::{Entry, FileChange, FilePath, Hunk, Lines, count};
use patchboard_kernel::rejection::Rejection;
use patchboard_runtime::runtime::RuntimeError;

use super::super::disk::DiskError;
use super::super::disk::locks::LockError;

/// Files that are named of those that the board did not take.
const NAMED_MAX: usize = 20;

/// All that a rejection says, as one text.
fn told(rejection: &Rejection) -> String {
    let each: Vec<_> = rejection.violations.iter().map(|violation| violation.told().into_owned()).collect();
    each.join("; ")
}

/// What is wrong with a workspace, or with the board that knows of it.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The directory.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The board.
    #[error(transparent)]
    Board(#[from] RuntimeError),
    /// The board does not take what has happened.
    #[error("files were changed in a way that the board does not allow, and nothing that rests on them can be done until that is mended: {}", told(.0))]
    Refused(Box<Rejection>),
    /// It has none.
    #[error("the board has no workspace")]
    None,
    /// The operator has not set it up, or it cannot be opened.
    #[error("{0}")]
    NotConfigured(String),
    /// Others are at work on the same files.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A part of the process is gone.
    #[error("the work was broken off: {0}")]
    Broken(String),
}

impl WorkspaceError {
    /// The stable code.
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

/// A file as it stands: what the board knows, and what is in it. Both are of the same content.
#[derive(Clone, Debug)]
pub struct Standing {
    /// What the board knows; none if it never had a file of this name.
    pub entry: Option<Entry>,
    /// What is in it; none: there is no file.
    pub text: Option<Arc<str>>,
}

impl Standing {
    /// Its version; 0 if there never was one.
    pub fn version(&self) -> u64 {
        self.entry.as_ref().map_or(0, |entry| entry.version)
    }

    /// SHA-256 of what is in it.
    pub fn hash(&self) -> Option<Digest> {
        self.entry.as_ref().and_then(|entry| entry.hash)
    }
}

/// A file that shall hold something else.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Which.
    pub path: FilePath,
    /// What it holds now, as whoever wants it believes.
    pub before: Option<Arc<str>>,
    /// What it shall hold; none: it shall go.
    pub after: Option<Arc<str>>,
    /// What of it changes.
    pub hunks: Option<Vec<Hunk>>,
    /// Lines of what it holds now that the edit touches though nobody asked for that: where it is signed.
    pub signed: Vec<Lines>,
}

impl Wanted {
    /// What the board is told of it.
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

/// What became of an edit.
#[derive(Clone, PartialEq, Debug)]
pub enum Edited {
    /// It is made. The versions that its files have by it; none: others have changed the file since.
    Done(Vec<Option<u64>>),
    /// It is not.
    Refused(Rejection),
}

/// An edit that was decided.
#[derive(Clone, Debug)]
pub struct Made {
    /// What became of it.
    pub edited: Edited,
    /// Its files before.
    pub standing: Vec<Standing>,
    /// What they were to hold.
    pub wanted: Vec<Wanted>,
}

/// What others have changed.
#[derive(Debug, Default)]
pub struct ByOthers {
    /// How many files that were.
    pub found: usize,
    /// What of that the board did not take. All that rests on other files goes on.
    pub untaken: Vec<NotTaken>,
    /// How often what it did not take was put to it in halves.
    pub(super) halved: usize,
}

/// Files that hold something else than the board knows, as it does not allow what they hold.
#[derive(Debug)]
pub struct NotTaken {
    /// Which.
    pub paths: Vec<FilePath>,
    /// Why.
    pub rejection: Rejection,
}

impl ByOthers {
    /// The number of files, where the board has to know all of them.
    ///
    /// # Errors
    /// It did not take some.
    pub fn all(self) -> Result<usize, WorkspaceError> {
        match self.untaken.into_iter().next() {
            Some(NotTaken { rejection, .. }) => Err(WorkspaceError::Refused(Box::new(rejection))),
            None => Ok(self.found),
        }
    }

    /// What the board did not take and why, in a sentence each; empty if it knows all.
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
