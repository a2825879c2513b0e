//! Fixed elections, and comparison with a second, slower implementation.

use proptest::prelude::*;

use super::*;

/// Returns the scores as fractions, and the winner's index.
fn held(texts: &[&str]) -> (Vec<f64>, Option<usize>) {
    let scores = scores(texts);
    let chosen = winner(&scores);
    (scores.into_iter().map(|score| in_ones(score).as_f64().expect("a number")).collect(), chosen)
}

#[test]
fn elections() {
    let long = "the quick brown fox jumps over the lazy dog and runs away from it as fast as it can in the evening sun";
    let longer = format!("{long} again");
    assert!(long.len() >= LONG_CHARS_MIN);
    // The first text has 19 different words, the second one more.
    for (texts, scores, chosen) in [
        (vec![], vec![], None),
        (vec!["7"], vec![0.0], Some(0)),
        (vec!["7", "8"], vec![0.0, 0.0], Some(0)),
        (vec!["7", "8", " 8. "], vec![0.0, 1.0, 1.0], Some(1)),
        (vec!["a", "b", "b", "a"], vec![1.0, 1.0, 1.0, 1.0], Some(0)),
        (vec!["x", "Paris", "**paris**", "\"PARIS.\"", "Lyon"], vec![0.0, 2.0, 2.0, 2.0, 0.0], Some(1)),
        (vec!["1,000", "1000.0", "1e3", "$1000", "10 00"], vec![3.0, 3.0, 3.0, 3.0, 0.0], Some(0)),
        (vec!["-5", "5", "−5", "(-5.00)"], vec![2.0, 0.0, 2.0, 2.0], Some(0)),
        (vec![".5", "0.5", "5", "50%"], vec![1.0, 1.0, 0.0, 0.0], Some(0)),
        (vec!["0", "-0.00", "+0"], vec![2.0, 2.0, 2.0], Some(0)),
        (vec!["∞", "-∞", "- ∞", "−∞"], vec![1.0, 0.0, 1.0, 0.0], Some(0)),
        (vec!["-x", "x", "- x"], vec![0.0, 1.0, 1.0], Some(1)),
        (vec!["12345678901234567890", "12345678901234567891"], vec![0.0, 0.0], Some(0)),
        (vec!["new   york", "New York", "New-York"], vec![1.0, 1.0, 0.0], Some(0)),
        (vec![long, &longer], vec![0.95, 0.95], Some(0)),
        // A short text is compared with a long one by its words.
        (vec!["sun", "quick dog", long, "moon"], vec![0.052631, 0.105263, 0.157894, 0.0], Some(2)),
    ] {
        assert_eq!(held(&texts), (scores, chosen), "{texts:?}");
    }
}

#[test]
fn a_text_is_long_from_a_hundred_characters_on() {
    let words = |count: usize| vec!["ab"; count].join(" ");
    // 99 and 101 characters: the words of the short text are not compared.
    let (short, long) = (format!("{}x", words(33)), words(34));
    assert_eq!((short.chars().count(), long.chars().count()), (99, 101));
    assert_eq!(scores(&[&short, "ab"]), [0, 0]);
    assert_eq!(scores(&[&long, "ab"]), [SIMILARITY_ONE, SIMILARITY_ONE]);
}

/// Computes the likeness of two texts by the naive method.
fn slowly_alike(one: &str, other: &str) -> u64 {
    fn trimmed(text: &str) -> String {
        let mut words: Vec<String> = Vec::new();
        for word in text.split(char::is_whitespace) {
            if !word.is_empty() {
                words.push(word.chars().flat_map(char::to_lowercase).collect());
            }
        }
        let chars: Vec<char> = words.join(" ").chars().collect();
        let says = |c: &char| !(c.is_whitespace() || "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~−“”„‘’«»…–—·¿¡".contains(*c));
        let Some(first) = chars.iter().position(says) else { return String::new() };
        let last = chars.iter().rposition(|c| says(c) || *c == '%').expect("there is a first");
        let mut first = first;
        if chars[first].is_ascii_digit()
            && first > 0
            && chars[first - 1] == '.'
            && (first < 2 || chars[first - 2] != '.')
        {
            first -= 1;
        }
        if first > 0 && "+-−".contains(chars[first - 1]) {
            first -= 1;
        }
        chars[first..=last].iter().collect()
    }
    /// Parses a number as a multiple of a power of ten that all short numbers share.
    fn value(text: &str) -> Option<i128> {
        let (text, sign) = match text.chars().next()? {
            '-' | '−' => (text.chars().skip(1).collect::<String>(), -1),
            '+' => (text.chars().skip(1).collect(), 1),
            _ => (text.to_owned(), 1),
        };
        let (mut total, mut places, mut digits) = (0_i128, None, 0);
        for c in text.chars() {
            match (c.to_digit(10), places) {
                (Some(digit), _) => {
                    total = total * 10 + i128::from(digit);
                    places = places.map(|places: u32| places + 1);
                    digits += 1;
                }
                (None, None) if c == '.' => places = Some(0),
                _ => return None,
            }
        }
        let scale = 12 - places.unwrap_or(0);
        (digits > 0).then(|| sign * total * 10_i128.pow(scale))
    }
    let (a, b) = (trimmed(one), trimmed(other));
    if a == b || (value(&a).is_some() && value(&a) == value(&b)) {
        return 1_000_000;
    }
    let is_short = |text: &str| text.trim().chars().count() < 100;
    if is_short(one) && is_short(other) {
        return 0;
    }
    let tokens = |text: &str| {
        let mut tokens: Vec<String> = Vec::new();
        for token in text.split(|c: char| !c.is_alphanumeric()) {
            if !token.is_empty() && !tokens.contains(&token.to_owned()) {
                tokens.push(token.to_owned());
            }
        }
        tokens
    };
    let (a, b) = (tokens(&a), tokens(&b));
    let both = a.iter().filter(|token| b.contains(token)).count();
    let all = a.len() + b.len() - both;
    (both * 1_000_000).checked_div(all).unwrap_or(0) as u64
}

fn text() -> impl Strategy<Value = String> {
    let number = "[ (]{0,2}[-+−]?[0-9]{0,4}(\\.[0-9]{0,3})?[ .)]{0,2}";
    let words = proptest::collection::vec("(red|Red|blue|green|is|not|[a-c]{1,2}|\\.|!)", 0..40)
        .prop_map(|words| words.join(" "));
    prop_oneof![number, "[ .\"*a-bA-B1-2]{0,6}", words]
}

proptest! {
    #[test]
    fn both_ways_of_counting_agree(texts in proptest::collection::vec(text(), 0..8)) {
        let texts: Vec<&str> = texts.iter().map(String::as_str).filter(|text| !plain(text).is_empty()).collect();
        let mut slowly = Vec::new();
        for (i, one) in texts.iter().enumerate() {
            let mut sum = 0;
            for (j, other) in texts.iter().enumerate().rev() {
                if i != j {
                    sum += slowly_alike(other, one);
                }
            }
            slowly.push(sum);
        }
        let scores = scores(&texts);
        prop_assert_eq!(&scores, &slowly, "{:?}", texts);
        let mut best: Option<usize> = None;
        for (index, score) in slowly.iter().enumerate() {
            if best.is_none_or(|best| *score > slowly[best]) {
                best = Some(index);
            }
        }
        prop_assert_eq!(winner(&scores), best);
    }

    #[test]
    fn nothing_panics(texts in proptest::collection::vec(".{0,20}|[-+.,e0-9−]{0,12}", 0..5)) {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        winner(&scores(&texts));
    }
}
