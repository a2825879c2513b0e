//! Errors of git operations.

use patchboard_kernel::code_enum;

use crate::programs::ProgramError;
use crate::service::WorkspaceError;

code_enum! {
    /// Reasons why git did nothing.
    GitCode {
        /// The directory is not a git working tree.
        NoRepository = "no_repository",
        /// There is nothing to commit; omitted files are named.
        NothingToCommit = "nothing_to_commit",
        /// The commit message is empty.
        EmptyMessage = "empty_message",
        /// The committer has not been shown every change in its current form; nothing was committed.
        NotReviewed = "not_reviewed",
        /// Changes of others conflict with the merge; nothing was merged.
        MergeConflict = "merge_conflict",
        /// git reported an error.
        GitRefused = "git_refused",
    }
}

/// Errors of git operations.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// Rejection with its code and message.
    #[error("{1}")]
    Git(GitCode, String),
    /// Program that could not be run, or an error of the workspace.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl GitError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Git(code, _) => code.as_str(),
            Self::Program(error) => error.code(),
        }
    }
}

impl From<WorkspaceError> for GitError {
    fn from(error: WorkspaceError) -> Self {
        Self::Program(error.into())
    }
}
