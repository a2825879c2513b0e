//! Likeness follows human judgement and is symmetric; an unclear match is never chosen.

use proptest::prelude::*;

use super::*;

const BAR: MatchThresholds = MatchThresholds { likeness: 750, gap: 100 };

#[test]
fn similar_names_reach_the_likeness_bar() {
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
        assert!(text_similarity(one, other) >= BAR.likeness, "{one} {other}: {}", text_similarity(one, other));
    }
    for (one, other) in
        [("milk", "silk"), ("butter", "batteries"), ("tea", "steak"), ("bananas", ""), ("🍌", "🍎"), ("", "a")]
    {
        assert!(text_similarity(one, other) < BAR.likeness, "{one} {other}: {}", text_similarity(one, other));
    }
    assert_eq!(text_similarity("Oat  milk!", "oat-milk"), SAME);
    assert!(
        text_similarity("milk", "oat milk") + BAR.gap < SAME,
        "what is the same is clearly better than what has it in it"
    );
    let long = "word ".repeat(5000);
    assert!(
        text_similarity(&long, &format!("{long}other")) < SAME,
        "what is long is compared in part, and never the same"
    );
}

proptest! {
    #[test]
    fn likeness_is_the_same_both_ways_and_whole_only_of_the_same(one in "[a-d ÄÖ🍌.]{0,12}", other in "[a-d ÄÖ🍌.]{0,12}") {
        let found = text_similarity(&one, &other);
        prop_assert_eq!(found, text_similarity(&other, &one));
        prop_assert!(found <= SAME);
        prop_assert_eq!(text_similarity(&one, &one), SAME);
        if found == SAME {
            prop_assert_eq!(words(&one), words(&other));
        }
    }

    #[test]
    fn nothing_that_is_said_breaks_it(one in ".{0,300}", other in ".{0,300}") {
        let _ = text_similarity(&one, &other);
        let _ = best_matches(&one, &[other], BAR);
    }
}
