//! Commit of an edit and its replacement on disk, under the exclusive lock.
//!
//! New content is staged, the board decides, and its state then determines each file's content. The edit stays in the
//! notes until all of this is done. If the outcome is unknown, the board is asked again under the same token before
//! anything else, and the staged files remain. If the board is gone, the next process that opens the directory follows
//! the journal.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::board::{Outcome, RememberedOutcome};
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::{Edit, FileChange, FileEntry, FilePath};
use patchboard_kernel::id::IdempotencyKey;
use patchboard_kernel::record::Principal;
use patchboard_kernel::rejection::{Code, Rejection, Stage, Violation};
use patchboard_runtime::error::RuntimeError;
use tokio::sync::OwnedRwLockWriteGuard;
use uuid::Uuid;

use super::super::disk::{self, ApplyOutcome, DiskError, ExternalContent, Recovery, StagedChange};
use super::Workspace;
use super::edits::{CurrentFile, DecidedEdit, EditOutcome, ExternalChanges, ProposedChange, WorkspaceError};
use super::external_change::external_change;
use super::rejected_reports::RejectedReports;

/// Shortest and longest pause between proposals to a board that was interrupted.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Attempts to put displaced external content back before it is left in `.patchboard/displaced`.
const DISPLACED_MAX: u32 = 3;

/// Maximum number of outcomes kept for authors that did not receive them; the oldest are dropped.
const UNACKNOWLEDGED_MAX: usize = 32;

/// State guarded by the exclusive lock.
#[derive(Default)]
pub(super) struct EditState {
    pub(super) rejected_reports: RejectedReports,
    /// Edits proposed to the board and not finished, in order.
    pending: VecDeque<PendingEdit>,
    /// Outcomes that their authors did not receive, oldest first.
    unacknowledged: VecDeque<(IdempotencyKey, UnacknowledgedEdit, Result<EditOutcome, DiskError>)>,
}

/// Request of an edit with an unknown outcome; its author received an error and may ask again.
pub(super) struct UnacknowledgedEdit {
    /// Digest of the request, to recognise an identical one.
    pub(super) request_digest: Digest,
    pub(super) current: Vec<CurrentFile>,
    pub(super) proposed: Vec<ProposedChange>,
}

/// An edit between staging and the replacement of its files.
struct PendingEdit {
    /// Edit with its token.
    edit: Edit,
    /// External caller that makes it.
    principal: Option<Principal>,
    /// Staged files with their texts.
    files: VecDeque<(StagedChange, Option<Arc<str>>)>,
    /// The board's decision; `None` while unknown.
    verdict: Option<EditOutcome>,
    /// The request, if its author is gone.
    unacknowledged: Option<UnacknowledgedEdit>,
    /// Number of preceding edits in a chain of displacements.
    displaced: u32,
}

/// Exclusive access to the workspace.
pub(super) struct WriteGuard {
    pub(super) workspace: Arc<Workspace>,
    pub(super) state: OwnedRwLockWriteGuard<EditState>,
}

impl WriteGuard {
    /// Completes or discards the changes that an earlier process had staged.
    pub(super) async fn recover(&mut self) -> Result<Recovery, WorkspaceError> {
        let state = self.workspace.state();
        let expected = move |path: &FilePath| FileEntry::load(&state, path).and_then(|entry| entry.hash);
        let recovery = self.workspace.on_disk(move |disk| disk.recover(expected)).await?;
        for change in &recovery.changes {
            // The author is gone, so the result is not returned; the board still gets the correction.
            drop(self.queue_correction(&change.path, change.hash, &change.outcome, 0).await);
        }
        self.settle().await?;
        Ok(recovery)
    }

    /// Stages an edit, asks the board, and puts committed content in place. External changes of `rests_on`, the targets
    /// and files read, are reported first.
    pub(super) async fn decide(
        &mut self,
        edit: Edit,
        principal: Option<Principal>,
        proposed: &[ProposedChange],
        rests_on: BTreeSet<FilePath>,
    ) -> Result<EditOutcome, WorkspaceError> {
        let mut files = VecDeque::with_capacity(proposed.len());
        for (proposed, change) in proposed.iter().zip(&edit.changes) {
            let (path, from, text) = (proposed.path.clone(), change.from, proposed.after.clone());
            match self.workspace.on_disk(move |disk| disk.stage(&path, from, text.as_deref())).await {
                Ok(staged) => files.push_back((staged, proposed.after.clone())),
                Err(error) => {
                    self.discard(files).await;
                    return Err(error);
                }
            }
        }
        // As late as possible; external changes from here on come after the edit.
        if let Err(error) = self.report_changes(rests_on).await.and_then(ExternalChanges::require_accepted) {
            self.discard(files).await;
            return Err(error);
        }
        self.submit(edit, principal, files).await
    }

    /// Proposes an edit to the board, with its staged files.
    /// Fails as [`WriteGuard::settle`] does, and if a committed change cannot be put in place.
    pub(super) async fn submit(
        &mut self,
        edit: Edit,
        principal: Option<Principal>,
        files: VecDeque<(StagedChange, Option<Arc<str>>)>,
    ) -> Result<EditOutcome, WorkspaceError> {
        self.state.pending.push_back(PendingEdit { principal, ..PendingEdit::new(edit, files, 0) });
        let decided = self.settle().await?;
        let decided = decided.ok_or_else(|| WorkspaceError::broken("nothing was put to the board"))?;
        Ok(decided?)
    }

    /// Finishes all pending edits in order. Decisions for absent authors are kept in the notes. Returns the first other
    /// decision, or the obstacle to putting it in place.
    /// After an error the edits stay pending.
    pub(super) async fn settle(&mut self) -> Result<Option<Result<EditOutcome, DiskError>>, WorkspaceError> {
        let mut first = None;
        while let Some(pending) = self.state.pending.front_mut() {
            let verdict = match &pending.verdict {
                Some(verdict) => verdict.clone(),
                None => pending
                    .verdict
                    .insert(submit_edit(&self.workspace, &pending.edit, pending.principal.clone()).await?)
                    .clone(),
            };
            let displaced = pending.displaced;
            let mut decided = Ok(verdict);
            while let Some((staged, text)) = self.state.pending.front().and_then(|begun| begun.files.front()).cloned() {
                let (path, hash) = (staged.path().clone(), staged.hash());
                // The state is at least as new as the answer, and changes only under this lock. The answer may be about
                // an edit that was superseded since.
                let is_wanted = self.workspace.hash(&path) == hash;
                let outcome = self.workspace.on_disk(move |disk| disk.settle(&staged, is_wanted)).await?;
                if let Some(pending) = self.state.pending.front_mut() {
                    pending.files.pop_front();
                }
                if is_wanted {
                    self.workspace.texts.keep(&path, text.as_ref());
                }
                if let Some(error) = self.queue_correction(&path, hash, &outcome, displaced).await {
                    decided = decided.and(Err(error));
                }
            }
            if let Some(PendingEdit { edit: Edit { token: Some(token), .. }, unacknowledged: unheard, .. }) =
                self.state.pending.pop_front()
            {
                match unheard {
                    Some(unheard) => self.state.keep(token, unheard, decided),
                    None => _ = first.get_or_insert(decided),
                }
            }
        }
        Ok(first)
    }

    /// Returns the outcome of the edit under this token that its author did not receive; `asked` is the current
    /// request.
    pub(super) async fn take_outcome(
        &mut self,
        key: &IdempotencyKey,
        request_digest: Digest,
    ) -> Result<Option<DecidedEdit>, WorkspaceError> {
        self.settle().await?;
        let Some(at) = self.state.unacknowledged.iter().position(|(of, ..)| of == key) else { return Ok(None) };
        if self.state.unacknowledged[at].1.request_digest != request_digest {
            return Err(RuntimeError::IdempotencyConflict(self.workspace.board().id().clone()).into());
        }
        let unacknowledged = self.state.unacknowledged.remove(at);
        let made = |(_, UnacknowledgedEdit { current: standing, proposed: wanted, .. }, edited)| {
            Ok(DecidedEdit { outcome: edited?, current: standing, proposed: wanted })
        };
        unacknowledged.map(made).transpose()
    }

    /// Queues a correction where the disk differs from `hash`: content written externally during the replacement, or
    /// found in place of a change that is impossible. Returns the error in the latter case.
    async fn queue_correction(
        &mut self,
        path: &FilePath,
        hash: Option<Digest>,
        outcome: &disk::StagedOutcome,
        displaced: u32,
    ) -> Option<DiskError> {
        let foreign = |found: &ExternalContent| found.text.as_deref().map(Arc::<str>::from);
        match outcome {
            disk::StagedOutcome::Applied(ApplyOutcome::Done | ApplyOutcome::Missing)
            | disk::StagedOutcome::Discarded => {}
            disk::StagedOutcome::Failed(error) => return self.queue_actual_content(path, hash, error, displaced).await,
            // The external content is still in place.
            disk::StagedOutcome::Applied(ApplyOutcome::Kept(found)) => {
                if let Some(text) = foreign(found) {
                    let edit = self.by_others(path, Some(&text));
                    self.state.pending.push_back(PendingEdit::new(edit, VecDeque::new(), displaced + 1));
                }
            }
            disk::StagedOutcome::Applied(ApplyOutcome::Displaced(found)) => {
                let Some(text) = foreign(found).filter(|_| displaced < DISPLACED_MAX && hash.is_some()) else {
                    tracing::warn!(%path, kept = found.kept, "what others wrote is kept in .patchboard/displaced");
                    return None;
                };
                let edit = self.by_others(path, Some(&text));
                let (at, again) = (path.clone(), Arc::clone(&text));
                match self.workspace.on_disk(move |disk| disk.stage(&at, hash, Some(&again))).await {
                    Ok(staged) => {
                        let files = VecDeque::from([(staged, Some(text))]);
                        self.state.pending.push_back(PendingEdit::new(edit, files, displaced + 1));
                    }
                    Err(error) => {
                        tracing::warn!(%path, %error, kept = found.kept, "what others wrote cannot be put back");
                    }
                }
            }
        }
        None
    }

    /// Handles an obstacle to a committed change: queues a report of the actual content, and returns the error. Does
    /// neither if the file has the content `hash` already.
    async fn queue_actual_content(
        &mut self,
        path: &FilePath,
        hash: Option<Digest>,
        error: &DiskError,
        displaced: u32,
    ) -> Option<DiskError> {
        let there = match self.workspace.read(path).await {
            Err(WorkspaceError::Disk(DiskError::NotServed(_))) => Some(None),
            Ok(there) => Some(there),
            // The next read or scan reports it.
            Err(_) => None,
        };
        if let Some(there) = there {
            if there.as_ref().map(|there| there.hash) == hash {
                return None;
            }
            let edit = self.by_others(path, there.as_ref().map(|there| there.text.as_str()));
            self.state.pending.push_back(PendingEdit::new(edit, VecDeque::new(), displaced + 1));
        }
        tracing::warn!(%path, %error, "what was committed cannot be in place; it is kept in .patchboard/displaced");
        Some(DiskError::NotInPlace { path: path.to_string(), why: error.to_string() })
    }

    /// Builds the edit for an external change; `text` is the content now, `None` if the file is gone.
    fn by_others(&self, path: &FilePath, text: Option<&str>) -> Edit {
        let entry = FileEntry::load(&self.workspace.state(), path);
        let now = text.map(|text| (sha256(text.as_bytes()), text));
        let change = external_change(path, entry.as_ref(), &self.workspace.texts, now);
        let (name, intent) = self.workspace.running.attribute(path);
        Edit { of: None, token: None, name, intent, reads: Vec::new(), changes: vec![change] }
    }

    async fn discard(&self, files: VecDeque<(StagedChange, Option<Arc<str>>)>) {
        let thrown =
            self.workspace.on_disk(move |disk| files.iter().try_for_each(|(staged, _)| disk.discard(staged))).await;
        if let Err(error) = thrown {
            tracing::warn!(%error, "what was staged for an edit is still there; it is thrown away when the workspace is opened");
        }
    }
}

impl EditState {
    /// Returns whether an edit is pending under this token, or has an outcome that its author did not receive.
    pub(super) fn is_pending(&self, key: &IdempotencyKey) -> bool {
        self.pending.iter().any(|begun| begun.edit.token.as_ref() == Some(key))
            || self.unacknowledged.iter().any(|(of, ..)| of == key)
    }

    /// Keeps the request of a pending edit, because its author leaves without the outcome.
    pub(super) fn leave(&mut self, token: &IdempotencyKey, unheard: UnacknowledgedEdit) {
        if let Some(pending) = self.pending.iter_mut().find(|begun| begun.edit.token.as_ref() == Some(token)) {
            pending.unacknowledged = Some(unheard);
        }
    }

    fn keep(&mut self, token: IdempotencyKey, unheard: UnacknowledgedEdit, decided: Result<EditOutcome, DiskError>) {
        if self.unacknowledged.len() >= UNACKNOWLEDGED_MAX {
            self.unacknowledged.pop_front();
        }
        self.unacknowledged.push_back((token, unheard, decided));
    }
}

impl PendingEdit {
    fn new(edit: Edit, files: VecDeque<(StagedChange, Option<Arc<str>>)>, displaced: u32) -> Self {
        let token = edit.token.clone().unwrap_or_else(|| IdempotencyKey::from(Uuid::now_v7().to_string()));
        let edit = Edit { token: Some(token), ..edit };
        Self { edit, principal: None, files, verdict: None, unacknowledged: None, displaced }
    }
}

/// Proposes an edit to the board, repeatedly while it is unknown whether it was recorded.
async fn submit_edit(
    workspace: &Workspace,
    edit: &Edit,
    principal: Option<Principal>,
) -> Result<EditOutcome, WorkspaceError> {
    let board =
        principal.map_or_else(|| workspace.board().clone(), |principal| workspace.board().with_principal(principal));
    let mut pause = PAUSE_MIN;
    let outcome = loop {
        match board.edit(edit.clone()).await {
            Err(RuntimeError::Interrupted(_) | RuntimeError::Journal(_)) if pause <= PAUSE_MAX => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            outcome => break outcome?,
        }
    };
    let rejected = |stage, code, message: &str| {
        EditOutcome::Rejected(Rejection::new(stage, vec![Violation::new(code, "", message)]))
    };
    // Only a new version has an intent to remember, and only a recent rejection has a reservation.
    let is_now = !matches!(
        outcome,
        Outcome::NoOp { .. } | Outcome::Duplicate(RememberedOutcome::NoOp { .. } | RememberedOutcome::Rejected { .. })
    );
    let mut edited = match outcome {
        Outcome::Committed { .. }
        | Outcome::NoOp { .. }
        | Outcome::Duplicate(RememberedOutcome::Committed { .. } | RememberedOutcome::NoOp { .. }) => {
            // The state changes only under this lock, so it shows this edit's versions unless the edit was made
            // earlier.
            let state = workspace.state();
            let made = |change: &FileChange| {
                let entry = FileEntry::load(&state, &change.path).filter(|entry| entry.hash == change.hash);
                entry.map(|entry| entry.version)
            };
            EditOutcome::Committed(edit.changes.iter().map(made).collect())
        }
        Outcome::Rejected { rejection, .. } | Outcome::RejectedUnrecorded(rejection) => {
            EditOutcome::Rejected(rejection)
        }
        Outcome::Duplicate(RememberedOutcome::Rejected { stage, code, .. }) => {
            rejected(stage, code, "it was refused; read again what it rests on")
        }
        // Answered, though not with an answer to an edit.
        other => rejected(Stage::Syntax, Code::NotAPatch, &format!("the board answered {other:?}")),
    };
    if is_now {
        workspace.history.lock().note(edit, &mut edited);
    }
    Ok(edited)
}
