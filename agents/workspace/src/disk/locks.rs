//! Queued locks on sets of paths, for edits and for commands that declare the files they change.
//!
//! A set is acquired as a whole and in order of request. No caller waits while it holds a part of its set, and none is
//! overtaken by a later overlapping request. Callers with one set each can neither deadlock nor starve. A caller that
//! requests a second set while it holds one may wait for itself; the deadline ends that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use globset::{GlobBuilder, GlobMatcher};
use parking_lot::Mutex;
use patchboard_kernel::files::{FilePath, PATH_BYTES_MAX};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::error::DiskCode;

/// Maximum number of paths in a set.
pub const PATHS_MAX: usize = 1000;
/// Maximum number of patterns in a set.
pub const GLOBS_MAX: usize = 32;
/// Maximum number of sets held or queued.
pub const WAITING_MAX: usize = 256;
/// Longest wait for a lock: longer than any program may run, so that a caller that waits for one program gets its turn.
pub const WAITS_MAX: Duration = Duration::from_secs(660);

/// Set of files to lock, by path or by glob pattern.
#[derive(Clone, Default, Debug)]
pub struct PathSet {
    paths: BTreeSet<FilePath>,
    globs: Vec<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    matcher: GlobMatcher,
    /// Literal prefix of all its matches.
    prefix: String,
}

/// Reasons why a lock was not acquired.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LockError {
    /// Invalid set.
    #[error("{0}")]
    BadSet(String),
    /// Overlapping set still locked at the deadline.
    #[error("{by} has been at work on the same files for {} s: try again later, or work on other files", .held.as_secs())]
    Timeout {
        /// Holder: a program, or the label that the caller of [`Locks::acquire`] gave.
        by: String,
        /// Time since its lock was granted.
        held: Duration,
    },
    /// Full queue.
    #[error("{WAITING_MAX} wait for their turn already: try again later")]
    TooManyWaiting,
}

impl LockError {
    /// Returns the stable code.
    pub fn code(&self) -> DiskCode {
        match self {
            Self::BadSet(_) => DiskCode::BadPathSet,
            Self::Timeout { .. } => DiskCode::LockTimeout,
            Self::TooManyWaiting => DiskCode::TooManyWaiting,
        }
    }
}

impl PathSet {
    /// Creates a set of paths.
    pub fn from_paths(paths: impl IntoIterator<Item = FilePath>) -> Result<Self, LockError> {
        let paths: BTreeSet<FilePath> = paths.into_iter().take(PATHS_MAX + 1).collect();
        if paths.len() > PATHS_MAX {
            return Err(LockError::BadSet(format!("a set has at most {PATHS_MAX} paths")));
        }
        Ok(Self { paths, globs: Vec::new() })
    }

    /// Parses paths and glob patterns: `src/a.py`, `src/*.py`, `src/**`. A `*` does not match a `/`.
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

    /// Returns whether the sets may share a file. Two patterns are disjoint only if neither prefix begins with the
    /// other.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.paths.iter().any(|path| other.contains(path))
            || other.paths.iter().any(|path| self.globs.iter().any(|glob| glob.matcher.is_match(path.as_str())))
            || self.globs.iter().any(|one| other.globs.iter().any(|two| one.may_meet(two)))
    }

    /// Returns whether the set contains a file.
    pub fn contains(&self, path: &FilePath) -> bool {
        self.paths.contains(path) || self.globs.iter().any(|glob| glob.matcher.is_match(path.as_str()))
    }
}

impl Pattern {
    fn may_meet(&self, other: &Self) -> bool {
        self.prefix.starts_with(&other.prefix) || other.prefix.starts_with(&self.prefix)
    }
}

/// Lock queue of one workspace. Cheap to clone.
#[derive(Clone, Default, Debug)]
pub struct Locks {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default, Debug)]
struct Queue {
    next: u64,
    /// In order of request.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    ticket: u64,
    set: PathSet,
    /// Label shown to callers that wait for it.
    by: String,
    /// Start of its wait, or of its lock once granted.
    since: Instant,
    /// Tickets of earlier overlapping entries; the lock is granted when none is left.
    after: BTreeSet<u64>,
    /// Notified when the lock is granted; `None` afterwards.
    turn: Option<oneshot::Sender<()>>,
}

/// A granted lock; dropping it releases the set.
#[derive(Debug)]
#[must_use = "the turn is over when this is dropped"]
pub struct LockGuard {
    queue: Arc<Mutex<Queue>>,
    ticket: u64,
}

impl Locks {
    /// Waits until no earlier request overlaps the set. `by` is the label of the holder in others' timeout errors.
    pub async fn acquire(&self, set: PathSet, by: &str, deadline: Instant) -> Result<LockGuard, LockError> {
        let (turn, come) = oneshot::channel();
        let waiting = {
            let mut queue = self.queue.lock();
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
            LockGuard { queue: Arc::clone(&self.queue), ticket }
        };
        // A caller that gives up, here or by dropping the future, leaves the queue when `waiting` is dropped.
        match timeout_at(deadline, come).await {
            Ok(Ok(())) => Ok(waiting),
            Ok(Err(_)) | Err(_) => Err(self.queue.lock().why(waiting.ticket)),
        }
    }
}

impl Queue {
    /// Builds the timeout error, which names the entry at the head of the chain of waiters.
    fn why(&self, ticket: u64) -> LockError {
        let find = |ticket| self.entries.iter().find(|entry| entry.ticket == ticket);
        let mut at = find(ticket);
        while let Some(before) = at.and_then(|entry| entry.after.first()).and_then(|before| find(*before)) {
            at = Some(before);
        }
        let (by, held) = at.map_or_else(Default::default, |entry| (entry.by.clone(), entry.since.elapsed()));
        LockError::Timeout { by, held }
    }

    /// Grants the lock to all entries that wait for no other.
    fn call(&mut self) {
        for entry in self.entries.iter_mut().filter(|entry| entry.after.is_empty()) {
            if let Some(turn) = entry.turn.take() {
                entry.since = Instant::now();
                // A receiver that is gone is about to leave the queue.
                turn.send(()).ok();
            }
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let mut queue = self.queue.lock();
        queue.entries.retain(|entry| entry.ticket != self.ticket);
        for entry in &mut queue.entries {
            entry.after.remove(&self.ticket);
        }
        queue.call();
    }
}
