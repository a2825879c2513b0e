//! Maps the places that a patch names to those before the patch.
//!
//! A shadow of the document goes through the operations of the patch. Each of its nodes keeps its original place;
//! nodes that the patch itself added have none.

use std::collections::BTreeMap;

use json_patch::PatchOperation as Op;
use serde_json::Value;

use super::place::{Place, index};

/// Intent of an operation, at a place of the document before the patch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// Replacement or removal of a value; `draws` if it removes an element from an array.
    Over { place: Place, draws: bool },
    /// Addition of a member.
    New(Place),
    /// Insertion before this element.
    Insert { array: Place, before: usize },
    /// Addition after the last element; `named` if the patch gave the index.
    Append { array: Place, len: usize, named: bool },
    /// Addition at an index beyond the end, which is invalid.
    Beyond { array: Place, index: usize },
    /// Read of a value to copy.
    Copy(Place),
}

impl Target {
    /// Returns the place that represents the target.
    pub(super) fn place(&self) -> Place {
        match self {
            Self::Over { place, .. } | Self::New(place) | Self::Copy(place) => place.clone(),
            Self::Insert { array, before } => array.child(before),
            Self::Append { array, len, .. } => array.child(len),
            Self::Beyond { array, index } => array.child(index),
        }
    }
}

impl Target {
    /// Returns true if a reservation of `place` covers this target.
    pub(super) fn is_meant_by(&self, place: &Place) -> bool {
        match self {
            Self::Append { array, .. } => *place == array.child("-") || self.place().touches(place),
            Self::Over { .. } | Self::New(_) | Self::Insert { .. } | Self::Beyond { .. } | Self::Copy(_) => {
                self.place().touches(place)
            }
        }
    }
}

struct Shadow {
    /// Original place; `None` for nodes that the patch added.
    origin: Option<Place>,
    /// Original place of this position, also if the patch replaced its value.
    slot: Option<Place>,
    /// Set for elements that the patch appended after all others, so that they shifted none.
    is_behind: bool,
    below: Below,
}

enum Below {
    Nothing,
    /// Elements, and their number before the patch.
    Elements(Vec<Shadow>, usize),
    Members(BTreeMap<String, Shadow>),
}

/// Returns the targets of a patch's operations, each with the operation's index.
pub(super) fn targets(document: &Value, ops: &[Op]) -> Vec<(usize, Target)> {
    let mut candidate = document.clone();
    let mut shadow = Shadow::of(document, Some(&Place::default()));
    let mut targets = Vec::new();
    let mut is_broken = false;
    let mut gone: Vec<Place> = Vec::new();
    for (number, op) in ops.iter().enumerate() {
        let place = |pointer: &dyn std::fmt::Display| Place::parse(&pointer.to_string());
        // A place that the patch itself removed is no target.
        let is_own = |target: &Target| gone.iter().any(|gone: &Place| gone.covers(&target.place()));
        let mut note = |target: Option<Target>| {
            targets.extend(target.filter(|target| !is_own(target)).map(|target| (number, target)));
        };
        match op {
            Op::Test(_) => {}
            Op::Replace(op) => note(shadow.over(&place(&op.path), false)),
            Op::Remove(op) => note(shadow.over(&place(&op.path), true)),
            Op::Add(op) => note(shadow.add(&place(&op.path))),
            Op::Copy(op) => {
                note(shadow.origin_of(&place(&op.from)).map(Target::Copy));
                note(shadow.add(&place(&op.path)));
            }
            Op::Move(op) => {
                note(shadow.over(&place(&op.from), true));
                // The effect at `path` refers to the document without the value at `from`.
                let mut between = Shadow::of(&Value::Null, None);
                std::mem::swap(&mut between, &mut shadow);
                let is_element = between.holds_elements(&place(&op.from));
                let taken = between.take(&place(&op.from));
                // A value cannot be moved into itself, unless it is an element and the next one has moved up to its
                // index.
                let is_itself = !is_element && place(&op.from).covers(&place(&op.path));
                note(between.add(&place(&op.path)).filter(|_| !is_itself));
                if let Some((taken, at)) = taken {
                    between.put_back(&place(&op.from), taken, at);
                }
                shadow = between;
            }
        }
        // After an inapplicable operation, later ones refer to the document before it.
        if !is_broken {
            match super::history::apply(&mut candidate, op) {
                Ok(()) => {
                    let taken = match op {
                        Op::Remove(op) => Some(place(&op.path)),
                        Op::Move(op) => Some(place(&op.from)),
                        _ => None,
                    };
                    let member = taken.filter(|taken| !shadow.holds_elements(taken));
                    gone.extend(member.and_then(|member| shadow.origin_of(&member)));
                    shadow.apply(op, &candidate);
                }
                Err(()) => is_broken = !matches!(op, Op::Test(_)),
            }
        }
    }
    targets
}

impl Shadow {
    fn of(value: &Value, origin: Option<&Place>) -> Self {
        let child = |token: &dyn std::fmt::Display| origin.map(|origin| origin.child(token.to_string()));
        let below = match value {
            Value::Array(elements) => {
                let shadows = elements.iter().enumerate().map(|(index, value)| Self::of(value, child(&index).as_ref()));
                Below::Elements(shadows.collect(), if origin.is_some() { elements.len() } else { 0 })
            }
            Value::Object(members) => {
                let shadows = members.iter().map(|(name, value)| (name.clone(), Self::of(value, child(name).as_ref())));
                Below::Members(shadows.collect())
            }
            _ => Below::Nothing,
        };
        Self { origin: origin.cloned(), slot: origin.cloned(), is_behind: false, below }
    }

    fn child(&self, token: &str) -> Option<&Self> {
        match &self.below {
            Below::Nothing => None,
            Below::Elements(elements, _) => elements.get(index(token)?),
            Below::Members(members) => members.get(token),
        }
    }

    fn at(&mut self, place: &Place) -> Option<&mut Self> {
        place.tokens().iter().try_fold(self, |shadow, token| match &mut shadow.below {
            Below::Nothing => None,
            Below::Elements(elements, _) => elements.get_mut(index(token)?),
            Below::Members(members) => members.get_mut(token),
        })
    }

    /// Returns the original place of a place, or, if it is vacant, the place that it would have had. `None` for
    /// nodes that the patch added.
    fn origin_of(&self, place: &Place) -> Option<Place> {
        let mut shadow = self;
        for (depth, token) in place.tokens().iter().enumerate() {
            if let Some(child) = shadow.child(token) {
                shadow = child;
                continue;
            }
            let mut origin = shadow.origin.clone()?;
            // Index after the last element.
            let behind = match &shadow.below {
                Below::Elements(elements, len) => {
                    index(token).map(|index| index - elements.len() + end(elements, *len))
                }
                Below::Nothing | Below::Members(_) => None,
            };
            origin = behind.map_or_else(|| origin.child(token), |index| origin.child(index));
            return Some(place.tokens()[depth + 1..].iter().fold(origin, |origin, token| origin.child(token)));
        }
        shadow.origin.clone()
    }

    fn over(&self, place: &Place, takes: bool) -> Option<Target> {
        let draws = takes && self.holds_elements(place);
        let slot = || self.find(place).filter(|_| draws).and_then(|shadow| shadow.slot.clone());
        Some(Target::Over { place: self.origin_of(place).or_else(slot)?, draws })
    }

    fn find(&self, place: &Place) -> Option<&Self> {
        place.tokens().iter().try_fold(self, |shadow, token| shadow.child(token))
    }

    /// Returns true if a place is an element of an array.
    fn holds_elements(&self, place: &Place) -> bool {
        place.split().and_then(|(above, _)| self.find(&above)).is_some_and(Self::is_array)
    }

    fn is_array(&self) -> bool {
        matches!(self.below, Below::Elements(..))
    }

    fn add(&self, place: &Place) -> Option<Target> {
        let (above, token) = place.split()?;
        let Some(parent) = self.find(&above) else { return self.origin_of(place).map(Target::New) };
        match &parent.below {
            Below::Elements(elements, len) => {
                let array = parent.origin.clone()?;
                let append = |len, named| Target::Append { array: array.clone(), len, named };
                let end = end(elements, *len);
                Some(match index(token) {
                    Some(at) if at < elements.len() => {
                        // The first element from there on that has an original place.
                        let next = elements[at..].iter().find_map(|element| element.slot.as_ref());
                        match next.and_then(|origin| origin.index_in(&array)) {
                            Some(before) => Target::Insert { array, before },
                            None => append(end, false),
                        }
                    }
                    Some(at) if at > elements.len() => Target::Beyond { index: at - elements.len() + end, array },
                    Some(_) => append(end, true),
                    None if token == "-" => append(end, false),
                    // A member name, which is invalid in an array.
                    None => Target::New(array.child(token)),
                })
            }
            Below::Members(members) if members.contains_key(token) => self.over(place, false),
            Below::Members(_) | Below::Nothing => self.origin_of(place).map(Target::New),
        }
    }

    fn take(&mut self, place: &Place) -> Option<(Self, usize)> {
        let (above, token) = place.split()?;
        match &mut self.at(&above)?.below {
            Below::Nothing => None,
            Below::Elements(elements, _) => {
                let at = index(token).filter(|index| *index < elements.len())?;
                Some((elements.remove(at), at))
            }
            Below::Members(members) => members.remove(token).map(|shadow| (shadow, 0)),
        }
    }

    fn put_back(&mut self, place: &Place, shadow: Self, at: usize) {
        let (above, token) = place.split().expect("the whole document is not taken");
        match &mut self.at(&above).expect("what held it is still there").below {
            Below::Nothing => {}
            Below::Elements(elements, _) => elements.insert(at, shadow),
            Below::Members(members) => drop(members.insert(token.to_owned(), shadow)),
        }
    }

    /// Applies an operation to the shadow; `after` is the document after it.
    fn apply(&mut self, op: &Op, after: &Value) {
        let place = |pointer: &dyn std::fmt::Display| Place::parse(&pointer.to_string());
        let (taken, path) = match op {
            Op::Test(_) => return,
            Op::Remove(op) => (Some(place(&op.path)), None),
            Op::Move(op) => (Some(place(&op.from)), Some(place(&op.path))),
            Op::Add(op) => (None, Some(place(&op.path))),
            Op::Copy(op) => (None, Some(place(&op.path))),
            Op::Replace(op) => {
                let path = place(&op.path);
                let made = Self::of(path.of(after).expect("it was put there"), None);
                if let Some(shadow) = self.at(&path) {
                    *shadow = Self { slot: shadow.slot.take(), is_behind: shadow.is_behind, ..made };
                }
                return;
            }
        };
        if let Some(taken) = taken {
            self.take(&taken);
        }
        let Some((above, token)) = path.and_then(|path| path.split().map(|(above, token)| (above, token.to_owned())))
        else {
            return;
        };
        let Some(parent) = self.at(&above) else { return };
        match &mut parent.below {
            Below::Nothing => {}
            Below::Elements(elements, _) => {
                let at = index(&token).unwrap_or(elements.len()).min(elements.len());
                let made = above.child(at);
                let made = Self::of(made.of(after).expect("it was put there"), None);
                let is_behind = elements[at..].iter().all(|element| element.is_behind);
                elements.insert(at, Self { is_behind, ..made });
            }
            Below::Members(members) => {
                let made = above.child(&token);
                members.insert(token, Self::of(made.of(after).expect("it was put there"), None));
            }
        }
    }
}

/// Returns the index after the last element, in the numbering before the patch: elements that the patch appended
/// continue it, as they shifted none. `len` is the original number of elements.
fn end(elements: &[Shadow], len: usize) -> usize {
    let behind = elements.iter().rev().take_while(|element| element.is_behind).count();
    len + behind
}
