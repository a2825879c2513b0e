//! Converts failed validations into violations that a model can act on.
//!
//! A message names keywords, limits and members, but contains no value of the instance. Values are in `found` only,
//! so that they can be removed for readers without access.

use std::borrow::Cow;
use std::collections::BTreeSet;

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use serde_json::{Value, json};

use super::Schema;
use super::locate::names;
use super::meter::Outcome;
use crate::json;
use crate::rejection::{Code, Violation};
use crate::text::counted;
use crate::tree::Node;

/// Maximum characters of a value that is shown unchanged.
const SHOWN_MAX: usize = 200;
/// Maximum characters of a keyword's value that is shown.
const EXPECTED_MAX: usize = 600;
/// Maximum number of names or alternatives that a message lists.
const LISTED_MAX: usize = 12;
/// Reason for an unfinished validation, with advice.
const REPEATED: &str = "the schema judges what is nested again and again, as several of its alternatives, or of its \
                        `allOf`, `items` and `contains`, lead to the same members or elements; nest it less, or change \
                        one level at a time";
/// Minimum similarity (Jaro–Winkler, 0 to 1) for suggesting one name for another.
const ALIKE: f64 = 0.8;
/// Maximum number of character pairs compared for two names.
const COMPARED_MAX: usize = 1_000_000;

/// Location at which the failed validator was applied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applied<'a> {
    /// JSON Pointer of the validated value.
    pub(super) instance: &'a str,
    /// JSON Pointers of a schema as known to the validator and in the document, if they differ.
    pub(super) home: Option<(&'a str, &'a str)>,
    /// Value to show instead of the validated one.
    pub(super) shown: Option<&'a Node>,
}

impl Applied<'_> {
    /// The whole schema, applied to the whole instance.
    pub(super) const WHOLE: Self = Self { instance: "", home: None, shown: None };

    /// Returns the place of an error in the schema document.
    fn schema_path<'e>(&self, error: &'e ValidationError<'_>) -> Cow<'e, str> {
        let path = error.schema_path().as_str();
        match self.home.and_then(|(known, real)| Some((path.strip_prefix(known)?, real))) {
            Some((rest, real)) => Cow::Owned(format!("{real}{rest}")),
            None => Cow::Borrowed(path),
        }
    }

    /// Returns the last token of an error's place in the instance.
    fn last_token<'e>(&'e self, error: &'e ValidationError<'_>) -> &'e str {
        let path = error.instance_path().as_str();
        let place = if path.is_empty() { self.instance } else { path };
        place.rsplit('/').next().unwrap_or_default()
    }
}

/// Violations of an instance, collected from one or more validators.
pub(super) struct Findings<'s> {
    schema: &'s Schema,
    max: usize,
    found: Vec<Violation>,
    /// Schema path of the last violation, if its keyword is `required`.
    missing_of: Option<String>,
    /// True once an unexplained violation was recorded.
    is_unexplained: bool,
}

impl<'s> Findings<'s> {
    pub(super) const fn new(schema: &'s Schema, max: usize) -> Self {
        Self { schema, max, found: Vec::new(), missing_of: None, is_unexplained: false }
    }

    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= self.max
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn into_violations(self) -> Vec<Violation> {
        self.found
    }

    /// Adds the errors of one validator. Values of trees are already shortened.
    pub(super) fn add<'i>(
        &mut self,
        errors: impl Iterator<Item = ValidationError<'i>>,
        at: Applied<'_>,
        show: fn(&Value) -> Value,
    ) {
        for error in errors {
            let path = at.schema_path(&error);
            let place = format!("{}{}", at.instance, error.instance_path().as_str());
            if let Kind::Required { property } = error.kind()
                && let Some(last) = self.found.last_mut()
                && last.pointer == place
                && self.missing_of.as_deref() == Some(&*path)
            {
                also_missing(last, property);
                continue;
            }
            if self.is_full() {
                break;
            }
            let violation = violation(self.schema, &error, place, &path, at, show);
            self.missing_of = matches!(error.kind(), Kind::Required { .. }).then(|| path.into_owned());
            self.found.push(violation);
        }
    }

    /// Records unexpected members of an object; `parent` is the JSON Pointer of the schema that forbids them.
    pub(super) fn unexpected(&mut self, place: &str, parent: &str, unexpected: &[String]) {
        if !self.is_full() {
            self.missing_of = None;
            let mut violation = Violation::new(Code::SchemaViolation, place, String::new());
            name_unexpected(&mut violation, unexpected, known(self.schema, parent));
            violation.expected = violation.expected.filter(is_showable);
            self.found.push(violation.with_rule("additionalProperties"));
        }
    }

    /// Records that the validity of the document could not be decided in time.
    pub(super) fn endless(&mut self) {
        self.note("", format!("validating this would take too long: {REPEATED}"));
    }

    /// Records that a value is invalid for a reason that could not be found in time.
    pub(super) fn unexplained(&mut self, place: &str) {
        if std::mem::replace(&mut self.is_unexplained, true) {
            return;
        }
        self.note(place, format!("something in here is not valid, and finding it would take too long: {REPEATED}"));
    }

    fn note(&mut self, place: &str, message: String) {
        if !self.is_full() {
            self.missing_of = None;
            self.found.push(Violation::new(Code::SchemaViolation, place, message));
        }
    }
}

/// Returns the first `max` violations of an instance.
pub(super) fn violations(schema: &Schema, instance: &Value, max: usize) -> Vec<Violation> {
    let bytes = json::size(instance);
    let mut findings = Findings::new(schema, max);
    match schema.outcome(instance, bytes) {
        Outcome::Valid => {}
        Outcome::Unknown => findings.endless(),
        Outcome::Invalid => {
            let meter = schema.weight.findings(bytes);
            let errors = schema.validator.iter_errors(meter.count(instance));
            if meter.is_spent() {
                findings.unexplained("");
            } else {
                findings.add(errors, Applied::WHOLE, shorten);
            }
        }
    }
    findings.into_violations()
}

/// Returns the value itself, or a description if it is long.
pub fn shorten(value: &Value) -> Value {
    let text = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => return value.clone(),
        Value::String(text) if text.len() <= SHOWN_MAX => return value.clone(),
        Value::String(text) => {
            let start = text.chars().take(60).collect::<String>();
            format!("a text of {} characters that begins with {start:?}", text.chars().count())
        }
        Value::Array(_) | Value::Object(_) if is_short(value) => return value.clone(),
        Value::Array(items) => format!("an array of {}", counted(items.len() as u64, "element")),
        Value::Object(members) => describe_object(members.len(), members.keys().map(String::as_str)),
    };
    text.into()
}

/// Like [`shorten`], for a node of a tree; costs no more than the text it shows.
pub(super) fn shorten_node(node: &Node) -> Value {
    match node {
        Node::Null | Node::Bool(_) | Node::Number(_) | Node::Short(_) | Node::Long(_) => shorten(&node.to_value()),
        Node::Array(_) | Node::Object(_) if node.bytes() <= SHOWN_MAX as u64 => node.to_value(),
        Node::Array(items) => format!("an array of {}", counted(items.len() as u64, "element")).into(),
        Node::Object(members) => {
            let names = members.iter().map(|(name, _)| name.as_str());
            describe_object(members.len(), names).into()
        }
    }
}

fn describe_object<'a>(len: usize, names: impl Iterator<Item = &'a str>) -> String {
    format!("an object of {}: {}", counted(len as u64, "member"), listed_of(len, names))
}

/// Returns true if the compact JSON of a value is short, without writing a long one in full.
fn is_short(value: &Value) -> bool {
    json::size_within(value, SHOWN_MAX as u64).is_some()
}

fn violation(
    schema: &Schema,
    error: &ValidationError<'_>,
    place: String,
    path: &str,
    at: Applied<'_>,
    show: fn(&Value) -> Value,
) -> Violation {
    let found = at.shown.map_or_else(|| show(error.instance()), shorten_node);
    let mut violation = Violation::new(Code::SchemaViolation, place, reason_at(error, at))
        .with_found(found)
        .with_rule(rule(error, path));
    match error.kind() {
        Kind::Required { property } => violation.expected = Some(json!([property])),
        Kind::Type { kind } => violation.expected = Some(types(kind)),
        Kind::Enum { options } => violation.expected = Some(options.as_ref().clone()),
        Kind::Constant { expected_value } => violation.expected = Some(expected_value.as_ref().clone()),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let (parent, _) = path.rsplit_once('/').unwrap_or_default();
            name_unexpected(&mut violation, unexpected, known(schema, parent));
        }
        _ => violation.expected = keyword_value(schema, error, path),
    }
    violation.expected = violation.expected.filter(is_showable);
    violation
}

fn is_showable(expected: &Value) -> bool {
    expected.to_string().len() <= EXPECTED_MAX
}

/// Sets message and values for unexpected members, with the permitted names.
fn name_unexpected(violation: &mut Violation, unexpected: &[String], known: BTreeSet<String>) {
    violation.message = unexpected_names(unexpected, &known);
    violation.found = Some(unexpected.iter().take(LISTED_MAX).cloned().collect());
    violation.expected = Some(known.into_iter().take(LISTED_MAX * 2).collect());
}

/// Returns the violated keyword. A `false` in place of a keyword's schema counts as that keyword.
fn rule(error: &ValidationError<'_>, path: &str) -> String {
    let kind = error.kind().keyword();
    let mut path = path.rsplit('/');
    let (last, container) = (path.next().unwrap_or_default(), path.next().unwrap_or_default());
    match (error.kind(), last) {
        (Kind::FalseSchema, "items" | "additionalItems" | "contains" | "then" | "else" | "additionalProperties")
            if !["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]
                .contains(&container) =>
        {
            last.to_owned()
        }
        (Kind::Required { .. }, "dependentRequired" | "dependencies") => last.to_owned(),
        (Kind::Required { .. }, _) if container == "dependentRequired" || container == "dependencies" => {
            container.to_owned()
        }
        (Kind::Contains, "minContains" | "maxContains") => last.to_owned(),
        _ => kind.to_owned(),
    }
}

/// Returns the keyword's value in the schema document.
fn keyword_value(schema: &Schema, error: &ValidationError<'_>, path: &str) -> Option<Value> {
    Some(match error.kind() {
        Kind::MaxItems { limit } | Kind::MaxLength { limit } | Kind::MaxProperties { limit } => json!(limit),
        Kind::MinItems { limit } | Kind::MinLength { limit } | Kind::MinProperties { limit } => json!(limit),
        Kind::Maximum { limit }
        | Kind::Minimum { limit }
        | Kind::ExclusiveMaximum { limit }
        | Kind::ExclusiveMinimum { limit } => limit.clone(),
        Kind::Pattern { pattern } => json!(pattern),
        Kind::Format { format } => json!(format),
        Kind::PropertyNames { error } => json!(reason(error)),
        Kind::UniqueItems => json!(true),
        Kind::Not { .. } => json!({ "not": schema.document.pointer(path)? }),
        _ => schema.document.pointer(path)?.clone(),
    })
}

/// Returns the member names that the schema at `parent` describes.
fn known(schema: &Schema, parent: &str) -> BTreeSet<String> {
    let Some(id) = schema.map.at(parent) else { return BTreeSet::new() };
    names(&schema.map, id).into_iter().map(str::to_owned).collect()
}

fn unexpected_names(unexpected: &[String], known: &BTreeSet<String>) -> String {
    let quoted = unexpected.iter().map(String::as_str);
    let mut message = format!("no member may be called {}", listed(quoted));
    if !known.is_empty() {
        message.push_str(&format!("; known are {}", listed(known.iter().map(String::as_str))));
    }
    let nearest = unexpected.first().and_then(|name| nearest(name, known.iter().map(String::as_str)));
    if let Some(nearest) = nearest {
        message.push_str(&format!("; did you mean `{nearest}`?"));
    }
    message
}

/// Returns the most similar known name, if any is similar enough.
pub fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = wrong.chars().count();
    let is_comparable = |name: &&str| {
        let other = name.chars().count();
        // A name with less than a tenth of the other's characters is never similar: it scores at most 0.7.
        length.max(other) <= 10 * length.min(other) && length.saturating_mul(other) <= COMPARED_MAX
    };
    known
        .filter(is_comparable)
        .map(|name| (strsim::jaro_winkler(wrong, name), name))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, name)| name)
}

fn also_missing(violation: &mut Violation, property: &Value) {
    if let Some(Value::Array(names)) = &mut violation.expected {
        names.push(property.clone());
        violation.message = missing(names);
    }
}

fn missing(names: &[Value]) -> String {
    let names = listed(names.iter().filter_map(Value::as_str));
    format!("required members are missing: {names}")
}

/// Returns the reason that a value is invalid, without the value.
pub(super) fn reason(error: &ValidationError<'_>) -> String {
    reason_at(error, Applied::WHOLE)
}

fn reason_at(error: &ValidationError<'_>, at: Applied<'_>) -> String {
    match error.kind() {
        Kind::AdditionalItems { limit } => format!("at most {} are allowed", counted(*limit as u64, "element")),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            unexpected_names(unexpected, &BTreeSet::new())
        }
        Kind::AnyOf { context } => format!("none of the alternatives fits: {}", alternatives(context, at)),
        Kind::OneOfNotValid { context } => {
            format!("exactly one of the alternatives must fit, none does: {}", alternatives(context, at))
        }
        Kind::OneOfMultipleValid { .. } => "exactly one of the alternatives must fit, several do".into(),
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            "the regular expression could not be evaluated".into()
        }
        Kind::Constant { expected_value } => format!("must be {}", shorten(expected_value)),
        Kind::Contains => "too few or too many elements are of the kind that must be contained".into(),
        Kind::ContentEncoding { content_encoding } => format!("must be encoded as {content_encoding}"),
        Kind::ContentMediaType { content_media_type } => format!("must be of media type {content_media_type}"),
        Kind::Custom { message, .. } => message.clone(),
        Kind::Enum { options } => format!("must be one of {}", shorten(options)),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("must be more than {limit}"),
        Kind::FalseSchema => "nothing is allowed here".into(),
        Kind::Format { format } => format!("must have the format {format}"),
        Kind::FromUtf8 { .. } => "must be UTF-8 under its encoding".into(),
        Kind::MaxItems { limit } => format!("must have at most {}", counted(*limit, "element")),
        Kind::Maximum { limit } => format!("must be at most {limit}"),
        Kind::MaxLength { limit } => format!("must have at most {}", counted(*limit, "character")),
        Kind::MaxProperties { limit } => format!("must have at most {}", counted(*limit, "member")),
        Kind::MinItems { limit } => format!("must have at least {}", counted(*limit, "element")),
        Kind::Minimum { limit } => format!("must be at least {limit}"),
        Kind::MinLength { limit } => format!("must have at least {}", counted(*limit, "character")),
        Kind::MinProperties { limit } => format!("must have at least {}", counted(*limit, "member")),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::Not { .. } => "must not be what the schema under `not` describes".into(),
        Kind::Pattern { pattern } => format!("must match the regular expression {pattern}"),
        Kind::PropertyNames { error } => format!("the names of members are restricted: {}", reason(error)),
        Kind::Required { property } => missing(std::slice::from_ref(property)),
        Kind::Type { kind } => format!("must be of type {}", one_of(&types(kind))),
        // The unevaluated elements themselves are values, and must not appear in a message.
        Kind::UnevaluatedItems { unexpected } => format!("no keyword allows {} of its elements", unexpected.len()),
        Kind::UniqueItems => "no two elements may be equal".into(),
        Kind::Referencing(cause) => format!("a reference of the schema leads nowhere: {cause}"),
    }
}

/// Describes the first violation of each alternative.
fn alternatives(context: &[Vec<ValidationError<'_>>], at: Applied<'_>) -> String {
    let mut said = Vec::new();
    for (number, errors) in context.iter().enumerate().take(LISTED_MAX) {
        // Nested alternatives would make the message grow without bound.
        let reason = errors.first().map(|error| match error.kind() {
            Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => "none of its own alternatives fits".to_owned(),
            _ => reason(error),
        });
        let place = errors.first().map(|error| at.last_token(error)).filter(|last| !last.is_empty());
        let place = place.map(|last| format!("{last}: "));
        said.push(format!("({}) {}{}", number + 1, place.unwrap_or_default(), reason.unwrap_or_default()));
    }
    if context.len() > LISTED_MAX {
        said.push(format!("and {} more", context.len() - LISTED_MAX));
    }
    said.join("; ")
}

fn types(kind: &TypeKind) -> Value {
    match kind {
        TypeKind::Single(only) => only.to_string().into(),
        TypeKind::Multiple(several) => several.iter().map(|one| Value::from(one.to_string())).collect(),
    }
}

fn one_of(types: &Value) -> String {
    match types {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        only => only.as_str().unwrap_or_default().to_owned(),
    }
}

/// Quotes and joins the first few names.
fn listed<'a>(names: impl Iterator<Item = &'a str> + Clone) -> String {
    listed_of(names.clone().count(), names)
}

/// Like [`listed`], for a known number of names.
fn listed_of<'a>(len: usize, names: impl Iterator<Item = &'a str>) -> String {
    let shown = names.take(LISTED_MAX);
    let mut names = shown.map(|name| format!("`{}`", name.chars().take(60).collect::<String>())).collect::<Vec<_>>();
    if len > LISTED_MAX {
        names.push(format!("{} more", len - LISTED_MAX));
    }
    names.join(", ")
}
