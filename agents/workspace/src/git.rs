//! Commits of agents' edits, in the names of their authors.
//!
//! An agent with the grant to run `git` may see and commit uncommitted changes. These are limited to served files that
//! the board knows and that the agent may view. A commit contains the bytes found by the scan (`staging`), and the
//! committer must have been shown exactly these (`review`). Each author's files become a separate commit; co-authors
//! are named in it, as recorded in the journal (`authors`). Changes that the user has staged remain staged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::digest::sha256;
use patchboard_kernel::files::{FileEntry, FilePath};
use serde::Serialize;
use tokio::time::Instant;

pub use self::omissions::Omissions;

use self::authors::{Authors, Histories};
use self::change::Change;
use self::error::{GitCode, GitError};
use self::message_limits::{DIFF_CHARS_MAX, NAMES_CHARS_MAX, NAMES_PART, named};
use self::omissions::{IncludeDecision, OmissionReason};
use self::repository::Repository;
use self::staging::{ScannedFiles, on_disk};
use self::state::GitState;
use super::disk::Disk;
use super::disk::locks::{LockGuard, PathSet};
use super::edit_author::EditAuthor;
use super::service::{Workspace, WorkspaceError};
use patchboard_kernel::text::{counted, is_or_are, one_line};

mod authors;
mod change;
pub mod error;
mod message_limits;
mod objects;
mod omissions;
mod process;
pub(super) mod repository;
mod review;
mod staging;
pub mod state;

/// Share of the room for the list of omitted files (1/4).
const OMISSIONS_PART: usize = 4;

/// Maximum characters of the first line of a commit message.
const SUBJECT_MAX: usize = 200;

/// Longest wait for the lock on all files.
const WAITS_MAX: Duration = Duration::from_secs(120);

/// Section of a diff to show, in characters.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Number of characters to skip.
    pub skip: usize,
    /// Maximum number of characters to show.
    pub room: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { skip: 0, room: DIFF_CHARS_MAX }
    }
}

/// A new commit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Commit {
    /// Hash of the commit.
    pub hash: String,
    /// Main author of every file in it.
    pub author: String,
    /// Co-authors of these files.
    pub others: BTreeSet<String>,
    /// Files of the commit.
    pub files: Vec<FilePath>,
}

/// Result of a commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitResult {
    /// Commits, one per author.
    pub commits: Vec<Commit>,
    /// Omitted files of all authors.
    pub omissions: Omissions,
}

/// Returns the uncommitted changes as a unified diff, new files included, below `paths` or of all files if that is
/// empty. The part shown counts as reviewed by the caller. Omitted files are named at the end.
pub async fn diff(
    workspace: &Arc<Workspace>,
    caller: &EditAuthor,
    paths: &[FilePath],
    window: Window,
) -> Result<String, GitError> {
    let mut state = workspace.git.lock().await;
    let repository = Repository::open(workspace.disk().path(), caller.label()).await?;
    let _files = lock_all_files(workspace, caller.label()).await?;
    let head = repository.head().await?;
    let base = repository.begin(head.as_deref()).await?;
    let is_asked_for = |path: &FilePath| paths.is_empty() || paths.iter().any(|above| is_within(path, above));
    let may = |path: &FilePath| caller.access.may_view(path) && is_asked_for(path);
    let (tree, omissions) = build_tree(workspace, &repository, &base, may).await?;
    let changes = repository.changes(&base, &tree).await?;
    let (skip, room) = (window.skip, window.room.min(DIFF_CHARS_MAX));
    let omitted = match omissions.messages() {
        said if said.is_empty() => String::new(),
        said => format!("\n[{}]\n", one_line(&said.join("; "), room / OMISSIONS_PART)),
    };
    let room = room.saturating_sub(omitted.chars().count());
    let (text, left_out) = repository.unified(&base, &tree, &[], skip.saturating_add(room).saturating_mul(4)).await?;
    let (from, mut to) = (byte_at(&text, skip), byte_at(&text, skip.saturating_add(room)));
    let mut note = String::new();
    if left_out > 0 || to < text.len() || (from == to && from > 0) {
        let names = named(changes.iter().map(|change| change.path.as_str()), room / NAMES_PART);
        let differ = match changes.len() {
            1 => format!("1 file differs: {names}"),
            count => format!("{count} files differ: {names}"),
        };
        // Note about the rest. Room for it is reserved with upper bounds of both numbers.
        let render_note = |next: usize, bytes: u64| {
            format!(
                "\n[{} after this {} not shown: go on with `skip` {next}, or name files in `paths`. {differ}]\n",
                counted(bytes, "byte"),
                is_or_are(bytes)
            )
        };
        let longest =
            render_note(skip.saturating_add(room), left_out.saturating_add(text.len() as u64)).chars().count();
        let shown = room.saturating_sub(longest);
        to = byte_at(&text, skip.saturating_add(shown)).max(from);
        note = render_note(skip + text[from..to].chars().count(), left_out + (text.len() - to) as u64);
    }
    // Without a difference the output begins with the omissions.
    let omitted = if from == to { omitted.trim_start() } else { &omitted };
    let shown = format!("{}{omitted}{note}", &text[from..to]);
    state.reviews.keep(&workspace.board().status().attempts);
    state.reviews.note(caller, &changes, &review::sections(&text, &changes, left_out > 0), from..to);
    Ok(shown)
}

/// Returns the byte offset of a character, or the length of the text.
fn byte_at(text: &str, nth: usize) -> usize {
    text.char_indices().nth(nth).map_or(text.len(), |(at, _)| at)
}

/// Commits the uncommitted changes, one commit per author, or those of `author` alone. Runs to completion even if the
/// caller is dropped.
/// Commits made before an error remain.
pub async fn commit(
    workspace: &Arc<Workspace>,
    caller: &EditAuthor,
    message: &str,
    author: Option<&str>,
) -> Result<CommitResult, GitError> {
    let (subject, body) = message.trim().split_once('\n').unwrap_or((message.trim(), ""));
    let subject = one_line(subject, SUBJECT_MAX);
    if subject.is_empty() {
        return Err(GitError::Git(GitCode::EmptyMessage, "say in `message` what the commit does".to_owned()));
    }
    let message = format!("{subject}\n\n{}\n", body.trim());
    let mut state = Arc::clone(&workspace.git).lock_owned().await;
    let files = lock_all_files(workspace, caller.label()).await?;
    let (workspace, caller, author) = (Arc::clone(workspace), caller.clone(), author.map(str::to_owned));
    run_to_completion(async move {
        let _files = files;
        commit_locked(&workspace, &mut state, &caller, &message, author.as_deref()).await
    })
    .await
}

/// Runs work to completion that would leave an inconsistent state if it stopped halfway.
pub(super) async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, GitError>> + Send + 'static,
) -> Result<T, GitError> {
    tokio::spawn(work).await.map_err(WorkspaceError::broken)?
}

async fn commit_locked(
    workspace: &Arc<Workspace>,
    state: &mut GitState,
    caller: &EditAuthor,
    message: &str,
    author: Option<&str>,
) -> Result<CommitResult, GitError> {
    let repository = Repository::open(workspace.disk().path(), caller.label()).await?;
    let mut head = repository.head().await?;
    let base = repository.begin(head.as_deref()).await?;
    let (tree, omissions) = build_tree(workspace, &repository, &base, |path| caller.access.may_view(path)).await?;
    state.histories.read_on(workspace.board()).await.map_err(WorkspaceError::broken)?;
    let mut by_author: BTreeMap<String, (BTreeSet<String>, Vec<Change>)> = BTreeMap::new();
    for change in repository.changes(&base, &tree).await? {
        let Authors { first, others } = authors(&state.histories, &repository, &change).await?;
        let (with, changes) = by_author.entry(first).or_default();
        with.extend(others);
        changes.push(change);
    }
    by_author.retain(|first, _| author.is_none_or(|author| author == first));
    if by_author.is_empty() {
        let of_author = author.map_or_else(String::new, |author| format!(" of {author}"));
        let nothing = format!("there is nothing{of_author} to commit");
        let messages: Vec<String> = [nothing].into_iter().chain(omissions.messages()).collect();
        return Err(GitError::Git(GitCode::NothingToCommit, messages.join("; ")));
    }
    let unseen =
        by_author.values().flat_map(|(_, changes)| changes).filter(|change| !state.reviews.holds(caller, change));
    let unseen: Vec<&str> = unseen.map(|change| change.path.as_str()).collect();
    if !unseen.is_empty() {
        let names = named(unseen.into_iter(), NAMES_CHARS_MAX);
        let message = format!(
            "nothing was committed: `diff` has not shown you these files, or not wholly, or they have changed since: {names}"
        );
        return Err(GitError::Git(GitCode::NotReviewed, message));
    }
    let mut commits = Vec::new();
    for (author, (mut others, changes)) in by_author {
        others.remove(&author);
        repository.begin(head.as_deref()).await?;
        let tree = repository.stage_changes(&changes).await?;
        let trailers: String =
            others.iter().map(|other| format!("Co-authored-by: {other} <{other}@workspace>\n")).collect();
        let message =
            if trailers.is_empty() { message.to_owned() } else { format!("{}\n\n{trailers}", message.trim_end()) };
        let hash = conclude(&repository, head.as_deref(), &tree, &changes, &author, &message).await?;
        head = Some(hash.clone());
        state.reviews.forget(caller, &changes);
        let files = changes.into_iter().map(|change| change.path).collect();
        commits.push(Commit { hash, author, others, files });
    }
    Ok(CommitResult { commits, omissions })
}

async fn authors(histories: &Histories, repository: &Repository, change: &Change) -> Result<Authors, GitError> {
    // The committed content is needed only to distinguish several authors.
    let committed = match histories.has_several(&change.path) {
        true => repository.content_before(change).await?.map(|bytes| sha256(&bytes)),
        false => None,
    };
    Ok(histories.authors(&change.path, committed))
}

/// Commits an author's changes in its own working tree, if there are any. Returns the branch's last commit and the
/// omitted files.
pub(super) async fn commit_tree(
    disk: &Arc<Disk>,
    author: &str,
    message: &str,
) -> Result<(String, Omissions), GitError> {
    let repository = Repository::open(disk.path(), author).await?;
    let head = repository.head().await?;
    let base = repository.begin(head.as_deref()).await?;
    let (of, mut found) = (Arc::clone(disk), ScannedFiles::for_repository(&repository));
    let found = on_disk(move || {
        of.scan_with(&mut |path, contents| found.see(path, contents)).map_err(WorkspaceError::from)?;
        Ok(found)
    });
    let (tree, omissions) = staging::stage(&repository, &base, disk, found.await?, |_, _| IncludeDecision::Yes).await?;
    let changes = repository.changes(&base, &tree).await?;
    let work = match head {
        Some(head) if changes.is_empty() => head,
        head => conclude(&repository, head.as_deref(), &tree, &changes, author, message).await?,
    };
    Ok((work, omissions))
}

/// Creates a commit for a tree and moves the branch to it.
async fn conclude(
    repository: &Repository,
    head: Option<&str>,
    tree: &str,
    changes: &[Change],
    author: &str,
    message: &str,
) -> Result<String, GitError> {
    let parents: Vec<&str> = head.into_iter().collect();
    let hash = repository.commit(tree, &parents, author, message).await?;
    // The index goes first: if the second step fails, the staged entries still equal the files.
    repository.update_user_index(changes).await?;
    repository.move_head(head, &hash, message.lines().next().unwrap_or_default()).await?;
    Ok(hash)
}

pub(super) async fn lock_all_files(workspace: &Arc<Workspace>, runner: &str) -> Result<LockGuard, GitError> {
    let all = PathSet::parse(["**"]).map_err(WorkspaceError::from)?;
    let by = format!("{runner}, at work with git,");
    Ok(workspace.locks.acquire(all, &by, Instant::now() + WAITS_MAX).await.map_err(WorkspaceError::from)?)
}

/// Builds a tree of the served files that `may` admits, as the board knows them after a rescan. Other files keep their
/// base content; those that may differ are listed as omitted.
async fn build_tree(
    workspace: &Arc<Workspace>,
    repository: &Repository,
    base: &str,
    may: impl Fn(&FilePath) -> bool,
) -> Result<(String, Omissions), GitError> {
    let (found, by_others) = workspace.rescan_with(ScannedFiles::for_repository(repository), ScannedFiles::see).await?;
    let rejected: BTreeSet<&FilePath> = by_others.rejected.iter().flat_map(|not_taken| &not_taken.paths).collect();
    let state = workspace.state();
    let decide = |path: &FilePath, hash| match FileEntry::load(&state, path).map(|entry| entry.hash) {
        _ if !may(path) => IncludeDecision::No,
        Some(known) if known == hash => IncludeDecision::Yes,
        _ if rejected.contains(path) => IncludeDecision::Omit(OmissionReason::Rejected),
        // A file that is not served and was never known to the board.
        None if hash.is_none() => IncludeDecision::No,
        _ => IncludeDecision::Omit(OmissionReason::Changed),
    };
    staging::stage(repository, base, workspace.disk(), found, decide).await
}

fn is_within(path: &FilePath, above: &FilePath) -> bool {
    Path::new(path.as_str()).starts_with(above.as_str())
}
