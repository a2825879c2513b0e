//! Tests of the shipped blackboard with scripted agents: trigger order, termination, and the privacy of rooms
//! regardless of their messages and creators.

use std::collections::{BTreeMap, BTreeSet};

use crate::played::Played;
use patchboard_kernel::board::Outcome;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Body, Cause, End, Kind, Scheduled};
use patchboard_kernel::reply_schema::ReplySchema;
use patchboard_lint::source::Source;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Agents, in trigger order.
const GROUP: [&str; 8] =
    ["planner", "expert_1", "expert_2", "expert_3", "critic", "conflict_resolver", "cleaner", "decider"];

fn members() -> Value {
    let text = include_str!("../../../../blueprints/blackboard.yaml");
    Source::read("blackboard.yaml", text).expect("it can be read").value().clone()
}

fn board(request: Value) -> Played {
    board_of(request, members())
}

fn board_of(mut request: Value, members: Value) -> Played {
    request["question"] = "How many are there?".into();
    Played::asked(request, members)
}

fn message(from: &str, text: &str) -> Value {
    json!([{"op": "add", "path": "/board/public/-", "value": {"from": from, "kind": "statement", "text": text}}])
}

fn pass() -> Value {
    json!({"pass": "waiting for more information"})
}

/// Returns the replies of workers outside the group: two generated experts, control in each round, and the first
/// answer.
fn of_the_cycle(worker: &str, played: &Played) -> Option<Value> {
    let state = played.board.state().root().to_value();
    let expert = |number: u32| {
        let value = json!({"role": "one who counts", "description": "Counts."});
        json!({"op": "add", "path": format!("/experts/expert_{number}"), "value": value})
    };
    let rounds = state["rounds"].as_array().map_or(0, Vec::len);
    Some(match worker {
        "generator" => json!([expert(1), expert(2)]),
        "opener" => json!([{"op": "add", "path": "/rounds/-", "value": {}}]),
        "control" => json!([{"op": "add", "path": format!("/rounds/{}/agents", rounds - 1), "value": GROUP}]),
        "teller" => json!([{"op": "add", "path": "/ballot", "value": {}}]),
        "vote" => match state["answers"][0]["text"].as_str() {
            Some(text) => json!([{"op": "add", "path": "/answer", "value": {"text": text, "by": "vote"}}]),
            None => pass(),
        },
        _ => return None,
    })
}

/// Returns the worker of the newest call and what scheduled it.
fn next(played: &Played) -> Option<(String, Scheduled)> {
    let (invocation, _, worker) = played.calls.first()?;
    let scheduled = |body| match body {
        Body::Scheduled(scheduled) if scheduled.invocation == *invocation => Some(scheduled),
        _ => None,
    };
    Some((worker.clone(), played.bodies().find_map(scheduled).expect("it was scheduled")))
}

fn rule(scheduled: &Scheduled) -> &str {
    scheduled.rule.as_ref().expect("a rule").as_str()
}

/// Plays the board to its end; `say` provides the agents' replies, given their name and the rule that triggered them.
fn play(played: &mut Played, mut say: impl FnMut(&str, &Scheduled, &Played) -> Value) -> (End, Cause) {
    while let Some((worker, scheduled)) = next(played) {
        let reply = of_the_cycle(&worker, played).unwrap_or_else(|| say(&worker, &scheduled, played));
        played.answer(reply, None);
    }
    played.holds();
    ended(played)
}

fn ended(played: &Played) -> (End, Cause) {
    let end = |body| if let Body::Ended(ended) = body { Some((ended.end, ended.cause)) } else { None };
    played.bodies().filter_map(end).last().expect("it ended")
}

/// Returns the workers that a rule triggered, in order.
fn woken(played: &Played, by: &str) -> Vec<String> {
    let by_rule = |body| match body {
        Body::Scheduled(scheduled) if rule(&scheduled) == by => Some(scheduled.worker.to_string()),
        _ => None,
    };
    played.bodies().filter_map(by_rule).collect()
}

fn answers(worker: &str, scheduled: &Scheduled) -> Option<Value> {
    let answer = json!([{"op": "add", "path": "/answers/-", "value": {"from": worker, "text": "7"}}]);
    (rule(scheduled) == "asked").then_some(answer)
}

/// Returns the group without the expert that was not generated.
fn there() -> Vec<&'static str> {
    GROUP.into_iter().filter(|name| *name != "expert_3").collect()
}

#[test]
fn after_the_last_round_everybody_who_is_there_is_asked_and_the_vote_ends_it() {
    for rounds in [1, 2, 4] {
        let request = if rounds == 4 { json!({}) } else { json!({"rounds": rounds}) };
        let mut played = board(request);
        let end = play(&mut played, |worker, scheduled, _| answers(worker, scheduled).unwrap_or_else(pass));
        assert_eq!(end, (End::Done, Cause::Done));
        assert_eq!(woken(&played, "next").len(), rounds);
        assert_eq!(woken(&played, "select").len(), rounds);
        let turns: Vec<&str> = (0..rounds).flat_map(|_| there()).collect();
        assert_eq!(woken(&played, "turn"), turns, "in the order in which they were chosen, without who is not there");
        assert_eq!(woken(&played, "asked"), there());
        assert_eq!(woken(&played, "count"), ["vote"]);
        // The breaker does not count waiting.
        assert_eq!(played.count(Kind::Breaker), 0);
    }
}

#[test]
fn without_control_everybody_is_woken_and_a_cleaner_that_is_off_never_is() {
    let mut played = board(json!({"control": false, "rounds": 2, "cleaner": "off"}));
    play(&mut played, |worker, scheduled, _| answers(worker, scheduled).unwrap_or_else(pass));
    let without: Vec<&str> = there().into_iter().filter(|name| *name != "cleaner").collect();
    assert_eq!(woken(&played, "everyone"), [without.clone(), without.clone()].concat());
    assert_eq!(woken(&played, "asked"), without);
    assert_eq!((woken(&played, "select").len(), woken(&played, "turn").len()), (0, 0));
}

#[test]
fn each_is_shown_what_those_before_it_have_written() {
    let mut played = board(json!({"rounds": 1}));
    play(&mut played, |worker, scheduled, _| {
        answers(worker, scheduled).unwrap_or_else(|| message(worker, &format!("word of {worker}")))
    });
    let views: Vec<_> = played.prompts.iter().filter(|(worker, ..)| GROUP.contains(&worker.as_str())).collect();
    let there = there();
    for (nth, (worker, prompt, _)) in views.iter().take(there.len()).enumerate() {
        assert_eq!(worker, there[nth]);
        for (other, name) in there.iter().enumerate() {
            let is_shown = prompt.user.contains(&format!("word of {name}"));
            assert_eq!(is_shown, other < nth, "{worker} of {name}: {}", prompt.user);
        }
    }
    // At the vote, no worker is shown the others' answers; all see the discussion.
    for (worker, prompt, _) in &views[there.len()..] {
        assert!(!prompt.user.contains("/answers"), "{worker}: {}", prompt.user);
        assert!(there.iter().all(|name| prompt.user.contains(&format!("word of {name}"))), "{worker}");
    }
}

#[test]
fn workers_chosen_after_the_resolver_run_after_the_room() {
    let mut played = board(json!({"rounds": 1}));
    let chosen = ["planner", "critic", "conflict_resolver", "cleaner", "decider"];
    let mut turns = Vec::new();
    while let Some((worker, scheduled)) = next(&played) {
        let (_, prompt, _) = played.prompts.last().expect("a call");
        let is_concluded = prompt.user.contains("we have talked");
        let path = json!(scheduled.trigger)["path"].as_str().unwrap_or_default().to_owned();
        let reply = match (worker.as_str(), rule(&scheduled)) {
            ("control", _) => json!([{"op": "add", "path": "/rounds/0/agents", "value": chosen}]),
            (_, "room") if act_at(&played, &path) == "discuss" => pass(),
            (_, "room") => message(&worker, "we have talked"),
            ("conflict_resolver", "turn") => Act::Open(vec!["planner", "critic"]).reply(&worker, &BTreeMap::new()),
            ("decider", "turn") => {
                assert!(is_concluded, "{}", prompt.user);
                json!([{"op": "add", "path": "/answer", "value": {"text": "7", "by": "decider"}}])
            }
            (_, "turn") => message(&worker, "well"),
            _ => of_the_cycle(&worker, &played).expect("of the cycle"),
        };
        turns.extend(["turn", "room"].contains(&rule(&scheduled)).then(|| format!("{worker} {}", rule(&scheduled))));
        let outcome = played.answer(reply, None);
        assert!(matches!(outcome, Outcome::Committed { .. } | Outcome::NoOp { .. }), "{worker}: {outcome:?}");
    }
    played.holds();
    assert_eq!(ended(&played), (End::Done, Cause::Done));
    let room = ["planner room", "critic room"].repeat(2);
    let expected =
        [&["planner turn", "critic turn", "conflict_resolver turn"][..], &room, &["cleaner turn", "decider turn"]];
    assert_eq!(turns, expected.concat());
}

#[test]
fn the_ballot_opens_despite_failures_and_a_board_without_answers_ends() {
    // No reply can be parsed, not even that of the control unit.
    let mut played = board(json!({"rounds": 3}));
    while let Some((worker, scheduled)) = next(&played) {
        let is_mute = matches!(worker.as_str(), "control" | "generator") || rule(&scheduled) == "asked";
        let reply = of_the_cycle(&worker, &played).filter(|_| !is_mute);
        match reply {
            Some(reply) => played.answer(reply, None),
            None => played.says("I do not know"),
        };
    }
    played.holds();
    assert_eq!(woken(&played, "next").len(), 3, "each failure costs a round and no more");
    assert_eq!(woken(&played, "turn").len(), 0);
    let constant: Vec<&str> = GROUP.into_iter().filter(|name| !name.starts_with("expert_")).collect();
    assert_eq!(woken(&played, "asked"), constant, "no expert was made");
    assert_eq!(played.board.state().root().to_value().get("answer"), None);
    let (end, _) = ended(&played);
    assert!(matches!(end, End::Quiescent | End::Stopped), "{end:?}");
}

#[test]
fn a_board_without_tokens_left_is_stopped() {
    let mut members = members();
    members["limits"]["tokens"] = json!(20_000);
    let mut played = board_of(json!({}), members);
    while let Some((worker, scheduled)) = next(&played) {
        let reply = of_the_cycle(&worker, &played);
        let reply = reply.or_else(|| answers(&worker, &scheduled)).unwrap_or_else(|| message(&worker, "well"));
        let usage = Usage { prompt: 900, completion: 100, ..Usage::default() };
        played.answer(reply, Some(usage));
    }
    played.holds();
    assert_eq!(ended(&played), (End::Stopped, Cause::Exhausted));
    assert!(played.count(Kind::Budget) > 0);
    assert_eq!(woken(&played, "next").len(), 4, "the rounds pass, and nobody is called any more");
}

#[test]
fn each_agent_can_have_a_model_of_its_own() {
    let drawn = |seed: u64| {
        let mut members = members();
        members["models"]["crowd"] = json!(["small", "large"]);
        members["seed"] = json!(seed);
        let played = board_of(json!({}), members);
        let Some(Body::Created(created)) = played.bodies().next() else { panic!("the first creates") };
        created.drawn
    };
    let all = drawn(1);
    assert_eq!(all.keys().map(|worker| worker.as_str()).collect::<BTreeSet<_>>(), BTreeSet::from(GROUP));
    assert_eq!(all.values().collect::<BTreeSet<_>>().len(), 2, "{all:?}");
    assert_eq!(all, drawn(1));
    assert_ne!(all, drawn(2));
}

#[test]
fn messages_in_a_foreign_name_or_room_are_rejected() {
    let mut played = board(json!({"cleaner": "mark"}));
    for (worker, reply) in [
        ("critic", message("planner", "It is 9.")),
        ("cleaner", json!([{"op": "add", "path": "/answers/-", "value": {"from": "critic", "text": "9"}}])),
        ("critic", json!([{"op": "add", "path": "/answer", "value": {"text": "9", "by": "vote"}}])),
        ("decider", json!([{"op": "add", "path": "/answer", "value": {"text": "9", "by": "vote"}}])),
        ("critic", json!([{"op": "remove", "path": "/board/public/0"}])),
    ] {
        let refused = played.rejection(worker, reply.clone());
        assert_eq!(refused.stage.to_string(), "authorization", "{reply}: {refused:?}");
    }
    let room = json!([{"op": "add", "path": "/board/rooms/r", "value": {"members": ["critic", "planner"], "about": [],
        "agenda": [], "messages": []}}]);
    assert!(matches!(played.direct("conflict_resolver", &room.to_string()), Outcome::Committed { .. }));
    let said = |from: &str| json!([{"op": "add", "path": "/board/rooms/r/messages/-", "value": {"from": from, "text": "psst"}}]);
    assert_eq!(played.rejection("decider", said("decider")).stage.to_string(), "invariant");
    assert!(matches!(played.direct("critic", &said("critic").to_string()), Outcome::Committed { .. }));
    // If messages are marked, they cannot be removed.
    assert!(matches!(played.direct("planner", &message("planner", "so").to_string()), Outcome::Committed { .. }));
    let removed = json!([{"op": "remove", "path": "/board/public/0"}]);
    assert_eq!(played.rejection("cleaner", removed).stage.to_string(), "invariant");
}

#[test]
fn a_room_that_is_there_is_neither_replaced_nor_cut_nor_taken_away() {
    let mut played = board(json!({}));
    let turn = |act: &str| json!({"who": "critic", "act": act});
    let room = |messages: Value| {
        json!({"members": ["critic", "planner"], "about": [], "agenda": [turn("discuss"), turn("conclude")],
               "messages": messages})
    };
    let add = |path: &str, value: Value| json!([{"op": "add", "path": path, "value": value}]);
    let said = |text: &str| json!({"from": "critic", "text": text});
    for (worker, patch) in [
        ("conflict_resolver", add("/board/rooms/r", room(json!([])))),
        ("critic", add("/board/rooms/r/messages/-", said("psst"))),
        ("conflict_resolver", add("/board/rooms/a~1b", room(json!([])))),
    ] {
        let outcome = played.direct(worker, &patch.to_string());
        assert!(matches!(outcome, Outcome::Committed { .. }), "{patch}: {outcome:?}");
    }
    let kept = played.board.state().root().to_value();
    for patch in [
        // An `add` to an existing name would replace the old value.
        add("/board/rooms/r", room(json!([]))),
        add("/board/rooms/a~1b", room(json!([said("mine")]))),
        json!([
            {"op": "add", "path": "/board/rooms/s", "value": room(json!([]))},
            {"op": "add", "path": "/board/rooms/r", "value": room(json!([]))},
        ]),
        json!([
            {"op": "add", "path": "/board/rooms/s", "value": room(json!([]))},
            {"op": "add", "path": "/board/rooms/s", "value": room(json!([said("mine")]))},
        ]),
        json!([{"op": "replace", "path": "/board/rooms/r", "value": room(json!([]))}]),
        json!([{"op": "remove", "path": "/board/rooms/r"}]),
        json!([{"op": "move", "from": "/board/rooms/r", "path": "/board/rooms/s"}]),
        add("/board/rooms", json!({})),
        add("/board/rooms/r/messages", json!([])),
        add("/board/rooms/r/agenda", json!([])),
        add("/board/rooms/r/agenda/-", turn("discuss")),
        add("/board/rooms/r/members/-", json!("decider")),
        add("/board/rooms/r/messages/0", said("before")),
        json!([{"op": "remove", "path": "/board/rooms/r/messages/0"}]),
        json!([{"op": "replace", "path": "/board/rooms/r/messages/0", "value": said("other")}]),
    ] {
        for worker in ["conflict_resolver", "critic", "cleaner"] {
            let refused = played.rejection(worker, patch.clone());
            assert_eq!(refused.stage.to_string(), "authorization", "{worker}: {patch}: {refused:?}");
        }
    }
    assert_eq!(played.board.state().root().to_value(), kept);
}

#[test]
fn of_more_than_a_view_holds_the_newest_messages_are_shown_whole() {
    let mut played = board(json!({}));
    let text = |number: usize| format!("<{number}> {}", "word ".repeat(240));
    let (messages, held) = (100, 30);
    for number in 0..messages {
        let said = message("critic", text(number).trim_end());
        assert!(matches!(played.direct("critic", &said.to_string()), Outcome::Committed { .. }));
        for worker in ["control", "decider", "expert_1"] {
            if number + 1 != held && number + 1 != messages {
                continue;
            }
            let view = played.board.preview(&played.seat(worker)).text;
            let is_whole = |number: &usize| view.contains(text(*number).trim_end());
            let whole: Vec<usize> = (0..messages).filter(is_whole).collect();
            let first = (number + 1).saturating_sub(whole.len());
            assert_eq!(whole, (first..=number).collect::<Vec<_>>(), "{worker} is shown the newest");
            match first {
                0 => assert_eq!(whole.len(), held, "{worker}: all of it"),
                _ => assert!(whole.len() > held - 5, "{worker}: {whole:?}"),
            }
            // The view states the number of messages.
            let line = format!("/board/public: {messages} elements");
            assert_eq!(view.contains(&line), first > 0, "{worker}: {}", &view[..200]);
        }
    }
}

/// Action of an agent when it is called.
#[derive(Clone, Debug)]
enum Act {
    Speak,
    Pass,
    /// Attempt to create a room with these members; only the resolver may.
    Open(Vec<&'static str>),
    /// Tests a value in a room, given by its number.
    Test(usize),
    Copy(usize),
    Intrude(usize),
    Expand(usize),
}

/// No name is part of another word.
const ROOMS: [&str; 6] = ["quelm", "vostak", "yrriph", "zundov", "brakht", "fnorp"];

impl Act {
    fn reply(&self, worker: &str, rooms: &BTreeMap<&'static str, Vec<&'static str>>) -> Value {
        let free = ROOMS.iter().find(|name| !rooms.contains_key(*name));
        let place = |number: &usize| format!("/board/rooms/{}/messages", ROOMS[*number]);
        let said = json!({"from": worker, "text": "I come in"});
        match (self, free) {
            (Self::Open(members), Some(name)) if members.len() > 1 => {
                let about: Vec<Value> =
                    members.iter().map(|from| json!({"from": from, "text": secret(name, 0)})).collect();
                let turns = |act: &'static str| members.iter().map(move |member| json!({"who": member, "act": act}));
                let agenda: Vec<Value> = turns("discuss").chain(turns("conclude")).collect();
                let room = json!({"members": members, "about": about, "agenda": agenda, "messages": []});
                json!([{"op": "add", "path": format!("/board/rooms/{name}"), "value": room}])
            }
            (Self::Test(room), _) => {
                json!([{"op": "test", "path": format!("{}/0/from", place(room)), "value": "critic"}])
            }
            (Self::Copy(room), _) => {
                json!([{"op": "copy", "from": format!("{}/0", place(room)), "path": "/answers/-"}])
            }
            (Self::Intrude(room), _) => json!([{"op": "add", "path": format!("{}/-", place(room)), "value": said}]),
            (Self::Expand(room), _) => json!({"patch": [], "expand": [place(room)]}),
            (Self::Pass | Self::Open(_), _) => pass(),
            (Self::Speak, _) => message(worker, "something that all may know"),
        }
    }
}

/// Returns a text that occurs only in this room.
fn secret(room: &str, number: usize) -> String {
    format!("<{}> {number}", room.to_uppercase())
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let members = prop::sample::subsequence(&GROUP[..], 2..=4);
    let room = 0..ROOMS.len();
    let act = prop_oneof![
        2 => Just(Act::Speak),
        1 => Just(Act::Pass),
        4 => members.prop_map(Act::Open),
        1 => room.clone().prop_map(Act::Test),
        1 => room.clone().prop_map(Act::Copy),
        1 => room.clone().prop_map(Act::Intrude),
        1 => room.prop_map(Act::Expand),
    ];
    prop::collection::vec(act, 1..24)
}

/// Checks that a text reveals no room that the worker cannot read; `own` holds the rooms that it has named itself.
fn is_silent(
    worker: &str,
    text: &str,
    rooms: &BTreeMap<&'static str, Vec<&'static str>>,
    own: &BTreeSet<(String, &'static str)>,
) -> usize {
    let closed = rooms.iter().filter(|(_, members)| !members.contains(&worker));
    let is_named =
        |(room, _): &(&&'static str, _)| !own.contains(&(worker.to_owned(), **room)) && text.contains(**room);
    for room in closed.clone() {
        assert!(
            !text.contains(&format!("<{}>", room.0.to_uppercase())),
            "{worker} is told what is in {}: {text}",
            room.0
        );
        assert!(!is_named(&room), "{worker} is told that there is {}: {text}", room.0);
    }
    closed.count()
}

/// Returns the action that an agenda entry asks for.
fn act_at(played: &Played, path: &str) -> String {
    let state = played.board.state().root().to_value();
    state.pointer(&format!("{path}/act")).and_then(Value::as_str).expect("an act").to_owned()
}

#[test]
fn rooms_of_random_members_are_reported_to_members_only() {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let counted = std::cell::RefCell::new((0, 0, BTreeMap::<String, usize>::new()));
    let situations = (acts(), prop::sample::select(&[600_u32, 2000, 24_000][..]), prop::bool::ANY);
    let outcome = runner.run(&situations, |(acts, budget, has_control)| {
        let mut members = members();
        for worker in GROUP {
            members["workers"][worker]["view"]["budget"] = budget.into();
        }
        let mut played = board_of(json!({"control": has_control, "rounds": 2}), members);
        let (mut rooms, mut own) = (BTreeMap::new(), BTreeSet::new());
        let mut acts = acts.iter().cycle();
        let (mut steps, mut secrets, mut hidden, mut shown) = (0, 0, 0, 0);
        while let Some((worker, scheduled)) = next(&played) {
            for (agent, prompt, given) in std::mem::take(&mut played.prompts) {
                let form = ReplySchema::for_call(&given).expect("a form").schema.to_string();
                let places = given.basis().reads.iter().chain(&given.basis().members);
                let places = places.map(ToString::to_string).collect::<Vec<_>>().join("\n");
                for text in [&prompt.system, &prompt.user, &form, &places] {
                    hidden += is_silent(&agent, text, &rooms, &own);
                }
                shown += rooms.keys().filter(|room| prompt.user.contains(&secret(room, 0))).count();
            }
            let path = json!(scheduled.trigger)["path"].as_str().unwrap_or_default().to_owned();
            let reply = match (of_the_cycle(&worker, &played), rule(&scheduled)) {
                (Some(reply), _) => reply,
                (None, "asked") => answers(&worker, &scheduled).expect("an answer"),
                // Members talk in the room, and publish a conclusion that every worker may read.
                (None, "room") if act_at(&played, &path) == "discuss" => {
                    secrets += 1;
                    let room = path.split('/').nth(3).expect("a room");
                    let said = json!({"from": worker, "text": secret(room, secrets)});
                    json!([{"op": "add", "path": format!("/board/rooms/{room}/messages/-"), "value": said}])
                }
                (None, "room") => message(&worker, "we have talked"),
                (None, _) => acts.next().expect("one more").reply(&worker, &rooms),
            };
            let text = reply.to_string();
            own.extend(ROOMS.iter().filter(|room| text.contains(**room)).map(|room| (worker.clone(), *room)));
            let outcome = played.answer(reply.clone(), None);
            if let Outcome::Rejected { rejection, .. } | Outcome::RejectedUnrecorded(rejection) = &outcome {
                let rejected = json!(rejection).to_string();
                hidden += is_silent(&worker, &rejected, &rooms, &own);
                *counted.borrow_mut().2.entry(rejection.code.to_string()).or_default() += 1;
            }
            if let (Outcome::Committed { .. }, Some(room)) = (&outcome, reply[0]["value"]["members"].as_array()) {
                let name = ROOMS.iter().find(|name| text.contains(**name)).expect("its name");
                let of = |name: &Value| GROUP.into_iter().find(|agent| name == agent).expect("an agent");
                rooms.insert(*name, room.iter().map(of).collect());
            }
            steps += 1;
            let others = ["control", "generator", "vote", "opener", "teller"];
            for worker in GROUP.into_iter().chain(others).filter(|_| steps % 5 == 0) {
                let view = played.board.preview(&played.seat(worker));
                hidden += is_silent(worker, &view.text, &rooms, &own);
            }
        }
        played.holds();
        let mut all = counted.borrow_mut();
        (all.0, all.1) = (all.0 + shown, all.1 + hidden);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    let (shown, hidden, refused) = counted.into_inner();
    assert!(shown > 10 && hidden > 300, "{shown} shown, {hidden} hidden");
    assert!(refused.contains_key("path_not_granted"), "{refused:?}");
}
