//! Names and numbers that identify the things of a board.

use std::borrow::Borrow;
use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self(name.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(name: String) -> Self {
                Self(name)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// Permanent identifier of one board; a UUIDv7 that the shell generates.
    BoardId
}
name! {
    /// Name of a worker in a blueprint.
    WorkerName
}
name! {
    /// Name of a group of workers in a blueprint.
    GroupName
}
name! {
    /// Name of a rule in a blueprint.
    RuleName
}
name! {
    /// Idempotency key of one attempt: `{invocation}:{attempt}`, or any key supplied by an external caller.
    IdempotencyKey
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Returns the number after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Number of commits of the state; 0 is the initial state.
    Version
}
number! {
    /// Gapless number of a record in its board's journal; 0 is `created`.
    Seq
}
number! {
    /// Number of an invocation of a board, from 1; never reused.
    InvocationId
}

impl IdempotencyKey {
    /// Returns the key of an attempt of an invocation.
    pub fn for_attempt(invocation: InvocationId, attempt: u32) -> Self {
        Self(format!("{invocation}:{attempt}"))
    }
}

/// Milliseconds since 1970-01-01T00:00:00Z. Always an argument, never read from a clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Returns the time `ms` milliseconds later.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add_unsigned(ms))
    }

    /// Returns the milliseconds from `earlier` to this time; 0 if `earlier` is later.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        let ms = self.0.saturating_sub(earlier.0);
        if ms > 0 { ms.unsigned_abs() } else { 0 }
    }
}
