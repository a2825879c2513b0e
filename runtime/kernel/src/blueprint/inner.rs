//! A board inside a board: which one, and what crosses the border between the two.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How a `board` worker hands its task to a board of its own, and takes over what comes of it. Nothing else crosses the
/// border.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InnerBoard {
    /// A key of [`Blueprint::boards`](super::Blueprint::boards).
    pub of: String,
    /// Members of the inner board's request, and the place here that each is taken from: a JSON Pointer. What is not there
    /// is left out.
    #[serde(default)]
    pub input: BTreeMap<String, String>,
    /// Places here that are written when the inner board is done, and the place there that each value is taken from. What
    /// is not there is left out.
    pub output: BTreeMap<String, String>,
    /// What is written here if the inner board ends otherwise; absent: the attempt fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedBoard>,
}

impl InnerBoard {
    /// Places of the outer board: of `input`, `output` and `failed`.
    pub fn places(&self) -> impl Iterator<Item = &str> {
        let failed = self.failed.iter().map(|failed| &failed.path);
        self.input.values().chain(self.output.keys()).chain(failed).map(String::as_str)
    }
}

/// What an inner board leaves behind that was not done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedBoard {
    /// Where it is added.
    pub path: String,
    /// Value that is added; `{name}` in a text stands for what the trigger binds the name to.
    pub value: Map<String, Value>,
    /// The member of it that says in a sentence what happened; absent: none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
