//! Callers of what comes from outside.

use serde::{Deserialize, Serialize};

/// A caller, as the shell has authenticated it. What workers propose that the runtime itself calls has none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Principal {
    /// The holder of a token of the daemon.
    Token {
        /// The token's number.
        id: i64,
        /// The token's name, as it was then.
        name: String,
    },
    /// A user of the operating system, by a command on the data directory.
    User {
        /// The user's name.
        name: String,
    },
    /// Somebody who reached a daemon that demands no token.
    Address {
        /// The address that the request came from.
        address: String,
    },
    /// The agent whose process the daemon is in.
    Host,
}

impl Principal {
    /// Returns true if both may be one person: the same token, user or address. Whoever brought no token may be anybody who did
    /// not either.
    pub fn may_be(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Token { id, .. }, Self::Token { id: other, .. }) => id == other,
            (Self::User { name }, Self::User { name: other }) => name == other,
            (Self::Address { .. } | Self::Host, Self::Address { .. } | Self::Host) => true,
            _ => false,
        }
    }
}
