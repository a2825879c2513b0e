//! Seats: who works, what they may read and write, and how they are asked.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Duration, Expiry, FileAccess, Format, InnerBoard, ReadGrant, ViewSpec};
use crate::id::{GroupName, WorkerName};
use crate::money::Money;
use crate::rejection::coded;

/// A seat.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// What fills the seat.
    pub agent: AgentKind,
    /// What the worker is for, in words for it.
    #[serde(default)]
    pub role: String,
    /// The group it belongs to; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupName>,
    /// Its place among those of its group that are woken at once: the smallest first, then by name.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub order: i8,
    /// What it does, in one line for others: the definition of its group says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What it may read; each grant covers everything below what its pattern matches. Since format 2 `{name}` in a path is
    /// what the trigger of an invocation binds.
    #[serde(default)]
    pub reads: Vec<ReadGrant>,
    /// What it may write; patterns match an operation's path exactly.
    #[serde(default)]
    pub writes: Vec<WriteGrant>,
    /// How much it is shown.
    #[serde(default)]
    pub view: ViewSpec,
    /// How often, how long and how dear.
    #[serde(default)]
    pub limits: WorkerLimits,
    /// The form of its patches.
    #[serde(default)]
    pub patch: PatchLimits,
    /// What must not have changed between its view and its commit.
    #[serde(default)]
    pub freshness: Freshness,
    /// The person it may ask what it cannot know; absent: it asks nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clarify: Option<Approval>,
    /// A key of [`Blueprint::models`](super::Blueprint::models); `default` if absent. For `llm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Name of a program of the operator's configuration; the worker's own name if absent. For `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// An inline program and its arguments; only for blueprints run with `--allow-inline`. For `command`.
    #[serde(default)]
    pub program: Vec<String>,
    /// What a program that keeps state across calls wants after a crash; absent: it keeps none, and a call that was lost
    /// is made again. For `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// The replies of a `script`, in order; the last one repeats. Of an `llm` or `command` worker: those of a run that plays scripts.
    #[serde(default)]
    pub script: Vec<Value>,
    /// What it may do with the files of the workspace; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FileAccess>,
    /// The board that does its work. For `board`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board: Option<InnerBoard>,
    /// Whether it may answer that it proposes nothing, and why, without that being held against it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pass: bool,
    /// The form of its replies, where they are no patches; what they say is made a patch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// What its agent is told beside. For `builtin:` and `board`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<Map<String, Value>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(order: &i8) -> bool {
    *order == 0
}

/// What fills a worker's seat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AgentKind {
    /// A language model behind an OpenAI-compatible server.
    Llm,
    /// A program the operator has named.
    Command,
    /// A person.
    Human,
    /// A process that leases invocations over HTTP or MCP.
    Remote,
    /// Replies written in the blueprint.
    Script,
    /// A board inside this board.
    Board,
    /// A coordination role of this project.
    Builtin(String),
}

impl AgentKind {
    /// The coordination roles that this version has.
    pub const BUILTINS: [&str; 11] = [
        "begin",
        "confirm",
        "coordinator",
        "crud",
        "handoff",
        "negotiator",
        "perceive",
        "resolve",
        "resume",
        "vote",
        "workflow",
    ];

    /// Whether this version can fill such a seat. A person can be asked to agree, but not yet to work.
    pub fn is_available(&self) -> bool {
        match self {
            Self::Llm | Self::Command | Self::Script | Self::Human | Self::Remote | Self::Board => true,
            Self::Builtin(name) => Self::BUILTINS.contains(&name.as_str()),
        }
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
        Ok(match text.as_str() {
            "llm" => Self::Llm,
            "command" => Self::Command,
            "human" => Self::Human,
            "remote" => Self::Remote,
            "script" => Self::Script,
            "board" => Self::Board,
            other => match other.strip_prefix("builtin:") {
                Some(name) if !name.is_empty() => Self::Builtin(name.to_owned()),
                _ => return Err(D::Error::custom(format!("no such kind of agent: {other}"))),
            },
        })
    }
}

/// A place a worker may write, the ways it may do so, and what it may put there.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteGrant {
    /// Path pattern: `*` one token, `**` any number, `-` only the append position.
    pub path: String,
    /// Operations by their effect on the document.
    #[serde(default = "default_ops")]
    pub ops: Vec<GrantOp>,
    /// JSON Schema of the value written there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// A person must agree first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Only where this is true of the state before the patch.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<WriteCondition>,
}

/// What must be true where something is written, e.g. that the writer owns the piece of work (W54).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteCondition {
    /// A beginning of the grant's path, token for token, like `/tasks/*` of `/tasks/*/result`: what stands there is `self`.
    pub of: String,
    /// CEL over `self`, `worker`, the writer's name, and `request`.
    pub expr: String,
}

impl Worker {
    /// The same with only the operations that its grants can be used for, as [`WriteGrant::effective_ops`] has them.
    #[must_use]
    pub fn with_effective_ops(&self) -> Self {
        let writes = self.writes.iter().map(|grant| WriteGrant { ops: grant.effective_ops(), ..grant.clone() });
        Self { writes: writes.collect(), ..self.clone() }
    }
}

impl WriteGrant {
    /// The operations that can ever be used there. Where a path ends in `-`, nothing is before and something is after:
    /// there is nothing to replace, to remove or to insert before.
    pub fn effective_ops(&self) -> Vec<GrantOp> {
        let appends = self.path.ends_with("/-");
        let usable = |op: &GrantOp| match op {
            GrantOp::Add | GrantOp::Move | GrantOp::Copy => true,
            GrantOp::Replace | GrantOp::Insert | GrantOp::Remove => !appends,
        };
        self.ops.iter().copied().filter(usable).collect()
    }
}

coded! {
    /// What an operation does to the document it meets (SPEC section 3).
    GrantOp {
        /// Creates a member or appends an element.
        Add = "add",
        /// Overwrites what is there.
        Replace = "replace",
        /// Adds an element before an existing one.
        Insert = "insert",
        /// Takes something away.
        Remove = "remove",
        /// Takes it away here and puts it there.
        Move = "move",
        /// Puts a copy there.
        Copy = "copy",
    }
}

/// The person who is asked: whether a write may be committed, or what a worker cannot know.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// A `human` worker.
    pub by: WorkerName,
    /// How long the question stands.
    #[serde(default = "default_expiry")]
    pub expires: Expiry,
    /// True if the answer counts only of a caller who has neither started the board nor proposed this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub four_eyes: bool,
}

/// Limits of one worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerLimits {
    /// Invocations on this board.
    pub invocations: u32,
    /// Invocations under way at once; absent: only the board's own limit holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Whether it takes none of the board's places (`concurrency`), so that whoever holds all of them cannot keep it waiting:
    /// for roles that decide what is late. It is called once at a time, unless its own `concurrency` says otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exempt: bool,
    /// Attempts of one invocation.
    pub attempts: u32,
    /// Refusals for conflict of one invocation; they use no attempt.
    pub conflicts: u32,
    /// Time of one attempt.
    pub timeout: Duration,
    /// Tokens on this board; absent: only the board's own limit holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money on this board, in the currency of the operator's prices; absent: only the board's own limit holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
    /// Tokens of one reply.
    pub reply_tokens: u32,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            invocations: 100,
            concurrency: None,
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
    /// How many invocations may be under way at once, whatever others do.
    pub fn at_once(&self) -> Option<u32> {
        self.concurrency.or(self.exempt.then_some(1))
    }
}

/// The form of a worker's patches (P29).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PatchLimits {
    /// Operations in one patch.
    pub max_ops: u32,
    /// Bytes of one reply.
    pub max_bytes: u32,
    /// Whether a statement of intent must come with it.
    pub intent: Intent,
}

impl Default for PatchLimits {
    fn default() -> Self {
        Self { max_ops: 8, max_bytes: 16 * 1024, intent: Intent::Optional }
    }
}

coded! {
    /// Whether a patch must say what it is for.
    Intent {
        /// May be left out.
        Optional = "optional",
        /// Refused without.
        Required = "required",
    }
}

coded! {
    /// What must not have changed between a worker's view and its commit (SPEC section 5).
    Freshness {
        /// Nothing, beyond explicit `test` operations.
        None = "none",
        /// What it writes.
        Target = "target",
        /// Every value its view showed.
        Reads = "reads",
        /// Also the membership of collections its view showed.
        Members = "members",
    }
}

#[expect(clippy::derivable_impls, reason = "the enum is made by a macro that derives no default")]
impl Default for Freshness {
    fn default() -> Self {
        Self::Reads
    }
}

coded! {
    /// What a program that keeps state across calls wants after a crash.
    Restart {
        /// The invocation fails.
        Fail = "fail",
        /// A fresh process is asked again.
        Fresh = "fresh",
        /// A fresh process is first told everything it was told before.
        Replay = "replay",
    }
}

fn default_ops() -> Vec<GrantOp> {
    vec![GrantOp::Add, GrantOp::Replace]
}

const fn default_expiry() -> Expiry {
    Expiry::After(Duration::from_secs(3600))
}
