//! The roles of a blackboard: what they say in words becomes patches, and what nobody has to be asked for is worked out
//! (`docs/blackboard.md`).
//!
//! A seat with a `format` replies in the form of its role. [`made`] makes a patch of that, whoever fills the seat, before
//! the kernel sees it; the reply as it came goes along. What is read is read with forbearance, as models write it; what
//! is made of it is strict, and judged by the kernel like any other reply.
//!
//! * `speech`: from a reply to a patch, for every form and occasion;
//! * `lenient`: JSON as models write it;
//! * `elements`: what of an array a seat was shown;
//! * [`form`]: the JSON Schema that a model's reply in such a form is held to;
//! * [`vote`]: the agent `builtin:vote`, which chooses among answers.

mod elements;
pub mod form;
mod lenient;
mod speech;
pub mod vote;

use patchboard_kernel::blueprint::{Format, Occasion};
use patchboard_kernel::mode::Interface;
use patchboard_runtime::agent::{Call, Reply};

use speech::{Cleaning, Message, Place, Speaker};

/// Bytes of a reply that is read, whatever the patches of its seat may have.
const BYTES_MAX: usize = 256 * 1024;

/// The reply to a call as a patch or an envelope, if it comes in the form of its seat and can be read; else as it is, for
/// the kernel to judge.
pub fn made(call: &Call, reply: Reply) -> Reply {
    let made = if reply.written.is_none() { envelope(call, &reply.text) } else { None };
    match made {
        Some(text) => Reply { text, written: Some(reply.text), ..reply },
        None => reply,
    }
}

/// The patch or the envelope that a text becomes which answers this call; none if its seat has no form, or if the text is
/// too long, is a patch or an envelope already, or cannot be read.
pub fn envelope(call: &Call, text: &str) -> Option<String> {
    let (shown, worker) = (&call.shown, call.seat());
    let format = worker.format.filter(|_| shown.seat().interface == Interface::Patch)?;
    if text.len() > usize::try_from(worker.patch.max_bytes).map_or(BYTES_MAX, |bytes| bytes.min(BYTES_MAX)) {
        return None;
    }
    let root = shown.basis().state.root();
    let public = elements::shown(shown, &["board", "public"]);
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
    // Only who chooses asks who can be chosen.
    let listed = if format == Format::Control { form::eligible(shown) } else { None };
    let is_eligible = |name: &&&str| listed.as_ref().is_none_or(|listed| listed.iter().any(|one| one == **name));
    let later = |name: &&&str| form::is_silent(shown) && form::waits(shown, name);
    let speaker = Speaker {
        format,
        worker: call.worker.as_str(),
        place: place(call),
        round: round(call.shown.woken_at()),
        public: public.collect(),
        cleaning,
        eligible: names.iter().filter(is_eligible).copied().collect(),
        later: names.iter().filter(later).copied().collect(),
        names,
        invocation: call.invocation.0,
        ops_max: usize::try_from(worker.patch.max_ops).unwrap_or(usize::MAX),
    };
    speech::envelope(text, &speaker)
}

/// The round whose opening woke the seat, an element of `/rounds`.
fn round(woken_at: Option<&str>) -> Option<&str> {
    woken_at?.strip_prefix("/rounds/").filter(|index| !index.contains('/'))
}

/// Where what is said belongs.
fn place(call: &Call) -> Place {
    let woken_at = call.shown.woken_at();
    match Occasion::of(woken_at) {
        Occasion::Own => Place::Own,
        Occasion::Ballot => Place::Ballot,
        Occasion::Room => {
            let room = woken_at.unwrap_or_default().split('/').nth(3).unwrap_or_default();
            if form::concludes(&call.shown) { Place::Conclusion } else { Place::Room(room.to_owned()) }
        }
    }
}
