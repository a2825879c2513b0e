//! Error of running a board.

use patchboard_kernel::board::BoardError;
use patchboard_kernel::id::BoardId;
use patchboard_kernel::rejection::{Code, Rejection, Violation};
use patchboard_storage::journal::JournalError;

/// Result of an operation on the runtime or a board.
pub type Result<T, E = RuntimeError> = std::result::Result<T, E>;

/// Error of running a board, or of a request to it.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// Storage error.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The kernel cannot create or recover the board.
    #[error(transparent)]
    Board(#[from] BoardError),
    /// The board is already running in this process.
    #[error("board {0} is already running here")]
    AlreadyRunning(BoardId),
    /// The board is not running.
    #[error("board {0} is not running: resume it first")]
    Closed(BoardId),
    /// A token was reused for another request.
    #[error("the token was used before on board {0}, for another request, or for a board that is not there any more")]
    IdempotencyConflict(BoardId),
    /// The value of a signal does not match the blueprint.
    #[error("the signal does not fit the blueprint of board {board}: {}", .violations.first().map_or("", |first| first.message.as_str()))]
    BadSignal {
        /// Board of the signal.
        board: BoardId,
        /// Violations of the schema.
        violations: Vec<Violation>,
    },
    /// A signal was rejected; it was not recorded.
    #[error("board {board} does not take the signal: {message}")]
    SignalRejected {
        /// Board of the signal.
        board: BoardId,
        /// Stable code of the reason: `backlog_full`, `journal_full` or `unknown_signal`.
        code: Code,
        /// Message for people.
        message: String,
    },
    /// A retry was rejected; nothing was recorded.
    #[error("board {board} cannot retry: {message}")]
    CannotRetry {
        /// Board of the retry.
        board: BoardId,
        /// Stable code of the reason.
        code: Code,
        /// Message for people.
        message: String,
    },
    /// The board has ended, so the request changes nothing.
    #[error("board {0} has ended")]
    BoardEnded(BoardId),
    /// The board's actors failed while they held the request.
    #[error("board {0} was interrupted; whether the request was recorded is not known: repeat it with the same token")]
    Interrupted(BoardId),
    /// The board's actors failed too often.
    #[error("board {board} was given up after repeated failures, the last one: {reason}")]
    Crashed {
        /// Board that was given up.
        board: BoardId,
        /// Last failure.
        reason: String,
    },
    /// The runtime itself could not be started.
    #[error("the runtime cannot start: {0}")]
    Start(String),
}

impl RuntimeError {
    /// Returns the error of a rejected retry.
    pub fn cannot_retry(board: &BoardId, rejection: Rejection) -> Self {
        let code = rejection.code;
        let message = rejection.violations.into_iter().next().map(|first| first.message).unwrap_or_default();
        Self::CannotRetry { board: board.clone(), code, message }
    }

    /// Returns the stable code; messages may change, codes may not.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Journal(error) => error.code(),
            Self::Board(BoardError::BadRequest(_)) | Self::BadSignal { .. } => "bad_request",
            Self::Board(BoardError::BadBlueprint(_)) => "bad_blueprint",
            Self::Board(BoardError::BadRecord { .. }) => "bad_record",
            Self::CannotRetry { code: Code::BoardNotRunning, .. } => "board_over",
            Self::CannotRetry { code, .. } | Self::SignalRejected { code, .. } => code.as_str(),
            Self::AlreadyRunning(_) => "already_running",
            Self::Closed(_) => "board_closed",
            Self::BoardEnded(_) => "board_over",
            Self::IdempotencyConflict(_) => "token_conflict",
            Self::Interrupted(_) => "interrupted",
            Self::Crashed { .. } => "crashed",
            Self::Start(_) => "start",
        }
    }
}
