//! Proves that the fault harness on its virtual clock matches the runtime: equal answers give equal records.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use patchboard_faults::random::Random;
use patchboard_faults::scenario::{self, Scenario};
use patchboard_faults::simulation::{Delivery, SimulatedBoard, SimulationHooks};
use patchboard_kernel::board::{self, Board, Input, NewBoard, Proposal, ProposalSource, ReplyBody};
use patchboard_kernel::digest::Salt;
use patchboard_kernel::id::{BoardId, InvocationId, Timestamp};
use patchboard_kernel::record::{Kind, Record};
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::{Agent, Call, CallResult, Reply};
use patchboard_runtime::ids::Ids;
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_runtime::testing::VirtualClock;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal;
use patchboard_storage::sqlite::SqliteJournal;
use serde_json::{Value, json};

const BEGIN: Timestamp = Timestamp(1_750_000_000_000);

/// Returns the answer of an agent that errs once: each worker's second attempt on the board is not a patch.
fn answer(scenario: &dyn Scenario, worker: &str, view: &str, occurrence: u32, document: &Value) -> String {
    if occurrence == 1 {
        return "I had rather not say.".to_owned();
    }
    let ops = scenario.answer(worker, scenario::trigger_path(view), document);
    json!({"patch": ops, "intent": "what is due"}).to_string()
}

/// Returns the delay of an answer in milliseconds; no two answers arrive at the same time.
fn after_ms(invocation: InvocationId, attempt: u32) -> u64 {
    100 + 17 * invocation.0 + u64::from(attempt)
}

/// Agents of the harness's board.
struct Played<'a>(&'a dyn Scenario);

impl SimulationHooks for Played<'_> {
    fn on_call(&mut self, call: &board::Call, board: &Board) -> Vec<Delivery> {
        let document = board.state().root().to_value();
        let text = answer(self.0, call.worker.as_str(), &call.prompt.user, call.occurrence, &document);
        let from = ProposalSource::Attempt { invocation: call.invocation, attempt: call.attempt };
        let reply = ReplyBody::Text(text);
        let input = Input::Propose(Proposal { from, worker: call.worker.clone(), reply, usage: None, raw: None });
        vec![Delivery { after_ms: after_ms(call.invocation, call.attempt), input }]
    }
}

/// Agents of the runtime's board.
struct Seats {
    scenario: &'static dyn Scenario,
    /// The runtime while it runs, otherwise `None`.
    runtime: Mutex<Option<Arc<Runtime>>>,
}

impl Agent for Seats {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        let runtime = self.runtime.lock().expect("nothing panics").clone().expect("it runs");
        let document = runtime.status(&call.board).expect("it runs").state.root().to_value();
        let text = answer(self.scenario, call.worker.as_str(), &call.prompt.user, call.occurrence, &document);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(after_ms(call.invocation, call.attempt))).await;
            Ok(Reply::new(text, None))
        })
    }
}

struct Given;

impl Ids for Given {
    fn board(&self) -> BoardId {
        BoardId::from("given")
    }

    fn salt(&self) -> Salt {
        Salt::ZERO
    }

    fn writer(&self) -> String {
        "writer".to_owned()
    }
}

fn played(scenario: &'static dyn Scenario, request: Value) -> Vec<Record> {
    let genesis = NewBoard::new(BoardId::from("given"), scenario.blueprint().clone(), request, BEGIN);
    let mut others = Played(scenario);
    let mut world = SimulatedBoard::new(genesis, &PLANS, &mut others).expect("a board");
    while !world.is_over() && world.advance(&mut others) {}
    world.records().to_vec()
}

async fn run(scenario: &'static dyn Scenario, request: Value) -> Vec<Record> {
    let directory = tempfile::tempdir().expect("a directory");
    let journal = SqliteJournal::open(directory.path()).expect("a journal");
    let seats = Arc::new(Seats { scenario, runtime: Mutex::default() });
    let mut options = Options::new(Arc::clone(&seats) as Arc<dyn Agent>);
    options.clock = Arc::new(VirtualClock::starting_at(BEGIN));
    options.ids = Arc::new(Given);
    let runtime = Arc::new(Runtime::start(Arc::new(journal.clone()), options, PLANS).await.expect("started"));
    *seats.runtime.lock().expect("nothing panics") = Some(Arc::clone(&runtime));
    let board = runtime.create(scenario.blueprint().clone(), request, Some(Salt::ZERO)).await.expect("a board");
    board.wait_for_end().await.expect("it ends");
    let records = wait(journal.records(board.id(), None, usize::MAX)).expect("read");
    *seats.runtime.lock().expect("nothing panics") = None;
    Arc::into_inner(runtime).expect("nobody else has it").shutdown().await;
    records
}

#[tokio::test(start_paused = true)]
async fn a_board_of_the_harness_has_the_records_of_one_that_the_runtime_runs() {
    for scenario in scenario::ALL {
        let request = scenario.request(&mut Random::new(11), None);
        let played = played(*scenario, request.clone());
        let run = run(*scenario, request).await;
        for (one, other) in run.iter().zip(&played) {
            assert_eq!(one, other, "{}: record {}", scenario.name(), one.seq.0);
        }
        assert_eq!(run.len(), played.len(), "{}", scenario.name());
        let count = |kind| run.iter().filter(|record| record.kind == kind).count();
        assert!(count(Kind::Committed) >= 6 && count(Kind::Rejected) >= 1, "{}: {run:?}", scenario.name());
    }
}
