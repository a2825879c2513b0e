//! Nested boards: an invocation of a `board` worker runs a board of its own.
//!
//! [`NestedBoards`] wraps the agent that serves the other seats, cassette players and recorders included. A nested
//! board runs in every run; only the calls of *its* workers are played back or recorded.
//!
//! The inner board is a board like any other, in the same journal; its id follows from the invocation and the request.
//! A further attempt, after a rejection, a timeout or a crash, continues the existing board. Another board is created
//! only for another request, or after one that ended without being done. An invocation that retries another one finds
//! the boards of that one, so that a board which an operator has helped is not repeated. A cancelled call leaves its
//! board running for a moment, so that the next attempt finds it; then the board is cancelled.
//!
//! A call is deferred while its board waits only for a model's provider. Its next attempt is admitted once the inner
//! board has made progress beyond another try, so that the outer journal does not grow meanwhile. If the inner board
//! runs out of patience, so does the outer one.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use patchboard_kernel::ablation::Mode;
use patchboard_kernel::admission;
use patchboard_kernel::blueprint::{AgentKind, Blueprint, NestedBoardSpec};
use patchboard_kernel::board::BoardError;
use patchboard_kernel::canonical;
use patchboard_kernel::deferral::{Deferral, DeferralReason};
use patchboard_kernel::digest::sha256;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, IdempotencyKey};
use patchboard_kernel::nested;
use patchboard_kernel::record::{Cause, End, Ended, Parent};
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::{AdmissionDecision, Agent, Call, CallResult, Failure, Permit, Reply};
use patchboard_runtime::clock::{Clock as _, SystemClock};
use patchboard_runtime::error::RuntimeError;
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::options::{CreateOptions, Options};
use patchboard_runtime::runtime::{Runtime, WeakRuntime};
use patchboard_runtime::status::BoardStatus;
use patchboard_runtime::tools::BoxFuture;
use patchboard_storage::journal::{Journal, JournalError};
use serde_json::Value;

use self::accounts::{Accounts, ended_at};
use self::call_registry::{CallCounts, DeferredCalls};
use self::provider_wait::{is_out_of_patience, wait_for_progress, wait_until_out_of_patience};
use crate::script;

mod accounts;
mod call_registry;
mod provider_wait;

/// Boards for one request of an invocation and its retries, at most; each after one that failed.
const BOARDS_MAX: u32 = 64;

/// Time before the end of a call's time at which it is deferred, at most.
const MARGIN: Duration = Duration::from_secs(1);

/// Longest time before the end of a call's time at which it fails with `timeout`.
const SPARE: Duration = Duration::from_millis(250);

/// Time for which a board continues after its call was cancelled.
const GRACE: Duration = Duration::from_secs(10);

/// Pause before the next lookup of a board that is being resumed or closed.
const PAUSE: Duration = Duration::from_millis(100);

/// Lookups of a board, at most.
const LOOKS_MAX: u32 = 300;

/// Agent that runs the boards of `board` workers, and passes on all other calls.
pub struct NestedBoards {
    others: Arc<dyn Agent>,
    runtime: OnceLock<WeakRuntime>,
    /// Calls by the inner board that they wait for.
    waiting: CallCounts,
    /// Deferred calls, until their next attempt.
    deferred: DeferredCalls,
    accounts: Accounts,
    grace: Duration,
}

impl NestedBoards {
    /// Creates an agent that serves `board` seats itself and passes other calls to `others`.
    pub fn new(others: Arc<dyn Agent>) -> Self {
        Self {
            others,
            runtime: OnceLock::new(),
            waiting: CallCounts::default(),
            deferred: DeferredCalls::default(),
            accounts: Accounts::default(),
            grace: GRACE,
        }
    }

    /// Sets the time for which a board continues after its call was cancelled; the default is ten seconds.
    #[must_use]
    pub fn with_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Starts the runtime whose boards this agent serves, and in which it runs nested boards. `options` name the agent
    /// or one that passes calls on to it.
    ///
    /// # Errors
    /// [`RuntimeError::Start`].
    pub async fn start(&self, journal: Arc<dyn Journal>, options: Options) -> Result<Runtime, RuntimeError> {
        let runtime = Runtime::start(journal, options, PLANS).await?;
        // Only the first runtime is served; boards of a second one cannot nest boards.
        drop(self.runtime.set(runtime.downgrade()));
        Ok(runtime)
    }

    fn runtime(&self) -> Result<Runtime, Failure> {
        let runtime = self.runtime.get().and_then(WeakRuntime::upgrade);
        runtime.ok_or_else(|| crashed("the runtime is ending"))
    }

    fn snapshot(&self, id: &BoardId) -> Option<Arc<BoardStatus>> {
        self.runtime.get()?.upgrade()?.status(id)
    }

    async fn answer(&self, call: &Call) -> CallResult {
        let begun = Instant::now();
        let plan = call.context.plan();
        let board_spec = call.worker_config().board.as_ref();
        let found = board_spec.and_then(|inner| Some((inner, plan.blueprint.boards.get(&inner.of)?)));
        let Some((inner, blueprint)) = found else {
            return Err(Failure::new(FailureCode::NotConfigured, "the blueprint does not say which board this is"));
        };
        let request = nested::request(inner, &call.context)
            .map_err(|error| Failure::new(FailureCode::NotConfigured, format!("{error}: raise its view.budget")))?;
        let parent = Parent { board: call.board.clone(), invocation: call.invocation };
        let digest = sha256(canonical::to_string(&request).as_bytes());
        let (origin, since) = self.begin(call).await?;
        let origin = Parent { invocation: origin, ..parent.clone() };
        let mut deferred = self.deferred.take(&call.board, call.invocation);
        let awaited = deferred.as_ref().map(|waits| waits.id.clone());
        for nth in 0..BOARDS_MAX {
            let id = nested::inner_id(&origin, digest, nth);
            let task = BoardSpec { id: &id, parent: &parent, blueprint, request: &request, ablation: &plan.mode };
            let waits = self.register_call(&id, call);
            drop(deferred.take());
            let (board, was_there) = match self.board(&task).await {
                Ok(found) => found,
                Err(CreateError::Unfit(why)) => return answer_without_result(call, inner, &why),
                Err(CreateError::Failed(why)) => return Err(why),
            };
            self.note(call, &board);
            // Skips a board if an earlier attempt has returned its failure, or if it was cancelled without a call.
            let ended = board.status().ended.filter(|ended| was_there && ended.end != End::Done);
            let failed_before = match ended {
                None => false,
                Some(Ended { end: End::Cancelled, .. }) => awaited.as_ref() != Some(&id),
                Some(_) => {
                    let at = ended_at(&board).await.map_err(|error| crashed(format!("the board inside: {error}")))?;
                    at.is_some_and(|at| at <= since)
                }
            };
            let outcome = match failed_before {
                true => None,
                false => {
                    let time = call.timeout.saturating_sub(begun.elapsed());
                    match self.wait_ended_or_deferred(&task, &board, time).await {
                        Ok(ended) => Some(ended),
                        Err(failure) => {
                            if failure.deferral.is_some() {
                                self.keep_deferred(waits);
                            }
                            return Err(failure);
                        }
                    }
                }
            };
            let board = outcome.as_ref().map_or(&board, |(_, board)| board);
            self.note(call, board);
            let snapshot = board.status();
            // The result is durable: the board is closed.
            if let Ok(runtime) = self.runtime() {
                runtime.close(&id).await;
            }
            if let Some((ended, _)) = outcome {
                return answer_from_result(call, inner, &snapshot, ended);
            }
        }
        Err(crashed(format!("{BOARDS_MAX} boards inside this one have failed at it")))
    }

    /// Returns the board of a task, and true if it existed before.
    async fn board(&self, task: &BoardSpec<'_>) -> Result<(BoardHandle, bool), CreateError> {
        for _ in 0..LOOKS_MAX {
            let runtime = self.runtime().map_err(CreateError::Failed)?;
            let taken = match runtime.get_or_resume(task.id).await {
                Err(RuntimeError::Journal(JournalError::NotFound(_))) => {
                    let outer = runtime.status(&task.parent.board);
                    let founding = CreateOptions {
                        id: Some(task.id.clone()),
                        ablation: task.ablation.clone(),
                        parent: Some(task.parent.clone()),
                        principal: outer.and_then(|outer| outer.started_by.clone()),
                        ..CreateOptions::default()
                    };
                    let made = runtime.create_with(task.blueprint.clone(), task.request.clone(), founding).await;
                    made.map(|board| (board, false))
                }
                taken => taken.map(|board| (board, true)),
            };
            drop(runtime);
            match taken {
                Ok(board) => return Ok(board),
                // Another caller is attaching the board or rewriting its journal. If the process is shutting down,
                // this call is cancelled.
                Err(
                    RuntimeError::AlreadyRunning(_)
                    | RuntimeError::Closed(_)
                    | RuntimeError::Journal(JournalError::Owned { .. }),
                ) => tokio::time::sleep(PAUSE).await,
                // Another try would fail as well.
                Err(RuntimeError::Board(BoardError::BadRequest(violations))) => {
                    let why = violations
                        .first()
                        .map_or_else(String::new, |first| format!(": {} {}", first.pointer, first.message));
                    return Err(CreateError::Unfit(format!(
                        "the board inside cannot be made of what it is given{why}"
                    )));
                }
                Err(error) => {
                    return Err(CreateError::Failed(crashed(format!("the board inside cannot be run: {error}"))));
                }
            }
        }
        let why = "the board inside is being taken up by somebody else and does not come";
        Err(CreateError::Failed(Failure::new(FailureCode::Timeout, why)))
    }

    /// Waits until a task's board has ended. Returns a deferral if the board waits only for its provider, for a moment
    /// or shortly before the timeout. If it is paused because of its provider, the deferral is immediate.
    async fn wait_ended_or_deferred(
        &self,
        task: &BoardSpec<'_>,
        board: &BoardHandle,
        time: Duration,
    ) -> Result<(Ended, BoardHandle), Failure> {
        if is_out_of_patience(&board.status()) {
            // Resuming the outer board resumes the inner one.
            board.resume(None).await.map_err(|error| crashed(error.to_string()))?;
        }
        let enough = tokio::time::sleep(time - (time / 8).min(MARGIN));
        // Answers before the timeout: later answers are ignored, and their usage with them.
        let mut over = pin!(tokio::time::sleep(time - (time / 20).min(SPARE)));
        let (mut ended, mut enough) = (pin!(self.ended(task, board.clone())), pin!(enough));
        let (mut gave_up, mut waits) = (pin!(wait_until_out_of_patience(board)), pin!(self.waits_for_provider(board)));
        loop {
            tokio::select! {
                biased;
                ended = &mut ended => return ended,
                () = &mut gave_up => break,
                () = &mut waits => break,
                () = &mut over => {
                    let message = "the board inside has not ended within limits.timeout of its worker";
                    return Err(Failure::new(FailureCode::Timeout, message));
                }
                () = &mut enough => {
                    if self.snapshot(task.id).is_some_and(|snapshot| self.awaited_provider(&snapshot).is_some()) {
                        break;
                    }
                }
            }
            enough.as_mut().reset(tokio::time::Instant::now() + PAUSE);
        }
        let snapshot = self.snapshot(task.id).unwrap_or_else(|| board.status());
        let (is_over, now) = (is_out_of_patience(&snapshot), SystemClock.now());
        let reason = self.awaited_provider(&snapshot).unwrap_or(DeferralReason::Unreachable);
        let deferral = Deferral {
            // The inner board continues without an operator.
            is_served_elsewhere: reason.needs_operator() && !is_over,
            wait_ms: snapshot.provider_waits.iter().map(|of| of.wait.not_before.ms_since(now).max(1)).min(),
            // Only the patience of the inner board counts.
            patience_ms: Some(if is_over { 0 } else { u64::MAX }),
            ..Deferral::new(reason)
        };
        let message = if is_over { "gave up waiting for its provider" } else { "waits for its provider" };
        let failure = Failure::new(FailureCode::Timeout, format!("the board inside {message}"));
        Err(Failure { deferral: Some(deferral), ..failure })
    }

    /// Waits until a task's board has ended.
    async fn ended(&self, task: &BoardSpec<'_>, mut board: BoardHandle) -> Result<(Ended, BoardHandle), Failure> {
        for _ in 0..LOOKS_MAX {
            match board.wait_for_end().await {
                Ok(ended) => return Ok((ended, board)),
                // The board was closed in order to be resumed, or the process is shutting down; then this call is
                // cancelled.
                Err(RuntimeError::Closed(_)) => {
                    tokio::time::sleep(PAUSE).await;
                    (board, _) = self.board(task).await.map_err(|unmade| match unmade {
                        CreateError::Unfit(why) => crashed(why),
                        CreateError::Failed(why) => why,
                    })?;
                }
                Err(error) => return Err(crashed(format!("the board inside cannot go on: {error}"))),
            }
        }
        Err(Failure::new(FailureCode::Timeout, "the board inside is let go again and again"))
    }
}

fn crashed(message: impl Into<String>) -> Failure {
    Failure::new(FailureCode::Crashed, message)
}

struct BoardSpec<'a> {
    id: &'a BoardId,
    parent: &'a Parent,
    blueprint: &'a Blueprint,
    request: &'a Value,
    ablation: &'a Mode,
}

enum CreateError {
    /// The request does not match the board's declared input.
    Unfit(String),
    Failed(Failure),
}

/// Returns the answer of a worker after its board has ended.
fn answer_from_result(call: &Call, inner: &NestedBoardSpec, snapshot: &BoardStatus, ended: Ended) -> CallResult {
    if ended.end == End::Done {
        return Ok(Reply::new(nested::patch(inner, snapshot.state.root()).to_string(), None));
    }
    let mut message = format!("the board inside ended as {} ({})", ended.end, ended.cause);
    // A retry of the inner board keeps its state, and its limits may be raised.
    if inner.failed.is_none() && !matches!(ended.cause, Cause::Cancelled | Cause::NothingToDo) {
        let board = &snapshot.board;
        message += &format!("; retry that board ({board}), then this one, which takes its result");
    }
    answer_without_result(call, inner, &message)
}

/// Returns the answer of a worker without a result from its board.
fn answer_without_result(call: &Call, inner: &NestedBoardSpec, message: &str) -> CallResult {
    let Some(failed) = &inner.failed else { return Err(crashed(message)) };
    let bound = script::trigger_bindings(call);
    let named = |(name, value): (&String, &Value)| match &bound {
        Some(bound) => (name.clone(), script::with_names(value, bound, false)),
        None => (name.clone(), value.clone()),
    };
    let value = failed.value.iter().map(named).collect();
    Ok(Reply::new(nested::failure_patch(failed, value, message).to_string(), None))
}

impl Agent for NestedBoards {
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, CallResult> {
        match call.worker_config().agent {
            AgentKind::Board => Box::pin(async { self.settle(call, self.answer(call).await) }),
            _ => self.others.call(call),
        }
    }

    fn admit(&self, board: &BoardId, waiting: &admission::WaitingCall) -> AdmissionDecision {
        if waiting.agent != AgentKind::Board {
            return self.others.admit(board, waiting);
        }
        let inside = self.deferred.board(board, waiting.invocation);
        // After a restart the call itself finds its board.
        let inside = inside.and_then(|id| self.runtime.get()?.upgrade()?.board(&id));
        let Some(inside) = inside else { return AdmissionDecision::Now(Permit::ungated()) };
        let seen = inside.status();
        if is_out_of_patience(&seen) {
            return AdmissionDecision::Later(Box::pin(async { None }));
        }
        if self.awaited_provider(&seen).is_none() {
            return AdmissionDecision::Now(Permit::ungated());
        }
        let seen = seen.head.seq;
        AdmissionDecision::Later(Box::pin(async move { wait_for_progress(&inside, seen).await.then(Permit::ungated) }))
    }

    fn deferral_reason(&self, board: &BoardId) -> Option<DeferralReason> {
        self.others.deferral_reason(board)
    }

    fn context_window(&self, model: Option<&str>) -> Option<u32> {
        self.others.context_window(model)
    }

    fn on_settled(&self, board: &BoardId, token: &IdempotencyKey) {
        self.others.on_settled(board, token);
    }

    fn on_board_ended(&self, board: &BoardId) {
        self.accounts.forget(board);
        // A board that was only closed is resumed later, and its calls find their inner boards.
        if self.snapshot(board).is_some_and(|snapshot| snapshot.ended.is_some()) {
            self.deferred.forget(board);
        }
        self.others.on_board_ended(board);
    }
}
