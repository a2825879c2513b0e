//! Finds the texts of redacted values in other texts, such as agents' replies and views.

use std::collections::BTreeSet;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::placeholder::is_placeholder;

/// Shorter texts occur in others by chance.
pub(super) const CHARS_MIN: usize = 4;

/// Number of texts in one compiled search.
const TOGETHER: usize = 256;

/// Minimum bytes of a text that is searched for alone, because a compiled search takes many times its size.
const LONG_BYTES_MIN: usize = 4096;

/// Maximum bytes of a compiled search.
const SEARCH_BYTES_MAX: usize = 256 << 20;

/// Maximum levels of JSON escaping: a reply in a prompt in a stored prompt.
const ESCAPED_MAX: usize = 3;

/// The texts and names of redacted values that are long enough to be distinctive.
#[derive(Default, Debug)]
pub struct Needles {
    texts: BTreeSet<String>,
    searches: Vec<Regex>,
    /// Long texts, searched for one by one.
    long: Vec<String>,
}

impl Needles {
    /// Keeps those texts that are long enough to be distinctive and do not occur in the blueprint.
    pub fn new(texts: BTreeSet<String>, blueprint: &str) -> Self {
        let is_telling =
            |text: &String| text.chars().count() >= CHARS_MIN && !is_placeholder(text) && !mentions(blueprint, text);
        let mut needles = Self { texts: texts.into_iter().filter(is_telling).collect(), ..Self::default() };
        needles.compile();
        needles
    }

    /// Adds redacted names of members, which count like texts.
    pub(super) fn add_names(&mut self, names: &BTreeSet<String>) {
        self.texts.extend(names.iter().filter(|name| name.chars().count() >= CHARS_MIN).cloned());
        self.compile();
    }

    fn compile(&mut self) {
        let mut forms = BTreeSet::new();
        for text in &self.texts {
            let mut form = text.clone();
            for _ in 0..=ESCAPED_MAX {
                let escaped = serde_json::to_string(&form).unwrap_or_default();
                let escaped = escaped.trim_start_matches('"');
                let escaped = escaped.strip_suffix('"').unwrap_or(escaped).to_owned();
                forms.insert(std::mem::replace(&mut form, escaped));
            }
        }
        (self.searches, self.long) = (Vec::new(), Vec::new());
        let (long, short): (Vec<String>, Vec<String>) = forms.into_iter().partition(|form| form.len() > LONG_BYTES_MIN);
        self.long = long;
        for together in short.chunks(TOGETHER) {
            let any: Vec<String> = together.iter().map(|form| regex::escape(form)).collect();
            match RegexBuilder::new(&any.join("|")).size_limit(SEARCH_BYTES_MAX).build() {
                Ok(search) => self.searches.push(search),
                Err(_) => self.long.extend_from_slice(together),
            }
        }
    }

    /// Returns true if a text contains one of them, at any level of escaping.
    pub fn occur_in(&self, text: &str) -> bool {
        if self.texts.is_empty() {
            return false;
        }
        let found = |text: &str| {
            self.searches.iter().any(|search| search.is_match(text))
                || self.long.iter().any(|long| text.contains(long.as_str()))
        };
        if found(text) {
            return true;
        }
        // Agents may escape characters without need.
        text.contains('\\') && serde_json::from_str::<Value>(text).is_ok_and(|value| self.occur_in_value(&value))
    }

    /// Returns true if a text or a name in a value contains one of them.
    pub fn occur_in_value(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.occur_in(text),
            Value::Array(items) => items.iter().any(|item| self.occur_in_value(item)),
            Value::Object(members) => {
                members.iter().any(|(name, member)| self.occur_in(name) || self.occur_in_value(member))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
}

/// Returns the text of a blueprint, without its initial document.
pub(super) fn blueprint_text(blueprint: &Value) -> String {
    let mut blueprint = blueprint.clone();
    if let Some(state) = blueprint.get_mut("state").and_then(Value::as_object_mut) {
        state.remove("initial");
    }
    blueprint.to_string()
}

/// Returns true if a blueprint contains one of these texts.
pub(super) fn occur_in_blueprint(blueprint: &str, texts: &BTreeSet<String>) -> bool {
    let mut long = texts.iter().filter(|text| text.chars().count() >= CHARS_MIN && !is_placeholder(text));
    long.any(|text| {
        let escaped = Value::from(text.as_str()).to_string();
        mentions(blueprint, &escaped[1..escaped.len() - 1])
    })
}

/// Returns true if a text contains a word, or several, as a whole.
pub(super) fn mentions(text: &str, word: &str) -> bool {
    let is_apart = |beside: Option<char>| beside.is_none_or(|beside| !beside.is_alphanumeric() && beside != '_');
    !word.is_empty()
        && text
            .match_indices(word)
            .any(|(at, _)| is_apart(text[..at].chars().next_back()) && is_apart(text[at + word.len()..].chars().next()))
}

#[cfg(test)]
mod tests;
