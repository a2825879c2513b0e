//! Git objects: names and tree entries.

use patchboard_kernel::digest::sha256;
use sha1::{Digest as _, Sha1};

/// File modes: link to another repository (submodule), plain file, executable file.
const LINK: &str = "160000";
const PLAIN: &str = "100644";
const EXECUTABLE: &str = "100755";

/// Object format: the hash that names objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ObjectFormat {
    Sha1,
    Sha256,
}

impl ObjectFormat {
    /// Returns the name of a file's content.
    pub(super) fn blob_name(self, content: &[u8]) -> String {
        self.of_kind("blob", content)
    }

    /// Returns the name of the empty tree.
    pub(super) fn of_nothing(self) -> String {
        self.of_kind("tree", b"")
    }

    fn of_kind(self, kind: &str, content: &[u8]) -> String {
        let head = format!("{kind} {}\0", content.len());
        match self {
            Self::Sha1 => {
                let bytes = Sha1::new().chain_update(head).chain_update(content).finalize();
                bytes.iter().map(|byte| format!("{byte:02x}")).collect()
            }
            Self::Sha256 => sha256(&[head.as_bytes(), content].concat()).to_string(),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TreeEntry {
    pub(super) mode: String,
    /// Name of its object.
    pub(super) object: String,
}

impl TreeEntry {
    /// Builds the entry of a file with the content named `holds`.
    pub(super) fn file(is_executable: bool, object: String) -> Self {
        let mode = if is_executable { EXECUTABLE } else { PLAIN };
        Self { mode: mode.to_owned(), object }
    }

    /// Returns whether the entry is a link to another repository (submodule).
    pub(super) fn is_link(&self) -> bool {
        self.mode == LINK
    }

    /// Returns whether a file is executable; `None` if the entry is no file.
    pub(super) fn is_executable(&self) -> Option<bool> {
        match self.mode.as_str() {
            EXECUTABLE => Some(true),
            PLAIN => Some(false),
            _ => None,
        }
    }
}
