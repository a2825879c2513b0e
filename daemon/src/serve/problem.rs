//! Errors as RFC 9457 problem documents, with the same stable codes as everywhere else.

use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use patchboard_kernel::board::BoardError;
use patchboard_kernel::rejection;
use patchboard_runtime::journal::JournalError;
use patchboard_runtime::runtime::RuntimeError;
use serde_json::{Map, Value, json};

use super::identifiers::Repetition;
use crate::failure::{Exit, Failure};

macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal, $status:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum $name {
            $($(#[$vdoc])* $variant,)*
        }

        impl $name {
            /// The stable name.
            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $code,)*
                }
            }

            const fn status(self) -> StatusCode {
                match self {
                    $(Self::$variant => StatusCode::$status,)*
                }
            }
        }
    };
}

coded! {
    /// What only requests can have wrong; the rest has the codes of the kernel and the command line.
    Code {
        /// There is no token, or none that opens anything.
        Unauthorized = "unauthorized", UNAUTHORIZED,
        /// The token does not allow this.
        Forbidden = "forbidden", FORBIDDEN,
        /// A person is to act, and the token is not that person's.
        NotThePerson = "not_the_person", FORBIDDEN,
        /// The daemon was called by a name that is not its own.
        UnknownHost = "unknown_host", MISDIRECTED_REQUEST,
        /// A page in a browser calls that is not the daemon's, and not among `[serve] origins`.
        UnknownOrigin = "unknown_origin", FORBIDDEN,
        /// Nothing is served under this path.
        NoSuchRoute = "no_such_route", NOT_FOUND,
        /// The path takes other methods; in MCP, no method is called so.
        NoSuchMethod = "no_such_method", METHOD_NOT_ALLOWED,
        /// The path cannot be read.
        BadPath = "bad_path", BAD_REQUEST,
        /// What stands behind the `?` cannot be read, or names what there is not.
        BadQuery = "bad_query", BAD_REQUEST,
        /// The `Idempotency-Key` is none.
        BadKey = "bad_key", BAD_REQUEST,
        /// The `Message-Id` or the `Correlation-Id` is none.
        BadIdentifier = "bad_identifier", BAD_REQUEST,
        /// The `Last-Event-ID` is not the number of a record.
        BadEventId = "bad_event_id", BAD_REQUEST,
        /// The body is not said to be JSON.
        NotJson = "not_json", UNSUPPORTED_MEDIA_TYPE,
        /// The body is JSON, and not what is wanted here.
        BadBody = "bad_body", UNPROCESSABLE_ENTITY,
        /// The body is larger than any may be.
        BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE,
        /// The scope of a token is none, or of a board or worker that there cannot be.
        BadScope = "bad_scope", UNPROCESSABLE_ENTITY,
        /// A token with this name or lifetime is not made.
        BadToken = "bad_token", UNPROCESSABLE_ENTITY,
        /// There is no such board, or the caller may not know of it.
        NoSuchBoard = "no_such_board", NOT_FOUND,
        /// The key has made a token before, whose text was shown then.
        AlreadyShown = "already_shown", CONFLICT,
        /// No token of this number opens anything.
        NoSuchToken = "no_such_token", NOT_FOUND,
        /// The worker's calls are not for processes outside to lease.
        NotRemote = "not_remote", CONFLICT,
        /// The lease has expired, its attempt is over, or it never was.
        LeaseOver = "lease_over", CONFLICT,
        /// The caller holds no lease, and no call of the worker waits for somebody.
        NoLease = "no_lease", CONFLICT,
        /// The worker may neither see nor change files.
        NoFiles = "no_files", CONFLICT,
        /// The board's directory is not open.
        NoWorkspace = "no_workspace", SERVICE_UNAVAILABLE,
        /// The blueprint has errors; `findings` has them.
        BlueprintRefused = "blueprint_refused", UNPROCESSABLE_ENTITY,
        /// The blueprint has no rules, so its board would never end.
        NoRules = "no_rules", UNPROCESSABLE_ENTITY,
        /// One caller made too many requests; `Retry-After` says when it may again.
        TooManyRequests = "too_many_requests", TOO_MANY_REQUESTS,
        /// Too many tokens that are not valid came from one address.
        TooManyFailures = "too_many_failures", TOO_MANY_REQUESTS,
        /// One caller has too many streams open.
        TooManyStreams = "too_many_streams", TOO_MANY_REQUESTS,
        /// The request took longer than any may; what it asked for may have happened.
        TimedOut = "timed_out", SERVICE_UNAVAILABLE,
        /// There is no tool of this name.
        NoSuchTool = "no_such_tool", NOT_FOUND,
        /// There is no resource under this URI.
        NoSuchResource = "no_such_resource", NOT_FOUND,
        /// Nothing of the worker was refused lately, or not with this code or number.
        NoRejection = "no_rejection", NOT_FOUND,
        /// The board's document has no negotiation room.
        NoRoom = "no_room", NOT_FOUND,
        /// Nothing is proposed in the room under this id.
        NoSuchArtifact = "no_such_artifact", NOT_FOUND,
        /// The board's document has no negotiation.
        NoNegotiation = "no_negotiation", NOT_FOUND,
        /// The board's document has no handoffs.
        NoHandoffs = "no_handoffs", NOT_FOUND,
        /// The content of an artefact is not what its content type says.
        BadContent = "bad_content", UNPROCESSABLE_ENTITY,
        /// The board's document has no workflow.
        NoWorkflow = "no_workflow", NOT_FOUND,
        /// No code has this name.
        NoMeaning = "unknown_code", NOT_FOUND,
        /// Boards are still being taken up, or what was asked for is not there yet.
        NotReady = "not_ready", SERVICE_UNAVAILABLE,
        /// A fault of the daemon.
        Internal = "internal", INTERNAL_SERVER_ERROR,
    }
}

/// The media type of a problem document.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// Why a request has no other answer.
#[derive(Debug)]
pub(crate) struct Problem {
    /// The status.
    pub(crate) status: StatusCode,
    /// Stable name; the last part of `type`.
    pub(crate) code: &'static str,
    detail: String,
    help: Option<String>,
    /// When it is worth to ask again.
    retry_after: Option<Duration>,
    /// How the request stands to an earlier one.
    repetition: Repetition,
    /// Members beside those of the RFC.
    details: Map<String, Value>,
}

/// What a handler returns.
pub(crate) type Answered<T> = Result<T, Problem>;

impl Problem {
    /// A problem; `detail` is for people and holds no secret.
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            code,
            detail: detail.into(),
            help: None,
            retry_after: None,
            repetition: Repetition::None,
            details: Map::new(),
        }
    }

    /// Says what to do about it.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Says when to ask again.
    #[must_use]
    pub(crate) const fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Says that it was told before, of an earlier transmission of the same request.
    #[must_use]
    pub(crate) const fn repeats(mut self, repetition: Repetition) -> Self {
        self.repetition = repetition;
        self
    }

    /// The same in words that say more, with a code of their own.
    #[must_use]
    pub(crate) fn told_as(self, status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), ..self }
    }

    /// Adds a member.
    #[must_use]
    pub(crate) fn detail(mut self, name: &str, value: Value) -> Self {
        self.details.insert(name.to_owned(), value);
        self
    }

    /// The document.
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

    /// What a request has wrong.
    pub(crate) fn of(code: Code, detail: impl Into<String>) -> Self {
        Self::new(code.status(), code.as_str(), detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // Who is told to come again later will.
        if self.status.is_server_error() && self.status != StatusCode::SERVICE_UNAVAILABLE {
            tracing::error!(code = self.code, detail = %self.detail, "a request failed");
        }
        let body = axum::Json(self.json());
        let mut response = (self.status, body).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.repetition != Repetition::None {
            response.headers_mut().extend(self.repetition.headers());
        }
        if let Some(wait) = self.retry_after {
            // Whole seconds, and not too few.
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
            RuntimeError::Unheard { code: rejection::Code::BacklogFull, .. } => {
                problem.help("say it again when something of what waits is done")
            }
            RuntimeError::CannotRetry { .. } => problem
                .help("`limits` raises tokens, wall, commits, edits, money and journal of the board, `worker_limits` tokens and money of `worker`"),
            RuntimeError::Over(_) => problem.help("a board that has ended for good is read only"),
            _ => problem,
        }
    }
}

impl From<JournalError> for Problem {
    fn from(error: JournalError) -> Self {
        RuntimeError::Journal(error).into()
    }
}

/// Returns the status of what a board refused: what was wrong with the moment is a conflict, what was wrong with the request is
/// not.
pub(crate) const fn refusal(code: rejection::Code) -> StatusCode {
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
        RuntimeError::Unheard { code, .. } => refusal(*code),
        RuntimeError::AlreadyRunning(_)
        | RuntimeError::CannotRetry { .. }
        | RuntimeError::Over(_)
        | RuntimeError::TokenConflict(_)
        | RuntimeError::Journal(JournalError::Owned { .. } | JournalError::Fenced { .. }) => StatusCode::CONFLICT,
        RuntimeError::Closed(_) | RuntimeError::Interrupted(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// What the command line would have said: codes and words are the same.
impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let Failure::Told(told) = failure else {
            return Self::new(StatusCode::INTERNAL_SERVER_ERROR, "output_failed", "nobody reads the answer");
        };
        let status = match (told.code, told.exit) {
            ("no_such_board" | "no_such_version" | "no_such_worker" | "no_such_place" | "path_not_found", _) => {
                StatusCode::NOT_FOUND
            }
            ("bad_pointer", _) => StatusCode::BAD_REQUEST,
            (
                "still_in_use"
                | "kept_by_departments"
                | "redaction_conflict"
                | "board_not_ended"
                | "board_exists"
                | "older_archive",
                _,
            ) => StatusCode::CONFLICT,
            (_, Exit::Refused) => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self {
            status,
            code: told.code,
            detail: told.message,
            help: told.help,
            retry_after: None,
            repetition: Repetition::None,
            details: told.details,
        }
    }
}
