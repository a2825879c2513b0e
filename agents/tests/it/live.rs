//! One call to a real model, where there is one: `PATCHBOARD_LIVE_URL=http://127.0.0.1:18080/v1`, and
//! `PATCHBOARD_LIVE_MODEL` if the server serves several.

use std::time::Duration;

use patchboard_agents::config::{Environment, Model};
use patchboard_agents::llm::Chat;
use patchboard_kernel::view::Prompt;
use patchboard_runtime::agent::Agent as _;
use serde_json::{Value, json};

use crate::support::{call, seat};

#[tokio::test]
async fn a_real_model_answers_in_the_form_it_is_held_to() {
    let env = Environment::of_process();
    let Some(url) = env.get("PATCHBOARD_LIVE_URL") else {
        println!("SKIPPED: set PATCHBOARD_LIVE_URL to ask a real model");
        return;
    };
    let mut model = Model::new(url, env.get("PATCHBOARD_LIVE_MODEL").unwrap_or("default"));
    model.seed = Some(1);
    let chat = Chat::new(&model, None).expect("a client");
    let fields = json!({"agent": "llm", "limits": {"reply_tokens": 200}, "patch": {"max_ops": 2},
        "writes": [{"path": "/capitals/*", "ops": ["add"]}]});
    let mut call = call("geographer", seat(fields), "", 0);
    call.prompt = Prompt {
        system: "You change a JSON document with JSON Patch (RFC 6902). Answer with the patch only.".into(),
        user: "The document is {\"capitals\": {}}. Add the capital of France at /capitals/France.".into(),
    }
    .into();
    call.timeout = Duration::from_secs(240);
    let reply = chat.call(&call).await.expect("a reply");
    println!("{reply:?}");
    let patch: Vec<Value> = serde_json::from_str(&reply.text).expect("an array");
    assert!((1..=2).contains(&patch.len()), "{patch:?}");
    for operation in &patch {
        assert!(["add", "test"].iter().any(|op| operation["op"] == *op), "{operation}");
        assert!(operation["path"].is_string() && operation.get("value").is_some(), "{operation}");
    }
    let usage = reply.usage.expect("usage");
    assert!(!usage.estimated && usage.prompt > 0 && usage.completion > 0, "{usage:?}");
}
