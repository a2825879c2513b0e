//! Models of this daemon: their context sizes and their availability.

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::id::BoardId;
use patchboard_llm::gate::{Availability, BoardOutage, ModelState};
use patchboard_runtime::agent::Agent as _;
use tokio::sync::broadcast::error::RecvError;

use super::Daemon;
use crate::outages;

impl Daemon {
    /// Sets the view budgets of a blueprint from the context sizes of this daemon's models, as for a board of it.
    pub(crate) fn fit_views(&self, blueprint: &mut Blueprint) {
        let registry = self.registry.current();
        blueprint.fit_views(&|model| registry.context_window(model));
    }

    /// Returns the recently used models, with their availability and number of waiting calls.
    pub(crate) fn models(&self) -> Vec<ModelState> {
        self.registry.current().gate().state()
    }

    /// Returns the unsent requests of a board that wait for unavailable models.
    pub(crate) fn held(&self, board: &BoardId) -> Option<BoardOutage> {
        self.registry.current().gate().board_outage(board)
    }

    /// Logs a warning when a model becomes unavailable, and a notice when it is back. Never returns.
    pub(crate) async fn log_outages(&self) {
        let mut transitions = self.registry.current().gate().subscribe();
        loop {
            match transitions.recv().await {
                Ok(transition) => {
                    let sentence = outages::sentence(&transition);
                    match transition.change {
                        Availability::Unavailable { .. } => tracing::warn!(url = transition.key.url(), "{sentence}"),
                        Availability::Recovered { .. } => tracing::info!(url = transition.key.url(), "{sentence}"),
                    }
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    }
}
