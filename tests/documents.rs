//! Plays workers that read six long documents, with views of different budgets, and counts values shown and cost.

use serde_json::{Value, json};

use crate::scripted_model::{ModelCall, PlayedBoard, blueprint};

/// Number of documents of a board.
pub const DOCUMENTS: usize = 6;
/// Characters of each document.
const CHARS: usize = 5_500;

/// Outcome of a board of readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Readers that were eventually shown the whole of their document.
    pub whole: usize,
    /// Calls of the model.
    pub calls: usize,
    /// Tokens of all prompts.
    pub tokens: u64,
}

/// Plays a board that calls a reader for each document; the reader requests missing parts up to twice. With `bound` it
/// is shown its own document, otherwise all. Without a `budget` the view has the room that it needs.
pub fn read(bound: bool, budget: Option<u32>) -> Reading {
    let reads = if bound { "/request/documents/{document}" } else { "/request/documents/*" };
    let text = json!({
        "blueprint": 2,
        "name": "documents",
        "state": {"schema": {"properties": {"notes": {"additionalProperties": {"type": "string"}}}}, "initial": {"notes": {}}},
        "workers": {"reader": {
            "agent": "llm", "reads": [reads], "writes": [{"path": "/notes/{document}", "ops": ["add"]}],
            "view": budget.map_or_else(|| json!({}), |budget| json!({ "budget": budget })),
        }},
        "rules": [{"name": "read", "trigger": {"start": "/request/documents/{document}"}, "run": "reader"}],
    });
    let documents: Vec<Value> =
        (0..DOCUMENTS).map(|n| json!({"title": format!("Document {n}"), "text": long(n)})).collect();
    let made = blueprint("documents", &text.to_string());
    let (mut whole, mut asked_for) = (0, [0; DOCUMENTS]);
    let played = PlayedBoard::of(made, json!({ "documents": documents }), |asked: &ModelCall| {
        let place = asked.shown.trigger()["path"].as_str().unwrap_or_default().to_owned();
        let number = place.rsplit('/').next().unwrap_or_default().to_owned();
        let is_whole = asked.prompt.user.contains(&end(&number));
        whole += usize::from(is_whole);
        let asked_before = &mut asked_for[number.parse::<usize>().expect("a number")];
        if !is_whole && *asked_before < 2 {
            *asked_before += 1;
            return json!({ "expand": [place] });
        }
        json!([{"op": "add", "path": format!("/notes/{number}"), "value": "read"}])
    });
    Reading {
        whole,
        calls: played.asked.len(),
        tokens: played.asked.iter().map(|asked| asked.prompt.estimated_tokens()).sum(),
    }
}

fn end(number: &str) -> String {
    format!("This ends document {number}.")
}

fn long(number: usize) -> String {
    let end = end(&number.to_string());
    let sentence = "The keeper wrote down the wind, the weather and the ships that passed. ";
    let mut text = sentence.repeat(CHARS / sentence.len() + 1);
    text.truncate(CHARS - end.len());
    text + &end
}
