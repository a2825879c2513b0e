//! What fills a worker's seat, as the runtime sees it.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::admission::{Admission, Waiting};
use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::board::ReplyBody;
use patchboard_kernel::deferral::{Deferral, DeferralReason};
use patchboard_kernel::digest::Digest;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, InvocationId, Seq, Token, WorkerName};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::Parent;
use patchboard_kernel::scheduler::Past;
use patchboard_kernel::shown::Shown;
use patchboard_kernel::view::Prompt;

use crate::runtime::WeakRuntime;

/// One attempt of one invocation, durable in the journal before anybody is called.
#[derive(Clone, Debug)]
pub struct Call {
    /// The board.
    pub board: BoardId,
    /// The invocation of another board that it does, if it is one inside another.
    pub parent: Option<Parent>,
    /// The invocation.
    pub invocation: InvocationId,
    /// Its `scheduled` record, which names the invocation that it retries.
    pub cause: Seq,
    /// Which attempt of it, from 1.
    pub attempt: u32,
    /// The idempotency token of the attempt.
    pub token: Token,
    /// The worker.
    pub worker: WorkerName,
    /// The operator's name of the model, for `llm`: the blueprint's `models` entry that the seat names.
    pub model: Option<String>,
    /// The hash of what it is shown; cassettes are keyed by it.
    pub view_hash: Digest,
    /// What it is shown.
    pub prompt: Arc<Prompt>,
    /// The same as values.
    pub shown: Arc<Shown>,
    /// How many attempts this worker had before this one on this board, without those lost with a process or that reached
    /// nobody: a script's next reply, and whether a program can have state to lose.
    pub occurrence: u32,
    /// Attempts of the invocation before this one.
    pub past: Past,
    /// The time it has.
    pub timeout: Duration,
    /// The permission to make it, of a language model's worker.
    pub permit: Option<Permit>,
}

impl Call {
    /// The worker's seat in the blueprint.
    pub fn seat(&self) -> &Worker {
        &self.shown.seat().worker
    }
}

/// An agent's answer: the text of a patch or of an envelope around one (SPEC section 4).
#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    /// Strict JSON, if the agent did well; the kernel judges.
    pub text: String,
    /// What it cost, if anything and if known.
    pub usage: Option<Usage>,
    /// What the agent gave, where the text was made of that ([`patchboard_kernel::blueprint::Format`]).
    pub written: Option<String>,
    /// Text that the model sent, where wrapping around it was removed.
    pub raw: Option<String>,
}

impl Reply {
    /// A reply that is kept as it came.
    pub fn new(text: impl Into<String>, usage: Option<Usage>) -> Self {
        Self { text: text.into(), usage, written: None, raw: None }
    }

    /// As the kernel judges it.
    pub fn into_body(self) -> ReplyBody {
        match self.written {
            Some(of) => ReplyBody::Made { reply: self.text, of },
            None => ReplyBody::Text(self.text),
        }
    }
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    /// Stable.
    pub code: FailureCode,
    /// For people; holds no secret.
    pub message: String,
    /// What the failed call cost, if known.
    pub usage: Option<Usage>,
    /// Set where the provider did not take the request, and may take the same one later.
    pub deferral: Option<Deferral>,
}

/// A permission to make a call. When its last clone is dropped, the call is over.
#[derive(Clone)]
pub struct Permit {
    /// Where the call goes to.
    pub admission: Admission,
    /// What the agent keeps with it.
    pub guard: Option<Arc<dyn Any + Send + Sync>>,
}

impl Permit {
    /// A permission that no gate gave.
    pub fn ungated() -> Self {
        Self { admission: Admission::default(), guard: None }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("admission", &self.admission).finish_non_exhaustive()
    }
}

/// Waits for a permission; none: the provider was away for as long as the operator's patience lasts. Dropping it gives
/// the wait up.
pub type Admitting = Pin<Box<dyn Future<Output = Option<Permit>> + Send>>;

/// Whether a call may be made.
pub enum Admitted {
    /// Now.
    Now(Permit),
    /// Later.
    Later(Admitting),
}

/// The answer to a call.
pub type Answer = Result<Reply, Failure>;

/// Fills seats. One agent may serve many workers and many calls at once.
pub trait Agent: Send + Sync + 'static {
    /// Answers one call. Dropping the future cancels the call.
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

    /// Requests admission of a call: of a language model, or of an inner board that waits for one. Must not block.
    fn admit(&self, board: &BoardId, waiting: &Waiting) -> Admitted {
        let _ = (board, waiting);
        Admitted::Now(Permit::ungated())
    }

    /// Returns the reason why the gate holds back calls of a board; none if their models are available.
    fn held_back(&self, board: &BoardId) -> Option<DeferralReason> {
        let _ = board;
        None
    }

    /// Returns the tokens that prompt and reply may have together at the operator's model of this name, or at the default
    /// one, and at each of its fallbacks. None if nobody knows.
    fn context(&self, model: Option<&str>) -> Option<u32> {
        let _ = model;
        None
    }

    /// Told once, before any call, who runs the boards.
    fn started(&self, runtime: &WeakRuntime) {
        let _ = runtime;
    }

    /// Told that the outcome of an answered call is durable, in the order of the journal. Recordings use it to hold the
    /// next answer back until then, so that the order of answers is the order of records.
    fn settled(&self, board: &BoardId, token: &Token) {
        let _ = (board, token);
    }

    /// Told that a board is not run here any more: it has ended for good, was closed or was given up, or the runtime
    /// stops. What an agent keeps for it can go. May be told more than once, and does not wait for calls under way.
    fn ended(&self, board: &BoardId) {
        let _ = board;
    }
}
