//! Runs a board from a Rust program, with agents written in Rust.
//!
//! A splitter cuts a text into lines; every new line triggers a counter. The kernel computes no sums, so a summer waits
//! until each line has its count. Then the program verifies the journal and looks up the author of the total.
//!
//! `cargo run --package patchboard-examples --bin word_count`

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::record::Kind;
use patchboard_lint::source::Source;
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::{Agent, Call, CallResult, Failure, Reply};
use patchboard_runtime::audit;
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal;
use serde_json::{Value, json};

const BLUEPRINT: &str = include_str!("word_count.yaml");

/// Agent for three workers, one function each. A view is text for a model; a program finds values by their JSON
/// Pointers.
struct Counting;

impl Agent for Counting {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        Box::pin(async move {
            let shown = |pointer: &str| -> Option<Value> {
                let prefix = format!("{pointer}: ");
                let line = call.prompt.user.lines().find_map(|line| line.strip_prefix(&prefix))?;
                serde_json::from_str(line).ok()
            };
            let every =
                |region: &str| -> Vec<Value> { (0..).map_while(|index| shown(&format!("{region}/{index}"))).collect() };
            let patch = match call.worker.as_str() {
                "splitter" => {
                    let text = shown("/request/text").unwrap_or_default();
                    let lines = text.as_str().unwrap_or_default().lines();
                    lines.map(|line| json!({"op": "add", "path": "/lines/-", "value": {"text": line}})).collect()
                }
                "counter" => {
                    let lines = every("/lines");
                    let Some(next) = lines.iter().position(|line| line.get("words").is_none()) else {
                        return Ok(Reply::new("[]", None));
                    };
                    let words = lines[next]["text"].as_str().unwrap_or_default().split_whitespace().count();
                    vec![json!({"op": "add", "path": format!("/lines/{next}/words"), "value": words})]
                }
                "summer" => {
                    let total: u64 = every("/lines").iter().filter_map(|line| line["words"].as_u64()).sum();
                    vec![json!({"op": "add", "path": "/total", "value": total})]
                }
                other => {
                    let message = format!("nobody sits in the seat {other}");
                    return Err(Failure { code: FailureCode::NotConfigured, message, usage: None, deferral: None });
                }
            };
            Ok(Reply::new(Value::Array(patch).to_string(), None))
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let report =
        patchboard_protocols::check(&Source::read("word_count.yaml", BLUEPRINT).map_err(|finding| finding.message)?);
    let blueprint = report.blueprint.ok_or_else(|| format!("{:?}", report.findings))?;

    let directory = tempfile::tempdir()?;
    let journal = patchboard_storage::open(directory.path())?;
    let runtime =
        Runtime::start(Arc::clone(&journal) as Arc<dyn Journal>, Options::new(Arc::new(Counting)), PLANS).await?;

    let request = json!({"text": "a board is not a chat\nit is a document\nwith a door"});
    let board = runtime.create(blueprint, request, None).await?;
    let ended = board.wait_for_end().await?;
    let snapshot = board.status();
    println!("{} at version {}: {} words", ended.end, snapshot.version, snapshot.state.root()["total"]);

    let verified = audit::verify(&*journal, board.id(), Some(snapshot.head.hash), &PLANS)?;
    println!("{} records verified", verified.records);
    let records = wait(journal.records(board.id(), None, usize::MAX))?;
    for record in records.iter().filter(|record| matches!(record.kind, Kind::Committed | Kind::Rejected)) {
        println!("{} {}", record.kind, record.payload);
    }
    runtime.shutdown().await;
    Ok(())
}
