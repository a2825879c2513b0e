//! Findings, and their positions in a source.

use crate::codes::{CODES, Severity, severity};

/// A position in a source file; lines and columns from 1, columns in Unicode scalar values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Diagnostic {
    /// Error: the blueprint is rejected. Warning: it runs.
    pub severity: Severity,
    /// Stable code, one of [`CODES`] or of an extension.
    pub code: &'static str,
    /// JSON Pointer into the blueprint, its fragments resolved; into the fragment while they are not.
    pub pointer: String,
    /// Position in the source, if there is one.
    pub position: Option<Position>,
    /// The fragment that `position` is in; `None` for the blueprint's own file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The problem.
    pub message: String,
    /// The fix.
    pub help: String,
}

impl Diagnostic {
    /// Creates a finding without a position. The code determines the severity; a code of an extension is an error.
    pub fn new(code: &'static str, pointer: &str, message: impl Into<String>, help: impl Into<String>) -> Self {
        let (severity, pointer) = (severity(code, CODES), pointer.to_owned());
        let (message, help) = (message.into(), help.into());
        Self { severity, code, pointer, position: None, file: None, message, help }
    }

    /// Prefixes the finding's pointer.
    #[must_use]
    pub fn below(mut self, pointer: &str) -> Self {
        self.pointer.insert_str(0, pointer);
        self
    }

    /// Sets the fragment of the finding.
    #[must_use]
    pub fn in_file(mut self, name: &str) -> Self {
        self.file = Some(name.to_owned());
        self
    }

    /// Sets the file of the finding, unless it has one.
    #[must_use]
    pub fn or_in_file(mut self, file: Option<&String>) -> Self {
        self.file = self.file.or_else(|| file.cloned());
        self
    }
}
