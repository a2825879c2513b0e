//! Builds a tree from the files of a directory, with the bytes found by the scan. Only CRLF line ends may become LF.
//!
//! Git reads no files, so attributes cannot alter their content. A file for which committed attributes require a
//! conversion (filters, as of git-lfs and git-crypt) stays as committed; others must commit its converted form. A
//! deletion does not depend on attributes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use patchboard_kernel::digest::Digest;
use patchboard_kernel::files::FilePath;

use super::error::GitError;
use super::objects::{ObjectFormat, TreeEntry};
use super::omissions::{IncludeDecision, OmissionReason, Omissions};
use super::process::git_failed;
use super::repository::Repository;
use crate::disk::{Contents, Disk};
use crate::service::WorkspaceError;

const CRLF: &str = "\r\n";

/// Files as found by the scan.
pub(super) struct ScannedFiles {
    names: ObjectFormat,
    files: BTreeMap<FilePath, File>,
}

struct File {
    hash: Digest,
    /// Blob name of the content.
    object: String,
    /// Blob name of the content with LF line ends; `None` if it has no CRLF.
    object_in_lf: Option<String>,
    is_executable: bool,
}

/// File to be included if it is unchanged since the scan.
struct FileToStage {
    path: FilePath,
    hash: Digest,
    entry: TreeEntry,
    /// True if its CRLF line ends are converted to LF.
    ends_in_lf: bool,
}

impl ScannedFiles {
    /// Creates an empty collection with the repository's object format.
    pub(super) const fn for_repository(repository: &Repository) -> Self {
        Self { names: repository.names(), files: BTreeMap::new() }
    }

    pub(super) fn see(&mut self, path: &FilePath, contents: &Contents) {
        let Contents { text, hash, is_executable, .. } = contents;
        let holds = self.names.blob_name(text.as_bytes());
        let holds_in_lf = text.contains(CRLF).then(|| self.names.blob_name(in_lf(text).as_bytes()));
        self.files.insert(
            path.clone(),
            File { hash: *hash, object: holds, object_in_lf: holds_in_lf, is_executable: *is_executable },
        );
    }
}

fn in_lf(text: &str) -> String {
    text.replace(CRLF, "\n")
}

/// Replaces files of a tree by the found files that `meant` accepts. Asks `meant` about deleted files as well, without
/// a hash. Returns the resulting tree and the omissions.
pub(super) async fn stage(
    repository: &Repository,
    base: &str,
    disk: &Arc<Disk>,
    found: ScannedFiles,
    decide: impl Fn(&FilePath, Option<Digest>) -> IncludeDecision,
) -> Result<(String, Omissions), GitError> {
    let mut omissions = Omissions::default();
    let (known, has_modes) = (repository.files(base).await?, repository.has_modes().await?);
    let links: Vec<&str> = known.iter().filter(|(_, entry)| entry.is_link()).map(|(name, _)| name.as_str()).collect();
    let is_own = |path: &FilePath| !links.iter().any(|link| Path::new(path.as_str()).starts_with(link));
    let missing = known.keys().filter_map(|name| FilePath::parse(name).ok());
    let mut missing: Vec<FilePath> = missing.filter(|path| !found.files.contains_key(path) && is_own(path)).collect();
    if !missing.is_empty() {
        let kept_away = repository.sparse_names().await?;
        missing.retain(|path| !kept_away.contains(path.as_str()) && omissions.include(path, &decide(path, None)));
    }
    let mut to_stage = Vec::new();
    for (path, file) in found.files {
        let decision = if is_own(&path) { decide(&path, Some(file.hash)) } else { IncludeDecision::No };
        if matches!(decision, IncludeDecision::No) {
            continue;
        }
        let before = known.get(path.as_str());
        let was_executable = before.and_then(TreeEntry::is_executable);
        let is_executable = if has_modes { file.is_executable } else { was_executable == Some(true) };
        // As git does when line ends differ between the working tree and the commit.
        let ends_in_lf = match (before, &file.object_in_lf) {
            (Some(before), Some(holds)) if before.object == *holds => true,
            (Some(before), Some(_)) if was_executable.is_some() && before.object != file.object => {
                !repository.content(&before.object).await?.windows(2).any(|two| two == CRLF.as_bytes())
            }
            _ => false,
        };
        let object = if ends_in_lf { file.object_in_lf } else { None }.unwrap_or(file.object);
        let entry = TreeEntry::file(is_executable, object);
        if before != Some(&entry) && omissions.include(&path, &decision) {
            to_stage.push(FileToStage { path, hash: file.hash, entry, ends_in_lf });
        }
    }
    let converted = repository.converted(base, to_stage.iter().map(|wanted| wanted.path.as_str())).await?;
    to_stage.retain(|FileToStage { path, .. }| {
        let decision = if converted.contains(path.as_str()) {
            IncludeDecision::Omit(OmissionReason::Converted)
        } else {
            IncludeDecision::Yes
        };
        omissions.include(path, &decision)
    });
    let places: Vec<_> = (0..to_stage.len()).map(|number| repository.place(number)).collect();
    let disk = Arc::clone(disk);
    let taken = on_disk(move || {
        let (mut there, mut gone, mut changed, mut free) = (Vec::new(), Vec::new(), Vec::new(), places.iter());
        for path in missing {
            match disk.read(&path) {
                Ok(None) => gone.push(path),
                Ok(Some(_)) => changed.push(path),
                // The file exists but is not served, and may never have been.
                Err(_) => {}
            }
        }
        for FileToStage { path, hash, entry, ends_in_lf } in to_stage {
            if let Ok(Some(Contents { text, .. })) = disk.read(&path).map(|read| read.filter(|now| now.hash == hash))
                && let Some(place) = free.next()
            {
                let text = if ends_in_lf { in_lf(&text) } else { text };
                fs::write(place, text).map_err(|error| git_failed(format!("{path} cannot be kept: {error}")))?;
                there.push((path, entry));
            } else {
                changed.push(path);
            }
        }
        Ok((there, gone, changed))
    });
    let (mut there, gone, changed) = taken.await?;
    changed.iter().for_each(|path| omissions.note(path, OmissionReason::Changed));
    let kept = repository.keep(there.len()).await?;
    there.iter_mut().zip(kept).for_each(|((_, entry), holds)| entry.object = holds);
    Ok((repository.stage(&there, &gone).await?, omissions))
}

pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, GitError> + Send + 'static,
) -> Result<T, GitError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| WorkspaceError::Broken(error.to_string()))?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::process::Command;

    use super::*;
    use crate::disk::DiskOptions;

    fn sh(root: &Path, script: &str) -> String {
        let script = format!("git() {{ command git -c user.name=me -c user.email=me@x \"$@\"; }}\n{script}");
        let ran = Command::new("sh").args(["-ec", &script]).current_dir(root).output().expect("sh runs");
        assert!(ran.status.success(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).expect("text")
    }

    /// Stages the scan of a directory; `meanwhile` runs between both. Returns the tree and the omissions.
    async fn tree(root: &Path, meanwhile: impl FnOnce()) -> (String, Vec<String>) {
        let repository = Repository::open(root, "me").await.expect("a repository");
        let head = repository.head().await.expect("asked");
        let base = repository.begin(head.as_deref()).await.expect("a tree");
        let disk = Arc::new(Disk::open(root, DiskOptions::default()).expect("a directory"));
        let mut found = ScannedFiles::for_repository(&repository);
        disk.scan_with(&mut |path, contents| found.see(path, contents)).expect("looked through");
        meanwhile();
        let staged = stage(&repository, &base, &disk, found, |_, _| IncludeDecision::Yes).await;
        let (tree, omissions) = staged.expect("a tree");
        (tree, omissions.messages())
    }

    #[tokio::test]
    async fn what_is_taken_up_is_what_was_found_and_nothing_else() {
        for format in ["sha1", "sha256"] {
            let directory = tempfile::tempdir().expect("a directory");
            let root = directory.path();
            sh(root, &format!("git init -q --object-format={format}; echo a > a; echo b > b; echo c > c"));
            sh(root, "git add .; git commit -qm begin; echo a2 > a; echo b2 > b; rm c");
            fs::write(root.join("\"d e"), "d\n").expect("written");
            let meanwhile = || {
                // Others edit meanwhile, and one of them redirects a name to another file.
                fs::write(root.join("a"), "a3\n").expect("written");
                fs::write(root.join("c"), "c3\n").expect("written");
                fs::remove_file(root.join("b")).expect("removed");
                symlink("/etc/passwd", root.join("b")).expect("linked");
            };
            let (tree, said) = tree(root, meanwhile).await;
            let changed =
                "3 files are left out, as others were changing something there; it can be asked for again: a, b, c";
            assert_eq!(said, [changed], "{format}");
            let named = sh(root, &format!("git ls-tree -r --name-only {tree}"));
            assert_eq!(named, "\"\\\"d e\"\na\nb\nc\n", "{format}");
            assert_eq!(sh(root, &format!("git show {tree}:a {tree}:b {tree}:c '{tree}:\"d e'")), "a\nb\nc\nd\n");
        }
    }

    #[tokio::test]
    async fn modes_and_kinds_of_files_are_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        sh(root, "git init -q; echo a > a; echo b > b; ln -s a l; ln -s a m; mkdir d; echo x > d/x; echo y > e");
        sh(root, "chmod +x b; git add .; git commit -qm begin; chmod +x a; echo b2 > b; rm m; echo m > m");
        sh(root, "rm -r d e; echo d > d; mkdir e; echo y > e/y; echo n > n; chmod 755 n");
        let modes = async || {
            let (tree, said) = tree(root, || ()).await;
            assert!(said.is_empty(), "{said:?}");
            sh(root, &format!("git ls-tree -r {tree} | sed 's/ blob [0-9a-f]*//' | tr '\\t\\n' ': '"))
        };
        assert_eq!(modes().await, "100755:a 100755:b 100644:d 100644:e/y 120000:l 100644:m 100755:n ");
        // If the file system has no modes, the committed ones stay.
        sh(root, "git config core.fileMode false; chmod -x b");
        assert_eq!(modes().await, "100644:a 100755:b 100644:d 100644:e/y 120000:l 100644:m 100644:n ");
        let mode = fs::metadata(root.join("a")).expect("there").permissions().mode();
        assert_eq!(mode & 0o100, 0o100, "and nothing is done to the files");
    }

    #[tokio::test]
    async fn no_attribute_makes_something_else_of_a_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        sh(root, "git init -q; printf 'k filter=crypt\\ni ident\\n*.bat eol=crlf\\n' > .gitattributes");
        sh(root, "git config filter.crypt.clean 'touch ran; tr a-z A-Z'; echo a > a; echo k > k; echo '$Id$' > i");
        sh(root, "printf 'x\\ny\\n' > w.bat; git add .; git commit -qm begin; rm -f ran");
        // As committed: the programs of others converted these files, and the result is theirs to commit.
        sh(root, "echo k2 > k; echo '$Id: 1 $' > i; printf 'x\\r\\ny\\r\\n' > w.bat");
        let before = sh(root, "git rev-parse HEAD^{tree}");
        let is_named = |said: &[String]| match said {
            [said] => said.starts_with("2 files are left out, as what git would commit") && said.ends_with(": i, k"),
            _ => false,
        };
        let (same, said) = tree(root, || ()).await;
        assert_eq!(same, before.trim());
        assert!(is_named(&said), "{said:?}");
        // Attributes that an editor of this workspace could write.
        let attributes = "* filter=crypt ident working-tree-encoding=UTF-16\n";
        fs::write(root.join(".gitattributes"), attributes).expect("written");
        sh(root, "echo 'a2 $Id: 1 $' > a; printf 'x\\r\\nz\\r\\n' > w.bat; printf 'n\\r\\n' > n");
        let (tree, said) = tree(root, || ()).await;
        assert!(is_named(&said), "{said:?}");
        assert_eq!(sh(root, &format!("git show {tree}:.gitattributes")), attributes);
        assert_eq!(sh(root, &format!("git show {tree}:a {tree}:k")), "a2 $Id: 1 $\nK\n");
        assert_eq!(sh(root, &format!("git show {tree}:w.bat {tree}:n")), "x\nz\nn\r\n");
        assert!(!root.join("ran").exists());
    }

    #[tokio::test]
    async fn what_a_sparse_checkout_keeps_away_is_not_gone() {
        for form in ["--no-sparse-index", "--sparse-index"] {
            let directory = tempfile::tempdir().expect("a directory");
            let root = directory.path();
            sh(
                root,
                "git init -q; mkdir x y; echo a > x/a; echo b > x/b; echo c > y/c; git add .; git commit -qm begin",
            );
            sh(root, &format!("git sparse-checkout set {form} x; test ! -e y"));
            let before = sh(root, "git rev-parse HEAD^{tree}");
            assert_eq!(tree(root, || ()).await, (before.trim().to_owned(), vec![]), "{form}");
            // Existing files count, inside the sparse checkout or not.
            sh(root, "rm x/a; mkdir y; echo d > y/d");
            let (tree, _) = tree(root, || ()).await;
            assert_eq!(sh(root, &format!("git ls-tree -r --name-only {tree}")), "x/b\ny/c\ny/d\n", "{form}");
        }
    }
}
