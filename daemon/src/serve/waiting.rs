//! Requests that wait until something stands in a board's document.

use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::id::BoardId;
use patchboard_kernel::tree::Node;
use tokio::time::{Instant, timeout_at};

use super::problem::{Answered, Code, Problem};
use super::routes::history::Follow;
use super::service::Daemon;

/// The longest that a request may wait, in seconds.
pub(crate) const WAIT_MAX: u64 = 60;

/// How long a request wants to wait.
///
/// # Errors
/// Longer than any may.
pub(crate) fn patience(seconds: u64) -> Answered<Duration> {
    if seconds > WAIT_MAX {
        return Err(Problem::of(Code::BadQuery, format!("wait is at most {WAIT_MAX} seconds")));
    }
    Ok(Duration::from_secs(seconds))
}

/// What a look at a board's document comes to. It is looked at again after each record until that is something, the time is
/// over, or nothing more can come. A board at rest is not taken up for it.
pub(crate) async fn until<T: Send + 'static>(
    daemon: &Arc<Daemon>,
    board: &BoardId,
    patience: Duration,
    look: impl Fn(&Node) -> Option<T> + Clone + Send + 'static,
) -> Answered<Option<T>> {
    let until = Instant::now() + patience;
    // From before the look, or what comes in between would be missed.
    let mut follow = Follow::new(Arc::clone(daemon), board.clone(), Some(daemon.summary(board)?.head.seq));
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

/// What a look at a board's document as it is now comes to.
pub(crate) async fn now<T: Send + 'static>(
    daemon: &Arc<Daemon>,
    board: &BoardId,
    look: impl FnOnce(&Node) -> T + Send + 'static,
) -> Answered<T> {
    match daemon.running(board) {
        Some(running) => Ok(look(running.snapshot().state.root())),
        None => daemon.ask_board(board, None, move |board| Ok(look(board.state().root()))).await,
    }
}
