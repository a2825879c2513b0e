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
    done.map_err(WorkspaceError::broken)?
}

#[cfg(test)]
mod tests;
