//! Systems under test: PatchBoard and the two blackboards that it is compared with.

use std::fmt;

use patchboard_kernel::ablation::Mode;
use serde::Serialize;

/// A system under test.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// Contracts, validation, transactions.
    Patchboard,
    /// A blackboard of messages.
    Plain,
    /// A blackboard of JSON.
    Structured,
}

impl System {
    /// All systems.
    pub const ALL: [Self; 3] = [Self::Patchboard, Self::Plain, Self::Structured];

    /// Returns the system's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Patchboard => "patchboard",
            Self::Plain => "plain",
            Self::Structured => "structured",
        }
    }

    /// Returns the system with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|system| system.as_str() == name)
    }

    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Patchboard => Mode::default(),
            Self::Plain => Mode::Plain {},
            Self::Structured => Mode::Structured {},
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
