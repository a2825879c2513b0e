//! Operations on stored boards: redaction, archives, deletion and vacuum.

use std::sync::Arc;

use patchboard_kernel::id::BoardId;
use patchboard_kernel::record::Principal;
use patchboard_kernel::redaction::Request;
use patchboard_protocols::PLANS;
use patchboard_runtime::archive::{self, ArchiveError};
use patchboard_runtime::redaction::redact;
use patchboard_storage::archives::Archives;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::{BoardSummary, Journal, Tombstone, VacuumStats};
use serde_json::Value;

use super::Daemon;
use crate::queries::redaction::{self, Redaction, Rows, search_departments};
use crate::queries::storage::{self as stored, boards_and_archived};
use crate::reader::{Reader, storage};
use crate::serve::problem::{ApiResult, no_such_board};
use crate::serve::tokens::{Action, AuditedAction};

impl Daemon {
    /// Redacts values of a board. A running board is closed meanwhile, and resumes afterwards.
    pub(crate) async fn redact(
        self: &Arc<Self>,
        board: &BoardId,
        request: Request,
        replacement: Option<Value>,
        rows: Option<Rows>,
        principal: Principal,
    ) -> ApiResult<Redaction> {
        let (id, asked) = (board.clone(), board.clone());
        let may = async move |daemon: Arc<Self>| daemon.summary(&asked).await.map(drop);
        let work = async move |daemon: Arc<Self>| {
            let journal = Arc::clone(&daemon.reader.journal);
            let _claim = journal.claim(&id, false).await?;
            let now = daemon.clock.now();
            let principal = Some(principal);
            let (beside, shared) = (search_departments(&daemon.data_dir, rows), Arc::clone(&journal));
            let redacted = redact(shared, id.clone(), request, replacement, (principal, now), PLANS, beside).await;
            let redacted = redacted.map_err(redaction::failure)?;
            let archives = daemon.archives();
            let renewed = daemon.query(move |_| {
                archive::rewrite(&*journal, &*archives, &id, &PLANS).map_err(|error| redaction::archived(&error))
            });
            renewed.await?;
            Ok(redacted)
        };
        self.while_closed(board, may, work).await
    }

    pub(crate) async fn boards_and_archived(self: &Arc<Self>) -> ApiResult<Vec<BoardSummary>> {
        let data_dir = self.data_dir.clone();
        self.query(move |reader| boards_and_archived(&*reader.journal, &data_dir)).await
    }

    pub(crate) async fn archive(self: &Arc<Self>, board: &BoardId, by: Option<Principal>) -> ApiResult<String> {
        let (id, now, archives) = (board.clone(), self.clock.now(), self.archives());
        let take = move |journal: &dyn Journal| archive::archive(journal, &*archives, &id, now, &PLANS);
        self.remove_board(board, (Action::BoardArchived, by), take).await
    }

    /// Deletes an ended board from the journal permanently; its bytes are destroyed by the next vacuum.
    pub(crate) async fn delete(self: &Arc<Self>, board: &BoardId, by: Option<Principal>) -> ApiResult<Tombstone> {
        let (id, now, archives) = (board.clone(), self.clock.now(), self.archives());
        let take = move |journal: &dyn Journal| archive::delete(journal, &*archives, &id, now);
        self.remove_board(board, (Action::BoardDeleted, by), take).await
    }

    async fn remove_board<T: Send + 'static>(
        self: &Arc<Self>,
        board: &BoardId,
        (action, by): (Action, Option<Principal>),
        take: impl FnOnce(&dyn Journal) -> Result<T, ArchiveError> + Send + 'static,
    ) -> ApiResult<T> {
        let (id, asked) = (board.clone(), board.clone());
        // A board that has not ended is not closed.
        let may = async move |daemon: Arc<Self>| match daemon.summary(&asked).await?.ended {
            Some(_) => Ok(()),
            None => Err(stored::failure(ArchiveError::NotEnded(asked)).into()),
        };
        let work = async move |daemon: Arc<Self>| {
            let _claim = daemon.reader.journal.claim(&id, false).await?;
            let (tokens, now) = (daemon.tokens.clone(), daemon.clock.now());
            let recorded = move |reader: &Reader| {
                let intended = AuditedAction { action, subject: Some(id.as_str()), by: by.as_ref() };
                tokens.audited(&intended, now, || take(&*reader.journal).map_err(stored::failure))
            };
            daemon.query(recorded).await
        };
        self.while_closed(board, may, work).await
    }

    pub(crate) async fn restore(&self, board: &BoardId, by: &Principal) -> ApiResult<()> {
        let restored = async {
            let known = self.reader.journal.tombstones().await?.into_iter().find(|tombstone| tombstone.board == *board);
            known.and_then(|tombstone| tombstone.archive).ok_or_else(|| no_such_board(board))?;
            let journal = Arc::clone(&self.reader.journal);
            let intended = AuditedAction { action: Action::BoardRestored, subject: Some(board.as_str()), by: Some(by) };
            let entry = self.tokens.begin(&intended, self.clock.now()).await?;
            archive::restore(journal, self.archives(), board.clone(), PLANS).await.map_err(stored::failure)?;
            self.tokens.finish(entry).await;
            Ok(())
        };
        self.with_board_lock(board, restored).await
    }

    pub(crate) async fn vacuum_by(self: &Arc<Self>, by: &Principal) -> ApiResult<VacuumStats> {
        let intended = AuditedAction { action: Action::JournalVacuumed, subject: None, by: Some(by) };
        let entry = self.tokens.begin(&intended, self.clock.now()).await?;
        let vacuumed = self.vacuum().await?;
        self.tokens.finish(entry).await;
        Ok(vacuumed)
    }

    /// Vacuums the journal. Boards wait meanwhile, readers do not.
    pub(crate) async fn vacuum(self: &Arc<Self>) -> ApiResult<VacuumStats> {
        self.query(|reader| wait(reader.journal.vacuum()).map_err(storage)).await
    }

    fn archives(&self) -> Arc<dyn Archives> {
        patchboard_storage::archives(&self.data_dir)
    }
}
