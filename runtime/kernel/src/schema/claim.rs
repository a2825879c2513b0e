//! Claims of a schema about a place: and-or expressions over subschemas, computed by [`super::locate`].

use std::collections::BTreeSet;

use super::map::Id;

/// Maximum number of subschemas in one claim; a larger one is treated as `Anything`.
const CLAIM_MAX: usize = 256;

/// Claim of a schema about a place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Claim {
    Anything,
    Nothing,
    /// Claim of this subschema.
    Of(Id),
    All(BTreeSet<Claim>),
    Any(BTreeSet<Claim>),
}

impl Claim {
    pub(super) fn all(claims: impl IntoIterator<Item = Self>) -> Self {
        let mut parts = BTreeSet::new();
        for claim in claims {
            match claim {
                Self::Anything => {}
                Self::Nothing => return Self::Nothing,
                Self::All(inner) => parts.extend(inner),
                part @ (Self::Of(_) | Self::Any(_)) => drop(parts.insert(part)),
            }
        }
        Self::joined(parts, Self::Anything, Self::All)
    }

    pub(super) fn any(claims: impl IntoIterator<Item = Self>) -> Self {
        let mut parts = BTreeSet::new();
        for claim in claims {
            match claim {
                Self::Anything => return Self::Anything,
                Self::Nothing => {}
                Self::Any(inner) => parts.extend(inner),
                part @ (Self::Of(_) | Self::All(_)) => drop(parts.insert(part)),
            }
        }
        Self::joined(parts, Self::Nothing, Self::Any)
    }

    fn joined(mut parts: BTreeSet<Self>, none: Self, many: fn(BTreeSet<Self>) -> Self) -> Self {
        match parts.len() {
            0 => none,
            1 => parts.pop_first().expect("there is one"),
            _ if parts.iter().map(Self::size).sum::<usize>() > CLAIM_MAX => Self::Anything,
            _ => many(parts),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Anything | Self::Nothing | Self::Of(_) => 1,
            Self::All(parts) | Self::Any(parts) => parts.iter().map(Self::size).sum(),
        }
    }

    /// Collects the subschemas of the claim.
    pub(super) fn ids(&self, found: &mut BTreeSet<Id>) {
        match self {
            Self::Anything | Self::Nothing => {}
            Self::Of(id) => drop(found.insert(*id)),
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.ids(found)),
        }
    }
}

/// Deepest point of an unsuccessful search.
#[derive(Clone, Debug)]
pub(super) struct Furthest {
    pub(super) tokens: usize,
    pub(super) claims: BTreeSet<Claim>,
}
