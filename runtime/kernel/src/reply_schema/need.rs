//! Intended operation at a place.

use crate::blueprint::GrantOp;

/// Intended operation at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Create a member or element.
    Create,
    /// Insert an element before the existing one.
    Insert,
    /// Overwrite or remove the existing value.
    Overwrite,
}

/// Returns the intention behind a granted operation.
pub(super) const fn need(op: GrantOp) -> Need {
    match op {
        GrantOp::Add | GrantOp::Move | GrantOp::Copy => Need::Create,
        GrantOp::Insert => Need::Insert,
        GrantOp::Replace | GrantOp::Remove => Need::Overwrite,
    }
}
