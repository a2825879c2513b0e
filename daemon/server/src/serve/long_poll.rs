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
pub(crate) const WAIT_MAX: u64 = 60;

/// Returns the time that a request may wait. Fails beyond [`WAIT_MAX`].
pub(crate) fn wait_time(seconds: u64) -> ApiResult<Duration> {
    if seconds > WAIT_MAX {
        return Err(Problem::from_code(Code::BadQuery, format!("wait is at most {WAIT_MAX} seconds")));
    }
    Ok(Duration::from_secs(seconds))
}

/// Evaluates `look` on the board's document, and again after each record. Returns its first result, or `None` on
/// timeout or when no more records can follow. Does not open a board at rest.
pub(crate) async fn wait_for<T: Send + 'static>(
    daemon: &Arc<Daemon>,
    board: &BoardId,
    timeout: Duration,
    look: impl Fn(&Node) -> Option<T> + Clone + Send + 'static,
) -> ApiResult<Option<T>> {
    let until = Instant::now() + timeout;
    // Subscribes before the first look, so that no record in between is missed.
    let mut follow =
        RecordFollower::new(Arc::clone(daemon), board.clone(), Some(daemon.summary(board).await?.head.seq));
    loop {
        if let Some(found) = now(daemon, board, look.clone()).await? {
            return Ok(Some(found));
        }
        match timeout_at(until, follow.next()).await {
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(error))) => return Err(error.into()),
            Ok(None) | Err(_) => return Ok(None),
        }
    }
}

/// Evaluates `look` on the current document of a board.
pub(crate) async fn now<T: Send + 'static>(
    daemon: &Arc<Daemon>,
    board: &BoardId,
    look: impl FnOnce(&Node) -> T + Send + 'static,
) -> ApiResult<T> {
    match daemon.running(board) {
        Some(running) => Ok(look(running.status().state.root())),
        None => daemon.query_board(board, None, move |board| Ok(look(board.state().root()))).await,
    }
}
