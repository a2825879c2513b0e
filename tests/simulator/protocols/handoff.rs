//! Chains of handoffs with random capabilities and answers: agents accept, reject or stay silent. The test derives
//! the expected requests and owners from these, without code of the product.

mod held;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use patchboard_faults::random::Random;
use patchboard_lint::source::Source;
use patchboard_runtime::agent::Call;
use serde_json::{Map, Value, json};

use self::held::Held;
use super::{Play, Played, Protocol, World, blueprint, in_all_worlds, one, shown, with_fragments};
use crate::plans::Shared;
use crate::{cases, say};

const AGENTS: [&str; 5] = ["a0", "a1", "a2", "a3", "a4"];
const CAPABILITIES: [&str; 3] = ["bills", "law", "maps"];
const GIVE_BACK: &str = "give it back";
/// Maximum number of retries of an unanswered request, as in the fragment.
const RETRIES: usize = 2;
/// Attempt from which on every agent accepts.
const INSISTING: usize = 4;
/// Suffix of the id of a request that is made while another one for the same work is accepted.
const ALSO: &str = "-also";

/// Answer of an agent to a request.
#[derive(Clone, Copy)]
enum Says {
    Takes,
    Refuses,
    Nothing,
}

/// A handoff of a piece of work by its owner.
struct Hop {
    required: Vec<&'static str>,
    /// Agent to ask; empty for any able one.
    named: &'static str,
    says: BTreeMap<&'static str, Says>,
    /// Choice of a person, as a remainder.
    person: usize,
    timeout_ms: u64,
}

/// A piece of work: its first owner and its handoffs.
struct Piece {
    owner: &'static str,
    hops: Vec<Hop>,
}

/// Agents with their capabilities, and the pieces of work.
struct Case {
    agents: BTreeMap<&'static str, Vec<&'static str>>,
    pieces: Vec<Piece>,
}

/// A closed request.
struct Over {
    to: Option<&'static str>,
    state: &'static str,
    returned: bool,
}

fn drawn(random: &mut Random) -> Case {
    let agents = &AGENTS[..3 + random.index(3)];
    let can = |percent: u64, random: &mut Random| -> Vec<&'static str> {
        CAPABILITIES.into_iter().filter(|_| random.percent(percent)).collect()
    };
    let says = [Says::Takes, Says::Takes, Says::Refuses, Says::Refuses, Says::Nothing];
    let hop = |random: &mut Random| Hop {
        required: can(30, random),
        named: if random.percent(30) { one(random, agents) } else { "" },
        says: agents.iter().map(|name| (*name, *random.pick(&says))).collect(),
        person: random.index(100),
        timeout_ms: 60_000 * (1 + random.below(5)),
    };
    let piece = |random: &mut Random| Piece {
        owner: one(random, agents),
        hops: (0..1 + random.index(3)).map(|_| hop(random)).collect(),
    };
    Case {
        agents: agents.iter().map(|name| (*name, can(60, random))).collect(),
        pieces: (0..1 + random.index(3)).map(|_| piece(random)).collect(),
    }
}

impl Hop {
    /// Returns an agent's answer. `attempt` is the number of the request, from 1; `insists` means that the agent has
    /// rejected before.
    fn says(&self, agent: &str, attempt: usize, insists: bool) -> Says {
        if insists || attempt >= INSISTING { Says::Takes } else { self.says[agent] }
    }
}

impl Case {
    fn piece(&self, task: &str) -> &Piece {
        &self.pieces[task[1..].parse::<usize>().expect("a piece of work is called by its place")]
    }

    /// Returns the agents able to take the work, by name.
    fn able(&self, hop: &Hop, from: &str) -> Vec<&'static str> {
        let can = |can: &[&str]| hop.required.iter().all(|wanted| can.contains(wanted));
        self.agents.iter().filter(|(name, of)| **name != from && can(of)).map(|(name, _)| *name).collect()
    }

    /// Returns the agent to ask, among those that have not rejected.
    fn routed(&self, hop: &Hop, from: &str, refused: &[&str]) -> Option<&'static str> {
        let able = self.able(hop, from);
        if !hop.named.is_empty() && !refused.contains(&hop.named) {
            return able.into_iter().find(|name| *name == hop.named);
        }
        able.into_iter().filter(|name| !refused.contains(name)).min_by_key(|name| self.agents[name].len())
    }

    /// Returns the agent that a person chooses, or `None` to give the work back.
    fn person(&self, hop: &Hop, from: &str) -> Option<&'static str> {
        let able = self.able(hop, from);
        able.get(hop.person % (able.len() + 1)).copied()
    }

    /// Returns all requests for one hop, and the final owner of the work.
    fn requests(&self, hop: &Hop, from: &'static str) -> (Vec<Over>, &'static str) {
        let mut over: Vec<Over> = Vec::new();
        let mut refused = Vec::new();
        let mut routed = self.routed(hop, from, &refused);
        loop {
            let Some(to) = routed.or_else(|| self.person(hop, from)) else {
                match over.last_mut() {
                    Some(last) => last.returned = true,
                    None => over.push(Over { to: None, state: "REJECTED", returned: true }),
                }
                return (over, from);
            };
            let attempt = over.len() + 1;
            let mut ends = |state| over.push(Over { to: Some(to), state, returned: false });
            match hop.says(to, attempt, refused.contains(&to)) {
                Says::Takes => {
                    ends("COMPLETED");
                    return (over, to);
                }
                Says::Refuses => {
                    ends("REJECTED");
                    refused.push(to);
                    routed = self.routed(hop, from, &refused);
                }
                Says::Nothing => {
                    ends("EXPIRED");
                    // Rejections do not count as retries: those agents have answered.
                    routed = (attempt - refused.len() <= RETRIES).then_some(to);
                }
            }
        }
    }

    /// Returns the expected [`outcome`].
    fn expected(&self) -> Value {
        let (mut tasks, mut handoffs) = (Map::new(), Map::new());
        for (place, piece) in self.pieces.iter().enumerate() {
            let mut owner = piece.owner;
            let mut log = Vec::new();
            for (number, hop) in piece.hops.iter().enumerate() {
                log.push(owner);
                let (requests, taken_by) = self.requests(hop, owner);
                for (Over { to, state, returned }, attempt) in requests.into_iter().zip(1..) {
                    let id = named(&format!("t{place}-h{number}"), attempt);
                    handoffs.insert(id, json!([state, to, returned.then_some(owner)]));
                }
                owner = taken_by;
            }
            tasks.insert(format!("t{place}"), json!([owner, log, owner]));
        }
        json!([tasks, handoffs])
    }
}

/// Returns the id of a request by its attempt number, from 1.
fn named(first: &str, attempt: u64) -> String {
    if attempt == 1 { first.to_owned() } else { format!("{first}.{attempt}") }
}

/// Returns owner, log and finisher of each piece of work, and the end of each handoff.
fn outcome(play: &Play<'_>) -> Value {
    let state = play.state();
    let of = |collection: &str, members: [&str; 3]| -> Map<String, Value> {
        let all = state[collection].as_object().expect("an object").iter();
        // An extra request depends on timing, so it is left out.
        let all = all.filter(|(name, _)| !name.ends_with(ALSO));
        all.map(|(name, value)| (name.clone(), json!(members.map(|member| &value[member])))).collect()
    };
    json!([of("tasks", ["owner", "log", "done"]), of("handoffs", ["state", "to", "returned"])])
}

/// Plays the agents as drawn. An owner hands work over as often as drawn and then finishes it; a requested agent
/// gives its drawn answer. A former owner keeps working on the piece and sometimes makes an extra request.
fn seats(case: &Case, call: &Call) -> Value {
    let worker = call.worker.as_str();
    let woken_at = call.context.trigger_place().unwrap_or_default();
    let parts: Vec<&str> = woken_at.split('/').skip(1).collect();
    let handoff = |id: &str| shown(&call.context, &format!("/handoffs/{id}"));
    match parts.as_slice() {
        // Start of the board.
        [] => {
            let tasks = shown(&call.context, "/tasks");
            let begun = tasks.as_object().expect("an object").iter().filter(|(_, work)| work["log"] == json!([]));
            json!(begun.flat_map(|(task, work)| goes_on(case, worker, task, work)).collect::<Vec<_>>())
        }
        ["tasks", task, "owner"] => {
            json!(goes_on(case, worker, task, &shown(&call.context, &format!("/tasks/{task}"))))
        }
        ["handoffs", id, "returned"] if id.ends_with(ALSO) => json!([]),
        ["handoffs", id, "returned"] => {
            let task = handoff(id)["task"].as_str().expect("a name").to_owned();
            json!(goes_on(case, worker, &task, &shown(&call.context, &format!("/tasks/{task}"))))
        }
        ["handoffs", id, "to"] => answers(case, worker, id, &handoff(id)),
        ["handoffs", id, "state"] if call.context.triggered_by().is_some_and(|rule| rule.as_str() == "also") => {
            let handoff = handoff(id);
            let task = handoff["task"].as_str().expect("a name").to_owned();
            json!(asks_also(case, worker, id, &handoff, &shown(&call.context, &format!("/tasks/{task}"))))
        }
        // The handoff is over, so the worker no longer owns the work.
        ["handoffs", id, "state"] if call.attempt == 1 => {
            let path = format!("/tasks/{}/work/-", handoff(id)["task"].as_str().expect("a name"));
            json!([{"op": "add", "path": path, "value": format!("{worker} after {id}")}])
        }
        ["handoffs", _, "state"] => json!([]),
        _ => panic!("{worker} is woken by {woken_at}"),
    }
}

fn goes_on(case: &Case, worker: &str, task: &str, work: &Value) -> Vec<Value> {
    if work["owner"] != worker || work.get("done").is_some() {
        return Vec::new();
    }
    let number = work["log"].as_array().expect("a list").len();
    let Some(hop) = case.piece(task).hops.get(number) else {
        return vec![json!({"op": "add", "path": format!("/tasks/{task}/done"), "value": worker})];
    };
    let id = format!("{task}-h{number}");
    let request = json!({
        "request_id": id, "from_agent": worker, "to_agent": hop.named, "reason": format!("Hop {number}."),
        "capabilities_required": hop.required, "timeout_ms": hop.timeout_ms, "task": task, "state": "PENDING",
        "context": {"content_type": "application/json", "content": {"hop": number}},
    });
    vec![
        json!({"op": "add", "path": format!("/tasks/{task}/log/-"), "value": worker}),
        json!({"op": "add", "path": format!("/handoffs/{id}"), "value": request}),
    ]
}

/// Requests the work once more, after another agent has accepted it and before that agent owns it.
fn asks_also(case: &Case, worker: &str, id: &str, handoff: &Value, work: &Value) -> Vec<Value> {
    let number = hop_of(handoff);
    let task = handoff["task"].as_str().expect("a name");
    let is_taken = handoff["state"] == "ACCEPTED" && work["owner"] == worker;
    if !is_taken || case.piece(task).hops[number].person % 2 == 1 {
        return Vec::new();
    }
    let also = format!("{}{ALSO}", id.replace('.', "-"));
    let request = json!({
        "request_id": also, "from_agent": worker, "reason": "To be sure.", "timeout_ms": 60_000, "task": task,
        "state": "PENDING", "context": {"content_type": "text/plain", "content": "once more"},
        "capabilities_required": [],
    });
    vec![json!({"op": "add", "path": format!("/handoffs/{also}"), "value": request})]
}

fn answers(case: &Case, worker: &str, id: &str, handoff: &Value) -> Value {
    // The request is answered or over already.
    if handoff["state"] != "PENDING" || handoff["to"] != worker {
        return json!([]);
    }
    let hop = &case.piece(handoff["task"].as_str().expect("a name")).hops[hop_of(handoff)];
    let attempt = handoff["attempt"].as_u64().map_or(1, |attempt| usize::try_from(attempt).expect("few"));
    let insists = handoff["tried"].as_array().is_some_and(|tried| tried.contains(&json!(worker)));
    let moves = |state: &str| json!({"op": "replace", "path": format!("/handoffs/{id}/state"), "value": state});
    match hop.says(worker, attempt, insists) {
        Says::Takes => json!([moves("ACCEPTED")]),
        Says::Refuses => {
            let rejection = json!({"by": worker, "reason": "I have no time."});
            json!([moves("REJECTED"), {"op": "add", "path": format!("/handoffs/{id}/rejection"), "value": rejection}])
        }
        Says::Nothing => json!([]),
    }
}

/// Returns the index of the hop that a request belongs to.
fn hop_of(handoff: &Value) -> usize {
    let number = handoff["context"]["content"]["hop"].as_u64();
    number.and_then(|number| usize::try_from(number).ok()).expect("few")
}

/// Answers a question of the form "`a0` hands over `t1`: Hop 2. Who takes it?"
fn person(case: &Case, question: &str) -> String {
    let (before, after) = question.split_once(" hands over ").expect("a question says so");
    let quoted = |text: &'_ str| text.trim_matches('`').to_owned();
    let from = quoted(before.rsplit(' ').next().expect("a name"));
    let (task, reason) = after.split_once(": Hop ").expect("a reason");
    let number: usize = reason.split('.').next().and_then(|number| number.parse().ok()).expect("a number");
    case.person(&case.piece(&quoted(task)).hops[number], &from).unwrap_or(GIVE_BACK).to_owned()
}

fn protocol(case: &Rc<Case>) -> Protocol {
    let own =
        |path: &str| json!({"path": path, "ops": ["add"], "where": {"of": "/tasks/*", "expr": "self.owner == worker"}});
    let asked = json!({"of": "/handoffs/*", "expr": "self.to == worker && self.state == 'PENDING'"});
    let agent = |name: &str| {
        json!({
            "agent": "script", "script": [[]], "group": "agents", "limits": {"invocations": 1000},
            "view": {"budget": 200_000},
            "reads": [
                "/tasks",
                {"path": "/handoffs/*", "where": "self.from_agent == worker || (has(self.to) && self.to == worker)"},
            ],
            "writes": [
                own("/tasks/*/log/-"), own("/tasks/*/work/-"), own("/tasks/*/done"),
                {"path": "/handoffs/*", "ops": ["add"],
                 "value": {"$ref": "#/$defs/handoff-request", "properties": {"from_agent": {"const": name}}}},
                {"path": "/handoffs/*/state", "ops": ["replace"], "where": asked,
                 "value": {"enum": ["ACCEPTED", "REJECTED"]}},
                {"path": "/handoffs/*/rejection", "ops": ["add"], "where": asked,
                 "value": {"properties": {"by": {"const": name}}}},
            ],
        })
    };
    let mut workers: Map<String, Value> = case.agents.keys().map(|name| ((*name).to_owned(), agent(name))).collect();
    workers.insert("person".to_owned(), json!({"agent": "human"}));
    let names = json!({"type": "array", "maxItems": 64, "items": {"type": "string", "maxLength": 100}});
    let task = json!({
        "type": "object", "required": ["owner", "log", "work"], "additionalProperties": false,
        "properties": {
            "owner": {"$ref": "#/$defs/group:agents"}, "log": names, "work": names, "done": {"type": "string", "maxLength": 100},
        },
    });
    let tasks = case.pieces.iter().enumerate();
    let tasks: Map<String, Value> = tasks
        .map(|(place, piece)| (format!("t{place}"), json!({"owner": piece.owner, "log": [], "work": []})))
        .collect();
    let text = json!({
        "blueprint": 1, "name": "handoffs", "description": "Work goes from hand to hand.", "use": ["fragments/handoff.yaml"],
        "state": {
            "schema": {
                "type": "object", "required": ["agents", "handoffs", "tasks"], "additionalProperties": false,
                "properties": {
                    "request": true, "agents": {"$ref": "#/$defs/handoff-agents"}, "handoffs": {"$ref": "#/$defs/handoffs"},
                    "tasks": {"type": "object", "maxProperties": 16, "additionalProperties": task},
                },
            },
            "initial": {"agents": case.agents, "handoffs": {}, "tasks": tasks},
        },
        "workers": workers,
        "rules": [
            {"name": "begin", "trigger": "start", "run": {"group": "agents"}},
            {"name": "go-on", "trigger": {"op": "replace", "path": "/tasks/*/owner"}, "run": {"group": "agents", "at": ""}},
            {"name": "still", "trigger": {"op": "replace", "path": "/handoffs/*/state"}, "run": {"group": "agents"},
             "when": "value == 'COMPLETED' && worker == state.handoffs[event.captures[0]].from_agent"},
            {"name": "also", "trigger": {"op": "replace", "path": "/handoffs/*/state"}, "run": {"group": "agents"},
             "when": "value == 'ACCEPTED' && worker == state.handoffs[event.captures[0]].from_agent"},
        ],
        // Unanswered and rejected calls are intended, so breakers must not move.
        "circuit": {
            "no_ops": {"limit": 1000, "then": "stop_branch"}, "rejections": {"limit": 1000, "then": "stop_branch"},
        },
    });
    let (of_seats, of_person) = (Rc::clone(case), Rc::clone(case));
    Protocol {
        blueprint: blueprint(&with_fragments(Source::from_value("handoffs.json", text))),
        request: Value::Null,
        seats: Box::new(move |call| seats(&of_seats, call)),
        person: Box::new(move |question| person(&of_person, question)),
        signals: Vec::new(),
        plans: Shared::default(),
    }
}

#[test]
fn handoff_work_reaches_the_expected_owner_despite_crashes() {
    let mut played = Played::default();
    let (refused, completed, also) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 0..cases(10) {
        let case = Rc::new(drawn(&mut Random::new(seed)));
        let expected = case.expected();
        for (_, handoff) in expected[1].as_object().expect("an object") {
            let is_returned = if handoff[2].is_null() { "" } else { ", returned" };
            *seen.entry(format!("{}{is_returned}", handoff[0].as_str().expect("a state"))).or_default() += 1;
        }
        let holds = |play: &Play<'_>| {
            let held = Held::of(&case, play);
            if play.world != World::Hasty {
                assert_eq!(outcome(play), expected, "the case {seed}, SEED={}", play.seed);
            }
            if play.world == World::Calm {
                assert_eq!(held.refused, held.completed, "the case {seed}: whoever handed something over is refused");
            }
            refused.set(refused.get() + held.refused);
            completed.set(completed.get() + held.completed);
            also.set(also.get() + held.also);
        };
        played.add(in_all_worlds(&protocol(&case), 2, outcome, holds));
    }
    played.is_enough(played.boards);
    for ended in ["COMPLETED", "REJECTED", "EXPIRED", "REJECTED, returned", "EXPIRED, returned"] {
        assert!(seen.contains_key(ended), "no handoff was ever to end {ended}: {seen:?}");
    }
    let (refused, completed) = (refused.get(), completed.get());
    assert!(refused > completed / 2, "{refused} refusals after {completed} handoffs");
    let also = also.get();
    assert!(also > 0, "nothing was ever asked for once more before it was gone");
    say(&format!(
        "simulated boards of handoffs, {played:?}: {completed} completed, {refused} times refused after, \
         {also} times asked for once more; to be: {seen:?}"
    ));
}
