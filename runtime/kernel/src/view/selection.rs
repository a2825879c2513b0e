//! Shown part of a state.

use super::explanation::PlaceExplanation;
use super::search::CONTAINERS_MAX;
use super::summarised_places::SummarisedPlaces;
use super::truncated::TruncatedPlace;

/// The shown part of a state.
#[derive(Debug)]
pub(super) struct Selection {
    /// Lines about the state, in order, each ended by a line feed.
    pub(super) text: String,
    /// Pointers of completely shown values; none lies below another.
    pub(super) reads: Vec<String>,
    /// Pointers of containers outside `reads` with visible membership.
    pub(super) members: Vec<String>,
    /// The topmost readable values that are completely hidden.
    pub(super) summarised: SummarisedPlaces,
    /// See [`View::unshown`](super::View::unshown).
    pub(super) unshown: Vec<TruncatedPlace>,
    pub(super) items: Vec<PlaceExplanation>,
    /// True if everything readable is shown.
    pub(super) is_everything: bool,
    /// True if a part of the latest request is shown or named.
    pub(super) finds_room: bool,
}

impl Selection {
    /// Creates the result; `reads` must be sorted. The topmost [`CONTAINERS_MAX`] of the searched `containers` become
    /// members as well, and members inside `reads` are dropped.
    pub(super) fn new(text: String, reads: Vec<String>, mut members: Vec<String>, mut containers: Vec<String>) -> Self {
        containers.sort_by_cached_key(|place| place.matches('/').count());
        containers.truncate(CONTAINERS_MAX);
        members.append(&mut containers);
        let is_read = |place: &str| {
            let mut above = Some(place);
            while let Some(place) = above {
                if reads.binary_search_by(|read| read.as_str().cmp(place)).is_ok() {
                    return true;
                }
                above = place.rfind('/').map(|end| &place[..end]);
            }
            false
        };
        members.retain(|place| !is_read(place));
        members.sort_unstable();
        members.dedup();
        let (summarised, unshown, items) = Default::default();
        Self { text, reads, members, summarised, unshown, items, is_everything: true, finds_room: true }
    }
}
