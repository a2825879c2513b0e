//! The contract of a board, as data: who works, what they may read and write, what wakes them, what must hold.
//!
//! Owns the shape and the defaults (SPEC section 12). Reading from YAML or JSON with source positions is in
//! [`crate::source`], the checks across fields in [`crate::lint`]. What is written here is what the journal stores:
//! a blueprint whose fragments are resolved and whose defaults are spelled out.

mod departments;
mod format;
mod group;
mod inner;
mod limits;
mod model;
mod read;
mod result;
mod rule;
mod view;
mod worker;
mod workflow;
mod workspace;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::id::WorkerName;

pub use departments::Departments;
pub use format::{Format, Occasion};
pub use group::{GROUP_DEFINITION, definition_name};
pub use inner::*;
pub use limits::*;
pub use model::ModelChoice;
pub use read::ReadGrant;
pub use rule::*;
pub use view::{CONTEXT_DEFAULT, Unit, ViewSpec};
pub use worker::*;
pub use workflow::WorkflowSpec;
pub use workspace::{FileAccess, Granularity, Isolation, Presentation, WorkspaceSpec};

/// The latest blueprint format; 1 is read as well.
pub const FORMAT: u32 = 2;

/// The accepted contract of a board; immutable once the board exists.
// What is derived here is called by the implementations below. Who calls `Blueprint::deserialize` by that name gets it, without
// the definitions of groups, and a plan is not made of that.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Blueprint {
    /// Format number, 1 to [`FORMAT`].
    pub blueprint: u32,
    /// Short name; letters, digits and dashes.
    pub name: String,
    /// One sentence for people.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of what the user must supply; it lands at `/request`.
    #[serde(default = "any_schema")]
    pub request: Value,
    /// JSON Schemas of the values that signals carry, by name; a signal whose value does not fit is refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub signals: BTreeMap<String, Value>,
    /// How much of what signals bring may wait, by their names; one for which there is no room is refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backlog: BTreeMap<String, Backlog>,
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
    /// JSON Pointer of what the board is made for; absent: what `done` looks at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The circuit policy.
    #[serde(default)]
    pub circuit: Circuit,
    /// Limits of the whole board.
    #[serde(default)]
    pub limits: BoardLimits,
    /// How many workers may write a field.
    #[serde(default, skip_serializing_if = "Writers::is_many")]
    pub writers: Writers,
    /// How many invocations may run at once.
    #[serde(default = "default_concurrency")]
    pub concurrency: u32,
    /// Model names of the operator's configuration; `default` serves workers that name none.
    #[serde(default)]
    pub models: BTreeMap<String, ModelChoice>,
    /// What the models of workers are drawn by, of those that have several to be drawn from.
    #[serde(default)]
    pub seed: u64,
    /// Blueprints of the boards that `board` workers make inside of boards of this one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub boards: BTreeMap<String, Self>,
    /// Departments to include; absent once resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub departments: Option<Departments>,
    /// The workflow whose nodes its workers are to do; absent once resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowSpec>,
    /// Fragments to include; empty once resolved.
    #[serde(default, rename = "use")]
    pub fragments: Vec<String>,
}

impl Blueprint {
    /// Returns true if `after` waits for the first completion of each rule only.
    pub const fn joins_on_first(&self) -> bool {
        self.blueprint < 2
    }

    /// Returns it with each worker that has a script played by that, also in boards inside, and how many have one.
    #[must_use]
    pub fn scripted(mut self) -> (Self, usize) {
        let mut count = 0;
        for worker in self.workers.values_mut().filter(|worker| !worker.script.is_empty()) {
            worker.agent = AgentKind::Script;
            count += 1;
        }
        let boards = std::mem::take(&mut self.boards).into_iter().map(|(name, board)| {
            let (board, inside) = board.scripted();
            count += inside;
            (name, board)
        });
        self.boards = boards.collect();
        (self, count)
    }
}

impl Serialize for Blueprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

/// Spells out what may be left away: defaults, and the definitions of groups. So everything that looks at a blueprint, the
/// journal included, finds them.
impl<'de> Deserialize<'de> for Blueprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut blueprint = Self::deserialize(deserializer)?;
        blueprint.define_groups();
        Ok(blueprint)
    }
}

/// How much of what a signal brings may wait: elements that are there, and those that whoever it has woken is still to add.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backlog {
    /// The collection, as a JSON Pointer.
    pub at: String,
    /// How many.
    pub max: u32,
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

/// How many workers may write a field, other than by appending to an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Writers {
    /// One: a second writer is an error of the blueprint.
    One,
    /// As many as have grants.
    #[default]
    Many,
}

impl Writers {
    const fn is_many(&self) -> bool {
        matches!(self, Self::Many)
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
    /// Advice to a worker whose patch breaks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// When the task is finished.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Done {
    /// A CEL condition over `state` and `request`.
    pub when: String,
}

fn any_schema() -> Value {
    Value::Bool(true)
}

fn empty_object() -> Value {
    Value::Object(Map::new())
}

const fn default_concurrency() -> u32 {
    4
}
