//! What a department says of itself: its data, the actions it knows, and what it is tested by (`docs/departments.md`).
//!
//! Plain data and the judgement of it: the loader of blueprints reads a [`Manifest`], and the roles of a department get of it
//! what they work by, a [`Department`]. A department's rows are kept elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::rejection::coded;

mod expansion;
mod problems;
pub mod sentence;

pub use expansion::{Expansion, NO_ACTION, NO_DEPARTMENT, PENDING, WAITS, expand};
pub(crate) use expansion::{ROLE_BYTES_MAX, role};
pub use problems::{COLUMNS, Problem, SLOT_OF_NEW};

/// The most fields of a row.
pub const FIELDS_MAX: usize = 32;
/// The most actions of a department.
pub const ACTIONS_MAX: usize = 32;
/// The most values of an `enum`.
pub const ENUM_MAX: usize = 64;
/// Characters of a text in a row, where its field has no `maxLength`, and the most that one may say.
pub const TEXT_MAX: u64 = 1000;
/// Characters of a name of a department, a field, an action or an entity.
pub const NAME_MAX: usize = 40;

/// `NAME/department.yaml`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of this form: 1.
    pub department: u32,
    /// The name of its folder.
    pub name: String,
    /// What it does, in one line for whoever chooses among departments.
    pub description: String,
    /// What it is given beside the user's words: names of what the blueprint promises, each with a JSON Schema.
    #[serde(default)]
    pub needs: BTreeMap<String, Value>,
    /// Those of its needs beside `text` without which it cannot work; what is promised may be absent at times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// How what it is given is called where it is used.
    #[serde(default, skip_serializing_if = "Dispatch::is_default")]
    pub dispatch: Dispatch,
    /// What the `data` of its results may have: `array` are the rows, `object` is the first row, `integer` is how many.
    #[serde(default)]
    pub promises: BTreeMap<String, Value>,
    /// What it keeps.
    pub storage: Storage,
    /// What it can do with that.
    pub actions: BTreeMap<String, Action>,
    /// When something is found.
    #[serde(default, skip_serializing_if = "Thresholds::is_default")]
    pub resolve: Thresholds,
    /// What users say, and what is meant.
    #[serde(default)]
    pub examples: Vec<Example>,
    /// What it is tested by.
    #[serde(default)]
    pub tests: Vec<Test>,
}

/// How a department is called: which promise of the blueprint each need is met by.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dispatch {
    /// Promises by the names of needs; one that is not here is met by the promise of its own name.
    pub input: BTreeMap<String, String>,
}

impl Dispatch {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What the roles of a department work by: `with.department`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Department {
    /// Its name.
    pub name: String,
    /// What it keeps.
    pub storage: Storage,
    /// What it can do with that.
    pub actions: BTreeMap<String, Action>,
    /// When something is found.
    #[serde(default, skip_serializing_if = "Thresholds::is_default")]
    pub resolve: Thresholds,
    /// What the `data` of its results has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub promises: BTreeMap<String, Promised>,
}

/// What a department keeps.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// What a row is called, in words.
    pub entity: String,
    /// What a row has.
    pub fields: BTreeMap<String, Field>,
    /// No two rows are the same in all of these; none: they may be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identity: Vec<String>,
}

/// What a row has under one name; the keywords are those of JSON Schema.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// The type of its value.
    #[serde(rename = "type")]
    pub kind: FieldType,
    /// What it is, in words for who fills it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its only values.
    #[serde(default, rename = "enum", skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Value>,
    /// A regular expression that is found in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Its most characters; [`TEXT_MAX`] if absent.
    #[serde(default, rename = "maxLength", skip_serializing_if = "Option::is_none")]
    pub max_length: Option<u64>,
    /// How it is asked for, like `which list`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
}

coded! {
    /// The type of a field.
    FieldType {
        /// A text.
        String = "string",
        /// A whole number.
        Integer = "integer",
        /// A number.
        Number = "number",
        /// Yes or no.
        Boolean = "boolean",
    }
}

/// What a department can do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// What it does to rows.
    pub does: Does,
    /// What that means, in words.
    #[serde(default)]
    pub description: String,
    /// The fields by which a row is found; for `select`, by which all rows are found that are the same in these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finds: Vec<String>,
    /// The fields that are written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
    /// The sentence that says it was done ([`sentence`]).
    pub confirm: String,
}

coded! {
    /// What an action does to rows.
    Does {
        /// Makes one.
        Insert = "insert",
        /// Tells what there is.
        Select = "select",
        /// Changes one.
        Update = "update",
        /// Ends one. Its history stays.
        Delete = "delete",
    }
}

/// When something is found.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Thresholds {
    /// The likeness, from 0 to 1, below which nothing is found.
    pub likeness: f64,
    /// By how much the best must be better than the next; otherwise the user is asked.
    pub gap: f64,
    /// For how many seconds a question waits for its answer.
    pub ttl: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { likeness: 0.75, gap: 0.1, ttl: 300 }
    }
}

impl Thresholds {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

coded! {
    /// What a promised member of a result's `data` holds.
    Promised {
        /// All rows.
        Rows = "rows",
        /// The first row.
        Row = "row",
        /// How many rows there are.
        Count = "count",
    }
}

/// What a user says, and what is meant.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// The user's words.
    pub text: String,
    /// What they mean.
    pub classified: Classified,
}

/// What is meant, in the vocabulary of a department.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Classified {
    /// One of its actions.
    pub action: String,
    /// What is known of the fields that the action uses.
    #[serde(default)]
    pub slots: Map<String, Value>,
    /// The same in words of the department.
    #[serde(default)]
    pub normalised: String,
}

/// A case: some rows, something that is meant, and what comes of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// What the case is about; absent: nothing is said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What is there before.
    #[serde(default)]
    pub rows: Vec<Map<String, Value>>,
    /// What is meant.
    pub classified: Classified,
    /// What the user answers to each question that comes of it, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Reply>,
    /// Members of the last result, and their values.
    #[serde(default)]
    pub expect: Map<String, Value>,
    /// What is there afterwards, in any order; absent: that is not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Vec<Map<String, Value>>>,
}

/// What a user says to a question.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Reply {
    /// Words that are clear by themselves.
    Words(String),
    /// What other words mean.
    Classified(Classified),
}

impl TryFrom<Value> for Reply {
    type Error = serde_json::Error;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value {
            Value::String(words) => Ok(Self::Words(words)),
            other => serde_json::from_value(other).map(Self::Classified),
        }
    }
}

impl From<Reply> for Value {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Words(words) => words.into(),
            Reply::Classified(classified) => {
                serde_json::json!({"action": classified.action, "slots": classified.slots, "normalised": classified.normalised})
            }
        }
    }
}

impl Manifest {
    /// The promise that a need is met by.
    pub fn promise<'a>(&'a self, need: &'a str) -> &'a str {
        self.dispatch.input.get(need).map_or(need, String::as_str)
    }

    /// What its roles work by.
    pub fn department(&self) -> Department {
        let promised = |schema: &Value| match schema.get("type").and_then(Value::as_str) {
            Some("object") => Promised::Row,
            Some("integer") => Promised::Count,
            Some(_) | None => Promised::Rows,
        };
        Department {
            name: self.name.clone(),
            storage: self.storage.clone(),
            actions: self.actions.clone(),
            resolve: self.resolve,
            promises: self.promises.iter().map(|(name, schema)| (name.clone(), promised(schema))).collect(),
        }
    }
}

impl Field {
    /// The most characters of its text.
    pub fn chars_max(&self) -> u64 {
        self.max_length.unwrap_or(TEXT_MAX).min(TEXT_MAX)
    }

    /// How it is asked for.
    pub fn question(&self, name: &str) -> String {
        self.ask.clone().unwrap_or_else(|| format!("which {}", name.replace('_', " ")))
    }
}

impl Action {
    /// The slots that it uses, and the field of each: those that find, in their order, then those that set.
    pub fn slots(&self) -> Vec<(String, &str)> {
        let finds = self.finds.iter().map(|field| (field.clone(), field.as_str()));
        finds.chain(self.sets.iter().map(|field| (self.slot_set(field), field.as_str()))).collect()
    }

    /// The slot that says what a field is set to: one that also finds the row has another name for it.
    pub fn slot_set(&self, field: &str) -> String {
        let also_finds = self.finds.iter().any(|found| found == field);
        if also_finds { format!("{SLOT_OF_NEW}{field}") } else { field.to_owned() }
    }
}

impl Department {
    /// All slots of all actions.
    pub fn slots(&self) -> BTreeSet<String> {
        self.actions.values().flat_map(|action| action.slots().into_iter().map(|(slot, _)| slot)).collect()
    }
}
