//! Guarantees of running a board, with faulty agents and journals.

mod admission;
mod events;
mod faults;
mod flow;
mod observed;
mod ownership;
mod snapshots;
mod supervision;

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use patchboard_kernel::board::{Input, Outcome, Proposal, ProposalSource, ReplyBody};
use patchboard_kernel::digest::sha256;
use patchboard_kernel::id::{Timestamp, Version};
use patchboard_kernel::record::{Body, End, Ended, Kind, Record, Retried};
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Notify;

use super::*;
use crate::agent::{Agent, Call, CallResult, Reply};
use crate::audit;
use crate::ids::Ids;
use crate::options::RestartPolicy;
use crate::testing::VirtualClock;
use patchboard_storage::blocking::wait;
use patchboard_storage::sqlite::SqliteJournal;

type Answering = Pin<Box<dyn Future<Output = CallResult> + Send>>;

/// Agent made of a function.
struct Answers<F>(F);

impl<F: Fn(Call) -> Answering + Send + Sync + 'static> Agent for Answers<F> {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        (self.0)(call.clone())
    }
}

fn agent(answer: impl Fn(Call) -> Answering + Send + Sync + 'static) -> Arc<dyn Agent> {
    Arc::new(Answers(answer))
}

fn replies(text: impl Into<String>) -> Answering {
    let reply = Reply::new(text, None);
    Box::pin(async move { Ok(reply) })
}

fn never() -> Answering {
    Box::pin(std::future::pending())
}

/// Patch that appends a step.
const STEP: &str = r#"[{"op":"add","path":"/steps/-","value":1}]"#;

fn counting() -> Arc<dyn Agent> {
    agent(|_| replies(STEP))
}

/// Returns a blueprint in which one worker appends steps until there are five.
fn five_steps() -> Blueprint {
    steps(5)
}

fn steps(count: u32) -> Blueprint {
    let blueprint = json!({
        "blueprint": 1,
        "name": "steps",
        "state": {
            "schema": {
                "type": "object",
                "properties": {"steps": {"type": "array", "items": {"type": "integer"}}, "request": {}},
                "additionalProperties": false,
            },
            "initial": {"steps": []},
        },
        "workers": {
            "walker": {
                "agent": "script",
                "reads": ["/steps"],
                "writes": [{"path": "/steps/-", "ops": ["add"]}],
                "limits": {"timeout": "60s", "invocations": 1000},
                "freshness": "none",
            },
        },
        "rules": [
            {"name": "begin", "trigger": "start", "run": "walker"},
            {"name": "go-on", "trigger": {"op": "add", "path": "/steps/*"}, "run": "walker"},
            {"name": "kick", "trigger": "manual", "run": "walker"},
        ],
        "done": {"when": format!("size(state.steps) >= {count}")},
    });
    serde_json::from_value(blueprint).expect("a blueprint")
}

/// Returns a direct proposal by the worker.
fn proposal(token: &str, text: &str) -> Proposal {
    Proposal {
        from: ProposalSource::Direct { key: Some(token.into()), base: None },
        worker: "walker".into(),
        reply: ReplyBody::Text(text.to_owned()),
        usage: None,
        raw: None,
    }
}

fn dir() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn sqlite(dir: &Path) -> SqliteJournal {
    SqliteJournal::open(dir).expect("the journal opens")
}

fn options(agent: Arc<dyn Agent>) -> Options {
    let clock = VirtualClock::starting_at(Timestamp(1_700_000_000_000));
    Options { clock: Arc::new(clock), ..Options::new(agent) }
}

async fn runtime(journal: impl Journal, agent: Arc<dyn Agent>) -> Runtime {
    Runtime::start(Arc::new(journal), options(agent), PLANS).await.expect("started")
}

async fn create(runtime: &Runtime, blueprint: Blueprint) -> BoardHandle {
    let salt = Some(Salt([3; 32]));
    runtime.create(blueprint, Value::Null, salt).await.expect("created")
}

fn records(journal: &dyn Journal, board: &BoardId) -> Vec<Record> {
    wait(journal.records(board, None, usize::MAX)).expect("read")
}

fn count(records: &[Record], kind: Kind) -> usize {
    records.iter().filter(|record| record.kind == kind).count()
}

/// Checks the invariants of any journal: it verifies, and a replay derives every record.
fn assert_sound(journal: &dyn Journal, board: &BoardId) -> Vec<Record> {
    let verified = audit::verify(journal, board, None, &PLANS).expect("the journal verifies");
    let records = records(journal, board);
    assert_eq!(verified.records, records.len() as u64);
    if let Err(difference) = replay::replay(&records, None, &PLANS) {
        panic!("{difference}");
    }
    records
}

/// Waits for the subscription's first record of a kind.
async fn until(subscription: &mut Subscription, kind: Kind) -> Arc<Record> {
    loop {
        let record = subscription.next().await.expect("the board goes on").expect("read");
        if record.kind == kind {
            return record;
        }
    }
}
