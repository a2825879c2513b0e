//! File access of a worker: the paths it may read and change.

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use super::FilePath;
use crate::blueprint::FileAccess;

/// Maximum number of patterns in one list.
pub const PATTERNS_MAX: usize = 64;
const PATTERN_BYTES_MAX: usize = 256;

/// Compiled [`FileAccess`] of a worker.
#[derive(Clone, Debug)]
pub struct Access {
    spec: FileAccess,
    view: PathFilter,
    edit: PathFilter,
}

/// Paths that match one set of patterns and not the other.
#[derive(Clone, Debug)]
struct PathFilter {
    with: GlobSet,
    without: GlobSet,
}

impl Access {
    /// Compiles the file access of a blueprint. The error names the field that cannot be compiled.
    pub fn compile(spec: &FileAccess) -> Result<Self, String> {
        Ok(Self {
            view: PathFilter::compile(&spec.view).map_err(|error| format!("view: {error}"))?,
            edit: PathFilter::compile(&spec.edit).map_err(|error| format!("edit: {error}"))?,
            spec: spec.clone(),
        })
    }

    /// Returns the uncompiled access.
    pub const fn spec(&self) -> &FileAccess {
        &self.spec
    }

    /// Returns true if the worker may read a file.
    pub fn may_view(&self, path: &FilePath) -> bool {
        self.view.has(path)
    }

    /// Returns true if the worker may change a file, which requires read access.
    pub fn may_edit(&self, path: &FilePath) -> bool {
        self.may_view(path) && self.edit.has(path)
    }
}

impl PathFilter {
    /// Compiles a list of patterns. A pattern behind a `!` excludes its matches, regardless of order.
    fn compile(texts: &[String]) -> Result<Self, String> {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for text in texts {
            match text.strip_prefix('!') {
                Some(text) => without.push(text.to_owned()),
                None => with.push(text.clone()),
            }
        }
        Ok(Self { with: patterns(&with)?, without: patterns(&without)? })
    }

    fn has(&self, path: &FilePath) -> bool {
        self.with.is_match(path.as_str()) && !self.without.is_match(path.as_str())
    }
}

/// Compiles path patterns into one set: `*` and `?` stay within a path segment, `**` crosses segments, `{a,b}` are
/// alternatives. The error describes the first invalid pattern for users.
pub fn patterns(texts: &[String]) -> Result<GlobSet, String> {
    if texts.len() > PATTERNS_MAX {
        return Err(format!("{} patterns, at most {PATTERNS_MAX} may be", texts.len()));
    }
    let mut set = GlobSetBuilder::new();
    for text in texts {
        set.add(pattern(text)?);
    }
    set.build().map_err(|error| error.to_string())
}

fn pattern(text: &str) -> Result<Glob, String> {
    if text.len() > PATTERN_BYTES_MAX {
        return Err(format!("a pattern has {} bytes, at most {PATTERN_BYTES_MAX} are allowed", text.len()));
    }
    if text.starts_with('/') || text.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(format!(
            "`{text}` matches no file: paths are relative, like src/**, without `.`, `..` and empty parts"
        ));
    }
    let glob = GlobBuilder::new(text).literal_separator(true).backslash_escape(false).build();
    glob.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
