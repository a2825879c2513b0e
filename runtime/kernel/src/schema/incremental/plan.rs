//! The validation plan: the checks for every subschema that a write can be traced to.

use jsonschema::Validator;

use super::super::map::Id;
use super::super::meter::{Metered, Weight};
use super::super::node::Tree;
use super::survey::Opaque;
use crate::tree::{Key, Node};

/// Index of a place in the plan; 0 is the root.
pub(super) type PlaceId = usize;

/// A compiled part of the schema.
pub(super) struct Check {
    pub(super) validator: Validator<Metered<Tree>>,
    /// Pointer to its keywords as known to the validator, and the pointer in the document.
    pub(super) home: Option<(String, String)>,
}

/// A subschema that a write can be traced to.
pub(super) struct Place {
    pub(super) id: Id,
    /// JSON Pointer into the schema document.
    pub(super) pointer: String,
    /// Check of the whole subschema; `None` if it allows anything, or no change needs the check.
    pub(super) whole: Option<Check>,
    pub(super) inside: Inside,
}

/// Action after a change inside a value that this subschema judges.
pub(super) enum Inside {
    /// No check is needed.
    Nothing,
    /// Validate the value as a whole.
    Whole(Opaque),
    Parts(Box<Parts>),
}

/// Checks after a change inside a value.
#[derive(Default)]
pub(super) struct Parts {
    /// Check after members or elements were added or removed.
    pub(super) shape: Option<Check>,
    /// Check after any change.
    pub(super) across: Option<Check>,
    /// Check for uniqueness after an element changed.
    pub(super) unique: Option<Check>,
    /// Other places for the same value: `allOf`, `$ref`.
    pub(super) beside: Vec<PlaceId>,
    /// Places of members, sorted by name.
    pub(super) members: Vec<(String, PlaceId)>,
    /// Places of members, by a validator of their names.
    pub(super) patterns: Vec<(Validator<Metered<Tree>>, PlaceId)>,
    pub(super) others: Others,
    pub(super) names: Option<Names>,
    /// Places of the first elements.
    pub(super) prefix: Vec<PlaceId>,
    /// Place of the elements after the prefix.
    pub(super) items: Option<PlaceId>,
}

/// Rule for members not described by `properties` or `patternProperties`.
#[derive(Default)]
pub(super) enum Others {
    #[default]
    Anything,
    Nothing,
    Judged(PlaceId),
}

/// `propertyNames`.
pub(super) struct Names {
    /// Check of a single name.
    pub(super) one: Option<Check>,
    /// Check of an object's names.
    pub(super) all: Check,
}

impl Parts {
    pub(super) fn member(&self, name: &str) -> Option<PlaceId> {
        let index = self.members.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        Some(self.members[index].1)
    }

    /// Returns the place for members that nothing else describes.
    pub(super) const fn judged_others(&self) -> Option<PlaceId> {
        match self.others {
            Others::Judged(place) => Some(place),
            Others::Anything | Others::Nothing => None,
        }
    }

    /// Returns all places that judge a member of this name.
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

/// Returns true if a validator of names accepts a name.
pub(super) fn matches(matcher: &Validator<Metered<Tree>>, name: &Key) -> bool {
    let name = Node::Short(name.clone());
    let meter = Weight::default().verdict(name.bytes());
    matcher.is_valid(meter.count(&name))
}
