//! Shared code of integration tests (`it`) and benchmarks (`benches`).
//!
//! * [`shared`]: the conformance data and peer scripts beside the workspace;
//! * [`whole`]: the whole-document way of a commit, as the baseline;
//! * [`boards`]: generated boards of any size, and writers that work on them;
//! * [`scripted_model`]: boards with functions of the program as their language models;
//! * [`elements`]: the README's blueprint over any number of elements;
//! * [`measure`]: the sampler, the tables and the recording of the benchmarks.

pub mod boards;
pub mod documents;
pub mod elements;
pub mod measure;
pub mod scripted_model;
pub mod shared;
pub mod whole;
