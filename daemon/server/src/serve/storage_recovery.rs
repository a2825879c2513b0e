//! Recovery of boards that a storage failure has interrupted: they resume once the storage accepts writes.

use std::sync::Arc;
use std::time::Duration;

use super::service::Daemon;

const TRY_MIN: Duration = Duration::from_secs(2);
const TRY_MAX: Duration = Duration::from_secs(60);

impl Daemon {
    /// Resumes interrupted boards one at a time, as soon as the storage accepts writes.
    pub(crate) async fn resume_interrupted_boards(self: &Arc<Self>) {
        let mut pause = TRY_MIN;
        loop {
            tokio::time::sleep(pause).await;
            pause = match self.disk.first() {
                Some(board) => match self.open(&board).await {
                    Err(_) if self.disk.write_error().is_some() => (pause * 2).min(TRY_MAX),
                    Err(problem) => {
                        tracing::warn!(%board, code = problem.code, "the board was not reopened");
                        self.disk.forget(&board);
                        Duration::ZERO
                    }
                    Ok(_) => {
                        tracing::info!(%board, "the board goes on");
                        self.disk.forget(&board);
                        Duration::ZERO
                    }
                },
                // With no board waiting, only a probe write can detect the recovery.
                None if self.disk.write_error().is_some() => match self.try_to_write().await {
                    Ok(()) => {
                        self.disk.recovered();
                        TRY_MIN
                    }
                    Err(_) => (pause * 2).min(TRY_MAX),
                },
                None => TRY_MIN,
            };
        }
    }
}
