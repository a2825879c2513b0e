//! What a blueprint says of the files that its workers share.

use serde::{Deserialize, Serialize};

use super::Intent;
use crate::rejection::coded;

/// The directory of files that the workers of a board share.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceSpec {
    /// Name of a directory of the operator's configuration.
    pub dir: String,
    /// What must not have changed of a file between a read and a write.
    #[serde(default)]
    pub granularity: Granularity,
    /// What keeps its authors apart.
    #[serde(default)]
    pub isolation: Isolation,
    /// Whether every edit must say what it is for.
    #[serde(default = "required")]
    pub intent: Intent,
    /// Whether what an edit is for is written above it, as a comment.
    #[serde(default = "yes")]
    pub annotate: bool,
    /// Files that are not served, as patterns of paths.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// How much the author of a refused edit is told.
    #[serde(default)]
    pub presentation: Presentation,
    /// Characters that it is told at most.
    #[serde(default = "default_payload")]
    pub payload: u32,
    /// Files at most; [`FILES_MAX`](crate::files::FILES_MAX) if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_files: Option<u32>,
}

/// What a worker may do with the files of the workspace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileAccess {
    /// Patterns of paths that it may read. One behind a `!` takes away what the others give.
    #[serde(default = "all")]
    pub view: Vec<String>,
    /// Patterns of paths that it may change, in the same way; what it may not read it may not change either.
    #[serde(default)]
    pub edit: Vec<String>,
    /// Programs of the operator's configuration that it may run in the directory.
    #[serde(default)]
    pub run: Vec<String>,
    /// Calls of its model in one attempt: one for each time it uses a tool, and one for its answer.
    #[serde(default = "default_iterations")]
    pub iterations: u32,
}

coded! {
    /// What of a file must not have changed between a read and a write.
    Granularity {
        /// The lines that were read, wherever they are by then.
        Lines = "lines",
        /// The whole file.
        File = "file",
    }
}

#[expect(clippy::derivable_impls, reason = "the enum is made by a macro that derives no default")]
impl Default for Granularity {
    fn default() -> Self {
        Self::Lines
    }
}

coded! {
    /// What keeps the authors of a workspace apart.
    Isolation {
        /// Every write is checked against what its author has read.
        Storm = "storm",
        /// What they are told; nothing is checked.
        Soft = "soft",
        /// A working tree for each of them, merged when all are done; nothing is checked before.
        Worktree = "worktree",
    }
}

#[expect(clippy::derivable_impls, reason = "the enum is made by a macro that derives no default")]
impl Default for Isolation {
    fn default() -> Self {
        Self::Storm
    }
}

coded! {
    /// How much the author of a refused edit is told.
    Presentation {
        /// The current content of the file, and what changed in it and in all else that was read.
        Full = "full",
        /// What changed of what its author had read.
        Diff = "diff",
        /// Which files changed, and who changed them.
        Brief = "brief",
    }
}

#[expect(clippy::derivable_impls, reason = "the enum is made by a macro that derives no default")]
impl Default for Presentation {
    fn default() -> Self {
        Self::Diff
    }
}

const fn required() -> Intent {
    Intent::Required
}

const fn yes() -> bool {
    true
}

const fn default_payload() -> u32 {
    16_000
}

/// What an engineer has for one task (S32).
const fn default_iterations() -> u32 {
    80
}

fn all() -> Vec<String> {
    vec!["**".to_owned()]
}
