//! A scenario played by faultless workers on a PatchBoard board.

use patchboard_faults::random::Random;
use patchboard_faults::scenario::{self, Scenario};
use patchboard_faults::simulation::{Delivery, SimulatedBoard, SimulationHooks};
use patchboard_kernel::board::{Board, Call, Input, NewBoard, Proposal, ProposalSource, ReplyBody, Step};
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

/// Returns the documents of all versions.
pub(crate) fn play(scenario: &dyn Scenario, seed: u64) -> Vec<Value> {
    let mut workers = Workers { scenario, random: Random::new(seed), documents: Vec::new() };
    let genesis = NewBoard::new(
        BoardId::from("honest"),
        scenario.blueprint().clone(),
        scenario.request(&mut Random::new(seed), None),
        Timestamp(0),
    );
    let mut world = SimulatedBoard::new(genesis, &PLANS, &mut workers).expect("a board");
    while !world.is_over() && world.advance(&mut workers) {}
    assert!(world.is_over(), "{} stands still", scenario.name());
    workers.documents
}

struct Workers<'a> {
    scenario: &'a dyn Scenario,
    random: Random,
    documents: Vec<Value>,
}

impl SimulationHooks for Workers<'_> {
    fn on_call(&mut self, call: &Call, board: &Board) -> Vec<Delivery> {
        let woken = scenario::trigger_path(&call.prompt.user);
        let ops = self.scenario.answer(call.worker.as_str(), woken, &board.state().root().to_value());
        let (invocation, attempt, worker) = (call.invocation, call.attempt, call.worker.clone());
        let reply = ReplyBody::Json(json!({"patch": ops, "intent": "what is due"}));
        let from = ProposalSource::Attempt { invocation, attempt };
        let input = Input::Propose(Proposal { from, worker, reply, usage: None, raw: None });
        vec![Delivery { after_ms: self.random.below(500), input }]
    }

    fn on_step(&mut self, _: Timestamp, _: Option<&Input>, _: &Step, board: &Board) {
        let now = board.state().root().to_value();
        if self.documents.last() != Some(&now) {
            self.documents.push(now);
        }
    }
}

/// Applies additions, replacements and removals to a document; returns false if one cannot be applied.
pub(crate) fn apply(document: &mut Value, ops: &[Value]) -> bool {
    ops.iter().all(|op| {
        let path = op["path"].as_str().unwrap_or_default();
        let Some((parent, name)) = path.rsplit_once('/') else { return false };
        match document.pointer_mut(parent) {
            Some(Value::Array(elements)) if op["op"] == "remove" => {
                let Some(index) = name.parse::<usize>().ok().filter(|index| *index < elements.len()) else {
                    return false;
                };
                elements.remove(index);
                true
            }
            Some(Value::Object(members)) if op["op"] == "remove" => members.remove(name).is_some(),
            Some(Value::Array(elements)) if name == "-" => {
                elements.push(op["value"].clone());
                true
            }
            Some(Value::Array(elements)) => {
                let Some(element) = name.parse::<usize>().ok().and_then(|index| elements.get_mut(index)) else {
                    return false;
                };
                *element = op["value"].clone();
                true
            }
            Some(Value::Object(members)) => {
                members.insert(name.to_owned(), op["value"].clone());
                true
            }
            _ => false,
        }
    })
}
