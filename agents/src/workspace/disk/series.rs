//! Many files, read one after the other.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use patchboard_kernel::files::FilePath;

use super::error::DiskError;
use super::served::Way;
use super::{Contents, Disk};

/// A directory on the way to where the last file was.
struct Level {
    /// How long its name is.
    end: usize,
    directory: OwnedFd,
    /// How many rules there were before its own.
    mark: usize,
}

impl Disk {
    /// Reads files until `see` says that it is enough; how many it was given. The way to each begins where that to the last
    /// one parts from it, so directories are opened once, and their rules read once, if the names are sorted.
    pub(in super::super) fn read_each(
        &self,
        paths: &[FilePath],
        mut see: impl FnMut(&FilePath, Result<Option<Contents>, DiskError>) -> ControlFlow<()>,
    ) -> Result<usize, DiskError> {
        let mut way = self.rules.way(&self.root)?;
        let mut levels: Vec<Level> = Vec::new();
        let mut last = "";
        for (at, path) in paths.iter().enumerate() {
            let is_above = |level: &Level| path.as_str().get(..=level.end) == last.get(..=level.end);
            while let Some(level) = levels.pop_if(|level| !is_above(level)) {
                way.leave(level.mark);
            }
            last = path.as_str();
            let is_served = self.follow(path, &mut way, &mut levels) && way.judge(path.as_str(), false).is_none();
            let read = match is_served {
                true => {
                    let parent = levels.last().map_or(&self.root, |level| &level.directory);
                    self.read_in(parent, path.as_str(), path.name())
                }
                // It says why.
                false => self.read(path),
            };
            if see(path, read).is_break() {
                return Ok(at + 1);
            }
        }
        Ok(paths.len())
    }

    /// Goes on to the directory of a file; false if something is in the way.
    fn follow(&self, path: &FilePath, way: &mut Way<'_>, levels: &mut Vec<Level>) -> bool {
        let from = levels.last().map_or(0, |level| level.end + 1);
        for (end, _) in path.as_str().match_indices('/').filter(|(end, _)| *end >= from) {
            let prefix = &path.as_str()[..end];
            if levels.len() == super::DEPTH_MAX || way.judge(prefix, true).is_some() {
                return false;
            }
            let parent = levels.last().map_or(&self.root, |level| &level.directory);
            let Ok(Some(directory)) = self.enter(parent, prefix) else { return false };
            let mark = way.mark();
            if way.enter(&directory, prefix).is_err() {
                way.leave(mark);
                return false;
            }
            levels.push(Level { end, directory, mark });
        }
        true
    }
}
