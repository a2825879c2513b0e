//! Compact list of summarised places: their pointers are written only on request.

use std::ops::Range;

use crate::tree::{Key, PathSegment};

use super::search::push_step;

/// Maximum pointers of hidden places that are kept for explanations.
pub(super) const SUMMARISED_MAX: usize = 256;

/// Places with no more than a summary.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SummarisedPlaces {
    runs: Vec<Run>,
    len: usize,
    most: usize,
}

/// Places in one container.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Run {
    /// JSON Pointer.
    container: String,
    parts: Parts,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Parts {
    /// The container itself is the place.
    Itself,
    Elements(Range<usize>),
    Members(Vec<Key>),
}

impl SummarisedPlaces {
    /// Creates an empty list with room for `most` places.
    pub(super) const fn up_to(most: usize) -> Self {
        Self { runs: Vec::new(), len: 0, most }
    }

    /// Returns the number of places.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no places.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the sorted JSON Pointers.
    pub fn pointers(&self) -> Vec<String> {
        let mut pointers = Vec::with_capacity(self.len);
        for Run { container, parts } in &self.runs {
            let below = |step: PathSegment<'_>| {
                let mut pointer = container.clone();
                push_step(&mut pointer, step);
                pointer
            };
            match parts {
                Parts::Itself => pointers.push(container.clone()),
                Parts::Elements(indices) => pointers.extend(indices.clone().map(PathSegment::Index).map(below)),
                Parts::Members(names) => pointers.extend(names.iter().map(PathSegment::Key).map(below)),
            }
        }
        pointers.sort_unstable();
        pointers
    }

    /// Returns the room for further places.
    pub(super) const fn room(&self) -> usize {
        self.most - self.len
    }

    /// Adds one place, if there is room.
    pub(super) fn push(&mut self, pointer: &str) {
        if self.room() > 0 {
            self.len += 1;
            self.runs.push(Run { container: pointer.to_owned(), parts: Parts::Itself });
        }
    }

    /// Adds as many elements of an array as there is room for.
    pub(super) fn push_elements(&mut self, container: &str, indices: Range<usize>) {
        let indices = indices.start..indices.end.min(indices.start + self.room());
        if !indices.is_empty() {
            self.len += indices.len();
            self.runs.push(Run { container: container.to_owned(), parts: Parts::Elements(indices) });
        }
    }

    /// Adds a member of an object, if there is room.
    pub(super) fn push_member(&mut self, container: &str, name: &Key) {
        if self.room() == 0 {
            return;
        }
        self.len += 1;
        match self.runs.last_mut() {
            Some(Run { container: last, parts: Parts::Members(names) }) if last == container => {
                names.push(name.clone());
            }
            _ => {
                let parts = Parts::Members(vec![name.clone()]);
                self.runs.push(Run { container: container.to_owned(), parts });
            }
        }
    }
}
