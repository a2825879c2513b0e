//! Resources of roles in addition to their views.

use std::sync::Arc;

use patchboard_kernel::failure::FailureCode;
use patchboard_llm::embeddings::Embedder;
use patchboard_runtime::agent::Failure;
use patchboard_runtime::clock::Clock;

use crate::departments::storage::Storage;

/// Resources of a role in addition to its view.
#[derive(Clone)]
pub struct RoleContext {
    /// Storage of departments.
    pub storage: Arc<Storage>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Embeddings client, if the operator configured one.
    pub embedder: Option<Arc<Embedder>>,
}

pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let worked = tokio::task::spawn_blocking(work).await;
    worked.map_err(|why| Failure::new(FailureCode::Crashed, format!("a role of this project: {why}")))
}
