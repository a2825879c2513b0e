//! A document takes no more memory than the `serde_json::Value` of it, where that has no room left over.
//!
//! Bytes asked of the allocator are the same on every run, so they are held to. Counted for the whole process: one test
//! in a binary of its own.

use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::state::State;
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// A power of two: a list grown to it by pushing is full.
const COUNT: usize = 1 << 14;

/// What a state of so many elements takes, as a part of what the value takes that was read from the same text.
fn ratio(element: impl Fn(usize) -> Value) -> f64 {
    let document = json!({"list": (0..COUNT).map(element).collect::<Vec<_>>()});
    let text = document.to_string();
    drop(document);
    let before = ALLOCATED.current_usage();
    let value: Value = serde_json::from_str(&text).expect("it was just written");
    let of_value = ALLOCATED.current_usage() - before;
    // The state has its digest, and with it those of all nodes that keep one.
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
        // A text that is shared has a count of those who share it, and a long one its digest: beyond what a value has.
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
