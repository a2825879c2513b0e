//! Map of a document's subschemas: their locations, their constraints on places, and the targets of their references.
//!
//! References are resolved with the enclosing base URIs (`$id`, JSON Schema Core sections 8.2 and 8.3), but only inside
//! the document. A reference out of the document is kept as unknown.

mod survey;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use jsonptr::Token;
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

use survey::{Dialect, Survey, hides_siblings};

use crate::work_budget::{WorkBudget, WorkKind};

/// Number of a subschema; 0 is the document itself.
pub(super) type Id = usize;

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
        matches!(
            self,
            Self::AllOf | Self::AnyOf | Self::OneOf | Self::Not | Self::If | Self::Then | Self::Else | Self::Dependent
        )
    }
}

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
    pub(super) duplicate: Option<(String, String)>,
    /// Cached results per subschema; true if no value satisfies it.
    impossible: Vec<OnceLock<bool>>,
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
