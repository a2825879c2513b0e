//! A working tree for one author: nothing is checked while it is edited, and everything when it is merged.
//!
//! For comparison with a shared directory. Each author who may not run `git` has a tree and a branch of its own, below
//! `.patchboard` of the directory; the board knows of nothing there. Whoever may run `git` works in the directory itself,
//! and merges the trees into it, one after the other.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use patchboard_kernel::blueprint::Isolation;
use patchboard_kernel::files::{FilePath, count};
use serde_json::{Value, json};

use super::disk::{Disk, DiskError, DiskOptions};
use super::git::{self, GIT, GitError};
use super::service::{Workspace, WorkspaceError};
use super::session::{Author, Told};
use super::text::command::Command;
use super::text::edit::{EditCommand, EditError, apply};
use super::text::excerpt::{excerpt, whole};
use super::text::hunks::blocks;
use super::text::search::{Pattern, Search, SearchLimits};

/// Characters of a file that are shown at once.
const VIEW_CHARS_MAX: usize = 64_000;
/// Lines that are shown on either side of what an edit wrote, and characters of that.
const AROUND: u32 = 4;
const SNIPPET_CHARS_MAX: usize = 8_000;

/// What the branches of authors begin with.
const BRANCH: &str = "workspace";

/// A working tree of an author's own.
pub struct Worktree {
    author: Author,
    disk: Arc<Disk>,
}

/// Why nothing comes of a command.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error("{1}")]
    Other(&'static str, String),
}

impl From<Trouble> for Told {
    fn from(trouble: Trouble) -> Self {
        match &trouble {
            Trouble::Disk(error) => Self::wrong(error.code().as_str(), error.to_string()),
            Trouble::Edit(error) => Self::wrong(error.code.as_str(), error.message.clone()),
            Trouble::Other(code, message) => Self::wrong(code, message.clone()),
        }
    }
}

impl Worktree {
    /// Whether an author works in a tree of its own.
    pub fn is_for(author: &Author, workspace: &Workspace) -> bool {
        let access = author.access.spec();
        let merges = access.run.iter().any(|name| name == GIT);
        workspace.spec().isolation == Isolation::Worktree && !access.edit.is_empty() && !merges
    }

    /// The tree of an author: the one from before, or a new one of what is committed.
    ///
    /// # Errors
    /// The directory is no repository, or git refuses.
    pub async fn open(workspace: &Arc<Workspace>, author: Author) -> Result<Self, GitError> {
        let (root, branch) = place(workspace, author.label());
        if !root.is_dir() {
            if let Some(above) = root.parent() {
                fs::create_dir_all(above).map_err(|error| broken(&error))?;
            }
            let path = root.display().to_string();
            git::git(workspace, author.label(), ["worktree", "prune"]).await?;
            git::git(workspace, author.label(), ["worktree", "add", "--quiet", "-B", &branch, &path, "HEAD"]).await?;
        }
        let disk = tokio::task::spawn_blocking(move || Disk::open(root, DiskOptions::default())).await;
        let disk = disk
            .map_err(|error| broken(&error))?
            .map_err(|error| GitError::Program(WorkspaceError::from(error).into()))?;
        Ok(Self { author, disk: Arc::new(disk) })
    }

    /// Does what a command says.
    pub async fn run(&self, arguments: Value) -> Told {
        let command = match Command::parse(arguments) {
            Ok(command) => command,
            Err(error) => return Trouble::from(error).into(),
        };
        let (disk, access) = (Arc::clone(&self.disk), self.author.access.clone());
        let done = tokio::task::spawn_blocking(move || {
            let may = |path: &FilePath, is_edit: bool| match is_edit {
                true => access.may_edit(path),
                false => access.may_view(path),
            };
            done(&disk, &may, command)
        })
        .await;
        match done {
            Ok(done) => done.unwrap_or_else(Told::from),
            Err(error) => Told::wrong("internal", error.to_string()),
        }
    }
}

/// Merges what an author has done in a tree of its own into the directory, all or nothing.
///
/// # Errors
/// [`GitError`]; with `merge_conflict` nothing is merged.
pub async fn merge(workspace: &Arc<Workspace>, label: &str, author: &str) -> Result<String, GitError> {
    let _turn = workspace.git().lock().await;
    let (root, branch) = place(workspace, author);
    let path = root.display().to_string();
    let no_tree = || {
        let message = format!("{author} has no working tree");
        Err(GitError::Git(git::GitCode::NoRepository, message))
    };
    let is_name = !author.is_empty() && author.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
    if !is_name || !root.is_dir() {
        return no_tree();
    }
    git::git_in(workspace, author, &path, ["add", "--all"]).await?;
    let message = format!("work of {author}");
    match git::git_in(workspace, author, &path, ["commit", "--quiet", "--no-verify", "--message", &message]).await {
        // Nothing was changed since.
        Ok(_) | Err(GitError::Git(git::GitCode::GitRefused, _)) => {}
        Err(error) => return Err(error),
    }
    let merge = ["merge", "--no-ff", "--no-verify", "--message", &message, &branch];
    match git::git_that_changes(workspace, label, merge).await {
        Ok(merged) => Ok(merged.stdout),
        Err(GitError::Git(_, why)) => {
            let conflicts = git::git(workspace, label, ["diff", "--name-only", "--diff-filter=U"]).await;
            let conflicts = conflicts.map(|told| told.stdout).unwrap_or_default();
            git::git_that_changes(workspace, label, ["merge", "--abort"]).await.ok();
            let files = conflicts.split_whitespace().collect::<Vec<_>>().join(", ");
            let message = format!("nothing was merged: conflicts in {files}. {why}");
            Err(GitError::Git(git::GitCode::MergeConflict, message))
        }
        Err(error) => Err(error),
    }
}

/// Where an author's tree is, and its branch.
fn place(workspace: &Workspace, label: &str) -> (PathBuf, String) {
    let root = workspace.disk().path().join(".patchboard").join("worktrees").join(label);
    (root, format!("{BRANCH}/{label}"))
}

fn broken(error: &dyn std::fmt::Display) -> GitError {
    GitError::Program(WorkspaceError::Broken(error.to_string()).into())
}

fn done(disk: &Disk, may: &dyn Fn(&FilePath, bool) -> bool, command: Command) -> Result<Told, Trouble> {
    let readable = |path: &FilePath| match may(path, false) {
        true => Ok(()),
        false => Err(Trouble::Other("not_readable", format!("You may not read {path}."))),
    };
    let there = |path: &FilePath| -> Result<String, Trouble> {
        readable(path)?;
        let no_file = || Trouble::Other("no_such_file", format!("There is no file {path}."));
        Ok(disk.read(path)?.ok_or_else(no_file)?.text)
    };
    let below = |prefix: Option<&FilePath>| -> Result<Vec<FilePath>, Trouble> {
        let is_below = |path: &FilePath| {
            prefix.is_none_or(|prefix| path == prefix || path.as_str().starts_with(&format!("{prefix}/")))
        };
        Ok(disk.scan()?.files.into_keys().filter(|path| may(path, false) && is_below(path)).collect())
    };
    match command {
        Command::View { path, range } => {
            let text = there(&path)?;
            let shown = match range {
                None => whole(&text, VIEW_CHARS_MAX),
                Some((first, last)) => excerpt(&text, &[(first, last.unwrap_or(u32::MAX))], 0, VIEW_CHARS_MAX),
            };
            let told = format!("{path}, {} lines\n{}", count(&text), shown.text);
            Ok(Told::done(told, json!({"path": path, "content": shown.text})))
        }
        Command::List { path } => {
            let files = below(path.as_ref())?;
            let text = files.iter().fold(String::new(), |mut text, path| {
                let _ = writeln!(text, "{path}");
                text
            });
            Ok(Told::done(text, json!({ "files": files })))
        }
        Command::Search { path, pattern, is_regex } => {
            let pattern = Pattern::new(&pattern, is_regex)?;
            let mut search = Search::new(&pattern, SearchLimits::default());
            let mut paths = below(path.as_ref())?.into_iter();
            while !search.is_over()
                && let Some(path) = paths.next()
            {
                if let Some(contents) = disk.read(&path)? {
                    search.look(&path, &contents.text);
                }
            }
            let found = search.found(paths.len());
            Ok(Told::done(found.text.clone(), json!({"matches": found.matches, "content": found.text})))
        }
        Command::Edit { path, edit, .. } => {
            let before = match edit {
                EditCommand::Create { .. } => disk.read(&path)?.map(|contents| contents.text),
                _ => Some(there(&path)?),
            };
            let after = apply(&edit, before.as_deref().unwrap_or_default())?;
            let text = (!matches!(edit, EditCommand::Delete)).then_some(after.text.as_str());
            put(disk, may, &path, text)?;
            let snippet = excerpt(&after.text, &blocks(&after.hunks), AROUND, SNIPPET_CHARS_MAX);
            Ok(Told::done(format!("{path} was changed.\n{}", snippet.text), json!({"files": [{"path": path}]})))
        }
        Command::Rename { path, to, .. } => {
            let text = there(&path)?;
            if disk.read(&to)?.is_some() {
                return Err(Trouble::Other("file_exists", format!("There is a file {to} already.")));
            }
            put(disk, may, &to, Some(&text))?;
            put(disk, may, &path, None)?;
            Ok(Told::done(format!("{path} is {to} now.\n"), json!({"files": [{"path": to}]})))
        }
    }
}

/// Writes a file as it is to be, over whatever is there.
fn put(disk: &Disk, may: &dyn Fn(&FilePath, bool) -> bool, path: &FilePath, text: Option<&str>) -> Result<(), Trouble> {
    if !may(path, true) {
        return Err(Trouble::Other("path_not_granted", format!("You may not change {path}.")));
    }
    let from = disk.read(path)?.map(|contents| contents.hash);
    let staged = disk.stage(path, from, text)?;
    disk.put(&staged)?;
    Ok(())
}
