//! The validation pipeline: one list of stages for patches, edits of files and amendments (DESIGN section 4).
//!
//! A proposal passes all stages or stops at the first that fails, with every violation of that stage. The pipeline has
//! no side effects: an accepted proposal is returned with its resulting state.
//!
//! * `stages`: the list, and the stages of a mode ([`crate::ablation`]);
//! * `reading`: syntax of a reply, by `reply`, or by `reply_conversion` and `json_diff` in the modes without patches;
//! * `authorization`: judges and applies the operations; `requests`: what else a reply asks for;
//! * `application`: from operations to the next state, also in recovery;
//! * `mask`: removes from a rejection the values that its worker may not see.

mod application;
mod authorization;
mod json_diff;
mod mask;
mod reading;
mod reply;
mod reply_conversion;
mod requests;
mod stages;
#[cfg(test)]
mod tests;
mod wildcard;

use std::cell::OnceCell;

use jsonptr::PointerBuf;
use serde_json::Value;

use crate::ablation::Interface;
use crate::blueprint::{Approval, PatchLimits};
use crate::event::Change;
use crate::expr::Allowance;
use crate::files::EditProposal;
use crate::freshness::ProposalContext;
use crate::id::WorkerName;
use crate::json;
use crate::patch::{self, Op};
use crate::plan::{Plan, STAGES, WorkerPlan};
use crate::rejection::{Code, Rejection, Stage, Violation};
use crate::state::{Candidate, State};
use crate::targets::Targets;

pub use application::{check_initial, reapply};
use mask::Visibility;
pub(crate) use mask::mask_recorded;
pub(crate) use reading::bytes_max;
pub use reading::read_reply;
use reply::Unwrapped;
pub use reply::{ClarifyQuestion, Reply, ReplyBody};
pub(crate) use reply::{fingerprint, pass_fingerprint};
pub(crate) use reply_conversion::MESSAGES;
pub use requests::nothing_to_show;

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

/// Proposal to judge.
#[derive(Clone, Copy)]
enum Subject<'a> {
    Reply(ReplySource<'a>),
    /// An edit of workspace files.
    Edit(&'a EditProposal<'a>),
    /// A patch that needs no grant.
    Amendment,
}

/// Origin of a worker's reply.
#[derive(Clone, Copy)]
struct ReplySource<'a> {
    by: Proposer<'a>,
    /// The reply and its format; `None` if it was read before.
    body: Option<(&'a ReplyBody, Interface)>,
    context: &'a ProposalContext<'a>,
    /// Person who has approved the reply.
    approver: Option<&'a WorkerName>,
}

/// A proposal between two stages.
pub(crate) struct Judgement<'a> {
    plan: &'a Plan,
    state: &'a State,
    subject: Subject<'a>,
    /// The patch and its other members, once read.
    proposal: &'a OnceCell<Unwrapped>,
    ops: Vec<Op<'a>>,
    /// True if the kernel derived the operations from a reply in another format.
    is_derived: bool,
    /// Steps left for all conditions and invariants.
    allowance: Allowance,
    candidate: Candidate,
    targets: Targets,
    changes: Vec<Change>,
    /// Violations of the application stage that the authorization stage finds.
    inapplicable: Vec<Violation>,
    approval: Option<Approval>,
    /// See [`Verdict::Rejected`].
    contested: Vec<PointerBuf>,
    /// See [`Accepted::appended_message`].
    appended_message: Option<Value>,
    /// The resulting state; the committed one until the application stage.
    made: State,
    /// True if the proposal changes nothing; no stage follows.
    is_unchanged: bool,
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
    let source = ReplySource { by, body: Some((body, interface)), context, approver: None };
    let mut verdict = run(plan, state, Subject::Reply(source), OnceCell::new());
    if let (ReplyBody::Derived { source: of, .. }, Verdict::Accepted(Accepted { reply, .. }) | Verdict::NoOp(reply)) =
        (body, &mut verdict)
    {
        reply.written = Some(of.clone());
    }
    verdict
}

/// Judges a proposal again that `approver` has approved: the patch that was put to the person, however it was derived.
/// Its read set must be unchanged (SPEC section 3), even if the worker's own freshness mode is weaker.
pub fn judge_approved(
    plan: &Plan,
    state: &State,
    by: Proposer<'_>,
    reply: Reply,
    approver: &WorkerName,
    context: &ProposalContext<'_>,
) -> Verdict {
    let source = ReplySource { by, body: None, context, approver: Some(approver) };
    run(plan, state, Subject::Reply(source), Unwrapped { reply, expand_ops: Vec::new() }.into())
}

/// Judges an edit of files.
pub(crate) fn judge_edit(plan: &Plan, state: &State, edit: &EditProposal<'_>) -> Verdict {
    run(plan, state, Subject::Edit(edit), OnceCell::new())
}

/// Judges a patch that needs no grant: syntax, application, a change of the state, schema and invariants.
pub fn amend(plan: &Plan, state: &State, mut patch: Value) -> Result<Accepted, Rejection> {
    json::normalise(&mut patch);
    match run(plan, state, Subject::Amendment, Unwrapped::from_patch(patch, None).into()) {
        Verdict::Accepted(accepted) => Ok(accepted),
        Verdict::Rejected { rejection, .. } => Err(rejection),
        Verdict::NoOp(_) => {
            let violation = Violation::new(Code::TestFailed, "", "the same value is there already");
            Err(Rejection::new(Stage::Application, vec![violation]))
        }
    }
}

/// Runs the stages of a proposal until one fails or nothing is left to judge.
fn run(plan: &Plan, state: &State, subject: Subject<'_>, proposal: OnceCell<Unwrapped>) -> Verdict {
    let steps = match subject {
        Subject::Reply(ReplySource { by: Proposer { worker_plan: Some(seat), .. }, .. }) => &seat.steps,
        _ => &STAGES[..],
    };
    let mut judgement = Judgement::new(plan, state, subject, &proposal);
    for step in steps {
        let (stage, run) = stages::of_step(*step);
        let violations = run(&mut judgement);
        if !violations.is_empty() {
            return judgement.reject(stage, violations);
        }
        if judgement.is_unchanged {
            break;
        }
    }
    let Judgement { made: state, changes, approval, appended_message, is_unchanged, .. } = judgement;
    let reply = proposal.into_inner().expect("every stage has passed, one of which reads it").reply;
    match is_unchanged {
        true => Verdict::NoOp(reply),
        false => {
            Verdict::Accepted(Accepted { reply, made: AppliedPatch { state, changes }, approval, appended_message })
        }
    }
}

impl<'a> Judgement<'a> {
    fn new(plan: &'a Plan, state: &'a State, subject: Subject<'a>, proposal: &'a OnceCell<Unwrapped>) -> Self {
        Self {
            plan,
            state,
            subject,
            proposal,
            ops: Vec::new(),
            is_derived: false,
            allowance: Allowance::new(),
            candidate: state.candidate(),
            targets: Targets::default(),
            changes: Vec::new(),
            inapplicable: Vec::new(),
            approval: None,
            contested: Vec::new(),
            appended_message: None,
            made: state.clone(),
            is_unchanged: false,
        }
    }

    /// Returns the proposal, after it was read.
    fn reply(&self) -> &'a Reply {
        &self.proposal.get().expect("the proposal is read before it is judged").reply
    }

    /// Sets the operations to those of the proposal.
    fn parse(&mut self, max_ops: u32) -> Result<(), Vec<Violation>> {
        self.ops = patch::parse(&self.reply().patch, &PatchLimits { max_ops, ..PatchLimits::default() })?;
        Ok(())
    }

    /// Turns a failed proposal into a verdict: numbers the violations as in the reply, and conceals values hidden from
    /// its author.
    fn reject(mut self, stage: Stage, violations: Vec<Violation>) -> Verdict {
        let mut rejection = Rejection::new(stage, violations);
        if let Some(proposal) = self.proposal.get() {
            let renumber =
                |violation: &mut Violation| violation.op = violation.op.map(|op| proposal.original_index(op));
            rejection.violations.iter_mut().for_each(renumber);
        }
        if let (Subject::Reply(ReplySource { by: Proposer { worker_plan: Some(seat), .. }, context, .. }), false) =
            (self.subject, stage == Stage::Approval)
        {
            self.conceal(&mut rejection, seat, context);
        }
        Verdict::Rejected { rejection, contested: self.contested }
    }

    /// Conceals values hidden from the author of a reply and adds the allowed operations.
    fn conceal(&mut self, rejection: &mut Rejection, seat: &WorkerPlan, context: &ProposalContext<'_>) {
        // The violations of these stages name places of the candidate.
        let is_of_candidate = matches!(rejection.stage, Stage::Schema | Stage::Invariant);
        let written = if is_of_candidate { self.own_places() } else { Vec::new() };
        let mut of = |state: &State| seat.contract.readable_within(state.root(), &mut self.allowance);
        let mut readable = of(self.state);
        if is_of_candidate && seat.contract.has_conditions() {
            readable = readable.within(of(&self.made).places());
        }
        let was = context.basis.map(|basis| of(&basis.state));
        let sight = Visibility { readable: &readable, in_view: was.as_ref(), written: &written };
        mask::mask_violations(rejection.stage, &mut rejection.violations, &sight);
        let near: Vec<_> = rejection.violations.iter().map(|violation| violation.pointer.as_str()).collect();
        rejection.allowed = match rejection.stage {
            Stage::Syntax => seat.contract.allowed(&[], &self.plan.schema),
            _ => seat.contract.allowed(&near, &self.plan.schema),
        };
    }

    /// Returns the places that hold values written by the patch itself. Places filled by a move or copy, or shifted by
    /// a later operation, hold other values.
    fn own_places(&self) -> Vec<PointerBuf> {
        let written = self.ops.iter().filter_map(|op| match op {
            Op::Add { value, .. } | Op::Replace { value, .. } => Some(*value),
            Op::Remove { .. } | Op::Move { .. } | Op::Copy { .. } | Op::Test { .. } => None,
        });
        let written: Vec<&Value> = written.collect();
        let is_own =
            |path: &&PointerBuf| self.made.get(path).is_some_and(|node| written.iter().any(|value| node == *value));
        self.changes.iter().map(|change| &change.path).filter(is_own).cloned().collect()
    }
}
