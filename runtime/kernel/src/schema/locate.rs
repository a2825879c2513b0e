//! Asks a schema which places it has.
//!
//! Walking down a path turns what a schema claims of the root into what it claims of the place: a [`Claim`], an and-or
//! expression over subschemas. A place is legal unless the claim is [`Claim::Nothing`]. The answer errs on the side of
//! "legal" (`not`, `propertyNames` and the values of siblings are not considered), because every candidate is
//! validated afterwards; it exists so that a misspelt path is refused with the names that would have been right.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use jsonptr::Pointer;

use super::Location;
use super::claim::{Claim, Furthest};
use super::map::{Id, Node, Role, SchemaMap};
use crate::pattern::{Pattern, PatternToken, is_index};

/// The most steps of one search; places beyond are taken to be legal.
const STEPS_MAX: usize = 20_000;
/// The steps of a check that it takes to look at one place, and at one subschema there.
const PLACE_STEPS: usize = 10;
const VERDICT_STEPS: usize = 60;
/// The deepest place that `**` is searched for.
const DEEP_MAX: usize = 64;
/// The most names that an answer lists.
const KNOWN_MAX: usize = 64;

/// Whether a place is one that the schema names plainly: by `properties` and `items`, through references with one
/// target. Says no of whatever needs more thought; [`locate_pointer`] thinks.
pub(super) fn is_plain(map: &SchemaMap, place: &Pointer) -> bool {
    /// References that are followed on one value.
    const REFERENCES_MAX: usize = 16;
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
                // Beside a reference there may be more that restricts the value.
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

/// The names that a closed object may have.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Names {
    /// Those that are written somewhere.
    pub(crate) known: BTreeSet<String>,
    /// Regular expressions, not anchored, of which others match one.
    pub(crate) patterns: BTreeSet<String>,
}

/// One token down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Step<'a> {
    /// The member of this name.
    Name(&'a str),
    /// Some member whose name matches this expression and is otherwise unknown.
    Matching(&'a str),
    /// Some member whose name is unknown.
    Other,
    /// The element at this index.
    Index(usize),
    /// Some element, or the one that is appended.
    Element,
}

/// What a subschema says of a child: `seen` where some keyword of its own governs it, `unseen` where none does, so that
/// an `unevaluated…` keyword around it still may.
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

/// What a schema says of the places that a pattern matches.
pub(super) fn locate(map: &SchemaMap, pattern: &Pattern) -> Location {
    let wanted = pattern.tokens().iter().map(Wanted::from).collect::<Vec<_>>();
    match claims(map, &wanted, Kinds::All) {
        Ok(claims) => legal(map, &claims),
        Err(furthest) => illegal(map, pattern.prefix(furthest.tokens).to_string(), &furthest),
    }
}

/// What a schema says of one place.
pub(super) fn locate_pointer(map: &SchemaMap, place: &Pointer) -> Location {
    let tokens = place.tokens().map(|token| token.decoded().into_owned()).collect::<Vec<_>>();
    let wanted = tokens.iter().map(|token| Wanted::Exactly(token)).collect::<Vec<_>>();
    match claims(map, &wanted, Kinds::All) {
        Ok(claims) => legal(map, &claims),
        Err(furthest) => {
            let prefix = jsonptr::PointerBuf::from_tokens(&tokens[..furthest.tokens]);
            illegal(map, prefix.to_string(), &furthest)
        }
    }
}

/// What a schema claims of the places that a pattern matches, legal ones only; none if there is none.
pub(super) fn claims_of(map: &SchemaMap, pattern: &Pattern) -> BTreeSet<Claim> {
    let wanted = pattern.tokens().iter().map(Wanted::from).collect::<Vec<_>>();
    claims(map, &wanted, Kinds::All).unwrap_or_default()
}

/// Whether a schema leaves room for arrays at the places that a pattern matches; also if it has no such places.
pub(super) fn may_be_array(map: &SchemaMap, pattern: &Pattern) -> bool {
    let claims = claims_of(map, pattern);
    claims.is_empty() || claims.iter().any(|claim| admits(map, claim, |node| node.arrays))
}

/// Whether a schema leaves room for objects at the places that a pattern matches; also if it has no such places.
pub(super) fn may_be_object(map: &SchemaMap, pattern: &Pattern) -> bool {
    let claims = claims_of(map, pattern);
    claims.is_empty() || claims.iter().any(|claim| admits(map, claim, |node| node.objects))
}

/// Whether a schema says of the places that a pattern matches that numbers with a fraction may stand there.
pub(super) fn says_number(map: &SchemaMap, pattern: &Pattern) -> bool {
    claims_of(map, pattern).iter().any(|claim| claims_number(map, claim))
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

/// Whether a subschema says number, itself or by what it is made of; of several choices, one that leaves room for it.
fn is_number(map: &SchemaMap, id: Id, asked: &mut BTreeSet<Id>) -> bool {
    let node = map.node(id);
    if !asked.insert(id) {
        return false;
    }
    let mut ask = |id: Id| is_number(map, id, asked) && has_room(map, id, |node| node.fractions, &mut BTreeMap::new());
    node.numbers
        || node.refs.iter().flatten().any(|&target| ask(target))
        || [Role::AllOf, Role::AnyOf, Role::OneOf].iter().any(|role| node.each(role).any(&mut ask))
}

/// The names that the members of an object at a place may have; none if they are free.
pub(super) fn names_at(map: &SchemaMap, place: &Pointer) -> Option<Names> {
    let tokens = place.tokens().map(|token| token.decoded().into_owned()).collect::<Vec<_>>();
    let wanted = tokens.iter().map(|token| Wanted::Exactly(token)).collect::<Vec<_>>();
    let claims = claims(map, &wanted, Kinds::All).ok()?;
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

/// The names of members that a subschema and what it applies in place know.
pub(super) fn names(map: &SchemaMap, id: Id) -> BTreeSet<&str> {
    map.closure(id).into_iter().flat_map(|id| map.node(id).names()).collect()
}

fn legal(map: &SchemaMap, claims: &BTreeSet<Claim>) -> Location {
    let mut ids = BTreeSet::new();
    claims.iter().for_each(|claim| claim.ids(&mut ids));
    Location::Legal(ids.into_iter().map(|id| map.node(id).pointer.clone()).collect())
}

/// What a token of a path must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted<'a> {
    /// This token of a path: a name, an index where it can be one, the append position if it is `-`.
    Exactly(&'a str),
    Any,
    Append,
    Deep,
}

impl<'a> From<&'a PatternToken> for Wanted<'a> {
    fn from(token: &'a PatternToken) -> Self {
        match token {
            PatternToken::Literal(name) => Self::Exactly(name),
            PatternToken::Any | PatternToken::Bound(_) => Self::Any,
            PatternToken::Append => Self::Append,
            PatternToken::Deep => Self::Deep,
        }
    }
}

/// Steps that a wildcard stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kinds {
    /// Members and elements, wherever both may be.
    All,
    /// Elements alone where a schema without a type speaks of elements alone, and members in the same way.
    Meant,
}

/// Returns true if the schema describes all that may be at the places of a pattern, without a neighbour of `$ref` that its draft
/// ignores. Where it names no type, what it speaks of is meant: members or elements.
pub(super) fn is_described(map: &SchemaMap, pattern: &Pattern) -> bool {
    let wanted = pattern.tokens().iter().map(Wanted::from).collect::<Vec<_>>();
    let Ok(claims) = claims(map, &wanted, Kinds::Meant) else { return false };
    claims.iter().all(|claim| {
        *claim != Claim::Anything && !subschemas(map, claim).into_iter().any(|id| map.node(id).hides_siblings)
    })
}

/// Returns true if the subschemas of a claim speak of elements, false if they speak of members; none if they speak of both or
/// neither.
fn speaks_of_elements(map: &SchemaMap, claim: &Claim) -> Option<bool> {
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

/// The claims at the places that the tokens lead to.
fn claims(map: &SchemaMap, wanted: &[Wanted<'_>], kinds: Kinds) -> Result<BTreeSet<Claim>, Furthest> {
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
        // On the way, references to one schema are that schema; at the end, what stands beside them counts.
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
        // Where anything goes, so does the rest of the path.
        let Some(next) = wanted.get(tokens).filter(|_| claim != Claim::Anything) else {
            found.insert(claim);
            continue;
        };
        let mut go = |to: usize, step: Step<'_>| {
            taken += 1;
            pending.push_back((to, depth + 1, descend(map, &claim, step)));
        };
        match *next {
            Wanted::Exactly(token) => {
                go(tokens + 1, Step::Name(token));
                if token == "-" {
                    go(tokens + 1, Step::Element);
                } else if is_index(token) {
                    // An index too large to count is beyond every prefix.
                    go(tokens + 1, Step::Index(token.parse().unwrap_or(usize::MAX)));
                }
            }
            Wanted::Append => go(tokens + 1, Step::Element),
            Wanted::Any => {
                let meant = if kinds == Kinds::All { None } else { speaks_of_elements(map, &claim) };
                let is_element = |step: &Step<'_>| matches!(step, Step::Element | Step::Index(_));
                let leads = |step: &Step<'_>| meant.is_none_or(|meant| is_element(step) == meant);
                steps(map, &claim).into_iter().filter(leads).for_each(|step| go(tokens + 1, step));
            }
            Wanted::Deep => {
                if depth < DEEP_MAX {
                    steps(map, &claim).into_iter().for_each(|step| go(tokens, step));
                }
                pending.push_front((tokens + 1, depth, claim));
            }
        }
    }
    if found.is_empty() { Err(furthest) } else { Ok(found) }
}

/// The same claim with every subschema that only refers to another replaced by that one.
fn resolved(map: &SchemaMap, claim: Claim) -> Claim {
    match claim {
        Claim::Anything | Claim::Nothing => claim,
        Claim::Of(mut id) => {
            // As often as there are subschemas at most: references may go in a circle.
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

/// The answer for a place that is not legal, with the names below the furthest place that are.
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

/// A step, and the name by which an answer lists it.
type Named<'n> = (&'n str, Step<'n>);

/// The first names whose steps a claim allows, as many as an answer lists.
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

/// Merges sources, each in the order of names, and leaves repetitions out: an answer needs the first names of many.
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

/// The subschemas of a claim, and all that judge the same places.
fn subschemas(map: &SchemaMap, claim: &Claim) -> BTreeSet<Id> {
    let mut ids = BTreeSet::new();
    claim.ids(&mut ids);
    ids.into_iter().flat_map(|id| map.closure(id)).collect()
}

/// The elements that subschemas describe one by one.
fn indices<'m>(map: &'m SchemaMap, ids: &'m BTreeSet<Id>) -> impl Iterator<Item = usize> + 'm {
    ids.iter().flat_map(|id| map.node(*id).others()).filter_map(|(role, _)| match role {
        Role::Prefix(index) => Some(*index),
        _ => None,
    })
}

/// The regular expressions by which subschemas describe members.
fn expressions<'m>(map: &'m SchemaMap, ids: &BTreeSet<Id>) -> BTreeSet<&'m str> {
    let others = ids.iter().flat_map(|id| map.node(*id).others());
    let expressions = others.filter_map(|(role, _)| match role {
        Role::Pattern(pattern) => Some(pattern.as_str()),
        _ => None,
    });
    expressions.collect()
}

/// One step of each kind that the subschemas of a claim tell apart.
fn steps<'a>(map: &'a SchemaMap, claim: &Claim) -> Vec<Step<'a>> {
    let ids = subschemas(map, claim);
    let names: BTreeSet<&str> = ids.iter().flat_map(|id| map.node(*id).names()).collect();
    map.spend(names.len());
    let named = names.into_iter().map(Step::Name).chain(expressions(map, &ids).into_iter().map(Step::Matching));
    named.chain([Step::Other, Step::Element]).collect()
}

/// What a claim about a place says of a child of the place.
fn descend(map: &SchemaMap, claim: &Claim, step: Step<'_>) -> Claim {
    match claim {
        Claim::Anything => Claim::Anything,
        Claim::Nothing => Claim::Nothing,
        Claim::Of(id) => verdict(map, *id, step, &mut BTreeMap::new()).whole(),
        Claim::All(parts) => Claim::all(parts.iter().map(|part| descend(map, part, step))),
        Claim::Any(parts) => Claim::any(parts.iter().map(|part| descend(map, part, step))),
    }
}

/// What a subschema, and all it applies in place, says of a child. `done` holds what is known already; a circle of
/// references has no opinion where it closes.
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
    // What is unknown may govern the child as well as not.
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

/// What the keywords for objects say of a member.
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

/// What the keywords for arrays say of an element.
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
    // Some element: one of the prefix, or one after it.
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

/// What a subschema claims of the place it judges.
fn claim_of(map: &SchemaMap, id: Id) -> Claim {
    if map.node(id).anything {
        Claim::Anything
    } else if map.is_impossible(id, || is_impossible(map, id, &mut BTreeMap::new())) {
        Claim::Nothing
    } else {
        Claim::Of(id)
    }
}

/// Whether a claim leaves room for a value of a kind.
fn admits(map: &SchemaMap, claim: &Claim, kind: fn(&Node) -> bool) -> bool {
    match claim {
        Claim::Anything => true,
        Claim::Nothing => false,
        Claim::Of(id) => has_room(map, *id, kind, &mut BTreeMap::new()),
        Claim::All(parts) => parts.iter().all(|part| admits(map, part, kind)),
        Claim::Any(parts) => parts.iter().any(|part| admits(map, part, kind)),
    }
}

/// Whether a value of a kind may satisfy a subschema, as far as types are written somewhere.
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

/// Whether nothing satisfies a subschema, as far as `false` is written somewhere.
fn is_impossible(map: &SchemaMap, id: Id, done: &mut BTreeMap<Id, bool>) -> bool {
    if let Some(&known) = done.get(&id) {
        return known;
    }
    done.insert(id, false);
    let node = map.node(id);
    let mut ask = |id: Id| is_impossible(map, id, done);
    let impossible = node.never
        || node.refs.iter().any(|targets| targets.iter().all(|&target| ask(target)))
        || node.each(&Role::AllOf).any(&mut ask)
        || [Role::AnyOf, Role::OneOf]
            .iter()
            .any(|choice| node.one(choice).is_some() && node.each(choice).all(&mut ask));
    done.insert(id, impossible);
    impossible
}
