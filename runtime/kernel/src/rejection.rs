//! Rejections of proposals, worded for the model that must correct them.
//!
//! `stage` and `code` are stable and part of the journal format; messages may change. All violations of the failing
//! stage are collected, so that one more call can fix them all, and every rejection lists the operations allowed to its
//! worker.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::blueprint::{GrantOp, WriteCondition};
use crate::id::{Seq, Version, WorkerName};

/// Maximum violations listed in a rejection.
pub const VIOLATIONS_MAX: usize = 20;

/// Defines an enum of stable names: each member with the code that users, models and programs see.
#[macro_export]
macro_rules! code_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $code)] $variant,)*
        }

        impl $name {
            /// All members, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the stable name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// Returns the member with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|member| member.as_str() == name)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub use code_enum;

/// Defines methods that return a part of `self`, each in one line below its documentation.
macro_rules! getters {
    ($this:ident: $($(#[$doc:meta])* pub $name:ident -> $type:ty = $part:expr;)*) => {
        $(
            $(#[$doc])*
            pub const fn $name(&$this) -> $type {
                $part
            }
        )*
    };
}
pub(crate) use getters;

code_enum! {
    /// Stage of the pipeline, in order.
    Stage {
        /// Bytes to strict JSON to an RFC 6902 document.
        Syntax = "syntax",
        /// The worker's write contract and the legal locations of the schema.
        Authorization = "authorization",
        /// The values that the worker read have not changed since.
        Freshness = "freshness",
        /// The patch applies to a candidate, completely or not at all.
        Application = "application",
        /// The candidate satisfies the state schema.
        Schema = "schema",
        /// The registered invariants hold over state, patch and candidate.
        Invariant = "invariant",
        /// A person approves, where a grant demands it.
        Approval = "approval",
    }
}

code_enum! {
    /// Reason of a rejection.
    Code {
        /// The text is not JSON (RFC 8259).
        InvalidJson = "invalid_json",
        /// An object names a member twice.
        DuplicateKey = "duplicate_key",
        /// A number that neither a double nor a 64-bit integer can hold.
        NumberOutOfRange = "number_out_of_range",
        /// Nested deeper than the limit.
        TooDeep = "too_deep",
        /// More bytes or operations than the limit.
        TooLarge = "too_large",
        /// JSON, but not a patch (RFC 6902) nor an envelope around one.
        NotAPatch = "not_a_patch",
        /// JSON, but not the object that a board without patches expects (docs/modes.md).
        NotAnObject = "not_an_object",
        /// The blueprint demands a statement of intent and there is none.
        IntentMissing = "intent_missing",
        /// An operation that RFC 6902 does not know.
        UnknownOp = "unknown_op",
        /// Not a JSON Pointer (RFC 6901).
        BadPointer = "bad_pointer",

        /// No write grant of the worker covers the path, or no read grant covers a place that is read.
        PathNotGranted = "path_not_granted",
        /// A grant covers the path, but not for this operation.
        OpNotGranted = "op_not_granted",
        /// A grant covers the path and the operation, but its condition does not hold there.
        ConditionNotMet = "condition_not_met",
        /// The grant's value schema rejects the value.
        ValueNotGranted = "value_not_granted",
        /// The state schema has no such place.
        UnknownLocation = "unknown_location",
        /// The reply requests more values or an answer, but its rounds are used up, or it answers no invocation.
        ExpansionLimit = "expansion_limit",
        /// The reply asks a person, but its worker has no person to ask.
        ClarifyNotGranted = "clarify_not_granted",
        /// The token belongs to another worker, or the worker does not exist.
        WrongWorker = "wrong_worker",
        /// The invocation is closed; the proposal arrived too late.
        InvocationClosed = "invocation_closed",
        /// The budgets do not suffice for another call of the attempt; the attempt has ended.
        BudgetExhausted = "budget_exhausted",
        /// The idempotency key was used before, with another patch.
        TokenConflict = "token_conflict",
        /// The board has ended.
        BoardNotRunning = "board_not_running",

        /// A place that the patch writes has changed since its author's view was taken.
        StaleTarget = "stale_target",
        /// A value in its author's read set has changed since.
        StaleRead = "stale_read",
        /// The patch would overwrite a value that its author saw only as a summary.
        UnseenTarget = "unseen_target",
        /// The file to be created exists already, and its author has not read it, or knows that it exists.
        FileExists = "file_exists",
        /// The place is briefly reserved for a worker that lost a conflict with a concurrent commit.
        Reserved = "reserved",

        /// The path, or the parent of the place, does not exist.
        PathNotFound = "path_not_found",
        /// A `test` operation found another value.
        TestFailed = "test_failed",
        /// An array index beyond the end.
        IndexOutOfRange = "index_out_of_range",
        /// The candidate is larger or deeper than the board allows.
        ResultTooLarge = "result_too_large",
        /// There is no such invocation to retry, and no limit is raised.
        NothingGivenUp = "nothing_given_up",
        /// The board would stop again at once: a limit is reached.
        LimitReached = "limit_reached",
        /// An operator's new limit is not above the current one, exceeds the maximum, or is for a resource that the
        /// board does not limit.
        BadLimit = "bad_limit",
        /// The backlog of such signals is full, or waiting invocations use all the memory allowed to them.
        BacklogFull = "backlog_full",
        /// No rule waits for a signal of this name.
        UnknownSignal = "unknown_signal",
        /// The journal of the board has no room for more external input.
        JournalFull = "journal_full",

        /// The candidate violates the state schema.
        SchemaViolation = "schema_violation",
        /// A registered invariant does not hold.
        InvariantViolated = "invariant_violated",

        /// The patch uses grants that demand approval by different persons; a patch can have only one approver.
        SeveralApprovers = "several_approvers",
        /// Too many proposals are waiting for approval already.
        ApprovalLimit = "approval_limit",
        /// The approver denied the proposal.
        Denied = "denied",
        /// The approval was not given in time.
        ApprovalExpired = "approval_expired",
        /// The answer does not fit its question: not one of its choices, or of another kind or length.
        AnswerNotOffered = "answer_not_offered",
        /// The question of this answer is not pending: it never existed, was answered, or has expired.
        NotPending = "not_pending",
        /// The answer comes from a worker other than the one asked.
        WrongApprover = "wrong_approver",
        /// The answer comes from a caller that started the board or made the proposal, or may be that caller; or the
        /// approver proposed it.
        FourEyes = "four_eyes",
        /// The answer refers to another patch than the question.
        ApprovalMismatch = "approval_mismatch",
    }
}

/// One error of a proposal.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Violation {
    /// Reason of the violation.
    pub code: Code,
    /// Index of the operation in the patch, if the violation concerns one.
    pub op: Option<usize>,
    /// JSON Pointer into the document (for `syntax`, into the reply); empty for the whole.
    pub pointer: String,
    /// Message for people and models; may change between versions.
    pub message: String,
    /// Violated schema keyword, or the invariant's name.
    pub rule: Option<String>,
    /// Value or form that would have been accepted.
    #[serde(default, deserialize_with = "deserialize_some")]
    pub expected: Option<Value>,
    /// Value found; only if the worker may read it or has written it.
    #[serde(default, deserialize_with = "deserialize_some")]
    pub found: Option<Value>,
    /// At stage `freshness`: difference between the value read and the current one. `{"was": …}`, or for a text `{"at",
    /// "removed", "added"}`, counted in characters. Only for values that the worker may read.
    pub diff: Option<Value>,
    /// At stage `freshness`: time and author of the change. Only for values that the worker may read.
    pub stale: Option<ConflictingChange>,
    /// True if it concerns a value that the worker wrote itself, and a condition hides the place from it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
}

/// Version and author of a change to a value that a worker depended on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConflictingChange {
    /// Version at which the value was read.
    pub read_at: Version,
    /// Version that last changed it.
    pub now: Version,
    /// Author of that version.
    pub changed_by: WorkerName,
    /// Seq of the commit record.
    pub seq: Seq,
}

impl Violation {
    /// Returns the message, with the author of a conflicting change, if known.
    pub fn message_with_author(&self) -> Cow<'_, str> {
        match &self.stale {
            Some(stale) => format!("{} (by {})", self.message, stale.changed_by).into(),
            None => Cow::Borrowed(&self.message),
        }
    }

    /// Creates a violation with the three mandatory members.
    pub fn new(code: Code, pointer: impl Into<String>, message: impl Into<String>) -> Self {
        let (op, rule, expected, found, diff, stale) = Default::default();
        let (pointer, message) = (pointer.into(), message.into());
        Self { code, op, pointer, message, rule, expected, found, diff, stale, own: false }
    }

    /// Sets the operation that it concerns.
    #[must_use]
    pub fn with_op(mut self, op: usize) -> Self {
        self.op = Some(op);
        self
    }

    /// Sets the schema keyword or the invariant.
    #[must_use]
    pub fn with_rule(mut self, rule: impl Into<String>) -> Self {
        self.rule = Some(rule.into());
        self
    }

    /// Sets the expected value or form.
    #[must_use]
    pub fn with_expected(mut self, expected: Value) -> Self {
        self.expected = Some(expected);
        self
    }

    /// Sets the value found, if there is one.
    #[must_use]
    pub fn with_found(mut self, found: impl Into<Option<Value>>) -> Self {
        self.found = found.into();
        self
    }
}

/// Write that is granted to the worker, listed in the rejection of another.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowedWrite {
    /// Path pattern of the grant.
    pub path: String,
    /// Granted operations.
    pub ops: Vec<GrantOp>,
    /// Value schema of the grant, if it has one.
    pub value: Option<Value>,
    /// State schema at that place.
    pub schema: Option<Value>,
    /// Condition of the grant, if it has one.
    #[serde(rename = "where")]
    pub condition: Option<WriteCondition>,
}

/// Rejected proposal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rejection {
    /// Stage that failed.
    pub stage: Stage,
    /// Code of the first violation.
    pub code: Code,
    /// All violations of that stage, at most [`VIOLATIONS_MAX`].
    pub violations: Vec<Violation>,
    /// Grants of the worker, nearest to the attempted places first.
    pub allowed: Vec<AllowedWrite>,
}

impl Rejection {
    /// Creates a rejection of the whole proposal for one reason.
    pub(crate) fn single(stage: Stage, code: Code, message: impl Into<String>) -> Self {
        Self::new(stage, vec![Violation::new(code, "", message)])
    }

    /// Creates a rejection at `stage`; keeps the first [`VIOLATIONS_MAX`] of `violations`.
    ///
    /// # Panics
    /// Panics if there are no violations: a rejection without a reason is a bug.
    pub fn new(stage: Stage, mut violations: Vec<Violation>) -> Self {
        violations.truncate(VIOLATIONS_MAX);
        let code = violations.first().expect("a rejection has a reason").code;
        Self { stage, code, violations, allowed: Vec::new() }
    }
}

/// Keeps an explicit `null`, so that a recovered board reports it like the board that decided.
fn deserialize_some<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
