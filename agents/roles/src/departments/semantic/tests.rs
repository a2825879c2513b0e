//! Texts that are embedded; the result is a question or nothing.

use proptest::prelude::*;
use serde_json::json;

use super::super::confirm::not_done;
use super::super::declared_tests::RESULT_BYTES_MAX;
use super::super::declared_tests::tests::notes;
use super::super::resolve::tests::{rows, values};
use super::super::resolve::{resolve, resolve_semantically};
use super::super::resume::resume;
use super::super::similarity::{SAME, text_similarity};
use super::super::types::{Choice, OpenQuestion, Status};
use super::*;
use patchboard_kernel::id::Timestamp;

/// Default of the configuration.
const LEAST: f64 = 0.6;

/// Returns a unit vector in the plane, by its angle in degrees.
fn at(degrees: f64) -> Embedding {
    let (sin, cos) = degrees.to_radians().sin_cos();
    Embedding::new(vec![cos, sin]).expect("a direction")
}

fn looked_for(slots: &Value, rows: &[Row]) -> Option<UnmatchedWords> {
    unmatched_words(&notes(), &resolve(&notes(), "remove", &values(slots.clone()), rows), rows)
}

/// Resolves with texts embedded at these angles; a text without an angle, such as the user's words, is at 0.
fn found(action: &str, slots: Value, rows: &[Row], angles: &[(&str, f64)]) -> Option<Resolution> {
    let unresolved = resolve(&notes(), action, &values(slots), rows);
    let unknown = unmatched_words(&notes(), &unresolved, rows)?;
    let angle = |text: &str| angles.iter().find(|(of, _)| *of == text).map_or(0.0, |(_, angle)| *angle);
    let embeddings: Vec<Embedding> = unknown.texts().into_iter().map(|text| at(angle(text))).collect();
    resolve_semantically(&notes(), &unresolved, rows, &unknown.meaning(&embeddings, LEAST))
}

/// Returns the question, and the result of answering it.
fn asked(open: &Resolution, answer: &str) -> (String, Resolution) {
    let result = not_done(&notes(), open, Timestamp(0), RESULT_BYTES_MAX);
    let pending: OpenQuestion = result.pending.expect("it waits");
    (result.question.expect("a question"), resume(&notes(), &pending, answer, Timestamp(1)))
}

#[test]
fn only_words_that_are_like_nothing_are_embedded() {
    let there = rows(&[("household", "bananas"), ("office", "coffee"), ("office", "oat milk"), ("office", "coffee")]);
    let texts = |slots: Value| looked_for(&slots, &there).map(|unknown| unknown.texts().join(", "));
    let all = Some("bananas, coffee, oat milk, plantains".to_owned());
    assert_eq!(texts(json!({"item": " plantains "})), all);
    assert_eq!(
        texts(json!({"item": "plantains", "list": "offise"})),
        Some("coffee, oat milk, plantains".to_owned()),
        "what is like everything else"
    );
    for slots in [
        json!({"item": "banana"}),
        // Exists in another row: an exact match is known, and offered.
        json!({"item": "bananas", "list": "office"}),
        json!({"item": "plantains", "list": "garage"}),
        json!({"list": "garage"}),
        json!({"item": "?!"}),
        json!({"item": ["plantains"]}),
        json!({"item": "x".repeat(BYTES_MAX)}),
        json!({"item": null}),
        json!({}),
    ] {
        assert_eq!(texts(slots.clone()), None, "{slots}");
    }
    assert_eq!(looked_for(&json!({"item": "plantains"}), &[]), None);
    let mut codes = notes();
    codes.storage.fields.get_mut("item").expect("it is there").pattern = Some("^[a-z]+$".to_owned());
    let unresolved = resolve(&codes, "remove", &values(json!({"item": "plantains"})), &there);
    assert_eq!(unmatched_words(&codes, &unresolved, &there), None, "what has a declared form");
}

#[test]
fn no_more_is_embedded_than_there_is_room_for_and_the_newest_first() {
    let many: Vec<String> = (0..1000).map(|number| format!("thing{number}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|item| ("office", item.as_str())).collect();
    let unknown = looked_for(&json!({"item": "plantains"}), &rows(&many)).expect("there are texts");
    assert_eq!(unknown.texts().len(), TEXTS_MAX);
    assert!(unknown.texts().contains(&"thing999") && !unknown.texts().contains(&"thing1"));
    let long: Vec<String> = (0..200).map(|number| format!("{number} {}", "x".repeat(900))).collect();
    let long: Vec<(&str, &str)> = long.iter().map(|item| ("office", item.as_str())).collect();
    let unknown = looked_for(&json!({"item": "plantains"}), &rows(&long)).expect("there are texts");
    let bytes: usize = unknown.texts().iter().map(|text| text.len()).sum();
    assert!((BYTES_MAX - 1000..=BYTES_MAX).contains(&bytes), "{bytes}");
}

#[test]
fn one_that_is_clear_by_its_meaning_is_asked_for_all_the_same() {
    let there = rows(&[("household", "bananas"), ("office", "hammer")]);
    let open = found("remove", json!({"item": "plantains"}), &there, &[("bananas", 0.0), ("hammer", 80.0)]);
    let open = open.expect("a question");
    assert_eq!(
        (open.status, open.ids.as_slice(), open.slots.get("item")),
        (Status::Open, &[][..], Some(&json!("plantains")))
    );
    let (question, yes) = asked(&open, "Yes.");
    assert_eq!(question, "did you mean bananas (there is no item \"plantains\")?");
    assert_eq!((yes.status, yes.ids.as_slice()), (Status::Found, &[1][..]));
    assert_eq!(yes.slots, values(json!({"list": "household", "item": "bananas"})));
    assert_eq!(asked(&open, "the bananas").1.ids, [1]);
    for no in ["no", "No, thanks."] {
        assert_eq!(asked(&open, no).1.why, Some(UnresolvedReason::Declined), "{no}");
    }
    assert_eq!(asked(&open, "what?").1.status, Status::Open);
    let far = [("bananas", 54.0), ("hammer", 80.0)];
    assert_eq!(found("remove", json!({"item": "plantains"}), &there, &far), None, "not like enough");
}

#[test]
fn questions_about_similar_meanings_spell_out_every_candidate() {
    let ask = |of: &[(&str, &str)], angles: &[(&str, f64)]| {
        found("remove", json!({"item": "plantains"}), &rows(of), angles).expect("a question")
    };
    let both = ask(&[("household", "bananas"), ("office", "bananas")], &[]);
    let (question, office) = asked(&both, "the office one");
    assert!(
        question.starts_with("which entry, item bananas and list household or item bananas and list office ("),
        "{question}"
    );
    assert_eq!((office.ids.as_slice(), &office.slots["item"]), (&[2][..], &json!("bananas")));
    let several = ask(
        &[("household", "bananas"), ("office", "hammer"), ("office", "cherries"), ("household", "cherries")],
        &[("bananas", 10.0), ("hammer", 80.0), ("cherries", 20.0)],
    );
    let (question, next) = asked(&several, "cherries");
    assert!(question.starts_with("which item, bananas or cherries ("), "{question}");
    assert_eq!((next.status, next.ask.as_deref()), (Status::Open, Some("which list")));
    let listed = found("show", json!({"list": "attic"}), &rows(&[("office", "bananas")]), &[]);
    assert_eq!(listed, None, "declared values are told by their names");
}

#[test]
fn embeddings_that_are_missing_are_like_nothing() {
    let there = rows(&[("household", "bananas"), ("office", "hammer")]);
    let unresolved = resolve(&notes(), "remove", &values(json!({"item": "plantains"})), &there);
    let unknown = unmatched_words(&notes(), &unresolved, &there).expect("there are texts");
    for embeddings in [vec![], vec![at(0.0)], vec![at(0.0), at(0.0), Embedding::new(vec![1.0]).expect("one")]] {
        assert_eq!(resolve_semantically(&notes(), &unresolved, &there, &unknown.meaning(&embeddings, 0.0)), None);
    }
}

fn list() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("household"), Just("office")]
}

proptest! {
    /// Checks that, for any meaning of texts, the result is nothing or a question. A question names every guessed value
    /// among the near-best rows; only an answer selects a row.
    #[test]
    fn it_is_never_more_than_a_question(
        there in proptest::collection::vec((list(), 0_usize..6), 0..8),
        angles in proptest::collection::vec(0.0..180.0, 6),
        given in proptest::option::of(list()),
    ) {
        const ITEMS: [&str; 6] = ["bananas", "coffee", "hammer", "soap", "xylophone", "ink"];
        let there: Vec<(&str, &str)> = there.into_iter().map(|(list, item)| (list, ITEMS[item])).collect();
        let rows = rows(&there);
        let angles: Vec<(&str, f64)> = ITEMS.into_iter().zip(angles).collect();
        let mut slots = json!({"item": "qqqqqqq"});
        if let Some(list) = given {
            slots["list"] = list.into();
        }
        let text = |row: &Row, field: &str| row.values[field].as_str().expect("a text").to_owned();
        let means = |row: &Row| {
            let (_, angle) = angles.iter().find(|(item, _)| *item == text(row, "item")).expect("it has one");
            thousandths(at(0.0).cosine(&at(*angle)))
        };
        let list = |row: &Row| given.map_or(SAME, |given| text_similarity(given, &text(row, "list")));
        let score = |row: &Row| list(row) * means(row) / SAME;
        let best = rows.iter().filter(|row| list(row) >= 750 && means(row) >= 600).map(score).max();
        let Some(open) = found("remove", slots, &rows, &angles) else {
            prop_assert_eq!(best, None);
            return Ok(());
        };
        let best = best.expect("one is like it");
        prop_assert!(open.status == Status::Open && open.ids.is_empty() && !open.options.is_empty());
        let (question, yes) = asked(&open, "yes");
        for Choice { ids, values, .. } in &open.options {
            let row = rows.iter().find(|row| ids == &[row.id]).expect("it is there");
            prop_assert!(best < score(row) + 100, "{:?}", row);
            prop_assert_eq!(&values["item"], &row.values["item"]);
            prop_assert!(question.contains(&text(row, "item")), "{}", question);
        }
        let expected = if let [one] = open.options.as_slice() { one.ids.clone() } else { Vec::new() };
        prop_assert_eq!(yes.ids, expected);
        prop_assert_eq!(asked(&open, "no").1.why, Some(UnresolvedReason::Declined));
    }
}
