//! Changes at a path: copies the path to the place and shares the rest.
//!
//! [`crate::state`] must have validated the places; an impossible edit is a bug here.

use std::sync::Arc;

use jsonptr::Pointer;

use super::{Key, Node, Revision, index};
use crate::digest::Hasher;

/// Context of a change.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The version that the change belongs to.
    pub revision: Revision,
    /// The board's hasher.
    pub hasher: Arc<Hasher>,
}

/// Calls `change` with the node at `place`, and updates all nodes above it.
fn at(node: &mut Node, place: &Pointer, version: Revision, change: &mut dyn FnMut(&mut Node)) {
    let Some((token, rest)) = place.split_front() else { return change(node) };
    let token = token.decoded();
    let mut below = |child: &mut Node, _: &mut _| at(child, rest, version, change);
    match node {
        Node::Array(array) => {
            let index = index(&token).expect("the place was found before");
            array.change(index, version, &mut below);
        }
        Node::Object(object) => object.change(&token, version, &mut below),
        _ => unreachable!("the place was found before"),
    }
}

impl Node {
    /// Replaces an existing value.
    ///
    /// # Panics
    /// If there is no value at the place.
    pub fn replace(&mut self, place: &Pointer, value: Self, edit: &Edit) {
        let Some((container, token)) = place.split_back() else {
            *self = value;
            return;
        };
        let token = token.decoded();
        let mut value = Some(value);
        let mut put = |node: &mut Self, stamp: &mut super::Stamp| {
            *node = value.take().expect("it is put once");
            stamp.changed = edit.revision;
        };
        at(self, container, edit.revision, &mut |node| match node {
            Self::Array(array) => {
                let index = index(&token).expect("the place was found before");
                array.change(index, edit.revision, &mut put);
            }
            Self::Object(object) => object.change(&token, edit.revision, &mut put),
            _ => unreachable!("the place was found before"),
        });
    }

    /// Adds a value: a new member, or an element before the one at this index (`-` appends).
    ///
    /// # Panics
    /// If its container does not exist, already has the member, or ends before the index.
    pub fn insert(&mut self, place: &Pointer, value: Self, edit: &Edit) {
        let Some((container, token)) = place.split_back() else {
            *self = value;
            return;
        };
        let token = token.decoded();
        let mut value = Some(value);
        at(self, container, edit.revision, &mut |node| {
            let value = value.take().expect("it is put once");
            match node {
                Self::Array(array) => {
                    let index = index(&token).unwrap_or(array.len());
                    array.insert(index, value, edit.revision);
                }
                Self::Object(object) => {
                    object.insert(Key::from(token.as_ref()), value, edit.revision, &edit.hasher);
                }
                _ => unreachable!("the place was found before"),
            }
        });
    }

    /// Removes a value and its place.
    ///
    /// # Panics
    /// If there is no value at the place, or for the whole document.
    pub fn remove(&mut self, place: &Pointer, edit: &Edit) -> Self {
        let (container, token) = place.split_back().expect("the whole document stays");
        let token = token.decoded();
        let mut removed = None;
        at(self, container, edit.revision, &mut |node| {
            removed = Some(match node {
                Self::Array(array) => {
                    let index = index(&token).expect("the place was found before");
                    array.remove(index, edit.revision)
                }
                Self::Object(object) => object.remove(&token, edit.revision),
                _ => unreachable!("the place was found before"),
            });
        });
        removed.expect("it was there")
    }
}
