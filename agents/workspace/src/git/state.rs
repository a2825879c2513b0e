//! Git state of a directory.

use std::collections::BTreeMap;
use std::sync::Weak;

use super::authors::Histories;
use super::review::Reviews;
use crate::disk::Disk;

/// Git state shared by the agents of a directory.
#[derive(Default)]
pub struct GitState {
    /// Working trees in use.
    pub(crate) trees: Trees,
    pub(super) reviews: Reviews,
    pub(super) histories: Histories,
}

/// Working trees in use, by author.
pub type Trees = BTreeMap<String, Weak<Disk>>;
