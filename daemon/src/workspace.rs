//! What `patchboard mcp --workspace` is made of: coding agents that edit one directory, each with a process of its own, and no
//! daemon.
//!
//! One of the processes is the host: it runs the board of the directory and lets the others reach it on this machine. Which
//! one is decided by a lock of the operating system, so that a host that is gone, however it went, has a successor at once.
//!
//! * [`place`]: what they know each other by, in the directory.
//! * [`desk`]: one agent's way to the host, whoever that is.
//! * [`editor`]: what the agent sees of it, in MCP.
//!
//! The host itself is [`crate::serve::host`].

pub(crate) mod desk;
pub(crate) mod editor;
pub(crate) mod place;
