//! Which places of the committed state a patch writes.
//!
//! Operations are applied one after the other, so a later one may name a place that an earlier one made or shifted.
//! What its author knew is the state before the patch: every target is traced back to there, and what the patch itself
//! made is nobody else's.

use jsonptr::{Pointer, PointerBuf};

use crate::blueprint::GrantOp;
use crate::patch::Op;
use crate::state::{Candidate, Effect};

/// A place that a patch depends on because of what it does there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    /// Index of the operation.
    pub(crate) op: usize,
    /// Where, in the state before the patch; an append has `-`.
    pub(crate) place: PointerBuf,
    /// What it does there.
    pub(crate) action: Action,
    /// Of an append: the place it makes.
    pub(crate) lands_at: Option<PointerBuf>,
    /// Of an append: whether the patch named that place by its index, not by `-`.
    pub(crate) names_index: bool,
}

/// What an operation does at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Puts another value there.
    Overwrites,
    /// Takes away what is there.
    Removes,
    /// Makes a member.
    Creates,
    /// Puts an element before the one that is there.
    Inserts,
    /// Puts an element behind the last one.
    Appends,
    /// Takes a copy of what is there.
    Copies,
}

impl Action {
    /// Whether what is there must be as it was, not only the way to it.
    pub(super) const fn needs_value(self) -> bool {
        matches!(self, Self::Overwrites | Self::Removes | Self::Copies)
    }

    /// Whether elements behind the place get other indices.
    pub(super) const fn shifts(self) -> bool {
        matches!(self, Self::Removes | Self::Inserts)
    }
}

/// What an earlier operation did to the places of later ones.
enum Own {
    /// Everything there is of its making.
    Wrote(PointerBuf),
    /// The same, but there was something before, and an element there still has its place among the others.
    Overwrote(PointerBuf),
    Inserted(PointerBuf, usize),
    Removed(PointerBuf, usize),
    /// Sums up so many entries before it, which one `move` made, for who follows values: `to` holds what stood at `from`.
    Moved {
        from: PointerBuf,
        to: PointerBuf,
        entries: usize,
    },
}

/// Collects targets, operation by operation.
#[derive(Default)]
pub(crate) struct Targets {
    targets: Vec<Target>,
    own: Vec<Own>,
    /// How many of them the operations before the last one noted have made.
    applied: usize,
}

impl Targets {
    /// Notes what an operation is about to do to the candidate.
    pub(crate) fn note(&mut self, index: usize, op: &Op<'_>, effect: &Effect<'_>, candidate: &Candidate) {
        self.applied = self.own.len();
        match *op {
            Op::Test { .. } => {}
            Op::Remove { path } => self.leave(index, path, candidate),
            Op::Replace { path, .. } => {
                self.add(index, path, Action::Overwrites);
                self.own.push(Own::Overwrote(path.to_buf()));
            }
            Op::Add { path, .. } => self.arrive(index, path, effect),
            Op::Copy { from, path } => {
                self.add(index, from, Action::Copies);
                self.arrive(index, path, effect);
            }
            Op::Move { from, path } => {
                // The effect is judged as the document is once `from` is gone, and so is noted after that.
                let before = self.own.len();
                self.leave(index, from, candidate);
                self.arrive(index, path, effect);
                let (from, to) = (from.to_buf(), effect.lands_at.to_buf());
                self.own.push(Own::Moved { from, to, entries: self.own.len() - before });
            }
        }
    }

    /// What was noted of the last operation stays, but it could not be applied: later ones meet the document before it.
    pub(crate) fn not_applied(&mut self) {
        self.own.truncate(self.applied);
    }

    /// Where what the operation that was noted last meets at a place stood before the patch; none of what the patch put
    /// between elements. What was put in the place of something stands where that stood. `arrives`: the place is named as
    /// the document is once the operation, a `move`, has taken away what is at its `from`.
    pub(crate) fn stood(&self, place: &Pointer, arrives: bool) -> Option<PointerBuf> {
        let before = self.own.iter().take(self.applied + usize::from(arrives));
        before.rev().try_fold(place.to_buf(), |place, own| own.before(place))
    }

    /// Returns where the value at a place, once the whole patch is applied, stood before it; none for an element that the patch
    /// put between others. What was written over a value stands where that stood.
    pub(crate) fn stood_at_first(&self, place: &Pointer) -> Option<PointerBuf> {
        let (mut place, mut below) = (place.to_buf(), PointerBuf::root());
        let mut left = self.own.len();
        while let Some(own) = left.checked_sub(1).and_then(|last| self.own.get(last)) {
            left -= 1;
            match own {
                Own::Moved { from, to, entries } if place.starts_with(to) => {
                    let rest = place.strip_prefix(to).map_or_else(PointerBuf::root, Pointer::to_buf);
                    place = from.concat(&rest);
                    left = left.saturating_sub(*entries);
                }
                // Of what was put there as a whole, shifts of what was there before say nothing.
                Own::Wrote(wrote) | Own::Overwrote(wrote) if place.starts_with(wrote) && place != *wrote => {
                    let rest = place.strip_prefix(wrote).map_or_else(PointerBuf::root, Pointer::to_buf);
                    below = rest.concat(&below);
                    place = wrote.clone();
                }
                own => place = own.before(place)?,
            }
        }
        Some(place.concat(&below))
    }

    pub(crate) fn as_slice(&self) -> &[Target] {
        &self.targets
    }

    fn leave(&mut self, index: usize, from: &Pointer, candidate: &Candidate) {
        self.add(index, from, Action::Removes);
        // What is not there cannot be taken away, and shifts nothing.
        let array = from.parent().filter(|parent| candidate.get(parent).is_some_and(|node| node.as_array().is_some()));
        let array = array.filter(|_| candidate.get(from).is_some());
        let element = array.and_then(|array| Some((array.to_buf(), from.back()?.decoded().parse().ok()?)));
        self.own.push(match element {
            Some((array, element)) => Own::Removed(array, element),
            None => Own::Wrote(from.to_buf()),
        });
    }

    /// `path`: the place as the operation has it.
    fn arrive(&mut self, index: usize, path: &Pointer, effect: &Effect<'_>) {
        let lands_at = &*effect.lands_at;
        let appends = effect.granted_at != effect.lands_at;
        match effect.kind {
            _ if appends => {
                let made = self.before(lands_at, false);
                if let Some(target) = self.add(index, &effect.granted_at, Action::Appends) {
                    target.names_index = path == lands_at;
                    target.lands_at = made;
                }
                self.own.push(Own::Wrote(lands_at.to_buf()));
            }
            Some(GrantOp::Insert) => {
                self.add(index, lands_at, Action::Inserts);
                let element = || Some((lands_at.parent()?.to_buf(), lands_at.back()?.decoded().parse().ok()?));
                self.own.extend(element().map(|(array, element)| Own::Inserted(array, element)));
            }
            Some(GrantOp::Replace) => {
                self.add(index, lands_at, Action::Overwrites);
                self.own.push(Own::Wrote(lands_at.to_buf()));
            }
            _ => {
                self.add(index, lands_at, Action::Creates);
                self.own.push(Own::Wrote(lands_at.to_buf()));
            }
        }
    }

    fn add(&mut self, op: usize, place: &Pointer, action: Action) -> Option<&mut Target> {
        let place = self.before(place, action.shifts())?;
        self.targets.push(Target { op, place, action, lands_at: None, names_index: false });
        self.targets.last_mut()
    }

    /// What a place was called before the patch; none if the patch made it. `as_slot`: it is not about what is there but
    /// about where it stands among others, which writing over it leaves as it was.
    fn before(&self, place: &Pointer, as_slot: bool) -> Option<PointerBuf> {
        let mut place = place.to_buf();
        for own in self.own.iter().rev() {
            let is_made = match own {
                Own::Wrote(wrote) => place.starts_with(wrote),
                Own::Overwrote(wrote) => place.starts_with(wrote) && !(as_slot && place == *wrote),
                Own::Inserted(..) | Own::Removed(..) | Own::Moved { .. } => false,
            };
            place = own.before(place).filter(|_| !is_made)?;
        }
        Some(place)
    }
}

impl Own {
    /// What a place was called before it; none of what it put between elements.
    fn before(&self, place: PointerBuf) -> Option<PointerBuf> {
        let (array, index, inserted) = match self {
            Self::Wrote(_) | Self::Overwrote(_) | Self::Moved { .. } => return Some(place),
            Self::Inserted(array, index) => (array, *index, true),
            Self::Removed(array, index) => (array, *index, false),
        };
        let Some((mine, rest)) = index_in(&place, array) else { return Some(place) };
        let before = match (inserted, mine.cmp(&index)) {
            (true, std::cmp::Ordering::Equal) => return None,
            (true, std::cmp::Ordering::Greater) => mine - 1,
            (false, std::cmp::Ordering::Equal | std::cmp::Ordering::Greater) => mine + 1,
            (_, std::cmp::Ordering::Less) => return Some(place),
        };
        let mut moved = array.with_trailing_token(before);
        moved.append(&rest);
        Some(moved)
    }
}

/// The index by which a place lies in an array, and the rest of its pointer.
pub(crate) fn index_in(place: &Pointer, array: &Pointer) -> Option<(usize, PointerBuf)> {
    // `strip_prefix` alone would find `/a/1` in `/a/10`.
    let below = place.starts_with(array).then(|| place.strip_prefix(array)).flatten()?;
    let (token, rest) = below.split_front()?;
    Some((token.decoded().parse().ok()?, rest.to_buf()))
}
