//! What a crash has left undone.

use std::io::Read as _;
use std::os::fd::OwnedFd;

use patchboard_kernel::digest::Digest;
use patchboard_kernel::files::FilePath;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::error::DiskError;
use super::replace::{Look, Plan, Put, Staged};
use super::{Ask, Disk, handle};

/// Bytes of the note beside what is staged, at most: a name in JSON, and two hashes.
const NOTE_BYTES_MAX: u64 = 16 * 1024;

/// What was done after a crash.
#[derive(Debug, Default)]
pub struct Recovery {
    /// What was found whole.
    pub changes: Vec<Recovered>,
    /// How many files were thrown away that belong to nothing whole.
    pub strays: usize,
}

/// A change that was staged and of which the end was not seen.
#[derive(Debug)]
pub struct Recovered {
    /// The file.
    pub path: FilePath,
    /// SHA-256 of what was to be in it; none: it was to go.
    pub hash: Option<Digest>,
    /// What was done.
    pub outcome: Outcome,
}

/// What was done with a change in the end.
#[derive(Debug)]
pub enum Outcome {
    /// It shall be, and was made now, or was made already.
    Put(Put),
    /// It shall not be, or not any more.
    Discarded,
    /// It shall be and cannot: what was to be in the file is kept in `.patchboard/displaced`.
    Refused(DiskError),
}

impl Disk {
    /// Makes the changes that were staged and are what `expected` says of their files, and throws away all others. To be
    /// called before anything else is staged.
    ///
    /// # Errors
    /// The directory cannot be read or written; then it may be called again.
    pub fn recover(&self, expected: impl Fn(&FilePath) -> Option<Digest>) -> Result<Recovery, DiskError> {
        let failed = |error| DiskError::io("what was staged cannot be read", error);
        let names = handle::names(&self.staged, usize::MAX).map_err(failed)?.unwrap_or_default();
        let mut recovery = Recovery::default();
        for name in &names {
            let Some(id) = name.to_str().ok().and_then(|name| name.strip_suffix(".json")) else { continue };
            let Some(plan) = self.plan(&format!("{id}.json"))? else { continue };
            let staged = Staged { id: id.to_owned(), plan };
            let outcome = self.settle(&staged, expected(staged.path()) == staged.hash())?;
            recovery.changes.push(Recovered { path: staged.path().clone(), hash: staged.hash(), outcome });
        }
        // What is left has no note: it was never whole, or is done with.
        for name in handle::names(&self.staged, usize::MAX).map_err(failed)?.unwrap_or_default() {
            match rustix::fs::unlinkat(&self.staged, &name, AtFlags::empty()) {
                // A directory is nothing that was staged; it stays.
                Ok(()) | Err(Errno::ISDIR | Errno::PERM) => {}
                Err(error) => return Err(failed(error)),
            }
            recovery.strays += 1;
        }
        Ok(recovery)
    }

    /// Brings a change that was staged to its end, wherever it was left: makes it, or throws it away if it is not wanted.
    ///
    /// # Errors
    /// The directory cannot be read or written; then it may be called again.
    pub fn settle(&self, staged: &Staged, is_wanted: bool) -> Result<Outcome, DiskError> {
        let outcome = match self.finish(staged, is_wanted) {
            Ok(outcome) => outcome,
            Err(error) if error.may_pass() => return Err(error),
            Err(error) => {
                self.set_aside(staged)?;
                Outcome::Refused(error)
            }
        };
        self.discard(staged)?;
        Ok(outcome)
    }

    /// Keeps what lies staged for a change that cannot be made. What was taken out for it goes back.
    fn set_aside(&self, staged: &Staged) -> Result<(), DiskError> {
        let (new, old) = (staged.new_slot(), staged.old_slot());
        if let Some(found) = self.slot(&new)? {
            self.displace(&new, found)?;
        }
        if let Some(found) = self.slot(&old)? {
            let parent = self.parent(staged.path(), Ask::Nothing).ok().flatten();
            let is_back =
                parent.is_some_and(|parent| self.put_where_nothing_is(&old, &parent, staged.path().name()).is_ok());
            if !is_back {
                self.displace(&old, found)?;
            }
        }
        Ok(())
    }

    /// Does what is left to do of a change, wherever it was left.
    pub(super) fn finish(&self, staged: &Staged, is_wanted: bool) -> Result<Outcome, DiskError> {
        let plan = &staged.plan;
        if plan.to.is_none() {
            return self.finish_removal(staged, is_wanted);
        }
        let mut put = None;
        if self.slot(&staged.old_slot())?.is_some() {
            put = Some(as_put(self.look(plan, &staged.old_slot())?));
        }
        match self.slot(&staged.new_slot())? {
            // The content that was staged: it has not been put, or is there already.
            Some(found) if found.hash == plan.to => {
                if !is_wanted {
                    return Ok(Outcome::Discarded);
                }
                let is_there = match self.parent(&plan.path, Ask::Nothing)? {
                    Some(parent) => self.is(&parent, &plan.path, plan.to),
                    None => false,
                };
                let now = if is_there { Put::Done } else { self.place(staged)? };
                Ok(Outcome::Put(match (put, now) {
                    // It was this that had taken away what was there.
                    (Some(put), Put::Missing | Put::Done) => put,
                    (_, now) => now,
                }))
            }
            // What was in place, exchanged with what was staged.
            Some(_) => self.look(plan, &staged.new_slot()).map(|look| Outcome::Put(as_put(look))),
            None => Ok(Outcome::Put(put.unwrap_or(Put::Done))),
        }
    }

    fn finish_removal(&self, staged: &Staged, is_wanted: bool) -> Result<Outcome, DiskError> {
        let plan = &staged.plan;
        if let Some(found) = self.slot(&staged.old_slot())? {
            return match self.parent(&plan.path, Ask::Nothing) {
                Ok(Some(parent)) => self.put_back(staged, &parent).map(Outcome::Put),
                _ if found.hash.is_some() && found.hash == plan.from => Ok(Outcome::Put(Put::Done)),
                _ => self.displace(&staged.old_slot(), found).map(|found| Outcome::Put(Put::Displaced(found))),
            };
        }
        if is_wanted { self.take_away(staged).map(Outcome::Put) } else { Ok(Outcome::Discarded) }
    }

    /// Whether a file has this in it.
    fn is(&self, parent: &OwnedFd, path: &FilePath, hash: Option<Digest>) -> bool {
        self.read_in(parent, path.as_str(), path.name()).ok().flatten().map(|contents| contents.hash) == hash
    }

    fn slot(&self, name: &str) -> Result<Option<super::Found>, DiskError> {
        let failed = |error| DiskError::io("what was staged cannot be read", error);
        match handle::stat(&self.staged, name) {
            Ok(None) => Ok(None),
            Ok(Some(_)) => self.examine(name).map(Some).map_err(failed),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Reads a note; none if it is not whole.
    fn plan(&self, name: &str) -> Result<Option<Plan>, DiskError> {
        let failed = |error| DiskError::io("what was staged cannot be read", error);
        let Some(file) = handle::file(&self.staged, name).map_err(|error| failed(error.into()))? else {
            return Ok(None);
        };
        let mut text = Vec::new();
        file.take(NOTE_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
        Ok(serde_json::from_slice(&text).ok())
    }
}

fn as_put(look: Look) -> Put {
    match look {
        Look::Expected => Put::Done,
        Look::Foreign(found) => Put::Displaced(found),
    }
}
