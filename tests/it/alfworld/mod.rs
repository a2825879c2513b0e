//! Plays recorded episodes of real games with the blueprint `blueprints/alfworld.yaml` on the real runtime. A function
//! fills every seat; the environment's knows a single episode. Neither Python nor a model is needed.

mod episode;
mod modes;

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::record::{Body, Cause, End, Ended, Kind, Record};
use patchboard_kernel::replay;
use patchboard_lint::source::Source;
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::{Agent, Call, CallResult, Reply};
use patchboard_runtime::options::{CreateOptions, Options};
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal;
use patchboard_storage::sqlite::SqliteJournal;
use serde_json::{Value, json};

use self::episode::{Episode, NOTHING};
use crate::shared;

/// Function that maps the values shown and the number of its earlier answers to a reply.
type Play = Box<dyn Fn(&Shown, u32) -> Value + Send + Sync>;

/// Values shown to a worker, by JSON Pointer.
type Shown = BTreeMap<String, Value>;

/// Seats of one board.
struct Seats {
    episode: Episode,
    actor: Play,
    verifier: Play,
    /// Function that converts a patch into the reply format that the board's mode requires.
    words: fn(&Call, Value) -> String,
}

impl Seats {
    fn new(episode: Episode, actor: Play, verifier: Play) -> Self {
        Self { episode, actor, verifier, words: |_, reply| reply.to_string() }
    }
}

impl Agent for Seats {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        let shown = call.context.values().map(|(place, value)| (place.to_string(), value.to_value())).collect();
        let reply = match call.worker.as_str() {
            "environment" => self.episode.step(&shown),
            "planner" => plan(&shown),
            "actor" => (self.actor)(&shown, call.occurrence),
            "verifier" => (self.verifier)(&shown, call.occurrence),
            other => panic!("the blueprint has no seat {other}"),
        };
        Box::pin(std::future::ready(Ok(Reply::new((self.words)(call, reply), None))))
    }
}

fn plan(shown: &Shown) -> Value {
    // A plain blackboard shows messages instead of values.
    let goal = shown.get("/goal").map_or("what was said", |goal| goal.as_str().expect("a goal is text"));
    let op = if shown.contains_key("/plan") { "replace" } else { "add" };
    let hints = (0..).take_while(|hint| shown.contains_key(&format!("/hints/{hint}"))).count();
    let subgoal = format!("After {hints} hints: {goal}");
    let plan = json!({"object": "it", "receptacle": "there", "status": "find", "subgoal": subgoal});
    json!([{"op": op, "path": "/plan", "value": plan}])
}

fn act(action: &str) -> Value {
    json!([{"op": "add", "path": "/action", "value": action}])
}

/// Gives a hint that differs from all earlier ones.
fn hint() -> Play {
    Box::new(|_, before| {
        let hint = json!({"for": "actor", "text": format!("Hint {before}: do something else.")});
        json!([{"op": "add", "path": "/hints/-", "value": hint}])
    })
}

/// Outcome of a board.
struct Played {
    ended: Ended,
    state: Value,
    records: Vec<Record>,
}

impl Played {
    /// Returns the number of calls of a worker.
    fn calls(&self, worker: &str) -> usize {
        let is_call = |record: &&Record| match record.body().expect("a record can be read") {
            Body::Invoked(invoked) => invoked.worker.as_str() == worker,
            _ => false,
        };
        self.records.iter().filter(is_call).count()
    }

    fn count(&self, kind: Kind) -> usize {
        self.records.iter().filter(|record| record.kind == kind).count()
    }

    fn history(&self) -> &[Value] {
        self.state["history"].as_array().expect("a history is an array")
    }
}

/// Shipped blueprint, read and checked once.
static BLUEPRINT: LazyLock<Blueprint> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../blueprints/alfworld.yaml");
    let text = fs::read_to_string(path).expect("the blueprint can be read");
    let report = patchboard_protocols::check(&Source::read("alfworld.yaml", &text).expect("it is YAML"));
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    report.blueprint.expect("a blueprint without findings")
});

/// Returns the recorded episodes by name; without data prints a visible line and returns none.
fn episodes() -> Vec<Episode> {
    let Some(directory) = shared::find("data/alfworld/recorded-episodes") else { return Vec::new() };
    shared::files_in(&directory).iter().map(|path| Episode::read(path)).collect()
}

async fn play(seats: Seats) -> Played {
    play_in(Mode::default(), seats).await
}

async fn play_in(mode: Mode, seats: Seats) -> Played {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let journal = Arc::new(SqliteJournal::open(directory.path()).expect("a journal can be opened"));
    let game = seats.episode.name.clone();
    let options = Options::new(Arc::new(seats));
    let runtime = Runtime::start(Arc::clone(&journal) as Arc<dyn Journal>, options, PLANS).await.expect("it starts");
    let founding = CreateOptions { ablation: mode, ..CreateOptions::default() };
    let board =
        runtime.create_with(BLUEPRINT.clone(), json!({"game": game}), founding).await.expect("a board can be made");
    let ended = board.wait_for_end().await.expect("the board ends");
    let state = board.status().state.root().to_value();
    let records = wait(journal.records(board.id(), None, usize::MAX)).expect("records can be read");
    runtime.shutdown().await;
    if let Err(difference) = replay::replay(&records, None, &PLANS) {
        panic!("{difference}");
    }
    Played { ended, state, records }
}

/// Returns the actor's rejections in order, each as header and payload.
fn rejections(played: &Played) -> Vec<String> {
    let of_actor = |record: &&Record| match record.body().expect("a record can be read") {
        Body::Rejected(rejected) => rejected.by.worker.as_str() == "actor",
        _ => false,
    };
    played.records.iter().filter(of_actor).map(|record| record.header.clone() + &record.payload).collect()
}

#[tokio::test]
async fn an_actor_that_is_right_wins_every_recorded_episode_and_what_is_inadmissible_is_no_step() {
    let episodes = episodes();
    let count = episodes.len();
    for episode in episodes {
        let name = episode.name.clone();
        let actions = episode.actions();
        // The actor answers a rejection with its next action, so the n-th answer is the n-th action.
        let actor: Play = {
            let actions = actions.clone();
            Box::new(move |shown, before| {
                let action = &actions[before as usize];
                let is_shown = shown.values().any(|value| value == action);
                assert!(is_shown || before == 0, "an actor sees all that it may choose, and not {action:?}");
                act(action)
            })
        };
        let played = play(Seats::new(episode, actor, hint())).await;
        assert_eq!((played.ended.end, played.ended.cause), (End::Done, Cause::Done), "{name}");
        assert_eq!(played.state["status"], "won", "{name}");

        let taken: Vec<&str> = played.history().iter().map(|step| step["action"].as_str().expect("text")).collect();
        assert_eq!(taken, actions[1..], "{name}: the first action is inadmissible and no step of the game");
        assert!(played.history().iter().all(|step| step["effect"] == true), "{name}");
        let rejections = rejections(&played);
        assert_eq!(rejections.len(), 1, "{name}: {rejections:?}");
        for part in ["invariant_violated", "an-action-is-one-of-the-admissible-ones", &actions[0]] {
            assert!(rejections[0].contains(part), "{name}: {part:?} is not in {}", rejections[0]);
        }
        // One call for each action, one for the plan, one for each step and the start; no worker needed a hint.
        let calls = ["actor", "planner", "environment", "verifier"].map(|worker| played.calls(worker));
        assert_eq!(calls, [actions.len(), 1, actions.len(), 0], "{name}");
    }
    if count > 0 {
        shared::ran("recorded ALFWorld episodes won", count, 24);
    }
}

#[tokio::test]
async fn an_actor_that_is_always_wrong_is_stopped_by_the_breaker_and_not_by_the_steps() {
    let Some(episode) = episodes().into_iter().next() else { return };
    let wrong: [(&str, Cause, Play); 7] = [
        ("inadmissible", Cause::Breaker, Box::new(|_, _| act("take moon 1 from sky 1"))),
        ("inadmissible otherwise", Cause::Breaker, Box::new(|_, before| act(&format!("go to moon {before}")))),
        ("no patch", Cause::Breaker, Box::new(|_, _| json!({"action": "look"}))),
        ("the end", Cause::Breaker, Box::new(|_, _| json!([{"op": "replace", "path": "/status", "value": "won"}]))),
        ("nothing", Cause::Breaker, Box::new(|_, _| json!([]))),
        ("useless", Cause::Cycles, Box::new(|_, _| act("look"))),
        ("to and fro", Cause::Cycles, Box::new(|_, before| act(["look", "inventory"][before as usize % 2]))),
    ];
    for (kind, cause, actor) in wrong {
        let played = play(Seats::new(episode.clone(), actor, hint())).await;
        assert_eq!((played.ended.end, played.ended.cause), (End::Stopped, cause), "{kind}");
        assert!(played.history().len() < 10, "{kind}: {} steps", played.history().len());
        assert!(played.calls("actor") < 10, "{kind}: {} calls", played.calls("actor"));
        assert!(played.calls("verifier") <= 7, "{kind}: {} calls", played.calls("verifier"));
        assert!(played.count(Kind::Breaker) > 0);
        assert_eq!(played.state["status"], "playing", "{kind}");
    }
}

#[tokio::test]
async fn a_hint_of_the_verifier_brings_an_actor_that_was_stopped_back_and_it_wins() {
    let Some(episode) = episodes().into_iter().next() else { return };
    let actions = episode.actions();
    // The actor is rejected three times, then follows the hint, then acts correctly.
    let actor: Play = Box::new(move |shown, before| match (before, shown.get("/hints/0")) {
        (0..3, None) => act("take moon 1 from sky 1"),
        (3.., Some(hint)) => {
            assert_eq!(hint["text"], "Hint 0: do something else.");
            act(&actions[before as usize - 2])
        }
        unexpected => panic!("{unexpected:?}"),
    });
    let played = play(Seats::new(episode, actor, hint())).await;
    assert_eq!((played.ended.end, &played.state["status"]), (End::Done, &json!("won")));
    assert_eq!((played.calls("verifier"), rejections(&played).len()), (1, 3));
    assert_eq!(played.state["hints"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn the_verifier_is_asked_before_the_actor_after_a_step_without_effect_and_may_ask_for_another_plan() {
    let Some(episode) = episodes().into_iter().next() else { return };
    let actions = episode.actions();
    let actor: Play = Box::new(move |shown, before| match before {
        // Actions off the recorded path have no effect.
        0 => act("look"),
        _ => {
            assert_eq!(shown["/history/0"]["observation"], NOTHING);
            assert!(shown.contains_key("/hints/0"), "the hint comes before the next action");
            act(&actions[before as usize])
        }
    });
    let verifier: Play = Box::new(
        |_, _| json!([{"op": "add", "path": "/hints/-", "value": {"for": "planner", "text": "There is no moon."}}]),
    );
    let played = play(Seats::new(episode, actor, verifier)).await;
    assert_eq!((played.ended.end, &played.state["status"]), (End::Done, &json!("won")));
    assert_eq!((played.calls("verifier"), played.calls("planner")), (1, 2));
    assert_eq!(played.count(Kind::Rejected), 0);
}
