//! Departments of a blueprint: where their folders are, and what they meet with.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::GroupName;

/// Folders whose manifests become boards inside ([`crate::department`]). A blueprint that a board is made of has none any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Departments {
    /// The directory that they are in, relative to the blueprint's own.
    pub from: String,
    /// The places that members of their requests are taken from, as JSON Pointers.
    pub promises: BTreeMap<String, String>,
    /// Where each puts its result, as a JSON Pointer.
    pub into: String,
    /// The group that all of them are in.
    pub group: GroupName,
}
