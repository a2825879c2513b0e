//! Retention of ended boards: the table `[retention]` of the operator's configuration, and its execution.
//!
//! ```toml
//! [retention]
//! ended = "90d"            # kept for ever without it
//! then = "archive"         # or "delete"
//! [retention.blueprints.drafts]
//! ended = "7d"
//! then = "delete"
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration as Time;

use patchboard_kernel::blueprint::Duration;
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_storage::journal::BoardSummary;
use serde::Deserialize;
use tokio::sync::watch;

use super::service::Daemon;
use crate::failure::Failure;

const EVERY: Time = Time::from_secs(3600);

/// Maximum boards per pass; the rest waits for the next one.
const AT_ONCE: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExpiryAction {
    /// Archive the board to a file, from which it can be restored.
    #[default]
    Archive,
    Delete,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Rule {
    ended: Option<Duration>,
    then: ExpiryAction,
}

/// The table `[retention]`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Retention {
    ended: Option<Duration>,
    then: ExpiryAction,
    /// Rules by blueprint name, each in place of the general one.
    blueprints: BTreeMap<String, Rule>,
}

impl Retention {
    pub(crate) fn read(table: toml::Table) -> Result<Self, Failure> {
        table.try_into().map_err(|error: toml::de::Error| {
            Failure::invalid_input("bad_config", format!("[retention]: {}", error.message()))
        })
    }

    /// Returns the expired boards with the action for each, the oldest first.
    fn due(&self, boards: &[BoardSummary], now: Timestamp) -> Vec<(BoardId, ExpiryAction)> {
        let ended = boards.iter().filter(|board| board.ended.is_some());
        let due = ended.filter_map(|board| {
            let all = Rule { ended: self.ended, then: self.then };
            let rule = self.blueprints.get(&board.name).copied().unwrap_or(all);
            let is_over = now.ms_since(board.updated_at) >= rule.ended?.as_ms();
            is_over.then(|| (board.id.clone(), rule.then))
        });
        due.take(AT_ONCE).collect()
    }
}

/// Applies the retention rules periodically and after each change of the table, while the daemon runs.
pub(crate) async fn run_retention(daemon: Arc<Daemon>, mut tables: watch::Receiver<Retention>) {
    loop {
        let retention = tables.borrow_and_update().clone();
        if retention.ended.is_some() || retention.blueprints.values().any(|rule| rule.ended.is_some()) {
            pass(&daemon, &retention).await;
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            Ok(()) = tables.changed() => {}
        }
    }
}

async fn pass(daemon: &Arc<Daemon>, retention: &Retention) {
    let due = match daemon.boards().await {
        Ok(boards) => retention.due(&boards, daemon.clock.now()),
        Err(problem) => {
            tracing::error!(code = problem.code, "the boards cannot be listed");
            return;
        }
    };
    let mut is_any_deleted = false;
    for (board, then) in due {
        let done = match then {
            ExpiryAction::Archive => daemon.archive(&board, None).await.map(drop),
            ExpiryAction::Delete => daemon.delete(&board, None).await.map(drop),
        };
        is_any_deleted |= done.is_ok() && then == ExpiryAction::Delete;
        match done {
            Ok(()) => tracing::info!(%board, ?then, "the time of the board was over"),
            Err(problem) => tracing::error!(%board, code = problem.code, "the board stays, though its time is over"),
        }
    }
    if is_any_deleted && let Err(problem) = daemon.vacuum().await {
        tracing::error!(code = problem.code, "the file could not be rewritten");
    }
}

#[cfg(test)]
mod tests;
