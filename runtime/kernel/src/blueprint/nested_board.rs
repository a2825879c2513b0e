//! Nested boards: the blueprint to run, and the values mapped in and out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Input and output mapping of a `board` worker's nested board. No other values cross between the two boards.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NestedBoardSpec {
    /// A key of [`Blueprint::boards`](super::Blueprint::boards).
    pub of: String,
    /// Members of the nested board's request, each with its source on this board as a JSON Pointer. Absent sources are
    /// omitted.
    #[serde(default)]
    pub input: BTreeMap<String, String>,
    /// Places on this board written when the nested board is done, each with its source on the nested board. Absent
    /// sources are omitted.
    pub output: BTreeMap<String, String>,
    /// Value to write if the nested board ends otherwise; absent: the attempt fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailureOutput>,
}

impl NestedBoardSpec {
    /// Returns the places of the outer board named by `input`, `output` and `failed`.
    pub fn places(&self) -> impl Iterator<Item = &str> {
        let failed = self.failed.iter().map(|failed| &failed.path);
        self.input.values().chain(self.output.keys()).chain(failed).map(String::as_str)
    }
}

/// Value left on the outer board by a nested board that ended without being done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureOutput {
    /// Path at which the value is added.
    pub path: String,
    /// Value to add; `{name}` in a text is replaced by the trigger's binding of the name.
    pub value: Map<String, Value>,
    /// Member of the value that receives a one-sentence explanation; absent: no member does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
