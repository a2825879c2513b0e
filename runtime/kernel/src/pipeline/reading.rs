//! Reads a reply in the format of its invocation (`docs/modes.md`): the syntax stage.

use super::reply::{self, Checked, ReplyRights, Unwrapped};
use super::{Judgement, Proposer, Reply, ReplyBody, ReplySource, reply_conversion};
use crate::ablation::Interface;
use crate::blueprint::{PatchLimits, Worker};
use crate::freshness::ProposalContext;
use crate::json;
use crate::patch;
use crate::plan::WorkerPlan;
use crate::rejection::{Code, Violation};
use crate::state::State;

/// Reads the reply, unless it was read before, and parses its operations.
pub(super) fn parse_reply(judgement: &mut Judgement<'_>, source: ReplySource<'_>) -> Checked<()> {
    let ReplySource { by, body, context, .. } = source;
    if let Some((body, interface)) = body {
        let unwrapped = read(judgement.state, by, body, interface, context)?;
        judgement.proposal.get_or_init(|| unwrapped);
    }
    let seat = by.worker_plan;
    judgement.is_derived = judgement.reply().written.is_some() && !seat.is_some_and(may_use_bindings);
    judgement.parse(match (judgement.is_derived, seat) {
        // A derived patch has no operations of the author to count.
        (true, _) => u32::MAX,
        (false, Some(seat)) => seat.worker.patch.max_ops,
        (false, None) => PatchLimits::default().max_ops,
    })
}

/// Returns the size limit of a reply, in bytes.
pub(crate) fn bytes_max(seat: Option<&WorkerPlan>, interface: Interface, context: &ProposalContext<'_>) -> usize {
    match (interface, seat, context.basis) {
        (Interface::Whole, Some(_), Some(_)) => reply_conversion::WHOLE_BYTES_MAX,
        (_, Some(seat), _) => seat.worker.patch.max_bytes as usize,
        (_, None, _) => PatchLimits::default().max_bytes as usize,
    }
}

/// Reads a reply into a patch and its other members.
fn read(
    state: &State,
    by: Proposer<'_>,
    body: &ReplyBody,
    interface: Interface,
    context: &ProposalContext<'_>,
) -> Checked<Unwrapped> {
    let Proposer { worker, worker_plan: seat } = by;
    let defaults = PatchLimits::default();
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
            match seat.and_then(|seat| seat.fixed.reply_format.as_ref()) {
                Some(format) => word_violations(read, format.example),
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
fn word_violations(read: Checked<Unwrapped>, example: &str) -> Checked<Unwrapped> {
    let unread = || {
        let message = format!("the reply cannot be read; answer with {example}");
        Violation::new(Code::NotAPatch, "", message)
    };
    let reduced = |violation: Violation| match violation.code {
        Code::InvalidJson | Code::NotAPatch if violation.pointer != "/pass" => unread(),
        _ => violation,
    };
    match read {
        Ok(unwrapped) if !unwrapped.reply.patch.is_array() => Err(vec![unread()]),
        Ok(unwrapped) => Ok(unwrapped),
        Err(violations) => Err(violations.into_iter().map(reduced).collect()),
    }
}

/// Parses a reply and its operations as far as possible without a board; returns the first violation on rejection.
pub fn read_reply(body: &ReplyBody, worker: &Worker) -> Result<Reply, Violation> {
    let may = ReplyRights { pass: worker.pass, ask_for_parts: true };
    let read = || {
        let reply = reply::read(body, &worker.patch, may)?.reply;
        patch::parse(&reply.patch, &worker.patch)?;
        Ok(reply)
    };
    read().map_err(|mut violations: Vec<Violation>| violations.remove(0))
}
