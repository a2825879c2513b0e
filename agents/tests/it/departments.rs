//! The shipped conversation with its departments, on a real journal and a real table; only model replies are given.

mod once;
mod pauses;
mod results;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jsonptr::PointerBuf;
use patchboard_agents::config::{Config, Environment};
use patchboard_agents::nested_boards::NestedBoards;
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_kernel::blueprint::{AgentKind, Blueprint};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, IdempotencyKey};
use patchboard_kernel::record::Body;
use patchboard_lint::source::{FileLoader, Source};
use patchboard_roles::departments::storage::Storage;
use patchboard_runtime::agent::{Agent, Call, CallResult, Failure, Reply};
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal as _;
use patchboard_storage::sqlite::SqliteJournal;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(20);

struct Shipped(PathBuf);

impl FileLoader for Shipped {
    fn text(&mut self, name: &str) -> Result<String, String> {
        std::fs::read_to_string(self.0.join(name)).map_err(|error| error.to_string())
    }

    fn folders(&mut self, name: &str) -> Result<Vec<String>, String> {
        let entries = std::fs::read_dir(self.0.join(name)).map_err(|error| error.to_string())?;
        Ok(entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect())
    }
}

fn clipboard() -> Blueprint {
    clipboard_with("", "")
}

/// Returns the clipboard blueprint with further workers and boards.
fn clipboard_with(workers: &str, boards: &str) -> Blueprint {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../blueprints");
    let text = std::fs::read_to_string(directory.join("clipboard.yaml")).expect("it is shipped");
    let text = format!("{}{boards}", text.replacen("\nworkers:\n", &format!("\nworkers:\n{workers}"), 1));
    let source = Source::read("clipboard.yaml", &text).expect("it is YAML");
    let source = patchboard_protocols::resolve(source, &mut Shipped(directory)).expect("its departments are sound");
    let report = patchboard_protocols::check(&source);
    assert_eq!(report.findings, []);
    report.blueprint.expect("there is no error")
}

/// Agent that replaces a model and knows a few sentences.
struct Voices {
    seats: AgentRegistry,
}

/// Returns the value at a place of the view.
fn shown(call: &Call, place: &str) -> Option<Value> {
    let place = PointerBuf::parse(place).expect("a pointer");
    call.context.value_at(&place).expect("it is shown whole").map(|node| node.to_value())
}

fn say(path: &str, value: &Value) -> CallResult {
    let text = json!({"patch": [{"op": "add", "path": path, "value": value}]}).to_string();
    Ok(Reply::new(text, None))
}

/// Returns the department, action and slots that a sentence asks for, if it is a request.
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
        ["Unclear"] | ["Lose", "this"] => ("notes", "add", json!({"list": "office", "item": "bananas"})),
        _ => return None,
    })
}

/// Returns the request of each sentence.
fn each_understood(text: &str) -> impl Iterator<Item = (&'static str, &'static str, Value)> {
    text.split_inclusive(['.', '?']).filter_map(|sentence| understood(sentence.trim()))
}

/// Returns the slots of a text that answers a question.
fn answered(text: &str) -> Value {
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    match ["household", "office", "Friday"].into_iter().find(|word| words.contains(word) && !words.contains(&"not")) {
        Some("Friday") => json!({"day": "Friday"}),
        Some(list) => json!({"list": list}),
        None => json!({}),
    }
}

fn voice(call: &Call) -> CallResult {
    let text = |place: &str| shown(call, place).and_then(|value| value.as_str().map(str::to_owned));
    match call.worker.as_str() {
        "planner" => {
            let words = text("/turn/text").expect("there are words");
            if words == "Rubbish" {
                return Ok(Reply::new("I would rather not.", None));
            }
            let decision = |agent: &str| json!({"op": "add", "path": "/decisions/-", "value": {"agent": agent}});
            if words == "Two at once" {
                let text = json!({"patch": [decision("notes"), decision("timeline")]}).to_string();
                return Ok(Reply::new(text, None));
            }
            if words.ends_with("And again") {
                return say("/decisions/-", &json!({"agent": "notes"}));
            }
            let is_done = shown(call, "/results/0/status").is_some();
            if is_done == words.ends_with("Then rubbish") && (is_done || words == "Weather") {
                return say("/decisions/-", &json!({"agent": "weather"}));
            }
            // A view of a pending question includes its text.
            let waits = text("/turn/waits/department")
                .filter(|_| answered(&words) != json!({}) || words.contains("not") || words == "Paris");
            assert!(waits.is_none() || text("/turn/waits/question").is_some(), "what was asked");
            // Chooses the next sentence's department by counting the results so far.
            let count = (0..8).take_while(|index| shown(call, &format!("/results/{index}/status")).is_some()).count();
            let next = each_understood(&words).map(|(department, ..)| department.to_owned()).nth(count);
            let agent = next.or(waits.filter(|_| !is_done));
            say("/decisions/-", &json!({"agent": agent.unwrap_or("nobody".to_owned())}))
        }
        "classify" => {
            let words = text("/request/text").expect("there are words");
            if words.contains("Unclear") {
                return Err(Failure {
                    code: FailureCode::Unreachable,
                    message: "no model".to_owned(),
                    usage: None,
                    deferral: None,
                });
            }
            // A department acts only on its own sentence.
            let own = call.context.plan().blueprint.name.clone();
            let understood = each_understood(&words).find(|(department, ..)| *department == own);
            let (action, slots) = match (understood, text("/request/waits/action")) {
                (Some((_, action, slots)), _) => (action.to_owned(), slots),
                (None, Some(action)) if answered(&words) != json!({}) => (action, answered(&words)),
                _ => ("none".to_owned(), json!({})),
            };
            // Even noise is kept in the normalised text.
            let normalised: String = words.chars().take(400).collect();
            say("/classified", &json!({"action": action, "slots": slots, "normalised": normalised}))
        }
        "responder" => {
            // Fails on each triggered call, but not when it is asked why no reply was given.
            if text("/turn/text").as_deref() == Some("Silence") && call.context.trigger_place().is_some() {
                return Err(Failure {
                    code: FailureCode::Unreachable,
                    message: "no model".to_owned(),
                    usage: None,
                    deferral: None,
                });
            }
            let last = (0..8).rev().find_map(|index| shown(call, &format!("/results/{index}/text")));
            say("/replies/-", &json!({"text": last.unwrap_or_else(|| json!("nobody"))}))
        }
        other => panic!("{other} is no model"),
    }
}

impl Agent for Voices {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        match call.worker_config().agent {
            AgentKind::Llm => Box::pin(std::future::ready(voice(call))),
            _ => self.seats.call(call),
        }
    }
}

/// Nested boards with some calls that fail as lost.
struct Losing(Arc<NestedBoards>);

impl Agent for Losing {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        let is_lost = call.worker.as_str() == "notes" && shown(call, "/turn/text") == Some(json!("Lose this"));
        match is_lost {
            true => {
                let lost =
                    Failure { code: FailureCode::Crashed, message: "lost".to_owned(), usage: None, deferral: None };
                Box::pin(std::future::ready(Err(lost)))
            }
            false => self.0.call(call),
        }
    }

    fn on_settled(&self, board: &BoardId, token: &IdempotencyKey) {
        self.0.on_settled(board, token);
    }

    fn on_board_ended(&self, board: &BoardId) {
        self.0.on_board_ended(board);
    }
}

struct Conversation {
    data: TempDir,
    runtime: Runtime,
    board: BoardHandle,
}

impl Conversation {
    async fn begin() -> Self {
        Self::with(clipboard(), Config::default()).await
    }

    async fn with(blueprint: Blueprint, config: Config) -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let seats = AgentRegistry::new(config, &Environment::default(), InlinePrograms::Denied);
        let voices = Voices { seats: seats.with_storage(Storage::in_dir(data.path())) };
        let nested = Arc::new(NestedBoards::new(Arc::new(voices)));
        let journal = SqliteJournal::open(data.path()).expect("a journal");
        let agent = Arc::new(Losing(Arc::clone(&nested)));
        let runtime = nested.start(Arc::new(journal), Options::new(agent)).await.expect("a runtime");
        let board = runtime.create(blueprint, json!({}), None).await.expect("a board");
        let conversation = Self { data, runtime, board };
        conversation.rest().await;
        conversation
    }

    /// Waits until the board has no work left.
    async fn rest(&self) {
        timeout(LONG, self.board.wait_for_end()).await.expect("it rests in time").expect("it rests by itself");
    }

    fn state(&self) -> Value {
        self.board.status().state.root().to_value()
    }

    /// Sends a message; returns the state once it was answered.
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
        let journal = SqliteJournal::open_read_only(self.data.path()).expect("a journal");
        let records = wait(journal.records(self.board.id(), None, 10_000)).expect("records");
        let last: Vec<String> = records.iter().rev().take(5).map(|record| format!("{record:.300?}")).collect();
        panic!("no reply to {words:.60?}: {last:#?}");
    }

    /// Returns the reply to a message.
    async fn reply(&self, words: &str) -> String {
        self.say(words).await["replies"][0]["text"].as_str().expect("a reply is a text").to_owned()
    }

    async fn lists(&self) -> [String; 2] {
        [self.reply("Show the household list.").await, self.reply("Show the office list.").await]
    }

    /// Returns all replies in order.
    fn replies(&self) -> Vec<String> {
        let journal = SqliteJournal::open_read_only(self.data.path()).expect("a journal");
        let records = wait(journal.records(self.board.id(), None, 10_000)).expect("records");
        let replies = records.iter().filter_map(|record| match record.body() {
            Ok(Body::Committed(commit)) if commit.patch[0]["path"] == "/replies/-" => {
                Some(commit.patch[0]["value"]["text"].as_str().expect("a text").to_owned())
            }
            _ => None,
        });
        replies.collect()
    }

    /// Returns the recorded views and prompts by worker: of all nested boards, or of the outer one.
    fn shown(&self, is_inside: bool) -> Vec<(String, String)> {
        let journal = SqliteJournal::open_read_only(self.data.path()).expect("a journal");
        let mut shown = Vec::new();
        for board in
            wait(journal.boards()).expect("boards").into_iter().filter(|board| board.parent.is_some() == is_inside)
        {
            for record in wait(journal.records(&board.id, None, 1000)).expect("records") {
                let Ok(Body::Invoked(invoked)) = record.body() else { continue };
                for hash in [invoked.view, invoked.prompt] {
                    let text = wait(journal.blob(hash)).expect("it is stored").expect("it is there");
                    shown.push((invoked.worker.to_string(), text));
                }
            }
        }
        shown
    }
}

/// Generates words that occur nowhere else.
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
            // First a listed answer with noise, then noise alone as an answer to a free-text question.
            let done = conversation.say(&format!("household, {third}")).await;
            assert_eq!(done["results"][0]["text"], "Took bananas off the household list.", "{done}");
            assert_eq!(conversation.reply("Dentist at half past nine").await, "on which day?");
            let nothing = conversation.say(&fourth).await;
            assert_eq!(nothing["results"], json!([]), "{nothing}");
            let done = conversation.say(&format!("Friday, {fourth}")).await;
            assert_eq!(done["results"][0]["text"], "dentist is on Friday at 9:30.", "{done}");
            assert_eq!(conversation.reply("Dentist at half past nine").await, "on which day?");
            assert_eq!(conversation.say("Never mind.").await["results"][0]["finding"], "declined");
            let shown = conversation.shown(true);
            conversation.runtime.shutdown().await;
            shown
        });
        // The words occur somewhere, so the test can fail.
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
