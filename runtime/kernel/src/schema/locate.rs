//! Determines the legal places of a schema.
//!
//! Walking down a path turns the schema's claim about the root into its claim about the place: a [`Claim`], an and-or
//! expression over subschemas. A place is legal unless its claim is [`Claim::Nothing`]. The answer may be too
//! permissive (`not`, `propertyNames` and the values of siblings are ignored), because every candidate is validated
//! afterwards. Its purpose is to reject a misspelt path with the correct names.

mod verdict;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use jsonptr::Pointer;

use super::claim::{Claim, Furthest};
use super::map::{Id, Node, Role, SchemaMap};
use super::{Location, Schema};
use verdict::{Step, claim_of, descend};

use crate::pattern::{Pattern, PatternToken, is_index};

/// Maximum number of steps of one search; places beyond are treated as legal.
const STEPS_MAX: usize = 20_000;
/// Effort of inspecting one place.
const PLACE_STEPS: usize = 10;
/// Maximum depth of a search for `**`.
const DEEP_MAX: usize = 64;
/// Maximum number of names that an answer lists.
const KNOWN_MAX: usize = 64;

impl Schema {
    /// Returns true if the schema names a place directly; otherwise [`Self::locate_pointer`] gives the full answer.
    pub(crate) fn is_plain(&self, place: &Pointer) -> bool {
        /// Maximum number of references followed for one value.
        const REFERENCES_MAX: usize = 16;
        let map = &self.map;
        let mut id = 0;
        let settled = |mut id: Id| {
            for _ in 0..REFERENCES_MAX {
                let node = map.node(id);
                let branches = |role: &Role| role.is_in_place() && *role != Role::Not;
                if node.never || node.outside || node.others().any(|(role, _)| branches(role)) {
                    return None;
                }
                match node.refs.as_slice() {
                    [] => return Some(id),
                    // Siblings of a reference may restrict the value further.
                    [targets] if node.children.is_empty() && targets.len() == 1 => id = targets[0],
                    _ => return None,
                }
            }
            None
        };
        for token in place.tokens() {
            let Some(here) = settled(id).map(|id| map.node(id)) else { return false };
            let name = token.decoded();
            let narrows = |role: &Role| matches!(role, Role::Pattern(_) | Role::Prefix(_));
            if here.others().any(|(role, _)| narrows(role)) {
                return false;
            }
            let is_element = here.arrays && !here.objects && (name == "-" || is_index(&name));
            let member = here.property(&name).filter(|_| here.objects);
            match member.or_else(|| here.one(&Role::Items).filter(|_| is_element)) {
                Some(child) => id = child,
                None => return false,
            }
        }
        settled(id).is_some()
    }

    /// Returns the legality of the places that a pattern matches; legal if any of them is.
    pub fn locate(&self, pattern: &Pattern) -> Location {
        let map = &self.map;
        let wanted = pattern.tokens().iter().map(PathToken::from).collect::<Vec<_>>();
        match claims(map, &wanted, WildcardSteps::All) {
            Ok(claims) => legal(map, &claims),
            Err(furthest) => illegal(map, pattern.prefix(furthest.tokens).to_string(), &furthest),
        }
    }

    /// Returns the legality of one place; the token `-` is the append position of an array or a member of that name.
    pub fn locate_pointer(&self, place: &Pointer) -> Location {
        let map = &self.map;
        let tokens = place.tokens().map(|token| token.decoded().into_owned()).collect::<Vec<_>>();
        let wanted = tokens.iter().map(|token| PathToken::Exactly(token)).collect::<Vec<_>>();
        match claims(map, &wanted, WildcardSteps::All) {
            Ok(claims) => legal(map, &claims),
            Err(furthest) => {
                let prefix = jsonptr::PointerBuf::from_tokens(&tokens[..furthest.tokens]);
                illegal(map, prefix.to_string(), &furthest)
            }
        }
    }

    /// Returns true if the schema permits an array at some of the places that a pattern matches, or has no such places.
    pub fn may_be_array(&self, pattern: &Pattern) -> bool {
        let claims = claims_of(&self.map, pattern);
        claims.is_empty() || claims.iter().any(|claim| admits(&self.map, claim, |node| node.arrays))
    }

    /// Returns true if the schema permits an object at some of the places that a pattern matches, or has no such
    /// places.
    pub fn may_be_object(&self, pattern: &Pattern) -> bool {
        let claims = claims_of(&self.map, pattern);
        claims.is_empty() || claims.iter().any(|claim| admits(&self.map, claim, |node| node.objects))
    }

    /// Returns true if the schema explicitly permits `number` at some of the places that a pattern matches.
    pub(crate) fn says_number(&self, pattern: &Pattern) -> bool {
        claims_of(&self.map, pattern).iter().any(|claim| claims_number(&self.map, claim))
    }

    /// Returns the permitted member names of an object at a place; `None` if any name is permitted, or in doubt.
    pub(crate) fn names_at(&self, place: &Pointer) -> Option<Names> {
        let map = &self.map;
        let tokens = place.tokens().map(|token| token.decoded().into_owned()).collect::<Vec<_>>();
        let wanted = tokens.iter().map(|token| PathToken::Exactly(token)).collect::<Vec<_>>();
        let claims = claims(map, &wanted, WildcardSteps::All).ok()?;
        let mut names = Names::default();
        for claim in &claims {
            for step in steps(map, claim) {
                if descend(map, claim, step) == Claim::Nothing {
                    continue;
                }
                match step {
                    Step::Name(name) => drop(names.known.insert(name.to_owned())),
                    Step::Matching(pattern) => drop(names.patterns.insert(pattern.to_owned())),
                    Step::Other => return None,
                    Step::Element | Step::Index(_) => {}
                }
            }
        }
        Some(names)
    }

    /// Returns true if the schema describes all values at the places of a pattern, without ignored siblings of `$ref`.
    /// An untyped schema counts as describing the members or elements that it mentions.
    pub fn is_described(&self, pattern: &Pattern) -> bool {
        let map = &self.map;
        let wanted = pattern.tokens().iter().map(PathToken::from).collect::<Vec<_>>();
        let Ok(claims) = claims(map, &wanted, WildcardSteps::Described) else { return false };
        claims.iter().all(|claim| {
            *claim != Claim::Anything && !subschemas(map, claim).into_iter().any(|id| map.node(id).hides_siblings)
        })
    }
}

/// Permitted member names of a closed object.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Names {
    /// Names written in the schema.
    pub(crate) known: BTreeSet<String>,
    /// Unanchored regular expressions; other names match one of them.
    pub(crate) patterns: BTreeSet<String>,
}

/// Returns the claims about the legal places that a pattern matches; empty if there are none.
pub(super) fn claims_of(map: &SchemaMap, pattern: &Pattern) -> BTreeSet<Claim> {
    let wanted = pattern.tokens().iter().map(PathToken::from).collect::<Vec<_>>();
    claims(map, &wanted, WildcardSteps::All).unwrap_or_default()
}

fn claims_number(map: &SchemaMap, claim: &Claim) -> bool {
    match claim {
        Claim::Anything | Claim::Nothing => false,
        Claim::Of(id) => admits(map, claim, |node| node.fractions) && is_number(map, *id, &mut BTreeSet::new()),
        Claim::All(parts) => {
            admits(map, claim, |node| node.fractions) && parts.iter().any(|part| claims_number(map, part))
        }
        Claim::Any(parts) => parts.iter().any(|part| claims_number(map, part)),
    }
}

/// Returns true if a subschema names `number` itself or by its parts; for alternatives, if one of them permits it.
fn is_number(map: &SchemaMap, id: Id, visited: &mut BTreeSet<Id>) -> bool {
    let node = map.node(id);
    if !visited.insert(id) {
        return false;
    }
    let mut ask =
        |id: Id| is_number(map, id, visited) && has_room(map, id, |node| node.fractions, &mut BTreeMap::new());
    node.numbers
        || node.refs.iter().flatten().any(|&target| ask(target))
        || [Role::AllOf, Role::AnyOf, Role::OneOf].iter().any(|role| node.each(role).any(&mut ask))
}

/// Returns the member names described by a subschema and all that it applies in place.
pub(super) fn names(map: &SchemaMap, id: Id) -> BTreeSet<&str> {
    map.closure(id).into_iter().flat_map(|id| map.node(id).names()).collect()
}

fn legal(map: &SchemaMap, claims: &BTreeSet<Claim>) -> Location {
    let mut ids = BTreeSet::new();
    claims.iter().for_each(|claim| claim.ids(&mut ids));
    Location::Legal(ids.into_iter().map(|id| map.node(id).pointer.clone()).collect())
}

/// Requirement on a path token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PathToken<'a> {
    /// This token: a name, an index if valid as one, the append position if it is `-`.
    Exactly(&'a str),
    Any,
    Append,
    Deep,
}

impl<'a> From<&'a PatternToken> for PathToken<'a> {
    fn from(token: &'a PatternToken) -> Self {
        match token {
            PatternToken::Literal(name) => Self::Exactly(name),
            PatternToken::Any | PatternToken::Bound(_) => Self::Any,
            PatternToken::Append => Self::Append,
            PatternToken::Deep => Self::Deep,
        }
    }
}

/// Steps represented by a wildcard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WildcardSteps {
    /// Members and elements, if both are possible.
    All,
    /// Only elements if an untyped schema describes only elements; only members likewise.
    Described,
}

/// Returns true if the subschemas of a claim describe only elements, false if only members; `None` for both or neither.
fn describes_elements(map: &SchemaMap, claim: &Claim) -> Option<bool> {
    let (mut members, mut elements) = (false, false);
    for (role, _) in subschemas(map, claim).into_iter().flat_map(|id| &map.node(id).children) {
        match role {
            Role::Property(_)
            | Role::Pattern(_)
            | Role::AdditionalProperties
            | Role::UnevaluatedProperties
            | Role::PropertyNames => {
                members = true;
            }
            Role::Prefix(_) | Role::Items | Role::UnevaluatedItems | Role::Contains => elements = true,
            _ => {}
        }
    }
    (members != elements).then_some(elements)
}

/// Returns the claims at the places that the tokens lead to.
fn claims(map: &SchemaMap, wanted: &[PathToken<'_>], kinds: WildcardSteps) -> Result<BTreeSet<Claim>, Furthest> {
    let mut found = BTreeSet::new();
    let mut furthest = Furthest { tokens: 0, claims: BTreeSet::new() };
    let mut visited = BTreeSet::new();
    let mut pending = VecDeque::from([(0, 0, claim_of(map, 0))]);
    let mut taken = 0;
    while let Some((tokens, depth, claim)) = pending.pop_front() {
        if claim == Claim::Nothing {
            continue;
        }
        let is_end = tokens == wanted.len();
        // On the path, a single reference equals its target; at the end, its siblings count.
        let claim = if is_end { claim } else { resolved(map, claim) };
        if !visited.insert((tokens, claim.clone())) {
            continue;
        }
        if taken > STEPS_MAX || !map.spend(PLACE_STEPS) {
            found.insert(Claim::Anything);
            break;
        }
        if tokens > furthest.tokens {
            furthest = Furthest { tokens, claims: BTreeSet::new() };
        }
        if tokens == furthest.tokens {
            furthest.claims.insert(claim.clone());
        }
        // If anything is permitted here, so is the rest of the path.
        let Some(next) = wanted.get(tokens).filter(|_| claim != Claim::Anything) else {
            found.insert(claim);
            continue;
        };
        let mut go = |to: usize, step: Step<'_>| {
            taken += 1;
            pending.push_back((to, depth + 1, descend(map, &claim, step)));
        };
        match *next {
            PathToken::Exactly(token) => {
                go(tokens + 1, Step::Name(token));
                if token == "-" {
                    go(tokens + 1, Step::Element);
                } else if is_index(token) {
                    // An index too large to parse is beyond every prefix.
                    go(tokens + 1, Step::Index(token.parse().unwrap_or(usize::MAX)));
                }
            }
            PathToken::Append => go(tokens + 1, Step::Element),
            PathToken::Any => {
                let meant = if kinds == WildcardSteps::All { None } else { describes_elements(map, &claim) };
                let is_element = |step: &Step<'_>| matches!(step, Step::Element | Step::Index(_));
                let leads = |step: &Step<'_>| meant.is_none_or(|meant| is_element(step) == meant);
                steps(map, &claim).into_iter().filter(leads).for_each(|step| go(tokens + 1, step));
            }
            PathToken::Deep => {
                if depth < DEEP_MAX {
                    steps(map, &claim).into_iter().for_each(|step| go(tokens, step));
                }
                pending.push_front((tokens + 1, depth, claim));
            }
        }
    }
    if found.is_empty() { Err(furthest) } else { Ok(found) }
}

/// Replaces every pure reference in a claim by its target.
fn resolved(map: &SchemaMap, claim: Claim) -> Claim {
    match claim {
        Claim::Anything | Claim::Nothing => claim,
        Claim::Of(mut id) => {
            // Bounded by the number of subschemas, because references may form a cycle.
            for _ in 0..map.len() {
                let node = map.node(id);
                match node.refs[..] {
                    [ref targets]
                        if targets.len() == 1
                            && !node.outside
                            && node.objects
                            && node.arrays
                            && node.children.is_empty() =>
                    {
                        id = targets[0];
                    }
                    _ => break,
                }
            }
            Claim::Of(id)
        }
        Claim::All(parts) => Claim::all(parts.into_iter().map(|part| resolved(map, part))),
        Claim::Any(parts) => Claim::any(parts.into_iter().map(|part| resolved(map, part))),
    }
}

/// Returns the answer for an illegal place, with the legal names below its longest legal prefix.
fn illegal(map: &SchemaMap, legal_prefix: String, furthest: &Furthest) -> Location {
    let (mut known, mut patterns) = (BTreeSet::new(), BTreeSet::new());
    for claim in &furthest.claims {
        let ids = subschemas(map, claim);
        let elements: BTreeMap<String, Step<'_>> =
            indices(map, &ids).map(|index| (index.to_string(), Step::Index(index))).collect();
        let elements = elements.iter().map(|(name, step)| (name.as_str(), *step));
        let mut sources: Vec<Box<dyn Iterator<Item = Named<'_>>>> =
            vec![Box::new(elements), Box::new(std::iter::once(("-", Step::Element)))];
        for id in &ids {
            sources.push(Box::new(map.node(*id).names().map(|name| (name, Step::Name(name)))));
        }
        known.extend(first_legal(map, claim, in_order(sources)));
        let matching = expressions(map, &ids).into_iter().map(|pattern| (pattern, Step::Matching(pattern)));
        patterns.extend(first_legal(map, claim, matching));
    }
    let some = |names: BTreeSet<String>| names.into_iter().take(KNOWN_MAX).collect();
    Location::Illegal { legal_prefix, known: some(known), patterns: some(patterns) }
}

/// A step, and its name in an answer.
type Named<'n> = (&'n str, Step<'n>);

/// Returns the first legal names, as many as an answer lists.
fn first_legal<'n>(map: &SchemaMap, claim: &Claim, named: impl Iterator<Item = Named<'n>>) -> BTreeSet<String> {
    let is_legal = |(_, step): &Named<'_>| descend(map, claim, *step) != Claim::Nothing;
    let mut legal = BTreeSet::new();
    for (name, _) in named.filter(is_legal) {
        legal.insert(name.to_owned());
        if legal.len() == KNOWN_MAX {
            break;
        }
    }
    legal
}

/// Merges sorted sources without duplicates; an answer needs only the first of many names.
fn in_order<'n>(mut sources: Vec<Box<dyn Iterator<Item = Named<'n>> + 'n>>) -> impl Iterator<Item = Named<'n>> {
    let firsts = sources.iter_mut().enumerate().filter_map(|(from, source)| Some(Reverse((source.next()?, from))));
    let mut heads: BinaryHeap<_> = firsts.collect();
    let mut last = None;
    std::iter::from_fn(move || {
        loop {
            let Reverse((named, from)) = heads.pop()?;
            heads.extend(sources[from].next().map(|next| Reverse((next, from))));
            if last.replace(named) != Some(named) {
                return Some(named);
            }
        }
    })
}

/// Returns the subschemas of a claim, and all that apply to the same places.
fn subschemas(map: &SchemaMap, claim: &Claim) -> BTreeSet<Id> {
    let mut ids = BTreeSet::new();
    claim.ids(&mut ids);
    ids.into_iter().flat_map(|id| map.closure(id)).collect()
}

/// Iterates over the indices of individually described elements.
fn indices<'m>(map: &'m SchemaMap, ids: &'m BTreeSet<Id>) -> impl Iterator<Item = usize> + 'm {
    ids.iter().flat_map(|id| map.node(*id).others()).filter_map(|(role, _)| match role {
        Role::Prefix(index) => Some(*index),
        _ => None,
    })
}

/// Returns the regular expressions by which the subschemas describe members.
fn expressions<'m>(map: &'m SchemaMap, ids: &BTreeSet<Id>) -> BTreeSet<&'m str> {
    let others = ids.iter().flat_map(|id| map.node(*id).others());
    let expressions = others.filter_map(|(role, _)| match role {
        Role::Pattern(pattern) => Some(pattern.as_str()),
        _ => None,
    });
    expressions.collect()
}

/// Returns one step of each kind that the subschemas of a claim distinguish.
fn steps<'a>(map: &'a SchemaMap, claim: &Claim) -> Vec<Step<'a>> {
    let ids = subschemas(map, claim);
    let names: BTreeSet<&str> = ids.iter().flat_map(|id| map.node(*id).names()).collect();
    map.spend(names.len());
    let named = names.into_iter().map(Step::Name).chain(expressions(map, &ids).into_iter().map(Step::Matching));
    named.chain([Step::Other, Step::Element]).collect()
}

/// Returns true if a claim permits a value of a kind.
fn admits(map: &SchemaMap, claim: &Claim, kind: fn(&Node) -> bool) -> bool {
    match claim {
        Claim::Anything => true,
        Claim::Nothing => false,
        Claim::Of(id) => has_room(map, *id, kind, &mut BTreeMap::new()),
        Claim::All(parts) => parts.iter().all(|part| admits(map, part, kind)),
        Claim::Any(parts) => parts.iter().any(|part| admits(map, part, kind)),
    }
}

/// Returns true if a value of a kind may satisfy a subschema, judged by its explicit types.
fn has_room(map: &SchemaMap, id: Id, kind: fn(&Node) -> bool, done: &mut BTreeMap<Id, bool>) -> bool {
    if let Some(&known) = done.get(&id) {
        return known;
    }
    done.insert(id, true);
    let node = map.node(id);
    let mut ask = |id: Id| has_room(map, id, kind, done);
    let has_room = kind(node)
        && !node.never
        && node.refs.iter().all(|targets| targets.iter().any(|&target| ask(target)))
        && node.each(&Role::AllOf).all(&mut ask)
        && [Role::AnyOf, Role::OneOf]
            .iter()
            .all(|choice| node.one(choice).is_none() || node.each(choice).any(&mut ask));
    done.insert(id, has_room);
    has_room
}
