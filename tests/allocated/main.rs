//! Memory of documents, in proportion to their `serde_json::Value` without spare capacity, and of idle boards.
//!
//! The tests assert on bytes requested from the allocator, because they hardly differ between runs. They are counted
//! for the whole process, so these tests have a binary of their own, and run one after the other.

use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::state::State;
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::{Agent, Call, CallResult};
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// Power of two, so that a list grown to it by pushing has no spare capacity.
const COUNT: usize = 1 << 14;

/// Returns the memory of a state of [`COUNT`] elements, divided by the memory of the value parsed from the same text.
fn ratio(element: impl Fn(usize) -> Value) -> f64 {
    let document = json!({"list": (0..COUNT).map(element).collect::<Vec<_>>()});
    let text = document.to_string();
    drop(document);
    let before = ALLOCATED.current_usage();
    let value: Value = serde_json::from_str(&text).expect("it was just written");
    let of_value = ALLOCATED.current_usage() - before;
    // Computes the state's digest, and with it the digests of all nodes that cache one.
    let state = State::new(&value, &Hasher::new(&Salt::ZERO));
    drop(value);
    let of_state = ALLOCATED.current_usage() - before;
    assert_eq!(state.bytes(), text.len() as u64, "it is the same document");
    of_state as f64 / of_value as f64
}

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_document_takes_no_more_than_the_value_of_it() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let words = |length: usize| "word ".repeat(length / 5);
    let shapes: [(&str, f64, Value); 12] = [
        ("numbers", 0.99, json!(0.125)),
        ("names", 0.71, json!("claim-0000001")),
        // A shared text has a reference count, and a long one also a digest: memory that a plain value does not need.
        ("texts of 40", 1.22, json!(words(40))),
        ("texts of 250", 1.08, json!(words(250))),
        ("texts of 1000", 1.08, json!(words(1000))),
        ("texts of 2500", 1.04, json!(words(2500))),
        ("empty arrays", 0.99, json!([])),
        ("empty objects", 0.99, json!({})),
        ("pairs", 0.66, json!([1, 2])),
        ("fours", 0.96, json!([1, 2, 3, 4])),
        ("eights", 0.87, json!([1, 2, 3, 4, 5, 6, 7, 8])),
        ("points", 0.38, json!({"x": 1, "y": 2})),
    ];
    for (shape, at_most, element) in shapes {
        let ratio = ratio(|_| element.clone());
        println!("{shape}: {ratio:.3}× Value");
        assert!(ratio <= at_most, "{shape}: {ratio:.3}× Value, at most {at_most}× was promised");
        assert!(ratio > at_most - 0.1, "{shape}: {ratio:.3}× Value is far below {at_most}×: promise that");
    }
}

/// Agent that never answers.
struct Silent;

impl Agent for Silent {
    fn call<'a>(&'a self, _: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        Box::pin(pending())
    }
}

/// Idle boards that are measured.
const BOARDS: usize = 200;

/// Returns the memory of a board whose worker is triggered in this way, in bytes.
fn idle_board(trigger: &Value) -> usize {
    let blueprint: Blueprint = serde_json::from_value(json!({
        "blueprint": 2,
        "name": "idle",
        "state": {"schema": {"type": "object"}, "initial": {"count": 0, "label": "none", "notes": ["one", "two"]}},
        "workers": {"counter": {
            "agent": "remote", "role": "Replace the count.", "reads": ["/count", "/notes"],
            "writes": [{"path": "/count", "ops": ["replace"]}],
            "limits": {"timeout": "1h"},
        }},
        "rules": [{"name": "begin", "trigger": trigger, "run": "counter"}],
    }))
    .expect("a blueprint");
    let directory = tempfile::tempdir().expect("a directory");
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime of threads");
    threads.block_on(async {
        let journal = patchboard_storage::open(directory.path()).expect("a journal");
        let runtime = Runtime::start(journal, Options::new(Arc::new(Silent)), PLANS).await.expect("a runtime");
        let mut kept = vec![runtime.create(blueprint.clone(), Value::Null, None).await.expect("a board")];
        let before = ALLOCATED.current_usage();
        for _ in 0..BOARDS {
            kept.push(runtime.create(blueprint.clone(), Value::Null, None).await.expect("a board"));
        }
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        (ALLOCATED.current_usage() - before) / BOARDS
    })
}

#[test]
fn an_idle_board_takes_at_most_32_kib() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // With a call to a remote worker, and without any call.
    for (trigger, kib_max) in [(json!("start"), 32), (json!({"signal": "go"}), 20)] {
        let bytes = idle_board(&trigger);
        println!("an idle board triggered by {trigger} takes {bytes} bytes");
        assert!(bytes <= kib_max << 10, "triggered by {trigger}: {bytes} bytes");
    }
}
