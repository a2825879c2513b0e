//! The roles of a blackboard on a real board: their replies become patches, whichever agents fill the seats.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jsonptr::PointerBuf;
use patchboard_agents::cassette::{Player, Recorder};
use patchboard_agents::config::{Config, Environment};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::call_context::CallContext;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::freshness::ReadSet;
use patchboard_kernel::plan::PlanSource as _;
use patchboard_kernel::record::{Body, Cause, Record};
use patchboard_kernel::replay;
use patchboard_kernel::state::State;
use patchboard_llm::schema::{self, SchemaLevel};
use patchboard_protocols::blackboard::{ReplyFormat, ReplyPurpose, reply_schema};
use patchboard_protocols::{PLANS, Role};
use patchboard_roles::blackboard::{self, vote};
use patchboard_runtime::agent::{Agent, Call, Reply};
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal as _;
use patchboard_storage::sqlite::SqliteJournal;
use serde_json::{Value, json};

use crate::support::{call, seat};

/// Returns a blueprint of two experts that disagree, discuss in a room, and vote. All replies are in the roles'
/// formats.
fn blueprint() -> Blueprint {
    let words = |texts: &[&str]| texts.iter().map(|text| json!({"text": text})).collect::<Vec<_>>();
    let expert = |texts: &[&str]| {
        json!({
            "agent": "script", "script": words(texts), "format": "expert", "pass": true,
            "reads": ["/experts", "/board", "/ballot"],
            "writes": [{"path": "/board/public/-", "ops": ["add"]}, {"path": "/board/rooms/*/messages/-", "ops": ["add"]},
                {"path": "/answers/-", "ops": ["add"]}],
        })
    };
    let in_room = |name: &str| {
        json!({"name": format!("room-{name}"), "trigger": {"op": "add", "path": "/board/rooms/*/agenda/*"},
        "when": format!("value.who == \"{name}\""), "run": name})
    };
    let at_ballot = |name: &str| {
        json!({"name": format!("ballot-{name}"), "trigger": {"op": "add", "path": "/ballot"},
        "run": name})
    };
    let blueprint = json!({
        "blueprint": 1, "name": "experts",
        "state": {"schema": {"type": "object"},
            "initial": {"experts": {}, "board": {"public": [], "rooms": {}}, "answers": []}},
        "workers": {
            "generator": {"agent": "script", "format": "generator", "writes": [{"path": "/experts/*", "ops": ["add"]}],
                "script": words(&["Answer: {'Counter': 'Counts what there is.', 'Doubter': 'It isn't so.'}"])},
            "expert_1": expert(&["{\"output\": \"It is 7.\"}", "I stay with 7.", "{{\"output\": \"Count again.\"}}",
                "{'output': 'We agree on 7.'}", "So the final answer is boxed[7]"]),
            "expert_2": expert(&["It is 8.", "Waiting for more information.", "You are right.", "Seven it is.", "7.0"]),
            "critic": {"agent": "script", "format": "critic", "pass": true, "reads": ["/board"],
                "script": words(&["No problem, waiting for more information!"]),
                "writes": [{"path": "/board/public/-", "ops": ["add"]}]},
            "resolver": {"agent": "script", "format": "conflict_resolver", "pass": true, "reads": ["/board"],
                "script": words(&["I see one.\n```json\n{\"conflict list\": [{\"agent\": \"Expert 1\", \"message\": \"It is 7.\"}, \
                    {\"agent\": \"expert_2\", \"message\": \"It is 8.\"}]}\n```"]),
                "writes": [{"path": "/board/rooms/*", "ops": ["add"]}]},
            "cleaner": {"agent": "script", "format": "cleaner", "pass": true, "reads": ["/board/public"],
                "script": words(&["{\"clean list\": [{\"useless message\": \"It is 8.\", \"explanation\": \"It is not.\"}]}"]),
                "writes": [{"path": "/board/public/*", "ops": ["remove"]}]},
            "opener": {"agent": "script", "script": [[{"op": "add", "path": "/ballot", "value": {}}]],
                "writes": [{"path": "/ballot", "ops": ["add"]}]},
            "vote": {"agent": "builtin:vote", "pass": true, "reads": ["/answers"],
                "writes": [{"path": "/answer", "ops": ["add"]}]},
        },
        "rules": [
            {"name": "begin", "trigger": "start", "run": "generator"},
            {"name": "one", "trigger": {"op": "add", "path": "/experts/expert_1"}, "run": "expert_1"},
            {"name": "two", "trigger": {"op": "add", "path": "/experts/expert_2"}, "run": "expert_2"},
            {"name": "criticise", "trigger": {"after": ["one", "two"]}, "run": "critic"},
            {"name": "resolve", "trigger": {"after": ["criticise"]}, "run": "resolver"},
            in_room("expert_1"), in_room("expert_2"),
            {"name": "clean", "trigger": {"idle": ["room-expert_1", "room-expert_2"]}, "run": "cleaner"},
            {"name": "open", "trigger": {"after": ["clean"]}, "run": "opener"},
            at_ballot("expert_1"), at_ballot("expert_2"),
            {"name": "choose", "trigger": {"idle": ["ballot-expert_1", "ballot-expert_2"]}, "run": "vote"},
        ],
        "done": {"when": "has(state.answer)"}, "concurrency": 1, "limits": {"wall": "60s"},
    });
    serde_json::from_value(blueprint).expect("a blueprint")
}

fn seats() -> Arc<AgentRegistry> {
    Arc::new(AgentRegistry::new(Config::default(), &Environment::from_iter([("PATH", "")]), InlinePrograms::Denied))
}

/// Returns the records of a board that runs to its end.
async fn played(agent: Arc<dyn Agent>) -> Vec<Record> {
    let data = tempfile::tempdir().expect("a directory");
    let journal = Arc::new(SqliteJournal::open(data.path()).expect("a journal"));
    let runtime = Runtime::start(Arc::clone(&journal) as _, Options::new(agent), PLANS).await.expect("a runtime");
    let board = runtime.create(blueprint(), json!({}), None).await.expect("a board");
    let ended =
        tokio::time::timeout(Duration::from_secs(60), board.wait_for_end()).await.expect("in time").expect("it ends");
    let records = wait(journal.records(board.id(), None, 10_000)).expect("records");
    assert_eq!(ended.cause, Cause::Done, "{records:#?}");
    records
}

/// Returns each reply, its converted form and its pass.
fn heard(records: &[Record]) -> Vec<(String, Option<String>, Option<String>)> {
    let of = |record: &Record| match record.body().expect("readable") {
        Body::Committed(it) => Some((it.by.worker.to_string(), it.written.clone(), None)),
        Body::NoOp(it) => Some((it.by.worker.to_string(), it.written.clone(), it.pass.clone())),
        Body::Rejected(it) => panic!("{it:?}"),
        _ => None,
    };
    records.iter().filter_map(of).collect()
}

#[tokio::test]
async fn roles_speak_and_the_board_hears() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("experts.jsonl");
    let recorder = Recorder::create(&path, "experts", seats()).expect("a new file");
    let records = played(Arc::new(recorder)).await;
    let replayed = replay::replay(&records, None, &PLANS).expect("the run follows from its records");
    let state = replayed.board.state().root().to_value();
    let said = |from: &str, text: &str| json!({"from": from, "text": text});
    let message = |from: &str, kind: &str, text: &str| json!({"from": from, "kind": kind, "text": text});
    assert_eq!(state["experts"]["expert_2"], json!({"role": "Doubter", "description": "It isn't so."}));
    let rooms = state["board"]["rooms"].as_object().expect("rooms");
    let (name, room) = rooms.iter().next().expect("a room");
    assert!(name.starts_with("room_") && rooms.len() == 1, "{rooms:?}");
    assert_eq!(room["members"], json!(["expert_1", "expert_2"]));
    let spoken =
        [said("expert_1", "I stay with 7."), said("expert_1", "Count again."), said("expert_2", "You are right.")];
    assert_eq!(room["messages"], json!(spoken));
    let public = [
        message("expert_1", "expertise", "It is 7."),
        message("expert_1", "statement", "We agree on 7."),
        message("expert_2", "statement", "Seven it is."),
    ];
    assert_eq!(state["board"]["public"], json!(public), "what was cleaned is gone");
    let vote = |from: &str, text: &str| json!({"from": from, "text": text, "score": 1});
    let votes = [vote("expert_1", "7"), vote("expert_2", "7.0")];
    assert_eq!(state["answer"], json!({"text": "7", "by": "vote", "votes": votes}));

    let heard_live = heard(&records);
    let waits = Some("Waiting for more information.".to_owned());
    assert!(heard_live.contains(&("expert_2".to_owned(), waits.clone(), waits)));
    let critic = heard_live.iter().find(|(worker, ..)| worker == "critic").expect("it was asked");
    assert_eq!(critic.1.as_deref(), Some("No problem, waiting for more information!"));
    assert_eq!(critic.2, ReplyFormat::Critic.sentinel().map(str::to_owned));
    let patches = heard_live.iter().filter(|(_, written, _)| written.is_none()).map(|(worker, ..)| worker.as_str());
    assert_eq!(patches.collect::<Vec<_>>(), ["opener", "vote"], "who proposes patches has no other words");

    // A recording holds the original replies, and they are converted when it is played.
    let recorded = std::fs::read_to_string(&path).expect("a recording");
    assert!(recorded.contains("boxed[7]") && !recorded.contains("/answers/-"), "{recorded}");
    let again = played(player(&path)).await;
    assert_eq!(heard(&again), heard_live);
    let state_again = replay::replay(&again, None, &PLANS).expect("it follows").board.state().root().to_value();
    assert_eq!(state_again, state);
}

fn player(path: &Path) -> Arc<dyn Agent> {
    Arc::new(Player::open(path).expect("a recording"))
}

/// Returns a call of a seat with these parts of a document in view.
fn asked(fields: Value, document: &Value, reads: &[&str], woken_at: Option<&str>) -> Call {
    let fields = seat(fields);
    let workers = json!({"w": fields, "planner": {"agent": "llm"}});
    let blueprint = json!({"blueprint": 1, "name": "b", "workers": workers, "state": {"schema": {
        "properties": {"rounds": {"items": {"properties": {"agents": {"items": {"enum": ["planner", "w"]}}}}}}}}});
    let plan = PLANS.plan(serde_json::from_value(blueprint).expect("a blueprint"), &Mode::default()).expect("a plan");
    let state = State::new(document, &Hasher::new(&Salt::ZERO));
    let reads = reads.iter().map(|place| PointerBuf::parse(*place).expect("a pointer")).collect();
    let basis = ReadSet { state, reads, members: Vec::new() };
    let shown = CallContext::new(plan, "w".into(), Arc::new(basis), false).expect("the worker is there");
    let shown = shown.with_place(woken_at);
    let mut call = call("w", fields, "x", 0);
    call.decided.context = Arc::new(shown);
    call
}

#[tokio::test]
async fn only_messages_count_that_were_shown_and_in_a_room_only_its_act() {
    let message = |text: &str| json!({"text": text, "from": "x"});
    let room = json!({"agenda": [{"who": "w", "act": "discuss"}, {"who": "w", "act": "conclude"}], "messages": []});
    let mut document = json!({"board": {"public": [message("a"), message("b"), message("c")], "rooms": {"x/y": room}}});
    let list = json!({"clean list": [{"useless message": "a"}, {"useless message": "c"}]}).to_string();
    let cleaner = || json!({"agent": "script", "format": "cleaner", "pass": true, "script": [{"text": list}]});
    let answered = async |call: Call| {
        let Reply { text, converted_from, .. } = seats().call(&call).await.expect("a reply");
        (serde_json::from_str::<Value>(&text).expect("JSON"), converted_from)
    };
    let remove = |index: usize| json!({"op": "remove", "path": format!("/board/public/{index}")});
    for (reads, ops) in [
        (&["/board"][..], json!([remove(2), remove(0)])),
        (&["/board/public"], json!([remove(2), remove(0)])),
        (&["/board/public/0", "/board/public/1"], json!([remove(0)])),
        (&["/board/public/2/from", "/board/public/0"], json!([remove(0)])),
    ] {
        let (said, written) = answered(asked(cleaner(), &document, reads, None)).await;
        assert_eq!((said, written), (json!({"patch": ops}), Some(list.clone())), "{reads:?}");
    }
    let (said, _) = answered(asked(cleaner(), &document, &["/board/rooms"], None)).await;
    assert!(said["pass"].is_string(), "{said}");
    document["request"] = json!({"cleaner": "mark"});
    let (said, _) = answered(asked(cleaner(), &document, &["/board/public/0"], None)).await;
    assert_eq!(said["patch"][0]["path"], "/board/public/0/marked");

    let expert = json!({"agent": "script", "format": "expert", "script": [{"text": "Hear, hear."}]});
    for (woken_at, path) in [
        ("/board/rooms/x~1y/agenda/0", "/board/rooms/x~1y/messages/-"),
        ("/board/rooms/x~1y/agenda/1", "/board/public/-"),
        ("/ballot", "/answers/-"),
        ("/rounds/0/agents/0", "/board/public/-"),
    ] {
        let (said, _) = answered(asked(expert.clone(), &document, &["/board"], Some(woken_at))).await;
        assert_eq!(said["patch"][0]["path"], path, "{woken_at}");
    }
    // A conclusion is always a statement, even if its text is a pass elsewhere.
    for (act, words) in [(0, "I am waiting for more information."), (1, r#"{"pass": "Nothing to add."}"#)] {
        let says = json!({"agent": "script", "format": "expert", "pass": true, "script": [{"text": words}]});
        let at = format!("/board/rooms/x~1y/agenda/{act}");
        let (said, _) = answered(asked(says, &document, &["/board"], Some(&at))).await;
        match act {
            0 => assert!(said["pass"].is_string(), "{said}"),
            _ => assert_eq!(said["patch"][0]["value"]["text"], "Nothing to add."),
        }
    }
    // The kernel rejects oversized replies, and replies of a seat without a format are not converted.
    let mut long = expert.clone();
    long["patch"] = json!({"max_bytes": 5});
    let call = asked(long, &document, &["/board"], None);
    assert_eq!(seats().call(&call).await.expect("a reply").converted_from, None);
    for (bytes, is_read) in [(256 * 1024, true), (256 * 1024 + 1, false)] {
        let mut long = expert.clone();
        long["patch"] = json!({"max_bytes": 1024 * 1024});
        let call = asked(long, &document, &["/board"], None);
        assert_eq!(blackboard::envelope(&call, &"x".repeat(bytes)).is_some(), is_read, "{bytes}");
    }
}

#[test]
fn a_vote_counts_what_its_seat_is_shown() {
    let said = |from: &str, text: &str| json!({"from": from, "text": text});
    let document =
        json!({"answers": [said("a", "8"), said("b", " "), said("c", "7"), said("d", "7.")], "other": {"list": []}});
    let fields = |with: Value| json!({"agent": "builtin:vote", "pass": true, "with": with});
    let answer = |fields: Value, reads: &[&str]| vote::answer(&asked(fields, &document, reads, None));
    let reply = answer(fields(json!({})), &["/answers"]).expect("a reply");
    let vote = |from: &str, text: &str, score: u8| json!({"from": from, "text": text, "score": score});
    let chosen =
        json!({"text": "7", "by": "vote", "votes": [vote("a", "8", 0), vote("c", "7", 1), vote("d", "7.", 1)]});
    let expected = json!({"patch": [{"op": "add", "path": "/answer", "value": chosen}]});
    assert_eq!(serde_json::from_str::<Value>(&reply.text).expect("JSON"), expected);
    let shown = ["/answers/0", "/answers/1", "/answers/2", "/answers/3"];
    assert_eq!(answer(fields(json!({})), &shown).expect("a reply"), reply);
    let failure = answer(fields(json!({})), &shown[1..]).expect_err("one is not shown");
    assert_eq!(failure.code, FailureCode::NotConfigured);
    assert!(failure.message.contains("view.budget"), "{failure}");

    let elsewhere = json!({"answers": "/other/list", "into": "/other/best"});
    let reply = answer(fields(elsewhere.clone()), &["/other"]).expect("a reply");
    assert!(serde_json::from_str::<Value>(&reply.text).expect("JSON")["pass"].is_string());
    let failure =
        answer(json!({"agent": "builtin:vote", "with": elsewhere}), &["/other"]).expect_err("it may not pass");
    assert_eq!(failure.code, FailureCode::Refused);
    for wrong in [json!({"answer": "/answers"}), json!({"answers": "answers"}), json!({"into": 7})] {
        let failure = answer(fields(wrong.clone()), &["/answers"]).expect_err("it cannot be used");
        assert_eq!(failure.code, FailureCode::NotConfigured, "{wrong}");
        assert!(patchboard_roles::config_error(Role::Vote, &seat(fields(wrong))).is_some());
    }
}

#[test]
fn a_form_allows_what_is_read_and_nothing_else() {
    for format in ReplyFormat::ALL {
        for (woken_at, is_own) in [(None, true), (Some("/ballot"), false)] {
            let fields = json!({"agent": "llm", "format": format, "pass": true, "patch": {"max_ops": 2}});
            let spoken = json!({"board": {"public": [{"from": "planner", "text": "x"}]}});
            let silent = json!({"board": {"public": []}});
            let [silent, alone] = [(&silent, &["/board"][..]), (&spoken, &[])].map(|(document, reads)| {
                let call = asked(fields.clone(), document, reads, woken_at);
                jsonschema::draft202012::new(&reply_schema(&call.context, *format)).expect("a schema")
            });
            let call = asked(fields, &spoken, &["/board"], woken_at);
            let (level, schema) = schema::reply_schema(&call.context, SchemaLevel::Derived).expect("a form");
            assert_eq!((level, &schema), (SchemaLevel::Derived, &reply_schema(&call.context, *format)));
            assert_eq!(
                schema::reply_schema(&call.context, SchemaLevel::Generic),
                Some((SchemaLevel::Generic, json!({"type": "object"})))
            );
            let validator = jsonschema::draft202012::new(&schema).expect("a schema");
            let names = json!({"chosen agents": ["planner"]}).to_string();
            let reply = match (format, is_own) {
                (ReplyFormat::Control, true) => names,
                (_, true) => format.example().to_owned(),
                (_, false) => format.example_for(ReplyPurpose::Ballot).to_owned(),
            };
            let reply: Value = serde_json::from_str(&reply).expect("what a worker is told is JSON");
            assert!(validator.is_valid(&reply), "{format}: {reply}");
            assert!(validator.is_valid(&json!({"pass": "why"})));
            for other in [json!({"pass": 7}), json!({"patch": []}), json!([]), json!({})] {
                assert!(!validator.is_valid(&other), "{format}: {other}");
            }
            let unknown = json!({"chosen agents": ["plumber"]});
            assert!(!validator.is_valid(&unknown), "{format}");
            assert!(silent.is_valid(&json!({"pass": "why"})));
            assert_eq!(silent.is_valid(&reply), !(is_own && format.is_of_messages()), "{format}");
            assert!(alone.is_valid(&reply), "{format}: the blackboard is none of its business");
        }
    }
}

#[test]
fn discussion_turns_of_a_room_allow_a_pass_and_conclusions_do_not() {
    let turn = |act: &str| json!({"who": "w", "act": act});
    let room = json!({"agenda": [turn("discuss"), turn("conclude")], "messages": []});
    let document = json!({"board": {"public": [], "rooms": {"a/b": room}}});
    for format in ReplyFormat::ALL {
        for (turn, may_pass) in [(0, true), (1, false)] {
            let fields = json!({"agent": "llm", "format": format, "pass": true});
            let call = asked(fields, &document, &["/board"], Some(&format!("/board/rooms/a~1b/agenda/{turn}")));
            let form = jsonschema::draft202012::new(&reply_schema(&call.context, *format)).expect("a schema");
            assert!(form.is_valid(&json!({"output": "It is 7."})), "{format}");
            assert_eq!(form.is_valid(&json!({"pass": "no"})), may_pass, "{format}");
        }
    }
}

#[test]
fn workers_offered_for_choice_are_those_that_a_rule_would_trigger() {
    let workers = json!({
        "w": seat(json!({"agent": "llm", "format": "control"})),
        "critic": {"agent": "llm", "group": "all", "format": "critic", "pass": true},
        "expert_1": {"agent": "llm", "group": "all"},
        "expert_2": {"agent": "llm", "group": "all"},
    });
    let agents = json!({"items": {"$ref": "#/$defs/group:all"}});
    let schema = json!({"properties": {"rounds": {"items": {"properties": {"agents": agents}}}}});
    let rule = |when: &str| json!({"name": "turn", "trigger": {"op": "add", "path": "/rounds/*/agents/*"}, "when": when, "run": {"group": "all", "at": ""}});
    let is_made = "!worker.startsWith('expert_') || worker in state.experts";
    let all = &["critic", "expert_1", "expert_2"][..];
    for (rules, chosen) in [
        (vec![rule(is_made)], &["critic", "expert_2"][..]),
        (vec![rule(is_made), rule("value == 'expert_1'")], all),
        (vec![], all),
        // A condition that cannot be evaluated yet excludes no worker.
        (vec![rule("state.nothing.is == worker")], all),
        (vec![rule("false")], &[]),
    ] {
        let blueprint =
            json!({"blueprint": 1, "name": "b", "workers": workers, "state": {"schema": schema}, "rules": rules});
        let plan =
            PLANS.plan(serde_json::from_value(blueprint).expect("a blueprint"), &Mode::default()).expect("a plan");
        let document = json!({"board": {"public": []}, "experts": {"expert_2": {}}});
        let state = State::new(&document, &Hasher::new(&Salt::ZERO));
        let basis = ReadSet { state, reads: vec![PointerBuf::from_tokens(["board"])], members: Vec::new() };
        let shown = CallContext::new(plan, "w".into(), Arc::new(basis), false).expect("the worker is there");
        let form = reply_schema(&shown, ReplyFormat::Control);
        let expected = if chosen.is_empty() { Value::Null } else { json!(chosen) };
        assert_eq!(form["properties"]["chosen agents"]["items"]["enum"], expected, "{rules:?}");
    }
}
