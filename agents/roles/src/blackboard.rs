//! Roles of a blackboard: turns their replies in words into patches, and computes those that need no agent
//! (`docs/blackboard.md`).
//!
//! A seat with a `format` replies in the form of its role. [`made`] turns that into a patch before the kernel sees it;
//! the original reply is kept beside it. Parsing is lenient, because models write the replies; the patch is strict,
//! and the kernel judges it like any other reply.
//!
//! * `role_reply`: builds a patch from a reply, for every form and occasion;
//! * `lenient_json`: parser for JSON as models write it;
//! * `elements`: the elements of an array that a seat was shown;
//! * [`vote`]: the agent `builtin:vote`, which chooses among answers.

mod elements;
mod lenient_json;
mod role_reply;
pub mod vote;

use patchboard_kernel::ablation::Interface;
use patchboard_protocols::blackboard::{ReplyFormat, ReplyPurpose, concludes, eligible, is_silent, waits};
use patchboard_runtime::agent::{Call, Reply};

use role_reply::{Cleaning, Message, MessageTarget, ReplyContext};

/// Largest reply that is parsed, in bytes, even if its seat allows longer patches.
const BYTES_MAX: usize = 256 * 1024;

/// Converts a reply in the form of its seat into a patch or an envelope. Returns any other reply unchanged, for the
/// kernel to judge.
pub fn made(call: &Call, reply: Reply) -> Reply {
    let converted = if reply.converted_from.is_none() { envelope(call, &reply.text) } else { None };
    match converted {
        Some(text) => Reply { text, converted_from: Some(reply.text), ..reply },
        None => reply,
    }
}

/// Converts a text into the patch or the envelope that answers this call. Returns none if the seat has no form, or if
/// the text is too long, already a patch or an envelope, or cannot be parsed.
pub fn envelope(call: &Call, text: &str) -> Option<String> {
    let (shown, worker) = (&call.context, call.worker_config());
    let format = ReplyFormat::of_worker(worker).filter(|_| shown.worker_plan().interface == Interface::Patch)?;
    if text.len() > usize::try_from(worker.patch.max_bytes).map_or(BYTES_MAX, |bytes| bytes.min(BYTES_MAX)) {
        return None;
    }
    let root = shown.basis().state.root();
    let public = elements::visible_elements(shown, &["board", "public"]);
    let public = public.iter().filter_map(|(index, message)| {
        let part = |name: &str| message.get(name)?.as_str().map(str::to_owned);
        let is_marked = message.get("marked").is_some();
        Some(Message { index: *index, from: part("from").unwrap_or_default(), text: part("text")?, is_marked })
    });
    let cleaning = match root.child("request").and_then(|request| request.child("cleaner")?.as_str()) {
        Some("mark") => Cleaning::Mark,
        Some("off") => Cleaning::Off,
        Some(_) | None => Cleaning::Remove,
    };
    let names: Vec<&str> = shown.plan().blueprint.workers.keys().map(|name| name.as_str()).collect();
    // Only the control role needs to know the eligible workers.
    let listed = if format == ReplyFormat::Control { eligible(shown) } else { None };
    let is_eligible = |name: &&&str| listed.as_ref().is_none_or(|listed| listed.iter().any(|one| one == **name));
    let later = |name: &&&str| is_silent(shown) && waits(shown, name);
    let speaker = ReplyContext {
        format,
        worker: call.worker.as_str(),
        place: place(call),
        round: round(call.context.trigger_place()),
        public: public.collect(),
        cleaning,
        eligible: names.iter().filter(is_eligible).copied().collect(),
        later: names.iter().filter(later).copied().collect(),
        names,
        invocation: call.invocation.0,
        ops_max: usize::try_from(worker.patch.max_ops).unwrap_or(usize::MAX),
    };
    role_reply::envelope(text, &speaker)
}

/// Returns the element of `/rounds` that triggered the seat by its addition.
fn round(woken_at: Option<&str>) -> Option<&str> {
    woken_at?.strip_prefix("/rounds/").filter(|index| !index.contains('/'))
}

/// Returns the place where a reply belongs.
fn place(call: &Call) -> MessageTarget {
    let woken_at = call.context.trigger_place();
    match ReplyPurpose::for_place(woken_at) {
        ReplyPurpose::Own => MessageTarget::Own,
        ReplyPurpose::Ballot => MessageTarget::Ballot,
        ReplyPurpose::Room => {
            let room = woken_at.unwrap_or_default().split('/').nth(3).unwrap_or_default();
            if concludes(&call.context) { MessageTarget::Conclusion } else { MessageTarget::Room(room.to_owned()) }
        }
    }
}
