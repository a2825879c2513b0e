//! A chat endpoint that plays the three models of `blueprints/clipboard.yaml`: it understands a few sentences and
//! replies with the texts of results. Also copies the blueprint, so that tests can add folders.

use std::fs;
use std::path::Path;

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use serde_json::{Value, json};

/// Returns the value at a path of a view, shown as `/turn/text: "…"` or within an ancestor on one line.
fn at(prompt: &str, place: &str) -> Option<Value> {
    let line = prompt.lines().find_map(|line| line.strip_prefix(place)?.strip_prefix(": "));
    if let Some(value) = line.and_then(|value| serde_json::from_str(value).ok()) {
        return Some(value);
    }
    let (above, member) = place.rsplit_once('/').filter(|(above, _)| !above.is_empty())?;
    at(prompt, above)?.pointer(&format!("/{member}")).cloned()
}

/// Returns the department for some words, and the words as its action and slots.
fn understood(words: &str) -> Option<(&'static str, Value)> {
    let words = words.trim_end_matches(['.', '?', '!']);
    let parts: Vec<&str> = words.split(' ').collect();
    let understood = match parts.as_slice() {
        ["Put", item, "on", "the", list, "list"] => ("notes", "add", json!({"item": item, "list": list})),
        ["Throw", "the", item, "off", "the", "list"] => ("notes", "remove", json!({"item": item})),
        ["What", "is", "on", "the", list, "list"] => ("notes", "show", json!({"list": list})),
        [title, "on", day, "at", time] => ("timeline", "add", json!({"title": title, "day": day, "time": time})),
        ["The", plant, "in", "the", room, "is", "new"] => ("plants", "buy", json!({"plant": plant, "room": room})),
        ["The", plant, "has", "died"] => ("plants", "lose", json!({"plant": plant})),
        _ => return None,
    };
    let (department, action, slots) = understood;
    Some((department, json!({"action": action, "slots": slots, "normalised": words})))
}

fn say(path: &str, value: &Value) -> ScriptedResponse {
    ScriptedResponse::answer(&json!({"patch": [{"op": "add", "path": path, "value": value}]}).to_string(), 10, 5)
}

fn answer(body: &Value) -> ScriptedResponse {
    let messages = body["messages"].as_array().expect("messages");
    let prompt: String =
        messages.iter().filter_map(|message| message["content"].as_str()).collect::<Vec<_>>().join("\n");
    let text = |place: &str| at(&prompt, place).and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default();
    if prompt.contains("add at /decisions/-") {
        let is_done = at(&prompt, "/results/0/status").is_some();
        let agent = understood(&text("/turn/text")).filter(|_| !is_done).map_or("nobody", |(department, _)| department);
        return say("/decisions/-", &json!({"agent": agent}));
    }
    if prompt.contains("add at /classified") {
        let none = json!({"action": "none", "slots": {}, "normalised": ""});
        return say("/classified", &understood(&text("/request/text")).map_or(none, |(_, classified)| classified));
    }
    let reply = (0..8).rev().find_map(|index| at(&prompt, &format!("/results/{index}/text")));
    say("/replies/-", &json!({"text": reply.unwrap_or("Nobody here does that.".into())}))
}

/// Starts the endpoint.
pub(crate) fn voices() -> Endpoint {
    Endpoint::serving(answer)
}

/// Copies the shipped blueprint and its departments into a directory.
pub(crate) fn copy_into(directory: &Path) {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../blueprints");
    fs::copy(shipped.join("clipboard.yaml"), directory.join("clipboard.yaml")).expect("it is shipped");
    for entry in fs::read_dir(shipped.join("departments")).expect("they are shipped") {
        let folder = entry.expect("an entry").file_name();
        let to = directory.join("departments").join(&folder);
        fs::create_dir_all(&to).expect("a directory can be made");
        let manifest = shipped.join("departments").join(&folder).join("department.yaml");
        fs::copy(manifest, to.join("department.yaml")).expect("a manifest is shipped");
    }
}
