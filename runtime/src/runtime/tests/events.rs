//! Every subscriber of a board receives every record, at any rate.

use patchboard_kernel::record::Body;
use patchboard_protocols::PLANS;

use super::*;
use patchboard_storage::memory::MemoryJournal;

const COMMITS: u64 = 10_000;

/// Returns a blueprint in which only direct proposals replace a number.
fn counter() -> Blueprint {
    let mut blueprint = steps(1);
    blueprint.rules.clear();
    blueprint.done = None;
    blueprint.state.schema = json!({"properties": {"n": {"type": "integer"}}});
    blueprint.state.initial = json!({"n": 0});
    blueprint.limits.commits = COMMITS * 2;
    let walker = blueprint.workers.get_mut("walker").expect("it has one");
    walker.reads = vec!["/n".into()];
    walker.writes = serde_json::from_value(json!([{"path": "/n", "ops": ["replace"]}])).expect("a grant");
    blueprint
}

/// Returns the versions that a subscriber receives, until all commits have arrived.
async fn versions(mut subscription: Subscription) -> Vec<u64> {
    let mut versions = Vec::new();
    while versions.len() < usize::try_from(COMMITS).expect("it fits") {
        let record = subscription.next().await.expect("the board goes on").expect("read");
        if let Ok(Body::Committed(committed)) = record.body() {
            versions.push(committed.version.0);
        }
    }
    versions
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_commits_in_a_burst_reach_every_subscriber() {
    // A short stream, so that subscribers certainly fall behind.
    let options = Options { subscription_buffer: 64, ..Options::new(agent(|_| never())) };
    let runtime = Runtime::start(Arc::new(MemoryJournal::default()), options, PLANS).await.expect("started");
    let board = create(&runtime, counter()).await;
    let mut listeners = tokio::task::JoinSet::new();
    for _ in 0..8 {
        listeners.spawn(versions(board.subscribe(None)));
    }
    // This subscriber reads only after all commits.
    let late = board.subscribe(Some(board.status().head.seq));
    let mut proposed = tokio::task::JoinSet::new();
    for number in 1..=COMMITS {
        let board = board.clone();
        let text = json!([{"op": "replace", "path": "/n", "value": number}]).to_string();
        proposed.spawn(async move { board.propose(proposal(&number.to_string(), &text)).await });
    }
    while let Some(outcome) = proposed.join_next().await {
        let outcome = outcome.expect("no panic").expect("answered");
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    }
    let all: Vec<u64> = (1..=COMMITS).collect();
    assert!(versions(late).await == all, "the late one missed or repeated something");
    while let Some(heard) = listeners.join_next().await {
        assert!(heard.expect("no panic") == all, "one missed or repeated something");
    }
    assert_eq!(board.status().version, Version(COMMITS));
}
