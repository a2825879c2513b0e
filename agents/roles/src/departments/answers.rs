//! Recognises clear answers to a question: messages that state one thing and nothing else. A message that says more, or
//! uses other words, is a request of its own for the model.
//!
//! The result depends only on the message and the question, so the roles that receive messages and that resume
//! questions always agree. Matching is exact, because an answer is carried out without another look at its words.

use serde_json::Value;

use super::similarity::{display_text, words};
use super::types::QuestionSummary;

/// Meaning of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClearAnswer {
    /// The user declines.
    No,
    /// Indices of the chosen options; several if the answer only narrows them down.
    Options(Vec<usize>),
}

/// Phrases for yes, and below for no, alone or in sequence. English and German, as in the lists below.
const YES: &str = "yes, yeah, yep, y, sure, ja";
/// Words that accept a question. Alone, in reply to an offer, they only acknowledge it.
const ACKNOWLEDGEMENTS: &str = "ok, okay";
const NO: &str = "no, nope, n, nein, never mind, nevermind, forget it, leave it, cancel, stop, none, neither, \
    none of them, neither of them, vergiss es, lass es";
/// Phrases allowed beside a yes or a no.
const COURTESY: &str = "please, thanks, thank you, bitte, danke";
/// Phrases allowed beside a yes only.
const CONFIRMATIONS: &str = "that one, do it, do that";
/// Words that may negate the rest of the message.
const NEGATIONS: &[&str] = &[
    "no", "not", "nope", "never", "none", "neither", "nor", "without", "except", "but", "nein", "nicht", "kein",
    "keine", "keinen", "keins", "keines", "nie", "ohne", "außer", "aber",
];
/// Words that are ignored beside an option's name, like those of the question and of its field.
const FILLERS: &[&str] = &[
    "the", "a", "an", "one", "this", "that", "it", "is", "s", "please", "thanks", "on", "in", "at", "of", "for", "der",
    "die", "das", "den", "dem", "bitte", "danke", "auf", "im", "am", "es", "ist",
];
/// Interrogatives are not ignored, even if the question contains them: they make the message a question as well.
const INTERROGATIVES: &[&str] = &["which", "what", "who", "whose", "when", "where", "why", "how", "whether"];
/// Characters allowed between words. Any other may change the meaning.
const SIGNS: &[char] = &['.', ',', ';', ':', '!', '\'', '’', '"', '-'];

/// Interprets a message as an answer to a question; `None` if it is no clear answer.
pub fn answer(question: &QuestionSummary, text: &str) -> Option<ClearAnswer> {
    if !question.offer
        && let Some(clear_answer) = literal(question, text)
    {
        return Some(clear_answer);
    }
    if !text.chars().all(|c| c.is_alphanumeric() || c.is_whitespace() || SIGNS.contains(&c)) {
        return None;
    }
    let words = words(text);
    if consists_of(&words, NO, &[COURTESY]) {
        return Some(ClearAnswer::No);
    }
    let is_yes = consists_of(&words, YES, &[COURTESY, CONFIRMATIONS, ACKNOWLEDGEMENTS])
        || consists_of(&words, ACKNOWLEDGEMENTS, &[COURTESY, CONFIRMATIONS])
            && !(question.offer && consists_of(&words, ACKNOWLEDGEMENTS, &[COURTESY]));
    // A yes does not select among several options.
    if is_yes && question.options.len() == 1 && question.more == 0 {
        return Some(ClearAnswer::Options(vec![0]));
    }
    if question.offer {
        return None;
    }
    let is_unclear = is_yes || words.iter().any(|word| NEGATIONS.contains(&word.as_str()));
    if is_unclear { None } else { named(question, &words) }
}

/// Returns whether words consist of at least one of these phrases, and optionally of others.
fn consists_of(words: &[String], phrases: &str, others: &[&str]) -> bool {
    let starts = |left: &[String], phrase: &str| {
        let length = phrase.split(' ').count();
        let is_it = left.len() >= length && left.iter().zip(phrase.split(' ')).all(|(word, of)| word == of);
        is_it.then_some(length)
    };
    let longest = |left: &[String], of: &str| of.split(", ").filter_map(|phrase| starts(left, phrase)).max();
    let (mut left, mut has_phrase) = (words, false);
    while !left.is_empty() {
        let own = longest(left, phrases);
        let other = others.iter().filter_map(|of| longest(left, of)).max();
        let Some(length) = own.or(other) else { return false };
        has_phrase |= own.is_some();
        left = &left[length..];
    }
    has_phrase
}

/// Returns the options with a requested value equal to the whole message.
fn literal(question: &QuestionSummary, text: &str) -> Option<ClearAnswer> {
    let plain = |text: &str| text.trim().trim_end_matches(['.', '!']).trim_end().to_lowercase();
    let text = plain(text);
    narrowed_options(question, |value| !text.is_empty() && plain(&display_text(value)) == text)
}

/// Returns the options with a requested value that the words name, if all other words can be ignored.
fn named(asked: &QuestionSummary, of: &[String]) -> Option<ClearAnswer> {
    let field = asked.field.as_deref().unwrap_or_default();
    let question = words(&format!("{} {field}", asked.ask.as_deref().unwrap_or_default()).replace('_', " "));
    let is_filler = |word: &String| {
        let is_of_question = question.contains(word) && !INTERROGATIVES.contains(&word.as_str());
        is_of_question || FILLERS.contains(&word.as_str())
    };
    narrowed_options(asked, |value| {
        // Words lose signs, which distinguish numbers; so only texts can be named.
        let Value::String(value) = value else { return false };
        let value = words(value);
        if value.is_empty() {
            return false;
        }
        let (mut at, mut is_named) = (0, false);
        while at < of.len() {
            if of[at..].starts_with(&value) {
                (at, is_named) = (at + value.len(), true);
            } else if is_filler(&of[at]) {
                at += 1;
            } else {
                return false;
            }
        }
        is_named
    })
}

/// Returns the options that match in the requested field, or in any field if a whole row is requested. `None` if the
/// match does not narrow the options.
fn narrowed_options(question: &QuestionSummary, is_meant: impl Fn(&Value) -> bool) -> Option<ClearAnswer> {
    // Options that were not listed may have the same name.
    if question.more > 0 {
        return None;
    }
    let is_one = |index: &usize| {
        let values = &question.options[*index].values;
        match question.field.as_deref().filter(|field| !field.is_empty()) {
            Some(field) => values.get(field).is_some_and(&is_meant),
            // The question is about whole rows.
            None => values.values().any(&is_meant),
        }
    };
    let meant: Vec<usize> = (0..question.options.len()).filter(is_one).collect();
    let says_nothing = meant.is_empty() || meant.len() == question.options.len() && meant.len() > 1;
    (!says_nothing).then_some(ClearAnswer::Options(meant))
}

#[cfg(test)]
mod tests;
