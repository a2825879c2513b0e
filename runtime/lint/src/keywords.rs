//! Schema keywords that no JSON Schema draft knows, and required names without a declaration.

use serde_json::{Map, Value};

use super::schema_keywords::{ELSEWHERE, is_closed, named_values, number, required, types_of};
use super::{Linter, closest_name};
use crate::source::child;

/// Minimum length of a name that is suggested as a misspelling.
pub(super) const NAME_MIN: usize = 4;
/// Maximum schemas checked in one document.
const SCHEMAS_MAX: usize = 4096;

/// Keywords of drafts 6 to 2020-12.
const KEYWORDS: &str = "\
    $anchor $comment $defs $dynamicAnchor $dynamicRef $id $recursiveAnchor $recursiveRef $ref $schema $vocabulary \
    additionalItems additionalProperties allOf anyOf const contains contentEncoding contentMediaType contentSchema \
    default definitions dependencies dependentRequired dependentSchemas deprecated description else enum examples \
    exclusiveMaximum exclusiveMinimum format if items maxContains maxItems maxLength maxProperties maximum \
    minContains minItems minLength minProperties minimum multipleOf not oneOf pattern patternProperties prefixItems \
    properties propertyNames readOnly required then title type unevaluatedItems unevaluatedProperties uniqueItems \
    writeOnly";

/// Types with the keywords that apply only to their values.
const SAID_OF: [(&[&str], &str); 4] = [
    (&["array"], "additionalItems contains items maxItems minItems prefixItems uniqueItems"),
    (&["integer", "number"], "exclusiveMaximum exclusiveMinimum maximum minimum multipleOf"),
    (
        &["object"],
        "additionalProperties maxProperties minProperties patternProperties properties propertyNames required",
    ),
    (&["string"], "maxLength minLength pattern"),
];

/// Keywords with a map of schemas by name.
const BY_NAME: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/// Keywords with plain data as values.
const DATA: [&str; 6] = ["$vocabulary", "const", "default", "dependentRequired", "enum", "examples"];

impl Linter<'_> {
    /// Warns of keywords that no draft knows, in the schemas of the document, the request, signals and grants.
    pub(super) fn keywords(&self) {
        let blueprint = self.blueprint;
        let mut schemas =
            vec![("/state/schema".to_owned(), &blueprint.state.schema), ("/request".to_owned(), &blueprint.request)];
        schemas.extend(blueprint.signals.iter().map(|(name, schema)| (child("/signals", name), schema)));
        for (name, worker) in &blueprint.workers {
            let grants = worker.writes.iter().enumerate();
            let values = grants.filter_map(|(at, grant)| Some((at, grant.value.as_ref()?)));
            let at = child("/workers", name.as_str());
            schemas.extend(values.map(|(nth, value)| (format!("{at}/writes/{nth}/value"), value)));
        }
        for (pointer, schema) in schemas {
            self.keywords_of(&pointer, schema);
        }
    }

    fn keywords_of(&self, pointer: &str, schema: &Value) {
        let mut pending = vec![(pointer.to_owned(), schema)];
        let mut looked_at = 0;
        while let Some((pointer, schema)) = pending.pop() {
            looked_at += 1;
            if looked_at > SCHEMAS_MAX {
                return;
            }
            let Some(members) = schema.as_object() else { continue };
            for (keyword, value) in members {
                let at = child(&pointer, keyword);
                if !KEYWORDS.split(' ').any(|known| known == keyword) {
                    if !keyword.starts_with("x-") {
                        self.unknown_keyword(&at, keyword);
                    }
                    continue;
                }
                match value {
                    _ if DATA.contains(&keyword.as_str()) => {}
                    Value::Object(named) if BY_NAME.contains(&keyword.as_str()) => {
                        pending.extend(named.iter().map(|(name, schema)| (child(&at, name), schema)));
                    }
                    Value::Object(_) => pending.push((at, value)),
                    Value::Array(schemas) => {
                        pending.extend(schemas.iter().enumerate().map(|(nth, schema)| (format!("{at}/{nth}"), schema)));
                    }
                    _ => {}
                }
            }
            self.undeclared_names(&pointer, members);
            self.void_keywords(&pointer, members);
            if let Some((keyword, message)) = impossible(schema) {
                let help = "Fix it: no value can be written there.";
                self.report_at_key("impossible_schema", &child(&pointer, keyword), message, help);
            }
        }
    }

    fn unknown_keyword(&self, pointer: &str, keyword: &str) {
        let help = match closest_name(keyword, KEYWORDS.split(' ')) {
            _ if keyword == "nullable" => {
                "Write `type: [string, \"null\"]`, or `anyOf` with `{type: \"null\"}`.".to_owned()
            }
            Some(meant) => format!("Did you mean `{meant}`?"),
            None => "Remove it, or begin it with `x-` if another program reads it.".to_owned(),
        };
        self.report_at_key("unknown_keyword", pointer, format!("JSON Schema has no keyword `{keyword}`"), help);
    }

    /// Warns of keywords that do not apply to the only type that a schema allows.
    fn void_keywords(&self, pointer: &str, schema: &Map<String, Value>) {
        let Some(of) = schema.get("type").and_then(Value::as_str) else { return };
        let others = SAID_OF.iter().filter(|(types, _)| !types.contains(&of));
        let keywords = others.flat_map(|(types, keywords)| keywords.split(' ').map(move |keyword| (keyword, types)));
        for (keyword, types) in keywords.filter(|(keyword, _)| schema.contains_key(*keyword)) {
            let message = format!("`{keyword}` says nothing of type {of}, so nothing of it is checked");
            let help = format!("It is a keyword of type {}.", types.join(" or "));
            self.report_at_key("void_keyword", &child(pointer, keyword), message, help);
        }
    }

    /// Warns of misspelt required names: a property has a similar name.
    fn undeclared_names(&self, pointer: &str, schema: &Map<String, Value>) {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
        // A schema under `additionalProperties` describes each other member by itself.
        let is_elsewhere = |token: &str| token != "additionalProperties" && ELSEWHERE.split(' ').any(|of| of == token);
        let is_of_many = pointer.split('/').any(is_elsewhere);
        let has_others =
            ELSEWHERE.split(' ').any(|keyword| schema.get(keyword).is_some_and(|value| !value.is_boolean()));
        if is_of_many || has_others {
            return;
        }
        let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let is_required = |name: &str| required.iter().any(|other| other == name);
        for (nth, name) in required.iter().enumerate() {
            // A short name resembles too many others.
            let is_unknown = |name: &&str| name.len() >= NAME_MIN && !properties.contains_key(*name);
            let Some(name) = name.as_str().filter(is_unknown) else { continue };
            let meant = closest_name(name, properties.keys().map(String::as_str));
            if let Some(meant) = meant.filter(|meant| !is_required(meant)) {
                let message = format!("`{name}` is required, and `properties` has no such name");
                let help = format!("Did you mean `{meant}`?");
                self.report("unknown_keyword", &format!("{pointer}/required/{nth}"), message, help);
            }
        }
    }
}

/// Keywords of a minimum and a maximum.
const BOUNDS: [(&str, &str); 4] =
    [("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties")];

/// Returns a keyword that contradicts another of the same schema, and the contradiction.
fn impossible(schema: &Value) -> Option<(&'static str, String)> {
    let bounds = |(least, most): &(&str, &str)| number(schema, least).zip(number(schema, most));
    let crossed = BOUNDS.into_iter().find(|keywords| bounds(keywords).is_some_and(|(low, high)| low > high));
    if let Some((least, most)) = crossed {
        return Some((least, format!("`{least}` is more than `{most}`")));
    }
    let values = schema.get("enum").and_then(Value::as_array);
    if values.is_some_and(Vec::is_empty) {
        return Some(("enum", "`enum` names no value".to_owned()));
    }
    let value = schema.get("const");
    if let (Some(value), Some(values)) = (value, values)
        && !values.contains(value)
    {
        return Some(("const", "`const` is none of `enum`".to_owned()));
    }
    if let (Some(types), Some(named)) = (types_of(schema), named_values(schema))
        && !named.iter().any(|value| types.iter().any(|of| is_of_type(value, of)))
    {
        let keyword = if value.is_some() { "const" } else { "enum" };
        return Some((keyword, format!("`{keyword}` names no value of type {}", types.join(" or "))));
    }
    let declared = schema.get("properties").and_then(Value::as_object);
    // `undeclared_names` reports a misspelt name.
    let is_misspelt =
        |declared: &Map<String, Value>, name: &str| closest_name(name, declared.keys().map(String::as_str)).is_some();
    let missing = |name: &&str| {
        is_closed(schema)
            && declared.is_none_or(|declared| !declared.contains_key(*name) && !is_misspelt(declared, name))
    };
    let mut missing = required(schema).filter(missing);
    missing
        .next()
        .map(|name| ("required", format!("`{name}` is required, and `additionalProperties: false` forbids it")))
}

fn is_of_type(value: &Value, of: &str) -> bool {
    match value {
        Value::Null => of == "null",
        Value::Bool(_) => of == "boolean",
        Value::Number(number) => {
            of == "number"
                || (of == "integer"
                    && (number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|n| n.fract() == 0.0)))
        }
        Value::String(_) => of == "string",
        Value::Array(_) => of == "array",
        Value::Object(_) => of == "object",
    }
}
