//! Handle of a running board: its published state, and the inputs of callers.

use std::sync::Arc;

use patchboard_kernel::board::{Input, Outcome, Proposal};
use patchboard_kernel::files::Edit;
use patchboard_kernel::id::{BoardId, IdempotencyKey, InvocationId, Seq};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Answer, End, Ended, Principal, Record, Retried};
use patchboard_kernel::rejection::{Code, Stage};
use patchboard_storage::blocking::wait;
use serde_json::Value;
use tokio::task::JoinError;

use crate::actors::Context;
use crate::actors::messages::InputResult;
use crate::agent::Failure;
use crate::board_channel::{BoardChannel, Lifecycle};
use crate::error::{Result, RuntimeError};
use crate::status::BoardStatus;
use crate::subscription::{PAGE, Subscription};

/// Effect of an accepted request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestEffect {
    /// Applied now.
    Applied,
    /// Repeats an earlier request, or changes nothing.
    AlreadyApplied,
}

/// Handle of a running board. Cheap to clone.
#[derive(Clone)]
pub struct BoardHandle {
    pub(crate) context: Arc<Context>,
    pub(crate) channel: Arc<BoardChannel>,
    /// Principal named in records of inputs through this handle.
    pub(crate) principal: Option<Principal>,
}

impl BoardHandle {
    /// Returns a handle of an external caller, which its records name.
    #[must_use]
    pub fn with_principal(&self, principal: Principal) -> Self {
        Self { principal: Some(principal), ..self.clone() }
    }

    async fn ask(&self, input: Input) -> Result<InputResult> {
        self.channel.ask(input, self.principal.clone()).await
    }

    async fn outcome(&self, input: Input) -> Result<Outcome> {
        self.ask(input).await?.outcome.ok_or_else(|| RuntimeError::Interrupted(self.id().clone()))
    }

    /// Returns the board's id.
    pub fn id(&self) -> &BoardId {
        self.channel.board()
    }

    /// Returns the last durable snapshot.
    pub fn status(&self) -> Arc<BoardStatus> {
        self.channel.status().expect("a handle is given out after the first snapshot")
    }

    /// Subscribes to every record after `after` (`None`: from the first), once [`BoardHandle::status`] includes it.
    /// If the board is gone, remaining durable records are delivered last.
    pub fn subscribe(&self, after: Option<Seq>) -> Subscription {
        let journal = Arc::clone(self.context.journal.journal());
        Subscription::new(journal, self.id().clone(), after, self.channel.listen())
    }

    /// Folds the records after `after` (`None`: from the first), up to the last one published, off the threads that
    /// serve boards.
    pub async fn read<T: Send + 'static>(
        &self,
        after: Option<Seq>,
        initial: T,
        mut fold: impl FnMut(&mut T, &Record) + Send + 'static,
    ) -> Result<T> {
        let (journal, board, head) =
            (Arc::clone(self.context.journal.journal()), self.id().clone(), self.status().head.seq);
        let read = tokio::task::spawn_blocking(move || {
            let (mut folded, mut last) = (initial, after);
            while last.is_none_or(|last| last < head) {
                let page = wait(journal.records(&board, last, PAGE))?;
                let Some(end) = page.last() else { break };
                last = Some(end.seq);
                page.iter().filter(|record| record.seq <= head).for_each(|record| fold(&mut folded, record));
            }
            Ok(folded)
        });
        let crashed = |error: JoinError| RuntimeError::Crashed { board: self.id().clone(), reason: error.to_string() };
        read.await.map_err(crashed)?
    }

    /// Sends a proposal to the kernel; returns once the outcome is durable. After a storage error the proposal may have
    /// been recorded.
    pub async fn propose(&self, proposal: Proposal) -> Result<Outcome> {
        self.outcome(Input::Propose(proposal)).await
    }

    /// Records an edit of workspace files, or an external change of them. Returns once the outcome is durable, or
    /// [`Outcome::RejectedUnrecorded`] if, for example, the attempt or the board is over. The caller changes the files
    /// themselves.
    pub async fn edit(&self, edit: Edit) -> Result<Outcome> {
        self.outcome(Input::Edit(edit)).await
    }

    /// Asks to continue an attempt with another call of its model, which may take `reserve` tokens; `usage` is that of
    /// the previous call. Returns once the outcome is durable: [`Outcome::Continued`], or
    /// [`Outcome::RejectedUnrecorded`]. A refused attempt is over, either before or because the budgets do not suffice
    /// ([`Code::BudgetExhausted`]).
    ///
    /// [`Code::BudgetExhausted`]: patchboard_kernel::rejection::Code::BudgetExhausted
    pub async fn continue_attempt(
        &self,
        invocation: InvocationId,
        attempt: u32,
        usage: Option<Usage>,
        reserve: u64,
    ) -> Result<Outcome> {
        self.outcome(Input::Continue { invocation, attempt, usage, reserve }).await
    }

    /// Ends an attempt without a proposal. Returns once that is durable; false if the attempt was over before.
    pub async fn fail(&self, invocation: InvocationId, attempt: u32, failure: Failure) -> Result<bool> {
        let Failure { code, message, usage, deferral: _ } = failure;
        let decided = self.ask(Input::AgentFailed { invocation, attempt, code, message, usage }).await?;
        Ok(decided.recorded)
    }

    /// Sends a signal, or triggers a manual rule by its name. Returns once it is durable; a repetition with the same
    /// `token` gets the first answer. Fails with [`RuntimeError::BoardEnded`] if the board has ended for good. Records
    /// nothing with [`RuntimeError::BadSignal`] or [`RuntimeError::SignalRejected`].
    pub async fn signal(&self, name: &str, value: Value, token: Option<IdempotencyKey>) -> Result<RequestEffect> {
        self.request(Input::Signal { name: name.to_owned(), value, key: token }).await
    }

    /// Sends a request that is recorded unless the board has ended for good, or received it before.
    async fn request(&self, input: Input) -> Result<RequestEffect> {
        let decided = self.ask(input).await?;
        match decided.outcome {
            Some(Outcome::Duplicate(_)) => Ok(RequestEffect::AlreadyApplied),
            Some(Outcome::RejectedUnrecorded(rejection)) if rejection.stage == Stage::Schema => {
                Err(RuntimeError::BadSignal { board: self.id().clone(), violations: rejection.violations })
            }
            Some(Outcome::RejectedUnrecorded(rejection)) if rejection.code == Code::TokenConflict => {
                Err(RuntimeError::IdempotencyConflict(self.id().clone()))
            }
            Some(Outcome::RejectedUnrecorded(rejection)) => {
                let code = rejection.code;
                let message = rejection.violations.into_iter().next().map(|first| first.message).unwrap_or_default();
                Err(RuntimeError::SignalRejected { board: self.id().clone(), code, message })
            }
            _ if decided.recorded => Ok(RequestEffect::Applied),
            _ => Err(RuntimeError::BoardEnded(self.id().clone())),
        }
    }

    /// Sends a person's answer to a question of the board. Returns once the outcome is durable, or
    /// [`Outcome::RejectedUnrecorded`] if the answer does not count.
    pub async fn answer(&self, answer: Answer) -> Result<Outcome> {
        self.outcome(Input::Answer(answer)).await
    }

    /// Pauses dispatch. Has no effect on a paused board. For `token` see [`BoardHandle::signal`].
    pub async fn pause(&self, token: Option<IdempotencyKey>) -> Result<RequestEffect> {
        self.control(Input::Pause { key: token }).await
    }

    /// Resumes dispatch. Has no effect on a board that is not paused. For `token` see [`BoardHandle::signal`].
    pub async fn resume(&self, token: Option<IdempotencyKey>) -> Result<RequestEffect> {
        self.control(Input::Resume { key: token }).await
    }

    /// Retries invocations that the board has given up, with their triggers, and raises limits. Returns once it is
    /// durable; a repetition with the same token gets the first answer. Records nothing with
    /// [`RuntimeError::CannotRetry`].
    pub async fn retry(&self, retried: Retried) -> Result<RequestEffect> {
        let decided = self.ask(Input::Retry(retried)).await?;
        match decided.outcome {
            Some(Outcome::Duplicate(_)) => Ok(RequestEffect::AlreadyApplied),
            Some(Outcome::RejectedUnrecorded(rejection)) if rejection.code == Code::TokenConflict => {
                Err(RuntimeError::IdempotencyConflict(self.id().clone()))
            }
            Some(Outcome::RejectedUnrecorded(rejection)) => Err(RuntimeError::cannot_retry(self.id(), rejection)),
            _ => Ok(RequestEffect::Applied),
        }
    }

    /// Cancels the board. Has no effect on a cancelled board.
    pub async fn cancel(&self) -> Result<RequestEffect> {
        self.control(Input::Cancel).await
    }

    async fn control(&self, input: Input) -> Result<RequestEffect> {
        let is_cancel = matches!(input, Input::Cancel);
        match self.request(input).await {
            Err(RuntimeError::BoardEnded(board)) => match self.status().ended.filter(|ended| ended.is_final()) {
                // Already cancelled.
                Some(ended) if is_cancel && ended.end == End::Cancelled => Ok(RequestEffect::AlreadyApplied),
                Some(_) => Err(RuntimeError::BoardEnded(board)),
                // The board was in this state before.
                None => Ok(RequestEffect::AlreadyApplied),
            },
            heard => heard,
        }
    }

    /// Waits until the board has ended, or has stopped in this process. Fails with the cause of the stop: storage, too
    /// many failures, or closing.
    pub async fn wait_for_end(&self) -> Result<Ended> {
        self.wait_for_end_where(|_| true).await
    }

    /// Waits until the board has ended for good: a stalled one may continue. Fails if the board has stopped in this
    /// process.
    pub async fn wait_for_final_end(&self) -> Result<Ended> {
        self.wait_for_end_where(Ended::is_final).await
    }

    async fn wait_for_end_where(&self, wanted: impl Fn(Ended) -> bool) -> Result<Ended> {
        let is_wanted = |status: &Lifecycle| match status {
            Lifecycle::Ended(ended) => wanted(*ended),
            Lifecycle::Closed(_) => true,
            Lifecycle::Starting | Lifecycle::Running => false,
        };
        match self.channel.wait_for_lifecycle(is_wanted).await {
            Lifecycle::Ended(ended) => Ok(ended),
            Lifecycle::Closed(reason) => Err(reason),
            Lifecycle::Starting | Lifecycle::Running => Err(RuntimeError::Closed(self.id().clone())),
        }
    }

    /// Ends the board's kernel actor as a crash would, for tests.
    pub fn crash(&self) {
        self.channel.kill_kernel();
    }
}
