//! Walk over a schema document that finds its subschemas, and the targets of their references.

use std::collections::BTreeMap;

use jsonschema::{Draft, Uri, uri};
use serde_json::{Map, Value};

use super::{Id, REFERENCES, Role, below};

/// The accepted drafts, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Dialect {
    Draft6,
    Draft7,
    Draft201909,
    Draft202012,
}

/// Context of a subschema from its enclosing schemas.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// Base URI without fragment; `None` below an invalid identifier, so that nothing can be resolved.
    base: Option<Uri<String>>,
    pub(super) dialect: Dialect,
}

/// A visited subschema, with JSON Pointers in place of the later numbers.
#[derive(Debug)]
pub(super) struct VisitedSchema {
    pub(super) pointer: String,
    pub(super) scope: Scope,
    pub(super) children: Vec<(Role, String)>,
}

/// A walk over the document that collects subschemas and the targets of references.
#[derive(Default, Debug)]
pub(super) struct Survey {
    pub(super) found: Vec<VisitedSchema>,
    pub(super) at: BTreeMap<String, Id>,
    /// Pointers by base URI.
    resources: BTreeMap<String, String>,
    /// Pointers by base URI and anchor.
    anchors: BTreeMap<(String, String), String>,
    /// Pointers by dynamic anchor (`$dynamicAnchor`, and `$recursiveAnchor` under the empty name).
    dynamic: BTreeMap<String, Vec<String>>,
    /// The first subschema with the name of another one: its pointer and the name.
    pub(super) duplicate: Option<(String, String)>,
}

impl Survey {
    pub(super) fn new(document: &Value, draft: Draft) -> Self {
        let mut survey = Self::default();
        let root = uri::from_str("").ok();
        if let Some(root) = &root {
            survey.resources.insert(root.as_str().to_owned(), String::new());
        }
        survey.visit(document, String::new(), Scope { base: root, dialect: dialect(draft) });
        survey
    }

    /// Visits a reference target, unless already visited.
    pub(super) fn visit_if_new(&mut self, document: &Value, pointer: &str) {
        if self.at.contains_key(pointer) {
            return;
        }
        let mut ancestor = pointer;
        let scope = loop {
            ancestor = ancestor.rfind('/').map_or("", |end| &ancestor[..end]);
            if let Some(&id) = self.at.get(ancestor) {
                break self.found[id].scope.clone();
            }
        };
        self.visit(document, pointer.to_owned(), scope);
    }

    /// Visits a place and all subschemas below it.
    fn visit(&mut self, document: &Value, pointer: String, scope: Scope) {
        // An explicit stack, because the document may prove too deeply nested for recursion.
        let mut pending = vec![(pointer, scope)];
        while let Some((pointer, scope)) = pending.pop() {
            if self.at.contains_key(&pointer) {
                continue;
            }
            let Some(value) = document.pointer(&pointer) else { continue };
            let (scope, children) = match value {
                Value::Object(members) => {
                    let scope = self.enter(members, &pointer, scope);
                    let children = subschemas(members, &pointer, scope.dialect);
                    (scope, children)
                }
                _ => (scope, Vec::new()),
            };
            pending.extend(children.iter().rev().map(|(_, child)| (child.clone(), scope.clone())));
            self.at.insert(pointer.clone(), self.found.len());
            self.found.push(VisitedSchema { pointer, scope, children });
        }
    }

    /// Records the names of a schema object, and returns the scope of its contents.
    fn enter(&mut self, members: &Map<String, Value>, pointer: &str, mut scope: Scope) -> Scope {
        if let Some(draft) = members.get("$schema").and_then(Value::as_str).map(Draft::from_schema_uri)
            && draft != Draft::Unknown
        {
            scope.dialect = dialect(draft);
        }
        if hides_siblings(members, scope.dialect) {
            return scope;
        }
        if let Some(id) = members.get("$id").and_then(Value::as_str) {
            match id.split_once('#') {
                Some(("", anchor)) if scope.dialect <= Dialect::Draft7 => {
                    self.name(&scope, anchor, pointer);
                }
                _ => {
                    scope.base = scope.base.and_then(|base| resolve(&base, id)).map(|(base, _)| base);
                    if let Some(base) = &scope.base {
                        let named =
                            self.resources.entry(base.as_str().to_owned()).or_insert_with(|| pointer.to_owned());
                        if named != pointer {
                            self.duplicate.get_or_insert_with(|| (pointer.to_owned(), id.to_owned()));
                        }
                    }
                }
            }
        }
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(anchor) = members.get(keyword).and_then(Value::as_str) {
                self.name(&scope, anchor, pointer);
            }
        }
        let dynamic = members.get("$dynamicAnchor").and_then(Value::as_str);
        let recursive = (members.get("$recursiveAnchor") == Some(&Value::Bool(true))).then_some("");
        for name in dynamic.into_iter().chain(recursive) {
            self.dynamic.entry(name.to_owned()).or_default().push(pointer.to_owned());
        }
        scope
    }

    fn name(&mut self, scope: &Scope, anchor: &str, pointer: &str) {
        let Some(base) = &scope.base else { return };
        let key = (base.as_str().to_owned(), anchor.to_owned());
        if self.anchors.entry(key).or_insert_with(|| pointer.to_owned()) != pointer {
            self.duplicate.get_or_insert_with(|| (pointer.to_owned(), format!("#{anchor}")));
        }
    }

    /// Returns the targets of a subschema's references; `None` for one that leads out of the document.
    pub(super) fn refs_of(&self, document: &Value, id: Id) -> Vec<Option<Vec<String>>> {
        let found = &self.found[id];
        let Some(members) = document.pointer(&found.pointer).and_then(Value::as_object) else { return Vec::new() };
        let mut targets = Vec::new();
        for keyword in REFERENCES {
            let known = match keyword {
                "$ref" => true,
                "$recursiveRef" => found.scope.dialect == Dialect::Draft201909,
                _ => found.scope.dialect == Dialect::Draft202012,
            };
            if let Some(reference) = members.get(keyword).and_then(Value::as_str)
                && known
            {
                targets.push(self.target(document, &found.scope, keyword, reference));
            }
        }
        targets
    }

    fn target(&self, document: &Value, scope: &Scope, keyword: &str, reference: &str) -> Option<Vec<String>> {
        let (base, fragment) = resolve(scope.base.as_ref()?, reference)?;
        let resource = self.resources.get(base.as_str())?;
        let is_pointer = fragment.is_empty() || fragment.starts_with('/');
        let target = if is_pointer {
            let pointer = format!("{resource}{fragment}");
            document.pointer(&pointer).map(|_| pointer)?
        } else {
            self.anchors.get(&(base.as_str().to_owned(), fragment.clone()))?.clone()
        };
        // A dynamic reference resolves to the outermost anchor of that name on the path. The path depends on the start
        // of validation, so any of them is possible.
        let name = match keyword {
            "$dynamicRef" if !is_pointer => fragment.as_str(),
            "$recursiveRef" => "",
            _ => return Some(vec![target]),
        };
        match self.dynamic.get(name) {
            Some(places) if places.contains(&target) => Some(places.clone()),
            _ => Some(vec![target]),
        }
    }
}

fn dialect(draft: Draft) -> Dialect {
    match draft {
        Draft::Draft4 | Draft::Draft6 => Dialect::Draft6,
        Draft::Draft7 => Dialect::Draft7,
        Draft::Draft201909 => Dialect::Draft201909,
        _ => Dialect::Draft202012,
    }
}

/// Resolves a reference to an absolute URI without fragment, and the decoded fragment.
fn resolve(base: &Uri<String>, reference: &str) -> Option<(Uri<String>, String)> {
    let mut uri = uri::resolve_against(&base.borrow(), reference).ok()?;
    let fragment = match uri.fragment() {
        Some(fragment) => fragment.decode().to_string().ok()?.into_owned(),
        None => String::new(),
    };
    uri.set_fragment(None);
    Some((uri, fragment))
}

/// Returns true if siblings of `$ref` are ignored, as up to draft 7.
pub(super) fn hides_siblings(members: &Map<String, Value>, dialect: Dialect) -> bool {
    dialect <= Dialect::Draft7 && members.get("$ref").is_some_and(Value::is_string)
}

/// Returns the subschemas of a schema object.
fn subschemas(members: &Map<String, Value>, pointer: &str, dialect: Dialect) -> Vec<(Role, String)> {
    let since = |first: Dialect| dialect >= first;
    let mut found = Vec::new();
    for (keyword, value) in members {
        let place = below(pointer, keyword);
        let mut one = |role: Role| found.push((role, place.clone()));
        match (keyword.as_str(), value) {
            ("not", _) => one(Role::Not),
            ("if", _) if since(Dialect::Draft7) => one(Role::If),
            ("then", _) if since(Dialect::Draft7) && members.contains_key("if") => one(Role::Then),
            ("else", _) if since(Dialect::Draft7) && members.contains_key("if") => one(Role::Else),
            // Without `if` they apply to nothing, but can be reference targets.
            ("then" | "else", _) if since(Dialect::Draft7) => one(Role::Definition),
            ("additionalProperties", _) => one(Role::AdditionalProperties),
            ("unevaluatedProperties", _) if since(Dialect::Draft201909) => one(Role::UnevaluatedProperties),
            ("propertyNames", _) => one(Role::PropertyNames),
            ("contains", _) => one(Role::Contains),
            ("contentSchema", _) => one(Role::Definition),
            ("unevaluatedItems", _) if since(Dialect::Draft201909) => one(Role::UnevaluatedItems),
            ("items", Value::Object(_) | Value::Bool(_)) => one(Role::Items),
            ("additionalItems", _)
                if !since(Dialect::Draft202012) && members.get("items").is_some_and(Value::is_array) =>
            {
                one(Role::Items);
            }
            ("additionalItems", Value::Object(_)) if !since(Dialect::Draft202012) => one(Role::Definition),
            (_, Value::Array(list)) => {
                let role = |index: usize| match keyword.as_str() {
                    "allOf" => Some(Role::AllOf),
                    "anyOf" => Some(Role::AnyOf),
                    "oneOf" => Some(Role::OneOf),
                    "prefixItems" if since(Dialect::Draft202012) => Some(Role::Prefix(index)),
                    "items" if !since(Dialect::Draft202012) => Some(Role::Prefix(index)),
                    _ => None,
                };
                found.extend((0..list.len()).filter_map(|index| Some((role(index)?, format!("{place}/{index}")))));
            }
            (_, Value::Object(named)) => {
                let role = |name: &str| match keyword.as_str() {
                    "properties" => Some(Role::Property(name.to_owned())),
                    "patternProperties" => Some(Role::Pattern(name.to_owned())),
                    "dependentSchemas" if since(Dialect::Draft201909) => Some(Role::Dependent),
                    "dependencies" if !named[name].is_array() => Some(Role::Dependent),
                    "$defs" | "definitions" => Some(Role::Definition),
                    _ => None,
                };
                found.extend(named.keys().filter_map(|name| Some((role(name)?, below(&place, name)))));
            }
            _ => {}
        }
    }
    if hides_siblings(members, dialect) {
        found.retain(|(role, _)| *role == Role::Definition);
    }
    found
}
