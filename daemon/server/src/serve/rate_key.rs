//! Subjects of the limits per caller.

use std::net::IpAddr;

use patchboard_kernel::digest::Digest;

/// Maximum number of callers with a recorded usage.
pub(crate) const CALLERS_MAX: usize = 10_000;

/// Rate-limit key: the subject of a count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum RateKey {
    /// Holder of a token, by its hash.
    Token(Digest),
    Address(IpAddr),
}
