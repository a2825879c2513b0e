//! JSON Schema: validation of states and values, and the map of the places that a schema allows.
//!
//! Owns the accepted schemas (SPEC section 2): drafts 6, 7, 2019-09 and 2020-12 with linear regular expressions.
//! References stay in the document, or name one of the published meta-schemas, which are built in. Bounds keep
//! validation from overflowing the stack or taking too long. The validator itself is `jsonschema`.
//!
//! `map` locates subschemas and resolves references; `regexes` measures the regular expressions, and `bounds` the map.
//! `meter` ends a validation that takes too long; `locate` finds the legal places; `fragment` renders a part of the
//! schema; `explain` converts failed validations into violations.

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

use crate::json;
use crate::rejection::Violation;
use crate::work_budget::{WorkBudget, WorkKind};
use map::SchemaMap;
use meter::{Metered, Outcome, Weight};
use regexes::Regexes;

pub use explain::nearest;
pub use explain::shorten;
pub use incremental::{Cost, SMALL_COLLECTION_MAX};
pub(crate) use regexes::{REGEX_BYTES_MAX, regexes_too_large};
pub use state::StateSchema;

/// Maximum nesting of a schema document.
const DEPTH_MAX: usize = 128;

/// Base effort of compiling a schema, beside one step for each byte.
const COMPILE_STEPS: u64 = 1_000;

/// Standard formats that need Unicode tables which are not built in.
const FORMATS_UNKNOWN: [&str; 2] = ["idn-email", "idn-hostname"];

/// Reason that a schema cannot be used.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct SchemaError {
    /// JSON Pointer into the schema.
    pub pointer: String,
    /// User-readable message.
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

/// Legality of a place.
#[derive(Clone, PartialEq, Debug)]
pub enum Location {
    /// The place is legal. Holds the applicable subschemas as JSON Pointers into the schema document; empty if anything
    /// is permitted.
    Legal(Vec<String>),
    /// The place is illegal.
    Illegal {
        /// The longest legal prefix of the path.
        legal_prefix: String,
        /// Permitted names below that prefix; `-` for the elements of an array.
        known: Vec<String>,
        /// Regular expressions that other permitted names below that prefix match.
        patterns: Vec<String>,
    },
}

impl Schema {
    /// Compiles a schema. References never leave the document (SPEC section 2: dialect, formats). Rejects invalid
    /// schemas, unsupported dialects or references, and names shared by two subschemas. Rejects regular expressions
    /// that are not linear or too large. Rejects formats that must be asserted and cannot be (`idn-email`,
    /// `idn-hostname`). Rejects schemas so nested or branched that validation could overflow the stack or take too
    /// long.
    pub fn compile(schema: &Value, assert_formats: bool) -> Result<Self, SchemaError> {
        Self::compile_within(schema, assert_formats, &WorkBudget::default())
    }

    /// Like [`Self::compile`], within a check's effort, which also covers later queries of the schema.
    pub fn compile_within(schema: &Value, assert_formats: bool, effort: &WorkBudget) -> Result<Self, SchemaError> {
        if !effort.spend(WorkKind::Schemas, COMPILE_STEPS + json::size(schema)) {
            return Err(SchemaError::new("", "there are too many schemas, or too large ones, to look at all"));
        }
        // The nesting is checked first, because later steps may recurse into the document.
        bounds::check_nesting(schema, DEPTH_MAX)?;
        let draft = draft(schema)?;
        check_meta_schema(schema, draft)?;
        let map = SchemaMap::new(schema, draft).within(effort.clone());
        // Validator and map could resolve such a name differently.
        if let Some((pointer, name)) = &map.duplicate {
            let message = format!("another subschema is called `{name}` already; give each a name of its own");
            return Err(SchemaError::new(pointer.clone(), message));
        }
        // Measured before any compilation.
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

    /// Returns the schema document, unchanged.
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// Returns the bytes of its regular expressions, each compiled once.
    pub(crate) fn regex_bytes(&self) -> usize {
        self.regexes.bytes()
    }

    /// Returns true if the instance is valid; false also if validation takes too long.
    ///
    /// The schema was measured for instances nested at most 64 deep (SPEC section 12). Documents of boards, patches and
    /// requests are checked against that limit before.
    pub fn is_valid(&self, instance: &Value) -> bool {
        self.outcome(instance, json::size(instance)) == Outcome::Valid
    }

    /// Validates an instance of `bytes` bytes.
    fn outcome(&self, instance: &Value, bytes: u64) -> Outcome {
        let meter = self.weight.verdict(bytes);
        let is_valid = self.validator.is_valid(meter.count(instance));
        Outcome::from_verdict(is_valid, &meter)
    }

    /// Returns the first `max` violations, each `schema_violation` with instance pointer, keyword (as `rule`),
    /// expected, found.
    ///
    /// All missing names of one object form one violation. Messages contain names of members, but no values: these are
    /// in `found` only, and long ones are described. If validation takes too long, that is the only violation; if only
    /// the search for violations does, one says so.
    pub fn violations(&self, instance: &Value, max: usize) -> Vec<Violation> {
        explain::violations(self, instance, max)
    }

    /// Returns true if the schema has this place; see [`Self::locate_pointer`].
    pub(crate) fn has_place(&self, place: &Pointer) -> bool {
        self.is_plain(place) || matches!(self.locate_pointer(place), Location::Legal(_))
    }
}

/// Returns the draft that a document declares.
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

/// Rejects standard formats that must be asserted and cannot be. Other unknown formats are annotations, as specified.
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

/// Converts the compilation error of a document that satisfies its meta-schema.
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
