//! Rules for the names that are served. Excluded are git's data, the workspace's own data, and the patterns of
//! `.gitignore` and of the operator.
//!
//! Rules are read by handle, like files, and again for each access, so a changed `.gitignore` applies at once. Parsed
//! rules are cached by the hash of their text.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::fd::AsFd;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use parking_lot::Mutex;
use patchboard_kernel::digest::{Digest, sha256};
use rustix::io::Errno;

use super::dir_fd;
use super::error::{DiskError, UnservedReason};

/// Name of the workspace's private directory.
pub(super) const PRIVATE: &str = ".patchboard";
/// Maximum size of a `.gitignore` in bytes; nothing below a directory with a larger one is served.
const IGNORE_BYTES_MAX: u64 = 256 * 1024;
/// Maximum number of cached `.gitignore` files.
const REMEMBERED_MAX: usize = 256;

/// The operator's exclusions, and the cache of parsed `.gitignore` files.
#[derive(Debug)]
pub(super) struct IgnoreRules {
    exclude: Gitignore,
    read: Mutex<BTreeMap<Digest, Arc<Gitignore>>>,
}

/// Rules in force from the root down to a directory.
#[derive(Clone, Debug)]
pub(super) struct ActiveRules<'a> {
    rules: &'a IgnoreRules,
    /// Length of the directory's path, with its `/`, and its rules; later entries take precedence.
    levels: Vec<(usize, Arc<Gitignore>)>,
}

impl IgnoreRules {
    pub(super) fn new(exclude: &[String]) -> Result<Self, DiskError> {
        let mut builder = GitignoreBuilder::new(".");
        let bad =
            |glob: &str, error: &ignore::Error| DiskError::Exclude { glob: glob.into(), message: error.to_string() };
        for glob in exclude {
            builder.add_line(None, glob).map_err(|error| bad(glob, &error))?;
        }
        let exclude = builder.build().map_err(|error| bad(&exclude.join(" "), &error))?;
        Ok(Self { exclude, read: Mutex::default() })
    }

    /// Returns the rules in force at the root.
    pub(super) fn active_rules(&self, root: impl AsFd) -> Result<ActiveRules<'_>, DiskError> {
        let mut rules = ActiveRules { rules: self, levels: Vec::new() };
        let info = dir_fd::open_dir(&root, ".git").and_then(|git| dir_fd::open_dir(git, "info"));
        if let Ok(info) = info {
            rules.add(&info, "exclude", 0)?;
        }
        rules.add(&root, ".gitignore", 0)?;
        Ok(rules)
    }

    fn parse(&self, text: &[u8]) -> Arc<Gitignore> {
        let hash = sha256(text);
        let mut read = self.read.lock();
        if let Some(known) = read.get(&hash) {
            return Arc::clone(known);
        }
        let text = String::from_utf8_lossy(text);
        let mut builder = GitignoreBuilder::new(".");
        for line in text.strip_prefix('\u{feff}').unwrap_or(&text).lines() {
            // An invalid pattern matches nothing, as in git.
            drop(builder.add_line(None, line));
        }
        let rules = Arc::new(builder.build().unwrap_or_else(|_| everything()));
        if read.len() >= REMEMBERED_MAX {
            read.clear();
        }
        read.insert(hash, Arc::clone(&rules));
        rules
    }
}

/// Rules that exclude everything, used where the real ones cannot be read.
fn everything() -> Gitignore {
    let mut builder = GitignoreBuilder::new(".");
    builder.add_line(None, "*").expect("a star is a pattern");
    builder.build().expect("a star is a pattern")
}

impl ActiveRules<'_> {
    /// Enters a directory named `prefix`, without a trailing `/`.
    pub(super) fn enter(&mut self, directory: impl AsFd, prefix: &str) -> Result<(), DiskError> {
        self.add(directory, ".gitignore", prefix.len() + 1)
    }

    /// Returns the current number of rules, to [`ActiveRules::leave`] directories entered later.
    pub(super) fn mark(&self) -> usize {
        self.levels.len()
    }

    pub(super) fn leave(&mut self, mark: usize) {
        self.levels.truncate(mark);
    }

    fn add(&mut self, directory: impl AsFd, name: &str, prefix: usize) -> Result<(), DiskError> {
        let failed = |error| DiskError::io(format_args!("{name} cannot be read"), error);
        // Links are not followed, as in git.
        let file = match dir_fd::file(directory, name) {
            Err(Errno::NOENT) | Ok(None) => return Ok(()),
            // An unreadable file does not mean that there are no rules.
            Err(Errno::ACCESS | Errno::PERM) => {
                self.levels.push((prefix, Arc::new(everything())));
                return Ok(());
            }
            Err(error) => return Err(failed(error.into())),
            Ok(Some(file)) => file,
        };
        let mut text = Vec::new();
        file.take(IGNORE_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
        let is_whole = u64::try_from(text.len()).is_ok_and(|read| read <= IGNORE_BYTES_MAX);
        let rules = if is_whole { self.rules.parse(&text) } else { Arc::new(everything()) };
        self.levels.push((prefix, rules));
        Ok(())
    }

    /// Returns why the name is not served, if so. Its parent directories must have been judged before.
    pub(super) fn judge(&self, path: &str, is_directory: bool) -> Option<UnservedReason> {
        let name = path.rsplit('/').next().unwrap_or(path);
        // On case-insensitive file systems these are the same name.
        if name.eq_ignore_ascii_case(".git") {
            return Some(UnservedReason::Git);
        }
        if name.eq_ignore_ascii_case(PRIVATE) {
            return Some(UnservedReason::Private);
        }
        if self.rules.exclude.matched(path, is_directory).is_ignore() {
            return Some(UnservedReason::Excluded);
        }
        self.levels.iter().rev().find_map(|(prefix, rules)| match rules.matched(&path[*prefix..], is_directory) {
            Match::Ignore(_) => Some(Some(UnservedReason::Ignored)),
            Match::Whitelist(_) => Some(None),
            Match::None => None,
        })?
    }
}
