//! Judges what a reply asks for beside its patch: values to be shown, and a person's answer.

use crate::contract::Readable;
use crate::expand_request::{ExpandRequest, RangeStart};
use crate::freshness::ProposalContext;
use crate::plan::WorkerPlan;
use crate::record::SINCE_RANGE_STARTS;
use crate::rejection::{Code, Violation};
use crate::state::State;
use crate::tree::Node;

/// Judges requests to be shown values: the author must be able to read the place, or a part of it.
pub(super) fn judge_expansion(
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
pub(super) fn judge_question(seat: &WorkerPlan, context: &ProposalContext<'_>) -> Option<Violation> {
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
