//! The JSON Schema that the reply of a seat with a `format` is held to: what its role says, or that it passes.
//!
//! As in the forms of patches, nothing is allowed by it: what is made of the reply is judged as ever. It tells of the
//! document only what the state schema says, and who chooses among agents whom the rules would wake as things stand.

use jsonptr::Pointer;
use patchboard_kernel::blueprint::{Format, Occasion};
use patchboard_kernel::pattern::Pattern;
use patchboard_kernel::shown::Shown;
use patchboard_kernel::tree::Node;
use patchboard_kernel::wish;
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
pub(super) fn is_silent(shown: &Shown) -> bool {
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

/// The name of somebody who can be chosen.
fn name(shown: &Shown) -> Value {
    match eligible(shown) {
        Some(names) if !names.is_empty() => json!({"type": "string", "enum": names}),
        _ => text(),
    }
}

/// Those whom the state schema lists as who can work in a round, but for those whom no rule would wake as things stand: an
/// expert who was not made, the cleaner of a board that has none. None if it does not list them.
pub(super) fn eligible(shown: &Shown) -> Option<Vec<String>> {
    let (plan, state) = (shown.plan(), shown.basis().state.root());
    let fragment = plan.schema.fragment(&Pattern::parse("/rounds/*/agents/*").ok()?)?;
    let names = fragment.get("enum")?.as_array()?.iter();
    let names: Vec<&str> = names.map(Value::as_str).collect::<Option<_>>()?;
    let chosen = Pointer::from_static("/rounds/0/agents/0");
    let may_wake = |name: &&str| wish::may_wake(plan, state, chosen, name);
    Some(names.into_iter().filter(may_wake).map(str::to_owned).collect())
}

/// Whether it waits for what others say.
pub(super) fn waits(shown: &Shown, name: &str) -> bool {
    let format = shown.plan().blueprint.workers.get(name).and_then(|worker| worker.format);
    format.is_some_and(Format::is_of_messages)
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
