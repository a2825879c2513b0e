//! Similarity of two texts.
//!
//! Similarity is an integer in thousandths, so that gaps are exact. Texts with the same words are equal, whatever their
//! case and punctuation. Otherwise the best of three measures counts: edit distance (Damerau-Levenshtein), edit
//! distance word by word in any order, and containment of all words. People rarely mistype the first letter of a word,
//! so a difference there counts twice.

use serde_json::Value;

/// Similarity of equal texts.
pub(super) const SAME: u32 = 1000;
/// Greatest similarity of texts that are not equal.
const OTHER: u32 = 990;
/// Least similarity of words that counts.
const WORD_MIN: u32 = 500;
/// Similarity of a text and one that contains all its words, if nothing else is similar.
const CONTAINED: u32 = 800;
/// Characters of a text that are compared if the texts are not equal.
const CHARS_MAX: usize = 160;

/// Converts a share of one to thousandths.
pub(super) fn thousandths(share: f64) -> u32 {
    // A share outside 0 to 1 was rejected when the manifest was read.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1000")]
    let thousandths = (share.clamp(0.0, 1.0) * f64::from(SAME)).round() as u32;
    thousandths
}

/// Converts a similarity to a share of one.
pub(super) fn share(likeness: u32) -> f64 {
    f64::from(likeness) / f64::from(SAME)
}

pub(super) fn text_similarity(one: &str, other: &str) -> u32 {
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

/// Returns the similarity of the words of two texts in any order, weighted by their lengths.
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

fn of_word(one: &str, other: &str) -> u32 {
    if one == other {
        return SAME;
    }
    let (lengths, first) = ([one.chars().count(), other.chars().count()], one.chars().next() == other.chars().next());
    let [least, most] = [lengths[0].min(lengths[1]), lengths[0].max(lengths[1])];
    // The lengths differ too much.
    if least * 2 < most {
        return 0;
    }
    let different = strsim::damerau_levenshtein(one, other) + usize::from(!first);
    let same = most.saturating_sub(different);
    u32::try_from(same * 1000 / most).unwrap_or(0)
}

/// Returns the words of a text in lower case.
pub(super) fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Truncates words to the characters that are compared.
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

/// Formats a value as a user would write it.
pub(super) fn display_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => other.to_string(),
    }
}

/// Thresholds for taking a text as the name of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MatchThresholds {
    pub(super) likeness: u32,
    /// Gap by which the best must exceed the next.
    pub(super) gap: u32,
}

impl MatchThresholds {
    pub(super) fn new(thresholds: &patchboard_protocols::department::Thresholds) -> Self {
        Self { likeness: thousandths(thresholds.likeness), gap: thousandths(thresholds.gap) }
    }

    /// Returns whether a score is not clearly below the best.
    pub(super) fn is_close(self, score: u32, best: u32) -> bool {
        // With a gap of zero, equal scores are still close.
        score >= best || best - score < self.gap
    }
}

/// Returns the indices of the texts that another may mean: none if no text is similar, several if it is ambiguous.
pub(super) fn best_matches(text: &str, of: &[String], bar: MatchThresholds) -> Vec<usize> {
    let scores: Vec<u32> = of.iter().map(|one| text_similarity(text, one)).collect();
    let best = scores.iter().max().copied().filter(|best| *best >= bar.likeness);
    best.map_or(Vec::new(), |best| (0..scores.len()).filter(|&index| bar.is_close(scores[index], best)).collect())
}

#[cfg(test)]
mod tests;
