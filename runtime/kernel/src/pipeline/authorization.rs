//! Judges the operations of a reply by their effects on the candidate that each meets, and applies them to it.

use super::application::{apply, limits};
use super::mask::{self, Visibility};
use super::requests::{judge_expansion, judge_question, nothing_to_show};
use super::wildcard::{self, WildcardContext};
use super::{Judgement, ReplySource};
use crate::blueprint::Approval;
use crate::contract::{OpContext, ReadCheck, Readable};
use crate::expand_request::ExpandRequest;
use crate::patch::Op;
use crate::record::SINCE_WILDCARD_REJECTIONS;
use crate::rejection::{Code, Violation};

/// Applies the operations that are authorized and returns the violations of the others. `is_checked` is false for
/// workers whose operations need no grants.
///
/// Violations by operations that do not apply are kept for their stage, which follows only if this one has none.
pub(super) fn judge(judgement: &mut Judgement<'_>, source: ReplySource<'_>, is_checked: bool) -> Vec<Violation> {
    let ReplySource { by, context, .. } = source;
    let Some(seat) = by.worker_plan else {
        let message = format!("there is no worker {}", by.worker);
        return vec![Violation::new(Code::WrongWorker, "", message)];
    };
    let reply = judgement.reply();
    let Judgement { plan, state, ops, candidate, targets, changes, allowance, inapplicable, approval, .. } = judgement;
    let rejects_wildcards = seat.has_ranges() && !judgement.is_derived;
    let authority = seat.unrestricted.as_deref().unwrap_or(&seat.contract);
    let mut reading = ReadCheck::new(authority, state.root(), allowance);
    let mut unauthorized = Vec::new();
    let mut broken = false;
    for (index, op) in ops.iter().enumerate() {
        let effect = candidate.effect(op);
        targets.note(index, op, &effect, candidate);
        let meets = OpContext { effect: &effect, candidate, schema: &plan.schema, targets };
        let mut violations = match is_checked {
            false => Vec::new(),
            true if seat.unrestricted.is_some() && names_reserved_member(op) => {
                let message = "names that begin with $ are the kernel's own";
                vec![Violation::new(Code::UnknownLocation, op.path().as_str(), message).with_op(index)]
            }
            true => authority.judge_effect(index, op, &meets, &mut reading, allowance),
        };
        let refuse_wildcard = |readable: &Readable<'_>| {
            let (root, schema, bound) = (candidate.root(), &plan.schema, seat.bound());
            let context = WildcardContext { root, schema, readable, bound, format: seat.journal_format };
            rejects_wildcards.then(|| wildcard::reject(op, &context)).flatten()
        };
        let is_unknown = |violation: &Violation| violation.code == Code::UnknownLocation;
        if seat.journal_format >= SINCE_WILDCARD_REJECTIONS
            && violations.iter().any(is_unknown)
            && refuse_wildcard(&reading.before).is_some()
        {
            violations.retain(|violation| !is_unknown(violation));
        }
        for demanded in authority.approvals(op, &meets, &reading, allowance) {
            if let Err(violation) = add_approval(approval, demanded, op) {
                unauthorized.push(violation.with_op(index));
            }
        }
        let is_tried = violations.is_empty() && !broken;
        if is_tried && !matches!(op, Op::Test { .. }) {
            reading.outdate();
        }
        let refused = if is_tried { refuse_wildcard(&reading.before) } else { None };
        let apply = || apply(candidate, op, effect, plan, limits(plan), changes);
        if is_tried && let Err(mut violation) = refused.map_or_else(apply, Err) {
            // A place of this candidate may hold another value in other candidates.
            if authority.hides_any() {
                let readable = reading.before.clone().within(reading.now(candidate.root(), allowance).places());
                let sight = Visibility { readable: &readable, in_view: None, written: &[] };
                mask::mask_violation(&mut violation, &sight);
            }
            // After a failed test the remaining operations can still be tried; after any other failure they would only
            // fail as a consequence.
            broken = !matches!(op, Op::Test { .. });
            inapplicable.push(violation.with_op(index));
        }
        if !is_tried || broken {
            targets.not_applied();
        }
        unauthorized.extend(violations);
    }
    unauthorized.extend(judge_expansion(seat, &reading.before, &reply.expand, context));
    unauthorized.extend(reply.clarify.as_ref().and_then(|_| judge_question(seat, context)));
    if unauthorized.is_empty() {
        let finds_nothing = |asked: &ExpandRequest| nothing_to_show(state, &reading.before, asked, seat.journal_format);
        inapplicable.extend(reply.expand.iter().filter_map(finds_nothing));
    }
    unauthorized
}

/// Returns true if an operation names a member reserved for the kernel.
fn names_reserved_member(op: &Op<'_>) -> bool {
    let is_own = |path: &jsonptr::Pointer| path.first().is_some_and(|name| name.decoded().starts_with('$'));
    let from = match op {
        Op::Move { from, .. } | Op::Copy { from, .. } => is_own(from),
        Op::Add { .. } | Op::Replace { .. } | Op::Remove { .. } | Op::Test { .. } => false,
    };
    from || is_own(op.path())
}

/// Adds the approval that an operation needs. A patch has at most one approver; the shortest of the expiry times
/// applies.
fn add_approval(approval: &mut Option<Approval>, demanded: &Approval, op: &Op<'_>) -> Result<(), Violation> {
    match approval {
        None => *approval = Some(demanded.clone()),
        Some(known) if known.by == demanded.by => known.expires = known.expires.min(demanded.expires),
        Some(known) => {
            let message =
                format!("{} must agree to this, and {} to the rest: make two patches of it", demanded.by, known.by);
            return Err(Violation::new(Code::SeveralApprovers, op.path().as_str(), message));
        }
    }
    Ok(())
}
