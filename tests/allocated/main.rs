//! Checks that a document takes at most as much memory as its `serde_json::Value` without spare capacity.
//!
//! The test asserts on bytes requested from the allocator, because they are equal on every run. They are counted for
//! the whole process, so this test has a binary of its own.

use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::state::State;
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

#[test]
fn a_document_takes_no_more_than_the_value_of_it() {
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
