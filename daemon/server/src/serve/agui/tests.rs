//! An independent client of the protocol on many random boards: whatever events arrive, and wherever the stream breaks,
//! the client ends with the board's document.

use std::collections::BTreeSet;

use patchboard_faults::random::Random;
use patchboard_faults::simulation::{Delivery, SimulatedBoard, SimulationHooks};
use patchboard_kernel::board::{Board, Call, Input, NewBoard, Proposal, ProposalSource, ReplyBody, Step};
use patchboard_kernel::digest::Salt;
use patchboard_kernel::id::{BoardId, Seq, Timestamp, Version};
use patchboard_kernel::record::{Answer, Body, Kind, Record};
use patchboard_kernel::state::State;
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

use super::{Event, EventEncoder, RestReason, RunIds, apply_patch, parse_interrupt_id, resume_point};

/// Number of random boards.
const BOARDS: u64 = 6;

/// Inputs per board.
const INPUTS: usize = 40;

/// An agent that answers with random patches.
struct Anybody {
    random: Random,
    /// The document at each version.
    states: Vec<State>,
}

impl SimulationHooks for Anybody {
    fn on_call(&mut self, call: &Call, board: &Board) -> Vec<Delivery> {
        let patch = patch(&mut self.random, &json!(board.state().root()));
        let from = ProposalSource::Attempt { invocation: call.invocation, attempt: call.attempt };
        vec![Delivery { after_ms: self.random.below(900), input: propose(from, &patch) }]
    }

    fn answer_question(&mut self, seq: Seq, board: &Board) -> Vec<Delivery> {
        let question = &board.pending()[&seq];
        let (by, digest) = (question.approver.clone(), question.digest);
        let input =
            Input::Answer(Answer { of: seq, by, digest, agrees: self.random.percent(60), reason: None, text: None });
        vec![Delivery { after_ms: 500, input }]
    }

    fn on_step(&mut self, _: Timestamp, _: Option<&Input>, _: &Step, board: &Board) {
        if board.version().0 == self.states.len() as u64 {
            self.states.push(board.state().clone());
        }
    }
}

fn propose(from: ProposalSource, patch: &Value) -> Input {
    let reply = ReplyBody::Text(patch.to_string());
    Input::Propose(Proposal { from, worker: "writer".into(), reply, usage: None, raw: None })
}

/// Returns the records and documents of a board that received random inputs.
fn played(seed: u64) -> (Vec<Record>, Vec<State>) {
    let ops = ["add", "replace", "insert", "remove", "move", "copy"];
    let blueprint = json!({
        "blueprint": 1,
        "name": "anything",
        "state": {"schema": {"type": "object"}, "initial": {"items": [1, [2, 3]], "conf": {"a": {"b": null}}, "asked": 0}},
        "workers": {
            "writer": {
                "agent": "llm",
                "reads": ["/**"],
                "writes": [
                    {"path": "/items/**", "ops": ops},
                    {"path": "/conf/**", "ops": ops},
                    {"path": "/asked", "ops": ["replace"], "approval": {"by": "boss", "expires": "10s"}},
                ],
                "freshness": "none",
                "limits": {"attempts": 2, "invocations": 1000},
            },
            "boss": {"agent": "human"},
        },
        "rules": [
            {"name": "begin", "trigger": "start", "run": "writer"},
            {"name": "more", "trigger": {"op": "add", "path": "/items/*"}, "run": "writer"},
            {"name": "told", "trigger": {"signal": "more"}, "run": "writer"},
        ],
        "limits": {"commits": 1000, "wall": "100h", "state_bytes": 1500},
        "concurrency": 3,
    });
    let mut others = Anybody { random: Random::new(seed), states: Vec::new() };
    let genesis = NewBoard {
        salt: Salt([9; 32]),
        ..NewBoard::new(
            BoardId::from("anything"),
            serde_json::from_value(blueprint).expect("a blueprint"),
            Value::Null,
            Timestamp(1),
        )
    };
    let mut world = SimulatedBoard::new(genesis, &PLANS, &mut others).expect("a board");
    for number in 0..INPUTS {
        let input = match others.random.below(10) {
            0..2 => Input::Signal { name: "more".into(), value: json!(number), key: None },
            2 => Input::Pause { key: None },
            3 => Input::Resume { key: None },
            _ => {
                let patch = patch(&mut others.random, &json!(world.board().state().root()));
                propose(ProposalSource::Direct { key: None, base: None }, &patch)
            }
        };
        world.send(Delivery { after_ms: others.random.below(300), input });
        world.advance(&mut others);
    }
    for _ in 0..1000 {
        if !world.advance(&mut others) {
            break;
        }
    }
    (world.records().to_vec(), others.states)
}

/// Returns up to three operations, most of them applicable.
fn patch(random: &mut Random, document: &Value) -> Value {
    let places = places(document);
    let names = ["x", "a~b", "a/b", "", "0", "toString", "__proto__", "constructor", "prototype"];
    let mut ops = Vec::new();
    for _ in 0..1 + random.below(3) {
        let (path, from) = (random.pick(&places).clone(), random.pick(&places).clone());
        let inside = match document.pointer(&path) {
            Some(Value::Array(elements)) if random.percent(50) => {
                format!("{path}/{}", random.below(elements.len() as u64 + 1))
            }
            Some(Value::Array(_)) => format!("{path}/-"),
            Some(Value::Object(_)) => format!("{path}/{}", random.pick(&names).replace('~', "~0").replace('/', "~1")),
            _ => path.clone(),
        };
        let value = random
            .pick(&[json!(1), json!(null), json!(0.5), json!({"k": [1]}), json!([]), json!("t"), json!(1e300)])
            .clone();
        ops.push(match random.below(20) {
            0..9 => json!({"op": "add", "path": inside, "value": value, "comment": "not ours"}),
            9..12 => json!({"op": "replace", "path": path, "value": value}),
            12..14 => json!({"op": "remove", "path": path}),
            14..16 => json!({"op": "move", "from": from, "path": inside}),
            16..18 => json!({"op": "copy", "from": from, "path": inside}),
            18 => json!({"op": "test", "path": path, "value": document.pointer(&path)}),
            _ => json!({"op": "replace", "path": "/asked", "value": random.below(100)}),
        });
    }
    ops.into()
}

/// Returns the writable paths.
fn places(document: &Value) -> Vec<String> {
    let mut found = vec!["/items".to_owned(), "/conf".to_owned()];
    let mut next = 0;
    while let Some(place) = found.get(next).cloned() {
        next += 1;
        match document.pointer(&place) {
            Some(Value::Array(elements)) => found.extend((0..elements.len()).map(|index| format!("{place}/{index}"))),
            Some(Value::Object(members)) => {
                found.extend(
                    members.keys().map(|name| format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"))),
                );
            }
            _ => {}
        }
    }
    found
}

/// A client; its state comes only from events.
#[derive(Default, Clone)]
struct Client {
    state: Value,
    steps: BTreeSet<String>,
    is_running: bool,
    last: Option<Seq>,
    deltas: usize,
    snapshots: usize,
}

impl Client {
    fn takes(&mut self, event: &Event) {
        self.last = event.id.or(self.last);
        let event = json!(event);
        let kind = event["type"].as_str().expect("a text");
        assert_eq!(self.is_running, kind != "RUN_STARTED", "{event}");
        let step = || event["stepName"].as_str().expect("a text").to_owned();
        match kind {
            "RUN_STARTED" => self.is_running = true,
            "STEP_STARTED" => assert!(self.steps.insert(step()), "{event}"),
            "STEP_FINISHED" => assert!(self.steps.remove(&step()), "{event}"),
            "STATE_SNAPSHOT" => {
                self.state = event["snapshot"].clone();
                self.snapshots += 1;
            }
            "STATE_DELTA" => {
                let ops = event["delta"].as_array().expect("a patch");
                assert!(!ops.iter().any(|op| op["op"] == "test" || !op["comment"].is_null()), "{event}");
                assert!(!event["delta"].to_string().contains("__proto__"), "{event}");
                let patch: json_patch::Patch = serde_json::from_value(event["delta"].clone()).expect("a patch");
                json_patch::patch(&mut self.state, &patch).unwrap_or_else(|error| panic!("{error}: {event}"));
                self.deltas += 1;
            }
            "CUSTOM" => assert!(event["name"].as_str().is_some_and(|name| name.starts_with("patchboard."))),
            "RUN_FINISHED" | "RUN_ERROR" => {
                assert!(self.steps.is_empty(), "{event}: {:?}", self.steps);
                self.is_running = false;
            }
            _ => panic!("{event}"),
        }
    }

    /// Returns this client at the start of its next run.
    fn again(&self) -> Self {
        Self { is_running: false, steps: BTreeSet::new(), ..self.clone() }
    }
}

fn run() -> RunIds {
    RunIds { thread: "t".into(), run: "r".into() }
}

fn document(state: &State) -> Value {
    json!(state.root())
}

/// Returns the number of commits up to a record.
fn version_at(records: &[Record], seq: Seq) -> usize {
    records.iter().filter(|record| record.seq <= seq && record.kind == Kind::Committed).count()
}

#[test]
fn wherever_a_reader_begins_it_has_the_document_of_every_version() {
    let (mut deltas, mut snapshots, mut kinds) = (0, 0, BTreeSet::new());
    for seed in 0..BOARDS {
        let (records, states) = played(seed);
        kinds.extend(records.iter().map(|record| record.kind));
        for cut in records.iter().step_by(3) {
            let version = version_at(&records, cut.seq);
            for has in [true, false] {
                let mut client = Client::default();
                let mut reader = EventEncoder::new(run(), has.then(|| states[version].clone()));
                client.takes(&reader.run_started());
                match has {
                    true => client.state = document(&states[version]),
                    false => {
                        reader.send_document(&states[version], cut.seq, cut.at).iter().for_each(|it| client.takes(it))
                    }
                }
                for record in records.iter().filter(|record| record.seq > cut.seq) {
                    let encoded = reader.encode_record(record);
                    assert!(!encoded.needs_document, "seed {seed}: {}", record.seq);
                    encoded.events.iter().for_each(|event| client.takes(event));
                    if record.kind == Kind::Committed {
                        let now = &states[version_at(&records, record.seq)];
                        assert_eq!(client.state, document(now), "seed {seed}, from {}, at {}", cut.seq, record.seq);
                    }
                }
                let (pending, at) = (std::collections::BTreeMap::new(), cut.at);
                reader
                    .finish_at_rest(RestReason::AwaitsAnswers(&pending), at)
                    .iter()
                    .for_each(|event| client.takes(event));
                assert!(!client.is_running);
                (deltas, snapshots) = (deltas + client.deltas, snapshots + client.snapshots);
            }
        }
    }
    // Guards against random boards on which nothing happens.
    assert!(deltas > 1_000 && snapshots > 250, "{deltas} deltas, {snapshots} snapshots");
    for kind in [Kind::Rejected, Kind::NoOp, Kind::Approval, Kind::Answer, Kind::Paused, Kind::Invoked] {
        assert!(kinds.contains(&kind), "{kind} was never seen");
    }
}

#[test]
fn a_stream_that_breaks_off_anywhere_is_gone_on_with_exactly() {
    let mut broken = 0;
    for seed in 0..BOARDS / 2 {
        let (records, states) = played(seed);
        let now = Version(states.len() as u64 - 1);
        // All events, and the client's state after each.
        let mut reader = EventEncoder::new(run(), None);
        let mut client = Client::default();
        let mut after = Vec::new();
        let first = reader.send_document(&states[0], records[0].seq, records[0].at);
        let events = records.iter().skip(1).flat_map(|record| reader.encode_record(record).events).collect::<Vec<_>>();
        client.takes(&EventEncoder::new(run(), None).run_started());
        for event in first.iter().chain(&events) {
            client.takes(event);
            after.push(client.clone());
        }
        let end = client.state;
        for client in after.into_iter().step_by(3) {
            broken += 1;
            let mut again = client.again();
            let digest = states[0].digest_of(&client.state);
            for (last, has) in [(client.last, None), (client.last, Some(digest)), (None, Some(digest))] {
                let (version, seq) = resume_point(&records, now, last, has).expect("nothing was forgotten");
                let state = &states[usize::try_from(version.0).expect("few")];
                assert_eq!(document(state), client.state, "seed {seed}, after {last:?} {has:?}");
                let mut reader = EventEncoder::new(run(), Some(state.clone()));
                let mut client = again.clone();
                client.takes(&reader.run_started());
                for record in records.iter().filter(|record| record.seq > seq) {
                    reader.encode_record(record).events.iter().for_each(|event| client.takes(event));
                }
                assert_eq!(client.state, end, "seed {seed}");
            }
            // A document that the board never had, and an event that was never sent.
            again.state["mine"] = json!(true);
            let digest = states[0].digest_of(&again.state);
            assert_eq!(resume_point(&records, now, None, Some(digest)), None);
            let never = records.last().map(|last| last.seq.next());
            assert_eq!(resume_point(&records, now, never, None), None);
        }
    }
    assert!(broken > 75, "{broken}");
}

#[test]
fn a_document_that_is_not_the_one_of_an_event_is_believed() {
    let (records, states) = played(1);
    let now = Version(states.len() as u64 - 1);
    let commit = records.iter().rev().find(|record| record.kind == Kind::Committed).expect("a commit");
    let found = resume_point(&records, now, Some(Seq(0)), Some(states[states.len() - 1].digest()));
    assert_eq!(found.map(|(version, _)| version), Some(now));
    assert!(found.is_some_and(|(_, seq)| seq == commit.seq));
    // History before the retained records is unknown.
    let recent = &records[records.len() - 2..];
    assert_eq!(resume_point(recent, now, Some(Seq(0)), None), None);
}

#[test]
fn patches_that_some_clients_cannot_apply_come_as_whole_documents() {
    let hasher = patchboard_kernel::digest::Hasher::new(&Salt::ZERO);
    let before = State::new(&json!({"a": {"constructor": {}}, "b": [1]}), &hasher);
    for (patch, after, is_delta) in [
        (json!([{"op": "add", "path": "/b/-", "value": 2}]), json!({"a": {"constructor": {}}, "b": [1, 2]}), true),
        (
            json!([{"op": "add", "path": "/a/__proto__", "value": 2}]),
            json!({"a": {"constructor": {}, "__proto__": 2}, "b": [1]}),
            false,
        ),
        (
            json!([{"op": "add", "path": "/a/constructor/prototype", "value": 2}]),
            json!({"a": {"constructor": {"prototype": 2}}, "b": [1]}),
            false,
        ),
        (
            json!([{"op": "add", "path": "/a/prototype", "value": 2}]),
            json!({"a": {"constructor": {}, "prototype": 2}, "b": [1]}),
            true,
        ),
        (
            json!([{"op": "move", "from": "/b", "path": "/a/constructor/prototype"}]),
            json!({"a": {"constructor": {"prototype": [1]}}}),
            false,
        ),
    ] {
        let (delta, made) = apply_patch(&before, &patch, hasher.document(&after)).expect("it makes that");
        assert_eq!((document(&made), delta.is_some()), (after, is_delta), "{patch}");
        assert!(apply_patch(&before, &patch, hasher.document(&json!(1))).is_none());
    }
    assert!(apply_patch(&before, &json!("erased"), before.digest()).is_none());
}

#[test]
fn a_commit_that_cannot_be_reported_asks_for_a_document() {
    let (records, states) = played(2);
    let (first, second) = {
        let mut commits = records.iter().filter(|record| record.kind == Kind::Committed);
        (commits.next().expect("a commit"), commits.next().expect("another"))
    };
    let mut reader = EventEncoder::new(run(), Some(states[0].clone()));
    // The first commit is missing.
    let encoded = reader.encode_record(second);
    assert!(encoded.needs_document && encoded.events.iter().all(|event| event.id.is_none()));
    assert!(!EventEncoder::new(run(), Some(states[0].clone())).encode_record(first).needs_document);
    assert!(EventEncoder::new(run(), None).encode_record(first).needs_document);
}

#[test]
fn an_interrupt_names_exactly_what_is_asked() {
    let (records, _) = played(3);
    let asked = records.iter().filter_map(|record| match record.body() {
        Ok(Body::Approval(approval)) => Some((record.seq, approval.digest)),
        _ => None,
    });
    for (seq, digest) in asked {
        assert_eq!(parse_interrupt_id(&format!("{seq}:{digest}")), Some((seq, digest)));
    }
    for wrong in ["", "1", "1:", ":00", "1:00", "x:y"] {
        assert_eq!(parse_interrupt_id(wrong), None, "{wrong}");
    }
}
