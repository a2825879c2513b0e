//! The shipped conversation with its departments, on a real journal and a real table; only what a model would say is given.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jsonptr::PointerBuf;
use patchboard_agents::config::{Config, Environment};
use patchboard_agents::departments::crud::carry_out;
use patchboard_agents::departments::storage::Storage;
use patchboard_agents::inner::Inner;
use patchboard_agents::seats::{Inline, Seats};
use patchboard_kernel::blueprint::{AgentKind, Blueprint};
use patchboard_kernel::department::Department;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::freshness::Basis;
use patchboard_kernel::id::{BoardId, InvocationId, Timestamp, Token};
use patchboard_kernel::lint;
use patchboard_kernel::mode::Mode;
use patchboard_kernel::plan::{Own, Plans as _};
use patchboard_kernel::record::{Body, Parent};
use patchboard_kernel::shown::Shown;
use patchboard_kernel::source::{self, Files, Source};
use patchboard_kernel::state::State;
use patchboard_runtime::agent::{Agent, Answer, Call, Failure, Reply};
use patchboard_runtime::journal::Journal as _;
use patchboard_runtime::journal::sqlite::SqliteJournal;
use patchboard_runtime::runtime::{BoardHandle, Options, Runtime, WeakRuntime};
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
    clipboard_with("", "")
}

/// The same with other workers and boards beside the departments that are folders.
fn clipboard_with(workers: &str, boards: &str) -> Blueprint {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../blueprints");
    let text = std::fs::read_to_string(directory.join("clipboard.yaml")).expect("it is shipped");
    let text = format!("{}{boards}", text.replacen("\nworkers:\n", &format!("\nworkers:\n{workers}"), 1));
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
        ["Unclear"] | ["Lose", "this"] => ("notes", "add", json!({"list": "office", "item": "bananas"})),
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
            if words == "Rubbish" {
                return Ok(Reply { text: "I would rather not.".to_owned(), usage: None, written: None });
            }
            let is_done = shown(call, "/results/0/status").is_some();
            if is_done == words.ends_with("Then rubbish") && (is_done || words == "Weather") {
                return say("/decisions/-", &json!({"agent": "weather"}));
            }
            // Told of a question that waits, it is told what was asked.
            let waits =
                text("/turn/waits/department").filter(|_| answered(&words) != json!({}) || words.contains("not"));
            assert!(waits.is_none() || text("/turn/waits/question").is_some(), "what was asked");
            let agent = understood(&words).map(|(department, ..)| department.to_owned()).or(waits);
            say("/decisions/-", &json!({"agent": agent.filter(|_| !is_done).unwrap_or("nobody".to_owned())}))
        }
        "classify" => {
            let words = text("/request/text").expect("there are words");
            if words.contains("Unclear") {
                return Err(Failure { code: FailureCode::Unreachable, message: "no model".to_owned(), usage: None });
            }
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
            let last = (0..8).rev().find_map(|index| shown(call, &format!("/results/{index}/text")));
            say("/replies/-", &json!({"text": last.unwrap_or_else(|| json!("nobody"))}))
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

/// Boards inside, of which some calls come to nothing.
struct Losing(Inner);

impl Agent for Losing {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        let is_lost = call.worker.as_str() == "notes" && shown(call, "/turn/text") == Some(json!("Lose this"));
        match is_lost {
            true => {
                let lost = Failure { code: FailureCode::Crashed, message: "lost".to_owned(), usage: None };
                Box::pin(std::future::ready(Err(lost)))
            }
            false => self.0.call(call),
        }
    }

    fn started(&self, runtime: &WeakRuntime) {
        self.0.started(runtime);
    }

    fn settled(&self, board: &BoardId, token: &Token) {
        self.0.settled(board, token);
    }

    fn ended(&self, board: &BoardId) {
        self.0.ended(board);
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
        let seats = Seats::new(config, &Environment::default(), Inline::Refused);
        let voices = Voices { seats: seats.with_storage(Storage::at(data.path())) };
        let agent = Losing(Inner::around(Arc::new(voices)));
        let journal = SqliteJournal::open(data.path()).expect("a journal");
        let runtime = Runtime::start(Arc::new(journal), Options::new(Arc::new(agent))).await.expect("a runtime");
        let board = runtime.create(blueprint, json!({}), None).await.expect("a board");
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

    /// All replies that were given, in their order.
    fn replies(&self) -> Vec<String> {
        let journal = SqliteJournal::open_read_only(self.data.path()).expect("a journal");
        let records = journal.records(self.board.id(), None, 10_000).expect("records");
        let replies = records.iter().filter_map(|record| match record.body() {
            Ok(Body::Committed(commit)) if commit.patch[0]["path"] == "/replies/-" => {
                Some(commit.patch[0]["value"]["text"].as_str().expect("a text").to_owned())
            }
            _ => None,
        });
        replies.collect()
    }

    /// What everybody was shown, by worker: views and prompts of all boards inside, or of the one outside, as they were
    /// recorded.
    fn shown(&self, is_inside: bool) -> Vec<(String, String)> {
        let journal = SqliteJournal::open_read_only(self.data.path()).expect("a journal");
        let mut shown = Vec::new();
        for board in journal.boards().expect("boards").into_iter().filter(|board| board.parent.is_some() == is_inside) {
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
            let shown = conversation.shown(true);
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
    let conversation = Conversation::with(clipboard(), config).await;
    conversation.say("Put bananas on the household list.").await;
    let asked = conversation.say("Throw the plantains off the list.").await;
    assert_eq!(asked["results"][0]["status"], "clarification", "{asked}");
    let reply = asked["replies"][0]["text"].as_str().expect("a reply");
    assert!(reply.starts_with("did you mean bananas"), "{reply}");
    let state = conversation.say("yes").await;
    assert_eq!(state["replies"], json!([{"text": "Took bananas off the household list."}]));
    conversation.runtime.shutdown().await;
}

const UNDECIDED: &str = "It could not be decided who works on this, so beside what other results say nothing was done.";

#[tokio::test]
async fn what_nobody_came_to_is_told_as_it_is() {
    let conversation = Conversation::begin().await;
    let result = |state: &Value, at: usize| state["results"][at].clone();
    // As often as a planner fails, the next turn is one like any other.
    for _ in 0..3 {
        let state = conversation.say("Rubbish").await;
        assert_eq!(result(&state, 0), json!({"department": "nobody", "status": "error", "text": UNDECIDED}));
        assert_eq!(state["replies"], json!([{"text": UNDECIDED}]));
    }
    // One that fails after something was done, and says so beside it.
    let state = conversation.say("Put bananas on the household list. Then rubbish").await;
    assert_eq!((&result(&state, 0)["status"], &result(&state, 1)["text"]), (&json!("done"), &json!(UNDECIDED)));
    // A department whose board inside fails, and one of which nothing is heard.
    let state = conversation.say("Unclear").await;
    let failed = "the board inside ended as quiescent (gave_up)";
    assert_eq!(result(&state, 0), json!({"department": "notes", "status": "error", "text": failed}));
    assert_eq!(state["replies"], json!([{"text": failed}]));
    let state = conversation.say("Lose this").await;
    let lost = "The department that was chosen came to no result; whether it has changed anything is not known.";
    assert_eq!(state["replies"], json!([{"text": lost}]));
    // Whoever waits for a turn does not take that of one that failed.
    let before = conversation.replies().len();
    for words in ["Rubbish", "Lose this", "Put bananas on the office list."] {
        conversation.board.signal("say", words.into(), None).await.expect("it is heard");
    }
    for _ in 0..500 {
        if conversation.replies().len() == before + 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(conversation.replies()[before..], [UNDECIDED, lost, "Put bananas on the office list."]);
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn who_speaks_of_results_is_shown_what_they_say_and_nothing_beside() {
    let conversation = Conversation::begin().await;
    conversation.say("Put bananas on the household list.").await;
    conversation.say("Put bananas on the office list.").await;
    let asked = conversation.say("Throw the bananas off the list.").await;
    assert!(asked["results"][0]["pending"]["expires_at"].is_number(), "{asked}");
    conversation.say("the household one").await;
    let shown = conversation.shown(false);
    let of = |worker: &str| {
        shown.iter().filter(|(name, _)| name == worker).map(|(_, text)| text.as_str()).collect::<String>()
    };
    for (worker, said) in
        [("planner", "Put bananas on the household list."), ("responder", "which list, household or office?")]
    {
        let shown = of(worker);
        assert!(shown.contains(said), "{worker} is not shown what was said: {shown}");
        for beside in ["expires_at", "pending\"", "evidence", "\"data\"", "entries"] {
            assert!(!shown.contains(beside), "{worker} is shown {beside}: {shown}");
        }
    }
    assert!(of("begin").contains("expires_at"), "somebody is");
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn a_result_of_many_rows_gets_out_as_far_as_there_is_room_and_says_so() {
    let conversation = Conversation::begin().await;
    let clipboard = clipboard();
    let with = clipboard.boards["notes"].workers["crud"].with.clone().expect("a department");
    let department: Department = serde_json::from_value(with["department"].clone()).expect("a department");
    let storage = Storage::at(conversation.data.path());
    for number in 0..200 {
        let slots = json!({"list": "office", "item": format!("{number} {}", "\u{e4}".repeat(190))});
        let found = serde_json::from_value(json!({"status": "found", "action": "add", "slots": slots}));
        let key = format!("row {number}");
        let outcome =
            carry_out(&storage, &department, &key, &found.expect("found"), Timestamp(1), 10_000).expect("no fault");
        assert_eq!(outcome.count, 1, "{outcome:?}");
    }
    let state = conversation.say("Show the office list.").await;
    let result = &state["results"][0];
    assert_eq!(result["status"], "done", "{result}");
    let bytes = result.to_string().len();
    assert!((16_384..65_536).contains(&bytes), "more than what workers otherwise may write: {bytes}");
    let given = result["data"]["entries"].as_array().expect("rows").len();
    assert!((50..100).contains(&given), "{given}");
    let text = state["replies"][0]["text"].as_str().expect("a text");
    let said = text.matches('\u{e4}').count() / 190;
    let more = format!(" and {} more.", 200 - said);
    assert!(said > 2 && text.ends_with(&more), "{text}");
    // What is asked about them gets out as well.
    let asked = conversation.say("Throw the bananas off the list.").await;
    assert_eq!(asked["results"][0]["status"], "error", "nothing is like bananas: {asked}");
    conversation.runtime.shutdown().await;
}

/// A department without rows, made by hand.
const WEATHER: (&str, &str) = (
    "  weather:
    agent: board
    group: departments
    description: What the weather is.
    reads: [/turn/text]
    writes: [{path: /results/-, ops: [add]}]
    limits: {invocations: 1000000}
    board: {of: weather, input: {text: /turn/text}, output: {/results/-: /result}}
",
    "
boards:
  weather:
    blueprint: 1
    name: weather
    request: {type: object, additionalProperties: false, required: [text], properties: {text: {type: string}}}
    state:
      schema:
        type: object
        additionalProperties: false
        properties:
          request: true
          result: {type: object, required: [department, status, text]}
    workers:
      looks:
        agent: script
        script: [[{op: add, path: /result, value: {department: weather, status: done, text: It rains.}}]]
        writes: [{path: /result, ops: [add]}]
    rules: [{name: look, trigger: start, run: looks}]
    done: {when: has(state.result)}
",
);

#[tokio::test]
async fn a_board_made_by_hand_is_a_department_beside_the_folders() {
    let blueprint = clipboard_with(WEATHER.0, WEATHER.1);
    assert_eq!(blueprint.state.schema["$defs"]["group:departments"]["enum"], json!(["notes", "timeline", "weather"]));
    let conversation = Conversation::with(blueprint, Config::default()).await;
    let state = conversation.say("Weather").await;
    assert_eq!(state["decisions"], json!([{"agent": "weather"}, {"agent": "nobody"}]));
    assert_eq!(state["replies"], json!([{"text": "It rains."}]));
    assert_eq!(conversation.say("Put bananas on the office list.").await["results"][0]["status"], "done");
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
