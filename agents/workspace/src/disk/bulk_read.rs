//! Bulk reads of files.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use patchboard_kernel::files::FilePath;

use super::error::DiskError;
use super::ignore_rules::ActiveRules;
use super::{Contents, Disk};

/// An open directory on the path of the last file.
struct Level {
    /// Length of its path, in bytes.
    end: usize,
    directory: OwnedFd,
    /// Number of rules before its own, for [`ActiveRules::leave`].
    mark: usize,
}

impl Disk {
    /// Reads files until `see` breaks, and returns how many it received. Consecutive files share the open directories
    /// of their common prefix, so sorted paths open each directory, and read its rules, once.
    pub(in super::super) fn read_each(
        &self,
        paths: &[FilePath],
        mut visit: impl FnMut(&FilePath, Result<Option<Contents>, DiskError>) -> ControlFlow<()>,
    ) -> Result<usize, DiskError> {
        let mut rules = self.rules.active_rules(&self.root)?;
        let mut levels: Vec<Level> = Vec::new();
        let mut last = "";
        for (at, path) in paths.iter().enumerate() {
            let is_above = |level: &Level| path.as_str().get(..=level.end) == last.get(..=level.end);
            while let Some(level) = levels.pop_if(|level| !is_above(level)) {
                rules.leave(level.mark);
            }
            last = path.as_str();
            let is_served = self.follow(path, &mut rules, &mut levels) && rules.judge(path.as_str(), false).is_none();
            let read = match is_served {
                true => {
                    let parent = levels.last().map_or(&self.root, |level| &level.directory);
                    self.read_in(parent, path.as_str(), path.name())
                }
                // The full read reports the reason.
                false => self.read(path),
            };
            if visit(path, read).is_break() {
                return Ok(at + 1);
            }
        }
        Ok(paths.len())
    }

    /// Enters the directory of a file; `false` if it cannot be entered.
    fn follow(&self, path: &FilePath, rules: &mut ActiveRules<'_>, levels: &mut Vec<Level>) -> bool {
        let from = levels.last().map_or(0, |level| level.end + 1);
        for (end, _) in path.as_str().match_indices('/').filter(|(end, _)| *end >= from) {
            let prefix = &path.as_str()[..end];
            if levels.len() == super::DEPTH_MAX || rules.judge(prefix, true).is_some() {
                return false;
            }
            let parent = levels.last().map_or(&self.root, |level| &level.directory);
            let Ok(Some(directory)) = self.enter(parent, prefix) else { return false };
            let mark = rules.mark();
            if rules.enter(&directory, prefix).is_err() {
                rules.leave(mark);
                return false;
            }
            levels.push(Level { end, directory, mark });
        }
        true
    }
}
