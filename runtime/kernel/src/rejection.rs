//! Why a proposal was refused, written for the model that must do better.
//!
//! `stage` and `code` are stable and part of the journal format; messages may change. All violations of the failing
//! stage are collected, so that one more call can mend them all, and every rejection says what its worker may do
//! instead.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::blueprint::{GrantOp, WriteCondition};
use crate::id::{Seq, Version, WorkerName};

/// The most violations a rejection lists.
pub const VIOLATIONS_MAX: usize = 20;

/// An enum of stable names: each member with the code that users, models and programs see.
#[macro_export]
macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $code)] $variant,)*
        }

        impl $name {
            /// Every member, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The stable name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub use coded;

coded! {
    /// The stages of the pipeline, in their order.
    Stage {
        /// Bytes to strict JSON to an RFC 6902 document.
        Syntax = "syntax",
        /// The worker's write contract and the legal locations of the schema.
        Authorization = "authorization",
        /// What the worker read has not changed since.
        Freshness = "freshness",
        /// The patch applies to a candidate, wholly or not at all.
        Application = "application",
        /// The candidate satisfies the state schema.
        Schema = "schema",
        /// The registered invariants hold over state, patch and candidate.
        Invariant = "invariant",
        /// A person agrees, where a grant demands it.
        Approval = "approval",
    }
}

coded! {
    /// What was wrong.
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

        /// No write grant of the worker covers the path, or no read grant what is read.
        PathNotGranted = "path_not_granted",
        /// A grant covers the path, but not for this operation.
        OpNotGranted = "op_not_granted",
        /// A grant covers the path and the operation, but its condition does not hold there.
        ConditionNotMet = "condition_not_met",
        /// The grant's value schema refuses the value.
        ValueNotGranted = "value_not_granted",
        /// The state schema has no such place.
        UnknownLocation = "unknown_location",
        /// The reply asks to be shown or told something, and may not any more, or not at all.
        ExpansionLimit = "expansion_limit",
        /// The reply asks a person, and its worker has nobody to ask.
        ClarifyNotGranted = "clarify_not_granted",
        /// The token belongs to another worker, or the worker does not exist.
        WrongWorker = "wrong_worker",
        /// The invocation is over; the proposal came late.
        InvocationClosed = "invocation_closed",
        /// The budgets do not suffice for another call of the attempt, which is over with that.
        BudgetExhausted = "budget_exhausted",
        /// The token was used before, with another patch.
        TokenConflict = "token_conflict",
        /// The board has ended.
        BoardNotRunning = "board_not_running",

        /// What the patch writes has changed since its author's view was taken.
        StaleTarget = "stale_target",
        /// Something that its author has read has changed since.
        StaleRead = "stale_read",
        /// The patch would write over something of which its author was shown only a summary.
        UnseenTarget = "unseen_target",
        /// The file that the edit would make is there, and its author had not looked, or knows it.
        FileExists = "file_exists",
        /// The place is kept for a moment for a worker that was refused because others had been faster.
        Reserved = "reserved",

        /// The path, or the parent of the place, does not exist.
        PathNotFound = "path_not_found",
        /// A `test` operation found something else.
        TestFailed = "test_failed",
        /// An array index beyond the end.
        IndexOutOfRange = "index_out_of_range",
        /// The candidate is larger or deeper than the board allows.
        ResultTooLarge = "result_too_large",
        /// There is no such invocation to take up again, and no limit is raised.
        NothingGivenUp = "nothing_given_up",
        /// The board would stop again at once: a limit is reached.
        LimitReached = "limit_reached",
        /// A limit that an operator names is not above the one in force, is above what a limit may be, or is of something
        /// that the board does not limit.
        BadLimit = "bad_limit",
        /// As much as may wait of what such signals bring waits already, or invocations wait with as much memory as they may.
        BacklogFull = "backlog_full",
        /// No rule waits for a signal of this name.
        UnknownSignal = "unknown_signal",
        /// The journal of the board has no room for what comes from outside.
        JournalFull = "journal_full",

        /// The candidate breaks the state schema.
        SchemaViolation = "schema_violation",
        /// A registered invariant does not hold.
        InvariantViolated = "invariant_violated",

        /// The patch uses grants that demand different persons; one patch is put to one.
        SeveralApprovers = "several_approvers",
        /// Too many proposals wait for persons already.
        ApprovalLimit = "approval_limit",
        /// The person who was asked did not agree.
        Denied = "denied",
        /// Nobody answered in time.
        ApprovalExpired = "approval_expired",
        /// The answer is none of those that the question asks for.
        AnswerNotOffered = "answer_not_offered",
        /// The answer is to a question that does not stand: there never was one, or it is answered, or over.
        NotPending = "not_pending",
        /// The answer comes from somebody else than who was asked.
        WrongApprover = "wrong_approver",
        /// The answer comes from the caller who has started the board or made the proposal, or who may be that one, or the
        /// person has proposed it.
        FourEyes = "four_eyes",
        /// The answer is about another patch than the one that was asked about.
        ApprovalMismatch = "approval_mismatch",
    }
}

/// One thing that is wrong with a proposal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Violation {
    /// What is wrong.
    pub code: Code,
    /// Index of the operation in the patch, where one is to blame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<usize>,
    /// JSON Pointer into the document (for `syntax`, into the reply); empty for the whole.
    pub pointer: String,
    /// For people and models; may change between versions.
    pub message: String,
    /// The schema keyword, or the invariant's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What would have been right.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub expected: Option<Value>,
    /// What was there; only what the worker may read or has itself written.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub found: Option<Value>,
    /// At stage `freshness`: how what the worker read differs from what is there now. `{"was": …}`, or of a text
    /// `{"at", "removed", "added"}`, counted in characters. Only of what the worker may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<Value>,
    /// At stage `freshness`: when it changed, and by whom. Only of what the worker may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<Stale>,
    /// Whether it is about what the worker wrote itself, where a condition lets it read nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
}

/// When something changed that a worker depended on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stale {
    /// The version it was read at.
    pub read_at: Version,
    /// The version that last changed it.
    pub now: Version,
    /// Whose commit that was.
    pub changed_by: WorkerName,
    /// The record of that commit.
    pub seq: Seq,
}

impl Violation {
    /// The message, and who had changed the place, where that is told.
    pub fn told(&self) -> Cow<'_, str> {
        match &self.stale {
            Some(stale) => format!("{} (by {})", self.message, stale.changed_by).into(),
            None => Cow::Borrowed(&self.message),
        }
    }

    /// A violation with the three parts that every one has.
    pub fn new(code: Code, pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code,
            op: None,
            pointer: pointer.into(),
            message: message.into(),
            rule: None,
            expected: None,
            found: None,
            diff: None,
            stale: None,
            own: false,
        }
    }

    /// Names the operation to blame.
    #[must_use]
    pub fn at_op(mut self, op: usize) -> Self {
        self.op = Some(op);
        self
    }

    /// Names the schema keyword or the invariant.
    #[must_use]
    pub fn by_rule(mut self, rule: impl Into<String>) -> Self {
        self.rule = Some(rule.into());
        self
    }

    /// Says what would have been right.
    #[must_use]
    pub fn expecting(mut self, expected: Value) -> Self {
        self.expected = Some(expected);
        self
    }

    /// Says what was there.
    #[must_use]
    pub fn finding(mut self, found: Value) -> Self {
        self.found = Some(found);
        self
    }
}

/// A write that the worker may make, shown when it tried another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowed {
    /// The path pattern of the grant.
    pub path: String,
    /// The operations it grants.
    pub ops: Vec<GrantOp>,
    /// The grant's value schema, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The state schema at that place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Only where this is true.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<WriteCondition>,
}

/// A refused proposal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rejection {
    /// The stage that failed.
    pub stage: Stage,
    /// The code of the first violation.
    pub code: Code,
    /// Everything wrong at that stage, at most [`VIOLATIONS_MAX`].
    pub violations: Vec<Violation>,
    /// What the worker may do instead, nearest to what it tried first.
    pub allowed: Vec<Allowed>,
}

impl Rejection {
    /// A rejection at `stage`; keeps the first [`VIOLATIONS_MAX`] of `violations`.
    ///
    /// # Panics
    /// If there are no violations: a refusal without a reason is a bug.
    pub fn new(stage: Stage, mut violations: Vec<Violation>) -> Self {
        violations.truncate(VIOLATIONS_MAX);
        let code = violations.first().expect("a rejection has a reason").code;
        Self { stage, code, violations, allowed: Vec::new() }
    }
}

/// A value that is there, also if it is `null`: a board that was recovered must tell of it as the one that decided did.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
