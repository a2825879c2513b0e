//! Likeness is what people would call alike, it is the same both ways, and what is not clear is never chosen.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const BAR: Bar = Bar { likeness: 750, gap: 100 };

fn choice(values: Value) -> Choice {
    Choice { values: values.as_object().cloned().expect("values"), ..Choice::default() }
}

#[test]
fn what_people_call_alike_is_alike() {
    for (one, other) in [
        ("bananas", "Bananas"),
        ("banana", "bananas"),
        ("bannanas", "bananas"),
        ("the bananas", "bananas"),
        ("ice cream", "icecream"),
        ("milk oat", "oat milk"),
        ("milk", "oat milk"),
        ("Öl", "öl"),
        ("🍌", "🍌"),
    ] {
        assert!(likeness(one, other) >= BAR.likeness, "{one} {other}: {}", likeness(one, other));
    }
    for (one, other) in
        [("milk", "silk"), ("butter", "batteries"), ("tea", "steak"), ("bananas", ""), ("🍌", "🍎"), ("", "a")]
    {
        assert!(likeness(one, other) < BAR.likeness, "{one} {other}: {}", likeness(one, other));
    }
    assert_eq!(likeness("Oat  milk!", "oat-milk"), SAME);
    assert!(likeness("milk", "oat milk") + BAR.gap < SAME, "what is the same is clearly better than what has it in it");
    let long = "word ".repeat(5000);
    assert!(likeness(&long, &format!("{long}other")) < SAME, "what is long is compared in part, and never the same");
}

#[test]
fn words_name_choices() {
    let of = |text: &str, choices: &[Value]| named(text, &choices.iter().cloned().map(choice).collect::<Vec<_>>(), BAR);
    let lists = [json!({"list": "household"}), json!({"list": "office"})];
    for (text, expected) in [
        ("office", &[1][..]),
        ("The OFFICE one, please!", &[1]),
        ("ofice", &[1]),
        ("the house hold one", &[]),
        ("office and household", &[]),
        ("neither", &[]),
        ("", &[]),
    ] {
        assert_eq!(of(text, &lists), expected, "{text}");
    }
    let milks = [json!({"item": "milk"}), json!({"item": "oat milk"}), json!({"item": "oat milk barista"})];
    for (text, expected) in
        [("milk", &[0][..]), ("the oat milk", &[1]), ("oat milk barista then", &[2]), ("the milk of course", &[0])]
    {
        assert_eq!(of(text, &milks), expected, "{text}");
    }
    let both = [
        json!({"list": "household", "item": "milk"}),
        json!({"list": "household", "item": "oat milk"}),
        json!({"list": "office", "item": "milk"}),
    ];
    assert_eq!(of("household", &both), [0, 1], "it is among these");
    assert_eq!(of("the oat milk of the household", &both), [1]);
    assert_eq!(of("number 12", &[json!({"n": 12}), json!({"n": 13})]), [0]);
}

#[test]
fn yes_and_no_are_what_an_answer_begins_with() {
    assert!(is_yes("Yes, please") && is_yes("ok") && !is_yes("is that so") && !is_yes(""));
    assert!(is_no("No.") && is_no("never mind") && !is_no("now"));
}

proptest! {
    #[test]
    fn likeness_is_the_same_both_ways_and_whole_only_of_the_same(one in "[a-d ÄÖ🍌.]{0,12}", other in "[a-d ÄÖ🍌.]{0,12}") {
        let found = likeness(&one, &other);
        prop_assert_eq!(found, likeness(&other, &one));
        prop_assert!(found <= SAME);
        prop_assert_eq!(likeness(&one, &one), SAME);
        if found == SAME {
            prop_assert_eq!(words(&one), words(&other));
        }
    }

    #[test]
    fn nothing_that_is_said_breaks_it(one in ".{0,300}", other in ".{0,300}") {
        let _ = likeness(&one, &other);
        let _ = named(&one, &[choice(json!({"x": other}))], BAR);
    }

    #[test]
    fn one_choice_is_named_only_if_it_is_clearly_the_best(
        text in "[a-c]{1,4}( [a-c]{1,4}){0,2}",
        values in proptest::collection::vec("[a-c]{1,4}( [a-c]{1,4})?", 2..6),
    ) {
        let choices: Vec<Choice> = values.iter().map(|value| choice(json!({"x": value}))).collect();
        let found = named(&text, &choices, BAR);
        if let [one] = found.as_slice() {
            let read: Vec<Named> = choices.iter().map(|choice| Named::of(&words(&text), choice, BAR)).collect();
            prop_assert!(read[*one].is_named);
            for (index, other) in read.iter().enumerate().filter(|(index, _)| index != one) {
                // Another says less with the same words, or is clearly less.
                let says_less = read.iter().any(|more| other.words.len() < more.words.len() && other.words.is_subset(&more.words));
                prop_assert!(says_less || other.score + BAR.gap <= read[*one].score, "{index}");
            }
        }
        prop_assert!(found.len() < choices.len());
    }
}
