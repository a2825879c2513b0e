//! Recording and playing of cassettes.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use patchboard_agents::cassette::{CassetteError, Player, Recorder, ToolRecorder};
use patchboard_kernel::digest::sha256;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, IdempotencyKey};
use patchboard_kernel::ledger::Usage;
use patchboard_runtime::agent::{Agent, Call, CallResult, Failure, Reply};
use patchboard_runtime::tools::{BoxFuture, Toolbox, Tools};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{call, seat};
use crate::tools::{Bench, Benches, Log, logged};

/// Agent that answers with its prompt, after the delay in milliseconds that begins the prompt.
struct Echo;

impl Agent for Echo {
    fn context_window(&self, model: Option<&str>) -> Option<u32> {
        match model {
            None => Some(8192),
            Some("large") => Some(128_000),
            Some(_) => None,
        }
    }

    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        Box::pin(async move {
            let shown = &call.prompt.user;
            let (first, rest) = shown.split_once(' ').unwrap_or((shown, ""));
            tokio::time::sleep(Duration::from_millis(first.parse().unwrap_or(0))).await;
            let usage = Some(Usage { prompt: 5, ..Usage::default() });
            match rest {
                "fail" => Err(Failure { code: FailureCode::Refused, message: "no".into(), usage, deferral: None }),
                _ => Ok(Reply::new(format!("{shown}/{}", call.occurrence), usage)),
            }
        })
    }
}

fn asked(worker: &str, shown: &str, occurrence: u32) -> Call {
    call(worker, seat(json!({"agent": "llm"})), shown, occurrence)
}

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("run.cassette");
    (dir, path)
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("a file");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Makes the calls concurrently; returns the answers in order of arrival. Each call is settled on arrival, as a runtime
/// would do.
async fn race(agent: &Arc<dyn Agent>, calls: Vec<Call>) -> Vec<String> {
    let came = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = calls
        .into_iter()
        .map(|call| {
            let (agent, came) = (Arc::clone(agent), Arc::clone(&came));
            tokio::spawn(async move {
                let answer = agent.call(&call).await;
                let text = answer.map_or_else(|failure| failure.to_string(), |reply| reply.text);
                // A call released before this one is settled would be pushed first.
                tokio::time::sleep(Duration::from_millis(u64::from(call.occurrence) * 7 % 5)).await;
                came.lock().expect("whole").push(text);
                agent.on_settled(&call.board, &call.idempotency_key);
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    Arc::into_inner(came).expect("all tasks have ended").into_inner().expect("whole")
}

#[tokio::test(start_paused = true)]
async fn recorded_answers_are_replayed_one_by_one() {
    let (_dir, path) = place();
    let recorder = Recorder::create(&path, "demo", Arc::new(Echo)).expect("a new file");
    let calls = [asked("a", "0 x", 0), asked("a", "0 x", 1), asked("b", "0 x", 0), asked("b", "0 fail", 1)];
    let mut recorded = Vec::new();
    for call in &calls {
        recorded.push(recorder.call(call).await);
        recorder.on_settled(&call.board, &call.idempotency_key);
    }
    assert_eq!(recorder.finish().expect("written"), 4);

    let found = lines(&path);
    assert_eq!(found[0], json!({"cassette": 1, "blueprint": "demo"}));
    let view = sha256(b"0 x").to_string();
    assert_eq!(
        found[2],
        json!({"worker": "a", "view": view, "occurrence": 1, "order": 1, "shown": "0 x",
            "reply": {"text": "0 x/1"}, "usage": {"prompt": 5, "completion": 0}})
    );
    assert_eq!(found[4]["failure"], json!({"code": "refused", "message": "no"}));

    let player = Player::open(&path).expect("a cassette");
    assert_eq!(player.blueprint(), "demo");
    assert_eq!(player.salt().0, sha256(&std::fs::read(&path).expect("a file")).0);
    for (call, recorded) in calls.iter().zip(recorded) {
        assert_eq!(player.call(call).await, recorded);
        player.on_settled(&call.board, &call.idempotency_key);
    }
    assert_eq!(player.remaining(), 0);
}

#[tokio::test]
async fn answers_come_in_the_recorded_order_whatever_the_order_of_the_calls() {
    let (_dir, path) = place();
    let names = ["a", "b", "c", "d", "e", "f"];
    // The first is the slowest; the last two take equally long.
    let shown = ["250", "200", "150", "100", "50", "50"];
    let calls = || names.iter().zip(shown).zip(0..).map(|((name, shown), n)| asked(name, shown, n)).collect::<Vec<_>>();
    let recorder: Arc<dyn Agent> = Arc::new(Recorder::create(&path, "demo", Arc::new(Echo)).expect("a new file"));
    let recorded = race(&recorder, calls()).await;
    let tape = lines(&path);
    let orders = tape[1..].iter().map(|entry| entry["reply"]["text"].as_str().expect("a text").to_owned());
    assert_eq!(recorded, orders.collect::<Vec<_>>(), "the order in the file is that of the outcomes");

    for rotation in 0..names.len() {
        let player: Arc<dyn Agent> = Arc::new(Player::open(&path).expect("a cassette"));
        let mut calls = calls();
        calls.rotate_left(rotation);
        assert_eq!(race(&player, calls).await, recorded, "rotated by {rotation}");
    }
}

/// Writes a cassette with entries given as (worker, shown, order, outcome).
fn written(path: &Path, entries: &[(&str, &str, u64, Value)]) {
    let mut text = json!({"cassette": 1, "blueprint": "demo"}).to_string() + "\n";
    for (worker, shown, order, outcome) in entries {
        let mut entry = json!({"worker": worker, "view": sha256(shown.as_bytes()), "occurrence": 0, "order": order,
            "shown": shown});
        for (name, value) in outcome.as_object().expect("an object") {
            entry[name] = value.clone();
        }
        text += &(entry.to_string() + "\n");
    }
    std::fs::write(path, text).expect("written");
}

fn reply(text: &str) -> Value {
    json!({"reply": {"text": text}})
}

#[tokio::test(start_paused = true)]
async fn later_answers_proceed_past_an_unrequested_earlier_one() {
    let (_dir, path) = place();
    written(&path, &[("never", "x", 0, reply("0")), ("a", "x", 1, reply("1")), ("b", "x", 2, reply("2"))]);
    let player: Arc<dyn Agent> = Arc::new(Player::open(&path).expect("a cassette"));
    assert_eq!(race(&player, vec![asked("b", "x", 0), asked("a", "x", 0)]).await, ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_passed_answers_over_waits_for_none_of_them_again() {
    let (_dir, path) = place();
    let entries: Vec<_> = (0..6).map(|order| if order < 3 { "never" } else { "a" }).zip(0..).collect();
    let shown = ["0", "1", "2", "3", "4", "5"];
    let entries: Vec<_> =
        entries.iter().map(|(worker, order)| (*worker, shown[*order as usize], *order, reply("r"))).collect();
    written(&path, &entries);
    let player = Player::open(&path).expect("a cassette");
    let mut waits = Vec::new();
    for shown in &shown[3..] {
        let call = asked("a", shown, 0);
        let before = tokio::time::Instant::now();
        player.call(&call).await.expect("a reply");
        player.on_settled(&call.board, &call.idempotency_key);
        waits.push(before.elapsed() >= Duration::from_millis(10));
    }
    assert_eq!(waits, [true, false, false]);
    assert_eq!(player.remaining(), 3, "nobody was given them");
    let late = asked("never", "1", 0);
    assert_eq!(player.call(&late).await.expect("a reply").text, "r", "they are there for whoever asks after all");
    assert_eq!(player.remaining(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_board_that_goes_on_is_not_given_what_it_had_before_and_waits_for_nothing() {
    let (_dir, path) = place();
    let recorder = Recorder::create(&path, "demo", Arc::new(Echo)).expect("a new file");
    for (worker, shown, occurrence) in [("a", "0 x", 0), ("b", "0 y", 0), ("a", "0 x", 1)] {
        let call = asked(worker, shown, occurrence);
        recorder.call(&call).await.expect("a reply");
        recorder.on_settled(&call.board, &call.idempotency_key);
    }
    recorder.finish().expect("written");
    let player = Player::open(&path).expect("a cassette");
    player.skip_answered(&"a".into(), sha256(b"0 x"));
    player.skip_answered(&"b".into(), sha256(b"0 y"));
    player.skip_answered(&"b".into(), sha256(b"never recorded"));
    assert_eq!(player.remaining(), 1);
    let before = tokio::time::Instant::now();
    assert_eq!(player.call(&asked("a", "0 x", 1)).await.expect("a reply").text, "0 x/1");
    assert!(before.elapsed() < Duration::from_millis(10), "{:?}", before.elapsed());
    assert_eq!(player.remaining(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_that_is_given_up_lets_the_others_go_on() {
    let (_dir, path) = place();
    written(&path, &[("a", "x", 0, reply("0")), ("b", "x", 1, reply("1")), ("c", "x", 2, reply("2"))]);
    let player = Player::open(&path).expect("a cassette");
    let (second, third) = (asked("b", "x", 0), asked("c", "x", 0));
    let mut waiting = player.call(&second);
    assert!(futures_are_pending(&mut waiting).await);
    drop(waiting);
    assert_eq!(player.remaining(), 2, "only the one given up is gone");
    let first = asked("a", "x", 0);
    assert_eq!(player.call(&first).await.expect("a reply").text, "0");
    player.on_settled(&first.board, &first.idempotency_key);
    let before = tokio::time::Instant::now();
    assert_eq!(player.call(&third).await.expect("a reply").text, "2");
    assert!(before.elapsed() < Duration::from_millis(10), "nobody is left to wait for");
}

/// Polls once.
async fn futures_are_pending(future: &mut Pin<Box<dyn Future<Output = CallResult> + Send + '_>>) -> bool {
    std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context).is_pending())).await
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_given_up_while_recording_is_not_answered_while_playing() {
    let (_dir, path) = place();
    let recorder = Recorder::create(&path, "demo", Arc::new(Echo)).expect("a new file");
    let (slow, quick) = (asked("slow", "1000", 0), asked("quick", "1", 0));
    let mut abandoned = recorder.call(&slow);
    assert!(futures_are_pending(&mut abandoned).await);
    recorder.call(&quick).await.expect("a reply");
    drop(abandoned);
    assert_eq!(lines(&path)[2]["cancelled"], true);

    let player = Player::open(&path).expect("a cassette");
    let mut waiting = player.call(&slow);
    assert!(futures_are_pending(&mut waiting).await);
    assert_eq!(player.call(&quick).await.expect("does not wait for the other").text, "1/0");
    // A run that keeps waiting has diverged from its recording.
    assert_eq!(waiting.await.expect_err("nothing recorded").code, FailureCode::CassetteMiss);
}

#[tokio::test]
async fn a_miss_names_the_nearest_recorded_view_and_shows_the_difference() {
    let (_dir, path) = place();
    let far = "something\nelse\nentirely\n";
    let near = "title\none\ntwo\nthree\nfour\n";
    written(&path, &[("a", far, 0, reply("0")), ("a", near, 1, reply("1"))]);
    let player = Player::open(&path).expect("a cassette");

    let failure = player.call(&asked("a", "title\none\n2\nthree\nfour\n", 0)).await.expect_err("not recorded");
    assert_eq!(failure.code, FailureCode::CassetteMiss);
    for part in ["worker a", &sha256(b"title\none\n2\nthree\nfour\n").to_string(), &sha256(near.as_bytes()).to_string()]
    {
        assert!(failure.message.contains(part), "{part:?} is not in {failure}");
    }
    assert!(failure.message.contains("--- recorded\n+++ now\n@@ -2,3 +2,3 @@\n one\n-two\n+2\n three"), "{failure}");

    let other: String = (0..100).map(|n| format!("line {n}\n")).collect();
    let failure = player.call(&asked("a", &other, 0)).await.expect_err("not recorded");
    assert!(failure.message.lines().count() <= 22, "{failure}");
    assert!(failure.message.contains("more lines"), "{failure}");

    player.call(&asked("a", far, 0)).await.expect("recorded once");
    let failure = player.call(&asked("a", far, 1)).await.expect_err("not twice");
    assert!(failure.message.contains("for the 2. time"), "{failure}");
    let failure = player.call(&asked("b", far, 0)).await.expect_err("not recorded");
    assert!(failure.message.contains("no call of that worker"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_recording_goes_on_where_it_ended() {
    let (_dir, path) = place();
    let say = async |agent: Arc<dyn Agent>, calls: &[(&str, &str, u32)]| {
        let mut texts = Vec::new();
        for (worker, shown, occurrence) in calls {
            texts.extend(race(&agent, vec![asked(worker, shown, *occurrence)]).await);
        }
        texts
    };
    let before = Arc::new(Recorder::create(&path, "b", Arc::new(Echo)).expect("a new file"));
    say(before.clone(), &[("a", "x", 0), ("a", "x", 1)]).await;
    assert_eq!(before.finish().expect("written"), 2);
    // A new process, which counts from the beginning.
    let player = Player::open(&path).expect("a recording");
    let after = Arc::new(Recorder::append(&path, &player, Arc::new(Echo)).expect("it is there"));
    say(after.clone(), &[("a", "x", 7), ("b", "y", 8)]).await;
    assert_eq!(after.finish().expect("written"), 2);
    let all = [("a", "x", 0), ("a", "x", 1), ("a", "x", 2), ("b", "y", 0)];
    let played = say(Arc::new(Player::open(&path).expect("one recording")), &all).await;
    assert_eq!(played, ["x/0", "x/1", "x/7", "y/8"]);
}

#[test]
fn a_recording_is_not_overwritten_unless_it_is_asked_for() {
    let (_dir, path) = place();
    written(&path, &[("a", "x", 0, reply("0"))]);
    let error = Recorder::create(&path, "demo", Arc::new(Echo)).err().expect("refused");
    assert!(matches!(error, CassetteError::Exists { .. }), "{error}");
    assert_eq!(lines(&path).len(), 2, "and it is as it was");
    Recorder::replace(&path, "demo", Arc::new(Echo)).expect("asked for");
    assert_eq!(lines(&path).len(), 1);
}

#[test]
fn invalid_cassettes_are_rejected_with_their_line() {
    let (_dir, path) = place();
    let header = r#"{"cassette":1,"blueprint":"b"}"#;
    let view = sha256(b"x");
    let entry = |order: u32, rest: &str| {
        format!(r#"{{"worker":"w","view":"{view}","occurrence":{order},"order":{order},"shown":"x"{rest}}}"#)
    };
    let reply = r#","reply":{"text":"[]"}"#;
    let (whole, neither) = (entry(0, reply), entry(0, ""));
    for (text, line, words) in [
        (String::new(), 1, "empty"),
        ("[]".into(), 1, "no cassette"),
        (r#"{"cassette":2,"blueprint":"b"}"#.into(), 1, "format 2"),
        (format!("{header}\n{whole}\n{whole}"), 3, "second entry"),
        (format!("{header}\n{neither}"), 2, "one of reply"),
        (format!("{header}\n\n{}", &whole[..20]), 3, "EOF"),
        (format!("{header}\n{}", entry(0, &format!("{reply},\"more\":1"))), 2, "more"),
    ] {
        std::fs::write(&path, &text).expect("written");
        let error = Player::open(&path).err().expect("refused").to_string();
        assert!(error.contains(&format!("line {line}")) && error.contains(words), "{error} for {text}");
    }
    assert!(matches!(Player::open(&path.join("none")).err(), Some(CassetteError::Io { .. })));
}

#[tokio::test]
async fn calls_are_answered_without_settlement_notices() {
    let (_dir, path) = place();
    written(&path, &[("a", "x", 0, reply("0")), ("b", "x", 1, reply("1"))]);
    let player = Player::open(&path).expect("a cassette");
    let (first, second) = (asked("a", "x", 0), asked("b", "x", 0));
    let (one, two) = tokio::join!(player.call(&first), player.call(&second));
    assert_eq!((one.expect("a reply").text, two.expect("a reply").text), ("0".into(), "1".into()));
    // Settling an unknown call does no harm.
    player.on_settled(&BoardId::from("other"), &IdempotencyKey::from("t"));
}

/// Agent that calls the tool `flaky` twice with its worker's name, and goes on after each.
struct Busy(Arc<dyn Toolbox>);

impl Agent for Busy {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        Box::pin(async move {
            let mut tools = self.0.open(call).await?.expect("tools");
            for text in [1, 2] {
                let arguments = json!({"text": format!("{} {text}", call.worker)}).to_string();
                tools.call("flaky", &arguments, 1_000).await;
                let usage = Some(Usage { prompt: 9, ..Usage::default() });
                tools.checkpoint(usage, 100).await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(Reply::new("[]", None))
        })
    }
}

/// Records two workers that use tools concurrently; returns the log of the tools.
async fn recorded_work(path: &Path) -> Vec<String> {
    let (log, notes) = (Log::default(), ToolRecorder::default());
    let agent = Arc::new(Busy(notes.wrap(Arc::new(Benches(Arc::clone(&log), 0)))));
    let recorder = Recorder::create(path, "demo", agent).expect("a new file").with_tool_recorder(notes);
    let recorder: Arc<dyn Agent> = Arc::new(recorder);
    let answers = race(&recorder, vec![asked("a", "x", 0), asked("b", "x", 0)]).await;
    assert_eq!(answers, ["[]", "[]"]);
    logged(&log)
}

#[tokio::test]
async fn recorded_tool_calls_are_replayed_in_order_before_the_answer() {
    let (_dir, path) = place();
    let done = recorded_work(&path).await;
    assert_eq!(done.len(), 8);
    let entries = lines(&path);
    let steps: Vec<_> =
        entries[1..].iter().flat_map(|entry| entry["tools"].as_array().expect("steps").clone()).collect();
    let mut orders: Vec<u64> = steps.iter().map(|step| step["order"].as_u64().expect("a number")).collect();
    orders.extend(entries[1..].iter().map(|entry| entry["order"].as_u64().expect("a number")));
    orders.sort_unstable();
    assert_eq!(orders, (0..10).collect::<Vec<u64>>(), "answers and steps have one order");
    assert_eq!(steps[1]["did"], json!({"went_on": {"usage": {"prompt": 9, "completion": 0}, "reserve": 100}}));
    let text = steps[0]["did"]["used"]["arguments"].as_str().expect("arguments").to_owned();
    let gave = serde_json::from_str::<Value>(&text).expect("JSON")["text"].as_str().expect("a text").to_owned();
    assert_eq!(steps[0]["did"]["used"]["result"], json!(sha256(gave.as_bytes())));

    for calls in [["a", "b"], ["b", "a"]] {
        let log = Log::default();
        let player = Player::open(&path).expect("a cassette").with_toolbox(Arc::new(Benches(Arc::clone(&log), 0)));
        assert_eq!(player.remaining(), 2, "answers are counted, and not what was done before");
        let player: Arc<dyn Agent> = Arc::new(player);
        let answers = race(&player, calls.iter().map(|worker| asked(worker, "x", 0)).collect()).await;
        assert_eq!((answers, logged(&log)), (vec!["[]".to_owned(), "[]".to_owned()], done.clone()), "{calls:?}");
    }
    let player = Player::open(&path).expect("a cassette");
    let failure = player.call(&asked("a", "x", 0)).await.expect_err("there are no tools");
    assert_eq!(failure.code, FailureCode::CassetteMiss);
    assert!(failure.message.contains("used tools"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_tool_with_a_different_result_is_named_by_the_next_miss() {
    let (_dir, path) = place();
    recorded_work(&path).await;
    let player = Player::open(&path).expect("a cassette").with_toolbox(Arc::new(Benches(Log::default(), 1)));
    let first = asked("a", "x", 0);
    player.call(&first).await.expect("that alone is no miss");
    player.on_settled(&first.board, &first.idempotency_key);
    let failure = player.call(&asked("a", "y", 1)).await.expect_err("another view");
    let what = "before, a tool gave something else than when it was recorded: flaky of worker a (order ";
    assert!(failure.message.contains(what), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_out_of_budget_ends_without_holding_up_others() {
    let (_dir, path) = place();
    recorded_work(&path).await;
    let player = Player::open(&path).expect("a cassette").with_toolbox(Arc::new(Poor));
    let failure = player.call(&asked("a", "x", 0)).await.expect_err("it ends");
    assert_eq!(failure.code, FailureCode::BudgetExhausted);
    assert_eq!(player.remaining(), 1);
}

/// Toolbox for attempts on a board with an exhausted budget.
struct Poor;

impl Toolbox for Poor {
    fn open<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Result<Option<Box<dyn Tools>>, Failure>> {
        let no = Failure { code: FailureCode::BudgetExhausted, message: "no".into(), usage: None, deferral: None };
        let bench = Bench { budgets: [Err(no)].into(), ..Bench::default() };
        Box::pin(std::future::ready(Ok(Some(Box::new(bench) as Box<dyn Tools>))))
    }
}

#[tokio::test(start_paused = true)]
async fn view_budgets_follow_from_the_contexts_that_were_recorded() {
    let (_dir, path) = place();
    let recorder = Recorder::create(&path, "notes", Arc::new(Echo)).expect("a new file");
    let names = [None, Some("large"), Some("unknown"), None];
    assert_eq!(names.map(|name| recorder.context_window(name)), [Some(8192), Some(128_000), None, Some(8192)]);
    recorder.call(&asked("w", "1 a", 0)).await.expect("a reply");
    assert_eq!(recorder.finish().expect("written"), 1);
    let written = lines(&path);
    assert_eq!((written.len(), &written[0]["contexts"]), (2, &json!({"": 8192, "large": 128_000})));
    let player = Player::open(&path).expect("a cassette");
    assert_eq!(names.map(|name| player.context_window(name)), [Some(8192), Some(128_000), None, Some(8192)]);
}
