//! Workflows of random nodes. Proves that each ends as the definition says, in every order and with crashes.

use std::collections::BTreeMap;

use patchboard_faults::random::Random;
use patchboard_lint::source::Source;
use patchboard_runtime::agent::Call;
use serde_json::{Map, Value, json};

use super::{Play, Played, Protocol, blueprint, in_all_worlds, shown};
use crate::plans::Shared;
use crate::{cases, say};

/// Maximum number of nodes of one workflow.
const NODES_MAX: u64 = 9;

/// A node as the test knows it. Its id is `n` and its index.
struct Node {
    /// Indexes of earlier nodes, each once.
    needs: Vec<usize>,
    /// Condition: the result of the first needed node must exceed this.
    above: Option<u64>,
    /// True if its worker returns no result.
    fails: bool,
    trigger: &'static str,
}

/// Triggers of the workflows that are resumed: with other kinds, nodes would wait for a second signal.
const AT_ONCE: &[&str] = &["DEPENDENCY"];
const ALL: &[&str] = &["DEPENDENCY", "DEPENDENCY", "DEPENDENCY", "EVENT", "MANUAL"];

fn nodes(random: &mut Random, triggers: &[&'static str]) -> Vec<Node> {
    let count = 2 + random.index(usize::try_from(NODES_MAX).expect("few") - 1);
    let node = |place: usize, random: &mut Random| {
        let mut needs: Vec<usize> =
            (0..random.index(4)).filter(|_| place > 0).map(|_| random.index(place.max(1))).collect();
        needs.sort_unstable();
        needs.dedup();
        let above = (!needs.is_empty() && random.percent(30)).then(|| random.below(12));
        let trigger = *random.pick(triggers);
        Node { needs, above, fails: random.percent(10), trigger }
    };
    (0..count).map(|place| node(place, random)).collect()
}

/// Returns the result of a node for the sum of its inputs.
fn made(place: usize, inputs: u64) -> u64 {
    (inputs + place as u64 * 5 + 1) % 17
}

/// Returns the expected end and result of each node, computed in order.
fn expected(nodes: &[Node]) -> Vec<(&'static str, Option<u64>)> {
    let mut ended: Vec<(&'static str, Option<u64>)> = Vec::new();
    for (place, node) in nodes.iter().enumerate() {
        let is = |status: &str| node.needs.iter().any(|needed| ended[*needed].0 == status);
        let inputs = || node.needs.iter().filter_map(|needed| ended[*needed].1).sum();
        let holds = || node.above.is_none_or(|above| ended[node.needs[0]].1 > Some(above));
        let end = if is("SKIPPED") {
            ("SKIPPED", None)
        } else if is("FAILED") || is("PENDING") {
            ("PENDING", None)
        } else if !holds() {
            ("SKIPPED", None)
        } else if node.fails {
            ("FAILED", None)
        } else {
            ("COMPLETED", Some(made(place, inputs())))
        };
        ended.push(end);
    }
    ended
}

/// Returns the protocol of a workflow. `resumed` is the index of a node from which it is resumed, at any time.
fn protocol(nodes: &[Node], resumed: Option<usize>) -> Protocol {
    let id = |place: &usize| format!("n{place}");
    let mut written = Map::new();
    let mut workers = Map::new();
    let mut signals = Vec::new();
    for (place, node) in nodes.iter().enumerate() {
        let inputs: BTreeMap<String, String> =
            node.needs.iter().map(|needed| (id(needed), format!("d{needed}"))).collect();
        let mut definition = json!({
            "agent_id": format!("w{}", place % 3), "dependencies": node.needs.iter().map(id).collect::<Vec<_>>(),
            "trigger_type": node.trigger, "input_mapping": inputs, "output_mapping": {"made": format!("d{place}")},
        });
        if let Some(above) = node.above {
            definition["when"] = json!(format!("data.d{} > {above}", node.needs[0]));
        }
        written.insert(id(&place), definition);
        workers.insert(format!("w{}", place % 3), json!({"agent": "script", "script": [[]]}));
        match node.trigger {
            "EVENT" => signals.push((id(&place), Value::Null)),
            "MANUAL" => signals.push((format!("start-n{place}"), Value::Null)),
            _ => {}
        }
    }
    signals.extend(resumed.map(|place| ("resume".to_owned(), json!({"node": id(&place)}))));
    let text = json!({
        "blueprint": 1, "name": "random", "description": "A workflow.", "workflow": {"nodes": written}, "workers": workers,
    });
    let source = Source::from_value("random.json", text);
    let mut none = |name: &str| Err(format!("{name} is not there"));
    let source = patchboard_protocols::resolve(source, &mut none).unwrap_or_else(|findings| panic!("{findings:?}"));
    let fails: Vec<bool> = nodes.iter().map(|node| node.fails).collect();
    let seats = move |call: &Call| {
        let woken_at = call.context.trigger_place().expect("it may read its input");
        let place: usize = woken_at.split('/').nth(3).and_then(|id| id[1..].parse().ok()).expect("a node");
        if fails[place] {
            return json!([]);
        }
        let input = shown(&call.context, woken_at);
        let inputs = input.as_object().expect("an object").values().filter_map(Value::as_u64).sum();
        let path = woken_at.replace("/input", "/output");
        json!([{"op": "add", "path": path, "value": {"made": made(place, inputs)}}])
    };
    let person = Box::new(|_: &str| String::new());
    Protocol {
        blueprint: blueprint(&source),
        request: Value::Null,
        seats: Box::new(seats),
        person,
        signals,
        plans: Shared::default(),
    }
}

/// Returns the end of each node, and the data.
fn outcome(play: &Play<'_>) -> Value {
    let state = play.state();
    let nodes = state["workflow"]["nodes"].as_object().expect("nodes").iter();
    let statuses: Map<String, Value> = nodes.map(|(id, node)| (id.clone(), node["status"].clone())).collect();
    json!([statuses, state["workflow"]["data"]])
}

#[test]
fn a_workflow_ends_as_its_definition_says_whatever_dies() {
    let mut played = Played::default();
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..cases(20) {
        let is_resumed = seed % 3 == 0;
        let random = &mut Random::new(seed);
        let nodes = nodes(random, if is_resumed { AT_ONCE } else { ALL });
        let resumed = is_resumed.then(|| random.index(nodes.len()));
        let expected = expected(&nodes);
        for (status, _) in &expected {
            *seen.entry(status).or_default() += 1;
        }
        let id = |place: usize| format!("n{place}");
        let statuses: Map<String, Value> =
            expected.iter().enumerate().map(|(place, (status, _))| (id(place), json!(status))).collect();
        let data: Map<String, Value> = expected
            .iter()
            .enumerate()
            .filter_map(|(place, (_, made))| Some((format!("d{place}"), json!((*made)?))))
            .collect();
        let expected = json!([statuses, data]);
        let holds = |play: &Play<'_>| assert_eq!(outcome(play), expected, "SEED={seed}");
        played.add(in_all_worlds(&protocol(&nodes, resumed), 3, outcome, holds));
    }
    played.is_enough(played.boards / 2);
    for status in ["COMPLETED", "SKIPPED", "FAILED", "PENDING"] {
        assert!(seen.contains_key(status), "no node was ever to end {status}: {seen:?}");
    }
    say(&format!("simulated workflows, {played:?}; nodes: {seen:?}"));
}
