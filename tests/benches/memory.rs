//! Measures the memory of a document as a board's state, against the same document as `serde_json::Value`. The state is
//! built from the value, grown by commits, or restored from a snapshot. All states have their digests.
//!
//! Bytes are those requested from the allocator, counted by a global allocator in this binary alone. The allocator's
//! own overhead of about eight bytes per allocation is not included.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::process::ExitCode;

use jsonptr::PointerBuf;
use patchboard_kernel::board::Board;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::patch::Op;
use patchboard_kernel::state::{ResultLimits, State};
use patchboard_protocols::PLANS;
use patchboard_tests::boards::{self, Rng};
use patchboard_tests::measure::{Bench, Goal, Row, bytes, run};
use peak_alloc::PeakAlloc;
use serde_json::{Map, Value, json};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

const SEED: u64 = 19;

/// Shape of documents: makes one of about the given number of bytes of compact JSON.
type Shape = fn(usize) -> Value;

const SHAPES: [(&str, Shape); 8] = [
    ("board", |bytes| boards::document(bytes, SEED).0),
    ("tiny arrays", |bytes| arrays(bytes, 2)),
    ("arrays of four", |bytes| arrays(bytes, 4)),
    ("empty", empty),
    ("short texts", |bytes| texts(bytes, 8)),
    ("long texts", |bytes| texts(bytes, 400)),
    ("big object", big_object),
    ("numbers", numbers),
];

fn main() -> ExitCode {
    // Initialises process-wide statics first, so that no measurement includes them.
    drop(restored("{}"));
    run("memory", |bench| {
        for (case, shape) in SHAPES {
            for (size, count) in bench.options.sizes() {
                if count >= 100_000 && bench.wants(case, size) {
                    measure(bench, case, size, shape(count));
                }
            }
        }
    })
}

fn measure(bench: &mut Bench, case: &str, size: &str, document: Value) {
    let text = document.to_string();
    drop(document);
    let before = ALLOCATED.current_usage();
    let value: Value = serde_json::from_str(&text).expect("it was just written");
    let of_value = ALLOCATED.current_usage() - before;
    // The state replaces the value, so the peak covers the conversion alone.
    ALLOCATED.reset_peak_usage();
    let state = made_of(value);
    let of_state = ALLOCATED.current_usage() - before;
    let peak = ALLOCATED.peak_usage() - before;
    assert_eq!(state.bytes(), text.len() as u64, "it is the same document");
    let digest = state.digest();
    drop(state);

    let of_text = |held: usize| held as f64 / text.len() as f64;
    let row = |what: &str, held| Row::number(case, size, what, of_text(held), " bytes per byte of JSON");
    bench.add(row("Value", of_value));
    let ratio = of_state as f64 / of_value as f64;
    let made = row("State", of_state).ratio(ratio, "Value");
    // The goal applies to large documents only: in them the constant overhead of a state does not matter.
    let is_aim = text.len() >= 1_000_000;
    bench.add(if is_aim { made.goal(Goal::at_most(1.0, (ratio * 1e3).floor() / 1e3, "×")) } else { made });
    for (what, otherwise) in [("State, grown", grown as fn(&str) -> State), ("State, restored", restored)] {
        let before = ALLOCATED.current_usage();
        let state = otherwise(&text);
        let held = ALLOCATED.current_usage() - before;
        assert_eq!(state.digest(), digest, "it is the same document");
        bench.add(row(what, held).ratio(held as f64 / of_value as f64, "Value"));
    }
    bench.add(row(&format!("peak while it is made, of {}", bytes(text.len() as f64)), peak));
}

/// Builds a state from a document. No other place here depends on how that is done.
fn made_of(value: Value) -> State {
    State::new(&value, &Hasher::new(&Salt::ZERO))
}

/// Builds a state by one commit for each element of each of its containers.
fn grown(text: &str) -> State {
    let document: Map<String, Value> = serde_json::from_str(text).expect("an object");
    let emptied = |value: &Value| match value {
        Value::Array(_) => json!([]),
        Value::Object(_) => json!({}),
        scalar => scalar.clone(),
    };
    let begin = document.iter().map(|(name, value)| (name.clone(), emptied(value))).collect();
    let mut state = made_of(Value::Object(begin));
    let mut add = |path: &PointerBuf, value: &Value| {
        let mut candidate = state.candidate();
        let limits = ResultLimits { bytes: u64::MAX, depth: 127 };
        candidate.apply(&Op::Add { path, value }, limits).expect("there is room");
        state = candidate.into_state();
    };
    for (name, value) in document {
        match value {
            Value::Array(items) => {
                items.into_iter().for_each(|item| add(&PointerBuf::from_tokens([&*name, "-"]), &item));
            }
            Value::Object(members) => {
                members.into_iter().for_each(|(key, member)| add(&PointerBuf::from_tokens([&*name, &*key]), &member));
            }
            _ => {}
        }
    }
    state
}

/// Builds a state from a stored snapshot.
fn restored(text: &str) -> State {
    let document: Value = serde_json::from_str(text).expect("it was just written");
    let blueprint = json!({
        "blueprint": 1, "name": "measured", "state": {"schema": {}, "initial": document},
        "workers": {"w": {"agent": "script", "writes": [{"path": "/x"}]}}, "limits": {"state_bytes": 1_u64 << 40},
    });
    let (board, created) = boards::of(blueprint);
    let mut parts = BTreeMap::new();
    let Ok(stored) = board.store(true, &mut |part| {
        parts.insert(part.hash, part.text.to_string());
        Ok::<_, Infallible>(())
    });
    let mut fetch = |hash| Ok(parts.get(&hash).cloned());
    let restored = Board::restore(&created.records[0], stored.manifest.hash, &mut fetch, &PLANS).expect("it is stored");
    restored.state().clone()
}

fn until(bytes: usize, mut element: impl FnMut(usize) -> Value) -> Vec<Value> {
    let (mut made, mut elements) = (0, Vec::new());
    while made < bytes {
        let element = element(elements.len());
        made += usize::try_from(patchboard_kernel::json::size(&element)).unwrap_or(usize::MAX) + 1;
        elements.push(element);
    }
    elements
}

fn arrays(bytes: usize, len: usize) -> Value {
    let mut rng = Rng::new(SEED);
    json!({"tuples": until(bytes, |_| (0..len).map(|_| Value::from(rng.below(100))).collect())})
}

fn empty(bytes: usize) -> Value {
    json!({"empty": until(bytes, |index| if index % 2 == 0 { json!([]) } else { json!({}) })})
}

fn texts(bytes: usize, words: usize) -> Value {
    let mut rng = Rng::new(SEED);
    json!({"texts": until(bytes, |_| rng.words(words).into())})
}

fn big_object(bytes: usize) -> Value {
    let mut rng = Rng::new(SEED);
    let members = until(bytes, |index| json!([format!("key-{index:09}"), rng.words(3)]));
    let members: Map<String, Value> =
        (0..).zip(members).map(|(index, mut pair)| (format!("key-{index:09}"), pair[1].take())).collect();
    json!({ "index": members })
}

fn numbers(bytes: usize) -> Value {
    let mut rng = Rng::new(SEED);
    json!({"series": until(bytes, |_| (rng.below(1_000_000) as f64 / 1000.0).into())})
}
