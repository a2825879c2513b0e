//! `builtin:vote`: chooses the answer most similar to the others (`docs/blackboard.md`).
//!
//! V(a) is the sum of the similarities of `a` to every other answer. The answer with the greatest sum wins; on a tie,
//! the earliest. Short answers are either equal or not: the same words, or the same number in any notation. Long
//! answers are compared by their words: the shared ones as a fraction of all (Jaccard). Similarity is an integer in
//! millionths, so that sums do not depend on their order.

use std::collections::BTreeSet;

use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::failure::FailureCode;
use patchboard_runtime::agent::{Call, CallResult, Failure, Reply};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::elements;
use crate::role_io::{not_configured, role_config};

/// Least length of a long answer in characters.
const LONG_CHARS_MIN: usize = 100;
/// Similarity of equal answers.
const SIMILARITY_ONE: u64 = 1_000_000;
const ANSWERS_MAX: usize = 256;
/// Longest number that is compared by its value, in bytes.
const DIGITS_MAX: usize = 100;

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VoteConfig {
    /// JSON Pointer to the answers, an array of `{from, text}`.
    answers: String,
    /// JSON Pointer to the place for the chosen answer.
    into: String,
}

impl Default for VoteConfig {
    fn default() -> Self {
        Self { answers: "/answers".to_owned(), into: "/answer".to_owned() }
    }
}

pub(crate) fn config(worker: &Worker) -> Result<VoteConfig, String> {
    let with: VoteConfig = role_config(worker)?;
    let is_pointer = |place: &str| place.starts_with('/');
    if is_pointer(&with.answers) && is_pointer(&with.into) {
        Ok(with)
    } else {
        Err("its `with` names places, like {answers: /answers, into: /answer}".to_owned())
    }
}

/// Chooses among the answers in the view. Without answers it passes, if it may.
pub fn answer(call: &Call) -> CallResult {
    let worker = call.worker_config();
    let with = config(worker).map_err(not_configured)?;
    let tokens: Vec<String> =
        with.answers.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
    let place: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let shown = elements::visible_elements(&call.context, &place);
    if elements::count(&call.context, &place).is_some_and(|there| there > shown.len()) {
        let message = format!("not every answer at {} is shown: the seat's view.budget is too small", with.answers);
        return Err(not_configured(message));
    }
    let ballots: Vec<VoteAnswer> = shown.into_values().filter_map(VoteAnswer::from_element).take(ANSWERS_MAX).collect();
    let texts: Vec<&str> = ballots.iter().map(|ballot| ballot.text.as_str()).collect();
    let scores = scores(&texts);
    let reply = match winner(&scores) {
        Some(chosen) => {
            let vote = |(ballot, score): (&VoteAnswer, &u64)| json!({"from": ballot.from, "text": ballot.text, "score": in_ones(*score)});
            let votes: Vec<Value> = ballots.iter().zip(&scores).map(vote).collect();
            let value = json!({"text": ballots[chosen].text, "by": "vote", "votes": votes});
            json!({"patch": [{"op": "add", "path": with.into, "value": value}]})
        }
        None if worker.pass => json!({"pass": "there is no answer to choose"}),
        None => {
            return Err(Failure::new(FailureCode::Refused, "there is no answer to choose, and the seat may not pass"));
        }
    };
    Ok(Reply::new(reply.to_string(), None))
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct VoteAnswer {
    from: Value,
    text: String,
}

impl VoteAnswer {
    /// Returns `None` for an element without content.
    fn from_element(element: Value) -> Option<Self> {
        let Value::Object(mut members) = element else { return None };
        let text = match members.remove("text") {
            Some(Value::String(text)) => text,
            _ => return None,
        };
        let from = Map::remove(&mut members, "from").unwrap_or_default();
        (!plain(&text).is_empty()).then_some(Self { from, text })
    }
}

/// Returns the sum of the similarities of each text to all others, in millionths.
pub fn scores(texts: &[&str]) -> Vec<u64> {
    let read: Vec<NormalizedAnswer> = texts.iter().map(|text| NormalizedAnswer::new(text)).collect();
    let likeness = |one: usize, other: usize| if one == other { 0 } else { read[one].similarity(&read[other]) };
    (0..read.len()).map(|one| (0..read.len()).map(|other| likeness(one, other)).sum()).collect()
}

/// Returns the index of the first text with the greatest score.
pub fn winner(scores: &[u64]) -> Option<usize> {
    let best = scores.iter().max()?;
    scores.iter().position(|score| score == best)
}

fn in_ones(score: u64) -> Value {
    if score.is_multiple_of(SIMILARITY_ONE) {
        return (score / SIMILARITY_ONE).into();
    }
    let (whole, part) = (score / SIMILARITY_ONE, score % SIMILARITY_ONE);
    format!("{whole}.{part:06}").parse::<f64>().map_or(Value::Null, Value::from)
}

/// Answer prepared for comparison.
struct NormalizedAnswer {
    is_long: bool,
    plain: String,
    number: Option<Number>,
    words: BTreeSet<String>,
}

impl NormalizedAnswer {
    fn new(text: &str) -> Self {
        let plain = plain(text);
        let words = plain.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned);
        Self {
            is_long: text.trim().chars().nth(LONG_CHARS_MIN - 1).is_some(),
            number: Number::parse(&plain),
            words: words.collect(),
            plain,
        }
    }

    fn similarity(&self, other: &Self) -> u64 {
        let is_same = self.plain == other.plain || (self.number.is_some() && self.number == other.number);
        if is_same {
            return SIMILARITY_ONE;
        }
        if !self.is_long && !other.is_long {
            return 0;
        }
        let shared = self.words.intersection(&other.words).count() as u64;
        let all = self.words.union(&other.words).count() as u64;
        (shared * SIMILARITY_ONE).checked_div(all).unwrap_or(0)
    }
}

/// Normalises a text: lower case, single spaces, no surrounding punctuation. A sign directly before the rest stays, and
/// so does a point before a digit.
fn plain(text: &str) -> String {
    let lower = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let rest = lower.trim_start_matches(is_around);
    let mut from = lower.len() - rest.len();
    if rest.starts_with(|c: char| c.is_ascii_digit()) && lower[..from].ends_with('.') && !lower[..from].ends_with("..")
    {
        from -= 1;
    }
    if let Some(sign) = lower[..from].chars().next_back().filter(|c| SIGNS.contains(c) && from < lower.len()) {
        from -= sign.len_utf8();
    }
    lower[from..].trim_end_matches(|c: char| is_around(c) && c != '%').to_owned()
}

/// Signs of numbers and formulas.
const SIGNS: [char; 3] = ['-', '+', '−'];

/// Returns whether a character is ignored at either end of an answer.
fn is_around(c: char) -> bool {
    c.is_whitespace() || c.is_ascii_punctuation() || SIGNS.contains(&c) || "“”„‘’«»…–—·¿¡".contains(c)
}

/// Decimal number: its sign, its digits without zeros at either end, and the power of ten to multiply them by.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Number {
    is_negative: bool,
    digits: String,
    power: i64,
}

impl Number {
    /// Parses a text that is a number as a whole.
    fn parse(text: &str) -> Option<Self> {
        if text.len() > DIGITS_MAX {
            return None;
        }
        let (is_negative, rest) = match text.strip_prefix(['-', '−']) {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match rest.split_once('e') {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i16>().ok()?),
            None => (rest, 0),
        };
        let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let whole = without_commas(whole)?;
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + part.len() == 0 || !is_digits(&whole) || !is_digits(part) {
            return None;
        }
        let all = format!("{whole}{part}");
        let digits = all.trim_start_matches('0');
        let kept = digits.trim_end_matches('0');
        let power =
            i64::from(exponent) - i64::try_from(part.len()).ok()? + i64::try_from(digits.len() - kept.len()).ok()?;
        Some(match kept {
            "" => Self { is_negative: false, digits: String::new(), power: 0 },
            kept => Self { is_negative, digits: kept.to_owned(), power },
        })
    }
}

/// Removes the commas between thousands; `None` if commas are placed otherwise.
fn without_commas(digits: &str) -> Option<String> {
    let mut groups = digits.split(',');
    let first = groups.next()?;
    let rest: Vec<&str> = groups.collect();
    let is_parted = rest.is_empty() || ((1..=3).contains(&first.len()) && rest.iter().all(|group| group.len() == 3));
    is_parted.then(|| digits.replace(',', ""))
}

#[cfg(test)]
mod tests;
