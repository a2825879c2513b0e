//! `builtin:resolve`: finds the rows of a request, or the question to ask. It does not interpret and never guesses.
//!
//! The score of a row is the product of its similarities over all slots that search it. The best row is taken if it is
//! clearly better than the next. Otherwise the question is for the first field in which the candidates differ. A match
//! by meaning alone always leads to a question, and so does the only row left if no slot names it.

use std::collections::BTreeMap;

use patchboard_protocols::department::{Action, Department, NEW_VALUE_PREFIX, RowOperation};
use serde_json::Value;

use super::semantic::SemanticScores;
use super::similarity::{MatchThresholds, SAME, display_text, share};
use super::types::{Choice, Resolution, Row, Status, UnresolvedReason, Values};
use super::values::{Interpretation, bytes_of, count_within, interpret, is_given, quoted, value_similarity};

const OPTIONS_MAX: usize = 12;
/// Greatest size of the options in bytes when serialised; further ones are only counted.
const OPTIONS_BYTES_MAX: usize = 16 * 1024;
/// Greatest number of alternatives if nothing matches.
const NEAREST_MAX: usize = 3;
/// Least similarity of an alternative.
const NEAREST_MIN: u32 = 500;
/// Greatest number of rows in a selection.
const IDS_MAX: usize = 500;

/// Resolves an action with these slots to rows.
pub fn resolve(department: &Department, action_name: &str, slots: &Values, rows: &[Row]) -> Resolution {
    let Some(action) = department.actions.get(action_name) else {
        return Resolution::none(action_name, slots.clone(), UnresolvedReason::UnknownAction);
    };
    let known = |slot: &String| slots.get(slot).filter(|value| is_given(value)).cloned();
    let given_slots: Values =
        action.slots().into_iter().filter_map(|(slot, _)| Some((slot.clone(), known(&slot)?))).collect();
    if action.does == RowOperation::Insert {
        return settle(department, action_name, Resolution::new(Status::Found, action_name, given_slots));
    }
    let bar = MatchThresholds::new(&department.resolve);
    let search = Search { department, action_name, action, given: &given_slots, thresholds: bar, meaning: None };
    let candidates = search.candidates(rows);
    match search.close(&candidates).as_slice() {
        [] => search.nothing(rows),
        [one] if search.is_named() => {
            let mut found = Resolution::new(Status::Found, action_name, search.with_found(one));
            found.ids = one.ids.clone();
            settle(department, action_name, found)
        }
        // Several candidates, or one that no slot names.
        few => search.open(few),
    }
}

/// Resolves by meaning if no row resembles the words by their letters; `None` if no row matches by meaning either. The
/// result is always a question, however clear the match.
pub fn resolve_semantically(
    department: &Department,
    unresolved: &Resolution,
    rows: &[Row],
    meaning: &SemanticScores,
) -> Option<Resolution> {
    let Resolution { action: action_name, slots: given, .. } = unresolved;
    let action = department.actions.get(action_name)?;
    let bar = MatchThresholds::new(&department.resolve);
    let search = Search { department, action_name, action, given, thresholds: bar, meaning: Some(meaning) };
    let candidates = search.candidates(rows);
    let close = search.close(&candidates);
    (!close.is_empty()).then(|| search.open(&close))
}

struct Search<'a> {
    department: &'a Department,
    action_name: &'a str,
    action: &'a Action,
    given: &'a Values,
    thresholds: MatchThresholds,
    /// Similarity by meaning, for the fields that are not matched by letters.
    meaning: Option<&'a SemanticScores>,
}

/// Rows that may be meant: one, or for a select all with the same values in the search fields.
struct Candidate<'a> {
    ids: Vec<i64>,
    /// Values of the row, or those that the rows have in common.
    values: Values,
    row: &'a Row,
    score: u32,
    /// True if every given slot is similar enough.
    is_like: bool,
}

impl<'a> Search<'a> {
    /// Returns all rows with their scores, indistinguishable ones once.
    fn candidates(&self, rows: &'a [Row]) -> Vec<Candidate<'a>> {
        let mut found: Vec<Candidate<'a>> = Vec::new();
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        let is_selection = self.action.does == RowOperation::Select;
        for row in rows {
            let (score, is_like) = self.score(row);
            let values = if is_selection { self.found_by(row) } else { row.values.clone() };
            let same = Value::Object(values.clone()).to_string();
            match known.get(&same) {
                Some(&at) if is_selection && found[at].ids.len() < IDS_MAX => found[at].ids.push(row.id),
                // A user could not distinguish it from the first.
                Some(_) => {}
                None => {
                    known.insert(same, found.len());
                    found.push(Candidate { ids: vec![row.id], values, row, score, is_like });
                }
            }
        }
        found
    }

    /// Returns the candidates that are not clearly worse than the best; empty if none is similar enough.
    fn close<'c>(&self, candidates: &'c [Candidate<'a>]) -> Vec<&'c Candidate<'a>> {
        let best = candidates.iter().filter(|candidate| candidate.is_like).map(|candidate| candidate.score).max();
        // A candidate that is not similar enough can still make the best ambiguous.
        let is_close =
            |candidate: &&Candidate<'a>| best.is_some_and(|best| self.thresholds.is_close(candidate.score, best));
        candidates.iter().filter(is_close).collect()
    }

    /// Returns whether a given slot names a row. A field with declared values does not, if the action has a search
    /// field without them. A select needs no name.
    fn is_named(&self) -> bool {
        let names = |field: &&String| {
            self.department.storage.fields.get(*field).is_none_or(|field| field.allowed_values.is_empty())
        };
        let mut naming = self.action.finds.iter().filter(names).peekable();
        self.action.does == RowOperation::Select
            || (naming.peek().is_none() && !self.given.is_empty())
            || naming.any(|field| self.given.contains_key(field))
    }

    /// Returns the values of a row in the search fields.
    fn found_by(&self, row: &Row) -> Values {
        let has = |field: &String| Some((field.clone(), row.values.get(field)?.clone()));
        self.action.finds.iter().filter_map(has).collect()
    }

    /// Returns the score of a row, and whether every given slot is similar enough.
    fn score(&self, row: &Row) -> (u32, bool) {
        let (mut score, mut is_like) = (SAME, true);
        for name in &self.action.finds {
            let Some(given) = self.given.get(name) else { continue };
            let likeness = self.likeness(name, given, row);
            is_like &= likeness >= self.by_meaning(name).map_or(self.thresholds.likeness, |meaning| meaning.least());
            score = score * likeness / SAME;
        }
        (score, is_like)
    }

    fn likeness(&self, name: &str, given: &Value, row: &Row) -> u32 {
        if let Some(meaning) = self.by_meaning(name) {
            return row.values.get(name).map_or(0, |has| meaning.likeness(name, &display_text(has)));
        }
        let field = self.department.storage.fields.get(name);
        field.map_or(0, |field| value_similarity(field, given, row.values.get(name)))
    }

    /// Returns the similarity by meaning, if the field is matched by it.
    fn by_meaning(&self, name: &str) -> Option<&'a SemanticScores> {
        self.meaning.filter(|meaning| meaning.has(name))
    }

    /// Returns the given slots, with the search fields as the row has them.
    fn with_found(&self, candidate: &Candidate<'_>) -> Values {
        let mut slots = self.given.clone();
        slots.extend(self.found_by(candidate.row));
        slots
    }

    /// Builds the question that selects one of several candidates.
    fn open(&self, several: &[&Candidate<'_>]) -> Resolution {
        let has = |field: &str| several.iter().map(|one| one.values.get(field)).collect::<Vec<_>>();
        let differ = |field: &str| has(field).windows(2).any(|two| two[0] != two[1]);
        // A value that is only supposed must be shown, even if all candidates share it.
        let is_alone = several.len() == 1 && self.meaning.is_none();
        let finds = |field: &str| self.action.finds.iter().any(|name| name == field);
        let is_shown = |field: &str| differ(field) || self.by_meaning(field).is_some() || (is_alone && finds(field));
        let mut slots = self.given.clone();
        // Values shared by all candidates are known.
        for field in self.action.finds.iter().filter(|field| !is_shown(field)) {
            slots.extend(has(field)[0].map(|value| (field.clone(), value.clone())));
        }
        let choice = |one: &&Candidate<'_>| {
            let mut values = one.values.clone();
            values.retain(|field, _| is_shown(field));
            Choice { ids: one.ids.clone(), values, likeness: Some(share(one.score)), action: None }
        };
        let mut order: Vec<&&Candidate<'_>> = several.iter().collect();
        order.sort_by_key(|one| std::cmp::Reverse(one.score));
        let mut options: Vec<Choice> = order.into_iter().take(OPTIONS_MAX).map(choice).collect();
        let field = match self.meaning {
            None => asked_field(self.department, self.action, &options),
            Some(meaning) => supposed_field(meaning, &options),
        };
        options.truncate(count_within(OPTIONS_BYTES_MAX, options.iter().map(|option| bytes_of(&option.values))));
        let more = u32::try_from(several.len() - options.len()).unwrap_or(u32::MAX);
        let because = self.meaning.map(|meaning| self.no_match_reason(meaning));
        let open = Resolution { options, more, because, ..Resolution::new(Status::Open, self.action_name, slots) };
        open.asking(self.department, &field, &field)
    }

    /// States that no value matches the words.
    fn no_match_reason(&self, meaning: &SemanticScores) -> String {
        let words = |name: &str| self.given.get(name).map(display_text).unwrap_or_default();
        let one = |name: &str| format!("there is no {} {}", name.replace('_', " "), quoted(&words(name)));
        meaning.fields().map(one).collect::<Vec<_>>().join(" and ")
    }

    /// Builds the result if nothing matches.
    fn nothing(&self, rows: &[Row]) -> Resolution {
        if self.action.does == RowOperation::Select
            && let Some(slots) = self.empty()
        {
            return Resolution::new(Status::Found, self.action_name, slots);
        }
        let mut none = Resolution::none(self.action_name, self.given.clone(), UnresolvedReason::NotFound);
        none.nearest = self.nearest(rows);
        if none.nearest.is_empty() && self.action.does == RowOperation::Update {
            none.nearest.extend(self.insert());
        }
        none
    }

    /// Returns the slots of an empty selection, if every search field has a clear declared value.
    fn empty(&self) -> Option<Values> {
        let mut slots = self.given.clone();
        for name in &self.action.finds {
            let field = self.department.storage.fields.get(name).filter(|field| !field.allowed_values.is_empty())?;
            let Interpretation::Value(value) = interpret(field, self.given.get(name)?, self.thresholds) else {
                return None;
            };
            slots.insert(name.clone(), value);
        }
        Some(slots)
    }

    /// Returns the existing rows nearest to the request. Fields with few declared values may differ; all others must be
    /// similar.
    fn nearest(&self, rows: &[Row]) -> Vec<Choice> {
        let mut near: Vec<(u32, Choice)> = Vec::new();
        for row in rows {
            let (mut sum, mut count, mut fits, mut is_declared_only) = (0, 0, true, true);
            for name in &self.action.finds {
                let Some(given) = self.given.get(name) else { continue };
                let likeness = self.likeness(name, given, row);
                let is_declared =
                    self.department.storage.fields.get(name).is_some_and(|field| !field.allowed_values.is_empty());
                fits &= is_declared || likeness >= NEAREST_MIN;
                is_declared_only &= is_declared;
                (sum, count) = (sum + likeness, count + 1);
            }
            let score = sum / u32::max(count, 1);
            let values = self.found_by(row);
            fits &= !is_declared_only || score >= NEAREST_MIN;
            if fits && !near.iter().any(|(_, known)| known.values == values) {
                near.push((score, Choice { ids: vec![row.id], values, likeness: Some(share(score)), action: None }));
            }
        }
        near.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        near.into_iter().take(NEAREST_MAX).map(|(_, choice)| choice).collect()
    }

    /// Returns an insert that replaces the update of a missing row, if the department has a suitable action.
    fn insert(&self) -> Option<Choice> {
        let becomes = |field: &String| {
            let new = self.given.get(&format!("{NEW_VALUE_PREFIX}{field}"));
            Some((field.clone(), new.or_else(|| self.given.get(field))?.clone()))
        };
        let inserts = self.department.actions.iter().filter(|(_, action)| action.does == RowOperation::Insert);
        let mut complete = inserts.filter_map(|(name, action)| {
            let values: Option<Values> = action.sets.iter().map(becomes).collect();
            Some(Choice { action: Some(name.clone()), values: values?, ..Choice::default() })
        });
        complete.next()
    }
}

/// Returns the field to ask for: the first in which the options differ, search fields first.
pub(super) fn asked_field(department: &Department, action: &Action, options: &[Choice]) -> String {
    let differ = |field: &&String| options.windows(2).any(|two| two[0].values.get(*field) != two[1].values.get(*field));
    let have_it = |field: &&String| options.iter().all(|option| option.values.contains_key(*field));
    let others = department.storage.fields.keys().filter(|field| !action.finds.contains(field));
    let fields: Vec<&String> = action.finds.iter().chain(others).filter(differ).collect();
    let first = fields.iter().copied().find(have_it).or_else(|| fields.first().copied());
    first.cloned().unwrap_or_default()
}

/// Returns the field to ask for if values are only supposed: the supposed field, if it distinguishes the options.
/// Otherwise the options are shown with all their values, so that a user agrees to nothing unsaid.
fn supposed_field(meaning: &SemanticScores, options: &[Choice]) -> String {
    let differ = |field: &str| options.windows(2).any(|two| two[0].values.get(field) != two[1].values.get(field));
    let mut fields = meaning.fields();
    match (fields.next(), fields.next()) {
        (Some(field), None) if options.len() == 1 || differ(field) => field.to_owned(),
        _ => String::new(),
    }
}

/// Completes a resolved request. All values to write must be known as well; builds the question for the first that is
/// not.
pub(super) fn settle(department: &Department, action_name: &str, found: Resolution) -> Resolution {
    let Some(action) = department.actions.get(action_name) else {
        return Resolution::none(action_name, found.slots, UnresolvedReason::UnknownAction);
    };
    let bar = MatchThresholds::new(&department.resolve);
    let mut found = Resolution { status: Status::Found, action: action_name.to_owned(), ..found };
    let sets: Vec<(String, &String)> = action.sets.iter().map(|field| (action.slot_set(field), field)).collect();
    let has_value = |slot: &String, slots: &Values| slots.get(slot).is_some_and(is_given);
    let none_given = !sets.iter().any(|(slot, _)| has_value(slot, &found.slots));
    for (slot, name) in sets {
        let Some(field) = department.storage.fields.get(name) else { continue };
        let (among, because) = match found.slots.get(&slot).filter(|value| is_given(value)) {
            // An update may set only some of its fields.
            None if action.does == RowOperation::Update && !none_given => continue,
            None => (field.allowed_values.clone(), None),
            Some(given) => match interpret(field, given, bar) {
                Interpretation::Value(value) => {
                    found.slots.insert(slot, value);
                    continue;
                }
                Interpretation::Among(values) => (values, None),
                Interpretation::Wrong(why) => (field.allowed_values.clone(), Some(why)),
            },
        };
        found.slots.remove(&slot);
        let option = |value: Value| Choice { values: Values::from_iter([(slot.clone(), value)]), ..Choice::default() };
        found.options = among.into_iter().map(option).collect();
        found.because = because;
        return found.asking(department, &slot, name);
    }
    found
}

#[cfg(test)]
pub(in crate::departments) mod tests;
