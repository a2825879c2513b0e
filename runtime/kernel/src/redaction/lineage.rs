//! Lineage of values: the commit that wrote each value, and all its places since.
//!
//! A shadow document follows the records. It has a number in place of every scalar, for the write that put it there.
//! Moves, copies and shifts move the numbers, so the numbers at a place identify its values, independent of author and
//! history.

use std::collections::{BTreeMap, BTreeSet};

use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use super::edits::{self, FileRelation, each_scalar, file_relation};
use super::text_search::{CHARS_MIN, Needles, mentions};
use super::{Request, names};
use crate::blueprint::Blueprint;
use crate::board::initial;
use crate::files::FILES;
use crate::id::Version;
use crate::json;
use crate::placeholder::is_placeholder;
use crate::record::{Body, Record};

/// Maximum digits of an array index: a board holds no larger arrays.
const INDEX_DIGITS_MAX: usize = 6;

/// Selection of the values to redact.
#[derive(Default)]
pub(super) struct Lineage {
    /// By write number.
    erased: Vec<bool>,
    /// By write number: true for the board's own data about files, which reveals nothing of their content.
    board_owned: Vec<bool>,
    /// By requested place: the numbers that were ever there, with the version of their first occurrence.
    seen: Vec<BTreeMap<u32, Version>>,
    /// By requested place: the names of members that were ever there, including the place's own name.
    names: Vec<BTreeMap<String, Version>>,
    /// Names of members that requested records wrote, that requested places end with, or that patches without effect
    /// had at these places.
    requested_names: BTreeSet<String>,
    /// All names that the document ever had.
    all_names: BTreeSet<String>,
    /// The names among them that contain a redacted text, if these are redacted.
    quoting_names: BTreeSet<String>,
    /// Names at the end of requested places that the document also uses elsewhere.
    kept_names: BTreeSet<String>,
    /// Write numbers of values that were redacted before.
    marked: BTreeSet<u32>,
    /// Names of the last document: those of kept values, and those of redacted ones.
    final_names: (BTreeSet<String>, BTreeSet<String>),
    /// By requested place: the version of its last write as a whole.
    last_writes: Vec<Version>,
}

#[derive(Default)]
pub(super) struct Shadow {
    pub(super) document: Value,
    next: u32,
    /// Numbers of values that are placeholders already.
    marked: BTreeSet<u32>,
}

/// An operation as applied: its resolved target and source.
pub(super) struct TracedOp<'d> {
    pub(super) target: PointerBuf,
    pub(super) from: Option<PointerBuf>,
    /// The value that it writes, in numbers.
    value: Option<&'d Value>,
    /// The document before the operation.
    before: &'d Value,
}

impl Shadow {
    /// Returns the shape of a value with a number in place of each scalar.
    fn numbered(&mut self, value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(|item| self.numbered(item)).collect(),
            Value::Object(members) => {
                Value::Object(members.iter().map(|(name, member)| (name.clone(), self.numbered(member))).collect())
            }
            _ => {
                let number = self.next;
                self.next += 1;
                if value.as_str().is_some_and(is_placeholder) {
                    self.marked.insert(number);
                }
                number.into()
            }
        }
    }

    /// Starts with the first document.
    pub(super) fn begin(&mut self, document: &Value) {
        self.document = self.numbered(document);
    }

    /// Applies a patch. `each` receives every operation except tests, before it is applied.
    pub(super) fn patch(&mut self, patch: &Value, each: &mut dyn FnMut(&TracedOp)) -> Result<(), String> {
        let ops = operations(patch)?;
        for mut op in ops {
            let lands = resolve_target(&self.document, op.path());
            let (from, value) = match &mut op {
                PatchOperation::Test(_) => continue,
                PatchOperation::Add(AddOperation { value, .. })
                | PatchOperation::Replace(ReplaceOperation { value, .. }) => {
                    *value = self.numbered(value);
                    (None, Some(&*value))
                }
                PatchOperation::Move(op) => (Some(op.from.clone()), None),
                PatchOperation::Copy(op) => (Some(op.from.clone()), None),
                PatchOperation::Remove(_) => (None, None),
            };
            each(&TracedOp { target: lands, from, value, before: &self.document });
            json_patch::patch_unsafe(&mut self.document, &[op]).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

impl TracedOp<'_> {
    /// Returns the names of members that it creates.
    fn new_names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let is_new = self.value.is_some() || self.from.is_some();
        if is_new && value_at(self.before, &self.target).is_none() {
            names.extend(member_name(self.before, &self.target));
        }
        if let Some(value) = self.value {
            each_number(value, &mut |_| {}, &mut |name| names.extend([name.to_owned()]));
        }
        names
    }
}

/// Returns the name that a place has in its parent object; `None` for the root, for elements, and without a parent.
fn member_name(document: &Value, place: &Pointer) -> Option<String> {
    let (above, name) = place.split_back()?;
    value_at(document, above)?.is_object().then(|| name.decoded().into_owned())
}

/// Parses a stored patch.
pub(super) fn operations(patch: &Value) -> Result<Vec<PatchOperation>, String> {
    let mut patch = patch.clone();
    json::normalise(&mut patch);
    let ops: json_patch::Patch = serde_json::from_value(patch).map_err(|error| error.to_string())?;
    Ok(ops.0)
}

/// Returns the target of an operation: the append position becomes the index after the last.
fn resolve_target(document: &Value, path: &Pointer) -> PointerBuf {
    let mut lands = path.to_buf();
    if path.last().is_some_and(|last| last.encoded() == "-")
        && let Some(Value::Array(items)) = path.parent().and_then(|parent| value_at(document, parent))
    {
        lands.pop_back();
        lands.push_back(items.len());
    }
    lands
}

/// Returns true if an operation at `path` may change the value at `place`: neighbouring elements may shift.
fn may_change(place: &Pointer, path: &Pointer) -> bool {
    path.starts_with(place) || path.parent().is_none_or(|above| place.starts_with(above))
}

pub(super) fn value_at<'d>(document: &'d Value, place: &Pointer) -> Option<&'d Value> {
    document.pointer(place.as_str())
}

/// Visits every scalar of a shadow document, and every name.
pub(super) fn each_number(document: &Value, number: &mut dyn FnMut(u32), name: &mut dyn FnMut(&str)) {
    match document {
        Value::Array(items) => items.iter().for_each(|item| each_number(item, number, name)),
        Value::Object(members) => members.iter().for_each(|(key, member)| {
            name(key);
            each_number(member, number, name);
        }),
        Value::Number(scalar) => {
            if let Some(scalar) = scalar.as_u64().and_then(|scalar| u32::try_from(scalar).ok()) {
                number(scalar);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

impl Lineage {
    pub(super) fn trace(records: &[Record], request: &Request, is_over: bool) -> Result<Self, String> {
        let mut shadow = Shadow::default();
        let places = request.places.len();
        let mut traces = Self {
            seen: vec![BTreeMap::new(); places],
            names: vec![BTreeMap::new(); places],
            last_writes: vec![Version(0); places],
            ..Self::default()
        };
        let mut brought = Vec::new();
        let mut has_files = false;
        if !request.keep {
            let last = request.places.iter().filter_map(|place| place.last());
            traces.kept_names.extend(last.map(|name| name.decoded().into_owned()));
            traces.requested_names.extend(traces.kept_names.iter().cloned());
        }
        for record in records {
            let body = record.body().map_err(|error| error.to_string())?;
            names::proposed(record, body, request, &mut traces.requested_names);
            match body {
                Body::Created(created) => {
                    let blueprint: Blueprint =
                        serde_json::from_value(created.blueprint.clone()).map_err(|error| error.to_string())?;
                    has_files = blueprint.workspace.is_some();
                    shadow.begin(&initial(&blueprint, &created.request));
                    each_number(&shadow.document, &mut |_| {}, &mut |name| {
                        traces.all_names.insert(name.to_owned());
                    });
                    let all = request.places.iter().enumerate();
                    all.for_each(|(index, place)| {
                        traces.observe(&shadow.document, (index, place), request.keep, Version(0))
                    });
                }
                Body::Committed(committed) => {
                    let (first, version) = (shadow.next, committed.version);
                    if committed.by.edit.is_some() {
                        traces.board_owned.resize(first as usize, false);
                        traces.board_owned.extend(edits::intents(&committed.patch).iter().map(|is_intent| !is_intent));
                    }
                    let mut touched = BTreeSet::new();
                    let (made, names, all_names) =
                        (&mut traces.last_writes, &mut traces.requested_names, &mut traces.all_names);
                    let brings_names = request.records.contains(&record.seq) && committed.by.edit.is_none();
                    shadow.patch(&committed.patch, &mut |done| {
                        let new = done.new_names();
                        if brings_names {
                            names.extend(new.iter().cloned());
                        }
                        all_names.extend(new);
                        for (index, place) in request.places.iter().enumerate() {
                            if place.starts_with(&done.target) {
                                made[index] = version;
                            }
                            if may_change(place, &done.target)
                                || done.from.as_ref().is_some_and(|from| may_change(place, from))
                            {
                                touched.insert(index);
                            }
                        }
                    })?;
                    let place = |index: usize| &request.places[index];
                    touched.iter().for_each(|index| {
                        traces.observe(&shadow.document, (*index, place(*index)), request.keep, version);
                    });
                    if request.records.contains(&record.seq) {
                        brought.extend(first..shadow.next);
                    }
                }
                _ => {}
            }
        }
        traces.erased = vec![false; shadow.next as usize];
        traces.board_owned.resize(shadow.next as usize, false);
        // A board that can continue needs its current data about files.
        let current_intents = if has_files && !is_over { intents_of(&shadow.document) } else { BTreeSet::new() };
        let is_kept = |own: &[bool], number: u32| own[number as usize] || current_intents.contains(&number);
        for ((seen, made), place) in traces.seen.iter().zip(&traces.last_writes).zip(&request.places) {
            let is_exact = file_relation(place) == FileRelation::Detail;
            for (number, version) in
                seen.iter().filter(|(number, _)| is_exact || !is_kept(&traces.board_owned, **number))
            {
                traces.erased[*number as usize] |= !request.keep || version < made;
            }
        }
        for number in brought.into_iter().filter(|number| !is_kept(&traces.board_owned, *number)) {
            traces.erased[number as usize] = true;
        }
        if has_files {
            // These names belong to the kernel and to files.
            let of_files = request.places.iter().map(|place| place.first().is_some_and(|it| it.decoded() == FILES));
            traces.names.iter_mut().zip(of_files).filter(|(_, is)| *is).for_each(|(names, _)| names.clear());
        }
        for (names, made) in traces.names.iter_mut().zip(&traces.last_writes) {
            names.retain(|_, version| !request.keep || *version < *made);
        }
        traces.marked = std::mem::take(&mut shadow.marked);
        traces.final_names(&shadow.document, request);
        Ok(traces)
    }

    fn observe(&mut self, document: &Value, (index, place): (usize, &Pointer), keeps: bool, version: Version) {
        let Some(there) = value_at(document, place) else { return };
        let (seen, names) = (&mut self.seen[index], &mut self.names[index]);
        if let Some(name) = member_name(document, place).filter(|_| !keeps) {
            names.entry(name).or_insert(version);
        }
        each_number(
            there,
            &mut |number| {
                seen.entry(number).or_insert(version);
            },
            &mut |name| {
                if !names.contains_key(name) {
                    names.insert(name.to_owned(), version);
                }
            },
        );
    }

    fn final_names(&mut self, document: &Value, request: &Request) {
        let mut inside = BTreeSet::new();
        let mut rest = document.clone();
        for place in &request.places {
            let name = member_name(&rest, place);
            let there = match (name, place.parent().and_then(|above| rest.pointer_mut(above.as_str()))) {
                (Some(name), Some(Value::Object(members))) => {
                    let there = members.remove(&name);
                    inside.extend(there.is_some().then_some(name));
                    there
                }
                _ => rest.pointer_mut(place.as_str()).map(Value::take),
            };
            let mut add = |name: &str| inside.extend([name.to_owned()]);
            there.iter().for_each(|there| each_number(there, &mut |_| {}, &mut add));
        }
        let mut outside = BTreeSet::new();
        self.sort_names(&rest, &mut outside, &mut inside);
        self.final_names = (outside, inside);
    }

    /// Separates names of members with only redacted content from others.
    fn sort_names(&self, document: &Value, outside: &mut BTreeSet<String>, inside: &mut BTreeSet<String>) {
        match document {
            Value::Array(items) => items.iter().for_each(|item| self.sort_names(item, outside, inside)),
            Value::Object(members) => members.iter().for_each(|(name, member)| {
                let (mut erased, mut all) = (0, 0);
                let mut count = |number| {
                    all += 1;
                    erased += u32::from(self.is_erased(number) || self.marked.contains(&number));
                };
                each_number(member, &mut count, &mut |_| {});
                let names = if all > 0 && erased == all { &mut *inside } else { &mut *outside };
                names.insert(name.clone());
                self.sort_names(member, outside, inside);
            }),
            _ => {}
        }
    }

    /// Returns true if the value with this number is redacted.
    pub(super) fn is_erased(&self, number: u32) -> bool {
        self.erased.get(number as usize).copied().unwrap_or_default()
    }

    /// Also redacts every name of the document that contains one of these texts.
    pub(super) fn spread_names(&mut self, needles: &Needles) {
        self.quoting_names = self.all_names.iter().filter(|name| needles.occur_in(name)).cloned().collect();
    }

    /// Returns the redacted names of members. They occurred at or below requested places or in requested records, the
    /// blueprint does not contain them, and the document uses them nowhere else. Names that contain a redacted text are
    /// added, unless the board can continue and uses them now. Updates the kept names of requested places
    /// ([`Lineage::is_kept`]).
    pub(super) fn names(&mut self, is_over: bool, keeps: bool, blueprint: &str) -> BTreeSet<String> {
        let (outside, inside) = &self.final_names;
        let is_index = |name: &str| name.len() < INDEX_DIGITS_MAX && name.bytes().all(|byte| byte.is_ascii_digit());
        let is_used = |name: &str| outside.contains(name) || ((!is_over || keeps) && inside.contains(name));
        let is_there = |name: &str| !is_over && (outside.contains(name) || inside.contains(name));
        let names = self.names.iter().flat_map(BTreeMap::keys).chain(&self.requested_names);
        let names = names.filter(|name| !is_used(name));
        let names = names.chain(self.quoting_names.iter().filter(|name| !is_there(name)));
        let is_name = |name: &&String| {
            !name.is_empty() && !is_index(name) && *name != "-" && !is_placeholder(name) && !mentions(blueprint, name)
        };
        let names: BTreeSet<String> = names.filter(is_name).cloned().collect();
        self.kept_names.retain(|name| name.chars().count() >= CHARS_MIN && !names.contains(name) && is_name(&name));
        names
    }

    /// Returns true for a name at the end of a requested place that the document also uses elsewhere.
    pub(super) fn is_kept(&self, name: &str) -> bool {
        self.kept_names.contains(name)
    }

    /// Visits every scalar that records wrote, with its number.
    fn each_written(records: &[Record], each: &mut dyn FnMut(u32, &Value)) -> Result<(), String> {
        let mut next = 0;
        let mut count = |value: &Value| {
            each_scalar(value, &mut |scalar| {
                each(next, scalar);
                next += 1;
            });
        };
        for record in records {
            match record.body().map_err(|error| error.to_string())? {
                Body::Created(created) => {
                    let blueprint = serde_json::from_value(created.blueprint.clone());
                    let blueprint = blueprint.map_err(|error| error.to_string())?;
                    count(&initial(&blueprint, &created.request));
                }
                Body::Committed(committed) => {
                    for op in operations(&committed.patch)? {
                        if let PatchOperation::Add(AddOperation { value, .. })
                        | PatchOperation::Replace(ReplaceOperation { value, .. }) = &op
                        {
                            count(value);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the texts of the redacted values.
    pub(super) fn texts(&self, records: &[Record], request: &Request) -> Result<BTreeSet<String>, String> {
        let mut texts = BTreeSet::new();
        Self::each_written(records, &mut |number, scalar| {
            if let (Value::String(text), true) = (scalar, self.is_erased(number)) {
                texts.insert(text.clone());
            }
        })?;
        for record in records.iter().filter(|record| request.records.contains(&record.seq)) {
            for (field, value) in record.values().map_err(|error| error.to_string())? {
                // Other records may quote a person's answer or a signal's value.
                if matches!(field.as_str(), "reason" | "text" | "clarify" | "message" | "intent" | "value") {
                    each_scalar(&value, &mut |scalar| texts.extend(scalar.as_str().map(str::to_owned)));
                }
            }
        }
        Ok(texts)
    }

    /// Redacts every value that contains one of these texts.
    pub(super) fn spread(&mut self, records: &[Record], needles: &Needles) -> Result<(), String> {
        let mut more = Vec::new();
        Self::each_written(records, &mut |number, scalar| {
            if scalar.as_str().is_some_and(|text| needles.occur_in(text)) {
                more.push(number);
            }
        })?;
        more.retain(|number| !self.board_owned[*number as usize]);
        more.into_iter().for_each(|number| self.erased[number as usize] = true);
        Ok(())
    }
}

/// Returns the numbers of the intents of each file's last edit.
fn intents_of(document: &Value) -> BTreeSet<u32> {
    let files = document.get(FILES).and_then(Value::as_object).into_iter().flat_map(serde_json::Map::values);
    let intents = files.filter_map(|file| file.get("intent")?.as_u64());
    intents.filter_map(|number| u32::try_from(number).ok()).collect()
}
