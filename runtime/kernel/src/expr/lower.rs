//! Lowers the syntax tree to the evaluated tree: resolves every name and checks every bound.
//!
//! The result contains only operations of [`super::eval`], so evaluation never meets an unknown function, an undeclared
//! variable or excessive nesting. Lowering also collects the references to parts of variables.

use std::collections::BTreeSet;

use regex::{Regex, RegexBuilder, bytes};

pub(super) use super::parse::Binary;
use super::parse::{Part, Term};
use super::{CompileError, Reference, SHADOWED};

/// Maximum nodes of the syntax tree, before macros are expanded.
pub(super) const NODES_MAX: usize = 200;
/// Maximum depth of nested loops (`all`, `exists`, `exists_one`, `filter`, `map`, `transformList`). A check of
/// references needs three: for every task, for every dependency, there is a task. The step limit bounds their cost.
pub(super) const LOOPS_MAX: usize = 3;
/// Maximum bytes of a compiled regular expression.
const PATTERN_BYTES_MAX: usize = 256 * 1024;
/// Maximum bytes of a small regular expression, which reads text at full speed.
const PATTERN_BYTES_SMALL: usize = 1024;

/// A node of the evaluated tree.
#[derive(Debug)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    Text(String),
    /// A variable and members below it.
    Path(&'static str, Vec<String>),
    /// Variable of a loop, as the number of enclosing loop variables before it.
    Local(usize),
    Member(Box<Node>, String),
    Has(Box<Node>, String),
    Index(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Negate(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    If(Box<Node>, Box<Node>, Box<Node>),
    Binary(Binary, Box<Node>, Box<Node>),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Convert(Conversion, Box<Node>),
    Test(TextTest, Box<Node>, Box<Node>),
    /// A text, a pattern, and the pattern's cost per byte relative to a small pattern.
    Matches(Box<Node>, Regex, usize),
    Loop(Box<Loop>),
}

/// Loop over the elements of a list or the members of a map.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) fold: Fold,
    /// True if it has variables for both the key (index or name) and the value. A single variable is the element of a
    /// list or the name of a member.
    pub(super) is_pair: bool,
    pub(super) range: Node,
    /// Condition that an element must satisfy to be mapped.
    pub(super) condition: Option<Node>,
    pub(super) body: Node,
}

/// A function of one value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Conversion {
    Size,
    Int,
    UInt,
    Double,
    Text,
    Sum,
    Min,
    Max,
}

impl Conversion {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Int => "int",
            Self::UInt => "uint",
            Self::Double => "double",
            Self::Text => "string",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

/// A test of two texts.
#[derive(Clone, Copy, Debug)]
pub(super) enum TextTest {
    Contains,
    StartsWith,
    EndsWith,
}

/// Result that a loop computes from its elements.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fold {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
    /// `map` with key and value.
    TransformList,
}

/// Lowers a parsed expression. The returned references are minimal: none lies below another.
pub(super) fn lower(root: &Part, variables: &[&'static str]) -> Result<(Node, Vec<Reference>), CompileError> {
    let mut lowering = Lowering { variables, locals: Vec::new(), loops: 0, nodes: 0, references: BTreeSet::new() };
    let node = lowering.node(root)?;
    if !may_be_bool(&node) {
        let message = "the expression must be true or false, and this is neither".to_owned();
        return Err(refuse(root, "cel_not_boolean", message));
    }
    // Sorted, so an ancestor directly precedes its descendants.
    let mut references: Vec<Reference> = Vec::new();
    for reference in lowering.references {
        if !references.last().is_some_and(|last| last.covers(&reference)) {
            references.push(reference);
        }
    }
    Ok((node, references))
}

struct Lowering<'a> {
    variables: &'a [&'static str],
    /// The loops' variables, outermost first.
    locals: Vec<String>,
    /// Number of loops around the current part.
    loops: usize,
    nodes: usize,
    references: BTreeSet<Reference>,
}

impl Lowering<'_> {
    fn node(&mut self, part: &Part) -> Result<Node, CompileError> {
        self.count(part)?;
        if let Some(reference) = self.path(part) {
            self.references.insert(reference.clone());
            return Ok(Node::Path(reference.variable, reference.path));
        }
        Ok(match &part.term {
            Term::Null => Node::Null,
            Term::Bool(value) => Node::Bool(*value),
            Term::Int(int) => Node::Int(*int),
            Term::UInt(uint) => Node::UInt(*uint),
            Term::Double(double) => Node::Double(*double),
            Term::Text(text) => Node::Text(text.clone()),
            Term::Name(name) => match self.locals.iter().position(|local| local == name) {
                Some(depth) => Node::Local(depth),
                None => return Err(self.unknown_variable(part, name)),
            },
            Term::Member(of, name) => Node::Member(self.boxed(of)?, name.clone()),
            Term::Index(of, key) => Node::Index(self.boxed(of)?, self.boxed(key)?),
            Term::Not(of) => Node::Not(self.boxed(of)?),
            Term::Negate(of) => Node::Negate(self.boxed(of)?),
            Term::And(a, b) => Node::And(self.boxed(a)?, self.boxed(b)?),
            Term::Or(a, b) => Node::Or(self.boxed(a)?, self.boxed(b)?),
            Term::If(condition, a, b) => Node::If(self.boxed(condition)?, self.boxed(a)?, self.boxed(b)?),
            Term::Binary(binary, a, b) => Node::Binary(*binary, self.boxed(a)?, self.boxed(b)?),
            Term::List(elements) => Node::List(self.nodes(elements)?),
            Term::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| Ok((self.node(key)?, self.node(value)?)));
                Node::Map(entries.collect::<Result<_, _>>()?)
            }
            Term::Call { of, name, args } => return self.call(part, of.as_deref(), name, args),
        })
    }

    fn nodes(&mut self, parts: &[Part]) -> Result<Vec<Node>, CompileError> {
        parts.iter().map(|part| self.node(part)).collect()
    }

    fn boxed(&mut self, part: &Part) -> Result<Box<Node>, CompileError> {
        self.node(part).map(Box::new)
    }

    /// Returns a declared variable with selected members, if the expression is nothing else: `a.b["c"]`.
    fn path(&self, part: &Part) -> Option<Reference> {
        let (of, name) = match &part.term {
            Term::Name(name) if !self.locals.contains(name) => {
                let variable = self.variables.iter().copied().find(|variable| variable == name)?;
                return Some(Reference { variable, path: Vec::new() });
            }
            Term::Member(of, name) => (of, name),
            Term::Index(of, key) => match &key.term {
                Term::Text(name) => (of, name),
                _ => return None,
            },
            _ => return None,
        };
        let mut reference = self.path(of)?;
        reference.path.push(name.clone());
        Some(reference)
    }

    fn call(&mut self, part: &Part, of: Option<&Part>, name: &str, args: &[Part]) -> Result<Node, CompileError> {
        if let (Some(range), Some(fold)) = (of, fold(name))
            && let Some(variables) = fold.variables(args)
        {
            return self.fold(part, fold, name, range, args.split_at(variables));
        }
        match (of, args) {
            (None, [of]) if name == "has" => self.has(of),
            (Some(text), [pattern]) | (None, [text, pattern]) if name == "matches" => self.matches(text, pattern),
            (Some(text), [of]) => match text_test(name) {
                Some(test) => Ok(Node::Test(test, self.boxed(text)?, self.boxed(of)?)),
                None => Err(unknown_function(part, name)),
            },
            (None, [_, _, ..]) => match conversion(name) {
                Some(conversion @ (Conversion::Min | Conversion::Max)) => {
                    Ok(Node::Convert(conversion, Box::new(Node::List(self.nodes(args)?))))
                }
                _ => Err(unknown_function(part, name)),
            },
            (None, [of]) => match conversion(name) {
                Some(conversion) => Ok(Node::Convert(conversion, self.boxed(of)?)),
                None => Err(unknown_function(part, name)),
            },
            (Some(of), []) => match conversion(name) {
                Some(conversion @ (Conversion::Size | Conversion::Sum | Conversion::Min | Conversion::Max)) => {
                    Ok(Node::Convert(conversion, self.boxed(of)?))
                }
                _ => Err(unknown_function(part, name)),
            },
            _ => Err(unknown_function(part, name)),
        }
    }

    /// Lowers `has(a.b)`, which refers to `a.b` and not to all of `a`.
    fn has(&mut self, part: &Part) -> Result<Node, CompileError> {
        let Term::Member(of, name) = &part.term else {
            return Err(refuse(part, "cel_syntax", "has() takes a member, like has(state.answer)".to_owned()));
        };
        let operand = match self.path(part) {
            Some(reference) => {
                self.count(part)?;
                let mut above = reference.path.clone();
                above.pop();
                let variable = reference.variable;
                self.references.insert(reference);
                Box::new(Node::Path(variable, above))
            }
            None => self.boxed(of)?,
        };
        Ok(Node::Has(operand, name.clone()))
    }

    /// Requires a literal pattern: one from the state could be anything, and would be compiled on each evaluation.
    fn matches(&mut self, text: &Part, pattern: &Part) -> Result<Node, CompileError> {
        let Term::Text(written) = &pattern.term else {
            let message = "the pattern of matches() must be a text written in the expression".to_owned();
            return Err(refuse(pattern, "cel_bad_pattern", message));
        };
        match RegexBuilder::new(written).size_limit(PATTERN_BYTES_MAX).build() {
            Ok(regex) => Ok(Node::Matches(self.boxed(text)?, regex, weight(written))),
            Err(error) => Err(refuse(pattern, "cel_bad_pattern", format!("the pattern cannot be used: {error}"))),
        }
    }

    fn fold(
        &mut self,
        part: &Part,
        fold: Fold,
        name: &str,
        range: &Part,
        (variables, rest): (&[Part], &[Part]),
    ) -> Result<Node, CompileError> {
        let mut locals: Vec<String> = Vec::new();
        for variable in variables {
            let Term::Name(local) = &variable.term else {
                let message = format!("{name}() takes the name of a variable first, like {name}(x, x > 0)");
                return Err(refuse(variable, "cel_syntax", message));
            };
            let is_taken = self.variables.contains(&local.as_str()) && !SHADOWED.contains(&local.as_str());
            if is_taken || self.locals.contains(local) || locals.contains(local) || local.starts_with('.') {
                let message = format!("{local} already names something here");
                return Err(refuse(variable, "cel_shadowed_variable", message));
            }
            locals.push(local.clone());
        }
        if let (Fold::Map, [Part { term: Term::Name(second), at }, _]) = (fold, rest)
            && !self.variables.contains(&second.as_str())
            && !self.locals.contains(second)
            && !locals.contains(second)
        {
            let message = format!(
                "no variable {second} here: map() has one variable; for key and value there is transformList(k, v, …)"
            );
            return Err(CompileError { code: "cel_unknown_variable", offset: Some(*at), message });
        }
        let range = self.node(range)?;
        if self.loops == LOOPS_MAX {
            let message = format!("more than {LOOPS_MAX} loops inside one another");
            return Err(refuse(part, "cel_too_complex", message));
        }
        let is_pair = locals.len() == 2;
        let outer = self.locals.len();
        self.locals.extend(locals);
        self.loops += 1;
        let lowered = match rest {
            [condition, body] => self.node(condition).and_then(|condition| Ok((Some(condition), self.node(body)?))),
            [body] => self.node(body).map(|body| (None, body)),
            _ => Err(unknown_function(part, name)),
        };
        self.loops -= 1;
        self.locals.truncate(outer);
        let (condition, body) = lowered?;
        Ok(Node::Loop(Box::new(Loop { fold, is_pair, range, condition, body })))
    }

    fn count(&mut self, part: &Part) -> Result<(), CompileError> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(refuse(part, "cel_too_complex", format!("more than {NODES_MAX} parts")));
        }
        Ok(())
    }

    fn unknown_variable(&self, part: &Part, name: &str) -> CompileError {
        let known = self.variables.join(", ");
        let instead = match name {
            "True" => "; the value is written true",
            "False" => "; the value is written false",
            "None" | "nil" | "undefined" => "; the value is written null",
            _ => "",
        };
        refuse(part, "cel_unknown_variable", format!("no variable {name} here; there are {known}{instead}"))
    }
}

fn unknown_function(part: &Part, name: &str) -> CompileError {
    let message = format!(
        "no function {name} with these arguments; there are size(x), has(x.member), int(x), uint(x), double(x), \
         string(x), x.contains(y), x.startsWith(y), x.endsWith(y), x.matches(\"pattern\"), over lists sum(x), min(x), \
         max(x), filter(x, …), map(x, …), and over lists and objects all(x, …), exists(x, …), exists_one(x, …), with \
         key and value all(k, v, …), exists(k, v, …), exists_one(k, v, …), transformList(k, v, …)"
    );
    refuse(part, "cel_unknown_function", message)
}

fn refuse(part: &Part, code: &'static str, message: String) -> CompileError {
    CompileError { code, offset: Some(part.at), message }
}

/// Returns the worst-case cost per byte of this regular expression, relative to a small one. An automaton can be in all
/// its states at once, so the cost is its size, in powers of two.
///
/// Tables of Unicode classes make a pattern large, but not slow: if it compiles without them, that size counts.
fn weight(pattern: &str) -> usize {
    let fits = |size: usize| {
        bytes::RegexBuilder::new(pattern).unicode(false).size_limit(size).build().is_ok()
            || RegexBuilder::new(pattern).size_limit(size).build().is_ok()
    };
    let mut size = PATTERN_BYTES_SMALL;
    while size < PATTERN_BYTES_MAX && !fits(size) {
        size *= 2;
    }
    // The first step counts double: only small patterns run from a table that stays in memory.
    if size == PATTERN_BYTES_SMALL { 1 } else { 2 * size / PATTERN_BYTES_SMALL }
}

impl Fold {
    /// Returns the number of arguments that are variables, if it accepts this number of arguments.
    const fn variables(self, args: &[Part]) -> Option<usize> {
        match (self, args.len()) {
            (Self::All | Self::Exists | Self::ExistsOne | Self::Filter | Self::Map, 2) | (Self::Map, 3) => Some(1),
            (Self::All | Self::Exists | Self::ExistsOne | Self::TransformList, 3) | (Self::TransformList, 4) => Some(2),
            _ => None,
        }
    }
}

/// Returns true if a node of this kind can be a boolean; a path may hold any value.
const fn may_be_bool(node: &Node) -> bool {
    match node {
        Node::Null | Node::Int(_) | Node::UInt(_) | Node::Double(_) | Node::Text(_) => false,
        Node::List(_) | Node::Map(_) | Node::Negate(_) | Node::Convert(..) => false,
        Node::Bool(_) | Node::Path(..) | Node::Local(_) | Node::Member(..) | Node::Index(..) => true,
        Node::Has(..) | Node::Not(_) | Node::And(..) | Node::Or(..) | Node::Test(..) | Node::Matches(..) => true,
        Node::If(_, a, b) => may_be_bool(a) && may_be_bool(b),
        Node::Binary(binary, ..) => !binary.is_arithmetic(),
        Node::Loop(of) => match of.fold {
            Fold::All | Fold::Exists | Fold::ExistsOne => true,
            Fold::Filter | Fold::Map | Fold::TransformList => false,
        },
    }
}

fn fold(name: &str) -> Option<Fold> {
    match name {
        "all" => Some(Fold::All),
        "exists" => Some(Fold::Exists),
        "exists_one" | "existsOne" => Some(Fold::ExistsOne),
        "filter" => Some(Fold::Filter),
        "map" => Some(Fold::Map),
        "transformList" => Some(Fold::TransformList),
        _ => None,
    }
}

fn conversion(name: &str) -> Option<Conversion> {
    use Conversion::{Double, Int, Max, Min, Size, Sum, Text, UInt};
    [Size, Int, UInt, Double, Text, Sum, Min, Max].into_iter().find(|conversion| conversion.name() == name)
}

fn text_test(name: &str) -> Option<TextTest> {
    match name {
        "contains" => Some(TextTest::Contains),
        "startsWith" => Some(TextTest::StartsWith),
        "endsWith" => Some(TextTest::EndsWith),
        _ => None,
    }
}
