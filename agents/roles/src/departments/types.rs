//! Data that the roles of a department pass to each other: the values at `/resolved`, `/resumed`, `/outcome`,
//! `/result`.

use patchboard_protocols::department::Department;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Values of fields or slots, by name.
pub type Values = Map<String, Value>;

/// Number of times that a question is asked before it is given up.
pub const ASKED_MAX: u32 = 3;

/// Row in its current state.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Number of the row, never reused in its table.
    pub id: i64,
    /// Number of times that the row was written.
    pub version: i64,
    /// Values of the row. Fields without a value are left out.
    pub values: Values,
}

/// Result of resolving a request to rows.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolution {
    /// Status of the resolution.
    pub status: Status,
    /// Name of the action.
    pub action: String,
    /// Known slots.
    #[serde(default)]
    pub slots: Values,
    /// Numbers of the rows found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<i64>,
    /// Options for an open question; empty if any value is possible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<Choice>,
    /// Number of further options that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u32,
    /// Question, like `which list`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
    /// Slot or field that the question is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Problem with the value given for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Nearest alternatives if nothing is found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<Choice>,
    /// Number of times that the question was asked before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub asked: u32,
    /// Reason that nothing is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<UnresolvedReason>,
}

/// Status of a resolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The target is known.
    Found,
    /// The user must answer a question.
    Open,
    /// Nothing is found; see [`Resolution::why`].
    #[default]
    None,
}

/// Reason that nothing is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnresolvedReason {
    /// No row matches.
    NotFound,
    /// The department has no such action.
    UnknownAction,
    /// The answer arrived after the question had expired.
    Expired,
    /// The user declined.
    Declined,
    /// The question was asked [`ASKED_MAX`] times.
    GaveUp,
}

/// Option of a question, or alternative.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Numbers of the rows that it selects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<i64>,
    /// Other action that it requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Values that distinguish it from the others.
    #[serde(default)]
    pub values: Values,
    /// Similarity to the given words, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likeness: Option<f64>,
}

/// Outcome of an executed request.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Status of the outcome.
    pub status: OutcomeStatus,
    /// Name of the action.
    pub action: String,
    /// Known slots.
    #[serde(default)]
    pub slots: Values,
    /// Rows, as many as fit the size limit.
    pub rows: Vec<RowChange>,
    /// Total number of rows.
    pub count: u64,
    /// True if written data was read back and is correct.
    pub verified: bool,
    /// Error, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong: Option<ChangeError>,
}

impl Outcome {
    /// Calls `change` for each value of slots, rows and error, to replace it.
    pub(super) fn each_value(&mut self, change: &mut dyn FnMut(&mut Value)) {
        let rows = self.rows.iter_mut().flat_map(|row| [&mut row.before, &mut row.after]).flatten();
        let mut values: Vec<&mut Value> =
            rows.chain([&mut self.slots]).flat_map(|values| values.values_mut()).collect();
        match &mut self.wrong {
            Some(ChangeError::Unfit { value, .. }) => values.push(value),
            Some(ChangeError::Taken { values: taken }) => values.extend(taken.values_mut()),
            _ => {}
        }
        values.into_iter().for_each(change);
    }
}

/// Error that prevented a change; `confirm` has the sentence for it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "snake_case", deny_unknown_fields)]
pub enum ChangeError {
    /// The department has no such action.
    UnknownAction,
    /// The storage has no such field.
    UnknownField {
        /// Name of the field.
        field: String,
    },
    /// The target of the request is not known.
    Unclear,
    /// The request matches none or several rows, but needs exactly one.
    NotOne,
    /// An insert was resolved to an existing row.
    NotNew,
    /// A value does not fit its field.
    Unfit {
        /// Name of the field.
        field: String,
        /// Value that does not fit.
        value: Value,
    },
    /// A value is missing.
    Missing {
        /// Name of the field.
        field: String,
    },
    /// No value would change.
    NoChange,
    /// The row changed after it was found.
    Stale,
    /// Another row has the same identity.
    Taken {
        /// Values of the identity.
        values: Values,
    },
    /// The table has reached its limit of rows.
    Full,
    /// The row read back differs from the row written.
    Unverified,
}

/// Status of an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeStatus {
    /// The action was carried out.
    Done,
    /// The action failed and changed nothing.
    #[default]
    Error,
}

/// Row before and after a change.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowChange {
    /// Number of the row.
    pub id: i64,
    /// Old values; `None` if the row is new, or was only read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Values>,
    /// New values; `None` if the row was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Values>,
}

impl RowChange {
    /// Returns the new values, or the old ones of a deleted row.
    pub fn values(&self) -> Option<&Values> {
        self.after.as_ref().or(self.before.as_ref())
    }
}

/// Question that awaits the user's next message, with the state of the request.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenQuestion {
    /// Department that asked.
    pub department: String,
    /// Name of the action.
    pub action: String,
    /// Known slots.
    #[serde(default)]
    pub slots: Values,
    /// Row found, if only a value is still open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<i64>,
    /// Options to choose from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<Choice>,
    /// Number of further options that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u32,
    /// Question, like `which list`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
    /// Slot or field that the question is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Sentence shown to the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// True for an offer, which needs no answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offer: bool,
    /// Number of times that it was asked.
    pub asked: u32,
    /// Expiry time in milliseconds since 1970.
    pub expires_at: i64,
}

/// Members of a question that message handling uses, whichever department asked it.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct QuestionSummary {
    /// Department that asked.
    pub department: String,
    /// Options to choose from.
    pub options: Vec<Choice>,
    /// Number of further options that are not listed.
    pub more: u32,
    /// Question, like `which list`.
    pub ask: Option<String>,
    /// Field of the options that the question is about.
    pub field: Option<String>,
    /// Sentence shown to the user.
    pub question: Option<String>,
    /// True for an offer, which needs no answer.
    pub offer: bool,
    /// Expiry time in milliseconds since 1970; `None` means no expiry.
    pub expires_at: Option<i64>,
}

impl From<&OpenQuestion> for QuestionSummary {
    fn from(pending: &OpenQuestion) -> Self {
        let OpenQuestion { department, options, more, ask, field, question, offer, expires_at, .. } = pending.clone();
        Self { department, options, more, ask, field, question, offer, expires_at: Some(expires_at) }
    }
}

impl Resolution {
    /// Creates a result with only these members.
    pub(crate) fn new(status: Status, action: &str, slots: Values) -> Self {
        Self { status, action: action.to_owned(), slots, ..Self::default() }
    }

    /// Creates a result without a match, with the reason.
    pub(crate) fn none(action: &str, slots: Values, why: UnresolvedReason) -> Self {
        Self { why: Some(why), ..Self::new(Status::None, action, slots) }
    }

    /// Counts a question that is asked again, and gives up after [`ASKED_MAX`] times.
    pub(crate) fn counted(self, before: &OpenQuestion) -> Self {
        let is_again =
            self.status == Status::Open && self.field == before.field && self.slots == before.slots && !before.offer;
        match is_again {
            true if before.asked >= ASKED_MAX => Self::none(&self.action, self.slots, UnresolvedReason::GaveUp),
            true => Self { asked: before.asked, ..self },
            false => self,
        }
    }

    /// Adds a question for a field.
    pub(crate) fn asking(self, department: &Department, slot: &str, field: &str) -> Self {
        let ask = match department.storage.fields.get(field) {
            Some(known) => known.question(field),
            None => format!("which {}", department.storage.entity),
        };
        Self { status: Status::Open, ask: Some(ask), field: Some(slot.to_owned()), ..self }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}
