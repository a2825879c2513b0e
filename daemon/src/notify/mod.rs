//! Notices to operators: the table `[notify]`, at least once, out of the journal. `docs/notify.md` describes them.
//!
//! * [`notice`]: from records to notices, a pure function; [`cursors`]: how far notices of a board were delivered.
//! * [`feed`]: boards with new records; [`dispatch`]: reads them and delivers, one task for each receiver.
//! * [`receiver`], [`sign`]: webhooks and programs; [`settings`]: the table.

mod cursors;
mod dispatch;
pub(crate) mod feed;
mod heads;
pub(crate) mod notice;
pub(crate) mod receiver;
pub(crate) mod settings;
mod sign;

pub(crate) use self::dispatch::Notifier;
