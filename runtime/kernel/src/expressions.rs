//! Expressions of a blueprint: their variables, and the document places that these refer to.

use std::collections::BTreeMap;

use jsonptr::Token;

use crate::blueprint::{Invariant, ReadGrant, Rule, Trigger, WriteCondition};
use crate::expr::{CompileError, Dialect, Expr, Lookup, LookupStep};
use crate::pattern::{PathSyntax, Pattern};
use crate::record::FORMAT;
use crate::schema::Schema;

/// Variable that holds the bindings of path templates.
pub const BOUND: &str = "bound";

/// Variables of a rule's condition (SPEC section 6).
const CONDITION_VARIABLES: &[&str] = &["request", "state", "event", "value", "before", "patch", "worker", BOUND];
/// Variables of an invariant that is evaluated once.
const INVARIANT_VARIABLES: &[&str] = &["request", "state", "before", "patch"];
/// Variables of an invariant that is evaluated for every instance of a pattern.
const INSTANCE_VARIABLES: &[&str] = &["request", "state", "before", "patch", "self", "old", "key"];
/// Variables of the condition of a grant.
const GRANT_VARIABLES: &[&str] = &["request", "self", "worker", BOUND];
/// Variables of the `done` condition.
const DONE_VARIABLES: &[&str] = &["request", "state"];

/// Owner of an expression.
#[derive(Clone, Copy, Debug)]
pub enum ExpressionOwner<'a> {
    /// The condition of a rule.
    Rule(&'a Rule),
    /// An invariant.
    Invariant(&'a Invariant),
    /// The condition of a read grant.
    Read(&'a ReadGrant),
    /// The condition of a write grant.
    Write(&'a WriteCondition),
    /// The condition under which a board is done.
    Done,
}

impl ExpressionOwner<'_> {
    /// Returns the variables that the expression may use.
    pub const fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Rule(_) => CONDITION_VARIABLES,
            Self::Invariant(Invariant { each: Some(_), .. }) => INSTANCE_VARIABLES,
            Self::Invariant(_) => INVARIANT_VARIABLES,
            Self::Read(_) | Self::Write(_) => GRANT_VARIABLES,
            Self::Done => DONE_VARIABLES,
        }
    }
}

/// Compiles the expressions of a blueprint.
#[derive(Clone, Copy)]
pub struct ExpressionCompiler<'a> {
    /// Path syntax.
    pub paths: PathSyntax,
    /// Expression dialect.
    pub dialect: Dialect,
    /// Schema of the document, if it is known.
    pub state: Option<&'a Schema>,
    /// Schema of the request, if it is known.
    pub request: Option<&'a Schema>,
    /// Schemas of signal payloads.
    pub signals: Option<&'a BTreeMap<String, Schema>>,
}

impl<'a> ExpressionCompiler<'a> {
    /// Creates a compiler for the newest format, without schemas.
    pub const fn new(paths: PathSyntax) -> Self {
        Self { paths, dialect: Dialect::for_journal_format(FORMAT), state: None, request: None, signals: None }
    }

    /// Compiles the expression of an owner.
    pub fn compile(&self, source: &str, owner: ExpressionOwner<'_>) -> Result<Expr, CompileError> {
        let expr = Expr::compile_in(self.dialect, source, owner.variables())?;
        Ok(expr.with_numbers(&|look| self.is_number(look, owner)))
    }

    /// Returns true if a schema declares the values of a place as numbers, integral or not.
    fn is_number(&self, look: &Lookup, owner: ExpressionOwner<'_>) -> bool {
        if let (ExpressionOwner::Rule(Rule { trigger: Trigger::Signal(name), .. }), "value") = (owner, look.variable) {
            let below = look.steps.iter().try_fold(String::new(), pushed);
            let place = below.and_then(|below| self.paths.parse(&below).ok());
            let schema = self.signals.and_then(|signals| signals.get(name));
            return schema.zip(place).is_some_and(|(schema, place)| schema.says_number(&place));
        }
        let Some(place) = place(look, owner, self.paths) else { return false };
        let in_request = request_part(&place.to_string()).and_then(|below| self.paths.parse(below).ok());
        let says = |schema: Option<&Schema>, place: &Pattern| schema.is_some_and(|schema| schema.says_number(place));
        says(self.state, &place) || in_request.is_some_and(|below| says(self.request, &below))
    }
}

/// Returns the document places that an expression looks up; `None` for other variables, or if no pattern can name them.
pub fn place(look: &Lookup, owner: ExpressionOwner<'_>, paths: PathSyntax) -> Option<Pattern> {
    let start = match (look.variable, owner) {
        ("state" | "before", _) => String::new(),
        ("request", _) => "/request".to_owned(),
        ("self" | "old", ExpressionOwner::Invariant(invariant)) => invariant.each.clone()?,
        ("self", ExpressionOwner::Read(read)) => read.path.clone(),
        ("self", ExpressionOwner::Write(condition)) => condition.of.clone(),
        ("value", ExpressionOwner::Rule(rule)) => match &rule.trigger {
            Trigger::Event { path, .. } | Trigger::Each(path) => path.clone(),
            _ => return None,
        },
        _ => return None,
    };
    let path = look.steps.iter().try_fold(start, pushed)?;
    paths.parse(&path).ok()
}

/// Appends a step to a pattern; `None` if no pattern can name it.
pub fn pushed(mut path: String, step: &LookupStep) -> Option<String> {
    match step {
        // No pattern can name a member with such a name.
        LookupStep::Member(name) if matches!(name.as_str(), "*" | "**" | "-") => return None,
        LookupStep::Member(name) => push_token(&mut path, name),
        LookupStep::Any | LookupStep::Element => path.push_str("/*"),
    }
    Some(path)
}

/// Returns the part of a path inside the request.
pub fn request_part(path: &str) -> Option<&str> {
    let below = path.strip_prefix("/request")?;
    (below.is_empty() || below.starts_with('/')).then_some(below)
}

/// Appends a token to a JSON Pointer (RFC 6901, section 3).
pub fn push_token(pointer: &mut String, token: &str) {
    pointer.push('/');
    pointer.push_str(Token::new(token).encoded());
}
