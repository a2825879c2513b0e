//! A text of `patchboard.toml` that may come from the environment.

use serde::Deserialize;

/// Value of a header or of a parameter of a query.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a text or { env = \"VARIABLE\" }")]
pub enum Setting {
    /// The text itself.
    Text(String),
    /// Text of an environment variable.
    Variable(Variable),
}

/// Reference to an environment variable.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// Name of the variable.
    pub env: String,
}

impl Setting {
    /// Name of the environment variable that it is read from.
    pub fn variable(&self) -> Option<&str> {
        match self {
            Self::Text(_) => None,
            Self::Variable(variable) => Some(&variable.env),
        }
    }
}

impl From<&str> for Setting {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
