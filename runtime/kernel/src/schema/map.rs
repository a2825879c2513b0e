//! Map of a document's subschemas: their locations, their constraints on places, and the targets of their references.
//!
//! References are resolved with the enclosing base URIs (`$id`, JSON Schema Core sections 8.2 and 8.3), but only inside
//! the document. A reference out of the document is kept as unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use jsonptr::Token;
use jsonschema::{Draft, PatternOptions, Uri, Validator, uri};
use serde_json::{Map, Value};

use crate::work_budget::{WorkBudget, WorkKind};

/// Number of a subschema; 0 is the document itself.
pub(super) type Id = usize;

/// The accepted drafts, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Dialect {
    Draft6,
    Draft7,
    Draft201909,
    Draft202012,
}

/// Role of a subschema in its parent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Role {
    AllOf,
    AnyOf,
    OneOf,
    Not,
    If,
    Then,
    Else,
    /// Applies to the same object if a certain member is present.
    Dependent,
    Property(String),
    /// Applies to members with matching names.
    Pattern(String),
    AdditionalProperties,
    UnevaluatedProperties,
    PropertyNames,
    /// Applies to the element with this index.
    Prefix(usize),
    /// Applies to the elements after the prefix.
    Items,
    UnevaluatedItems,
    Contains,
    /// Applies nowhere by itself; a target for references.
    Definition,
}

impl Role {
    /// Returns the member name of a property; empty for other roles.
    fn name(&self) -> &str {
        match self {
            Self::Property(name) => name,
            _ => "",
        }
    }

    /// Returns true if the subschema applies to the same instance as its parent.
    pub(super) fn is_in_place(&self) -> bool {
        match self {
            Self::AllOf
            | Self::AnyOf
            | Self::OneOf
            | Self::Not
            | Self::If
            | Self::Then
            | Self::Else
            | Self::Dependent => true,
            Self::Property(_)
            | Self::Pattern(_)
            | Self::AdditionalProperties
            | Self::UnevaluatedProperties
            | Self::PropertyNames
            | Self::Prefix(_)
            | Self::Items
            | Self::UnevaluatedItems
            | Self::Contains
            | Self::Definition => false,
        }
    }
}

/// One subschema.
#[derive(Debug)]
pub(super) struct Node {
    /// JSON Pointer into the document.
    pub(super) pointer: String,
    /// The schema is `false`.
    pub(super) never: bool,
    /// The schema is `true` or `{}`.
    pub(super) anything: bool,
    /// Siblings of its `$ref` are ignored.
    pub(super) hides_siblings: bool,
    /// Objects are permitted by `type`, `const` and `enum`.
    pub(super) objects: bool,
    /// Arrays are permitted by `type`, `const` and `enum`.
    pub(super) arrays: bool,
    /// Fractional numbers are named: by `type` as `number`, or by a value of `enum` or `const`.
    pub(super) numbers: bool,
    /// Fractional numbers are permitted by `type`, `const` and `enum`.
    pub(super) fractions: bool,
    /// Possible targets of each reference: usually one, several for a dynamic reference.
    pub(super) refs: Vec<Vec<Id>>,
    /// A reference leads out of the document.
    pub(super) outside: bool,
    /// Direct subschemas.
    pub(super) children: Vec<(Role, Id)>,
    /// Indices into `children` of properties, sorted by name.
    by_name: Vec<usize>,
    /// Indices into `children` of all but properties and definitions.
    others: Vec<usize>,
}

impl Node {
    /// Returns the subschema of the property with this name.
    pub(super) fn property(&self, name: &str) -> Option<Id> {
        let at = self.by_name.binary_search_by(|&at| self.children[at].0.name().cmp(name)).ok()?;
        Some(self.children[self.by_name[at]].1)
    }

    /// Iterates over the names of the properties, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.iter().map(|&at| self.children[at].0.name())
    }

    /// Iterates over all subschemas except properties, which can be numerous, and definitions.
    pub(super) fn others(&self) -> impl Iterator<Item = &(Role, Id)> {
        self.others.iter().map(|&at| &self.children[at])
    }

    /// Iterates over the subschemas of one role among [`Self::others`], in document order.
    pub(super) fn each(&self, role: &Role) -> impl Iterator<Item = Id> {
        self.others().filter(move |(child, _)| child == role).map(|(_, id)| *id)
    }

    /// Returns the subschema of a role that occurs once.
    pub(super) fn one(&self, role: &Role) -> Option<Id> {
        self.each(role).next()
    }

    /// Iterates over the subschemas for the same instance, including reference targets.
    pub(super) fn in_place(&self) -> impl Iterator<Item = Id> {
        let applied = self.others().filter(|(role, _)| role.is_in_place()).map(|(_, id)| *id);
        applied.chain(self.refs.iter().flatten().copied())
    }

    /// Iterates over the subschemas for parts of the instance.
    pub(super) fn deeper(&self) -> impl Iterator<Item = Id> {
        let is_deeper = |role: &Role| !role.is_in_place() && *role != Role::Definition;
        self.children.iter().filter(move |(role, _)| is_deeper(role)).map(|(_, id)| *id)
    }
}

/// Subschemas of a document.
#[derive(Debug)]
pub(super) struct SchemaMap {
    nodes: Vec<Node>,
    at: BTreeMap<String, Id>,
    /// Matchers for the patterns reachable from the root; filled by `with_matchers`.
    patterns: BTreeMap<String, Validator>,
    /// The first subschema with the name of another one: its pointer and the name.
    duplicate: Option<(String, String)>,
    /// Cached results per subschema; true if no value satisfies it.
    impossible: Vec<OnceLock<bool>>,
    /// Budget for queries.
    effort: WorkBudget,
}

impl SchemaMap {
    /// Builds the map of a document that satisfies its meta-schema.
    pub(super) fn new(document: &Value, draft: Draft) -> Self {
        let mut survey = Survey::new(document, draft);
        let mut refs = Vec::new();
        // A reference target is a schema even where no keyword makes it one, and may have references itself.
        while refs.len() < survey.found.len() {
            let targets = survey.refs_of(document, refs.len());
            for pointer in targets.iter().flatten().flatten() {
                survey.visit_if_new(document, pointer);
            }
            refs.push(targets);
        }
        let Survey { found, at, duplicate, .. } = survey;
        let nodes = found
            .into_iter()
            .zip(refs)
            .map(|(found, targets)| {
                let value = document.pointer(&found.pointer).expect("every survey entry is a place of the document");
                let (objects, arrays) = containers(value, found.scope.dialect);
                let names_number = names_number(value, found.scope.dialect);
                let ids = |pointers: &Vec<String>| pointers.iter().map(|pointer| at[pointer]).collect();
                let children: Vec<_> = found.children.into_iter().map(|(role, pointer)| (role, at[&pointer])).collect();
                let (by_name, others) = by_role(&children);
                Node {
                    never: *value == Value::Bool(false),
                    anything: *value == Value::Bool(true) || value.as_object().is_some_and(Map::is_empty),
                    hides_siblings: value
                        .as_object()
                        .is_some_and(|members| hides_siblings(members, found.scope.dialect)),
                    objects,
                    arrays,
                    numbers: names_number == Some(true),
                    fractions: names_number != Some(false),
                    refs: targets.iter().flatten().map(ids).collect(),
                    outside: targets.iter().any(Option::is_none),
                    children,
                    by_name,
                    others,
                    pointer: found.pointer,
                }
            })
            .collect::<Vec<_>>();
        let impossible = nodes.iter().map(|_| OnceLock::new()).collect();
        Self { nodes, at, patterns: BTreeMap::new(), duplicate, impossible, effort: WorkBudget::default() }
    }

    /// Sets the budget for queries.
    pub(super) fn within(self, effort: WorkBudget) -> Self {
        Self { effort, ..self }
    }

    /// Spends steps of the query budget; false if it is exhausted and any answer is acceptable.
    pub(super) fn spend(&self, steps: usize) -> bool {
        self.effort.spend(WorkKind::Places, steps as u64)
    }

    /// Adds matchers for the regular expressions of `patternProperties`.
    pub(super) fn with_matchers(mut self) -> Self {
        for id in self.reach(0) {
            for (role, _) in &self.nodes[id].children {
                if let Role::Pattern(pattern) = role
                    && !self.patterns.contains_key(pattern)
                    && let Some(matcher) = matcher(pattern)
                {
                    self.patterns.insert(pattern.clone(), matcher);
                }
            }
        }
        self
    }

    /// Returns a subschema and all that are reachable from it, without duplicates.
    pub(super) fn reach(&self, id: Id) -> Vec<Id> {
        let mut seen = vec![false; self.nodes.len()];
        let mut reached = Vec::new();
        let mut pending = vec![id];
        while let Some(id) = pending.pop() {
            if !std::mem::replace(&mut seen[id], true) {
                reached.push(id);
                pending.extend(self.nodes[id].in_place().chain(self.nodes[id].deeper()));
            }
        }
        reached
    }

    pub(super) fn node(&self, id: Id) -> &Node {
        &self.nodes[id]
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true if no value satisfies a subschema; `found` is evaluated at most once.
    pub(super) fn is_impossible(&self, id: Id, found: impl FnOnce() -> bool) -> bool {
        *self.impossible[id].get_or_init(found)
    }

    /// Iterates over the JSON Pointers of all subschemas.
    pub(super) fn pointers(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.pointer.as_str())
    }

    /// Returns the subschema at a JSON Pointer.
    pub(super) fn at(&self, pointer: &str) -> Option<Id> {
        self.at.get(pointer).copied()
    }

    /// Returns true if a name matches a pattern of `patternProperties`. An invalid pattern matches nothing; compilation
    /// rejects its schema elsewhere.
    pub(super) fn name_matches(&self, pattern: &str, name: &str) -> bool {
        self.patterns.get(pattern).is_some_and(|matcher| matcher.is_valid(&Value::from(name)))
    }

    /// Returns this subschema and all that apply to the same instance, without duplicates.
    pub(super) fn closure(&self, id: Id) -> Vec<Id> {
        let mut seen = BTreeSet::new();
        let mut closure = Vec::new();
        let mut pending = vec![id];
        while let Some(id) = pending.pop() {
            if seen.insert(id) {
                closure.push(id);
                pending.extend(self.nodes[id].in_place());
            }
        }
        self.spend(2 * closure.len());
        closure
    }

    /// Returns a subschema with the anchor or identifier of another one: its JSON Pointer and the name. References to
    /// such a name are undefined (JSON Schema Core section 8.2).
    pub(super) const fn named_twice(&self) -> Option<&(String, String)> {
        self.duplicate.as_ref()
    }

    /// Returns the first reference out of the document: its JSON Pointer and its text.
    pub(super) fn dangling(&self, document: &Value) -> Option<(String, String)> {
        self.nodes.iter().filter(|node| node.outside).find_map(|node| {
            let value = document.pointer(&node.pointer)?;
            REFERENCES.iter().find_map(|keyword| {
                let reference = value.get(keyword)?.as_str()?;
                let is_meta_schema = Draft::from_schema_uri(reference) != Draft::Unknown;
                (!is_meta_schema).then(|| (format!("{}/{keyword}", node.pointer), reference.to_owned()))
            })
        })
    }
}

/// Keywords that refer to another schema.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Appends a token to a JSON Pointer.
pub(super) fn below(pointer: &str, token: &str) -> String {
    format!("{pointer}/{}", Token::new(token).encoded())
}

/// Context of a subschema from its enclosing schemas.
#[derive(Clone, Debug)]
struct Scope {
    /// Base URI without fragment; `None` below an invalid identifier, so that nothing can be resolved.
    base: Option<Uri<String>>,
    dialect: Dialect,
}

/// A visited subschema, with JSON Pointers in place of the later numbers.
#[derive(Debug)]
struct VisitedSchema {
    pointer: String,
    scope: Scope,
    children: Vec<(Role, String)>,
}

/// A walk over the document that collects subschemas and the targets of references.
#[derive(Debug)]
struct Survey {
    found: Vec<VisitedSchema>,
    at: BTreeMap<String, Id>,
    /// Pointers by base URI.
    resources: BTreeMap<String, String>,
    /// Pointers by base URI and anchor.
    anchors: BTreeMap<(String, String), String>,
    /// Pointers by dynamic anchor (`$dynamicAnchor`, and `$recursiveAnchor` under the empty name).
    dynamic: BTreeMap<String, Vec<String>>,
    /// The first subschema with the name of another one: its pointer and the name.
    duplicate: Option<(String, String)>,
}

impl Survey {
    fn new(document: &Value, draft: Draft) -> Self {
        let mut survey = Self {
            found: Vec::new(),
            at: BTreeMap::new(),
            resources: BTreeMap::new(),
            anchors: BTreeMap::new(),
            dynamic: BTreeMap::new(),
            duplicate: None,
        };
        let root = uri::from_str("").ok();
        if let Some(root) = &root {
            survey.resources.insert(root.as_str().to_owned(), String::new());
        }
        survey.visit(document, String::new(), Scope { base: root, dialect: dialect(draft) });
        survey
    }

    /// Visits a reference target, unless already visited.
    fn visit_if_new(&mut self, document: &Value, pointer: &str) {
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
    fn refs_of(&self, document: &Value, id: Id) -> Vec<Option<Vec<String>>> {
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
fn hides_siblings(members: &Map<String, Value>, dialect: Dialect) -> bool {
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

/// Returns the indices of properties, sorted by name, and of all other subschemas except definitions.
fn by_role(children: &[(Role, Id)]) -> (Vec<usize>, Vec<usize>) {
    let is_of = |wanted: fn(&Role) -> bool| (0..children.len()).filter(move |&at| wanted(&children[at].0)).collect();
    let mut by_name: Vec<usize> = is_of(|role| matches!(role, Role::Property(_)));
    by_name.sort_by_key(|&at| children[at].0.name());
    (by_name, is_of(|role| !matches!(role, Role::Property(_) | Role::Definition)))
}

/// Returns two flags: `type`, `const` and `enum` permit objects, and arrays.
fn containers(schema: &Value, dialect: Dialect) -> (bool, bool) {
    let Some(members) = schema.as_object().filter(|members| !hides_siblings(members, dialect)) else {
        return (true, true);
    };
    let typed = |name: &str| match members.get("type") {
        Some(Value::String(only)) => only == name,
        Some(Value::Array(names)) => names.iter().any(|one| one == name),
        _ => true,
    };
    let valued = |is_kind: fn(&Value) -> bool| {
        members.get("const").is_none_or(is_kind)
            && members.get("enum").and_then(Value::as_array).is_none_or(|values| values.iter().any(is_kind))
    };
    (typed("object") && valued(Value::is_object), typed("array") && valued(Value::is_array))
}

/// Returns true if `type` names `number`, or without a type, if `enum` or `const` names a fraction; `None` if all are
/// absent.
fn names_number(schema: &Value, dialect: Dialect) -> Option<bool> {
    let members = schema.as_object().filter(|members| !hides_siblings(members, dialect))?;
    let is_number = |name: &Value| name == "number";
    if let Some(kind) = members.get("type") {
        return Some(kind.as_array().map_or_else(|| is_number(kind), |names| names.iter().any(is_number)));
    }
    let is_fraction = |value: &Value| value.as_f64().is_some_and(|number| number.fract() != 0.0);
    match (members.get("const"), members.get("enum").and_then(Value::as_array)) {
        (Some(only), _) => Some(is_fraction(only)),
        (None, Some(values)) => Some(values.iter().any(is_fraction)),
        (None, None) => None,
    }
}

/// Compiles a matcher of names with the semantics of validation.
fn matcher(pattern: &str) -> Option<Validator> {
    let schema = serde_json::json!({ "pattern": pattern });
    jsonschema::options().offline().with_pattern_options(PatternOptions::regex()).build(&schema).ok()
}
