//! The memory a document takes as a board's state, against the same document as `serde_json::Value`.
//!
//! Bytes are those asked of the allocator, counted by a global allocator in this binary alone. What the allocator adds
//! to each piece, about eight bytes, is not in them.

use std::process::ExitCode;

use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::state::State;
use patchboard_tests::boards::{self, Rng};
use patchboard_tests::measure::{Bench, Goal, Row, bytes, run};
use peak_alloc::PeakAlloc;
use serde_json::{Map, Value, json};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

const SEED: u64 = 19;

/// A shape of documents: makes one of about so many bytes of compact JSON.
type Shape = fn(usize) -> Value;

const SHAPES: [(&str, Shape); 5] = [
    ("board", |bytes| boards::document(bytes, SEED).0),
    ("tiny arrays", tiny_arrays),
    ("long texts", long_texts),
    ("big object", big_object),
    ("numbers", numbers),
];

fn main() -> ExitCode {
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
    // What is made of it takes its place.
    ALLOCATED.reset_peak_usage();
    let state = made_of(value);
    let of_state = ALLOCATED.current_usage() - before;
    let peak = ALLOCATED.peak_usage() - before;
    assert_eq!(state.bytes(), text.len() as u64, "it is the same document");
    let ratio = of_state as f64 / of_value as f64;
    let of_text = |held: usize| held as f64 / text.len() as f64;
    bench.add(Row::number(case, size, "Value", of_text(of_value), " bytes per byte of JSON"));
    let row = Row::number(case, size, "State", of_text(of_state), " bytes per byte of JSON").ratio(ratio, "Value");
    // The document hangs from a few words whose size does not count.
    let is_aim = text.len() >= 1_000_000;
    bench.add(if is_aim { row.goal(Goal::at_most(1.0, (ratio * 1e3).floor() / 1e3, "×")) } else { row });
    bench.add(Row::number(
        case,
        size,
        &format!("peak while it is made, of {}", bytes(text.len() as f64)),
        of_text(peak),
        " bytes per byte of JSON",
    ));
}

/// The one place that depends on how a state is made of a document.
fn made_of(value: Value) -> State {
    State::new(&value, &Hasher::new(&Salt::ZERO))
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

fn tiny_arrays(bytes: usize) -> Value {
    let mut rng = Rng::new(SEED);
    json!({"pairs": until(bytes, |_| json!([rng.below(100), rng.below(100)]))})
}

fn long_texts(bytes: usize) -> Value {
    let mut rng = Rng::new(SEED);
    json!({"texts": until(bytes, |_| rng.words(400).into())})
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
