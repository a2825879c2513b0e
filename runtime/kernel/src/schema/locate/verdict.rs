//! Consequence of a claim about a place for the children of that place.

use std::collections::BTreeMap;

use super::super::claim::Claim;
use super::super::map::{Id, Node, Role, SchemaMap};
use super::has_room;

/// Effort of inspecting one subschema.
const VERDICT_STEPS: usize = 60;

/// A step down by one token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Step<'a> {
    Name(&'a str),
    /// A member with another name that matches this expression.
    Matching(&'a str),
    /// A member with any other name.
    Other,
    Index(usize),
    /// Any element, or the one to be appended.
    Element,
}

/// A subschema's claim about a child: `seen` if one of its keywords governs the child, `unseen` if none does. An
/// enclosing `unevaluated…` keyword governs unseen children.
#[derive(Clone, Debug)]
struct Verdict {
    seen: Claim,
    unseen: Claim,
}

impl Verdict {
    const NO_OPINION: Self = Self { seen: Claim::Nothing, unseen: Claim::Anything };
    const NOTHING: Self = Self { seen: Claim::Nothing, unseen: Claim::Nothing };

    fn and(self, other: Self) -> Self {
        let either = Claim::any([other.seen.clone(), other.unseen.clone()]);
        let only_other = Claim::all([self.unseen.clone(), other.seen]);
        Self {
            seen: Claim::any([Claim::all([self.seen, either]), only_other]),
            unseen: Claim::all([self.unseen, other.unseen]),
        }
    }

    fn or(self, other: Self) -> Self {
        Self { seen: Claim::any([self.seen, other.seen]), unseen: Claim::any([self.unseen, other.unseen]) }
    }

    fn whole(self) -> Claim {
        Claim::any([self.seen, self.unseen])
    }
}

/// Returns a claim's consequence for a child of the place.
pub(super) fn descend(map: &SchemaMap, claim: &Claim, step: Step<'_>) -> Claim {
    match claim {
        Claim::Anything => Claim::Anything,
        Claim::Nothing => Claim::Nothing,
        Claim::Of(id) => verdict(map, *id, step, &mut BTreeMap::new()).whole(),
        Claim::All(parts) => Claim::all(parts.iter().map(|part| descend(map, part, step))),
        Claim::Any(parts) => Claim::any(parts.iter().map(|part| descend(map, part, step))),
    }
}

/// Returns the verdict of a subschema, and of all it applies in place, about a child. `done` caches verdicts; the
/// closing reference of a cycle has no opinion.
fn verdict(map: &SchemaMap, id: Id, step: Step<'_>, done: &mut BTreeMap<Id, Verdict>) -> Verdict {
    if let Some(verdict) = done.get(&id) {
        return verdict.clone();
    }
    done.insert(id, Verdict::NO_OPINION);
    if !map.spend(VERDICT_STEPS) {
        return Verdict::NO_OPINION;
    }
    let node = map.node(id);
    let is_member = matches!(step, Step::Name(_) | Step::Matching(_) | Step::Other);
    let mut verdict = match is_member {
        _ if node.never => Verdict::NOTHING,
        true if !node.objects => Verdict::NOTHING,
        false if !node.arrays => Verdict::NOTHING,
        true => member(map, node, step),
        false => element(map, node, step),
    };
    if node.refs.is_empty() && !node.outside && node.others().next().is_none() {
        done.insert(id, verdict.clone());
        return verdict;
    }
    let mut ask = |id: Id| self::verdict(map, id, step, done);
    for targets in &node.refs {
        verdict = verdict.and(any_of(targets.iter().map(|&target| ask(target))));
    }
    for each in node.each(&Role::AllOf) {
        verdict = verdict.and(ask(each));
    }
    for choice in [Role::AnyOf, Role::OneOf] {
        if node.one(&choice).is_some() {
            verdict = verdict.and(any_of(node.each(&choice).map(&mut ask)));
        }
    }
    if let Some(condition) = node.one(&Role::If) {
        let mut branch = |role: &Role| node.one(role).map_or(Verdict::NO_OPINION, &mut ask);
        let (then, otherwise) = (branch(&Role::Then), branch(&Role::Else));
        verdict = verdict.and(ask(condition).and(then).or(otherwise));
    }
    for dependent in node.each(&Role::Dependent) {
        verdict = verdict.and(ask(dependent).or(Verdict::NO_OPINION));
    }
    // An unknown schema may or may not govern the child.
    if node.outside || (!is_member && node.one(&Role::Contains).is_some()) {
        verdict = verdict.and(Verdict { seen: Claim::Anything, unseen: Claim::Anything });
    }
    let rest = if is_member { Role::UnevaluatedProperties } else { Role::UnevaluatedItems };
    if let Some(rest) = node.one(&rest) {
        let seen = Claim::any([verdict.seen, Claim::all([verdict.unseen, claim_of(map, rest)])]);
        verdict = Verdict { seen, unseen: Claim::Nothing };
    }
    done.insert(id, verdict.clone());
    verdict
}

fn any_of(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    verdicts.fold(Verdict::NOTHING, Verdict::or)
}

/// Returns the verdict of the object keywords about a member.
fn member(map: &SchemaMap, node: &Node, step: Step<'_>) -> Verdict {
    let mut claims = Vec::new();
    if let Step::Name(name) = step {
        claims.extend(node.property(name).map(|id| claim_of(map, id)));
    }
    for (role, id) in node.others() {
        let applies = match (role, step) {
            (Role::Pattern(pattern), Step::Name(name)) => map.name_matches(pattern, name),
            (Role::Pattern(pattern), Step::Matching(matched)) => pattern == matched,
            _ => false,
        };
        if applies {
            claims.push(claim_of(map, *id));
        }
    }
    if claims.is_empty() {
        claims.extend(node.one(&Role::AdditionalProperties).map(|id| claim_of(map, id)));
    }
    governed(claims, Claim::all)
}

/// Returns the verdict of the array keywords about an element.
fn element(map: &SchemaMap, node: &Node, step: Step<'_>) -> Verdict {
    let items = node.one(&Role::Items).map(|id| claim_of(map, id));
    let prefix = node.others().filter_map(|(role, id)| match role {
        Role::Prefix(index) => Some((*index, claim_of(map, *id))),
        _ => None,
    });
    if let Step::Index(wanted) = step {
        let exact = prefix.into_iter().find(|(index, _)| *index == wanted).map(|(_, claim)| claim);
        return governed(exact.or(items).into_iter().collect(), Claim::all);
    }
    // Any element: one of the prefix, or one after it.
    let first = governed(prefix.map(|(_, claim)| claim).collect(), Claim::any);
    let later = governed(items.into_iter().collect(), Claim::all);
    if node.others().any(|(role, _)| matches!(role, Role::Prefix(_))) { first.or(later) } else { later }
}

fn governed(claims: Vec<Claim>, joined: fn(Vec<Claim>) -> Claim) -> Verdict {
    if claims.is_empty() {
        return Verdict::NO_OPINION;
    }
    Verdict { seen: joined(claims), unseen: Claim::Nothing }
}

/// Returns a subschema's claim about its own place.
pub(super) fn claim_of(map: &SchemaMap, id: Id) -> Claim {
    if map.node(id).anything {
        Claim::Anything
    } else if map.is_impossible(id, || !has_room(map, id, |_| true, &mut BTreeMap::new())) {
        Claim::Nothing
    } else {
        Claim::Of(id)
    }
}
