//! What `patchboard mcp --workspace` is made of: coding agents that edit one directory, each with a process of its own, and no
//! daemon that anybody has to start or to end.
//!
//! One more process is the host: it runs the board of the directory and lets the others reach it on this machine. Who needs it
//! first starts it; that there is one only is decided by a lock of the operating system, so that a host that is gone, however
//! it went, has a successor at once. It ends when nobody is there any more.
//!
//! * [`place`]: what they know each other by, in the directory.
//! * [`launch`]: how the host is started.
//! * [`desk`]: one agent's way to the host; [`sitting`]: what it has there; [`changes`]: who changed what lately, in words.
//! * [`turns`]: its commands, in the order in which it asks, and what it had heard when it did.
//! * [`editor`]: what the agent sees of it, in MCP.
//!
//! The host itself is [`crate::serve::host`].

mod changes;
pub(crate) mod desk;
pub(crate) mod editor;
mod launch;
pub(crate) mod place;
mod sitting;
pub(crate) mod turns;
