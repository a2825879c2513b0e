//! The JSON Schema that the reply of a seat with a `format` is held to: what its role says, or that it passes.
//!
//! As in the forms of patches, nothing is allowed by it: what is made of the reply is judged as ever. It tells of the
//! document only what the state schema says.

use jsonptr::Pointer;
use patchboard_kernel::blueprint::{Format, Occasion};
use patchboard_kernel::pattern::Pattern;
use patchboard_kernel::shown::Shown;
use patchboard_kernel::tree::Node;
use serde_json::{Map, Value, json};

/// In which order members are written: what is thought before what follows from it. A model that is held to a schema keeps
/// to its order.
pub const ORDER: &[&str] = &[
    "role",
    "description",
    "reasoning",
    "boxed",
    "output",
    "[problem]",
    "[planning]",
    "wrong message",
    "useless message",
    "agent",
    "message",
    "explanation",
];

/// Experts that a reply may name.
const EXPERTS_MAX: usize = 3;
/// The most names that are listed.
const NAMES_MAX: usize = 64;

/// The schema of the reply of a seat to what it was shown.
pub fn of_reply(shown: &Shown, format: Format) -> Value {
    let worker = &shown.seat().worker;
    let said = match Occasion::of(shown.woken_at()) {
        // Who is shown no message has none to say anything of.
        Occasion::Own if worker.pass && format.is_of_messages() && is_silent(shown) => None,
        Occasion::Own => Some(own(shown, format)),
        // Who concludes does not pass.
        Occasion::Room if concludes(shown) => return object(&[("output", text())]),
        Occasion::Room => Some(object(&[("output", text())])),
        Occasion::Ballot => Some(answer()),
    };
    let pass = || object(&[("pass", text())]);
    match said {
        Some(said) if worker.pass => json!({"anyOf": [said, pass()]}),
        Some(said) => said,
        None => pass(),
    }
}

/// Whether it is woken to conclude what was said in a room.
pub(super) fn concludes(shown: &Shown) -> bool {
    let place = shown.woken_at().filter(|place| Occasion::of(Some(place)) == Occasion::Room);
    let place = place.and_then(|place| Pointer::parse(place).ok());
    let turn = place.and_then(|place| shown.basis().state.root().get(place));
    turn.and_then(|turn| turn.child("act")?.as_str()) == Some("conclude")
}

/// Whether the public space was shown, and is empty.
fn is_silent(shown: &Shown) -> bool {
    let public = Pointer::from_static("/board/public");
    let messages = shown.value_at(public).ok().flatten().and_then(Node::as_array);
    messages.is_some_and(|messages| messages.is_empty())
}

/// An answer behind what leads to it.
fn answer() -> Value {
    object(&[("reasoning", text()), ("boxed", text())])
}

fn own(shown: &Shown, format: Format) -> Value {
    let list = |name: &str, members: [&str; 2]| {
        let entry = object(&members.map(|member| (member, text())));
        let entries =
            json!({"type": "array", "items": entry, "minItems": 1, "maxItems": shown.seat().worker.patch.max_ops});
        object(&[(name, entries)])
    };
    match format {
        Format::Generator => {
            let expert = object(&[("role", text()), ("description", text())]);
            object(&[("experts", json!({"type": "array", "items": expert, "minItems": 1, "maxItems": EXPERTS_MAX}))])
        }
        Format::Control => {
            let names = json!({"type": "array", "items": name(shown), "minItems": 1});
            object(&[("chosen agents", names)])
        }
        Format::Planner => object(&[("[problem]", text()), ("[planning]", text())]),
        Format::Critic => list("critic list", ["wrong message", "explanation"]),
        Format::Cleaner => list("clean list", ["useless message", "explanation"]),
        Format::ConflictResolver => list("conflict list", ["agent", "message"]),
        Format::Decider => answer(),
        Format::Expert => object(&[("reasoning", text()), ("output", text())]),
    }
}

/// The name of somebody who can be chosen: one of those that the state schema lists, and of these, as long as nobody has
/// spoken, one who does not wait for what others say.
fn name(shown: &Shown) -> Value {
    let Some(names) = eligible(shown).filter(|names| (1..=NAMES_MAX).contains(&names.len())) else { return text() };
    let workers = &shown.plan().blueprint.workers;
    let waits = |name: &&String| {
        let format = workers.get(name.as_str()).and_then(|worker| worker.format);
        format.is_some_and(Format::is_of_messages)
    };
    let (waiting, others): (Vec<&String>, Vec<&String>) = names.iter().partition(waits);
    match is_silent(shown) && !waiting.is_empty() && !others.is_empty() {
        true => json!({"type": "string", "enum": others}),
        false => json!({"type": "string", "enum": names}),
    }
}

/// Those whom the state schema lists as who can work in a round; none if it does not.
pub(super) fn eligible(shown: &Shown) -> Option<Vec<String>> {
    let pattern = Pattern::parse("/rounds/*/agents/*").ok()?;
    let fragment = shown.plan().schema.fragment(&pattern)?;
    let names = fragment.get("enum")?.as_array()?.iter();
    names.map(|name| name.as_str().map(str::to_owned)).collect()
}

fn text() -> Value {
    json!({"type": "string"})
}

/// An object of exactly these members.
fn object(members: &[(&str, Value)]) -> Value {
    let required: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
    let properties: Map<String, Value> =
        members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
