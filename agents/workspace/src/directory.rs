//! The operator's settings of a directory that agents share.

use std::fmt::Display;
use std::path::PathBuf;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::disk::{FILE_BYTES_MAX, check_exclude_patterns};

/// Directory that the workers of a board may share.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// Path, relative to the configuration's directory.
    pub dir: PathBuf,
    /// Excluded files, as lines of a `.gitignore` at its root.
    #[serde(default, deserialize_with = "exclude")]
    pub exclude: Vec<String>,
    /// Greatest size of a file in bytes.
    #[serde(default = "default_file_bytes", deserialize_with = "positive")]
    pub max_bytes: u64,
    /// True if the workspace closes for good once its `.patchboard` is removed. Otherwise it is opened again.
    #[serde(skip)]
    pub ends_with_own: bool,
}

impl Directory {
    /// Builds a directory that serves all its text files.
    pub const fn new(dir: PathBuf) -> Self {
        Self { dir, exclude: Vec::new(), max_bytes: FILE_BYTES_MAX, ends_with_own: false }
    }
}

const fn default_file_bytes() -> u64 {
    FILE_BYTES_MAX
}

/// Deserializes a limit above zero.
pub fn positive<'de, D: Deserializer<'de>, N: Deserialize<'de> + PartialEq + Default>(
    deserializer: D,
) -> Result<N, D::Error> {
    checked(deserializer, |value| *value != N::default(), "a limit lies above zero")
}

/// Deserializes a value and checks it; `message` describes the valid ones.
pub fn checked<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    is_valid: impl FnOnce(&T) -> bool,
    message: impl Display,
) -> Result<T, D::Error> {
    let value = T::deserialize(deserializer)?;
    if is_valid(&value) { Ok(value) } else { Err(D::Error::custom(message)) }
}

/// Deserializes lines of a `.gitignore`.
pub fn exclude<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let lines = Vec::<String>::deserialize(deserializer)?;
    check_exclude_patterns(&lines).map_err(D::Error::custom)?;
    Ok(lines)
}
