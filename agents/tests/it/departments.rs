//! The shipped conversation with its departments, on a real journal and a real table; only what a model would say is given.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jsonptr::PointerBuf;
use patchboard_agents::config::{Config, Environment};
use patchboard_agents::departments::storage::Storage;
use patchboard_agents::inner::Inner;
use patchboard_agents::seats::{Inline, Seats};
use patchboard_kernel::blueprint::{AgentKind, Blueprint};
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::freshness::Basis;
use patchboard_kernel::id::InvocationId;
use patchboard_kernel::lint;
use patchboard_kernel::mode::Mode;
use patchboard_kernel::plan::{Own, Plans as _};
use patchboard_kernel::record::{Body, Parent};
use patchboard_kernel::shown::Shown;
use patchboard_kernel::source::{self, Files, Source};
use patchboard_kernel::state::State;
use patchboard_runtime::agent::{Agent, Answer, Call, Reply};
use patchboard_runtime::journal::Journal as _;
use patchboard_runtime::journal::sqlite::SqliteJournal;
use patchboard_runtime::runtime::{BoardHandle, Options, Runtime};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::{embeddings, support};

const LONG: Duration = Duration::from_secs(20);

struct Shipped(PathBuf);

impl Files for Shipped {
    fn text(&mut self, name: &str) -> Result<String, String> {
        std::fs::read_to_string(self.0.join(name)).map_err(|error| error.to_string())
    }

    fn folders(&mut self, name: &str) -> Result<Vec<String>, String> {
        let entries = std::fs::read_dir(self.0.join(name)).map_err(|error| error.to_string())?;
        Ok(entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect())
    }
}

fn clipboard() -> Blueprint {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../blueprints");
    let text = std::fs::read_to_string(directory.join("clipboard.yaml")).expect("it is shipped");
    let source = Source::read("clipboard.yaml", &text).expect("it is YAML");
    let source = source::resolve(source, &mut Shipped(directory)).expect("its departments are sound");
    let report = lint::check(&source);
    assert_eq!(report.findings, []);
    report.blueprint.expect("there is no error")
}

/// Whatever a model would say, of a few sentences.
struct Voices {
    seats: Seats,
}

/// The value of a text that a seat is shown.
fn shown(call: &Call, place: &str) -> Option<Value> {
    let place = PointerBuf::parse(place).expect("a pointer");
    call.shown.value_at(&place).expect("it is shown whole").map(|node| node.to_value())
}

fn say(path: &str, value: &Value) -> Answer {
    let text = json!({"patch": [{"op": "add", "path": path, "value": value}]}).to_string();
    Ok(Reply { text, usage: None, written: None })
}

/// Which department words are for, what is to be done, and with what, if they ask for something by themselves.
fn understood(text: &str) -> Option<(&'static str, &'static str, Value)> {
    let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_end_matches(['.', ',', '?'])).collect();
    Some(match words.as_slice() {
        ["Put", item, "on", "the", list, "list", ..] => ("notes", "add", json!({"list": list, "item": item})),
        ["Throw", "the", item, "off", "the", "list", ..] => ("notes", "remove", json!({"item": item})),
        ["Throw", "the", item, "off", "the", list, "list", ..] => {
            ("notes", "remove", json!({"list": list, "item": item}))
        }
        ["Show", "the", list, "list", ..] => ("notes", "show", json!({"list": list})),
        ["Dentist", ..] => ("timeline", "add", json!({"title": "dentist", "time": "9:30"})),
        ["What", "is", "on", "Friday", ..] => ("timeline", "show", json!({"day": "Friday"})),
        _ => return None,
    })
}

/// What words say that go on with a question.
fn answered(text: &str) -> Value {
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    match ["household", "office", "Friday"].into_iter().find(|word| words.contains(word) && !words.contains(&"not")) {
        Some("Friday") => json!({"day": "Friday"}),
        Some(list) => json!({"list": list}),
        None => json!({}),
    }
}

fn voice(call: &Call) -> Answer {
    let text = |place: &str| shown(call, place).and_then(|value| value.as_str().map(str::to_owned));
    match call.worker.as_str() {
        "planner" => {
            let words = text("/turn/text").expect("there are words");
            let is_done = shown(call, "/results/0").is_some();
            // Told of a question that waits, it is told what was asked.
            let waits =
                text("/turn/waits/department").filter(|_| answered(&words) != json!({}) || words.contains("not"));
            assert!(waits.is_none() || text("/turn/waits/question").is_some(), "what was asked");
            let agent = understood(&words).map(|(department, ..)| department.to_owned()).or(waits);
            say("/decisions/-", &json!({"agent": agent.filter(|_| !is_done).unwrap_or("nobody".to_owned())}))
        }
        "classify" => {
            let words = text("/request/text").expect("there are words");
            let (action, slots) = match (understood(&words), text("/request/waits/action")) {
                (Some((_, action, slots)), _) => (action.to_owned(), slots),
                (None, Some(action)) if answered(&words) != json!({}) => (action, answered(&words)),
                _ => ("none".to_owned(), json!({})),
            };
            // It keeps even noise for its own words.
            let normalised: String = words.chars().take(400).collect();
            say("/classified", &json!({"action": action, "slots": slots, "normalised": normalised}))
        }
        "responder" => {
            let results = shown(call, "/results").and_then(|results| results.as_array()?.last().cloned());
            say("/replies/-", &json!({"text": results.map_or(json!("nobody"), |result| result["text"].clone())}))
        }
        other => panic!("{other} is no model"),
    }
}

impl Agent for Voices {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        match call.seat().agent {
            AgentKind::Llm => Box::pin(std::future::ready(voice(call))),
            _ => self.seats.call(call),
        }
    }
}

struct Conversation {
    data: TempDir,
    runtime: Runtime,
    board: BoardHandle,
}

impl Conversation {
    async fn begin() -> Self {
        Self::with(Config::default()).await
    }

    async fn with(config: Config) -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let seats = Seats::new(config, &Environment::default(), Inline::Refused);
        let voices = Voices { seats: seats.with_storage(Storage::at(data.path())) };
        let agent = Inner::around(Arc::new(voices));
        let journal = SqliteJournal::open(data.path()).expect("a journal");
        let runtime = Runtime::start(Arc::new(journal), Options::new(Arc::new(agent))).await.expect("a runtime");
        let board = runtime.create(clipboard(), json!({}), None).await.expect("a board");
        let conversation = Self { data, runtime, board };
        conversation.rest().await;
        conversation
    }

    /// Waits until nothing is left to do.
    async fn rest(&self) {
        timeout(LONG, self.board.ended()).await.expect("it rests in time").expect("it rests by itself");
    }

    fn state(&self) -> Value {
        self.board.snapshot().state.root().to_value()
    }

    /// Says something; the state once it was answered.
    async fn say(&self, words: &str) -> Value {
        let before = self.state()["turn"]["n"].as_u64();
        self.board.signal("say", words.into(), None).await.expect("it is heard");
        for _ in 0..500 {
            self.rest().await;
            let state = self.state();
            if state["turn"]["n"].as_u64() > before && state["replies"] != json!([]) {
                return state;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no reply to {words}: {}", self.state());
    }

    /// What the reply is to this.
    async fn reply(&self, words: &str) -> String {
        self.say(words).await["replies"][0]["text"].as_str().expect("a reply is a text").to_owned()
    }

    async fn lists(&self) -> [String; 2] {
        [self.reply("Show the household list.").await, self.reply("Show the office list.").await]
    }

    /// What everybody was shown, by worker: views and prompts of all boards inside, as they were recorded.
    fn shown_inside(&self) -> Vec<(String, String)> {
        let journal = SqliteJournal::open_read_only(self.data.path()).expect("a journal");
        let mut shown = Vec::new();
        for board in journal.boards().expect("boards").into_iter().filter(|board| board.parent.is_some()) {
            for record in journal.records(&board.id, None, 1000).expect("records") {
                let Ok(Body::Invoked(invoked)) = record.body() else { continue };
                for hash in [invoked.view, invoked.prompt] {
                    let text = journal.blob(hash).expect("it is stored").expect("it is there");
                    shown.push((invoked.worker.to_string(), text));
                }
            }
        }
        shown
    }
}

/// Words that nothing else says.
fn noise() -> impl Strategy<Value = String> {
    "qx[a-z]{6,12}( qx[a-z\\u{e4}\"{}]{6,12}){0,4}"
}

#[test]
fn no_role_that_works_on_rows_is_ever_shown_the_users_words() {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(8) };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let outcome = runner.run(&(noise(), noise(), noise(), noise()), |(first, second, third, fourth)| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let shown = runtime.block_on(async {
            let conversation = Conversation::begin().await;
            conversation.say(&format!("Put bananas on the household list, {first}")).await;
            conversation.say("Put bananas on the office list").await;
            let asked = conversation.say(&format!("Throw the bananas off the list, {second}")).await;
            assert_eq!(asked["results"][0]["status"], "clarification", "{asked}");
            // One of a few, and then anything at all: what was asked for is a text.
            let done = conversation.say(&format!("household, {third}")).await;
            assert_eq!(done["results"][0]["text"], "Took bananas off the household list.", "{done}");
            assert_eq!(conversation.reply("Dentist at half past nine").await, "on which day?");
            let nothing = conversation.say(&fourth).await;
            assert_eq!(nothing["results"], json!([]), "{nothing}");
            let done = conversation.say(&format!("Friday, {fourth}")).await;
            assert_eq!(done["results"][0]["text"], "dentist is on Friday at 9:30.", "{done}");
            assert_eq!(conversation.reply("Dentist at half past nine").await, "on which day?");
            assert_eq!(conversation.say("Never mind.").await["results"][0]["finding"], "declined");
            let shown = conversation.shown_inside();
            conversation.runtime.shutdown().await;
            shown
        });
        // The words are somewhere, so the test can fail.
        for noise in [&first, &second, &third, &fourth] {
            let word = noise.split(' ').next().expect("a word");
            prop_assert!(shown.iter().any(|(worker, text)| worker == "classify" && text.contains(word)), "{}", word);
        }
        for role in ["resolve", "resume", "crud", "confirm"] {
            prop_assert!(shown.iter().any(|(worker, _)| worker == role), "{} was at work", role);
            for (_, text) in shown.iter().filter(|(worker, _)| worker == role) {
                prop_assert!(!text.contains("qx"), "{} is shown {}", role, text);
            }
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[tokio::test]
async fn an_offer_is_taken_by_a_yes_and_by_nothing_else() {
    let conversation = Conversation::begin().await;
    conversation.say("Put bananas on the household list.").await;
    let refused = conversation.say("Throw the bananas off the office list.").await;
    assert_eq!(
        (&refused["results"][0]["status"], &refused["results"][0]["pending"]["offer"]),
        (&json!("refusal"), &json!(true))
    );
    // It has the word by which the offered row goes, and asks for something else.
    let put = conversation.say("Put bananas on the office list.").await;
    assert_eq!((&put["turn"]["pending"], &put["turn"]["waits"]["department"]), (&Value::Null, &json!("notes")));
    assert_eq!(conversation.lists().await, ["On the household list: bananas.", "On the office list: bananas."]);
    conversation.say("Put tea on the office list.").await;
    conversation.say("Throw the tea off the household list.").await;
    assert_eq!(conversation.reply("Yes, please.").await, "Took tea off the office list.");
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn a_negation_chooses_nothing() {
    let conversation = Conversation::begin().await;
    conversation.say("Put bananas on the household list.").await;
    conversation.say("Put bananas on the office list.").await;
    conversation.say("Throw the bananas off the list.").await;
    let refused = conversation.say("no, not the household one").await;
    assert_eq!(
        (&refused["turn"]["pending"], &refused["results"][0]["finding"]),
        (&Value::Null, &json!("unknown_action"))
    );
    assert_eq!(conversation.lists().await, ["On the household list: bananas.", "On the office list: bananas."]);
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn what_is_no_answer_is_a_message_and_the_question_still_waits() {
    let conversation = Conversation::begin().await;
    assert_eq!(conversation.reply("Dentist at half past nine.").await, "on which day?");
    assert_eq!(conversation.reply("Never mind.").await, "Nothing was done, as the user does not want it.");
    assert_eq!(conversation.say("What is on Friday?").await["results"][0]["finding"], "not_found");
    conversation.say("Dentist at half past nine.").await;
    for other in ["Sing me a song.", "Show the office list."] {
        let state = conversation.say(other).await;
        assert_eq!(
            (&state["turn"]["pending"], &state["turn"]["waits"]["question"]),
            (&Value::Null, &json!("on which day?"))
        );
    }
    // Nobody reads a day out of these words but who understands words.
    assert_eq!(conversation.reply("on Friday, if he is there").await, "dentist is on Friday at 9:30.");
    assert_eq!(conversation.say("Sing me a song.").await["turn"]["waits"], Value::Null, "it is answered");
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn a_new_request_is_done_and_answers_nothing() {
    let conversation = Conversation::begin().await;
    conversation.say("Put bananas on the household list.").await;
    conversation.say("Put bananas on the office list.").await;
    conversation.say("Throw the bananas off the list.").await;
    assert_eq!(conversation.reply("Put milk on the household list.").await, "Put milk on the household list.");
    assert_eq!(
        conversation.lists().await,
        ["On the household list: bananas and milk.", "On the office list: bananas."]
    );
    // Another department's work leaves the question open.
    conversation.say("Throw the bananas off the list.").await;
    assert_eq!(conversation.say("What is on Friday?").await["turn"]["waits"]["department"], "notes");
    assert_eq!(conversation.reply("the office one").await, "Took bananas off the office list.");
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn a_pause_is_a_state_that_the_next_words_go_on_from() {
    let conversation = Conversation::begin().await;
    conversation.say("Put bananas on the household list.").await;
    conversation.say("Put bananas on the office list.").await;
    let asked = conversation.say("Throw the bananas off the list.").await;
    let result = &asked["results"][0];
    assert_eq!((&result["status"], &result["department"]), (&json!("clarification"), &json!("notes")));
    let question = result["question"].as_str().expect("a question");
    assert!(question.contains("household") && question.contains("office"), "{question}");
    let state = conversation.say("the household one").await;
    assert_eq!(state["turn"]["pending"]["department"], "notes");
    // Nobody decided anew: the words went to who had asked. The planner looked once, after it was done.
    assert_eq!(state["decisions"], json!([{"agent": "nobody"}]));
    assert_eq!(state["results"][0]["status"], "done");
    assert_eq!(state["replies"], json!([{"text": "Took bananas off the household list."}]));
    assert_eq!((&state["turn"]["n"], &state["messages"]), (&json!(4), &json!([])));
    conversation.board.signal("close", Value::Null, None).await.expect("it is heard");
    conversation.rest().await;
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn what_is_found_by_its_meaning_waits_for_an_answer() {
    let (config, _endpoint) = embeddings::configured();
    let conversation = Conversation::with(config).await;
    conversation.say("Put bananas on the household list.").await;
    let asked = conversation.say("Throw the plantains off the list.").await;
    assert_eq!(asked["results"][0]["status"], "clarification", "{asked}");
    let reply = asked["replies"][0]["text"].as_str().expect("a reply");
    assert!(reply.starts_with("did you mean bananas"), "{reply}");
    let state = conversation.say("yes").await;
    assert_eq!(state["replies"], json!([{"text": "Took bananas off the household list."}]));
    conversation.runtime.shutdown().await;
}

/// A call of the notes' crud for what was found, on a board inside another one.
fn asked_to_do(board: &str, invocation: u64, of: (&str, u64), found: &Value) -> Call {
    let mut blueprint = clipboard().boards.remove("notes").expect("the notes");
    let fields = blueprint.workers.get_mut("crud").expect("its crud").clone();
    let plan = Own.of(blueprint, &Mode::default()).expect("a plan");
    let state = State::new(&json!({"resolved": found}), &Hasher::new(&Salt::ZERO));
    let basis = Basis { state, reads: vec![PointerBuf::from_tokens(["resolved"])], members: Vec::new() };
    let shown = Shown::new(plan, "crud".into(), Arc::new(basis), false).expect("the worker is there");
    let parent = Parent { board: of.0.into(), invocation: InvocationId(of.1) };
    let call = support::call("crud", fields, "x", 0);
    Call {
        board: board.into(),
        invocation: InvocationId(invocation),
        parent: Some(parent),
        shown: Arc::new(shown),
        ..call
    }
}

#[tokio::test]
async fn boards_made_anew_for_one_invocation_do_not_change_the_same_twice() {
    let data = tempfile::tempdir().expect("a directory");
    let seats = Seats::new(Config::default(), &Environment::default(), Inline::Refused);
    let seats = seats.with_storage(Storage::at(data.path()));
    let found = |item: &str| json!({"status": "found", "action": "add", "slots": {"list": "office", "item": item}});
    let status = async |board: &str, invocation: u64, of: (&str, u64), item: &str| {
        let reply = seats.call(&asked_to_do(board, invocation, of, &found(item))).await.expect("a reply");
        let patch: Value = serde_json::from_str(&reply.text).expect("JSON");
        let outcome = &patch["patch"][0]["value"];
        json!([outcome["status"], outcome["slots"]["item"]])
    };
    assert_eq!(status("inner-0", 3, ("outer", 7), "tea").await, json!(["done", "tea"]));
    assert_eq!(
        status("inner-1", 3, ("outer", 7), "tea").await,
        json!(["done", "tea"]),
        "it gets what the first one got"
    );
    // Also if it understands something else this time: one invocation, one change.
    assert_eq!(status("inner-2", 3, ("outer", 7), "milk").await, json!(["done", "tea"]));
    assert_eq!(status("inner-3", 4, ("outer", 7), "milk").await, json!(["done", "milk"]), "another call within");
    assert_eq!(status("inner-4", 3, ("outer", 8), "tea").await, json!(["error", "tea"]), "it is there already");
}
