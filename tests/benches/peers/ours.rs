//! Does the peers' work on a PatchBoard board, with the same durability.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::Outcome;
use patchboard_protocols::PLANS;
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::sqlite::SqliteJournal;
use patchboard_tests::boards::{self, Rng, WORKER};
use serde_json::{Value, json};

#[path = "../shared/silent_agent.rs"]
mod silent_agent;

use silent_agent::SilentAgent;

/// Work of one step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// A superstep of the LangGraph program: appends or replaces a claim, and counts.
    Superstep,
    /// A commit of the Python blackboard: a test and an append, or a test and two replacements.
    Commit,
}

/// Samples of one run on our side.
pub(super) struct Run {
    /// Time from each step to the next.
    pub(super) samples: Vec<Duration>,
    /// Time from the first step to the last.
    pub(super) seconds: f64,
}

/// Steps at the beginning that are not counted; the peers leave out as many.
const WARM_UP: usize = 2;
const SEED: u64 = 7;

/// Runs `steps` steps on a board of about `bytes` bytes, with one client.
pub(super) async fn run(dir: &Path, bytes: usize, steps: usize, task: Task) -> Run {
    let dir = tempfile::tempdir_in(dir).expect("a directory can be made");
    let journal = SqliteJournal::open(dir.path()).expect("the journal opens");
    let runtime =
        Runtime::start(Arc::new(journal), Options::new(Arc::new(SilentAgent)), PLANS).await.expect("it starts");
    let mut rng = Rng::new(SEED);
    let mut claims = Vec::new();
    let mut made = 0;
    while made < bytes {
        let claim = boards::claim(claims.len(), &mut rng);
        made += usize::try_from(patchboard_kernel::json::size(&claim)).unwrap_or(usize::MAX) + 1;
        claims.push(claim);
    }
    let mut count = claims.len();
    let mut statuses: Vec<Value> = claims.iter().map(|claim| claim["status"].clone()).collect();
    let board = runtime.create(blueprint(claims), Value::Null, None).await.expect("created");
    // The client runs on one of the runtime's threads, as in a program that uses the runtime.
    let client = tokio::spawn(async move {
        let mut stamps = Vec::with_capacity(steps);
        for step in 0..steps + WARM_UP {
            stamps.push(Instant::now());
            let index = rng.below(count);
            let patch = match (task, step % 2 == 0) {
                (Task::Superstep, true) => json!([
                    {"op": "add", "path": "/claims/-", "value": boards::claim(count, &mut rng)},
                    {"op": "replace", "path": "/meta/step", "value": step + 1},
                ]),
                (Task::Superstep, false) => {
                    let mut claim = boards::claim(index, &mut rng);
                    claim["status"] = "contested".into();
                    json!([
                        {"op": "replace", "path": format!("/claims/{index}"), "value": claim},
                        {"op": "replace", "path": "/meta/step", "value": step + 1},
                    ])
                }
                (Task::Commit, true) => json!([
                    {"op": "test", "path": "/meta/phase", "value": "active"},
                    {"op": "add", "path": "/claims/-", "value": boards::claim(count, &mut rng)},
                ]),
                (Task::Commit, false) => json!([
                    {"op": "test", "path": format!("/claims/{index}/status"), "value": statuses[index]},
                    {"op": "replace", "path": format!("/claims/{index}/status"), "value": "contested"},
                    {"op": "replace", "path": format!("/claims/{index}/confidence"), "value": rng.below(1000) as f64 / 1e3},
                ]),
            };
            if step % 2 == 0 {
                statuses.push(patch[usize::from(task == Task::Commit)]["value"]["status"].clone());
                count += 1;
            } else {
                statuses[index] = "contested".into();
            }
            let proposal = boards::proposal(patch.to_string(), Some(step as u64));
            let outcome = board.propose(proposal).await.expect("answered");
            assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
        }
        stamps.push(Instant::now());
        stamps
    });
    let stamps = client.await.expect("the client does not panic");
    runtime.shutdown().await;
    let stamps = &stamps[WARM_UP..];
    let samples: Vec<_> = stamps.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let seconds = samples.iter().sum::<Duration>().as_secs_f64();
    Run { samples, seconds }
}

/// Returns the schema and the document of the Python blackboard, with a count of steps.
fn blueprint(claims: Vec<Value>) -> Blueprint {
    let mut schema = boards::schema(boards::Across::Nothing);
    schema["properties"] = json!({
        "meta": {
            "type": "object", "required": ["phase"],
            "properties": {"phase": {"enum": ["setup", "active", "closed"]}, "step": {"type": "integer"}},
        },
        "claims": {"type": "array", "items": {"$ref": "#/$defs/claim"}},
    });
    schema["required"] = json!(["meta", "claims"]);
    let claim = schema["$defs"]["claim"].take();
    schema["$defs"] = json!({ "claim": claim });
    let mut blueprint = json!({
        "blueprint": 1,
        "name": "peers",
        "state": {"schema": schema, "initial": {"meta": {"phase": "active", "step": 0}}},
        "workers": {
            WORKER: {
                "agent": "script",
                "reads": ["/meta", "/claims"],
                "writes": [
                    {"path": "/claims/-", "ops": ["add"]},
                    {"path": "/claims/*", "ops": ["replace"]},
                    {"path": "/claims/*/status", "ops": ["replace"]},
                    {"path": "/claims/*/confidence", "ops": ["replace"]},
                    {"path": "/meta/step", "ops": ["replace"]},
                ],
            },
        },
        "limits": {"commits": u64::MAX / 2, "wall": "365d", "state_bytes": 1_u64 << 32},
    });
    blueprint["state"]["initial"]["claims"] = claims.into();
    serde_json::from_value(blueprint).expect("every field is one that a blueprint has")
}
