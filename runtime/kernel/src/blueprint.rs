//! The contract of a board, as data: who works, what they may read and write, what wakes them, what must hold.
//!
//! Owns the shape and the defaults (SPEC section 12). Reading from YAML or JSON with source positions is in
//! [`crate::source`], the checks across fields in [`crate::lint`]. What is written here is what the journal stores:
//! a blueprint whose fragments are resolved and whose defaults are spelled out.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::id::{RuleName, WorkerName};
use crate::rejection::coded;

mod workspace;

pub use workspace::{FileAccess, Granularity, Isolation, Presentation, WorkspaceSpec};

/// The blueprint format this version reads.
pub const FORMAT: u32 = 1;

/// The accepted contract of a board; immutable once the board exists.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blueprint {
    /// Format number, [`FORMAT`].
    pub blueprint: u32,
    /// Short name; letters, digits and dashes.
    pub name: String,
    /// One sentence for people.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of what the user must supply; it lands at `/request`.
    #[serde(default = "any_schema")]
    pub request: Value,
    /// The document's schema and its initial value.
    pub state: StateSpec,
    /// The seats.
    pub workers: BTreeMap<WorkerName, Worker>,
    /// What wakes them; the order breaks ties.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// What must hold in every committed state, beyond the schema.
    #[serde(default)]
    pub invariants: Vec<Invariant>,
    /// The directory of files that its workers share; absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceSpec>,
    /// When the task is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<Done>,
    /// The circuit policy.
    #[serde(default)]
    pub circuit: Circuit,
    /// Limits of the whole board.
    #[serde(default)]
    pub limits: BoardLimits,
    /// How many invocations may run at once.
    #[serde(default = "default_concurrency")]
    pub concurrency: u32,
    /// Model names of the operator's configuration; `default` serves workers that name none.
    #[serde(default)]
    pub models: BTreeMap<String, String>,
    /// For recorded random choices.
    #[serde(default)]
    pub seed: u64,
    /// Fragments to include; empty once resolved.
    #[serde(default, rename = "use")]
    pub fragments: Vec<String>,
}

/// The document's schema (JSON Schema 2020-12 by default) and the state a board starts from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateSpec {
    /// What a valid document is, `/request` included or not: a schema silent on it accepts it.
    pub schema: Value,
    /// The initial document, without `/request`.
    #[serde(default = "empty_object")]
    pub initial: Value,
    /// Whether `format` is checked or, as 2020-12 has it, only an annotation.
    #[serde(default)]
    pub assert_formats: bool,
}

/// A seat.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// What fills the seat.
    pub agent: AgentKind,
    /// What the worker is for, in words for it.
    #[serde(default)]
    pub role: String,
    /// Path patterns it may read; each covers everything below what it matches.
    #[serde(default)]
    pub reads: Vec<String>,
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
    /// A key of [`Blueprint::models`]; `default` if absent. For `llm`.
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
    /// The replies of a `script`, in order; the last one repeats.
    #[serde(default)]
    pub script: Vec<Value>,
    /// What it may do with the files of the workspace; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FileAccess>,
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
    /// Whether this version can fill such a seat. A person can be asked to agree, but not yet to work.
    pub const fn is_available(&self) -> bool {
        match self {
            Self::Llm | Self::Command | Self::Script | Self::Human | Self::Remote => true,
            Self::Board | Self::Builtin(_) => false,
        }
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
    pub expires: Duration,
}

/// How much of the state a worker is shown.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ViewSpec {
    /// The most the view may measure, in `unit`.
    pub budget: u32,
    /// What the budget counts.
    pub unit: Unit,
}

impl Default for ViewSpec {
    fn default() -> Self {
        Self { budget: 4000, unit: Unit::Chars }
    }
}

coded! {
    /// What a view's budget counts.
    Unit {
        /// Unicode scalar values.
        Chars = "chars",
        /// Tokens of the worker's model, estimated at four characters each.
        Tokens = "tokens",
    }
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
    /// Attempts of one invocation.
    pub attempts: u32,
    /// Refusals for conflict of one invocation; they use no attempt.
    pub conflicts: u32,
    /// Time of one attempt.
    pub timeout: Duration,
    /// Tokens on this board; absent: only the board's own limit holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Tokens of one reply.
    pub reply_tokens: u32,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            invocations: 100,
            concurrency: None,
            attempts: 3,
            conflicts: 8,
            timeout: Duration::from_secs(60),
            tokens: None,
            reply_tokens: 1024,
        }
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

/// Trigger, condition, action.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Unique in the blueprint.
    pub name: RuleName,
    /// What it waits for.
    pub trigger: Trigger,
    /// A CEL condition; absent: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The worker it wakes.
    pub run: WorkerName,
    /// How dear its invocations may become.
    #[serde(default, skip_serializing_if = "RuleLimits::are_none")]
    pub limits: RuleLimits,
}

/// Limits of one rule: of the branch that it is with its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleLimits {
    /// Tokens on this board; absent: only the limits of worker and board hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

impl RuleLimits {
    const fn are_none(&self) -> bool {
        self.tokens.is_none()
    }
}

/// What a rule waits for.
#[derive(Clone, PartialEq, Debug)]
pub enum Trigger {
    /// The board's creation.
    Start,
    /// Somebody asks for the rule by name.
    Manual,
    /// A committed change at a place.
    Event {
        /// The kind of change; absent: any.
        op: Option<EventOp>,
        /// Path pattern of the place.
        path: String,
    },
    /// A schedule, in cron's notation.
    Every(String),
    /// A signal by name.
    Signal(String),
    /// Every named rule has completed an invocation.
    After(Vec<RuleName>),
    /// Nothing of the named rules is under way any more, whatever became of it.
    Idle(Vec<RuleName>),
}

coded! {
    /// What a commit did to a place.
    EventOp {
        /// Something new is there.
        Add = "add",
        /// Something else is there.
        Replace = "replace",
        /// Nothing is there any more.
        Remove = "remove",
    }
}

impl Serialize for Trigger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = Map::new();
        match self {
            Self::Start => return serializer.serialize_str("start"),
            Self::Manual => return serializer.serialize_str("manual"),
            Self::Event { op, path } => {
                if let Some(op) = op {
                    map.insert("op".into(), op.as_str().into());
                }
                map.insert("path".into(), path.clone().into());
            }
            Self::Every(cron) => drop(map.insert("every".into(), cron.clone().into())),
            Self::Signal(name) => drop(map.insert("signal".into(), name.clone().into())),
            Self::After(rules) | Self::Idle(rules) => {
                let word = if matches!(self, Self::After(_)) { "after" } else { "idle" };
                let names = rules.iter().map(|name| name.as_str().into()).collect();
                map.insert(word.into(), Value::Array(names));
            }
        }
        map.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Trigger {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            op: Option<EventOp>,
            path: Option<String>,
            every: Option<String>,
            signal: Option<String>,
            after: Option<Vec<RuleName>>,
            idle: Option<Vec<RuleName>>,
        }
        const FORMS: &str = "a trigger is start, manual, {op, path}, {every}, {signal}, {after} or {idle}";
        let value = Value::deserialize(deserializer)?;
        if let Some(word) = value.as_str() {
            return match word {
                "start" => Ok(Self::Start),
                "manual" => Ok(Self::Manual),
                other => Err(D::Error::custom(format!("{FORMS}, not {other}"))),
            };
        }
        let fields: Fields = serde_json::from_value(value).map_err(D::Error::custom)?;
        let Fields { op, path, every, signal, after, idle } = fields;
        match (path, every, signal, after, idle) {
            (Some(path), None, None, None, None) => Ok(Self::Event { op, path }),
            (None, Some(cron), None, None, None) if op.is_none() => Ok(Self::Every(cron)),
            (None, None, Some(name), None, None) if op.is_none() => Ok(Self::Signal(name)),
            (None, None, None, Some(rules), None) if op.is_none() => Ok(Self::After(rules)),
            (None, None, None, None, Some(rules)) if op.is_none() => Ok(Self::Idle(rules)),
            _ => Err(D::Error::custom(FORMS)),
        }
    }
}

/// Something that must hold in every committed state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invariant {
    /// Unique in the blueprint; rejections name it.
    pub name: String,
    /// Path pattern whose every instance is `self`; absent: evaluated once, without `self`.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub each: Option<String>,
    /// The CEL expression; must be true.
    pub expr: String,
}

/// When the task is finished.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Done {
    /// A CEL condition over `state` and `request`.
    pub when: String,
}

/// When to stop a branch (a rule and its worker) or the board (SPEC section 7).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Circuit {
    /// Rejected proposals of a branch in a row.
    pub rejections: Streak,
    /// Proposals of a branch in a row that changed nothing.
    pub no_ops: Streak,
    /// Invocations of a branch in a row that were given up because the agent crashed.
    pub crashes: Streak,
    /// Returns of what a branch writes to an earlier value.
    pub cycles: Cycles,
    /// A budget that is used up.
    pub budget: BudgetPolicy,
    /// Decisions an open branch waits before it is tried again.
    pub cooldown: u32,
}

impl Default for Circuit {
    fn default() -> Self {
        Self {
            rejections: Streak { limit: 3, then: Action::ReduceView },
            no_ops: Streak { limit: 2, then: Action::StopBranch },
            crashes: Streak { limit: 3, then: Action::StopBranch },
            cycles: Cycles::default(),
            budget: BudgetPolicy::default(),
            cooldown: 16,
        }
    }
}

impl Circuit {
    /// What follows on each kind of trouble, by its name.
    pub const fn actions(&self) -> [(&'static str, &Action); 5] {
        [
            ("rejections", &self.rejections.then),
            ("no_ops", &self.no_ops.then),
            ("crashes", &self.crashes.then),
            ("cycles", &self.cycles.then),
            ("budget", &self.budget.then),
        ]
    }
}

/// A run of outcomes of one kind, and what follows when it gets too long.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streak {
    /// How many in a row.
    pub limit: u32,
    /// What follows. After `reduce_view`, another `limit` in a row stop the branch.
    pub then: Action,
}

/// Returns to an earlier value, within a window of the branch's commits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cycles {
    /// The branch's last so many commits are remembered.
    pub window: u32,
    /// How many returns among them.
    pub repeats: u32,
    /// What follows.
    pub then: Action,
}

impl Default for Cycles {
    fn default() -> Self {
        Self { window: 16, repeats: 2, then: Action::StopBoard }
    }
}

/// What follows when a budget is used up.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetPolicy {
    /// What follows.
    pub then: Action,
}

impl Default for BudgetPolicy {
    fn default() -> Self {
        Self { then: Action::StopBranch }
    }
}

/// What a breaker does when it trips.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Halves the branch's view budget.
    ReduceView,
    /// Opens the branch.
    StopBranch,
    /// Ends the board.
    StopBoard,
    /// Opens the branch and wakes this worker.
    Wake(WorkerName),
}

impl Serialize for Action {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::ReduceView => serializer.serialize_str("reduce_view"),
            Self::StopBranch => serializer.serialize_str("stop_branch"),
            Self::StopBoard => serializer.serialize_str("stop_board"),
            Self::Wake(worker) => BTreeMap::from([("wake", worker)]).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Action {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const FORMS: &str = "an action is reduce_view, stop_branch, stop_board or {wake: worker}";
        let value = Value::deserialize(deserializer)?;
        match value.as_str() {
            Some("reduce_view") => return Ok(Self::ReduceView),
            Some("stop_branch") => return Ok(Self::StopBranch),
            Some("stop_board") => return Ok(Self::StopBoard),
            Some(other) => return Err(D::Error::custom(format!("{FORMS}, not {other}"))),
            None => {}
        }
        let woken = value.as_object().filter(|map| map.len() == 1).and_then(|map| map.get("wake")?.as_str());
        woken.map(|worker| Self::Wake(worker.into())).ok_or_else(|| D::Error::custom(FORMS))
    }
}

/// Edits of files that a board takes, unless its blueprint says otherwise: eight engineers with eighty iterations in each of
/// eight tasks make 5,120 at most.
pub const EDITS_MAX: u64 = 20_000;

/// Limits of a whole board.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BoardLimits {
    /// Commits, edits of files not counted.
    pub commits: u64,
    /// Edits of files; [`EDITS_MAX`] if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edits: Option<u64>,
    /// Tokens of all workers.
    pub tokens: u64,
    /// Recorded running time, without pauses and downtime.
    pub wall: Duration,
    /// Bytes of the state as compact JSON.
    pub state_bytes: u64,
    /// Nesting of the state.
    pub depth: u32,
}

impl Default for BoardLimits {
    fn default() -> Self {
        Self {
            commits: 1000,
            edits: None,
            tokens: 1_000_000,
            wall: Duration::from_secs(3600),
            state_bytes: 64 * 1024 * 1024,
            depth: 64,
        }
    }
}

/// A span of time, written as `250ms`, `60s`, `30m`, `1h` or `2d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Duration {
    ms: u64,
}

/// The units of [`Duration`], largest first, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl Duration {
    /// So many seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self { ms: secs * 1000 }
    }

    /// In milliseconds.
    pub const fn as_ms(self) -> u64 {
        self.ms
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = UNITS.into_iter().find(|(_, size)| self.ms.is_multiple_of(*size)).unwrap_or(("ms", 1));
        write!(f, "{}{unit}", self.ms / size)
    }
}

impl std::str::FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("a time is a whole number with ms, s, m, h or d, like 60s, not {text:?}");
        let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (count, unit) = text.split_at(split);
        let (_, size) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let ms = count.parse::<u64>().ok().and_then(|count| count.checked_mul(size)).ok_or_else(wrong)?;
        Ok(Self { ms })
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

fn any_schema() -> Value {
    Value::Bool(true)
}

fn empty_object() -> Value {
    Value::Object(Map::new())
}

fn default_ops() -> Vec<GrantOp> {
    vec![GrantOp::Add, GrantOp::Replace]
}

const fn default_expiry() -> Duration {
    Duration::from_secs(3600)
}

const fn default_concurrency() -> u32 {
    4
}
