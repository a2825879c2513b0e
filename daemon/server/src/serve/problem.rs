//! Errors as RFC 9457 problem documents, with the stable codes of the kernel and the command line.

use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use patchboard_kernel::board::BoardError;
use patchboard_kernel::code_enum;
use patchboard_kernel::id::{BoardId, WorkerName};
use patchboard_kernel::rejection;
use patchboard_runtime::error::RuntimeError;
use patchboard_storage::journal::JournalError;
use serde_json::{Map, Value, json};

use super::idempotency_status::IdempotencyStatus;
use crate::failure::{Exit, Failure};

macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal, $status:ident,)* }) => {
        code_enum! {
            $(#[$doc])*
            $name { $($(#[$vdoc])* $variant = $code,)* }
        }

        impl $name {
            const fn status(self) -> StatusCode {
                match self {
                    $(Self::$variant => StatusCode::$status,)*
                }
            }
        }
    };
}

coded! {
    /// Errors of requests; others have the codes of the kernel and the command line.
    Code {
        /// The request has no token, or none that is valid.
        Unauthorized = "unauthorized", UNAUTHORIZED,
        /// The scope of the token does not allow the request.
        Forbidden = "forbidden", FORBIDDEN,
        /// The request acts as a person, and the token is not that person's.
        NotThePerson = "not_the_person", FORBIDDEN,
        /// The host name of the request is not one of the daemon's.
        UnknownHost = "unknown_host", MISDIRECTED_REQUEST,
        /// The request comes from a browser page of another origin that is not in `[serve] origins`.
        UnknownOrigin = "unknown_origin", FORBIDDEN,
        /// The path does not exist.
        NoSuchRoute = "no_such_route", NOT_FOUND,
        /// The path does not support the method; in MCP, the method does not exist.
        NoSuchMethod = "no_such_method", METHOD_NOT_ALLOWED,
        /// The path is malformed.
        BadPath = "bad_path", BAD_REQUEST,
        /// The query string is malformed, or has an unknown parameter or value.
        BadQuery = "bad_query", BAD_REQUEST,
        /// The `Idempotency-Key` is malformed.
        BadKey = "bad_key", BAD_REQUEST,
        /// The `Message-Id` or the `Correlation-Id` is malformed.
        BadIdentifier = "bad_identifier", BAD_REQUEST,
        /// The `Last-Event-ID` is not the number of a record.
        BadEventId = "bad_event_id", BAD_REQUEST,
        /// The content type of the body is not JSON.
        NotJson = "not_json", UNSUPPORTED_MEDIA_TYPE,
        /// The body is JSON, but not of the required form.
        BadBody = "bad_body", UNPROCESSABLE_ENTITY,
        /// The body exceeds the size limit.
        BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE,
        /// The scope of a token is malformed, or names an impossible board or worker.
        BadScope = "bad_scope", UNPROCESSABLE_ENTITY,
        /// The name or the lifetime of a token is out of bounds.
        BadToken = "bad_token", UNPROCESSABLE_ENTITY,
        /// The board does not exist, or the caller may not know of it.
        NoSuchBoard = "no_such_board", NOT_FOUND,
        /// The idempotency key has created a token before, and its text was shown then.
        AlreadyShown = "already_shown", CONFLICT,
        /// No valid token has this number.
        NoSuchToken = "no_such_token", NOT_FOUND,
        /// The worker's calls cannot be leased, because its agent is not remote.
        NotRemote = "not_remote", CONFLICT,
        /// The lease has expired, its attempt is closed, or it never existed.
        LeaseOver = "lease_over", CONFLICT,
        /// The caller holds no lease, and no call of the worker is waiting.
        NoLease = "no_lease", CONFLICT,
        /// The worker may neither read nor change files.
        NoFiles = "no_files", CONFLICT,
        /// The board's directory is not open.
        NoWorkspace = "no_workspace", SERVICE_UNAVAILABLE,
        /// The blueprint has errors, listed in `findings`.
        BlueprintRefused = "blueprint_refused", UNPROCESSABLE_ENTITY,
        /// The blueprint has no rules, so its board would never end.
        NoRules = "no_rules", UNPROCESSABLE_ENTITY,
        /// The caller exceeded its rate limit; `Retry-After` has the time to wait.
        TooManyRequests = "too_many_requests", TOO_MANY_REQUESTS,
        /// Too many invalid tokens came from the address of the caller.
        TooManyFailures = "too_many_failures", TOO_MANY_REQUESTS,
        /// The caller has too many open streams.
        TooManyStreams = "too_many_streams", TOO_MANY_REQUESTS,
        /// The request timed out; its effect may have happened.
        TimedOut = "timed_out", SERVICE_UNAVAILABLE,
        /// The tool does not exist.
        NoSuchTool = "no_such_tool", NOT_FOUND,
        /// The resource does not exist.
        NoSuchResource = "no_such_resource", NOT_FOUND,
        /// The worker has no recent rejection, or none with this code or number.
        NoRejection = "no_rejection", NOT_FOUND,
        /// The board's document has no negotiation room.
        NoRoom = "no_room", NOT_FOUND,
        /// The room has no proposal with this id.
        NoSuchArtifact = "no_such_artifact", NOT_FOUND,
        /// The board's document has no negotiation.
        NoNegotiation = "no_negotiation", NOT_FOUND,
        /// The board's document has no handoffs.
        NoHandoffs = "no_handoffs", NOT_FOUND,
        /// The content of the artefact does not match its content type.
        BadContent = "bad_content", UNPROCESSABLE_ENTITY,
        /// The board's document has no workflow.
        NoWorkflow = "no_workflow", NOT_FOUND,
        /// The code does not exist.
        NoMeaning = "unknown_code", NOT_FOUND,
        /// Boards are still being recovered, or the result is not available yet.
        NotReady = "not_ready", SERVICE_UNAVAILABLE,
        /// Internal error of the daemon.
        Internal = "internal", INTERNAL_SERVER_ERROR,
    }
}

pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// Stable name; the last part of `type`.
    pub(crate) code: &'static str,
    /// Message for people, without secrets.
    pub(crate) detail: String,
    help: Option<String>,
    /// Time after which a retry is useful.
    retry_after: Option<Duration>,
    /// Relation of the request to an earlier one with its idempotency key.
    idempotency_status: IdempotencyStatus,
    /// Extension members, in addition to those of the RFC.
    details: Map<String, Value>,
}

pub(crate) type ApiResult<T> = Result<T, Problem>;

impl Problem {
    /// Creates a problem.
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            code,
            detail: detail.into(),
            help: None,
            retry_after: None,
            idempotency_status: IdempotencyStatus::New,
            details: Map::new(),
        }
    }

    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    #[must_use]
    pub(crate) const fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Marks the problem as a replay: an earlier transmission of the request already got it.
    #[must_use]
    pub(crate) const fn with_idempotency_status(mut self, repetition: IdempotencyStatus) -> Self {
        self.idempotency_status = repetition;
        self
    }

    /// Replaces status, code and detail by more specific ones.
    #[must_use]
    pub(crate) fn explained_by(self, why: Self) -> Self {
        Self { status: why.status, code: why.code, detail: why.detail, ..self }
    }

    #[must_use]
    pub(crate) fn detail(mut self, name: &str, value: Value) -> Self {
        self.details.insert(name.to_owned(), value);
        self
    }

    pub(crate) fn json(&self) -> Value {
        let mut document = Map::new();
        document.insert("type".into(), format!("urn:patchboard:problem:{}", self.code).into());
        document.insert("title".into(), self.code.replace('_', " ").into());
        document.insert("status".into(), self.status.as_u16().into());
        document.insert("detail".into(), self.detail.clone().into());
        document.insert("code".into(), self.code.into());
        if let Some(help) = &self.help {
            document.insert("help".into(), help.clone().into());
        }
        document.extend(self.details.clone());
        document.into()
    }

    /// Creates a problem for an error of the request.
    pub(crate) fn from_code(code: Code, detail: impl Into<String>) -> Self {
        Self::new(code.status(), code.as_str(), detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // 503 is expected at times, and not logged as an error.
        if self.status.is_server_error() && self.status != StatusCode::SERVICE_UNAVAILABLE {
            tracing::error!(code = self.code, detail = %self.detail, "a request failed");
        }
        let mut response = (self.status, [(CONTENT_TYPE, MEDIA_TYPE)], self.json().to_string()).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.idempotency_status != IdempotencyStatus::New {
            response.headers_mut().extend(self.idempotency_status.headers());
        }
        if let Some(wait) = self.retry_after {
            // Whole seconds, rounded up.
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)));
        }
        response
    }
}

impl From<RuntimeError> for Problem {
    fn from(error: RuntimeError) -> Self {
        let code = error.code();
        let problem = Self::new(status_of(&error), code, error.to_string());
        match error {
            RuntimeError::Board(BoardError::BadRequest(violations)) | RuntimeError::BadSignal { violations, .. } => {
                problem.detail("violations", json!(violations))
            }
            RuntimeError::Interrupted(_) => problem.help("repeat the request with the same Idempotency-Key"),
            RuntimeError::SignalRejected { code: rejection::Code::BacklogFull, .. } => {
                problem.help("repeat it when some of the backlog is done")
            }
            RuntimeError::CannotRetry { .. } => problem
                .help("`limits` raises tokens, wall, commits, edits, money and journal of the board, `worker_limits` tokens and money of `worker`"),
            RuntimeError::BoardEnded(_) => problem.help("a board that has ended for good is read only"),
            _ => problem,
        }
    }
}

impl From<JournalError> for Problem {
    fn from(error: JournalError) -> Self {
        RuntimeError::Journal(error).into()
    }
}

/// Returns the status for a rejection code: 409, 429 or 507 for the state of the board, 422 for errors of the request.
pub(crate) const fn rejection_status(code: rejection::Code) -> StatusCode {
    use rejection::Code as C;
    match code {
        C::TokenConflict | C::InvocationClosed | C::NotPending => StatusCode::CONFLICT,
        C::BacklogFull => StatusCode::TOO_MANY_REQUESTS,
        C::JournalFull => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

const fn status_of(error: &RuntimeError) -> StatusCode {
    match error {
        RuntimeError::Journal(JournalError::NotFound(_)) => StatusCode::NOT_FOUND,
        RuntimeError::Board(BoardError::BadRequest(_) | BoardError::BadBlueprint(_))
        | RuntimeError::BadSignal { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        RuntimeError::SignalRejected { code, .. } => rejection_status(*code),
        RuntimeError::AlreadyRunning(_)
        | RuntimeError::CannotRetry { .. }
        | RuntimeError::BoardEnded(_)
        | RuntimeError::IdempotencyConflict(_)
        | RuntimeError::Journal(JournalError::Owned { .. } | JournalError::Fenced { .. }) => StatusCode::CONFLICT,
        RuntimeError::Closed(_) | RuntimeError::Interrupted(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Keeps the codes and messages of the command line.
impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let Failure::Error(error) = failure else {
            return Self::new(StatusCode::INTERNAL_SERVER_ERROR, "output_failed", "the client reads no answer");
        };
        let status = match error.code {
            "no_such_board" | "no_such_version" | "no_such_worker" | "no_such_place" | "path_not_found" => {
                StatusCode::NOT_FOUND
            }
            "bad_pointer" => StatusCode::BAD_REQUEST,
            "still_in_use"
            | "kept_by_departments"
            | "redaction_conflict"
            | "board_not_ended"
            | "board_exists"
            | "older_archive" => StatusCode::CONFLICT,
            _ if error.exit == Exit::InvalidInput => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { help: error.help, details: error.details, ..Self::new(status, error.code, error.message) }
    }
}

/// Returns the error for a missing board, and for one that the caller may not know of.
pub(crate) fn no_such_board(board: &BoardId) -> Problem {
    Problem::from_code(Code::NoSuchBoard, format!("there is no board {board}"))
        .help("GET /v1/boards lists those you may see")
}

/// Returns the error for a worker that the board does not have.
pub(crate) fn no_such_worker(worker: &WorkerName) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no_such_worker", format!("the board has no worker {worker}"))
}
