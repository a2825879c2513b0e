//! Drivers that keep everything in memory: tests, exports that are read, copies of a store as it was at a moment.

mod documents;
mod journal;

pub use self::documents::MemoryDocuments;
pub use self::journal::MemoryJournal;
