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
mod readable;
#[cfg(test)]
mod tests;
mod value_grant;
mod values;

use std::cell::LazyCell;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use jsonptr::{Pointer, PointerBuf};
use serde_json::{Value, json};

use crate::bindings::Bindings;
use crate::blueprint::{Approval, GrantOp, Worker};
use crate::expr::{Allowance, Expr};
use crate::freshness::Targets;
use crate::id::WorkerName;
use crate::patch::Op;
use crate::pattern::{Pattern, PatternToken, is_index};
use crate::plan::{BOUND, ExpressionCompiler, ExpressionOwner};
use crate::rejection::{AllowedWrite, Code, Violation};
use crate::schema::{Location, Schema, nearest};
use crate::state::{Candidate, OpEffect};
use crate::tree::Node;

pub(crate) use condition::on_one_line;
pub use condition::prefix_depth;
use condition::{Condition, ConditionInput, condition_not_met};
pub(crate) use readable::ReadCheck;
pub use readable::{PLACES_MAX, Readable};
use value_grant::{ValueGrant, WrittenValue, value_not_granted};
pub use values::Values;

/// Limit of grants shown in a rejection.
const ALLOWED_MAX: usize = 8;
/// Limit of reasons given for one value that is not granted.
const REASONS_MAX: usize = 5;

/// A worker's compiled contract.
pub struct Contract {
    /// Owner of the contract, for conditions that name `worker`.
    worker: Option<WorkerName>,
    /// Bindings of its patterns and conditions.
    bound: Bindings,
    /// See [`crate::plan::Plan::original_request`].
    original_request: Option<Node>,
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

/// A compiled write grant.
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

/// Context in which an operation is judged.
pub(crate) struct OpContext<'a> {
    pub(crate) effect: &'a OpEffect<'a>,
    pub(crate) candidate: &'a Candidate,
    pub(crate) schema: &'a Schema,
    /// Places that the patch writes, up to this operation.
    pub(crate) targets: &'a Targets,
}

/// Contents of one write grant.
pub(crate) struct GrantInfo<'a> {
    /// Granted places.
    pub(crate) pattern: &'a Pattern,
    /// Granted operations.
    pub(crate) ops: &'a [GrantOp],
    /// Schema for the values written there, if the grant has one.
    pub(crate) value: Option<&'a Schema>,
    /// State schema at the place; see [`Schema::fragment`].
    pub(crate) fragment: Option<&'a Value>,
}

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
    /// place.
    ///
    /// # Errors
    /// Returns an error for a pattern or value schema that cannot be used.
    pub fn compile(
        worker: &Worker,
        state_schema: &Value,
        expressions: &ExpressionCompiler<'_>,
    ) -> Result<Self, ContractError> {
        Self::compile_with(worker, &Values::new(state_schema), expressions)
    }

    /// Like [`Contract::compile`], with value schemas shared by the grants of a blueprint.
    pub fn compile_with(
        worker: &Worker,
        values: &Values<'_>,
        expressions: &ExpressionCompiler<'_>,
    ) -> Result<Self, ContractError> {
        let paths = expressions.paths;
        let pattern = |pointer: String, text: &str| {
            paths.parse(text).map_err(|error| ContractError { pointer, message: error.to_string() })
        };
        let mut contract = Self {
            worker: None,
            bound: Bindings::default(),
            original_request: None,
            reads: Vec::new(),
            unbound_reads: Vec::new(),
            templates: Vec::new(),
            conditional: Vec::new(),
            writes: Vec::new(),
        };
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

    /// Returns true for a pattern in which names are bound.
    fn is_template(&self, pattern: &Pattern) -> bool {
        self.templates.iter().any(|(bound, _)| bound == pattern)
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

    /// Replaces each pattern by `of(pattern)`.
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
    pub(crate) const fn hides_something(&self) -> bool {
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

    /// Sets the original request, for the conditions.
    pub(crate) fn set_request(&mut self, request: &Node) {
        self.original_request = Some(request.clone());
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

    /// Judges one operation against the candidate it meets (SPEC section 3); `index` is its place in the patch.
    ///
    /// Returns every violation, each at the path of the operation (or its `from`):
    /// * `path_not_granted`: no grant matches the place
    /// * `op_not_granted`: no matching grant includes the operation
    /// * `value_not_granted`: every matching grant's schema rejects the value; one violation for each reason of the
    ///   grant with the fewest
    /// * `condition_not_met`: grants match place and operation, but none of their conditions holds
    /// * `unknown_location`: a grant matches, but the schema has no such place
    pub fn judge(&self, index: usize, op: &Op<'_>, candidate: &Candidate, schema: &Schema) -> Vec<Violation> {
        let mut allowance = Allowance::new();
        let mut reading = ReadCheck::new(self, candidate.root(), &mut allowance);
        let (effect, mut targets) = (candidate.effect(op), Targets::default());
        targets.note(index, op, &effect, candidate);
        let context = OpContext { effect: &effect, candidate, schema, targets: &targets };
        self.judge_effect(index, op, &context, &mut reading, &mut allowance)
    }

    /// Like [`Contract::judge`], for an operation with a known effect. `reading` holds the places that the worker may
    /// read in the state before the patch and in the candidate.
    pub(crate) fn judge_effect(
        &self,
        index: usize,
        op: &Op<'_>,
        context: &OpContext<'_>,
        reading: &mut ReadCheck<'_>,
        allowance: &mut Allowance,
    ) -> Vec<Violation> {
        let OpContext { effect, candidate, schema, targets } = *context;
        let input = &mut ConditionInput { state: reading.state, targets, allowance };
        let mut judge_read = |what: &str, path: &Pointer, input: &mut ConditionInput<'_>| {
            // Earlier operations of the patch may have made the place readable, or changed its value. It must be
            // readable both before and after them.
            let is_read =
                reading.before.may_read(path) && reading.now(candidate.root(), input.allowance).may_read(path);
            if is_read { Vec::new() } else { self.unread(what, path) }
        };
        let kind = effect.kind.unwrap_or(GrantOp::Add);
        let target = Target { path: op.path(), granted_at: &effect.granted_at, arrives: false, candidate };
        let mut violations = match *op {
            Op::Test { path, .. } => judge_read("a `test` looks at", path, input),
            Op::Remove { .. } => self.judge_write(target, &[GrantOp::Remove], None, input),
            Op::Replace { value, .. } => {
                self.judge_write(target, &[GrantOp::Replace], Some(WrittenValue::Own(value)), input)
            }
            Op::Add { value, .. } => self.judge_write(target, &[kind], Some(WrittenValue::Own(value)), input),
            Op::Move { from, .. } => {
                let source = Target { path: from, granted_at: from, arrives: false, candidate };
                let mut violations = self.judge_write(source, &[GrantOp::Remove], None, input);
                // A hidden value must not become visible by a move.
                let hidden = match self.reaches_condition(from) {
                    true => judge_read("a `move` takes", from, input),
                    false => Vec::new(),
                };
                let written = candidate.get(from).filter(|_| hidden.is_empty()).map(WrittenValue::Found);
                violations.extend(hidden);
                let target = Target { arrives: true, ..target };
                violations.extend(self.judge_write(target, &[GrantOp::Move, kind], written, input));
                violations
            }
            Op::Copy { from, .. } => {
                let mut violations = judge_read("a `copy` takes", from, input);
                // A check of a hidden value against the grant would reveal it.
                let may_tell = violations.is_empty() || !self.hides_something();
                let written = candidate.get(from).filter(|_| may_tell).map(WrittenValue::Found);
                violations.extend(self.judge_write(target, &[GrantOp::Copy, kind], written, input));
                violations
            }
        };
        if violations.iter().all(|violation| violation.code == Code::ValueNotGranted) {
            violations.extend(unknown_location(op.path(), &effect.granted_at, schema));
        }
        violations.into_iter().map(|violation| violation.with_op(index)).collect()
    }

    /// Returns the approvals an operation needs: those of the grants that match its places, include it and hold there.
    pub(crate) fn approvals(
        &self,
        op: &Op<'_>,
        context: &OpContext<'_>,
        reading: &ReadCheck<'_>,
        allowance: &mut Allowance,
    ) -> Vec<&Approval> {
        let OpContext { effect, candidate, targets, .. } = *context;
        if self.writes.iter().all(|write| write.approval.is_none()) {
            return Vec::new();
        }
        let kind = effect.kind.unwrap_or(GrantOp::Add);
        let at_path = |needed: Vec<GrantOp>| (op.path(), &*effect.granted_at, needed);
        let writes = match *op {
            Op::Test { .. } => Vec::new(),
            Op::Remove { .. } => vec![at_path(vec![GrantOp::Remove])],
            Op::Replace { .. } => vec![at_path(vec![GrantOp::Replace])],
            Op::Add { .. } => vec![at_path(vec![kind])],
            Op::Move { from, .. } => vec![(from, from, vec![GrantOp::Remove]), at_path(vec![GrantOp::Move, kind])],
            Op::Copy { .. } => vec![at_path(vec![GrantOp::Copy, kind])],
        };
        let mut approvals = Vec::new();
        let input = &mut ConditionInput { state: reading.state, targets, allowance };
        for (path, granted_at, needed) in writes {
            let arrives = needed.contains(&GrantOp::Move);
            let target = Target { path, granted_at, arrives, candidate };
            let grants = self.writes.iter().filter(|write| target.is_matched_by(&write.pattern));
            let grants = grants.filter(|write| needed.iter().all(|op| write.ops.contains(op)));
            let grants = grants.filter(|write| write.approval.is_some() && self.holds(write, target, input));
            approvals.extend(grants.filter_map(|write| write.approval.as_ref()));
        }
        approvals
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

    fn unread(&self, what: &str, path: &Pointer) -> Vec<Violation> {
        let message = format!("{what} what the worker may read, and `{path}` is not covered by its reads");
        vec![Violation::new(Code::PathNotGranted, path.as_str(), message).with_expected(self.describe_reads())]
    }

    /// Returns the read patterns with their conditions, up to the limit of a rejection.
    pub(crate) fn describe_reads(&self) -> Value {
        let conditional = |read: &ConditionalRead| format!("{} where {}", read.pattern, read.condition.source());
        let reads = self.reads.iter().map(ToString::to_string).chain(self.conditional.iter().map(conditional));
        reads.take(ALLOWED_MAX).collect()
    }

    /// Judges a write or a removal at one place. `needed` are the operations that a single grant must include.
    fn judge_write(
        &self,
        target: Target<'_>,
        needed: &[GrantOp],
        written: Option<WrittenValue<'_>>,
        input: &mut ConditionInput<'_>,
    ) -> Vec<Violation> {
        let path = target.path;
        let found = needed.last().expect("every write needs an operation").as_str();
        if path.is_root() {
            let message = "the whole document is never granted; write the members that are to change".to_owned();
            return vec![self.path_not_granted(path, message).with_found(found.into())];
        }
        let at_place = || self.writes.iter().filter(|write| target.is_matched_by(&write.pattern));
        let with_ops: Vec<&CompiledGrant> =
            at_place().filter(|write| needed.iter().all(|op| write.ops.contains(op))).collect();
        if with_ops.is_empty() && at_place().next().is_none() {
            let message = format!("no write grant of this worker matches `{path}`");
            return vec![self.path_not_granted(path, message).with_found(found.into())];
        }
        if with_ops.is_empty() {
            let granted = at_place().flat_map(|write| &write.ops).collect::<BTreeSet<_>>();
            let message = format!("{} is not granted at `{path}`{}", verbs(needed), effect_hint(target, needed));
            let violation = Violation::new(Code::OpNotGranted, path.as_str(), message);
            return vec![violation.with_expected(json!(granted)).with_found(found.into())];
        }
        let holding: Vec<&CompiledGrant> =
            with_ops.iter().copied().filter(|write| self.holds(write, target, input)).collect();
        if holding.is_empty() {
            return vec![condition_not_met(path, &with_ops).with_found(found.into())];
        }
        let Some(written) = written else { return Vec::new() };
        let value = LazyCell::new(|| written.value());
        let mut refusals = Vec::new();
        for write in holding {
            match &write.value {
                Some(grant) if !grant.schema.is_valid(&value) => {
                    refusals.push((write, grant.schema.violations(&value, REASONS_MAX)));
                }
                _ => return Vec::new(),
            }
        }
        // The grant with the fewest violations is probably the one the author meant.
        let closest = refusals.into_iter().min_by_key(|(_, reasons)| reasons.len());
        let (write, reasons) = closest.expect("a grant that does not refuse the value returns above");
        reasons.into_iter().map(|reason| value_not_granted(path, write, reason, written)).collect()
    }

    fn path_not_granted(&self, path: &Pointer, message: String) -> Violation {
        let near = self.nearest_to(&[path.as_str()]).into_iter().take(ALLOWED_MAX);
        let near = near.map(|write| json!({"path": write.pattern.to_string(), "ops": write.ops})).collect();
        let is_unbound = self.writes.iter().any(|write| write.pattern.names().next().is_some());
        let message = match is_unbound {
            true => format!("{message}; names in its paths are bound by triggers, and here nothing is bound"),
            false => message,
        };
        Violation::new(Code::PathNotGranted, path.as_str(), message).with_expected(Value::Array(near))
    }

    /// Returns the write grants, those with the longest common prefix with one of the pointers first.
    fn nearest_to(&self, near: &[&str]) -> Vec<&CompiledGrant> {
        let near = near.iter().filter_map(|text| Pointer::parse(text).ok()).collect::<Vec<_>>();
        let mut writes = self.writes.iter().collect::<Vec<_>>();
        writes.sort_by_key(|write| Reverse(near.iter().map(|place| nearness(&write.pattern, place)).max()));
        writes
    }
}

/// Place of a write.
#[derive(Clone, Copy)]
struct Target<'a> {
    /// Path as the operation names it.
    path: &'a Pointer,
    /// Path with `-` in place of an index that appends.
    granted_at: &'a Pointer,
    /// True for the target of a move; its path refers to the document after the removal at `from`.
    arrives: bool,
    candidate: &'a Candidate,
}

impl Target<'_> {
    /// Returns true if a pattern matches the place by either path.
    fn is_matched_by(self, pattern: &Pattern) -> bool {
        // In an object, `-` is an ordinary name and not the append position.
        let appends = |path: &Pointer| {
            let container = path.parent().and_then(|parent| self.candidate.get(parent));
            container.is_none_or(|container| container.as_object().is_none())
        };
        let wants_append = pattern.tokens().last() == Some(&PatternToken::Append);
        let matches = |path: &Pointer| pattern.matches(path) && (!wants_append || appends(path));
        matches(self.path) || (self.path != self.granted_at && matches(self.granted_at))
    }
}

fn unknown_location(path: &Pointer, granted_at: &Pointer, schema: &Schema) -> Option<Violation> {
    if schema.is_plain(granted_at) {
        return None;
    }
    let Location::Illegal { legal_prefix, known, patterns } = schema.locate_pointer(granted_at) else { return None };
    let rest = granted_at.as_str().get(legal_prefix.len()..).unwrap_or_default();
    let wrong = PointerBuf::parse(rest).ok().and_then(|rest| Some(rest.first()?.decoded().into_owned()));
    let wrong = wrong.unwrap_or_default();
    let parent = if legal_prefix.is_empty() { "the document" } else { legal_prefix.as_str() };
    let mut message = format!("the schema has no `{wrong}` below {parent}");
    if let Some(nearest) = nearest(&wrong, known.iter().map(String::as_str)) {
        message.push_str(&format!("; did you mean `{nearest}`?"));
    } else if let Some(pattern) = patterns.first() {
        message.push_str(&format!("; names there match `{pattern}`"));
    }
    let violation = Violation::new(Code::UnknownLocation, path.as_str(), message);
    Some(violation.with_expected(known.into_iter().collect()).with_found(wrong.into()))
}

/// Formats the operations for a message.
fn verbs(needed: &[GrantOp]) -> String {
    needed.iter().map(|op| format!("`{op}`")).collect::<Vec<_>>().join(" with ")
}

/// Explains an operation that counts as a different one by its effect.
fn effect_hint(target: Target<'_>, needed: &[GrantOp]) -> String {
    match needed.last() {
        Some(GrantOp::Replace) if target.candidate.get(target.path).is_some() => {
            " (there is something already; to put another value there is to replace it)".to_owned()
        }
        Some(GrantOp::Insert) => " (to add before an existing element is to insert; `-` appends)".to_owned(),
        _ => String::new(),
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
