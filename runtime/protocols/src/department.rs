//! Manifest of a department: its data, its actions and its tests (`docs/departments.md`).
//!
//! Plain data and its validation: the loader of blueprints reads a [`Manifest`], and the roles of a department receive
//! a [`Department`] derived from it. Rows are stored elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use patchboard_kernel::rejection::code_enum;
use patchboard_lint::extension::{Expanded, Extension};
use patchboard_lint::source::{FileLoader, Source};
use patchboard_lint::{FindingCode, Severity};

mod declaration;
mod expansion;
mod include;
pub mod template;
mod validation;

pub use declaration::Departments;
pub use expansion::{Expansion, NO_ACTION, NO_DEPARTMENT, OPEN_QUESTION, PENDING, expand};
pub(crate) use expansion::{ROLE_BYTES_MAX, role};
pub use include::{DEPARTMENT_SCHEMA, DEPARTMENTS_MAX};
pub use validation::{COLUMNS, ManifestError, NEW_VALUE_PREFIX};

/// Expands `departments` of blueprints.
pub struct DepartmentFolders;

impl Extension for DepartmentFolders {
    fn expand(&self, source: &mut Source, files: &mut dyn FileLoader, file: Option<&String>) -> Expanded {
        include::resolve(source, files, file)
    }

    fn codes(&self) -> &'static [FindingCode] {
        &[
            ("unmet_need", Severity::Error, "A department needs what the blueprint does not promise."),
            ("bad_department", Severity::Error, "What a department's manifest says does not fit together."),
        ]
    }
}

/// Maximum fields of a row.
pub const FIELDS_MAX: usize = 32;
/// Maximum actions of a department.
pub const ACTIONS_MAX: usize = 32;
/// Maximum values of an `enum`.
pub const ENUM_MAX: usize = 64;
/// Maximum characters of a text in a row, also the default of `maxLength`.
pub const TEXT_MAX: u64 = 1000;
/// Maximum characters of a name of a department, a field, an action or an entity.
pub const NAME_MAX: usize = 40;

/// `NAME/department.yaml`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the manifest format: 1.
    pub department: u32,
    /// Name of its folder.
    pub name: String,
    /// Purpose in one line, for choosing among departments.
    pub description: String,
    /// Inputs besides the user's words: names of the blueprint's promises, each with a JSON Schema.
    #[serde(default)]
    pub needs: BTreeMap<String, Value>,
    /// Inputs besides `text` that it cannot work without; a promised value may be absent at times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// Names of the promises that supply its inputs.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub dispatch: InputMapping,
    /// Members of its results' `data`: an `array` holds the rows, an `object` the first row, an `integer` the number of
    /// rows.
    #[serde(default)]
    pub promises: BTreeMap<String, Value>,
    /// Schema of its rows.
    pub storage: Storage,
    /// Actions on its rows.
    pub actions: BTreeMap<String, Action>,
    /// Thresholds for finding a row.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub resolve: Thresholds,
    /// Users' utterances with their classification.
    #[serde(default)]
    pub examples: Vec<Example>,
    /// Test cases.
    #[serde(default)]
    pub tests: Vec<Test>,
}

/// Mapping from inputs of a department to promises of the blueprint.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InputMapping {
    /// Promises by the names of inputs; an absent input uses the promise of its own name.
    pub input: BTreeMap<String, String>,
}

/// Configuration of a department's roles: `with.department`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Department {
    /// Name of the department.
    pub name: String,
    /// Schema of its rows.
    pub storage: Storage,
    /// Actions on its rows.
    pub actions: BTreeMap<String, Action>,
    /// Thresholds for finding a row.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub resolve: Thresholds,
    /// Members of its results' `data`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub promises: BTreeMap<String, PromiseKind>,
}

/// Schema of a department's rows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// Word for a row.
    pub entity: String,
    /// Fields of a row.
    pub fields: BTreeMap<String, Field>,
    /// Fields that identify a row; no two rows have equal values in all of them. Empty for rows without identity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identity: Vec<String>,
}

/// Field of a row; the keywords are those of JSON Schema.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// Type of its value.
    #[serde(rename = "type")]
    pub kind: FieldType,
    /// Meaning of the value, for models and users.
    pub description: Option<String>,
    /// Allowed values; empty for any.
    #[serde(default, rename = "enum", skip_serializing_if = "Vec::is_empty")]
    pub allowed_values: Vec<Value>,
    /// Regular expression that must match somewhere in the text.
    pub pattern: Option<String>,
    /// Maximum characters; [`TEXT_MAX`] if absent.
    #[serde(rename = "maxLength")]
    pub max_length: Option<u64>,
    /// Question for the value, like `which list`.
    pub ask: Option<String>,
}

code_enum! {
    /// Type of a field.
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

/// Action of a department.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// Effect on rows.
    pub does: RowOperation,
    /// Description of the action.
    #[serde(default)]
    pub description: String,
    /// Fields that find a row; for `select`, all rows with equal values in these fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finds: Vec<String>,
    /// Fields to write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
    /// Confirmation sentence ([`template`]).
    pub confirm: String,
}

code_enum! {
    /// Effect of an action on rows.
    RowOperation {
        /// Creates a row.
        Insert = "insert",
        /// Lists rows.
        Select = "select",
        /// Changes a row.
        Update = "update",
        /// Deletes a row. Its history is kept.
        Delete = "delete",
    }
}

/// Thresholds for finding a row.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Thresholds {
    /// Minimum similarity of a match, from 0 to 1.
    pub likeness: f64,
    /// Minimum lead of the best match over the next; below it the user is asked.
    pub gap: f64,
    /// Lifetime of a question, in seconds.
    pub ttl: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { likeness: 0.75, gap: 0.1, ttl: 300 }
    }
}

code_enum! {
    /// Contents of a promised member of a result's `data`.
    PromiseKind {
        /// All rows.
        Rows = "rows",
        /// The first row.
        Row = "row",
        /// Number of rows.
        Count = "count",
    }
}

/// Utterance of a user with its classification.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// Words of the user.
    pub text: String,
    /// Classification of the words.
    pub classified: Classification,
}

/// Classified request, in the vocabulary of a department.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Classification {
    /// Name of one of its actions.
    pub action: String,
    /// Known values of the slots that the action uses.
    #[serde(default)]
    pub slots: Map<String, Value>,
    /// Request in the words of the department.
    #[serde(default)]
    pub normalised: String,
}

/// Test case: rows, a classified request, and the expected result.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// Description of the case; may be absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Rows before the request.
    #[serde(default)]
    pub rows: Vec<Map<String, Value>>,
    /// Classified request.
    pub classified: Classification,
    /// User's answers to the resulting questions, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<TestAnswer>,
    /// Expected members of the last result.
    #[serde(default)]
    pub expect: Map<String, Value>,
    /// Expected rows afterwards, in any order; unchecked if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Vec<Map<String, Value>>>,
}

/// User's answer to a question.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TestAnswer {
    /// Words that need no classification.
    Words(String),
    /// Classification of other words.
    Classified(Classification),
}

impl Manifest {
    /// Returns the promise that supplies an input.
    pub fn promise<'a>(&'a self, need: &'a str) -> &'a str {
        self.dispatch.input.get(need).map_or(need, String::as_str)
    }

    /// Derives the configuration of its roles.
    pub fn department(&self) -> Department {
        let promised = |schema: &Value| match schema.get("type").and_then(Value::as_str) {
            Some("object") => PromiseKind::Row,
            Some("integer") => PromiseKind::Count,
            Some(_) | None => PromiseKind::Rows,
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
    /// Returns the maximum characters of its text.
    pub fn chars_max(&self) -> u64 {
        self.max_length.unwrap_or(TEXT_MAX).min(TEXT_MAX)
    }

    /// Returns the question for its value.
    pub fn question(&self, name: &str) -> String {
        self.ask.clone().unwrap_or_else(|| format!("which {}", name.replace('_', " ")))
    }
}

impl Action {
    /// Returns its slots with their fields: those that find a row, in order, then those that are set.
    pub fn slots(&self) -> Vec<(String, &str)> {
        let finds = self.finds.iter().map(|field| (field.clone(), field.as_str()));
        finds.chain(self.sets.iter().map(|field| (self.slot_set(field), field.as_str()))).collect()
    }

    /// Returns the slot with a field's new value; it is prefixed if the field also finds the row.
    pub fn slot_set(&self, field: &str) -> String {
        let also_finds = self.finds.iter().any(|found| found == field);
        if also_finds { format!("{NEW_VALUE_PREFIX}{field}") } else { field.to_owned() }
    }
}

impl Department {
    /// Returns all slots of all actions.
    pub fn slots(&self) -> BTreeSet<String> {
        self.actions.values().flat_map(|action| action.slots().into_iter().map(|(slot, _)| slot)).collect()
    }
}
