//! Readable places for which a view has no room.

use serde::{Deserialize, Serialize};

use crate::blueprint::Unit;
use crate::id::InvocationId;
use crate::record::Invoked;

/// Maximum number of collections and texts that are named.
pub(super) const UNSHOWN_MAX: usize = 8;

/// A readable collection, text or pattern that is not shown completely.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TruncatedPlace {
    /// JSON Pointer; for a pattern with wildcards, its text.
    pub at: String,
    /// Number of parts shown completely.
    pub shown: usize,
    /// Number of all parts; 1 for a text.
    pub of: usize,
    /// Total bytes, as JSON.
    pub bytes: u64,
    /// True if there may be more parts than were counted.
    #[serde(rename = "at_least", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_least: bool,
}

/// Keeps the largest, in the order given.
pub(super) fn largest(mut all: Vec<TruncatedPlace>) -> Vec<TruncatedPlace> {
    if all.len() > UNSHOWN_MAX {
        let mut sizes: Vec<u64> = all.iter().map(|one| one.bytes).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let least = sizes[UNSHOWN_MAX - 1];
        all.retain(|one| one.bytes >= least);
        all.truncate(UNSHOWN_MAX);
    }
    all
}

/// A view without room for everything that its worker may read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shortage {
    /// The invocation; absent for a preview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<InvocationId>,
    /// The budget, in `unit`.
    pub budget: u32,
    /// Unit of the budget.
    pub unit: Unit,
    /// Places not shown completely.
    pub places: Vec<TruncatedPlace>,
}

impl Shortage {
    /// Returns the shortage of a call; `None` if its view shows everything.
    pub fn from_call(invoked: &Invoked) -> Option<Self> {
        let Invoked { invocation, budget, unit, unshown, .. } = invoked;
        let (budget, unit, places) = (*budget, *unit, unshown.clone());
        (!places.is_empty()).then_some(Self { invocation: Some(*invocation), budget, unit, places })
    }

    /// Returns a sentence about each place: `reader sees 0 of 5 parts of /documents: …`.
    pub fn sentences(&self, worker: &str) -> impl Iterator<Item = String> {
        let unit = match self.unit {
            Unit::Chars => "",
            Unit::Tokens => " tokens",
        };
        self.places.iter().map(move |TruncatedPlace { at, shown, of, bytes, is_least }| {
            let (least, most) = if *is_least { ("at least ", "at least") } else { ("", "up to") };
            let what = match of {
                1 if !is_least => format!("{worker} does not see all of {at}: it needs"),
                _ => {
                    let (shown, of) = (grouped(*shown as u64), grouped(*of as u64));
                    format!("{worker} sees {shown} of {least}{of} parts of {at}: all need")
                }
            };
            let budget = grouped(u64::from(self.budget));
            format!("{what} {most} {} characters beside the rest, view.budget is {budget}{unit}", grouped(*bytes))
        })
    }
}

/// Writes a number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
