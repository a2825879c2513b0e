//! Completes or discards the staged changes that a crash left behind.

use std::io::Read as _;
use std::os::fd::OwnedFd;

use patchboard_kernel::digest::Digest;
use patchboard_kernel::files::FilePath;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::error::DiskError;
use super::replace::{ApplyOutcome, ChangeNote, StagedChange, StagedOutcome};
use super::{Disk, PathCheck, dir_fd};

/// Maximum size of a note in bytes: one path in JSON and two hashes.
const NOTE_BYTES_MAX: u64 = 16 * 1024;

/// Result of a recovery.
#[derive(Debug, Default)]
pub struct Recovery {
    /// Complete staged changes and their outcomes.
    pub changes: Vec<RecoveredChange>,
    /// Number of files removed that belong to no complete change.
    pub strays: usize,
}

/// A staged change that was found unfinished.
#[derive(Debug)]
pub struct RecoveredChange {
    /// Path of the file.
    pub path: FilePath,
    /// SHA-256 of the new content; `None` for a removal.
    pub hash: Option<Digest>,
    /// Action taken.
    pub outcome: StagedOutcome,
}

impl Disk {
    /// Applies each staged change that matches the hash that `expected` returns for its file, and discards the others.
    /// Must be called before any change is staged.
    /// After an error the call can be retried.
    pub fn recover(&self, expected: impl Fn(&FilePath) -> Option<Digest>) -> Result<Recovery, DiskError> {
        let failed = |error| DiskError::io("what was staged cannot be read", error);
        let names = dir_fd::names(&self.staged, usize::MAX).map_err(failed)?.unwrap_or_default();
        let mut recovery = Recovery::default();
        for name in &names {
            let Some(id) = name.to_str().ok().and_then(|name| name.strip_suffix(".json")) else { continue };
            let Some(plan) = self.plan(&format!("{id}.json"))? else { continue };
            let staged = StagedChange { id: id.to_owned(), plan };
            let outcome = self.settle(&staged, expected(staged.path()) == staged.hash())?;
            recovery.changes.push(RecoveredChange { path: staged.path().clone(), hash: staged.hash(), outcome });
        }
        // The remaining files have no note: their change is incomplete or finished.
        for name in dir_fd::names(&self.staged, usize::MAX).map_err(failed)?.unwrap_or_default() {
            match rustix::fs::unlinkat(&self.staged, &name, AtFlags::empty()) {
                // Staging creates no directories, so one is left alone.
                Ok(()) | Err(Errno::ISDIR | Errno::PERM) => {}
                Err(error) => return Err(failed(error)),
            }
            recovery.strays += 1;
        }
        Ok(recovery)
    }

    /// Finishes a staged change from any intermediate state: applies it, or discards it if it is not wanted.
    /// After an error the call can be retried.
    pub fn settle(&self, staged: &StagedChange, is_wanted: bool) -> Result<StagedOutcome, DiskError> {
        let outcome = match self.finish(staged, is_wanted) {
            Ok(outcome) => outcome,
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => {
                self.set_aside(staged)?;
                StagedOutcome::Failed(error)
            }
        };
        self.discard(staged)?;
        Ok(outcome)
    }

    /// Keeps the staged content of a change that cannot be applied, and restores the file that was taken out for it.
    fn set_aside(&self, staged: &StagedChange) -> Result<(), DiskError> {
        let (new, old) = (staged.new_slot(), staged.old_slot());
        if let Some(found) = self.slot(&new)? {
            self.displace(&new, found)?;
        }
        if let Some(found) = self.slot(&old)? {
            let parent = self.parent(staged.path(), PathCheck::Nothing).ok().flatten();
            let is_back = parent.is_some_and(|parent| self.move_if_absent(&old, &parent, staged.path().name()).is_ok());
            if !is_back {
                self.displace(&old, found)?;
            }
        }
        Ok(())
    }

    /// Performs the remaining steps of a change, from any intermediate state.
    pub(super) fn finish(&self, staged: &StagedChange, is_wanted: bool) -> Result<StagedOutcome, DiskError> {
        let plan = &staged.plan;
        if plan.to.is_none() {
            return self.finish_removal(staged, is_wanted);
        }
        let mut put = None;
        if self.slot(&staged.old_slot())?.is_some() {
            put = Some(self.displace_foreign(plan, &staged.old_slot())?);
        }
        match self.slot(&staged.new_slot())? {
            // The staged content: not yet in place, or in place already.
            Some(found) if found.hash == plan.to => {
                if !is_wanted {
                    return Ok(StagedOutcome::Discarded);
                }
                let is_there = match self.parent(&plan.path, PathCheck::Nothing)? {
                    Some(parent) => self.is(&parent, &plan.path, plan.to),
                    None => false,
                };
                let now = if is_there { ApplyOutcome::Done } else { self.place(staged)? };
                Ok(StagedOutcome::Applied(match (put, now) {
                    // This change took the previous content out.
                    (Some(put), ApplyOutcome::Missing | ApplyOutcome::Done) => put,
                    (_, now) => now,
                }))
            }
            // The previous content, exchanged with the staged one.
            Some(_) => self.displace_foreign(plan, &staged.new_slot()).map(StagedOutcome::Applied),
            None => Ok(StagedOutcome::Applied(put.unwrap_or(ApplyOutcome::Done))),
        }
    }

    fn finish_removal(&self, staged: &StagedChange, is_wanted: bool) -> Result<StagedOutcome, DiskError> {
        let plan = &staged.plan;
        if let Some(found) = self.slot(&staged.old_slot())? {
            return match self.parent(&plan.path, PathCheck::Nothing) {
                Ok(Some(parent)) => self.put_back(staged, &parent).map(StagedOutcome::Applied),
                _ if found.hash.is_some() && found.hash == plan.from => Ok(StagedOutcome::Applied(ApplyOutcome::Done)),
                _ => self
                    .displace(&staged.old_slot(), found)
                    .map(|found| StagedOutcome::Applied(ApplyOutcome::Displaced(found))),
            };
        }
        if is_wanted { self.apply_removal(staged).map(StagedOutcome::Applied) } else { Ok(StagedOutcome::Discarded) }
    }

    /// Returns whether a file has content of this hash.
    fn is(&self, parent: &OwnedFd, path: &FilePath, hash: Option<Digest>) -> bool {
        self.read_in(parent, path.as_str(), path.name()).ok().flatten().map(|contents| contents.hash) == hash
    }

    fn slot(&self, name: &str) -> Result<Option<super::ExternalContent>, DiskError> {
        let failed = |error| DiskError::io("what was staged cannot be read", error);
        match dir_fd::stat(&self.staged, name) {
            Ok(None) => Ok(None),
            Ok(Some(_)) => self.examine(name).map(Some).map_err(failed),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Reads a note; `None` if it is incomplete.
    fn plan(&self, name: &str) -> Result<Option<ChangeNote>, DiskError> {
        let failed = |error| DiskError::io("what was staged cannot be read", error);
        let Some(file) = dir_fd::file(&self.staged, name).map_err(|error| failed(error.into()))? else {
            return Ok(None);
        };
        let mut text = Vec::new();
        file.take(NOTE_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
        Ok(serde_json::from_slice(&text).ok())
    }
}
