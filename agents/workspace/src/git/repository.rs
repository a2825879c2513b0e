//! Git repository of a workspace. Commits are built in a private index; the user's index is updated afterwards, so that
//! the user's staged changes stay staged.
//!
//! Git is the only program that runs. Configured programs (hooks, monitors, filters, merge and diff drivers) are
//! untrusted, and any editor of the workspace may write attributes that name them. Git therefore ignores the attributes
//! of files, and commits the given bytes unchanged. Only merges and checkouts apply the repository's own
//! `info/attributes`, which no agent can edit and git cannot be made to ignore.
//!
//! File names are passed NUL-separated through standard input and output, so their number and form do not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use patchboard_kernel::files::FilePath;
use tempfile::TempDir;
use tokio::process::Command;
use uuid::Uuid;

use super::change::Change;
use super::error::{GitCode, GitError};
use super::objects::{ObjectFormat, TreeEntry};
use super::process::{GitOutput, complaint, git_failed, run_git, succeeded, text};
use crate::environment::{Environment, INHERITED};
use crate::program::GIT;

/// Options that keep git from running configured programs.
const COMMAND_LINE: &str = "-c safe.bareRepository=explicit -c core.attributesFile=/dev/null \
    -c core.hooksPath=/dev/null -c core.fsmonitor=false -c gc.auto=0 -c submodule.recurse=false --literal-pathspecs";

/// Greatest size in bytes of a list of names; large enough for the files of any workspace.
const LIST_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Attributes that make git commit other bytes than the file contains.
const CONVERTED: [&str; 3] = ["filter", "ident", "working-tree-encoding"];

/// Repository and one of its working trees.
pub(crate) struct Repository {
    root: PathBuf,
    /// Committer name.
    label: String,
    names: ObjectFormat,
    /// Directory for the private index, and for files to be stored.
    scratch: TempDir,
}

/// Index that a command uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Index {
    Own,
    Users,
}

impl Repository {
    /// Returns whether a directory is the root of a working tree.
    pub(crate) fn is_at(root: &Path) -> bool {
        root.join(".git").exists()
    }

    /// Opens the repository of a directory; commits get `label` as their committer.
    pub(crate) async fn open(root: &Path, label: &str) -> Result<Self, GitError> {
        // A repository has its own `.git`, made by the operator; files that an agent wrote do not make one.
        if !Self::is_at(root) {
            let message = "the directory is no working tree of git: it has no .git of its own";
            return Err(GitError::Git(GitCode::NoRepository, message.to_owned()));
        }
        let scratch =
            tempfile::tempdir().map_err(|error| git_failed(format!("there is no place for an index: {error}")))?;
        let mut repository =
            Self { root: root.to_owned(), label: label.to_owned(), names: ObjectFormat::Sha1, scratch };
        repository.names = match repository.git(["rev-parse", "--show-object-format"]).await?.as_str() {
            "sha1" => ObjectFormat::Sha1,
            "sha256" => ObjectFormat::Sha256,
            other => return Err(git_failed(format!("its objects are named by {other}, which is not known here"))),
        };
        Ok(repository)
    }

    /// Object format of the repository.
    pub(super) const fn names(&self) -> ObjectFormat {
        self.names
    }

    /// Returns the commit that is checked out; `None` before the first one.
    /// Fails while a merge is in progress.
    pub(crate) async fn head(&self) -> Result<Option<String>, GitError> {
        let head = ["rev-parse", "--quiet", "--verify", "HEAD^{commit}"];
        let found = self.run(Index::Users, head).await?;
        if found.exit != Some(0) {
            // Fails if this is no repository at all.
            self.git(["rev-parse", "--git-dir"]).await?;
            return Ok(None);
        }
        let merging = ["rev-parse", "--quiet", "--verify", "MERGE_HEAD"];
        if self.run(Index::Users, merging).await?.exit == Some(0) {
            return Err(git_failed(
                "somebody's merge is under way there; it has to be ended or given up first".to_owned(),
            ));
        }
        Ok(Some(text(found.stdout)))
    }

    /// Fills the private index with the tree of a commit, or empties it. Returns that tree.
    pub(crate) async fn begin(&self, commit: Option<&str>) -> Result<String, GitError> {
        self.own(["read-tree", commit.unwrap_or("--empty")], b"").await?;
        self.tree().await
    }

    /// Returns the entries of a tree, by name.
    pub(super) async fn files(&self, tree: &str) -> Result<BTreeMap<String, TreeEntry>, GitError> {
        let listed = self.git(["ls-tree", "-r", "-z", "--full-tree", tree]).await?;
        // `MODE TYPE HASH<tab>NAME`
        let entries = listed.split('\0').filter_map(|entry| entry.split_once('\t'));
        let entries = entries.filter_map(|(what, name)| {
            let mut parts = what.split(' ');
            let (mode, holds) = (parts.next()?.to_owned(), parts.nth(1)?.to_owned());
            Some((name.to_owned(), TreeEntry { mode, object: holds }))
        });
        Ok(entries.collect())
    }

    /// Returns the names of committed files left out of the working tree, as in a sparse checkout. Their absence is no
    /// deletion.
    pub(crate) async fn sparse_names(&self) -> Result<BTreeSet<String>, GitError> {
        // `TAG NAME`
        let listed = self.git(["ls-files", "-t", "-z"]).await?;
        Ok(listed.split('\0').filter_map(|entry| entry.strip_prefix("S ")).map(str::to_owned).collect())
    }

    /// Returns whether the file modes of the working tree are trustworthy (`core.fileMode`).
    pub(crate) async fn has_modes(&self) -> Result<bool, GitError> {
        Ok(self.git(["config", "--type=bool", "--default=true", "core.fileMode"]).await? == "true")
    }

    /// Returns those files that git would commit with other bytes than they contain, by the attributes in a tree.
    pub(crate) async fn converted<'a>(
        &self,
        tree: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<BTreeSet<String>, GitError> {
        let source = format!("--source={tree}");
        let arguments = ["check-attr", &source, "-z", "--stdin"].into_iter().chain(CONVERTED);
        let output = self.own(arguments, &lines(names)).await?;
        // Groups of a name, an attribute and its value.
        let mut parts = output.split('\0');
        let mut converted = BTreeSet::new();
        while let (Some(name), Some(_), Some(value)) = (parts.next(), parts.next(), parts.next()) {
            if !matches!(value, "unspecified" | "unset") {
                converted.insert(name.to_owned());
            }
        }
        Ok(converted)
    }

    /// Returns the scratch path for a file to be stored.
    pub(crate) fn place(&self, number: usize) -> PathBuf {
        self.scratch.path().join(number.to_string())
    }

    /// Stores the first `count` scratch files unchanged as blobs. Returns their hashes.
    pub(crate) async fn keep(&self, count: usize) -> Result<Vec<String>, GitError> {
        let places: String = (0..count).map(|number| format!("{}\n", self.place(number).display())).collect();
        let output = self.own(["hash-object", "-w", "--no-filters", "--stdin-paths"], places.as_bytes()).await?;
        let names: Vec<String> = output.lines().map(str::to_owned).collect();
        if names.len() == count { Ok(names) } else { Err(git_failed("not everything was kept".to_owned())) }
    }

    /// Adds stored blobs to the private index and removes the deleted files. Returns the tree.
    pub(super) async fn stage(&self, there: &[(FilePath, TreeEntry)], gone: &[FilePath]) -> Result<String, GitError> {
        let none = "0".repeat(self.names.of_nothing().len());
        // Deletions first, because a directory may have become a file, or a file a directory.
        let gone = gone.iter().map(|path| format!("0 {none}\t{path}\0"));
        let there = there.iter().map(|(path, entry)| format!("{} {}\t{path}\0", entry.mode, entry.object));
        let input: String = gone.chain(there).collect();
        self.own(["update-index", "-z", "--index-info"], input.as_bytes()).await?;
        self.tree().await
    }

    /// Applies the changes of another tree to the private index. Returns the tree.
    pub(crate) async fn stage_changes(&self, changes: &[Change]) -> Result<String, GitError> {
        self.own(["update-index", "-z", "--index-info"], &entries(changes)).await?;
        self.tree().await
    }

    pub(crate) async fn update_user_index(&self, changes: &[Change]) -> Result<(), GitError> {
        let arguments = ["update-index", "-z", "--index-info"];
        self.succeed(Index::Users, arguments, &entries(changes), LIST_BYTES_MAX).await.map(drop)
    }

    /// Returns the differences between two trees.
    pub(crate) async fn changes(&self, from: &str, to: &str) -> Result<Vec<Change>, GitError> {
        let output = self.git(["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", from, to]).await?;
        // `:MODE MODE HASH HASH STATUS` and the name, in turn.
        let mut parts = output.split('\0');
        let mut changes = Vec::new();
        while let (Some(what), Some(name)) = (parts.next(), parts.next()) {
            let fields: Vec<&str> = what.split(' ').collect();
            let (Ok(path), [_, mode, _, hash, _]) = (FilePath::parse(name), fields.as_slice()) else { continue };
            let mode = if *mode == "000000" { "0" } else { mode };
            let what = what.trim_start_matches(':').to_owned();
            changes.push(Change { path, entry: format!("{mode} {hash}"), what });
        }
        Ok(changes)
    }

    /// Returns the content of a file before the change, if it existed.
    pub(crate) async fn content_before(&self, change: &Change) -> Result<Option<Vec<u8>>, GitError> {
        let hash = change.what.split(' ').nth(2).filter(|hash| hash.bytes().any(|digit| digit != b'0'));
        if let Some(hash) = hash { Ok(Some(self.content(hash).await?)) } else { Ok(None) }
    }

    /// Returns the content of a blob.
    pub(crate) async fn content(&self, object: &str) -> Result<Vec<u8>, GitError> {
        Ok(self.succeed(Index::Own, ["cat-file", "blob", object], b"", LIST_BYTES_MAX).await?.stdout)
    }

    /// Returns the unified diff of two trees, for the given files or for all. Truncates it to `max` bytes, and returns
    /// the number of bytes left out.
    pub(crate) async fn unified(
        &self,
        from: &str,
        to: &str,
        paths: &[&str],
        max: usize,
    ) -> Result<(String, u64), GitError> {
        // Attributes cannot hide a file from the diff.
        let arguments =
            ["diff-tree", "-r", "-p", "--text", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"];
        let arguments = arguments.into_iter().chain([from, to, "--"]).chain(paths.iter().copied());
        let answer = self.succeed(Index::Own, arguments, b"", max.min(LIST_BYTES_MAX)).await?;
        Ok((String::from_utf8_lossy(&answer.stdout).into_owned(), answer.left_out))
    }

    /// Creates a commit of a tree in an author's name; no branch refers to it yet.
    pub(crate) async fn commit(
        &self,
        tree: &str,
        parents: &[&str],
        author: &str,
        message: &str,
    ) -> Result<String, GitError> {
        let parents = parents.iter().flat_map(|parent| ["-p", parent]);
        let arguments = ["commit-tree", tree, "-F", "-"].into_iter().chain(parents);
        let mut command = self.command(Index::Own, arguments);
        command.env("GIT_AUTHOR_NAME", author).env("GIT_AUTHOR_EMAIL", format!("{author}@workspace"));
        Ok(text(succeeded(run_git(command, message.as_bytes(), LIST_BYTES_MAX).await?)?.stdout))
    }

    /// Moves the checked-out branch to a commit, if it is still at `from`.
    pub(crate) async fn move_head(&self, from: Option<&str>, to: &str, why: &str) -> Result<(), GitError> {
        let none = "0".repeat(to.len());
        let why = format!("commit: {why}");
        self.git(["update-ref", "-m", &why, "HEAD", to, from.unwrap_or(&none)]).await.map(drop)
    }

    pub(crate) async fn is_ancestor(&self, commit: &str, descendant: &str) -> Result<bool, GitError> {
        let answer = self.run(Index::Own, ["merge-base", "--is-ancestor", commit, descendant]).await?;
        match answer.exit {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(complaint(&answer)),
        }
    }

    /// Merges two commits. Returns the resulting tree and the names of conflicting files, which contain both versions.
    /// Writes only objects.
    pub(crate) async fn merged(&self, one: &str, two: &str) -> Result<(String, Vec<String>), GitError> {
        let merge = ["merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", one, two];
        let answer = self.run(Index::Own, merge).await?;
        let stdout = String::from_utf8_lossy(&answer.stdout).into_owned();
        let mut parts = stdout.split('\0').map(str::trim).filter(|part| !part.is_empty());
        match (answer.exit, parts.next()) {
            (Some(0), Some(tree)) => Ok((tree.to_owned(), Vec::new())),
            (Some(1), Some(tree)) => Ok((tree.to_owned(), parts.map(str::to_owned).collect())),
            _ => Err(complaint(&answer)),
        }
    }

    /// Updates the working tree and the user's index from one commit or tree to another. Changes nothing if uncommitted
    /// changes are in the way.
    pub(crate) async fn check_out(&self, from: &str, to: &str) -> Result<(), GitError> {
        // Refreshes the index, so that touched but unchanged files are no obstacle. The next step detects real changes.
        self.run(Index::Users, ["update-index", "-q", "--refresh"]).await?;
        self.git(["read-tree", "-m", "-u", from, to]).await.map(drop)
    }

    /// Runs git with the user's index and returns its output.
    pub(crate) async fn git<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<String, GitError> {
        self.output(Index::Users, arguments, b"").await
    }

    async fn tree(&self) -> Result<String, GitError> {
        self.own(["write-tree"], b"").await
    }

    async fn own<'a>(&self, arguments: impl IntoIterator<Item = &'a str>, input: &[u8]) -> Result<String, GitError> {
        self.output(Index::Own, arguments, input).await
    }

    /// Returns the whole output of git; output over the limit is an error.
    async fn output<'a>(
        &self,
        index: Index,
        arguments: impl IntoIterator<Item = &'a str>,
        input: &[u8],
    ) -> Result<String, GitError> {
        let answer = self.succeed(index, arguments, input, LIST_BYTES_MAX).await?;
        if answer.left_out > 0 {
            return Err(git_failed(format!("there is more of it than {LIST_BYTES_MAX} bytes")));
        }
        Ok(text(answer.stdout))
    }

    async fn succeed<'a>(
        &self,
        index: Index,
        arguments: impl IntoIterator<Item = &'a str>,
        input: &[u8],
        max: usize,
    ) -> Result<GitOutput, GitError> {
        succeeded(run_git(self.command(index, arguments), input, max).await?)
    }

    async fn run<'a>(&self, index: Index, arguments: impl IntoIterator<Item = &'a str>) -> Result<GitOutput, GitError> {
        run_git(self.command(index, arguments), b"", LIST_BYTES_MAX).await
    }

    fn command<'a>(&self, index: Index, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let environment = Environment::from_process();
        let inherited = INHERITED.into_iter().filter_map(|name| Some((name, environment.get(name)?)));
        let email = format!("{}@workspace", self.label);
        let mut command = Command::new(GIT);
        // The repository is given by its place alone, and git never prompts.
        command
            .args(COMMAND_LINE.split(' '))
            // Default merge driver: an unknown name makes git use its built-in driver.
            .args(["-c", &format!("merge.default={}", Uuid::now_v7())])
            .arg(format!("--attr-source={}", self.names.of_nothing()))
            .args(["--git-dir=.git", "--work-tree=."])
            .args(arguments.into_iter().map(OsStr::new))
            .env_clear()
            .envs(inherited)
            .env("GIT_COMMITTER_NAME", &self.label)
            .env("GIT_COMMITTER_EMAIL", &email)
            .env("GIT_AUTHOR_NAME", &self.label)
            .env("GIT_AUTHOR_EMAIL", &email)
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .current_dir(&self.root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if index == Index::Own {
            command.env("GIT_INDEX_FILE", self.scratch.path().join("index"));
        }
        command
    }
}

fn lines<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    names.into_iter().flat_map(|name| name.bytes().chain([0])).collect()
}

fn entries(changes: &[Change]) -> Vec<u8> {
    changes.iter().flat_map(|change| format!("{}\t{}\0", change.entry, change.path).into_bytes()).collect()
}
