//! Tool definitions, as shown to models.

use std::sync::Arc;

use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use super::editor;
use super::worker_server::WorkerServer;

/// Returns the tools of a worker; of the patch tools, only those that it can use.
pub(crate) fn for_worker(server: &WorkerServer) -> Vec<Tool> {
    let mut tools = all();
    if server.is_at_files_only() {
        tools.retain(|tool| matches!(&*tool.name, "read_view" | "explain_rejection"));
        tools.push(finish());
    }
    tools.extend(server.files.iter().flat_map(|spec| editor::tools(server.worker.as_str(), spec)));
    tools
}

fn finish() -> Tool {
    tool(
        "finish",
        "Say that you are done",
        "Say that you have done what you were asked, as far as you can. Files are closed to you from then on, until you are \
         asked again; call read_view with `wait` to wait for that.",
        &[],
        json!({
            "intent": {"type": "string", "description": "What you have done, in a sentence, for whoever reads the log."}
        }),
        outcome_schema(),
        ToolAnnotations::new().read_only(false).destructive(false).idempotent(false).open_world(false),
    )
}

fn all() -> Vec<Tool> {
    vec![
        tool(
            "read_view",
            "Read your view",
            "Show what you may see of the board now: the readable part of the document, what you may write with its \
             schema, what was refused before, and why you were woken. If somebody waits for your answer (`asked` is \
             true), the call is leased to you: answer it with propose_patch and its `lease`, before `expires`; calling \
             read_view again lets the lease last longer. If nobody asks (`asked` is false), propose with `base`, or wait \
             for a call with `wait`. `schema` is the JSON Schema of an answer.",
            &[],
            json!({
                "wait": {"type": "integer", "minimum": 0, "maximum": 60,
                    "description": "Seconds to wait for somebody to ask; 0 if absent."},
                "seconds": {"type": "integer", "minimum": 1, "maximum": 3600,
                    "description": "How long the lease lasts from now on; 300 if absent, never beyond `deadline`."}
            }),
            view(),
            ToolAnnotations::new().read_only(false).destructive(false).idempotent(true).open_world(false),
        ),
        tool(
            "propose_patch",
            "Propose a change",
            "Propose a JSON Patch (RFC 6902). The kernel checks it against your contract, what has changed since you read, \
             the schema and the invariants, and commits it whole or refuses it whole. A refusal is an error with `stage`, \
             `code`, `violations` (pointer, expected, found) and `allowed`: mend the patch with these, after another \
             read_view. An empty patch says that there is nothing to do.",
            &[],
            json!({
                "patch": {"type": "array", "items": operation(), "description": "The operations, in their order."},
                "intent": {"type": "string", "description": "Why, in a sentence, for whoever reads the log."},
                "pass": {"type": "string",
                    "description": "Instead of a patch, where you may pass: why there is nothing for you to do now."},
                "reply": {"description": "Instead of a patch, where you are asked for a reply of another form: that \
                    reply."},
                "lease": {"type": "string", "description": "The `lease` of the view that you answer, if it has one."},
                "base": {"type": "integer", "minimum": 0, "description": "Otherwise the `base` of the view that you read."}
            }),
            outcome_schema(),
            ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(false),
        ),
        tool(
            "expand",
            "Show more",
            "Show places wholly of which the view gives only a summary (with their handles). With `lease` the call counts \
             as answered, and the one that follows is leased to you: go on with the new `lease`. Without it you get the \
             view as it would be.",
            &["paths"],
            json!({
                "paths": {"type": "array", "minItems": 1,
                    "items": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["at", "from"], "additionalProperties": false,
                        "properties": {"at": {"type": "string"}, "from": {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}]}}}]},
                    "description": "JSON Pointers of places that you may read, like /claims/3; of something long, what comes from a \
                        part of it on: {\"at\": \"/claims\", \"from\": 20} (a name, an index or a number of characters)."},
                "lease": {"type": "string", "description": "The `lease` of the view that you answer, if it has one."}
            }),
            view(),
            ToolAnnotations::new().read_only(false).destructive(false).idempotent(false).open_world(false),
        ),
        tool(
            "clarify",
            "Ask a person",
            "Ask a person what you cannot know, if your view says that you may. The call counts as answered; when the person \
             has replied, you are asked again, and the view shows question and answer. Guess nothing that a person must \
             decide.",
            &["question", "lease"],
            json!({
                "question": {"type": "string", "description": "One question, that can be understood without your view."},
                "choices": {"type": "array", "items": {"type": "string"},
                    "description": "The possible answers, if there are only some."},
                "lease": {"type": "string", "description": "The `lease` of the view that you answer."}
            }),
            outcome_schema(),
            ToolAnnotations::new().read_only(false).destructive(false).idempotent(false).open_world(true),
        ),
        tool(
            "explain_rejection",
            "Explain a refusal",
            "Say what a code means, and show the last proposal of yours that was refused (with this code, or with this \
             number in the log), with all violations and what you may do instead.",
            &[],
            json!({
                "code": {"type": "string", "description": "The code; that of the last refusal if absent."},
                "seq": {"type": "integer", "minimum": 0, "description": "The `seq` of a refusal; the last one if absent."}
            }),
            json!({
                "type": "object",
                "properties": {
                    "code": {"type": "string"},
                    "meanings": {"type": "array", "items": {"type": "object", "properties": {
                        "section": {"type": "string"}, "meaning": {"type": "string"}}}},
                    "rejection": {"type": ["object", "null"], "description": "Its record in the log."}
                },
                "required": ["code", "meanings", "rejection"]
            }),
            ToolAnnotations::new().read_only(true).open_world(false),
        ),
    ]
}

fn tool(
    name: &'static str,
    title: &str,
    description: &'static str,
    required: &[&str],
    properties: Value,
    output: Value,
    hints: ToolAnnotations,
) -> Tool {
    let mut input = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        input["required"] = json!(required);
    }
    Tool::new(name, description, object(input))
        .with_title(title)
        .with_raw_output_schema(object(output))
        .with_annotations(hints)
}

fn object(schema: Value) -> Arc<Map<String, Value>> {
    match schema {
        Value::Object(schema) => Arc::new(schema),
        other => unreachable!("a schema is an object, not {other}"),
    }
}

fn operation() -> Value {
    json!({
        "type": "object",
        "properties": {
            "op": {"enum": ["add", "replace", "test", "insert", "remove", "move", "copy"]},
            "path": {"type": "string", "description": "A JSON Pointer; /list/- appends."},
            "from": {"type": "string", "description": "For move and copy."},
            "value": {"description": "For add, replace, test and insert."}
        },
        "required": ["op", "path"]
    })
}

fn outcome_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "outcome": {"type": "string", "description": "committed; no_op: it would change nothing; awaiting_approval: a \
                person decides, or replies"},
            "seq": {"type": "integer", "description": "Its record in the log."},
            "version": {"type": "integer", "description": "The document's version since then."}
        },
        "required": ["outcome"]
    })
}

fn view() -> Value {
    json!({
        "type": "object",
        "properties": {
            "asked": {"type": "boolean", "description": "Whether somebody waits for an answer."},
            "lease": {"type": "string", "description": "Give it to propose_patch. Only if asked."},
            "base": {"type": "integer", "description": "The version shown. Give it to propose_patch. Only if not asked."},
            "expires": {"type": "integer", "description": "When the lease ends, in milliseconds since 1970."},
            "deadline": {"type": "integer", "description": "When the attempt ends, however often the lease is renewed."},
            "system": {"type": "string", "description": "Your role, and what an answer consists of: \
                its `patch`, or its `pass`, or a reply of another form goes to propose_patch, `expand` to expand, `clarify` to clarify."},
            "view": {"type": "string", "description": "What you see, what you may write, and why you were woken."},
            "schema": {"type": ["object", "null"], "description": "The JSON Schema of an answer; its `patch` is what you propose."}
        },
        "required": ["asked", "view"]
    })
}

#[cfg(test)]
mod tests {
    use super::all;

    #[test]
    fn every_tool_says_what_it_takes_and_what_it_gives() {
        for tool in all().into_iter().chain([super::finish()]) {
            assert!(tool.description.as_ref().is_some_and(|text| text.len() > 100), "{}", tool.name);
            for schema in [Some(&tool.input_schema), tool.output_schema.as_ref()] {
                let schema = schema.expect("a schema");
                let schema = serde_json::Value::Object((**schema).clone());
                assert!(jsonschema::meta::is_valid(&schema), "{}", tool.name);
                assert_eq!(schema["type"], "object", "{}", tool.name);
            }
        }
    }
}
