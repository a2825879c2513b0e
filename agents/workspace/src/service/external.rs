//! Detection of external changes and their report to the board.
//!
//! Reports are bounded in files and bytes per record. A report that the board rejects is recorded once. It is repeated
//! when its content differs, or later when the board's version has changed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::take;
use std::sync::Arc;

use patchboard_kernel::files::{Edit, FileChange, FileEntry, FilePath};
use patchboard_kernel::state::State;

use super::super::active_programs::Attribution;
use super::super::disk::{Contents, DiskError};
use super::edits::{CurrentFile, EditOutcome, ExternalChanges, RejectedFiles, WorkspaceError};
use super::exclusive::WriteGuard;
use super::external_change::{BYTES_AT_ONCE, bytes_of, external_change};
use super::rejected_reports::RejectedReports;

/// Maximum files of one report.
const FILES_AT_ONCE: usize = 2000;

/// Maximum number of splits of rejected reports, per [`ExternalChanges`].
const HALVED_MAX: usize = 32;

/// Changes reported together.
#[derive(Default)]
struct Batch {
    changes: Vec<FileChange>,
    /// Current contents of the files.
    texts: Vec<(FilePath, Option<Arc<str>>)>,
    bytes: usize,
}

impl WriteGuard {
    /// Scans the directory and reports external changes to the board.
    pub(super) async fn rescan(&mut self) -> Result<ExternalChanges, WorkspaceError> {
        Ok(self.rescan_with((), |(), _, _| {}).await?.1)
    }

    /// Like [`WriteGuard::rescan`], and passes each file found to `see`.
    pub(super) async fn rescan_with<S: Send + 'static>(
        &mut self,
        mut seen: S,
        see: fn(&mut S, &FilePath, &Contents),
    ) -> Result<(S, ExternalChanges), WorkspaceError> {
        self.settle().await?;
        let known = self.workspace.files();
        let workspace = Arc::clone(&self.workspace);
        let (scan, known, seen) = self
            .workspace
            .on_disk(move |disk| {
                let scan = disk.scan_with(&mut |path, contents| {
                    see(&mut seen, path, contents);
                    if known.get(path).is_some_and(|entry| entry.hash == Some(contents.hash)) {
                        workspace.texts.keep_if_room(path, &contents.text);
                    }
                });
                Ok((scan?, known, seen))
            })
            .await?;
        let of = |entry: &FileEntry| entry.hash;
        let changed = scan.files.iter().filter(|(path, found)| known.get(*path).and_then(of) != Some(found.hash));
        let gone = known.keys().filter(|path| !scan.files.contains_key(*path));
        let changed: Vec<FilePath> = changed.map(|(path, _)| path.clone()).chain(gone.cloned()).collect();
        Ok((seen, self.report_changes(changed).await?))
    }

    /// Returns a file's current content and entry, after its external change was reported.
    pub(super) async fn read_current(&mut self, path: &FilePath) -> Result<CurrentFile, WorkspaceError> {
        self.report_changes([path.clone()]).await?.require_accepted()?;
        match self.workspace.current_file(path).await? {
            Some(standing) => Ok(standing),
            None => Err(DiskError::Busy { path: path.to_string() }.into()),
        }
    }

    /// Reports to the board those of these files that differ from its state, after all pending edits are finished.
    pub(super) async fn report_changes(
        &mut self,
        paths: impl IntoIterator<Item = FilePath, IntoIter: Send> + Send,
    ) -> Result<ExternalChanges, WorkspaceError> {
        self.settle().await?;
        let state = self.workspace.state();
        let mut batch = Batch::default();
        let mut by_others = ExternalChanges::default();
        for path in paths {
            let Some((change, text)) = self.changed_by_others(&state, path.clone()).await? else { continue };
            let bytes = bytes_of(change.hunks.as_deref()) + text.as_ref().map_or(0, |text| text.len());
            if batch.changes.len() == FILES_AT_ONCE || (batch.bytes + bytes > BYTES_AT_ONCE && batch.bytes > 0) {
                self.report_batch(take(&mut batch), &mut by_others).await?;
            }
            batch.bytes += bytes;
            batch.changes.push(change);
            batch.texts.push((path, text));
        }
        self.report_batch(batch, &mut by_others).await?;
        Ok(by_others)
    }

    /// Returns the external change of a file relative to the state, with its current content; `None` if it is
    /// unchanged.
    async fn changed_by_others(
        &self,
        state: &State,
        path: FilePath,
    ) -> Result<Option<(FileChange, Option<Arc<str>>)>, WorkspaceError> {
        let entry = FileEntry::load(state, &path);
        let workspace = Arc::clone(&self.workspace);
        let changed = self.workspace.on_disk(move |disk| {
            // A file that is no longer served is deleted as far as agents are concerned.
            let there = match disk.read(&path) {
                Err(DiskError::NotServed(_)) => None,
                read => read?,
            };
            if entry.as_ref().and_then(|entry| entry.hash) == there.as_ref().map(|there| there.hash) {
                return Ok(None);
            }
            let now = there.as_ref().map(|Contents { hash, text, .. }| (*hash, text.as_str()));
            let change = external_change(&path, entry.as_ref(), &workspace.texts, now);
            Ok(Some((change, there.map(|there| Arc::from(there.text)))))
        });
        changed.await
    }

    /// Reports a batch to the board, under the name of the running program that may have made each change, if any. A
    /// rejection does not hold back the other changes.
    async fn report_batch(&mut self, batch: Batch, by_others: &mut ExternalChanges) -> Result<(), WorkspaceError> {
        by_others.found += batch.changes.len();
        let mut by_attribution: BTreeMap<Attribution, Vec<FileChange>> = BTreeMap::new();
        for change in batch.changes {
            by_attribution.entry(self.workspace.running.attribute(&change.path)).or_default().push(change);
        }
        let before = by_others.rejected.len();
        for (teller, changes) in by_attribution {
            self.report_as(&teller, changes, by_others).await?;
        }
        let rejected: BTreeSet<&FilePath> = by_others.rejected[before..].iter().flat_map(|it| &it.paths).collect();
        let taken = batch.texts.iter().filter(|(path, _)| !rejected.contains(path));
        taken.for_each(|(path, text)| self.workspace.texts.keep(path, text.as_ref()));
        Ok(())
    }

    /// Reports all changes at once and splits a rejected report in half. Splitting ends at single files or at
    /// [`HALVED_MAX`]. A report already rejected with this content is not split either.
    async fn report_as(
        &mut self,
        (name, intent): &Attribution,
        changes: Vec<FileChange>,
        by_others: &mut ExternalChanges,
    ) -> Result<(), WorkspaceError> {
        let mut parts = vec![changes];
        while let Some(mut changes) = parts.pop() {
            let paths = |changes: &[FileChange]| changes.iter().map(|change| change.path.clone()).collect();
            let what = RejectedReports::key(&changes);
            let version = self.workspace.board().status().version;
            if let Some(rejection) = self.state.rejected_reports.get(&what, version) {
                by_others.rejected.push(RejectedFiles { paths: paths(&changes), rejection });
                continue;
            }
            let (name, intent) = (name.clone(), intent.clone());
            let edit = Edit { of: None, token: None, name, intent, reads: Vec::new(), changes: changes.clone() };
            match self.submit(edit, None, VecDeque::new()).await? {
                EditOutcome::Committed(_) => self.state.rejected_reports.taken(&what),
                EditOutcome::Rejected(rejection) => {
                    self.state.rejected_reports.note(what, version, rejection.clone());
                    if changes.len() == 1 || by_others.halved >= HALVED_MAX {
                        by_others.rejected.push(RejectedFiles { paths: paths(&changes), rejection });
                    } else {
                        by_others.halved += 1;
                        let second = changes.split_off(changes.len() / 2);
                        parts.extend([second, changes]);
                    }
                }
            }
        }
        Ok(())
    }
}
