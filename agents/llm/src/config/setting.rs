//! Text of `patchboard.toml` that may refer to the environment.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Greatest length of a variable name in characters.
const NAME_MAX: usize = 128;

/// Length from which a name in mixed case, or with lower-case letters and digits, is taken for a key.
const KEY_MIN: usize = 20;

/// Prefixes of keys that consist of name characters.
const KEYS: [&str; 8] = ["sk_", "whsec_", "gsk_", "hf_", "ghp_", "gho_", "github_pat_", "glpat_"];

/// Value of a header or a query parameter.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a text or { env = \"VARIABLE\" }")]
pub enum Setting {
    /// Literal text.
    Text(String),
    /// Value of an environment variable.
    Variable(Variable),
}

/// Reference to an environment variable.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// Name of the variable.
    #[serde(deserialize_with = "name")]
    pub env: String,
}

pub(super) fn variable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    name(deserializer).map(Some)
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    check_name(&name).map_err(D::Error::custom)?;
    Ok(name)
}

/// Rejects a text that is no name of an environment variable. The error does not repeat it, as it may be the key
/// itself.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    let is_name = name.len() <= NAME_MAX
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.chars().next().is_some_and(|c| !c.is_ascii_digit());
    is_name.then_some(()).ok_or("this is the name of an environment variable, like OPENAI_API_KEY, and not a key")
}

/// Redacts a variable name that looks like a key, for messages.
pub fn redacted(name: &str) -> Cow<'_, str> {
    let has = |is: fn(char) -> bool| name.chars().any(is);
    let is_mixed = has(|c| c.is_ascii_lowercase()) && has(|c| c.is_ascii_digit() || c.is_ascii_uppercase());
    let is_key = KEYS.iter().any(|beginning| name.len() > beginning.len() && name.starts_with(beginning));
    match is_key || name.len() >= KEY_MIN && is_mixed {
        true => format!("{}…", name.chars().take(4).collect::<String>()).into(),
        false => name.into(),
    }
}

impl Setting {
    /// Name of the environment variable that holds the value.
    pub fn variable(&self) -> Option<&str> {
        match self {
            Self::Text(_) => None,
            Self::Variable(variable) => Some(&variable.env),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_place_of_a_name_is_rejected_or_shortened() {
        for (name, is_name, shown) in [
            ("OPENAI_API_KEY", true, "OPENAI_API_KEY"),
            ("my_very_long_lower_name", true, "my_very_long_lower_name"),
            ("gsk_Ab1Cd2Ef3Gh4Ij5Kl6Mn", true, "gsk_…"),
            ("0a1b2c3d4e5f60718293a4b5", false, "0a1b…"),
            ("whsec_abc", true, "whse…"),
            ("hf_abcdefgh", true, "hf_a…"),
            ("HF_TOKEN", true, "HF_TOKEN"),
            ("sk-proj-abc", false, "sk-proj-abc"),
            ("", false, ""),
            ("A=B", false, "A=B"),
        ] {
            assert_eq!((check_name(name).is_ok(), redacted(name).as_ref()), (is_name, shown), "{name}");
        }
    }
}
