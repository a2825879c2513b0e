//! Read and write grants of a worker, compiled from the blueprint, and the check of its operations (SPEC section 3).
//!
//! A read grant covers the matched places and everything below them; a write grant is exact. The places covered by a
//! read with a condition depend on the state ([`Readable`]). An operation is judged by its effect on the candidate:
//!
//! | operation | needs |
//! |---|---|
//! | `add` | `add`, `replace` or `insert` at its path, by its effect |
//! | `replace` | `replace` at its path |
//! | `remove` | `remove` at its path |
//! | `move` | one grant at its path with `move` and with its effect there; `remove` at `from` |
//! | `copy` | one grant at its path with `copy` and with its effect there; a read of `from` |
//! | `test` | a read of its path |
//!
//! A written value must satisfy the `value` schema of the grant that allows the operation; for `move` and `copy` this
//! is the value found at `from`. A grant with a condition ([`WriteCondition`](crate::blueprint::WriteCondition)) allows
//! nothing where the condition does not hold. The whole document is never granted. [`crate::state`] decides if the
//! operation can be applied.

mod condition;
mod definitions;
mod judgement;
mod readable;
mod target;
#[cfg(test)]
mod tests;
mod value_grant;
mod values;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use crate::bindings::Bindings;
use crate::blueprint::{Approval, GrantOp, Worker};
use crate::expr::Expr;
use crate::expressions::{BOUND, ExpressionCompiler, ExpressionOwner};
use crate::id::WorkerName;
use crate::pattern::{Pattern, PatternToken, is_index};
use crate::rejection::AllowedWrite;
use crate::schema::Schema;
use crate::tree::Node;

use condition::Condition;
pub(crate) use condition::on_one_line;
pub use condition::prefix_depth;
pub(crate) use judgement::OpContext;
pub(crate) use readable::ReadCheck;
pub use readable::{PLACES_MAX, Readable};
use value_grant::ValueGrant;
pub use values::Values;

/// Limit of grants shown in a rejection.
const ALLOWED_MAX: usize = 8;
/// A worker's compiled contract.
#[derive(Default)]
pub struct Contract {
    /// Owner of the contract, for conditions that name `worker`.
    worker: Option<WorkerName>,
    /// Bindings of its patterns and conditions.
    bound: Bindings,
    /// See [`crate::plan::Plan::original_request`].
    pub(crate) original_request: Option<Node>,
    /// Read patterns without a condition.
    reads: Vec<Pattern>,
    /// Read patterns with names, under any binding: their matches other than the bound element are hidden.
    unbound_reads: Vec<Pattern>,
    /// Patterns with bound names: as bound, and as written.
    templates: Vec<(Pattern, Pattern)>,
    conditional: Vec<ConditionalRead>,
    writes: Vec<CompiledGrant>,
}

/// A read grant under a condition.
struct ConditionalRead {
    pattern: Pattern,
    condition: Arc<Expr>,
}

struct CompiledGrant {
    pattern: Pattern,
    ops: Vec<GrantOp>,
    value: Option<Arc<ValueGrant>>,
    approval: Option<Approval>,
    condition: Option<Arc<Condition>>,
    /// Schema fragment at the pattern, computed on first use.
    fragment: OnceLock<Option<Value>>,
}

impl CompiledGrant {
    fn fragment(&self, schema: &Schema) -> Option<&Value> {
        self.fragment.get_or_init(|| schema.fragment(&self.pattern)).as_ref()
    }
}

/// Contents of one write grant.
pub(crate) struct GrantInfo<'a> {
    /// Granted places.
    pub(crate) pattern: &'a Pattern,
    pub(crate) ops: &'a [GrantOp],
    /// Schema for the values written there, if the grant has one.
    pub(crate) value: Option<&'a Schema>,
    /// State schema at the place; see [`Schema::fragment`].
    pub(crate) fragment: Option<&'a Value>,
}

type Result<T, E = ContractError> = std::result::Result<T, E>;

/// Error of compiling a contract; the lint reports the same errors with positions.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{pointer}: {message}")]
pub struct ContractError {
    /// JSON Pointer below the worker, e.g. `/writes/0/path`.
    pub pointer: String,
    /// Human-readable message.
    pub message: String,
}

impl Contract {
    /// Compiles the contract of a worker.
    ///
    /// A value schema with references to `#/$defs/…` (or `#/definitions/…`) that it does not define uses the
    /// definitions of `state_schema`, and then its draft. Names in paths are not bound here: their grants cover no
    /// place. Fails for a pattern or value schema that cannot be used.
    pub fn compile(worker: &Worker, state_schema: &Value, expressions: &ExpressionCompiler<'_>) -> Result<Self> {
        Self::compile_with(worker, &Values::new(state_schema), expressions)
    }

    /// Like [`Contract::compile`], with value schemas shared by the grants of a blueprint.
    pub fn compile_with(worker: &Worker, values: &Values<'_>, expressions: &ExpressionCompiler<'_>) -> Result<Self> {
        let paths = expressions.paths;
        let pattern = |pointer: String, text: &str| {
            paths.parse(text).map_err(|error| ContractError { pointer, message: error.to_string() })
        };
        let mut contract = Self::default();
        for (index, grant) in worker.reads.iter().enumerate() {
            let Some(condition) = &grant.condition else {
                contract.reads.push(pattern(format!("/reads/{index}"), &grant.path)?);
                continue;
            };
            let pattern = pattern(format!("/reads/{index}/path"), &grant.path)?;
            let wrong = |error: crate::expr::CompileError| ContractError {
                pointer: format!("/reads/{index}/where"),
                message: error.message,
            };
            let condition = expressions.compile(condition, ExpressionOwner::Read(grant)).map_err(wrong)?;
            contract.conditional.push(ConditionalRead { pattern, condition: Arc::new(condition) });
        }
        for (index, grant) in worker.writes.iter().enumerate() {
            let value = grant.value.as_ref().map(|written| {
                let schema = values.compile(written).map_err(|error| ContractError {
                    pointer: format!("/writes/{index}/value{}", error.pointer),
                    message: error.message,
                })?;
                Ok(Arc::new(ValueGrant { written: written.clone(), schema }))
            });
            let pattern = pattern(format!("/writes/{index}/path"), &grant.path)?;
            let condition = grant.condition.as_ref();
            let condition = condition.map(|of| {
                let pointer = format!("/writes/{index}/where");
                Condition::compile(of, &pattern, expressions, &pointer).map(Arc::new)
            });
            contract.writes.push(CompiledGrant {
                pattern,
                ops: grant.effective_ops(),
                value: value.transpose()?,
                approval: grant.approval.clone(),
                condition: condition.transpose()?,
                fragment: OnceLock::new(),
            });
        }
        let with_names = contract.declared_reads().filter(|pattern| pattern.names().next().is_some());
        contract.unbound_reads = with_names.map(Pattern::under_any_binding).collect();
        Ok(contract)
    }

    /// Sets the owner's name. Without a name, conditions on `worker` do not hold.
    #[must_use]
    pub fn for_worker(self, worker: &WorkerName) -> Self {
        Self { worker: Some(worker.clone()), ..self }
    }

    /// Returns the names in its paths, and true if its conditions use the bindings.
    pub(crate) fn bound_names(&self) -> (BTreeSet<String>, bool) {
        let written = self.writes.iter().map(|write| &write.pattern);
        let names = self.declared_reads().chain(written).flat_map(Pattern::names).map(str::to_owned);
        let of_reads = self.conditional.iter().any(|read| read.condition.uses(BOUND));
        let of_writes = self.writes.iter().filter_map(|write| write.condition.as_ref());
        (names.collect(), of_reads || of_writes.into_iter().any(|condition| condition.uses(BOUND)))
    }

    /// Returns the contract of one invocation, with bound tokens in the places of names.
    #[must_use]
    pub(crate) fn bind(&self, bound: Bindings) -> Self {
        let has_names = |pattern: &&Pattern| pattern.names().next().is_some();
        let bind = |pattern: &Pattern| pattern.bind(|name| bound.get(name));
        let written = self.writes.iter().map(|write| &write.pattern);
        let templates = self.declared_reads().chain(written).filter(has_names);
        let templates = templates.map(|pattern| (bind(pattern), pattern.clone())).collect();
        Self { templates, bound: bound.clone(), ..self.with_patterns(bind) }
    }

    /// Returns the pattern as written, if names are bound in it.
    pub(crate) fn template<'p>(&'p self, pattern: &'p Pattern) -> &'p Pattern {
        self.templates.iter().find(|(bound, _)| bound == pattern).map_or(pattern, |(_, template)| template)
    }

    /// Replaces bound tokens of a place by their names, where one of the contract's templates covers the place.
    pub(crate) fn with_names(&self, place: &Pointer) -> PointerBuf {
        let mut tokens: Vec<String> = place.tokens().map(|token| token.decoded().into_owned()).collect();
        let leads = |(bound, template): &&(Pattern, Pattern)| {
            bound.covers(place) && !template.tokens().contains(&PatternToken::Deep)
        };
        let longest = self.templates.iter().filter(leads).max_by_key(|(_, template)| template.tokens().len());
        if let Some((_, template)) = longest {
            for (token, written) in tokens.iter_mut().zip(template.tokens()) {
                if let PatternToken::Bound(name) = written {
                    *token = format!("{{{name}}}");
                }
            }
        }
        PointerBuf::from_tokens(tokens)
    }

    /// Returns the union contract of all invocations, which allows operations under any binding.
    #[must_use]
    pub(crate) fn under_any_binding(&self) -> Self {
        self.with_patterns(Pattern::under_any_binding)
    }

    fn with_patterns(&self, of: impl Fn(&Pattern) -> Pattern) -> Self {
        let conditional = |read: &ConditionalRead| ConditionalRead {
            pattern: of(&read.pattern),
            condition: Arc::clone(&read.condition),
        };
        let write = |write: &CompiledGrant| CompiledGrant {
            pattern: of(&write.pattern),
            ops: write.ops.clone(),
            value: write.value.clone(),
            approval: write.approval.clone(),
            condition: write.condition.clone(),
            // The schema fragment depends on the pattern.
            fragment: OnceLock::new(),
        };
        Self {
            worker: self.worker.clone(),
            bound: self.bound.clone(),
            original_request: self.original_request.clone(),
            reads: self.reads.iter().map(&of).collect(),
            unbound_reads: self.unbound_reads.clone(),
            templates: self.templates.clone(),
            conditional: self.conditional.iter().map(conditional).collect(),
            writes: self.writes.iter().map(write).collect(),
        }
    }

    /// Returns the bindings.
    pub const fn bound(&self) -> &Bindings {
        &self.bound
    }

    /// Returns true if a condition or a binding hides places from the worker.
    pub(crate) const fn hides_any(&self) -> bool {
        self.has_conditions() || !self.unbound_reads.is_empty()
    }

    /// Returns true if the readable places depend on the state.
    pub const fn has_conditions(&self) -> bool {
        !self.conditional.is_empty()
    }

    /// Returns the patterns of all read grants, with and without a condition. They are public knowledge of the
    /// blueprint.
    pub(crate) fn declared_reads(&self) -> impl Iterator<Item = &Pattern> {
        self.reads.iter().chain(self.conditional.iter().map(|read| &read.pattern))
    }

    /// Returns true if its worker may read this place with some state and some bindings.
    pub(crate) fn could_read(&self, place: &Pointer) -> bool {
        self.declared_reads().any(|pattern| pattern.under_any_binding().covers(place))
    }

    /// Returns true if a condition or a binding decides about reads of the place or of a part of it.
    fn reaches_condition(&self, place: &Pointer) -> bool {
        let reaches = |pattern: &Pattern| pattern.covers(place) || pattern.reaches_below(place);
        self.conditional.iter().any(|read| reaches(&read.pattern)) || self.unbound_reads.iter().any(reaches)
    }

    /// Returns true if a condition or a binding decides about reads of the place.
    fn is_conditional(&self, place: &Pointer) -> bool {
        let is_of = |pattern: &Pattern| pattern.covers(place);
        self.conditional.iter().any(|read| is_of(&read.pattern)) || self.unbound_reads.iter().any(is_of)
    }

    /// Returns the patterns of the write grants.
    pub fn write_patterns(&self) -> impl Iterator<Item = &Pattern> {
        self.writes.iter().map(|write| &write.pattern)
    }

    /// Returns the patterns of the write grants, with their operations.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (&Pattern, &[GrantOp])> {
        self.writes.iter().map(|write| (&write.pattern, write.ops.as_slice()))
    }

    /// Returns true if a write grant may change a member of the document.
    pub(crate) fn may_change(&self, member: &str) -> bool {
        self.writes.iter().any(|write| match write.pattern.tokens().first() {
            Some(PatternToken::Literal(name)) => name == member,
            Some(_) | None => true,
        })
    }

    /// Returns true if a write grant matches this place or an ancestor. An index also matches the append position.
    pub(crate) fn writes_around(&self, place: &Pointer) -> bool {
        let is_written = |place: &Pointer| {
            let appended = place.split_back().filter(|(_, last)| is_index(&last.decoded()));
            let appended = appended.map(|(array, _)| array.with_trailing_token("-"));
            let matches = |place: &Pointer| self.writes.iter().any(|write| write.pattern.matches(place));
            matches(place) || appended.is_some_and(|append| matches(&append))
        };
        std::iter::successors(Some(place), |place| place.parent()).any(is_written)
    }

    /// Returns true if a write grant allows this operation at this place; `-` is the append position.
    pub(crate) fn has_grant(&self, place: &Pointer, op: GrantOp) -> bool {
        self.writes.iter().any(|write| write.ops.contains(&op) && write.pattern.matches(place))
    }

    /// Returns the write grants, in the blueprint's order. Callers must always pass the same schema.
    pub(crate) fn grants<'a>(&'a self, schema: &Schema) -> impl Iterator<Item = GrantInfo<'a>> {
        self.writes.iter().map(|write| GrantInfo {
            pattern: &write.pattern,
            ops: &write.ops,
            value: write.value.as_ref().map(|value| &*value.schema),
            fragment: write.fragment(schema),
        })
    }

    /// Returns up to 8 write grants with schema fragments, those nearest to the pointers first. Callers must always
    /// pass the same schema.
    pub fn allowed(&self, near: &[&str], schema: &Schema) -> Vec<AllowedWrite> {
        self.nearest_to(near)
            .into_iter()
            .take(ALLOWED_MAX)
            .map(|write| AllowedWrite {
                path: write.pattern.to_string(),
                ops: write.ops.clone(),
                value: write.value.as_ref().map(|value| value.written.clone()),
                schema: write.fragment(schema).cloned(),
                condition: write.condition.as_ref().map(|condition| condition.written.clone()),
            })
            .collect()
    }

    /// Returns the read patterns with their conditions, up to the limit of a rejection.
    pub(crate) fn describe_reads(&self) -> Value {
        let conditional = |read: &ConditionalRead| format!("{} where {}", read.pattern, read.condition.source());
        let reads = self.reads.iter().map(ToString::to_string).chain(self.conditional.iter().map(conditional));
        reads.take(ALLOWED_MAX).collect()
    }

    /// Returns the write grants, those with the longest common prefix with one of the pointers first.
    fn nearest_to(&self, near: &[&str]) -> Vec<&CompiledGrant> {
        let near = near.iter().filter_map(|text| Pointer::parse(text).ok()).collect::<Vec<_>>();
        let mut writes = self.writes.iter().collect::<Vec<_>>();
        writes.sort_by_key(|write| Reverse(near.iter().map(|place| nearness(&write.pattern, place)).max()));
        writes
    }
}

/// Counts the leading tokens that a pattern and a place have in common. At equal counts, the smaller difference in
/// length is nearer.
fn nearness(pattern: &Pattern, place: &Pointer) -> (usize, Reverse<usize>) {
    let tokens = place.tokens().map(|token| token.decoded().into_owned()).collect::<Vec<_>>();
    let mut common = 0;
    for (wanted, token) in pattern.tokens().iter().zip(&tokens) {
        let is_same = match wanted {
            PatternToken::Literal(name) => name == token,
            PatternToken::Any => true,
            PatternToken::Append => token == "-" || is_index(token),
            PatternToken::Deep => return (tokens.len(), Reverse(0)),
            PatternToken::Bound(_) => false,
        };
        if !is_same {
            break;
        }
        common += 1;
    }
    (common, Reverse(pattern.tokens().len().abs_diff(tokens.len())))
}
