//! How like two texts are.
//!
//! Likeness is counted in thousandths, so that a gap is what it is and not what is left of it in binary. Two texts are the
//! same if their words are, however they are written. Otherwise what counts is the best of: how few letters are different
//! (Damerau-Levenshtein), the same word by word in any order, and that one has all words of the other. People mistype the
//! first letter of a word least, so there a difference counts twice.

use serde_json::Value;

/// The likeness of what is the same.
pub(super) const SAME: u32 = 1000;
/// The most that anything else is alike.
const OTHER: u32 = 990;
/// The least likeness of words that says something.
const WORD_MIN: u32 = 500;
/// The likeness of a text and one that has all words of it, with nothing else alike.
const CONTAINED: u32 = 800;
/// Characters of a text that are compared where it is not the same.
const CHARS_MAX: usize = 160;

/// A share, in thousandths.
pub(super) fn thousandths(share: f64) -> u32 {
    // From 0 to 1: what is not, was refused when the manifest was read.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1000")]
    let thousandths = (share.clamp(0.0, 1.0) * f64::from(SAME)).round() as u32;
    thousandths
}

/// A likeness as a share of one.
pub(super) fn share(likeness: u32) -> f64 {
    f64::from(likeness) / f64::from(SAME)
}

/// How like two texts are.
pub(super) fn likeness(one: &str, other: &str) -> u32 {
    let (one_words, other_words) = (words(one), words(other));
    if one_words.is_empty() || other_words.is_empty() {
        return if one.trim() == other.trim() { SAME } else { 0 };
    }
    of_words(&one_words, &other_words)
}

fn of_words(one: &[String], other: &[String]) -> u32 {
    if one == other {
        return SAME;
    }
    let (one, other) = (short(one), short(other));
    let whole = of_word(&one.concat(), &other.concat());
    let alike = alike(&one, &other);
    let is_in = |inner: &[String], outer: &[String]| inner.iter().all(|word| outer.contains(word));
    let contained = if is_in(&one, &other) || is_in(&other, &one) { CONTAINED + alike / 10 } else { 0 };
    whole.max(alike).max(contained).min(OTHER)
}

/// How like the words of two texts are, in any order; each counts by its letters.
fn alike(one: &[String], other: &[String]) -> u32 {
    let best = |word: &String, others: &[String]| {
        let best = others.iter().map(|other| of_word(word, other)).max().unwrap_or(0);
        if best < WORD_MIN { 0 } else { best }
    };
    let length = |word: &String| u32::try_from(word.chars().count()).unwrap_or(u32::MAX);
    let sum =
        |words: &[String], others: &[String]| words.iter().map(|word| length(word) * best(word, others)).sum::<u32>();
    let letters: u32 = one.iter().chain(other).map(length).sum();
    (sum(one, other) + sum(other, one)).checked_div(letters).unwrap_or(0)
}

/// How like two words are.
fn of_word(one: &str, other: &str) -> u32 {
    if one == other {
        return SAME;
    }
    let (lengths, first) = ([one.chars().count(), other.chars().count()], one.chars().next() == other.chars().next());
    let [least, most] = [lengths[0].min(lengths[1]), lengths[0].max(lengths[1])];
    // Too different in length to be alike.
    if least * 2 < most {
        return 0;
    }
    let different = strsim::damerau_levenshtein(one, other) + usize::from(!first);
    let same = most.saturating_sub(different);
    u32::try_from(same * 1000 / most).unwrap_or(0)
}

/// The words of a text, in small letters.
pub(super) fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The words as far as they are compared.
fn short(words: &[String]) -> Vec<String> {
    let mut left = CHARS_MAX;
    let mut short = Vec::new();
    for word in words {
        let word: String = word.chars().take(left).collect();
        left -= word.chars().count();
        short.push(word);
        if left == 0 {
            break;
        }
    }
    short
}

/// A value as it is said.
pub(super) fn said(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => other.to_string(),
    }
}

/// What counts as naming something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bar {
    /// The least likeness.
    pub(super) likeness: u32,
    /// By how much the best must be better than the next.
    pub(super) gap: u32,
}

impl Bar {
    pub(super) fn of(thresholds: &patchboard_kernel::department::Thresholds) -> Self {
        Self { likeness: thousandths(thresholds.likeness), gap: thousandths(thresholds.gap) }
    }

    /// Whether a score is not clearly less than the best.
    pub(super) fn is_close(self, score: u32, best: u32) -> bool {
        // No gap at all still lets the same be the same.
        score >= best || best - score < self.gap
    }
}

/// Which of these texts is meant by another: none if none is like it, several if it is not clear.
pub(super) fn meant(text: &str, of: &[String], bar: Bar) -> Vec<usize> {
    let scores: Vec<u32> = of.iter().map(|one| likeness(text, one)).collect();
    let best = scores.iter().max().copied().filter(|best| *best >= bar.likeness);
    best.map_or(Vec::new(), |best| (0..scores.len()).filter(|&index| bar.is_close(scores[index], best)).collect())
}

#[cfg(test)]
mod tests;
