//! Explanations of a view for people: one item for each line of the state, and for each place without a line.

use serde::Serialize;

use crate::rejection::code_enum;

/// Maximum number of items.
pub(super) const ITEMS_MAX: usize = 1024;

code_enum! {
    /// Outcome for a place in a view.
    PlaceOutcome {
        /// The value is in the view.
        Shown = "shown",
        /// The beginning of the value is in the view.
        Begun = "begun",
        /// A line counts or describes the value.
        Summarised = "summarised",
        /// The view does not mention the place.
        LeftOut = "left_out",
    }
}

code_enum! {
    /// Reason for an outcome.
    OutcomeReason {
        /// All readable content fits.
        Everything = "everything_fits",
        /// The worker asked to see it.
        Asked = "asked_for",
        /// Trigger of the call, or part of the triggering value.
        Trigger = "woke_the_worker",
        /// The triggering value names it by its pointer.
        Named = "named_by_what_woke_it",
        /// Shorter than its summary.
        Brief = "shorter_than_a_summary",
        /// A short field.
        ShortField = "short_field",
        /// One of the latest changes in its collection.
        ChangedLast = "changed_last",
        /// A long field that fits.
        LongField = "long_field",
        /// Enough room was left.
        Room = "room_was_left",
        /// Too long for the room that was left.
        TooLong = "too_long_for_what_was_left",
        /// No room was left after more important content.
        NoRoom = "no_room_left",
        /// No read pattern of the worker covers it.
        NotReadable = "not_in_the_read_contract",
    }
}

/// The outcome for one place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PlaceExplanation {
    /// JSON Pointer; for a pattern without visible matches, its text.
    pub place: String,
    /// Pointer of the last element, if the item covers several neighbouring ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// Outcome.
    pub fate: PlaceOutcome,
    /// Reason.
    pub why: OutcomeReason,
}
