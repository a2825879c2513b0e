//! Invariants that cost more than a patch touches: they are evaluated for every instance after a change of shared data,
//! or scan a whole collection. The kernel's evaluation rules are in [`patchboard_kernel::invariant`].

use std::collections::BTreeSet;

use serde_json::Value;

use super::cached_schema::CachedSchema;
use super::schema_keywords::is_closed;
use super::{Expression, GrantedWrite, Linter};
use patchboard_kernel::blueprint::GrantOp;
use patchboard_kernel::expr::Reference;
use patchboard_kernel::expressions::push_token;
use patchboard_kernel::expressions::{ExpressionOwner, place, request_part};
use patchboard_kernel::invariant::shared_references;
use patchboard_kernel::pattern::{Pattern, PatternToken};
use patchboard_kernel::schema::{Location, SMALL_COLLECTION_MAX};

/// Maximum length of a chain of schema references that is followed.
const REFERENCES_MAX: usize = 8;
/// Maximum places of the initial state checked for the initial size of a collection.
const PLACES_MAX: usize = 1000;

impl Linter<'_> {
    /// Warns of invariants with an evaluation cost that grows with the board.
    pub(super) fn invariants(&self) {
        for expression in &self.expressions {
            if let Some((message, help)) = self.costly(expression) {
                self.report("costly_invariant", &expression.pointer, message, help);
            }
        }
    }

    /// Returns message and help if an invariant is costly.
    fn costly(&self, expression: &Expression<'_>) -> Option<(String, String)> {
        let ExpressionOwner::Invariant(invariant) = expression.owner else { return None };
        let expr = &expression.expr;
        let guard = expr.guard().and_then(|guard| place(&guard, expression.owner, self.paths));
        if guard.is_some_and(|guard| self.comes_once(&guard)) {
            return None;
        }
        let each = invariant.each.as_deref().and_then(|each| Pattern::parse(each).ok());
        let every = each.filter(|each| self.has_many(each)).and_then(|each| {
            let when = self.when(shared_references(expr))?;
            Some(format!("is evaluated for every `{each}` {when}"))
        });
        let is_always = expr.references().iter().any(is_new_each_time);
        let looks = expr.lookups();
        let searched = looks.iter().filter(|look| look.is_searched);
        let searched = searched.filter_map(|look| Some((place(look, expression.owner, self.paths)?, look.is_range)));
        let long = searched.filter(|(place, is_range)| self.is_long(place, *is_range, is_always));
        let long: BTreeSet<String> = long.map(|(place, _)| place.to_string()).collect();
        let through = format!("looks through the whole of {}", listed(&long, "and"));
        let name = &invariant.name;
        let bound = format!("of at most {SMALL_COLLECTION_MAX}");
        match (every, long.first()) {
            (None, None) => None,
            (Some(every), None) => Some((
                format!("`{name}` {every}; nothing bounds their number"),
                format!(
                    "Let it refer to `self` alone, or give the collection a `maxItems` or `maxProperties` {bound}."
                ),
            )),
            (Some(every), Some(_)) => Some((
                format!("`{name}` {every}, and {through} each time; nothing bounds their number"),
                format!(
                    "Let it refer to `self` alone, or give the collections a `maxItems` or `maxProperties` {bound}."
                ),
            )),
            (None, Some(first)) => {
                let when = if is_always { "at every commit" } else { "whenever something in it changes" };
                let help = format!(
                    "Say it of each element (`for: {first}/*`), or give the collection a `maxItems` or `maxProperties` {bound}."
                );
                Some((format!("`{name}` {through} {when}; nothing bounds its size"), help))
            }
        }
    }

    /// Returns true if a place is empty at first and is written once, like a typical board result.
    fn comes_once(&self, place: &Pattern) -> bool {
        let adds = |write: &GrantedWrite<'_>| write.grant.ops.iter().all(|op| *op == GrantOp::Add);
        let mut changes = self.writes().filter(|(_, write)| write.pattern.overlaps(place));
        !self.is_there_at_first(place) && changes.all(|(_, write)| adds(write))
    }

    /// Describes when referenced data changes; `None`: never.
    fn when<'r>(&self, references: impl Iterator<Item = &'r Reference>) -> Option<String> {
        let mut causes = BTreeSet::new();
        for reference in references {
            let place = place_of(reference);
            if is_new_each_time(reference) || place.is_empty() {
                return Some("at every commit".to_owned());
            }
            let is_changed = |pattern: &Pattern| self.writes().any(|(_, write)| meets(pattern, write));
            if Pattern::parse(&place).is_ok_and(|pattern| is_changed(&pattern)) {
                causes.insert(place);
            }
        }
        (!causes.is_empty()).then(|| format!("whenever {} changes", listed(&causes, "or")))
    }

    /// Returns true if the number of places that a pattern matches is unbounded.
    fn has_many(&self, each: &Pattern) -> bool {
        (0..).zip(each.tokens()).any(|(above, token)| match token {
            PatternToken::Literal(_) => false,
            PatternToken::Deep => true,
            PatternToken::Any | PatternToken::Append | PatternToken::Bound(_) => {
                let collection = each.prefix(above);
                self.schema_of(&collection).is_some_and(|(schema, sought, _)| !keeps_few(schema, &sought))
                    && !self.stays_few(&collection)
            }
        })
    }

    /// Returns true if a collection may become long while small writes trigger an invariant that scans it. With
    /// `is_always`, each write triggers it. Members of an object are looked up, unless a loop iterates over them.
    fn is_long(&self, array: &Pattern, is_range: bool, is_always: bool) -> bool {
        let Some((schema, sought, _)) = self.schema_of(array) else { return false };
        // If it is only written as a whole, the write costs as much.
        let is_written_into = self.writes().any(|(_, write)| array.lies_above(&write.pattern));
        (schema.may_be_array(&sought) || (is_range && schema.may_be_object(&sought)))
            && !keeps_few(schema, &sought)
            && (is_written_into || is_always)
            && !self.stays_few(array)
    }

    /// Returns true if a collection is small at first, and all commits together cannot make it large.
    fn stays_few(&self, collection: &Pattern) -> bool {
        if request_part(&collection.to_string()).is_some() {
            return false;
        }
        let mut growth: u64 = 0;
        for (worker, write) in self.writes() {
            if collection.collides(&write.pattern) || write.pattern.lies_above(collection) {
                return false;
            }
            let elements = write.pattern.prefix(write.pattern.tokens().len().saturating_sub(1));
            if collection.collides(&elements) && adds(write) {
                let ops = self.blueprint.workers.get(worker).map_or(u32::MAX, |worker| worker.patch.max_ops);
                growth = growth.max(ops.into());
            }
        }
        let initial = &self.blueprint.state.initial;
        let places = collection.instances_of_value(initial, PLACES_MAX);
        let sizes = places.iter().filter_map(|place| initial.pointer(place.as_str())).map(|value| match value {
            Value::Array(items) => items.len(),
            Value::Object(members) => members.len(),
            _ => 0,
        });
        let first = sizes.max().and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
        growth.saturating_mul(self.blueprint.limits.commits).saturating_add(first) <= SMALL_COLLECTION_MAX
    }
}

/// Returns true if the schema bounds the number of elements or members, or allows no such place.
fn keeps_few(schema: &CachedSchema, collection: &Pattern) -> bool {
    let Location::Legal(fragments) = schema.locate(collection) else { return true };
    let document = schema.document();
    let referred = |fragment: &&'_ Value| document.pointer(fragment.get("$ref")?.as_str()?.strip_prefix('#')?);
    let stated = fragments.iter().filter_map(|fragment| document.pointer(fragment));
    // Follows references, because a schema and its definition may each set the bound.
    let mut stated = stated.flat_map(|fragment| std::iter::successors(Some(fragment), referred).take(REFERENCES_MAX));
    stated.any(|fragment| {
        let at_most = |keyword: &str| {
            fragment.get(keyword).and_then(Value::as_u64).is_some_and(|most| most <= SMALL_COLLECTION_MAX)
        };
        at_most("maxItems") || at_most("maxProperties") || is_closed(fragment)
    })
}

/// Returns true for variables with a new value at each commit.
fn is_new_each_time(reference: &Reference) -> bool {
    matches!(reference.variable, "before" | "patch")
}

/// Returns the place in the document; empty for the whole document.
fn place_of(reference: &Reference) -> String {
    let mut place = if reference.variable == "request" { "/request".to_owned() } else { String::new() };
    reference.path.iter().for_each(|name| push_token(&mut place, name));
    place
}

/// Returns true if a write can change data at, above or below a place.
fn meets(place: &Pattern, write: &GrantedWrite<'_>) -> bool {
    place.collides(&write.pattern) || place.lies_above(&write.pattern) || write.pattern.lies_above(place)
}

pub(super) fn adds(write: &GrantedWrite<'_>) -> bool {
    write.grant.ops.iter().any(|op| matches!(op, GrantOp::Add | GrantOp::Insert | GrantOp::Move | GrantOp::Copy))
}

fn listed(places: &BTreeSet<String>, last: &str) -> String {
    let name = |place: &String| if place.is_empty() { "the state".to_owned() } else { format!("`{place}`") };
    let named: Vec<String> = places.iter().map(name).collect();
    named.join(&format!(" {last} "))
}
