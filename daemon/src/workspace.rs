//! Implementation of `patchboard mcp --workspace`: coding agents that edit one directory, each with its own process,
//! without a daemon to start or stop.
//!
//! One more process is the host: it runs the directory's board and serves the others on this machine. The first client
//! starts it. A lock of the operating system ensures that there is only one, so a host that ended, for any reason, has
//! a successor at once. It exits after the last client.
//!
//! * [`host_dir`]: files in the directory by which the processes find each other.
//! * [`spawn_host`]: starts the host.
//! * [`host_client`]: one agent's client of the host; [`lease_session`]: its lease there; [`changes`]: summaries of
//!   recent changes.
//! * [`command_queue`]: order of its commands, and the answers received by then.
//! * [`editor`]: the editor as an agent sees it, in MCP.
//!
//! The host itself is [`crate::serve::host`].

mod changes;
pub(crate) mod command_queue;
pub(crate) mod editor;
pub(crate) mod host_client;
pub(crate) use patchboard_server::host_dir;
mod lease_session;
mod spawn_host;
