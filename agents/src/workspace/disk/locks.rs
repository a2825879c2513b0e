//! Turns for those who change the same files: commands that declare what they touch, and edits.
//!
//! A set of paths is taken whole or not at all, and in the order of asking: nobody waits for a set while holding a part of
//! it, and nobody is overtaken by somebody who wants the same. So there is no deadlock between sets of one each, and
//! nobody waits for ever. Whoever holds a set and asks for a second one may wait for itself; the deadline ends that.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use globset::{GlobBuilder, GlobMatcher};
use patchboard_kernel::files::{FilePath, PATH_BYTES_MAX};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::error::DiskCode;

/// Members of a set at most.
pub const PATHS_MAX: usize = 1000;
/// Patterns of a set at most.
pub const GLOBS_MAX: usize = 32;
/// How many sets are held or waited for at most.
pub const WAITING_MAX: usize = 256;
/// How long it is waited for a turn: longer than any program may run, so that who waits for one comes to its turn.
pub const WAITS_MAX: Duration = Duration::from_secs(660);

/// Files that somebody changes: by name, or by pattern.
#[derive(Clone, Default, Debug)]
pub struct PathSet {
    paths: BTreeSet<FilePath>,
    globs: Vec<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    matcher: GlobMatcher,
    /// What all that it matches begins with.
    prefix: String,
}

/// Why there is no turn.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LockError {
    /// The set cannot be read.
    #[error("{0}")]
    BadSet(String),
    /// Others hold it for too long.
    #[error("{by} has been at work on the same files for {} s: try again later, or work on other files", .held.as_secs())]
    Timeout {
        /// Who: a program, or whoever else said so.
        by: String,
        /// For how long.
        held: Duration,
    },
    /// Too many wait.
    #[error("{WAITING_MAX} wait for their turn already: try again later")]
    TooManyWaiting,
}

impl LockError {
    /// The stable code.
    pub fn code(&self) -> DiskCode {
        match self {
            Self::BadSet(_) => DiskCode::BadPathSet,
            Self::Timeout { .. } => DiskCode::LockTimeout,
            Self::TooManyWaiting => DiskCode::TooManyWaiting,
        }
    }
}

impl PathSet {
    /// Files by name.
    ///
    /// # Errors
    /// There are more than [`PATHS_MAX`].
    pub fn of(paths: impl IntoIterator<Item = FilePath>) -> Result<Self, LockError> {
        let paths: BTreeSet<FilePath> = paths.into_iter().take(PATHS_MAX + 1).collect();
        if paths.len() > PATHS_MAX {
            return Err(LockError::BadSet(format!("a set has at most {PATHS_MAX} paths")));
        }
        Ok(Self { paths, globs: Vec::new() })
    }

    /// Files by name and by pattern, as they are written: `src/a.py`, `src/*.py`, `src/**`. A `*` does not go past a `/`.
    ///
    /// # Errors
    /// There are too many, or one can be neither.
    pub fn parse<'a>(members: impl IntoIterator<Item = &'a str>) -> Result<Self, LockError> {
        let mut set = Self::default();
        for member in members {
            let bad = |error: &dyn std::fmt::Display| LockError::BadSet(format!("{member:?}: {error}"));
            match member.find(['*', '?', '[', ']', '{', '}', '\\']) {
                None => drop(set.paths.insert(FilePath::parse(member).map_err(|error| bad(&error))?)),
                Some(_) if member.len() > PATH_BYTES_MAX => return Err(bad(&"the pattern is too long")),
                Some(end) => {
                    let glob = GlobBuilder::new(member).literal_separator(true).backslash_escape(true).build();
                    let matcher = glob.map_err(|error| bad(&error.kind()))?.compile_matcher();
                    set.globs.push(Pattern { matcher, prefix: member[..end].to_owned() });
                }
            }
            if set.paths.len() > PATHS_MAX || set.globs.len() > GLOBS_MAX {
                let most = format!("a set has at most {PATHS_MAX} paths and {GLOBS_MAX} patterns");
                return Err(LockError::BadSet(most));
            }
        }
        Ok(set)
    }

    /// Whether a file is in both, or may be: of two patterns that is only known if what they begin with differs.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.paths.iter().any(|path| other.contains(path))
            || other.paths.iter().any(|path| self.globs.iter().any(|glob| glob.matcher.is_match(path.as_str())))
            || self.globs.iter().any(|one| other.globs.iter().any(|two| one.may_meet(two)))
    }

    /// Whether a file is in it.
    pub fn contains(&self, path: &FilePath) -> bool {
        self.paths.contains(path) || self.globs.iter().any(|glob| glob.matcher.is_match(path.as_str()))
    }
}

impl Pattern {
    fn may_meet(&self, other: &Self) -> bool {
        self.prefix.starts_with(&other.prefix) || other.prefix.starts_with(&self.prefix)
    }
}

/// The turns of one workspace. Cheap to clone.
#[derive(Clone, Default, Debug)]
pub struct Locks {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default, Debug)]
struct Queue {
    next: u64,
    /// In the order of asking.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    ticket: u64,
    set: PathSet,
    /// Whose it is, for those who wait.
    by: String,
    /// Since when it waits, or has its turn.
    since: Instant,
    /// The tickets of those before it who want some of the same; its turn is when they have gone.
    after: BTreeSet<u64>,
    /// To be told when its turn comes; none if it has.
    turn: Option<oneshot::Sender<()>>,
}

/// A turn; over when it is dropped.
#[derive(Debug)]
#[must_use = "the turn is over when this is dropped"]
pub struct Turn {
    queue: Arc<Mutex<Queue>>,
    ticket: u64,
}

impl Locks {
    /// Waits until nobody who asked before has anything of the set. `by` is whose turn it is, as others are told.
    ///
    /// # Errors
    /// That is not so by the deadline, or too many wait.
    pub async fn acquire(&self, set: PathSet, by: &str, deadline: Instant) -> Result<Turn, LockError> {
        let (turn, come) = oneshot::channel();
        let waiting = {
            let mut queue = lock(&self.queue);
            if queue.entries.len() >= WAITING_MAX {
                return Err(LockError::TooManyWaiting);
            }
            let ticket = queue.next;
            queue.next += 1;
            let before = queue.entries.iter().filter(|entry| entry.set.overlaps(&set));
            let after = before.map(|entry| entry.ticket).collect();
            let (by, since) = (by.to_owned(), Instant::now());
            queue.entries.push(Entry { ticket, set, by, since, after, turn: Some(turn) });
            queue.call();
            Turn { queue: Arc::clone(&self.queue), ticket }
        };
        // Whoever gives up, here or by dropping the future, leaves the queue by dropping `waiting`.
        match timeout_at(deadline, come).await {
            Ok(Ok(())) => Ok(waiting),
            Ok(Err(_)) | Err(_) => Err(lock(&self.queue).why(waiting.ticket)),
        }
    }
}

impl Queue {
    /// Why it is not the turn of this one: who has the turn that it waits for, or that those wait for who are before it.
    fn why(&self, ticket: u64) -> LockError {
        let of = |ticket| self.entries.iter().find(|entry| entry.ticket == ticket);
        let mut at = of(ticket);
        while let Some(before) = at.and_then(|entry| entry.after.first()).and_then(|before| of(*before)) {
            at = Some(before);
        }
        let (by, held) = at.map_or_else(Default::default, |entry| (entry.by.clone(), entry.since.elapsed()));
        LockError::Timeout { by, held }
    }

    /// Tells all whose turn has come.
    fn call(&mut self) {
        for entry in self.entries.iter_mut().filter(|entry| entry.after.is_empty()) {
            if let Some(turn) = entry.turn.take() {
                entry.since = Instant::now();
                // Whoever does not listen any more is about to leave the queue.
                turn.send(()).ok();
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queue = lock(&self.queue);
        queue.entries.retain(|entry| entry.ticket != self.ticket);
        for entry in &mut queue.entries {
            entry.after.remove(&self.ticket);
        }
        queue.call();
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
