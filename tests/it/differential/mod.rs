//! Validating what a change touched comes to the same as validating everything.

mod documents;
mod edits;
mod random;
mod schemas;
mod suite;
mod timing;
