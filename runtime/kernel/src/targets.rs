//! Finds the places of the committed state that a patch writes.
//!
//! Operations apply in order, so a later one may name a place that an earlier one made or shifted. The author knew only
//! the state before the patch: every target is traced back to it. Places made by the patch itself cannot conflict.

use jsonptr::{Pointer, PointerBuf};

use crate::blueprint::GrantOp;
use crate::patch::Op;
use crate::state::{Candidate, OpEffect};

/// A place that a patch depends on, with the operation's effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    /// Index of the operation.
    pub(crate) op: usize,
    /// Location in the state before the patch; `-` for an append.
    pub(crate) place: PointerBuf,
    /// Effect of the operation.
    pub(crate) action: TargetAction,
    /// The created place, for an append.
    pub(crate) lands_at: Option<PointerBuf>,
    /// True if an append named its place by index instead of `-`.
    pub(crate) names_index: bool,
}

/// Effect of an operation at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TargetAction {
    Overwrites,
    Removes,
    Creates,
    /// Inserts an element before an existing one.
    Inserts,
    Appends,
    Copies,
}

impl TargetAction {
    /// Returns true if the place itself must be unchanged, not only the path to it.
    pub(super) const fn needs_value(self) -> bool {
        matches!(self, Self::Overwrites | Self::Removes | Self::Copies)
    }

    /// Returns true if the operation shifts the indices of later elements.
    pub(super) const fn shifts(self) -> bool {
        matches!(self, Self::Removes | Self::Inserts)
    }
}

/// Effect of an earlier operation on the places of later ones.
enum EarlierEffect {
    /// All content of the place, if there is any, comes from the patch.
    Wrote(PointerBuf),
    /// Like `Wrote`, but a value existed before, and its index among the elements is unchanged.
    Overwrote(PointerBuf),
    Inserted(PointerBuf, usize),
    Removed(PointerBuf, usize),
    /// Combines the preceding `entries` entries of one `move`, for value tracing: `to` holds the value from `from`.
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
    effects: Vec<EarlierEffect>,
    /// Number of entries made by operations before the last one recorded.
    applied: usize,
}

impl Targets {
    /// Records the effect of an operation before it is applied to the candidate.
    pub(crate) fn note(&mut self, index: usize, op: &Op<'_>, effect: &OpEffect<'_>, candidate: &Candidate) {
        self.applied = self.effects.len();
        match *op {
            Op::Test { .. } => {}
            Op::Remove { path } => self.record_removal(index, path, candidate),
            Op::Replace { path, .. } => {
                self.add(index, path, TargetAction::Overwrites);
                self.effects.push(EarlierEffect::Overwrote(path.to_buf()));
            }
            Op::Add { path, .. } => self.record_write(index, path, effect),
            Op::Copy { from, path } => {
                self.add(index, from, TargetAction::Copies);
                self.record_write(index, path, effect);
            }
            Op::Move { from, path } => {
                // The effect refers to the document after the removal of `from`, so it is recorded after that.
                let before = self.effects.len();
                self.record_removal(index, from, candidate);
                self.record_write(index, path, effect);
                let (from, to) = (from.to_buf(), effect.lands_at.to_buf());
                self.effects.push(EarlierEffect::Moved { from, to, entries: self.effects.len() - before });
            }
        }
    }

    /// Marks the last recorded operation as not applied. Its targets stay, but later operations see the document before
    /// it.
    pub(crate) fn not_applied(&mut self) {
        self.effects.truncate(self.applied);
    }

    /// Returns the place before the patch of the value that the last recorded operation meets at `place`; `None` for
    /// elements that the patch inserted. An overwritten value keeps its place. `arrives`: `place` refers to the
    /// document after a `move` has removed its `from`.
    pub(crate) fn original_place_for_op(&self, place: &Pointer, arrives: bool) -> Option<PointerBuf> {
        let before = self.effects.iter().take(self.applied + usize::from(arrives));
        before.rev().try_fold(place.to_buf(), |place, own| own.before(place))
    }

    /// Returns the place before the patch of the value at `place` after the patch; `None` for elements that the patch
    /// inserted. An overwritten value keeps its place.
    pub(crate) fn original_place(&self, place: &Pointer) -> Option<PointerBuf> {
        let (mut place, mut below) = (place.to_buf(), PointerBuf::root());
        let mut left = self.effects.len();
        while let Some(own) = left.checked_sub(1).and_then(|last| self.effects.get(last)) {
            left -= 1;
            match own {
                EarlierEffect::Moved { from, to, entries } if place.starts_with(to) => {
                    let rest = place.strip_prefix(to).map_or_else(PointerBuf::root, Pointer::to_buf);
                    place = from.concat(&rest);
                    left = left.saturating_sub(*entries);
                }
                // Inside a value written as a whole, earlier shifts do not apply.
                EarlierEffect::Wrote(wrote) | EarlierEffect::Overwrote(wrote)
                    if place.starts_with(wrote) && place != *wrote =>
                {
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

    fn record_removal(&mut self, index: usize, from: &Pointer, candidate: &Candidate) {
        self.add(index, from, TargetAction::Removes);
        // A missing value cannot be removed, and shifts nothing.
        let array = from.parent().filter(|parent| candidate.get(parent).is_some_and(|node| node.as_array().is_some()));
        let array = array.filter(|_| candidate.get(from).is_some());
        let element = array.and_then(|array| Some((array.to_buf(), from.back()?.decoded().parse().ok()?)));
        self.effects.push(match element {
            Some((array, element)) => EarlierEffect::Removed(array, element),
            None => EarlierEffect::Wrote(from.to_buf()),
        });
    }

    /// Records the arrival of a value. `path`: the place as named by the operation.
    fn record_write(&mut self, index: usize, path: &Pointer, effect: &OpEffect<'_>) {
        let lands_at = &*effect.lands_at;
        let appends = effect.granted_at != effect.lands_at;
        match effect.kind {
            _ if appends => {
                let made = self.before(lands_at, false);
                if let Some(target) = self.add(index, &effect.granted_at, TargetAction::Appends) {
                    target.names_index = path == lands_at;
                    target.lands_at = made;
                }
                self.effects.push(EarlierEffect::Wrote(lands_at.to_buf()));
            }
            Some(GrantOp::Insert) => {
                self.add(index, lands_at, TargetAction::Inserts);
                let element = || Some((lands_at.parent()?.to_buf(), lands_at.back()?.decoded().parse().ok()?));
                self.effects.extend(element().map(|(array, element)| EarlierEffect::Inserted(array, element)));
            }
            Some(GrantOp::Replace) => {
                self.add(index, lands_at, TargetAction::Overwrites);
                self.effects.push(EarlierEffect::Wrote(lands_at.to_buf()));
            }
            _ => {
                self.add(index, lands_at, TargetAction::Creates);
                self.effects.push(EarlierEffect::Wrote(lands_at.to_buf()));
            }
        }
    }

    fn add(&mut self, op: usize, place: &Pointer, action: TargetAction) -> Option<&mut Target> {
        let place = self.before(place, action.shifts())?;
        self.targets.push(Target { op, place, action, lands_at: None, names_index: false });
        self.targets.last_mut()
    }

    /// Returns the place before the patch; `None` if the patch made it. `as_slot`: the index matters, not the value,
    /// and an overwrite keeps it.
    fn before(&self, place: &Pointer, as_slot: bool) -> Option<PointerBuf> {
        let mut place = place.to_buf();
        for own in self.effects.iter().rev() {
            let is_made = match own {
                EarlierEffect::Wrote(wrote) => place.starts_with(wrote),
                EarlierEffect::Overwrote(wrote) => place.starts_with(wrote) && !(as_slot && place == *wrote),
                EarlierEffect::Inserted(..) | EarlierEffect::Removed(..) | EarlierEffect::Moved { .. } => false,
            };
            place = own.before(place).filter(|_| !is_made)?;
        }
        Some(place)
    }
}

impl EarlierEffect {
    /// Returns the place before this entry; `None` for an element that the entry inserted.
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

/// Returns a place's index within an array, and the rest of its pointer.
pub(crate) fn index_in(place: &Pointer, array: &Pointer) -> Option<(usize, PointerBuf)> {
    // `strip_prefix` alone would find `/a/1` in `/a/10`.
    let below = place.starts_with(array).then(|| place.strip_prefix(array)).flatten()?;
    let (token, rest) = below.split_front()?;
    Some((token.decoded().parse().ok()?, rest.to_buf()))
}
