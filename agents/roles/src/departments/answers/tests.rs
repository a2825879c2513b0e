//! An unclear reply is never an answer, whatever the options are called. An answer changes its own field and nothing
//! else.

use patchboard_kernel::id::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::declared_tests::tests::notes;
use super::super::resume::resume;
use super::super::types::{OpenQuestion, Status};
use super::*;

/// Returns a question that offers these values.
fn question(values: &[Value]) -> OpenQuestion {
    let options: Vec<Value> =
        values.iter().enumerate().map(|(n, value)| json!({"ids": [n], "values": {"new_list": value}})).collect();
    let pending = json!({"department": "notes", "action": "remove", "options": options, "ask": "which list",
        "field": "new_list", "asked": 1, "expires_at": 300_000});
    serde_json::from_value(pending).expect("a question")
}

fn answer(pending: &OpenQuestion, text: &str) -> Option<ClearAnswer> {
    super::answer(&pending.into(), text)
}

fn says(values: &[Value], text: &str) -> Option<ClearAnswer> {
    answer(&question(values), text)
}

#[test]
fn an_option_is_named_by_its_value_and_nothing_else() {
    let lists = [json!("household"), json!("office"), json!("garden shed")];
    for (text, expected) in [
        ("office", 1),
        ("  \"OFFICE\"! ", 1),
        ("The office one, please.", 1),
        ("it's on the new office list", 1),
        ("the garden shed", 2),
        ("Bitte auf die Liste im office", 9),
        ("im office, bitte", 1),
    ] {
        let expected = (expected < 9).then(|| ClearAnswer::Options(vec![expected]));
        assert_eq!(says(&lists, text), expected, "{text}");
    }
    for text in [
        "",
        "list",
        "ofice",
        "the shed",
        "office and household",
        "office household",
        "not the office one",
        "no, not the office one",
        "no, the office one",
        "yes, office",
        "office?",
        "which is the office list",
        "Put bananas on the office list",
        "put milk on the household list",
        "everything but the office one",
        "the office one 👎",
        "<s>office</s>",
        "yes",
    ] {
        assert_eq!(says(&lists, text), None, "{text}");
    }
}

#[test]
fn option_names_match_only_their_own_words() {
    // The value as written is meant, even if it reads as a no.
    let booleans = [json!(true), json!(false)];
    assert_eq!(says(&booleans, "No."), Some(ClearAnswer::Options(vec![1])));
    assert_eq!(says(&booleans, "no thanks"), Some(ClearAnswer::No));
    assert_eq!(says(&[json!("C++"), json!("C")], "c++"), Some(ClearAnswer::Options(vec![0])));
    assert_eq!(says(&[json!("C++"), json!("C")], "the c"), None, "either");
    assert_eq!(says(&[json!("no sugar"), json!("sugar")], "no, sugar"), None);
    assert_eq!(says(&[json!("no sugar"), json!("sugar")], "no sugar"), Some(ClearAnswer::Options(vec![0])));
    assert_eq!(says(&[json!(-3), json!(5)], "3"), None);
    assert_eq!(says(&[json!(-3), json!(5)], "-3"), Some(ClearAnswer::Options(vec![0])));
    assert_eq!(says(&[json!(0.5), json!(5)], "5"), Some(ClearAnswer::Options(vec![1])));
    // A value of a field that was not asked for selects no option.
    let mut other = question(&[json!("household"), json!("office")]);
    other.options[0].values.insert("urgent".into(), "yes".into());
    other.options[1].values.insert("item".into(), "later".into());
    for text in ["yes", "later"] {
        assert_eq!(answer(&other, text), None, "{text}");
    }
    // Each value of a row selects it if the question is about the whole row.
    let whole = OpenQuestion { field: Some(String::new()), ..other.clone() };
    for (text, expected) in [("the office one", Some(1)), ("later", Some(1)), ("yes", Some(0)), ("office later", None)]
    {
        assert_eq!(answer(&whole, text), expected.map(|one| ClearAnswer::Options(vec![one])), "{text}");
    }
    // An option that was not shown may have an equal value.
    other.more = 1;
    assert_eq!((answer(&other, "office"), answer(&other, "no")), (None, Some(ClearAnswer::No)));
}

#[test]
fn questions_without_options_take_only_a_no_as_clear() {
    for text in [
        "No",
        "nope, thanks",
        "Never mind.",
        "no, leave it",
        "No no no!",
        "nein danke",
        "Forget it, please",
        "none of them",
    ] {
        assert_eq!(says(&[], text), Some(ClearAnswer::No), "{text}");
    }
    for text in
        ["Friday", "no, Friday", "no?", "now", "yes", "thanks", "never", "stop the milk", "cancel the dentist", "leave"]
    {
        assert_eq!(says(&[], text), None, "{text}");
    }
}

#[test]
fn a_yes_is_an_answer_where_one_thing_is_asked_about() {
    let (one, two) = ([json!("office")], [json!("office"), json!("household")]);
    for text in ["Yes.", "yes, that one", "ja", "ok, thanks"] {
        assert_eq!((says(&one, text), says(&two, text)), (Some(ClearAnswer::Options(vec![0])), None), "{text}");
    }
    assert_eq!(says(&one, "yes, but the other one"), None);
    let more = OpenQuestion { more: 1, ..question(&one) };
    assert_eq!(answer(&more, "yes"), None, "there are others");
}

#[test]
fn an_offer_is_taken_by_a_yes_alone() {
    let offer = |count: usize| OpenQuestion { offer: true, ..question(&[json!("office"), json!("bananas")][..count]) };
    for text in ["Yes", "yes please!", "OK, do it", "ja, bitte", "sure, that one"] {
        assert_eq!(answer(&offer(1), text), Some(ClearAnswer::Options(vec![0])), "{text}");
        assert_eq!(answer(&offer(2), text), None, "to which of two");
    }
    for text in [
        "office",
        "the office one",
        "yes, the office one",
        "yes and no",
        "that one",
        "please",
        "ok",
        "Okay, thanks.",
        "yes?",
        "Put bananas on the office list",
    ] {
        assert_eq!(answer(&offer(1), text), None, "{text}");
    }
    assert_eq!(answer(&offer(2), "no thanks"), Some(ClearAnswer::No));
}

/// Second implementation of a clear answer: without the value, only filler words are left.
fn is_clear(text: &str, value: &str) -> bool {
    let spaced = |text: &str| {
        let letters: String = text.chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
        format!(" {} ", letters.to_lowercase().split_whitespace().collect::<Vec<_>>().join("  "))
    };
    let (text, value) = (spaced(text), spaced(value));
    let polite = ["the", "one", "please", "list", "on", "it", "is", "die", "bitte", "new"];
    let rest = text.replace(&value, " ");
    text.contains(&value) && rest.split_whitespace().all(|word| polite.contains(&word))
}

fn message() -> impl Strategy<Value = String> {
    let names = ["household", "Office", "garden shed", "garden", "bananas"];
    let fillers = ["the", "one", "please", "list", "on", "it", "is", "die", "bitte", "new"];
    let others = [
        "no", "not", "never", "nein", "without", "nicht", "yes", "and", "or", "put", "throw", "milk", "both", "qx",
        "what", "but",
    ];
    let word = prop_oneof![
        4 => prop::sample::select(names.to_vec()),
        4 => prop::sample::select(fillers.to_vec()),
        1 => prop::sample::select(others.to_vec()),
    ];
    let sign = prop::sample::select(vec![" ", ", ", "! ", "  ", " - "]);
    prop::collection::vec((word, sign), 0..6)
        .prop_map(|parts| parts.into_iter().map(|(word, sign)| format!("{word}{sign}")).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    /// Tests both directions: only a clear answer leads to a change, and every clear answer does.
    #[test]
    fn only_a_message_that_is_an_answer_leads_to_a_change(text in message(), offer in any::<bool>()) {
        let values = ["household", "office", "garden shed"];
        let pending = OpenQuestion { offer, ..question(&values.map(Value::from)) };
        let resumed = resume(&notes(), &pending, &text, Timestamp(0));
        let clear: Vec<i64> = (0..3).filter(|n| !offer && is_clear(&text, values[*n])).map(|n| i64::try_from(n).expect("small")).collect();
        match clear.as_slice() {
            [one] => prop_assert_eq!((resumed.status, &resumed.ids[..]), (Status::Found, &[*one][..]), "{}", text),
            _ => prop_assert!(resumed.status != Status::Found && resumed.ids.is_empty(), "{text}: {resumed:?}"),
        }
    }

    #[test]
    fn no_other_words_lead_to_a_change(text in ".{0,80}", offer in any::<bool>(), count in 0_usize..3) {
        let values = ["household", "office", "garden shed"];
        let pending = OpenQuestion { offer, ..question(&values.map(Value::from)[..count]) };
        let resumed = resume(&notes(), &pending, &text, Timestamp(0));
        let is_yes = count == 1 && text.to_lowercase().contains(['y', 'o', 's', 'j']);
        prop_assert!(resumed.status != Status::Found || is_yes || values.iter().any(|value| is_clear(&text, value)), "{text}");
    }
}
