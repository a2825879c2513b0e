//! Turns a request into a blueprint by asking a language model. Drafts must pass the checks of `patchboard check`.
//!
//! Owns the loop: ask, review, send the findings back, at most [`DesignLimits::repairs`] times, then fail with the
//! remaining findings. The model is an argument ([`design`]'s `ask`), so tests need none. Creates no board and takes
//! part in none: an architect runs before the board exists (P2).
//!
//! * [`prompt`]: the prompt for the model.
//! * [`reply_schema`]: the JSON Schema of its reply, derived from the published meta-schema.
//! * [`review`]: findings about a draft; caps.

use patchboard_kernel::admission::Admission;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::view::Prompt;
use patchboard_lint::{Diagnostic, Severity};
use patchboard_runtime::agent::{CallResult, Failure};
use patchboard_runtime::options::ArchitectUsage;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config::{Architect, DesignLimits, REPAIRS_MAX};
use patchboard_llm::{Chat, PromptRequest};

pub mod prompt;
pub mod reply_schema;
pub mod review;

pub use self::review::CODES;

/// Request for a design.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DesignRequest {
    /// The task, in the user's words.
    pub request: String,
    /// Documents that the board gets at `/request/documents`. The model sees their titles, sizes and a short excerpt.
    pub documents: Vec<Document>,
    /// User input without the documents: the board gets it at `/request`. The model sees its shape, and a blueprint
    /// must accept it.
    pub input: Option<Value>,
    /// Requests the board's input too, as a member `input` beside the blueprint's own members. Ignored if `input` is
    /// given.
    pub wants_input: bool,
}

impl DesignRequest {
    /// Returns true if the model is to write the board's request.
    const fn asks_for_input(&self) -> bool {
        self.wants_input && self.input.is_none()
    }
}

/// Adds documents to a board's request, as its member `documents`; null counts as an empty object. Returns `None` if
/// there are documents and the request is neither an object nor null.
pub fn with_documents(request: Value, documents: &[Document]) -> Option<Value> {
    if documents.is_empty() {
        return Some(request);
    }
    let mut members = match request {
        Value::Null => Map::new(),
        Value::Object(members) => members,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => return None,
    };
    members.insert("documents".to_owned(), json!(documents));
    Some(members.into())
}

/// A text for the board.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Document {
    /// Title.
    pub title: String,
    /// Content.
    pub text: String,
}

/// One call of the model and its result.
#[derive(Clone, PartialEq, Debug)]
pub struct Round {
    /// Prompt of the call.
    pub prompt: Prompt,
    /// The draft, bounded in length; empty if no draft could be read.
    pub draft: String,
    /// Findings about the draft: errors, or warnings if there are no errors.
    pub findings: Vec<Diagnostic>,
    /// Reason why there is no draft.
    pub failure: Option<Failure>,
    /// Usage of the call, if known.
    pub usage: Option<Usage>,
}

impl Round {
    /// Returns true if a board can be created from the draft.
    pub fn is_accepted(&self) -> bool {
        self.failure.is_none() && !self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }
}

/// Usage of all rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct RoundsUsage {
    /// Calls of the model.
    pub calls: u32,
    /// Tokens of all calls.
    pub usage: Usage,
    /// Tokens of the calls after the first.
    pub repairs: Usage,
}

impl RoundsUsage {
    /// Sums up rounds.
    pub fn from_rounds(rounds: &[Round]) -> Self {
        let mut spent = Self::default();
        for round in rounds {
            let usage = round.usage.unwrap_or_default().bounded();
            spent.usage.add(usage);
            if spent.calls > 0 {
                spent.repairs.add(usage);
            }
            spent.calls += 1;
        }
        spent
    }
}

/// A finished design.
#[derive(Clone, PartialEq, Debug)]
pub struct Design {
    /// The blueprint: within the caps, defaults spelled out.
    pub blueprint: Blueprint,
    /// The blueprint as a file for people, with a comment that names the request.
    pub yaml: String,
    /// Input of the board for `/request`, documents included; `None` if neither [`DesignRequest::input`] nor
    /// [`DesignRequest::wants_input`] was given.
    pub input: Option<Value>,
    /// Warnings about `yaml`, and limits that were lowered to the caps.
    pub findings: Vec<Diagnostic>,
    /// Every call, in order.
    pub rounds: Vec<Round>,
}

impl Design {
    /// Returns the record of the design. `admitted` names the model that wrote it.
    pub fn designed(&self, admitted: Option<Admission>) -> ArchitectUsage {
        let RoundsUsage { calls, usage, repairs } = RoundsUsage::from_rounds(&self.rounds);
        let prompts = self.rounds.iter().map(|round| round.prompt.to_json().into()).collect();
        ArchitectUsage { calls, usage, repairs, prompts, admitted }
    }
}

/// Failed design.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DesignError {
    /// No draft was accepted within the allowed rounds; the last round has the findings.
    #[error("the model wrote no blueprint that can be accepted, in {} tries", .rounds.len())]
    NoBlueprint {
        /// Every call, in order.
        rounds: Vec<Round>,
    },
    /// The call of the model failed.
    #[error("the model gives no answer: {failure}")]
    Failed {
        /// The failure.
        failure: Failure,
        /// Every call, in order; the last one failed.
        rounds: Vec<Round>,
    },
}

impl DesignError {
    /// Returns the stable error code.
    pub const fn code(&self) -> &'static str {
        if let Self::NoBlueprint { .. } = self { "no_blueprint" } else { "architect_failed" }
    }

    /// Returns every call, in order.
    pub fn rounds(&self) -> &[Round] {
        match self {
            Self::NoBlueprint { rounds } | Self::Failed { rounds, .. } => rounds,
        }
    }

    /// Returns the last round with a draft, or the last round if none has one.
    pub fn last_round_with_draft(&self) -> Option<&Round> {
        let rounds = self.rounds();
        rounds.iter().rev().find(|round| !round.draft.is_empty()).or(rounds.last())
    }
}

/// Calls the operator's architect model with a prompt; suits as the `ask` of [`design`].
pub async fn ask(
    chat: &Chat,
    settings: &Architect,
    brief: &DesignRequest,
    terms: &DesignLimits,
    prompt: &Prompt,
) -> CallResult {
    let schema = reply_schema::schema(terms, brief.asks_for_input());
    let timeout = std::time::Duration::from_millis(settings.timeout.as_ms());
    chat.complete(&PromptRequest {
        caller: "architect",
        prompt,
        schema: &schema,
        order: reply_schema::ORDER,
        reply_tokens: settings.reply_tokens,
        timeout,
        wait_for_provider: true,
    })
    .await
}

/// Asks for a blueprint until one is accepted, at most `1 + terms.repairs` times; `report` receives every round.
///
/// Errors go back to the model. A draft without errors is accepted. If it has warnings, they go back once as advice;
/// the first draft is kept if the second call fails, or if its draft has errors or more warnings.
/// Fails with [`DesignError::NoBlueprint`] after the last round, and with [`DesignError::Failed`] as soon as a
/// call fails, unless the reply was truncated or empty.
pub async fn design(
    brief: &DesignRequest,
    terms: &DesignLimits,
    mut ask: impl AsyncFnMut(&Prompt) -> CallResult,
    mut report: impl FnMut(&Round),
) -> Result<Design, DesignError> {
    let mut rounds: Vec<Round> = Vec::new();
    let mut kept: Option<Design> = None;
    for left in (0..=terms.repairs.min(REPAIRS_MAX)).rev() {
        let prompt = prompt::build(brief, terms, &rounds);
        let answer = ask(&prompt).await;
        let (round, accepted) = judge(brief, terms, prompt, answer);
        report(&round);
        let failure = round.failure.clone().filter(|failure| !is_retryable(failure.code));
        rounds.push(round);
        match (accepted, kept.take()) {
            // Prefers the draft after advice, unless it has more warnings.
            (Some(better), Some(before)) if better.findings.len() <= before.findings.len() => {
                return Ok(Design { rounds, ..better });
            }
            (_, Some(before)) => return Ok(Design { rounds, ..before }),
            (Some(accepted), None) if left == 0 || review::advice(&accepted) == 0 => {
                return Ok(Design { rounds, ..accepted });
            }
            (Some(accepted), None) => kept = Some(accepted),
            (None, None) => {}
        }
        if let Some(failure) = failure {
            return Err(DesignError::Failed { failure, rounds });
        }
    }
    Err(DesignError::NoBlueprint { rounds })
}

fn judge(brief: &DesignRequest, terms: &DesignLimits, prompt: Prompt, answer: CallResult) -> (Round, Option<Design>) {
    match answer {
        Ok(reply) => {
            let (findings, accepted) = match review::review(&reply.text, brief, terms) {
                Ok(accepted) => (accepted.findings.clone(), Some(accepted)),
                Err(findings) => (findings, None),
            };
            let draft = review::bounded(&reply.text).to_owned();
            (Round { prompt, draft, findings, failure: None, usage: reply.usage }, accepted)
        }
        Err(failure) => {
            let findings =
                if is_retryable(failure.code) { vec![review::incomplete_answer(&failure)] } else { Vec::new() };
            let usage = failure.usage;
            (Round { prompt, draft: String::new(), findings, failure: Some(failure), usage }, None)
        }
    }
}

/// Returns true if the model may do better once it knows the failure.
fn is_retryable(code: FailureCode) -> bool {
    matches!(code, FailureCode::Truncated | FailureCode::Empty)
}
