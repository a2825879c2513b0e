//! The daemon of PatchBoard: HTTP API, MCP, AG-UI, metrics and notices, and the answers that it shares with commands.
//!
//! Makes no decisions about boards. Does not know commands: the `patchboard` binary is in `patchboard-daemon`.
//!
//! * [`serve`]: the daemon; [`notify`]: its notices to operators.
//! * [`queries`]: the answers about a board that commands print and routes return.
//! * [`reader`], [`describe`], `provenance`: reading a board's history.
//! * [`failure`]: errors with a stable code; [`codes`]: the meanings of codes; [`text`]: text that is safe to show.
//! * [`model_arguments`], [`config_tables`], [`trust`]: the operator's configuration; [`sizes`]: sizes in it.
//! * [`outages`]: outages of models; [`interrupts`]: signals of the operating system.
//! * [`diagnostics`]: findings about a blueprint.
//! * [`host_dir`]: the files by which agents at one directory find their host.

pub mod codes;
pub mod config_tables;
pub mod describe;
pub mod diagnostics;
pub mod failure;
pub mod host_dir;
pub mod interrupts;
pub mod model_arguments;
pub mod notify;
pub mod outages;
mod provenance;
pub mod queries;
pub mod reader;
pub mod serve;
pub mod sizes;
pub mod text;
pub mod trust;
