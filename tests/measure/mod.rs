//! Measuring: how samples are taken, shown and recorded.
//!
//! Two things that are to be compared are timed in the same run, turn and turn about, because machines differ from day
//! to day and from minute to minute. A ratio is of medians.
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
