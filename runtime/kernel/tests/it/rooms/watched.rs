//! Plays random actions on a board with rooms, and checks every view and rejection for leaks.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::board::{Input, Outcome};
use patchboard_kernel::rejection::Code;
use patchboard_kernel::reply_schema::ReplySchema;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::played::Played;

/// Names of rooms; none is part of another word.
const ROOMS: [&str; 5] = ["quelm", "vostak", "yrriph", "zundov", "brakht"];
const AGENTS: [&str; 4] = ["ann", "bob", "cid", "dot"];

/// Returns a board with agents that write in public and in rooms, and a keeper that reads everything.
pub(crate) fn house(freshness: &str, budget: u32, rooms: &Value) -> Value {
    let text = json!({"type": "string", "maxLength": 40});
    let room = json!({"type": "object", "required": ["members", "messages"], "additionalProperties": false, "properties": {
        "members": {"type": "array", "items": {"type": "string"}, "maxItems": 4},
        "messages": {"type": "array", "items": text, "maxItems": 9}}});
    let agent = json!({"agent": "llm", "freshness": freshness, "view": {"budget": budget}, "limits": {"attempts": 9, "timeout": "1h"},
    "reads": ["/request", "/board/public", {"path": "/board/rooms/*", "where": "worker in self.members"}],
    "writes": [
        {"path": "/board/public/-", "ops": ["add", "copy", "move"]},
        {"path": "/board/rooms/*", "ops": ["add", "remove"]},
        {"path": "/board/rooms/*/messages/-", "ops": ["add"]},
        {"path": "/board/rooms/*/messages/*", "ops": ["replace", "remove"]},
    ]});
    let keeper = json!({"agent": "remote", "reads": ["/board"], "patch": {"max_ops": 20}, "writes": [
        {"path": "/board/rooms/*", "ops": ["add", "replace", "remove"]},
        {"path": "/board/rooms/*/messages/-", "ops": ["add"]},
        {"path": "/board/rooms/*/members", "ops": ["replace"]},
    ]});
    let mut workers = BTreeMap::from([("keeper", keeper)]);
    workers.extend(AGENTS.map(|name| (name, agent.clone())));
    let mut rules: Vec<Value> =
        AGENTS.map(|name| json!({"name": name, "trigger": {"signal": name}, "run": name})).to_vec();
    // The rule triggers an agent that is rarely a member.
    let path = "/board/rooms/*/messages/*";
    rules.push(json!({"name": "heard", "trigger": {"op": "add", "path": path}, "run": "dot"}));
    json!({
        "state": {
            "schema": {"type": "object", "properties": {"board": {"type": "object", "properties": {
                "public": {"type": "array", "items": text}, "rooms": {"type": "object", "additionalProperties": room}}}}},
            "initial": {"board": {"public": [], "rooms": rooms}},
        },
        "workers": workers,
        "rules": rules,
        "invariants": [
            {"name": "few", "for": "/board/rooms/*", "expr": "size(self.members) < 4 && size(state.board.public) < 12"},
        ],
        "concurrency": 9,
        "circuit": {"rejections": {"limit": 1000, "then": "stop_branch"}, "no_ops": {"limit": 1000, "then": "stop_branch"}},
        "limits": {"commits": 10_000, "tokens": 1_000_000_000, "wall": "10h"},
    })
}

/// Returns the marker of a room's content.
fn marker(room: &str) -> String {
    format!("<{}>", room.to_uppercase())
}

/// Returns the members of a room.
fn members(state: &Value, room: &str) -> Vec<String> {
    let members = state.pointer(&format!("/board/rooms/{room}/members")).and_then(Value::as_array);
    members.into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
}

/// Board on which every view and rejection is checked.
pub(crate) struct Watched {
    pub(crate) played: Played,
    /// Names of rooms that an agent has written itself.
    said: BTreeMap<String, BTreeSet<String>>,
    messages: usize,
    is_roomy: bool,
    /// Number of views that showed a room, and that hid one.
    pub(crate) shown: usize,
    pub(crate) hidden: usize,
}

impl Watched {
    pub(crate) fn new(freshness: &str, budget: u32) -> Self {
        let played = Played::asked(json!({"question": "?"}), house(freshness, budget, &json!({})));
        let is_roomy = budget > 5000;
        Self { played, said: BTreeMap::new(), messages: 0, is_roomy, shown: 0, hidden: 0 }
    }

    fn document(&self) -> Value {
        self.played.board.state().root().to_value()
    }

    /// Checks that a text reveals no room that the agent cannot read in the document.
    fn is_silent(&mut self, agent: &str, document: &Value, text: &str, may_say_own: bool) {
        for room in ROOMS {
            let is_member = members(document, room).iter().any(|name| name == agent);
            if is_member {
                continue;
            }
            self.hidden += usize::from(!members(document, room).is_empty());
            assert!(!text.contains(&marker(room)), "{agent} is told what is in {room}: {text}");
            let is_own = may_say_own && self.said.get(agent).is_some_and(|said| said.contains(room));
            assert!(is_own || !text.contains(room), "{agent} is told that there is {room}: {text}");
        }
    }

    /// Checks the views of all new calls.
    fn look(&mut self) {
        for (agent, prompt, shown) in std::mem::take(&mut self.played.prompts) {
            let document = shown.basis().state.root().to_value();
            self.is_silent(&agent, &document, &prompt.system, false);
            let (seen, refused) = parts(&prompt.user);
            self.is_silent(&agent, &document, &seen, false);
            self.is_silent(&agent, &document, &refused, true);
            for place in shown.basis().reads.iter().chain(&shown.basis().members) {
                self.is_silent(&agent, &document, place.as_str(), false);
            }
            for (_, value) in shown.values() {
                self.is_silent(&agent, &document, &value.to_value().to_string(), false);
            }
            let form = ReplySchema::for_call(&shown).expect("a form").schema.to_string();
            self.is_silent(&agent, &document, &form, false);
            let own = ROOMS.iter().filter(|room| members(&document, room).contains(&agent));
            for room in own.filter(|_| self.is_roomy) {
                assert!(seen.contains(room), "{agent} is a member of {room}: {seen}");
                let messages = document.pointer(&format!("/board/rooms/{room}/messages"));
                for message in messages.and_then(Value::as_array).into_iter().flatten() {
                    assert!(seen.contains(message.as_str().expect("a text")), "{agent} misses {message}: {seen}");
                    self.shown += 1;
                }
            }
        }
    }

    fn keep(&mut self, patch: Value) {
        let outcome = self.played.direct("keeper", &patch.to_string());
        // Places are reserved for a moment for agents with stale proposals.
        let is_late = matches!(&outcome, Outcome::Rejected { rejection, .. } if rejection.code == Code::Reserved);
        assert!(is_late || matches!(outcome, Outcome::Committed { .. } | Outcome::NoOp { .. }), "{patch}: {outcome:?}");
        self.look();
    }

    /// Checks the outcome that an agent receives for its proposal.
    fn hear(&mut self, agent: &str, document: &Value, outcome: &Outcome) {
        if let Outcome::Rejected { rejection, .. } | Outcome::RejectedUnrecorded(rejection) = outcome {
            self.is_silent(agent, document, &json!(rejection).to_string(), true);
        }
        self.look();
    }

    fn note(&mut self, agent: &str, reply: &Value) {
        let text = reply.to_string();
        let named = ROOMS.iter().filter(|room| text.contains(**room)).map(|room| (*room).to_owned());
        self.said.entry(agent.to_owned()).or_default().extend(named);
    }

    pub(crate) fn act(&mut self, act: &Act) {
        let document = self.document();
        let is_there = |room: &str| document.pointer(&format!("/board/rooms/{room}")).is_some();
        match act {
            Act::Open { room, members } => {
                let room = ROOMS[*room];
                let members: Vec<&str> =
                    AGENTS.iter().enumerate().filter(|(n, _)| members >> n & 1 == 1).map(|(_, a)| *a).collect();
                let members = &members[..members.len().min(3)];
                if is_there(room) {
                    self.keep(
                        json!([{"op": "replace", "path": format!("/board/rooms/{room}/members"), "value": members}]),
                    );
                } else {
                    let value = json!({"members": members, "messages": [marker(room)]});
                    self.keep(json!([{"op": "add", "path": format!("/board/rooms/{room}"), "value": value}]));
                }
            }
            Act::Close { room } if is_there(ROOMS[*room]) => {
                self.keep(json!([{"op": "remove", "path": format!("/board/rooms/{}", ROOMS[*room])}]));
            }
            Act::Post { room } => {
                let room = ROOMS[*room];
                let path = format!("/board/rooms/{room}/messages");
                if document.pointer(&path).and_then(Value::as_array).is_some_and(|messages| messages.len() < 8) {
                    self.messages += 1;
                    let value = format!("{} {}", marker(room), self.messages);
                    self.keep(json!([{"op": "add", "path": format!("{path}/-"), "value": value}]));
                }
            }
            Act::Wake { agent } => {
                let name = AGENTS[*agent].into();
                self.played.give(Input::Signal { name, value: Value::Null, key: None });
                self.look();
            }
            Act::Answer { room, what } if !self.played.calls.is_empty() => {
                let agent = self.played.calls[0].2.clone();
                let reply = what.reply(ROOMS[*room], &document);
                self.note(&agent, &reply);
                let outcome = self.played.answer(reply, None);
                self.hear(&agent, &document, &outcome);
            }
            Act::Direct { agent, room, what } => {
                let (agent, reply) = (AGENTS[*agent], what.reply(ROOMS[*room], &document));
                self.note(agent, &reply);
                let outcome = self.played.direct(agent, &reply.to_string());
                self.hear(agent, &document, &outcome);
            }
            Act::Close { .. } | Act::Answer { .. } => {}
        }
        for agent in AGENTS {
            let view = self.played.board.preview(&self.played.seat(agent));
            let document = self.document();
            let (seen, refused) = parts(&view.text);
            self.is_silent(agent, &document, &seen, false);
            self.is_silent(agent, &document, &refused, true);
        }
    }
}

/// Splits a view into the text without its rejections, and the rejections.
fn parts(view: &str) -> (String, String) {
    let Some((before, after)) = view.split_once("## Refused before\n") else { return (view.to_owned(), String::new()) };
    let (refused, rest) = after.split_once("## Why you were woken\n").expect("a view ends with it");
    (format!("{before}{rest}"), refused.to_owned())
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Open { room: usize, members: u32 },
    Close { room: usize },
    Post { room: usize },
    Wake { agent: usize },
    Answer { room: usize, what: Reply },
    Direct { agent: usize, room: usize, what: Reply },
}

/// Random action of an agent on a room.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    Speak,
    Post,
    TooLong,
    Crowd,
    Test,
    Guess,
    Copy,
    CopyWhole,
    Move,
    Overwrite,
    Remove,
    RemoveNothing,
    Open,
    OpenBadly,
    Expand,
    ExpandAll,
    Nothing,
}

const REPLIES: [Reply; 17] = [
    Reply::Speak,
    Reply::Post,
    Reply::TooLong,
    Reply::Crowd,
    Reply::Test,
    Reply::Guess,
    Reply::Copy,
    Reply::CopyWhole,
    Reply::Move,
    Reply::Overwrite,
    Reply::Remove,
    Reply::RemoveNothing,
    Reply::Open,
    Reply::OpenBadly,
    Reply::Expand,
    Reply::ExpandAll,
    Reply::Nothing,
];

impl Reply {
    fn reply(self, room: &str, document: &Value) -> Value {
        let room = format!("/board/rooms/{room}");
        let public = "/board/public/-";
        let guess = document.pointer(&format!("{room}/messages/0")).cloned().unwrap_or_default();
        let message = format!("{room}/messages/0");
        match self {
            Self::Speak => json!([{"op": "add", "path": public, "value": "hello"}]),
            Self::Post => json!([{"op": "add", "path": format!("{room}/messages/-"), "value": "hello"}]),
            Self::TooLong => json!([{"op": "add", "path": format!("{room}/messages/-"), "value": "long ".repeat(20)}]),
            Self::Crowd => {
                let members = json!({"members": AGENTS, "messages": []});
                json!([{"op": "add", "path": room, "value": members}])
            }
            Self::Test => json!([{"op": "test", "path": message, "value": "hello"}]),
            Self::Guess => json!([{"op": "test", "path": message, "value": guess}]),
            // Members may publish what they read; in this test they do not.
            Self::Copy if !members(document, room.rsplit('/').next().unwrap_or_default()).is_empty() => {
                json!([{"op": "copy", "from": format!("{room}/members/7"), "path": public}])
            }
            Self::Copy => json!([{"op": "copy", "from": message, "path": public}]),
            Self::CopyWhole => json!([{"op": "copy", "from": "/board/rooms", "path": public}]),
            Self::Move => json!([{"op": "move", "from": format!("{room}/members"), "path": public}]),
            Self::Overwrite => json!([{"op": "replace", "path": message, "value": "mine"}]),
            Self::Remove => json!([{"op": "remove", "path": message}]),
            Self::RemoveNothing => json!([{"op": "remove", "path": format!("{room}/messages/5")}]),
            Self::Open => json!([{"op": "add", "path": room, "value": {"members": [], "messages": []}}]),
            Self::OpenBadly => json!([{"op": "add", "path": room, "value": {"members": []}}]),
            Self::Expand => json!({"patch": [], "expand": [message]}),
            Self::ExpandAll => json!({"patch": [], "expand": ["/board"]}),
            Self::Nothing => json!([]),
        }
    }
}

pub(crate) fn acts() -> impl Strategy<Value = Vec<Act>> {
    let (room, agent) = (0..ROOMS.len(), 0..AGENTS.len());
    let what = prop::sample::select(&REPLIES[..]);
    let act = prop_oneof![
        3 => (room.clone(), 0..15_u32).prop_map(|(room, members)| Act::Open { room, members }),
        1 => room.clone().prop_map(|room| Act::Close { room }),
        3 => room.clone().prop_map(|room| Act::Post { room }),
        3 => agent.clone().prop_map(|agent| Act::Wake { agent }),
        5 => (room.clone(), what.clone()).prop_map(|(room, what)| Act::Answer { room, what }),
        4 => (agent, room, what).prop_map(|(agent, room, what)| Act::Direct { agent, room, what }),
    ];
    prop::collection::vec(act, 1..40)
}
