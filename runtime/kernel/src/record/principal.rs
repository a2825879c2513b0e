//! Callers of outside requests.

use serde::{Deserialize, Serialize};

use super::{SINCE_PRINCIPALS, SINCE_TOKEN_CREATORS};
use crate::id::WorkerName;

/// A caller, as the shell has authenticated it. Proposals of workers that the runtime itself calls have none.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Principal {
    /// The holder of an API token of the daemon.
    Token {
        /// The token's number.
        id: i64,
        /// The token's name at that time.
        name: String,
        /// The person who holds the token, if it is a person's (since journal format 21).
        person: Option<WorkerName>,
        /// The caller that made the token (since journal format 21); `made_by` is absent in this nested value.
        made_by: Option<Box<Self>>,
    },
    /// A user of the operating system, through a command on the data directory.
    User {
        /// The user's name.
        name: String,
    },
    /// A client of a daemon that requires no token.
    Address {
        /// Address from which the request was sent.
        address: String,
    },
    /// The agent that hosts the daemon in its process.
    Host,
}

impl Principal {
    /// Returns true if both may be one person: the same token, person or user. A caller known only by its address may
    /// be any other caller; in earlier formats, only another `Address` or `Host`.
    pub(crate) fn may_be_same_caller(&self, other: &Self, format: u32) -> bool {
        match (self, other) {
            (Self::Token { id, person, .. }, Self::Token { id: other, person: other_person, .. }) => {
                id == other || person.is_some() && person == other_person
            }
            (Self::User { name }, Self::User { name: other }) => name == other,
            (Self::Address { .. } | Self::Host, Self::Address { .. } | Self::Host) => true,
            (Self::Address { .. }, _) | (_, Self::Address { .. }) => format >= SINCE_TOKEN_CREATORS,
            _ => false,
        }
    }

    /// Returns the caller as records of a format name it.
    pub(crate) fn in_format(self, format: u32) -> Option<Self> {
        match self {
            _ if format < SINCE_PRINCIPALS => None,
            Self::Token { id, name, .. } if format < SINCE_TOKEN_CREATORS => {
                Some(Self::Token { id, name, person: None, made_by: None })
            }
            caller => Some(caller),
        }
    }

    /// Returns true for the token of the person with this name.
    pub(crate) fn is_token_of(&self, name: &WorkerName) -> bool {
        matches!(self, Self::Token { person: Some(person), .. } if person == name)
    }
}

#[cfg(test)]
mod tests;
