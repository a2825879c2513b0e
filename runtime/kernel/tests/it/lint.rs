//! The lint of blueprints, from outside: every code has a text that brings it about, and the published meta-schema says
//! what the model reads.

mod bombs;
mod findings;
mod meta_schema;
mod never;
mod storms;
