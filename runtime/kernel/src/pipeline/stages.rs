//! Stages: each with its function. `STAGES` in `plan/steps.rs` is their order.

use std::mem;

use super::{Judgement, ReplySource, Subject, application, authorization, reading};
use crate::blueprint::Freshness;
use crate::freshness::{self, Conflict};
use crate::invariant;
use crate::plan::Step;
use crate::rejection::{Code, Stage, VIOLATIONS_MAX, Violation};
use crate::tree::ChangesSince;

type Run = fn(&mut Judgement<'_>) -> Vec<Violation>;

/// Returns the stage of a step, and its function, which returns the violations.
pub(super) fn of_step(step: Step) -> (Stage, Run) {
    match step {
        Step::Syntax => (Stage::Syntax, syntax),
        Step::Authorization => (Stage::Authorization, authorization),
        Step::NoAuthorization => (Stage::Authorization, no_authorization),
        Step::Freshness => (Stage::Freshness, freshness),
        Step::Application => (Stage::Application, application),
        Step::ApplicationWithMessage => (Stage::Application, application_with_message),
        Step::Schema => (Stage::Schema, schema),
        Step::Invariant => (Stage::Invariant, invariant),
        Step::Approval => (Stage::Approval, approval),
    }
}

/// Parses the reply or patch, or checks the form of an edit.
fn syntax(judgement: &mut Judgement<'_>) -> Vec<Violation> {
    let parsed = match judgement.subject {
        Subject::Reply(source) => reading::parse_reply(judgement, source),
        Subject::Edit(edit) => return edit.malformed(),
        Subject::Amendment => judgement.parse(u32::MAX),
    };
    parsed.err().unwrap_or_default()
}

/// Checks the author's grants. Applies the operations of a reply on the way, because each is judged by its effect.
fn authorization(judgement: &mut Judgement<'_>) -> Vec<Violation> {
    match judgement.subject {
        Subject::Reply(source) => authorization::judge(judgement, source, true),
        Subject::Edit(edit) => edit.unauthorized(),
        Subject::Amendment => Vec::new(),
    }
}

/// Replaces [`fn@authorization`] for language models on the blackboards without checks.
fn no_authorization(judgement: &mut Judgement<'_>) -> Vec<Violation> {
    match judgement.subject {
        Subject::Reply(source) => authorization::judge(judgement, source, false),
        Subject::Edit(_) | Subject::Amendment => Vec::new(),
    }
}

/// Checks that the values which the author has read are unchanged.
fn freshness(judgement: &mut Judgement<'_>) -> Vec<Violation> {
    let Conflict { violations, contested } = match judgement.subject {
        Subject::Reply(ReplySource { by, context, approver, .. }) => {
            let Some(seat) = by.worker_plan else { return Vec::new() };
            let own = seat.worker.freshness;
            let least = if approver.is_some() { Freshness::Reads } else { Freshness::None };
            let (mode, wants_seen) = (own.max(least), own != Freshness::None);
            let inputs =
                freshness::Inputs { mode, wants_seen, contract: &seat.contract, state: judgement.state, context };
            freshness::judge(&inputs, judgement.targets.as_slice(), &mut judgement.allowance)
        }
        Subject::Edit(edit) => edit.conflict(),
        Subject::Amendment => return Vec::new(),
    };
    judgement.contested = contested;
    violations
}

/// Makes the next state.
fn application(judgement: &mut Judgement<'_>) -> Vec<Violation> {
    let mut violations = mem::take(&mut judgement.inapplicable);
    if violations.is_empty() {
        violations = match judgement.subject {
            Subject::Reply(_) => Vec::new(),
            Subject::Edit(edit) => application::apply_edit(judgement, edit),
            Subject::Amendment => application::apply_all(judgement),
        };
    }
    if violations.is_empty() {
        application::conclude(judgement);
    }
    violations
}

/// Replaces [`fn@application`] on a plain blackboard: adds the message about the writes.
fn application_with_message(judgement: &mut Judgement<'_>) -> Vec<Violation> {
    if let (Subject::Reply(source), true) = (judgement.subject, judgement.inapplicable.is_empty()) {
        judgement.inapplicable = application::append_message(judgement, source.by.worker);
    }
    application(judgement)
}

/// Validates what changed against the state schema. The whole document is never granted, so no patch replaces it.
fn schema(judgement: &mut Judgement<'_>) -> Vec<Violation> {
    judgement.plan.schema.violations_since(judgement.made.root(), judgement.state.revision(), VIOLATIONS_MAX)
}

/// Evaluates the invariants that the change can break.
fn invariant(judgement: &mut Judgement<'_>) -> Vec<Violation> {
    let patch = &judgement.reply().patch;
    let Judgement { plan, state, made, targets, allowance, .. } = judgement;
    let change = invariant::Change {
        before: state.root(),
        candidate: ChangesSince::new(made.root(), 0, state.revision()),
        patch,
        request: plan.original_request.as_ref(),
        original_place: &|place| targets.original_place(place),
    };
    invariant::check(&plan.invariants, &change, allowance)
}

/// Checks that the person who has approved a reply is the one who must.
fn approval(judgement: &mut Judgement<'_>) -> Vec<Violation> {
    match (judgement.subject, &judgement.approval) {
        (Subject::Reply(ReplySource { approver: Some(approver), .. }), Some(needed)) if needed.by != *approver => {
            let message = "it needs another person's word now; propose it again";
            vec![Violation::new(Code::ApprovalMismatch, "", message)]
        }
        _ => Vec::new(),
    }
}
