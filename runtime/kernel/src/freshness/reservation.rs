//! Places that are kept for a moment for a worker whose proposal was refused because others had been faster.
//!
//! So that two workers cannot invalidate each other for ever: what the refused one writes and what had changed under it
//! stays as it is until its next answer, or until the reservation is over.

use std::collections::BTreeMap;

use jsonptr::{Pointer, PointerBuf};
use serde::{Deserialize, Serialize};

use super::Target;
use super::targets::index_in;
use crate::id::{InvocationId, Timestamp, WorkerName};
use crate::planted::{self, Bug};
use crate::snapshot::pairs;

/// Decisions of the board that a reservation lasts at most.
pub(crate) const DECISIONS_MAX: u64 = 8;
/// Milliseconds of recorded time that it lasts at most.
pub(crate) const LASTS_MS: u64 = 30_000;
/// Places that one reservation keeps at most.
pub(super) const PLACES_MAX: usize = 64;

/// What is kept for one invocation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// Whose invocation it is.
    pub worker: WorkerName,
    /// The places, and everything in them.
    pub places: Vec<PointerBuf>,
    /// The number of the board's decisions with which it ends.
    pub decisions: u64,
    /// The recorded time at which it ends.
    pub until: Timestamp,
}

/// The reservations of a board, by the invocations they are for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Reservations(#[serde(with = "pairs")] BTreeMap<InvocationId, Reservation>);

impl Reservations {
    /// Each reservation and its invocation.
    pub fn iter(&self) -> impl Iterator<Item = (InvocationId, &Reservation)> {
        self.0.iter().map(|(invocation, reservation)| (*invocation, reservation))
    }

    /// Moves their ends as far as the clock jumped.
    pub(crate) fn jump(&mut self, ms: u64) {
        self.0.values_mut().for_each(|held| held.until = held.until.plus_ms(ms));
    }

    /// Those that are not over by then.
    pub(crate) fn at(&self, now: Timestamp) -> Self {
        let held = self.0.iter().filter(|(_, held)| held.until > now);
        Self(held.map(|(invocation, held)| (*invocation, held.clone())).collect())
    }

    /// Who has the place of a target that is another's, and what the place is called that the two share.
    pub(super) fn holder_of<'a>(
        &self,
        target: &'a Target,
        own: Option<InvocationId>,
    ) -> Option<(&WorkerName, &'a Pointer)> {
        let others = self.0.iter().filter(|(invocation, _)| Some(**invocation) != own);
        let shared = |held: &Reservation| held.places.iter().find_map(|place| shared(target, place));
        others.map(|(_, held)| held).find_map(|held| Some((&held.worker, shared(held)?)))
    }

    /// What is kept for somebody else of a place, or of something above or below it.
    pub(crate) fn other_at(&self, place: &Pointer, own: InvocationId) -> Option<&Reservation> {
        let mut others = self.0.iter().filter(|(invocation, _)| **invocation != own).map(|(_, held)| held);
        others.find(|held| held.places.iter().any(|kept| overlap(kept, place)))
    }

    /// Ends what is kept for an invocation.
    pub(crate) fn release(&mut self, invocation: InvocationId) {
        self.0.remove(&invocation);
    }

    /// What of these places nobody else has yet.
    pub(crate) fn vacant(&self, places: Vec<PointerBuf>, own: InvocationId) -> Vec<PointerBuf> {
        let others = || self.0.iter().filter(|(invocation, _)| **invocation != own).flat_map(|(_, held)| &held.places);
        let is_free = |place: &PointerBuf| !others().any(|held| overlap(place, held));
        places.into_iter().filter(|place| is_free(place) || planted::is(Bug::SharedReservation)).collect()
    }

    /// When the last of the reservations ends that stand in the way of an invocation; none if nothing does.
    pub(crate) fn until(&self, awaited: &[PointerBuf], own: InvocationId) -> Option<Timestamp> {
        let others = self.0.iter().filter(|(invocation, _)| **invocation != own);
        let in_the_way = others
            .filter(|(_, held)| held.places.iter().any(|place| awaited.iter().any(|awaited| hinders(place, awaited))));
        in_the_way.map(|(_, held)| held.until).max()
    }

    pub(crate) fn insert(&mut self, invocation: InvocationId, reservation: Reservation) {
        self.0.insert(invocation, reservation);
    }

    /// Keeps what is not over: `is_open` says whether an invocation still waits for its answer.
    pub(crate) fn expire(&mut self, now: Timestamp, decisions: u64, is_open: impl Fn(InvocationId) -> bool) {
        self.0.retain(|invocation, held| held.until > now && held.decisions > decisions && is_open(*invocation));
    }
}

/// Whether one place is the other, or lies above or below it.
fn overlap(one: &Pointer, other: &Pointer) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Whether a reservation of `place` may be why somebody was refused at `awaited`. What was to be done there is not
/// known any more: it may have been to put an element before `place`, or to take one away there.
fn hinders(place: &Pointer, awaited: &Pointer) -> bool {
    overlap(place, awaited) || is_behind(place, awaited)
}

/// Whether `place` lies in an element behind `element`, in the same array.
///
/// To an object an index is a name like others, and nothing is behind it; then a little too much is kept.
fn is_behind(place: &Pointer, element: &Pointer) -> bool {
    let Some((array, index)) = element.split_back() else { return false };
    if index.encoded() == "-" {
        // Where an append comes to depends on what else happens meanwhile.
        return index_in(place, array).is_some();
    }
    let Ok(index) = index.decoded().parse::<usize>() else { return false };
    index_in(place, array).is_some_and(|(mine, _)| mine > index)
}

/// Where writing to a target changes what is at a place, or its index: the target, or for an append the place it makes.
fn shared<'a>(target: &'a Target, place: &Pointer) -> Option<&'a Pointer> {
    if overlap(&target.place, place) || (target.action.shifts() && is_behind(place, &target.place)) {
        return Some(&target.place);
    }
    target.lands_at.as_deref().filter(|made| overlap(made, place))
}
