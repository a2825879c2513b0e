//! Departments of a blueprint: their directory, and the parts of the board they connect to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use patchboard_kernel::id::GroupName;

/// Department folders; each manifest becomes a nested board ([`super`]). Absent from the blueprint of a
/// created board.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Departments {
    /// Directory of the department folders, relative to the blueprint's own.
    pub from: String,
    /// Sources of the members of their requests, as JSON Pointers.
    pub promises: BTreeMap<String, String>,
    /// Location of each department's result, as a JSON Pointer.
    pub into: String,
    /// Group of all departments.
    pub group: GroupName,
}
