//! Commits of what was edited, in the names of those who edited it.
//!
//! Whoever may run `git` at a workspace may look at what is not committed yet, and commit it: files that are served, that
//! the board knows and that it may view, and nothing else. Each author's files become a commit of their own: the author of a
//! file is whoever wrote its last version, as the board knows it. What the user has staged stays staged.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::coded;
use patchboard_kernel::files::{EXTERNAL, Entry, FilePath};
use tokio::time::Instant;

use self::repository::{Change, Repository};
use super::disk::Disk;
use super::disk::locks::{PathSet, Turn};
use super::programs::ProgramError;
use super::service::{Workspace, WorkspaceError};
use super::session::Author;
use crate::one_line;

pub(super) mod repository;

/// Whoever may run this may commit.
pub const GIT: &str = "git";

/// Characters of a difference that are shown, and names of files that are told where there is more.
const DIFF_CHARS_MAX: usize = 32_000;
const NAMES_MAX: usize = 100;

/// Characters of the first line of a message.
const SUBJECT_MAX: usize = 200;

/// How long it is waited until nobody changes anything.
const WAITS_MAX: Duration = Duration::from_secs(120);

coded! {
    /// Why nothing was committed.
    GitCode {
        /// The directory is no working tree of git.
        NoRepository = "no_repository",
        /// Everything is committed.
        NothingToCommit = "nothing_to_commit",
        /// The message is empty.
        EmptyMessage = "empty_message",
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

/// A commit that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    /// Its hash.
    pub hash: String,
    /// Who wrote what is in it.
    pub author: String,
    /// The files.
    pub files: Vec<FilePath>,
}

impl From<WorkspaceError> for GitError {
    fn from(error: WorkspaceError) -> Self {
        Self::Program(error.into())
    }
}

/// What is not committed yet, in the unified form, new files included; of these files and what is below them, or of all.
///
/// # Errors
/// [`GitError`].
pub async fn diff(workspace: &Arc<Workspace>, who: &Author, paths: &[FilePath]) -> Result<String, GitError> {
    let _turn = workspace.git().lock().await;
    let _files = quiet(workspace, who.label()).await?;
    let repository = Repository::open(workspace.disk().path(), who.label())?;
    let head = repository.head().await?;
    let base = repository.begin(head.as_deref()).await?;
    let is_asked_for = |path: &FilePath| paths.is_empty() || paths.iter().any(|above| is_within(path, above));
    let files = served(workspace, &repository, &base, |path| who.access.may_view(path) && is_asked_for(path)).await?;
    let tree = files.stage(&repository).await?;
    let (text, left_out) = repository.unified(&base, &tree, DIFF_CHARS_MAX * 4).await?;
    let mut shown: String = text.chars().take(DIFF_CHARS_MAX).collect();
    let cut = left_out + (text.len() - shown.len()) as u64;
    if cut > 0 {
        let changes = repository.changes(&base, &tree).await?;
        let names: Vec<&str> = changes.iter().take(NAMES_MAX).map(|change| change.path.as_str()).collect();
        let more = if changes.len() > NAMES_MAX { " and others" } else { "" };
        shown.push_str(&format!(
            "\n[{cut} bytes after this are not shown: name files in `paths`. {} files differ: {}{more}]\n",
            changes.len(),
            names.join(", ")
        ));
    }
    Ok(shown)
}

/// Commits what is not committed yet: each author's files in a commit of their own, or only those of one author.
///
/// # Errors
/// [`GitError`]; commits that were made before stay.
pub async fn commit(
    workspace: &Arc<Workspace>,
    who: &Author,
    message: &str,
    author: Option<&str>,
) -> Result<Vec<Commit>, GitError> {
    let (subject, body) = message.trim().split_once('\n').unwrap_or((message.trim(), ""));
    let subject = one_line(subject, SUBJECT_MAX);
    if subject.is_empty() {
        return Err(GitError::Git(GitCode::EmptyMessage, "say in `message` what the commit does".to_owned()));
    }
    let message = format!("{subject}\n\n{}\n", body.trim());
    let _turn = workspace.git().lock().await;
    let _files = quiet(workspace, who.label()).await?;
    let repository = Repository::open(workspace.disk().path(), who.label())?;
    let mut head = repository.head().await?;
    let base = repository.begin(head.as_deref()).await?;
    let files = served(workspace, &repository, &base, |path| who.access.may_view(path)).await?;
    let tree = files.stage(&repository).await?;
    let state = workspace.state();
    let mut by_author: BTreeMap<String, Vec<Change>> = BTreeMap::new();
    for change in repository.changes(&base, &tree).await? {
        let writer = Entry::of(&state, &change.path).map_or_else(|| EXTERNAL.to_owned(), |entry| entry.writer);
        by_author.entry(writer).or_default().push(change);
    }
    by_author.retain(|writer, _| author.is_none_or(|author| author == writer));
    if by_author.is_empty() {
        let of_whom = author.map_or_else(String::new, |author| format!(" of {author}"));
        return Err(GitError::Git(GitCode::NothingToCommit, format!("there is nothing{of_whom} to commit")));
    }
    let mut commits = Vec::new();
    for (author, changes) in by_author {
        repository.begin(head.as_deref()).await?;
        let tree = repository.take_up(&changes).await?;
        let hash = conclude(&repository, head.as_deref(), &tree, &changes, &author, &message).await?;
        head = Some(hash.clone());
        commits.push(Commit { hash, author, files: changes.into_iter().map(|change| change.path).collect() });
    }
    Ok(commits)
}

/// Commits what an author has done in a working tree of its own, if there is anything; returns the branch's last commit.
pub(super) async fn commit_tree(disk: &Arc<Disk>, author: &str, message: &str) -> Result<String, GitError> {
    let repository = Repository::open(disk.path(), author)?;
    let head = repository.head().await?;
    let base = repository.begin(head.as_deref()).await?;
    let known = repository.files(&base).await?;
    let of = Arc::clone(disk);
    let files = on_disk(move || {
        let there: Vec<FilePath> = of.scan().map_err(WorkspaceError::from)?.files.into_keys().collect();
        let gone = gone(&of, known.keys().filter_map(|name| FilePath::parse(name).ok()));
        Ok(Files::new(there, gone, &known))
    })
    .await?;
    let tree = files.stage(&repository).await?;
    let changes = repository.changes(&base, &tree).await?;
    match head {
        Some(head) if changes.is_empty() => Ok(head),
        head => conclude(&repository, head.as_deref(), &tree, &changes, author, message).await,
    }
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

/// Waits until nobody changes anything through the workspace, and tells the board of what others have changed.
pub(super) async fn quiet(workspace: &Arc<Workspace>, runner: &str) -> Result<Turn, GitError> {
    let all = PathSet::parse(["**"]).map_err(WorkspaceError::from)?;
    let by = format!("{runner}, at work with git,");
    let turn = workspace.locks().acquire(all, &by, Instant::now() + WAITS_MAX).await.map_err(WorkspaceError::from)?;
    workspace.rescan().await?;
    Ok(turn)
}

/// Files that may be looked at and committed.
struct Files {
    there: Vec<FilePath>,
    gone: Vec<FilePath>,
}

impl Files {
    /// Without those of other repositories that this one links to.
    fn new(there: Vec<FilePath>, gone: Vec<FilePath>, known: &BTreeMap<String, bool>) -> Self {
        let links: Vec<&str> = known.iter().filter(|(_, is_own)| !**is_own).map(|(name, _)| name.as_str()).collect();
        let is_own = |path: &FilePath| !links.iter().any(|link| Path::new(path.as_str()).starts_with(link));
        let own = |paths: Vec<FilePath>| paths.into_iter().filter(is_own).collect();
        Self { there: own(there), gone: own(gone) }
    }

    async fn stage(&self, repository: &Repository) -> Result<String, GitError> {
        repository.stage(self.there.iter().map(FilePath::as_str), self.gone.iter().map(FilePath::as_str)).await
    }
}

/// The files of a workspace that are served, as the board knows them, and that may be seen by who asks.
async fn served(
    workspace: &Arc<Workspace>,
    repository: &Repository,
    base: &str,
    may: impl Fn(&FilePath) -> bool,
) -> Result<Files, GitError> {
    let (known, state) = (repository.files(base).await?, workspace.state());
    let disk = Arc::clone(workspace.disk());
    let scan = on_disk(move || Ok(disk.scan().map_err(WorkspaceError::from)?)).await?;
    let is_known = |path: &FilePath, hash| Entry::of(&state, path).is_some_and(|entry| entry.hash == hash);
    let found = scan.files.iter().filter(|(path, found)| may(path) && is_known(path, Some(found.hash)));
    let there: Vec<FilePath> = found.map(|(path, _)| path.clone()).collect();
    let committed = known.keys().filter_map(|name| FilePath::parse(name).ok());
    let deleted: Vec<FilePath> = committed.filter(|path| may(path) && is_known(path, None)).collect();
    let disk = Arc::clone(workspace.disk());
    let gone = on_disk(move || Ok(gone(&disk, deleted))).await?;
    Ok(Files::new(there, gone, &known))
}

/// Those of which there is nothing, and that would be served if there were.
fn gone(disk: &Disk, paths: impl IntoIterator<Item = FilePath>) -> Vec<FilePath> {
    paths.into_iter().filter(|path| matches!(disk.read(path), Ok(None))).collect()
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
