//! Workspace settings of a blueprint: the files that its workers share.

use serde::{Deserialize, Serialize};

use super::Intent;
use crate::rejection::code_enum;

/// The directory of files that the workers of a board share.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceSpec {
    /// Name of a directory of the operator's configuration.
    pub dir: String,
    /// Part of a file that must not have changed between a read and a write.
    #[serde(default)]
    pub granularity: Granularity,
    /// Isolation of its authors from each other.
    #[serde(default)]
    pub isolation: Isolation,
    /// Requirement of a statement of intent with every edit.
    #[serde(default = "required")]
    pub intent: Intent,
    /// Writes the intent of an edit above the changed lines, as a comment.
    #[serde(default = "yes")]
    pub annotate: bool,
    /// Path patterns of files that are not served.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Detail of the report to the author of a rejected edit.
    #[serde(default)]
    pub presentation: Presentation,
    /// Maximum characters of that report.
    #[serde(default = "default_payload")]
    pub payload: u32,
    /// Maximum number of files; [`FILES_MAX`](crate::files::FILES_MAX) if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_files: Option<u32>,
}

/// Access of a worker to the files of the workspace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileAccess {
    /// Path patterns that it may read. A leading `!` excludes the matches of a pattern.
    #[serde(default = "all")]
    pub view: Vec<String>,
    /// Path patterns that it may change, with the same syntax. Editing requires read access.
    #[serde(default)]
    pub edit: Vec<String>,
    /// Programs of the operator's configuration that it may run in the workspace directory.
    #[serde(default)]
    pub run: Vec<String>,
    /// Model calls of one attempt: one for each tool call, and one for the answer.
    #[serde(default = "default_iterations")]
    pub iterations: u32,
}

code_enum! {
    /// Part of a file that must not have changed between a read and a write.
    #[derive(Default)]
    Granularity {
        /// The lines that were read, wherever later edits have moved them.
        #[default]
        Lines = "lines",
        /// The whole file.
        File = "file",
    }
}

code_enum! {
    /// Isolation of the authors of a workspace.
    #[derive(Default)]
    Isolation {
        /// Every write is checked against its author's reads.
        #[default]
        Storm = "storm",
        /// Prompt instructions only; nothing is checked.
        Soft = "soft",
        /// A working tree for each author, merged when all are done; nothing is checked before.
        Worktree = "worktree",
    }
}

code_enum! {
    /// Detail of the report to the author of a rejected edit.
    #[derive(Default)]
    Presentation {
        /// The current content of the file, and all changes to it and to the other files read.
        Full = "full",
        /// Changes to the parts that its author had read.
        #[default]
        Diff = "diff",
        /// Names of the changed files and their authors.
        Brief = "brief",
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

/// Budget of an engineer for one task (S32).
const fn default_iterations() -> u32 {
    80
}

fn all() -> Vec<String> {
    vec!["**".to_owned()]
}
