//! From the parser's tree to the tree that is evaluated: every name resolved, every bound checked.
//!
//! What comes out holds only what [`super::eval`] can do, so that evaluation never meets an unknown function, an
//! undeclared variable or a nesting it cannot hold. It also knows which parts of which variables are looked at.

use std::collections::BTreeSet;

use cel::Program;
use cel::common::ast::operators;
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use regex::{Regex, RegexBuilder, bytes};

use super::{CompileError, Reference};

/// Nodes of the tree, as it was written: before macros are expanded.
pub(super) const NODES_MAX: usize = 200;
/// Loops (`all`, `exists`, `exists_one`, `filter`, `map`) inside one another. Three, because a check of references
/// needs them: for every task, for every dependency, there is a task. What three may cost is the step limit's business.
pub(super) const LOOPS_MAX: usize = 3;
/// Bytes of a compiled regular expression.
const PATTERN_BYTES_MAX: usize = 256 * 1024;
/// Bytes up to which a compiled regular expression is a small one, which reads a text as fast as any.
const PATTERN_BYTES_SMALL: usize = 1024;

/// What is evaluated.
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
    /// The variable of the loop at this depth.
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
    /// A text, a pattern, and how many times as much as by a small one a text is charged for.
    Matches(Box<Node>, Regex, usize),
    /// Over a range, a body; for `map` with a condition, that too.
    Loop(Fold, Box<Node>, Option<Box<Node>>, Box<Node>),
}

/// An operator that always evaluates both sides.
#[derive(Clone, Copy, Debug)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

/// A function of one value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Conversion {
    Size,
    Int,
    UInt,
    Double,
    Text,
}

/// A question about two texts.
#[derive(Clone, Copy, Debug)]
pub(super) enum TextTest {
    Contains,
    StartsWith,
    EndsWith,
}

/// What a loop makes of its elements.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fold {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}

/// Lowers a parsed program; the references are minimal: none lies below another.
pub(super) fn lower(program: &Program, variables: &[&'static str]) -> Result<(Node, Vec<Reference>), CompileError> {
    let mut lowering = Lowering { program, variables, locals: Vec::new(), nodes: 0, references: BTreeSet::new() };
    let root = program.expression();
    let node = lowering.node(root)?;
    if !may_be_bool(&node) {
        let message = "the expression must be true or false, and this is neither".to_owned();
        return Err(lowering.refuse(root, "cel_not_boolean", message));
    }
    // In this order an ancestor comes right before what lies below it.
    let mut references: Vec<Reference> = Vec::new();
    for reference in lowering.references {
        if !references.last().is_some_and(|last| last.covers(&reference)) {
            references.push(reference);
        }
    }
    Ok((node, references))
}

struct Lowering<'a> {
    program: &'a Program,
    variables: &'a [&'static str],
    /// The loops' variables, outermost first.
    locals: Vec<String>,
    nodes: usize,
    references: BTreeSet<Reference>,
}

impl Lowering<'_> {
    fn node(&mut self, expr: &IdedExpr) -> Result<Node, CompileError> {
        self.count(expr)?;
        if let Some(reference) = self.path(expr) {
            self.references.insert(reference.clone());
            return Ok(Node::Path(reference.variable, reference.path));
        }
        match &expr.expr {
            Expr::Literal(literal) => self.literal(expr, literal),
            Expr::Ident(name) => match self.locals.iter().position(|local| local == name) {
                Some(depth) => Ok(Node::Local(depth)),
                None => Err(self.unknown_variable(expr, name)),
            },
            Expr::Select(select) => Ok(Node::Member(self.boxed(&select.operand)?, select.field.clone())),
            Expr::List(list) => {
                let elements = list.elements.iter().map(|element| self.node(element));
                Ok(Node::List(elements.collect::<Result<_, _>>()?))
            }
            Expr::Map(map) => {
                let mut entries = Vec::new();
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else {
                        return Err(self.unsupported(expr, "a message"));
                    };
                    entries.push((self.node(&entry.key)?, self.node(&entry.value)?));
                }
                Ok(Node::Map(entries))
            }
            Expr::Call(call) => self.call(expr, call),
            Expr::Struct(_) => Err(self.unsupported(expr, "a message")),
            Expr::Comprehension(_) | Expr::Unspecified => Err(self.unsupported(expr, "this")),
        }
    }

    fn boxed(&mut self, expr: &IdedExpr) -> Result<Box<Node>, CompileError> {
        self.node(expr).map(Box::new)
    }

    fn literal(&self, expr: &IdedExpr, literal: &LiteralValue) -> Result<Node, CompileError> {
        Ok(match literal {
            LiteralValue::Null => Node::Null,
            LiteralValue::Boolean(value) => Node::Bool(*value.inner()),
            LiteralValue::Int(int) => Node::Int(*int.inner()),
            LiteralValue::UInt(uint) => Node::UInt(*uint.inner()),
            LiteralValue::Double(double) => Node::Double(*double.inner()),
            LiteralValue::String(text) => Node::Text(text.inner().to_owned()),
            LiteralValue::Bytes(_) => return Err(self.unsupported(expr, "a value of bytes")),
        })
    }

    /// A declared variable with members selected from it, if the expression is nothing else: `a.b["c"]`.
    fn path(&self, expr: &IdedExpr) -> Option<Reference> {
        match &expr.expr {
            Expr::Ident(name) if !self.locals.contains(name) => {
                let variable = self.variables.iter().copied().find(|variable| variable == name)?;
                Some(Reference { variable, path: Vec::new() })
            }
            Expr::Select(select) => {
                let mut reference = self.path(&select.operand)?;
                reference.path.push(select.field.clone());
                Some(reference)
            }
            Expr::Call(CallExpr { func_name, target: None, args }) if func_name == operators::INDEX => {
                let [operand, key] = args.as_slice() else { return None };
                let Expr::Literal(LiteralValue::String(key)) = &key.expr else { return None };
                let mut reference = self.path(operand)?;
                reference.path.push(key.inner().to_owned());
                Some(reference)
            }
            _ => None,
        }
    }

    fn call(&mut self, expr: &IdedExpr, call: &CallExpr) -> Result<Node, CompileError> {
        let name = call.func_name.as_str();
        match (&call.target, call.args.as_slice()) {
            (Some(range), [variable, rest @ ..]) if fold(name).is_some_and(|fold| fold.takes(rest.len())) => {
                self.fold(expr, name, range, variable, rest)
            }
            (None, [a]) => match name {
                operators::LOGICAL_NOT => Ok(Node::Not(self.boxed(a)?)),
                operators::NEGATE => Ok(Node::Negate(self.boxed(a)?)),
                operators::HAS => self.has(a),
                _ => match conversion(name) {
                    Some(conversion) => Ok(Node::Convert(conversion, self.boxed(a)?)),
                    None => Err(self.unknown_function(expr, name)),
                },
            },
            (Some(a), []) if name == "size" => Ok(Node::Convert(Conversion::Size, self.boxed(a)?)),
            (None, [a, b]) if name == "matches" => self.matches(a, b),
            (Some(a), [b]) if name == "matches" => self.matches(a, b),
            (Some(a), [b]) => match text_test(name) {
                Some(test) => Ok(Node::Test(test, self.boxed(a)?, self.boxed(b)?)),
                None => Err(self.unknown_function(expr, name)),
            },
            (None, [a, b]) => match name {
                operators::LOGICAL_AND => Ok(Node::And(self.boxed(a)?, self.boxed(b)?)),
                operators::LOGICAL_OR => Ok(Node::Or(self.boxed(a)?, self.boxed(b)?)),
                operators::INDEX => Ok(Node::Index(self.boxed(a)?, self.boxed(b)?)),
                _ => match binary(name) {
                    Some(binary) => Ok(Node::Binary(binary, self.boxed(a)?, self.boxed(b)?)),
                    None => Err(self.unknown_function(expr, name)),
                },
            },
            (None, [a, b, c]) if name == operators::CONDITIONAL => {
                Ok(Node::If(self.boxed(a)?, self.boxed(b)?, self.boxed(c)?))
            }
            _ => Err(self.unknown_function(expr, name)),
        }
    }

    /// `has(a.b)`. It looks at `a.b`, not at all of `a`.
    fn has(&mut self, of: &IdedExpr) -> Result<Node, CompileError> {
        let Expr::Select(select) = &of.expr else {
            return Err(self.refuse(of, "cel_syntax", "has() takes a member, like has(state.answer)".to_owned()));
        };
        let operand = match self.path(of) {
            Some(reference) => {
                self.count(of)?;
                let mut above = reference.path.clone();
                above.pop();
                let variable = reference.variable;
                self.references.insert(reference);
                Box::new(Node::Path(variable, above))
            }
            None => self.boxed(&select.operand)?,
        };
        Ok(Node::Has(operand, select.field.clone()))
    }

    /// The pattern must be written out: one from the state could be anything, and would be compiled again each time.
    fn matches(&mut self, text: &IdedExpr, pattern: &IdedExpr) -> Result<Node, CompileError> {
        let Expr::Literal(LiteralValue::String(written)) = &pattern.expr else {
            let message = "the pattern of matches() must be a text written in the expression".to_owned();
            return Err(self.refuse(pattern, "cel_bad_pattern", message));
        };
        match RegexBuilder::new(written.inner()).size_limit(PATTERN_BYTES_MAX).build() {
            Ok(regex) => Ok(Node::Matches(self.boxed(text)?, regex, weight(written.inner()))),
            Err(error) => Err(self.refuse(pattern, "cel_bad_pattern", format!("the pattern cannot be used: {error}"))),
        }
    }

    fn fold(
        &mut self,
        expr: &IdedExpr,
        name: &str,
        range: &IdedExpr,
        variable: &IdedExpr,
        rest: &[IdedExpr],
    ) -> Result<Node, CompileError> {
        let Expr::Ident(local) = &variable.expr else {
            let message = format!("{name}() takes the name of a variable first, like {name}(x, x > 0)");
            return Err(self.refuse(variable, "cel_syntax", message));
        };
        if self.variables.contains(&local.as_str()) || self.locals.contains(local) || local.starts_with('.') {
            let message = format!("{local} already names something here");
            return Err(self.refuse(variable, "cel_shadowed_variable", message));
        }
        if let Expr::Map(_) = &range.expr {
            let message = "a loop over a map has no order; loop over a list".to_owned();
            return Err(self.refuse(range, "cel_map_range", message));
        }
        let range = self.boxed(range)?;
        if self.locals.len() == LOOPS_MAX {
            let message = format!("more than {LOOPS_MAX} loops inside one another");
            return Err(self.refuse(expr, "cel_too_complex", message));
        }
        self.locals.push(local.clone());
        let lowered = match rest {
            [condition, body] => self.boxed(condition).and_then(|condition| Ok((Some(condition), self.boxed(body)?))),
            [body] => self.boxed(body).map(|body| (None, body)),
            _ => Err(self.unknown_function(expr, name)),
        };
        self.locals.pop();
        let (condition, body) = lowered?;
        let fold = fold(name).ok_or_else(|| self.unknown_function(expr, name))?;
        Ok(Node::Loop(fold, range, condition, body))
    }

    fn count(&mut self, expr: &IdedExpr) -> Result<(), CompileError> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(self.refuse(expr, "cel_too_complex", format!("more than {NODES_MAX} parts")));
        }
        Ok(())
    }

    fn unknown_variable(&self, expr: &IdedExpr, name: &str) -> CompileError {
        let known = self.variables.join(", ");
        self.refuse(expr, "cel_unknown_variable", format!("no variable {name} here; there are {known}"))
    }

    fn unknown_function(&self, expr: &IdedExpr, name: &str) -> CompileError {
        let message = format!(
            "no function {name} with these arguments; there are size(x), has(x.member), int(x), uint(x), double(x), \
             string(x), x.contains(y), x.startsWith(y), x.endsWith(y), x.matches(\"pattern\"), and over lists \
             all, exists, exists_one, filter, map"
        );
        self.refuse(expr, "cel_unknown_function", message)
    }

    fn unsupported(&self, expr: &IdedExpr, what: &str) -> CompileError {
        self.refuse(expr, "cel_unsupported", format!("{what} cannot be used here"))
    }

    fn refuse(&self, expr: &IdedExpr, code: &'static str, message: String) -> CompileError {
        let offset = self.program.source_info().offset_for(expr.id);
        CompileError { code, offset: offset.and_then(|(start, _)| usize::try_from(start).ok()), message }
    }
}

/// How much longer than a small regular expression this one may take for each byte. It can be in as many states at once
/// as it has, so that is its size, in steps of two.
///
/// The tables of Unicode's classes make a pattern large, not slow: where it means something without them, that size counts.
fn weight(pattern: &str) -> usize {
    let fits = |size: usize| {
        bytes::RegexBuilder::new(pattern).unicode(false).size_limit(size).build().is_ok()
            || RegexBuilder::new(pattern).size_limit(size).build().is_ok()
    };
    let mut size = PATTERN_BYTES_SMALL;
    while size < PATTERN_BYTES_MAX && !fits(size) {
        size *= 2;
    }
    // The first step is twice as steep: only small ones find their way by a table that stays in memory.
    if size == PATTERN_BYTES_SMALL { 1 } else { 2 * size / PATTERN_BYTES_SMALL }
}

impl Fold {
    /// Whether it takes so many expressions after its variable.
    const fn takes(self, expressions: usize) -> bool {
        match self {
            Self::All | Self::Exists | Self::ExistsOne | Self::Filter => expressions == 1,
            Self::Map => expressions == 1 || expressions == 2,
        }
    }
}

/// Whether a value of this shape can be true or false; a path may hold anything.
const fn may_be_bool(node: &Node) -> bool {
    match node {
        Node::Null | Node::Int(_) | Node::UInt(_) | Node::Double(_) | Node::Text(_) => false,
        Node::List(_) | Node::Map(_) | Node::Negate(_) | Node::Convert(..) => false,
        Node::Bool(_) | Node::Path(..) | Node::Local(_) | Node::Member(..) | Node::Index(..) => true,
        Node::Has(..) | Node::Not(_) | Node::And(..) | Node::Or(..) | Node::Test(..) | Node::Matches(..) => true,
        Node::If(_, a, b) => may_be_bool(a) && may_be_bool(b),
        Node::Binary(binary, ..) => match binary {
            Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide | Binary::Remainder => false,
            Binary::Equal | Binary::Unequal | Binary::In => true,
            Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual => true,
        },
        Node::Loop(fold, ..) => match fold {
            Fold::All | Fold::Exists | Fold::ExistsOne => true,
            Fold::Filter | Fold::Map => false,
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
        _ => None,
    }
}

fn conversion(name: &str) -> Option<Conversion> {
    match name {
        "size" => Some(Conversion::Size),
        "int" => Some(Conversion::Int),
        "uint" => Some(Conversion::UInt),
        "double" => Some(Conversion::Double),
        "string" => Some(Conversion::Text),
        _ => None,
    }
}

fn text_test(name: &str) -> Option<TextTest> {
    match name {
        "contains" => Some(TextTest::Contains),
        "startsWith" => Some(TextTest::StartsWith),
        "endsWith" => Some(TextTest::EndsWith),
        _ => None,
    }
}

fn binary(name: &str) -> Option<Binary> {
    match name {
        operators::ADD => Some(Binary::Add),
        operators::SUBSTRACT => Some(Binary::Subtract),
        operators::MULTIPLY => Some(Binary::Multiply),
        operators::DIVIDE => Some(Binary::Divide),
        operators::MODULO => Some(Binary::Remainder),
        operators::EQUALS => Some(Binary::Equal),
        operators::NOT_EQUALS => Some(Binary::Unequal),
        operators::LESS => Some(Binary::Less),
        operators::LESS_EQUALS => Some(Binary::LessOrEqual),
        operators::GREATER => Some(Binary::Greater),
        operators::GREATER_EQUALS => Some(Binary::GreaterOrEqual),
        operators::IN => Some(Binary::In),
        _ => None,
    }
}
