//! Negotiations with random drafts, scores and answers of persons. The test derives each end from these by the table
//! of docs/negotiation.md, without code of the product.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use patchboard_faults::random::Random;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::record::Cause;
use patchboard_protocols::negotiation::{Draft, Event, EventKind, Phase, decode};
use patchboard_runtime::agent::Call;
use serde_json::{Value, json};

use super::{Play, Played, Protocol, World, blueprint, in_all_worlds, one, shipped, shown};
use crate::plans::Shared;
use crate::{cases, say};

/// Maximum number of rounds of a negotiation.
const ROUNDS_MAX: usize = 6;
/// Number of invalid drafts that ends a round.
const INVALID_MAX: usize = 5;
const EVALUATORS: [&str; 2] = ["arbiter", "critic"];
/// Minimum sum of both evaluators' hundredths. With all checks passed (half of the score) that is a score of 0.8.
const ENOUGH: u64 = 120;
/// Minimum hundredths of a single evaluator.
const ENOUGH_ALONE: u64 = 80;

/// More rounds, each with time for calls that exceed their timeout, and a second evaluator.
const CHANGES: [(&str, &str); 2] = [
    (
        "max_rounds: 4, score_threshold: 0.8, round_timeout_ms: 60000",
        "max_rounds: 6, score_threshold: 0.8, round_timeout_ms: 150000",
    ),
    (
        "\nrules:\n",
        r##"
  critic:
    agent: script
    group: evaluators
    script: [[]]
    reads: *board
    writes:
      - path: /negotiation/events/-
        ops: [add]
        value: {allOf: [{$ref: "#/$defs/negotiation-evaluation"}], properties: {from: {const: critic}}}
    view: *view

rules:
"##,
    ),
];

/// Events of a round.
#[derive(Debug)]
struct Turn {
    /// Number of invalid drafts before a valid one.
    invalid: usize,
    /// True if the draft repeats that of the round before.
    same: bool,
    /// Scores of the evaluators, in hundredths.
    scores: [u64; 2],
    /// Answer of a person, if asked.
    said: &'static str,
}

/// Script of a negotiation.
#[derive(Debug)]
struct Course {
    turns: Vec<Turn>,
    max_rounds: usize,
    oscillation_limit: usize,
    hitl: &'static str,
}

fn drawn(random: &mut Random) -> Course {
    let turn = |random: &mut Random| Turn {
        invalid: *random.pick(&[0, 0, 0, 0, 0, 1, 2, INVALID_MAX]),
        same: random.percent(20),
        scores: [(); 2].map(|()| *random.pick(&[0, 20, 20, 40, 60, 90])),
        said: one(random, &["accept", "continue", "continue", "stop"]),
    };
    Course {
        turns: (0..ROUNDS_MAX).map(|_| turn(random)).collect(),
        max_rounds: *random.pick(&[2, 3, 4, ROUNDS_MAX]),
        oscillation_limit: random.index(3),
        hitl: one(random, &["None", "None", "PauseOnFinalAccept", "PauseBetweenRounds"]),
    }
}

/// Returns a negotiation with improving drafts until one is good enough.
fn rising() -> Course {
    // One draft is repeated, with a better score.
    let turn = |score: u64| Turn { invalid: 0, same: score == 50, scores: [score, score], said: "stop" };
    Course { turns: [10, 30, 50, 70, 90, 90].map(turn).into(), max_rounds: 6, oscillation_limit: 0, hitl: "None" }
}

/// Returns a negotiation with drafts that are alternately better and worse; each better one follows an invalid one.
fn oscillating() -> Course {
    let turn =
        |score: u64| Turn { invalid: usize::from(score == 40), same: false, scores: [score, score], said: "stop" };
    Course { turns: [10, 40, 20, 40, 20, 40].map(turn).into(), max_rounds: 6, oscillation_limit: 2, hitl: "None" }
}

/// Returns a negotiation that a person continues once and then accepts.
fn asking() -> Course {
    let turn = |said| Turn { invalid: 0, same: false, scores: [20, 40], said };
    let said = ["continue", "accept", "stop", "stop", "stop", "stop"];
    Course { turns: said.map(turn).into(), max_rounds: 6, oscillation_limit: 0, hitl: "PauseBetweenRounds" }
}

/// End of a negotiation, as in [`outcome`].
struct End<'e> {
    /// Stop reason; `taken` is the index of the round with the accepted draft, if there is one.
    reason: &'e str,
    taken: Option<usize>,
    decided_by: &'e str,
    /// Rounds with a valid draft.
    versions: usize,
    refused: usize,
}

impl Course {
    /// Returns the draft of a round.
    fn content(&self, place: usize) -> Value {
        // The first draft repeats no other.
        let made = (1..=place).rev().find(|place| !self.turns[*place].same).unwrap_or(0);
        json!({"price": 100 + made, "days": 10 + made})
    }

    /// Returns true if the scores have changed direction more often than allowed, up to a round.
    fn oscillates(&self, place: usize) -> bool {
        let sums: Vec<u64> = self.turns[..=place].iter().map(|turn| turn.scores.iter().sum()).collect();
        let ups: Vec<bool> = sums.windows(2).filter(|two| two[0] != two[1]).map(|two| two[0] < two[1]).collect();
        ups.windows(2).filter(|two| two[0] != two[1]).count() > self.oscillation_limit
    }

    /// Returns true if a round's scores exceed those of the round before.
    fn is_better(&self, place: usize) -> bool {
        let sum = |turn: &Turn| turn.scores.iter().sum::<u64>();
        place == 0 || sum(&self.turns[place - 1]) < sum(&self.turns[place])
    }

    fn end(&self) -> End<'_> {
        let mut refused = 0;
        for (place, turn) in self.turns.iter().enumerate() {
            refused += turn.invalid;
            let over = |reason, taken: bool, decided_by| {
                let versions = place + usize::from(turn.invalid < INVALID_MAX);
                End { reason, taken: taken.then_some(place), decided_by, versions, refused }
            };
            if turn.invalid >= INVALID_MAX {
                return over("invalid_drafts", false, "policy");
            }
            let is_good = turn.scores.iter().sum::<u64>() >= ENOUGH;
            let is_consensus = turn.scores.iter().all(|score| *score >= ENOUGH_ALONE);
            let word = |is_asked: bool| if is_asked { turn.said } else { "" };
            let said = word(is_good && self.hitl != "None");
            let is_last = place + 1 >= self.max_rounds;
            match said {
                "accept" => return over("threshold_met", true, "hitl"),
                "stop" => return over("hitl", false, "hitl"),
                _ if is_good && said.is_empty() => {
                    return over("threshold_met", true, if is_consensus { "consensus" } else { "policy" });
                }
                _ if self.oscillates(place) => return over("oscillation", false, "policy"),
                _ if turn.same && !self.is_better(place) => return over("no_progress", false, "policy"),
                _ if is_last => return over("max_rounds", false, "policy"),
                _ => {}
            }
            match word(said.is_empty() && self.hitl == "PauseBetweenRounds") {
                "accept" => return over("hitl", true, "hitl"),
                "stop" => return over("hitl", false, "hitl"),
                _ => {}
            }
        }
        unreachable!("no negotiation has more rounds than it may")
    }

    /// Returns the expected [`outcome`].
    fn expected(&self) -> Value {
        let End { reason, taken, decided_by, versions, refused } = self.end();
        let drafts: Vec<Value> = (0..versions).map(|place| self.content(place)).collect();
        let (kind, result) = match taken {
            Some(place) => ("decide", self.content(place)),
            None => ("abort", json!(reason)),
        };
        json!([kind, result, reason, decided_by, drafts, refused])
    }
}

/// Returns the last event with its result or reason, the decision, the valid drafts, and the number of invalid ones.
fn outcome(play: &Play<'_>) -> Value {
    let state = play.state();
    let negotiation = &state["negotiation"];
    let list = |name: &str| negotiation[name].as_array().expect("a list");
    let last = list("events").last().unwrap_or(&Value::Null);
    let result = if last["kind"] == "decide" { decoded(&last["result_b64"]) } else { last["reason"].clone() };
    let decision = list("reports").last().unwrap_or(&Value::Null);
    let drafts: Vec<&Value> = list("versions").iter().map(|version| &version["content"]).collect();
    json!([last["kind"], result, decision["stop_reason"], decision["decided_by"], drafts, list("refused").len()])
}

/// Decodes JSON from base64.
fn decoded(base64: &Value) -> Value {
    let bytes = decode(base64.as_str().expect("a text")).expect("it is base64");
    serde_json::from_slice(&bytes).expect("it is JSON")
}

/// Plays the agents: parties make the drafts of their rounds, the buyer as bytes; evaluators give the drawn scores.
fn seats(course: &Course, call: &Call) -> Value {
    let worker = call.worker.as_str();
    let says = |event: Value| json!([{"op": "add", "path": "/negotiation/events/-", "value": event}]);
    if let Some(which) = EVALUATORS.iter().position(|name| *name == worker) {
        let woken_at = call.context.trigger_place().expect("it may read versions");
        let place: usize = woken_at.rsplit('/').next().and_then(|place| place.parse().ok()).expect("a version");
        #[expect(clippy::cast_precision_loss, reason = "hundredths are small")]
        let score = course.turns[place].scores[which] as f64 / 100.0;
        return says(json!({"kind": "evaluate", "ts": place, "from": worker, "score": score, "notes": "so"}));
    }
    let list = |name: &str| shown(&call.context, &format!("/negotiation/{name}")).as_array().expect("a list").clone();
    let rounds = list("rounds");
    let round = rounds.last().expect("a round wakes it");
    if round["turn"] != worker {
        return json!([]);
    }
    let place = rounds.len() - 1;
    let failed = list("refused").iter().filter(|refused| refused["round"] == round["n"]).count();
    let is_invalid = failed < course.turns[place].invalid;
    let payload = if is_invalid { json!({"price": "much", "days": failed}) } else { course.content(place) };
    let kind = if place == 0 { "propose" } else { "counter" };
    let mut event = json!({"kind": kind, "ts": place, "from": worker, "ct": "application/json", "payload": payload});
    if worker == "buyer" {
        let draft: Draft = serde_json::from_value(event.clone()).expect("it is a draft");
        let members = event.as_object_mut().expect("an object");
        members.remove("payload");
        members.insert("payload_b64".to_owned(), json!(draft.to_base64().expect("it has bytes")));
    }
    says(event)
}

/// Answers a question of the form "Round 2 of the negotiation about …"
fn person(course: &Course, question: &str) -> String {
    let round: usize = question.split(' ').nth(1).and_then(|round| round.parse().ok()).expect("it names its round");
    course.turns[round - 1].said.to_owned()
}

fn protocol(course: &Rc<Course>, blueprint: &Blueprint) -> Protocol {
    let (of_seats, of_person) = (Rc::clone(course), Rc::clone(course));
    let wishes =
        json!({"max_rounds": course.max_rounds, "oscillation_limit": course.oscillation_limit, "hitl": course.hitl});
    Protocol {
        blueprint: blueprint.clone(),
        request: json!({"topic": "steel", "corr": "c-1", "preferences": {"buyer": wishes}}),
        seats: Box::new(move |call| seats(&of_seats, call)),
        person: Box::new(move |question| person(&of_person, question)),
        signals: Vec::new(),
        plans: Shared::default(),
    }
}

/// Checks the invariants: events are in order, every draft is valid or rejected, and versions are numbered by their
/// rounds. The decision takes the last version, with unchanged content.
fn holds(play: &Play<'_>) {
    let seed = play.seed;
    let state = play.state();
    let list = |name: &str| state["negotiation"][name].as_array().expect("a list");
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok()).expect("a number");
    let (rounds, versions, events) = (list("rounds"), list("versions"), list("events"));
    let mut phase = Phase::New;
    let mut drafts = Vec::new();
    for (at, event) in events.iter().enumerate() {
        let kind = Event::parse(event).expect("an event").kind();
        phase = phase.after(kind).unwrap_or_else(|code| panic!("SEED={seed}: {kind} at {at}: {code}"));
        if matches!(kind, EventKind::Propose | EventKind::Counter) {
            drafts.push(at);
        }
    }
    let cause = play.board.ended().map(|ended| ended.cause);
    // Calls exceed their timeout in the hasty world, so no worker may be left that could end the negotiation.
    let is_left = play.world == World::Hasty && cause == Some(Cause::GaveUp);
    assert!(is_left || (phase, cause) == (Phase::Ended, Some(Cause::Done)), "SEED={seed}: {phase:?}, {cause:?}");
    let ended = events.iter().filter(|event| event["kind"] == "decide" || event["kind"] == "abort").count();
    assert_eq!(ended, usize::from(phase == Phase::Ended), "SEED={seed}");
    for (place, round) in rounds.iter().enumerate() {
        assert_eq!(number(&round["n"]), place + 1, "SEED={seed}: {rounds:?}");
        let began = |round: &Value| round["started_at"].as_i64().expect("a time");
        assert!(place == 0 || began(&rounds[place - 1]) <= began(round), "SEED={seed}: {rounds:?}");
    }
    let mut judged: Vec<usize> = Vec::new();
    for (place, version) in versions.iter().enumerate() {
        assert_eq!(number(&version["n"]), place + 1, "SEED={seed}: {versions:?}");
        let event = &events[number(&version["event"])];
        assert_eq!(
            (&version["from"], &version["from"]),
            (&event["from"], &rounds[place]["turn"]),
            "SEED={seed}: version {} is nobody's",
            place + 1
        );
        assert!(version["content"]["price"].is_u64(), "SEED={seed}: an invalid draft is a version: {version}");
        judged.push(number(&version["event"]));
    }
    judged.extend(list("refused").iter().map(|refused| number(&refused["event"])));
    judged.sort_unstable();
    assert!(rounds.len() <= versions.len() + 1, "SEED={seed}: a round has no version, and is not the last");
    if is_left {
        return;
    }
    assert_eq!(judged, drafts, "SEED={seed}: not every draft counts once, or is refused once");
    let decision = list("reports").last().expect("a decision is reported");
    assert_eq!(decision["kind"], "decision", "SEED={seed}");
    // Every round has one decision report: a continued round says so, and the last one names its reason.
    let outcomes: Vec<&Value> = list("reports").iter().filter(|report| report["kind"] == "decision").collect();
    assert_eq!(outcomes.len(), rounds.len(), "SEED={seed}: {outcomes:?}");
    for (place, outcome) in outcomes.iter().enumerate() {
        let goes_on = outcome["outcome"] == "continue";
        assert_eq!(
            (number(&outcome["round"]), goes_on),
            (place + 1, place + 1 < rounds.len()),
            "SEED={seed}: {outcome}"
        );
        assert_eq!(outcome["stop_reason"].is_null(), goes_on, "SEED={seed}: {outcome}");
    }
    // A round is reported once every evaluator was heard. It does not time out if all evaluations arrived in time.
    let heard = |round: usize| {
        let since = versions.get(round).map_or(events.len(), |version| number(&version["event"]));
        let end = rounds.get(round + 1).map_or(events.len(), |next| number(&next["since"]));
        let evaluates = |event: &&Value| event["kind"] == "evaluate";
        events.get(since..end).unwrap_or_default().iter().filter(evaluates).count()
    };
    for report in list("reports").iter().filter(|report| report["kind"] == "evaluation") {
        let evaluations = report["evaluations"].as_array().map(Vec::len);
        assert_eq!(evaluations, Some(EVALUATORS.len()), "SEED={seed}: {report}");
        assert_eq!(heard(number(&report["round"]) - 1), EVALUATORS.len(), "SEED={seed}: {report}");
    }
    let is_heard = heard(rounds.len() - 1) == EVALUATORS.len();
    let is_late = matches!(decision["stop_reason"].as_str(), Some("timeout" | "invalid_drafts"));
    assert_ne!(is_heard, is_late, "SEED={seed}: the last round is judged without what was said in it: {decision}");
    let last = events.last().expect("it is over");
    if last["kind"] == "decide" {
        let taken = versions.last().expect("a version is taken");
        assert_eq!((&decision["round"], &decision["outcome"]), (&taken["n"], &json!("accepted")), "SEED={seed}");
        let draft = &events[number(&taken["event"])];
        assert_eq!(decoded(&last["result_b64"]), taken["content"], "SEED={seed}");
        if let Some(bytes) = draft.get("payload_b64") {
            assert_eq!(last["result_b64"], *bytes, "SEED={seed}: the bytes are others than those that came");
        }
    } else {
        assert_eq!(
            (&last["reason"], &json!("aborted")),
            (&decision["stop_reason"], &decision["outcome"]),
            "SEED={seed}"
        );
    }
}

#[test]
fn a_negotiation_ends_as_its_rounds_say_whatever_dies() {
    let mut played = Played::default();
    let blueprint = blueprint(&shipped("negotiation.yaml", &CHANGES));
    let seen: RefCell<BTreeMap<String, u64>> = RefCell::default();
    // These cover all kinds of ends.
    let drawn = (8..8 + cases(8).min(40)).map(|seed| drawn(&mut Random::new(seed)));
    for (place, course) in [rising(), oscillating(), asking()].into_iter().chain(drawn).enumerate() {
        let course = Rc::new(course);
        let expected = course.expected();
        let kept = |play: &Play<'_>| {
            holds(play);
            let outcome = outcome(play);
            if play.world != World::Hasty {
                assert_eq!(outcome, expected, "the course {place}, SEED={}: {course:?}", play.seed);
            }
            let reason = outcome[2].as_str().unwrap_or("none").to_owned();
            *seen.borrow_mut().entry(reason).or_default() += 1;
        };
        played.add(in_all_worlds(&protocol(&course, &blueprint), 2, outcome, kept));
    }
    let seen = seen.into_inner();
    played.is_enough(played.boards / 2);
    for reason in ["threshold_met", "hitl", "oscillation", "no_progress", "max_rounds", "invalid_drafts", "timeout"] {
        assert!(seen.contains_key(reason), "no negotiation ever ended by {reason}: {seen:?}");
    }
    let ends = [
        (rising(), "decide", "threshold_met", 4),
        (oscillating(), "abort", "oscillation", 5),
        (asking(), "decide", "hitl", 2),
    ];
    for (course, kind, reason, versions) in ends {
        let expected = course.expected();
        let drafts = expected[4].as_array().map(Vec::len);
        assert_eq!((&expected[0], &expected[2], drafts), (&json!(kind), &json!(reason), Some(versions)));
    }
    say(&format!("simulated negotiations, {played:?}: {seen:?}"));
}
