//! Turns a request into a blueprint by asking a language model, and holds what it writes to what `patchboard check` asks.
//!
//! Owns the loop: ask, review, send the findings back, at most [`Terms::repairs`] times, then refuse with what is still
//! wrong. Whom to ask is an argument ([`design`]'s `ask`), so that tests need no model. Makes no board, and takes no part
//! in one: an architect is asked before there is one (P2).
//!
//! * [`prompt`]: what the model is told.
//! * [`form`]: the JSON Schema that its answer is held to, made from the published meta-schema.
//! * [`review`]: what is wrong with an answer; caps.

use patchboard_kernel::admission::Admission;
use patchboard_kernel::blueprint::{Blueprint, BoardLimits, Duration};
use patchboard_kernel::digest::Digest;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::lint::{Diagnostic, Severity};
use patchboard_kernel::view::Prompt;
use patchboard_runtime::agent::{Answer, Failure};
use patchboard_runtime::runtime::Designed;
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::review::Accepted;
use crate::config::Architect;
use crate::llm::{Asked, Chat};

pub mod form;
pub mod prompt;
pub mod review;

pub use self::review::CODES;

/// The most rounds of repair that can be asked for.
pub const REPAIRS_MAX: u32 = 10;

/// What is asked for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Brief {
    /// The task, in the user's words.
    pub request: String,
    /// What the board will be given at `/request/documents`. The model is told titles, sizes and a short excerpt.
    pub documents: Vec<Document>,
    /// What the user supplies, without the documents: what the board will be given at `/request`. The model is told its
    /// shape, and a blueprint must take it.
    pub input: Option<Value>,
    /// Whether the answer must also have the board's request, as a member `input` beside the blueprint's own. Means
    /// nothing where `input` is given.
    pub wants_input: bool,
}

impl Brief {
    /// Whether the model is to write the board's request.
    const fn asks_for_input(&self) -> bool {
        self.wants_input && self.input.is_none()
    }
}

/// A board's request with documents put in, as its member `documents`; `None` if it is no object. Nothing is as good as
/// an object without members.
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

/// A text that a board is given.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Document {
    /// Its name.
    pub title: String,
    /// What it says.
    pub text: String,
}

/// What an architect may use up, and what it may grant.
#[derive(Clone, PartialEq, Debug)]
pub struct Terms {
    /// How often findings go back to the model, at most [`REPAIRS_MAX`].
    pub repairs: u32,
    /// The most that a board of its blueprints may use.
    pub caps: Caps,
}

impl Default for Terms {
    fn default() -> Self {
        Self { repairs: 3, caps: Caps::default() }
    }
}

/// The most that a board may use whose blueprint a model wrote. Larger limits are lowered to these.
#[derive(Clone, PartialEq, Debug)]
pub struct Caps {
    /// Commits.
    pub commits: u64,
    /// Tokens, the architect's own among them.
    pub tokens: u64,
    /// Running time.
    pub wall: Duration,
    /// Bytes of the state.
    pub state_bytes: u64,
    /// Calls at once.
    pub concurrency: u32,
}

impl Default for Caps {
    /// The limits that a blueprint has which names none (SPEC section 12).
    fn default() -> Self {
        let BoardLimits {
            commits,
            tokens,
            wall,
            state_bytes,
            depth: _,
            edits: _,
            money: _,
            patience: _,
            journal: _,
            dedup: _,
        } = BoardLimits::default();
        Self { commits, tokens, wall, state_bytes, concurrency: 4 }
    }
}

/// One call of the model, and what came of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Round {
    /// What it was told.
    pub prompt: Prompt,
    /// What it wrote, bounded; empty if nothing could be read.
    pub draft: String,
    /// What is wrong with it: errors, or warnings where there is none.
    pub findings: Vec<Diagnostic>,
    /// Why there is no draft.
    pub failure: Option<Failure>,
    /// What it cost, if that is known.
    pub usage: Option<Usage>,
}

impl Round {
    /// Whether the draft is a blueprint that a board can be made of.
    pub fn is_accepted(&self) -> bool {
        self.failure.is_none() && !self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }
}

/// What all rounds cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Spent {
    /// Calls of the model.
    pub calls: u32,
    /// Their tokens.
    pub usage: Usage,
    /// Of the tokens: those of calls after the first.
    pub repairs: Usage,
}

impl Spent {
    /// The sum of these rounds.
    pub fn of(rounds: &[Round]) -> Self {
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

/// A blueprint that was made.
#[derive(Clone, PartialEq, Debug)]
pub struct Design {
    /// What a board can be made of: within the caps, defaults spelled out.
    pub blueprint: Blueprint,
    /// The same as a file for people, with a comment that names the request.
    pub yaml: String,
    /// What the board is to be given at `/request`, documents included; `None` if neither [`Brief::input`]
    /// nor [`Brief::wants_input`] was given.
    pub input: Option<Value>,
    /// Warnings about `yaml`, and what was lowered to the caps.
    pub findings: Vec<Diagnostic>,
    /// Every call, in order.
    pub rounds: Vec<Round>,
}

impl Design {
    /// Gives the record of how the blueprint was made. `admitted`: the model that made it.
    pub fn designed(&self, admitted: Option<Admission>) -> Designed {
        let Spent { calls, usage, repairs } = Spent::of(&self.rounds);
        let prompts = self.rounds.iter().map(|round| round.prompt.to_json().into()).collect();
        Designed { calls, usage, repairs, prompts, admitted }
    }
}

/// Why there is no blueprint.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// What the model wrote is none, and it may not try again; the last round says what is wrong.
    #[error("the model wrote no blueprint that can be accepted, in {} tries", .rounds.len())]
    NoBlueprint {
        /// Every call, in order.
        rounds: Vec<Round>,
    },
    /// The model could not be asked.
    #[error("the model gives no answer: {failure}")]
    Failed {
        /// Why.
        failure: Failure,
        /// Every call, in order; the last one failed.
        rounds: Vec<Round>,
    },
}

impl Refusal {
    /// Stable name.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoBlueprint { .. } => "no_blueprint",
            Self::Failed { .. } => "architect_failed",
        }
    }

    /// Every call, in order.
    pub fn rounds(&self) -> &[Round] {
        match self {
            Self::NoBlueprint { rounds } | Self::Failed { rounds, .. } => rounds,
        }
    }

    /// The last round that has a draft; the last of all if none has.
    pub fn last_told(&self) -> Option<&Round> {
        let rounds = self.rounds();
        rounds.iter().rev().find(|round| !round.draft.is_empty()).or(rounds.last())
    }
}

/// Puts a prompt to a model as the operator's settings say: what [`design`] may be given to ask with.
pub async fn ask(chat: &Chat, settings: &Architect, brief: &Brief, terms: &Terms, prompt: &Prompt) -> Answer {
    let schema = form::schema(terms, brief.asks_for_input());
    let timeout = std::time::Duration::from_millis(settings.timeout.as_ms());
    let (by, reply_tokens) = ("architect", settings.reply_tokens);
    chat.complete(&Asked { by, prompt, schema: &schema, order: form::ORDER, reply_tokens, timeout, waits: true }).await
}

/// Asks for a blueprint until there is one, at most `1 + terms.repairs` times; `tell` hears of every round.
///
/// Errors go back to the model. A draft without one is accepted; if it has warnings, they go back once as advice, and the
/// draft stays what it is if what comes then is no better.
///
/// # Errors
/// [`Refusal::NoBlueprint`] after the last round; [`Refusal::Failed`] as soon as a call fails for another reason than
/// that the model wrote too much or nothing.
pub async fn design(
    brief: &Brief,
    terms: &Terms,
    mut ask: impl AsyncFnMut(&Prompt) -> Answer,
    mut tell: impl FnMut(&Round),
) -> Result<Design, Refusal> {
    let mut rounds: Vec<Round> = Vec::new();
    let mut kept: Option<Accepted> = None;
    for left in (0..=terms.repairs.min(REPAIRS_MAX)).rev() {
        let prompt = prompt::of(brief, terms, &rounds);
        let answer = ask(&prompt).await;
        let (round, accepted) = judge(brief, terms, prompt, answer);
        tell(&round);
        let failure = round.failure.clone().filter(|failure| !can_be_mended(failure.code));
        rounds.push(round);
        match (accepted, kept.take()) {
            // What the advice led to, unless it made things worse.
            (Some(better), Some(before)) if better.warnings() <= before.warnings() => return Ok(better.design(rounds)),
            (_, Some(before)) => return Ok(before.design(rounds)),
            (Some(accepted), None) if left == 0 || accepted.advice() == 0 => return Ok(accepted.design(rounds)),
            (Some(accepted), None) => kept = Some(accepted),
            (None, None) => {}
        }
        if let Some(failure) = failure {
            return Err(Refusal::Failed { failure, rounds });
        }
    }
    Err(Refusal::NoBlueprint { rounds })
}

fn judge(brief: &Brief, terms: &Terms, prompt: Prompt, answer: Answer) -> (Round, Option<Accepted>) {
    match answer {
        Ok(reply) => {
            let reviewed = review::review(&reply.text, brief, terms);
            let draft = review::bounded(&reply.text).to_owned();
            let round = Round { prompt, draft, findings: reviewed.findings, failure: None, usage: reply.usage };
            (round, reviewed.accepted)
        }
        Err(failure) => {
            let findings = if can_be_mended(failure.code) { vec![review::unwritten(&failure)] } else { Vec::new() };
            let usage = failure.usage;
            (Round { prompt, draft: String::new(), findings, failure: Some(failure), usage }, None)
        }
    }
}

/// Whether the model may do better if it is told.
fn can_be_mended(code: FailureCode) -> bool {
    matches!(code, FailureCode::Truncated | FailureCode::Empty)
}

/// The hash by which a journal names the text of a prompt.
pub fn prompt_hash(prompt: &Prompt) -> Digest {
    patchboard_kernel::digest::sha256(prompt.to_json().as_bytes())
}
