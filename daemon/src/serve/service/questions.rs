//! What is asked of the journal, and of boards as it has them.

use std::sync::Arc;

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::Board;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::{Body, Created};
use patchboard_runtime::journal::Journal as _;
use patchboard_runtime::runtime::RuntimeError;
use serde_json::Value;

use super::{Daemon, no_such_board};
use crate::failure::Failure;
use crate::reader::{Reader, storage};
use crate::serve::problem::{Answered, Code, Problem};
use crate::serve::share::Payer;

impl Daemon {
    /// What a board is made of. Nothing is taken up to be looked at.
    pub(crate) async fn blueprint(self: &Arc<Self>, board: &BoardId) -> Answered<Arc<Blueprint>> {
        if let Some(running) = self.running(board) {
            return Ok(Arc::clone(&running.snapshot().blueprint));
        }
        let created = self.created(board).await?;
        let blueprint = serde_json::from_value(created.blueprint);
        blueprint.map(Arc::new).map_err(|error| Problem::of(Code::Internal, format!("the blueprint: {error}")))
    }

    /// Refuses unless a board was made of this.
    pub(super) async fn same(
        self: &Arc<Self>,
        board: &BoardId,
        blueprint: &Blueprint,
        request: &Value,
    ) -> Answered<()> {
        let created = self.created(board).await?;
        let is_same = created.read_blueprint().is_ok_and(|made| blueprint.is_that_of(&made));
        if is_same && *request == created.request {
            return Ok(());
        }
        Err(RuntimeError::TokenConflict(board.clone()).into())
    }

    /// The record of how a board was made.
    async fn created(self: &Arc<Self>, board: &BoardId) -> Answered<Box<Created>> {
        match self.body(board, Seq(0)).await? {
            Some(Body::Created(created)) => Ok(created),
            _ => Err(no_such_board(board)),
        }
    }

    /// Returns what a record of a board says; none if there is no record of this number, or it cannot be read.
    pub(crate) async fn body(self: &Arc<Self>, board: &BoardId, seq: Seq) -> Answered<Option<Body>> {
        let (board, before) = (board.clone(), seq.0.checked_sub(1).map(Seq));
        let found = self.ask(move |reader| reader.journal.records(&board, before, 1).map_err(storage)).await?;
        Ok(found.first().filter(|record| record.seq == seq).and_then(|record| record.body().ok()))
    }

    /// Asks the journal something, on a thread that may wait for the disk; not too many at once.
    pub(crate) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        question: impl FnOnce(&Reader) -> Result<T, Failure> + Send + 'static,
    ) -> Answered<T> {
        let gone = || Problem::from(RuntimeError::Start("the daemon is stopping".to_owned()));
        let payer = Payer::current();
        let place = match &payer {
            Some(payer) => payer.read().await,
            None => Arc::clone(&self.reads).acquire_owned().await.ok(),
        };
        let place = place.ok_or_else(gone)?;
        let daemon = Arc::clone(self);
        let asked = tokio::task::spawn_blocking(move || {
            // Its place is free when it is done, also if nobody waits for it any more.
            let _place = place;
            match payer {
                Some(payer) => payer.charged(|| question(&daemon.reader)),
                None => question(&daemon.reader),
            }
        })
        .await;
        match asked {
            Ok(answer) => Ok(answer?),
            Err(error) => Err(Failure::failed("internal", format!("the question was not answered: {error}")).into()),
        }
    }

    /// The same of one board as it stands at a version; without one, as it stands now.
    pub(crate) async fn ask_board<T: Send + 'static>(
        self: &Arc<Self>,
        board: &BoardId,
        version: Option<u64>,
        question: impl FnOnce(&Board) -> Result<T, Failure> + Send + 'static,
    ) -> Answered<T> {
        let summary = self.summary(board)?;
        self.ask(move |reader| question(&reader.board(&summary, version)?)).await
    }
}
