//! Judges an operation against the write and read grants, by its effect on the candidate.

use std::cell::LazyCell;
use std::collections::BTreeSet;

use jsonptr::{Pointer, PointerBuf};
use serde_json::{Value, json};

use super::condition::{ConditionInput, condition_not_met};
use super::readable::ReadCheck;
use super::target::Target;
use super::value_grant::{WrittenValue, value_not_granted};
use super::{ALLOWED_MAX, CompiledGrant, Contract};
use crate::blueprint::{Approval, GrantOp};
use crate::expr::Allowance;
use crate::patch::Op;
use crate::rejection::{Code, Violation};
use crate::schema::{Location, Schema, nearest};
use crate::state::{Candidate, OpEffect};
use crate::targets::Targets;

impl Contract {
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
                let may_tell = violations.is_empty() || !self.hides_any();
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

    fn unread(&self, what: &str, path: &Pointer) -> Vec<Violation> {
        let message = format!("{what} what the worker may read, and `{path}` is not covered by its reads");
        vec![Violation::new(Code::PathNotGranted, path.as_str(), message).with_expected(self.describe_reads())]
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
            return vec![self.path_not_granted(path, message).with_found(Value::from(found))];
        }
        let at_place = || self.writes.iter().filter(|write| target.is_matched_by(&write.pattern));
        let with_ops: Vec<&CompiledGrant> =
            at_place().filter(|write| needed.iter().all(|op| write.ops.contains(op))).collect();
        if with_ops.is_empty() && at_place().next().is_none() {
            let message = format!("no write grant of this worker matches `{path}`");
            return vec![self.path_not_granted(path, message).with_found(Value::from(found))];
        }
        if with_ops.is_empty() {
            let granted = at_place().flat_map(|write| &write.ops).collect::<BTreeSet<_>>();
            let message = format!("{} is not granted at `{path}`{}", verbs(needed), effect_hint(target, needed));
            let violation = Violation::new(Code::OpNotGranted, path.as_str(), message);
            return vec![violation.with_expected(json!(granted)).with_found(Value::from(found))];
        }
        let holding: Vec<&CompiledGrant> =
            with_ops.iter().copied().filter(|write| self.holds(write, target, input)).collect();
        if holding.is_empty() {
            return vec![condition_not_met(path, &with_ops).with_found(Value::from(found))];
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
}

/// Limit of reasons given for one value that is not granted.
const REASONS_MAX: usize = 5;

/// Context in which an operation is judged.
pub(crate) struct OpContext<'a> {
    pub(crate) effect: &'a OpEffect<'a>,
    pub(crate) candidate: &'a Candidate,
    pub(crate) schema: &'a Schema,
    /// Places that the patch writes, up to this operation.
    pub(crate) targets: &'a Targets,
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
    Some(violation.with_expected(known.into_iter().collect()).with_found(Value::from(wrong)))
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
