//! Takes snapshots in the background: a task gets a copy of the board and returns the snapshot to record.
//!
//! Boards take turns at that. An error neither stops nor blocks the board, unless the policy requires it.

use std::sync::Arc;

use patchboard_kernel::board::Input;
use patchboard_storage::journal::{GarbageCollection, Journal, JournalError};
use ractor::ActorRef;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{ActiveBoard, State};
use crate::actors::messages::KernelMessage;
use crate::actors::{ActorResult, Context};
use crate::error::RuntimeError;
use crate::snapshotter::{self, SnapshotTask, StoredSnapshot};

impl State {
    /// Starts a snapshot task if one is due. The turn is that of an earlier task of the board.
    pub(super) async fn start_due_snapshot_task(&mut self, turn: Option<OwnedSemaphorePermit>) -> ActorResult {
        let due = self.running.as_ref().and_then(|running| {
            let is_ended = running.driver.board().ended().is_some();
            running.snapshotter.due(is_ended)
        });
        match due {
            Some(due) => Ok(Box::pin(self.start_snapshot_task(due, turn)).await?),
            None => Ok(()),
        }
    }

    /// Starts a due snapshot task in this board's turn: nothing is copied before.
    async fn start_snapshot_task(
        &mut self,
        due: SnapshotTask,
        turn: Option<OwnedSemaphorePermit>,
    ) -> Result<(), RuntimeError> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let waits = running.snapshotter.policy().waits;
        let turn = match turn {
            Some(turn) => Some(turn),
            None => running.snapshot_permit(&self.context.snapshot_permits, &self.myself).await,
        };
        let Some(turn) = turn else { return Ok(()) };
        running.snapshotter.task_started(&due);
        let board = running.driver.board();
        let (id, epoch) = (board.id().clone(), board.epoch());
        let context = Arc::clone(&self.context);
        let myself = self.myself.clone();
        // A kernel that has ended meanwhile needs no answer.
        match due {
            SnapshotTask::CollectGarbage { unusable } => {
                tokio::spawn(async move {
                    let swept = run_blocking(&context, turn, move |journal| {
                        snapshotter::collect_garbage(journal, &id, epoch, &unusable)
                    });
                    drop(myself.cast(KernelMessage::GarbageCollected(swept.await)));
                });
            }
            SnapshotTask::Snapshot => {
                let picture = board.clone();
                let stop = running.snapshotter.stop();
                let work = async move {
                    run_blocking(&context, turn, move |journal| snapshotter::store_snapshot(journal, &picture, &stop))
                        .await
                };
                if waits {
                    self.on_snapshot_stored(work.await).await?;
                } else {
                    tokio::spawn(async move { drop(myself.cast(KernelMessage::SnapshotStored(work.await))) });
                }
            }
        }
        Ok(())
    }

    pub(super) async fn on_snapshot_stored(
        &mut self,
        taken: Result<StoredSnapshot, JournalError>,
    ) -> Result<(), RuntimeError> {
        let board = self.channel.board().clone();
        match taken {
            Ok(stored) => {
                let StoredSnapshot { of, digest, new } = stored;
                let recorded = self.decide(Input::Snapshot { of, digest }).await?.recorded;
                tracing::debug!(%board, %of, parts = new.count, bytes = new.bytes, recorded, "snapshot stored");
                if let Some(running) = &mut self.running {
                    if recorded { running.snapshotter.snapshot_recorded(&stored) } else { running.snapshotter.failed() }
                }
            }
            Err(error) => {
                tracing::warn!(%board, %error, "no snapshot could be stored; it is tried again later");
                if let Some(running) = &mut self.running {
                    running.snapshotter.failed();
                }
            }
        }
        Ok(())
    }

    pub(super) fn on_garbage_collected(&mut self, swept: Result<GarbageCollection, JournalError>) {
        let board = self.channel.board();
        match &swept {
            Ok(GarbageCollection { kept, removed }) => tracing::debug!(%board, kept, removed, "old snapshots removed"),
            Err(error) => tracing::warn!(%board, %error, "old snapshots could not be removed; it is tried again later"),
        }
        if let Some(running) = &mut self.running {
            running.snapshotter.garbage_collected(swept.ok());
        }
    }
}

impl ActiveBoard {
    /// Acquires a turn for snapshots if one is free or the policy waits for it; otherwise it arrives as a message.
    async fn snapshot_permit(
        &mut self,
        turns: &Arc<Semaphore>,
        myself: &ActorRef<KernelMessage>,
    ) -> Option<OwnedSemaphorePermit> {
        let turns = Arc::clone(turns);
        if self.snapshotter.policy().waits {
            return turns.acquire_owned().await.ok();
        }
        let free = Arc::clone(&turns).try_acquire_owned().ok();
        if free.is_none() && self.snapshotter.asks_for_turn() {
            let myself = myself.clone();
            tokio::spawn(async move {
                if let Ok(turn) = turns.acquire_owned().await {
                    drop(myself.cast(KernelMessage::SnapshotPermit(turn)));
                }
            });
        }
        free
    }
}

/// Runs snapshot work, off the threads that serve boards.
async fn run_blocking<T: Send + 'static>(
    context: &Arc<Context>,
    turn: OwnedSemaphorePermit,
    work: impl FnOnce(&dyn Journal) -> Result<T, JournalError> + Send + 'static,
) -> Result<T, JournalError> {
    let journal = Arc::clone(context.journal.journal());
    let work = move || {
        let done = work(&*journal);
        drop(turn);
        done
    };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(JournalError::Io(error.to_string())))
}
