//! Commits of what was edited, in the names of those who edited it.
//!
//! Whoever may run `git` at a workspace may look at what is not committed yet, and commit it: files that are served, that
//! the board knows and that it may view, and nothing else. What is committed are the bytes that were found when it was looked
//! (`staging`), and it has been shown to who commits it, as it is (`review`). Each author's files become a commit of their own; who else has a part in them is named there, as the journal
//! knows it (`authors`). What the user has staged stays staged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::coded;
use patchboard_kernel::digest::sha256;
use patchboard_kernel::files::{Entry, FilePath};
use tokio::time::Instant;

pub use self::omissions::Omissions;

use self::authors::{Authors, Histories};
use self::omissions::{Meant, Why};
use self::repository::{Change, Repository};
use self::review::Reviews;
use self::staging::Found;
use super::disk::Disk;
use super::disk::locks::{PathSet, Turn};
use super::programs::ProgramError;
use super::service::{Workspace, WorkspaceError};
use super::session::Author;
use super::worktree::Trees;
use crate::{counted, is_or_are, one_line};

mod authors;
mod objects;
mod omissions;
mod process;
pub(super) mod repository;
mod review;
mod staging;

/// Whoever may run this may commit.
pub const GIT: &str = "git";

/// Characters of a difference that are shown at once, and names of files that are told.
const DIFF_CHARS_MAX: usize = 32_000;
const NAMES_MAX: usize = 100;

/// Of the room for a difference, the part that names have where it does not fit.
const NAMES_PART: usize = 8;

/// The part that what is left out has.
const OMISSIONS_PART: usize = 4;

/// Characters of the names of files that are told at once.
const NAMES_CHARS_MAX: usize = DIFF_CHARS_MAX / NAMES_PART;

/// Characters of the first line of a message.
const SUBJECT_MAX: usize = 200;

/// How long it is waited until nobody changes anything.
const WAITS_MAX: Duration = Duration::from_secs(120);

coded! {
    /// Why nothing was committed.
    GitCode {
        /// The directory is no working tree of git.
        NoRepository = "no_repository",
        /// There is nothing that could be committed; what is left out is named.
        NothingToCommit = "nothing_to_commit",
        /// The message is empty.
        EmptyMessage = "empty_message",
        /// Who would commit has not been shown all of it as it is now, and nothing was committed.
        NotReviewed = "not_reviewed",
        /// Others' work is in the way of a merge, and nothing was merged.
        MergeConflict = "merge_conflict",
        /// git refused.
        GitRefused = "git_refused",
    }
}

/// Why git did not do what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// As it says.
    #[error("{1}")]
    Git(GitCode, String),
    /// It could not be run.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl GitError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Git(code, _) => code.as_str(),
            Self::Program(error) => error.code(),
        }
    }
}

/// What is known to those who use git at one directory.
#[derive(Default)]
pub struct GitNotes {
    /// The working trees that somebody has open.
    pub(super) trees: Trees,
    reviews: Reviews,
    histories: Histories,
}

/// The part of a difference that is wanted, in characters.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Those before it.
    pub skip: usize,
    /// How many it may have.
    pub room: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { skip: 0, room: DIFF_CHARS_MAX }
    }
}

/// A commit that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    /// Its hash.
    pub hash: String,
    /// Who wrote the most of each file in it.
    pub author: String,
    /// Who else wrote something in them.
    pub others: BTreeSet<String>,
    /// The files.
    pub files: Vec<FilePath>,
}

/// What was committed, and what was not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// A commit for each author.
    pub commits: Vec<Commit>,
    /// Files that are left out, whoever's they are.
    pub omissions: Omissions,
}

impl From<WorkspaceError> for GitError {
    fn from(error: WorkspaceError) -> Self {
        Self::Program(error.into())
    }
}

/// What is not committed yet, in the unified form, new files included; of these files and what is below them, or of all. What
/// is shown of it is known as reviewed from then on. What is left out is named at the end.
///
/// # Errors
/// [`GitError`].
pub async fn diff(
    workspace: &Arc<Workspace>,
    who: &Author,
    paths: &[FilePath],
    window: Window,
) -> Result<String, GitError> {
    let mut notes = workspace.git().lock().await;
    let repository = Repository::open(workspace.disk().path(), who.label()).await?;
    let _files = quiet(workspace, who.label()).await?;
    let head = repository.head().await?;
    let base = repository.begin(head.as_deref()).await?;
    let is_asked_for = |path: &FilePath| paths.is_empty() || paths.iter().any(|above| is_within(path, above));
    let may = |path: &FilePath| who.access.may_view(path) && is_asked_for(path);
    let (tree, omissions) = served(workspace, &repository, &base, may).await?;
    let changes = repository.changes(&base, &tree).await?;
    let (skip, room) = (window.skip, window.room.min(DIFF_CHARS_MAX));
    let omitted = match omissions.said() {
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
        // The number that follows is as long as this one at most.
        let told = |next: usize, bytes: u64| {
            format!(
                "\n[{} after this {} not shown: go on with `skip` {next}, or name files in `paths`. {differ}]\n",
                counted(bytes, "byte"),
                is_or_are(bytes)
            )
        };
        let longest = told(skip.saturating_add(room), left_out.saturating_add(text.len() as u64)).chars().count();
        let shown = room.saturating_sub(longest);
        to = byte_at(&text, skip.saturating_add(shown)).max(from);
        note = told(skip + text[from..to].chars().count(), left_out + (text.len() - to) as u64);
    }
    // Where nothing differs it is all that is said.
    let omitted = if from == to { omitted.trim_start() } else { &omitted };
    let shown = format!("{}{omitted}{note}", &text[from..to]);
    notes.reviews.keep(&workspace.board().snapshot().attempts);
    notes.reviews.note(who, &changes, &review::sections(&text, &changes, left_out > 0), from..to);
    Ok(shown)
}

/// Names of files, in so many characters.
fn named<'a>(names: impl ExactSizeIterator<Item = &'a str>, room: usize) -> String {
    let more = if names.len() > NAMES_MAX { " and others" } else { "" };
    let names: Vec<&str> = names.take(NAMES_MAX).collect();
    format!("{}{more}", one_line(&names.join(", "), room))
}

/// Where a character begins, or the text ends.
fn byte_at(text: &str, nth: usize) -> usize {
    text.char_indices().nth(nth).map_or(text.len(), |(at, _)| at)
}

/// Commits what is not committed yet: each author's files in a commit of their own, or only those of one author. What was
/// begun is done to its end, also if nobody waits for it any more.
///
/// # Errors
/// [`GitError`]; commits that were made before stay.
pub async fn commit(
    workspace: &Arc<Workspace>,
    who: &Author,
    message: &str,
    author: Option<&str>,
) -> Result<Committed, GitError> {
    let (subject, body) = message.trim().split_once('\n').unwrap_or((message.trim(), ""));
    let subject = one_line(subject, SUBJECT_MAX);
    if subject.is_empty() {
        return Err(GitError::Git(GitCode::EmptyMessage, "say in `message` what the commit does".to_owned()));
    }
    let message = format!("{subject}\n\n{}\n", body.trim());
    let mut notes = Arc::clone(workspace.git()).lock_owned().await;
    let files = quiet(workspace, who.label()).await?;
    let (workspace, who, author) = (Arc::clone(workspace), who.clone(), author.map(str::to_owned));
    to_its_end(async move {
        let _files = files;
        commit_quietly(&workspace, &mut notes, &who, &message, author.as_deref()).await
    })
    .await
}

/// Does what leaves things half done if it stops in between.
pub(super) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, GitError>> + Send + 'static,
) -> Result<T, GitError> {
    tokio::spawn(work).await.map_err(|error| WorkspaceError::Broken(error.to_string()))?
}

async fn commit_quietly(
    workspace: &Arc<Workspace>,
    notes: &mut GitNotes,
    who: &Author,
    message: &str,
    author: Option<&str>,
) -> Result<Committed, GitError> {
    let repository = Repository::open(workspace.disk().path(), who.label()).await?;
    let mut head = repository.head().await?;
    let base = repository.begin(head.as_deref()).await?;
    let (tree, omissions) = served(workspace, &repository, &base, |path| who.access.may_view(path)).await?;
    notes.histories.read_on(workspace.board()).await.map_err(|error| WorkspaceError::Broken(error.to_string()))?;
    let mut by_author: BTreeMap<String, (BTreeSet<String>, Vec<Change>)> = BTreeMap::new();
    for change in repository.changes(&base, &tree).await? {
        let Authors { first, others } = authors(&notes.histories, &repository, &change).await?;
        let (with, changes) = by_author.entry(first).or_default();
        with.extend(others);
        changes.push(change);
    }
    by_author.retain(|first, _| author.is_none_or(|author| author == first));
    if by_author.is_empty() {
        let of_whom = author.map_or_else(String::new, |author| format!(" of {author}"));
        let nothing = format!("there is nothing{of_whom} to commit");
        let said: Vec<String> = [nothing].into_iter().chain(omissions.said()).collect();
        return Err(GitError::Git(GitCode::NothingToCommit, said.join("; ")));
    }
    let unseen = by_author.values().flat_map(|(_, changes)| changes).filter(|change| !notes.reviews.holds(who, change));
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
        let tree = repository.take_up(&changes).await?;
        let trailers: String =
            others.iter().map(|other| format!("Co-authored-by: {other} <{other}@workspace>\n")).collect();
        let message =
            if trailers.is_empty() { message.to_owned() } else { format!("{}\n\n{trailers}", message.trim_end()) };
        let hash = conclude(&repository, head.as_deref(), &tree, &changes, &author, &message).await?;
        head = Some(hash.clone());
        notes.reviews.forget(who, &changes);
        let files = changes.into_iter().map(|change| change.path).collect();
        commits.push(Commit { hash, author, others, files });
    }
    Ok(Committed { commits, omissions })
}

/// Whose a change is.
async fn authors(histories: &Histories, repository: &Repository, change: &Change) -> Result<Authors, GitError> {
    // What is committed of it matters only where there is somebody to tell apart.
    let committed = match histories.has_several(&change.path) {
        true => repository.content_before(change).await?.map(|bytes| sha256(&bytes)),
        false => None,
    };
    Ok(histories.authors(&change.path, committed))
}

/// Commits what an author has done in a working tree of its own, if there is anything; returns the branch's last commit, and
/// what is left out.
pub(super) async fn commit_tree(
    disk: &Arc<Disk>,
    author: &str,
    message: &str,
) -> Result<(String, Omissions), GitError> {
    let repository = Repository::open(disk.path(), author).await?;
    let head = repository.head().await?;
    let base = repository.begin(head.as_deref()).await?;
    let (of, mut found) = (Arc::clone(disk), Found::by(&repository));
    let found = on_disk(move || {
        of.scan_with(&mut |path, contents| found.see(path, contents)).map_err(WorkspaceError::from)?;
        Ok(found)
    });
    let (tree, omissions) = staging::stage(&repository, &base, disk, found.await?, |_, _| Meant::Yes).await?;
    let changes = repository.changes(&base, &tree).await?;
    let work = match head {
        Some(head) if changes.is_empty() => head,
        head => conclude(&repository, head.as_deref(), &tree, &changes, author, message).await?,
    };
    Ok((work, omissions))
}

/// Makes a commit of a tree, and moves the branch there.
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
    // In this order: what is staged and not committed yet is what the files hold in any case.
    repository.tell_index(changes).await?;
    repository.move_head(head, &hash, message.lines().next().unwrap_or_default()).await?;
    Ok(hash)
}

/// Waits until nobody changes anything through the workspace.
pub(super) async fn quiet(workspace: &Arc<Workspace>, runner: &str) -> Result<Turn, GitError> {
    let all = PathSet::parse(["**"]).map_err(WorkspaceError::from)?;
    let by = format!("{runner}, at work with git,");
    Ok(workspace.locks().acquire(all, &by, Instant::now() + WAITS_MAX).await.map_err(WorkspaceError::from)?)
}

/// The tree of the files of a workspace that are served, as the board knows them once it was told what others have changed,
/// and that may be seen by who asks. Others are as they were; those that are left out though they may differ are told.
async fn served(
    workspace: &Arc<Workspace>,
    repository: &Repository,
    base: &str,
    may: impl Fn(&FilePath) -> bool,
) -> Result<(String, Omissions), GitError> {
    let (found, by_others) = workspace.rescan_with(Found::by(repository), Found::see).await?;
    let untaken: BTreeSet<&FilePath> = by_others.untaken.iter().flat_map(|not_taken| &not_taken.paths).collect();
    let state = workspace.state();
    let meant = |path: &FilePath, hash| match Entry::of(&state, path).map(|entry| entry.hash) {
        _ if !may(path) => Meant::No,
        Some(known) if known == hash => Meant::Yes,
        _ if untaken.contains(path) => Meant::Not(Why::Untaken),
        // Such as is not served and never was.
        None if hash.is_none() => Meant::No,
        _ => Meant::Not(Why::Changed),
    };
    staging::stage(repository, base, workspace.disk(), found, meant).await
}

fn is_within(path: &FilePath, above: &FilePath) -> bool {
    Path::new(path.as_str()).starts_with(above.as_str())
}

async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, GitError> + Send + 'static,
) -> Result<T, GitError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| WorkspaceError::Broken(error.to_string()))?
}
