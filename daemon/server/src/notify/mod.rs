//! Notices to operators, delivered at least once from the journal; configured by the table `[notify]`. See
//! `docs/notify.md`.
//!
//! * [`notice`]: from records to notices, a pure function; `cursors`: delivery positions of boards.
//! * `feed`: boards with new records; `dispatch`: reads and delivers them, one task for each receiver; `backoff`: waits.
//! * [`receiver`], `sign`: webhooks and programs; [`settings`]: the table.

mod backoff;
mod cursors;
mod dispatch;
pub(crate) mod feed;
mod heads;
pub mod notice;
pub mod receiver;
pub mod settings;
mod sign;

pub(crate) use self::dispatch::Notifier;
