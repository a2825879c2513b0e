//! Per-author git working trees: edits are not checked, and conflicts are detected at the merge.
//!
//! A baseline for comparison with a shared directory. Each author without the `git` grant has a tree and a branch,
//! below `.patchboard` of the directory and unknown to the board. Authors with the grant work in the directory itself
//! and merge the trees into it, one at a time. A reopened tree is first updated with the commits merged meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use patchboard_kernel::files::{FilePath, count};
use serde_json::{Value, json};

use super::disk::locks::PathSet;
use super::disk::{ApplyOutcome, Disk, DiskCode, DiskError, ExternalContent, StagedChange, UnservedReason};
use super::edit_author::EditAuthor;
use super::git::error::{GitCode, GitError};
use super::git::repository::Repository;
use super::git::state::{GitState, Trees};
use super::git::{self, run_to_completion};
use super::render;
use super::service::{Workspace, WorkspaceError};
use super::session::CommandResult;
use super::text::command::Command;
use super::text::edit::{EditCommand, EditError, apply, begins_within};
use super::text::hunks::blocks;
use super::text::search::{Pattern, Search};
use super::text::snippet::{EDIT_AROUND, EDIT_CHARS_MAX, snippet};
use patchboard_kernel::text::counted;
use patchboard_runtime::tools::cut;

/// Maximum characters shown of an author's changes that were reverted because of a conflict.
const TAKEN_BACK_CHARS_MAX: usize = 8_000;

/// Prefix of the authors' branches.
const BRANCH: &str = "workspace";

/// Working tree of one author.
pub struct Worktree {
    author: EditAuthor,
    disk: Arc<Disk>,
    /// Message to prepend to the next result.
    news: Mutex<Option<String>>,
}

#[derive(Debug, thiserror::Error)]
enum WorktreeError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error("{1}")]
    Other(&'static str, String),
}

impl From<WorktreeError> for CommandResult {
    fn from(error: WorktreeError) -> Self {
        match &error {
            WorktreeError::Disk(error) => Self::error(error.code().as_str(), error.to_string()),
            WorktreeError::Edit(error) => Self::error(error.code.as_str(), error.message.clone()),
            WorktreeError::Other(code, message) => Self::error(code, message.clone()),
        }
    }
}

impl Worktree {
    /// Opens an author's tree: a new one from the last commit, or the existing one updated to it. Conflicting changes
    /// in the tree are reverted, and the author is informed.
    pub async fn open(workspace: &Arc<Workspace>, author: EditAuthor) -> Result<Self, GitError> {
        let mut state = Arc::clone(&workspace.git).lock_owned().await;
        let workspace = Arc::clone(workspace);
        run_to_completion(async move { Self::open_locked(&workspace, &mut state, author).await }).await
    }

    async fn open_locked(
        workspace: &Arc<Workspace>,
        state: &mut GitState,
        author: EditAuthor,
    ) -> Result<Self, GitError> {
        let (root, branch) = place(workspace, author.label());
        let repository = Repository::open(workspace.disk().path(), author.label()).await?;
        let is_new = !root.is_dir();
        if is_new {
            if let Some(above) = root.parent() {
                fs::create_dir_all(above).map_err(WorkspaceError::broken)?;
            }
            let path = root.display().to_string();
            repository.git(["worktree", "prune"]).await?;
            repository.git(["worktree", "add", "--quiet", "-B", &branch, &path, "HEAD"]).await?;
        }
        let is_alone = state.trees.get(author.label()).is_none_or(|tree| tree.strong_count() == 0);
        let disk = open_disk(workspace, &mut state.trees, author.label(), root).await?;
        let news = match repository.head().await? {
            // A tree in use is left unchanged.
            Some(head) if !is_new && is_alone => update_tree(&disk, &author, &head).await?,
            _ => None,
        };
        Ok(Self { author, disk, news: Mutex::new(news) })
    }

    /// Returns the path of the tree.
    pub fn path(&self) -> &Path {
        self.disk.path()
    }

    /// Executes a command and returns its result within `room` characters, after the pending message.
    pub async fn run(&self, arguments: Value, room: usize) -> CommandResult {
        let news = self.news.lock().take();
        let Some(news) = news.map(|news| cut(news, room / 2)) else { return self.done(arguments, room).await };
        let mut result = self.done(arguments, room.saturating_sub(news.chars().count() + 1)).await;
        result.text = format!("{news}\n{}", result.text);
        result
    }

    async fn done(&self, arguments: Value, room: usize) -> CommandResult {
        let command = match Command::parse(arguments) {
            Ok(command) => command,
            Err(error) => return WorktreeError::from(error).into(),
        };
        let (disk, access) = (Arc::clone(&self.disk), self.author.access.clone());
        let done = tokio::task::spawn_blocking(move || {
            let may = |path: &FilePath, is_edit: bool| match is_edit {
                true => access.may_edit(path),
                false => access.may_view(path),
            };
            done(&disk, &may, command, room)
        })
        .await;
        match done {
            Ok(done) => done.unwrap_or_else(CommandResult::from),
            Err(error) => CommandResult::error("internal", error.to_string()),
        }
    }
}

/// Merges an author's tree into the directory, completely or not at all. A failed merge leaves no trace there.
/// With the error `merge_conflict` nothing is merged.
pub async fn merge(workspace: &Arc<Workspace>, caller: &EditAuthor, author: &str) -> Result<String, GitError> {
    let mut state = Arc::clone(&workspace.git).lock_owned().await;
    let (workspace, caller, author) = (Arc::clone(workspace), caller.clone(), author.to_owned());
    run_to_completion(async move { merge_locked(&workspace, &mut state, &caller, &author).await }).await
}

async fn merge_locked(
    workspace: &Arc<Workspace>,
    state: &mut GitState,
    caller: &EditAuthor,
    author: &str,
) -> Result<String, GitError> {
    let (root, branch) = place(workspace, author);
    let is_name = !author.is_empty() && author.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
    if !is_name || !root.is_dir() {
        return Err(GitError::Git(GitCode::NoRepository, format!("{author} has no working tree")));
    }
    let message = message(author);
    let disk = open_disk(workspace, &mut state.trees, author, root).await?;
    let (work, omissions) = git::commit_tree(&disk, author, &message).await?;
    let _files = git::lock_all_files(workspace, caller.label()).await?;
    workspace.rescan().await?;
    let repository = Repository::open(workspace.disk().path(), caller.label()).await?;
    let Some(head) = repository.head().await? else {
        let message = format!("nothing was merged: {branch} exists, and the directory has no commit");
        return Err(GitError::Git(GitCode::GitRefused, message));
    };
    if repository.is_ancestor(&work, &head).await? {
        let nothing = match omissions.messages().is_empty() {
            true => format!("{author} has done nothing that is not merged already."),
            false => {
                format!("Nothing was merged: all that {author} has done is merged already, but for what is left out.")
            }
        };
        return Ok(lines([nothing].into_iter().chain(omissions.messages())));
    }
    let (tree, conflicts) = repository.merged(&head, &work).await?;
    if !conflicts.is_empty() {
        let message = format!("nothing was merged: conflicts in {}", conflicts.join(", "));
        return Err(GitError::Git(GitCode::MergeConflict, message));
    }
    let merged = repository.commit(&tree, &[&head, &work], caller.label(), &message).await?;
    let all = PathSet::parse(["**"]).map_err(WorkspaceError::from)?;
    let running = workspace.runs(all, caller.label(), &format!("merged the {message}"));
    let done = move_tree(&repository, &head, &merged, &message).await;
    let by_others = workspace.rescan().await?;
    drop(running);
    done?;
    let files = repository.changes(&head, &merged).await?.len();
    let merges = format!("{} merges the {message}: {}", &merged[..merged.len().min(12)], counted(files, "file"));
    Ok(lines([merges].into_iter().chain(omissions.messages()).chain(by_others.messages())))
}

fn lines(each: impl Iterator<Item = String>) -> String {
    each.map(|line| line + "\n").collect()
}

fn message(author: &str) -> String {
    format!("work of {author}")
}

/// Updates an author's tree to a commit of the directory. Conflicting files take the directory's content; otherwise
/// every later merge would conflict again. Returns the message for the author, if any.
async fn update_tree(disk: &Arc<Disk>, author: &EditAuthor, head: &str) -> Result<Option<String>, GitError> {
    let label = author.label();
    // Omitted files stay in the tree; they are reported at the merge.
    let (work, _) = git::commit_tree(disk, label, &message(label)).await?;
    let repository = Repository::open(disk.path(), label).await?;
    if repository.is_ancestor(head, &work).await? {
        return Ok(None);
    }
    let why = "what was merged meanwhile";
    let is_merged = repository.is_ancestor(&work, head).await?;
    let (to, conflicts) = if is_merged {
        (head.to_owned(), Vec::new())
    } else {
        let (tree, conflicts) = repository.merged(head, &work).await?;
        let mut of_head = repository.changes(&tree, head).await?;
        of_head.retain(|change| conflicts.iter().any(|name| name == change.path.as_str()));
        repository.begin(Some(&tree)).await?;
        let tree = repository.stage_changes(&of_head).await?;
        (repository.commit(&tree, &[&work, head], label, why).await?, conflicts)
    };
    match move_tree(&repository, &work, &to, why).await {
        Ok(()) => {}
        Err(GitError::Git(_, why)) => {
            return Ok(Some(format!("Your working tree could not be brought up to what was merged meanwhile: {why}")));
        }
        Err(error) => return Err(error),
    }
    if conflicts.is_empty() {
        return Ok(None);
    }
    let base = repository.git(["merge-base", &work, head]).await?;
    let shown = conflicts.iter().filter(|name| FilePath::parse(name).is_ok_and(|path| author.access.may_view(&path)));
    let shown: Vec<&str> = shown.map(String::as_str).collect();
    let (had, _) = match shown.is_empty() {
        true => (String::new(), 0),
        false => repository.unified(&base, &work, &shown, TAKEN_BACK_CHARS_MAX * 4).await?,
    };
    Ok(Some(format!(
        "What you had changed in {} conflicts with what was merged meanwhile. Your working tree has these files as they were \
         merged now, so make there again what you need of this:\n{}",
        conflicts.join(", "),
        cut(had, TAKEN_BACK_CHARS_MAX)
    )))
}

/// Moves working tree and branch from one commit to another, or neither.
async fn move_tree(repository: &Repository, from: &str, to: &str, why: &str) -> Result<(), GitError> {
    repository.check_out(from, to).await.map_err(|error| match error {
        GitError::Git(_, why) => {
            let message = format!("nothing was merged: what is not committed in the directory is in the way. {why}");
            GitError::Git(GitCode::MergeConflict, message)
        }
        error => error,
    })?;
    // Check out first: content ahead of the branch is harmless, but a branch ahead of its content would be reverted by
    // the next commit.
    let moved = repository.move_head(Some(from), to, why).await;
    if moved.is_err() {
        repository.check_out(to, from).await.ok();
    }
    moved
}

/// Returns the directory of a tree, shared with its other users.
async fn open_disk(
    workspace: &Arc<Workspace>,
    trees: &mut Trees,
    label: &str,
    root: PathBuf,
) -> Result<Arc<Disk>, GitError> {
    trees.retain(|_, tree| tree.strong_count() > 0);
    if let Some(disk) = trees.get(label).and_then(Weak::upgrade) {
        return Ok(disk);
    }
    // The operator's exclusions apply to trees too.
    let options = workspace.disk().options().clone();
    let disk = tokio::task::spawn_blocking(move || Disk::open(root, options)).await;
    let disk = Arc::new(disk.map_err(WorkspaceError::broken)?.map_err(WorkspaceError::from)?);
    trees.insert(label.to_owned(), Arc::downgrade(&disk));
    Ok(disk)
}

/// Returns the path of an author's tree, and its branch.
fn place(workspace: &Workspace, label: &str) -> (PathBuf, String) {
    let root = workspace.disk().path().join(".patchboard").join("worktrees").join(label);
    (root, format!("{BRANCH}/{label}"))
}

fn done(
    disk: &Disk,
    may: &dyn Fn(&FilePath, bool) -> bool,
    command: Command,
    room: usize,
) -> Result<CommandResult, WorktreeError> {
    let readable = |path: &FilePath| match may(path, false) {
        true => Ok(()),
        false => Err(WorktreeError::Other("not_readable", format!("You may not read {path}."))),
    };
    let no_file = |path: &FilePath| WorktreeError::Other("no_such_file", format!("There is no file {path}."));
    let read_text = |path: &FilePath| -> Result<String, WorktreeError> {
        readable(path)?;
        Ok(disk.read(path)?.ok_or_else(|| no_file(path))?.text)
    };
    let below = |prefix: Option<&FilePath>| -> Result<Vec<FilePath>, WorktreeError> {
        Ok(disk.scan()?.files.into_keys().filter(|path| may(path, false) && render::is_below(path, prefix)).collect())
    };
    let is_directory =
        |path: &FilePath| disk.read(path).is_err_and(|error| error.reason() == Some(UnservedReason::NotRegular));
    let list = |prefix: Option<&FilePath>| -> Result<CommandResult, WorktreeError> {
        let files: Vec<String> = below(prefix)?.iter().map(ToString::to_string).collect();
        // An empty list would look like an empty directory.
        if let Some(path) = prefix.filter(|path| files.is_empty() && !(may(path, false) && is_directory(path))) {
            return Err(WorktreeError::Other("no_such_file", format!("There is no directory {path}.")));
        }
        let (text, listed) = render::list(&files, room);
        Ok(CommandResult::success(text, json!({"files": files[..listed], "left_out": files.len() - listed})))
    };
    match command {
        Command::View { path, .. } if readable(&path).is_ok() && is_directory(&path) => list(Some(&path)),
        Command::View { path, range, columns } => {
            let text = read_text(&path)?;
            begins_within(range, &text)?;
            let head = format!("{path}, {}\n", counted(count(&text), "line"));
            let shown = render::view(&text, range, columns, room.saturating_sub(head.chars().count()));
            Ok(CommandResult::success(format!("{head}{}", shown.text), json!({"path": path, "content": shown.text})))
        }
        Command::List { path } => list(path.as_ref()),
        Command::Search { path, pattern, is_regex } => {
            let pattern = Pattern::new(&pattern, is_regex)?;
            let mut search = Search::new(&pattern, render::search_limits(room));
            let mut paths = below(path.as_ref())?.into_iter();
            while !search.is_over()
                && let Some(path) = paths.next()
            {
                if let Some(contents) = disk.read(&path)? {
                    search.search_file(&path, &contents.text);
                }
            }
            let found = search.found(paths.len());
            Ok(CommandResult::success(found.text.clone(), json!({"matches": found.matches, "content": found.text})))
        }
        Command::Edit { path, edit, .. } => {
            let before = match edit {
                EditCommand::Create { .. } => disk.read(&path)?.map(|contents| contents.text),
                _ => Some(read_text(&path)?),
            };
            let after = apply(&edit, before.as_deref().unwrap_or_default())?;
            let text = (!matches!(edit, EditCommand::Delete)).then_some(after.text.as_str());
            let note = put(disk, may, &path, text)?;
            let snippet = snippet(&after.text, &blocks(&after.hunks), EDIT_AROUND, EDIT_CHARS_MAX);
            Ok(CommandResult::success(
                format!("{path} was changed.\n{note}{}", snippet.text),
                json!({"files": [{"path": path}]}),
            ))
        }
        Command::Rename { path, to, .. } => {
            let text = read_text(&path)?;
            if disk.read(&to)?.is_some() {
                return Err(WorktreeError::Other("file_exists", format!("There is a file {to} already.")));
            }
            let note = put(disk, may, &to, Some(&text))? + &put(disk, may, &path, None)?;
            Ok(CommandResult::success(format!("{path} is {to} now.\n{note}"), json!({"files": [{"path": to}]})))
        }
    }
}

/// Writes or removes a file; returns a note about external content, if any.
fn put(
    disk: &Disk,
    may: &dyn Fn(&FilePath, bool) -> bool,
    path: &FilePath,
    text: Option<&str>,
) -> Result<String, WorktreeError> {
    if !may(path, true) {
        return Err(WorktreeError::Other("path_not_granted", format!("You may not change {path}.")));
    }
    let from = disk.read(path)?.map(|contents| contents.hash);
    settle(disk, &disk.stage(path, from, text)?)
}

/// Puts a staged change in place. External content written meanwhile is put back, as in the directory. Content that
/// cannot be put back is kept in `.patchboard/displaced`, which the result names.
fn settle(disk: &Disk, staged: &StagedChange) -> Result<String, WorktreeError> {
    let path = staged.path();
    match disk.apply(staged)? {
        ApplyOutcome::Done | ApplyOutcome::Missing => Ok(String::new()),
        ApplyOutcome::Kept(_) => Err(DiskError::Busy { path: path.to_string() }.into()),
        ApplyOutcome::Displaced(ExternalContent { text: Some(text), .. }) if staged.hash().is_some() => {
            Err(put_back(disk, &disk.stage(path, staged.hash(), Some(&text))?)?)
        }
        ApplyOutcome::Displaced(found) => Ok(format!("{}\n", kept(path, found))),
    }
}

/// Puts external content back, and returns the error for the editor. Newer external content is kept.
fn put_back(disk: &Disk, staged: &StagedChange) -> Result<WorktreeError, DiskError> {
    let path = staged.path();
    let busy = DiskError::Busy { path: path.to_string() };
    Ok(match disk.apply(staged)? {
        ApplyOutcome::Displaced(found) => {
            WorktreeError::Other(DiskCode::FileBusy.as_str(), format!("{busy}. {}", kept(path, found)))
        }
        ApplyOutcome::Done | ApplyOutcome::Missing | ApplyOutcome::Kept(_) => busy.into(),
    })
}

/// Names the place of kept external content.
fn kept(path: &FilePath, found: ExternalContent) -> String {
    let kept = found.kept.unwrap_or_default();
    tracing::warn!(%path, kept, "what others wrote in a working tree is kept in its .patchboard/displaced");
    format!("What others wrote there in that moment is kept in .patchboard/displaced/{kept}.")
}

#[cfg(test)]
mod tests;
