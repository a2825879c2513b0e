//! JSON Schema: the validator of states and values, and the map of the places a schema allows.
//!
//! Owns what is accepted as a schema (SPEC section 2): drafts 6, 7, 2019-09 and 2020-12, linear regular expressions,
//! references that stay in the document (or name one of the published meta-schemas, which are part of the program),
//! and bounds that keep validation from overflowing the stack or taking for ever. The validation itself is
//! `jsonschema`'s.
//!
//! `map` knows where subschemas are and where references lead; `regexes` measures the regular expressions in them, and
//! `bounds` the map; `meter` ends a validation that would not end in time; `locate` asks the map what may be where;
//! `fragment` shows a piece of it; `explain` turns a failed validation into violations.

mod bounds;
mod claim;
mod equality;
mod explain;
mod fragment;
mod incremental;
mod locate;
mod map;
mod meter;
mod node;
mod regexes;
mod state;

use jsonptr::Pointer;
use jsonschema::json::SerdeJson;
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use crate::effort::{Effort, Work};
use crate::json;
use crate::pattern::Pattern;
use crate::rejection::Violation;
use map::SchemaMap;
use meter::{Metered, Outcome, Weight};
use regexes::Regexes;

pub(crate) use explain::nearest;
pub use explain::shorten;
pub use incremental::{Cost, FEW};
pub(crate) use locate::Names;
pub(crate) use regexes::{REGEX_BYTES_MAX, regexes_too_large};
pub use state::StateSchema;

/// The deepest nesting of a schema document.
const DEPTH_MAX: usize = 128;

/// The steps of a check that it takes to compile a schema, beside one for each byte of it.
const COMPILE_STEPS: u64 = 1_000;

/// Formats of the specification that need Unicode tables which are not built in.
const FORMATS_UNKNOWN: [&str; 2] = ["idn-email", "idn-hostname"];

/// Why a schema cannot be used.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct SchemaError {
    /// JSON Pointer into the schema.
    pub pointer: String,
    /// For people.
    pub message: String,
}

impl SchemaError {
    pub(crate) fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }
}

/// A compiled schema.
pub struct Schema {
    document: Value,
    validator: Validator<Metered<SerdeJson>>,
    map: SchemaMap,
    regexes: Regexes,
    weight: Weight,
}

/// What a schema says of a place.
#[derive(Clone, PartialEq, Debug)]
pub enum Location {
    /// The schema allows something there: the schema fragments that apply, as JSON Pointers into the schema document
    /// (empty where anything goes).
    Legal(Vec<String>),
    /// It allows nothing there.
    Illegal {
        /// The longest legal prefix of the path.
        legal_prefix: String,
        /// The names it knows below that, `-` for the elements of an array.
        known: Vec<String>,
        /// The regular expressions that other names below that match.
        patterns: Vec<String>,
    },
}

impl Schema {
    /// Compiles a schema. References never leave the document (SPEC section 2: dialect, formats).
    ///
    /// # Errors
    /// Not a valid schema, a dialect or reference that is not accepted, a name that two subschemas have, a regular expression that is not linear,
    /// regular expressions that are too large, a format that would have to be asserted and cannot be (`idn-email`, `idn-hostname`), or a schema so nested or so
    /// branched that validation could overflow the stack or not end in time.
    pub fn compile(schema: &Value, assert_formats: bool) -> Result<Self, SchemaError> {
        Self::compile_within(schema, assert_formats, &Effort::default())
    }

    /// The same as part of a check, to which also counts what the schema is asked later.
    pub(crate) fn compile_within(schema: &Value, assert_formats: bool, effort: &Effort) -> Result<Self, SchemaError> {
        if !effort.spend(Work::Schemas, COMPILE_STEPS + json::size(schema)) {
            return Err(SchemaError::new("", "there are too many schemas, or too large ones, to look at all"));
        }
        // First of all, because whatever follows may recurse into the document.
        bounds::check_nesting(schema, DEPTH_MAX)?;
        let draft = draft(schema)?;
        check_meta_schema(schema, draft)?;
        let map = SchemaMap::of(schema, draft).within(effort.clone());
        // Validator and map could each take it for another.
        if let Some((pointer, name)) = map.named_twice() {
            let message = format!("another subschema is called `{name}` already; give each a name of its own");
            return Err(SchemaError::new(pointer.clone(), message));
        }
        // Before anything compiles them.
        let regexes = Regexes::measure(schema, &map)?;
        let weight = bounds::check_walks(&map, &regexes)?;
        let map = map.with_matchers();
        if assert_formats {
            check_formats(schema, &map)?;
        }
        let validator = jsonschema::options_for::<Metered<SerdeJson>>()
            .with_draft(draft)
            .offline()
            .with_pattern_options(PatternOptions::regex())
            .should_validate_formats(assert_formats)
            .build(schema)
            .map_err(|error| build_error(&error, schema, &map))?;
        Ok(Self { document: schema.clone(), validator, map, regexes, weight })
    }

    /// The schema as it was written.
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// Bytes that its regular expressions take, compiled once.
    pub(crate) fn regex_bytes(&self) -> usize {
        self.regexes.bytes()
    }

    /// Whether the instance is valid. One whose validation would not end in time is not.
    ///
    /// The schema was measured for instances nested at most 64 deep (SPEC section 12); the documents of boards, patches
    /// and requests are held to that before they get here.
    pub fn is_valid(&self, instance: &Value) -> bool {
        self.outcome(instance, json::size(instance)) == Outcome::Valid
    }

    /// Validates an instance of so many bytes.
    fn outcome(&self, instance: &Value, bytes: u64) -> Outcome {
        let meter = self.weight.verdict(bytes);
        let is_valid = self.validator.is_valid(meter.of(instance));
        Outcome::of(is_valid, &meter)
    }

    /// The first `max` violations, each `schema_violation` with instance pointer, keyword (as `rule`), expected, found.
    ///
    /// All names that one object lacks are one violation. Messages hold names of members, but no values; those are in
    /// `found` only, and long ones are described instead of shown. If validation would not end in time, that is the
    /// violation; if only the search for what is wrong would not, one says so.
    pub fn violations(&self, instance: &Value, max: usize) -> Vec<Violation> {
        explain::violations(self, instance, max)
    }

    /// What the schema says of the places a pattern matches (legal if any of them is).
    pub fn locate(&self, pattern: &Pattern) -> Location {
        locate::locate(&self.map, pattern)
    }

    /// Whether the schema leaves room for an array at some of the places a pattern matches, or has no such places.
    pub(crate) fn may_be_array(&self, pattern: &Pattern) -> bool {
        locate::may_be_array(&self.map, pattern)
    }

    /// Whether the schema leaves room for an object at some of the places a pattern matches, or has no such places.
    pub(crate) fn may_be_object(&self, pattern: &Pattern) -> bool {
        locate::may_be_object(&self.map, pattern)
    }

    /// Returns true if the schema describes all that may be at the places of a pattern.
    pub(crate) fn is_described(&self, pattern: &Pattern) -> bool {
        locate::is_described(&self.map, pattern)
    }

    /// Whether the schema says `number` of some of the places a pattern matches.
    pub(crate) fn says_number(&self, pattern: &Pattern) -> bool {
        locate::says_number(&self.map, pattern)
    }

    /// Whether the schema has such a place; see [`Self::locate_pointer`].
    pub(crate) fn has_place(&self, place: &Pointer) -> bool {
        self.is_plain(place) || matches!(self.locate_pointer(place), Location::Legal(_))
    }

    /// The names that the members of an object at a place may have; none if they are free. Errs on the side of free.
    pub(crate) fn names_at(&self, place: &Pointer) -> Option<Names> {
        locate::names_at(&self.map, place)
    }

    /// Whether a place is one that the schema names plainly; if not, [`Self::locate_pointer`] says more.
    pub(crate) fn is_plain(&self, place: &Pointer) -> bool {
        locate::is_plain(&self.map, place)
    }

    /// What the schema says of one place; the token `-` is the append position of an array or a member of that name.
    pub fn locate_pointer(&self, place: &Pointer) -> Location {
        locate::locate_pointer(&self.map, place)
    }

    /// The schema at those places, for a worker to read: the fragment with its local `$ref`s resolved where that is
    /// finite and short; `None` where anything goes or nothing is allowed.
    ///
    /// About 1500 characters of compact JSON at most, beside the names of groups and what is said of these. What does not fit keeps its `$ref` (into [`Self::document`]) or
    /// is cut down to its type and description, so that a fragment may allow more than the schema. It allows less only
    /// where a schema says nothing of a container's type: `/list/*` shows `items`, not that objects are free.
    pub fn fragment(&self, pattern: &Pattern) -> Option<Value> {
        fragment::fragment(&self.document, &self.map, pattern)
    }
}

/// The draft that a document declares.
fn draft(schema: &Value) -> Result<Draft, SchemaError> {
    let Some(dialect) = schema.get("$schema") else { return Ok(Draft::Draft202012) };
    let accepted = "accepted are the drafts 2020-12 (the default), 2019-09, 7 and 6";
    let Some(uri) = dialect.as_str() else {
        return Err(SchemaError::new("/$schema", format!("`$schema` is a text; {accepted}")));
    };
    match Draft::from_schema_uri(uri) {
        draft @ (Draft::Draft6 | Draft::Draft7 | Draft::Draft201909 | Draft::Draft202012) => Ok(draft),
        Draft::Draft4 => Err(SchemaError::new("/$schema", format!("JSON Schema draft 4 is too old; {accepted}"))),
        _ => Err(SchemaError::new("/$schema", format!("`{uri}` is no dialect known here; {accepted}"))),
    }
}

fn check_meta_schema(schema: &Value, draft: Draft) -> Result<(), SchemaError> {
    let validator = match draft {
        Draft::Draft6 => jsonschema::draft6::meta::validator(),
        Draft::Draft7 => jsonschema::draft7::meta::validator(),
        Draft::Draft201909 => jsonschema::draft201909::meta::validator(),
        _ => jsonschema::draft202012::meta::validator(),
    };
    let Some(error) = validator.iter_errors(schema).next() else { return Ok(()) };
    let pointer = error.instance_path().as_str();
    let (said, found) = (explain::reason(&error), explain::shorten(error.instance()));
    Err(SchemaError::new(pointer, format!("this is no valid schema: {said}, found {found}")))
}

/// Refuses formats of the specification that would be asserted and cannot be. Other unknown ones are annotations, as
/// the specification has it.
fn check_formats(schema: &Value, map: &SchemaMap) -> Result<(), SchemaError> {
    for pointer in map.pointers() {
        let format = schema.pointer(pointer).and_then(|subschema| subschema.get("format")).and_then(Value::as_str);
        if let Some(format) = format.filter(|format| FORMATS_UNKNOWN.contains(format)) {
            let message = format!("the format {format} cannot be asserted by this program; use a pattern");
            return Err(SchemaError::new(format!("{pointer}/format"), message));
        }
    }
    Ok(())
}

/// What keeps a document that satisfies its meta-schema from being compiled.
fn build_error(error: &jsonschema::ValidationError<'_>, schema: &Value, map: &SchemaMap) -> SchemaError {
    use jsonschema::error::ValidationErrorKind as Kind;
    match error.kind() {
        Kind::Referencing(cause) => {
            let (pointer, reference) = map.dangling(schema).unwrap_or_default();
            let place = if pointer.is_empty() { cause.to_string() } else { format!("`{reference}`") };
            let message =
                format!("a reference leads nowhere in this document: {place}; define what it means under $defs");
            SchemaError::new(pointer, message)
        }
        Kind::Format { format } if format == "regex" => SchemaError::new(
            error.instance_path().as_str(),
            format!(
                "{} is no regular expression{}",
                explain::shorten(error.instance()),
                regexes::why_not(error.instance().as_str().unwrap_or_default())
            ),
        ),
        _ => SchemaError::new(error.instance_path().as_str(), explain::reason(error)),
    }
}

#[cfg(test)]
mod tests;
