//! Simulates the game's program from a recorded episode: recorded actions have their recorded effects, others none.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::Shown;

/// Observation after an action without effect.
pub(super) const NOTHING: &str = "Nothing happens.";

/// Text before the goal in a game's first observation.
const GOAL: &str = "Your task is to: ";

/// Steps of one episode; the first is the beginning, without an action.
#[derive(Clone)]
pub(super) struct Episode {
    pub(super) name: String,
    steps: Vec<Value>,
}

impl Episode {
    pub(super) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("an episode can be read");
        let steps = text.lines().map(|line| serde_json::from_str(line).expect("a step is JSON")).collect();
        let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        Self { name, steps }
    }

    /// Returns the recorded actions; the first one is inadmissible.
    pub(super) fn actions(&self) -> Vec<String> {
        let actions = self.steps[1..].iter();
        actions.map(|step| step["action"].as_str().expect("an action is text").to_owned()).collect()
    }

    /// Answers a call as the environment: begins the game, or performs the requested step. It is stateless: the
    /// position in the game follows from the history.
    pub(super) fn step(&self, shown: &Shown) -> Value {
        let Some(action) = shown.get("/action") else {
            let first = &self.steps[0];
            let (observation, goal) = first["obs"].as_str().and_then(|obs| obs.split_once(GOAL)).expect("it says so");
            let observation = observation.trim().rsplit("\n\n").next().unwrap_or_default();
            return json!([
                {"op": "add", "path": "/observation", "value": observation},
                {"op": "replace", "path": "/admissible", "value": first["admissible"]},
                {"op": "replace", "path": "/status", "value": "playing"},
                {"op": "add", "path": "/goal", "value": goal.trim()},
            ]);
        };
        let history: Vec<&Value> = (0..).map_while(|step| shown.get(&format!("/history/{step}/action"))).collect();
        // A recorded action without effect leaves the game's position unchanged.
        let path: Vec<&Value> = self.steps[1..].iter().filter(|step| step["obs"] != NOTHING).collect();
        let before = history.iter().fold(0, |at, action| at + usize::from(path[at]["action"] == **action));
        let happened = path.get(before).filter(|step| step["action"] == *action);
        let now = match (happened, before) {
            (Some(step), _) => step,
            (None, 0) => &self.steps[0],
            (None, before) => path[before - 1],
        };
        let observation = if happened.is_some() { &now["obs"] } else { &json!(NOTHING) };
        let status = match (&now["won"], &now["done"], history.len() + 1) {
            (Value::Bool(true), _, _) => "won",
            (_, Value::Bool(true), _) | (_, _, 20..) => "lost",
            _ => "playing",
        };
        let step = json!({"action": action, "effect": happened.is_some(), "observation": observation});
        json!([
            {"op": "remove", "path": "/action"},
            {"op": "replace", "path": "/observation", "value": observation},
            {"op": "replace", "path": "/admissible", "value": now["admissible"]},
            {"op": "replace", "path": "/status", "value": status},
            {"op": "add", "path": "/history/-", "value": step},
        ])
    }
}
