//! The list of stages, and the part of it that a mode runs.

use std::mem;
use std::sync::Arc;

use super::{Judgement, ReplySource, Subject, application, authorization, reading};
use crate::ablation::{Component, Mode};
use crate::blueprint::Freshness;
use crate::freshness::{self, Conflict};
use crate::invariant;
use crate::rejection::{Code, Stage, VIOLATIONS_MAX, Violation};
use crate::tree::ChangesSince;

/// A stage and its function, which returns the violations.
#[derive(Clone, Copy)]
pub(crate) struct StageSpec {
    pub(super) stage: Stage,
    pub(super) run: Run,
}

type Run = fn(&mut Judgement<'_>) -> Vec<Violation>;

/// All stages, in order.
pub(crate) const STAGES: [StageSpec; 7] = [
    StageSpec { stage: Stage::Syntax, run: syntax },
    StageSpec { stage: Stage::Authorization, run: authorization },
    StageSpec { stage: Stage::Freshness, run: freshness },
    StageSpec { stage: Stage::Application, run: application },
    StageSpec { stage: Stage::Schema, run: schema },
    StageSpec { stage: Stage::Invariant, run: invariant },
    StageSpec { stage: Stage::Approval, run: approval },
];

/// Returns the stages that replies of a worker pass in a mode. `is_model` is true for language models.
pub(crate) fn stages_of(mode: &Mode, is_model: bool) -> Arc<[StageSpec]> {
    let in_mode = |spec: StageSpec| {
        let run: Run = match spec.stage {
            Stage::Authorization if is_model && mode.is_baseline() => no_authorization,
            Stage::Freshness if is_model && mode.is_baseline() => return None,
            Stage::Application if *mode == Mode::Plain {} => application_with_message,
            Stage::Schema | Stage::Invariant if !mode.has(Component::Schema) => return None,
            Stage::Approval if is_model && !mode.has(Component::Contracts) => return None,
            _ => spec.run,
        };
        Some(StageSpec { run, ..spec })
    };
    STAGES.into_iter().filter_map(in_mode).collect()
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
