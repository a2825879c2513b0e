//! Agents that work in a workspace, as edits and commits name them.

use patchboard_kernel::blueprint::{Isolation, WorkspaceSpec};
use patchboard_kernel::files::{Access, EditAttempt};

use crate::program::GIT;

/// An agent that works in a workspace.
#[derive(Clone, Debug)]
pub struct EditAuthor {
    /// Attempt of its invocation.
    pub attempt: EditAttempt,
    /// File grants.
    pub access: Access,
    /// Name of its worker.
    pub worker: String,
    /// Name of the agent, if several share a worker.
    pub name: Option<String>,
}

impl EditAuthor {
    /// Returns its name in files and in the state.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.worker)
    }

    /// Returns whether it edits in a working tree of its own, provided that it runs in this process.
    pub fn has_tree(&self, spec: &WorkspaceSpec) -> bool {
        let access = self.access.spec();
        let merges = access.run.iter().any(|name| name == GIT);
        spec.isolation == Isolation::Worktree && !access.edit.is_empty() && !merges
    }
}
