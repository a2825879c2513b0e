//! Plays golden boards: a journal in a directory of its own, and runtimes on it.
//!
//! The product's runtime plays the boards on a paused clock with given ids and salts, so that journals are
//! reproducible. Only boards at a directory of files run on the machine's clock, as programs take real time.

use std::future::{Future, pending};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jsonptr::Pointer;
use patchboard_agents::cassette::Player;
use patchboard_agents::config::{Config, Environment};
use patchboard_agents::nested_boards::NestedBoards;
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_kernel::blueprint::{AgentKind, Blueprint};
use patchboard_kernel::digest::{Salt, sha256};
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::tree::Node;
use patchboard_lint::source::{self, Source};
use patchboard_runtime::agent::{Agent, Call, CallResult, Reply};
use patchboard_runtime::clock::Clock;
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::ids::Ids;
use patchboard_runtime::options::{CreateOptions, Options};
use patchboard_runtime::runtime::{Runtime, WeakRuntime};
use patchboard_runtime::snapshotter::SnapshotPolicy;
use patchboard_runtime::status::BoardStatus;
use patchboard_runtime::testing::VirtualClock;
use patchboard_storage::sqlite::SqliteJournal;
use serde_json::Value;
use tempfile::TempDir;

/// Time at which the first board begins.
const BEGIN: Timestamp = Timestamp(1_750_000_000_000);

/// Maximum polls of a board before its player gives up.
const LOOKS_MAX: usize = 200_000;

/// Predetermined ids: boards by the name of the house, salts and writers by number.
struct Given {
    name: &'static str,
    number: AtomicU64,
}

impl Ids for Given {
    fn board(&self) -> BoardId {
        BoardId::from(self.name)
    }

    fn salt(&self) -> Salt {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        Salt(sha256(format!("{} {number}", self.name).as_bytes()).0)
    }

    fn writer(&self) -> String {
        format!("writer-{}", self.number.fetch_add(1, Ordering::Relaxed))
    }
}

/// Clock that a test sets forward.
struct Hands {
    clock: VirtualClock,
    ahead_ms: AtomicU64,
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        self.clock.now().plus_ms(self.ahead_ms.load(Ordering::Relaxed))
    }

    fn steady_ms(&self) -> u64 {
        self.clock.steady_ms()
    }
}

/// A journal and the clock of all runtimes on it.
pub(super) struct House {
    _data: TempDir,
    pub(super) journal: SqliteJournal,
    clock: Arc<Hands>,
    ids: Arc<dyn Ids>,
}

impl House {
    /// Creates an empty journal for a board with this name as its id.
    pub(super) fn new(name: &'static str) -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let journal = SqliteJournal::open(data.path()).expect("a journal");
        let clock = Arc::new(Hands { clock: VirtualClock::starting_at(BEGIN), ahead_ms: AtomicU64::new(0) });
        let ids = Arc::new(Given { name, number: AtomicU64::new(0) });
        Self { _data: data, journal, clock, ids }
    }

    /// Starts a runtime with `agent` in all seats.
    pub(super) async fn runtime(&self, agent: Seats) -> Runtime {
        self.runtime_keeping(agent, SnapshotPolicy::NEVER).await
    }

    /// Like [`House::runtime`], with snapshots.
    pub(super) async fn runtime_keeping(&self, agent: Seats, snapshots: SnapshotPolicy) -> Runtime {
        let mut options = Options::new(agent.nested.clone());
        (options.clock, options.ids) = (self.clock.clone(), Arc::clone(&self.ids));
        options.snapshots = snapshots;
        let runtime = agent.nested.start(Arc::new(self.journal.clone()), options).await.expect("a runtime");
        agent.runtime.set(runtime.downgrade()).unwrap_or_else(|_| panic!("one runtime has it"));
        runtime
    }

    /// Plays a board until it ends.
    pub(super) async fn play(&self, agent: Seats, blueprint: Blueprint, request: Value) {
        self.play_as(agent, blueprint, request, CreateOptions::default()).await;
    }

    /// Like [`House::play`], with other creation options.
    pub(super) async fn play_as(&self, agent: Seats, blueprint: Blueprint, request: Value, founding: CreateOptions) {
        let runtime = self.runtime(agent).await;
        let board = runtime.create_with(blueprint, request, founding).await.expect("a board");
        board.wait_for_end().await.expect("it ends");
        runtime.shutdown().await;
    }

    /// Sets the clock forward.
    pub(super) fn jump(&self, ms: u64) {
        self.clock.ahead_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Returns the present time of the clock.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Waits until a board is in a state, and returns that state.
pub(super) async fn until(board: &BoardHandle, is_so: impl Fn(&BoardStatus) -> bool) -> Arc<BoardStatus> {
    for _ in 0..LOOKS_MAX {
        let snapshot = board.status();
        if is_so(&snapshot) {
            return snapshot;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{} never gets there: version {}", board.id(), board.status().version);
}

/// Reply of a [`Player`]'s own function.
pub(super) enum Own {
    /// Text of a reply.
    Says(String),
    /// No reply, for as long as the call lasts.
    Silent,
    /// Reply of the product's agent in this seat.
    Product,
}

/// Function that answers calls, given the document of the board.
type Answers = Box<dyn Fn(&Call, &Value) -> Own + Send + Sync>;

/// Agent that fills the seats known to a function, and leaves the others to the product.
struct Seated {
    own: Answers,
    others: AgentRegistry,
    runtime: RuntimeSlot,
}

/// Runtime of an agent that looks at its boards.
type RuntimeSlot = Arc<OnceLock<WeakRuntime>>;

/// Agents of all seats.
pub(super) struct Seats {
    nested: Arc<NestedBoards>,
    runtime: RuntimeSlot,
}

impl Seats {
    /// Fills the seats that nested boards leave.
    pub(super) fn of(agent: Arc<dyn Agent>) -> Self {
        Self { nested: Arc::new(NestedBoards::new(agent)), runtime: RuntimeSlot::default() }
    }
}

impl Agent for Seated {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        let runtime = self.runtime.get().and_then(WeakRuntime::upgrade).expect("it runs");
        let snapshot = runtime.status(&call.board).expect("it runs");
        let document = snapshot.state.root().to_value();
        match (self.own)(call, &document) {
            Own::Says(text) => Box::pin(async move {
                // Delays differ, so that no two answers arrive at the same time.
                tokio::time::sleep(Duration::from_millis(100 + 17 * call.invocation.0 + u64::from(call.attempt))).await;
                let usage =
                    Usage { prompt: 700, completion: text.len() as u64, cached: 20, estimated: false, money: 0 };
                Ok(Reply::new(text, Some(usage)))
            }),
            Own::Silent => Box::pin(pending()),
            // Roles that use a clock get the board's time.
            Own::Product if matches!(call.worker_config().agent, AgentKind::Builtin(_)) => Box::pin(async move {
                let seats = AgentRegistry::new(Config::default(), &Environment::from_process(), InlinePrograms::Denied);
                seats.with_fixed_time(snapshot.at, Path::new("nowhere")).call(call).await
            }),
            Own::Product => self.others.call(call),
        }
    }
}

/// Fills seats by a function, and the others by the product.
pub(super) fn seated(own: impl Fn(&Call, &Value) -> Own + Send + Sync + 'static) -> Seats {
    let others = AgentRegistry::new(Config::default(), &Environment::from_process(), InlinePrograms::Denied);
    let runtime = RuntimeSlot::default();
    let seated = Seated { own: Box::new(own), others, runtime: Arc::clone(&runtime) };
    Seats { runtime, ..Seats::of(Arc::new(seated)) }
}

/// Fills the seats of scripts and of the product's roles.
pub(super) fn scripted() -> Seats {
    seated(|_, _| Own::Product)
}

/// Returns an agent that answers from the recording of a shipped blueprint, and the salt that belongs to it.
pub(super) fn recorded(name: &str) -> (Seats, CreateOptions) {
    let player = Player::open(&blueprints().join(name).join("cassette.jsonl")).expect("it is shipped");
    let founding = CreateOptions { salt: Some(player.salt()), ..CreateOptions::default() };
    (Seats::of(Arc::new(player)), founding)
}

/// Returns the request that is shipped beside a blueprint.
pub(super) fn request_of(name: &str) -> Value {
    let text = std::fs::read_to_string(blueprints().join(name).join("request.json")).expect("it is shipped");
    serde_json::from_str(&text).expect("JSON")
}

/// Returns a shipped blueprint.
pub(super) fn shipped(name: &str) -> Blueprint {
    accepted(&source_of(name))
}

/// Returns a shipped blueprint as its source, with its fragments and departments.
pub(super) fn source_of(name: &str) -> Source {
    let text = std::fs::read_to_string(blueprints().join(name)).expect("it is shipped");
    let source = Source::read(name, &text).expect("it can be read");
    patchboard_protocols::resolve(source, &mut Shipped).unwrap_or_else(|findings| panic!("{findings:?}"))
}

/// Returns the blueprint of a source without errors.
pub(super) fn accepted(source: &Source) -> Blueprint {
    let report = patchboard_protocols::check(source);
    report.blueprint.unwrap_or_else(|| panic!("{:?}", report.findings))
}

/// Files below the shipped blueprints.
struct Shipped;

impl source::FileLoader for Shipped {
    fn text(&mut self, name: &str) -> Result<String, String> {
        std::fs::read_to_string(blueprints().join(name)).map_err(|error| error.to_string())
    }

    fn folders(&mut self, name: &str) -> Result<Vec<String>, String> {
        let entries = std::fs::read_dir(blueprints().join(name)).map_err(|error| error.to_string())?;
        let mut folders: Vec<String> =
            entries.map(|entry| entry.expect("a folder").file_name().to_string_lossy().into_owned()).collect();
        folders.sort();
        Ok(folders)
    }
}

/// Returns the directory of the shipped blueprints.
pub(super) fn blueprints() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../blueprints")
}

/// Returns the value at a place as a call shows it; null if the place is vacant.
pub(super) fn shown(call: &Call, place: &str) -> Value {
    let node = Pointer::parse(place).ok().and_then(|place| call.context.value_at(place).ok().flatten());
    node.map_or(Value::Null, Node::to_value)
}
