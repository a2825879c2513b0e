//! What a repository keeps, as git names it.

use patchboard_kernel::digest::sha256;
use sha1::{Digest as _, Sha1};

/// What links to another repository, and what files are.
const LINK: &str = "160000";
const PLAIN: &str = "100644";
const EXECUTABLE: &str = "100755";

/// How a repository names what it keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Names {
    Sha1,
    Sha256,
}

impl Names {
    /// The name of a file's content.
    pub(super) fn of(self, content: &[u8]) -> String {
        self.of_kind("blob", content)
    }

    /// That of a tree with nothing in it.
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

/// What stands for a name in a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) mode: String,
    /// The name of what it holds.
    pub(super) holds: String,
}

impl Entry {
    /// A file that holds this.
    pub(super) fn file(is_executable: bool, holds: String) -> Self {
        let mode = if is_executable { EXECUTABLE } else { PLAIN };
        Self { mode: mode.to_owned(), holds }
    }

    /// Whether it is a link to another repository.
    pub(super) fn is_link(&self) -> bool {
        self.mode == LINK
    }

    /// Whether it is a file, and if it is, whether it may be run.
    pub(super) fn is_executable(&self) -> Option<bool> {
        match self.mode.as_str() {
            EXECUTABLE => Some(true),
            PLAIN => Some(false),
            _ => None,
        }
    }
}
