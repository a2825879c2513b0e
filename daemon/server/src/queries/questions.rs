//! Open questions to people.

use patchboard_kernel::board::PendingQuestion;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::expand_request::ExpandRequest;
use patchboard_kernel::id::{BoardId, Seq, Timestamp, WorkerName};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Open question to a person: an approval, or a question of a worker.
#[derive(Serialize, ToSchema)]
#[schema(as = Question)]
pub struct QuestionInfo {
    /// Number of the question's record.
    #[schema(value_type = u64)]
    seq: Seq,
    /// Worker that asks.
    #[schema(value_type = String)]
    worker: WorkerName,
    /// Person who is asked.
    #[schema(value_type = String)]
    approver: WorkerName,
    /// Deadline, in milliseconds since 1970; null if the question is open until answered.
    #[schema(required, value_type = Option<i64>)]
    expires: Option<Timestamp>,
    /// Digest that an answer must repeat.
    #[schema(value_type = String)]
    digest: Digest,
    /// Proposed patch (RFC 6902).
    patch: Value,
    /// Purpose, in the author's words.
    #[schema(required)]
    intent: Option<String>,
    /// Places that the author asked to see: JSON Pointers, or objects with `at` and `from`.
    #[schema(value_type = Vec<Value>)]
    expand: Vec<ExpandRequest>,
    /// Question, if nothing is proposed.
    #[schema(required)]
    clarify: Option<ClarifyInfo>,
}

/// Question of a worker.
#[derive(Serialize, ToSchema)]
#[schema(as = ClarifyQuestion)]
pub(crate) struct ClarifyInfo {
    /// Text of the question.
    question: String,
    /// Possible answers; absent if any answer is accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    choices: Vec<String>,
}

impl QuestionInfo {
    /// Returns the question of a record.
    pub fn new(seq: Seq, question: &PendingQuestion) -> Self {
        let clarify = question.clarify.as_ref();
        Self {
            seq,
            worker: question.by.worker.clone(),
            approver: question.approver.clone(),
            expires: question.expires,
            digest: question.digest,
            patch: question.patch.clone(),
            intent: question.intent.clone(),
            expand: question.expand.clone(),
            clarify: clarify
                .map(|asked| ClarifyInfo { question: asked.question.clone(), choices: asked.choices.clone() }),
        }
    }
}

/// Open question of a board.
#[derive(Serialize, ToSchema)]
pub struct InboxQuestion {
    /// Board id.
    #[schema(value_type = String)]
    board: BoardId,
    /// Question.
    #[serde(flatten)]
    question: QuestionInfo,
}

impl InboxQuestion {
    /// Returns the question of a board's record.
    pub fn new(board: &BoardId, seq: Seq, question: &PendingQuestion) -> Self {
        Self { board: board.clone(), question: QuestionInfo::new(seq, question) }
    }
}
