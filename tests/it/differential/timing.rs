//! Measures the validation of a change against the validation of the whole. Printed, not asserted, because machines
//! differ.
//!
//! `cargo test --release -p patchboard-tests --test it -- --ignored timing --nocapture`

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use jsonptr::PointerBuf;
use patchboard_kernel::schema::StateSchema;
use patchboard_kernel::tree::Node;
use serde_json::{Map, Value, json};

use super::random::edit;

/// Returns a board with elements that use the keywords of typical boards.
fn board() -> Value {
    json!({
        "type": "object", "required": ["claims", "tasks"], "additionalProperties": false,
        "properties": {
            "claims": {"type": "array", "items": {"$ref": "#/$defs/claim"}},
            "tasks": {"type": "array", "maxItems": 100_000, "items": {"type": "object"}},
            "handles": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "$defs": {"claim": {
            "type": "object", "required": ["id", "text", "status"], "additionalProperties": false,
            "properties": {
                "id": {"type": "string", "pattern": "^c[0-9]+$"},
                "text": {"type": "string", "minLength": 1, "maxLength": 2000},
                "status": {"enum": ["draft", "verified", "refuted"]},
                "author": {"type": "string"},
                "confidence": {"type": "number", "minimum": 0, "maximum": 1},
                "evidence": {"type": "array", "items": {"type": "string"}},
                "round": {"type": "integer"},
                "note": {"type": ["string", "null"]},
            },
            "if": {"properties": {"status": {"const": "verified"}}},
            "then": {"properties": {"evidence": {"minItems": 1}}},
        }},
    })
}

fn claim(number: usize) -> Value {
    json!({
        "id": format!("c{number}"), "text": "A sentence of the sources, word for word.", "status": "verified",
        "author": "extractor", "confidence": 0.75, "evidence": ["e1", "e2"], "round": 3, "note": null,
    })
}

/// Returns the median time of a call in microseconds.
fn microseconds(mut call: impl FnMut()) -> f64 {
    let mut taken: Vec<f64> = (0..201)
        .map(|_| {
            let start = Instant::now();
            (0..50).for_each(|_| call());
            start.elapsed().as_secs_f64() * 1e6 / 50.0
        })
        .collect();
    taken.sort_by(f64::total_cmp);
    taken[taken.len() / 2]
}

#[test]
#[ignore = "it measures"]
fn timing_of_changes() {
    let schema = StateSchema::compile(&board(), false).expect("a schema");
    let place = |text: &str| PointerBuf::parse(text).expect("a pointer");
    for claims in [10, 1_000, 100_000] {
        let value = json!({"claims": (0..claims).map(claim).collect::<Vec<_>>(), "tasks": [], "handles": {}});
        let tree = Node::from_value(&value, &edit(0));
        let mut appended = tree.clone();
        appended.insert(&place("/claims/-"), Node::from_value(&claim(claims), &edit(1)), &edit(1));
        let mut replaced = tree.clone();
        replaced.replace(&place(&format!("/claims/{}/status", claims / 2)), Node::text("refuted"), &edit(1));
        let mut wrong = tree.clone();
        wrong.replace(&place("/claims/3/confidence"), Node::from_value(&json!(2), &edit(1)), &edit(1));
        let append = microseconds(|| assert!(black_box(&schema).is_valid_since(&appended, 0)));
        let replace = microseconds(|| assert!(black_box(&schema).is_valid_since(&replaced, 0)));
        let refuse = microseconds(|| assert_eq!(black_box(&schema).violations_since(&wrong, 0, 20).len(), 1));
        let (mut whole, mut of_value) = (f64::NAN, f64::NAN);
        if claims <= 1_000 {
            whole = microseconds(|| assert!(black_box(&schema).is_valid_tree(&appended)));
            of_value = microseconds(|| assert!(black_box(&schema).is_valid(&value)));
        }
        let _ = writeln!(
            std::io::stderr(),
            "{claims} claims: append {append:.2} us, replace {replace:.2} us, list a violation {refuse:.2} us; \
             whole tree {whole:.1} us, whole value {of_value:.1} us"
        );
    }
}

#[test]
#[ignore = "it measures"]
fn timing_of_compilation() {
    for kinds in [5, 25, 100] {
        // Each kind of element has four places: the array, the element, two of its members.
        let kind = |number: usize| {
            let members =
                json!({"id": {"type": "string"}, "next": {"$ref": format!("#/$defs/k{}", (number + 1) % kinds)}});
            json!({"type": "object", "required": ["id"], "properties": members, "if": {"required": ["next"]}, "then": {"maxProperties": 2}})
        };
        let defs: Map<String, Value> = (0..kinds).map(|number| (format!("k{number}"), kind(number))).collect();
        let arrays = (0..kinds).map(|number| {
            (format!("a{number}"), json!({"type": "array", "items": {"$ref": format!("#/$defs/k{number}")}}))
        });
        let document = json!({"properties": arrays.collect::<Map<_, _>>(), "$defs": defs});
        let start = Instant::now();
        let schema = StateSchema::compile(&document, false).expect("a schema");
        let both = start.elapsed().as_secs_f64() * 1e3;
        let start = Instant::now();
        patchboard_kernel::schema::Schema::compile(&document, false).expect("a schema");
        let plain = start.elapsed().as_secs_f64() * 1e3;
        let _ = writeln!(
            std::io::stderr(),
            "{} subschemas that all refer to each other: compiled in {both:.1} ms, {plain:.1} ms of it for values; opaque: {}",
            kinds * 7 + 1,
            schema.is_opaque()
        );
    }
    let members: Map<String, Value> = (0..25)
        .map(|number| (format!("a{number}"), json!({"type": "array", "maxItems": 50, "items": {"type": "object", "properties": {"x": {"enum": [1, 2]}}}})))
        .collect();
    let document = json!({"properties": members});
    let start = Instant::now();
    StateSchema::compile(&document, false).expect("a schema");
    let _ =
        writeln!(std::io::stderr(), "101 plain subschemas: compiled in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
}
