//! The shipped blackboard on a daemon: the rooms that a seat's token can read.

use std::collections::BTreeMap;

use patchboard_lint::source::Source;
use reqwest::Method;
use serde_json::{Value, json};

use crate::daemon::Daemon;

const TEXT: &str = include_str!("../../../blueprints/blackboard.yaml");

/// Each seat requests every sixteenth version, with its own offset, because a view is slow in a debug build.
const STRIDE: usize = 16;

/// Returns a worker's message; the messages can conflict.
fn opinion(name: &str) -> &'static str {
    match name {
        "planner" => "{\"[problem]\": \"\", \"[planning]\": \"It is 7.\"}",
        "critic" => "{\"critic list\": [{\"wrong message\": \"\", \"explanation\": \"It is 7.\"}]}",
        _ => "It is 7.",
    }
}

/// Returns a text that occurs in one room only.
fn mark(room: usize) -> String {
    format!("<W{room}>")
}

/// Returns a blueprint that opens one room per round with these members, who speak in it with its mark; then the
/// decider ends the run.
fn scripted(rooms: &[Vec<&str>]) -> Value {
    let source = Source::read("blackboard.yaml", TEXT).expect("it can be read");
    let mut blueprint = source.value().clone();
    let mut says: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut say = |name, words: String| says.entry(name).or_default().push(words);
    for (number, members) in rooms.iter().enumerate() {
        let chosen: Vec<&str> = members.iter().copied().chain(["conflict_resolver"]).collect();
        say("control", json!({"chosen agents": chosen}).to_string());
        let conflict = |member: &&str| json!({"agent": member, "message": mark(number)});
        let list: Vec<Value> = members.iter().map(conflict).collect();
        say("conflict_resolver", json!({"conflict list": list}).to_string());
        for member in members {
            say(member, opinion(member).to_owned());
            say(member, format!("{} I have counted.", mark(number)));
            say(member, format!("{} Count again.", mark(number)));
            say(member, "We have talked.".to_owned());
        }
    }
    say("control", json!({"chosen agents": ["decider"]}).to_string());
    say("generator", json!({"One": "Counts.", "Two": "Doubts.", "Three": "Waits."}).to_string());
    say("decider", "the final answer is boxed[7]".to_owned());
    for (name, worker) in blueprint["workers"].as_object_mut().expect("workers") {
        if worker["agent"] == "llm" {
            worker["agent"] = json!("script");
            let words = says.remove(name.as_str()).unwrap_or_else(|| vec!["waiting for more information".to_owned()]);
            worker["script"] = words.iter().map(|words| json!({"text": words})).collect();
        }
    }
    blueprint
}

/// For various memberships, a seat's token shows at every version the rooms of that seat and no other.
#[tokio::test]
async fn a_token_of_a_seat_opens_the_rooms_of_that_seat_and_no_other() {
    let rooms = [vec!["expert_1", "planner"], vec!["critic", "expert_3", "expert_1"], vec!["expert_2", "critic"]];
    let mut daemon = Daemon::not_started(&["--require-tokens"]);
    let admin = daemon.token("admin");
    daemon.start();
    let get = async |token: &str, path: &str| {
        daemon.request(Method::GET, path, &[("authorization", &format!("Bearer {token}"))], None).await
    };
    let blueprint = scripted(&rooms);
    let body = json!({"source": blueprint.to_string(), "request": {"question": "How many are there?"}});
    let bearer = format!("Bearer {admin}");
    let made = daemon.post_with("/v1/boards", &body, &[("authorization", &bearer)]).await.expect_status(201);
    let id = made["board"].as_str().expect("an id");
    let board = format!("/v1/boards/{id}");
    let mut state = json!({});
    for _ in 0..600 {
        state = get(&admin, &format!("{board}/state")).await.expect_status(200);
        if state["state"]["answer"].is_object() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let opened = state["state"]["board"]["rooms"].as_object().unwrap_or_else(|| panic!("no rooms in {state}"));
    let version = usize::try_from(state["version"].as_u64().expect("a version")).expect("a small one");
    let names: Vec<&String> = (0..rooms.len())
        .map(|number| opened.iter().find(|(_, room)| room.to_string().contains(&mark(number))).expect("a room").0)
        .collect();
    // A name may be a prefix of another name or of a number.
    let is_named = |view: &str, name: &str| {
        let mut behind = view.match_indices(name).map(|(at, name)| view[at + name.len()..].chars().next());
        behind.any(|next| next.is_none_or(|next| !next.is_ascii_digit()))
    };
    let (mut shown, mut silent) = (0, 0);
    for (nth, worker) in blueprint["workers"].as_object().expect("workers").keys().enumerate() {
        let token = daemon.token(&format!("seat:{id}/{worker}"));
        for path in ["state", "journal", "events", "why?pointer=/board", "views/expert_3"] {
            let is_own = path.ends_with(worker.as_str());
            let status = get(&token, &format!("{board}/{path}")).await.status;
            assert_eq!(status == 403, !is_own, "{worker} at {path}: {status}");
        }
        for at in (nth % STRIDE..version).step_by(STRIDE).chain([version]) {
            let view = get(&token, &format!("{board}/views/{worker}?at={at}")).await.expect_status(200).to_string();
            for (number, members) in rooms.iter().enumerate() {
                let (is_member, is_shown) = (
                    members.contains(&worker.as_str()),
                    view.contains(&mark(number)) || is_named(&view, names[number]),
                );
                assert!(is_member || !is_shown, "{worker} is told of the room of {members:?} at {at}: {view}");
                assert!(at < version || is_shown == is_member, "{worker} is in the room of {members:?}: {view}");
                (shown, silent) = (shown + usize::from(is_shown), silent + usize::from(!is_shown));
            }
        }
    }
    assert!(shown > 10 && silent > 60, "{shown} {silent}");
}
