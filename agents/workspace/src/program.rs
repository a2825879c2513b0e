//! Program configured by the operator, which answers calls or is run in a workspace.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use patchboard_kernel::blueprint::Duration;
use serde::{Deserialize, Deserializer};

use crate::directory::checked;

/// Grant that allows commits.
pub const GIT: &str = "git";

/// Program that answers calls; `docs/programs.md` has the protocol.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Program and arguments. A name with a `/` is relative to the configuration's directory; any other is searched in
    /// `PATH`.
    #[serde(deserialize_with = "program")]
    pub program: Vec<String>,
    /// Environment variables, in addition to `PATH`, `HOME`, `LANG` and `TMPDIR`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory, relative to the configuration's directory. The default is that of this process, or the
    /// directory of the workspace in which it runs.
    pub cwd: Option<PathBuf>,
    /// In a workspace: patterns of the files that it may change. The program and other editors of these files exclude
    /// each other.
    #[serde(default)]
    pub changes: Vec<String>,
    /// In a workspace: true if workers may pass further arguments.
    #[serde(default)]
    pub arguments: bool,
    /// In a workspace: time limit, at most and by default 10 minutes.
    pub timeout: Option<Duration>,
}

// Written by hand, because the values of variables may be secret.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("program", &self.program)
            .field("env", &self.env.keys())
            .field("cwd", &self.cwd)
            .field("changes", &self.changes)
            .field("arguments", &self.arguments)
            .field("timeout", &self.timeout)
            .finish()
    }
}

impl Program {
    /// Builds a program without environment or directory.
    pub const fn new(program: Vec<String>) -> Self {
        Self { program, env: BTreeMap::new(), cwd: None, changes: Vec::new(), arguments: false, timeout: None }
    }

    /// Resolves relative paths against the directory of the configuration.
    pub fn resolve(&mut self, dir: &Path) {
        // Absolute, because a relative program and a working directory together mean different files on different
        // systems.
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        if let Some(first) = self.program.first_mut().filter(|first| first.contains('/')) {
            *first = dir.join(&*first).to_string_lossy().into_owned();
        }
        self.cwd = self.cwd.take().map(|cwd| dir.join(cwd));
    }
}

fn program<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let has_name = |words: &Vec<String>| words.first().is_some_and(|first| !first.is_empty());
    checked(deserializer, has_name, "a program is a list that begins with its name")
}
