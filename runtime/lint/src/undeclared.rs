//! Names in paths that `properties` of a schema does not declare.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::cached_schema::CachedSchema;
use patchboard_kernel::pattern::{Pattern, PatternToken, is_index};
use patchboard_kernel::schema::{Location, Schema};

/// Keywords that cover all names not declared by `properties`.
const REST: [&str; 3] = ["additionalProperties", "unevaluatedProperties", "propertyNames"];

/// A name that `properties` does not declare.
pub(super) struct Undeclared {
    /// The object that contains the name.
    pub(super) holder: Pattern,
    pub(super) name: String,
    /// Names that are declared there.
    pub(super) known: Vec<String>,
}

/// Names of members that a schema declares, including its combined subschemas.
#[derive(Default)]
struct Declared {
    /// Names under `properties`.
    properties: BTreeSet<String>,
    /// Declared and required names.
    names: BTreeSet<String>,
    /// Regular expressions of `patternProperties`.
    patterns: BTreeSet<String>,
    /// True if one schema describes all other names.
    describes_rest: bool,
    /// True if a schema that is not visible here may declare names.
    is_open: bool,
}

impl Declared {
    fn note(&mut self, schema: &Value) {
        let Some(members) = schema.as_object() else {
            self.is_open |= *schema == Value::Bool(true);
            return;
        };
        let keys =
            |keyword: &str| members.get(keyword).and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name);
        self.properties.extend(keys("properties").cloned());
        self.names.extend(keys("properties").cloned());
        self.patterns.extend(keys("patternProperties").cloned());
        let required = members.get("required").and_then(Value::as_array).into_iter().flatten();
        self.names.extend(required.filter_map(Value::as_str).map(str::to_owned));
        self.describes_rest |= REST.iter().any(|keyword| members.contains_key(*keyword));
        self.is_open |= ["$ref", "$dynamicRef", "dependencies"].iter().any(|keyword| members.contains_key(*keyword));
        for part in ["allOf", "anyOf", "oneOf"].iter().filter_map(|keyword| members.get(*keyword)?.as_array()).flatten()
        {
            self.is_open |= says_no_more_than_object(part);
            self.note(part);
        }
        let applied = ["if", "then", "else"].iter().filter_map(|keyword| members.get(*keyword));
        let dependent = members.get("dependentSchemas").and_then(Value::as_object).into_iter().flatten();
        applied.chain(dependent.map(|(_, part)| part)).for_each(|part| self.note(part));
    }
}

/// Returns true for a schema part that leaves all names open. A part too long to show is cut down to its type, and
/// counts as such.
fn says_no_more_than_object(part: &Value) -> bool {
    const ANNOTATIONS: [&str; 6] = ["type", "title", "description", "default", "examples", "$comment"];
    let is_object =
        |of: &Value| of == "object" || of.as_array().is_some_and(|types| types.iter().any(|of| of == "object"));
    part.as_object().is_some_and(|part| {
        part.keys().all(|keyword| ANNOTATIONS.contains(&keyword.as_str())) && part.get("type").is_none_or(is_object)
    })
}

/// Returns true if a regular expression matches a name, or does not compile.
fn matches(pattern: &str, name: &str) -> bool {
    Schema::compile(&json!({"pattern": pattern}), false).map_or(true, |schema| schema.is_valid(&json!(name)))
}

/// Returns the first name of a pattern that `properties` does not declare. Its object allows other names as well, and
/// the name is neither required nor present.
pub(super) fn undeclared_in(
    schema: &CachedSchema,
    sought: &Pattern,
    is_there: &dyn Fn(&Pattern) -> bool,
) -> Option<Undeclared> {
    for (depth, token) in sought.tokens().iter().enumerate() {
        let PatternToken::Literal(name) = token else { continue };
        let holder = sought.prefix(depth);
        // An index names no member.
        if is_index(name) && schema.may_be_array(&holder) {
            continue;
        }
        let fragment = schema.fragment(&holder)?;
        let mut declared = Declared::default();
        declared.note(&fragment);
        if name.starts_with('$') || declared.is_open {
            return None;
        }
        if declared.properties.is_empty()
            || declared.names.contains(name)
            || declared.describes_rest
            || declared.patterns.iter().any(|pattern| matches(pattern, name))
            || is_there(&sought.prefix(depth + 1).under_any_binding())
        {
            continue;
        }
        let known = declared.properties.into_iter().collect();
        return Some(Undeclared { holder, name: name.clone(), known });
    }
    None
}

/// Returns true if a schema itself describes a place.
pub(super) fn declares(schema: &Schema, pattern: &Pattern) -> bool {
    matches!(schema.locate(pattern), Location::Legal(fragments) if !fragments.is_empty())
}
