//! Lint of blueprints through the public API: every code has a text that triggers it, and the published meta-schema
//! matches the model.

mod bombs;
mod findings;
mod meta_schema;
mod never;
mod storms;
