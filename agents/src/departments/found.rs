//! What the roles of a department hand on to each other: the values at `/resolved`, `/resumed`, `/outcome`, `/result`.

use patchboard_kernel::department::Department;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What is known of fields, by their names.
pub type Values = Map<String, Value>;

/// How often the same is asked before it is given up.
pub const ASKED_MAX: u32 = 3;

/// A row as it is now.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Its number, never used twice in its table.
    pub id: i64,
    /// How often it was written.
    pub version: i64,
    /// What it has. A field without a value is left out.
    pub values: Values,
}

/// Which row is meant.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolved {
    /// Whether that is known.
    pub status: Status,
    /// The action.
    pub action: String,
    /// What is known of its slots.
    #[serde(default)]
    pub slots: Values,
    /// The rows that are meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<i64>,
    /// What to choose among, where something is open; none: any value will do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<Choice>,
    /// How many choices more there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u32,
    /// What is asked, like `which list`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
    /// The slot, or the field, that is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What was wrong with what is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// What is most like it, where nothing is found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<Choice>,
    /// How often it has been asked before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub asked: u32,
    /// Why nothing is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Why>,
}

/// Whether it is known which row is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is.
    Found,
    /// The user has to say.
    Open,
    /// There is none.
    None,
}

/// Why nothing is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Nothing is like it.
    NotFound,
    /// The department has no such action.
    UnknownAction,
    /// The answer came too late.
    Expired,
    /// The user does not want it.
    Declined,
    /// It was asked often enough.
    GaveUp,
}

/// One of several that may be meant.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The rows that it stands for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<i64>,
    /// Another action that it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// What tells it from the others.
    #[serde(default)]
    pub values: Values,
    /// How like it is to what was said, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likeness: Option<f64>,
}

/// What was done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Whether it was.
    pub status: Done,
    /// The action.
    pub action: String,
    /// What was known of its slots.
    #[serde(default)]
    pub slots: Values,
    /// The rows, at most so many that they can be written down.
    pub rows: Vec<Changed>,
    /// How many rows there are.
    pub count: u64,
    /// Whether what was written was read again and is as it should be.
    pub verified: bool,
    /// What was wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong: Option<Wrong>,
}

impl Outcome {
    /// Shows each value of what was said and what rows had, to be changed.
    pub(super) fn each_value(&mut self, change: &mut dyn FnMut(&mut Value)) {
        let rows = self.rows.iter_mut().flat_map(|row| [&mut row.before, &mut row.after]).flatten();
        let mut values: Vec<&mut Value> =
            rows.chain([&mut self.slots]).flat_map(|values| values.values_mut()).collect();
        match &mut self.wrong {
            Some(Wrong::Unfit { value, .. }) => values.push(value),
            Some(Wrong::Taken { values: taken }) => values.extend(taken.values_mut()),
            _ => {}
        }
        values.into_iter().for_each(change);
    }
}

/// What is wrong with a change, so that it was not made; `confirm` has the words for it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "snake_case", deny_unknown_fields)]
pub enum Wrong {
    /// The department has no such action.
    UnknownAction,
    /// The storage has no such field.
    UnknownField {
        /// The field.
        field: String,
    },
    /// What is meant is not known.
    Unclear,
    /// It is about none or several, and has to be about one.
    NotOne,
    /// It is about a row, and has to make one.
    NotNew,
    /// A value does not fit its field.
    Unfit {
        /// The field.
        field: String,
        /// The value.
        value: Value,
    },
    /// A value is missing.
    Missing {
        /// Of this field.
        field: String,
    },
    /// Nothing would be different.
    NoChange,
    /// The row is not what was found any more.
    Stale,
    /// Another row is the same in what makes it this one.
    Taken {
        /// What they have in common.
        values: Values,
    },
    /// There are as many rows as there may be.
    Full,
    /// What was read again is not what was written.
    Unverified,
}

/// Whether something was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    /// It was.
    Done,
    /// It was not, and nothing is different.
    Error,
}

/// A row, before and after.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Changed {
    /// Its number.
    pub id: i64,
    /// What it had; none if it is new, or was only looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Values>,
    /// What it has; none if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Values>,
}

impl Changed {
    /// What it has, or had.
    pub fn values(&self) -> Option<&Values> {
        self.after.as_ref().or(self.before.as_ref())
    }
}

/// A question that waits for the user's next words, with all that is known.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    /// Whose question it is.
    pub department: String,
    /// The action.
    pub action: String,
    /// What is known of its slots.
    #[serde(default)]
    pub slots: Values,
    /// The row that is meant, where something else is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<i64>,
    /// What to choose among.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<Choice>,
    /// How many choices more there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u32,
    /// What is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
    /// The slot, or the field, that is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What the user was told, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Whether it is an offer, which nobody has to answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offer: bool,
    /// How often it has been asked.
    pub asked: u32,
    /// Until when it waits, in milliseconds since 1970.
    pub expires_at: i64,
}

/// What whoever takes up messages has to know of a question, whoever has asked it.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// Whose question it is.
    pub department: String,
    /// What to choose among.
    pub options: Vec<Choice>,
    /// How many choices more there are.
    pub more: u32,
    /// What is asked.
    pub ask: Option<String>,
    /// What of an option is asked for.
    pub field: Option<String>,
    /// What the user was told, as a sentence.
    pub question: Option<String>,
    /// Whether it is an offer, which nobody has to answer.
    pub offer: bool,
    /// Until when it waits, in milliseconds since 1970; none: for as long as nothing else ends it.
    pub expires_at: Option<i64>,
}

impl From<&Pending> for Asked {
    fn from(pending: &Pending) -> Self {
        let Pending { department, options, more, ask, field, question, offer, expires_at, .. } = pending.clone();
        Self { department, options, more, ask, field, question, offer, expires_at: Some(expires_at) }
    }
}

impl Resolved {
    /// Of which nothing is known yet but this.
    pub(crate) fn new(status: Status, action: &str, slots: Values) -> Self {
        Self {
            status,
            action: action.to_owned(),
            slots,
            ids: Vec::new(),
            options: Vec::new(),
            more: 0,
            ask: None,
            field: None,
            because: None,
            nearest: Vec::new(),
            asked: 0,
            why: None,
        }
    }

    /// There is none, and why.
    pub(crate) fn none(action: &str, slots: Values, why: Why) -> Self {
        Self { why: Some(why), ..Self::new(Status::None, action, slots) }
    }

    /// The same, where a question was asked before: how often that was, if it is asked again, and at last no more.
    pub(crate) fn counted(self, before: &Pending) -> Self {
        let is_again =
            self.status == Status::Open && self.field == before.field && self.slots == before.slots && !before.offer;
        match is_again {
            true if before.asked >= ASKED_MAX => Self::none(&self.action, self.slots, Why::GaveUp),
            true => Self { asked: before.asked, ..self },
            false => self,
        }
    }

    /// The same with a question for a field.
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
