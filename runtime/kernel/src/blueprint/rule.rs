//! Rules: triggers, conditions and the workers they run.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::Duration;
use crate::id::{GroupName, RuleName, WorkerName};
use crate::rejection::code_enum;

/// A rule: trigger, condition, action.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Unique in the blueprint.
    pub name: RuleName,
    /// Event that activates the rule.
    pub trigger: Trigger,
    /// A CEL condition; absent: always.
    pub when: Option<String>,
    /// Workers it triggers.
    pub run: Run,
    /// Names in the triggered worker's paths, each bound by a JSON Pointer to a text or index in the signal's value.
    /// For signal rules only; other triggers bind the names in their path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bind: BTreeMap<String, String>,
    /// Place of triggered invocations in the queue. Since format 2.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub priority: Priority,
    /// Word of format 1 for [`Priority::High`]. A field of its own, so that a stored blueprint keeps its bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub urgent: bool,
    /// Time between the trigger and the invocation. The condition must still hold afterwards. Absent: no delay.
    pub delay: Option<Delay>,
    /// Cost limits of its invocations.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub limits: RuleLimits,
}

impl Rule {
    /// Returns the priority, whichever word gives it.
    pub const fn priority(&self) -> Priority {
        if self.urgent { Priority::High } else { self.priority }
    }
}

code_enum! {
    /// Place of a rule's invocations in the queue.
    #[derive(Default)]
    Priority {
        /// Behind all that wait.
        #[default]
        Normal = "normal",
        /// Ahead of all that wait with normal priority.
        High = "high",
    }
}

/// Limits of one branch: a rule with its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleLimits {
    /// Tokens on this board; absent: only the worker's and the board's limits apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// Maximum delay of a rule, in milliseconds: 366 days.
pub const DELAY_MS_MAX: u64 = 366 * 86_400_000;

/// Delay between a rule's trigger and its invocations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delay {
    /// Length of the delay.
    pub length: DelayLength,
    /// Groups of workers. Time in which one of them waits for its model's provider does not count.
    pub except_waits_of: Vec<GroupName>,
}

/// Length of a delay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DelayLength {
    /// A fixed time.
    For(Duration),
    /// Milliseconds read from the value of the event or signal, by JSON Pointer; empty for the value itself.
    At(String),
}

impl Serialize for Delay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { length: lasts, except_waits_of } = self;
        let mut members = match lasts {
            DelayLength::For(time) if except_waits_of.is_empty() => return time.serialize(serializer),
            DelayLength::For(time) => Map::from_iter([("for".to_owned(), Value::from(time.to_string()))]),
            DelayLength::At(at) => Map::from_iter([("at".to_owned(), Value::from(at.as_str()))]),
        };
        if !except_waits_of.is_empty() {
            let groups = except_waits_of.iter().map(GroupName::as_str).collect();
            members.insert("except_waits_of".to_owned(), groups);
        }
        members.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Delay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            at: Option<String>,
            #[serde(rename = "for")]
            time: Option<Duration>,
            #[serde(default)]
            except_waits_of: Vec<GroupName>,
        }
        const FORMS: &str = "a delay is a time, like 5m, {for} or {at}";
        match Value::deserialize(deserializer)? {
            Value::String(time) => {
                let lasts = time.parse().map(DelayLength::For).map_err(D::Error::custom)?;
                Ok(Self { length: lasts, except_waits_of: Vec::new() })
            }
            value @ Value::Object(_) => {
                let Fields { at, time, except_waits_of } = serde_json::from_value(value).map_err(D::Error::custom)?;
                let lasts = match (at, time) {
                    (Some(at), None) => DelayLength::At(at),
                    (None, Some(time)) => DelayLength::For(time),
                    _ => return Err(D::Error::custom(FORMS)),
                };
                Ok(Self { length: lasts, except_waits_of })
            }
            _ => Err(D::Error::custom(FORMS)),
        }
    }
}

/// Workers that a rule triggers. Each forms a branch of its own with the rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Run {
    /// A single worker.
    Worker(WorkerName),
    /// All workers of a group, in group order.
    Group(GroupName),
    /// The group member named in the event or signal.
    Member {
        /// The group.
        group: GroupName,
        /// Location of its name in the value of the event or signal: a JSON Pointer, empty for the value itself.
        at: String,
    },
}

impl Run {
    /// Returns the named group, if there is one.
    pub const fn group(&self) -> Option<&GroupName> {
        match self {
            Self::Worker(_) => None,
            Self::Group(group) | Self::Member { group, .. } => Some(group),
        }
    }
}

impl From<&str> for Run {
    fn from(worker: &str) -> Self {
        Self::Worker(worker.into())
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(worker) => worker.fmt(f),
            Self::Group(group) => write!(f, "all of {group}"),
            Self::Member { group, .. } => write!(f, "one of {group}"),
        }
    }
}

/// Event that activates a rule.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The board's creation.
    Start,
    /// The board's creation, once for each matching place of its first document, which includes the request.
    #[serde(rename = "start")]
    Each(String),
    /// An explicit request for the rule by name.
    Manual,
    /// A schedule, in cron's notation.
    Every(String),
    /// A signal by name.
    Signal(String),
    /// The named rules, and all that can still trigger them, are at rest, and no invocation of theirs was given up. In
    /// format 1: every named rule has completed an invocation.
    After(Vec<RuleName>),
    /// The named rules, and all that can still trigger them, are at rest, regardless of outcomes.
    Settled(Vec<RuleName>),
    /// Every named rule has completed an invocation.
    AfterFirst(Vec<RuleName>),
    /// No invocation of the named rules is under way any more, regardless of outcomes.
    Idle(Vec<RuleName>),
    /// A committed change at a place.
    #[serde(untagged)]
    Event {
        /// The kind of change; absent: any.
        #[serde(skip_serializing_if = "Option::is_none")]
        op: Option<EventOp>,
        /// Path pattern of the place. Since format 2 a template: `/notes/{note}` binds `note` for the triggered worker.
        path: String,
    },
}

impl Trigger {
    /// Returns the rules that it waits for.
    pub fn awaited(&self) -> &[RuleName] {
        match self {
            Self::After(names) | Self::Settled(names) | Self::AfterFirst(names) | Self::Idle(names) => names,
            _ => &[],
        }
    }

    /// Returns the member name that identifies the trigger in its object form.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Start | Self::Each(_) => "start",
            Self::Manual => "manual",
            Self::Event { .. } => "path",
            Self::Every(_) => "every",
            Self::Signal(_) => "signal",
            Self::After(_) => "after",
            Self::Settled(_) => "settled",
            Self::AfterFirst(_) => "after_first",
            Self::Idle(_) => "idle",
        }
    }

    /// Returns the path template of the places that activate it.
    pub fn template(&self) -> Option<&str> {
        match self {
            Self::Event { path, .. } | Self::Each(path) => Some(path),
            _ => None,
        }
    }

    /// Returns true for a named signal and a manual request.
    pub const fn is_signal(&self) -> bool {
        matches!(self, Self::Signal(_) | Self::Manual)
    }

    /// Returns true if an activation carries a value.
    pub const fn brings_a_value(&self) -> bool {
        matches!(self, Self::Event { .. } | Self::Each(_) | Self::Signal(_) | Self::Manual)
    }
}

code_enum! {
    /// Effect of a commit on a place.
    EventOp {
        /// A value was added.
        Add = "add",
        /// The value was replaced.
        Replace = "replace",
        /// The value was removed.
        Remove = "remove",
    }
}

impl Serialize for Run {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (group, at) = match self {
            Self::Worker(worker) => return worker.serialize(serializer),
            Self::Group(group) => (group, None),
            Self::Member { group, at } => (group, Some(at)),
        };
        let mut map = Map::from_iter([("group".to_owned(), group.as_str().into())]);
        map.extend(at.map(|at| ("at".to_owned(), at.clone().into())));
        map.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Run {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            group: GroupName,
            at: Option<String>,
        }
        match Value::deserialize(deserializer)? {
            Value::String(worker) => Ok(Self::Worker(worker.into())),
            value @ Value::Object(_) => match serde_json::from_value(value).map_err(D::Error::custom)? {
                Fields { group, at: Some(at) } => Ok(Self::Member { group, at }),
                Fields { group, at: None } => Ok(Self::Group(group)),
            },
            _ => Err(D::Error::custom("a rule runs a worker, {group} or {group, at}")),
        }
    }
}

impl<'de> Deserialize<'de> for Trigger {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            op: Option<EventOp>,
            path: Option<String>,
            start: Option<String>,
            every: Option<String>,
            signal: Option<String>,
            after: Option<Vec<RuleName>>,
            settled: Option<Vec<RuleName>>,
            after_first: Option<Vec<RuleName>>,
            idle: Option<Vec<RuleName>>,
        }
        const FORMS: &str = "a trigger is start, manual, {op, path}, {start}, {every}, {signal}, {after}, {settled}, \
                             {after_first} or {idle}";
        let value = Value::deserialize(deserializer)?;
        if let Some(word) = value.as_str() {
            return match word {
                "start" => Ok(Self::Start),
                "manual" => Ok(Self::Manual),
                other => Err(D::Error::custom(format!("{FORMS}, not {other}"))),
            };
        }
        let fields: Fields = serde_json::from_value(value).map_err(D::Error::custom)?;
        let Fields { op, path, start, every, signal, after, settled, after_first, idle } = fields;
        let with_op = path.map(|path| Self::Event { op, path });
        let others = [
            start.map(Self::Each),
            every.map(Self::Every),
            signal.map(Self::Signal),
            after.map(Self::After),
            settled.map(Self::Settled),
            after_first.map(Self::AfterFirst),
            idle.map(Self::Idle),
        ];
        let is_event = with_op.is_some();
        let mut given = with_op.into_iter().chain(others.into_iter().flatten());
        match (given.next(), given.next()) {
            (Some(trigger), None) if op.is_none() || is_event => Ok(trigger),
            _ => Err(D::Error::custom(FORMS)),
        }
    }
}
