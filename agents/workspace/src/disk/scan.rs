//! Scan of all served files, and of the omitted names with their reasons.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use patchboard_kernel::digest::Digest;
use patchboard_kernel::files::{self, FilePath};
use rustix::fs::FileType;

use super::error::{DiskError, UnservedReason};
use super::ignore_rules::ActiveRules;
use super::{Contents, DEPTH_MAX, Disk, dir_fd};

/// Names examined per allowed file. Bounds the walk of directories with many names that are not served, like pictures.
const NAMES_PER_FILE: usize = 10;
/// Maximum number of names listed per reason.
const SHOWN_MAX: usize = 10;

/// Result of a scan.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Scan {
    /// Served files.
    pub files: BTreeMap<FilePath, ScannedFile>,
    /// Omitted names, by reason.
    pub left: BTreeMap<UnservedReason, OmittedNames>,
}

/// A file as the scan found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScannedFile {
    /// SHA-256 of the content.
    pub hash: Digest,
    /// Number of lines.
    pub lines: u32,
    /// Size in bytes.
    pub bytes: u64,
}

/// Names omitted for one reason; a directory counts once.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct OmittedNames {
    /// Number of names.
    pub count: u64,
    /// The first of them, at most ten.
    pub first: Vec<String>,
}

/// An entry that a walk visits.
pub(super) enum WalkEntry<'a> {
    /// Directory that the walk enters.
    Directory(&'a str),
    /// File, and the directory that contains it.
    File(FilePath, &'a OwnedFd),
    /// Name that is not served.
    Omitted(String, UnservedReason),
}

/// State of a walk: the rules in force, the remaining names and the visitor.
struct Walk<'a, 'r> {
    rules: ActiveRules<'r>,
    names_left: usize,
    pass: &'a mut dyn FnMut(WalkEntry<'_>) -> Result<(), DiskError>,
}

impl Disk {
    /// Reads all served files.
    pub fn scan(&self) -> Result<Scan, DiskError> {
        self.scan_with(&mut |_, _| {})
    }

    /// Like [`Disk::scan`], and passes the contents of each file to `see`.
    pub(in super::super) fn scan_with(&self, visit: &mut dyn FnMut(&FilePath, &Contents)) -> Result<Scan, DiskError> {
        let mut scan = Scan::default();
        self.walk(&mut |passed| {
            let (name, reason) = match passed {
                WalkEntry::Directory(_) => return Ok(()),
                WalkEntry::Omitted(name, reason) => (name, reason),
                WalkEntry::File(path, parent) => match self.read_in(parent, path.as_str(), path.name()) {
                    Ok(Some(contents)) => {
                        visit(&path, &contents);
                        let lines = files::count(&contents.text);
                        let bytes = u64::try_from(contents.text.len()).expect("an address fits");
                        scan.files.insert(path, ScannedFile { hash: contents.hash, lines, bytes });
                        let is_too_many = scan.files.len() > self.options.max_files;
                        return if is_too_many { Err(self.too_many()) } else { Ok(()) };
                    }
                    // The file was removed after it was listed.
                    Ok(None) => return Ok(()),
                    Err(DiskError::NotServed(not)) => (not.path, not.reason),
                    Err(error) => return Err(error),
                },
            };
            let left = scan.left.entry(reason).or_default();
            left.count += 1;
            if left.first.len() < SHOWN_MAX {
                left.first.push(name);
            }
            Ok(())
        })?;
        Ok(scan)
    }

    fn too_many(&self) -> DiskError {
        DiskError::TooManyFiles { max: self.options.max_files }
    }

    /// Walks the directory in the order of names.
    pub(super) fn walk(&self, pass: &mut dyn FnMut(WalkEntry<'_>) -> Result<(), DiskError>) -> Result<(), DiskError> {
        let names_left = self.options.max_files.saturating_mul(NAMES_PER_FILE);
        let mut walk = Walk { rules: self.rules.active_rules(&self.root)?, names_left, pass };
        self.walk_below(&self.root, "", 0, &mut walk)
    }

    fn walk_below(&self, at: &OwnedFd, above: &str, depth: usize, walk: &mut Walk<'_, '_>) -> Result<(), DiskError> {
        let failed = |error| DiskError::io(format_args!("{above:?} cannot be listed"), error);
        let names = dir_fd::names(at, walk.names_left).map_err(failed)?.ok_or_else(|| self.too_many())?;
        walk.names_left -= names.len();
        for name in names {
            let name = match name.to_str() {
                Ok(name) => format!("{above}{name}"),
                Err(_) => {
                    (walk.pass)(WalkEntry::Omitted(
                        format!("{above}{}", name.to_string_lossy()),
                        UnservedReason::Name,
                    ))?;
                    continue;
                }
            };
            if let Err(reason) = self.step(at, &name, depth, walk)? {
                (walk.pass)(WalkEntry::Omitted(name, reason))?;
            }
        }
        Ok(())
    }

    fn step(
        &self,
        at: &OwnedFd,
        path: &str,
        depth: usize,
        walk: &mut Walk<'_, '_>,
    ) -> Result<Result<(), UnservedReason>, DiskError> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let Some(stat) = dir_fd::stat(at, name).map_err(|error| DiskError::io(path, error))? else { return Ok(Ok(())) };
        let kind = dir_fd::kind(&stat);
        if let Some(reason) = walk.rules.judge(path, kind == FileType::Directory) {
            return Ok(Err(reason));
        }
        let Ok(file) = FilePath::parse(path) else { return Ok(Err(UnservedReason::Name)) };
        match kind {
            FileType::RegularFile => (walk.pass)(WalkEntry::File(file, at)).map(Ok),
            FileType::Directory if depth == DEPTH_MAX => Ok(Err(UnservedReason::TooDeep)),
            FileType::Directory => match self.enter(at.as_fd(), path) {
                Ok(Some(directory)) => {
                    let mark = walk.rules.mark();
                    walk.rules.enter(&directory, path)?;
                    (walk.pass)(WalkEntry::Directory(path))?;
                    self.walk_below(&directory, &format!("{path}/"), depth + 1, walk)?;
                    walk.rules.leave(mark);
                    Ok(Ok(()))
                }
                Ok(None) => Ok(Ok(())),
                Err(DiskError::NotServed(not)) => Ok(Err(not.reason)),
                Err(error) => Err(error),
            },
            FileType::Symlink => Ok(Err(UnservedReason::Symlink)),
            _ => Ok(Err(UnservedReason::NotRegular)),
        }
    }
}
