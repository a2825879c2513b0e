//! What is, or may be, otherwise than it is committed, and is neither shown nor committed: which files, and why. Whoever is
//! not told of it takes everything for committed.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::files::FilePath;

use super::{NAMES_CHARS_MAX, named};
use crate::{counted, is_or_are};

/// Why a file is left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Why {
    /// What git would commit of it is not what is in it.
    Converted,
    /// The board does not allow what others have made of it.
    Untaken,
    /// It is not any more what was found.
    Changed,
}

impl Why {
    const fn said(self) -> &'static str {
        match self {
            Self::Converted => {
                "as what git would commit is not what is there (a committed .gitattributes says `filter`, `ident` or \
                 `working-tree-encoding`): whether that is committed is not known here, and others have to commit it"
            }
            Self::Untaken => "as the board does not allow what others have done there (`view` says why)",
            Self::Changed => "as others were changing something there; it can be asked for again",
        }
    }
}

/// Whether a file, as it was found, is meant to be taken up.
pub(super) enum Meant {
    Yes,
    /// It is nothing to who asks.
    No,
    Not(Why),
}

/// Files that are left out, by why they are.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Omissions(BTreeMap<Why, BTreeSet<FilePath>>);

impl Omissions {
    /// Notes a file that is left out.
    pub(super) fn note(&mut self, path: &FilePath, why: Why) {
        self.0.entry(why).or_default().insert(path.clone());
    }

    /// Whether a file is taken up; notes it if it is left out.
    pub(super) fn takes(&mut self, path: &FilePath, meant: &Meant) -> bool {
        if let Meant::Not(why) = meant {
            self.note(path, *why);
        }
        matches!(meant, Meant::Yes)
    }

    /// Which are left out and why, in a sentence for each reason; empty if none are.
    pub fn said(&self) -> Vec<String> {
        let one = |(why, paths): (&Why, &BTreeSet<FilePath>)| {
            let (files, are) = (counted(paths.len(), "file"), is_or_are(paths.len()));
            let names = named(paths.iter().map(FilePath::as_str), NAMES_CHARS_MAX);
            format!("{files} {are} left out, {}: {names}", why.said())
        };
        self.0.iter().map(one).collect()
    }
}
