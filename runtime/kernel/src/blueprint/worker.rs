//! Workers: their agents, their read and write grants, and their limits.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Duration, Expiry, FileAccess, NestedBoardSpec, ReadGrant, ViewSpec};
use crate::id::{GroupName, WorkerName};
use crate::money::Money;
use crate::rejection::code_enum;

/// A worker: its agent, its grants and its limits.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// Kind of agent that does the work.
    pub agent: AgentKind,
    /// Prompt or instructions for the agent.
    #[serde(default)]
    pub role: String,
    /// Group of the worker; absent: none.
    pub group: Option<GroupName>,
    /// Position among the members of its group that are triggered together: smallest first, then by name.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub order: i8,
    /// One-line description for other workers, part of its group's definition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Read grants; each covers everything below its matches. Since format 2 `{name}` in a path is replaced by the
    /// trigger's binding.
    #[serde(default)]
    pub reads: Vec<ReadGrant>,
    /// Write grants; a pattern must match an operation's path exactly.
    #[serde(default)]
    pub writes: Vec<WriteGrant>,
    /// Size of its views.
    #[serde(default)]
    pub view: ViewSpec,
    /// Rate, time and cost limits.
    #[serde(default)]
    pub limits: WorkerLimits,
    /// Limits on its patches.
    #[serde(default)]
    pub patch: PatchLimits,
    /// State that must not have changed between its view and its commit.
    #[serde(default)]
    pub freshness: Freshness,
    /// The person it may ask for clarification; absent: it cannot ask.
    pub clarify: Option<Approval>,
    /// A key of [`Blueprint::models`](super::Blueprint::models); `default` if absent. For `llm`.
    pub model: Option<String>,
    /// Name of a program of the operator's configuration; the worker's own name if absent. For `command`.
    pub command: Option<String>,
    /// An inline program and its arguments; only for blueprints run with `--allow-inline`. For `command`.
    #[serde(default)]
    pub program: Vec<String>,
    /// Recovery after a crash for a program that keeps state across calls. Absent: it keeps none, and a lost call is
    /// retried. For `command`.
    pub restart: Option<Restart>,
    /// Replies of a `script` in order; the last one repeats. For `llm` and `command`: replies for runs in script mode.
    #[serde(default)]
    pub script: Vec<Value>,
    /// Access to the files of the workspace; absent: none.
    pub files: Option<FileAccess>,
    /// Nested board that does its work. For `board`.
    pub board: Option<NestedBoardSpec>,
    /// Allows a reply without a proposal, with a reason, at no penalty.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pass: bool,
    /// Name of its reply format if its replies are not patches; they are converted into one. Absent: replies are
    /// patches.
    pub format: Option<String>,
    /// Extra arguments for its agent. For `builtin:` and `board`.
    pub with: Option<Map<String, Value>>,
}

/// Kind of agent that does a worker's work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AgentKind {
    /// A language model behind an OpenAI-compatible server.
    Llm,
    /// A program named by the operator.
    Command,
    /// A person.
    Human,
    /// A process that leases invocations over HTTP or MCP.
    Remote,
    /// Scripted replies written in the blueprint.
    Script,
    /// A nested board.
    Board,
    /// A built-in coordination role.
    Builtin(String),
}

impl AgentKind {
    /// Kinds with a name of their own: all but the builtin roles.
    pub const NAMED: [Self; 6] = [Self::Llm, Self::Command, Self::Script, Self::Human, Self::Remote, Self::Board];

    /// Returns the names of the kinds that work without a person, builtin roles excluded, for messages.
    pub fn worker_names() -> String {
        let working = Self::NAMED.iter().filter(|kind| **kind != Self::Human);
        working.map(Self::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Returns true for this coordination role.
    pub fn is_builtin(&self, role: &str) -> bool {
        matches!(self, Self::Builtin(name) if name == role)
    }
}

impl fmt::Display for AgentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Llm => f.write_str("llm"),
            Self::Command => f.write_str("command"),
            Self::Human => f.write_str("human"),
            Self::Remote => f.write_str("remote"),
            Self::Script => f.write_str("script"),
            Self::Board => f.write_str("board"),
            Self::Builtin(name) => write!(f, "builtin:{name}"),
        }
    }
}

impl Serialize for AgentKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AgentKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let builtin = text.strip_prefix("builtin:").filter(|name| !name.is_empty());
        let kind = match builtin {
            Some(name) => Some(Self::Builtin(name.to_owned())),
            None => Self::NAMED.into_iter().find(|kind| kind.to_string() == text),
        };
        kind.ok_or_else(|| D::Error::custom(format!("no such kind of agent: {text}")))
    }
}

/// A place that a worker may write, with the permitted operations and values.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteGrant {
    /// Path pattern: `*` one token, `**` any number, `-` only the append position.
    pub path: String,
    /// Operations by their effect on the document.
    #[serde(default = "default_ops")]
    pub ops: Vec<GrantOp>,
    /// JSON Schema of the value written there.
    pub value: Option<Value>,
    /// Approval that the write requires; absent: none.
    pub approval: Option<Approval>,
    /// Condition on the state before the patch; absent: none.
    #[serde(rename = "where")]
    pub condition: Option<WriteCondition>,
}

/// Condition of a write grant, e.g. that the writer owns the task (W54).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteCondition {
    /// Prefix of the grant's path, token for token, like `/tasks/*` of `/tasks/*/result`; its value is `self`.
    pub of: String,
    /// CEL over `self`, `worker` (the writer's name) and `request`.
    pub expr: String,
}

impl Worker {
    /// Returns a copy with each grant restricted to its [`WriteGrant::effective_ops`].
    #[must_use]
    pub fn with_effective_ops(&self) -> Self {
        let writes = self.writes.iter().map(|grant| WriteGrant { ops: grant.effective_ops(), ..grant.clone() });
        Self { writes: writes.collect(), ..self.clone() }
    }
}

impl WriteGrant {
    /// Returns the operations that can ever succeed there. At a path that ends in `-`, there is no value to replace, to
    /// remove or to insert before.
    pub fn effective_ops(&self) -> Vec<GrantOp> {
        let appends = self.path.ends_with("/-");
        let usable = |op: &GrantOp| match op {
            GrantOp::Add | GrantOp::Move | GrantOp::Copy => true,
            GrantOp::Replace | GrantOp::Insert | GrantOp::Remove => !appends,
        };
        self.ops.iter().copied().filter(usable).collect()
    }
}

code_enum! {
    /// Effect of an operation on the document (SPEC section 3).
    GrantOp {
        /// Creates a member or appends an element.
        Add = "add",
        /// Overwrites an existing value.
        Replace = "replace",
        /// Adds an element before an existing one.
        Insert = "insert",
        /// Removes an existing value.
        Remove = "remove",
        /// Moves a value from one place to another.
        Move = "move",
        /// Copies a value from another place.
        Copy = "copy",
    }
}

/// The person to ask for an approval or a clarification.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// A `human` worker.
    pub by: WorkerName,
    /// Time until the question expires.
    #[serde(default = "default_expiry")]
    pub expires: Expiry,
    /// Requires an answer from a caller who neither started the board nor made the proposal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub four_eyes: bool,
}

/// Limits of one worker.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerLimits {
    /// Invocations on this board.
    pub invocations: u32,
    /// Concurrent invocations; absent: only the board's own limit applies.
    pub concurrency: Option<u32>,
    /// Runs outside the board's `concurrency` limit, so that busy workers cannot delay it: for roles that handle
    /// timeouts. Limited to one invocation at a time unless its own `concurrency` is set. Since format 2.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unmetered_concurrency: bool,
    /// Word of format 1 for `unmetered_concurrency`. A field of its own, so that a stored blueprint keeps its bytes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exempt: bool,
    /// Attempts of one invocation.
    pub attempts: u32,
    /// Rejections for conflicts of one invocation; they use no attempt.
    pub conflicts: u32,
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// Tokens on this board; absent: only the board's own limit applies.
    pub tokens: Option<u64>,
    /// Money on this board, in the currency of the operator's prices; absent: only the board's own limit applies.
    pub money: Option<Money>,
    /// Maximum tokens of one reply.
    pub reply_tokens: u32,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            invocations: 100,
            concurrency: None,
            unmetered_concurrency: false,
            exempt: false,
            attempts: 3,
            conflicts: 8,
            timeout: Duration::from_secs(60),
            tokens: None,
            money: None,
            reply_tokens: 1024,
        }
    }
}

impl WorkerLimits {
    /// Returns the worker's own limit of concurrent invocations; `None` if only the board's limit applies.
    pub fn max_concurrency(&self) -> Option<u32> {
        self.concurrency.or(self.is_unmetered().then_some(1))
    }

    /// Returns true if its invocations occupy no concurrency slot of the board, whichever word says so.
    pub const fn is_unmetered(&self) -> bool {
        self.unmetered_concurrency || self.exempt
    }
}

/// Limits on a worker's patches (P29).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PatchLimits {
    /// Operations in one patch.
    pub max_ops: u32,
    /// Bytes of one reply.
    pub max_bytes: u32,
    /// Requirement of a statement of intent.
    pub intent: Intent,
}

impl Default for PatchLimits {
    fn default() -> Self {
        Self { max_ops: 8, max_bytes: 16 * 1024, intent: Intent::Optional }
    }
}

code_enum! {
    /// Requirement of a statement of intent with a patch.
    Intent {
        /// Intent may be omitted.
        Optional = "optional",
        /// Patches without an intent are rejected.
        Required = "required",
    }
}

code_enum! {
    /// State that must not have changed between a worker's view and its commit (SPEC section 5).
    #[derive(Default)]
    Freshness {
        /// Nothing beyond explicit `test` operations.
        None = "none",
        /// The places that it writes.
        Target = "target",
        /// Every value that its view showed.
        #[default]
        Reads = "reads",
        /// Also the membership of collections that its view showed.
        Members = "members",
    }
}

code_enum! {
    /// Recovery after a crash for a program that keeps state across calls.
    Restart {
        /// The invocation fails.
        Fail = "fail",
        /// The call is retried with a fresh process.
        Fresh = "fresh",
        /// A fresh process first receives all earlier input again. Not available yet.
        Replay = "replay",
    }
}

fn default_ops() -> Vec<GrantOp> {
    vec![GrantOp::Add, GrantOp::Replace]
}

const fn default_expiry() -> Expiry {
    Expiry::After(Duration::from_secs(3600))
}
