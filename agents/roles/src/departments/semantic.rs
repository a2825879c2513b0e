//! Matches words by meaning if they resemble no value by their letters.
//!
//! Owns the choice of texts to embed and the similarity of their embeddings. `roles` requests the embeddings;
//! [`super::resolve`] decides by the similarity.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_protocols::department::{Department, Field, FieldType};
use serde_json::Value;

use super::similarity::{MatchThresholds, thousandths, words};
use super::types::{Resolution, Row, UnresolvedReason};
use super::values::{is_given, value_similarity};
use patchboard_llm::embeddings::Embedding;

/// Greatest number of texts embedded for one search.
const TEXTS_MAX: usize = 256;
/// Greatest size of these texts in bytes.
const BYTES_MAX: usize = 64 * 1024;

/// Words that resemble no value by their letters, and the texts that they may mean.
#[derive(Clone, PartialEq, Debug)]
pub struct UnmatchedWords {
    fields: BTreeMap<String, CandidateTexts>,
}

/// Words given for a field, and the values of rows in that field.
#[derive(Clone, PartialEq, Debug)]
struct CandidateTexts {
    text: String,
    of_rows: BTreeSet<String>,
}

/// Similarity in meaning of texts to the words given for a field.
#[derive(Clone, PartialEq, Debug)]
pub struct SemanticScores {
    likeness: BTreeMap<String, BTreeMap<String, u32>>,
    least: u32,
}

/// Returns the words without a match and their candidates, if there are any. Only rows that match all other slots are
/// considered, newest first, within the limits.
pub fn unmatched_words(department: &Department, resolved: &Resolution, rows: &[Row]) -> Option<UnmatchedWords> {
    if resolved.why != Some(UnresolvedReason::NotFound) {
        return None;
    }
    let bar = MatchThresholds::new(&department.resolve);
    let is_like = |(name, field, given): &(&String, &Field, &Value), row: &Row| {
        value_similarity(field, given, row.values.get(*name)) >= bar.likeness
    };
    let action = department.actions.get(&resolved.action)?;
    let given = action.finds.iter().filter_map(|name| {
        let value = resolved.slots.get(name).filter(|given| is_given(given))?;
        Some((name, department.storage.fields.get(name)?, value))
    });
    let (unknown, known): (Vec<_>, Vec<_>) =
        given.partition(|one| is_free(one.1, one.2) && !rows.iter().any(|row| is_like(one, row)));
    let trimmed = |given: &Value| given.as_str().unwrap_or_default().trim().to_owned();
    let texts = |value: &Value| CandidateTexts { text: trimmed(value), of_rows: BTreeSet::new() };
    let mut fields: BTreeMap<String, CandidateTexts> =
        unknown.iter().map(|(name, _, value)| ((*name).clone(), texts(value))).collect();
    let (mut count, mut bytes) = (fields.len(), fields.values().map(|texts| texts.text.len()).sum::<usize>());
    for row in rows.iter().rev().filter(|row| known.iter().all(|one| is_like(one, row))) {
        for (name, texts) in &mut fields {
            let text = row.values.get(name).and_then(Value::as_str).filter(|text| !words(text).is_empty());
            let Some(text) = text.filter(|text| !texts.of_rows.contains(*text)) else { continue };
            (count, bytes) = (count + 1, bytes + text.len());
            if count > TEXTS_MAX || bytes > BYTES_MAX {
                return UnmatchedWords { fields }.if_any();
            }
            texts.of_rows.insert(text.to_owned());
        }
    }
    UnmatchedWords { fields }.if_any()
}

/// Returns whether a slot holds free text; values of a declared form have no other meaning.
fn is_free(field: &Field, value: &Value) -> bool {
    let has_words = value.as_str().is_some_and(|text| !words(text).is_empty() && text.len() <= BYTES_MAX / 2);
    field.kind == FieldType::String && field.allowed_values.is_empty() && field.pattern.is_none() && has_words
}

impl UnmatchedWords {
    fn if_any(self) -> Option<Self> {
        let is_any = !self.fields.is_empty() && self.fields.values().all(|texts| !texts.of_rows.is_empty());
        is_any.then_some(self)
    }

    /// Returns the texts to embed, each once.
    pub fn texts(&self) -> Vec<&str> {
        let fields = self.fields.values();
        let all: BTreeSet<&str> =
            fields.flat_map(|texts| texts.of_rows.iter().chain([&texts.text])).map(String::as_str).collect();
        all.into_iter().collect()
    }

    /// Computes the similarity from embeddings in the order of [`Self::texts`]. `least` is the least share of one that
    /// counts.
    pub fn meaning(&self, embeddings: &[Embedding], least: f64) -> SemanticScores {
        let embedded: BTreeMap<&str, &Embedding> = self.texts().into_iter().zip(embeddings).collect();
        let like = |one: &str, other: &str| {
            let cosine = embedded.get(one).zip(embedded.get(other)).map(|(one, other)| one.cosine(other));
            thousandths(cosine.unwrap_or(0.0))
        };
        let of =
            |texts: &CandidateTexts| texts.of_rows.iter().map(|text| (text.clone(), like(&texts.text, text))).collect();
        let likeness = self.fields.iter().map(|(name, texts)| (name.clone(), of(texts))).collect();
        SemanticScores { likeness, least: thousandths(least) }
    }
}

impl SemanticScores {
    /// Fields that are matched by meaning.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        self.likeness.keys().map(String::as_str)
    }

    /// Returns whether a field is matched by meaning.
    pub(super) fn has(&self, field: &str) -> bool {
        self.likeness.contains_key(field)
    }

    /// Returns the similarity of a text to the words given for a field.
    pub(super) fn likeness(&self, field: &str, text: &str) -> u32 {
        self.likeness.get(field).and_then(|texts| texts.get(text)).copied().unwrap_or(0)
    }

    /// Returns the least similarity that counts, which is above zero whatever is configured.
    pub(super) fn least(&self) -> u32 {
        self.least.max(1)
    }
}

#[cfg(test)]
mod tests;
