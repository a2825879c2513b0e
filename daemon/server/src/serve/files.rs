//! File access to a board's directory, for holders of a lease of a worker with file permissions.
//!
//! The session of the lease (`agents::workspace`) runs the commands. This module checks the lease and maps a rejection
//! to an HTTP status.

use std::sync::Arc;

use axum::http::StatusCode;
use patchboard_kernel::files::{Access, EditAttempt};
use patchboard_kernel::id::{BoardId, WorkerName};
use patchboard_runtime::error::RuntimeError;
use patchboard_runtime::tools::ROOM_MAX;
use patchboard_workspace::edit_author::EditAuthor;
use patchboard_workspace::session::{CommandResult, SessionAnswer, SessionRequest};
use patchboard_workspace::text::author::{NAME_RULE, is_author_name};

use super::problem::{ApiResult, Code, Problem};
use super::routes::leases;
use super::service::Daemon;
use crate::codes;

pub(crate) struct LeasedFileCommand {
    pub(crate) worker: WorkerName,
    /// Lease: invocation and attempt.
    pub(crate) of: EditAttempt,
    /// Author name, where several share a worker.
    pub(crate) name: Option<String>,
    /// True if the caller worked under an earlier lease; if unset, the session decides.
    pub(crate) has_earlier_reads: Option<bool>,
    pub(crate) asked: SessionRequest,
}

/// Minimum response size, in characters.
const ROOM_MIN: usize = 1_000;

/// Returns the response size in characters: the given one, checked, or the default.
pub(crate) fn response_chars(requested: Option<usize>) -> ApiResult<usize> {
    let room = requested.unwrap_or(ROOM_MAX);
    if (ROOM_MIN..=ROOM_MAX).contains(&room) {
        return Ok(room);
    }
    Err(Problem::from_code(Code::BadBody, format!("room is between {ROOM_MIN} and {ROOM_MAX} characters")))
}

/// Runs a file command. Returns the answer, and whether it is a replay of an earlier one.
pub(crate) async fn call(
    daemon: &Arc<Daemon>,
    board: &BoardId,
    command: LeasedFileCommand,
) -> ApiResult<(CommandResult, bool)> {
    let LeasedFileCommand { worker, of, name, has_earlier_reads, asked } = command;
    if let Some(name) = name.as_ref().filter(|name| !is_author_name(name)) {
        let name = crate::text::short(name, 80);
        return Err(Problem::from_code(Code::BadBody, format!("{name} is no name: {NAME_RULE}")));
    }
    let handle = leases::remote(daemon, board, &worker).await?;
    let access = handle.status().blueprint.workers.get(&worker).and_then(|spec| spec.files.clone());
    let Some(access) = access else {
        return Err(Problem::from_code(Code::NoFiles, format!("the worker {worker} has nothing to do with files")));
    };
    let access = Access::compile(&access).map_err(|error| Problem::from_code(Code::Internal, error))?;
    leases::check_held(daemon, board, &worker, (of.invocation, of.attempt))?;
    let author = EditAuthor { attempt: of, access, worker: worker.to_string(), name };
    let called = daemon.workspaces.call(board, author, has_earlier_reads, asked).await;
    match called.map_err(|error| Problem::from_code(Code::NoWorkspace, error.to_string()))? {
        SessionAnswer::New(result) => Ok((result, false)),
        SessionAnswer::Replayed(result) => Ok((result, true)),
        SessionAnswer::KeyConflict => Err(RuntimeError::IdempotencyConflict(board.clone()).into()),
    }
}

/// Converts the answer to a rejected command into a problem with the same code; its member `data` has the details.
pub(crate) fn problem(result: &CommandResult) -> Option<Problem> {
    let code = result.code.as_deref()?;
    let known = codes::entries().map(|entry| entry.code).find(|known| *known == code);
    let problem = Problem::new(status_of(code), known.unwrap_or(Code::Internal.as_str()), result.text.clone());
    // Clients of earlier versions read `told`.
    Some(problem.detail("data", result.data.clone()).detail("told", result.data.clone()))
}

/// Returns the HTTP status for a code: 409 for conflicts with the current state, 4xx for invalid commands, 5xx for
/// faults of the daemon.
fn status_of(code: &str) -> StatusCode {
    match code {
        "stale_target" | "stale_read" | "unseen_target" | "file_exists" | "reserved" | "reads_lost"
        | "invocation_closed" | "board_not_running" | "board_over" | "token_conflict" | "already_running" => {
            StatusCode::CONFLICT
        }
        "no_such_file" => StatusCode::NOT_FOUND,
        "not_readable" | "path_not_granted" | "wrong_worker" | "not_served" => StatusCode::FORBIDDEN,
        // The client may retry.
        "workspace_failed" | "workspace_refused" | "not_configured" | "file_busy" | "lock_timeout"
        | "too_many_waiting" | "directory_locked" | "interrupted" | "board_closed" | "crashed" | "start"
        | "board_owned" | "journal_fenced" | "journal_locked" => StatusCode::SERVICE_UNAVAILABLE,
        "disk_error" | "disk_unreadable" | "records_lost" | "bad_directory" | "write_forbidden" | "not_in_place"
        | "too_many_files" | "internal" | "bad_record" | "bad_batch" | "missing_part" | "not_a_journal" => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        "disk_full" => StatusCode::INSUFFICIENT_STORAGE,
        code if code.starts_with("journal_") => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

#[cfg(test)]
mod tests {
    use patchboard_kernel::id::BoardId;
    use patchboard_runtime::error::RuntimeError;
    use patchboard_storage::journal::JournalError;

    use super::status_of;

    #[test]
    fn a_fault_of_the_daemon_is_no_fault_of_the_request() {
        let board = BoardId::from("b");
        let faults = [
            RuntimeError::Interrupted(board.clone()),
            RuntimeError::Closed(board),
            RuntimeError::Journal(JournalError::Locked),
            RuntimeError::Journal(JournalError::ReadOnly),
            RuntimeError::Journal(JournalError::DiskFull),
        ];
        for fault in faults {
            assert!(status_of(fault.code()).is_server_error(), "{fault}");
        }
        for code in [
            "internal",
            "workspace_refused",
            "not_configured",
            "file_busy",
            "disk_error",
            "disk_unreadable",
            "records_lost",
            "journal_io",
        ] {
            assert!(status_of(code).is_server_error(), "{code}");
        }
        for code in ["no_match", "bad_arguments", "intent_missing", "no_change", "stale_read", "no_such_file"] {
            assert!(status_of(code).is_client_error(), "{code}");
        }
    }
}
