//! Temporary reservations of places for a worker after a rejection because of concurrent changes.
//!
//! They prevent livelock between two workers: the rejected worker's targets, and the changed places, stay reserved
//! until its next answer or until the reservation expires.

use std::collections::BTreeMap;

use jsonptr::{Pointer, PointerBuf};
use serde::{Deserialize, Serialize};

use crate::id::{InvocationId, Timestamp, WorkerName};
use crate::mutants::{self, Mutant};
use crate::snapshot::pairs;
use crate::targets::{Target, index_in};

/// Maximum duration of a reservation, in decisions of the board.
pub(crate) const DECISIONS_MAX: u64 = 8;
/// Maximum duration of a reservation, in milliseconds of recorded time.
pub(crate) const LASTS_MS: u64 = 30_000;
/// Maximum number of places of one reservation.
pub(super) const PLACES_MAX: usize = 64;

/// Reservation for one invocation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// Worker of the invocation.
    pub worker: WorkerName,
    /// Reserved places, including everything below them.
    pub places: Vec<PointerBuf>,
    /// Number of board decisions at which it expires.
    pub decisions: u64,
    /// Recorded time at which it expires.
    pub until: Timestamp,
}

/// Reservations of a board, by invocation.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Reservations(#[serde(with = "pairs")] BTreeMap<InvocationId, Reservation>);

impl Reservations {
    /// Iterates over the reservations and their invocations.
    pub fn iter(&self) -> impl Iterator<Item = (InvocationId, &Reservation)> {
        self.0.iter().map(|(invocation, reservation)| (*invocation, reservation))
    }

    /// Extends all expiry times by a clock jump.
    pub(crate) fn jump(&mut self, ms: u64) {
        self.0.values_mut().for_each(|held| held.until = held.until.plus_ms(ms));
    }

    /// Returns a copy without the reservations expired at `now`.
    pub(crate) fn unexpired_at(&self, now: Timestamp) -> Self {
        let held = self.0.iter().filter(|(_, held)| held.until > now);
        Self(held.map(|(invocation, held)| (*invocation, held.clone())).collect())
    }

    /// Returns the other worker that has reserved a target's place, and the conflicting place of the target.
    pub(super) fn holder_of<'a>(
        &self,
        target: &'a Target,
        own: Option<InvocationId>,
    ) -> Option<(&WorkerName, &'a Pointer)> {
        let others = self.0.iter().filter(|(invocation, _)| Some(**invocation) != own);
        let shared = |held: &Reservation| held.places.iter().find_map(|place| shared(target, place));
        others.map(|(_, held)| held).find_map(|held| Some((&held.worker, shared(held)?)))
    }

    /// Returns another invocation's reservation of a place, or of a place above or below it.
    pub(crate) fn other_at(&self, place: &Pointer, own: InvocationId) -> Option<&Reservation> {
        let mut others = self.0.iter().filter(|(invocation, _)| **invocation != own).map(|(_, held)| held);
        others.find(|held| held.places.iter().any(|kept| overlap(kept, place)))
    }

    /// Releases the reservation of an invocation.
    pub(crate) fn release(&mut self, invocation: InvocationId) {
        self.0.remove(&invocation);
    }

    /// Returns the places that no other invocation has reserved.
    pub(crate) fn vacant(&self, places: Vec<PointerBuf>, own: InvocationId) -> Vec<PointerBuf> {
        let others = || self.0.iter().filter(|(invocation, _)| **invocation != own).flat_map(|(_, held)| &held.places);
        let is_free = |place: &PointerBuf| !others().any(|held| overlap(place, held));
        places.into_iter().filter(|place| is_free(place) || mutants::is_active(Mutant::SharedReservation)).collect()
    }

    /// Returns the latest expiry of the reservations that block an invocation; `None` if none does.
    pub(crate) fn until(&self, awaited: &[PointerBuf], own: InvocationId) -> Option<Timestamp> {
        let others = self.0.iter().filter(|(invocation, _)| **invocation != own);
        let in_the_way = others.filter(|(_, held)| {
            held.places.iter().any(|place| awaited.iter().any(|awaited| may_block(place, awaited)))
        });
        in_the_way.map(|(_, held)| held.until).max()
    }

    pub(crate) fn insert(&mut self, invocation: InvocationId, reservation: Reservation) {
        self.0.insert(invocation, reservation);
    }

    /// Drops expired reservations. `is_open` reports whether an invocation still waits for its answer.
    pub(crate) fn expire(&mut self, now: Timestamp, decisions: u64, is_open: impl Fn(InvocationId) -> bool) {
        self.0.retain(|invocation, held| held.until > now && held.decisions > decisions && is_open(*invocation));
    }
}

/// Returns true if the places are equal or one contains the other.
fn overlap(one: &Pointer, other: &Pointer) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Returns true if a reservation of `place` may have caused a rejection at `awaited`. The rejected operation is no
/// longer known: it may have inserted or removed an element before `place`.
fn may_block(place: &Pointer, awaited: &Pointer) -> bool {
    overlap(place, awaited) || is_behind(place, awaited)
}

/// Returns true if `place` lies in an element behind `element`, in the same array.
///
/// In an object, a numeric name is not an index, and nothing is behind it; the check is then slightly too strict.
fn is_behind(place: &Pointer, element: &Pointer) -> bool {
    let Some((array, index)) = element.split_back() else { return false };
    if index.encoded() == "-" {
        // The position of an append depends on concurrent changes.
        return index_in(place, array).is_some();
    }
    let Ok(index) = index.decoded().parse::<usize>() else { return false };
    index_in(place, array).is_some_and(|(mine, _)| mine > index)
}

/// Returns the place that conflicts with a reserved place, by value or by index: the target, or the place an append
/// makes.
fn shared<'a>(target: &'a Target, place: &Pointer) -> Option<&'a Pointer> {
    if overlap(&target.place, place) || (target.action.shifts() && is_behind(place, &target.place)) {
        return Some(&target.place);
    }
    target.lands_at.as_deref().filter(|made| overlap(made, place))
}
