//! Calls to a real model, if one is configured: `PATCHBOARD_LIVE_URL=http://127.0.0.1:18080/v1`, and
//! `PATCHBOARD_LIVE_MODEL` if the server serves several.

use std::time::Duration;

use patchboard_agents::config::{Environment, Model};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::view::Prompt;
use patchboard_llm::{Chat, Variables};
use patchboard_runtime::agent::{Agent as _, Failure};
use patchboard_runtime::tools::{BoxFuture, ToolDefinition, ToolOutput, Tools};
use serde_json::{Value, json};

use crate::support::{call, seat};

/// Returns the configured model, if any.
fn real_model() -> Option<Chat> {
    let env = Environment::from_process();
    let Some(url) = env.get("PATCHBOARD_LIVE_URL") else {
        println!("SKIPPED: set PATCHBOARD_LIVE_URL to ask a real model");
        return None;
    };
    let mut model = Model::new(url, env.get("PATCHBOARD_LIVE_MODEL").unwrap_or("default"));
    model.seed = Some(1);
    Some(Chat::new(&model, &Variables::new()).expect("a client"))
}

#[tokio::test]
async fn a_real_model_answers_in_the_form_it_is_held_to() {
    let Some(chat) = real_model() else { return };
    let fields = json!({"agent": "llm", "limits": {"reply_tokens": 200}, "patch": {"max_ops": 2},
        "writes": [{"path": "/capitals/*", "ops": ["add"]}]});
    let mut call = call("geographer", seat(fields), "", 0);
    call.decided.prompt = Prompt {
        system: "You change a JSON document with JSON Patch (RFC 6902). Answer with the patch only.".into(),
        user: "The document is {\"capitals\": {}}. Add the capital of France at /capitals/France.".into(),
    }
    .into();
    call.timeout = Duration::from_secs(240);
    let reply = chat.call(&call).await.expect("a reply");
    println!("{reply:?}");
    let answer: Value = serde_json::from_str(&reply.text).expect("JSON");
    let patch = answer.get("patch").unwrap_or(&answer).as_array().expect("a patch");
    assert!((1..=2).contains(&patch.len()), "{patch:?}");
    for operation in patch {
        assert!(["add", "test"].iter().any(|op| operation["op"] == *op), "{operation}");
        assert!(operation["path"].is_string() && operation.get("value").is_some(), "{operation}");
    }
    let usage = reply.usage.expect("usage");
    assert!(!usage.estimated && usage.prompt > 0 && usage.completion > 0, "{usage:?}");
}

/// Tool that reads one file and prints its arguments.
struct Reader;

impl Tools for Reader {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let path = json!({"type": "string", "description": "The file's name."});
        let parameters = json!({"type": "object", "properties": {"path": path}, "required": ["path"]});
        vec![ToolDefinition { name: "view".into(), description: "Shows a file.".into(), parameters }]
    }

    fn call<'a>(&'a mut self, name: &'a str, arguments: &'a str, _: usize) -> BoxFuture<'a, ToolOutput> {
        println!("{name} {arguments}");
        let arguments: Value = serde_json::from_str(arguments).expect("they were read before");
        Box::pin(std::future::ready(match arguments["path"].as_str() {
            Some("capitals.txt") => ToolOutput::done("Freedonia: Glorana\nSylvania: Vampa\n"),
            _ => ToolOutput::error("there is no such file; there is capitals.txt"),
        }))
    }

    fn checkpoint(&mut self, usage: Option<Usage>, reserve: u64) -> BoxFuture<'_, Result<(), Failure>> {
        println!("go on: {usage:?}, {reserve} wanted");
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test]
async fn a_real_model_uses_a_tool_and_replies_with_what_it_gave() {
    let Some(chat) = real_model() else { return };
    let fields = json!({"agent": "llm", "limits": {"reply_tokens": 300}, "patch": {"max_ops": 2},
        "writes": [{"path": "/capitals/*", "ops": ["add"]}], "files": {"iterations": 5}});
    let mut call = call("geographer", seat(fields), "", 0);
    call.decided.prompt = Prompt {
        // Plain enough for a small model, which may call the tool in its text.
        system: "You have tools. Call one tool at a time: the next message has its result.".into(),
        user:
            "First call view with {\"path\": \"capitals.txt\"}, and nothing else. When you have seen the file, add the \
               capital of Freedonia at /capitals/Freedonia with the tool answer."
                .into(),
    }
    .into();
    call.timeout = Duration::from_secs(240);
    let reply = chat.run_tool_loop(&call, &mut Reader).await.expect("a reply");
    println!("{reply:?}");
    assert!(reply.text.contains("Glorana"), "{}", reply.text);
    serde_json::from_str::<Value>(&reply.text).expect("JSON");
}
