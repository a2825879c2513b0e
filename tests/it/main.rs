//! Runs the integration tests: one module per promise. All are in one binary, because each binary would link the whole
//! system again.

mod agreement;
mod alfworld;
mod authoring;
mod circles;
mod codes;
mod differential;
mod faults;
mod freshness;
mod golden;
mod json_schema_suite;
mod prose;
mod sw4rm;
mod syntax;
mod tidy;
mod vectors;

use patchboard_tests::shared;
