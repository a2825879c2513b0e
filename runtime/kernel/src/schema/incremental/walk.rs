//! Traces changes through the plan, and checks the values that may have become invalid.

use jsonptr::Token;
use serde_json::Value;

use super::super::equality;
use super::super::explain::{Applied, Findings};
use super::super::meter::Meter;
use super::plan::{self, Check, Inside, Names, Others, Parts, Place, PlaceId};
use crate::tree::{Array, Key, Node, Object, Revision, Stamp};

/// Path to a value, converted to text only on demand.
#[derive(Clone, Copy)]
pub(super) enum Path<'p> {
    Root,
    Member(&'p Path<'p>, &'p str),
    Element(&'p Path<'p>, usize),
}

impl Path<'_> {
    /// Returns the path as a JSON Pointer.
    pub(super) fn pointer(&self) -> String {
        let mut steps = Vec::new();
        let mut path = self;
        loop {
            path = match path {
                Self::Root => break,
                Self::Member(above, name) => {
                    steps.push(Token::new(*name).encoded().to_owned());
                    above
                }
                Self::Element(above, index) => {
                    steps.push(index.to_string());
                    above
                }
            };
        }
        steps.iter().rev().map(|step| format!("/{step}")).collect()
    }
}

/// Consumer of a walk's checks. Every method returns whether to continue.
pub(super) trait Judge {
    /// Called when the walk moves to another value or another part of the schema.
    fn step(&mut self) -> bool;
    /// Checks a node against a part of the schema.
    fn check(&mut self, check: &Check, node: &Node, at: &Path<'_>) -> bool;
    /// Checks the names of new members.
    fn names(&mut self, names: &Names, new: &[&Key], object: &Node, at: &Path<'_>) -> bool;
    /// Handles forbidden members.
    fn unexpected(&mut self, place: &Place, names: &[&Key], at: &Path<'_>) -> bool;
}

/// Judge that decides validity.
pub(super) struct Verdict<'m>(pub(super) &'m Meter);

impl Judge for Verdict<'_> {
    fn step(&mut self) -> bool {
        self.0.spend(1)
    }

    fn check(&mut self, check: &Check, node: &Node, _: &Path<'_>) -> bool {
        check.validator.is_valid(self.0.count(node))
    }

    fn names(&mut self, names: &Names, new: &[&Key], _: &Node, _: &Path<'_>) -> bool {
        let Some(one) = &names.one else { return true };
        new.iter().all(|key| one.validator.is_valid(self.0.count(&Node::Short((*key).clone()))))
    }

    fn unexpected(&mut self, _: &Place, _: &[&Key], _: &Path<'_>) -> bool {
        false
    }
}

/// Judge that collects violations up to a limit.
pub(super) struct Listing<'f, 's> {
    pub(super) findings: &'f mut Findings<'s>,
    pub(super) meter: &'f Meter,
}

impl Listing<'_, '_> {
    fn note(&mut self, check: &Check, judged: &Node, shown: Option<&Node>, at: &Path<'_>) -> bool {
        let home = check.home.as_ref().map(|(known, real)| (known.as_str(), real.as_str()));
        // The path is written only for violations.
        let mut errors = check.validator.iter_errors(self.meter.count(judged)).peekable();
        if self.meter.is_spent() {
            self.findings.unexplained(&at.pointer());
            return false;
        }
        if errors.peek().is_some() {
            let at = at.pointer();
            self.findings.add(errors, Applied { instance: &at, home, shown }, Clone::clone);
        }
        !self.findings.is_full()
    }
}

impl Judge for Listing<'_, '_> {
    fn step(&mut self) -> bool {
        self.meter.spend(1)
    }

    fn check(&mut self, check: &Check, node: &Node, at: &Path<'_>) -> bool {
        self.note(check, node, None, at)
    }

    fn names(&mut self, names: &Names, new: &[&Key], object: &Node, at: &Path<'_>) -> bool {
        let only_new: serde_json::Map<_, _> = new.iter().map(|key| (key.to_string(), Value::Null)).collect();
        self.note(&names.all, &Node::from(&only_new.into()), Some(object), at)
    }

    fn unexpected(&mut self, place: &Place, names: &[&Key], at: &Path<'_>) -> bool {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        self.findings.unexpected(&at.pointer(), &place.pointer, &names);
        !self.findings.is_full()
    }
}

/// A walk through the changes since a version at which the document was valid.
pub(super) struct Walk<'w> {
    pub(super) places: &'w [Place],
    pub(super) since: Revision,
}

impl Walk<'_> {
    /// Checks a value that is new as a whole.
    fn whole<J: Judge>(&self, judge: &mut J, place: PlaceId, node: &Node, at: &Path<'_>) -> bool {
        self.places[place].whole.as_ref().is_none_or(|check| judge.check(check, node, at))
    }

    /// Checks a member or element that may have changed itself or inside.
    fn slot<J: Judge>(&self, judge: &mut J, place: PlaceId, node: &Node, stamp: Stamp, at: &Path<'_>) -> bool {
        if stamp.changed > self.since {
            return self.whole(judge, place, node, at);
        }
        self.inside(judge, place, node, at)
    }

    /// Checks a container with changes inside.
    pub(super) fn inside<J: Judge>(&self, judge: &mut J, place: PlaceId, node: &Node, at: &Path<'_>) -> bool {
        if !judge.step() {
            return false;
        }
        let here = &self.places[place];
        let parts = match &here.inside {
            Inside::Nothing => return true,
            Inside::Whole(_) => return self.whole(judge, place, node, at),
            Inside::Parts(parts) => parts,
        };
        let parts_hold = match node {
            Node::Object(object) => self.object(judge, here, parts, object, node, at),
            Node::Array(array) => {
                let was_shifted = parts.prefix.len().checked_sub(1);
                if was_shifted.is_some_and(|last| array.shifted_since(last, self.since).is_some()) {
                    return self.whole(judge, place, node, at);
                }
                self.array(judge, parts, array, node, at)
            }
            // Scalars have no inside.
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::Short(_) | Node::Long(_) => true,
        };
        parts_hold
            && parts.across.as_ref().is_none_or(|check| judge.check(check, node, at))
            && parts.beside.iter().all(|&beside| self.inside(judge, beside, node, at))
    }

    fn object<J: Judge>(
        &self,
        judge: &mut J,
        place: &Place,
        parts: &Parts,
        object: &Object,
        node: &Node,
        at: &Path<'_>,
    ) -> bool {
        if object.members_changed() > self.since && !holds(judge, parts.shape.as_ref(), node, at) {
            return false;
        }
        let (mut new, mut unexpected) = (Vec::new(), Vec::new());
        for (key, member, stamp) in object.changed_since(self.since) {
            if parts.names.is_some() && stamp.created > self.since {
                new.push(key);
            }
            let at = Path::Member(at, key);
            let mut is_known = false;
            if let Some(known) = parts.member(key) {
                is_known = true;
                if !self.slot(judge, known, member, stamp, &at) {
                    return false;
                }
            }
            for (matcher, known) in &parts.patterns {
                if plan::matches(matcher, key) {
                    is_known = true;
                    if !self.slot(judge, *known, member, stamp, &at) {
                        return false;
                    }
                }
            }
            match &parts.others {
                Others::Nothing if !is_known => unexpected.push(key),
                Others::Judged(other) if !is_known => {
                    if !self.slot(judge, *other, member, stamp, &at) {
                        return false;
                    }
                }
                Others::Anything | Others::Nothing | Others::Judged(_) => {}
            }
        }
        if let Some(names) = &parts.names
            && !new.is_empty()
            && !judge.names(names, &new, node, at)
        {
            return false;
        }
        unexpected.is_empty() || judge.unexpected(place, &unexpected, at)
    }

    fn array<J: Judge>(&self, judge: &mut J, parts: &Parts, array: &Array, node: &Node, at: &Path<'_>) -> bool {
        if array.members_changed() > self.since && !holds(judge, parts.shape.as_ref(), node, at) {
            return false;
        }
        if parts.prefix.is_empty() && parts.items.is_none() && parts.unique.is_none() {
            return true;
        }
        let touched = array.changed_since(self.since);
        for &(index, element, stamp) in &touched {
            if let Some(place) = parts.prefix.get(index).copied().or(parts.items)
                && !self.slot(judge, place, element, stamp, &Path::Element(at, index))
            {
                return false;
            }
        }
        let Some(unique) = &parts.unique else { return true };
        let changed: Vec<usize> = touched.iter().map(|(index, ..)| *index).collect();
        equality::stays_unique(array, &changed) || judge.check(unique, node, at)
    }
}

fn holds<J: Judge>(judge: &mut J, check: Option<&Check>, node: &Node, at: &Path<'_>) -> bool {
    check.is_none_or(|check| judge.check(check, node, at))
}
