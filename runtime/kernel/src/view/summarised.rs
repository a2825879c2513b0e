//! The places that are summarised, as few words as they were found in: pointers are only written for whoever asks.

use std::ops::Range;

use crate::tree::{Key, Step};

use super::search::push_step;

/// How many pointers of what is not shown are kept, where anybody asks.
pub(super) const SUMMARISED_MAX: usize = 256;

/// Places of which no more than a summary is shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summarised {
    runs: Vec<Run>,
    len: usize,
    most: usize,
}

/// Places with one container.
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

impl Summarised {
    /// None yet, and room for so many.
    pub(super) const fn up_to(most: usize) -> Self {
        Self { runs: Vec::new(), len: 0, most }
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Their JSON Pointers, sorted.
    pub fn pointers(&self) -> Vec<String> {
        let mut pointers = Vec::with_capacity(self.len);
        for Run { container, parts } in &self.runs {
            let below = |step: Step<'_>| {
                let mut pointer = container.clone();
                push_step(&mut pointer, step);
                pointer
            };
            match parts {
                Parts::Itself => pointers.push(container.clone()),
                Parts::Elements(indices) => pointers.extend(indices.clone().map(Step::Index).map(below)),
                Parts::Members(names) => pointers.extend(names.iter().map(Step::Key).map(below)),
            }
        }
        pointers.sort_unstable();
        pointers
    }

    /// How many more are kept.
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
