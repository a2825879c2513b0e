//! Follows values through a board: which commit brought each, and where it ever stood.
//!
//! A document of numbers goes along with the records: in place of every scalar it has the number of the writing that put
//! it there. What moves, copies and shifts values moves their numbers, so the numbers at a place are the values there,
//! whoever brought them, and where to.

use std::collections::{BTreeMap, BTreeSet};

use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use super::edits::{self, Whereabouts, whereabouts};
use super::texts::{CHARS_MIN, Needles, mentions};
use super::{Request, is_mark, names};
use crate::blueprint::Blueprint;
use crate::board::initial;
use crate::files::FILES;
use crate::id::Version;
use crate::json;
use crate::record::{Body, Record};

/// An array of more elements than this number has digits is none that a board can hold.
const INDEX_DIGITS_MAX: usize = 6;

/// Which values are erased.
pub(super) struct Traces {
    /// By number of writing.
    erased: Vec<bool>,
    /// By number of writing: whether it is what the board knows its files by, and says nothing of what is in them.
    own: Vec<bool>,
    /// By place asked for: the numbers that ever stood there, with the version at which they first did.
    seen: Vec<BTreeMap<u32, Version>>,
    /// The same for names of members, the place's own included.
    names: Vec<BTreeMap<String, Version>>,
    /// Names of members that the records asked for brought, that the places asked for end with, and that patches which changed
    /// nothing had there.
    brought_names: BTreeSet<String>,
    /// All names that the document ever had.
    all_names: BTreeSet<String>,
    /// Of these, names in which an erased text stands, where such are erased.
    quoting_names: BTreeSet<String>,
    /// Names that places asked for end with, and that the document uses elsewhere.
    kept_names: BTreeSet<String>,
    /// By number of writing: whether it was erased before.
    marked: BTreeSet<u32>,
    /// Names of the last document: of what stays, and of what is erased.
    final_names: (BTreeSet<String>, BTreeSet<String>),
    /// By place asked for: the version at which what stands there now was put there as a whole.
    made: Vec<Version>,
}

/// The document of numbers.
#[derive(Default)]
pub(super) struct Shadow {
    pub(super) document: Value,
    next: u32,
    /// Numbers of values that are marks already.
    marked: BTreeSet<u32>,
}

/// An operation as it is done: where it leads to, and where from.
pub(super) struct Done<'d> {
    pub(super) lands: PointerBuf,
    pub(super) from: Option<PointerBuf>,
    /// The value that it puts there, in numbers.
    value: Option<&'d Value>,
    /// The document before it.
    before: &'d Value,
}

impl Shadow {
    /// The same shape with a number in place of each scalar.
    fn of(&mut self, value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(|item| self.of(item)).collect(),
            Value::Object(members) => {
                Value::Object(members.iter().map(|(name, member)| (name.clone(), self.of(member))).collect())
            }
            _ => {
                let number = self.next;
                self.next += 1;
                if value.as_str().is_some_and(is_mark) {
                    self.marked.insert(number);
                }
                number.into()
            }
        }
    }

    /// Begins with the first document.
    pub(super) fn begin(&mut self, document: &Value) {
        self.document = self.of(document);
    }

    /// Does what a patch did. `each` sees every operation that is no test, before it is done.
    pub(super) fn patch(&mut self, patch: &Value, each: &mut dyn FnMut(&Done)) -> Result<(), String> {
        let ops = operations(patch)?;
        for mut op in ops {
            let lands = landing(&self.document, op.path());
            let (from, value) = match &mut op {
                PatchOperation::Test(_) => continue,
                PatchOperation::Add(AddOperation { value, .. })
                | PatchOperation::Replace(ReplaceOperation { value, .. }) => {
                    *value = self.of(value);
                    (None, Some(&*value))
                }
                PatchOperation::Move(op) => (Some(op.from.clone()), None),
                PatchOperation::Copy(op) => (Some(op.from.clone()), None),
                PatchOperation::Remove(_) => (None, None),
            };
            each(&Done { lands, from, value, before: &self.document });
            json_patch::patch_unsafe(&mut self.document, &[op]).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

impl Done<'_> {
    /// The names of members that it makes.
    fn new_names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let is_new = self.value.is_some() || self.from.is_some();
        if is_new && at(self.before, &self.lands).is_none() {
            names.extend(member_name(self.before, &self.lands));
        }
        if let Some(value) = self.value {
            each_number(value, &mut |_| {}, &mut |name| names.extend([name.to_owned()]));
        }
        names
    }
}

/// The name that a place has in the object above it; none of the root, of elements, and where nothing is above.
fn member_name(document: &Value, place: &Pointer) -> Option<String> {
    let (above, name) = place.split_back()?;
    at(document, above)?.is_object().then(|| name.decoded().into_owned())
}

/// A stored patch, read.
pub(super) fn operations(patch: &Value) -> Result<Vec<PatchOperation>, String> {
    let mut patch = patch.clone();
    json::normalise(&mut patch);
    let ops: json_patch::Patch = serde_json::from_value(patch).map_err(|error| error.to_string())?;
    Ok(ops.0)
}

/// Where an operation leads to: the append position is the index after the last.
fn landing(document: &Value, path: &Pointer) -> PointerBuf {
    let mut lands = path.to_buf();
    if path.last().is_some_and(|last| last.encoded() == "-")
        && let Some(Value::Array(items)) = path.parent().and_then(|parent| at(document, parent))
    {
        lands.pop_back();
        lands.push_back(items.len());
    }
    lands
}

/// Whether an operation at `path` may change what is at `place`: elements beside it may be shifted.
fn may_change(place: &Pointer, path: &Pointer) -> bool {
    path.starts_with(place) || path.parent().is_none_or(|above| place.starts_with(above))
}

pub(super) fn at<'d>(document: &'d Value, place: &Pointer) -> Option<&'d Value> {
    document.pointer(place.as_str())
}

/// Every scalar of a document of numbers, and every name.
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

/// Every scalar of a value, in the order in which it was numbered.
pub(super) fn each_scalar<'v>(value: &'v Value, scalar: &mut dyn FnMut(&'v Value)) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| each_scalar(item, scalar)),
        Value::Object(members) => members.values().for_each(|member| each_scalar(member, scalar)),
        _ => scalar(value),
    }
}

impl Traces {
    pub(super) fn follow(records: &[Record], request: &Request, is_over: bool) -> Result<Self, String> {
        let mut shadow = Shadow::default();
        let places = request.places.len();
        let mut traces = Self {
            erased: Vec::new(),
            own: Vec::new(),
            seen: vec![BTreeMap::new(); places],
            names: vec![BTreeMap::new(); places],
            brought_names: BTreeSet::new(),
            all_names: BTreeSet::new(),
            quoting_names: BTreeSet::new(),
            kept_names: BTreeSet::new(),
            marked: BTreeSet::new(),
            final_names: Default::default(),
            made: vec![Version(0); places],
        };
        let mut brought = Vec::new();
        let mut has_files = false;
        if !request.keep {
            let last = request.places.iter().filter_map(|place| place.last());
            traces.kept_names.extend(last.map(|name| name.decoded().into_owned()));
            traces.brought_names.extend(traces.kept_names.iter().cloned());
        }
        for record in records {
            let body = record.body().map_err(|error| error.to_string())?;
            names::proposed(record, &body, request, &mut traces.brought_names);
            match body {
                Body::Created(created) => {
                    let blueprint: Blueprint =
                        serde_json::from_value(created.blueprint).map_err(|error| error.to_string())?;
                    has_files = blueprint.workspace.is_some();
                    shadow.begin(&initial(&blueprint, &created.request));
                    each_number(&shadow.document, &mut |_| {}, &mut |name| {
                        traces.all_names.insert(name.to_owned());
                    });
                    let all = request.places.iter().enumerate();
                    all.for_each(|(index, place)| {
                        traces.see(&shadow.document, (index, place), request.keep, Version(0))
                    });
                }
                Body::Committed(committed) => {
                    let (first, version) = (shadow.next, committed.version);
                    if committed.by.edit.is_some() {
                        traces.own.resize(first as usize, false);
                        traces.own.extend(edits::intents(&committed.patch).iter().map(|is_intent| !is_intent));
                    }
                    let mut touched = BTreeSet::new();
                    let (made, names, all_names) = (&mut traces.made, &mut traces.brought_names, &mut traces.all_names);
                    let brings_names = request.records.contains(&record.seq) && committed.by.edit.is_none();
                    shadow.patch(&committed.patch, &mut |done| {
                        let new = done.new_names();
                        if brings_names {
                            names.extend(new.iter().cloned());
                        }
                        all_names.extend(new);
                        for (index, place) in request.places.iter().enumerate() {
                            if place.starts_with(&done.lands) {
                                made[index] = version;
                            }
                            if may_change(place, &done.lands)
                                || done.from.as_ref().is_some_and(|from| may_change(place, from))
                            {
                                touched.insert(index);
                            }
                        }
                    })?;
                    let place = |index: usize| &request.places[index];
                    touched.iter().for_each(|index| {
                        traces.see(&shadow.document, (*index, place(*index)), request.keep, version);
                    });
                    if request.records.contains(&record.seq) {
                        brought.extend(first..shadow.next);
                    }
                }
                _ => {}
            }
        }
        traces.erased = vec![false; shadow.next as usize];
        traces.own.resize(shadow.next as usize, false);
        // A board that can go on needs what it says of its files now.
        let standing = match has_files && !is_over {
            true => intents_of(&shadow.document),
            false => BTreeSet::new(),
        };
        let is_kept = |own: &[bool], number: u32| own[number as usize] || standing.contains(&number);
        for ((seen, made), place) in traces.seen.iter().zip(&traces.made).zip(&request.places) {
            let is_exact = whereabouts(place) == Whereabouts::Detail;
            for (number, version) in seen.iter().filter(|(number, _)| is_exact || !is_kept(&traces.own, **number)) {
                traces.erased[*number as usize] |= !request.keep || version < made;
            }
        }
        for number in brought.into_iter().filter(|number| !is_kept(&traces.own, *number)) {
            traces.erased[number as usize] = true;
        }
        if has_files {
            // They are those of the kernel, and of files.
            let of_files = request.places.iter().map(|place| place.first().is_some_and(|it| it.decoded() == FILES));
            traces.names.iter_mut().zip(of_files).filter(|(_, is)| *is).for_each(|(names, _)| names.clear());
        }
        for (names, made) in traces.names.iter_mut().zip(&traces.made) {
            names.retain(|_, version| !request.keep || *version < *made);
        }
        traces.marked = std::mem::take(&mut shadow.marked);
        traces.final_names(&shadow.document, request);
        Ok(traces)
    }

    fn see(&mut self, document: &Value, (index, place): (usize, &Pointer), keeps: bool, version: Version) {
        let Some(there) = at(document, place) else { return };
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

    /// Tells names of members of which all is erased from others.
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

    /// Whether the value with this number is erased.
    pub(super) fn is_erased(&self, number: u32) -> bool {
        self.erased.get(number as usize).copied().unwrap_or_default()
    }

    /// Erases every name of the document in which one of these texts stands, too.
    pub(super) fn spread_names(&mut self, needles: &Needles) {
        self.quoting_names = self.all_names.iter().filter(|name| needles.are_in(name)).cloned().collect();
    }

    /// Names of members that are erased: they stood at the places asked for or below, or came with the records asked for, no
    /// blueprint tells them, and the document does not use them elsewhere. Of names in which an erased text stands, those that
    /// a board which can go on does not have now. Notes which names of places asked for are kept ([`Traces::is_kept`]).
    pub(super) fn names(&mut self, is_over: bool, keeps: bool, blueprint: &str) -> BTreeSet<String> {
        let (outside, inside) = &self.final_names;
        let is_index = |name: &str| name.len() < INDEX_DIGITS_MAX && name.bytes().all(|byte| byte.is_ascii_digit());
        let is_used = |name: &str| outside.contains(name) || ((!is_over || keeps) && inside.contains(name));
        let is_there = |name: &str| !is_over && (outside.contains(name) || inside.contains(name));
        let names = self.names.iter().flat_map(BTreeMap::keys).chain(&self.brought_names);
        let names = names.filter(|name| !is_used(name));
        let names = names.chain(self.quoting_names.iter().filter(|name| !is_there(name)));
        let is_name = |name: &&String| {
            !name.is_empty() && !is_index(name) && *name != "-" && !is_mark(name) && !mentions(blueprint, name)
        };
        let names: BTreeSet<String> = names.filter(is_name).cloned().collect();
        self.kept_names.retain(|name| name.chars().count() >= CHARS_MIN && !names.contains(name) && is_name(&name));
        names
    }

    /// Returns true for a name that a place asked for ends with, and that the document uses elsewhere.
    pub(super) fn is_kept(&self, name: &str) -> bool {
        self.kept_names.contains(name)
    }

    /// Every scalar with its number, the record that brought it and the pointer where it was put, as far as that is known.
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
                    let blueprint = serde_json::from_value(created.blueprint).map_err(|error| error.to_string())?;
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

    /// The texts of what is erased.
    pub(super) fn texts(&self, records: &[Record], request: &Request) -> Result<BTreeSet<String>, String> {
        let mut texts = BTreeSet::new();
        Self::each_written(records, &mut |number, scalar| {
            if let (Value::String(text), true) = (scalar, self.is_erased(number)) {
                texts.insert(text.clone());
            }
        })?;
        for record in records.iter().filter(|record| request.records.contains(&record.seq)) {
            for (field, value) in record.values().map_err(|error| error.to_string())? {
                // What a person said or a signal carried may be told in other records.
                if matches!(field.as_str(), "reason" | "text" | "clarify" | "message" | "intent" | "value") {
                    each_scalar(&value, &mut |scalar| texts.extend(scalar.as_str().map(str::to_owned)));
                }
            }
        }
        Ok(texts)
    }

    /// Erases every value in which one of these texts stands.
    pub(super) fn spread(&mut self, records: &[Record], needles: &Needles) -> Result<(), String> {
        let mut more = Vec::new();
        Self::each_written(records, &mut |number, scalar| {
            if scalar.as_str().is_some_and(|text| needles.are_in(text)) {
                more.push(number);
            }
        })?;
        more.retain(|number| !self.own[*number as usize]);
        more.into_iter().for_each(|number| self.erased[number as usize] = true);
        Ok(())
    }
}

/// What the last edit of each file was for, by number.
fn intents_of(document: &Value) -> BTreeSet<u32> {
    let files = document.get(FILES).and_then(Value::as_object).into_iter().flat_map(serde_json::Map::values);
    let intents = files.filter_map(|file| file.get("intent")?.as_u64());
    intents.filter_map(|number| u32::try_from(number).ok()).collect()
}
