//! `builtin:confirm`: turns the outcome of a request into a result with one sentence. No other role writes sentences:
//! crud passes on codes, resolve and resume the question for a field and the problem of a value.

use patchboard_kernel::id::Timestamp;
use patchboard_protocols::department::template::{self, Part};
use patchboard_protocols::department::{Action, Department, PromiseKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::similarity::display_text;
use super::types::{
    ASKED_MAX, ChangeError, Choice, OpenQuestion, Outcome, OutcomeStatus, Resolution, Status, UnresolvedReason, Values,
};
use super::values::{bytes_of, count_within, quoted};

/// Greatest number of values in an enumeration.
const LISTED_MAX: usize = 20;
/// Approximate length of an enumeration in characters, and greatest length of each value.
const LISTED_CHARS_MAX: usize = 1000;
const ITEM_CHARS_MAX: usize = 200;
/// Bytes reserved for the patch around a result.
const AROUND_BYTES: usize = 1024;
const SENTENCE_CHARS_MAX: usize = 2000;

/// Result that a department returns to the board that asked it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DepartmentResult {
    /// Name of the department.
    pub department: String,
    /// Kind of the result.
    pub status: ResultStatus,
    /// Sentence for the user.
    pub text: String,
    /// Question for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Options to choose from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<Values>,
    /// Pending question, for the user's next message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<OpenQuestion>,
    /// Reason that nothing was done; a stable code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<UnresolvedReason>,
    /// Data that explains the finding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Value>,
    /// Patch of `/classified` that would make the request possible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patch: Vec<Value>,
    /// Data promised by the department.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
}

/// Kind of a department's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultStatus {
    /// The action was carried out.
    Done,
    /// The action could not be carried out.
    #[default]
    Error,
    /// The user must answer a question first.
    Clarification,
    /// Nothing matches the request; the result offers a changed request that would work.
    Refusal,
    /// The user declined.
    Dismissed,
}

impl DepartmentResult {
    fn new(department: &Department, status: ResultStatus, text: &str) -> Self {
        Self {
            department: department.name.clone(),
            status,
            text: patchboard_kernel::text::one_line(text, SENTENCE_CHARS_MAX),
            ..Self::default()
        }
    }

    /// Returns the result if it fits into the patch, otherwise a shorter result or an error.
    fn within(self, department: &Department, bytes_max: usize) -> Self {
        let fits =
            bytes_of(&self) <= (2 * bytes_max).saturating_sub(AROUND_BYTES) && bytes_of(&self.pending) <= bytes_max / 2;
        if fits {
            return self;
        }
        match self.status {
            // The action succeeded even if its result is too large to return.
            ResultStatus::Done => Self { data: Map::new(), ..self },
            _ => Self::new(
                department,
                ResultStatus::Error,
                "Nothing was done: what there is to say of it is too much to be told.",
            ),
        }
    }
}

/// Builds the result of an executed action. `bytes_max` limits the serialised rows; the whole result may take twice
/// that.
pub fn done(department: &Department, outcome: &Outcome, bytes_max: usize) -> DepartmentResult {
    let result = match outcome.status {
        OutcomeStatus::Error => DepartmentResult::new(department, ResultStatus::Error, &wrong(department, outcome)),
        OutcomeStatus::Done => {
            let (data, given) = data(department, outcome, bytes_max);
            let mut text = match department.actions.get(&outcome.action) {
                Some(action) => sentence_of(action, outcome),
                None => "Done.".to_owned(),
            };
            // A sentence that enumerates or counts the rows needs no such note.
            let template = department.actions.get(&outcome.action).map_or("", |action| action.confirm.as_str());
            let is_counted = template.contains("{rows.") || template.contains("{count}");
            if let Some(given) = given.filter(|given| *given < outcome.count && !is_counted) {
                let sentence = patchboard_kernel::text::one_line(&text, SENTENCE_CHARS_MAX - 100);
                text = format!("{sentence} ({given} of {} are handed on.)", outcome.count);
            }
            DepartmentResult { data, ..DepartmentResult::new(department, ResultStatus::Done, &text) }
        }
    };
    result.within(department, bytes_max)
}

/// Builds the result of a request that was not executed: a question or the reason. A question is pending from then on.
pub fn not_done(department: &Department, resolved: &Resolution, now: Timestamp, bytes_max: usize) -> DepartmentResult {
    let result = match resolved.status {
        Status::Open => question(department, resolved, now, bytes_max / 4),
        // Without an outcome nothing was executed.
        Status::Found | Status::None => unresolved_result(department, resolved, now),
    };
    result.within(department, bytes_max)
}

/// Describes the error of a change.
fn wrong(department: &Department, outcome: &Outcome) -> String {
    let entity = &department.storage.entity;
    let named = |field: &str| field.replace('_', " ");
    match &outcome.wrong {
        None => "It could not be done.".to_owned(),
        Some(ChangeError::UnknownAction) => format!("There is no action {}.", quoted(&outcome.action)),
        Some(ChangeError::UnknownField { field }) => format!("There is no {}.", quoted(field)),
        Some(ChangeError::Unclear) => "It is not clear what is meant.".to_owned(),
        Some(ChangeError::NotOne) => format!("It is not one {entity} that is meant."),
        Some(ChangeError::NotNew) => format!("What is new is no {entity} yet."),
        Some(ChangeError::Unfit { field, value }) => {
            let why = department.storage.fields.get(field).and_then(|known| known.value_error(value));
            let why = why.unwrap_or_else(|| "does not fit".to_owned());
            format!("{}: {} {why}.", named(field), quoted(&display_text(value)))
        }
        Some(ChangeError::Missing { field }) => format!("It has no {}.", named(field)),
        Some(ChangeError::NoChange) => "Nothing is to be different.".to_owned(),
        Some(ChangeError::Stale) => format!("The {entity} is not what it was any more; nothing was done."),
        Some(ChangeError::Taken { values }) => format!("One {entity} with {} is there already.", described(values)),
        Some(ChangeError::Full) => format!("There is no room: one {entity} has to go for another to come."),
        Some(ChangeError::Unverified) => "What was written is not what was to be written; it was undone.".to_owned(),
    }
}

fn sentence_of(action: &Action, outcome: &Outcome) -> String {
    let template = action.confirm.as_str();
    // A slot that is only set shows the new value.
    let is_only_set = |name: &str| action.sets.iter().any(|set| set == name) && action.slot_set(name) == name;
    let first = outcome.rows.first();
    let before = first.and_then(|row| row.before.as_ref());
    let values = first.and_then(|row| row.values());
    let of = |values: Option<&Values>, field: &str| values.and_then(|values| values.get(field)).map(display_text);
    let slot = |name: &str| {
        let found = match name.strip_prefix(patchboard_protocols::department::NEW_VALUE_PREFIX) {
            Some(field) => of(values, field),
            // A slot that the row was found by shows the old value.
            None if is_only_set(name) => of(values, name),
            None => of(before, name).or_else(|| of(values, name)),
        };
        found.or_else(|| of(Some(&outcome.slots), name)).unwrap_or_else(|| "nothing".to_owned())
    };
    let rows = |parts: &[Part<'_>]| {
        let all = outcome.rows.iter().filter_map(|row| row_text(parts, row.values()?));
        let all: Vec<String> = all.map(|text| patchboard_kernel::text::one_line(&text, ITEM_CHARS_MAX)).collect();
        let sizes = all.iter().take(LISTED_MAX).map(|text| text.chars().count());
        let shown = count_within(LISTED_CHARS_MAX, sizes);
        let more = usize::try_from(outcome.count).unwrap_or(usize::MAX).max(all.len()) - shown;
        match (all.is_empty(), more) {
            (true, 0) => "nothing".to_owned(),
            (_, 0) => listed(&all, "and"),
            (_, more) => format!("{} and {more} more", all[..shown].join(", ")),
        }
    };
    let part = |part: Part<'_>| match part {
        Part::Text(text) => text.to_owned(),
        Part::Slot(name) => slot(name),
        Part::Rows(parts) => rows(&parts),
        Part::Count => outcome.count.to_string(),
    };
    if let Ok(parts) = template::parse(template) { parts.into_iter().map(part).collect() } else { template.to_owned() }
}

/// Builds the text for one row of several; `None` if the row has none of the fields.
fn row_text(parts: &[Part<'_>], values: &Values) -> Option<String> {
    let mut has_value = false;
    let part = |part: &Part<'_>| match part {
        Part::Slot(field) => match values.get(*field) {
            Some(value) => {
                has_value = true;
                display_text(value)
            }
            None => "nothing".to_owned(),
        },
        Part::Text(text) => (*text).to_owned(),
        Part::Rows(_) | Part::Count => String::new(),
    };
    let sentence: String = parts.iter().map(part).collect();
    has_value.then_some(sentence)
}

/// Returns the promised data, and the number of rows in it if it lists rows.
fn data(department: &Department, outcome: &Outcome, bytes_max: usize) -> (Map<String, Value>, Option<u64>) {
    let rows: Vec<Value> = outcome.rows.iter().filter_map(|row| row.values().cloned()).map(Value::Object).collect();
    let lists = department.promises.values().filter(|promised| **promised == PromiseKind::Rows).count();
    // Each member gets an equal share.
    let share = bytes_max / department.promises.len().max(1);
    let count = count_within(share, rows.iter().map(|row| bytes_of(row) + 1));
    let one = |promised: &PromiseKind| match promised {
        PromiseKind::Rows => Some(rows[..count].into()),
        PromiseKind::Row => rows.first().filter(|_| count > 0).cloned(),
        PromiseKind::Count => Some(outcome.count.into()),
    };
    let data = department.promises.iter().filter_map(|(name, promised)| Some((name.clone(), one(promised)?))).collect();
    (data, (lists > 0).then_some(u64::try_from(count).unwrap_or(u64::MAX)))
}

fn question(department: &Department, open: &Resolution, now: Timestamp, bytes_max: usize) -> DepartmentResult {
    let options = open.options[..count_within(bytes_max, open.options.iter().map(bytes_of))].to_vec();
    let untold = open.options.len() - options.len();
    let more = open.more.saturating_add(u32::try_from(untold).unwrap_or(u32::MAX));
    let mut question = open.ask.clone().unwrap_or_default();
    let field = open.field.as_deref().unwrap_or_default();
    let mut choices: Vec<String> = Vec::new();
    for option in &options {
        let choice = option.values.get(field).map_or_else(|| described(&option.values), display_text);
        let choice = patchboard_kernel::text::one_line(&choice, ITEM_CHARS_MAX / 2);
        if !choices.contains(&choice) {
            choices.push(choice);
        }
    }
    if let [Choice { ids, values, .. }] = open.options.as_slice()
        && !ids.is_empty()
    {
        question = match values.contains_key(field) {
            true => format!("did you mean {}", choices.concat()),
            false => format!("did you mean the one with {}", choices.concat()),
        };
    } else if !choices.is_empty() {
        if more > 0 {
            choices.push("another".to_owned());
        }
        question = format!("{question}, {}", listed(&choices, "or"));
    }
    if let Some(because) = &open.because {
        question = format!("{question} ({because})");
    }
    let question = format!("{}?", patchboard_kernel::text::one_line(&question, SENTENCE_CHARS_MAX - 1));
    DepartmentResult {
        options: options.iter().map(|option| option.values.clone()).collect(),
        pending: Some(OpenQuestion {
            options,
            more,
            question: Some(question.clone()),
            asked: open.asked + 1,
            ..pending(department, open, now)
        }),
        question: Some(question.clone()),
        ..DepartmentResult::new(department, ResultStatus::Clarification, &question)
    }
}

/// Builds the result of a request that cannot be met: the reason, and alternatives if there are any.
fn unresolved_result(department: &Department, none: &Resolution, now: Timestamp) -> DepartmentResult {
    let why = none.why.unwrap_or(UnresolvedReason::NotFound);
    let entity = &department.storage.entity;
    let text = match why {
        UnresolvedReason::NotFound => {
            let what = described(&search_values(department, none));
            let what = if what.is_empty() { String::new() } else { format!(" with {what}") };
            match none.nearest.as_slice() {
                [] => format!("There is no {entity}{what}."),
                [Choice { action: Some(other), .. }] => {
                    format!("There is no {entity}{what}; to {other} it is possible. Is that to be done?")
                }
                near => {
                    let choices: Vec<String> = near.iter().map(|choice| described(&choice.values)).collect();
                    // A yes can accept only one alternative.
                    let asked = if let [_] = near { " Is that one meant?" } else { "" };
                    let choices = choices.join(", or the one with ");
                    format!("There is no {entity}{what}; most like it is the one with {choices}.{asked}")
                }
            }
        }
        UnresolvedReason::UnknownAction => {
            let known: Vec<String> = department.actions.keys().cloned().collect();
            format!("That is nothing the department {} does; it does {}.", department.name, listed(&known, "and"))
        }
        UnresolvedReason::Expired => "The question was asked too long ago, so nothing was done.".to_owned(),
        UnresolvedReason::Declined => "Nothing was done, as the user does not want it.".to_owned(),
        UnresolvedReason::GaveUp => {
            let ask = none.ask.clone().unwrap_or_else(|| format!("which {} is meant", department.storage.entity));
            format!("Nothing was done: after {ASKED_MAX} questions it is still not clear {ask}.")
        }
    };
    let patch = none.nearest.first().map(|choice| patch(department, none, choice)).unwrap_or_default();
    // Only a refusal contains an alternative.
    let status = match why {
        UnresolvedReason::Declined => ResultStatus::Dismissed,
        UnresolvedReason::NotFound if !patch.is_empty() => ResultStatus::Refusal,
        UnresolvedReason::NotFound
        | UnresolvedReason::UnknownAction
        | UnresolvedReason::Expired
        | UnresolvedReason::GaveUp => ResultStatus::Error,
    };
    let result = DepartmentResult { finding: Some(why), ..DepartmentResult::new(department, status, &text) };
    if status != ResultStatus::Refusal {
        return result;
    }
    DepartmentResult {
        evidence: Some(json!({"action": none.action, "slots": none.slots, "nearest": none.nearest})),
        patch,
        options: none.nearest.iter().map(|choice| choice.values.clone()).collect(),
        // An offer is made only once.
        pending: Some(OpenQuestion {
            options: none.nearest.clone(),
            question: Some(text),
            offer: true,
            asked: ASKED_MAX,
            ..pending(department, none, now)
        }),
        ..result
    }
}

fn search_values(department: &Department, none: &Resolution) -> Values {
    let finds = department.actions.get(&none.action).map(|action| action.finds.as_slice()).unwrap_or_default();
    let mut values = none.slots.clone();
    values.retain(|slot, _| finds.contains(slot));
    values
}

/// Builds the patch of `/classified` that selects a choice.
fn patch(department: &Department, none: &Resolution, choice: &Choice) -> Vec<Value> {
    let mut patch: Vec<Value> = Vec::new();
    if let Some(action) = &choice.action {
        patch.push(json!({"op": "replace", "path": "/classified/action", "value": action}));
    }
    let action = department.actions.get(choice.action.as_ref().unwrap_or(&none.action));
    let slots: Vec<String> =
        action.map(|action| action.slots().into_iter().map(|(slot, _)| slot).collect()).unwrap_or_default();
    for (slot, value) in choice.values.iter().filter(|(slot, _)| slots.contains(slot)) {
        if none.slots.get(slot) != Some(value) {
            patch.push(json!({"op": "add", "path": format!("/classified/slots/{slot}"), "value": value}));
        }
    }
    // Slots that the other action does not have.
    for slot in none.slots.keys().filter(|slot| !slots.contains(slot)) {
        patch.push(json!({"op": "remove", "path": format!("/classified/slots/{slot}")}));
    }
    patch
}

/// Builds a pending question without options.
fn pending(department: &Department, of: &Resolution, now: Timestamp) -> OpenQuestion {
    OpenQuestion {
        department: department.name.clone(),
        action: of.action.clone(),
        slots: of.slots.clone(),
        ids: of.ids.clone(),
        ask: of.ask.clone(),
        field: of.field.clone(),
        expires_at: now.plus_ms(u64::from(department.resolve.ttl) * 1000).0,
        ..OpenQuestion::default()
    }
}

/// Formats values as `item bananas and list office`.
fn described(values: &Values) -> String {
    let parts: Vec<String> =
        values.iter().map(|(field, value)| format!("{} {}", field.replace('_', " "), display_text(value))).collect();
    listed(&parts, "and")
}

/// Formats parts as `a, b and c`.
fn listed(parts: &[String], word: &str) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} {word} {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests;
