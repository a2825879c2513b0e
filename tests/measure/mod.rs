//! Takes, prints and records samples.
//!
//! Two sides of a comparison are timed in the same run and in turns, because machines differ from day to day and from
//! minute to minute. A ratio is of medians.
//!
//! * `sampler.rs`: clocks, and samples of several sides taken in turns;
//! * `options.rs`: the command line of every benchmark;
//! * `report.rs`: rows, the table, the lines of JSON;
//! * `record.rs`: the tables in `docs/performance.md`.

mod options;
mod record;
mod report;
mod sampler;

pub use options::Options;
pub use report::{Bench, Goal, Row, bytes, run};
pub use sampler::{Laps, Side, Stats, cpu_time, interleave, on_cpu, on_wall};
