//! Replies of a worker with a `format`: the message of its role, or a pass.
//!
//! Owns the formats with their instructions, and the JSON Schema of a reply. Like the schemas of patches, it grants
//! nothing: the resulting patch is checked as usual. It discloses only the state schema, and to a role that chooses
//! agents, the agents that rules would trigger in the current state.

mod format;
mod instructions;

pub use format::{ReplyFormat, ReplyPurpose};
pub use instructions::reply_instructions;

use jsonptr::Pointer;
use patchboard_kernel::call_context::CallContext;
use patchboard_kernel::pattern::Pattern;
use patchboard_kernel::rules;
use patchboard_kernel::tree::Node;
use serde_json::{Map, Value, json};

/// Order of the members of a reply: reasoning before conclusions. A model constrained by a schema follows its order.
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

/// Greatest number of experts in a reply.
const EXPERTS_MAX: usize = 3;

/// Returns the schema of a worker's reply to its view.
pub fn reply_schema(shown: &CallContext, format: ReplyFormat) -> Value {
    let worker = &shown.worker_plan().worker;
    let schema = match ReplyPurpose::for_place(shown.trigger_place()) {
        // Without messages, a role that is about messages can only pass.
        ReplyPurpose::Own if worker.pass && format.is_of_messages() && is_silent(shown) => None,
        ReplyPurpose::Own => Some(own(shown, format)),
        // A conclusion cannot be a pass.
        ReplyPurpose::Room if concludes(shown) => return object(&[("output", text())]),
        ReplyPurpose::Room => Some(object(&[("output", text())])),
        ReplyPurpose::Ballot => Some(answer()),
    };
    let pass = || object(&[("pass", text())]);
    match schema {
        Some(schema) if worker.pass => json!({"anyOf": [schema, pass()]}),
        Some(schema) => schema,
        None => pass(),
    }
}

/// Returns true if the worker was triggered to conclude the discussion of a room.
pub fn concludes(shown: &CallContext) -> bool {
    let place = shown.trigger_place().filter(|place| ReplyPurpose::for_place(Some(place)) == ReplyPurpose::Room);
    let place = place.and_then(|place| Pointer::parse(place).ok());
    let turn = place.and_then(|place| shown.basis().state.root().get(place));
    turn.and_then(|turn| turn.child("act")?.as_str()) == Some("conclude")
}

/// Returns true if the public space is in the view and empty.
pub fn is_silent(shown: &CallContext) -> bool {
    let public = Pointer::from_static("/board/public");
    let messages = shown.value_at(public).ok().flatten().and_then(Node::as_array);
    messages.is_some_and(|messages| messages.is_empty())
}

/// Builds the schema of an answer, after its reasoning.
fn answer() -> Value {
    object(&[("reasoning", text()), ("boxed", text())])
}

fn own(shown: &CallContext, format: ReplyFormat) -> Value {
    let list = |name: &str, members: [&str; 2]| {
        let entry = object(&members.map(|member| (member, text())));
        let entries = json!({"type": "array", "items": entry, "minItems": 1, "maxItems": shown.worker_plan().worker.patch.max_ops});
        object(&[(name, entries)])
    };
    match format {
        ReplyFormat::Generator => {
            let expert = object(&[("role", text()), ("description", text())]);
            object(&[("experts", json!({"type": "array", "items": expert, "minItems": 1, "maxItems": EXPERTS_MAX}))])
        }
        ReplyFormat::Control => {
            let names = json!({"type": "array", "items": name(shown), "minItems": 1});
            object(&[("chosen agents", names)])
        }
        ReplyFormat::Planner => object(&[("[problem]", text()), ("[planning]", text())]),
        ReplyFormat::Critic => list("critic list", ["wrong message", "explanation"]),
        ReplyFormat::Cleaner => list("clean list", ["useless message", "explanation"]),
        ReplyFormat::ConflictResolver => list("conflict list", ["agent", "message"]),
        ReplyFormat::Decider => answer(),
        ReplyFormat::Expert => object(&[("reasoning", text()), ("output", text())]),
    }
}

/// Builds the schema of an agent's name, limited to the agents that can be chosen.
fn name(shown: &CallContext) -> Value {
    match eligible(shown) {
        Some(names) if !names.is_empty() => json!({"type": "string", "enum": names}),
        _ => text(),
    }
}

/// Returns the agents that the state schema lists for rounds and that a rule would trigger in the current state.
/// Excludes, for example, an expert that was not created, and the cleaner of a board without one. `None` if the schema
/// lists no agents.
pub fn eligible(shown: &CallContext) -> Option<Vec<String>> {
    let (plan, state) = (shown.plan(), shown.basis().state.root());
    let fragment = plan.schema.fragment(&Pattern::parse("/rounds/*/agents/*").ok()?)?;
    let names = fragment.get("enum")?.as_array()?.iter();
    let names: Vec<&str> = names.map(Value::as_str).collect::<Option<_>>()?;
    let chosen = Pointer::from_static("/rounds/0/agents/0");
    let may_wake = |name: &&str| rules::could_trigger(plan, state, chosen, name);
    Some(names.into_iter().filter(may_wake).map(str::to_owned).collect())
}

/// Returns true if a worker's role needs the messages of others.
pub fn waits(shown: &CallContext, name: &str) -> bool {
    let format = shown.plan().blueprint.workers.get(name).and_then(ReplyFormat::of_worker);
    format.is_some_and(ReplyFormat::is_of_messages)
}

fn text() -> Value {
    json!({"type": "string"})
}

/// Builds the schema of an object with exactly these members.
fn object(members: &[(&str, Value)]) -> Value {
    let required: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
    let properties: Map<String, Value> =
        members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
