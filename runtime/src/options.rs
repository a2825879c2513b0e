//! Options of a runtime and of a new board.

use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::ablation::Mode;
use patchboard_kernel::admission::Admission;
use patchboard_kernel::digest::Salt;
use patchboard_kernel::id::BoardId;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Parent, Principal};

use crate::agent::Agent;
use crate::clock::{Clock, SystemClock};
use crate::failpoints::Failpoints;
use crate::ids::{Ids, SystemIds};
use crate::observer::{NoopObserver, Observer};
use crate::snapshotter::SnapshotPolicy;

/// Options of a runtime.
#[derive(Clone)]
pub struct Options {
    /// Agent of all seats of all boards.
    pub agent: Arc<dyn Agent>,
    /// Clock of all boards.
    pub clock: Arc<dyn Clock>,
    /// Source of ids, salts and writers' names.
    pub ids: Arc<dyn Ids>,
    /// Limit on failures of a board's actors.
    pub restarts: RestartPolicy,
    /// Limit of external requests queued per board; further ones wait for admission.
    pub request_queue_max: usize,
    /// Records that a subscriber may fall behind before it must catch up from the journal.
    pub subscription_buffer: usize,
    /// Snapshot policy.
    pub snapshots: SnapshotPolicy,
    /// Observer of the boards.
    pub observer: Arc<dyn Observer>,
    pub(crate) failpoints: Failpoints,
}

impl Options {
    /// Creates options with the machine's clock and randomness, and the default limits.
    pub fn new(agent: Arc<dyn Agent>) -> Self {
        Self {
            agent,
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
            restarts: RestartPolicy::default(),
            request_queue_max: 64,
            subscription_buffer: 1024,
            snapshots: SnapshotPolicy::default(),
            observer: Arc::new(NoopObserver),
            failpoints: Failpoints::default(),
        }
    }
}

/// Limit on failures of a board's actors before the board is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestartPolicy {
    /// Restarts allowed within `window`.
    pub max: u32,
    /// Time window; one failure more than `max` within it ends the board.
    pub window: Duration,
    /// Pause before the second restart within the window; doubled for each further one. The first is immediate.
    pub backoff: Duration,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self { max: 5, window: Duration::from_secs(60), backoff: Duration::from_millis(20) }
    }
}

/// Options of a new board. The default suits most callers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CreateOptions {
    /// Board id; generated if absent.
    pub id: Option<BoardId>,
    /// Salt; set only for reproducible runs.
    pub salt: Option<Salt>,
    /// Ablation: the enabled parts of PatchBoard.
    pub ablation: Mode,
    /// Usage of the architect that wrote the blueprint, charged to the board.
    pub architect: Option<ArchitectUsage>,
    /// Outer invocation, if the board is nested.
    pub parent: Option<Parent>,
    /// External caller that starts it; for a nested board, the one that started the outer board.
    pub principal: Option<Principal>,
}

/// Usage of the model that wrote a board's blueprint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArchitectUsage {
    /// Calls of the model.
    pub calls: u32,
    /// Tokens of these calls.
    pub usage: Usage,
    /// Tokens of the calls after the first, included in `usage`.
    pub repairs: Usage,
    /// Prompts of the calls, in order, as [`Prompt::to_json`](patchboard_kernel::view::Prompt::to_json) writes them.
    pub prompts: Vec<Arc<str>>,
    /// Model of the calls, and its price.
    pub admitted: Option<Admission>,
}
