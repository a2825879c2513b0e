//! Conversion of replies to patches, per format: as the blueprints write them, and as models do.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const LONG: &str = "The train leaves at nine and arrives at ten, so it takes an hour.";

fn speaker(format: ReplyFormat) -> ReplyContext<'static> {
    let public = [
        (0, "planner", "It is 7."),
        (1, "expert_1", "It is 8."),
        (2, "planner", LONG),
        (4, "cleaner", "It is 7."),
        (5, "planner", "two\n  lines"),
    ];
    ReplyContext {
        format,
        worker: "critic",
        place: MessageTarget::Own,
        round: None,
        public: public.into_iter().map(|(index, from, text)| message_of(index, from, text)).collect(),
        cleaning: Cleaning::Remove,
        names: vec!["cleaner", "control", "critic", "decider", "expert_1", "expert_2", "planner"],
        eligible: vec!["cleaner", "critic", "decider", "expert_1", "expert_2", "planner"],
        later: Vec::new(),
        invocation: 9,
        ops_max: 3,
    }
}

fn message_of(index: usize, from: &str, text: &str) -> Message {
    Message { index, from: from.to_owned(), text: text.to_owned(), is_marked: false }
}

fn said_at(text: &str, speaker: &ReplyContext<'_>) -> Value {
    envelope(text, speaker).map_or(Value::Null, |text| serde_json::from_str(&text).expect("an envelope is JSON"))
}

fn said_by(format: ReplyFormat, text: &str) -> Value {
    said_at(text, &speaker(format))
}

fn patch_of(path: &str, value: Value) -> Value {
    json!({"patch": [{"op": "add", "path": path, "value": value}]})
}

fn message(kind: &str, text: &str) -> Value {
    patch_of("/board/public/-", json!({"from": "critic", "kind": kind, "text": text}))
}

#[test]
fn of_the_marks_of_an_answer_the_last_64_are_tried() {
    let said = |unclosed: usize| said_by(ReplyFormat::Decider, &format!("boxed[7] {}", "boxed[".repeat(unclosed)));
    assert_eq!(said(63), patch_of("/answer", json!({"text": "7", "by": "decider"})));
    assert_eq!(said(64), Value::Null);
}

#[test]
fn patches_and_envelopes_are_left_alone() {
    for format in ReplyFormat::ALL {
        for text in [
            "[]",
            " [{\"op\": \"remove\", \"path\": \"/a\"}]\n",
            "{\"patch\": 3}",
            "{\"expand\": [\"/a\"]}",
            "{\"pass\": \"no\"}",
            "{\"clarify\": {\"question\": \"?\"}}",
            "{\"patch\": [], \"intent\": \"output\"}",
        ] {
            assert_eq!(said_by(*format, text), Value::Null, "{format}: {text}");
        }
    }
}

#[test]
fn experts_are_generated_from_a_dictionary() {
    let expert = |number: usize, role: &str, what: &str| json!({"op": "add", "path": format!("/experts/expert_{number}"), "value": {"role": role, "description": what}});
    let two = json!({"patch": [expert(1, "Chemist", "Knows what burns."), expert(2, "Historian", "It's \"old\".")]});
    for text in [
        "Answer: {\"Chemist\": \"Knows what burns.\", \"Historian\": \"It's \\\"old\\\".\"}",
        "Answer: {'Chemist': 'Knows what burns.', 'Historian': 'It's \"old\".'}",
        "{\"thought\": 1}\n```python\nanswer: {'Chemist': 'Knows what burns.',\n 'Historian': 'It's \"old\".',}\n```\nThese help.",
        "{\"experts\": [{\"role\": \"Chemist\", \"description\": \"Knows what burns.\"}, {\"role\": \" \"},
            {\"role\": \"Historian\", \"description\": \"It's \\\"old\\\".\"}]}",
        "{\"Answer\": {\"Chemist\": \"Knows what burns.\", \"Historian\": \"It's \\\"old\\\".\"}}",
    ] {
        assert_eq!(said_by(ReplyFormat::Generator, text), two, "{text}");
    }
    let many =
        said_by(ReplyFormat::Generator, "{\"a\": \"1\", \"b\": \"2\", \"c\": \"3\", \"d\": \"4\", \" \": \"5\"}");
    assert_eq!(many["patch"].as_array().map(Vec::len), Some(3));
    for text in ["Answer: a chemist and a historian", "{}", "{\"a\": 1}", "Answer: {'Chemist': 'cut"] {
        assert_eq!(said_by(ReplyFormat::Generator, text), Value::Null, "{text}");
    }
}

#[test]
fn agents_are_chosen_by_their_names() {
    let chosen = |agents: Value| patch_of("/rounds/-", json!({"agents": agents}));
    for (text, agents) in [
        ("{\"chosen agents\": [\"planner\", \"critic\"]}", json!(["planner", "critic"])),
        ("I choose:\n{'chosen_agents': ['Planner', 'Expert 1', 'planner']}", json!(["planner", "expert_1"])),
        ("{\"chosen agents\": \"planner, Expert-2; `decider`.\"}", json!(["planner", "expert_2", "decider"])),
        ("[\"planner\"]", json!(["planner"])),
        ("{\"chosen agents\": []}", json!([])),
        // Skips unknown names and agents that cannot be chosen, unless no agent is left to choose.
        (
            "{\"chosen agents\": [\"plumber\", \"critic\", \"me\", \"control\", \"planner\"]}",
            json!(["critic", "planner"]),
        ),
        ("{\"chosen agents\": [\"plumber\"]}", json!(["plumber"])),
        ("{\"chosen agents\": [\"plumber\", \"Control\"]}", json!(["plumber", "control"])),
    ] {
        assert_eq!(said_by(ReplyFormat::Control, text), chosen(agents), "{text}");
    }
    // A round that is already open gets the agents.
    let open = ReplyContext { round: Some("2"), ..speaker(ReplyFormat::Control) };
    let filled = patch_of("/rounds/2/agents", json!(["planner"]));
    assert_eq!(said_at("{\"chosen agents\": [\"Planner\"]}", &open), filled);
    for text in ["planner", "{\"agents\": 3}", "{\"chosen agents\": {\"a\": 1}}"] {
        assert_eq!(said_by(ReplyFormat::Control, text), Value::Null, "{text}");
    }
}

#[test]
fn a_plan_is_a_message() {
    for (text, expected) in [
        (
            "{\"[problem]\": \"How long?\", \"[planning]\": \"1. Look. 2. Subtract.\"}",
            message("plan", "How long?\n1. Look. 2. Subtract."),
        ),
        (
            "{\"problem\": \"How long?\", \"planning\": [\"Look.\", \"Subtract.\"]}",
            message("plan", "How long?\nLook.\nSubtract."),
        ),
        ("{\"[planning]\": \"Look.\"} Good luck!", message("plan", "Look.")),
        ("{\"[problem]\": \"How long?\"}", Value::Null),
    ] {
        assert_eq!(said_by(ReplyFormat::Planner, text), expected, "{text}");
    }
}

#[test]
fn waiting_sentinels_become_a_pass() {
    for format in ReplyFormat::ALL {
        let Some(sentinel) = format.sentinel() else { continue };
        let pass = json!({"pass": sentinel});
        let (clause, _) = sentinel.split_once(',').expect("two clauses");
        for text in [
            sentinel.to_owned(),
            format!("{{{{\"{sentinel}\"}}}}"),
            format!("```\n{}!\n```", sentinel.to_uppercase()),
            format!("{clause}."),
            format!("I looked at it all: {}.", sentinel.replace(", ", " - ")),
            format!("{{\"output\": \"{sentinel}\"}}"),
        ] {
            assert_eq!(said_by(*format, &text), pass, "{format}: {text}");
        }
    }
    let other = said_by(ReplyFormat::Critic, "Nothing to criticise.\nWaiting for more information...");
    assert_eq!(other, json!({"pass": "Nothing to criticise. Waiting for more information..."}));
    assert_eq!(said_by(ReplyFormat::Critic, "I see no problem with that."), Value::Null);
    for (format, text) in [
        (ReplyFormat::Critic, "{\"critic list\": []}"),
        (ReplyFormat::Cleaner, "{\"clean list\": null}"),
        (ReplyFormat::ConflictResolver, "{\"conflict list\": []}"),
    ] {
        assert_eq!(said_by(format, text), json!({"pass": format.sentinel()}), "{text}");
    }
}

#[test]
fn the_decider_answer_is_read_from_boxed_brackets() {
    let answer = |text: &str| patch_of("/answer", json!({"text": text, "by": "decider"}));
    for (text, expected) in [
        ("All agree, so the final answer is boxed[42]", answer("42")),
        ("The final answer is boxed[f[g[1]] = [2]].", answer("f[g[1]] = [2]")),
        ("$\\boxed{\\frac{1}{2}}$", answer("\\frac{1}{2}")),
        ("the final answer is BOXED (B)", answer("B")),
        ("First boxed[1], but in the end boxed[2]", answer("2")),
        ("Answer in the form boxed[...]: boxed[ Paris ]", answer("Paris")),
        ("{\"output\": \"As seen, the final answer is boxed[\\\\pi]\"}", answer("\\pi")),
        ("{{the final answer is boxed[yes]}}", answer("yes")),
        ("{\"reasoning\": \"boxed[1] is too few\", \"boxed\": \" 2 \"}", answer("2")),
        ("{\"reasoning\": \"\", \"boxed\": 2}", answer("2")),
        ("{\"boxed\": \"the final answer is boxed[2]\"}", answer("2")),
        ("{\"boxed\": \"continue, waiting for more information\"}", json!({"pass": ReplyFormat::Decider.sentinel()})),
        ("{\"reasoning\": \"none\", \"boxed\": \"\"}", Value::Null),
        (
            "boxed[1] is what they say; continue, waiting for more information",
            json!({"pass": ReplyFormat::Decider.sentinel()}),
        ),
        ("the final answer is boxed[1", Value::Null),
        ("the final answer is boxed[]", Value::Null),
        ("the final answer is 42", Value::Null),
        ("boxed", Value::Null),
    ] {
        assert_eq!(said_by(ReplyFormat::Decider, text), expected, "{text}");
    }
}

#[test]
fn critiques_are_messages() {
    let one = "{\"critic list\": [{\"wrong message\": \"planner: It is 8.\", \"explanation\": \"8 is even.\"}]}";
    assert_eq!(said_by(ReplyFormat::Critic, one), message("critique", "Wrong: planner: It is 8.\nWhy: 8 is even."));
    let entry = |n: usize| json!({"wrong message": n, "explanation": "no"});
    let many = json!({"critic list": (0..9).map(entry).collect::<Vec<_>>()}).to_string();
    assert_eq!(said_by(ReplyFormat::Critic, &many)["patch"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        said_by(ReplyFormat::Critic, "{\"critic list\": [{\"explanation\": \"All wrong.\"}]}"),
        message("critique", "All wrong.")
    );
    // A sentinel phrase within a critique does not count as one.
    let within = "{\"critic list\": [{\"wrong message\": \"x\", \"explanation\": \"no problem, waiting for more information\"}]}";
    assert_eq!(said_by(ReplyFormat::Critic, within)["patch"].as_array().map(Vec::len), Some(1));
    for text in
        ["{\"critic list\": [{}]}", "{\"critic list\": [\"all\"]}", "{\"critic list\": \"all\"}", "It is wrong."]
    {
        assert_eq!(said_by(ReplyFormat::Critic, text), Value::Null, "{text}");
    }
}

#[test]
fn messages_are_cleaned_that_are_quoted() {
    let list = |quotes: &[&str]| {
        let entry = |quote: &&str| json!({"useless message": quote, "explanation": "why"});
        json!({"clean list": quotes.iter().map(entry).collect::<Vec<_>>()}).to_string()
    };
    let removed = |indices: &[usize]| {
        let op = |index: &usize| json!({"op": "remove", "path": format!("/board/public/{index}")});
        json!({"patch": indices.iter().map(op).collect::<Vec<_>>()})
    };
    let none = json!({"pass": "none of the messages that were quoted is there"});
    for (quotes, expected) in [
        (vec!["It is 8."], removed(&[1])),
        (vec!["It is 7."], removed(&[4, 0])),
        (vec!["It is 8.", LONG, "It is 8."], removed(&[2, 1])),
        (vec!["It is 7.", "It is 8.", LONG], removed(&[4, 1, 0])),
        (vec![" It  is 8.\n"], removed(&[1])),
        (vec!["two lines"], removed(&[5])),
        (vec!["train leaves at nine"], removed(&[2])),
        (vec!["leaves at nine"], none.clone()),
        (vec!["It is"], none.clone()),
        (vec![""], none.clone()),
        (vec!["it is 8."], none.clone()),
        (vec!["It is 9."], none),
    ] {
        assert_eq!(said_by(ReplyFormat::Cleaner, &list(&quotes)), expected, "{quotes:?}");
    }
    let text = list(&["It is 7.", "It is 8."]);
    let marks = ReplyContext { cleaning: Cleaning::Mark, ..speaker(ReplyFormat::Cleaner) };
    let mark = |index: usize| json!({"op": "add", "path": format!("/board/public/{index}/marked"), "value": {"by": "critic", "why": "why"}});
    assert_eq!(said_at(&text, &marks), json!({"patch": [mark(0), mark(1), mark(4)]}));
    // Existing marks stay; new marks are added.
    let mut again = marks.clone();
    again.public[0].is_marked = true;
    assert_eq!(said_at(&text, &again), json!({"patch": [mark(1), mark(4)]}));
    again.public.iter_mut().for_each(|message| message.is_marked = true);
    assert_eq!(said_at(&text, &again), json!({"pass": "the messages that were quoted are marked already"}));
    let off = ReplyContext { cleaning: Cleaning::Off, ..speaker(ReplyFormat::Cleaner) };
    assert!(said_at(&text, &off)["pass"].is_string());
    // A quotation that occurs in two messages marks neither.
    let twice = vec![message_of(0, "x", &format!("{LONG} Yes.")), message_of(1, "y", &format!("{LONG} No."))];
    let unsure = ReplyContext { public: twice, ..speaker(ReplyFormat::Cleaner) };
    assert!(said_at(&list(&[LONG]), &unsure)["pass"].is_string());
}

#[test]
fn a_conflict_opens_a_room() {
    let text = "{\"conflict list\": [{\"agent\": \"Planner\", \"message\": \"It is 7.\"}, {\"agent\": \"expert 1\", \"message\": \"It is 8.\"},
        {\"agent\": \"nobody\", \"message\": \"It is 9.\"}, {\"agent\": \"planner\", \"message\": \"7!\"}]}";
    let turn = |agent: &str, act: &str| json!({"who": agent, "act": act});
    let room = json!({
        "members": ["planner", "expert_1"],
        "about": [{"from": "planner", "text": "It is 7."}, {"from": "expert_1", "text": "It is 8."}, {"from": "planner", "text": "7!"}],
        "agenda": [
            turn("planner", "discuss"), turn("expert_1", "discuss"), turn("planner", "discuss"), turn("expert_1", "discuss"),
            turn("planner", "conclude"), turn("expert_1", "conclude"),
        ],
        "messages": [],
    });
    assert_eq!(said_by(ReplyFormat::ConflictResolver, text), patch_of("/board/rooms/room_9", room));
    for text in [
        "{\"conflict list\": [{\"agent\": \"planner\", \"message\": \"a\"}, {\"agent\": \"PLANNER\", \"message\": \"b\"}]}",
        "{\"conflict list\": [{\"agent\": \"you\", \"message\": \"a\"}, {\"agent\": \"me\", \"message\": \"b\"}]}",
        "{\"conflict list\": [{\"message\": \"a\"}]}",
        // An agent without a message contradicts no other agent.
        "{\"conflict list\": [{\"agent\": \"planner\", \"message\": \"a\"}, {\"agent\": \"decider\", \"message\": \"b\"}]}",
    ] {
        assert!(said_by(ReplyFormat::ConflictResolver, text)["pass"].is_string(), "{text}");
    }
}

#[test]
fn an_expert_speaks_its_mind() {
    for (text, expected) in [
        ("{\"output\": \"It is 7.\"}", message("expertise", "It is 7.")),
        ("```json\n{\"output\": \"two\nlines\"}\n```", message("expertise", "two\nlines")),
        ("{{\"output\": \"It is 7.\"}}", message("expertise", "It is 7.")),
        ("{\"reasoning\": \"3 + 4\", \"output\": \"7\"}", message("expertise", "3 + 4\n7")),
        ("{\"reasoning\": \"\", \"output\": \"7\"}", message("expertise", "7")),
        ("{\"reasoning\": \"3 + 4\", \"output\": \"\"}", message("expertise", "3 + 4")),
        ("It is 7.", message("expertise", "It is 7.")),
        ("{\"output\": {\"answer\": 7}}", message("expertise", "answer: 7")),
        ("{\"output\": \" \"}", json!({"pass": "nothing to say"})),
        ("{\"output\": \"cut off", Value::Null),
        ("{\"idea\": \"It is 7.\"}", Value::Null),
    ] {
        assert_eq!(said_by(ReplyFormat::Expert, text), expected, "{text}");
    }
}

#[test]
fn in_rooms_and_at_ballots_every_role_speaks_alike() {
    let spoken = |text: &str| json!({"from": "critic", "text": text});
    let critique = "{\"critic list\": [{\"wrong message\": \"x\", \"explanation\": \"y\"}]}";
    for format in ReplyFormat::ALL {
        let at = |place: MessageTarget, text: &str| said_at(text, &ReplyContext { place, ..speaker(*format) });
        let room = MessageTarget::Room("a~1b".to_owned());
        for (text, said) in [
            ("{\"output\": \"It is 7.\"}", "It is 7."),
            ("I still say 7.", "I still say 7."),
            (critique, "explanation: y\nwrong message: x"),
        ] {
            assert_eq!(at(room.clone(), text), patch_of("/board/rooms/a~1b/messages/-", spoken(said)), "{format}");
            assert_eq!(at(MessageTarget::Conclusion, text), message("statement", said), "{format}");
            assert_eq!(at(MessageTarget::Ballot, text), patch_of("/answers/-", spoken(said)), "{format}");
        }
        let boxed = "So the final answer is boxed[7]";
        assert_eq!(at(MessageTarget::Ballot, boxed), patch_of("/answers/-", spoken("7")));
        let reasoned = "{\"reasoning\": \"3 + 4\", \"boxed\": \"7\"}";
        assert_eq!(at(MessageTarget::Ballot, reasoned), patch_of("/answers/-", spoken("7")));
        assert_eq!(
            at(MessageTarget::Ballot, "{\"boxed\": \"waiting for more information\"}")["pass"],
            "waiting for more information"
        );
        assert_eq!(at(MessageTarget::Conclusion, boxed), message("statement", boxed));
        let waits = "I am waiting for more information.";
        assert!(
            at(room.clone(), waits)["pass"].is_string() && at(MessageTarget::Ballot, waits)["pass"].is_string(),
            "{format}"
        );
        // A conclusion stays a statement, even if its text would be a pass elsewhere.
        assert_eq!(at(MessageTarget::Conclusion, waits), message("statement", waits));
        for own in [format.sentinel().unwrap_or("I have nothing to add"), "no"] {
            let passed = json!({"pass": own}).to_string();
            assert_eq!(at(MessageTarget::Conclusion, own), message("statement", own), "{format}");
            assert_eq!(at(MessageTarget::Conclusion, &passed), message("statement", own), "{format}");
            assert_eq!(at(room.clone(), &passed), Value::Null, "it is a pass already");
        }
        for nothing in ["{\"pass\": \" \"}", "{\"pass\": 7}", "{\"pass\": \"no\", \"patch\": []}", " "] {
            assert_eq!(at(MessageTarget::Conclusion, nothing), Value::Null, "{format}: {nothing}");
        }
        assert_eq!(at(MessageTarget::Ballot, "  "), Value::Null);
        assert_eq!(at(MessageTarget::Ballot, "{\"pass\": \"no\"}"), Value::Null);
    }
}

/// Generates pieces of replies, whole and broken.
fn reply() -> impl Strategy<Value = String> {
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        "\"",
        "'",
        ":",
        ",",
        "\\",
        "\n",
        "critic list",
        "clean list",
        "conflict list",
        "agent",
        "message",
        "useless message",
        "output",
        "chosen agents",
        "boxed",
        "boxed[",
        "reasoning",
        "Answer:",
        "waiting for more information",
        "planner",
        "It is 7.",
        "{\"output\": \"",
        "[planning]",
        "{\"clean list\": [{\"useless message\": \"It is 7.\"}]}",
        "é",
        "null",
    ];
    proptest::collection::vec(proptest::sample::select(pieces.to_vec()), 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn replies_stay_unchanged_or_become_a_valid_envelope(text in prop_oneof![reply(), ".{0,80}"], which in 0..8_usize, place in 0..4_usize) {
        let place = [MessageTarget::Own, MessageTarget::Room("r".to_owned()), MessageTarget::Conclusion, MessageTarget::Ballot][place].clone();
        let speaker = ReplyContext { place, ..speaker(ReplyFormat::ALL[which]) };
        if let Some(envelope) = envelope(&text, &speaker) {
            let envelope: Value = serde_json::from_str(&envelope).expect("JSON");
            let ops = envelope["patch"].as_array();
            prop_assert!(ops.is_some_and(|ops| !ops.is_empty() && ops.len() <= 3) ^ envelope["pass"].as_str().is_some_and(|words| !words.trim().is_empty()));
            // An envelope needs no further conversion.
            prop_assert_eq!(super::envelope(&envelope.to_string(), &speaker), None);
        }
    }
}
