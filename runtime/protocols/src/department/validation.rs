//! Validation of manifests, and of field values.

use std::collections::BTreeSet;

use regex::RegexBuilder;
use serde_json::{Map, Value};

use super::template::{self, Part};
use super::{
    ACTIONS_MAX, Action, Classification, Department, ENUM_MAX, FIELDS_MAX, Field, FieldType, Manifest, RowOperation,
    TestAnswer,
};
use super::{NAME_MAX, TEXT_MAX};
use patchboard_lint::source::child;

/// Prefix of the slot for a field's new value, if the field's own slot finds the row.
pub const NEW_VALUE_PREFIX: &str = "new_";

/// Size limit of a compiled `pattern`, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Column names reserved by the table that is built from the fields.
pub const COLUMNS: [&str; 9] =
    ["seq", "id", "version", "valid_from", "valid_to", "recorded_from", "recorded_to", "deleted", "key"];

/// A problem of a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManifestError {
    /// Position in the manifest, as a JSON Pointer.
    pub pointer: String,
    /// Description of the problem.
    pub message: String,
}

impl Manifest {
    /// Returns all problems in a fixed order; empty if the manifest is sound. Does not check `needs`, which depend on
    /// the blueprint's promises.
    pub fn validation_errors(&self) -> Vec<ManifestError> {
        let mut found = ManifestValidator::default();
        if self.department != 1 {
            found.add("/department", format!("this version reads `department: 1`, not {}", self.department));
        }
        if self.description.trim().is_empty() || self.description.contains('\n') {
            found.add("/description", "one line says what the department does");
        }
        for (index, need) in self.required.iter().enumerate() {
            if !self.needs.contains_key(need) {
                found.add(&format!("/required/{index}"), format!("`{need}` is none of its `needs`"));
            }
        }
        for need in self.dispatch.input.keys() {
            if !self.needs.contains_key(need) && ![super::PENDING, super::OPEN_QUESTION].contains(&need.as_str()) {
                found.add(&child("/dispatch/input", need), format!("`{need}` is none of its `needs`"));
            }
        }
        for (name, schema) in &self.promises {
            let at = child("/promises", name);
            let kind = schema.get("type").and_then(Value::as_str);
            if !matches!(kind, Some("array" | "object" | "integer")) {
                found.add(&at, "a promise is of type array (the rows), object (the first row) or integer (how many)");
            }
        }
        let department = self.department();
        found.of.extend(department.validation_errors());
        for (index, example) in self.examples.iter().enumerate() {
            let at = format!("/examples/{index}");
            if example.text.trim().is_empty() {
                found.add(&format!("{at}/text"), "an example has the user's words");
            }
            found.classified(&department, &format!("{at}/classified"), &example.classified);
        }
        for (index, test) in self.tests.iter().enumerate() {
            let at = format!("/tests/{index}");
            for (nth, row) in test.rows.iter().enumerate() {
                found.row(&department, &format!("{at}/rows/{nth}"), row);
            }
            for (nth, row) in test.then.iter().flatten().enumerate() {
                found.row(&department, &format!("{at}/then/{nth}"), row);
            }
            found.classified(&department, &format!("{at}/classified"), &test.classified);
            for (nth, reply) in test.answers.iter().enumerate() {
                if let TestAnswer::Classified(classified) = reply {
                    found.classified(&department, &format!("{at}/answers/{nth}"), classified);
                }
            }
            if test.expect.is_empty() && test.then.is_none() {
                found.add(&at, "a test expects something: members of the result (`expect`) or rows (`then`)");
            }
        }
        found.of
    }
}

impl Department {
    /// Returns all problems; empty if the department is sound.
    pub fn validation_errors(&self) -> Vec<ManifestError> {
        let mut found = ManifestValidator::default();
        found.name("/name", &self.name, "a department", "-_");
        let storage = &self.storage;
        if storage.entity.trim().is_empty() || storage.entity.chars().count() > NAME_MAX {
            found.add("/storage/entity", format!("an entity has a name of at most {NAME_MAX} characters"));
        }
        if storage.fields.is_empty() || storage.fields.len() > FIELDS_MAX {
            found.add("/storage/fields", format!("a row has 1 to {FIELDS_MAX} fields"));
        }
        for (name, field) in &storage.fields {
            let at = child("/storage/fields", name);
            found.name(&at, name, "a field", "_");
            if COLUMNS.contains(&name.as_str()) || name == "count" || name.starts_with(NEW_VALUE_PREFIX) {
                found.add(&at, format!("`{name}` is taken: call the field something else"));
            }
            found.field(&at, field);
        }
        found.fields(self, "/storage/identity", &storage.identity);
        if self.actions.is_empty() || self.actions.len() > ACTIONS_MAX {
            found.add("/actions", format!("a department has 1 to {ACTIONS_MAX} actions"));
        }
        for (name, action) in &self.actions {
            let at = child("/actions", name);
            found.name(&at, name, "an action", "_");
            found.action(self, &at, action);
        }
        let is_share = |number: f64| (0.0..=1.0).contains(&number);
        if !is_share(self.resolve.likeness) || !is_share(self.resolve.gap) {
            found.add("/resolve", "`likeness` and `gap` are from 0 to 1");
        }
        found.of
    }
}

impl Field {
    /// Returns a message if a value is invalid for this field.
    pub fn value_error(&self, value: &Value) -> Option<String> {
        let fits = match self.kind {
            FieldType::String => value.is_string(),
            FieldType::Integer => value.is_i64(),
            FieldType::Number => value.is_number(),
            FieldType::Boolean => value.is_boolean(),
        };
        if !fits {
            return Some(format!("is no {}", self.kind));
        }
        if !self.allowed_values.is_empty() && !self.allowed_values.contains(value) {
            let all: Vec<String> = self.allowed_values.iter().map(plain).collect();
            return Some(format!("is none of {}", all.join(", ")));
        }
        let text = value.as_str()?;
        let chars_max = self.chars_max();
        if u64::try_from(text.chars().count()).is_ok_and(|chars| chars > chars_max) {
            return Some(format!("has more than {chars_max} characters"));
        }
        if text.contains('\0') {
            return Some("holds a character that no text has".to_owned());
        }
        let pattern = self.pattern.as_ref()?;
        match compiled(pattern) {
            Ok(regex) => (!regex.is_match(text)).then(|| format!("does not match {pattern}")),
            Err(why) => Some(why),
        }
    }
}

fn compiled(pattern: &str) -> Result<regex::Regex, String> {
    let built = RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build();
    built.map_err(|_| format!("`{pattern}` is no regular expression that can be used, or too large a one"))
}

/// Returns a value as it appears in a sentence.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[derive(Default)]
struct ManifestValidator {
    of: Vec<ManifestError>,
}

impl ManifestValidator {
    fn add(&mut self, pointer: &str, message: impl Into<String>) {
        self.of.push(ManifestError { pointer: pointer.to_owned(), message: message.into() });
    }

    /// Checks a name for use in tables and slots: small letters, digits and these characters.
    fn name(&mut self, pointer: &str, name: &str, of: &str, also: &str) {
        let is_letter = |c: char| c.is_ascii_lowercase();
        let is_fine = |c: char| is_letter(c) || c.is_ascii_digit() || also.contains(c);
        if !name.starts_with(is_letter) || !name.chars().all(is_fine) || name.len() > NAME_MAX {
            let message = format!(
                "the name of {of} begins with a small letter and has small letters, digits and `{}`, at most {NAME_MAX}",
                also.chars().map(String::from).collect::<Vec<_>>().join("` and `")
            );
            self.add(pointer, message);
        }
    }

    fn field(&mut self, at: &str, field: &Field) {
        let is_text = field.kind == FieldType::String;
        if field.allowed_values.len() > ENUM_MAX {
            self.add(&format!("{at}/enum"), format!("an enum has at most {ENUM_MAX} values"));
        }
        let unlimited = Field { allowed_values: Vec::new(), ..field.clone() };
        for (index, value) in field.allowed_values.iter().enumerate() {
            if let Some(why) = unlimited.value_error(value) {
                self.add(&format!("{at}/enum/{index}"), format!("{} {why}", plain(value)));
            } else if field.allowed_values[..index].contains(value) {
                self.add(&format!("{at}/enum/{index}"), format!("{} is there twice", plain(value)));
            }
        }
        if let Some(pattern) = &field.pattern {
            match compiled(pattern) {
                _ if !is_text => self.add(&format!("{at}/pattern"), "only a string has a pattern"),
                Err(why) => self.add(&format!("{at}/pattern"), why),
                Ok(_) => {}
            }
        }
        if let Some(max) = field.max_length {
            if !is_text {
                self.add(&format!("{at}/maxLength"), "only a string has a maxLength");
            } else if max == 0 || max > TEXT_MAX {
                self.add(&format!("{at}/maxLength"), format!("maxLength is from 1 to {TEXT_MAX}"));
            }
        }
        if field.ask.as_ref().is_some_and(|ask| ask.trim().is_empty()) {
            self.add(&format!("{at}/ask"), "`ask` says how it is asked for, like `which list`");
        }
    }

    fn fields(&mut self, department: &Department, at: &str, names: &[String]) {
        let mut seen = BTreeSet::new();
        for (index, name) in names.iter().enumerate() {
            let at = format!("{at}/{index}");
            if !department.storage.fields.contains_key(name) {
                self.add(&at, format!("`{name}` is no field of its storage"));
            } else if !seen.insert(name) {
                self.add(&at, format!("`{name}` is there twice"));
            }
        }
    }

    fn action(&mut self, department: &Department, at: &str, action: &Action) {
        self.fields(department, &format!("{at}/finds"), &action.finds);
        self.fields(department, &format!("{at}/sets"), &action.sets);
        let (finds, sets) = (!action.finds.is_empty(), !action.sets.is_empty());
        let wrong = match action.does {
            RowOperation::Insert if finds || !sets => "what inserts has `sets` and no `finds`",
            RowOperation::Select if sets => "what selects has no `sets`",
            RowOperation::Update if !finds || !sets => "what updates has `finds` and `sets`",
            RowOperation::Delete if !finds || sets => "what deletes has `finds` and no `sets`",
            RowOperation::Insert | RowOperation::Select | RowOperation::Update | RowOperation::Delete => "",
        };
        if !wrong.is_empty() {
            self.add(at, wrong);
        }
        let missing = department.storage.identity.iter().find(|field| !action.sets.contains(field));
        if let Some(field) = missing.filter(|_| action.does == RowOperation::Insert) {
            self.add(&format!("{at}/sets"), format!("`{field}` is one of the identity: what inserts sets it"));
        }
        let at = format!("{at}/confirm");
        match template::parse(&action.confirm) {
            Err(why) => self.add(&at, why),
            Ok(parts) if parts.is_empty() => self.add(&at, "`confirm` is the sentence that says it was done"),
            Ok(parts) => {
                let fields = &department.storage.fields;
                for part in parts {
                    let unknown = match &part {
                        Part::Text(_) | Part::Count => None,
                        Part::Rows(parts) => parts.iter().find_map(|part| match part {
                            Part::Slot(field) => Some(*field).filter(|field| !fields.contains_key(*field)),
                            _ => None,
                        }),
                        // Each selected row has its own value, except for the fields that the selection is by.
                        Part::Slot(slot) if action.does == RowOperation::Select => {
                            Some(*slot).filter(|slot| !action.finds.iter().any(|field| field == slot))
                        }
                        Part::Slot(slot) => Some(*slot).filter(|slot| {
                            !fields.contains_key(*slot) && !action.slots().iter().any(|(known, _)| known == slot)
                        }),
                    };
                    if let Some(name) = unknown {
                        self.add(&at, format!("`{name}` is nothing that this action knows"));
                    }
                }
            }
        }
    }

    fn classified(&mut self, department: &Department, at: &str, classified: &Classification) {
        let Some(action) = department.actions.get(&classified.action) else {
            return self.add(&format!("{at}/action"), format!("`{}` is no action", classified.action));
        };
        let slots = action.slots();
        for slot in classified.slots.keys() {
            if !slots.iter().any(|(known, _)| known == slot) {
                let message = format!("`{slot}` is no slot of the action {}", classified.action);
                self.add(&child(&format!("{at}/slots"), slot), message);
            }
        }
    }

    fn row(&mut self, department: &Department, at: &str, row: &Map<String, Value>) {
        for (name, value) in row {
            let at = child(at, name);
            match department.storage.fields.get(name) {
                None => self.add(&at, format!("`{name}` is no field of its storage")),
                Some(field) => {
                    if let Some(why) = field.value_error(value) {
                        self.add(&at, format!("{} {why}", plain(value)));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
