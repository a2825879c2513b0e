//! What counts as an answer to a question: a message that says one thing and nothing else. Whatever says more, or says it in
//! other words, is a message of its own, and a model reads it.
//!
//! It follows from the message and the question alone, so whoever takes up messages and whoever goes on from the question
//! cannot differ. Nothing is alike here: what comes of an answer is done without anybody looking at the words again.

use serde_json::Value;

use super::found::Asked;
use super::likeness::{said, words};

/// What an answer says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// That it shall not be done.
    No,
    /// Which options are meant, by their indices: one, or several of which it is one.
    Options(Vec<usize>),
}

/// Words that mean a yes or a no, alone or one after the other. English and German, like those below.
const YES: &[&str] = &["yes", "yeah", "yep", "y", "sure", "ja"];
/// Words that are a yes to a question. To an offer, alone, they say no more than that it was heard.
const HEARD: &[&str] = &["ok", "okay"];
const NO: &[&str] = &[
    "no",
    "nope",
    "n",
    "nein",
    "never mind",
    "nevermind",
    "forget it",
    "leave it",
    "cancel",
    "stop",
    "none",
    "neither",
    "none of them",
    "neither of them",
    "vergiss es",
    "lass es",
];
/// What may be said beside these.
const COURTESY: &[&str] = &["please", "thanks", "thank you", "bitte", "danke"];
/// The same beside a yes.
const GO_ON: &[&str] = &["that one", "do it", "do that"];
/// Where one of these is, the rest may mean its contrary.
const NEGATIONS: &[&str] = &[
    "no", "not", "nope", "never", "none", "neither", "nor", "without", "except", "but", "nein", "nicht", "kein",
    "keine", "keinen", "keins", "keines", "nie", "ohne", "außer", "aber",
];
/// Words that say nothing beside the name of an option, with those of the question and of its field.
const FILLERS: &[&str] = &[
    "the", "a", "an", "one", "this", "that", "it", "is", "s", "please", "thanks", "on", "in", "at", "of", "for", "der",
    "die", "das", "den", "dem", "bitte", "danke", "auf", "im", "am", "es", "ist",
];
/// Words of a question that make a question of what is said as well.
const INTERROGATIVES: &[&str] = &["which", "what", "who", "whose", "when", "where", "why", "how", "whether"];
/// What may stand between words. Other signs may mean anything.
const SIGNS: &[char] = &['.', ',', ';', ':', '!', '\'', '’', '"', '-'];

/// What a message says as an answer to this; none if it is no clear answer.
pub fn answer(asked: &Asked, text: &str) -> Option<Said> {
    if !asked.offer
        && let Some(said) = literal(asked, text)
    {
        return Some(said);
    }
    if !text.chars().all(|c| c.is_alphanumeric() || c.is_whitespace() || SIGNS.contains(&c)) {
        return None;
    }
    let words = words(text);
    if consists_of(&words, NO, &[COURTESY]) {
        return Some(Said::No);
    }
    let is_yes = consists_of(&words, YES, &[COURTESY, GO_ON, HEARD])
        || consists_of(&words, HEARD, &[COURTESY, GO_ON]) && !(asked.offer && consists_of(&words, HEARD, &[COURTESY]));
    // To which of several?
    if is_yes && asked.options.len() == 1 && asked.more == 0 {
        return Some(Said::Options(vec![0]));
    }
    if asked.offer {
        return None;
    }
    let is_unclear = is_yes || words.iter().any(|word| NEGATIONS.contains(&word.as_str()));
    if is_unclear { None } else { named(asked, &words) }
}

/// Whether words are some of these phrases, with others of which there need be none.
fn consists_of(words: &[String], phrases: &[&str], others: &[&[&str]]) -> bool {
    let starts = |left: &[String], phrase: &str| {
        let length = phrase.split(' ').count();
        let is_it = left.len() >= length && left.iter().zip(phrase.split(' ')).all(|(word, of)| word == of);
        is_it.then_some(length)
    };
    let longest = |left: &[String], of: &[&str]| of.iter().filter_map(|phrase| starts(left, phrase)).max();
    let (mut left, mut is_said) = (words, false);
    while !left.is_empty() {
        let own = longest(left, phrases);
        let other = others.iter().filter_map(|of| longest(left, of)).max();
        let Some(length) = own.or(other) else { return false };
        is_said |= own.is_some();
        left = &left[length..];
    }
    is_said
}

/// The options of which the whole message is the value that was asked for.
fn literal(asked: &Asked, text: &str) -> Option<Said> {
    let plain = |text: &str| text.trim().trim_end_matches(['.', '!']).trim_end().to_lowercase();
    let text = plain(text);
    these(asked, |value| !text.is_empty() && plain(&said(value)) == text)
}

/// The options whose value of what was asked for is within the words, where nothing else is.
fn named(asked: &Asked, of: &[String]) -> Option<Said> {
    let field = asked.field.as_deref().unwrap_or_default();
    let question = words(&format!("{} {field}", asked.ask.as_deref().unwrap_or_default()).replace('_', " "));
    let is_filler = |word: &String| {
        let is_of_question = question.contains(word) && !INTERROGATIVES.contains(&word.as_str());
        is_of_question || FILLERS.contains(&word.as_str())
    };
    these(asked, |value| {
        // Signs tell numbers apart, and are no words.
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

/// The options with such a value of what was asked for, or with any where the whole row was, if that says anything.
fn these(asked: &Asked, is_meant: impl Fn(&Value) -> bool) -> Option<Said> {
    // There may be others of the same name among those that were not told.
    if asked.more > 0 {
        return None;
    }
    let is_one = |index: &usize| {
        let values = &asked.options[*index].values;
        match asked.field.as_deref().filter(|field| !field.is_empty()) {
            Some(field) => values.get(field).is_some_and(&is_meant),
            // Which row as a whole is asked.
            None => values.values().any(&is_meant),
        }
    };
    let meant: Vec<usize> = (0..asked.options.len()).filter(is_one).collect();
    let says_nothing = meant.is_empty() || meant.len() == asked.options.len() && meant.len() > 1;
    (!says_nothing).then_some(Said::Options(meant))
}

#[cfg(test)]
mod tests;
