//! Two-phase replacement and removal of files: the change is made durable in `.patchboard/staged`, then moved in place.
//!
//! Between the phases the caller commits the change. The content in place is then exchanged with the new one atomically
//! and examined afterwards. Unexpected content is an external write and is kept in `.patchboard/displaced`. No write
//! can be lost, because there is no window between a check and a write.
//!
//! A change with the id `I` has up to three files in `.patchboard/staged`. `I.new` is the new content, or after an
//! exchange the previous one. `I.old` is the content taken out, for a removal or where exchange is not supported.
//! `I.json` is the note that describes the change, written last.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};

use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::FilePath;
use rustix::fs::{Access, AtFlags, FileType, Gid, Mode, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::error::{DiskError, UnservedReason};
use super::{Disk, PathCheck, dir_fd};

/// Attempts at a replacement while external changes interfere with the name.
const TRIES_MAX: usize = 100;

/// Maximum size of external content that is hashed, in bytes.
const HASHED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A durable change of one file that is not in place yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StagedChange {
    pub(super) id: String,
    pub(super) plan: ChangeNote,
}

/// Description of a change, stored as its note.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeNote {
    pub(super) path: FilePath,
    /// Hash of the content expected in place; `None` if no file is expected.
    pub(super) from: Option<Digest>,
    /// Hash of the new content; `None` for a removal.
    pub(super) to: Option<Digest>,
}

impl StagedChange {
    /// Returns the path of the file.
    pub fn path(&self) -> &FilePath {
        &self.plan.path
    }

    /// Returns the SHA-256 of the new content; `None` for a removal.
    pub fn hash(&self) -> Option<Digest> {
        self.plan.to
    }

    pub(super) fn new_slot(&self) -> String {
        format!("{}.new", self.id)
    }

    pub(super) fn old_slot(&self) -> String {
        format!("{}.old", self.id)
    }

    pub(super) fn note(&self) -> String {
        format!("{}.json", self.id)
    }
}

/// Result of applying a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ApplyOutcome {
    /// Applied over the expected content, or the new content was in place already.
    Done,
    /// Applied; the file had been removed externally.
    Missing,
    /// Applied; external content was replaced and is kept.
    Displaced(ExternalContent),
    /// Removal not applied, because the file has external content.
    Kept(ExternalContent),
}

/// Final outcome of a staged change.
#[derive(Debug)]
pub enum StagedOutcome {
    /// Wanted, and applied now or before.
    Applied(ApplyOutcome),
    /// Not wanted, and discarded.
    Discarded,
    /// Wanted but impossible. The new content is kept in `.patchboard/displaced`.
    Failed(DiskError),
}

/// Content written externally.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternalContent {
    /// SHA-256 of the content; `None` if it is not a regular file or is too large to hash.
    pub hash: Option<Digest>,
    /// The content, if it is text that would be served.
    pub text: Option<String>,
    /// Name in `.patchboard/displaced`, if it was moved there. It is the original inode, so a program that still has it
    /// open writes into the kept file.
    pub kept: Option<String>,
}

/// Method of putting new content in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Swap {
    /// Atomic exchange.
    Exchange,
    /// Take the current file out, then link the new one if the name is still free. Nothing is lost, but for a moment
    /// the name does not exist.
    TakeAndLink,
}

impl Swap {
    /// Probes the file system for support of atomic exchange.
    pub(super) fn find(staged: impl AsFd) -> io::Result<Self> {
        let names = [(); 2].map(|()| random().map(|random| format!("probe-{random}")));
        let [one, other] = names;
        let (one, other) = (one?, other?);
        dir_fd::new_file(&staged, &one, 0o600)?;
        dir_fd::new_file(&staged, &other, 0o600)?;
        let exchanged =
            rustix::fs::renameat_with(&staged, one.as_str(), &staged, other.as_str(), RenameFlags::EXCHANGE);
        dir_fd::unlink(&staged, &one)?;
        dir_fd::unlink(&staged, &other)?;
        match exchanged {
            Ok(()) => Ok(Self::Exchange),
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Ok(Self::TakeAndLink),
            Err(error) => Err(error.into()),
        }
    }
}

impl Disk {
    /// Makes a change durable: the new `text`, or a removal if `None`. `from` is the hash of the current content.
    /// Fails if the file is not served, would not be with this text, or cannot be written, as far as that is known
    /// in advance.
    pub fn stage(&self, path: &FilePath, from: Option<Digest>, text: Option<&str>) -> Result<StagedChange, DiskError> {
        let parent = self.parent(path, PathCheck::Rules)?;
        self.takes(path)?;
        if let Some(parent) = parent {
            match dir_fd::stat(&parent, path.name())
                .map_err(|error| failed(path, error))?
                .map(|stat| dir_fd::kind(&stat))
            {
                None | Some(FileType::RegularFile) => {}
                Some(FileType::Symlink) => return Err(DiskError::not_served(path.as_str(), UnservedReason::Symlink)),
                Some(_) => return Err(DiskError::not_served(path.as_str(), UnservedReason::NotRegular)),
            }
        }
        if let Some(reason) = text.and_then(|text| self.unserved_reason(text.as_bytes())) {
            return Err(DiskError::not_served(path.as_str(), reason));
        }
        let to = text.map(|text| sha256(text.as_bytes()));
        let random = random().map_err(|error| failed(path, error))?;
        let id = to.map_or_else(|| format!("gone-{random}"), |hash| format!("{hash}-{random}"));
        let staged = StagedChange { id, plan: ChangeNote { path: path.clone(), from, to } };
        self.write_staged(&staged, text).map_err(|error| {
            // A partial stage is useless, and may be filling the disk.
            self.discard(&staged).ok();
            failed(path, error)
        })?;
        Ok(staged)
    }

    /// Checks for obstacles before the change is recorded: overlong names, a directory without write permission,
    /// another file system.
    fn takes(&self, path: &FilePath) -> Result<(), DiskError> {
        let mut at = self.root.try_clone().map_err(|error| failed(path, error))?;
        let mut missing = path.as_str();
        for (end, _) in path.as_str().match_indices('/') {
            let Some(directory) = self.enter(&at, &path.as_str()[..end])? else { break };
            (at, missing) = (directory, &path.as_str()[end + 1..]);
        }
        // Only the file system knows which names it accepts.
        for name in missing.split('/') {
            match dir_fd::stat(&at, name) {
                Ok(_) => {}
                Err(Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ) => {
                    return Err(DiskError::not_served(path.as_str(), UnservedReason::Name));
                }
                Err(error) => return Err(failed(path, error)),
            }
        }
        let access = Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::accessat(&at, ".", access, AtFlags::EACCESS).map_err(|error| failed(path, error))?;
        // A bind mount has the same device number. `rename` reports `EXDEV` before it notices that the source does not
        // exist.
        let nothing = format!("probe-{}", random().map_err(|error| failed(path, error))?);
        match rustix::fs::renameat(&self.staged, &nothing, &at, &nothing) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::XDEV) => Err(DiskError::not_served(path.as_str(), UnservedReason::Outside)),
            Err(error) => Err(failed(path, error)),
        }
    }

    fn write_staged(&self, staged: &StagedChange, text: Option<&str>) -> io::Result<()> {
        if let Some(text) = text {
            let mut file = dir_fd::new_file(&self.staged, &staged.new_slot(), 0o644)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
        }
        let mut note = dir_fd::new_file(&self.staged, &staged.note(), 0o600)?;
        note.write_all(&serde_json::to_vec(&staged.plan)?)?;
        note.sync_all()?;
        Ok(rustix::fs::fsync(&self.staged)?)
    }

    /// Discards a staged change.
    pub fn discard(&self, staged: &StagedChange) -> Result<(), DiskError> {
        // The note goes first: without it, recovery never acts on the change again.
        for name in [staged.note(), staged.new_slot(), staged.old_slot()] {
            dir_fd::unlink(&self.staged, &name).map_err(|error| failed(staged.path(), error))?;
        }
        Ok(())
    }

    /// Applies a staged change. After an error the call can be retried, and [`Disk::recover`] retries it too, unless
    /// the change is discarded.
    /// Fails if a directory is in the place of the file, or a parent is not a directory.
    pub fn apply(&self, staged: &StagedChange) -> Result<ApplyOutcome, DiskError> {
        // As in recovery: an earlier call may have failed after the exchange.
        let put = match self.finish(staged, true)? {
            StagedOutcome::Applied(put) => put,
            StagedOutcome::Discarded => ApplyOutcome::Done,
            StagedOutcome::Failed(error) => return Err(error),
        };
        self.discard(staged)?;
        Ok(put)
    }

    /// [`Disk::apply`] without the final cleanup, for new content.
    pub(super) fn place(&self, staged: &StagedChange) -> Result<ApplyOutcome, DiskError> {
        let path = staged.path();
        let fails = |error: Errno| failed(path, error);
        let (name, new) = (path.name(), staged.new_slot());
        let mut put = None;
        for _ in 0..TRIES_MAX {
            let parent = self.parent_or_new(path)?;
            match dir_fd::stat(&parent, name).map_err(fails)? {
                None => match self.move_if_absent(&new, &parent, name) {
                    Ok(()) => {
                        let missing =
                            if staged.plan.from.is_some() { ApplyOutcome::Missing } else { ApplyOutcome::Done };
                        return self.durable(&parent, path).map(|()| put.unwrap_or(missing));
                    }
                    // The name was created, or its directory removed, externally.
                    Err(Errno::EXIST | Errno::NOENT) => continue,
                    Err(error) => return Err(fails(error)),
                },
                Some(stat) if dir_fd::kind(&stat) == FileType::Directory => {
                    return Err(DiskError::not_served(path.as_str(), UnservedReason::NotRegular));
                }
                Some(stat) => self.keep_mode(&stat, &new).map_err(fails)?,
            }
            let (slot, swapped) = match self.swap {
                Swap::Exchange => {
                    let flags = RenameFlags::EXCHANGE;
                    (new.clone(), rustix::fs::renameat_with(&self.staged, new.as_str(), &parent, name, flags))
                }
                Swap::TakeAndLink => {
                    (staged.old_slot(), rustix::fs::renameat(&parent, name, &self.staged, staged.old_slot().as_str()))
                }
            };
            match swapped {
                Ok(()) => {}
                // The file was removed between the check and the exchange.
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(fails(error)),
            }
            let found = self.displace_foreign(&staged.plan, &slot)?;
            if self.swap == Swap::Exchange {
                return self.durable(&parent, path).map(|()| found);
            }
            put = put.filter(|put| *put != ApplyOutcome::Done).or(Some(found));
        }
        Err(DiskError::Busy { path: path.to_string() })
    }

    /// [`Disk::apply`] without the final cleanup, for a removal.
    pub(super) fn apply_removal(&self, staged: &StagedChange) -> Result<ApplyOutcome, DiskError> {
        let path = staged.path();
        let fails = |error: Errno| failed(path, error);
        let Some(parent) = self.parent(path, PathCheck::Nothing)? else { return Ok(ApplyOutcome::Missing) };
        match dir_fd::stat(&parent, path.name()).map_err(fails)? {
            None => return Ok(ApplyOutcome::Missing),
            Some(stat) if dir_fd::kind(&stat) == FileType::Directory => {
                return Err(DiskError::not_served(path.as_str(), UnservedReason::NotRegular));
            }
            Some(_) => {}
        }
        match rustix::fs::renameat(&parent, path.name(), &self.staged, staged.old_slot().as_str()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(ApplyOutcome::Missing),
            Err(error) => return Err(fails(error)),
        }
        self.put_back(staged, &parent)
    }

    /// Finishes a removal after the file was taken out: external content is put back.
    pub(super) fn put_back(&self, staged: &StagedChange, parent: &OwnedFd) -> Result<ApplyOutcome, DiskError> {
        let (path, old) = (staged.path(), staged.old_slot());
        let found = self.examine(&old).map_err(|error| failed(path, error))?;
        let put = if found.hash.is_some() && found.hash == staged.plan.from {
            ApplyOutcome::Done
        } else {
            match self.move_if_absent(&old, parent, path.name()) {
                Ok(()) => ApplyOutcome::Kept(found),
                Err(Errno::EXIST) => ApplyOutcome::Displaced(self.displace(&old, found)?),
                Err(error) => return Err(failed(path, error)),
            }
        };
        self.durable(parent, path).map(|()| put)
    }

    /// Examines the content taken out, and keeps it if it is neither the expected one nor the new content itself.
    pub(super) fn displace_foreign(&self, plan: &ChangeNote, slot: &str) -> Result<ApplyOutcome, DiskError> {
        let found = self.examine(slot).map_err(|error| failed(&plan.path, error))?;
        if found.hash.is_some() && (found.hash == plan.from || found.hash == plan.to) {
            return Ok(ApplyOutcome::Done);
        }
        self.displace(slot, found).map(ApplyOutcome::Displaced)
    }

    /// Reads the content of a staging slot.
    pub(super) fn examine(&self, slot: &str) -> io::Result<ExternalContent> {
        let mut found = ExternalContent { hash: None, text: None, kept: None };
        let Some(file) = dir_fd::file(&self.staged, slot)? else { return Ok(found) };
        let mut bytes = Vec::new();
        file.take(HASHED_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if u64::try_from(bytes.len()).is_ok_and(|read| read <= HASHED_BYTES_MAX) {
            found.hash = Some(sha256(&bytes));
        }
        let refused = self.unserved_reason(&bytes);
        found.text = String::from_utf8(bytes).ok().filter(|_| refused.is_none());
        Ok(found)
    }

    /// Moves a slot's content to `.patchboard/displaced`, never overwriting a file there.
    pub(super) fn displace(&self, slot: &str, found: ExternalContent) -> Result<ExternalContent, DiskError> {
        let fails = |error: io::Error| DiskError::io("what others have written cannot be kept", error);
        let random = random().map_err(fails)?;
        let names = match found.hash {
            Some(hash) => [hash.to_string(), format!("{hash}-{random}")],
            None => [format!("unread-{random}"), format!("unread-{random}-")],
        };
        for name in names {
            match self.move_if_absent(slot, &self.displaced, &name) {
                Ok(()) => {
                    rustix::fs::fsync(&self.displaced).map_err(|error| fails(error.into()))?;
                    return Ok(ExternalContent { kept: Some(name), ..found });
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(fails(error.into())),
            }
        }
        Err(fails(io::ErrorKind::AlreadyExists.into()))
    }

    /// Moves the content of a slot to a name that must not exist.
    pub(super) fn move_if_absent(&self, slot: &str, to: &OwnedFd, name: &str) -> Result<(), Errno> {
        let from = &self.staged;
        if self.swap == Swap::Exchange {
            return rustix::fs::renameat_with(from, slot, to, name, RenameFlags::NOREPLACE);
        }
        match rustix::fs::linkat(from, slot, to, name, AtFlags::empty()) {
            Ok(()) => dir_fd::unlink(from, slot),
            // No hard links: only on such a file system is there a window between check and move.
            Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS) => match dir_fd::stat(to, name)? {
                Some(_) => Err(Errno::EXIST),
                None => rustix::fs::renameat(from, slot, to, name),
            },
            Err(error) => Err(error),
        }
    }

    /// Gives the new content the permissions of the replaced file, and its owner where the process may set it.
    fn keep_mode(&self, stat: &Stat, new: &str) -> Result<(), Errno> {
        if dir_fd::kind(stat) != FileType::RegularFile {
            return Ok(());
        }
        let file = dir_fd::file(&self.staged, new)?.ok_or(Errno::NOENT)?;
        let own = rustix::fs::fstat(&file)?;
        if (own.st_uid, own.st_gid) != (stat.st_uid, stat.st_gid) {
            let (owner, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
            rustix::fs::fchown(&file, Some(owner), Some(group)).or_else(|error| match error {
                Errno::PERM => Ok(()),
                error => Err(error),
            })?;
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.st_mode) & Mode::from_raw_mode(0o777))
    }

    /// Opens the directory of a file and creates missing parents.
    fn parent_or_new(&self, path: &FilePath) -> Result<OwnedFd, DiskError> {
        let mut at = self.root.try_clone().map_err(|error| failed(path, error))?;
        for (end, _) in path.as_str().match_indices('/') {
            let prefix = &path.as_str()[..end];
            at = match self.enter(&at, prefix)? {
                Some(directory) => directory,
                None => {
                    let name = prefix.rsplit('/').next().unwrap_or(prefix);
                    dir_fd::new_directory(&at, name, 0o755).map_err(|error| failed(path, error))?;
                    self.enter(&at, prefix)?.ok_or_else(|| DiskError::Busy { path: prefix.to_owned() })?
                }
            };
        }
        Ok(at)
    }

    fn durable(&self, parent: &OwnedFd, path: &FilePath) -> Result<(), DiskError> {
        rustix::fs::fsync(parent).and_then(|()| rustix::fs::fsync(&self.staged)).map_err(|error| failed(path, error))
    }
}

fn failed(path: &FilePath, error: impl Into<io::Error>) -> DiskError {
    DiskError::io(format_args!("{path} cannot be written"), error)
}

/// Returns a random suffix that distinguishes files of the same content.
fn random() -> io::Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}
