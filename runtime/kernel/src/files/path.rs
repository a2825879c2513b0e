//! File names of a workspace: relative paths below one directory.

use std::borrow::Borrow;
use std::fmt;

use jsonptr::PointerBuf;
use serde::{Deserialize, Deserializer, Serialize};

/// Maximum bytes of a name.
pub const PATH_BYTES_MAX: usize = 1024;

/// The name of a file in a workspace: relative to its directory, segments joined by `/`.
///
/// Each name has exactly one spelling: no empty segments, no `.` and no `..`, no backslashes and no control characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(transparent)]
pub struct FilePath(String);

/// Reason that a text is not a file name of a workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PathError {
    /// The name is empty.
    #[error("a file has a name, relative to the directory of the workspace, like src/main.py")]
    Empty,
    /// More than [`PATH_BYTES_MAX`] bytes.
    #[error("a name has at most {PATH_BYTES_MAX} bytes")]
    TooLong,
    /// The name is absolute.
    #[error("names are relative to the directory of the workspace, like src/main.py")]
    Absolute,
    /// The name has `.`, `..` or empty segments.
    #[error("a name has no `.` and no `..` in it, and no empty parts")]
    Dots,
    /// The name has characters with a special meaning on other systems.
    #[error("a name has no backslashes, no colons before its first `/` and no control characters")]
    Characters,
}

impl FilePath {
    /// Parses a name. The error is the first rule that the name violates.
    pub fn parse(name: &str) -> Result<Self, PathError> {
        if name.is_empty() {
            return Err(PathError::Empty);
        }
        if name.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        if name.starts_with('/') {
            return Err(PathError::Absolute);
        }
        let first = name.split('/').next().unwrap_or(name);
        if name.contains(|c: char| c == '\\' || c.is_control()) || first.contains(':') {
            return Err(PathError::Characters);
        }
        if name.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
            return Err(PathError::Dots);
        }
        Ok(Self(name.to_owned()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns its segments, from the workspace directory down.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// Returns the last segment.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Returns the part after the last dot of the last segment; `None` for `Makefile` and `.gitignore`.
    pub fn extension(&self) -> Option<&str> {
        let (stem, extension) = self.name().rsplit_once('.')?;
        (!stem.is_empty()).then_some(extension)
    }

    /// Returns the location of its entry in the state.
    pub fn place(&self) -> PointerBuf {
        PointerBuf::from_tokens([super::FILES, self.as_str()])
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for FilePath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::parse(&name).map_err(|error| serde::de::Error::custom(format!("{name:?}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_written_in_one_way_and_leads_nowhere_else() {
        let cases = [
            ("a.py", None),
            ("src/pkg/__init__.py", None),
            ("a b/ü.txt", None),
            ("...", None),
            ("", Some(PathError::Empty)),
            ("/etc/passwd", Some(PathError::Absolute)),
            ("../x", Some(PathError::Dots)),
            ("a/../b", Some(PathError::Dots)),
            ("./a", Some(PathError::Dots)),
            ("a//b", Some(PathError::Dots)),
            ("a/", Some(PathError::Dots)),
            ("a\\b", Some(PathError::Characters)),
            ("C:a", Some(PathError::Characters)),
            ("a\n", Some(PathError::Characters)),
            ("a\0b", Some(PathError::Characters)),
        ];
        for (name, expected) in cases {
            assert_eq!(FilePath::parse(name).err(), expected, "{name:?}");
        }
        assert_eq!(FilePath::parse(&"x".repeat(PATH_BYTES_MAX + 1)).err(), Some(PathError::TooLong));
    }

    #[test]
    fn a_file_has_one_place_in_the_state() {
        let path = FilePath::parse("src/a~b.py").expect("a name");
        assert_eq!(path.place().as_str(), "/files/src~1a~0b.py");
        assert_eq!((path.name(), path.extension()), ("a~b.py", Some("py")));
        assert_eq!(FilePath::parse(".gitignore").expect("a name").extension(), None);
    }
}
