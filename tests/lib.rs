//! What integration tests (`it`) and benchmarks (`benches`) share.
//!
//! * [`shared`]: the conformance data and peer scripts beside the workspace;
//! * [`whole`]: the whole-document way of a commit, the thing to compare with;
//! * [`boards`]: generated boards of any size, and writers that work on them;
//! * [`brain`]: boards whose language models are functions of the program;
//! * [`elements`]: the README's blueprint over any number of elements;
//! * [`measure`]: the sampler, the tables and the recording of the benchmarks.

pub mod boards;
pub mod brain;
pub mod documents;
pub mod elements;
pub mod measure;
pub mod shared;
pub mod whole;
