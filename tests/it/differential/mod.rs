//! Proves that validating a change gives the same verdict as validating the whole document.

mod documents;
mod edits;
mod random;
mod schemas;
mod suite;
mod timing;
