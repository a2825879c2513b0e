//! A program of the operator's, which answers calls or is run at a workspace.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use patchboard_kernel::blueprint::Duration;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A program that answers calls; see [`crate::command`] for its protocol.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The program and its arguments. One with a `/` in it is relative to the configuration's directory, one without
    /// is looked for in `PATH`.
    #[serde(deserialize_with = "program")]
    pub program: Vec<String>,
    /// Its environment, beside `PATH`, `HOME`, `LANG` and `TMPDIR`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Its working directory, relative to the configuration's directory; absent: that of this process, or the directory of
    /// the workspace that it is run at.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// Run at a workspace: patterns of the files that it may change. It waits for others who change them, and they for it.
    #[serde(default)]
    pub changes: Vec<String>,
    /// Run at a workspace: whether workers may give it further arguments.
    #[serde(default)]
    pub arguments: bool,
    /// Run at a workspace: how long it may take, at most 10 minutes; that if absent.
    #[serde(default)]
    pub timeout: Option<Duration>,
}

// By hand, because the values of variables may be secret.
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
    /// A program without configured environment or directory.
    pub const fn new(program: Vec<String>) -> Self {
        Self { program, env: BTreeMap::new(), cwd: None, changes: Vec::new(), arguments: false, timeout: None }
    }

    pub(super) fn resolve(&mut self, dir: &Path) {
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
    let words = Vec::<String>::deserialize(deserializer)?;
    match words.first() {
        Some(first) if !first.is_empty() => Ok(words),
        Some(_) | None => Err(D::Error::custom("a program is a list that begins with its name")),
    }
}
