//! The form of a blueprint: what the published meta-schema refuses, said for people.

use std::sync::LazyLock;

use jsonschema::error::ValidationErrorKind as Kind;
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use super::{Diagnostic, FINDINGS_MAX, META_SCHEMA, meant};
use crate::source::{Source, child};

static META: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(META_SCHEMA).expect("the meta-schema is part of this crate and tested"));

static VALIDATOR: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::draft202012::new(&META).expect("the meta-schema is part of this crate and tested"));

const TRIGGERS: &str = "Write start, manual, {op: add, path: /claims/*}, {signal: name}, {after: [rule, …]} or {idle: [rule, …]}; `op` may be left out.";

/// Finds every place where the source has another form than the meta-schema says.
pub(super) fn check(source: &Source, findings: &mut Vec<Diagnostic>) {
    // Blueprints of boards inside are checked by themselves.
    let is_own = |error: &ValidationError<'_>| {
        let mut tokens = error.instance_path().as_str().split('/').skip(1);
        !(tokens.next() == Some("boards") && tokens.nth(1).is_some())
    };
    for error in VALIDATOR.iter_errors(source.value()).filter(is_own).take(FINDINGS_MAX) {
        explain(source, &error, findings);
    }
}

/// Finds every number that JSON does not have, where nothing else is wrong with it.
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

fn explain(source: &Source, error: &ValidationError<'_>, findings: &mut Vec<Diagnostic>) {
    let pointer = error.instance_path().as_str();
    let found = error.instance();
    let mut find = |code: &'static str, message: String, help: String| {
        findings.push(Diagnostic::at(source, code, pointer, message, help));
    };
    let name = display(pointer);
    if is_trigger(pointer) {
        return find(
            "bad_rule",
            format!("{name} has none of the forms of a trigger: {}", short(found)),
            TRIGGERS.into(),
        );
    }
    if is_budget(pointer) && is_unlimited(found) {
        let message = format!("{name} is {}, which is no limit", short(found));
        return find(
            "infinite_budget",
            message,
            format!("{} Write a number above zero{}.", describe(error), default(error)),
        );
    }
    match error.kind() {
        Kind::AdditionalProperties { unexpected } => {
            for key in unexpected {
                unknown(source, error, pointer, key, findings);
            }
        }
        Kind::Required { property } => {
            let property = property.as_str().unwrap_or_default();
            let at = child(pointer, property);
            let what = describe_at(&format!("{}/properties/{property}", parent(error.schema_path().as_str())));
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
            find("bad_type", message, describe(error));
        }
        Kind::Enum { options } => {
            let options: Vec<&str> = options.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            find("bad_value", format!("{name} cannot be {}", short(found)), one_of(found, &options));
        }
        Kind::OneOfNotValid { .. } | Kind::OneOfMultipleValid { .. } => {
            let agents = ["llm", "command", "script", "human", "remote", "board"];
            let help = if pointer.ends_with("/agent") { one_of(found, &agents) } else { describe(error) };
            find("bad_value", format!("{name} cannot be {}", short(found)), help);
        }
        Kind::Minimum { limit } => {
            find("bad_value", format!("{name} is {}, below {limit}", short(found)), describe(error));
        }
        Kind::Maximum { limit } => {
            let help = format!("{} The most is {limit}{}.", describe(error), default(error));
            find("bad_value", format!("{name} is {}, above {limit}", short(found)), help);
        }
        Kind::Constant { expected_value } => {
            let help = format!("This version reads format {expected_value}.");
            find("bad_value", format!("{name} must be {expected_value}, not {}", short(found)), help);
        }
        Kind::PropertyNames { error: inner } => {
            let key = inner.instance().as_str().unwrap_or_default().to_owned();
            let message = format!("{name} has the name `{key}`");
            let mut finding = Diagnostic::at(source, "bad_value", &child(pointer, &key), message, NAMES);
            finding.position = source.key_position(&finding.pointer);
            findings.push(finding);
        }
        Kind::MinProperties { .. } | Kind::MinItems { .. } => {
            find("bad_value", format!("{name} is empty"), format!("{} Write at least one.", describe(error)));
        }
        Kind::MaxProperties { limit } | Kind::MaxItems { limit } => {
            find("bad_value", format!("{name} has more than {limit} entries"), describe(error));
        }
        Kind::MinLength { .. } => find("bad_value", format!("{name} is empty"), describe(error)),
        Kind::MaxLength { limit } => {
            find("bad_value", format!("{name} has more than {limit} characters"), describe(error));
        }
        Kind::UniqueItems => {
            find("bad_value", format!("{name} lists something twice"), "Remove one of the two.".into());
        }
        // `pattern`, and any keyword the meta-schema may come to use.
        _ => find("bad_value", format!("{name} cannot be {}", short(found)), describe(error)),
    }
}

const NAMES: &str = "A name begins with a letter or digit and has letters, digits, dashes and underscores, at most 64.";

fn unknown(source: &Source, error: &ValidationError<'_>, pointer: &str, key: &str, findings: &mut Vec<Diagnostic>) {
    let holder = parent(error.schema_path().as_str());
    let known = META.pointer(&format!("{holder}/properties")).and_then(Value::as_object);
    let known: Vec<&str> = known.into_iter().flat_map(|map| map.keys().map(String::as_str)).collect();
    let help = match meant(key, known.iter().copied()) {
        Some(best) => format!("Did you mean `{best}`?"),
        None => format!("Known here: {}.", known.join(", ")),
    };
    let at = child(pointer, key);
    let mut finding =
        Diagnostic::at(source, "unknown_field", &at, format!("{} has no `{key}`", display(pointer)), help);
    finding.position = source.key_position(&at);
    findings.push(finding);
}

/// A place as a message names it.
fn display(pointer: &str) -> String {
    if pointer.is_empty() { "the blueprint".to_owned() } else { format!("`{pointer}`") }
}

fn is_trigger(pointer: &str) -> bool {
    let mut tokens = pointer.split('/').skip(1);
    tokens.next() == Some("rules") && tokens.nth(1) == Some("trigger")
}

/// Whether a place holds something that must be finite.
fn is_budget(pointer: &str) -> bool {
    let tokens: Vec<&str> = pointer.split('/').skip(1).collect();
    match tokens.as_slice() {
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
        | ["circuit", "cooldown"] => true,
        [..] => false,
    }
}

/// Whether somebody wrote this to mean "no limit".
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

/// What the meta-schema says of the field that an error is about.
fn describe(error: &ValidationError<'_>) -> String {
    let general = describe_at(parent(error.schema_path().as_str()));
    // A field that refers to a definition describes itself beside the reference.
    let field = field(error).and_then(|field| field.get("description")?.as_str()).unwrap_or_default();
    if field.is_empty() || field == general { general } else { format!("{field} {general}").trim_end().to_owned() }
}

/// The schema that stands at the instance's own field: the one that refers to what the error comes from, or that itself.
fn field(error: &ValidationError<'_>) -> Option<&'static Value> {
    let path = error.evaluation_path().as_str();
    let mut tokens: Vec<&str> = path.split('/').skip(1).collect();
    tokens.pop();
    if tokens.last() == Some(&"$ref") {
        tokens.pop();
    }
    let mut at: &'static Value = &META;
    for token in tokens {
        at = match at {
            Value::Array(items) => items.get(token.parse::<usize>().ok()?)?,
            Value::Object(members) if token == "$ref" => {
                META.pointer(members.get("$ref")?.as_str()?.strip_prefix('#')?)?
            }
            other => other.get(token)?,
        };
    }
    Some(at)
}

fn describe_at(schema: &str) -> String {
    let description = META.pointer(schema).and_then(|schema| schema.get("description")?.as_str());
    description.unwrap_or_default().to_owned()
}

fn default(error: &ValidationError<'_>) -> String {
    field(error)
        .and_then(|field| field.get("default"))
        .map_or_else(String::new, |default| format!(", or leave it out for {}", short(default)))
}

fn parent(pointer: &str) -> &str {
    pointer.rfind('/').map_or("", |end| &pointer[..end])
}

fn one_of(found: &Value, options: &[&str]) -> String {
    let best = found.as_str().and_then(|text| meant(text, options.iter().copied()));
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

/// A value as a message shows it.
fn short(value: &Value) -> String {
    match value {
        Value::Array(items) if items.len() > 3 => "a list".to_owned(),
        Value::Object(members) if members.len() > 3 => "a mapping".to_owned(),
        value => {
            let text = value.to_string();
            if text.chars().count() <= 60 { text } else { format!("{}…", text.chars().take(60).collect::<String>()) }
        }
    }
}
