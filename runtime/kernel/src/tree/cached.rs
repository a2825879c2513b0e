//! Contents of a container's node with the values that are computed from them.

use std::sync::OnceLock;

use triomphe::Arc;

use super::{Stored, Sum};

/// A node of an array or object.
#[derive(Debug)]
pub(in crate::tree) struct Cached<B> {
    /// Computed lazily, and cleared when a descendant changes.
    pub(in crate::tree) digest: OnceLock<[u8; 32]>,
    pub(in crate::tree) part: Stored,
    pub(in crate::tree) sum: Sum,
    pub(in crate::tree) body: B,
}

/// A copy is made to be changed: it starts without cached values.
impl<B: Clone> Clone for Cached<B> {
    fn clone(&self) -> Self {
        Self::new(self.sum, self.body.clone())
    }
}

impl<B> Cached<B> {
    pub(in crate::tree) const fn new(sum: Sum, body: B) -> Self {
        Self { digest: OnceLock::new(), part: Stored::new(), sum, body }
    }

    /// Clears the cached values because a descendant changes.
    pub(in crate::tree) fn clear_cache(&mut self) {
        (self.digest, self.part) = Default::default();
    }

    pub(in crate::tree) const fn sum(&self) -> Sum {
        self.sum
    }
}

impl<B: Clone> Cached<B> {
    /// Returns an owned copy of a node that keeps its stored part.
    pub(in crate::tree) fn unshared(this: Arc<Self>) -> Self {
        Arc::try_unwrap(this).unwrap_or_else(|shared| {
            let copy = Self::clone(&shared);
            shared.part.get().into_iter().for_each(|part| drop(copy.part.set(Box::new(*part))));
            copy
        })
    }
}
