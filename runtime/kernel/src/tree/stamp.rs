//! Latest changes of a tree's places (SPEC section 5).
//!
//! Stamps belong to places, not to values. A moved or copied value leaves its stamps behind, and its parts count as
//! changed together with their new place. A stamp is therefore meaningful only together with the places above it:
//! [`Stamp::under`].

use std::cmp::Ordering;

use triomphe::ThinArc;

/// Number of the version that makes a change. Stamps are kept for every place, so they are small; no board makes more
/// commits.
pub type Revision = u32;

/// Versions of a place's creation and of its last replacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// The version that created the place.
    pub created: Revision,
    /// The version that last put another value there as a whole; at least `born`. Excludes changes inside the value.
    pub changed: Revision,
}

impl Stamp {
    /// Creates the stamp of a place that this version created.
    pub const fn new(at: Revision) -> Self {
        Self { created: at, changed: at }
    }

    /// Returns true if the value was not replaced since the place was created.
    const fn is_as_made(self) -> bool {
        self.created == self.changed
    }

    /// Returns the stamp below a place with a value put there by version `floor`, because its parts were put there with
    /// it.
    pub fn under(self, floor: Revision) -> Self {
        Self { created: self.created.max(floor), changed: self.changed.max(floor) }
    }
}

/// Stamps of the places of one node, in order. Most nodes have a common stamp, or places without a replacement since
/// their creation, so only differences are stored.
#[derive(Clone, Debug)]
pub(super) enum Stamps {
    /// Every place is as this version created it.
    One(Revision),
    /// Each place is as its own version created it.
    Created(ThinArc<(), Revision>),
    /// Each place has its own stamp.
    Each(ThinArc<(), Stamp>),
}

impl Stamps {
    pub(super) fn from_stamps(stamps: &[Stamp]) -> Self {
        Self::collect(stamps.len(), |index| stamps[index])
    }

    fn collect(len: usize, stamp: impl Fn(usize) -> Stamp) -> Self {
        let first = if len == 0 { Stamp::default() } else { stamp(0) };
        if !(0..len).all(|index| stamp(index).is_as_made()) {
            Self::Each(ThinArc::from_header_and_iter((), (0..len).map(stamp)))
        } else if (0..len).all(|index| stamp(index) == first) {
            Self::One(first.created)
        } else {
            Self::Created(ThinArc::from_header_and_iter((), (0..len).map(|index| stamp(index).created)))
        }
    }

    /// Returns the version that all `len` stamps share, if they do.
    pub(super) const fn one(&self, len: usize) -> Option<Revision> {
        match self {
            Self::One(at) => Some(if len == 0 { 0 } else { *at }),
            Self::Created(_) | Self::Each(_) => None,
        }
    }

    pub(super) fn get(&self, index: usize) -> Stamp {
        match self {
            Self::One(at) => Stamp::new(*at),
            Self::Created(born) => Stamp::new(born.slice[index]),
            Self::Each(stamps) => stamps.slice[index],
        }
    }

    /// Sets a stamp; `len` is the number of places.
    pub(super) fn set(&mut self, index: usize, len: usize, stamp: Stamp) {
        if self.get(index) != stamp {
            *self = Self::collect(len, |at| if at == index { stamp } else { self.get(at) });
        }
    }

    /// Inserts a place at `index` among `len`.
    pub(super) fn insert(&mut self, index: usize, len: usize, stamp: Stamp) {
        *self = Self::collect(len + 1, |at| match at.cmp(&index) {
            Ordering::Less => self.get(at),
            Ordering::Equal => stamp,
            Ordering::Greater => self.get(at - 1),
        });
    }

    /// Removes the place at `index` of `len`.
    pub(super) fn remove(&mut self, index: usize, len: usize) -> Stamp {
        let removed = self.get(index);
        *self = Self::collect(len - 1, |at| self.get(if at < index { at } else { at + 1 }));
        removed
    }

    pub(super) fn all(&self, len: usize) -> impl Iterator<Item = Stamp> {
        (0..len).map(|index| self.get(index))
    }

    /// Returns the latest change of any of `len` places.
    pub(super) fn latest(&self, len: usize) -> Revision {
        self.all(len).map(|stamp| stamp.changed).max().unwrap_or(0)
    }
}

/// Removal of a place, or a shift of the places behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Removal {
    /// First index affected; 0 for a member of an object.
    pub(super) from: u32,
    /// Hash of the member, from [`member`]; 0 for elements, and for merged losses.
    pub(super) member: u32,
    /// Creation of the oldest place affected.
    pub(super) created: Revision,
    /// Version of the removal.
    pub(super) at: Revision,
}

impl Removal {
    /// Returns true if it affects all readers that an earlier loss affects.
    const fn covers(&self, earlier: &Self) -> bool {
        earlier.from >= self.from && earlier.created >= self.created
    }
}

/// Returns a member's name as 32 bits (FNV-1a), so that losses stay small; never 0. Two names with one hash share only
/// the version of the later removal.
pub(super) fn member(key: &str) -> u32 {
    let hash = key.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

/// Maximum number of separate losses of one container. Beyond it the oldest are merged, so a very old read may count as
/// stale although all it saw still exists.
const LOSSES_MAX: usize = 8;

/// Losses of a container.
#[derive(Clone, Debug, Default)]
#[expect(clippy::box_collection, reason = "most containers never lose anything: one word for those")]
pub(super) struct Removals(Option<Box<Vec<Removal>>>);

impl Removals {
    pub(super) fn each(&self) -> &[Removal] {
        self.0.as_ref().map_or(&[], |losses| losses.as_slice())
    }

    /// Restores stored losses; `None` if there are none, or more than the maximum.
    pub(super) fn restored(losses: Vec<Removal>) -> Option<Self> {
        (1..=LOSSES_MAX).contains(&losses.len()).then(|| Self(Some(Box::new(losses))))
    }

    pub(super) fn note(&mut self, loss: Removal) {
        // A place that was created and removed by one version was never visible.
        if loss.created >= loss.at {
            return;
        }
        let losses = self.0.get_or_insert_default();
        // This loss also affects all readers of a covered loss, but different members stay separate for
        // [`Self::of_member`].
        losses.retain(|earlier| !loss.covers(earlier) || earlier.member != loss.member);
        losses.push(loss);
        if losses.len() <= LOSSES_MAX {
            return;
        }
        let covered = (0..losses.len()).find(|old| losses[old + 1..].iter().any(|later| later.covers(&losses[*old])));
        let oldest = losses.remove(covered.unwrap_or(0));
        if covered.is_none() {
            let next = &mut losses[0];
            let (from, created) = (next.from.min(oldest.from), next.created.min(oldest.created));
            *next = Removal { from, member: 0, created, at: next.at.max(oldest.at) };
        }
    }

    /// Returns the last version that removed a place which existed at version `read`.
    pub(super) fn since(&self, read: Revision) -> Option<Revision> {
        let concerned = self.each().iter().filter(|loss| loss.created <= read && read < loss.at);
        concerned.map(|loss| loss.at).max()
    }

    /// Returns the last version that removed this member, which existed at version `read`; `None` also if it is not
    /// known any more.
    pub(super) fn of_member(&self, key: &str, read: Revision) -> Option<Revision> {
        let concerned = self.each().iter().filter(|loss| loss.member == member(key) && read < loss.at);
        concerned.map(|loss| loss.at).max()
    }

    /// Returns the last version that removed or shifted the element at this index, which existed at version `read`.
    pub(super) fn of_index(&self, index: usize, read: Revision) -> Option<Revision> {
        let concerned = self.each().iter().filter(|loss| loss.from as usize <= index && read < loss.at);
        concerned.map(|loss| loss.at).max()
    }
}
