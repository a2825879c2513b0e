//! Files that differ or may differ from the commit, but are neither shown nor committed, with the reasons. Without this
//! report an agent would take all its changes for committed.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::files::FilePath;

use super::message_limits::{NAMES_CHARS_MAX, named};
use patchboard_kernel::text::{counted, is_or_are};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum OmissionReason {
    /// Git would commit other bytes than the file contains.
    Converted,
    /// The board does not allow the changes that others made to it.
    Rejected,
    /// The file changed after it was found.
    Changed,
}

impl OmissionReason {
    const fn message(self) -> &'static str {
        match self {
            Self::Converted => {
                "as what git would commit is not what is there (a committed .gitattributes says `filter`, `ident` or \
                 `working-tree-encoding`): whether that is committed is not known here, and others have to commit it"
            }
            Self::Rejected => "as the board does not allow what others have done there (`view` says why)",
            Self::Changed => "as others were changing something there; it can be asked for again",
        }
    }
}

/// Decision whether a file, as it was found, is to be included.
pub(super) enum IncludeDecision {
    Yes,
    /// Outside the request, or not accessible to the author.
    No,
    Omit(OmissionReason),
}

/// Left-out files, by reason.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Omissions(BTreeMap<OmissionReason, BTreeSet<FilePath>>);

impl Omissions {
    pub(super) fn note(&mut self, path: &FilePath, why: OmissionReason) {
        self.0.entry(why).or_default().insert(path.clone());
    }

    /// Returns whether a file is included; notes it if it is left out.
    pub(super) fn include(&mut self, path: &FilePath, decision: &IncludeDecision) -> bool {
        if let IncludeDecision::Omit(why) = decision {
            self.note(path, *why);
        }
        matches!(decision, IncludeDecision::Yes)
    }

    /// Describes the left-out files, in one sentence for each reason; empty if there are none.
    pub fn messages(&self) -> Vec<String> {
        let one = |(why, paths): (&OmissionReason, &BTreeSet<FilePath>)| {
            let (files, are) = (counted(paths.len(), "file"), is_or_are(paths.len()));
            let names = named(paths.iter().map(FilePath::as_str), NAMES_CHARS_MAX);
            format!("{files} {are} left out, {}: {names}", why.message())
        };
        self.0.iter().map(one).collect()
    }
}
