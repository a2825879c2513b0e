//! The validation plan: for every subschema that a write can be followed to, what to check there.

use jsonschema::Validator;

use super::super::map::Id;
use super::super::meter::{Metered, Weight};
use super::super::node::Tree;
use super::survey::Opaque;
use crate::tree::{Key, Node};

/// The number of a place of the plan; 0 is the root.
pub(super) type PlaceId = usize;

/// A compiled part of the schema.
pub(super) struct Check {
    pub(super) validator: Validator<Metered<Tree>>,
    /// Where the validator believes its own keywords to be, and where they are in the document.
    pub(super) home: Option<(String, String)>,
}

/// A subschema that a write can be followed to.
pub(super) struct Place {
    pub(super) id: Id,
    /// JSON Pointer into the schema document.
    pub(super) pointer: String,
    /// All of it; `None` where anything goes, or where nothing asks for it.
    pub(super) whole: Option<Check>,
    pub(super) inside: Inside,
}

/// What to do when something changed inside of a value that this subschema judges.
pub(super) enum Inside {
    /// Nothing can be wrong by that.
    Nothing,
    /// Validate it whole.
    Whole(Opaque),
    Parts(Box<Parts>),
}

/// What to check when something changed inside.
#[derive(Default)]
pub(super) struct Parts {
    /// When members or elements came or went.
    pub(super) shape: Option<Check>,
    /// When anything changed.
    pub(super) across: Option<Check>,
    /// When an element changed and they must all be different.
    pub(super) unique: Option<Check>,
    /// Other places that judge the same value: `allOf`, `$ref`.
    pub(super) beside: Vec<PlaceId>,
    /// By name, sorted.
    pub(super) members: Vec<(String, PlaceId)>,
    /// By a validator of names.
    pub(super) patterns: Vec<(Validator<Metered<Tree>>, PlaceId)>,
    pub(super) others: Others,
    pub(super) names: Option<Names>,
    /// Of the first elements.
    pub(super) prefix: Vec<PlaceId>,
    /// Of the elements after those.
    pub(super) items: Option<PlaceId>,
}

/// What members may be that neither `properties` nor `patternProperties` know.
#[derive(Default)]
pub(super) enum Others {
    #[default]
    Anything,
    Nothing,
    Judged(PlaceId),
}

/// `propertyNames`.
pub(super) struct Names {
    /// Judges one name.
    pub(super) one: Option<Check>,
    /// Judges an object by its names.
    pub(super) all: Check,
}

impl Parts {
    pub(super) fn member(&self, name: &str) -> Option<PlaceId> {
        let index = self.members.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        Some(self.members[index].1)
    }

    /// What judges members that nothing else knows.
    pub(super) const fn judged_others(&self) -> Option<PlaceId> {
        match self.others {
            Others::Judged(place) => Some(place),
            Others::Anything | Others::Nothing => None,
        }
    }

    /// All that judge a member of that name.
    pub(super) fn applied_to(&self, name: &str) -> Vec<PlaceId> {
        let matching = self.patterns.iter().filter(|(matcher, _)| matches(matcher, &name.into()));
        let known: Vec<PlaceId> = self.member(name).into_iter().chain(matching.map(|(_, place)| *place)).collect();
        if known.is_empty() { self.judged_others().into_iter().collect() } else { known }
    }

    pub(super) fn is_empty(&self) -> bool {
        let checks = [self.shape.is_some(), self.across.is_some(), self.unique.is_some(), self.names.is_some()];
        let judged = [self.items.is_some(), !matches!(self.others, Others::Anything)];
        let lists = [self.beside.is_empty(), self.members.is_empty(), self.patterns.is_empty(), self.prefix.is_empty()];
        !checks.contains(&true) && !judged.contains(&true) && !lists.contains(&false)
    }
}

/// Whether a validator of names lets one through.
pub(super) fn matches(matcher: &Validator<Metered<Tree>>, name: &Key) -> bool {
    let name = Node::Short(name.clone());
    let meter = Weight::default().verdict(name.bytes());
    matcher.is_valid(meter.of(&name))
}
