//! Eviction of boards that have ended and are idle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::id::{BoardId, Seq};
use patchboard_runtime::handle::BoardHandle;
use tokio::sync::watch;

use super::Daemon;
use crate::serve::problem::no_such_board;

const REST_LOOK_MIN: Duration = Duration::from_millis(100);
const REST_LOOK_MAX: Duration = Duration::from_secs(15);

impl Daemon {
    /// Closes a board until it is next requested, and releases its directory.
    pub(crate) async fn evict(&self, board: &BoardId) {
        self.with_board_lock(board, self.runtime.close(board)).await;
    }

    /// Evicts boards that have ended or stalled, and were idle for the given time. They are reopened on demand.
    pub(crate) async fn evict_idle_boards(self: &Arc<Self>, after: watch::Receiver<Duration>) {
        let mut quiet = IdleBoards::default();
        loop {
            let after = *after.borrow();
            tokio::time::sleep((after / 4).clamp(REST_LOOK_MIN, REST_LOOK_MAX)).await;
            let boards: Vec<BoardHandle> = self.running_boards().collect();
            let ended = boards.iter().filter_map(|board| Some((board.id(), ended_with(board)?)));
            let resting = quiet.update(ended, after, self.clock.steady_ms());
            for board in boards.into_iter().filter(|board| resting.contains_key(board.id())) {
                let (asked, last) = (board.clone(), resting[board.id()]);
                let may = async move |_| match ended_with(&asked) == Some(last) {
                    true => Ok(()),
                    false => Err(no_such_board(asked.id())),
                };
                match self.while_closed(board.id(), may, async |_| Ok(())).await {
                    Err(problem) if problem.status.is_server_error() => {
                        tracing::warn!(board = %board.id(), code = problem.code, "the board was not let go");
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Returns the last record of a board that has ended or stalled.
fn ended_with(board: &BoardHandle) -> Option<Seq> {
    let status = board.status();
    status.ended.map(|_| status.head.seq)
}

/// Ended boards, with their last record and the time it was first seen. Times are steady milliseconds, so that changes
/// of the wall clock do not affect the eviction.
#[derive(Default)]
struct IdleBoards(BTreeMap<BoardId, (Seq, u64)>);

impl IdleBoards {
    /// Updates the ended boards, and returns those with a last record first seen at least `after` ago.
    fn update<'a>(
        &mut self,
        ended: impl Iterator<Item = (&'a BoardId, Seq)>,
        after: Duration,
        now: u64,
    ) -> BTreeMap<BoardId, Seq> {
        let mut before = std::mem::take(&mut self.0);
        for (board, last) in ended {
            let seen = before.remove(board).filter(|(seq, _)| *seq == last);
            self.0.insert(board.clone(), seen.unwrap_or((last, now)));
        }
        let is_due = |since: u64| u128::from(now.saturating_sub(since)) >= after.as_millis();
        let due = self.0.iter().filter(|(_, (_, since))| is_due(*since));
        due.map(|(board, (last, _))| (board.clone(), *last)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_rests_when_steady_time_has_passed_since_its_last_record() {
        let mut quiet = IdleBoards::default();
        let (board, after) = (BoardId::from("b"), Duration::from_secs(60));
        let mut look = |last: Option<u64>, now| {
            let ended = last.map(|last| (&board, Seq(last)));
            quiet.update(ended.into_iter(), after, now).len()
        };
        assert_eq!((look(Some(7), 1_000_000), look(Some(7), 1_059_999), look(Some(7), 1_060_000)), (0, 0, 1));
        // A new record restarts the time, and so does a resumed board.
        assert_eq!((look(Some(9), 1_070_000), look(Some(9), 1_129_999), look(Some(9), 1_130_000)), (0, 0, 1));
        assert_eq!((look(None, 1_140_000), look(Some(9), 1_150_000), look(Some(9), 1_210_000)), (0, 0, 1));
    }
}
