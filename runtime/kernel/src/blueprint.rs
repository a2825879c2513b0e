//! Contract of a board, as data: workers, read and write grants, triggers, invariants.
//!
//! Defines the shape and the defaults (SPEC section 12). `patchboard-lint` reads YAML or JSON with source
//! positions, and has the checks across fields. The journal stores this form: fragments are resolved and defaults are
//! explicit.

mod group;
mod limits;
mod model;
mod nested_board;
mod read;
mod result;
mod rule;
mod view;
mod worker;
mod workspace;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::id::WorkerName;

pub use group::{GROUP_DEFINITION, definition_name};
pub use limits::*;
pub use model::ModelChoice;
pub use nested_board::*;
pub use read::ReadGrant;
pub use rule::*;
pub use view::{CONTEXT_DEFAULT, Unit, ViewSpec};
pub use worker::*;
pub use workspace::{FileAccess, Granularity, Isolation, Presentation, WorkspaceSpec};

/// Latest blueprint format; 1 is read as well.
pub const FORMAT: u32 = 2;

/// Accepted contract of a board; immutable once the board exists.
// The derived functions are called by the implementations below. A direct call of `Blueprint::deserialize` omits the
// definitions of groups, so no plan can be made of its result.
#[serde_with_macros::skip_serializing_none]
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
    /// JSON Schema of the user's input; the input is stored at `/request`.
    #[serde(default = "any_schema")]
    pub request: Value,
    /// JSON Schemas of signal payloads, by name; a signal with a payload that does not match is rejected.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub signals: BTreeMap<String, Value>,
    /// Backlog limits by signal name; a signal that would exceed one is rejected.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backlog: BTreeMap<String, Backlog>,
    /// Schema and initial value of the document.
    pub state: StateSpec,
    /// Workers by name.
    pub workers: BTreeMap<WorkerName, Worker>,
    /// Rules that trigger workers; the order breaks ties.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// Conditions that must hold in every committed state, beyond the schema.
    #[serde(default)]
    pub invariants: Vec<Invariant>,
    /// Directory of files shared by the workers; absent if there are no files.
    pub workspace: Option<WorkspaceSpec>,
    /// Condition under which the task is finished.
    pub done: Option<Done>,
    /// JSON Pointer of the board's result; if absent, the places that `done` reads.
    pub result: Option<String>,
    /// Circuit breaker policy.
    #[serde(default)]
    pub circuit: Circuit,
    /// Limits of the whole board.
    #[serde(default)]
    pub limits: BoardLimits,
    /// Number of workers that may write a field.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub writers: Writers,
    /// Number of invocations that may run at once.
    #[serde(default = "default_concurrency")]
    pub concurrency: u32,
    /// Model names of the operator's configuration; `default` serves workers that name none.
    #[serde(default)]
    pub models: BTreeMap<String, ModelChoice>,
    /// Random seed for model selection, for workers with several models.
    #[serde(default)]
    pub seed: u64,
    /// Blueprints of the boards that `board` workers create inside of boards of this one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub boards: BTreeMap<String, Self>,
    /// Departments to include; absent once resolved.
    pub departments: Option<Value>,
    /// Workflow of nodes that the workers execute; absent once resolved.
    pub workflow: Option<Value>,
    /// Fragments to include; empty once resolved.
    #[serde(default, rename = "use")]
    pub fragments: Vec<String>,
}

impl Blueprint {
    /// Returns true if `after` waits for the first completion of each rule only.
    pub const fn joins_on_first(&self) -> bool {
        self.blueprint < 2
    }

    /// Returns the blueprint with scripts in place of the workers that have one, also in inner boards, and their
    /// number.
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

/// Makes defaults and the definitions of groups explicit, so that every reader of a blueprint, the journal included,
/// finds them.
impl<'de> Deserialize<'de> for Blueprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut blueprint = Self::deserialize(deserializer)?;
        blueprint.define_groups();
        Ok(blueprint)
    }
}

/// Backlog limit of a signal: counts existing elements, and those that triggered workers still have to add.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backlog {
    /// JSON Pointer of the collection.
    pub at: String,
    /// Maximum number of elements.
    pub max: u32,
}

/// Schema of the document (JSON Schema 2020-12 by default) and its initial state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateSpec {
    /// Schema of a valid document, with or without `/request`: a schema that omits it accepts it.
    pub schema: Value,
    /// Initial document, without `/request`.
    #[serde(default = "empty_object")]
    pub initial: Value,
    /// True if `format` is checked; otherwise it is only an annotation, as in 2020-12.
    #[serde(default)]
    pub assert_formats: bool,
}

/// Number of workers that may write a field, other than by appending to an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Writers {
    /// One: a second writer is an error of the blueprint.
    One,
    /// All workers with grants.
    #[default]
    Many,
}

/// Condition that must hold in every committed state.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invariant {
    /// Name, unique in the blueprint; rejections contain it.
    pub name: String,
    /// Path pattern of the instances, each evaluated as `self`; if absent, evaluated once, without `self`.
    #[serde(rename = "for")]
    pub each: Option<String>,
    /// CEL expression that must be true.
    pub expr: String,
    /// Advice to a worker with a patch that violates it.
    pub message: Option<String>,
}

/// Condition under which the task is finished.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Done {
    /// CEL condition over `state` and `request`.
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
