//! Reads of the journal, and of boards as stored in it.

use std::sync::Arc;

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::Board;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::{Body, Created};
use patchboard_runtime::error::RuntimeError;
use serde_json::Value;

use super::Daemon;
use crate::failure::Failure;
use crate::reader::Reader;
use crate::serve::problem::{ApiResult, Code, Problem, no_such_board};
use crate::serve::processor_quota::MeteredCaller;

impl Daemon {
    /// Returns the blueprint of a board, without opening it.
    pub(crate) async fn blueprint(self: &Arc<Self>, board: &BoardId) -> ApiResult<Arc<Blueprint>> {
        if let Some(running) = self.running(board) {
            return Ok(Arc::clone(&running.status().blueprint));
        }
        let created = self.created(board).await?;
        let blueprint = serde_json::from_value(created.blueprint);
        blueprint.map(Arc::new).map_err(|error| Problem::from_code(Code::Internal, format!("the blueprint: {error}")))
    }

    pub(super) async fn check_same_input(
        self: &Arc<Self>,
        board: &BoardId,
        blueprint: &Blueprint,
        request: &Value,
    ) -> ApiResult<()> {
        let created = self.created(board).await?;
        let is_same = created.read_blueprint().is_ok_and(|made| blueprint.is_that_of(&made));
        if is_same && *request == created.request {
            return Ok(());
        }
        Err(RuntimeError::IdempotencyConflict(board.clone()).into())
    }

    async fn created(self: &Arc<Self>, board: &BoardId) -> ApiResult<Box<Created>> {
        match self.body(board, Seq(0)).await? {
            Some(Body::Created(created)) => Ok(created),
            _ => Err(no_such_board(board)),
        }
    }

    /// Returns the body of a record; `None` if the record does not exist or is unreadable.
    pub(crate) async fn body(self: &Arc<Self>, board: &BoardId, seq: Seq) -> ApiResult<Option<Body>> {
        let (board, before) = (board.clone(), seq.0.checked_sub(1).map(Seq));
        let found = self.reader.journal.records(&board, before, 1).await?;
        Ok(found.first().filter(|record| record.seq == seq).and_then(|record| record.body().ok().cloned()))
    }

    /// Reads the journal on a blocking thread, with bounded concurrency.
    pub(crate) async fn query<T: Send + 'static>(
        self: &Arc<Self>,
        question: impl FnOnce(&Reader) -> Result<T, Failure> + Send + 'static,
    ) -> ApiResult<T> {
        let daemon = Arc::clone(self);
        Ok(self.run_read(move || question(&daemon.reader)).await??)
    }

    /// Runs a read on a blocking thread, with bounded concurrency; the caller is charged for it.
    pub(super) async fn run_read<T: Send + 'static>(&self, read: impl FnOnce() -> T + Send + 'static) -> ApiResult<T> {
        let gone = || Problem::from(RuntimeError::Start("the daemon is stopping".to_owned()));
        let caller = MeteredCaller::current();
        let place = match &caller {
            Some(caller) => caller.read().await,
            None => Arc::clone(&self.reads).acquire_owned().await.ok(),
        };
        let place = place.ok_or_else(gone)?;
        let result = tokio::task::spawn_blocking(move || {
            // Releases the permit when the read is done, even if the caller has left.
            let _place = place;
            if let Some(caller) = caller { caller.run_charged(read) } else { read() }
        });
        let failed = |error| Failure::failed("internal", format!("the question was not answered: {error}"));
        Ok(result.await.map_err(failed)?)
    }

    /// Reads one board as of a version; `None`: its current state.
    pub(crate) async fn query_board<T: Send + 'static>(
        self: &Arc<Self>,
        board: &BoardId,
        version: Option<u64>,
        question: impl FnOnce(&Board) -> Result<T, Failure> + Send + 'static,
    ) -> ApiResult<T> {
        let summary = self.summary(board).await?;
        self.query(move |reader| question(&reader.board(&summary, version)?)).await
    }
}
