//! Writes that cost more than they change: keywords that span a collection, and elements that shift.

use std::collections::BTreeMap;

use jsonptr::PointerBuf;
use serde_json::Value;

use super::Linter;
use super::cached_schema::CachedSchema;
use crate::diagnostic::Position;
use patchboard_kernel::blueprint::GrantOp;
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::pattern::{Pattern, PatternToken, is_index};
use patchboard_kernel::schema::{Cost, Location, SMALL_COLLECTION_MAX, StateSchema};

/// An opaque place: a write in it validates more than it touches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpaquePlace {
    /// Place, keyword and reason; the pointer is one into the blueprint.
    pub cost: Cost,
    /// Position in the source, if there is one.
    pub position: Option<Position>,
    /// The fragment that `position` is in; `None` for the blueprint's own file.
    pub file: Option<String>,
    /// The workers that may write there.
    pub writers: Vec<WorkerName>,
}

impl Linter<'_> {
    /// Lists the opaque places, and warns of writable ones where each write scans an unbounded collection.
    pub(super) fn costs(&mut self) {
        let state = &self.blueprint.state;
        let Ok(schema) = StateSchema::compile(&state.schema, state.assert_formats) else { return };
        self.opaque = schema.costs().into_iter().map(|cost| self.opaque(cost)).collect();
        // One finding for all keywords of one schema that scan the same collection.
        let mut grouped: BTreeMap<(String, String, String), Vec<Cost>> = BTreeMap::new();
        for OpaquePlace { cost, .. } in self.opaque.iter().filter(|opaque| !opaque.writers.is_empty()) {
            let Some(collection) = cost.collection.clone() else { continue };
            let owner = cost.pointer.rsplit_once('/').map_or("", |(owner, _)| owner).to_owned();
            grouped.entry((cost.place.clone(), collection, owner)).or_default().push(cost.clone());
        }
        for ((place, collection, _), costs) in grouped {
            let Some(first) = costs.first() else { continue };
            let mut keywords: Vec<String> = costs.iter().map(|cost| format!("`{}`", cost.keyword)).collect();
            keywords.dedup();
            let under = if place.is_empty() { "any write".to_owned() } else { format!("a write under `{place}`") };
            let through = if collection.is_empty() { "document".to_owned() } else { format!("`{collection}`") };
            let message = format!(
                "{under} makes validation go through the whole {through} because of {}; nothing bounds its size",
                keywords.join(", ")
            );
            self.report("costly_schema", &first.pointer, message, help(&first.keyword));
        }
    }

    fn opaque(&self, cost: Cost) -> OpaquePlace {
        let pointer = format!("/state/schema{}", cost.pointer);
        OpaquePlace {
            position: self.source.position(&pointer),
            file: self.source.fragment(&pointer).map(str::to_owned),
            writers: self.writers_of(&cost.place),
            cost: Cost { pointer, ..cost },
        }
    }

    /// Warns of grants to insert or remove in the middle of an unbounded array: all later elements are rechunked.
    pub(super) fn shifts(&self) {
        let Some(schema) = &self.schema else { return };
        for (_, write) in self.writes() {
            let shifts = [GrantOp::Insert, GrantOp::Remove].iter().any(|op| write.grant.ops.contains(op));
            let above = match write.pattern.tokens().split_last() {
                Some((PatternToken::Any, above)) => above,
                // A name that is no index names a member.
                Some((PatternToken::Literal(last), above)) if is_index(last) => above,
                _ => continue,
            };
            let array = write.pattern.prefix(above.len());
            let is_list = schema.may_be_array(&array) && !self.is_kept_as_object(schema, &array);
            if shifts && is_list && !is_bounded(schema, &array) {
                let message = format!(
                    "inserting or removing in the middle of `{array}` costs as much as there is behind it; nothing bounds \
                     its size"
                );
                let help = format!(
                    "Give the array a `maxItems` of at most {SMALL_COLLECTION_MAX}, mark elements instead of removing \
                     them, or keep them as members of an object."
                );
                self.report("costly_shift", &format!("{}/ops", write.pointer), message, help);
            }
        }
    }

    /// Returns true if a place is meant to hold an object although its schema names no type. Then the schema describes
    /// members, or the initial document has an object there.
    fn is_kept_as_object(&self, schema: &CachedSchema, place: &Pattern) -> bool {
        let fragment = schema.fragment(place).unwrap_or_default();
        let has = |keywords: &[&str]| keywords.iter().any(|keyword| fragment.get(keyword).is_some());
        let is_of_members =
            has(&["properties", "additionalProperties", "patternProperties"]) && !has(&["items", "prefixItems"]);
        let initial = &self.blueprint.state.initial;
        let is_object = |at: &PointerBuf| at.resolve(initial).is_ok_and(Value::is_object);
        is_of_members || self.initial.first(&place.under_any_binding()).as_ref().is_some_and(is_object)
    }

    /// Returns the workers that may write at or below a place.
    fn writers_of(&self, place: &str) -> Vec<WorkerName> {
        let place = Pattern::parse(place).ok();
        let reaches =
            |grant: &Pattern| place.as_ref().is_none_or(|place| place.collides(grant) || place.lies_above(grant));
        let mut writers: Vec<WorkerName> =
            self.writes().filter(|(_, write)| reaches(&write.pattern)).map(|(name, _)| name.clone()).collect();
        writers.dedup();
        writers
    }
}

/// Returns true if the schema bounds the number of elements at a place, or says that it is an object.
fn is_bounded(schema: &CachedSchema, place: &Pattern) -> bool {
    let Location::Legal(fragments) = schema.locate(place) else { return true };
    let says = |keyword: &str, fragment: &String| schema.document().pointer(fragment)?.get(keyword).cloned();
    fragments.iter().any(|fragment| {
        says("maxItems", fragment).and_then(|most| most.as_u64()).is_some_and(|most| most <= SMALL_COLLECTION_MAX)
            || says("type", fragment).is_some_and(|kind| kind == "object")
    })
}

fn help(keyword: &str) -> String {
    let bound = format!("Give the collection a `maxItems` or `maxProperties` of at most {SMALL_COLLECTION_MAX}");
    match keyword {
        "contains" => format!("{bound}, or say it in an invariant."),
        "uniqueItems" => format!("{bound}, or keep the elements as members of an object, whose names are unique."),
        "unevaluatedProperties" => format!("{bound}, or name the members and use `additionalProperties`."),
        "unevaluatedItems" => format!("{bound}, or use `items`."),
        "$id" | "$ref" | "$dynamicRef" | "$recursiveRef" => {
            "Refer to parts of the document by `#/$defs/…`, without `$id`, dynamic references or circles.".to_owned()
        }
        _ => format!("{bound}, or move the keyword to the schema of the elements."),
    }
}
