//! Which names of a directory are served: not git's own, not the workspace's own, not what `.gitignore` or the operator
//! excludes.
//!
//! The rules are read by handles like all else, and anew each time, so that a changed `.gitignore` counts at once. What
//! comes of a text is remembered under its hash.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use patchboard_kernel::digest::{Digest, sha256};
use rustix::io::Errno;

use super::error::{DiskError, Reason};
use super::handle;

/// Where the workspace keeps what is its own.
pub(super) const PRIVATE: &str = ".patchboard";
/// Bytes of a `.gitignore` at most; below a directory with a larger one nothing is served.
const IGNORE_BYTES_MAX: u64 = 256 * 1024;
/// How many `.gitignore` files' rules are remembered.
const REMEMBERED_MAX: usize = 256;

/// What is excluded anywhere, and what has been read of `.gitignore` files.
#[derive(Debug)]
pub(super) struct Rules {
    exclude: Gitignore,
    read: Mutex<BTreeMap<Digest, Arc<Gitignore>>>,
}

/// The rules on the way from the root to a directory.
#[derive(Clone, Debug)]
pub(super) struct Way<'a> {
    rules: &'a Rules,
    /// How long the name of the directory is whose rules they are, its `/` included; later ones overrule earlier ones.
    levels: Vec<(usize, Arc<Gitignore>)>,
}

impl Rules {
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

    /// The way that is still at the root.
    pub(super) fn way(&self, root: impl AsFd) -> Result<Way<'_>, DiskError> {
        let mut way = Way { rules: self, levels: Vec::new() };
        let info = handle::directory(&root, ".git").and_then(|git| handle::directory(git, "info"));
        if let Ok(info) = info {
            way.add(&info, "exclude", 0)?;
        }
        way.add(&root, ".gitignore", 0)?;
        Ok(way)
    }

    fn parse(&self, text: &[u8]) -> Arc<Gitignore> {
        let hash = sha256(text);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = read.get(&hash) {
            return Arc::clone(known);
        }
        let text = String::from_utf8_lossy(text);
        let mut builder = GitignoreBuilder::new(".");
        for line in text.strip_prefix('\u{feff}').unwrap_or(&text).lines() {
            // A line that is no pattern matches nothing, in git too.
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

/// Rules under which nothing is served, for where the real ones cannot be known.
fn everything() -> Gitignore {
    let mut builder = GitignoreBuilder::new(".");
    builder.add_line(None, "*").expect("a star is a pattern");
    builder.build().expect("a star is a pattern")
}

impl Way<'_> {
    /// Goes into a directory whose name is `prefix`, without `/` at its end.
    pub(super) fn enter(&mut self, directory: impl AsFd, prefix: &str) -> Result<(), DiskError> {
        self.add(directory, ".gitignore", prefix.len() + 1)
    }

    /// How many rules there are, to [`Way::leave`] what is entered after this.
    pub(super) fn mark(&self) -> usize {
        self.levels.len()
    }

    pub(super) fn leave(&mut self, mark: usize) {
        self.levels.truncate(mark);
    }

    fn add(&mut self, directory: impl AsFd, name: &str, prefix: usize) -> Result<(), DiskError> {
        let failed = |error| DiskError::io(format_args!("{name} cannot be read"), error);
        // A link is not followed, as git does not.
        let file = match handle::file(directory, name) {
            Err(Errno::NOENT) | Ok(None) => return Ok(()),
            // What is there and may not be read is not the same as no rules.
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

    /// Why the name is not served, if so. The directories above it have been judged before.
    pub(super) fn judge(&self, path: &str, is_directory: bool) -> Option<Reason> {
        let name = path.rsplit('/').next().unwrap_or(path);
        // Also on file systems on which these are the same names.
        if name.eq_ignore_ascii_case(".git") {
            return Some(Reason::Git);
        }
        if name.eq_ignore_ascii_case(PRIVATE) {
            return Some(Reason::Private);
        }
        if self.rules.exclude.matched(path, is_directory).is_ignore() {
            return Some(Reason::Excluded);
        }
        self.levels.iter().rev().find_map(|(prefix, rules)| match rules.matched(&path[*prefix..], is_directory) {
            Match::Ignore(_) => Some(Some(Reason::Ignored)),
            Match::Whitelist(_) => Some(None),
            Match::None => None,
        })?
    }
}
