//! Commits of what was edited, in the names of those who edited it.
//!
//! Whoever may run `git` at a workspace may look at what is not committed yet, and commit it. Each author's files become a
//! commit of their own: the author of a file is whoever wrote its last version, as the board knows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use patchboard_kernel::coded;
use patchboard_kernel::files::{EXTERNAL, Entry, FilePath};

use super::programs::{ProgramError, Ran, Runner, run};
use super::service::Workspace;
use crate::config::Program;
use crate::one_line;

/// Whoever may run this may commit.
pub const GIT: &str = "git";

/// What a repository's own configuration would run is not run: it may be anybody's.
const COMMAND_LINE: [&str; 13] = [
    GIT,
    "-c",
    "safe.bareRepository=explicit",
    "-c",
    "core.attributesFile=/dev/null",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "commit.gpgSign=false",
    "-c",
    "gc.auto=0",
];

/// Characters of a difference that are shown.
const DIFF_CHARS_MAX: usize = 32_000;

/// Files that are added to a commit at once.
const ADDED_AT_ONCE: usize = 32;

/// Characters of the first line of a message.
const SUBJECT_MAX: usize = 200;

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

/// What is not committed yet, in the unified form, new files included; of these files, or of all.
///
/// # Errors
/// [`GitError`].
pub async fn diff(workspace: &Arc<Workspace>, label: &str, paths: &[FilePath]) -> Result<String, GitError> {
    let _turn = workspace.git().lock().await;
    // New files are told of like others.
    let names = paths.iter().map(FilePath::as_str);
    git(workspace, label, ["add", "--intent-to-add", "--all", "--"].into_iter().chain(all(paths))).await?;
    let told = git(
        workspace,
        label,
        ["diff", "--no-color", "--no-ext-diff", "--no-textconv", "HEAD", "--"].into_iter().chain(names),
    )
    .await?;
    let mut text: String = told.stdout.chars().take(DIFF_CHARS_MAX).collect();
    if text.len() < told.stdout.len() {
        text.push_str("\n[the rest is not shown: name files]\n");
    }
    Ok(text)
}

/// Commits what is not committed yet: each author's files in a commit of their own, or only those of one author.
///
/// # Errors
/// [`GitError`]; commits that were made before stay.
pub async fn commit(
    workspace: &Arc<Workspace>,
    label: &str,
    message: &str,
    author: Option<&str>,
) -> Result<Vec<Commit>, GitError> {
    let _turn = workspace.git().lock().await;
    let (subject, body) = message.trim().split_once('\n').unwrap_or((message.trim(), ""));
    let subject = one_line(subject, SUBJECT_MAX);
    if subject.is_empty() {
        return Err(GitError::Git(GitCode::EmptyMessage, "say in `message` what the commit does".to_owned()));
    }
    let message = format!("{subject}\n\n{}", body.trim());
    let state = workspace.state();
    let mut by_author: BTreeMap<String, Vec<FilePath>> = BTreeMap::new();
    for path in uncommitted(workspace, label).await? {
        let writer = Entry::of(&state, &path).map_or_else(|| EXTERNAL.to_owned(), |entry| entry.writer);
        by_author.entry(writer).or_default().push(path);
    }
    by_author.retain(|writer, _| author.is_none_or(|author| author == writer));
    if by_author.is_empty() {
        let of_whom = author.map_or_else(String::new, |author| format!(" of {author}"));
        return Err(GitError::Git(GitCode::NothingToCommit, format!("there is nothing{of_whom} to commit")));
    }
    let mut commits = Vec::new();
    for (author, files) in by_author {
        let names: Vec<&str> = files.iter().map(FilePath::as_str).collect();
        git(workspace, label, ["reset", "--quiet"]).await?;
        for some in names.chunks(ADDED_AT_ONCE) {
            git(workspace, label, ["add", "--all", "--"].into_iter().chain(some.iter().copied())).await?;
        }
        let signed = format!("--author={author} <{author}@workspace>");
        git(workspace, label, ["commit", "--quiet", "--no-verify", "--message", &message, &signed]).await?;
        let hash = git(workspace, label, ["rev-parse", "HEAD"]).await?.stdout.trim().to_owned();
        commits.push(Commit { hash, author, files });
    }
    Ok(commits)
}

/// The files that are not as the last commit has them.
async fn uncommitted(workspace: &Arc<Workspace>, label: &str) -> Result<Vec<FilePath>, GitError> {
    let status = ["status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all"];
    let told = git(workspace, label, status).await?.stdout;
    // Two letters and a space before each name.
    Ok(told.split('\0').filter_map(|entry| FilePath::parse(entry.get(3..)?).ok()).collect())
}

fn all(paths: &[FilePath]) -> impl Iterator<Item = &str> {
    let everything = paths.is_empty().then_some(".");
    everything.into_iter().chain(paths.iter().map(FilePath::as_str))
}

/// Runs git where it changes nothing that is served.
pub(super) async fn git<'a>(
    workspace: &Arc<Workspace>,
    label: &str,
    arguments: impl IntoIterator<Item = &'a str>,
) -> Result<Ran, GitError> {
    asked(workspace, label, arguments.into_iter().map(str::to_owned).collect(), Vec::new()).await
}

/// Runs git in a working tree of the repository's.
pub(super) async fn git_in<'a>(
    workspace: &Arc<Workspace>,
    label: &str,
    tree: &str,
    arguments: impl IntoIterator<Item = &'a str>,
) -> Result<Ran, GitError> {
    let git_dir = format!("--git-dir={tree}/.git");
    let work_tree = format!("--work-tree={tree}");
    let place = ["-C".to_owned(), tree.to_owned(), git_dir, work_tree];
    let arguments = place.into_iter().chain(arguments.into_iter().map(str::to_owned));
    asked(workspace, label, arguments.collect(), Vec::new()).await
}

/// Runs git where it may change every file.
pub(super) async fn git_that_changes<'a>(
    workspace: &Arc<Workspace>,
    label: &str,
    arguments: impl IntoIterator<Item = &'a str>,
) -> Result<Ran, GitError> {
    asked(workspace, label, arguments.into_iter().map(str::to_owned).collect(), vec!["**".to_owned()]).await
}

async fn asked(
    workspace: &Arc<Workspace>,
    label: &str,
    arguments: Vec<String>,
    changes: Vec<String>,
) -> Result<Ran, GitError> {
    let mut program = Program::new(COMMAND_LINE.map(str::to_owned).to_vec());
    (program.arguments, program.changes) = (true, changes);
    // Whose repository it is, is known by its place alone, and nothing asks for anything.
    let email = format!("{label}@workspace");
    let env = [
        ("GIT_COMMITTER_NAME", label),
        ("GIT_COMMITTER_EMAIL", &email),
        ("GIT_AUTHOR_NAME", label),
        ("GIT_AUTHOR_EMAIL", &email),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_PAGER", "cat"),
    ];
    // A repository is what the operator made one, not what somebody has written files for.
    let root = workspace.disk().path();
    if !root.join(".git").exists() {
        let message = "the directory is no working tree of git: it has no .git of its own";
        return Err(GitError::Git(GitCode::NoRepository, message.to_owned()));
    }
    let place = ["--git-dir=.git", "--work-tree=.", "--literal-pathspecs"].map(str::to_owned);
    let arguments: Vec<String> = place.into_iter().chain(arguments).collect();
    let ran = run(workspace, GIT, &program, &arguments, Runner { label, env: &env }).await?;
    if ran.exit == Some(0) {
        return Ok(ran);
    }
    let why = one_line(&ran.stderr, 500);
    let code = match why.contains("not a git repository") {
        true => GitCode::NoRepository,
        false => GitCode::GitRefused,
    };
    Err(GitError::Git(code, why))
}
