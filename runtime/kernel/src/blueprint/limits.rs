//! Limits of a board, and its circuit breaker policy.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::id::WorkerName;
use crate::money::Money;

/// Circuit breaker thresholds for a branch (a rule and its worker) or the board (SPEC section 7).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Circuit {
    /// Consecutive rejected proposals of a branch.
    pub rejections: Streak,
    /// Consecutive proposals of a branch that changed nothing.
    pub no_ops: Streak,
    /// Consecutive replies of a branch that passed; absent: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passes: Option<Streak>,
    /// Consecutive invocations of a branch that were given up because the agent crashed.
    pub crashes: Streak,
    /// Returns of a branch's writes to an earlier value.
    pub cycles: Cycles,
    /// Response to an exhausted budget.
    pub budget: BudgetPolicy,
    /// Number of board decisions before an open branch is retried.
    pub cooldown: u32,
}

impl Default for Circuit {
    fn default() -> Self {
        Self {
            rejections: Streak { limit: 3, then: Action::ReduceView },
            no_ops: Streak { limit: 2, then: Action::StopBranch },
            passes: None,
            crashes: Streak { limit: 3, then: Action::StopBranch },
            cycles: Cycles::default(),
            budget: BudgetPolicy::default(),
            cooldown: 16,
        }
    }
}

impl Circuit {
    /// Iterates over the configured actions, each with the name of its failure kind.
    pub fn actions(&self) -> impl Iterator<Item = (&'static str, &Action)> {
        [
            ("rejections", &self.rejections.then),
            ("no_ops", &self.no_ops.then),
            ("crashes", &self.crashes.then),
            ("cycles", &self.cycles.then),
            ("budget", &self.budget.then),
        ]
        .into_iter()
        .chain(self.passes.iter().map(|passes| ("passes", &passes.then)))
    }
}

/// A run of consecutive outcomes of one kind, and the action at its limit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streak {
    /// Consecutive outcomes that trip the breaker.
    pub limit: u32,
    /// Action when the limit is reached. After `reduce_view`, another `limit` in a row stop the branch.
    pub then: Action,
}

/// Returns to an earlier value, within a window of the branch's commits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cycles {
    /// Number of the branch's latest commits that are remembered.
    pub window: u32,
    /// Returns within the window that trip the breaker.
    pub repeats: u32,
    /// Action when the limit is reached.
    pub then: Action,
}

impl Default for Cycles {
    fn default() -> Self {
        Self { window: 16, repeats: 2, then: Action::StopBoard }
    }
}

/// Response to an exhausted budget.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetPolicy {
    /// Action when the budget is exhausted.
    pub then: Action,
}

impl Default for BudgetPolicy {
    fn default() -> Self {
        Self { then: Action::StopBranch }
    }
}

/// Action of a tripped breaker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Halves the branch's view budget.
    ReduceView,
    /// Opens the branch.
    StopBranch,
    /// Ends the board.
    StopBoard,
    /// Opens the branch and triggers this worker.
    Wake(WorkerName),
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

/// Default limit of file edits per board. Eight engineers with eighty iterations on each of eight tasks make at most
/// 5,120.
pub const EDITS_MAX: u64 = 20_000;

/// Default limit of the journal in bytes: its records, and the view texts that they reference.
pub const JOURNAL_BYTES_MAX: u64 = 1 << 30;

/// Limits of a whole board.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BoardLimits {
    /// Commits, excluding file edits.
    pub commits: u64,
    /// Edits of files; [`EDITS_MAX`] if absent.
    pub edits: Option<u64>,
    /// Tokens of all workers.
    pub tokens: u64,
    /// Recorded running time, without pauses and downtime.
    pub wall: Duration,
    /// Money of all workers, in the currency of the operator's prices; absent: tokens alone bound it.
    pub money: Option<Money>,
    /// Maximum time the board waits for a model's provider before it is paused; absent: only the model's own patience
    /// applies.
    pub patience: Option<Duration>,
    /// Recorded time for which the idempotency key of a decided proposal or request is kept; one hour if absent.
    pub dedup: Option<Duration>,
    /// Bytes of the journal: records and view texts; [`JOURNAL_BYTES_MAX`] if absent.
    pub journal: Option<u64>,
    /// Bytes of the state as compact JSON.
    pub state_bytes: u64,
    /// Nesting of the state.
    pub depth: u32,
}

impl BoardLimits {
    /// Upper bound of the commit limit.
    pub const COMMITS_MAX: u64 = 1_000_000_000;
    /// Upper bound of the token limit.
    pub const TOKENS_MAX: u64 = 1_000_000_000_000;
    /// Upper bound of the journal limit, in bytes.
    pub const JOURNAL_MAX: u64 = 1 << 50;
    /// Upper bound of the running time an operator can set: 100,000 days, in milliseconds.
    pub const WALL_MS_MAX: u64 = 100_000 * 86_400_000;
}

impl Default for BoardLimits {
    fn default() -> Self {
        Self {
            commits: 1000,
            edits: None,
            tokens: 1_000_000,
            wall: Duration::from_secs(3600),
            money: None,
            patience: None,
            dedup: None,
            journal: None,
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
    /// Creates a duration of this many seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self { ms: secs * 1000 }
    }

    /// Returns the duration in milliseconds.
    pub const fn as_ms(self) -> u64 {
        self.ms
    }
}

/// Lifetime of a question to a person: a [`Duration`], or `never` for one that stays until it is answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Expiry {
    /// Expires after this time.
    After(Duration),
    /// Lasts until it is answered or the board ends.
    Never,
}

/// The text of [`Expiry::Never`].
const NEVER: &str = "never";

impl Serialize for Expiry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::After(time) => time.serialize(serializer),
            Self::Never => serializer.serialize_str(NEVER),
        }
    }
}

impl<'de> Deserialize<'de> for Expiry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == NEVER { Ok(Self::Never) } else { text.parse().map(Self::After).map_err(D::Error::custom) }
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
