//! The validation pipeline: syntax, authorization, freshness, application, schema, invariants (DESIGN section 4).
//!
//! A proposal passes all stages or stops at the first that fails, with every violation of that stage. The pipeline has
//! no side effects: an accepted proposal is returned with its resulting state. `reply` parses a worker's reply;
//! `interface` derives patches from replies in the modes without patches, by `difference`; `conceal` removes from a
//! rejection the values that its worker may not see. Components that a mode ([`crate::ablation`]) leaves out are
//! skipped here.

mod json_diff;
mod mask;
mod reply;
mod reply_conversion;
#[cfg(test)]
mod tests;
mod wildcard;

use std::borrow::Cow;

use jsonptr::PointerBuf;
use serde_json::Value;

use crate::ablation::{Component, Interface, Mode};
use crate::blueprint::{Approval, Freshness, ReplyFormat, Worker};
use crate::contract::{OpContext, ReadCheck, Readable};
use crate::event::Change;
use crate::expand_request::{ExpandRequest, RangeStart};
use crate::expr::Allowance;
use crate::freshness::{self, ProposalContext, Targets};
use crate::id::WorkerName;
use crate::invariant;
use crate::json;
use crate::patch::{self, Op};
use crate::plan::{Plan, WorkerPlan};
use crate::record::{SINCE_RANGE_STARTS, SINCE_WILDCARD_REJECTIONS};
use crate::rejection::{Code, Rejection, Stage, VIOLATIONS_MAX, Violation};
use crate::state::{AppliedOp, Candidate, OpEffect, ResultLimits, State};
use crate::tree::{ChangesSince, Node};

use mask::Visibility;
pub(crate) use mask::mask_recorded;
pub use reply::{ClarifyQuestion, Reply, ReplyBody};
use reply::{ReplyRights, Unwrapped};
pub(crate) use reply::{fingerprint, pass_fingerprint};
pub(crate) use reply_conversion::MESSAGES;

/// Result of judging a proposal.
#[derive(Clone)]
pub enum Verdict {
    /// Proposal that may be committed.
    Accepted(Accepted),
    /// Proposal that would change nothing.
    NoOp(Reply),
    /// Proposal that may not be committed.
    Rejected {
        /// Reason of the rejection.
        rejection: Rejection,
        /// On a conflict with concurrent commits: places to reserve until the next attempt.
        contested: Vec<PointerBuf>,
    },
}

/// Accepted proposal.
#[derive(Clone)]
pub struct Accepted {
    /// Proposal as read from the reply.
    pub reply: Reply,
    /// Resulting state and its changes.
    pub made: AppliedPatch,
    /// Approval that is required before the commit.
    pub approval: Option<Approval>,
    /// Operation appended by the kernel, which the state includes already: the message about the writes for the workers
    /// of a plain blackboard.
    pub appended_message: Option<Value>,
}

/// State produced by a patch.
#[derive(Clone)]
pub struct AppliedPatch {
    /// The state.
    pub state: State,
    /// Effects of the operations.
    pub changes: Vec<Change>,
}

/// Author of a reply.
#[derive(Clone, Copy)]
pub struct Proposer<'a> {
    /// Name of the worker.
    pub worker: &'a WorkerName,
    /// Seat in the invocation that the reply answers; `None` if there is no such worker.
    pub worker_plan: Option<&'a WorkerPlan>,
}

/// Judges a worker's reply against the committed state. `interface` is the reply format of the invocation; an
/// unsolicited proposal is a patch.
pub fn judge(
    plan: &Plan,
    state: &State,
    by: Proposer<'_>,
    body: &ReplyBody,
    interface: Interface,
    context: &ProposalContext<'_>,
) -> Verdict {
    let Proposer { worker, worker_plan: seat } = by;
    let read = read(state, seat, worker, body, interface, context);
    let read = read.map_err(|violations| RejectedProposal::from(Rejection::new(Stage::Syntax, violations)));
    let mut allowance = Allowance::new();
    let judge = |unwrapped| judge_stages(plan, state, by, unwrapped, false, context, &mut allowance);
    let judged = read.and_then(judge);
    let mut verdict = finish_verdict(plan, state, seat, context, judged, &mut allowance);
    if let (ReplyBody::Derived { source: of, .. }, Verdict::Accepted(Accepted { reply, .. }) | Verdict::NoOp(reply)) =
        (body, &mut verdict)
    {
        reply.written = Some(of.clone());
    }
    verdict
}

/// Judges an approved proposal again: the patch that was put to the person, however it was derived. Its read set must
/// be unchanged (SPEC section 3), even if the worker's own freshness mode is weaker.
pub fn judge_approved(
    plan: &Plan,
    state: &State,
    by: Proposer<'_>,
    reply: Reply,
    context: &ProposalContext<'_>,
) -> Verdict {
    let unwrapped = Unwrapped { reply, expand_ops: Vec::new() };
    let mut allowance = Allowance::new();
    let judged = judge_stages(plan, state, by, unwrapped, true, context, &mut allowance);
    finish_verdict(plan, state, by.worker_plan, context, judged, &mut allowance)
}

/// Turns a rejected proposal into a verdict: conceals values hidden from its author and adds the allowed operations.
fn finish_verdict(
    plan: &Plan,
    state: &State,
    seat: Option<&WorkerPlan>,
    context: &ProposalContext<'_>,
    verdict: Result<Verdict, RejectedProposal>,
    allowance: &mut Allowance,
) -> Verdict {
    match verdict {
        Ok(verdict) => verdict,
        Err(RejectedProposal { mut rejection, written, candidate: made, contested }) => {
            if let Some(seat) = seat {
                let mut of = |state: &State| seat.contract.readable_within(state.root(), allowance);
                let mut readable = of(state);
                if let Some(made) = made.filter(|_| seat.contract.has_conditions()) {
                    readable = readable.within(of(&made).places());
                }
                let was = context.basis.map(|basis| of(&basis.state));
                let sight = Visibility { readable: &readable, in_view: was.as_ref(), written: &written };
                mask::mask_violations(rejection.stage, &mut rejection.violations, &sight);
                let near: Vec<_> = rejection.violations.iter().map(|violation| violation.pointer.as_str()).collect();
                rejection.allowed = match rejection.stage {
                    Stage::Syntax => seat.contract.allowed(&[], &plan.schema),
                    _ => seat.contract.allowed(&near, &plan.schema),
                };
            }
            Verdict::Rejected { rejection, contested }
        }
    }
}

/// Factor by which a document with redaction placeholders may exceed its size limit.
const OPAQUE_GROWTH: u64 = 128;

/// Applies a committed patch again, for recovery. `is_opaque` means that values of the patch or of the document may be
/// redacted.
///
/// # Errors
/// Returns the violation of the first operation that does not apply.
pub fn reapply(plan: &Plan, state: &State, patch: &Value, is_opaque: bool) -> Result<AppliedPatch, Violation> {
    let mut limits = limits(plan);
    if is_opaque {
        limits.bytes = limits.bytes.saturating_mul(OPAQUE_GROWTH);
    }
    let unlimited = crate::blueprint::PatchLimits { max_ops: u32::MAX, ..Default::default() };
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

/// Judges a patch that needs no grant: syntax, application, a change of the state, schema and invariants.
///
/// # Errors
/// Returns the rejection.
pub fn amend(plan: &Plan, state: &State, patch: Value) -> Result<Accepted, Rejection> {
    let mut patch = patch;
    json::normalise(&mut patch);
    let refuse = |stage, violations| Rejection::new(stage, violations);
    let unlimited = crate::blueprint::PatchLimits { max_ops: u32::MAX, ..Default::default() };
    let ops = patch::parse(&patch, &unlimited).map_err(|violations| refuse(Stage::Syntax, violations))?;
    let (mut candidate, mut changes, mut targets) = (state.candidate(), Vec::new(), Targets::default());
    for (index, op) in ops.iter().enumerate() {
        let effect = candidate.effect(op);
        targets.note(index, op, &effect, &candidate);
        let applied = apply(&mut candidate, op, effect, plan, limits(plan), &mut changes);
        applied.map_err(|violation| refuse(Stage::Application, vec![violation]))?;
    }
    let made = candidate.into_state();
    if made.digest() == state.digest() {
        let message = "the same value is there already";
        return Err(refuse(Stage::Application, vec![Violation::new(Code::TestFailed, "", message)]));
    }
    let violations = plan.schema.violations_since(made.root(), state.revision(), VIOLATIONS_MAX);
    if !violations.is_empty() {
        return Err(refuse(Stage::Schema, violations));
    }
    let change = invariant::Change {
        before: state.root(),
        candidate: ChangesSince::new(made.root(), 0, state.revision()),
        patch: &patch,
        request: plan.original_request.as_ref(),
        original_place: &|place| targets.original_place(place),
    };
    let violations = invariant::check(&plan.invariants, &change, &mut Allowance::new());
    if !violations.is_empty() {
        return Err(refuse(Stage::Invariant, violations));
    }
    let reply = Reply { patch, intent: None, expand: Vec::new(), written: None, clarify: None, pass: None };
    Ok(Accepted { reply, made: AppliedPatch { state: made, changes }, approval: None, appended_message: None })
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

/// Rejected proposal.
struct RejectedProposal {
    rejection: Rejection,
    /// Places written by the patch, which its author may see.
    written: Vec<PointerBuf>,
    /// Candidate to which the places of the violations belong, if not to the state.
    candidate: Option<State>,
    /// See [`Verdict::Rejected`].
    contested: Vec<PointerBuf>,
}

impl From<Rejection> for RejectedProposal {
    fn from(rejection: Rejection) -> Self {
        Self { rejection, written: Vec::new(), candidate: None, contested: Vec::new() }
    }
}

/// Returns the places that hold values written by the patch itself. Places filled by a move or copy, or shifted by a
/// later operation, hold other values.
fn own_places(ops: &[Op<'_>], changes: &[Change], made: &State) -> Vec<PointerBuf> {
    let written = ops.iter().filter_map(|op| match op {
        Op::Add { value, .. } | Op::Replace { value, .. } => Some(*value),
        Op::Remove { .. } | Op::Move { .. } | Op::Copy { .. } | Op::Test { .. } => None,
    });
    let written: Vec<&Value> = written.collect();
    let places = changes.iter().map(|change| &change.path);
    places
        .filter(|path| made.get(path).is_some_and(|node| written.iter().any(|value| node == *value)))
        .cloned()
        .collect()
}

/// Returns the size limit of a reply, in bytes.
pub(crate) fn bytes_max(seat: Option<&WorkerPlan>, interface: Interface, context: &ProposalContext<'_>) -> usize {
    match (interface, seat, context.basis) {
        (Interface::Whole, Some(_), Some(_)) => reply_conversion::WHOLE_BYTES_MAX,
        (_, Some(seat), _) => seat.worker.patch.max_bytes as usize,
        (_, None, _) => crate::blueprint::PatchLimits::default().max_bytes as usize,
    }
}

/// Reads a reply into a patch and its other members.
fn read(
    state: &State,
    seat: Option<&WorkerPlan>,
    worker: &WorkerName,
    body: &ReplyBody,
    interface: Interface,
    context: &ProposalContext<'_>,
) -> Result<Unwrapped, Vec<Violation>> {
    let defaults = crate::blueprint::PatchLimits::default();
    let patch_limits = seat.map_or(&defaults, |seat| &seat.worker.patch);
    if let ReplyBody::Elided { elided, .. } = body {
        return Err(vec![reply::too_large(elided.bytes, bytes_max(seat, interface, context))]);
    }
    match (interface, seat, context.basis) {
        (Interface::Whole, Some(seat), Some(basis)) => reply_conversion::whole(seat, body, basis),
        (Interface::Merge, Some(seat), _) => reply_conversion::merge(seat, state.root(), body),
        (Interface::Message, Some(seat), _) => reply_conversion::message(seat, worker, state.root(), body),
        (Interface::Patch, _, _) | (_, None, _) | (Interface::Whole, _, None) => {
            let worker = seat.map(|seat| &seat.worker);
            let may_pass = worker.is_some_and(|worker| worker.pass);
            let may = ReplyRights { pass: may_pass, ask_for_parts: seat.is_some_and(|seat| seat.has_ranges()) };
            let mut read = reply::read(body, patch_limits, may);
            if let (Ok(Unwrapped { reply, .. }), Some(seat)) = (&mut read, seat)
                && may_use_bindings(seat)
                && seat.bound().substitute(&mut reply.patch, &mut reply.expand)
            {
                reply.written = Some(body.text());
                if json::size(&reply.patch) > 2 * u64::from(patch_limits.max_bytes) {
                    let message = "the patch is too large with the tokens that its names are bound to";
                    return Err(vec![Violation::new(Code::TooLarge, "", message)]);
                }
            }
            match worker.and_then(|worker| worker.format) {
                Some(format) => word_violations(read, format),
                None => read,
            }
        }
    }
}

/// Returns true for a seat with patches that may contain names in place of the bound tokens.
fn may_use_bindings(seat: &WorkerPlan) -> bool {
    seat.interface == Interface::Patch && seat.worker.format.is_none() && !seat.bound().is_empty()
}

/// Words the violations for a reply format that is not a patch; readable replies were turned into a patch before.
fn word_violations(read: Result<Unwrapped, Vec<Violation>>, format: ReplyFormat) -> Result<Unwrapped, Vec<Violation>> {
    let unread = || {
        let message = format!("the reply cannot be read; answer with {}", format.example());
        Violation::new(Code::NotAPatch, "", message)
    };
    let told = |violation: Violation| match violation.code {
        Code::InvalidJson | Code::NotAPatch if violation.pointer != "/pass" => unread(),
        _ => violation,
    };
    match read {
        Ok(unwrapped) if !unwrapped.reply.patch.is_array() => Err(vec![unread()]),
        Ok(unwrapped) => Ok(unwrapped),
        Err(violations) => Err(violations.into_iter().map(told).collect()),
    }
}

/// Judges a reply and numbers the violations as in the reply. `is_agreed` means that a person has approved it.
fn judge_stages(
    plan: &Plan,
    state: &State,
    by: Proposer<'_>,
    unwrapped: Unwrapped,
    is_agreed: bool,
    context: &ProposalContext<'_>,
    allowance: &mut Allowance,
) -> Result<Verdict, RejectedProposal> {
    let judged = judge_reply(plan, state, by, &unwrapped.reply, is_agreed, context, allowance);
    // Violations number operations as the reply does.
    let renumber = |violation: &mut Violation| violation.op = violation.op.map(|op| unwrapped.original_index(op));
    let judged = judged.map_err(|mut refused| {
        refused.rejection.violations.iter_mut().for_each(renumber);
        refused
    })?;
    let reply = unwrapped.reply;
    Ok(match judged {
        Some(EffectiveReply { applied: made, approval, appended_message: posted }) => {
            Verdict::Accepted(Accepted { reply, made, approval, appended_message: posted })
        }
        None => Verdict::NoOp(reply),
    })
}

/// Result of an effective reply.
struct EffectiveReply {
    applied: AppliedPatch,
    /// Approval that is required.
    approval: Option<Approval>,
    /// See [`Accepted::appended_message`].
    appended_message: Option<Value>,
}

/// Judges a parsed reply; `None` if it changes nothing.
fn judge_reply(
    plan: &Plan,
    state: &State,
    by: Proposer<'_>,
    reply: &Reply,
    is_agreed: bool,
    context: &ProposalContext<'_>,
    allowance: &mut Allowance,
) -> Result<Option<EffectiveReply>, RejectedProposal> {
    let Proposer { worker, worker_plan: seat } = by;
    let mut patch_limits = seat.map_or_else(Default::default, |seat| seat.worker.patch.clone());
    let is_derived = reply.written.is_some() && !seat.is_some_and(may_use_bindings);
    if is_derived {
        // A derived patch has no operations of the author to count.
        patch_limits.max_ops = u32::MAX;
    }
    let refuse = |stage, violations| RejectedProposal::from(Rejection::new(stage, violations));
    let ops = patch::parse(&reply.patch, &patch_limits).map_err(|violations| refuse(Stage::Syntax, violations))?;

    let Some(seat) = seat else {
        let message = format!("there is no worker {worker}");
        return Err(refuse(Stage::Authorization, vec![Violation::new(Code::WrongWorker, "", message)]));
    };

    // Operations are judged by their effect on the candidate, so authorization runs along with application. Application
    // errors are reported only if authorization has no violations.
    let authority = seat.unrestricted.as_deref().unwrap_or(&seat.contract);
    let mut reading = ReadCheck::new(authority, state.root(), allowance);
    let is_unchecked = plan.mode.is_baseline() && seat.unrestricted.is_some();
    let mut candidate = state.candidate();
    let mut changes = Vec::new();
    let mut targets = Targets::default();
    let mut unauthorized = Vec::new();
    let mut approval: Option<Approval> = None;
    let mut inapplicable = Vec::new();
    let mut broken = false;
    for (index, op) in ops.iter().enumerate() {
        let effect = candidate.effect(op);
        targets.note(index, op, &effect, &candidate);
        let meets = OpContext { effect: &effect, candidate: &candidate, schema: &plan.schema, targets: &targets };
        let mut violations = match is_unchecked {
            true => Vec::new(),
            false if seat.unrestricted.is_some() && names_reserved_member(op) => {
                vec![reserved_member_violation(op).with_op(index)]
            }
            false => authority.judge_effect(index, op, &meets, &mut reading, allowance),
        };
        let refuse_wildcard = |readable: &Readable<'_>| match seat.has_ranges() && !is_derived {
            true => wildcard::reject(
                op,
                &wildcard::WildcardContext {
                    root: candidate.root(),
                    schema: &plan.schema,
                    readable,
                    bound: seat.bound(),
                    format: seat.journal_format,
                },
            ),
            false => None,
        };
        let is_unknown = |violation: &Violation| violation.code == Code::UnknownLocation;
        if seat.journal_format >= SINCE_WILDCARD_REJECTIONS
            && violations.iter().any(is_unknown)
            && refuse_wildcard(&reading.before).is_some()
        {
            violations.retain(|violation| !is_unknown(violation));
        }
        for demanded in authority.approvals(op, &meets, &reading, allowance) {
            if let Err(violation) = add_approval(&mut approval, demanded, op) {
                unauthorized.push(violation.with_op(index));
            }
        }
        let is_tried = violations.is_empty() && !broken;
        if is_tried && !matches!(op, Op::Test { .. }) {
            reading.outdate();
        }
        let refused = if is_tried { refuse_wildcard(&reading.before) } else { None };
        let apply = || apply(&mut candidate, op, effect, plan, limits(plan), &mut changes);
        if is_tried && let Err(mut violation) = refused.map_or_else(apply, Err) {
            // A place of this candidate may hold another value in other candidates.
            if authority.hides_something() {
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
    if !unauthorized.is_empty() {
        return Err(refuse(Stage::Authorization, unauthorized));
    }
    let finds_nothing = |asked: &ExpandRequest| nothing_to_show(state, &reading.before, asked, seat.journal_format);
    inapplicable.extend(reply.expand.iter().filter_map(finds_nothing));
    let least = if is_agreed { Freshness::Reads } else { Freshness::None };
    let own = seat.worker.freshness;
    let (mode, wants_seen) = (own.max(least), own != Freshness::None);
    let inputs = freshness::Inputs { mode, wants_seen, contract: &seat.contract, state, context };
    let conflict = match is_unchecked {
        true => freshness::Conflict::default(),
        false => freshness::judge(&inputs, targets.as_slice(), allowance),
    };
    if !conflict.violations.is_empty() {
        let rejection = Rejection::new(Stage::Freshness, conflict.violations);
        return Err(RejectedProposal { contested: conflict.contested, ..rejection.into() });
    }
    if !inapplicable.is_empty() {
        return Err(refuse(Stage::Application, inapplicable));
    }

    let posted = match plan.mode {
        Mode::Plain {} if !is_derived => {
            let told = reply_conversion::describe_patch(&ops);
            (!told.is_empty()).then(|| reply_conversion::message_op(state.root(), worker, &told))
        }
        Mode::Plain {} | Mode::Structured {} | Mode::Patchboard { .. } => None,
    };
    if let Some(posted) = &posted {
        let posted = Value::Array(vec![posted.clone()]);
        let ops = patch::parse(&posted, &patch_limits).map_err(|violations| refuse(Stage::Application, violations))?;
        for op in &ops {
            let effect = candidate.effect(op);
            let applied = apply(&mut candidate, op, effect, plan, limits(plan), &mut changes);
            applied.map_err(|violation| refuse(Stage::Application, vec![violation]))?;
        }
    }
    let made = candidate.into_state();
    if made.digest() == state.digest() {
        return Ok(None);
    }
    if !plan.mode.has(Component::Schema) {
        return Ok(Some(EffectiveReply {
            applied: AppliedPatch { state: made, changes },
            approval,
            appended_message: posted,
        }));
    }
    let written = || own_places(&ops, &changes, &made);
    // The whole document is never granted, so no patch can have replaced it.
    let violations = plan.schema.violations_since(made.root(), state.revision(), VIOLATIONS_MAX);
    if !violations.is_empty() {
        let (written, made) = (written(), Some(made.clone()));
        return Err(RejectedProposal { written, candidate: made, ..Rejection::new(Stage::Schema, violations).into() });
    }
    let change = invariant::Change {
        before: state.root(),
        candidate: ChangesSince::new(made.root(), 0, state.revision()),
        patch: &reply.patch,
        request: plan.original_request.as_ref(),
        original_place: &|place| targets.original_place(place),
    };
    let violations = invariant::check(&plan.invariants, &change, allowance);
    if !violations.is_empty() {
        let (written, made) = (written(), Some(made.clone()));
        return Err(RejectedProposal {
            written,
            candidate: made,
            ..Rejection::new(Stage::Invariant, violations).into()
        });
    }
    Ok(Some(EffectiveReply { applied: AppliedPatch { state: made, changes }, approval, appended_message: posted }))
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

fn reserved_member_violation(op: &Op<'_>) -> Violation {
    Violation::new(Code::UnknownLocation, op.path().as_str(), "names that begin with $ are the kernel's own")
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

/// Parses a reply and its operations as far as possible without a board; returns the first violation on rejection.
pub(crate) fn read_reply(body: &ReplyBody, worker: &Worker) -> Result<Reply, Violation> {
    let may = ReplyRights { pass: worker.pass, ask_for_parts: true };
    let read = || {
        let reply = reply::read(body, &worker.patch, may)?.reply;
        patch::parse(&reply.patch, &worker.patch)?;
        Ok(reply)
    };
    read().map_err(|mut violations: Vec<Violation>| violations.remove(0))
}

/// Judges requests to be shown values: the author must be able to read the place, or a part of it.
fn judge_expansion(
    seat: &WorkerPlan,
    readable: &Readable<'_>,
    expand: &[ExpandRequest],
    context: &ProposalContext<'_>,
) -> Vec<Violation> {
    if !expand.is_empty() && context.expansions_left == 0 {
        let message = match context.invocation {
            Some(_) => "what was asked for has been shown as often as it may; answer with what you have seen",
            None => "only a reply to an invocation can ask to be shown something",
        };
        return vec![Violation::new(Code::ExpansionLimit, "/expand", message)];
    }
    let is_readable = |asked: &&ExpandRequest| asked.place().is_some_and(|place| readable.may_ask_for(&place));
    let refuse = |asked: &ExpandRequest| {
        let message = "what is asked for must be what the worker may read";
        Violation::new(Code::PathNotGranted, asked.pointer(), message).with_expected(seat.contract.describe_reads())
    };
    expand.iter().filter(|asked| !is_readable(asked)).map(refuse).collect()
}

/// Rejects a request for a missing value. `format` is the board's journal format. Where only parts are readable, the
/// violation does not reveal their number.
pub fn nothing_to_show(
    state: &State,
    readable: &Readable<'_>,
    asked: &ExpandRequest,
    format: u32,
) -> Option<Violation> {
    let place = asked.place()?;
    let Some(value) = state.get(&place) else {
        let message = "there is nothing to be shown; name a place, like /claims/3";
        return Some(Violation::new(Code::PathNotFound, asked.pointer(), message));
    };
    let from = asked.start()?;
    let refuse = |is_refused: bool, message: String| {
        (is_refused && readable.may_read(&place)).then(|| Violation::new(Code::PathNotFound, asked.pointer(), message))
    };
    let (first, count, parts) = match (value, from) {
        (Node::Array(elements), RangeStart::Number(from)) => (usize::try_from(*from).ok(), elements.len(), "elements"),
        (Node::Array(_) | Node::Object(_), _) if format < SINCE_RANGE_STARTS => return None,
        (Node::Array(elements), RangeStart::Name(name)) => {
            let is_it = |(index, element): (usize, &Node)| {
                element.child("id").and_then(Node::as_str) == Some(name) || index.to_string() == *name
            };
            let is_there = elements.iter().enumerate().any(is_it);
            let message = "no element has this `id`, and there is none at such an index";
            return refuse(!is_there, message.to_owned());
        }
        (Node::Object(_), from) => {
            let is_over = value.parts_from(0, &from.name_in(value)).next().is_none();
            return refuse(is_over, "there is nothing from there on: all names come before this one".to_owned());
        }
        (value, from) => (from.characters(), value.as_str()?.chars().count(), "characters"),
    };
    let message =
        format!("there is nothing from there on: it has {count} {parts}, and `from` is the number of those before");
    let is_beyond = first.is_none_or(|first| first >= count);
    refuse(is_beyond, message)
}

/// Judges a question to a person: the worker must have a person to ask, and rounds left.
fn judge_question(seat: &WorkerPlan, context: &ProposalContext<'_>) -> Option<Violation> {
    let refuse = |code, message: &str| Some(Violation::new(code, "/clarify", message));
    match &seat.worker.clarify {
        None => refuse(Code::ClarifyNotGranted, "the worker has nobody to ask; decide with what is shown"),
        Some(_) if context.invocation.is_none() => {
            refuse(Code::ExpansionLimit, "only a reply to an invocation can ask a person something")
        }
        Some(_) if context.expansions_left == 0 => {
            refuse(Code::ExpansionLimit, "enough has been asked; answer with what you have seen and heard")
        }
        Some(_) => None,
    }
}

fn limits(plan: &Plan) -> ResultLimits {
    let limits = &plan.blueprint.limits;
    ResultLimits { bytes: limits.state_bytes, depth: limits.depth }
}

/// Applies one operation and records its changes.
fn apply(
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
