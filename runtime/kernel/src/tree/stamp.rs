//! When the places of a tree last changed (SPEC section 5).
//!
//! Stamps belong to places, not to values: a value that is moved or copied elsewhere leaves them behind, and what is
//! inside of it counts as changed with the place it came to. So what a place's stamp says holds only together with the
//! places above it: [`Stamp::under`].

use std::cmp::Ordering;

use triomphe::ThinArc;

/// The number of the version that a change makes. Stamps are kept for every place, so they are kept small; no board makes
/// more commits.
pub type At = u32;

/// When a place came to be, and when something else was last put there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// The version that made the place.
    pub born: At,
    /// The version that last put another value there as a whole; at least `born`. What changed inside of the value is
    /// not in it.
    pub changed: At,
}

impl Stamp {
    /// A place made by this version.
    pub const fn new(at: At) -> Self {
        Self { born: at, changed: at }
    }

    /// Whether nothing else was put there since it was made.
    const fn is_as_made(self) -> bool {
        self.born == self.changed
    }

    /// The stamp as it holds below a place where something was last put by version `floor`: all that is below came
    /// with it.
    pub fn under(self, floor: At) -> Self {
        Self { born: self.born.max(floor), changed: self.changed.max(floor) }
    }
}

/// The stamps of the places of one node, in their order. Most nodes have one, or have places that nothing was put in
/// since they came to be; only what differs is kept.
#[derive(Clone, Debug)]
pub(super) enum Stamps {
    /// Every place is as this version made it.
    One(At),
    /// Each is as the version left it that made it.
    Made(ThinArc<(), At>),
    /// Each has its own.
    Each(ThinArc<(), Stamp>),
}

impl Stamps {
    pub(super) fn of(stamps: &[Stamp]) -> Self {
        Self::collect(stamps.len(), |index| stamps[index])
    }

    fn collect(len: usize, stamp: impl Fn(usize) -> Stamp) -> Self {
        let first = if len == 0 { Stamp::default() } else { stamp(0) };
        if !(0..len).all(|index| stamp(index).is_as_made()) {
            Self::Each(ThinArc::from_header_and_iter((), (0..len).map(stamp)))
        } else if (0..len).all(|index| stamp(index) == first) {
            Self::One(first.born)
        } else {
            Self::Made(ThinArc::from_header_and_iter((), (0..len).map(|index| stamp(index).born)))
        }
    }

    /// The one number that all `len` stamps are, if they are.
    pub(super) const fn one(&self, len: usize) -> Option<At> {
        match self {
            Self::One(at) => Some(if len == 0 { 0 } else { *at }),
            Self::Made(_) | Self::Each(_) => None,
        }
    }

    pub(super) fn get(&self, index: usize) -> Stamp {
        match self {
            Self::One(at) => Stamp::new(*at),
            Self::Made(born) => Stamp::new(born.slice[index]),
            Self::Each(stamps) => stamps.slice[index],
        }
    }

    /// `len` is the number of places.
    pub(super) fn set(&mut self, index: usize, len: usize, stamp: Stamp) {
        if self.get(index) != stamp {
            *self = Self::collect(len, |at| if at == index { stamp } else { self.get(at) });
        }
    }

    /// Makes a place at `index` among `len`.
    pub(super) fn insert(&mut self, index: usize, len: usize, stamp: Stamp) {
        *self = Self::collect(len + 1, |at| match at.cmp(&index) {
            Ordering::Less => self.get(at),
            Ordering::Equal => stamp,
            Ordering::Greater => self.get(at - 1),
        });
    }

    /// Takes away the place at `index` of `len`.
    pub(super) fn remove(&mut self, index: usize, len: usize) -> Stamp {
        let removed = self.get(index);
        *self = Self::collect(len - 1, |at| self.get(if at < index { at } else { at + 1 }));
        removed
    }

    /// The stamps of all `len` places.
    pub(super) fn all(&self, len: usize) -> impl Iterator<Item = Stamp> {
        (0..len).map(|index| self.get(index))
    }

    /// The latest change of any of `len` places.
    pub(super) fn latest(&self, len: usize) -> At {
        self.all(len).map(|stamp| stamp.changed).max().unwrap_or(0)
    }
}

/// A place was taken away, or the places behind it were shifted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Loss {
    /// The first index concerned; 0 for a member of an object.
    pub(super) from: u32,
    /// Which member it was, as [`member`] has it; 0 for elements, and where several were taken together.
    pub(super) member: u32,
    /// When the oldest place concerned had come to be.
    pub(super) born: At,
    /// When it happened.
    pub(super) at: At,
}

impl Loss {
    /// Whether it concerns whoever an earlier one concerned.
    const fn covers(&self, earlier: &Self) -> bool {
        earlier.from >= self.from && earlier.born >= self.born
    }
}

/// A member's name in 32 bits (FNV-1a), so that losses stay small; never 0. Two names that share a number only share
/// the version by which the later of them went.
pub(super) fn member(key: &str) -> u32 {
    let hash = key.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

/// How many losses of one container are told apart; beyond, the oldest are taken together, so that a very old read may
/// be called stale although nothing it saw is gone.
const LOSSES_MAX: usize = 8;

/// What a container has lost.
#[derive(Clone, Debug, Default)]
#[expect(clippy::box_collection, reason = "most containers never lose anything: one word for those")]
pub(super) struct Losses(Option<Box<Vec<Loss>>>);

impl Losses {
    pub(super) fn each(&self) -> &[Loss] {
        self.0.as_ref().map_or(&[], |losses| losses.as_slice())
    }

    /// Losses as they were stored; none if there are more than are ever kept, or none at all.
    pub(super) fn restored(losses: Vec<Loss>) -> Option<Self> {
        (1..=LOSSES_MAX).contains(&losses.len()).then(|| Self(Some(Box::new(losses))))
    }

    pub(super) fn note(&mut self, loss: Loss) {
        // What came and went with one version was seen by nobody.
        if loss.born >= loss.at {
            return;
        }
        let losses = self.0.get_or_insert_default();
        // Whoever an earlier loss concerns, this one does, too; but which member it was is still asked.
        losses.retain(|earlier| !loss.covers(earlier) || earlier.member != loss.member);
        losses.push(loss);
        if losses.len() <= LOSSES_MAX {
            return;
        }
        let covered = (0..losses.len()).find(|old| losses[old + 1..].iter().any(|later| later.covers(&losses[*old])));
        let oldest = losses.remove(covered.unwrap_or(0));
        if covered.is_none() {
            let next = &mut losses[0];
            *next = Loss {
                from: next.from.min(oldest.from),
                member: 0,
                born: next.born.min(oldest.born),
                at: next.at.max(oldest.at),
            };
        }
    }

    /// When last something went away that was there at version `read`.
    pub(super) fn since(&self, read: At) -> Option<At> {
        let concerned = self.each().iter().filter(|loss| loss.born <= read && read < loss.at);
        concerned.map(|loss| loss.at).max()
    }

    /// When last this member, which was there at version `read`, went away; none also where that is not known any more.
    pub(super) fn of_member(&self, key: &str, read: At) -> Option<At> {
        let concerned = self.each().iter().filter(|loss| loss.member == member(key) && read < loss.at);
        concerned.map(|loss| loss.at).max()
    }

    /// When last the element at this index, which was there at version `read`, went away or was shifted.
    pub(super) fn of_index(&self, index: usize, read: At) -> Option<At> {
        let concerned = self.each().iter().filter(|loss| loss.from as usize <= index && read < loss.at);
        concerned.map(|loss| loss.at).max()
    }
}
