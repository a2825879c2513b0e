//! Changes at a path: copies the way to the place, shares the rest.
//!
//! The places must have been found to be right before ([`crate::state`] does); what cannot be done is a bug here.

use std::sync::Arc;

use jsonptr::Pointer;

use super::{At, Key, Node, index};
use crate::digest::Hasher;

/// What a change is made with.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The version it makes.
    pub at: At,
    /// The board's hasher.
    pub hasher: Arc<Hasher>,
}

/// Lets the node at `place` be changed, and all above it know.
fn at(node: &mut Node, place: &Pointer, version: At, change: &mut dyn FnMut(&mut Node)) {
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
    /// Puts another value in place of one that is there.
    ///
    /// # Panics
    /// If nothing is there.
    pub fn replace(&mut self, place: &Pointer, value: Self, edit: &Edit) {
        let Some((container, token)) = place.split_back() else {
            *self = value;
            return;
        };
        let token = token.decoded();
        let mut value = Some(value);
        let mut put = |node: &mut Self, stamp: &mut super::Stamp| {
            *node = value.take().expect("it is put once");
            stamp.changed = edit.at;
        };
        at(self, container, edit.at, &mut |node| match node {
            Self::Array(array) => {
                let index = index(&token).expect("the place was found before");
                array.change(index, edit.at, &mut put);
            }
            Self::Object(object) => object.change(&token, edit.at, &mut put),
            _ => unreachable!("the place was found before"),
        });
    }

    /// Makes a place for a value: a new member, or an element before the one at this index (`-`: at the end).
    ///
    /// # Panics
    /// If its container is not there, has the member already or ends before the index.
    pub fn insert(&mut self, place: &Pointer, value: Self, edit: &Edit) {
        let Some((container, token)) = place.split_back() else {
            *self = value;
            return;
        };
        let token = token.decoded();
        let mut value = Some(value);
        at(self, container, edit.at, &mut |node| {
            let value = value.take().expect("it is put once");
            match node {
                Self::Array(array) => {
                    let index = index(&token).unwrap_or(array.len());
                    array.insert(index, value, edit.at);
                }
                Self::Object(object) => {
                    object.insert(Key::from(token.as_ref()), value, edit.at, &edit.hasher);
                }
                _ => unreachable!("the place was found before"),
            }
        });
    }

    /// Takes away what is at a place, and the place with it.
    ///
    /// # Panics
    /// If nothing is there, or for the whole document.
    pub fn remove(&mut self, place: &Pointer, edit: &Edit) -> Self {
        let (container, token) = place.split_back().expect("the whole document stays");
        let token = token.decoded();
        let mut removed = None;
        at(self, container, edit.at, &mut |node| {
            removed = Some(match node {
                Self::Array(array) => {
                    let index = index(&token).expect("the place was found before");
                    array.remove(index, edit.at)
                }
                Self::Object(object) => object.remove(&token, edit.at),
                _ => unreachable!("the place was found before"),
            });
        });
        removed.expect("it was there")
    }
}
