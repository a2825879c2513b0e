//! Outcome of a dry run, beside the recorded one.

use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::event::Change;
use patchboard_kernel::expand_request::ExpandRequest;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::pipeline::Verdict;
use patchboard_kernel::record::{Body, Record};
use patchboard_kernel::rejection::Rejection;
use patchboard_runtime::agent::{self, Reply};
use serde_json::{Value, json};

use super::point::DryRunPoint;
use crate::describe;
use crate::output::{json_line, one_line, short};

/// Maximum characters of a value in the output.
const SHOWN: usize = 200;

pub(super) struct DryRunResult {
    reply: Option<Reply>,
    outcome: OutcomeKind,
}

enum OutcomeKind {
    Committed { patch: Value, expand: Vec<ExpandRequest>, changes: Vec<Change>, asks: Option<WorkerName> },
    NoOp { patch: Value, expand: Vec<ExpandRequest>, question: Option<String>, pass: Option<String> },
    Rejected(Rejection),
    Failed(agent::Failure),
}

impl DryRunResult {
    pub(super) fn from_answer(moment: &DryRunPoint, record: &Record, answer: agent::CallResult) -> Self {
        let reply = match answer {
            Ok(reply) => reply,
            Err(failure) => return Self { reply: None, outcome: OutcomeKind::Failed(failure) },
        };
        let verdict = moment.board.judge(record.at, &moment.dry_run, &reply.clone().into_body());
        let outcome = match verdict {
            Verdict::Accepted(accepted) => {
                let mut patch = accepted.reply.patch;
                if let (Some(posted), Value::Array(ops)) = (accepted.appended_message, &mut patch) {
                    ops.push(posted);
                }
                OutcomeKind::Committed {
                    patch,
                    expand: accepted.reply.expand,
                    changes: accepted.made.changes,
                    asks: accepted.approval.map(|approval| approval.by),
                }
            }
            Verdict::NoOp(reply) => OutcomeKind::NoOp {
                patch: reply.patch,
                expand: reply.expand,
                question: reply.clarify.map(|clarify| clarify.question),
                pass: reply.pass,
            },
            Verdict::Rejected { rejection, .. } => OutcomeKind::Rejected(rejection),
        };
        Self { reply: Some(reply), outcome }
    }

    pub(super) const fn is_accepted(&self) -> bool {
        matches!(self.outcome, OutcomeKind::Committed { .. } | OutcomeKind::NoOp { .. })
    }

    /// Returns the kind of record that the outcome would have.
    const fn kind(&self) -> &'static str {
        match &self.outcome {
            OutcomeKind::Committed { asks: Some(_), .. } | OutcomeKind::NoOp { question: Some(_), .. } => "approval",
            OutcomeKind::Committed { .. } => "committed",
            OutcomeKind::NoOp { expand, .. } if !expand.is_empty() => "expanded",
            OutcomeKind::NoOp { .. } => "no_op",
            OutcomeKind::Rejected(_) => "rejected",
            OutcomeKind::Failed(_) => "failed",
        }
    }

    pub(super) fn json(&self, moment: &DryRunPoint, at: u64, recorded: Option<&RecordedOutcome>) -> Value {
        let (board, dry_run) = (&moment.board, &moment.dry_run);
        let mut object = json!({
            "board": board.id(),
            "at": at,
            "version": board.version(),
            "worker": dry_run.worker,
            "invocation": moment.queued.as_ref().map(|queued| queued.invocation),
            "attempt": moment.invoked.as_ref().map(|invoked| invoked.attempt),
            "rule": moment.queued.as_ref().and_then(|queued| queued.branch.rule.clone()),
            "trigger": moment.queued.as_ref().map(|queued| &queued.trigger),
            "view": {"hash": board.text_hash(&dry_run.view.text), "version": dry_run.context.basis().state.version(),
                     "recorded": moment.invoked.as_ref().map(|invoked| invoked.view)},
            "reply": self.reply.as_ref().map(|reply| &reply.text),
            "written": self.reply.as_ref().and_then(|reply| reply.converted_from.as_ref()),
            "usage": self.reply.as_ref().and_then(|reply| reply.usage),
            "outcome": self.kind(),
            "recorded": recorded.map(RecordedOutcome::json),
        });
        match &self.outcome {
            OutcomeKind::Committed { patch, expand, changes, asks } => {
                object["patch"] = patch.clone();
                object["changes"] = changes.iter().map(change_json).collect();
                object["expand"] = json!(expand);
                object["asks"] = json!(asks);
            }
            OutcomeKind::NoOp { patch, expand, question, pass } => {
                object["patch"] = patch.clone();
                object["expand"] = json!(expand);
                object["question"] = json!(question);
                object["pass"] = json!(pass);
            }
            OutcomeKind::Rejected(rejection) => object["rejection"] = json!(rejection),
            OutcomeKind::Failed(failure) => {
                object["failure"] = json!({"code": failure.code, "message": failure.message})
            }
        }
        object
    }

    pub(super) fn text(&self, moment: &DryRunPoint, at: u64, recorded: Option<&RecordedOutcome>) -> String {
        let (board, dry_run) = (&moment.board, &moment.dry_run);
        let mut lines = vec![format!("board {} before record {at}, version {}", board.id(), board.version())];
        let why = match &moment.queued {
            Some(queued) => describe::cause(queued.branch.rule.as_ref(), &queued.trigger),
            None => "no rule had triggered it".to_owned(),
        };
        let attempt = moment.invoked.as_ref().map(|invoked| format!(", attempt {}", invoked.attempt));
        lines.push(format!("worker {}{}: {why}", one_line(dry_run.worker.as_str()), attempt.unwrap_or_default()));
        let hash = board.text_hash(&dry_run.view.text);
        let view = match moment.invoked.as_ref().map(|invoked| invoked.view == hash) {
            Some(true) => "as it was shown then",
            Some(false) => "not what it was shown then: another version compiled that view",
            None => "of this moment, never shown",
        };
        let cost = self.reply.as_ref().and_then(|reply| reply.usage).map(describe::tokens);
        let cost = cost.map(|cost| format!("; {cost}, not charged to the board")).unwrap_or_default();
        lines.push(format!("view {hash}: {view}{cost}"));
        let expanding = |expand: &[ExpandRequest]| match expand {
            [] => String::new(),
            places => format!(", and requests {}", describe::listed(places)),
        };
        match &self.outcome {
            OutcomeKind::Committed { patch, expand, changes, asks } => {
                let what = match asks {
                    Some(by) => format!("would wait for {}", one_line(by.as_str())),
                    None => format!("would commit version {}", board.version().next()),
                };
                lines.push(format!("{what}: {}{}", describe::patch(patch), expanding(expand)));
                lines.extend(changes.iter().map(change_line));
            }
            OutcomeKind::NoOp { question: Some(question), .. } => {
                lines.push(format!("would ask a person: {}", short(question, SHOWN)));
            }
            OutcomeKind::NoOp { pass: Some(pass), .. } => lines.push(format!("would pass: {}", short(pass, SHOWN))),
            OutcomeKind::NoOp { expand, .. } => lines.push(format!("would change nothing{}", expanding(expand))),
            OutcomeKind::Rejected(rejection) => {
                lines.push(format!("would be refused: {}/{}", rejection.stage, rejection.code));
                lines.extend(rejection.violations.iter().map(|violation| {
                    let place = if violation.pointer.is_empty() { "the whole" } else { violation.pointer.as_str() };
                    format!("  at {}: {}", short(place, SHOWN), short(&violation.message_with_author(), 2 * SHOWN))
                }));
            }
            OutcomeKind::Failed(failure) => {
                lines.push(format!("the agent failed: {}: {}", failure.code, short(&failure.message, 2 * SHOWN)));
            }
        }
        lines.push(recorded.map_or_else(|| "the journal has no outcome of it".to_owned(), RecordedOutcome::text));
        lines.join("\n") + "\n"
    }
}

fn change_json(change: &Change) -> Value {
    let mut object = json!({"path": change.path.to_string()});
    if let Some(before) = &change.before {
        object["before"] = before.to_value();
    }
    if let Some(after) = &change.after {
        object["after"] = after.to_value();
    }
    object
}

fn change_line(change: &Change) -> String {
    let value = |value: &Option<_>| match value {
        Some(node) => short(&json_line(node), SHOWN),
        None => "nothing".to_owned(),
    };
    format!("  {}: {} → {}", short(change.path.as_str(), SHOWN), value(&change.before), value(&change.after))
}

/// Outcome in the journal, compared with the dry run.
#[derive(Default)]
pub(super) struct RecordedOutcome {
    seq: u64,
    kind: &'static str,
    /// Result of the comparison; `None` if the record is redacted.
    same: Option<bool>,
    patch: Option<Value>,
    rejection: Option<Rejection>,
    failure: Option<FailureCode>,
    deferral: Option<DeferralReason>,
}

impl RecordedOutcome {
    pub(super) fn compare(record: &Record, now: &DryRunResult) -> Self {
        let mut recorded = Self { seq: record.seq.0, kind: record.kind.as_str(), ..Self::default() };
        if !matches!(record.redaction_marker(), Ok(None)) {
            return recorded;
        }
        let is_patch = |patch: &Value, expand: &[ExpandRequest]| match &now.outcome {
            OutcomeKind::Committed { patch: ours, expand: asked, .. }
            | OutcomeKind::NoOp { patch: ours, expand: asked, .. } => ours == patch && asked == expand,
            OutcomeKind::Rejected(_) | OutcomeKind::Failed(_) => false,
        };
        let is_kind = now.kind() == record.kind.as_str();
        let (patch, same) = match record.body() {
            // A proposal that a person approved is `approval` in the dry run.
            Ok(Body::Committed(it)) => {
                let is_agreed = it.by.approval.is_some() && now.kind() == "approval";
                let same = (is_kind || is_agreed) && is_patch(&it.patch, &it.expand);
                (Some(it.patch.clone()), same)
            }
            Ok(Body::NoOp(it)) => {
                let passes = matches!(&now.outcome, OutcomeKind::NoOp { pass, .. } if *pass == it.pass);
                let same = is_kind && passes && is_patch(&it.patch, &[]);
                (Some(it.patch.clone()), same)
            }
            Ok(Body::Expanded(it)) => {
                let same = is_kind && is_patch(&it.patch, &it.expand);
                (Some(it.patch.clone()), same)
            }
            Ok(Body::Approval(it)) => {
                let question = it.clarify.as_ref().map(|clarify| clarify.question.clone());
                let asked = match &now.outcome {
                    OutcomeKind::NoOp { question, .. } => question.clone(),
                    OutcomeKind::Committed { .. } | OutcomeKind::Rejected(_) | OutcomeKind::Failed(_) => None,
                };
                let same = is_kind && asked == question && is_patch(&it.patch, &it.expand);
                (Some(it.patch.clone()), same)
            }
            Ok(Body::Rejected(it)) => {
                let same = matches!(&now.outcome, OutcomeKind::Rejected(ours) if *ours == it.rejection);
                recorded.rejection = Some(it.rejection.clone());
                (None, same)
            }
            Ok(Body::Failed(it)) => {
                recorded.failure = Some(it.code);
                (None, matches!(&now.outcome, OutcomeKind::Failed(ours) if ours.code == it.code))
            }
            Ok(Body::Deferred(it)) => {
                recorded.deferral = Some(it.reason);
                (None, matches!(&now.outcome, OutcomeKind::Failed(ours) if ours.message == it.message))
            }
            Ok(_) | Err(_) => (None, false),
        };
        Self { same: Some(same), patch, ..recorded }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "seq": self.seq,
            "kind": self.kind,
            "same": self.same,
            "erased": self.same.is_none(),
            "patch": self.patch,
            "rejection": self.rejection,
            "failure": self.failure,
            "deferral": self.deferral,
        })
    }

    pub(super) fn text(&self) -> String {
        let Self { seq, kind, .. } = self;
        match self.same {
            None => format!("record {seq} ({kind}) is its outcome; its values are erased"),
            Some(true) => format!("record {seq} ({kind}): the same"),
            Some(false) => {
                let patch = self.patch.as_ref().map(|patch| short(&json_line(patch), 2 * SHOWN));
                let refused = self.rejection.as_ref().map(|refused| format!("{}/{}", refused.stage, refused.code));
                let what = patch.or(refused).or_else(|| self.failure.map(|code| code.to_string()));
                let what = what.or_else(|| self.deferral.map(|reason| reason.to_string()));
                format!("record {seq} ({kind}) differs: {}", what.unwrap_or_default())
            }
        }
    }
}
