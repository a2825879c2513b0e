//! Why a view shows what it shows, for people who ask: one item for each line of the state, and for what has none.

use serde::Serialize;

use crate::rejection::coded;

/// The most items that are kept.
pub(super) const ITEMS_MAX: usize = 1024;

coded! {
    /// What became of something that a worker could be shown.
    Fate {
        /// Its value is in the view.
        Shown = "shown",
        /// Its beginning is in the view.
        Begun = "begun",
        /// A line counts it, or says what it is.
        Summarised = "summarised",
        /// The view does not speak of it.
        LeftOut = "left_out",
    }
}

coded! {
    /// Why.
    Why {
        /// Everything that may be read fits.
        Everything = "everything_fits",
        /// The worker asked to be shown it.
        Asked = "asked_for",
        /// It woke the worker, or is in what did.
        Trigger = "woke_the_worker",
        /// What woke the worker names it by its pointer.
        Named = "named_by_what_woke_it",
        /// It is shorter than to say that it is not shown.
        Brief = "shorter_than_a_summary",
        /// It is a short field.
        ShortField = "short_field",
        /// It is one of the last parts of its collection that changed.
        ChangedLast = "changed_last",
        /// It is a long field, and there was room.
        LongField = "long_field",
        /// Room was left for it.
        Room = "room_was_left",
        /// It did not fit into what was left.
        TooLong = "too_long_for_what_was_left",
        /// The room was used up by what is wanted more.
        NoRoom = "no_room_left",
        /// No read pattern of the worker covers it.
        NotReadable = "not_in_the_read_contract",
    }
}

/// Something that a worker could be shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Item {
    /// JSON Pointer; of a pattern of which nothing is told, its text.
    pub place: String,
    /// Of neighbouring elements: the pointer of the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// What became of it.
    pub fate: Fate,
    /// Why.
    pub why: Why,
}
