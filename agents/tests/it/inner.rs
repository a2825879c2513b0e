//! Nested boards with a real journal, killed and resumed.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use patchboard_agents::nested_boards::NestedBoards;
use patchboard_kernel::admission::WaitingCall;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::deferral::{Deferral, DeferralReason};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::BoardId;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Body, End, Kind, LimitOverrides, Retried};
use patchboard_runtime::agent::{AdmissionDecision, Agent, Call, CallResult, Failure, Permit, Reply};
use patchboard_runtime::clock::{Clock as _, SystemClock};
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::{BoardSummary, Journal as _};
use patchboard_storage::sqlite::SqliteJournal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(30);

/// Time that a nested board continues without a call.
const GRACE: Duration = Duration::from_millis(50);

/// Answer to a worker's n-th call, from 0: a patch, `{"away": REASON, "wait_ms": N}` from a provider that accepts no
/// request, or `{"late": PATCH}` after half a second. `None` never answers.
type Answers = Box<dyn Fn(&str, usize) -> Option<Value> + Send + Sync>;

/// Agent with given answers, a price per call and a call counter.
struct ScriptedAgent {
    answers: Answers,
    calls: AtomicUsize,
}

impl Agent for ScriptedAgent {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        let nth = self.calls.fetch_add(1, Ordering::SeqCst);
        match (self.answers)(call.worker.as_str(), nth) {
            Some(away) if away.get("away").is_some() => Box::pin(async move {
                let reason = serde_json::from_value(away["away"].clone()).expect("a reason");
                let deferral = Deferral { wait_ms: away["wait_ms"].as_u64(), ..Deferral::new(reason) };
                let message = "not now".to_owned();
                Err(Failure { code: FailureCode::Unreachable, message, usage: None, deferral: Some(deferral) })
            }),
            Some(mut patch) => Box::pin(async move {
                if let Some(late) = patch.get_mut("late") {
                    patch = late.take();
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                let usage = Usage { prompt: 100, completion: 10, ..Usage::default() };
                Ok(Reply::new(patch.to_string(), Some(usage)))
            }),
            None => Box::pin(pending()),
        }
    }

    fn admit(&self, _: &BoardId, waiting: &WaitingCall) -> AdmissionDecision {
        let left = waiting.wait.as_ref().map_or(0, |wait| wait.not_before.ms_since(SystemClock.now()));
        AdmissionDecision::Later(Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(left)).await;
            Some(Permit::ungated())
        }))
    }
}

/// Returns the blueprint of a house with a nested kitchen: an order goes in, a dish is returned.
fn blueprint(change: impl Fn(&mut Value)) -> Blueprint {
    let kitchen = json!({
        "blueprint": 1, "name": "kitchen",
        "request": {
            "type": "object", "required": ["order"], "additionalProperties": false,
            "properties": {"order": {"type": "string"}, "guest": {"type": "string"}},
        },
        "state": {"schema": {
            "type": "object", "additionalProperties": false,
            "properties": {
                "request": true, "prepared": {"type": "boolean"}, "secret": {"type": "string"},
                "dish": {"type": "object", "properties": {"name": {"type": "string"}}},
            },
        }},
        "workers": {
            "prepares": {"agent": "remote", "reads": ["/request"], "writes": [{"path": "/prepared"}, {"path": "/secret"}]},
            "cooks": {"agent": "remote", "reads": ["/request", "/prepared"], "writes": [{"path": "/dish"}]},
        },
        "rules": [
            {"name": "prepare", "trigger": "start", "run": "prepares"},
            {"name": "cook", "trigger": {"op": "add", "path": "/prepared"}, "run": "cooks"},
        ],
        "done": {"when": "has(state.dish)"},
    });
    let mut house = json!({
        "blueprint": 1, "name": "house",
        "request": {"type": "object", "properties": {"wish": {"type": "string"}, "note": {"type": "string"}}},
        "state": {"schema": {
            "type": "object", "additionalProperties": false,
            "properties": {
                "request": true,
                "served": {
                    "type": "object", "additionalProperties": false,
                    "properties": {"name": {"type": "string"}, "error": {"type": "string"}},
                },
            },
        }},
        "workers": {"kitchen": {
            "agent": "board", "reads": ["/request/wish", "/request/note"], "writes": [{"path": "/served"}],
            "board": {"of": "kitchen", "input": {"order": "/request/wish"}, "output": {"/served": "/dish"}},
        }},
        "rules": [{"name": "serve", "trigger": "start", "run": "kitchen"}],
        "done": {"when": "has(state.served)"},
        "boards": {"kitchen": kitchen},
    });
    change(&mut house);
    let report = patchboard_protocols::check_value(house);
    report.blueprint.unwrap_or_else(|| panic!("{:?}", report.findings))
}

fn add(path: &str, value: impl Into<Value>) -> Option<Value> {
    Some(json!([{"op": "add", "path": path, "value": value.into()}]))
}

/// Answers of a kitchen that succeeds.
fn cooks(worker: &str, _: usize) -> Option<Value> {
    match worker {
        "prepares" => add("/prepared", true),
        _ => add("/dish", json!({"name": "soup"})),
    }
}

struct House {
    data: TempDir,
    runtime: Runtime,
    scripted: Arc<ScriptedAgent>,
}

impl House {
    async fn new(answers: impl Fn(&str, usize) -> Option<Value> + Send + Sync + 'static) -> Self {
        Self::with_grace(GRACE, answers).await
    }

    async fn with_grace(
        grace: Duration,
        answers: impl Fn(&str, usize) -> Option<Value> + Send + Sync + 'static,
    ) -> Self {
        Self::at(tempfile::tempdir().expect("a directory"), grace, Box::new(answers)).await
    }

    async fn at(data: TempDir, grace: Duration, answers: Answers) -> Self {
        let journal = SqliteJournal::open(data.path()).expect("a journal");
        let scripted = Arc::new(ScriptedAgent { answers, calls: AtomicUsize::new(0) });
        let agent = Arc::new(NestedBoards::new(scripted.clone()).with_grace(grace));
        let runtime = agent.start(Arc::new(journal), Options::new(agent.clone())).await.expect("a runtime");
        Self { data, runtime, scripted }
    }

    /// Reopens the directory as if the process had died.
    async fn killed(self, answers: impl Fn(&str, usize) -> Option<Value> + Send + Sync + 'static) -> Self {
        let Self { data, runtime, .. } = self;
        // Running calls are cancelled and release their boards.
        runtime.shutdown().await;
        Self::at(data, GRACE, Box::new(answers)).await
    }

    async fn create(&self, blueprint: Blueprint) -> BoardHandle {
        let request = json!({"wish": "soup", "note": "a note"});
        self.runtime.create(blueprint, request, None).await.expect("a board")
    }

    fn journal(&self) -> SqliteJournal {
        SqliteJournal::open_read_only(self.data.path()).expect("a journal")
    }

    /// Returns the nested boards, the oldest first.
    fn inside(&self) -> Vec<BoardSummary> {
        let boards = wait(self.journal().boards()).expect("boards");
        boards.into_iter().filter(|board| board.parent.is_some()).collect()
    }

    /// Returns the tokens that the nested boards have spent.
    async fn spent_inside(&self) -> u64 {
        let mut spent = 0;
        for inside in self.inside() {
            spent +=
                self.runtime.get_or_resume(&inside.id).await.expect("it is there").status().account.usage().total();
        }
        spent
    }

    fn kinds(&self, board: &BoardId) -> Vec<Kind> {
        let records = wait(self.journal().records(board, None, 1000)).expect("records");
        records.iter().map(|record| record.kind).collect()
    }
}

async fn end(board: &BoardHandle) -> End {
    timeout(LONG, board.wait_for_end()).await.expect("it ends").expect("it ends by itself").end
}

fn served(board: &BoardHandle) -> Value {
    board.status().state.root().child("served").map_or(Value::Null, |served| served.to_value())
}

async fn until(what: &str, is: impl Fn() -> bool) {
    for _ in 0..600 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} in twelve seconds");
}

#[tokio::test]
async fn nested_boards_exchange_only_declared_input_and_output() {
    let house = House::new(|worker, nth| match worker {
        "prepares" => Some(json!([
            {"op": "add", "path": "/prepared", "value": true}, {"op": "add", "path": "/secret", "value": "of the house"},
        ])),
        _ => cooks(worker, nth),
    })
    .await;
    let board = house.create(blueprint(|_| {})).await;
    assert_eq!(end(&board).await, End::Done);
    assert_eq!(
        board.status().state.root().to_value(),
        json!({
            "request": {"wish": "soup", "note": "a note"}, "served": {"name": "soup"},
        })
    );
    let inside = house.inside();
    let [kitchen] = inside.as_slice() else { panic!("one board inside: {inside:?}") };
    assert_eq!((kitchen.parent.as_ref(), kitchen.ended), (Some(board.id()), Some(End::Done)));
    let first = wait(house.journal().records(&kitchen.id, None, 1)).expect("records");
    let Ok(Body::Created(created)) = first[0].body() else { panic!("it was created") };
    assert_eq!(created.request, json!({"order": "soup"}), "the note is not declared");
    // The worker is charged the nested board's cost.
    assert_eq!(board.status().account.usage(), Usage { prompt: 200, completion: 20, ..Usage::default() });
}

#[tokio::test]
async fn a_board_inside_that_fails_is_reported_or_tried_again() {
    let fails = |worker: &str, nth: usize| if nth < 2 { Some(json!([])) } else { cooks(worker, nth) };
    // The first two invocations change nothing, so their boards stall. The next attempt creates another board.
    let house = House::new(fails).await;
    let board = house.create(blueprint(|_| {})).await;
    assert_eq!(end(&board).await, End::Done);
    assert_eq!(served(&board), json!({"name": "soup"}));
    let ends: Vec<_> = house.inside().iter().map(|board| board.ended).collect();
    assert_eq!(ends, [Some(End::Quiescent), Some(End::Quiescent), Some(End::Done)]);
    // If the blueprint defines a failure value, it is written.
    let house = House::new(|_, _| Some(json!([]))).await;
    let board = house
        .create(blueprint(|house| {
            house["workers"]["kitchen"]["board"]["failed"] =
                json!({"path": "/served", "value": {"name": "nothing"}, "message": "error"});
        }))
        .await;
    assert_eq!(end(&board).await, End::Done);
    let error = "the board inside ended as quiescent (nothing_to_do)";
    assert_eq!(served(&board), json!({"name": "nothing", "error": error}));
}

#[tokio::test]
async fn the_failure_of_a_board_for_one_element_names_the_element() {
    let house = House::new(|_, _| Some(json!([]))).await;
    let board = house
        .create(blueprint(|house| {
            house["blueprint"] = json!(2);
            house["state"]["initial"] = json!({"served": {}});
            house["state"]["schema"]["properties"]["served"] = json!({"type": "object", "maxProperties": 2});
            house["rules"][0]["trigger"] = json!({"start": "/request/{item}"});
            house["workers"]["kitchen"]["reads"] = json!(["/request/{item}"]);
            house["workers"]["kitchen"]["writes"] = json!([{"path": "/served/{item}", "ops": ["add"]}]);
            house["workers"]["kitchen"]["board"] = json!({
                "of": "kitchen", "input": {"order": "/request/{item}"}, "output": {"/served/{item}": "/dish"},
                "failed": {"path": "/served/{item}", "value": {"of": ["no {item}", "{other}"]}, "message": "error"},
            });
            house["done"] = json!({"when": "size(state.served) == 2"});
        }))
        .await;
    assert_eq!(end(&board).await, End::Done);
    let error = "the board inside ended as quiescent (nothing_to_do)";
    let failed = |item: &str| json!({"of": [format!("no {item}"), "{other}"], "error": error});
    assert_eq!(served(&board), json!({"wish": failed("wish"), "note": failed("note")}));
}

#[tokio::test]
async fn a_board_that_cannot_be_made_of_what_it_is_given_has_failed() {
    let short = |house: &mut Value| {
        house["boards"]["kitchen"]["request"]["properties"]["order"]["maxLength"] = json!(2);
    };
    let failed = |house: &mut Value| {
        short(house);
        house["workers"]["kitchen"]["board"]["failed"] =
            json!({"path": "/served", "value": {"name": "nothing"}, "message": "error"});
    };
    let house = House::new(cooks).await;
    let board = house.create(blueprint(failed)).await;
    assert_eq!(end(&board).await, End::Done);
    let error = served(&board)["error"].as_str().expect("it is told").to_owned();
    assert!(error.starts_with("the board inside cannot be made of what it is given: /order"), "{error}");
    // A missing required value has this effect, too; no worker is called in either case.
    let house = House::new(cooks).await;
    let board = house.runtime.create(blueprint(failed), json!({"note": "a note"}), None).await.expect("a board");
    assert_eq!(end(&board).await, End::Done);
    let error = served(&board)["error"].as_str().expect("it is told").to_owned();
    assert!(error.contains("order"), "{error}");
    assert_eq!((house.inside().len(), house.scripted.calls.load(Ordering::SeqCst)), (0, 0));
    // Without a failure value, the attempts fail.
    let house = House::new(cooks).await;
    let board = house.create(blueprint(short)).await;
    assert_eq!(end(&board).await, End::Quiescent);
    assert_eq!(served(&board), Value::Null);
}

#[tokio::test]
async fn undeclared_nested_output_is_rejected_rather_than_dropped() {
    let house = House::new(|worker, nth| match worker {
        "prepares" => cooks(worker, nth),
        _ => add("/dish", json!({"name": "soup", "recipe": "of the house"})),
    })
    .await;
    let board = house.create(blueprint(|_| {})).await;
    assert_eq!(end(&board).await, End::Quiescent);
    assert_eq!(served(&board), Value::Null);
    let records = wait(house.journal().records(board.id(), None, 1000)).expect("records");
    let refused: Vec<_> = records.iter().filter(|record| record.kind == Kind::Rejected).collect();
    assert_eq!(refused.len(), 3, "as often as there are attempts");
    assert!(refused[0].payload.contains("recipe"), "{}", refused[0].payload);
    let inside = house.inside();
    let [kitchen] = inside.as_slice() else { panic!("the board that is done is not made again: {inside:?}") };
    assert_eq!(board.status().account.usage().total(), 220, "and what it cost is paid for once");
    assert!(house.runtime.board(&kitchen.id).is_none(), "nothing of what is over is kept running");
}

#[tokio::test]
async fn a_changed_input_starts_a_new_nested_board() {
    let house = House::new(|worker, nth| match worker {
        "guest" => add("/wish", "stew"),
        _ => cooks(worker, nth),
    })
    .await;
    let board = house
        .create(blueprint(|house| {
            let schema = json!({"type": "string"});
            house["state"]["schema"]["properties"]["wish"] = schema;
            house["state"]["initial"] = json!({"wish": "soup"});
            house["workers"]["guest"] = json!({"agent": "remote", "writes": [{"path": "/wish"}]});
            house["workers"]["kitchen"]["reads"] = json!(["/wish"]);
            house["workers"]["kitchen"]["board"]["input"] = json!({"order": "/wish"});
            house["rules"] = json!([
                {"name": "change", "trigger": "start", "run": "guest"},
                {"name": "serve", "trigger": "start", "run": "kitchen"},
            ]);
        }))
        .await;
    assert_eq!(end(&board).await, End::Done);
    assert!(house.kinds(board.id()).contains(&Kind::Rejected), "the guest was faster than the kitchen");
    let orders: Vec<Value> = house
        .inside()
        .iter()
        .map(|kitchen| {
            wait(house.journal().records(&kitchen.id, None, 1)).expect("records")[0].body().expect("a record").clone()
        })
        .map(|body| if let Body::Created(created) = body { created.request["order"].clone() } else { Value::Null })
        .collect();
    assert_eq!(orders, [json!("soup"), json!("stew")]);
}

#[tokio::test]
async fn after_a_crash_the_board_that_was_made_goes_on() {
    // The first process dies while the cook is at work.
    let house = House::new(|worker, nth| if worker == "cooks" { None } else { cooks(worker, nth) }).await;
    let board = house.create(blueprint(|_| {})).await;
    until("the cook is called", || house.scripted.calls.load(Ordering::SeqCst) == 2).await;
    let id = board.id().clone();
    let house = house.killed(cooks).await;
    let board = house.runtime.resume(&id).await.expect("it goes on");
    assert_eq!(end(&board).await, End::Done);
    assert_eq!(served(&board), json!({"name": "soup"}));
    let inside = house.inside();
    let [kitchen] = inside.as_slice() else { panic!("one board inside: {inside:?}") };
    let commits = house.kinds(&kitchen.id).iter().filter(|kind| **kind == Kind::Committed).count();
    assert_eq!(commits, 2, "nothing is prepared twice");
    assert_eq!(house.scripted.calls.load(Ordering::SeqCst), 1, "only the cook was asked again");
    // The outer board resumes long after the nested one has ended.
    let house = house.killed(|_, _| None).await;
    let board = house.runtime.resume(&id).await.expect("it is there");
    assert_eq!((end(&board).await, house.inside().len()), (End::Done, 1));
}

#[tokio::test]
async fn a_crash_of_either_kernel_changes_nothing() {
    // The nested board outlasts the restart of the outer one.
    let answers = |worker: &str, nth| if nth == 1 { None } else { cooks(worker, nth) };
    let house = House::with_grace(LONG, answers).await;
    let board = house.create(blueprint(|_| {})).await;
    until("the cook is called", || house.scripted.calls.load(Ordering::SeqCst) == 2).await;
    board.crash();
    until("the board is there again", || {
        house.kinds(board.id()).iter().filter(|kind| **kind == Kind::Epoch).count() == 1
    })
    .await;
    let kitchen = house.inside()[0].id.clone();
    house.runtime.board(&kitchen).expect("it runs").crash();
    assert_eq!(end(&board).await, End::Done);
    assert_eq!((served(&board), house.inside().len()), (json!({"name": "soup"}), 1));
}

#[tokio::test]
async fn an_abandoned_nested_board_is_cancelled() {
    let house = House::new(|_, _| None).await;
    let board = house.create(blueprint(|_| {})).await;
    until("the board inside is there", || house.inside().len() == 1).await;
    board.cancel().await.expect("cancelled");
    until("it is cancelled, too", || house.inside()[0].ended == Some(End::Cancelled)).await;
    // A timed-out attempt is followed by one that finds its board, however late it starts.
    let house = House::with_grace(LONG, |worker, nth| if nth == 0 { None } else { cooks(worker, nth) }).await;
    let slow = blueprint(|house| {
        house["workers"]["kitchen"]["limits"] = json!({"timeout": "1s", "attempts": 8});
        house["boards"]["kitchen"]["workers"]["prepares"]["limits"] = json!({"timeout": "2s"});
    });
    let board = house.create(slow).await;
    assert_eq!((end(&board).await, house.inside().len()), (End::Done, 1));
    let failures = house.kinds(board.id()).iter().filter(|kind| **kind == Kind::Failed).count();
    assert!(failures >= 1, "it took longer than an attempt may");
}

#[tokio::test]
async fn nested_input_beyond_the_view_budget_fails_the_attempt() {
    let house = House::new(cooks).await;
    let board = blueprint(|house| house["workers"]["kitchen"]["view"] = json!({"budget": 1200}));
    let request = json!({"wish": "soup ".repeat(400), "note": "a note"});
    let board = house.runtime.create(board, request, None).await.expect("a board");
    assert_eq!(end(&board).await, End::Quiescent);
    let records = wait(house.journal().records(board.id(), None, 1000)).expect("records");
    let failed = records.iter().find(|record| record.kind == Kind::Failed).expect("it failed");
    assert!(
        failed.payload.contains("input order: the view has no room for all of /request/wish"),
        "{}",
        failed.payload
    );
    assert!(house.inside().is_empty());
}

#[tokio::test]
async fn boards_may_be_inside_of_boards_inside() {
    let house = House::new(cooks).await;
    let street = blueprint(|house| {
        let mut inner = house.clone();
        inner["request"]["additionalProperties"] = json!(false);
        let worker = json!({
            "agent": "board", "reads": ["/request/wish"], "writes": [{"path": "/served"}],
            "board": {"of": "house", "input": {"wish": "/request/wish"}, "output": {"/served": "/served"}},
        });
        house["workers"] = json!({"house": worker});
        house["rules"][0]["run"] = json!("house");
        house["boards"] = json!({"house": inner});
    });
    let board = house.create(street).await;
    assert_eq!(end(&board).await, End::Done);
    assert_eq!(served(&board), json!({"name": "soup"}));
    let inside = house.inside();
    assert_eq!(inside.len(), 2);
    assert_eq!(inside[0].parent.as_ref(), Some(board.id()));
    assert_eq!(inside[1].parent.as_ref(), Some(&inside[0].id));
    assert_eq!(board.status().account.usage().total(), 220, "what is inside of what is inside is paid for, too");
}

/// Returns a kitchen of language models with a timeout of one second for the outer call.
fn modelled(change: impl Fn(&mut Value)) -> Blueprint {
    blueprint(|house| {
        house["workers"]["kitchen"]["limits"] = json!({"timeout": "1s", "attempts": 1});
        for worker in ["prepares", "cooks"] {
            house["boards"]["kitchen"]["workers"][worker]["agent"] = json!("llm");
        }
        change(house);
    })
}

fn away(reason: &str, wait_ms: u64) -> Option<Value> {
    Some(json!({"away": reason, "wait_ms": wait_ms}))
}

fn count(house: &House, board: &BoardId, kind: Kind) -> usize {
    house.kinds(board).iter().filter(|other| **other == kind).count()
}

#[tokio::test]
async fn a_board_that_is_done_in_spite_of_its_provider_is_taken_when_the_outer_one_goes_on() {
    let house = House::new(|worker, _| match worker {
        "prepares" => away("key_refused", 0),
        _ => Some(json!({"late": [{"op": "add", "path": "/dish", "value": {"name": "soup"}}]})),
    })
    .await;
    let both = modelled(|house| house["boards"]["kitchen"]["rules"][1]["trigger"] = json!("start"));
    let board = house.create(both).await;
    until("it is paused", || board.status().paused).await;
    let reasons: Vec<_> = board.status().provider_waits.iter().map(|of| of.wait.reason).collect();
    assert_eq!(reasons, [DeferralReason::KeyRefused]);
    until("the board inside is done", || house.inside()[0].ended == Some(End::Done)).await;
    board.resume(None).await.expect("resumed");
    assert_eq!((end(&board).await, served(&board)), (End::Done, json!({"name": "soup"})));
    assert_eq!((house.inside().len(), count(&house, board.id(), Kind::Failed)), (1, 0));
}

#[tokio::test]
async fn a_board_that_fails_after_it_waited_for_its_provider_is_reported_and_not_made_again() {
    let house = House::new(|_, nth| if nth == 0 { away("overloaded", 2_500) } else { Some(json!([])) }).await;
    let blueprint = modelled(|house| {
        house["workers"]["kitchen"]["board"]["failed"] =
            json!({"path": "/served", "value": {"name": "nothing"}, "message": "error"});
    });
    let board = house.create(blueprint).await;
    assert_eq!((end(&board).await, served(&board)["name"].clone()), (End::Done, json!("nothing")));
    assert_eq!((house.inside().len(), count(&house, board.id(), Kind::Invoked)), (1, 2));
}

#[tokio::test]
async fn nested_boards_with_waiting_calls_end_on_a_cancel_and_survive_a_close() {
    for is_closed in [false, true] {
        let house =
            House::new(|worker, nth| if nth < 2 { away("overloaded", 3_000) } else { cooks(worker, nth) }).await;
        let board = house.create(modelled(|_| {})).await;
        until("the call is deferred", || count(&house, board.id(), Kind::Deferred) == 1).await;
        if !is_closed {
            board.cancel().await.expect("cancelled");
            until("it is cancelled, too", || house.inside()[0].ended == Some(End::Cancelled)).await;
            continue;
        }
        house.runtime.close(board.id()).await;
        // Longer than the grace period, after which an abandoned board is cancelled.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let board = house.runtime.get_or_resume(board.id()).await.expect("it is there");
        assert_eq!((end(&board).await, house.inside().len()), (End::Done, 1));
    }
}

#[tokio::test]
async fn an_outer_board_does_not_wait_for_a_board_that_lost_its_patience_while_its_call_had_no_place() {
    let house = House::new(|worker, nth| match (worker, nth) {
        ("other", _) => Some(json!({"late": [{"op": "add", "path": "/served", "value": {"error": "late"}}]})),
        (_, 0) => away("overloaded", 1_200),
        (_, 1 | 2) => away("key_refused", 0),
        _ => cooks(worker, nth),
    })
    .await;
    let busy = modelled(|house| {
        house["concurrency"] = json!(1);
        house["workers"]["other"] = json!({"agent": "remote", "writes": [{"path": "/served"}]});
        house["rules"].as_array_mut().expect("rules").push(json!({"name": "late", "trigger": "start", "run": "other"}));
        house["done"] = json!({"when": "has(state.served) && has(state.served.name)"});
    });
    let board = house.create(busy).await;
    until("it is paused", || board.status().paused).await;
    board.resume(None).await.expect("resumed");
    assert_eq!((end(&board).await, house.inside().len()), (End::Done, 1));
}

#[tokio::test]
async fn a_timeout_reports_the_nested_usage_and_cancels_the_nested_board() {
    // Much longer than the test: the closed invocation ends the board, not the grace period.
    let house = House::with_grace(10 * LONG, |worker, nth| (worker == "prepares").then(|| cooks(worker, nth))?).await;
    let board = house
        .create(blueprint(|house| house["workers"]["kitchen"]["limits"] = json!({"timeout": "1s", "attempts": 2})))
        .await;
    assert_eq!(end(&board).await, End::Quiescent);
    assert_eq!((board.status().account.usage().total(), house.inside().len()), (110, 1));
    until("it is cancelled", || house.inside()[0].ended == Some(End::Cancelled)).await;
    board.retry(Retried::default()).await.expect("retried");
    assert_eq!(end(&board).await, End::Quiescent);
    assert_eq!((board.status().account.usage().total(), house.inside().len()), (220, 2));
}

#[tokio::test]
async fn a_board_inside_that_was_retried_with_a_higher_limit_is_taken_by_a_retry_of_the_outer_one() {
    let limited = || {
        blueprint(|house| {
            house["workers"]["kitchen"]["limits"] = json!({"attempts": 1});
            house["boards"]["kitchen"]["limits"] = json!({"commits": 1});
        })
    };
    for restarts in [false, true] {
        let mut house = House::new(cooks).await;
        let mut board = house.create(limited()).await;
        assert_eq!(end(&board).await, End::Quiescent);
        let inside = house.inside().remove(0).id;
        let log = wait(house.journal().records(board.id(), None, 1000)).expect("records");
        let said = log.iter().find_map(|record| match record.body() {
            Ok(Body::Failed(failed)) => Some(failed.message.to_string()),
            _ => None,
        });
        assert!(said.as_ref().is_some_and(|said| said.contains(&format!("retry that board ({inside})"))), "{said:?}");
        if restarts {
            let id = board.id().clone();
            house = house.killed(cooks).await;
            board = house.runtime.get_or_resume(&id).await.expect("it is there");
        }
        let of_inside = house.runtime.get_or_resume(&inside).await.expect("it is there");
        let raised = LimitOverrides { commits: Some(10), ..LimitOverrides::default() };
        of_inside.retry(Retried { limits: raised, ..Retried::default() }).await.expect("retried");
        assert_eq!(end(&of_inside).await, End::Done);
        for _ in 0..2 {
            // The second retry is rejected because the board is done.
            drop(board.retry(Retried::default()).await);
            assert_eq!((end(&board).await, served(&board)), (End::Done, json!({"name": "soup"})), "{restarts}");
        }
        assert_eq!(house.inside().len(), 1, "no other one is made");
        assert_eq!((board.status().account.usage().total(), house.spent_inside().await), (220, 220), "paid for once");
    }
}

#[tokio::test]
async fn a_board_inside_that_still_works_is_taken_by_a_retry_of_a_retry() {
    let house = House::new(|worker, nth| match (worker, nth) {
        // Three attempts of each of two boards.
        ("prepares", 0..6) => Some(json!("no patch")),
        ("prepares", _) => add("/prepared", true),
        _ => Some(json!({"late": [{"op": "add", "path": "/dish", "value": {"name": "soup"}}]})),
    })
    .await;
    let board = house.create(blueprint(|house| house["workers"]["kitchen"]["limits"] = json!({"attempts": 1}))).await;
    for boards in 1..=2 {
        assert_eq!((end(&board).await, house.inside().len()), (End::Quiescent, boards));
        if boards == 1 {
            board.retry(Retried::default()).await.expect("retried");
            until("another one is made", || house.inside().len() == 2).await;
        }
    }
    // The first invocation's board continues, and the third invocation finds it running.
    let first = house.runtime.get_or_resume(&house.inside()[0].id).await.expect("it is there");
    first.retry(Retried::default()).await.expect("retried");
    board.retry(Retried::default()).await.expect("retried");
    assert_eq!((end(&board).await, served(&board), end(&first).await), (End::Done, json!({"name": "soup"}), End::Done));
    assert_eq!((house.inside().len(), board.status().account.usage().total()), (2, house.spent_inside().await));
}

#[tokio::test]
async fn nested_usage_is_reported_once_despite_a_crash() {
    // The first two boards fail; the third is running when the process dies.
    let house = House::new(|worker, nth| match nth {
        0 | 1 => Some(json!([])),
        _ if worker == "prepares" => cooks(worker, nth),
        _ => None,
    })
    .await;
    let board = house.create(blueprint(|_| {})).await;
    until("the cook is called", || house.scripted.calls.load(Ordering::SeqCst) == 4).await;
    assert_eq!(board.status().account.usage().total(), 220, "the first two boards are paid for");
    let id = board.id().clone();
    let house = house.killed(cooks).await;
    let board = house.runtime.resume(&id).await.expect("it goes on");
    assert_eq!((end(&board).await, house.inside().len()), (End::Done, 3));
    assert_eq!((board.status().account.usage().total(), house.spent_inside().await), (440, 440));
}

#[tokio::test]
async fn an_unreported_failure_is_reported_after_a_restart() {
    let house = House::new(|_, _| away("overloaded", 2_500)).await;
    let blueprint = modelled(|house| {
        house["workers"]["kitchen"]["board"]["failed"] =
            json!({"path": "/served", "value": {"name": "nothing"}, "message": "error"});
    });
    let board = house.create(blueprint).await;
    until("the call is deferred", || count(&house, board.id(), Kind::Deferred) == 1).await;
    let (outer, inside) = (board.id().clone(), house.inside()[0].id.clone());
    let house = house.killed(|_, _| Some(json!([]))).await;
    // The nested board fails before the call is repeated.
    let inside = house.runtime.resume(&inside).await.expect("it goes on");
    assert_eq!(end(&inside).await, End::Quiescent);
    let board = house.runtime.resume(&outer).await.expect("it goes on");
    assert_eq!((end(&board).await, served(&board)["name"].clone()), (End::Done, json!("nothing")));
    assert_eq!((house.inside().len(), board.status().account.usage().total()), (1, house.spent_inside().await));
}

#[tokio::test]
async fn a_board_that_was_cancelled_while_the_outer_one_was_paused_is_made_again() {
    let house = House::new(|worker, nth| if nth == 0 { None } else { cooks(worker, nth) }).await;
    let board = house
        .create(blueprint(|house| house["workers"]["kitchen"]["limits"] = json!({"timeout": "1s", "attempts": 2})))
        .await;
    until("the board inside is there", || house.scripted.calls.load(Ordering::SeqCst) == 1).await;
    board.pause(None).await.expect("paused");
    until("it is cancelled", || house.inside()[0].ended == Some(End::Cancelled)).await;
    board.resume(None).await.expect("resumed");
    assert_eq!((end(&board).await, served(&board)), (End::Done, json!({"name": "soup"})));
    assert_eq!(house.inside().len(), 2);
}
