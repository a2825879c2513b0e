//! Validates blueprints and department manifests against the published schemas, with messages for people.

use std::sync::LazyLock;

use jsonschema::error::ValidationErrorKind as Kind;
use jsonschema::{ValidationError, Validator};
use serde_json::{Value, json};

use super::{Diagnostic, FINDINGS_MAX, META_SCHEMA, closest_name};
use crate::source::{Source, child};
use patchboard_kernel::blueprint::{AgentKind, FORMAT};
use patchboard_kernel::text::truncated;

static BLUEPRINT: LazyLock<MetaSchema> = LazyLock::new(|| {
    let mut meta: Value = serde_json::from_str(META_SCHEMA).expect("the schema is part of this crate and tested");
    // Fragments, departments and a workflow are merged into a blueprint before it is checked.
    meta["required"] = json!(["blueprint", "name", "state", "workers"]);
    meta.as_object_mut().expect("the schema is an object").remove("allOf");
    MetaSchema::new("the blueprint", meta)
});

/// A published schema, and the noun for the documents it describes.
pub struct MetaSchema {
    noun: &'static str,
    meta: Value,
    validator: Validator,
}

const TRIGGERS: &str = "Write start, manual, {op: add, path: /claims/*} (`op` may be left out), {start: /request/documents/*}, {signal: name}, {every: cron}, {after: [rule, …]}, {settled: [rule, …]}, {after_first: [rule, …]} or {idle: [rule, …]}.";
const DELAYS: &str =
    "Write a time like 5m, {for: 5m} or {at: /timeout_ms}; the last two may have `except_waits_of: [group, …]`.";

/// Reports every place where the source violates the meta-schema.
pub(super) fn check(source: &Source, findings: &mut Vec<Diagnostic>) {
    // Blueprints of nested boards are checked separately.
    let is_own = |error: &ValidationError<'_>| {
        let mut tokens = error.instance_path().as_str().split('/').skip(1);
        !(tokens.next() == Some("boards") && tokens.nth(1).is_some())
    };
    for error in BLUEPRINT.validator.iter_errors(source.value()).filter(is_own).take(FINDINGS_MAX) {
        BLUEPRINT.explain(source, &error, findings);
    }
}

/// Reports every number that JSON cannot represent, unless its place has another finding.
pub(super) fn check_numbers(source: &Source, findings: &mut Vec<Diagnostic>) {
    for pointer in source.beyond_json() {
        if findings.iter().any(|finding| finding.pointer == pointer) {
            continue;
        }
        let text = source.value().pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let help = format!("Write a decimal number that a double can hold, or \"{text}\" if it is a string.");
        findings.push(Diagnostic::at(source, "yaml_syntax", pointer, format!("`{text}` is no number of JSON"), help));
    }
}

const NAMES: &str = "A name begins with a letter or digit and has letters, digits, dashes and underscores, at most 64.";

impl MetaSchema {
    /// Compiles a schema of ours. `noun` names its documents in messages, as in `the blueprint`.
    ///
    /// # Panics
    /// The schema is invalid: it is part of a crate and tested there.
    pub fn new(noun: &'static str, meta: Value) -> Self {
        let validator = jsonschema::draft202012::new(&meta).expect("the schema is part of a crate and tested");
        Self { noun, meta, validator }
    }

    /// Reports every place where a source violates the schema, and every number that JSON cannot represent.
    pub fn check(&self, source: &Source, findings: &mut Vec<Diagnostic>) {
        for error in self.validator.iter_errors(source.value()).take(FINDINGS_MAX) {
            self.explain(source, &error, findings);
        }
        check_numbers(source, findings);
    }

    fn explain(&self, source: &Source, error: &ValidationError<'_>, findings: &mut Vec<Diagnostic>) {
        let pointer = error.instance_path().as_str();
        let found = error.instance();
        let mut find = |code: &'static str, message: String, help: String| {
            findings.push(Diagnostic::at(source, code, pointer, message, help));
        };
        let name = self.display(pointer);
        let tokens: Vec<&str> = pointer.split('/').skip(1).collect();
        match tokens.as_slice() {
            ["rules", _, "trigger", ..] => {
                return find("bad_rule", format!("{name} is no known trigger: {}", short(found)), TRIGGERS.into());
            }
            ["rules", _, "delay"] => {
                return find("bad_rule", format!("{name} is no known delay: {}", short(found)), DELAYS.into());
            }
            _ => {}
        }
        if is_budget(pointer) && is_unlimited(found) {
            let message = format!("{name} is {}, which is no limit", short(found));
            return find(
                "infinite_budget",
                message,
                format!("{} Write a number above zero{}.", self.describe(error), self.default(error)),
            );
        }
        match error.kind() {
            Kind::AdditionalProperties { unexpected } => {
                for key in unexpected {
                    self.unknown(source, error, pointer, key, findings);
                }
            }
            Kind::Required { property } => {
                let property = property.as_str().unwrap_or_default();
                let at = child(pointer, property);
                let what = self.describe_at(&format!("{}/properties/{property}", parent(error.schema_path().as_str())));
                if is_budget(&at) {
                    return find(
                        "infinite_budget",
                        format!("{name} has no `{property}`"),
                        format!("{what} Add a number above zero."),
                    );
                }
                find("missing_field", format!("{name} has no `{property}`"), format!("Add it. {what}"));
            }
            Kind::Type { kind } => {
                let wanted = wanted(kind);
                let message = format!("{name} must be {wanted}, not {}", short(found));
                find("bad_type", message, self.describe(error));
            }
            Kind::Enum { .. } if pointer == "/blueprint" => {
                let message = format!("{name} must be 1 or {FORMAT}, not {}", short(found));
                find("bad_value", message, format!("This version reads blueprint formats 1 to {FORMAT}."));
            }
            Kind::Enum { options } => {
                let options: Vec<&str> = options.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                find("bad_value", format!("{name} cannot be {}", short(found)), one_of(found, &options));
            }
            Kind::OneOfNotValid { .. } | Kind::OneOfMultipleValid { .. } => {
                let agents = AgentKind::NAMED.map(|kind| kind.to_string());
                let agents = agents.each_ref().map(String::as_str);
                let help = if pointer.ends_with("/agent") { one_of(found, &agents) } else { self.describe(error) };
                find("bad_value", format!("{name} cannot be {}", short(found)), help);
            }
            Kind::Minimum { limit } => {
                find("bad_value", format!("{name} is {}, below {limit}", short(found)), self.describe(error));
            }
            Kind::Maximum { limit } => {
                let help = format!("{} The most is {limit}{}.", self.describe(error), self.default(error));
                find("bad_value", format!("{name} is {}, above {limit}", short(found)), help);
            }
            Kind::Constant { expected_value } => {
                let help = format!("This version reads format {expected_value}.");
                find("bad_value", format!("{name} must be {expected_value}, not {}", short(found)), help);
            }
            Kind::PropertyNames { error: inner } => {
                let key = inner.instance().as_str().unwrap_or_default().to_owned();
                let message = format!("{name} has the name `{key}`");
                let finding = Diagnostic::at(source, "bad_value", &child(pointer, &key), message, NAMES);
                findings.push(finding.at_key(source));
            }
            Kind::MinProperties { .. } | Kind::MinItems { .. } => {
                find("bad_value", format!("{name} is empty"), format!("{} Write at least one.", self.describe(error)));
            }
            Kind::MaxProperties { limit } | Kind::MaxItems { limit } => {
                find("bad_value", format!("{name} has more than {limit} entries"), self.describe(error));
            }
            Kind::MinLength { .. } => find("bad_value", format!("{name} is empty"), self.describe(error)),
            Kind::MaxLength { limit } => {
                find("bad_value", format!("{name} has more than {limit} characters"), self.describe(error));
            }
            Kind::UniqueItems => {
                find("bad_value", format!("{name} lists something twice"), "Remove one of the two.".into());
            }
            // `pattern`, and any keyword that the meta-schema may use in future.
            _ => find("bad_value", format!("{name} cannot be {}", short(found)), self.describe(error)),
        }
    }

    fn unknown(
        &self,
        source: &Source,
        error: &ValidationError<'_>,
        pointer: &str,
        key: &str,
        findings: &mut Vec<Diagnostic>,
    ) {
        let holder = parent(error.schema_path().as_str());
        let known = self.meta.pointer(&format!("{holder}/properties")).and_then(Value::as_object);
        let known: Vec<&str> = known.into_iter().flat_map(|map| map.keys().map(String::as_str)).collect();
        let at = child(pointer, key);
        let is_empty = source.value().pointer(&at).is_some_and(Value::is_null);
        let help = match closest_name(key, known.iter().copied()) {
            _ if is_empty && key.contains([' ', '(', ')', '"', '\'', '=', '<', '>']) => {
                "In braces a comma ends a text without quotes: put the whole text in quotes.".to_owned()
            }
            Some(best) => format!("Did you mean `{best}`?"),
            None => format!("Known here: {}.", known.join(", ")),
        };
        let message = format!("{} has no `{key}`", self.display(pointer));
        findings.push(Diagnostic::at(source, "unknown_field", &at, message, help).at_key(source));
    }

    /// Formats a place for a message.
    fn display(&self, pointer: &str) -> String {
        if pointer.is_empty() { self.noun.to_owned() } else { format!("`{pointer}`") }
    }

    /// Returns the meta-schema's description of the field with an error.
    fn describe(&self, error: &ValidationError<'_>) -> String {
        let general = self.describe_at(parent(error.schema_path().as_str()));
        // A field that refers to a definition has a description of its own next to the reference.
        let field = self.field(error).and_then(|field| field.get("description")?.as_str()).unwrap_or_default();
        if field.is_empty() || field == general { general } else { format!("{field} {general}").trim_end().to_owned() }
    }

    /// Returns the schema of the instance's own field: the one that refers to the failing schema, or that schema
    /// itself.
    fn field(&self, error: &ValidationError<'_>) -> Option<&Value> {
        let path = error.evaluation_path().as_str();
        let mut tokens: Vec<&str> = path.split('/').skip(1).collect();
        tokens.pop();
        if tokens.last() == Some(&"$ref") {
            tokens.pop();
        }
        let mut at = &self.meta;
        for token in tokens {
            at = match at {
                Value::Array(items) => items.get(token.parse::<usize>().ok()?)?,
                Value::Object(members) if token == "$ref" => {
                    self.meta.pointer(members.get("$ref")?.as_str()?.strip_prefix('#')?)?
                }
                other => other.get(token)?,
            };
        }
        Some(at)
    }

    fn describe_at(&self, schema: &str) -> String {
        let description = self.meta.pointer(schema).and_then(|schema| schema.get("description")?.as_str());
        description.unwrap_or_default().to_owned()
    }

    fn default(&self, error: &ValidationError<'_>) -> String {
        self.field(error)
            .and_then(|field| field.get("default"))
            .map_or_else(String::new, |default| format!(", or leave it out for {}", short(default)))
    }
}

/// Returns true if a place holds a value that must be finite.
fn is_budget(pointer: &str) -> bool {
    let tokens: Vec<&str> = pointer.split('/').skip(1).collect();
    matches!(
        tokens.as_slice(),
        ["concurrency"]
            | ["limits", _]
            | ["workers", _, "limits", _]
            | ["rules", _, "limits", _]
            | ["workers", _, "view", "budget"]
            | ["workers", _, "patch", "max_ops" | "max_bytes"]
            | ["workers", _, "writes", _, "approval", "expires"]
            | ["workers", _, "clarify", "expires"]
            | ["circuit", _, "limit" | "window" | "repeats"]
            | ["workspace", "payload"]
            | ["workers", _, "files", "iterations"]
            | ["circuit", "cooldown"]
    )
}

/// Returns true for a value that means "no limit".
fn is_unlimited(value: &Value) -> bool {
    const WORDS: [&str; 12] =
        ["unlimited", "infinite", "infinity", "inf", "∞", "none", "never", "forever", "unbounded", "no", "off", "max"];
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64().is_some_and(|number| number <= 0.0),
        Value::String(text) => {
            let text = text.trim().to_lowercase();
            let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let word = text.trim_start_matches(['.', '+', '-']);
            let is_no_count = text.parse::<f64>().is_ok_and(|number| !number.is_finite());
            WORDS.contains(&word)
                || word == "nan"
                || is_no_count
                || (!digits.is_empty() && digits.chars().all(|c| c == '0'))
        }
        Value::Bool(true) | Value::Array(_) | Value::Object(_) => false,
    }
}

fn parent(pointer: &str) -> &str {
    pointer.rfind('/').map_or("", |end| &pointer[..end])
}

fn one_of(found: &Value, options: &[&str]) -> String {
    let best = found.as_str().and_then(|text| closest_name(text, options.iter().copied()));
    let hint = best.map_or_else(String::new, |best| format!("Did you mean `{best}`? "));
    format!("{hint}It is one of {}.", options.join(", "))
}

fn wanted(kind: &jsonschema::error::TypeKind) -> String {
    use jsonschema::error::TypeKind;
    let names: Vec<String> = match kind {
        TypeKind::Single(kind) => vec![kind.to_string()],
        TypeKind::Multiple(kinds) => kinds.iter().map(|kind| kind.to_string()).collect(),
    };
    let article = |name: &String| match name.as_str() {
        "object" => "a mapping".to_owned(),
        "array" => "a list".to_owned(),
        "integer" => "a whole number".to_owned(),
        "boolean" => "true or false".to_owned(),
        other => format!("a {other}"),
    };
    names.iter().map(article).collect::<Vec<_>>().join(" or ")
}

/// Formats a value for a message.
fn short(value: &Value) -> String {
    match value {
        Value::Array(items) if items.len() > 3 => "a list".to_owned(),
        Value::Object(members) if members.len() > 3 => "a mapping".to_owned(),
        value => truncated(&value.to_string(), 60).into_owned(),
    }
}
