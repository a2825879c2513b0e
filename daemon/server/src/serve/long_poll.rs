//! Long polling: requests that wait for a condition on a board's document.

use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::id::BoardId;
use patchboard_kernel::tree::Node;
use tokio::time::{Instant, timeout_at};

use super::problem::{ApiResult, Code, Problem};
use super::routes::history::RecordFollower;
use super::service::Daemon;

/// Maximum wait of a request, in seconds.
const WAIT_MAX: u64 = 60;

/// Returns the time that a request may wait. Fails with `code` beyond [`WAIT_MAX`].
pub(crate) fn wait_time(seconds: u64, code: Code) -> ApiResult<Duration> {
    if seconds > WAIT_MAX {
        return Err(Problem::from_code(code, format!("wait is at most {WAIT_MAX} seconds")));
    }
    Ok(Duration::from_secs(seconds))
}

/// Evaluates `look` on the board's document, and again after each record, while its result `is_pending`, for `seconds`
/// at most. Returns the last result. Does not open a board at rest.
pub(crate) async fn wait_while<T: Send + 'static>(
    daemon: &Arc<Daemon>,
    board: &BoardId,
    seconds: u64,
    look: impl Fn(&Node) -> T + Clone + Send + 'static,
    is_pending: impl Fn(&T) -> bool,
) -> ApiResult<T> {
    let until = Instant::now() + wait_time(seconds, Code::BadQuery)?;
    // Subscribes before the first look, so that no record in between is missed.
    let mut follow =
        RecordFollower::new(Arc::clone(daemon), board.clone(), Some(daemon.summary(board).await?.head.seq));
    loop {
        let found = now(daemon, board, look.clone()).await?;
        if !is_pending(&found) {
            return Ok(found);
        }
        drop(found);
        match timeout_at(until, follow.next()).await {
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(error))) => return Err(error.into()),
            // No more records can follow, or not in time.
            Ok(None) | Err(_) => return now(daemon, board, look).await,
        }
    }
}

/// Evaluates `look` on the current document of a board.
async fn now<T: Send + 'static>(
    daemon: &Arc<Daemon>,
    board: &BoardId,
    look: impl FnOnce(&Node) -> T + Send + 'static,
) -> ApiResult<T> {
    match daemon.running(board) {
        Some(running) => Ok(look(running.status().state.root())),
        None => daemon.query_board(board, None, move |board| Ok(look(board.state().root()))).await,
    }
}
