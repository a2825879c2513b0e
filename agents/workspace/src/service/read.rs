//! Reads of files: content and recorded entry, both from the same moment. Reads share the lock; only reporting an
//! external change to the board takes it exclusively.

use std::ops::ControlFlow;
use std::sync::Arc;

use patchboard_kernel::files::{FileEntry, FilePath};

use super::super::disk::DiskError;
use super::{CurrentFile, Workspace, WorkspaceError};

/// Number of files read before waiting changes may take the lock.
const AT_ONCE: usize = 256;

/// Files skipped by a bulk read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SkippedFiles {
    /// Files that were changing during the read.
    pub busy: Vec<FilePath>,
    /// Files with content that the board rejects.
    pub rejected: Vec<FilePath>,
    /// Number of files not reached before the visitor stopped.
    pub rest: usize,
}

impl Workspace {
    /// Reads a file, after its external change was reported to the board.
    pub async fn read_current(self: &Arc<Self>, path: &FilePath) -> Result<CurrentFile, WorkspaceError> {
        {
            let _shared = self.edit_state.read().await;
            if let Some(standing) = self.current_file(path).await? {
                return Ok(standing);
            }
        }
        let path = path.clone();
        self.exclusively(move |mut alone| async move { alone.read_current(&path).await }).await
    }

    /// Reads files in order, off the async threads, until `see` breaks. Files that are deleted or not served are
    /// skipped.
    pub async fn read_each<S: Send + 'static>(
        self: &Arc<Self>,
        paths: Vec<FilePath>,
        mut so_far: S,
        visit: fn(&mut S, &FilePath, FileEntry, &Arc<str>) -> ControlFlow<()>,
    ) -> Result<(S, SkippedFiles), WorkspaceError> {
        let mut left = SkippedFiles::default();
        let mut paths = paths.into_iter();
        loop {
            let next: Vec<FilePath> = paths.by_ref().take(AT_ONCE).collect();
            if next.is_empty() {
                return Ok((so_far, left));
            }
            let mut from = 0;
            while from < next.len() {
                let ReadProgress { so_far: seen, to, differs, is_enough } =
                    self.look_through_known(next[from..].to_vec(), so_far, visit).await?;
                (so_far, from) = (seen, from + to);
                let mut flow = if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
                if let Some(path) = differs {
                    match self.read_current(&path).await {
                        Ok(CurrentFile { entry: Some(entry), text: Some(text) }) => {
                            flow = visit(&mut so_far, &path, entry, &text);
                        }
                        Ok(_) | Err(WorkspaceError::Disk(DiskError::NotServed(_))) => {}
                        Err(WorkspaceError::Disk(DiskError::Busy { .. })) => left.busy.push(path),
                        Err(WorkspaceError::Rejected(_)) => left.rejected.push(path),
                        Err(error) => return Err(error),
                    }
                }
                if flow.is_break() {
                    left.rest = next.len() - from + paths.len();
                    return Ok((so_far, left));
                }
            }
        }
    }

    /// Like [`Workspace::read_each`], up to the first file that differs from the board's entry.
    async fn look_through_known<S: Send + 'static>(
        self: &Arc<Self>,
        paths: Vec<FilePath>,
        mut so_far: S,
        visit: fn(&mut S, &FilePath, FileEntry, &Arc<str>) -> ControlFlow<()>,
    ) -> Result<ReadProgress<S>, WorkspaceError> {
        let _shared = self.edit_state.read().await;
        let (workspace, state) = (Arc::clone(self), self.state());
        let seen = self.on_disk(move |disk| {
            let (mut differs, mut failed, mut is_enough) = (None, None, false);
            let to = disk.read_each(&paths, |path, read| {
                let there = match read {
                    Err(DiskError::NotServed(_)) => None,
                    Err(error) => {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                    Ok(there) => there,
                };
                let entry = FileEntry::load(&state, path);
                match (there, entry) {
                    (Some(there), Some(entry)) if entry.hash == Some(there.hash) => {
                        workspace.texts.keep_if_room(path, &there.text);
                        let flow = visit(&mut so_far, path, entry, &there.text.into());
                        is_enough = flow.is_break();
                        flow
                    }
                    (None, None) => ControlFlow::Continue(()),
                    (None, Some(entry)) if !entry.exists() => ControlFlow::Continue(()),
                    _ => {
                        differs = Some(path.clone());
                        ControlFlow::Break(())
                    }
                }
            })?;
            if let Some(error) = failed { Err(error) } else { Ok(ReadProgress { so_far, to, differs, is_enough }) }
        });
        seen.await
    }

    /// Reads a file if its content matches the board's entry.
    pub(super) async fn current_file(&self, path: &FilePath) -> Result<Option<CurrentFile>, WorkspaceError> {
        let there = self.read(path).await?;
        let entry = FileEntry::load(&self.state(), path);
        let is_known = entry.as_ref().and_then(|entry| entry.hash) == there.as_ref().map(|there| there.hash);
        if !is_known {
            return Ok(None);
        }
        let text = there.map(|there| Arc::from(there.text));
        self.texts.keep(path, text.as_ref());
        Ok(Some(CurrentFile { entry, text }))
    }
}

struct ReadProgress<S> {
    so_far: S,
    /// Number of files passed.
    to: usize,
    /// Last file passed, if its content differs from the board's entry.
    differs: Option<FilePath>,
    is_enough: bool,
}
