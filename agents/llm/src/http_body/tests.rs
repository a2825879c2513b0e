//! Bodies as servers write them: compression, character sets, damaged JSON.

use std::io::Write as _;

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn an_envelope_is_read_whatever_its_encoder_wrote() {
    for (text, expected) in [
        ("\u{feff}\n{\"a\": 1}\n\n", json!({"a": 1})),
        ("{\"a\": [NaN, -Infinity, Infinity, \"NaN\"]}", json!({"a": [null, null, null, "NaN"]})),
        (r#"{"a": "x\ud83dy \ud83d\ude00 \udc00"}"#, json!({"a": "x\u{fffd}y \u{1f600} \u{fffd}"})),
        ("{\"a\": \"x\ny\\\"\"}", json!({"a": "x\ny\""})),
        ("{\"a\": 1, \"a\": 2}", json!({"a": 2})),
        ("{\"choices\": []} {\"choices\": [1]}", json!({"choices": []})),
    ] {
        assert_eq!(json(text).expect("readable"), expected, "{text}");
    }
    for text in ["", "x", "{\"a\": 1} {}", "<html>", "{\"a\": nan}", "{\"a\"", "\\", "\"\\u"] {
        assert!(json(text).is_err(), "{text}");
    }
}

#[test]
fn halves_of_a_character_in_two_events_are_joined() {
    let halves = [r#""hi \ud83c""#, r#""\udf89!""#].map(|text| event(text).expect("readable"));
    let text: String = halves.iter().filter_map(Value::as_str).collect();
    assert_eq!(join_surrogates(&text), "hi \u{1f389}!");
    let lone = event(r#""a\udf89 \ud83cb""#).expect("readable");
    assert_eq!(join_surrogates(lone.as_str().expect("text")), "a\u{fffd} \u{fffd}b");
}

#[test]
fn a_body_is_decoded_by_its_compression_and_its_character_set() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&[b'x'; 1000]).expect("in memory");
    let gzip = gzip.finish().expect("in memory");
    assert_eq!(inflate(gzip.clone(), None, 1000), Ok(vec![b'x'; 1000]));
    assert!(inflate(gzip.clone(), Some("gzip"), 999).is_err_and(|why| why.contains("longer")));
    assert!(inflate(gzip[..20].to_vec(), Some("gzip"), 1000).is_err_and(|why| why.contains("damaged")));
    assert!(inflate(vec![1], Some("br"), 9).is_err());
    assert_eq!(inflate(b"{}".to_vec(), Some("gzip"), 9), Ok(b"{}".to_vec()));
    assert_eq!(text(b"caf\xe9", "text/plain; charset=ISO-8859-1"), "café");
    assert_eq!(text(b"4\xf0\x9f", "application/json"), "4\u{fffd}");
    assert_eq!(text("café".as_bytes(), "text/plain; charset=latin1"), "café");
}

proptest! {
    #[test]
    fn a_valid_document_is_read_as_it_is(text in "[\\\\\"a-z\u{e9}\u{1f600}\n{}]{0,20}", wild in ".{0,40}") {
        let value = json!({"a": [text], "b": 1.5});
        prop_assert_eq!(json(&value.to_string()).expect("JSON"), value.clone());
        prop_assert_eq!(serde_json::from_str::<Value>(&repair(&value.to_string(), &|_| '?')).expect("JSON"), value);
        drop(json(&wild));
    }
}
