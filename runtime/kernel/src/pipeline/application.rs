//! Applies operations: from a judged proposal, or a committed patch, to the next state.

use std::borrow::Cow;
use std::mem;

use serde_json::Value;

use super::reply::Unwrapped;
use super::{AppliedPatch, Judgement, reply_conversion};
use crate::ablation::Mode;
use crate::blueprint::PatchLimits;
use crate::event::Change;
use crate::files::EditProposal;
use crate::id::WorkerName;
use crate::invariant;
use crate::json;
use crate::patch::{self, Op};
use crate::plan::Plan;
use crate::rejection::{Code, VIOLATIONS_MAX, Violation};
use crate::state::{AppliedOp, Candidate, OpEffect, ResultLimits, State};

/// Factor by which a document with redaction placeholders may exceed its size limit.
const OPAQUE_GROWTH: u64 = 128;

/// Applies a committed patch again, for recovery. `is_opaque` means that values of the patch or of the document may be
/// redacted. Returns the violation of the first operation that does not apply.
pub fn reapply(plan: &Plan, state: &State, patch: &Value, is_opaque: bool) -> Result<AppliedPatch, Violation> {
    let mut limits = limits(plan);
    if is_opaque {
        limits.bytes = limits.bytes.saturating_mul(OPAQUE_GROWTH);
    }
    let unlimited = PatchLimits { max_ops: u32::MAX, ..Default::default() };
    // Stored patches are normalised; other callers' patches may not be.
    let mut patch = Cow::Borrowed(patch);
    if !json::is_normal(&patch) {
        json::normalise(patch.to_mut());
    }
    let ops = patch::parse(&patch, &unlimited).map_err(|mut violations| violations.remove(0))?;
    let mut candidate = state.candidate();
    let mut changes = Vec::new();
    for op in &ops {
        let effect = candidate.effect(op);
        apply(&mut candidate, op, effect, plan, limits, &mut changes)?;
    }
    Ok(AppliedPatch { state: candidate.into_state(), changes })
}

/// Checks size, schema and invariants of the initial state, which has no patch.
pub fn check_initial(plan: &Plan, state: &State) -> Vec<Violation> {
    let (bytes, limits) = (state.root().bytes(), limits(plan));
    if bytes > limits.bytes {
        let message = format!("the document begins with {bytes} bytes, at most {} are allowed", limits.bytes);
        return vec![Violation::new(Code::ResultTooLarge, "", message)];
    }
    let violations = plan.schema.tree_violations(state.root(), VIOLATIONS_MAX);
    if violations.is_empty() { invariant::check_whole(&plan.invariants, state.root()) } else { violations }
}

/// Applies the operations of a patch that needs no grant.
pub(super) fn apply_all(judgement: &mut Judgement<'_>) -> Vec<Violation> {
    let Judgement { plan, ops, candidate, targets, changes, .. } = judgement;
    for (index, op) in ops.iter().enumerate() {
        let effect = candidate.effect(op);
        targets.note(index, op, &effect, candidate);
        if let Err(violation) = apply(candidate, op, effect, plan, limits(plan), changes) {
            return vec![violation];
        }
    }
    Vec::new()
}

/// Applies the operations by which an edit of files changes the state.
pub(super) fn apply_edit(judgement: &mut Judgement<'_>, edit: &EditProposal<'_>) -> Vec<Violation> {
    let violations = edit.inapplicable();
    if !violations.is_empty() {
        return violations;
    }
    let mut patch = edit.patch();
    json::normalise(&mut patch);
    judgement.proposal.get_or_init(|| Unwrapped::from_patch(patch, None));
    match judgement.parse(u32::MAX) {
        Ok(()) => apply_all(judgement),
        Err(violations) => violations,
    }
}

/// Appends the message about the writes of a worker's patch, for the workers of a plain blackboard.
pub(super) fn append_message(judgement: &mut Judgement<'_>, worker: &WorkerName) -> Vec<Violation> {
    let Judgement { plan, state, ops, candidate, changes, .. } = judgement;
    let description = if judgement.is_derived { String::new() } else { reply_conversion::describe_patch(ops) };
    if description.is_empty() {
        return Vec::new();
    }
    let message = reply_conversion::message_op(state.root(), worker, &description);
    let posted = Value::Array(vec![message.clone()]);
    judgement.appended_message = Some(message);
    let apply = |op: &Op<'_>| {
        let effect = candidate.effect(op);
        apply(candidate, op, effect, plan, limits(plan), changes)
    };
    match patch::parse(&posted, &PatchLimits::default()) {
        Ok(ops) => ops.iter().map(apply).find_map(Result::err).into_iter().collect(),
        Err(violations) => violations,
    }
}

/// Turns the candidate into the resulting state.
pub(super) fn conclude(judgement: &mut Judgement<'_>) {
    let candidate = mem::replace(&mut judgement.candidate, judgement.state.candidate());
    judgement.made = candidate.into_state();
    judgement.is_unchanged = judgement.made.digest() == judgement.state.digest();
}

pub(super) fn limits(plan: &Plan) -> ResultLimits {
    let limits = &plan.blueprint.limits;
    ResultLimits { bytes: limits.state_bytes, depth: limits.depth }
}

/// Applies one operation and records its changes.
pub(super) fn apply(
    candidate: &mut Candidate,
    op: &Op<'_>,
    effect: OpEffect<'_>,
    plan: &Plan,
    limits: ResultLimits,
    changes: &mut Vec<Change>,
) -> Result<(), Violation> {
    let AppliedOp { removed: taken, overwritten: over, made } = candidate.apply(op, limits)?;
    // Messages do not count as changes for rules and breakers; their effects do.
    if matches!(plan.mode, Mode::Plain {}) && reply_conversion::is_message_path(op.path().as_str()) {
        return Ok(());
    }
    if let (Op::Move { from: path, .. } | Op::Remove { path }, Some(before)) = (op, taken) {
        changes.push(Change { path: path.to_buf(), before: Some(before), after: None });
    }
    if made.is_some() {
        changes.push(Change { path: effect.lands_at.into_owned(), before: over, after: made });
    }
    Ok(())
}
