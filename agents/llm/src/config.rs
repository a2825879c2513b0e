//! Settings of a model and of an embeddings endpoint, as tables of `patchboard.toml`.

mod embeddings;
mod model;
mod setting;

use patchboard_kernel::blueprint::Duration;
use patchboard_workspace::directory::checked;
use serde::Deserializer;

pub use embeddings::Embeddings;
pub use model::{Api, Model, Streaming, Structured, check_temperature, check_url};
pub use setting::{Setting, Variable, check_name, redacted};

/// Upper bound of a time in milliseconds: 366 days.
const SPAN_MAX_MS: u64 = 366 * 24 * 60 * 60 * 1000;

/// Reads a time above zero, up to 366 days.
pub fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let is_valid = |span: &Duration| (1..=SPAN_MAX_MS).contains(&span.as_ms());
    checked(deserializer, is_valid, "a time lies above zero, and within 366 days")
}
