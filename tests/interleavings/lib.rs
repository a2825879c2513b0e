//! Empty library; the tests are in `main.rs`.
