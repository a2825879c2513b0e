//! Plays the README's blueprint over any number of elements, with a model that answers at once.

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::record::Kind;
use serde_json::{Value, json};

use crate::scripted_model::{ModelCall, PlayedBoard, blueprint};

const README: &str = include_str!("../README.md");

/// Outcome of a board over some elements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Number of elements.
    pub elements: usize,
    /// Number of elements that were checked.
    pub checked: usize,
    /// Calls of models.
    pub calls: usize,
    /// Proposals that were rejected.
    pub rejected: usize,
    /// Tokens of all prompts except the first one, the writer's.
    pub tokens: u64,
}

impl Cost {
    /// Returns the tokens for each element.
    #[expect(clippy::cast_precision_loss, reason = "there are fewer than 2^53 tokens")]
    pub fn per_element(&self) -> f64 {
        self.tokens as f64 / self.elements as f64
    }
}

/// Returns the blueprint of the README.
///
/// # Panics
/// If the README has none.
pub fn readme() -> String {
    let section = README.split("## A blueprint").nth(1).expect("a section");
    let code = section.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    code.expect("a blueprint").to_owned()
}

/// Returns the blueprint of the README without bound names: each checker is shown all notes.
pub fn unbound() -> String {
    readme().replace("blueprint: 2", "blueprint: 1").replace("/notes/{note}", "/notes/*")
}

/// Plays a blueprint over `elements` notes, with limits to match.
pub fn play(text: &str, elements: usize) -> Cost {
    let made: Blueprint = blueprint("README.md", text);
    let mut value = serde_json::to_value(made).expect("a blueprint");
    value["limits"] = json!({"commits": 1000, "tokens": 90_000_000});
    value["workers"]["writer"]["patch"] = json!({"max_ops": elements, "max_bytes": 1 << 20});
    value["workers"]["checker"]["limits"]["invocations"] = json!(10 * elements);
    let request = json!({"topic": "birds"});
    let played =
        PlayedBoard::of(serde_json::from_value(value).expect("a blueprint"), request, |asked| answer(asked, elements));
    let notes = played.state()["notes"].as_array().cloned().unwrap_or_default();
    Cost {
        elements,
        checked: notes.iter().filter(|note| note["status"] == "checked").count(),
        calls: played.asked.len(),
        rejected: played.count(Kind::Rejected),
        tokens: played.asked[1..].iter().map(|asked| asked.prompt.estimated_tokens()).sum(),
    }
}

fn answer(asked: &ModelCall, elements: usize) -> Value {
    if asked.worker.as_str() == "writer" {
        let text = |n: usize| format!("Note {n} says what is to be said of birds, in a sentence.");
        let note = |n| json!({"op": "add", "path": "/notes/-", "value": {"text": text(n), "status": "draft"}});
        return (0..elements).map(note).collect();
    }
    let place = asked.shown.trigger()["path"].as_str().unwrap_or_default().to_owned();
    json!([{"op": "replace", "path": format!("{place}/status"), "value": "checked"}])
}
