//! Expands a department into the blueprint of a nested board with five roles, and the worker that runs this board.

use serde_json::{Map, Value, json};

use super::Departments;
use super::{Action, Field, Manifest};
use patchboard_lint::source::child;

/// Request member with the department's earlier question, if the text clearly answers it.
pub const PENDING: &str = "pending";

/// Request member with the department's earlier question, if the text does not clearly answer it and the question is
/// still open.
pub const OPEN_QUESTION: &str = "waits";
/// Request member with the user's text; every request has it.
const TEXT: &str = "text";

/// Action for text that fits no action.
pub const NO_ACTION: &str = "none";
/// Planner's choice if no department fits; no department has this name.
pub const NO_DEPARTMENT: &str = "nobody";

/// The two parts of a department.
#[derive(Clone, PartialEq, Debug)]
pub struct Expansion {
    /// The blueprint of the nested board.
    pub board: Value,
    /// The worker that runs this board.
    pub worker: Value,
    /// Needs behind the worker's `reads`, in the same order.
    pub reads: Vec<String>,
}

/// Expands a sound manifest, with the blueprint's department settings and models.
pub fn expand(manifest: &Manifest, declared: &Departments, models: Option<&Value>) -> Expansion {
    let mut board = board(manifest);
    if let Some(models) = models {
        board["models"] = models.clone();
    }
    let (worker, reads) = worker(manifest, declared);
    Expansion { board, worker, reads }
}

/// Builds the outer worker: its input, and the destination of its result. Nothing else passes between the boards.
fn worker(manifest: &Manifest, declared: &Departments) -> (Value, Vec<String>) {
    let (name, into) = (&manifest.name, &declared.into);
    let (mut input, mut reads, mut read) = (Map::new(), Vec::new(), Vec::new());
    let members = manifest.needs.keys().map(String::as_str).chain([PENDING, OPEN_QUESTION]);
    for (member, place) in members.filter_map(|member| Some((member, declared.promises.get(manifest.promise(member))?)))
    {
        input.insert(member.to_owned(), place.as_str().into());
        // Two needs with the same promise are read once.
        if read.iter().any(|known: &String| manifest.promise(known) == manifest.promise(member)) {
            continue;
        }
        // Questions of other departments are filtered out.
        reads.push(match member {
            PENDING | OPEN_QUESTION => json!({"path": place, "where": "self.department == worker"}),
            _ => json!(place),
        });
        read.push(member.to_owned());
    }
    let worker = json!({
        "agent": "board",
        "group": declared.group,
        "description": manifest.description,
        "reads": reads,
        "writes": [{"path": into, "ops": ["add"]}],
        // No model reads this view; it has room for the results of other departments.
        "view": {"budget": 400_000},
        "patch": {"max_bytes": RESULT_BYTES_MAX},
        "limits": {"invocations": INVOCATIONS_MAX, "attempts": 2, "timeout": "15m"},
        "board": {
            "of": name,
            "input": input,
            "output": {into: "/result"},
            "failed": {"path": into, "value": {"department": name, "status": "error"}, "message": "text"},
        },
    });
    (worker, read)
}

/// Maximum size of the `classify` role text in bytes, with a margin below the meta-schema's limit.
pub(crate) const ROLE_BYTES_MAX: usize = 16_000;

/// Maximum size of a role's patch, and so of the department's result, in bytes.
const RESULT_BYTES_MAX: u32 = 65536;

/// High enough to never limit a conversation.
const INVOCATIONS_MAX: u32 = 1_000_000;

/// Builds the blueprint of the nested board: five roles, each with its own small contract.
fn board(manifest: &Manifest) -> Value {
    let builtin = |role: &str, reads: &[&str], write: &str| {
        json!({
            "agent": format!("builtin:{role}"),
            "with": {"department": manifest.department()},
            "reads": reads,
            "writes": [{"path": write, "ops": ["add"]}],
            "view": {"budget": 48000},
            "patch": {"max_bytes": RESULT_BYTES_MAX},
        })
    };
    // Promised values may be absent.
    let is_needed = |need: &&String| need.as_str() == TEXT || manifest.required.contains(need);
    let needed: Vec<&String> = manifest.needs.keys().filter(is_needed).collect();
    let mut request: Map<String, Value> = manifest.needs.clone().into_iter().collect();
    request.extend([PENDING, OPEN_QUESTION].map(|member| (member.to_owned(), json!({"type": "object"}))));
    let mut known: Vec<String> = manifest.needs.keys().map(|need| child("/request", need)).collect();
    known.extend(["question", "action", "slots"].map(|of| format!("/request/{OPEN_QUESTION}/{of}")));
    let judged = json!({"type": "object", "required": ["status"], "properties": {"status": {"enum": ["found", "open", "none"]}}});
    let outcome =
        json!({"type": "object", "required": ["status"], "properties": {"status": {"enum": ["done", "error"]}}});
    json!({
        "blueprint": 1,
        "name": manifest.name.replace('_', "-"),
        "description": manifest.description,
        "request": {"type": "object", "required": needed, "additionalProperties": false, "properties": request},
        "state": {"schema": {
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "request": true,
                "classified": classified(manifest),
                "resolved": judged,
                "resumed": judged,
                "outcome": outcome,
                "result": result(manifest),
            },
        }},
        "workers": {
            "classify": {
                "agent": "llm",
                "role": role(manifest),
                "reads": known,
                "writes": [{"path": "/classified", "ops": ["add"]}],
                // Room for a message in which each character is escaped.
                "view": {"budget": 64000},
                "patch": {"max_ops": 1},
                "limits": {"attempts": 3, "timeout": "3m"},
            },
            "resolve": builtin("resolve", &["/classified/action", "/classified/slots", "/request/waits"], "/resolved"),
            "resume": builtin("resume", &["/request/text", "/request/pending"], "/resumed"),
            "crud": builtin("crud", &["/resolved", "/resumed"], "/outcome"),
            "confirm": builtin("confirm", &["/resolved", "/resumed", "/outcome"], "/result"),
        },
        "rules": [
            {"name": "begin", "trigger": "start", "when": "!has(request.pending)", "run": "classify"},
            {"name": "resume", "trigger": "start", "when": "has(request.pending)", "run": "resume"},
            {"name": "classified", "trigger": {"op": "add", "path": "/classified"}, "run": "resolve"},
            {"name": "found", "trigger": {"op": "add", "path": "/resolved"}, "when": "value.status == 'found'", "run": "crud"},
            {"name": "not-found", "trigger": {"op": "add", "path": "/resolved"}, "when": "value.status != 'found'", "run": "confirm"},
            {"name": "goes-on", "trigger": {"op": "add", "path": "/resumed"}, "when": "value.status == 'found'", "run": "crud"},
            {"name": "waits", "trigger": {"op": "add", "path": "/resumed"}, "when": "value.status != 'found'", "run": "confirm"},
            {"name": "outcome", "trigger": {"op": "add", "path": "/outcome"}, "run": "confirm"},
        ],
        "done": {"when": "has(state.result)"},
        "limits": {"commits": 64, "wall": "15m"},
        "writers": "one",
        "concurrency": 1,
    })
}

/// Returns the schema of a classified request.
fn classified(manifest: &Manifest) -> Value {
    let mut actions: Vec<&str> = manifest.actions.keys().map(String::as_str).collect();
    actions.push(NO_ACTION);
    json!({
        "type": "object", "required": ["action", "slots", "normalised"], "additionalProperties": false,
        "properties": {
            "action": {"enum": actions},
            "slots": {"type": "object", "additionalProperties": false, "properties": slots(manifest)},
            "normalised": {"type": "string", "maxLength": 400},
        },
    })
}

/// Returns every slot of every action, with the schema of its field.
fn slots(manifest: &Manifest) -> Map<String, Value> {
    let of_action = |action: &Action| -> Vec<(String, Value)> {
        let slots = action.slots().into_iter();
        slots.filter_map(|(slot, field)| Some((slot, schema(manifest.storage.fields.get(field)?)))).collect()
    };
    manifest.actions.values().flat_map(of_action).collect()
}

/// Returns the JSON Schema of a field's values; `ask` is not a schema keyword.
fn schema(field: &Field) -> Value {
    let mut schema = json!(field);
    if let Some(members) = schema.as_object_mut() {
        members.remove("ask");
    }
    schema
}

/// Returns the schema of the result. Each status has the members that the caller needs to continue.
fn result(manifest: &Manifest) -> Value {
    let mut properties = json!({
        "department": {"const": manifest.name},
        "status": {"enum": ["done", "error", "clarification", "refusal", "dismissed"]},
        "text": {"type": "string", "minLength": 1},
        "question": {"type": "string", "minLength": 1},
        "options": {"type": "array", "maxItems": 64},
        "pending": {"type": "object", "required": ["department"]},
        "finding": {"type": "string"},
        "evidence": {"type": "object"},
        "patch": {"type": "array", "minItems": 1, "maxItems": 128, "items": {"type": "object", "required": ["op", "path"]}},
    });
    if !manifest.promises.is_empty() {
        properties["data"] = json!({"type": "object", "additionalProperties": false, "properties": manifest.promises});
    }
    let needs = |status: &str, companions: &[&str]| json!({"if": {"properties": {"status": {"const": status}}}, "then": {"required": companions}});
    json!({
        "type": "object", "required": ["department", "status", "text"], "additionalProperties": false,
        "properties": properties,
        "allOf": [
            needs("clarification", &["question", "pending"]),
            needs("refusal", &["finding", "evidence", "patch"]),
            needs("dismissed", &["finding"]),
        ],
    })
}

/// Returns the role text of `classify`: the actions, their slots and the examples.
pub(crate) fn role(manifest: &Manifest) -> String {
    let mut role = format!(
        "You fill in the form of a department: {}\nPut the words at /request/text into its terms, in one `add` of \
         /classified.\n`action` is one of:\n",
        manifest.description
    );
    for (name, action) in &manifest.actions {
        let slots = action.slots().into_iter().map(|(slot, _)| slot).collect::<Vec<_>>().join(", ");
        let slots = if slots.is_empty() { "no slots".to_owned() } else { format!("slots {slots}") };
        role.push_str(&format!("- {name}: {} ({slots})\n", action.description));
    }
    role.push_str(&format!(
        "- {NO_ACTION}: the words ask for nothing of this\n`slots` holds only what the words themselves say; what they do not \
         say is left out, never guessed. `normalised` says in a few plain words what is asked for, for the record.\nWhere \
         /request/{OPEN_QUESTION} is, the user was asked its `question`. Words that answer it have its `action`, and as slots what they \
         say of the question; what is known already need not be said again. Words that ask for something else are a request of \
         their own.\n"
    ));
    for example in &manifest.examples {
        role.push_str(&format!("\"{}\" is {}\n", example.text, json!(example.classified)));
    }
    role
}
