//! Nothing: what there is are the tests in `main.rs`.
