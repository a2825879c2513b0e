//! Recovery of all boards at start-up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use patchboard_kernel::id::BoardId;
use patchboard_kernel::record::{End, Kind, Record};
use patchboard_runtime::handle::BoardHandle;
use patchboard_storage::journal::BoardSummary;
use tokio::task::JoinSet;

use super::Daemon;
use crate::failure::Failure;
use crate::reader::storage;
use crate::serve::problem::ApiResult;

/// Maximum time that model calls wait for the recovery of all boards. The journals record which models are unavailable.
const RECOVERY_GATE_TIMEOUT: Duration = Duration::from_secs(30);

const RECOVERED_AT_ONCE: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) boards: usize,
    pub(crate) failed: usize,
}

impl Daemon {
    /// Resumes every board that has not ended. A nested board is resumed by the call of its parent. If its parent has
    /// ended, it is cancelled, unless the parent can be retried and an operator has retried the nested board.
    pub(crate) async fn recover(self: &Arc<Self>) -> Result<Recovered, Failure> {
        let boards = self.reader.journal.boards().await.map_err(storage)?;
        let open: BTreeSet<BoardId> =
            boards.iter().filter(|board| board.ended.is_none()).map(|board| board.id.clone()).collect();
        let is_orphan = |board: &BoardSummary| board.parent.as_ref().is_some_and(|parent| !open.contains(parent));
        let is_final = |board: &BoardSummary| matches!(board.ended, Some(End::Done | End::Cancelled));
        let over: BTreeSet<BoardId> =
            boards.iter().filter(|board| is_final(board)).map(|board| board.id.clone()).collect();
        let mut left = boards
            .iter()
            .filter(|board| board.ended.is_none() && (board.parent.is_none() || is_orphan(board)))
            .map(|board| {
                let may_be_retried = board.parent.as_ref().is_some_and(|parent| !over.contains(parent));
                (board.id.clone(), is_orphan(board).then_some(may_be_retried))
            });
        let (mut going, mut recovered) = (JoinSet::new(), Recovered::default());
        self.registry.current().gate().shut(RECOVERY_GATE_TIMEOUT);
        loop {
            while going.len() < RECOVERED_AT_ONCE
                && let Some((board, orphan)) = left.next()
            {
                let daemon = Arc::clone(self);
                going.spawn(async move {
                    let done = match (daemon.open(&board).await, orphan) {
                        (Ok(opened), Some(may_be_retried)) => cancel_orphan(&opened, may_be_retried).await,
                        (opened, _) => opened.map(drop),
                    };
                    (board, done)
                });
            }
            match going.join_next().await {
                None => {
                    self.registry.current().gate().open();
                    self.is_ready.store(true, Ordering::Release);
                    return Ok(recovered);
                }
                Some(Ok((_, Ok(_)))) => recovered.boards += 1,
                Some(Ok((board, Err(problem)))) => {
                    tracing::error!(%board, code = problem.code, "the board cannot continue: {}", problem.detail);
                    recovered.failed += 1;
                }
                Some(Err(error)) => {
                    tracing::error!(%error, "a board could not be recovered");
                    recovered.failed += 1;
                }
            }
        }
    }
}

/// Cancels a nested board of an ended parent, unless the parent can be retried and an operator has retried the board.
async fn cancel_orphan(board: &BoardHandle, may_be_retried: bool) -> ApiResult<()> {
    let is_retried = |is: &mut bool, record: &Record| *is |= record.kind == Kind::Retried;
    if !may_be_retried || !board.read(None, false, is_retried).await? {
        board.cancel().await?;
    }
    Ok(())
}
